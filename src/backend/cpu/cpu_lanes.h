// The inner loops of the cpu backend's attention, indexer and elementwise operations: small float32
// functions, one table per instruction set (cpu_lanes_plain.c, cpu_lanes_avx2.c,
// cpu_lanes_avx512.c, cpu_lanes_neon.c; the vector ones made from cpu_lanes_body.h). The drivers above
// them are portable.
//
// What every table promises, so that B2 of backend.h can hold:
//   L1. An output value depends on its own inputs and on their order alone. How many rows or columns
//       are in the call, and how the call is cut into tiles, does not change its bits.
//   L2. Values behind the given sizes are neither read nor written.
//   L3. NaN and infinity go through.
// Matrices are row-major; ld* is the distance of two rows in floats. No alignment is assumed.
#ifndef LP_CPU_LANES_H
#define LP_CPU_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/quant.h"

struct lp_cpu_lanes {
    const char *name; // "plain", "avx2", "avx512", "neon"

    // c[i * row_step + j * col_step] = sum_k a[i][k] * b[j][k], i < m, j < n.
    void (*mul_nt)(int m, int n, int k, const float *a, ptrdiff_t lda, const float *b,
                   ptrdiff_t ldb, float *c, ptrdiff_t row_step, ptrdiff_t col_step);
    // c[i][j] (= or +=) sum_k a[i][k] * b[k][j], i < m, j < n; k ascending.
    void (*mul_nn)(int m, int n, int k, const float *a, ptrdiff_t lda, const float *b,
                   ptrdiff_t ldb, float *c, ptrdiff_t ldc, bool add);
    // c[j] += sum_t a[t] * b[rows[t]][j], t < k; the same bits as mul_nn for rows 0, 1, 2, ...
    void (*mul_rows)(int n, int k, const float *a, const int32_t *rows, const float *b,
                     ptrdiff_t ldb, float *c);
    // out[c][r] = in[r][c]
    void (*transpose)(int n_rows, int n_cols, const float *in, ptrdiff_t ld_in, float *out,
                      ptrdiff_t ld_out);

    // One step of the online softmax over n > 0 scores: s = exp(scale * s - new maximum), *sum
    // brought to the new maximum and increased. Returns what the accumulator must be multiplied by
    // (1 if the maximum stays). *max starts at -infinity; NaN scores do not move it but make *sum
    // NaN.
    float (*softmax_step)(float *s, int n, float scale, float *max, float *sum);
    // acc[j] += sum_i w[i] * max(0, s[i][j]), i ascending; max(0, NaN) = NaN.
    void (*relu_sum)(int m, int n, const float *s, ptrdiff_t lds, const float *w, float *acc);
    void (*scale)(float *x, size_t n, float factor);
    void (*silu_mul)(const float *gate, const float *up, float *y, size_t n); // y may be gate

    // n values of a cache row of F32, F16, BF16, Q8_0 or F8_E4M3 (whole blocks) to float32, and back as the
    // type's quantiser does (quant/quantize.c): the same values and the same bytes, but for the
    // payload of a NaN.
    void (*load)(lp_type type, const void *row, float *out, size_t n);
    void (*store)(lp_type type, const float *in, void *row, size_t n);
};

extern const struct lp_cpu_lanes lp_cpu_lanes_plain;
#if defined(__x86_64__)
extern const struct lp_cpu_lanes lp_cpu_lanes_avx2;   // needs AVX2, FMA, F16C
extern const struct lp_cpu_lanes lp_cpu_lanes_avx512; // needs AVX-512 F, BW, DQ, VL as well
#elif defined(__aarch64__)
extern const struct lp_cpu_lanes lp_cpu_lanes_neon;
#endif

#endif
