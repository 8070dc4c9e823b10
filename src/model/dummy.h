// Random weights in a device's memory, for a model whose own are not read (lp_load.dummy). Row number r of a tensor, its
// matrices' rows counted one after the other, is row r mod n of one random piece of its type and width; so a part of
// a tensor has the values that the whole has there, whatever the part (a rank's) and wherever it is made.
#ifndef LP_MODEL_DUMMY_H
#define LP_MODEL_DUMMY_H

#include "backend/backend.h"

struct lp_dummy_place { // of a weight in the tensor that it is a part of; rows of values
    int64_t first_mat, n_mats, mat_rows; // n_mats, mat_rows: of the tensor
    int64_t first_row;                   // of each matrix
    int64_t first_column, n_columns;     // n_columns: of the tensor
};
// A weight that is all of a tensor.
struct lp_dummy_place lp_dummy_whole(const struct lp_weight *w);

// Fills a block of device memory with random weights of the type and shape of w: n_mats matrices of n_out rows of
// row_bytes, one behind the other. Errors: MEMORY, INVALID (no type of a weight).
lp_status lp_dummy_fill(struct lp_device *dev, const struct lp_weight *w,
                        const struct lp_dummy_place *place, void *block, struct lp_err *err);

#endif
