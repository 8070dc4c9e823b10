// What the x86 versions of the inner functions share: sums of a vector, a transposed block, and the
// conversion of cache rows, all eight values at a time. For files compiled with AVX2 and F16C.
#ifndef LP_CPU_LANES_X86_H
#define LP_CPU_LANES_X86_H

#include <float.h>
#include <immintrin.h>
#include <string.h>

#include "quant/blocks.h"

// ((v0 + v1) + (v2 + v3)) + ((v4 + v5) + (v6 + v7)), of four vectors at once.
static inline __m128 sum4(__m256 a, __m256 b, __m256 c, __m256 d) {
    __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
}

static inline void transpose_block(const float *in, ptrdiff_t ld_in, float *out, ptrdiff_t ld_out) {
    __m256 a[8], b[8];
    for (int i = 0; i < 4; i++) { // lower halves: rows i and i + 4 side by side
        for (int half = 0; half < 2; half++)
            a[4 * half + i] = _mm256_insertf128_ps(
                _mm256_castps128_ps256(_mm_loadu_ps(in + i * ld_in + 4 * half)),
                _mm_loadu_ps(in + (i + 4) * ld_in + 4 * half), 1);
    }
    for (int half = 0; half < 8; half += 4) { // 4 x 4 in each 128-bit lane
        __m256 ab_low = _mm256_unpacklo_ps(a[half], a[half + 1]),
               ab_high = _mm256_unpackhi_ps(a[half], a[half + 1]);
        __m256 cd_low = _mm256_unpacklo_ps(a[half + 2], a[half + 3]);
        __m256 cd_high = _mm256_unpackhi_ps(a[half + 2], a[half + 3]);
        b[half] = _mm256_shuffle_ps(ab_low, cd_low, 0x44);
        b[half + 1] = _mm256_shuffle_ps(ab_low, cd_low, 0xee);
        b[half + 2] = _mm256_shuffle_ps(ab_high, cd_high, 0x44);
        b[half + 3] = _mm256_shuffle_ps(ab_high, cd_high, 0xee);
    }
    for (int i = 0; i < 8; i++) _mm256_storeu_ps(out + i * ld_out, b[i]);
}

static void load_f16(const void *row, float *out, size_t n) {
    const char *bytes = row;
    size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i,
                         _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(bytes + 2 * i))));
#endif
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(bytes + 2 * i))));
    for (; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, bytes + 2 * i, 2);
        out[i] = _cvtsh_ss(bits);
    }
}
static void load_bf16(const void *row, float *out, size_t n) {
    const char *bytes = row;
    size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) {
        __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(bytes + 2 * i)));
        _mm512_storeu_ps(out + i, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
    }
#endif
    for (; i + 8 <= n; i += 8) {
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(bytes + 2 * i)));
        _mm256_storeu_ps(out + i, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
    }
    for (; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, bytes + 2 * i, 2);
        out[i] = lp_bf16_to_f32(bits);
    }
}
static void store_f16(const float *in, void *row, size_t n) {
    char *bytes = row;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(bytes + 2 * i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) {
        uint16_t bits = (uint16_t)_cvtss_sh(in[i], _MM_FROUND_TO_NEAREST_INT);
        memcpy(bytes + 2 * i, &bits, 2);
    }
}
static void store_bf16(const float *in, void *row, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = lp_f32_to_bf16(in[i]);
        memcpy((char *)row + 2 * i, &bits, 2);
    }
}

static void load_q8_0(const void *row, float *out, size_t n) {
    const struct lp_block_q8_0 *block = row;
    for (size_t i = 0; i < n; i += 32, block++) {
        __m256 d = _mm256_set1_ps(_cvtsh_ss(block->d));
        for (int j = 0; j < 32; j += 8) {
            __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)(block->qs + j));
            __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q));
            _mm256_storeu_ps(out + i + j, _mm256_mul_ps(d, values));
        }
    }
}

// A byte's exponent and mantissa, put into those of a float16, give its value / 256, subnormals included;
// (256 d) (value / 256) is rounded once, as d value is. A cache's d is below 2^120, so 256 d is finite.
static inline __m128i e4m3_to_f16(__m128i byte_in_high_half) {
    const __m128i size = _mm_set1_epi16(0x7fff), nan = _mm_set1_epi16(0x3f80);
    __m128i half =
        _mm_and_si128(_mm_srai_epi16(byte_in_high_half, 1), _mm_set1_epi16((short)0xbfff));
    __m128i is_nan = _mm_cmpeq_epi16(_mm_and_si128(half, size), nan);
    return _mm_or_si128(half, _mm_and_si128(is_nan, _mm_set1_epi16(0x7e00)));
}

static void load_f8(const void *row, float *out, size_t n) {
    const struct lp_block_f8_e4m3 *block = row;
    for (size_t i = 0; i < n; i += 128, block++) {
        __m256 d = _mm256_set1_ps(256.0f * block->d);
        for (int j = 0; j < 128; j += 16) {
            __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(block->q + j));
            __m128i low = e4m3_to_f16(_mm_unpacklo_epi8(_mm_setzero_si128(), q));
            __m128i high = e4m3_to_f16(_mm_unpackhi_epi8(_mm_setzero_si128(), q));
            _mm256_storeu_ps(out + i + j, _mm256_mul_ps(d, _mm256_cvtph_ps(low)));
            _mm256_storeu_ps(out + i + j + 8, _mm256_mul_ps(d, _mm256_cvtph_ps(high)));
        }
    }
}

// The largest magnitude of 32 values; NaN when one of them is not finite.
static inline float magnitude_32(const float *x) {
    __m256 sign = _mm256_set1_ps(-0.0f), limit = _mm256_set1_ps(FLT_MAX);
    __m256 best = _mm256_setzero_ps(), finite = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    for (int j = 0; j < 32; j += 8) {
        __m256 size = _mm256_andnot_ps(sign, _mm256_loadu_ps(x + j));
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(size, limit, _CMP_LE_OQ));
        best = _mm256_max_ps(best, size);
    }
    if (_mm256_movemask_ps(finite) != 0xff) return __builtin_nanf("");
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(best), _mm256_extractf128_ps(best, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

// v rounded to integers, half away from zero: v - trunc(v) is exact.
static inline __m256i round_away_8(__m256 v) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 whole = _mm256_round_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __m256 rest = _mm256_andnot_ps(sign, _mm256_sub_ps(v, whole));
    __m256 one = _mm256_or_ps(_mm256_and_ps(v, sign), _mm256_set1_ps(1.0f));
    __m256 up = _mm256_and_ps(one, _mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ));
    return _mm256_cvttps_epi32(_mm256_add_ps(whole, up));
}

// As round_32 of quant/quantize.c, byte for byte: divided by the unrounded scale; zeros where the
// scale is NaN or has no finite inverse.
static void store_q8_0(const float *in, void *row, size_t n) {
    struct lp_block_q8_0 *block = row;
    for (size_t i = 0; i < n; i += 32, block++) {
        float d = magnitude_32(in + i) / 127.0f, inverse = 1.0f / d;
        block->d = (uint16_t)_cvtss_sh(d, _MM_FROUND_TO_NEAREST_INT);
        if (!(inverse <= FLT_MAX)) { // infinite or NaN
            memset(block->qs, 0, sizeof block->qs);
            continue;
        }
        __m256 factor = _mm256_set1_ps(inverse);
        __m256i q[4];
        for (int j = 0; j < 4; j++)
            q[j] = round_away_8(_mm256_mul_ps(_mm256_loadu_ps(in + i + 8 * j), factor));
        __m256i low = _mm256_packs_epi32(q[0], q[1]), high = _mm256_packs_epi32(q[2], q[3]);
        __m256i fours =
            _mm256_packs_epi16(low, high); // 0 8 16 24 | 4 12 20 28: of four values each
        __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_storeu_si256((__m256i *)(void *)block->qs,
                            _mm256_permutevar8x32_epi32(fours, order));
    }
}

#endif
