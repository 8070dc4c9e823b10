// The CPU device as its own files see it: threads, features, scratch, the chosen kernels, and the
// function behind each entry of lp_backend_cpu (cpu_device.c).
//
// Threads: an operation is called by one thread, which is worker 0; it runs one lp_workers_run job,
// or does tiny work alone. Scratch of two kinds, so that the attention half may call lp_cpu_matmul
// and lp_cpu_head_matmul from the calling thread while its own scratch is in use:
//   mat_*   activations, panels and expert buffers of cpu_matmul.c, cpu_experts.c
//   attn_*  whatever lp_cpu_attn_scratch_bytes asked for; used by cpu_attn_*.c and cpu_indexer.c
// Nothing in either outlives the operation that wrote it.
#ifndef LP_BACKEND_CPU_CPU_DEVICE_H
#define LP_BACKEND_CPU_CPU_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_features.h"
#include "base/workers.h"

struct lp_cpu_mat_kernel; // cpu_matmul.h
struct lp_cpu_mat_scratch;
struct lp_cpu_lanes; // cpu_lanes.h
struct lp_cpu_sieve; // cpu_sieve.h
struct lp_cpu_wide;  // cpu_wide.h

struct lp_cpu_device {
    struct lp_device base; // first
    struct lp_workers *workers;
    int n_workers;
    bool huge_pages;         // for large buffers
    uint32_t features;       // LP_CPU_* bits the kernels may use (after options.cpu_level)
    const char *level;       // "avx2"
    size_t last_cache_bytes; // of the cache nearest to memory; 0: unknown

    const struct lp_cpu_mat_kernel *mat_kernels[LP_TYPE_COUNT]; // NULL: not a weight type
    struct lp_cpu_mat_scratch *mat_scratch;
    const struct lp_cpu_wide *wide; // products of many rows; NULL: as those of few
    bool may_vary; // lp_backend.fix_results is off: `wide`, and rounded latents, may be used
    const struct lp_cpu_lanes *lanes; // of attention, indexer and elementwise operations
    const struct lp_cpu_sieve *sieve; // of the indexer; NULL: all keys are scored exactly

    struct lp_reserve reserved;  // element-wise maximum of all lp_backend.reserve calls
    unsigned char *attn_scratch; // 64-byte aligned
    size_t attn_scratch_bytes;
};

static inline struct lp_cpu_device *lp_cpu_device(struct lp_device *dev) {
    return (struct lp_cpu_device *)dev;
}

// Runs fn on all workers, or, when the work is too small to be worth waking them (fewer than about
// LP_CPU_SERIAL_OPS multiply-adds), on the caller as fn(job, 0, 1). A job that may come here must
// not call lp_workers_barrier when n_workers is 1.
#define LP_CPU_SERIAL_OPS 32768
static inline void lp_cpu_run(struct lp_cpu_device *dev, int64_t n_ops, lp_worker_fn fn,
                              void *job) {
    if (n_ops < LP_CPU_SERIAL_OPS || dev->n_workers == 1)
        fn(job, 0, 1);
    else
        lp_workers_run(dev->workers, fn, job);
}

// Fills dev->lanes with the highest table that the features allow and that passes
// lp_cpu_lanes_selfcheck; a table that fails is named in the log. In cpu_selfcheck.c.
void lp_cpu_lanes_choose(struct lp_cpu_device *dev);
// Whether a table agrees with the plain one on fixed random values. In cpu_selfcheck.c.
bool lp_cpu_lanes_selfcheck(const struct lp_cpu_lanes *lanes);
// Fills dev->sieve likewise. In cpu_sieve.c.
void lp_cpu_sieve_choose(struct lp_cpu_device *dev);

// cpu_matmul.c, cpu_head_matmul.c, cpu_experts.c
void lp_cpu_embed(struct lp_device *dev, const struct lp_op_embed *op);
void lp_cpu_matmul(struct lp_device *dev, const struct lp_op_matmul *op);
void lp_cpu_head_matmul(struct lp_device *dev, const struct lp_op_head_matmul *op);
void lp_cpu_experts(struct lp_device *dev, const struct lp_op_experts *op);

// cpu_elementwise.c
void lp_cpu_rms_norm(struct lp_device *dev, const struct lp_op_rms_norm *op);
void lp_cpu_layer_norm(struct lp_device *dev, const struct lp_op_layer_norm *op);
void lp_cpu_rope(struct lp_device *dev, const struct lp_op_rope *op);
void lp_cpu_add(struct lp_device *dev, const struct lp_op_add *op);
void lp_cpu_silu_mul(struct lp_device *dev, const struct lp_op_silu_mul *op);
// lp_backend.index_page_extra; and what lp_cpu_cache_write does there for the row of a position.
size_t lp_cpu_index_page_extra(const struct lp_device *dev, int32_t width, int32_t page_tokens);
void lp_cpu_index_keep(struct lp_cpu_device *dev, const struct lp_cache_view *keys, int64_t pos);
void lp_cpu_cache_write(struct lp_device *dev, const struct lp_op_cache_write *op);

// cpu_attn_gqa.c, cpu_attn_mla.c, cpu_attn_mla_expanded.c
void lp_cpu_gqa(struct lp_device *dev, const struct lp_op_gqa *op);
void lp_cpu_mla_absorbed(struct lp_device *dev, const struct lp_op_mla_absorbed *op);
void lp_cpu_mla_expanded(struct lp_device *dev, const struct lp_op_mla_expanded *op);
// Bytes of attn_scratch that the attention and indexer operations need for `need` (the merged
// reservation) with the device's threads and features; SIZE_MAX when that overflows. In cpu_attn.c.
size_t lp_cpu_attn_scratch_bytes(const struct lp_cpu_device *dev, const struct lp_reserve *need);
// For lp_backend.kernel. In cpu_attn.c.
struct lp_attention_kernel lp_cpu_attn_kernel(const struct lp_cpu_device *dev, const char *op,
                                              lp_type cache, lp_type weights);

// cpu_indexer.c, cpu_router.c
void lp_cpu_index_select(struct lp_device *dev, const struct lp_op_index_select *op);
void lp_cpu_router(struct lp_device *dev, const struct lp_op_router *op);

#endif
