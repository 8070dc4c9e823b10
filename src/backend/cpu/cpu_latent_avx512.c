// 16-bit float rows with AVX-512.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include <immintrin.h>
#include <stdint.h>

#include "backend/cpu/cpu_vec512.h"
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
static inline void v_sum4(const vf *v, float *out) {
    lp_sum4_512(v, out);
}
static inline float v_sum(vf v) {
    return lp_sum_512(v);
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
