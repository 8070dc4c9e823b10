// 16-bit float rows with AVX2.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#include <stdint.h>

#include "quant/quant.h"

#define LANES 8
#define TILE_HEADS 4
#define SCORE_HEADS 2
#define TILE_VECTORS 3
typedef __m256 vf;

static inline __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf v_zero(void) {
    return _mm256_setzero_ps();
}
static inline vf v_set1(float x) {
    return _mm256_set1_ps(x);
}
static inline vf v_load(const float *p) {
    return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, vf v) {
    _mm256_storeu_ps(p, v);
}
static inline vf v_load_n(const float *p, int n, float fill) {
    (void)fill; // 0
    return _mm256_maskload_ps(p, first(n));
}
static inline void v_store_n(float *p, vf v, int n) {
    _mm256_maskstore_ps(p, first(n), v);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
// As in cpu_latent_avx512.c
static inline vf add_pairs(vf a, vf b) {
    return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
}
static inline void v_sum4(const vf *v, float *out) {
    __m256d ab = _mm256_castps_pd(add_pairs(v[0], v[1])),
            cd = _mm256_castps_pd(add_pairs(v[2], v[3]));
    vf sums = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd)),
                            _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd)));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
}
static inline float v_sum(vf v) {
    const vf four[4] = {v, v, v, v};
    float out[4];
    v_sum4(four, out);
    return out[0];
}
static inline vf load_half(lp_type type, const uint16_t *p) {
    __m128i half = _mm_loadu_si128((const void *)p);
    if (type == LP_TYPE_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

#include "backend/cpu/cpu_latent_half.h"

LP_CPU_LATENT_HALF(avx2, f16, LP_TYPE_F16);
LP_CPU_LATENT_HALF(avx2, bf16, LP_TYPE_BF16);

#endif
