// Rows of an FP8 cache as BF16 rows, for kernels over many queries that read each row often. The kernels over
// latents widen tiles by the same arithmetic (cuda_f8.cuh), so it changes no bit which of them runs.
#include "backend/cuda/cuda_f8.cuh"
#include "backend/cuda/cuda_latent.h"

#define HEAD 64 // bytes before the rows: the list of pages, which is one page 0

// A thread eight values. Rows lie at multiples of 4, and blocks and tail are multiples of 8 values.
static __global__ void widen_kernel(struct lp_cuda_cache cache, int64_t n_keys, uint8_t *to) {
    lp_cuda_follow();
    const int n_pieces = cache.width / 8;
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) *(int32_t *)to = 0;
    if (i >= n_keys * n_pieces) return;
    const int64_t key = i / n_pieces;
    const int at = (int)(i % n_pieces) * 8;
    const uint8_t *row = lp_cuda_cache_row(cache, key);
    uint4 *out = (uint4 *)(to + HEAD) + i;
    if (at < cache.n_blocked) {
        const uint32_t *codes = lp_cuda_f8_codes(row, at);
        *out = lp_cuda_f8_widen(codes[0], codes[1], LP_CUDA_F8_UNIT * lp_cuda_f8_scale(row, at));
        return;
    }
    const uint32_t *tail = (const uint32_t *)(row + cache.n_blocked / 128 * LP_CUDA_F8_BLOCK) +
                           (at - cache.n_blocked) / 2;
    *out = make_uint4(tail[0], tail[1], tail[2], tail[3]);
}

void lp_cuda_widen(struct lp_cuda_device *dev, const struct lp_cache_view *cache, int64_t n_keys,
                   struct lp_cache_view *out) {
    uint8_t *to = (uint8_t *)dev->scratch.latents;
    *out = *cache;
    out->base = to + HEAD;
    out->pages = (const int32_t *)to;
    out->type = LP_TYPE_BF16;
    out->n_tail = out->slot_offset = 0;
    out->page_tokens = INT32_MAX;
    out->row_bytes = (size_t)cache->width * 2;
    out->page_bytes = 0;
    if (dev->error || n_keys == 0) return;
    lp_cuda_start_early(dev, widen_kernel,
                        lp_cuda_blocks(n_keys * (cache->width / 8), LP_CUDA_THREADS),
                        LP_CUDA_THREADS, 0, lp_cuda_cache_of(cache), n_keys, to);
    LP_CUDA_LAUNCHED(dev, "rows of an FP8 cache");
}
