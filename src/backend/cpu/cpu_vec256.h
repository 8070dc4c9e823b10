// The vector operations that the matrix kernels of 256 bits are written in, under the names that
// AVX2, FMA and F16C give them: on x86 the compiler's own, on ARM these definitions, a 256-bit vector
// being two NEON registers. Each does what its namesake does, lane by lane and bit by bit, so that a
// kernel gives the same bits on both. Only what those kernels use is here.
#ifndef LP_BACKEND_CPU_CPU_VEC256_H
#define LP_BACKEND_CPU_CPU_VEC256_H

#if !defined(__aarch64__)
#include <immintrin.h>
#else

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define LP_VEC static inline __attribute__((always_inline))

typedef uint8x16_t __m128i;
typedef float32x4_t __m128;
typedef struct {
    uint8x16_t lo, hi;
} __m256i;
typedef struct {
    float32x4_t lo, hi;
} __m256;

#define _MM_HINT_T0 3
#define _MM_HINT_T1 2
#define _mm_prefetch(p, hint) __builtin_prefetch((p), 0, (hint))

// ---- 128 bits

LP_VEC __m128i _mm_loadu_si128(const void *p) {
    return vld1q_u8(p);
}
LP_VEC __m128i _mm_loadl_epi64(const void *p) {
    return vcombine_u8(vld1_u8(p), vdup_n_u8(0));
}
LP_VEC __m128i _mm_cvtsi64_si128(long long x) {
    return (__m128i)vsetq_lane_s64(x, vdupq_n_s64(0), 0);
}
LP_VEC __m128i _mm_cvtsi32_si128(int x) {
    return (__m128i)vsetq_lane_s32(x, vdupq_n_s32(0), 0);
}
LP_VEC __m128i _mm_set1_epi8(char x) {
    return vdupq_n_u8((uint8_t)x);
}
LP_VEC __m128i _mm_setr_epi8(char a, char b, char c, char d, char e, char f, char g, char h, char i,
                             char j, char k, char l, char m, char n, char o, char p) {
    const char v[16] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p};
    return vld1q_u8((const uint8_t *)v);
}
LP_VEC __m128i _mm_setr_epi16(short a, short b, short c, short d, short e, short f, short g,
                              short h) {
    return (__m128i)(int16x8_t){a, b, c, d, e, f, g, h};
}
LP_VEC __m128i _mm_setr_epi32(int a, int b, int c, int d) {
    return (__m128i)(int32x4_t){a, b, c, d};
}
LP_VEC __m128i _mm_and_si128(__m128i a, __m128i b) {
    return a & b;
}
LP_VEC __m128i _mm_or_si128(__m128i a, __m128i b) {
    return a | b;
}
LP_VEC __m128i _mm_sub_epi8(__m128i a, __m128i b) {
    return a - b;
}
LP_VEC __m128i _mm_srli_epi16(__m128i v, int n) { // n < 16
    return (__m128i)((uint16x8_t)v >> n);
}
LP_VEC __m128i _mm_unpacklo_epi64(__m128i a, __m128i b) {
    return (__m128i)vzip1q_u64((uint64x2_t)a, (uint64x2_t)b);
}
LP_VEC __m128i _mm_unpackhi_epi64(__m128i a, __m128i b) {
    return (__m128i)vzip2q_u64((uint64x2_t)a, (uint64x2_t)b);
}
// An index is 0 to 15, or has its highest bit set: then the byte is 0.
LP_VEC __m128i _mm_shuffle_epi8(__m128i table, __m128i index) {
    return vqtbl1q_u8(table, index);
}
LP_VEC __m128i _mm_cvtepu8_epi32(__m128i v) {
    return (__m128i)vmovl_u16(vget_low_u16(vmovl_u8(vget_low_u8(v))));
}
LP_VEC __m128 _mm_cvtepi32_ps(__m128i v) {
    return vcvtq_f32_s32((int32x4_t)v);
}
LP_VEC __m128 _mm_cvtph_ps(__m128i v) { // the lower four
    return vcvt_f32_f16((float16x4_t)vget_low_u8(v));
}
LP_VEC float _cvtsh_ss(unsigned short bits) {
    __fp16 h;
    memcpy(&h, &bits, sizeof h);
    return (float)h;
}
LP_VEC __m128 _mm_set1_ps(float x) {
    return vdupq_n_f32(x);
}
LP_VEC __m128 _mm_setr_ps(float a, float b, float c, float d) {
    return (float32x4_t){a, b, c, d};
}
LP_VEC __m128 _mm_mul_ps(__m128 a, __m128 b) {
    return vmulq_f32(a, b);
}
LP_VEC __m128 _mm_add_ps(__m128 a, __m128 b) {
    return vaddq_f32(a, b);
}
LP_VEC __m128 _mm_add_ss(__m128 a, __m128 b) {
    a[0] += b[0];
    return a;
}
LP_VEC __m128 _mm_movehl_ps(__m128 a, __m128 b) { // b2 b3 a2 a3
    return (__m128)vzip2q_u64((uint64x2_t)b, (uint64x2_t)a);
}
LP_VEC __m128 _mm_movehdup_ps(__m128 v) { // v1 v1 v3 v3
    return vtrn2q_f32(v, v);
}
LP_VEC float _mm_cvtss_f32(__m128 v) {
    return v[0];
}

// ---- 256 bits: loads, stores, parts

LP_VEC __m256i _mm256_loadu_si256(const void *p) {
    return (__m256i){vld1q_u8(p), vld1q_u8((const uint8_t *)p + 16)};
}
LP_VEC void _mm256_store_si256(void *p, __m256i v) {
    vst1q_u8(p, v.lo);
    vst1q_u8((uint8_t *)p + 16, v.hi);
}
LP_VEC __m256 _mm256_loadu_ps(const float *p) {
    return (__m256){vld1q_f32(p), vld1q_f32(p + 4)};
}
LP_VEC void _mm256_storeu_ps(float *p, __m256 v) {
    vst1q_f32(p, v.lo);
    vst1q_f32(p + 4, v.hi);
}
LP_VEC void _mm256_store_ps(float *p, __m256 v) {
    _mm256_storeu_ps(p, v);
}
// Lanes whose mask is negative; the others are 0, and nothing is read for them.
LP_VEC __m256 _mm256_maskload_ps(const float *p, __m256i mask) {
    int32_t take[8];
    float v[8];
    _mm256_store_si256(take, mask);
    for (int i = 0; i < 8; i++) v[i] = take[i] < 0 ? p[i] : 0.0f;
    return _mm256_loadu_ps(v);
}
LP_VEC __m256i _mm256_set_m128i(__m128i hi, __m128i lo) {
    return (__m256i){lo, hi};
}
LP_VEC __m256 _mm256_set_m128(__m128 hi, __m128 lo) {
    return (__m256){lo, hi};
}
LP_VEC __m256i _mm256_castsi128_si256(__m128i lo) {
    return (__m256i){lo, lo};
}
LP_VEC __m128i _mm256_castsi256_si128(__m256i v) {
    return v.lo;
}
LP_VEC __m128i _mm256_extracti128_si256(__m256i v, int which) {
    return which ? v.hi : v.lo;
}
LP_VEC __m256i _mm256_inserti128_si256(__m256i v, __m128i part, int which) {
    return which ? (__m256i){v.lo, part} : (__m256i){part, v.hi};
}
LP_VEC __m128 _mm256_castps256_ps128(__m256 v) {
    return v.lo;
}
LP_VEC __m128 _mm256_extractf128_ps(__m256 v, int which) {
    return which ? v.hi : v.lo;
}
LP_VEC __m256i _mm256_broadcastsi128_si256(__m128i v) {
    return (__m256i){v, v};
}
LP_VEC __m256 _mm256_castsi256_ps(__m256i v) {
    return (__m256){(float32x4_t)v.lo, (float32x4_t)v.hi};
}

// ---- 256 bits: constants

LP_VEC __m256i _mm256_setzero_si256(void) {
    return (__m256i){vdupq_n_u8(0), vdupq_n_u8(0)};
}
LP_VEC __m256i _mm256_set1_epi8(char x) {
    return _mm256_broadcastsi128_si256(vdupq_n_u8((uint8_t)x));
}
LP_VEC __m256i _mm256_set1_epi16(short x) {
    return _mm256_broadcastsi128_si256((__m128i)vdupq_n_s16(x));
}
LP_VEC __m256i _mm256_set1_epi32(int x) {
    return _mm256_broadcastsi128_si256((__m128i)vdupq_n_s32(x));
}
LP_VEC __m256i _mm256_set1_epi64x(long long x) {
    return _mm256_broadcastsi128_si256((__m128i)vdupq_n_s64(x));
}
LP_VEC __m256i _mm256_setr_epi8(char a0, char a1, char a2, char a3, char a4, char a5, char a6,
                                char a7, char a8, char a9, char a10, char a11, char a12, char a13,
                                char a14, char a15, char b0, char b1, char b2, char b3, char b4,
                                char b5, char b6, char b7, char b8, char b9, char b10, char b11,
                                char b12, char b13, char b14, char b15) {
    return (__m256i){
        _mm_setr_epi8(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15),
        _mm_setr_epi8(b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15)};
}
LP_VEC __m256i _mm256_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h) {
    return (__m256i){_mm_setr_epi32(a, b, c, d), _mm_setr_epi32(e, f, g, h)};
}
LP_VEC __m256i _mm256_setr_epi64x(long long a, long long b, long long c, long long d) {
    return (__m256i){(__m128i)(int64x2_t){a, b}, (__m128i)(int64x2_t){c, d}};
}
LP_VEC __m256 _mm256_setzero_ps(void) {
    return (__m256){vdupq_n_f32(0), vdupq_n_f32(0)};
}
LP_VEC __m256 _mm256_set1_ps(float x) {
    return (__m256){vdupq_n_f32(x), vdupq_n_f32(x)};
}

// ---- 256 bits: integers. lane: the type in which an operator works.

#define LP_VEC_OPERATOR(name, lane, op)                                                            \
    LP_VEC __m256i name(__m256i a, __m256i b) {                                                    \
        return (__m256i){(__m128i)((lane)a.lo op(lane) b.lo),                                      \
                         (__m128i)((lane)a.hi op(lane) b.hi)};                                     \
    }
LP_VEC_OPERATOR(_mm256_and_si256, uint8x16_t, &)
LP_VEC_OPERATOR(_mm256_or_si256, uint8x16_t, |)
LP_VEC_OPERATOR(_mm256_xor_si256, uint8x16_t, ^)
LP_VEC_OPERATOR(_mm256_add_epi8, uint8x16_t, +)
LP_VEC_OPERATOR(_mm256_sub_epi8, uint8x16_t, -)
LP_VEC_OPERATOR(_mm256_cmpeq_epi8, uint8x16_t, ==)
LP_VEC_OPERATOR(_mm256_add_epi32, uint32x4_t, +)
LP_VEC_OPERATOR(_mm256_sub_epi32, uint32x4_t, -)
LP_VEC_OPERATOR(_mm256_mullo_epi32, uint32x4_t, *)
LP_VEC_OPERATOR(_mm256_cmpeq_epi32, int32x4_t, ==)
LP_VEC_OPERATOR(_mm256_cmpgt_epi32, int32x4_t, >)
#undef LP_VEC_OPERATOR

// Shifts of less than the lane's bits
#define LP_VEC_SHIFT(name, lane, op)                                                               \
    LP_VEC __m256i name(__m256i v, int n) {                                                        \
        return (__m256i){(__m128i)((lane)v.lo op n), (__m128i)((lane)v.hi op n)};                  \
    }
LP_VEC_SHIFT(_mm256_srli_epi16, uint16x8_t, >>)
LP_VEC_SHIFT(_mm256_slli_epi16, uint16x8_t, <<)
LP_VEC_SHIFT(_mm256_srai_epi16, int16x8_t, >>)
LP_VEC_SHIFT(_mm256_srli_epi32, uint32x4_t, >>)
LP_VEC_SHIFT(_mm256_slli_epi32, uint32x4_t, <<)
LP_VEC_SHIFT(_mm256_srai_epi32, int32x4_t, >>)
#undef LP_VEC_SHIFT

// Both halves by one function of NEON
#define LP_VEC_HALVES(name, lane, function)                                                        \
    LP_VEC __m256i name(__m256i a, __m256i b) {                                                    \
        return (__m256i){(__m128i)function((lane)a.lo, (lane)b.lo),                                \
                         (__m128i)function((lane)a.hi, (lane)b.hi)};                               \
    }
LP_VEC_HALVES(_mm256_max_epu8, uint8x16_t, vmaxq_u8)
LP_VEC_HALVES(_mm256_shuffle_epi8, uint8x16_t, vqtbl1q_u8) // indices as above
LP_VEC_HALVES(_mm256_unpacklo_epi8, uint8x16_t, vzip1q_u8)
LP_VEC_HALVES(_mm256_unpackhi_epi8, uint8x16_t, vzip2q_u8)
LP_VEC_HALVES(_mm256_unpacklo_epi32, uint32x4_t, vzip1q_u32)
LP_VEC_HALVES(_mm256_unpackhi_epi32, uint32x4_t, vzip2q_u32)
LP_VEC_HALVES(_mm256_unpacklo_epi64, uint64x2_t, vzip1q_u64)
LP_VEC_HALVES(_mm256_unpackhi_epi64, uint64x2_t, vzip2q_u64)
#undef LP_VEC_HALVES

LP_VEC __m256i _mm256_andnot_si256(__m256i a, __m256i b) { // ~a & b
    return (__m256i){vbicq_u8(b.lo, a.lo), vbicq_u8(b.hi, a.hi)};
}
LP_VEC uint16x8_t lp_vec_pack_u16(uint8x16_t a, uint8x16_t b) {
    return vcombine_u16(vqmovun_s32((int32x4_t)a), vqmovun_s32((int32x4_t)b));
}
LP_VEC __m256i _mm256_packus_epi32(__m256i a, __m256i b) {
    return (__m256i){(__m128i)lp_vec_pack_u16(a.lo, b.lo), (__m128i)lp_vec_pack_u16(a.hi, b.hi)};
}
LP_VEC uint32_t lp_vec_high_bits(uint8x16_t v) {
    const uint8x16_t bit = (uint8x16_t)vdupq_n_u64(0x8040201008040201u);
    uint8x16_t bits = vandq_u8((uint8x16_t)vshrq_n_s8((int8x16_t)v, 7), bit);
    return vaddv_u8(vget_low_u8(bits)) | (uint32_t)vaddv_u8(vget_high_u8(bits)) << 8;
}
LP_VEC int _mm256_movemask_epi8(__m256i v) {
    return (int)(lp_vec_high_bits(v.lo) | lp_vec_high_bits(v.hi) << 16);
}
LP_VEC __m256i _mm256_cvtepi8_epi32(__m128i v) { // the lower eight
    int16x8_t wide = vmovl_s8((int8x8_t)vget_low_u8(v));
    return (__m256i){(__m128i)vmovl_s16(vget_low_s16(wide)), (__m128i)vmovl_high_s16(wide)};
}
LP_VEC __m256i _mm256_cvtepu16_epi32(__m128i v) {
    return (__m256i){(__m128i)vmovl_u16(vget_low_u16((uint16x8_t)v)),
                     (__m128i)vmovl_high_u16((uint16x8_t)v)};
}
LP_VEC __m256i _mm256_cvtepu8_epi32(__m128i v) { // the lower eight
    return _mm256_cvtepu16_epi32((__m128i)vmovl_u8(vget_low_u8(v)));
}

// ---- 256 bits: floats

LP_VEC __m256 _mm256_cvtepi32_ps(__m256i v) {
    return (__m256){vcvtq_f32_s32((int32x4_t)v.lo), vcvtq_f32_s32((int32x4_t)v.hi)};
}
LP_VEC __m256 _mm256_cvtph_ps(__m128i v) {
    return (__m256){vcvt_f32_f16((float16x4_t)vget_low_u8(v)),
                    vcvt_f32_f16((float16x4_t)vget_high_u8(v))};
}
LP_VEC __m256 _mm256_add_ps(__m256 a, __m256 b) {
    return (__m256){vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)};
}
LP_VEC __m256 _mm256_sub_ps(__m256 a, __m256 b) {
    return (__m256){vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)};
}
LP_VEC __m256 _mm256_mul_ps(__m256 a, __m256 b) {
    return (__m256){vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)};
}
LP_VEC __m256 _mm256_xor_ps(__m256 a, __m256 b) {
    return (__m256){(float32x4_t)((uint32x4_t)a.lo ^ (uint32x4_t)b.lo),
                    (float32x4_t)((uint32x4_t)a.hi ^ (uint32x4_t)b.hi)};
}
LP_VEC __m256 _mm256_fmadd_ps(__m256 a, __m256 b, __m256 c) { // a b + c
    return (__m256){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}
LP_VEC __m256 _mm256_fnmadd_ps(__m256 a, __m256 b, __m256 c) { // c - a b
    return (__m256){vfmsq_f32(c.lo, a.lo, b.lo), vfmsq_f32(c.hi, a.hi, b.hi)};
}

#undef LP_VEC
#endif
#endif
