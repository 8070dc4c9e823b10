// Attention over cached latents with wgmma (sm_90a).
#include "backend/cuda/cuda_latent_sm90.cuh"

template <int CACHE>
static __global__ void __launch_bounds__(lp_latent90_shape<CACHE>::threads, 1)
    wgmma_kernel(const __grid_constant__ struct lp_cuda_latent_launch a) {
#if defined(LP_CUDA_HAS_WGMMA)
    lp_cuda_follow();
    lp_latent90_attend<CACHE>(a);
#endif
}

template <int CACHE>
static cudaError_t start(const struct lp_cuda_latent_launch *launch, cudaStream_t stream) {
    const size_t shared = lp_latent90_shared_bytes();
    const cudaError_t error = cudaFuncSetAttribute(
        wgmma_kernel<CACHE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error) return error;
    lp_cuda_start_on(stream, launch->early, wgmma_kernel<CACHE>, (unsigned)launch->n_blocks,
                     lp_latent90_shape<CACHE>::threads, shared, *launch);
    return lp_cuda_latent_finish(launch, stream);
}

cudaError_t lp_cuda_latent_wgmma(const struct lp_cuda_latent_launch *launch, lp_type type,
                                 cudaStream_t stream) {
    if (type == LP_TYPE_F8_E4M3) return start<LP_TYPE_F8_E4M3>(launch, stream);
    return type == LP_TYPE_BF16 ? start<LP_TYPE_BF16>(launch, stream)
                                : start<LP_TYPE_F16>(launch, stream);
}
