// The attention kernels of the cuda backend as registry rows: what each needs, how much it rounds, and
// the call of the one that is chosen. The plain kernels take everything; what comes before them takes
// the shapes, types and chips of its row.
#include <string.h>

#include "backend/cuda/cuda_latent.h"
#include "backend/cuda/cuda_prefill.h"
#include "backend/kernels.h"

enum {                   // what a kernel needs
    NEEDS_MMA = 1,       // mma.sync, ldmatrix, cp.async: sm_80 and later
    NEEDS_WGMMA = 2,     // sm_90, in a build for sm_90a
    NEEDS_SHARED = 4,    // 227 KiB of shared memory a block: sm_90, sm_100
    NEEDS_LATENT = 8,    // latents of 512 and 64 values: reserve was told of no others
    NEEDS_INDEX = 16,    // indexer keys of 128 values, up to 64 heads: the same
    NEEDS_EXPANDED = 32, // heads of 192 + 64 and 256 or 128 + 64 and 128 values: the same
};

struct attn_impl {
    // Products of 16-bit numbers: relative to a row's largest value (docs/numerics.md).
    double rounding;
    cudaError_t (*latent)(const struct lp_cuda_latent_launch *, lp_type, cudaStream_t);
    void (*index)(struct lp_device *, const struct lp_op_index_select *);
    lp_cuda_prefill_start expanded;
};

static const struct attn_impl
    plain = {0},
    index_mma = {.index = lp_cuda_index_select_mma},
    mma_f16 = {.rounding = 2e-3, .latent = lp_cuda_latent_mma, .expanded = lp_cuda_prefill_mma},
    mma_bf16 = {.rounding = 1e-2, .latent = lp_cuda_latent_mma, .expanded = lp_cuda_prefill_mma},
    wgmma_f16 = {.rounding = 2e-3,
                 .latent = lp_cuda_latent_wgmma,
                 .expanded = lp_cuda_prefill_wgmma},
    wgmma_bf16 = {.rounding = 1e-2,
                  .latent = lp_cuda_latent_wgmma,
                  .expanded = lp_cuda_prefill_wgmma},
    mma_fp8 = {.rounding = 2e-2, .latent = lp_cuda_latent_mma, .expanded = lp_cuda_prefill_mma},
    wgmma_fp8 = {
        .rounding = 2e-2, .latent = lp_cuda_latent_wgmma, .expanded = lp_cuda_prefill_wgmma};

#define NEEDS_TILES (NEEDS_MMA | NEEDS_SHARED | NEEDS_LATENT)
#define NEEDS_HEADS (NEEDS_MMA | NEEDS_SHARED | NEEDS_EXPANDED)
static const struct lp_kernel kernels[] = {
    {"mla_absorbed", "cuda_mla_absorbed_sm90_f16", LP_TYPE_F16, NEEDS_TILES | NEEDS_WGMMA,
     &wgmma_f16},
    {"mla_absorbed", "cuda_mla_absorbed_sm90_bf16", LP_TYPE_BF16, NEEDS_TILES | NEEDS_WGMMA,
     &wgmma_bf16},
    {"mla_absorbed", "cuda_mla_absorbed_mma_f16", LP_TYPE_F16, NEEDS_TILES, &mma_f16},
    {"mla_absorbed", "cuda_mla_absorbed_mma_bf16", LP_TYPE_BF16, NEEDS_TILES, &mma_bf16},
    {"mla_absorbed", "cuda_mla_absorbed_sm90_fp8", LP_TYPE_F8_E4M3, NEEDS_TILES | NEEDS_WGMMA,
     &wgmma_fp8},
    {"mla_absorbed", "cuda_mla_absorbed_mma_fp8", LP_TYPE_F8_E4M3, NEEDS_TILES, &mma_fp8},
    {"mla_absorbed", "cuda_mla_absorbed_plain", LP_KERNEL_ANY_TYPE, 0, &plain},
    {"mla_expanded", "cuda_mla_expanded_sm90_f16", LP_TYPE_F16, NEEDS_HEADS | NEEDS_WGMMA,
     &wgmma_f16},
    {"mla_expanded", "cuda_mla_expanded_sm90_bf16", LP_TYPE_BF16, NEEDS_HEADS | NEEDS_WGMMA,
     &wgmma_bf16},
    {"mla_expanded", "cuda_mla_expanded_mma_f16", LP_TYPE_F16, NEEDS_HEADS, &mma_f16},
    {"mla_expanded", "cuda_mla_expanded_mma_bf16", LP_TYPE_BF16, NEEDS_HEADS, &mma_bf16},
    {"mla_expanded", "cuda_mla_expanded_sm90_fp8", LP_TYPE_F8_E4M3, NEEDS_HEADS | NEEDS_WGMMA,
     &wgmma_fp8},
    {"mla_expanded", "cuda_mla_expanded_mma_fp8", LP_TYPE_F8_E4M3, NEEDS_HEADS, &mma_fp8},
    {"mla_expanded", "cuda_mla_expanded_plain", LP_KERNEL_ANY_TYPE, 0, &plain},
    {"index_select", "cuda_index_select_mma_f16", LP_TYPE_F16, NEEDS_MMA | NEEDS_INDEX, &index_mma},
    {"index_select", "cuda_index_select_mma_bf16", LP_TYPE_BF16, NEEDS_MMA | NEEDS_INDEX,
     &index_mma},
    {"index_select", "cuda_index_select_mma_fp8", LP_TYPE_F8_E4M3, NEEDS_MMA | NEEDS_INDEX,
     &index_mma},
    {"index_select", "cuda_index_select_plain", LP_KERNEL_ANY_TYPE, 0, &plain},
    {"gqa", "cuda_gqa_plain", LP_KERNEL_ANY_TYPE, 0, &plain},
};
#define N_KERNELS (sizeof kernels / sizeof kernels[0])

#define LATENT_SHARED_BYTES (227 << 10)
// Where results are fixed
static const struct lp_cuda_segments fixed_segments = {.keys = 512,
                                                       .most = LP_CUDA_LATENT_SEGMENTS};
#define MOST_SLOTS 1024 // of partial results: 128 MiB
// Queries of one sequence from which on rows of an FP8 cache are widened once for all of them. It changes no
// bit of a result.
#define MANY_QUERIES 128

static uint32_t features_of(const struct lp_cuda_device *dev) {
    uint32_t features = 0;
    if (dev->major >= 8) features |= NEEDS_MMA;
#if defined(LP_CUDA_BUILT_WGMMA)
    if (dev->major == 9) features |= NEEDS_WGMMA;
#endif
    if (dev->shared_bytes >= LATENT_SHARED_BYTES) features |= NEEDS_SHARED;
    if (dev->sizes.latent == LP_CUDA_LATENT && dev->sizes.rope == LP_CUDA_ROPE)
        features |= NEEDS_LATENT;
    if (dev->sizes.index_width == 128 && dev->sizes.index_heads <= 64) features |= NEEDS_INDEX;
    if (lp_cuda_prefill_shape(dev->sizes.nope, dev->sizes.rope, dev->sizes.v_dim))
        features |= NEEDS_EXPANDED;
    return features;
}

static const struct lp_kernel *choose(const struct lp_cuda_device *dev, const char *op,
                                      lp_type type) {
    const struct lp_kernel_query query = {.op = op, .type = type, .features = features_of(dev)};
    const int i = lp_kernel_choose(kernels, N_KERNELS, &query);
    return i < 0 ? NULL : &kernels[i];
}

struct lp_attention_kernel lp_cuda_attention_kernel(const struct lp_device *device, const char *op,
                                                    lp_type cache, lp_type weights) {
    const struct lp_kernel *k = choose((const struct lp_cuda_device *)device, op, cache);
    (void)weights;
    if (!k) return (struct lp_attention_kernel){NULL, 0};
    return (struct lp_attention_kernel){k->name, ((const struct attn_impl *)k->impl)->rounding};
}

// ---- absorbed MLA

int64_t lp_cuda_partial_slots(const struct lp_reserve *need) {
    if (need->latent != LP_CUDA_LATENT || need->rope != LP_CUDA_ROPE) return 0;
    const int64_t of_context =
                      (need->n_context + LP_CUDA_LATENT_SHORTEST - 1) / LP_CUDA_LATENT_SHORTEST,
                  n_segments =
                      of_context < LP_CUDA_LATENT_SEGMENTS ? of_context : LP_CUDA_LATENT_SEGMENTS,
                  of_query = n_segments *
                             ((need->n_heads + LP_CUDA_LATENT_ROWS - 1) / LP_CUDA_LATENT_ROWS),
                  all = need->n_rows * of_query;
    if (n_segments <= 1) return 0;
    if (all < MOST_SLOTS) return all;
    return of_query > MOST_SLOTS ? of_query : MOST_SLOTS;
}

struct attend_plan {
    cudaError_t (*start)(const struct lp_cuda_latent_launch *, lp_type, cudaStream_t);
    struct lp_cuda_segments segments;
    int32_t walk;
};

static struct attend_plan plan_of(const struct lp_cuda_device *dev,
                                  const struct lp_op_mla_absorbed *op,
                                  const struct attn_impl *impl) {
    struct attend_plan plan = {.start = impl->latent, .segments = fixed_segments};
    if (dev->may_vary && lp_cuda_latent_few_fits(op, dev->n_multiprocessors))
        return (struct attend_plan){
            .start = lp_cuda_latent_few,
            .segments = {.keys = LP_CUDA_LATENT_FEW_KEYS, .most = LP_CUDA_LATENT_SEGMENTS},
            .walk = 1};
    if (dev->may_vary) plan.segments = lp_cuda_latent_cut(op, dev->n_multiprocessors);
    plan.walk = lp_cuda_latent_walk(op, plan.segments, 1, dev->n_multiprocessors);
    return plan;
}

// As many launches as the room for partial results asks for.
static void attend_latents(struct lp_cuda_device *dev, const struct lp_op_mla_absorbed *op,
                           const struct attn_impl *impl) {
    const struct attend_plan plan = plan_of(dev, op, impl);
    struct lp_cuda_latent_launch launch;
    for (int64_t at = 0; at < op->visible.n_queries && !dev->error;) {
        launch.n_runs = launch.n_blocks = launch.n_rows = launch.n_slots = 0;
        launch.early = dev->start_early;
        lp_cuda_latent_look_ahead(&launch, op);
        launch.partial = dev->scratch.partial;
        launch.partial_sums = dev->scratch.partial_sums;
        while (at < op->visible.n_queries) {
            const int64_t n = lp_cuda_latent_add(&launch, op, at, plan.segments, plan.walk,
                                                 (int32_t)dev->scratch.partial_slots);
            if (n == 0) break;
            at += n;
        }
        if (launch.n_runs == 0) { // reserve was told less than this call
            lp_cuda_note(dev, cudaErrorInvalidValue, "mla_absorbed (scratch)");
            return;
        }
        lp_cuda_note(dev, plan.start(&launch, op->cache->type, dev->stream), "mla_absorbed");
    }
}

void lp_cuda_mla_absorbed(struct lp_device *device, const struct lp_op_mla_absorbed *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    const struct attn_impl *impl = choose(dev, "mla_absorbed", op->cache->type)->impl;
    if (!impl->latent || !lp_cuda_latent_fits(op))
        lp_cuda_mla_absorbed_plain(device, op);
    else if (op->cache->type == LP_TYPE_F8_E4M3 && !op->visible.batch &&
             op->visible.n_queries >= MANY_QUERIES) {
        struct lp_cache_view rows;
        struct lp_op_mla_absorbed of_rows = *op;
        lp_cuda_widen(dev, op->cache, op->visible.first_pos + op->visible.n_queries, &rows);
        of_rows.cache = &rows;
        attend_latents(dev, &of_rows, impl);
    } else
        attend_latents(dev, op, impl);
}

// ---- expanded MLA

lp_cuda_prefill_start lp_cuda_prefill_chosen(const struct lp_cuda_device *dev, lp_type type) {
    return ((const struct attn_impl *)choose(dev, "mla_expanded", type)->impl)->expanded;
}

// ---- the indexer

void lp_cuda_index_select(struct lp_device *device, const struct lp_op_index_select *op) {
    const struct attn_impl *impl = choose(lp_cuda_of(device), "index_select", op->keys->type)->impl;
    if (impl->index && lp_cuda_index_fits(op))
        impl->index(device, op);
    else
        lp_cuda_index_select_plain(device, op);
}
