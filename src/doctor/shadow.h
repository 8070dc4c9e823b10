// A device behind which two stand: every operation runs on the fast one and on ref, from the same
// inputs, and the outputs are compared. The step goes on with what ref computed, so that errors do
// not pile up and each comparison speaks of one operation alone.
//
// The fast device's kernels for block formats may round activations to 8 bits (docs/numerics.md): a
// product must agree with ref on the activations as they are, or on the rounded ones.
//
// Where ref would take too long it computes a part (rows of a weight, heads, tokens; another part
// each time) and the step goes on with what the fast device computed.
#ifndef LP_DOCTOR_SHADOW_H
#define LP_DOCTOR_SHADOW_H

#include "backend/backend.h"
#include "doctor/diff.h"

struct lp_shadow_finding { // one operation, compared
    int32_t layer;         // as lp_shadow_set_layer was told
    const char *op;        // "matmul"
    const char *kernel;    // of the fast device, or NULL
    struct lp_str weight;  // its name, or empty
    const void *param;     // what tells this operation from its like: weights of a norm,
                           // frequencies of a rotation, base of a cache; or NULL
    int64_t n_rows;        // tokens of the call
    int64_t first_pos;     // position of the first, where the operation knows it; else -1
    bool whole;            // all outputs were compared
    struct lp_diff diff;   // rows and heads counted within the call
    double bound;
    double largest_input; // cache_write: magnitude of the largest value; else 0
    lp_type cache_type;   // cache_write
    char where[192];      // lp_diff_where, where the bound is exceeded
};

struct lp_shadow_config {
    void (*found)(void *user, const struct lp_shadow_finding *finding); // for every comparison
    bool (*wants)(void *user, int32_t layer, const char *op);           // NULL: all are compared
    // Every operation before it runs, with its lp_op_...; or NULL.
    void (*sees)(void *user, int32_t layer, const char *op, const void *args);
    void *user;
    int64_t max_work; // multiply-adds of one operation on ref, about
};

// Both devices stay the caller's and must work in host memory (INVALID). close frees the shadow
// alone.
lp_status lp_shadow_open(struct lp_device **out, struct lp_device *fast, struct lp_device *ref,
                         const struct lp_shadow_config *config, struct lp_err *err);
// The layer of the operations to come.
void lp_shadow_set_layer(struct lp_device *shadow, int32_t layer);
// Whether a comparison was left out for want of memory.
bool lp_shadow_failed(const struct lp_device *shadow);

#endif
