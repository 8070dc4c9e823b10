// What the float kernels of cpu_matmul_avx2.c and cpu_matmul_avx2_f8.c share: both sum a pair's
// chunk in one accumulator of 8 lanes, lane l = sum of w[8i + l] x[8i + l] by fused multiply-add, i
// ascending.
#ifndef LP_BACKEND_CPU_CPU_FLOAT_AVX2_H
#define LP_BACKEND_CPU_CPU_FLOAT_AVX2_H

#include <immintrin.h>

#include "backend/cpu/cpu_matmul.h"

#define LP_INLINE static inline __attribute__((always_inline))

// The sum of the lanes, in the order of all float kernels.
LP_INLINE float hsum8(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// lp_cpu_mat_kernel.tile of the float kernels (cpu_matmul_avx2.c)
void lp_cpu_tile_avx2(const void *panel, int n_rows, const void *const *x, int n_x, int64_t first,
                      int64_t n, float *out);

#endif
