// What the x86 versions of the inner functions share: sums of a vector, a transposed block, and the
// conversion of cache rows, all eight values at a time. For files compiled with AVX2 and F16C.
#ifndef LP_CPU_LANES_X86_H
#define LP_CPU_LANES_X86_H

#include <immintrin.h>
#include <string.h>

#include "quant/quant.h"

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

#endif
