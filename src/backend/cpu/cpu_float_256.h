// The float kernels with vectors of eight, for AVX2 and NEON: F32, F16 and BF16 weights with the
// activations as they are, and any other type through its dequantiser, a chunk at a time. Per pair
// one accumulator of 8 lanes per chunk: lane l = sum of w[8i + l] x[8i + l] by fused multiply-add, i
// ascending; the tail lanes add 0 * 0.
#ifndef LP_BACKEND_CPU_CPU_FLOAT_256_H
#define LP_BACKEND_CPU_CPU_FLOAT_256_H

#include <string.h>

#include "backend/cpu/cpu_matmul.h"
#include "backend/cpu/cpu_vec256.h"

#define LP_INLINE static inline __attribute__((always_inline))

#if defined(__aarch64__)
#define LP_CPU_TILE_256 lp_cpu_tile_neon
#else
#define LP_CPU_TILE_256 lp_cpu_tile_avx2
#endif
// lp_cpu_mat_kernel.tile of the float kernels (cpu_matmul_avx2.c, cpu_matmul_neon.c)
void LP_CPU_TILE_256(const void *panel, int n_rows, const void *const *x, int n_x, int64_t first,
                     int64_t n, float *out);

// The sum of the lanes, in the order of all float kernels.
LP_INLINE float hsum8(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// The first n < 8 floats, zeros behind; reads nothing past them.
LP_INLINE __m256 load_part(const float *p, int64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
}

enum source { SOURCE_F32, SOURCE_F16, SOURCE_BF16 };

LP_INLINE size_t value_bytes(enum source s) {
    return s == SOURCE_F32 ? 4 : 2;
}

LP_INLINE __m256 load_w(enum source s, const uint8_t *p) {
    if (s == SOURCE_F32) return _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)p));
    __m128i h = _mm_loadu_si128((const __m128i *)p);
    if (s == SOURCE_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

LP_INLINE __m256 load_w_part(enum source s, const uint8_t *p, int64_t n) {
    uint8_t whole[32] = {0};
    memcpy(whole, p, (size_t)n * value_bytes(s));
    return load_w(s, whole);
}

// ---- rows as they are stored

LP_INLINE void chunk_rows(enum source s, const uint8_t *w, size_t row_bytes, int nr, const float *x,
                          int64_t n, __m256 *acc) {
    for (int r = 0; r < nr; r++) acc[r] = _mm256_setzero_ps();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 xv = _mm256_loadu_ps(x + i);
        for (int r = 0; r < nr; r++) {
            const uint8_t *p = w + (size_t)r * row_bytes + (size_t)i * value_bytes(s);
            acc[r] = _mm256_fmadd_ps(load_w(s, p), xv, acc[r]);
        }
        if (i % 32 == 0)
            for (int r = 0; r < nr; r++) {
                const char *p =
                    (const char *)w + (size_t)r * row_bytes + (size_t)i * value_bytes(s);
                _mm_prefetch(p + 1024, _MM_HINT_T0);
                if (s == SOURCE_F32) _mm_prefetch(p + 1088, _MM_HINT_T0);
            }
    }
    if (i < n) {
        __m256 xv = load_part(x + i, n - i);
        for (int r = 0; r < nr; r++) {
            const uint8_t *p = w + (size_t)r * row_bytes + (size_t)i * value_bytes(s);
            acc[r] = _mm256_fmadd_ps(load_w_part(s, p, n - i), xv, acc[r]);
        }
    }
}

LP_INLINE void rows(enum source s, const uint8_t *w, size_t row_bytes, int nr, const float *x,
                    int64_t n_in, float *out) {
    for (int64_t first = 0; first < n_in; first += LP_MAT_CHUNK_F32) {
        int64_t n = n_in - first < LP_MAT_CHUNK_F32 ? n_in - first : LP_MAT_CHUNK_F32;
        __m256 acc[4];
        chunk_rows(s, w + (size_t)first * value_bytes(s), row_bytes, nr, x + first, n, acc);
        for (int r = 0; r < nr; r++) out[r] = first == 0 ? hsum8(acc[r]) : out[r] + hsum8(acc[r]);
    }
}

LP_INLINE void dot_rows(enum source s, const uint8_t *w, size_t row_bytes, int64_t n_rows,
                        const float *x, int64_t n_in, float *out) {
    int64_t r = 0;
    for (; r + 4 <= n_rows; r += 4)
        rows(s, w + (size_t)r * row_bytes, row_bytes, 4, x, n_in, out + r);
    for (; r < n_rows; r++) rows(s, w + (size_t)r * row_bytes, row_bytes, 1, x, n_in, out + r);
}

// ---- panels

LP_INLINE void unpack_row(enum source s, const uint8_t *row, int64_t first, int64_t n, float *to) {
    const uint8_t *p = row + (size_t)first * value_bytes(s);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, load_w(s, p + (size_t)i * value_bytes(s)));
    if (i < n) _mm256_storeu_ps(to + i, load_w_part(s, p + (size_t)i * value_bytes(s), n - i));
}

LP_INLINE void tile_pairs(const float *w, int nr, const float *const *x, int nx, int64_t n,
                          bool add, float *out) {
    __m256 acc[2][LP_MAT_TILE];
    for (int r = 0; r < nr; r++)
        for (int t = 0; t < nx; t++) acc[r][t] = _mm256_setzero_ps();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int r = 0; r < nr; r++) {
            __m256 wv = _mm256_loadu_ps(w + r * LP_MAT_PANEL_F32 + i);
            for (int t = 0; t < nx; t++)
                acc[r][t] = _mm256_fmadd_ps(wv, _mm256_loadu_ps(x[t] + i), acc[r][t]);
        }
    if (i < n)
        for (int t = 0; t < nx; t++) {
            __m256 xv = load_part(x[t] + i, n - i);
            for (int r = 0; r < nr; r++)
                acc[r][t] =
                    _mm256_fmadd_ps(_mm256_loadu_ps(w + r * LP_MAT_PANEL_F32 + i), xv, acc[r][t]);
        }
    for (int r = 0; r < nr; r++)
        for (int t = 0; t < nx; t++) {
            float sum = hsum8(acc[r][t]), *y = out + t * LP_MAT_ROWS + r;
            *y = add ? *y + sum : sum;
        }
}

LP_INLINE void tile_256(const void *panel, int n_rows, const void *const *x, int n_x, int64_t first,
                        int64_t n, float *out) {
    const float *xs[LP_MAT_TILE];
    for (int t = 0; t < n_x; t++) xs[t] = (const float *)x[t] + first;
    for (int r = 0; r < n_rows; r += 2) {
        const float *w = (const float *)panel + r * LP_MAT_PANEL_F32;
        bool pair = r + 1 < n_rows, add = first != 0;
        if (pair && n_x == 4)
            tile_pairs(w, 2, xs, 4, n, add, out + r);
        else
            for (int k = 0; k < 1 + pair; k++)
                for (int t = 0; t < n_x; t++)
                    tile_pairs(w + k * LP_MAT_PANEL_F32, 1, xs + t, 1, n, add,
                               out + t * LP_MAT_ROWS + r + k);
    }
}

LP_INLINE void axpy_256(const float *panel, int n_d, const float *x, float *y, int64_t n,
                        bool first) {
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) {
        __m256 sum = _mm256_mul_ps(_mm256_set1_ps(x[0]), _mm256_loadu_ps(panel + j));
        for (int d = 1; d < n_d; d++)
            sum = _mm256_fmadd_ps(_mm256_set1_ps(x[d]),
                                  _mm256_loadu_ps(panel + d * LP_MAT_PANEL_F32 + j), sum);
        _mm256_storeu_ps(y + j, first ? sum : _mm256_add_ps(_mm256_loadu_ps(y + j), sum));
    }
    for (; j < n; j++) {
        float sum = x[0] * panel[j];
        for (int d = 1; d < n_d; d++)
            sum = __builtin_fmaf(x[d], panel[d * LP_MAT_PANEL_F32 + j], sum);
        y[j] = first ? sum : y[j] + sum;
    }
}

// ---- the kernels

// Makes lp_cpu_mat_<isa>_<stem>. The file defines lp_cpu_tile_<isa> and lp_cpu_axpy_<isa>.
#define LP_FLOAT_KERNEL(isa, stem, source)                                                         \
    static void stem##_dot(const struct lp_type_info *type, const uint8_t *w, size_t row_bytes,    \
                           int64_t n_rows, const void *x, int64_t n_in, float *out) {              \
        (void)type;                                                                                \
        dot_rows(source, w, row_bytes, n_rows, x, n_in, out);                                      \
    }                                                                                              \
    static void stem##_unpack(const struct lp_type_info *type, const uint8_t *row, int64_t first,  \
                              int64_t n, void *panel_row) {                                        \
        (void)type;                                                                                \
        unpack_row(source, row, first, n, panel_row);                                              \
    }                                                                                              \
    const struct lp_cpu_mat_kernel lp_cpu_mat_##isa##_##stem = {                                   \
        .name = #isa "_" #stem,                                                                    \
        .act = LP_CPU_ACT_F32,                                                                     \
        .dot = stem##_dot,                                                                         \
        .unpack = stem##_unpack,                                                                   \
        .tile = lp_cpu_tile_##isa,                                                                 \
        .axpy = lp_cpu_axpy_##isa,                                                                 \
    };

LP_INLINE void dequant_unpack(const struct lp_type_info *type, const uint8_t *row, int64_t first,
                              int64_t n, void *panel_row) {
    float *to = panel_row;
    type->dequant(row + (size_t)(first / type->block_values) * type->block_bytes, to, (size_t)n);
    for (int64_t i = n; i % 8 != 0; i++) to[i] = 0.0f;
}

LP_INLINE void dequant_dot(const struct lp_type_info *type, const uint8_t *w, size_t row_bytes,
                           int64_t n_rows, const void *x_, int64_t n_in, float *out) {
    const float *x = x_;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t first = 0; first < n_in; first += LP_MAT_CHUNK_F32) {
            int64_t n = n_in - first < LP_MAT_CHUNK_F32 ? n_in - first : LP_MAT_CHUNK_F32;
            float values[LP_MAT_CHUNK_F32];
            dequant_unpack(type, w + (size_t)r * row_bytes, first, n, values);
            __m256 acc;
            chunk_rows(SOURCE_F32, (const uint8_t *)values, 0, 1, x + first, n, &acc);
            out[r] = first == 0 ? hsum8(acc) : out[r] + hsum8(acc);
        }
}

// Makes lp_cpu_mat_<isa>_dequant.
#define LP_DEQUANT_KERNEL(isa)                                                                     \
    static void dequant_dot_##isa(const struct lp_type_info *type, const uint8_t *w,               \
                                  size_t row_bytes, int64_t n_rows, const void *x, int64_t n_in,   \
                                  float *out) {                                                    \
        dequant_dot(type, w, row_bytes, n_rows, x, n_in, out);                                     \
    }                                                                                              \
    static void dequant_unpack_##isa(const struct lp_type_info *type, const uint8_t *row,          \
                                     int64_t first, int64_t n, void *panel_row) {                  \
        dequant_unpack(type, row, first, n, panel_row);                                            \
    }                                                                                              \
    const struct lp_cpu_mat_kernel lp_cpu_mat_##isa##_dequant = {                                  \
        .name = #isa "_dequant",                                                                   \
        .act = LP_CPU_ACT_F32,                                                                     \
        .dot = dequant_dot_##isa,                                                                  \
        .unpack = dequant_unpack_##isa,                                                            \
        .tile = lp_cpu_tile_##isa,                                                                 \
        .axpy = lp_cpu_axpy_##isa,                                                                 \
    };

#endif
