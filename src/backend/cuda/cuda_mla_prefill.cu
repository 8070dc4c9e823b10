// Expanded attention with mma.sync, and what both of its kernels are told.
#include "backend/cuda/cuda_prefill.cuh"

bool lp_cuda_prefill_shape(int32_t nope, int32_t rope, int32_t v_dim) {
    return rope == 64 && ((nope == 192 && v_dim == 256) || (nope == 128 && v_dim == 128));
}

bool lp_cuda_prefill_fits(const struct lp_op_mla_expanded *op) {
    const struct lp_cache_view *cache = op->cache;
    return (cache->type == LP_TYPE_BF16 || cache->type == LP_TYPE_F16 ||
            cache->type == LP_TYPE_F8_E4M3) &&
           !op->visible.ids && lp_cuda_prefill_shape(op->nope, op->rope, op->v_dim) &&
           op->latent % 64 == 0 && op->latent <= 1536 && // weights_kernel's 48 KiB
           ((uintptr_t)cache->base | cache->row_bytes | cache->page_bytes) % 4 == 0 &&
           op->visible.first_pos + op->visible.n_queries < INT32_MAX / 2;
}

cudaError_t lp_cuda_prefill_heads(struct lp_cuda_device *dev, const struct lp_op_mla_expanded *op,
                                  int64_t first, int64_t n, lp_cuda_prefill_start start) {
    const struct lp_cache_view *cache = op->cache;
    struct lp_cuda_prefill p = {};
    p.q = op->q + first * (op->nope + op->rope);
    p.q_stride = op->q_stride;
    p.keys = dev->scratch.keys_16;
    p.values = dev->scratch.values_16;
    p.base = (const uint8_t *)cache->base;
    p.pages = cache->pages;
    p.row_bytes = cache->row_bytes;
    p.page_bytes = cache->page_bytes;
    p.rope_offset = (size_t)op->latent * 2;
    p.page_tokens = cache->page_tokens;
    p.slot_offset = cache->slot_offset;
    p.whole_chunks =
        ((uintptr_t)cache->base | cache->row_bytes | cache->page_bytes | p.rope_offset) % 16 == 0;
    p.first_pos = (int32_t)op->visible.first_pos;
    p.n_queries = (int32_t)op->visible.n_queries;
    p.n_keys = p.first_pos + p.n_queries;
    p.n_heads = (int32_t)n;
    p.nope = op->nope;
    p.v_dim = op->v_dim;
    p.scale = op->scale;
    p.out = op->out + first * op->v_dim;
    p.out_stride = op->out_stride;
    return start(&p, cache->type, dev->stream);
}

template <int TYPE, int KEY, int VALUE>
static __global__ void __launch_bounds__(LP_PREFILL_THREADS, 1)
    mma_kernel(const __grid_constant__ struct lp_cuda_prefill p) {
    lp_prefill_attend<struct lp_prefill_mma<TYPE>, KEY, VALUE>(p);
}

template <int TYPE, int KEY, int VALUE>
static cudaError_t start_shape(const struct lp_cuda_prefill *p, cudaStream_t stream) {
    const size_t shared = lp_prefill_shape<KEY, VALUE>::shared_bytes;
    const cudaError_t error = cudaFuncSetAttribute(
        mma_kernel<TYPE, KEY, VALUE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error) return error;
    mma_kernel<TYPE, KEY, VALUE><<<lp_prefill_grid(p), LP_PREFILL_THREADS, shared, stream>>>(*p);
    return cudaGetLastError();
}

cudaError_t lp_cuda_prefill_mma(const struct lp_cuda_prefill *p, lp_type type,
                                cudaStream_t stream) {
    const bool wide = p->v_dim == 256;
    if (type == LP_TYPE_BF16)
        return wide ? start_shape<LP_TYPE_BF16, 4, 4>(p, stream)
                    : start_shape<LP_TYPE_BF16, 3, 2>(p, stream);
    return wide ? start_shape<LP_TYPE_F16, 4, 4>(p, stream)
                : start_shape<LP_TYPE_F16, 3, 2>(p, stream);
}
