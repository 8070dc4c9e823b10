// The 8-bit kernel for few activation rows and short rows of weights (the up-projections of MLA: 192 and 512
// values): of those cuda_q8_vec.cuh leaves most lanes idle, as each has a superblock of a round.
//
// A lane takes one superblock, so that a warp has 32 / S rows of weights. Their bytes are fetched into shared memory
// before the activations are waited for. The sum of a row is that of cuda_q8_vec.cuh: superblocks that it has not add 0.
#ifndef LP_BACKEND_CUDA_CUDA_Q8_SHORT_CUH
#define LP_BACKEND_CUDA_CUDA_Q8_SHORT_CUH

#include "backend/cuda/cuda_q8_vec.cuh"

#define LP_CUDA_SHORT_WARPS 4
#define LP_CUDA_SHORT_MOST 2 // superblocks of a row

template <class F, int S> struct lp_cuda_short_sizes {
    static constexpr bool ALIGNED = F::BYTES % 16 == 0;
    static constexpr int ROWS = LP_CUDA_WARP / S;
    // Pieces of 16 that a row touches, and its place in shared memory: an odd number of them, for eight lanes to meet
    // all banks. Not aligned: 8 bytes more may be touched behind.
    static constexpr int COPIES = (S * F::BYTES + (ALIGNED ? 0 : 15 + 8) + 15) / 16;
    static constexpr int ROW = 16 * (COPIES | 1);
};

template <class F, int N, int S>
static __global__ void __launch_bounds__(LP_CUDA_SHORT_WARPS *LP_CUDA_WARP)
    lp_cuda_short_kernel(const struct lp_cuda_vec_work k) {
    typedef struct lp_cuda_short_sizes<F, S> Z;
    __shared__ __align__(16) uint8_t shared[LP_CUDA_SHORT_WARPS][Z::ROWS * Z::ROW];
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    const int64_t unit = (int64_t)blockIdx.x * LP_CUDA_SHORT_WARPS + warp;
    const bool active = unit < k.n_units;
    const int64_t mat = active ? unit / k.strips : 0,
                  first = active ? unit % k.strips * Z::ROWS : 0;
    uint8_t *mine = shared[warp];
    lp_cuda_let_next_start();
    for (int i = lane; active && i < Z::ROWS * Z::COPIES; i += LP_CUDA_WARP) {
        const int r = i / Z::COPIES, at = i % Z::COPIES * 16;
        if (first + r >= k.w.n_out) break;
        const uint8_t *row = lp_cuda_weight_row(k.w, mat, first + r), *begin = row;
        if (!Z::ALIGNED) begin -= (uintptr_t)begin & 15;
        const int64_t left = row + k.w.row_bytes - begin - at;
        lp_cuda_copy16(mine + r * Z::ROW + at, left > 0 ? begin + at : begin,
                       left >= 16 ? 16
                       : left > 0 ? (int)left
                                  : 0);
    }
    lp_cuda_copy_commit();
    lp_cuda_wait_for_input();
    lp_cuda_copy_wait<0>();
    __syncwarp();
    const int r = lane / S, j = lane % S;
    float value[N] = {};
    if (active && first + r < k.w.n_out && j < k.superblocks) {
        float acc[N] = {};
        const uint8_t *x = k.x + (size_t)(mat * k.x_head) * k.x_bytes + 16 * j;
        const size_t x_step = (size_t)k.x_row * k.x_bytes;
        const uint8_t *stage = mine + r * Z::ROW + j * F::BYTES;
        if (Z::ALIGNED)
            lp_cuda_vec_superblock<F, N>(lp_cuda_quads(stage), x, x_step, acc);
        else
            lp_cuda_vec_superblock<F, N>(
                lp_cuda_words<false>(stage +
                                     ((uintptr_t)lp_cuda_weight_row(k.w, mat, first + r) & 15)),
                x, x_step, acc);
#pragma unroll
        for (int t = 0; t < N; t++) value[t] += acc[t];
    }
#pragma unroll
    for (int t = 0; t < N; t++)
        for (int mask = S / 2; mask > 0; mask /= 2)
            value[t] += __shfl_xor_sync(0xffffffffu, value[t], mask);
    if (!active || j != 0 || first + r >= k.w.n_out) return;
    const float scale = lp_cuda_weight_scale(k.w, mat), bias = k.bias ? k.bias[first + r] : 0.0f;
#pragma unroll
    for (int t = 0; t < N; t++) {
        float *y = k.y + t * k.y_row + mat * k.y_head + first + r;
        const float sum = k.bias ? value[t] * scale + bias : value[t] * scale;
        *y = k.accumulate ? *y + sum : sum;
    }
}

template <class F, int N, int S>
static void lp_cuda_short_start(struct lp_cuda_device *dev, struct lp_cuda_vec_work k) {
    constexpr int ROWS = lp_cuda_short_sizes<F, S>::ROWS;
    k.strips = (int)lp_cuda_blocks(k.w.n_out, ROWS);
    k.n_units = k.n_items * k.strips;
    lp_cuda_start_early(dev, lp_cuda_short_kernel<F, N, S>,
                        lp_cuda_blocks(k.n_units, LP_CUDA_SHORT_WARPS),
                        LP_CUDA_SHORT_WARPS * LP_CUDA_WARP, 0, k);
    LP_CUDA_LAUNCHED(dev, "a product of short 8-bit rows");
}

#endif
