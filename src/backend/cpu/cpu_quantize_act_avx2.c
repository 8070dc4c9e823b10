// Activations to 8 bits for AVX2 (cpu_quantize_act.h).
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#include <string.h>

#include "backend/cpu/cpu_quantize_act.h"

static inline int32_t max_of_lanes(__m256i v) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtsi128_si32(m);
}

static void quantize_group(const float *x, struct lp_act_quad *out, int g) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256 v[4];
    __m256i largest = _mm256_setzero_si256();
    for (int k = 0; k < 4; k++) {
        v[k] = _mm256_loadu_ps(x + 8 * k);
        // As integers the bits order like the magnitudes, with NaN above infinity: none is lost.
        largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(v[k]), magnitude));
    }
    int32_t bits = max_of_lanes(largest);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    if (is_unusual(amax)) {
        quantize_unusual(x, amax, out, g);
        return;
    }
    __m256 inverse = _mm256_set1_ps(127.0f / amax);
    __m256i q[4];
    for (int k = 0; k < 4; k++) q[k] = _mm256_cvtps_epi32(_mm256_mul_ps(v[k], inverse));
    // Packing works within 128-bit lanes; the permutation puts the dwords back in order.
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_store_si256((__m256i *)(out->q + 32 * g), bytes);
    // Sums of 8 of (q + 128): four 64-bit lanes, two a half.
    __m256i sums =
        _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    int low = (int)(_mm256_extract_epi64(sums, 0) + _mm256_extract_epi64(sums, 1)) - 16 * 128;
    int high = (int)(_mm256_extract_epi64(sums, 2) + _mm256_extract_epi64(sums, 3)) - 16 * 128;
    set_scale(out, g, amax / 127.0f, low, high);
}

void lp_cpu_quantize_act_avx2(const float *x, int64_t n, struct lp_act_quad *out) {
    for (; n >= LP_QUAD_VALUES; n -= LP_QUAD_VALUES, x += LP_QUAD_VALUES, out++)
        for (int g = 0; g < 4; g++) quantize_group(x + 32 * g, out, g);
    if (n <= 0) return;
    float whole[LP_QUAD_VALUES] = {0};
    memcpy(whole, x, (size_t)n * sizeof *x);
    for (int g = 0; g < 4; g++) quantize_group(whole + 32 * g, out, g);
}

#endif
