// The sieve's vectors of AVX-512 VNNI: sixteen keys a strip, 8-bit keys.
#ifndef LP_CPU_SIEVE_512_H
#define LP_CPU_SIEVE_512_H

#include <immintrin.h>
#include <stdint.h>

#define LANES 16
#define KEY_LARGEST 127
#define TILE_HEADS 4
#define TILE_STRIPS 4
#define COLUMNS 1
typedef __m512i vint;
typedef __m512 vf;

static inline vf v_zero(void) {
    return _mm512_setzero_ps();
}
static inline vf v_set1(float x) {
    return _mm512_set1_ps(x);
}
static inline vint v_set1_int(int32_t x) {
    return _mm512_set1_epi32(x);
}
static inline vf v_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline vint v_load_int(const void *p) {
    return _mm512_loadu_si512(p);
}
static inline void v_store(float *p, vf v) {
    _mm512_storeu_ps(p, v);
}
static inline vf v_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline vint v_four(const void *p) {
    int32_t four;
    __builtin_memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}
static inline vf v_positive(vint v) {
    return _mm512_cvtepi32_ps(_mm512_max_epi32(v, _mm512_setzero_si512()));
}
static inline vint multiply(vint sum, const vint *keys, const vint *x) {
    return _mm512_dpbusd_epi32(sum, keys[0], x[0]);
}
static inline vf v_larger(vf a, vf b) {
    return _mm512_range_ps(a, b, 0x0b);
}
static inline vint v_round(vf v) {
    return _mm512_cvtps_epi32(v);
}
static inline void pack(const vint *v, void *out) {
    for (int i = 0; i < 2; i++) {
        vint low = _mm512_packs_epi32(v[4 * i], v[4 * i + 1]),
             high = _mm512_packs_epi32(v[4 * i + 2], v[4 * i + 3]);
        _mm512_storeu_si512((char *)out + 64 * i, _mm512_packs_epi16(low, high));
    }
}
static inline unsigned v_above(vf v, float limit) { // bit i: v[i] > limit
    return _mm512_cmp_ps_mask(v, _mm512_set1_ps(limit), _CMP_GT_OQ);
}
static inline vf v_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
static inline vf v_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}

static inline vint rows_0_4_8_12(const uint8_t *rows, int step) {
    vint v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)rows));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(rows + 4 * step)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(rows + 8 * step)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(rows + 12 * step)), 3);
}
static inline void to_columns(const uint8_t *rows, int step, uint8_t *out) {
    const vint offset = _mm512_set1_epi8(KEY_LARGEST);
    vint a = _mm512_add_epi8(rows_0_4_8_12(rows, step), offset),
         b = _mm512_add_epi8(rows_0_4_8_12(rows + step, step), offset),
         c = _mm512_add_epi8(rows_0_4_8_12(rows + 2 * step, step), offset),
         d = _mm512_add_epi8(rows_0_4_8_12(rows + 3 * step, step), offset);
    vint ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    _mm512_storeu_si512(out, _mm512_unpacklo_epi64(ab, cd));
    _mm512_storeu_si512(out + 64, _mm512_unpackhi_epi64(ab, cd));
    ab = _mm512_unpackhi_epi32(a, b), cd = _mm512_unpackhi_epi32(c, d);
    _mm512_storeu_si512(out + 128, _mm512_unpacklo_epi64(ab, cd));
    _mm512_storeu_si512(out + 192, _mm512_unpackhi_epi64(ab, cd));
}

#include "backend/cpu/cpu_sieve_body.h"

#endif
