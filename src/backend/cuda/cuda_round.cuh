// Values rounded: activations to the 8 bits of cuda_q8.h (the bytes and scales of cpu_quantize_act.h), and
// rows of a cache to 16 bits.
#ifndef LP_BACKEND_CUDA_CUDA_ROUND_CUH
#define LP_BACKEND_CUDA_CUDA_ROUND_CUH

#include "backend/cuda/cuda_common.cuh"
#include "backend/cuda/cuda_q8.h"

// ---- to 8 bits: groups of 32 values

#define LP_CUDA_TINY 0x1p-110f // below: 127 / amax may overflow

struct lp_cuda_rounding { // of a group
    float d, inverse;
    bool usual;
};

// amax: the largest magnitude; NaN or infinity where one of the values is. As quantize_group and
// quantize_unusual of the cpu backend.
static __device__ __forceinline__ struct lp_cuda_rounding lp_cuda_rounding_of(float amax) {
    struct lp_cuda_rounding r = {amax / 127.0f, 0.0f,
                                 amax >= LP_CUDA_TINY && amax <= 0x1.fffffep127f};
    if (r.usual) {
        r.inverse = 127.0f / amax;
        return r;
    }
    if (!isfinite(amax)) r.d = nanf("");
    if (r.d * 127.0f < amax) r.d = nextafterf(r.d, 1.0f);
    return r;
}
static __device__ __forceinline__ int lp_cuda_round(float x, const struct lp_cuda_rounding &r) {
    if (r.usual) return __float2int_rn(x * r.inverse);
    if (!(r.d > 0.0f)) return 0;
    const float v = rintf((x * 0x1p100f) / (r.d * 0x1p100f));
    return (int)(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v);
}
// Magnitudes compare as these numbers do, NaN above infinity.
static __device__ __forceinline__ uint32_t lp_cuda_magnitude(float x) {
    return __float_as_uint(x) & 0x7fffffffu;
}

// Where word k (values 4k ... 4k + 3) of group g of superblock b lies in a rounded row, and its d.
static __device__ inline size_t lp_cuda_act_word(enum lp_cuda_act_layout layout, int b, int g,
                                                 int k) {
    if (layout == LP_CUDA_ACT_ROUNDS)
        return (size_t)(b / 8) * (8 * LP_CUDA_ACT_BYTES) + (2 * g + k / 4) * 128 + b % 8 * 16 +
               k % 4 * 4;
    return (size_t)b * LP_CUDA_ACT_BYTES + g / 2 * 64 + k % 4 * 16 + (g & 1) * 8 + k / 4 * 4;
}
static __device__ inline size_t lp_cuda_act_scale(enum lp_cuda_act_layout layout, int b, int g) {
    if (layout == LP_CUDA_ACT_ROUNDS)
        return (size_t)(b / 8) * (8 * LP_CUDA_ACT_BYTES) + 2048 + g / 2 * 128 + b % 8 * 16 +
               (g & 1) * 8;
    return (size_t)b * LP_CUDA_ACT_BYTES + LP_CUDA_SUPERBLOCK + g * 8;
}

// A group by a warp, a value a lane: into row, a rounded row.
static __device__ __forceinline__ void lp_cuda_round_group(float x, uint8_t *row, int group,
                                                           enum lp_cuda_act_layout layout) {
    const int lane = threadIdx.x % LP_CUDA_WARP, b = group / 8, g = group % 8;
    const uint32_t most = __reduce_max_sync(0xffffffffu, lp_cuda_magnitude(x));
    const struct lp_cuda_rounding r = lp_cuda_rounding_of(__uint_as_float(most));
    const int q = lp_cuda_round(x, r), sum = __reduce_add_sync(0xffffffffu, q);
    row[lp_cuda_act_word(layout, b, g, lane / 4) + lane % 4] = (uint8_t)q;
    if (lane == 0)
        *(float2 *)(row + lp_cuda_act_scale(layout, b, g)) = make_float2(r.d, r.d * (float)sum);
}

// ---- to 16 bits

static __device__ inline uint16_t lp_cuda_to_f16(float value) { // as lp_f32_to_f16
    uint32_t u = __float_as_uint(value), a = u & 0x7fffffff;
    uint32_t sign = u >> 16 & 0x8000;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);
    if (a >= 0x38800000u) {
        a -= 0x38000000u;
        return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1)) >> 13);
    }
    if (a < 0x33000000u) return (uint16_t)sign;
    uint32_t shift = 126 - (a >> 23), mantissa = (a & 0x7fffff) | 0x800000;
    uint32_t half = (1u << (shift - 1)) - 1 + (mantissa >> shift & 1);
    return (uint16_t)(sign | (mantissa + half) >> shift);
}

static __device__ inline uint16_t lp_cuda_to_bf16(float value) { // as lp_f32_to_bf16
    uint32_t u = __float_as_uint(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

#endif
