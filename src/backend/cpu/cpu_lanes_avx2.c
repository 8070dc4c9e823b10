// The inner functions for AVX2 with FMA and F16C: vectors of eight.
#include "backend/cpu/cpu_lanes.h"
#include "backend/cpu/cpu_lanes_x86.h"

#define LANES 8
typedef __m256 vf;

static const int32_t tail_mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

static inline __m256i mask_n(int n) { // the first n lanes
    return _mm256_loadu_si256((const __m256i *)(tail_mask + 8 - n));
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
    __m256i mask = mask_n(n);
    return _mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(p, mask),
                            _mm256_castsi256_ps(mask));
}
static inline void v_store_n(float *p, vf v, int n) {
    _mm256_maskstore_ps(p, mask_n(n), v);
}
static inline vf v_add(vf a, vf b) {
    return _mm256_add_ps(a, b);
}
static inline vf v_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}
static inline vf v_div(vf a, vf b) {
    return _mm256_div_ps(a, b);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf v_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
}

static inline float v_sum(vf v) {
    return _mm_cvtss_f32(sum4(v, v, v, v));
}
static inline void v_sum4(const vf *v, float *out) {
    _mm_storeu_ps(out, sum4(v[0], v[1], v[2], v[3]));
}

// x = n ln 2 + r with |r| <= ln 2 / 2; the Taylor polynomial of degree 7 (its remainder is 5e-9);
// 2^n in two factors, so that results down to the subnormals and up to infinity come out right.
static inline vf v_exp(vf x) {
    x = _mm256_min_ps(_mm256_set1_ps(89.0f), x); // the second operand where x is NaN
    x = _mm256_max_ps(_mm256_set1_ps(-105.0f), x);
    vf n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), x); // ln 2 = 0x1.62e4p-1 + 1.42861e-6
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
    vf p = _mm256_set1_ps(1.0f / 5040);
    p = v_fma(p, r, _mm256_set1_ps(1.0f / 720));
    p = v_fma(p, r, _mm256_set1_ps(1.0f / 120));
    p = v_fma(p, r, _mm256_set1_ps(1.0f / 24));
    p = v_fma(p, r, _mm256_set1_ps(1.0f / 6));
    p = v_fma(p, r, _mm256_set1_ps(0.5f));
    p = v_fma(p, r, _mm256_set1_ps(1.0f));
    p = v_fma(p, r, _mm256_set1_ps(1.0f));
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    __m256i bias = _mm256_set1_epi32(127);
    __m256i low = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i high = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
    return v_mul(v_mul(p, _mm256_castsi256_ps(low)), _mm256_castsi256_ps(high));
}

#include "backend/cpu/cpu_lanes_body.h"

LP_CPU_LANES_TABLE(avx2);
