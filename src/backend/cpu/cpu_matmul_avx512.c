// The float kernels compiled for AVX-512. The tile keeps the order of the sums of cpu_float_256.h, 8
// lanes for each pair, and so its bits: a vector of 16 holds the lanes of two weight rows.
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "backend/cpu/cpu_float_f8.h"

#define MAX_PAIRS 4 // of weight rows in a tile: with 4 activation rows, 16 sums in 32 registers

// 8 values of two panel rows
LP_INLINE __m512 load_two(const float *w) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(w)),
                              _mm256_loadu_ps(w + LP_MAT_PANEL_F32), 1);
}

LP_INLINE void add_products(__m512 acc[MAX_PAIRS][LP_MAT_TILE], const float *w, int n_pairs,
                            const __m256 *x, int nx) {
    __m512 both[LP_MAT_TILE];
    for (int t = 0; t < nx; t++) both[t] = _mm512_broadcast_f32x8(x[t]);
    for (int p = 0; p < n_pairs; p++) {
        __m512 wv = load_two(w + 2 * p * LP_MAT_PANEL_F32);
        for (int t = 0; t < nx; t++) acc[p][t] = _mm512_fmadd_ps(wv, both[t], acc[p][t]);
    }
}

LP_INLINE void put(float *y, float sum, bool add) {
    *y = add ? *y + sum : sum;
}

LP_INLINE void tile_of_pairs(const float *w, int n_pairs, const float *const *x, int nx, int64_t n,
                             bool add, float *out) {
    __m512 acc[MAX_PAIRS][LP_MAT_TILE];
    for (int p = 0; p < n_pairs; p++)
        for (int t = 0; t < nx; t++) acc[p][t] = _mm512_setzero_ps();
    __m256 xv[LP_MAT_TILE];
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int t = 0; t < nx; t++) xv[t] = _mm256_loadu_ps(x[t] + i);
        add_products(acc, w + i, n_pairs, xv, nx);
    }
    if (i < n) {
        for (int t = 0; t < nx; t++) xv[t] = load_part(x[t] + i, n - i);
        add_products(acc, w + i, n_pairs, xv, nx);
    }
    for (int p = 0; p < n_pairs; p++)
        for (int t = 0; t < nx; t++) {
            float *y = out + t * LP_MAT_ROWS + 2 * p;
            put(y, hsum8(_mm512_castps512_ps256(acc[p][t])), add);
            put(y + 1, hsum8(_mm512_extractf32x8_ps(acc[p][t], 1)), add);
        }
}

static void lp_cpu_tile_avx512(const void *panel, int n_rows, const void *const *x, int n_x,
                               int64_t first, int64_t n, float *out) {
    const float *xs[LP_MAT_TILE], *w = panel;
    const bool add = first != 0;
    for (int t = 0; t < n_x; t++) xs[t] = (const float *)x[t] + first;
    int r = 0;
    for (; r + 2 * MAX_PAIRS <= n_rows; r += 2 * MAX_PAIRS) {
        const float *rows = w + r * LP_MAT_PANEL_F32;
        if (n_x == LP_MAT_TILE)
            tile_of_pairs(rows, MAX_PAIRS, xs, LP_MAT_TILE, n, add, out + r);
        else
            for (int t = 0; t < n_x; t++)
                tile_of_pairs(rows, MAX_PAIRS, xs + t, 1, n, add, out + t * LP_MAT_ROWS + r);
    }
    if (r < n_rows)
        tile_256(w + r * LP_MAT_PANEL_F32, n_rows - r, x, n_x, first, n, out + r);
}

static void lp_cpu_axpy_avx512(const float *panel, int n_d, const float *x, float *y, int64_t n,
                               bool first) {
    int64_t j = 0;
    for (; j + 16 <= n; j += 16) {
        __m512 sum = _mm512_mul_ps(_mm512_set1_ps(x[0]), _mm512_loadu_ps(panel + j));
        for (int d = 1; d < n_d; d++)
            sum = _mm512_fmadd_ps(_mm512_set1_ps(x[d]),
                                  _mm512_loadu_ps(panel + d * LP_MAT_PANEL_F32 + j), sum);
        _mm512_storeu_ps(y + j, first ? sum : _mm512_add_ps(_mm512_loadu_ps(y + j), sum));
    }
    if (j < n) axpy_256(panel + j, n_d, x, y + j, n - j, first);
}

LP_FLOAT_KERNEL(avx512, f32, SOURCE_F32)
LP_FLOAT_KERNEL(avx512, f16, SOURCE_F16)
LP_FLOAT_KERNEL(avx512, bf16, SOURCE_BF16)
LP_F8_KERNEL(avx512)
LP_DEQUANT_KERNEL(avx512)

#endif
