// The inner functions for NEON: vectors of four.
#if defined(__aarch64__)
#include "backend/cpu/cpu_lanes.h"

#include <arm_neon.h>
#include <float.h>
#include <string.h>

#include "quant/blocks.h"

#define LANES 4
typedef float32x4_t vf;

static inline vf v_zero(void) {
    return vdupq_n_f32(0);
}
static inline vf v_set1(float x) {
    return vdupq_n_f32(x);
}
static inline vf v_load(const float *p) {
    return vld1q_f32(p);
}
static inline void v_store(float *p, vf v) {
    vst1q_f32(p, v);
}
static inline vf v_load_n(const float *p, int n, float fill) {
    float lanes[LANES];
    for (int i = 0; i < LANES; i++) lanes[i] = i < n ? p[i] : fill;
    return vld1q_f32(lanes);
}
static inline void v_store_n(float *p, vf v, int n) {
    for (int i = 0; i < n; i++) p[i] = v[i];
}
static inline vf v_add(vf a, vf b) {
    return vaddq_f32(a, b);
}
static inline vf v_mul(vf a, vf b) {
    return vmulq_f32(a, b);
}
static inline vf v_div(vf a, vf b) {
    return vdivq_f32(a, b);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return vfmaq_f32(c, a, b);
}
static inline vf v_max(vf a, vf b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
static inline vf v_min(vf a, vf b) { // b where a or b is NaN
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

// (v0 + v1) + (v2 + v3)
static inline float v_sum(vf v) {
    vf pairs = vpaddq_f32(v, v);
    return vpadds_f32(vget_low_f32(pairs));
}
static inline void v_sum4(const vf *v, float *out) {
    vst1q_f32(out, vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3])));
}

// As in cpu_lanes_avx2.c.
static inline vf v_exp(vf x) {
    x = v_min(vdupq_n_f32(89.0f), x);
    x = v_max(vdupq_n_f32(-105.0f), x);
    vf n = vrndnq_f32(vmulq_n_f32(x, 1.44269504f));
    vf r = vfmsq_f32(x, n, vdupq_n_f32(0.693145752f));
    r = vfmsq_f32(r, n, vdupq_n_f32(1.42860677e-6f));
    vf p = vdupq_n_f32(1.0f / 5040);
    p = v_fma(p, r, vdupq_n_f32(1.0f / 720));
    p = v_fma(p, r, vdupq_n_f32(1.0f / 120));
    p = v_fma(p, r, vdupq_n_f32(1.0f / 24));
    p = v_fma(p, r, vdupq_n_f32(1.0f / 6));
    p = v_fma(p, r, vdupq_n_f32(0.5f));
    p = v_fma(p, r, vdupq_n_f32(1.0f));
    p = v_fma(p, r, vdupq_n_f32(1.0f));
    int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    int32x4_t low = vshlq_n_s32(vaddq_s32(half, bias), 23);
    int32x4_t high = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
    return v_mul(v_mul(p, vreinterpretq_f32_s32(low)), vreinterpretq_f32_s32(high));
}

static inline void transpose_4x4(const float *in, ptrdiff_t ld_in, float *out, ptrdiff_t ld_out) {
    float32x4x2_t ab = vtrnq_f32(vld1q_f32(in), vld1q_f32(in + ld_in));
    float32x4x2_t cd = vtrnq_f32(vld1q_f32(in + 2 * ld_in), vld1q_f32(in + 3 * ld_in));
    for (int i = 0; i < 2; i++) {
        float64x2_t top = vreinterpretq_f64_f32(ab.val[i]),
                    bottom = vreinterpretq_f64_f32(cd.val[i]);
        vst1q_f32(out + i * ld_out, vreinterpretq_f32_f64(vzip1q_f64(top, bottom)));
        vst1q_f32(out + (i + 2) * ld_out, vreinterpretq_f32_f64(vzip2q_f64(top, bottom)));
    }
}
static inline void transpose_block(const float *in, ptrdiff_t ld_in, float *out, ptrdiff_t ld_out) {
    for (int r = 0; r < 8; r += 4)
        for (int c = 0; c < 8; c += 4)
            transpose_4x4(in + r * ld_in + c, ld_in, out + c * ld_out + r, ld_out);
}

static void load_f16(const void *row, float *out, size_t n) {
    const uint8_t *bytes = row;
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(bytes + 2 * i))));
    for (; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, bytes + 2 * i, 2);
        out[i] = lp_f16_to_f32(bits);
    }
}
static void load_bf16(const void *row, float *out, size_t n) {
    const uint8_t *bytes = row;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint16x4_t half = vreinterpret_u16_u8(vld1_u8(bytes + 2 * i));
        vst1q_f32(out + i, vreinterpretq_f32_u32(vshll_n_u16(half, 16)));
    }
    for (; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, bytes + 2 * i, 2);
        out[i] = lp_bf16_to_f32(bits);
    }
}
static void store_f16(const float *in, void *row, size_t n) {
    uint8_t *bytes = row;
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1_u8(bytes + 2 * i, vreinterpret_u8_f16(vcvt_f16_f32(vld1q_f32(in + i))));
    for (; i < n; i++) {
        uint16_t bits = lp_f32_to_f16(in[i]);
        memcpy(bytes + 2 * i, &bits, 2);
    }
}
static void store_bf16(const float *in, void *row, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = lp_f32_to_bf16(in[i]);
        memcpy((char *)row + 2 * i, &bits, 2);
    }
}

static void load_q8_0(const void *row, float *out, size_t n) {
    const struct lp_block_q8_0 *block = row;
    for (size_t i = 0; i < n; i += 32, block++) {
        vf d = vdupq_n_f32(lp_f16_to_f32(block->d));
        for (int j = 0; j < 32; j += 8) {
            int16x8_t q = vmovl_s8(vld1_s8(block->qs + j));
            vst1q_f32(out + i + j, vmulq_f32(d, vcvtq_f32_s32(vmovl_s16(vget_low_s16(q)))));
            vst1q_f32(out + i + j + 4, vmulq_f32(d, vcvtq_f32_s32(vmovl_high_s16(q))));
        }
    }
}

// As in cpu_lanes_x86.h: the byte as a float16 is its value / 256.
static inline float16x4_t e4m3_to_f16(int16x4_t byte_in_high_half) {
    int16x4_t half = vand_s16(vshr_n_s16(byte_in_high_half, 1), vdup_n_s16((int16_t)0xbfff));
    uint16x4_t is_nan = vceq_s16(vand_s16(half, vdup_n_s16(0x7fff)), vdup_n_s16(0x3f80));
    uint16x4_t bits = vorr_u16(vreinterpret_u16_s16(half), vand_u16(is_nan, vdup_n_u16(0x7e00)));
    return vreinterpret_f16_u16(bits);
}

static void load_f8(const void *row, float *out, size_t n) {
    const struct lp_block_f8_e4m3 *block = row;
    for (size_t i = 0; i < n; i += 128, block++) {
        vf d = vdupq_n_f32(256.0f * block->d);
        for (int j = 0; j < 128; j += 8) {
            int16x8_t q = vreinterpretq_s16_u16(vshll_n_u8(vld1_u8(block->q + j), 8));
            vst1q_f32(out + i + j, vmulq_f32(d, vcvt_f32_f16(e4m3_to_f16(vget_low_s16(q)))));
            vst1q_f32(out + i + j + 4, vmulq_f32(d, vcvt_f32_f16(e4m3_to_f16(vget_high_s16(q)))));
        }
    }
}

// The largest magnitude of 32 values; NaN when one of them is not finite.
static inline float magnitude_32(const float *x) {
    uint32x4_t best = vdupq_n_u32(0); // the bits order like the magnitudes, NaN above infinity
    for (int j = 0; j < 32; j += 4)
        best = vmaxq_u32(best, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + j))));
    uint32_t bits = vmaxvq_u32(best);
    if (bits >= 0x7f800000u) return __builtin_nanf("");
    float size;
    memcpy(&size, &bits, sizeof size);
    return size;
}

// As round_32 of quant/quantize.c, byte for byte: divided by the unrounded scale, half away from
// zero; zeros where the scale is NaN or has no finite inverse.
static void store_q8_0(const float *in, void *row, size_t n) {
    struct lp_block_q8_0 *block = row;
    for (size_t i = 0; i < n; i += 32, block++) {
        float d = magnitude_32(in + i) / 127.0f, inverse = 1.0f / d;
        block->d = lp_f32_to_f16(d);
        if (!(inverse <= FLT_MAX)) { // infinite or NaN
            memset(block->qs, 0, sizeof block->qs);
            continue;
        }
        for (int j = 0; j < 32; j += 8) {
            int32x4_t low = vcvtaq_s32_f32(vmulq_n_f32(vld1q_f32(in + i + j), inverse));
            int32x4_t high = vcvtaq_s32_f32(vmulq_n_f32(vld1q_f32(in + i + j + 4), inverse));
            vst1_s8(block->qs + j, vqmovn_s16(vcombine_s16(vqmovn_s32(low), vqmovn_s32(high))));
        }
    }
}

#include "backend/cpu/cpu_lanes_body.h"

LP_CPU_LANES_TABLE(neon);

#endif
