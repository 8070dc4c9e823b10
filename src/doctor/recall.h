// Does the indexer find the keys that matter? A text is run with every key seen; beside it each
// layer's selection is made and set against the attention that the layer pays, computed here in
// double. So a change to the indexers changes nothing but the selections, and one run measures every
// layer under it.
#ifndef LP_DOCTOR_RECALL_H
#define LP_DOCTOR_RECALL_H

#include "model/model.h"

struct lp_recall;

// tokens: [n], copied. top_k: keys that are selected during the measurement, below n. Up to
// max_queries positions of the second half of the text are looked at. Errors: MEMORY, INVALID (the
// backend is not a host's).
lp_status lp_recall_new(struct lp_recall **out, struct lp_model *model, const int32_t *tokens,
                        int64_t n, int32_t top_k, int32_t max_queries, struct lp_err *err);
void lp_recall_free(struct lp_recall *recall); // NULL is allowed

struct lp_recall_layer { // means over the queries; shares of the attention that all heads pay
    double selected;     // that falls on what the layer selects
    double best;         // on the top_k keys with the most
    double random;       // on as many keys at random
    double recent;       // on the last top_k keys
    double earlier;      // on what the layer before selects; NaN in the first layer
    double overlap;      // share of the selected keys that are among the best
};
// 1: as good as can be; 0: as good as chance; NaN: the attention is so even that all are alike.
double lp_recall_skill(const struct lp_recall_layer *layer, double selected);

// The first run measures attention too and must be of the unchanged model. out: [n_layers].
lp_status lp_recall_run(struct lp_recall *recall, struct lp_recall_layer *out, struct lp_err *err);

// Sums over one query, for tests: mass: [n] attention that adds up to 1; ids: [count] selected.
void lp_recall_measure(const float *mass, int64_t n, const int32_t *ids, int32_t count,
                       int32_t top_k, struct lp_recall_layer *sum);

#endif
