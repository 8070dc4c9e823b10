// Expanded attention with wgmma (sm_90a).
#include "backend/cuda/cuda_prefill.cuh"

template <int TYPE, int KEY, int VALUE>
static __global__ void __launch_bounds__(LP_PREFILL_THREADS, 1)
    wgmma_kernel(const __grid_constant__ struct lp_cuda_prefill p) {
#if defined(LP_CUDA_HAS_WGMMA)
    lp_prefill_attend<struct lp_prefill_wgmma<TYPE>, KEY, VALUE>(p);
#endif
}

template <int TYPE, int KEY, int VALUE>
static cudaError_t start_shape(const struct lp_cuda_prefill *p, cudaStream_t stream) {
    const size_t shared = lp_prefill_shape<KEY, VALUE>::shared_bytes;
    const cudaError_t error = cudaFuncSetAttribute(
        wgmma_kernel<TYPE, KEY, VALUE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error) return error;
    wgmma_kernel<TYPE, KEY, VALUE><<<lp_prefill_grid(p), LP_PREFILL_THREADS, shared, stream>>>(*p);
    return cudaGetLastError();
}

cudaError_t lp_cuda_prefill_wgmma(const struct lp_cuda_prefill *p, lp_type type,
                                  cudaStream_t stream) {
    const bool wide = p->v_dim == 256;
    if (type == LP_TYPE_BF16)
        return wide ? start_shape<LP_TYPE_BF16, 4, 4>(p, stream)
                    : start_shape<LP_TYPE_BF16, 3, 2>(p, stream);
    return wide ? start_shape<LP_TYPE_F16, 4, 4>(p, stream)
                : start_shape<LP_TYPE_F16, 3, 2>(p, stream);
}
