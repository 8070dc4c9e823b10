// What the files of the plan share: hf_plan.c (the order of things) and hf_plan_tensors.c (of which
// arrays a tensor is made).
#ifndef LP_HF_HF_PLAN_PARTS_H
#define LP_HF_HF_PLAN_PARTS_H

#include "hf/hf_arrays.h"
#include "model/binding.h"

#define LP_HF_MOST_MISSING 100000 // then the search ends: the config is of another model

struct lp_hf_planner {
    struct lp_hf_plan *plan;
    const struct lp_hf_plan_options *options;
    const struct lp_hparams *h; // the config as the engine will read it
    struct lp_hf_arrays *arrays;
    size_t capacity;         // of plan->tensors
    struct lp_bytes missing; // names, ", " between them
    uint64_t n_missing;
    struct lp_err *err;
};

// Adds the tensor that `e` asks for (or its other form: kv_b whole, gate and up in one), with its
// factors; an array that is not there goes into the list of missing ones. Errors: FORMAT (a wrong
// shape), UNSUPPORTED, MEMORY.
lp_status lp_hf_plan_tensor(struct lp_hf_planner *p, const struct lp_expected *e);

#endif
