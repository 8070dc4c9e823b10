// Products of quantised weights with many activation rows while results may depend on the number of rows
// (lp_backend.fix_results): bfloat16 times bfloat16, sums in float32, by the tiles of AMX. The 8-bit
// kernels must take the sums of every group of 32 values out of the tiles, to multiply them by the
// group's scales; here weights are dequantised first, a piece of a block at a time, and the sums stay in
// the tiles.
//
// Rounding: an activation to nearest even, a weight (scale q - min, in float32) to nearest, each to 8 bits,
// so to within 2^-9 of itself. Numbers below 2^-126 count as 0.
//
// Everything lies as tiles of 1 KB:
//     activations  [rows / 16][n_in / 32] tiles [16 rows][32 values]
//     weights      of a block of 16 rows: [n / 32] tiles [16 pairs of values][16 rows][2]
//     sums         [rows / 16] tiles [16 activation rows][16 weight rows], as of lp_cpu_mat_block
// n_in is a multiple of 32, as it is for every type with blocks. The last tiles of activations may hold
// anything behind the last row: no sum is of two rows.
#ifndef LP_BACKEND_CPU_CPU_WIDE_H
#define LP_BACKEND_CPU_CPU_WIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/cpu_matmul.h"

#define LP_WIDE_SIDE 16       // rows of a tile
#define LP_WIDE_RUN 32        // values of a row of it
#define LP_WIDE_TILE 512      // values of a tile
#define LP_WIDE_PIECE 512     // values of a weight row that are dequantised at a time
#define LP_WIDE_BLOCKS 2      // blocks that meet the activations together
#define LP_WIDE_RUN_BLOCKS 8  // most blocks of a run
#define LP_WIDE_MIN_ROWS 48   // fewer are faster with the 8-bit kernels
#define LP_WIDE_MIN_EXPERT 24 // the same of an expert's rows, on average

// The functions that need the tiles.
struct lp_cpu_wide {
    const char *name;
    // n_in values as row t of activations.
    void (*put_row)(const float *x, int64_t n_in, int64_t t, uint16_t *tiles);
    // Values first ... first + 15 of rows 0 ... n_rows - 1 of activations, from x[n_rows][16].
    void (*put_columns)(const float *x, int64_t n_rows, int64_t first, int64_t n_in,
                        uint16_t *tiles);
    // Sums of n_tiles tiles of activations, x_step values apart, with n values of each of n_blocks blocks;
    // added to out if `add`.
    void (*multiply)(const uint16_t *x, int64_t x_step, int64_t n_tiles,
                     const uint16_t (*w)[LP_WIDE_PIECE * LP_MAT_ROWS], int n_blocks, int64_t n,
                     bool add, float *const *out);
};

extern const struct lp_cpu_wide lp_cpu_wide_amx; // cpu_wide_amx.c

static inline int64_t lp_cpu_wide_tiles(int64_t n_rows) {
    return (n_rows + LP_WIDE_SIDE - 1) / LP_WIDE_SIDE;
}
// Values that n_rows rows take as tiles
static inline int64_t lp_cpu_wide_values(int64_t n_rows, int64_t n_in) {
    return lp_cpu_wide_tiles(n_rows) * LP_WIDE_SIDE * n_in;
}

// Sets dev->wide, where the features allow it and it agrees with the definition.
void lp_cpu_wide_choose(struct lp_cpu_device *dev);
bool lp_cpu_wide_selfcheck(const struct lp_cpu_wide *wide);
// Whether n_rows rows of n_in values, n_sets times, are for these products with weights of this kernel.
bool lp_cpu_wide_takes(const struct lp_cpu_device *dev, const struct lp_cpu_mat_kernel *kernel,
                       int64_t n_rows, int64_t n_in, int64_t n_sets);

// Blocks of two matrices of the same n_in in turn, or of one, and where their products go.
struct lp_cpu_wide_block {
    const struct lp_cpu_mat *mat;
    int64_t row; // its first
    float *out;  // [16 lp_cpu_wide_tiles(n_x)][LP_MAT_ROWS]
};

// The blocks of rows row ... end - 1 of a matrix, at most `most`; their products lie one after the other.
// Returns their number.
static inline int lp_cpu_wide_blocks(const struct lp_cpu_mat *mat, int64_t row, int64_t end,
                                     int most, float *out, struct lp_cpu_wide_block *blocks) {
    int n = 0;
    for (; n < most && row < end; n++, row += LP_MAT_ROWS, out += LP_MAT_MAX_X * LP_MAT_ROWS)
        blocks[n] = (struct lp_cpu_wide_block){mat, row, out};
    return n;
}

// How many blocks to give to a run: where activations are more than the nearer caches hold, several take
// them a part of n_in at a time.
int lp_cpu_wide_run_blocks(int64_t n_in, int64_t n_x);
// The products of a run, times the matrices' factors; n_x <= LP_MAT_MAX_X.
void lp_cpu_wide_run(const struct lp_cpu_wide *wide, const struct lp_cpu_wide_block *blocks,
                     int n_blocks, const uint16_t *x, int64_t n_x);

// lp_cpu_experts for a slice of rows that lp_cpu_wide_takes_experts (cpu_wide_experts.c).
bool lp_cpu_wide_takes_experts(const struct lp_cpu_device *dev, const struct lp_op_experts *op);
void lp_cpu_wide_experts(struct lp_cpu_device *dev, const struct lp_op_experts *op);

#endif
