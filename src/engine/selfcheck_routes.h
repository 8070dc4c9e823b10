// Part of the self-check (selfcheck.c): what the other form of attention gives on every layer of a
// step that runs in the deterministic formulation, from the same input.
//
// The forms compute the same function and round differently. Behind many layers that difference says
// nothing: a model may carry one rounding to other logits, one of random weights always does. So
// each layer's attention runs in both forms on the residual stream of the one step, and what is
// compared has met one layer's rounding only.
#ifndef LP_ENGINE_SELFCHECK_ROUTES_H
#define LP_ENGINE_SELFCHECK_ROUTES_H

#include "engine/engine.h"

struct lp_route_check {
    limpid_engine *engine;
    struct lp_step_settings settings; // of the other form
    const struct lp_span *span;       // the step's only one; NULL: nothing is compared
    float *ours, *theirs;             // host, [max_rows, width]: the step's, the other form's
    int64_t width;                    // heads x values of a head
    double worst;                     // relative difference of the rows of one head or of one row
    int32_t layer;                    // where
    lp_step_watch watch;              // the caller's own, or NULL
    void *watch_user;
};

#define LP_ROUTE_CHECK_BOUND 0.1

// Zero-initialise. For steps of at most max_rows with `step`, whose watcher it becomes. Nothing is
// compared where the engine's settings know one form alone, or the model has no latents. MEMORY.
lp_status lp_route_check_init(struct lp_route_check *check, limpid_engine *engine,
                              struct lp_step_settings *step, int64_t max_rows, struct lp_err *err);
bool lp_route_check_compares(const struct lp_route_check *check);
void lp_route_check_release(struct lp_route_check *check);

#endif
