// NaN and infinity in the rows of a tensor: no file tool hands them on in silence.
#ifndef LP_FILES_FINITE_H
#define LP_FILES_FINITE_H

#include "base/bytes.h"
#include "quant/quant.h"

// Rows first .. first + n - 1 of a tensor, each of n_in values; a row is counted through all
// matrices. Errors: NUMERIC, with tensor, row and column of the first that is not finite.
lp_status lp_finite_check_rows(struct lp_str tensor, const float *values, uint64_t first,
                               uint64_t n, uint64_t n_in, struct lp_err *err);
// The same of stored rows; of a type with blocks their scales, and the column is a block's first.
lp_status lp_finite_check_stored(struct lp_str tensor, lp_type type, const void *blocks,
                                 uint64_t first, uint64_t n, uint64_t n_in, struct lp_err *err);

#endif
