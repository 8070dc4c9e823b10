// The kernel of F8_E4M3 with vectors of eight, for AVX2 and NEON: the weights of FP8 checkpoints that
// are run in place, blocks of 128 bytes under one float32 scale, with the activations as they are.
// One accumulator of 8 lanes as in cpu_float_256.h.
//
// A byte's exponent and mantissa, put into those of a float16, give its value / 256, subnormals
// included. w = (256 d) (value / 256) is rounded once, as the type's dequantiser does (the same
// bits for every |d| < 2^120), so dot and tile see the same weights.
#ifndef LP_BACKEND_CPU_CPU_FLOAT_F8_H
#define LP_BACKEND_CPU_CPU_FLOAT_F8_H

#include "backend/cpu/cpu_float_256.h"
#include "quant/blocks.h"

#define BLOCK_VALUES 128 // of LP_TYPE_F8_E4M3; chunks are multiples of it
#define STEP 32          // bytes that are decoded together
typedef struct lp_block_f8_e4m3 block_f8;

// Float16 bits of value / 256: the byte in the high half of a word, its exponent and mantissa one
// bit further down. (The shift copies the sign; its copy is taken out.)
LP_INLINE __m256i to_half(__m256i byte_in_high_half) {
    return _mm256_and_si256(_mm256_srai_epi16(byte_in_high_half, 1),
                            _mm256_set1_epi16((short)0xbfff));
}

LP_INLINE __m256 scaled(__m128i half, __m256 scale) {
    return _mm256_mul_ps(scale, _mm256_cvtph_ps(half));
}

// out[k]: values 8k ... 8k + 7 of 32 bytes, times the block's scale
LP_INLINE void decode(__m256i q, __m256 scale, __m256 out[4]) {
    __m256i even = to_half(_mm256_unpacklo_epi8(_mm256_setzero_si256(), q));
    __m256i odd = to_half(_mm256_unpackhi_epi8(_mm256_setzero_si256(), q));
    out[0] = scaled(_mm256_castsi256_si128(even), scale);
    out[1] = scaled(_mm256_castsi256_si128(odd), scale);
    out[2] = scaled(_mm256_extracti128_si256(even, 1), scale);
    out[3] = scaled(_mm256_extracti128_si256(odd, 1), scale);
}

LP_INLINE __m256i load_q(const block_f8 *block, int at) {
    return _mm256_loadu_si256((const __m256i *)(block->q + at));
}

// 0x7f and 0xff are NaN.
LP_INLINE bool has_nan(const block_f8 *block) {
    const __m256i size = _mm256_set1_epi8(0x7f);
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < BLOCK_VALUES; i += STEP)
        largest = _mm256_max_epu8(largest, _mm256_and_si256(load_q(block, i), size));
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(largest, size)) != 0;
}

// acc[r] += the products of one block of nr rows. A NaN among them makes the sum NaN, whatever x
// is: so does a NaN as scale.
LP_INLINE void add_block(const uint8_t *w, size_t row_bytes, int nr, const float *x, __m256 *acc) {
    __m256 scale[4];
    for (int r = 0; r < nr; r++) {
        const block_f8 *block = (const block_f8 *)(w + (size_t)r * row_bytes);
        scale[r] = _mm256_set1_ps(has_nan(block) ? __builtin_nanf("") : 256.0f * block->d);
        _mm_prefetch((const char *)block + 1056, _MM_HINT_T0);
        _mm_prefetch((const char *)block + 1120, _MM_HINT_T0);
    }
    for (int i = 0; i < BLOCK_VALUES; i += STEP)
        for (int r = 0; r < nr; r++) {
            const block_f8 *block = (const block_f8 *)(w + (size_t)r * row_bytes);
            __m256 value[4];
            decode(load_q(block, i), scale[r], value);
            for (int k = 0; k < 4; k++)
                acc[r] = _mm256_fmadd_ps(value[k], _mm256_loadu_ps(x + i + 8 * k), acc[r]);
        }
}

LP_INLINE void rows_f8(const uint8_t *w, size_t row_bytes, int nr, const float *x, int64_t n_in,
                       float *out) {
    for (int64_t first = 0; first < n_in; first += LP_MAT_CHUNK_F32) {
        int64_t end = first + LP_MAT_CHUNK_F32 < n_in ? first + LP_MAT_CHUNK_F32 : n_in;
        __m256 acc[4];
        for (int r = 0; r < nr; r++) acc[r] = _mm256_setzero_ps();
        for (int64_t i = first; i < end; i += BLOCK_VALUES)
            add_block(w + (size_t)(i / BLOCK_VALUES) * sizeof(block_f8), row_bytes, nr, x + i, acc);
        for (int r = 0; r < nr; r++) out[r] = first == 0 ? hsum8(acc[r]) : out[r] + hsum8(acc[r]);
    }
}

LP_INLINE void f8_dot(const struct lp_type_info *type, const uint8_t *w, size_t row_bytes,
                      int64_t n_rows, const void *x, int64_t n_in, float *out) {
    int64_t r = 0;
    (void)type;
    for (; r + 4 <= n_rows; r += 4)
        rows_f8(w + (size_t)r * row_bytes, row_bytes, 4, x, n_in, out + r);
    for (; r < n_rows; r++) rows_f8(w + (size_t)r * row_bytes, row_bytes, 1, x, n_in, out + r);
}

LP_INLINE void f8_unpack(const struct lp_type_info *type, const uint8_t *row, int64_t first,
                         int64_t n, void *panel_row) {
    const block_f8 *block = (const block_f8 *)row + first / BLOCK_VALUES;
    float *to = panel_row;
    (void)type;
    for (int64_t i = 0; i < n; i += BLOCK_VALUES, block++) {
        const __m256 scale = _mm256_set1_ps(256.0f * block->d);
        for (int j = 0; j < BLOCK_VALUES; j += STEP) {
            __m256 value[4];
            decode(load_q(block, j), scale, value);
            for (int k = 0; k < 4; k++) _mm256_storeu_ps(to + i + j + 8 * k, value[k]);
        }
        for (int j = 0; has_nan(block) && j < BLOCK_VALUES; j++)
            if ((block->q[j] & 0x7f) == 0x7f) to[i + j] = __builtin_nanf("");
    }
}

// Makes lp_cpu_mat_<isa>_f8_e4m3.
#define LP_F8_KERNEL(isa)                                                                          \
    static void f8_dot_##isa(const struct lp_type_info *type, const uint8_t *w, size_t row_bytes,  \
                             int64_t n_rows, const void *x, int64_t n_in, float *out) {            \
        f8_dot(type, w, row_bytes, n_rows, x, n_in, out);                                          \
    }                                                                                              \
    static void f8_unpack_##isa(const struct lp_type_info *type, const uint8_t *row,               \
                                int64_t first, int64_t n, void *panel_row) {                       \
        f8_unpack(type, row, first, n, panel_row);                                                 \
    }                                                                                              \
    const struct lp_cpu_mat_kernel lp_cpu_mat_##isa##_f8_e4m3 = {                                  \
        .name = #isa "_f8_e4m3",                                                                   \
        .act = LP_CPU_ACT_F32,                                                                     \
        .dot = f8_dot_##isa,                                                                       \
        .unpack = f8_unpack_##isa,                                                                 \
        .tile = lp_cpu_tile_##isa,                                                                 \
        .axpy = lp_cpu_axpy_##isa,                                                                 \
    };

#endif
