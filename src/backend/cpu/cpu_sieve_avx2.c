// The sieve with AVX2: eight keys a strip. maddubs sums pairs in 16 bits: with 6-bit keys the pairs
// of two columns fit (62 * 127 * 4 < 32768) and share the widening.
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#include <stdint.h>

#define LANES 8
#define KEY_LARGEST 31
#define TILE_HEADS 2
#define TILE_STRIPS 2
#define COLUMNS 2
typedef __m256i vint;
typedef __m256 vf;

static inline vf v_zero(void) {
    return _mm256_setzero_ps();
}
static inline vf v_set1(float x) {
    return _mm256_set1_ps(x);
}
static inline vint v_set1_int(int32_t x) {
    return _mm256_set1_epi32(x);
}
static inline vf v_load(const float *p) {
    return _mm256_loadu_ps(p);
}
static inline vint v_load_int(const void *p) {
    return _mm256_loadu_si256(p);
}
static inline void v_store(float *p, vf v) {
    _mm256_storeu_ps(p, v);
}
static inline vf v_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline vint v_four(const void *p) {
    int32_t four;
    __builtin_memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
}
static inline vf v_positive(vint v) {
    return _mm256_cvtepi32_ps(_mm256_max_epi32(v, _mm256_setzero_si256()));
}
static inline vint multiply(vint sum, const vint *keys, const vint *x) {
    vint pairs =
        _mm256_add_epi16(_mm256_maddubs_epi16(keys[0], x[0]), _mm256_maddubs_epi16(keys[1], x[1]));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline vf v_larger(vf a, vf b) {
    const vf sign = _mm256_set1_ps(-0.0f);
    return _mm256_max_ps(_mm256_andnot_ps(sign, a), _mm256_andnot_ps(sign, b));
}
static inline vint v_round(vf v) {
    return _mm256_cvtps_epi32(v);
}
static inline void pack(const vint *v, void *out) {
    for (int i = 0; i < 2; i++) {
        vint low = _mm256_packs_epi32(v[4 * i], v[4 * i + 1]),
             high = _mm256_packs_epi32(v[4 * i + 2], v[4 * i + 3]);
        _mm256_storeu_si256((void *)((char *)out + 32 * i), _mm256_packs_epi16(low, high));
    }
}
static inline unsigned v_above(vf v, float limit) { // bit i: v[i] > limit
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_set1_ps(limit), _CMP_GT_OQ));
}
static inline vf v_min(vf a, vf b) {
    return _mm256_min_ps(a, b);
}
static inline vf v_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
}

static inline vint rows_0_4(const uint8_t *rows, int step) {
    vint v = _mm256_set_m128i(_mm_loadu_si128((const void *)(rows + 4 * step)),
                              _mm_loadu_si128((const void *)rows));
    return _mm256_add_epi8(v, _mm256_set1_epi8(KEY_LARGEST));
}
static inline void put(uint8_t *out, vint v) {
    _mm256_storeu_si256((void *)out, v);
}
static inline void to_columns(const uint8_t *rows, int step, uint8_t *out) {
    vint a = rows_0_4(rows, step), b = rows_0_4(rows + step, step),
         c = rows_0_4(rows + 2 * step, step), d = rows_0_4(rows + 3 * step, step);
    vint ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
    put(out, _mm256_unpacklo_epi64(ab, cd));
    put(out + 32, _mm256_unpackhi_epi64(ab, cd));
    ab = _mm256_unpackhi_epi32(a, b), cd = _mm256_unpackhi_epi32(c, d);
    put(out + 64, _mm256_unpacklo_epi64(ab, cd));
    put(out + 96, _mm256_unpackhi_epi64(ab, cd));
}

#include "backend/cpu/cpu_sieve_body.h"

LP_CPU_SIEVE_TABLE(avx2, score);

#endif
