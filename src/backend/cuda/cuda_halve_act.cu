// Activations to float16 for the products with many rows (cuda_wide.h).
#include "backend/cuda/cuda_common.cuh"
#include "backend/cuda/cuda_ptx.cuh"
#include "backend/cuda/cuda_wide.h"

// 2^e with largest * 2^e in 2^13 ... 2^14 where that is possible; 1 where the row is zero or not finite.
static __device__ inline float raise_of(uint32_t largest_bits) {
    if (largest_bits == 0 || largest_bits >= 0x7f800000u) return 1.0f;
    int e = 13 - ((int)(largest_bits >> 23) - 127);
    e = e > 126 ? 126 : e; // rows of subnormals: lower
    return __uint_as_float((uint32_t)(e + 127) << 23);
}

// Four neighbouring values 4q ... 4q + 3 of 16 go to places 2q, 2q + 8, 2q + 1, 2q + 9: those of a lane's
// fragments (lp_cuda_wide_unpack).
static __global__ void halve_kernel(const struct lp_cuda_halve k) {
    __shared__ uint32_t of_warp[LP_CUDA_WARPS];
    const int64_t row = blockIdx.x, t = row / k.n_heads, h = row % k.n_heads;
    const float *x = k.x + t * k.x_row + h * k.x_head;
    const bool aligned = ((uintptr_t)x & 15) == 0;
    uint32_t bits = 0;
    for (int64_t i = threadIdx.x; i < k.n_in; i += LP_CUDA_THREADS) {
        const uint32_t magnitude = __float_as_uint(x[i]) & 0x7fffffffu;
        bits = magnitude > bits ? magnitude : bits;
    }
    for (int step = 16; step > 0; step /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, step);
        bits = other > bits ? other : bits;
    }
    if (threadIdx.x % LP_CUDA_WARP == 0) of_warp[threadIdx.x / LP_CUDA_WARP] = bits;
    __syncthreads();
    for (int i = 0; i < LP_CUDA_WARPS; i++) bits = of_warp[i] > bits ? of_warp[i] : bits;
    const float raise = raise_of(bits);
    if (threadIdx.x == 0) k.unscale[row] = 1.0f / raise; // exact: a power of two
    uint32_t *out = (uint32_t *)(k.out + row * k.n_in);
    for (int64_t i = 4 * threadIdx.x; i < k.n_in; i += 4 * LP_CUDA_THREADS) {
        float4 v;
        if (aligned)
            v = *(const float4 *)(x + i);
        else
            v = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
        const int64_t at = i / 16 * 8 + i % 16 / 4; // in words
        out[at] = lp_cuda_half2(v.x * raise, v.z * raise);
        out[at + 4] = lp_cuda_half2(v.y * raise, v.w * raise);
    }
}

void lp_cuda_halve_act(struct lp_cuda_device *dev, const struct lp_cuda_halve *h) {
    const int64_t n_rows = h->n_rows * h->n_heads;
    if (dev->error || n_rows == 0) return;
    halve_kernel<<<(unsigned)n_rows, LP_CUDA_THREADS, 0, dev->stream>>>(*h);
    LP_CUDA_LAUNCHED(dev, "rounding of activations to float16");
}
