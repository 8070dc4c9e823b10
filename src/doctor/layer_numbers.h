// Whether the operations of a step are given what the metadata says and where the tokens stand:
// rotation, scale, epsilon, gating, number of keys, positions, pages. What an operation is given
// wrong it cannot get right, on any backend.
#ifndef LP_DOCTOR_LAYER_NUMBERS_H
#define LP_DOCTOR_LAYER_NUMBERS_H

#include "doctor/walk.h"

struct lp_layer_numbers {
    const struct lp_walk *walk;
    const struct lp_walk_part *parts; // of the step that runs
    int32_t n_parts;
    bool wrote_index; // the layer that runs has cached indexer keys

    int64_t n_seen;   // operations
    int32_t layer;    // of the first that is odd
    const char *what; // what it was given wrong: "rotation pairs of the indexer"; NULL: nothing
    const char *op;
};

// An operation that is about to run: its name and its lp_op_... in host memory.
void lp_layer_numbers_see(struct lp_layer_numbers *n, int32_t layer, const char *op,
                          const void *args);
// A layer has run.
void lp_layer_numbers_end(struct lp_layer_numbers *n, int32_t layer);

#endif
