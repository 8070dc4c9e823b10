// A row of weights times rows of activations, by a warp: what matmul, head_matmul and experts share,
// so that a product has the same bits in all of them.
#ifndef LP_BACKEND_CUDA_CUDA_DOT_CUH
#define LP_BACKEND_CUDA_CUDA_DOT_CUH

#include "backend/cuda/cuda_dequant.cuh"

#define LP_CUDA_DOT_ROWS 8 // activation rows that share one pass over a row of weights

// Values i ... i + 7 of a row of floats that lies at a multiple of 16
template <int TYPE>
static __device__ inline void lp_cuda_eight_floats(const uint8_t *row, int64_t i, float (&out)[8]) {
    if (TYPE == LP_TYPE_F32) {
        const float4 a = ((const float4 *)(row + 4 * i))[0], b = ((const float4 *)(row + 4 * i))[1];
        const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int j = 0; j < 8; j++) out[j] = v[j];
        return;
    }
    const uint4 v = *(const uint4 *)(row + 2 * i);
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint16_t bits = (uint16_t)(words[j / 2] >> 16 * (j % 2));
        out[j] = TYPE == LP_TYPE_F16 ? lp_cuda_f16(bits) : lp_cuda_bf16(bits);
    }
}

// Float types: as cuda_float.cu sums them. Lane l takes the runs l, l + 32, ... of 64 values.
template <int TYPE, int N>
static __device__ inline void
lp_cuda_dot_floats(const uint8_t *row, int64_t n_in, const struct lp_cuda_tables *tables,
                   const float *const (&x)[N], int n, double (&total)[N]) {
    const int lane = threadIdx.x % LP_CUDA_WARP;
    uintptr_t places = (uintptr_t)row;
#pragma unroll
    for (int t = 0; t < N; t++) {
        total[t] = 0;
        if (t < n) places |= (uintptr_t)x[t];
    }
    for (int64_t first = 0; first < n_in; first += 64 * LP_CUDA_WARP) {
        const int64_t begin = first + 64 * lane, end = begin + 64 < n_in ? begin + 64 : n_in;
        float part[N] = {};
        int64_t i = begin;
        for (; (places & 15) == 0 && i + 8 <= end; i += 8) {
            float w[8], v[8];
            lp_cuda_eight_floats<TYPE>(row, i, w);
#pragma unroll
            for (int t = 0; t < N; t++) {
                if (t >= n) continue;
                lp_cuda_eight_floats<LP_TYPE_F32>((const uint8_t *)x[t], i, v);
#pragma unroll
                for (int j = 0; j < 8; j++) part[t] = fmaf(w[j], v[j], part[t]);
            }
        }
        for (; i < end; i++) {
            float w[8];
            lp_cuda_dequant8(TYPE, row, i, 1, tables, w);
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
    if (type == LP_TYPE_F32) {
        lp_cuda_dot_floats<LP_TYPE_F32, N>(row, n_in, tables, x, n, total);
        return;
    }
    if (type == LP_TYPE_F16) {
        lp_cuda_dot_floats<LP_TYPE_F16, N>(row, n_in, tables, x, n, total);
        return;
    }
    if (type == LP_TYPE_BF16) {
        lp_cuda_dot_floats<LP_TYPE_BF16, N>(row, n_in, tables, x, n, total);
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
