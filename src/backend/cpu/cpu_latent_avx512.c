// 16-bit float rows with AVX-512.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include <immintrin.h>
#include <stdint.h>

#include "quant/quant.h"

#define LANES 16
#define TILE_HEADS 8
#define SCORE_HEADS 6
#define TILE_VECTORS 3
typedef __m512 vf;

static inline vf v_zero(void) {
    return _mm512_setzero_ps();
}
static inline vf v_set1(float x) {
    return _mm512_set1_ps(x);
}
static inline vf v_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, vf v) {
    _mm512_storeu_ps(p, v);
}
static inline vf v_load_n(const float *p, int n, float fill) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), (__mmask16)((1u << n) - 1), p);
}
static inline void v_store_n(float *p, vf v, int n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
// (l0 + l2) + (l1 + l3) of each 128 bits, then the quarters; the same bits for one and for four.
static inline __m128 fold(vf v) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
static inline vf add_pairs(vf a, vf b) { // a0 + a2, b0 + b2, a1 + a3, b1 + b3 of each 128 bits
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}
static inline void v_sum4(const vf *v, float *out) {
    __m512d ab = _mm512_castps_pd(add_pairs(v[0], v[1])),
            cd = _mm512_castps_pd(add_pairs(v[2], v[3]));
    vf sums = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                            _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
    _mm_storeu_ps(out, fold(sums));
}
static inline float v_sum(vf v) {
    const vf four[4] = {v, v, v, v};
    float out[4];
    v_sum4(four, out);
    return out[0];
}
static inline vf load_half(lp_type type, const uint16_t *p) {
    __m256i half = _mm256_loadu_si256((const void *)p);
    if (type == LP_TYPE_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

#include "backend/cpu/cpu_latent_half.h"

LP_CPU_LATENT_HALF(avx512, f16, LP_TYPE_F16);
LP_CPU_LATENT_HALF(avx512, bf16, LP_TYPE_BF16);

#endif
