// Dequantisation of every weight type in a kernel: eight values at a time, the same float32 bits as
// quant/dequant*.c (each value is the format's formula rounded once; block layouts: quant/blocks.h).
// Blocks lie at any address, so their fields are read byte by byte: plain, not fast.
#ifndef LP_BACKEND_CUDA_CUDA_DEQUANT_CUH
#define LP_BACKEND_CUDA_CUDA_DEQUANT_CUH

#include "backend/cuda/cuda_common.cuh"
#include "quant/blocks.h"

static __device__ inline float lp_cuda_f16(uint16_t bits) { // exact; as lp_f16_to_f32
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = (bits >> 10) & 31;
    uint32_t mantissa = bits & 0x3ff;
    if (exponent == 0) {
        float value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
    return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
}
static __device__ inline float lp_cuda_bf16(uint16_t bits) {
    return __uint_as_float((uint32_t)bits << 16);
}

static __device__ inline float lp_cuda_mxfp4_scale(uint8_t e) {
    return __uint_as_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}
static __device__ inline float lp_cuda_nvfp4_scale(uint8_t b) {
    int exponent = (b >> 3) & 15, mantissa = b & 7;
    if (b == 0x7f) return 0.0f;
    if (exponent == 0) return (float)mantissa * 0x1p-10f;
    return __uint_as_float((uint32_t)(exponent - 8 + 127) << 23 | (uint32_t)mantissa << 20);
}
static __device__ inline float lp_cuda_e4m3(uint8_t b) {
    uint32_t exponent = (b >> 3) & 15, mantissa = b & 7, sign = (uint32_t)(b & 0x80) << 24;
    if ((b & 0x7f) == 0x7f) return __uint_as_float(0x7fc00000u | sign);
    if (exponent == 0) return __uint_as_float(__float_as_uint((float)mantissa * 0x1p-9f) | sign);
    return __uint_as_float(((exponent - 7 + 127) << 23 | mantissa << 20) | sign);
}

static __device__ inline uint8_t lp_cuda_to_e4m3(float value) { // as lp_blocks_to_e4m3
    const uint32_t bits = __float_as_uint(value), a = bits & 0x7fffffffu,
                   size = a < 0x43e00000u ? a : 0x43e00000u,
                   normal = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120 << 3),
                   low = __float_as_uint(__uint_as_float(size) + 0x1p14f) - 0x46800000u,
                   byte = a > 0x7f800000u      ? 0x7f
                          : size < 0x3c800000u ? low
                                               : normal;
    return (uint8_t)(byte | (bits >> 24 & 0x80));
}
// At any address
static __device__ inline uint16_t lp_cuda_load_u16(const uint8_t *from) {
    return (uint16_t)(from[0] | from[1] << 8);
}

static __device__ inline void lp_cuda_k_scale_min(const uint8_t *s, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}
static __device__ inline int lp_cuda_q3_k_scale(const uint8_t *s, int k) {
    int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4;
    int up = (s[8 + (k & 3)] >> 2 * (k >> 2)) & 3;
    return (low | up << 4) - 32;
}

static __device__ inline void lp_cuda_octet(float *out, uint64_t entry, uint8_t signs,
                                            float scale) {
#pragma unroll
    for (int j = 0; j < 8; j++)
        out[j] = scale * (float)(int8_t)(entry >> 8 * j) * (signs >> j & 1 ? -1.0f : 1.0f);
}
static __device__ inline void lp_cuda_iq1_octet(float *out, uint64_t entry, bool negative_delta,
                                                float scale) {
    float delta = negative_delta ? -0.125f : 0.125f;
#pragma unroll
    for (int j = 0; j < 8; j++) out[j] = scale * ((float)(int8_t)(entry >> 8 * j) + delta);
}
static __device__ inline uint64_t lp_cuda_join(uint32_t low, uint32_t high) {
    return low | (uint64_t)high << 32;
}
static __device__ inline float lp_cuda_trit(uint8_t byte, int k) {
    const int pow3[5] = {1, 3, 9, 27, 81};
    uint8_t shifted = (uint8_t)(byte * pow3[k]);
    return (float)((shifted * 3 >> 8) - 1);
}

#define EACH8 _Pragma("unroll") for (int j = 0; j < 8; j++)

// Values at ... at + 7 of the row that begins at `row`; at is a multiple of 8, and all eight are in
// the row but for the types of single values, of which `left` are: the others become 0.
static __device__ inline void lp_cuda_dequant8(int type, const uint8_t *row, int64_t at, int left,
                                               const struct lp_cuda_tables *tables, float *out) {
    switch (type) {
    case LP_TYPE_F32: {
        const float *x = (const float *)row + at;
        EACH8 out[j] = j < left ? x[j] : 0.0f;
        return;
    }
    case LP_TYPE_F16: {
        const uint16_t *x = (const uint16_t *)row + at;
        EACH8 out[j] = j < left ? lp_cuda_f16(x[j]) : 0.0f;
        return;
    }
    case LP_TYPE_BF16: {
        const uint16_t *x = (const uint16_t *)row + at;
        EACH8 out[j] = j < left ? lp_cuda_bf16(x[j]) : 0.0f;
        return;
    }
    case LP_TYPE_Q4_0: {
        const struct lp_block_q4_0 *b = (const struct lp_block_q4_0 *)row + at / 32;
        int v = (int)(at % 32), shift = v / 16 * 4;
        float d = lp_cuda_f16(b->d);
        EACH8 out[j] = d * (float)((b->qs[v % 16 + j] >> shift & 15) - 8);
        return;
    }
    case LP_TYPE_Q4_1: {
        const struct lp_block_q4_1 *b = (const struct lp_block_q4_1 *)row + at / 32;
        int v = (int)(at % 32), shift = v / 16 * 4;
        float d = lp_cuda_f16(b->d), m = lp_cuda_f16(b->m);
        EACH8 out[j] = d * (float)(b->qs[v % 16 + j] >> shift & 15) + m;
        return;
    }
    case LP_TYPE_Q5_0: {
        const struct lp_block_q5_0 *b = (const struct lp_block_q5_0 *)row + at / 32;
        int v = (int)(at % 32), shift = v / 16 * 4;
        float d = lp_cuda_f16(b->d);
        uint32_t qh = b->qh >> v;
        EACH8 {
            int q = (int)((b->qs[v % 16 + j] >> shift & 15u) | (qh >> j & 1) << 4);
            out[j] = d * (float)(q - 16);
        }
        return;
    }
    case LP_TYPE_Q5_1: {
        const struct lp_block_q5_1 *b = (const struct lp_block_q5_1 *)row + at / 32;
        int v = (int)(at % 32), shift = v / 16 * 4;
        float d = lp_cuda_f16(b->d), m = lp_cuda_f16(b->m);
        uint32_t qh = b->qh >> v;
        EACH8 {
            int q = (int)((b->qs[v % 16 + j] >> shift & 15u) | (qh >> j & 1) << 4);
            out[j] = d * (float)q + m;
        }
        return;
    }
    case LP_TYPE_Q8_0: {
        const struct lp_block_q8_0 *b = (const struct lp_block_q8_0 *)row + at / 32;
        float d = lp_cuda_f16(b->d);
        EACH8 out[j] = d * (float)b->qs[at % 32 + j];
        return;
    }
    case LP_TYPE_IQ4_NL: {
        const struct lp_block_iq4_nl *b = (const struct lp_block_iq4_nl *)row + at / 32;
        int v = (int)(at % 32), shift = v / 16 * 4;
        float d = lp_cuda_f16(b->d);
        EACH8 out[j] = d * (float)tables->iq4_nl[b->qs[v % 16 + j] >> shift & 15];
        return;
    }
    case LP_TYPE_MXFP4: {
        const struct lp_block_mxfp4 *b = (const struct lp_block_mxfp4 *)row + at / 32;
        int v = (int)(at % 32), shift = v / 16 * 4;
        float d = lp_cuda_mxfp4_scale(b->e);
        EACH8 out[j] = d * (float)tables->fp4[b->qs[v % 16 + j] >> shift & 15];
        return;
    }
    case LP_TYPE_NVFP4: {
        const struct lp_block_nvfp4 *b = (const struct lp_block_nvfp4 *)row + at / 64;
        int v = (int)(at % 64), s = v / 16, shift = v % 16 / 8 * 4;
        float d = lp_cuda_nvfp4_scale(b->d[s]);
        EACH8 out[j] = d * (float)tables->fp4[b->qs[8 * s + j] >> shift & 15];
        return;
    }
    case LP_TYPE_Q1_0: {
        const struct lp_block_q1_0 *b = (const struct lp_block_q1_0 *)row + at / 128;
        float d = lp_cuda_f16(b->d);
        int bits = b->qs[at % 128 / 8];
        EACH8 out[j] = bits >> j & 1 ? d : -d;
        return;
    }
    case LP_TYPE_Q2_0: {
        const struct lp_block_q2_0 *b = (const struct lp_block_q2_0 *)row + at / 64;
        int v = (int)(at % 64);
        float d = lp_cuda_f16(b->d);
        EACH8 out[j] = d * (float)((b->qs[(v + j) / 4] >> 2 * (j % 4) & 3) - 1);
        return;
    }
    case LP_TYPE_F8_E4M3: {
        const struct lp_block_f8_e4m3 *b = (const struct lp_block_f8_e4m3 *)row + at / 128;
        float d = b->d;
        EACH8 out[j] = d * lp_cuda_e4m3(b->q[at % 128 + j]);
        return;
    }
    default:
        break;
    }
    const int v = (int)(at % 256), g = v / 32, o = v / 8; // value, group of 32, octet of a block
    switch (type) {
    case LP_TYPE_Q2_K: {
        const struct lp_block_q2_k *b = (const struct lp_block_q2_k *)row + at / 256;
        float d = lp_cuda_f16(b->d), dmin = lp_cuda_f16(b->dmin);
        int s = b->scales[v / 16];
        const uint8_t *qs = b->qs + 32 * (v / 128) + v % 32;
        EACH8 {
            int q = qs[j] >> 2 * (g % 4) & 3;
            out[j] = d * (float)((s & 15) * q) - dmin * (float)(s >> 4);
        }
        return;
    }
    case LP_TYPE_Q3_K: {
        const struct lp_block_q3_k *b = (const struct lp_block_q3_k *)row + at / 256;
        float d = lp_cuda_f16(b->d);
        int scale = lp_cuda_q3_k_scale(b->scales, v / 16);
        const uint8_t *qs = b->qs + 32 * (v / 128) + v % 32;
        EACH8 {
            int q = qs[j] >> 2 * (g % 4) & 3;
            if (!(b->hmask[v % 32 + j] >> g & 1)) q -= 4;
            out[j] = d * (float)(scale * q);
        }
        return;
    }
    case LP_TYPE_Q4_K: {
        const struct lp_block_q4_k *b = (const struct lp_block_q4_k *)row + at / 256;
        int scale, min;
        lp_cuda_k_scale_min(b->scales, g, &scale, &min);
        float s = lp_cuda_f16(b->d) * (float)scale, m = lp_cuda_f16(b->dmin) * (float)min;
        const uint8_t *qs = b->qs + 32 * (g / 2) + v % 32;
        EACH8 out[j] = s * (float)(qs[j] >> 4 * (g & 1) & 15) - m;
        return;
    }
    case LP_TYPE_Q5_K: {
        const struct lp_block_q5_k *b = (const struct lp_block_q5_k *)row + at / 256;
        int scale, min;
        lp_cuda_k_scale_min(b->scales, g, &scale, &min);
        float s = lp_cuda_f16(b->d) * (float)scale, m = lp_cuda_f16(b->dmin) * (float)min;
        const uint8_t *qs = b->qs + 32 * (g / 2) + v % 32, *qh = b->qh + v % 32;
        EACH8 out[j] = s * (float)((qs[j] >> 4 * (g & 1) & 15) | (qh[j] >> g & 1) << 4) - m;
        return;
    }
    case LP_TYPE_Q6_K: {
        const struct lp_block_q6_k *b = (const struct lp_block_q6_k *)row + at / 256;
        float d = lp_cuda_f16(b->d);
        int half = v / 128, k = g % 4, l = v % 32, scale = b->scales[8 * half + 2 * k + l / 16];
        const uint8_t *ql = b->ql + 64 * half + 32 * (k & 1) + l, *qh = b->qh + 32 * half + l;
        EACH8 {
            int q = (ql[j] >> 4 * (k / 2) & 15) | (qh[j] >> 2 * k & 3) << 4;
            out[j] = d * (float)(scale * (q - 32));
        }
        return;
    }
    case LP_TYPE_IQ2_XXS: {
        const struct lp_block_iq2_xxs *b = (const struct lp_block_iq2_xxs *)row + at / 256;
        uint32_t aux = b->groups[g].aux;
        float scale = lp_cuda_f16(b->d) * (0.5f + (float)(aux >> 28)) * 0.25f;
        lp_cuda_octet(out, tables->iq2xxs[b->groups[g].idx[o % 4]],
                      tables->signs[aux >> 7 * (o % 4) & 127], scale);
        return;
    }
    case LP_TYPE_IQ2_XS: {
        const struct lp_block_iq2_xs *b = (const struct lp_block_iq2_xs *)row + at / 256;
        int w = b->qs[o], s = b->scales[g];
        float scale = lp_cuda_f16(b->d) * (0.5f + (float)(o % 4 < 2 ? s & 15 : s >> 4)) * 0.25f;
        lp_cuda_octet(out, tables->iq2xs[w & 511], tables->signs[w >> 9], scale);
        return;
    }
    case LP_TYPE_IQ2_S: {
        const struct lp_block_iq2_s *b = (const struct lp_block_iq2_s *)row + at / 256;
        int index = b->qs[o] | (b->qh[g] >> 2 * (o % 4) & 3) << 8, s = b->scales[g];
        float scale = lp_cuda_f16(b->d) * (0.5f + (float)(o % 4 < 2 ? s & 15 : s >> 4)) * 0.25f;
        lp_cuda_octet(out, tables->iq2s[index], b->signs[o], scale);
        return;
    }
    case LP_TYPE_IQ3_XXS: {
        const struct lp_block_iq3_xxs *b = (const struct lp_block_iq3_xxs *)row + at / 256;
        uint32_t aux = b->aux[g];
        lp_cuda_octet(out,
                      lp_cuda_join(tables->iq3xxs[b->qs[2 * o]], tables->iq3xxs[b->qs[2 * o + 1]]),
                      tables->signs[aux >> 7 * (o % 4) & 127],
                      lp_cuda_f16(b->d) * (0.5f + (float)(aux >> 28)) * 0.5f);
        return;
    }
    case LP_TYPE_IQ3_S: {
        const struct lp_block_iq3_s *b = (const struct lp_block_iq3_s *)row + at / 256;
        int l = o % 4, scale = b->scales[g / 2] >> 4 * (g & 1) & 15;
        int first = b->qs[2 * o] | (b->qh[g] >> 2 * l & 1) << 8;
        int second = b->qs[2 * o + 1] | (b->qh[g] >> (2 * l + 1) & 1) << 8;
        lp_cuda_octet(out, lp_cuda_join(tables->iq3s[first], tables->iq3s[second]), b->signs[o],
                      lp_cuda_f16(b->d) * (float)(1 + 2 * scale));
        return;
    }
    case LP_TYPE_IQ1_S: {
        const struct lp_block_iq1_s *b = (const struct lp_block_iq1_s *)row + at / 256;
        int qh = b->qh[g], index = b->qs[o] | (qh >> 3 * (o % 4) & 7) << 8;
        lp_cuda_iq1_octet(out, tables->iq1s[index], qh >> 15,
                          lp_cuda_f16(b->d) * (float)(2 * (qh >> 12 & 7) + 1));
        return;
    }
    case LP_TYPE_IQ1_M: {
        const struct lp_block_iq1_m *b = (const struct lp_block_iq1_m *)row + at / 256;
        const uint8_t *s = b->scales;
        int d = s[1] >> 4 | (s[3] >> 4) << 4 | (s[5] >> 4) << 8 | (s[7] >> 4) << 12;
        int pair = o / 2, nibble = b->qh[pair] >> 4 * (o & 1) & 15;
        int word = s[2 * (pair / 4)] | s[2 * (pair / 4) + 1] << 8;
        int scale = word >> 3 * (pair % 4) & 7;
        lp_cuda_iq1_octet(out, tables->iq1s[b->qs[o] | (nibble & 7) << 8], nibble & 8,
                          lp_cuda_f16((uint16_t)d) * (float)(2 * scale + 1));
        return;
    }
    case LP_TYPE_IQ4_XS: {
        const struct lp_block_iq4_xs *b = (const struct lp_block_iq4_xs *)row + at / 256;
        int scale = (b->scales_l[g / 2] >> 4 * (g & 1) & 15) | (b->scales_h >> 2 * g & 3) << 4;
        float s = lp_cuda_f16(b->d) * (float)(scale - 32);
        const uint8_t *qs = b->qs + 16 * g + v % 16;
        EACH8 out[j] = s * (float)tables->iq4_nl[qs[j] >> v % 32 / 16 * 4 & 15];
        return;
    }
    case LP_TYPE_TQ1_0: {
        const struct lp_block_tq1_0 *b = (const struct lp_block_tq1_0 *)row + at / 256;
        float d = lp_cuda_f16(b->d);
        EACH8 {
            int i = v + j; // digits 0 .. 4 of bytes 0 .. 31, then of 32 .. 47, then 0 .. 3 of qh
            out[j] = d * (i < 160   ? lp_cuda_trit(b->qs[i % 32], i / 32)
                          : i < 240 ? lp_cuda_trit(b->qs[32 + (i - 160) % 16], (i - 160) / 16)
                                    : lp_cuda_trit(b->qh[(i - 240) % 4], (i - 240) / 4));
        }
        return;
    }
    case LP_TYPE_TQ2_0: {
        const struct lp_block_tq2_0 *b = (const struct lp_block_tq2_0 *)row + at / 256;
        float d = lp_cuda_f16(b->d);
        const uint8_t *qs = b->qs + 32 * (v / 128) + v % 32;
        EACH8 out[j] = d * (float)((qs[j] >> 2 * (g % 4) & 3) - 1);
        return;
    }
    default: // supports() lets no other type through
        EACH8 out[j] = nanf("");
    }
}

#endif
