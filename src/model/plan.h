// The memory that a model will take with a given context, before anything large is allocated.
#ifndef LP_MODEL_PLAN_H
#define LP_MODEL_PLAN_H

#include "model/binding.h"

struct lp_plan_request {
    lp_type kv_type;
    int64_t context;     // of the longest sequence
    int64_t n_kv_tokens; // that the cache holds, of all sequences
    int64_t chunk;       // tokens of a step, at most
    bool with_mtp;       // drafts
    // 0, or what the cache of the longest sequence may take: scratch for more is not even tried
    uint64_t max_context_bytes;
};

struct lp_plan {
    int64_t context, n_kv_tokens, chunk; // as asked for
    uint64_t mapped_bytes;               // weights used where the file is mapped
    uint64_t memory_bytes;               // weights of a folder that were put together in memory
    uint64_t float32_bytes;              // copies of small tensors
    uint64_t kv_token_bytes;             // of one token, all layers
    uint64_t kv_bytes;                   // of the whole cache, in pages
    uint64_t step_bytes;                 // buffers of a step, with the device's scratch
};

// The sizes that lp_kv_new and lp_runner_new will have on this device, from those functions
// themselves. The device's scratch is reserved on the way. Errors: INVALID (context, KV type,
// drafts without an MTP layer), MEMORY (out of it, or max_context_bytes).
lp_status lp_plan_make(struct lp_plan *out, const struct lp_hparams *h,
                       const struct lp_binding *binding, struct lp_device *dev,
                       const struct lp_plan_request *request, struct lp_err *err);

#endif
