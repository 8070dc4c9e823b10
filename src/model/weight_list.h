// The matrices of a model that are used where its file is mapped, as a list: what of them is on this rank.
#ifndef LP_MODEL_WEIGHT_LIST_H
#define LP_MODEL_WEIGHT_LIST_H

#include "model/model.h"

#define LP_WEIGHT_LIST_LAYER 21
#define LP_WEIGHT_LIST_OTHERS 5

// Those of a layer; the routed experts' three are the last. Weights that the layer does not have are all zeros.
void lp_weight_list_layer(struct lp_layer *layer, struct lp_weight *list[LP_WEIGHT_LIST_LAYER]);
#define LP_WEIGHT_LIST_EXPERTS 3
// Those of no layer; the first two are embeddings, of which a token reads a row. Some may be the same bytes.
void lp_weight_list_others(struct lp_model *model, struct lp_weight *list[LP_WEIGHT_LIST_OTHERS]);
#define LP_WEIGHT_LIST_EMBEDDINGS 2

// Of its rows only some columns are there, which lie among those of other ranks.
bool lp_weight_has_columns_alone(const struct lp_weight *w);
// From the first byte of a matrix of w to its last; 0: nothing is here.
size_t lp_weight_span_bytes(const struct lp_weight *w);

#endif
