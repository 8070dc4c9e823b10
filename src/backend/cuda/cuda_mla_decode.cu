// Attention over cached latents with mma.sync, for chips with room for two tiles (sm_90, sm_100), and
// the kernel that joins what is split.
#include "backend/cuda/cuda_latent_few.cuh"
#include "backend/cuda/cuda_latent_mma.cuh"

template <int TYPE>
static __global__ void __launch_bounds__(LP_LATENT_THREADS, 1)
    mma_kernel(const __grid_constant__ struct lp_cuda_latent_launch a) {
    lp_cuda_follow();
    lp_latent_mma_attend<TYPE>(a);
}

template <int TYPE>
static __global__ void __launch_bounds__(LP_LATENT_THREADS, 1)
    few_kernel(const __grid_constant__ struct lp_cuda_latent_launch a) {
    lp_cuda_follow();
    lp_latent_few_attend<TYPE>(a);
}

static __global__ void __launch_bounds__(128)
    join_kernel(const __grid_constant__ struct lp_cuda_latent_launch a) {
    lp_cuda_follow();
    lp_latent_join(a);
}

cudaError_t lp_cuda_latent_finish(const struct lp_cuda_latent_launch *launch, cudaStream_t stream) {
    for (int i = 0; i < launch->n_runs; i++)
        if (launch->runs[i].n_segments > launch->runs[i].walk) {
            lp_cuda_start_on(stream, launch->early, join_kernel, (unsigned)launch->n_rows,
                             LP_CUDA_LATENT / 4, 0, *launch);
            break;
        }
    return cudaGetLastError();
}

typedef void (*kernel_of_launch)(struct lp_cuda_latent_launch);

static cudaError_t start(const struct lp_cuda_latent_launch *launch, kernel_of_launch kernel,
                         int n_blocks, size_t shared, cudaStream_t stream) {
    const cudaError_t error = cudaFuncSetAttribute(
        (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error) return error;
    lp_cuda_start_on(stream, launch->early, kernel, (unsigned)n_blocks, LP_LATENT_THREADS, shared,
                     *launch);
    return lp_cuda_latent_finish(launch, stream);
}

cudaError_t lp_cuda_latent_mma(const struct lp_cuda_latent_launch *launch, lp_type type,
                               cudaStream_t stream) {
    return start(launch,
                 type == LP_TYPE_F8_E4M3 ? mma_kernel<LP_TYPE_F8_E4M3>
                 : type == LP_TYPE_BF16  ? mma_kernel<LP_TYPE_BF16>
                                         : mma_kernel<LP_TYPE_F16>,
                 launch->n_blocks, lp_latent_mma_shared_bytes(), stream);
}

cudaError_t lp_cuda_latent_few(const struct lp_cuda_latent_launch *launch, lp_type type,
                               cudaStream_t stream) {
    return start(launch,
                 type == LP_TYPE_F8_E4M3 ? few_kernel<LP_TYPE_F8_E4M3>
                 : type == LP_TYPE_BF16  ? few_kernel<LP_TYPE_BF16>
                                         : few_kernel<LP_TYPE_F16>,
                 launch->n_blocks * lp_cuda_latent_few_parts(launch->n_heads),
                 lp_latent_few_shared_bytes(), stream);
}
