// A model on a device of the doctor's choice, and one sequence through it: the engine's own step
// (model/step.c) over the engine's own cache, without the scheduler.
#ifndef LP_DOCTOR_LAB_H
#define LP_DOCTOR_LAB_H

#include "model/model.h"

// The doctor's own stage reads the weights; loading a larger file looks at no more than a sample of them.
#define LP_LAB_CHECK_BYTES ((uint64_t)64 << 20)

struct lp_lab;

// Loads the file onto a device (not owned; it must outlive the lab). Weights stay mapped. The cache
// holds max_context tokens of `kv_type`; a step takes at most max_rows. Errors: as
// lp_model_load's.
lp_status lp_lab_new(struct lp_lab **out, const struct lp_gguf *gguf, struct lp_device *dev,
                     int n_threads, int64_t max_context, int64_t max_rows, lp_type kv_type,
                     struct lp_err *err);
void lp_lab_free(struct lp_lab *lab); // NULL is allowed
// Its model may be changed between runs (experiments); whoever changes it changes it back.
struct lp_model *lp_lab_model(struct lp_lab *lab);
struct lp_runner *lp_lab_runner(struct lp_lab *lab);
struct lp_kv *lp_lab_kv(struct lp_lab *lab);
int64_t lp_lab_max_context(const struct lp_lab *lab);

struct lp_lab_run {
    const int32_t *tokens; // [n_tokens], 1 <= n_tokens <= max_context
    int64_t n_tokens;
    int64_t chunk; // tokens of a step; 0 = max_rows
    enum lp_route_force force;
    bool deterministic;
    lp_step_watch watch; // or NULL; called for every chunk
    void *watch_user;
    float *logits; // host, [n_tokens, n_vocab], or NULL
    float *last;   // host, [n_vocab]: of the last token alone, or NULL
    // host, [n_layers + 1, n_tokens, n_embd]: after the embedding and each layer, or NULL
    float *hidden;
};

// Runs tokens from an empty cache. Non-finite logits are not an error. Errors: INVALID, LIMIT,
// MEMORY.
lp_status lp_lab_run(struct lp_lab *lab, const struct lp_lab_run *run, struct lp_err *err);

// sqrt(sum (a-b)^2 / sum b^2) over n values; b all zero: sqrt(sum (a-b)^2); NaN where any is not
// finite.
double lp_lab_difference(const float *a, const float *b, int64_t n);

#endif
