// A row of weights times rows of activations, by a warp: what matmul, head_matmul and experts share,
// so that a product has the same bits in all of them.
#ifndef LP_BACKEND_CUDA_CUDA_DOT_CUH
#define LP_BACKEND_CUDA_CUDA_DOT_CUH

#include "backend/cuda/cuda_dequant.cuh"

#define LP_CUDA_DOT_ROWS 8 // activation rows that share one pass over a row of weights

// Float types: as cuda_float.cu sums them. Lane l takes the runs l, l + 32, ... of 64 values.
template <int N>
static __device__ inline void
lp_cuda_dot_floats(int type, const uint8_t *row, int64_t n_in, const struct lp_cuda_tables *tables,
                   const float *const (&x)[N], int n, double (&total)[N]) {
    const int lane = threadIdx.x % LP_CUDA_WARP;
#pragma unroll
    for (int t = 0; t < N; t++) total[t] = 0;
    for (int64_t first = 0; first < n_in; first += 64 * LP_CUDA_WARP) {
        const int64_t begin = first + 64 * lane, end = begin + 64 < n_in ? begin + 64 : n_in;
        float part[N] = {};
        for (int64_t i = begin; i < end; i++) {
            float w[8];
            lp_cuda_dequant8(type, row, i, 1, tables, w);
#pragma unroll
            for (int t = 0; t < N; t++)
                if (t < n) part[t] = fmaf(w[0], x[t][i], part[t]);
        }
        for (int from = 0; from < LP_CUDA_WARP && first + 64 * from < n_in; from++)
#pragma unroll
            for (int t = 0; t < N; t++) total[t] += __shfl_sync(0xffffffffu, part[t], from);
    }
}

// total[t] = sum_i w[i] x[t][i], t < n <= N, in every lane. Lane l takes the octets l, l + 32, ...;
// four of them (32 products) are summed in float32 by fused multiply-adds, these sums in double.
// For a row it is the same whatever N and n are.
template <int N>
static __device__ inline void lp_cuda_dot(int type, const uint8_t *row, int64_t n_in,
                                          const struct lp_cuda_tables *tables,
                                          const float *const (&x)[N], int n, double (&total)[N]) {
    if (type == LP_TYPE_F32 || type == LP_TYPE_F16 || type == LP_TYPE_BF16) {
        lp_cuda_dot_floats<N>(type, row, n_in, tables, x, n, total);
        return;
    }
    float part[N];
    int octets = 0;
#pragma unroll
    for (int t = 0; t < N; t++) {
        part[t] = 0;
        total[t] = 0;
    }
    for (int64_t at = threadIdx.x % LP_CUDA_WARP * 8; at < n_in; at += 8 * LP_CUDA_WARP) {
        const int left = n_in - at < 8 ? (int)(n_in - at) : 8;
        float w[8];
        lp_cuda_dequant8(type, row, at, left, tables, w);
#pragma unroll
        for (int t = 0; t < N; t++) {
            if (t >= n) continue;
            const float *xt = x[t] + at;
            if (left == 8 && ((uintptr_t)xt & 15) == 0) {
                const float4 a = ((const float4 *)xt)[0], b = ((const float4 *)xt)[1];
                const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
                for (int j = 0; j < 8; j++) part[t] = fmaf(w[j], v[j], part[t]);
            } else {
#pragma unroll
                for (int j = 0; j < 8; j++)
                    if (j < left) part[t] = fmaf(w[j], xt[j], part[t]);
            }
        }
        if (++octets % 4) continue;
#pragma unroll
        for (int t = 0; t < N; t++) {
            total[t] += part[t];
            part[t] = 0;
        }
    }
#pragma unroll
    for (int t = 0; t < N; t++)
        if (t < n) total[t] = lp_cuda_warp_sum(total[t] + part[t]);
}

#endif
