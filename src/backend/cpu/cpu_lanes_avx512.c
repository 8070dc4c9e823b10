// The inner functions for AVX-512 (F, BW, DQ, VL): vectors of sixteen.
#include "backend/cpu/cpu_lanes.h"
#include "backend/cpu/cpu_lanes_x86.h"

#define LANES 16
typedef __m512 vf;

static inline __mmask16 mask_n(int n) { // the first n lanes
    return (__mmask16)((1u << n) - 1);
}
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
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), mask_n(n), p);
}
static inline void v_store_n(float *p, vf v, int n) {
    _mm512_mask_storeu_ps(p, mask_n(n), v);
}
static inline vf v_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
static inline vf v_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
static inline vf v_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf v_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}

static inline __m256 fold(vf v) { // lane i + lane i + 8
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}
static inline float v_sum(vf v) {
    __m256 half = fold(v);
    return _mm_cvtss_f32(sum4(half, half, half, half));
}
static inline void v_sum4(const vf *v, float *out) {
    _mm_storeu_ps(out, sum4(fold(v[0]), fold(v[1]), fold(v[2]), fold(v[3])));
}

// As in cpu_lanes_avx2.c; scalef multiplies by 2^n at full range.
static inline vf v_exp(vf x) {
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), x); // the second operand where x is NaN
    x = _mm512_max_ps(_mm512_set1_ps(-105.0f), x);
    vf n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
    vf p = _mm512_set1_ps(1.0f / 5040);
    p = v_fma(p, r, _mm512_set1_ps(1.0f / 720));
    p = v_fma(p, r, _mm512_set1_ps(1.0f / 120));
    p = v_fma(p, r, _mm512_set1_ps(1.0f / 24));
    p = v_fma(p, r, _mm512_set1_ps(1.0f / 6));
    p = v_fma(p, r, _mm512_set1_ps(0.5f));
    p = v_fma(p, r, _mm512_set1_ps(1.0f));
    p = v_fma(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

#include "backend/cpu/cpu_lanes_body.h"

LP_CPU_LANES_TABLE(avx512);
