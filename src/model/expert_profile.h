// What a model's routers like, kept from one run to the next: the count of every expert
// (expert_policy.h), so that the next start fills the cache with those used most.
//
//     "LPEXPROF"  8 bytes      version 1       u32      n_items  u32
//     identity    u64          n_items counts  f32      sum      u64, over everything before it
//
// Little-endian. The identity is that of the model: names, types, shapes and places of all tensors,
// and the routers' weights.
#ifndef LP_MODEL_EXPERT_PROFILE_H
#define LP_MODEL_EXPERT_PROFILE_H

#include "base/status.h"
#include "gguf/gguf.h"

uint64_t lp_expert_profile_identity(const struct lp_gguf *gguf);

// counts: [n_items], written. Errors: IO (errno ENOENT: *missing is true, and nothing is wrong),
// FORMAT (damaged, or of another model).
lp_status lp_expert_profile_read(const char *path, uint64_t identity, uint32_t n_items,
                                 float *counts, bool *missing, struct lp_err *err);
// Under another name first, then in one step at `path`. Errors: IO, MEMORY.
lp_status lp_expert_profile_write(const char *path, uint64_t identity, uint32_t n_items,
                                  const float *counts, struct lp_err *err);

#endif
