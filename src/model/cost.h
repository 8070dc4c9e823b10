// What a step costs: the bytes it must read from memory and the multiply-adds it must do, from
// shapes alone. Benchmarks hold a measured rate against the machine's limit with it; nothing else
// depends on it. It counts what the step needs, not what a kernel happens to do: each weight once
// per step however many rows share it, each cache row that is seen once, activations not at all
// (they stay in caches).
#ifndef LP_MODEL_COST_H
#define LP_MODEL_COST_H

#include "model/binding.h"

struct lp_cost_work { // one sequence's step
    int64_t n_past;   // tokens in the cache before the step
    int64_t n_rows;   // tokens of the step
    int64_t n_logit_rows;
    enum lp_route_force force;
    bool deterministic;
    bool int16_attention; // count products with cached rows as of 16-bit integers, else of floats
};

struct lp_cost {
    double weight_bytes; // as placed: routers, indexer head weights and vectors as float32
    double cache_bytes;  // of the KV cache, read
    double int_madds;    // by block-quantised weights, whose kernels multiply 8-bit integers
    double up_int_madds; // those of them that the attention operation does itself: keys and values
                         // made from latents
    double int16_madds;  // of attention and indexer with cached rows, where int16_attention
    double float_madds;  // by float weights, and with cached rows where not
};

// Adds the step's cost to *out, without drafts. kv_type: of the cache. The experts
// that several rows touch are those expected of a router without preference: n_experts * (1 - (1 -
// n_used / n_experts)^n_rows).
void lp_cost_step(const struct lp_hparams *h, const struct lp_binding *binding,
                  const struct lp_cost_work *work, lp_type kv_type, struct lp_cost *out);

// Bytes of the tensors that are copied to float32 at load (placement.c), rotary frequencies and the
// MTP layer's included.
uint64_t lp_cost_float32_bytes(const struct lp_hparams *h, const struct lp_binding *binding);

// Bytes that stay where the file is mapped: every bound tensor without such a copy. Those of the
// MTP layer are read only where it drafts (with_mtp).
uint64_t lp_cost_mapped_bytes(const struct lp_hparams *h, const struct lp_binding *binding,
                              bool with_mtp);
// Bytes that were put together in the process's own memory (lp_gguf_tensor.in_memory).
uint64_t lp_cost_memory_bytes(const struct lp_hparams *h, const struct lp_binding *binding,
                              bool with_mtp);

// Bytes of the routed experts of the layers, of which a token uses few: the part that may lie elsewhere.
uint64_t lp_cost_expert_bytes(const struct lp_hparams *h, const struct lp_binding *binding);

// Bytes that lp_model_repack takes for its copies, but for their alignment.
uint64_t lp_cost_repacked_bytes(const struct lp_hparams *h, const struct lp_binding *binding,
                                const struct lp_device *dev, bool with_mtp);
// Bytes of the mapped file that it copies.
uint64_t lp_cost_packed_bytes(const struct lp_hparams *h, const struct lp_binding *binding,
                              const struct lp_device *dev, bool with_mtp);

#endif
