// The memory that a model will take with a given context, before anything large is allocated.
#ifndef LP_MODEL_PLAN_H
#define LP_MODEL_PLAN_H

#include "model/binding.h"

struct lp_plan {
    int64_t context, chunk;  // as asked for
    uint64_t mapped_bytes;   // weights used where the file is mapped
    uint64_t float32_bytes;  // copies of small tensors
    uint64_t kv_token_bytes; // of one token, all layers
    uint64_t kv_bytes;       // of the whole cache, in pages
    uint64_t step_bytes;     // buffers of a step, with the device's scratch
};

// The sizes that lp_kv_new and lp_runner_new will have on this device, from those functions
// themselves. The device's scratch is reserved on the way. Errors: INVALID (context, KV type),
// MEMORY.
lp_status lp_plan_make(struct lp_plan *out, const struct lp_hparams *h,
                       const struct lp_binding *binding, struct lp_device *dev, lp_type kv_type,
                       int64_t context, int64_t chunk, struct lp_err *err);

#endif
