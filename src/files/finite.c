// A row is searched only if a count over it, which compilers vectorise, says that it is worth it.
#include "files/finite.h"

#include <math.h>
#include <string.h>

static lp_status not_finite(struct lp_str tensor, uint64_t row, uint64_t column,
                            struct lp_err *err) {
    return lp_err_set(err, LP_STATUS_NUMERIC,
                      "tensor %.*s holds a value that is not finite, in row %llu at column %llu; "
                      "the source is damaged: limpid doctor looks further",
                      LP_STR_ARGS(tensor), (unsigned long long)row, (unsigned long long)column);
}

lp_status lp_finite_check_rows(struct lp_str tensor, const float *values, uint64_t first,
                               uint64_t n, uint64_t n_in, struct lp_err *err) {
    for (uint64_t r = 0; r < n; r++) {
        const float *row = values + r * n_in;
        uint32_t n_bad = 0;
        for (uint64_t i = 0; i < n_in; i++) {
            uint32_t bits;
            memcpy(&bits, &row[i], sizeof bits);
            n_bad += (bits & 0x7f800000) == 0x7f800000;
        }
        for (uint64_t i = 0; n_bad && i < n_in; i++)
            if (!isfinite(row[i])) return not_finite(tensor, first + r, i, err);
    }
    return LP_OK;
}

lp_status lp_finite_check_stored(struct lp_str tensor, lp_type type, const void *blocks,
                                 uint64_t first, uint64_t n, uint64_t n_in, struct lp_err *err) {
    int64_t bad = lp_type_find_nonfinite(type, blocks, (size_t)(n * n_in));
    if (bad < 0) return LP_OK;
    uint64_t at = (uint64_t)bad * lp_type_info((uint32_t)type)->block_values;
    return not_finite(tensor, first + at / n_in, at % n_in, err);
}
