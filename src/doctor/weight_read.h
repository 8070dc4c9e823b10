// Single values out of a tensor of any type, wherever they lie.
#ifndef LP_DOCTOR_WEIGHT_READ_H
#define LP_DOCTOR_WEIGHT_READ_H

#include <stdbool.h>

#include "gguf/gguf.h"

// The tensor's n values from number `first` on, in the order of the file (row after row, matrix
// after matrix). The caller checked that they are there and that the type is one of weights.
void lp_weight_read(const struct lp_gguf_tensor *t, uint64_t first, size_t n, float *out);

// The tensor's number of values; 0 for a type that holds no weights.
uint64_t lp_weight_count(const struct lp_gguf_tensor *t);

// A tensor of one row: a norm or a bias.
bool lp_weight_is_vector(const struct lp_gguf_tensor *t);
bool lp_weight_name_ends(const struct lp_gguf_tensor *t, const char *end);

// The tensor of a block ("blk.LAYER.NAME.weight"; NAME may end in ".bias" itself), or NULL; also
// NULL when its type holds no weights. layer -1: "NAME.weight".
const struct lp_gguf_tensor *lp_weight_find(const struct lp_gguf *gguf, int32_t layer,
                                            const char *name);

#endif
