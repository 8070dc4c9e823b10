// Matrix products of floats by way of 16-bit whole numbers, twice as fast as in float32, for
// expanded attention (cpu_attn_mla_expanded.c).
//
// Rows of the left matrix and columns of the right one are each rounded with a scale of their own,
// x = scale * n, so that in every LP_CPU_FIXED16_RUN values the sum of n^2 stays within 32767^2: by
// Cauchy and Schwarz no sum of products leaves 32 bits. A value is off by half a step at most: about
// sqrt(128 / 12) / 32767 = 1e-4 of the row's root mean square, as much as float16 rounds it.
//
//     c[i][j] (= or +=) sum over runs, in order, of
//                       (sum of n m in the run, exact) * (scale[i] * scale[j])
#ifndef LP_CPU_FIXED16_H
#define LP_CPU_FIXED16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LP_CPU_FIXED16_RUN 128
#define LP_CPU_FIXED16_COLUMNS 64 // n of a right matrix is a multiple

struct lp_cpu_fixed16 {
    const char *name; // "vnni_mla_expanded"
    double rounding;  // of expanded attention's results, relative to the largest of a row
    int multiple;     // of which every k is one
    int most;         // k
    // What a table writes to out is for its own multiply; the numbers are the same for all.
    // out: [m, ldo]; scale: [m], NaN for a row that is not finite or so large that squares
    // leave float32, 0 for one so small that they do. False if there is such a row; all zeros are none.
    bool (*round_rows)(const float *x, ptrdiff_t ldx, int m, int k, int16_t *out, ptrdiff_t ldo,
                       float *scale);
    // x: [k, n]; out: [k / 2, ldo] pairs of one column (row 2i low, 2i + 1 high); scale: [n]. As above.
    bool (*round_columns)(const float *x, ptrdiff_t ldx, int k, int n, int32_t *out, ptrdiff_t ldo,
                          float *scale);
    // c[m, n] from a [m, k] and b [k, n].
    void (*multiply)(int m, int n, int k, const int16_t *a, ptrdiff_t lda, const float *a_scale,
                     const int32_t *b, ptrdiff_t ldb, const float *b_scale, float *c, ptrdiff_t ldc,
                     bool add);
};

#if defined(__x86_64__)
extern const struct lp_cpu_fixed16 lp_cpu_fixed16_vnni; // needs AVX-512 F, BW, DQ, VL and VNNI
extern const struct lp_cpu_fixed16 lp_cpu_fixed16_amx;  // needs AMX besides; the same bits
#endif

#endif
