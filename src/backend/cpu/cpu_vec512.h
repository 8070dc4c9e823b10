// What several files for AVX-512 do with vectors of 16 floats.
#ifndef LP_BACKEND_CPU_CPU_VEC512_H
#define LP_BACKEND_CPU_CPU_VEC512_H

#include <immintrin.h>

// (l0 + l2) + (l1 + l3) of each 128 bits, then the quarters; the same bits for one and for four.
static inline __m128 lp_fold_512(__m512 v) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
// a0 + a2, b0 + b2, a1 + a3, b1 + b3 of each 128 bits
static inline __m512 lp_add_pairs_512(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}
// out[i] = sum of the lanes of v[i], i < 4
static inline void lp_sum4_512(const __m512 *v, float *out) {
    __m512d ab = _mm512_castps_pd(lp_add_pairs_512(v[0], v[1])),
            cd = _mm512_castps_pd(lp_add_pairs_512(v[2], v[3]));
    __m512 sums = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                                _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
    _mm_storeu_ps(out, lp_fold_512(sums));
}
static inline float lp_sum_512(__m512 v) {
    const __m512 four[4] = {v, v, v, v};
    float out[4];
    lp_sum4_512(four, out);
    return out[0];
}

#endif
