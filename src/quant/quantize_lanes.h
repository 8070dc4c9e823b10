// Sixteen float32 lanes, for searches that treat sixteen groups of values at once, a group a lane.
//
// Nothing is ever added across lanes and nothing is contracted to a fused multiply-add, so that
// each lane computes what plain C would: every instruction set gives the same bytes. The set is
// chosen by the flags a source is compiled with (quantize_search_plain.c, _avx2.c).
#ifndef LP_QUANT_QUANTIZE_LANES_H
#define LP_QUANT_QUANTIZE_LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define LP_LANES 16

#if defined(__AVX2__)

typedef struct {
    __m256 a, b;
} vf;
typedef vf vm;

static inline vf v_set1(float x) {
    return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline vf v_load(const float *p) {
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void v_store(float *p, vf v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
static inline vf v_add(vf a, vf b) {
    return (vf){_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b)};
}
static inline vf v_sub(vf a, vf b) {
    return (vf){_mm256_sub_ps(a.a, b.a), _mm256_sub_ps(a.b, b.b)};
}
static inline vf v_mul(vf a, vf b) {
    return (vf){_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b)};
}
static inline vf v_div(vf a, vf b) {
    return (vf){_mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b)};
}
// a > b ? a : b and a < b ? a : b: b if one is NaN
static inline vf v_max(vf a, vf b) {
    return (vf){_mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b)};
}
static inline vf v_min(vf a, vf b) {
    return (vf){_mm256_min_ps(a.a, b.a), _mm256_min_ps(a.b, b.b)};
}
static inline vm v_gt(vf a, vf b) { // false if one is NaN
    return (vm){_mm256_cmp_ps(a.a, b.a, _CMP_GT_OQ), _mm256_cmp_ps(a.b, b.b, _CMP_GT_OQ)};
}
static inline vm vm_and(vm a, vm b) {
    return (vm){_mm256_and_ps(a.a, b.a), _mm256_and_ps(a.b, b.b)};
}
static inline int v_any(vm m) {
    return _mm256_movemask_ps(_mm256_or_ps(m.a, m.b)) != 0;
}
static inline vf v_pick(vm m, vf yes, vf no) {
    return (vf){_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b)};
}
// Lanes 0 .. 255 as bytes
static inline void v_store_u8(uint8_t out[LP_LANES], vf v) {
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b));
    words = _mm256_permute4x64_epi64(words, 0xd8); // the packing is per 128 bits
    __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
    _mm_storeu_si128((__m128i *)out, _mm_packus_epi16(low, high));
}

#else // plain: vectors of four, on every machine

typedef float v4 __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));
typedef struct {
    v4 a, b, c, d;
} vf;
typedef struct {
    v4i a, b, c, d;
} vm;

#define V_EACH(type, op) ((type){op(a.a, b.a), op(a.b, b.b), op(a.c, b.c), op(a.d, b.d)})
#define V4_ADD(x, y) ((x) + (y))
#define V4_SUB(x, y) ((x) - (y))
#define V4_MUL(x, y) ((x) * (y))
#define V4_DIV(x, y) ((x) / (y))
#define V4_GT(x, y) ((v4i)((x) > (y)))
#define V4_AND(x, y) ((x) & (y))
#define V4_PICK(m, yes, no) ((v4)(((m) & (v4i)(yes)) | (~(m) & (v4i)(no))))
#if defined(__SSE2__)
#define V4_MAX(x, y) ((v4)_mm_max_ps((__m128)(x), (__m128)(y)))
#define V4_MIN(x, y) ((v4)_mm_min_ps((__m128)(x), (__m128)(y)))
#else
#define V4_MAX(x, y) V4_PICK(V4_GT(x, y), x, y)
#define V4_MIN(x, y) V4_PICK(V4_GT(y, x), x, y)
#endif

static inline vf v_set1(float x) {
    v4 v = {x, x, x, x};
    return (vf){v, v, v, v};
}
static inline vf v_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void v_store(float *p, vf v) {
    memcpy(p, &v, sizeof v);
}
static inline vf v_add(vf a, vf b) {
    return V_EACH(vf, V4_ADD);
}
static inline vf v_sub(vf a, vf b) {
    return V_EACH(vf, V4_SUB);
}
static inline vf v_mul(vf a, vf b) {
    return V_EACH(vf, V4_MUL);
}
static inline vf v_div(vf a, vf b) {
    return V_EACH(vf, V4_DIV);
}
static inline vf v_max(vf a, vf b) {
    return V_EACH(vf, V4_MAX);
}
static inline vf v_min(vf a, vf b) {
    return V_EACH(vf, V4_MIN);
}
static inline vm v_gt(vf a, vf b) {
    return V_EACH(vm, V4_GT);
}
static inline vm vm_and(vm a, vm b) {
    return V_EACH(vm, V4_AND);
}
static inline int v_any(vm m) {
    v4i any = m.a | m.b | m.c | m.d;
    return (any[0] | any[1] | any[2] | any[3]) != 0;
}
static inline vf v_pick(vm m, vf yes, vf no) {
    return (vf){V4_PICK(m.a, yes.a, no.a), V4_PICK(m.b, yes.b, no.b), V4_PICK(m.c, yes.c, no.c),
                V4_PICK(m.d, yes.d, no.d)};
}
static inline void v_store_u8(uint8_t out[LP_LANES], vf v) {
    float f[LP_LANES];
    v_store(f, v);
    for (int l = 0; l < LP_LANES; l++) out[l] = (uint8_t)(int)f[l];
}

#endif

// Four values of four lanes: out[j][l] = from[l][j]
static inline void v_transpose4(const float *const from[4], float (*out)[LP_LANES]) {
#if defined(__SSE2__)
    __m128 a = _mm_loadu_ps(from[0]), b = _mm_loadu_ps(from[1]);
    __m128 c = _mm_loadu_ps(from[2]), d = _mm_loadu_ps(from[3]);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(out[0], a);
    _mm_storeu_ps(out[1], b);
    _mm_storeu_ps(out[2], c);
    _mm_storeu_ps(out[3], d);
#else
    for (int l = 0; l < 4; l++)
        for (int j = 0; j < 4; j++) out[j][l] = from[l][j];
#endif
}

static inline vf v_zero(void) {
    return v_set1(0.0f);
}
static inline vf v_abs(vf a) {
    return v_max(a, v_sub(v_zero(), a));
}
// The nearest integer, ties to even, for |v| < 2^22
static inline vf v_nearest(vf v) {
    return v_sub(v_add(v, v_set1(0x1.8p23f)), v_set1(0x1.8p23f));
}
static inline vf v_clamp(vf v, vf low, vf high) {
    return v_min(v_max(v, low), high);
}
// a / b, and 0 where b is 0
static inline vf v_ratio(vf a, vf b) {
    vm some = v_gt(v_abs(b), v_zero());
    return v_pick(some, v_div(a, v_pick(some, b, v_set1(1.0f))), v_zero());
}

#endif
