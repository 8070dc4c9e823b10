// Products of many activation rows (cpu_wide.h): who takes them, and a pair of blocks with all rows.
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_wide.h"
#include "base/log.h"
#include "base/rng.h"

// ---- choice

#define CHECK_ROWS 37   // two tiles, and a part of one
#define CHECK_VALUES 96 // three of a piece

// bfloat16 as float
static float widened(uint16_t bits) {
    const uint32_t u = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint16_t cut_off(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)(u >> 16);
}

bool lp_cpu_wide_selfcheck(const struct lp_cpu_wide *wide) {
    _Alignas(64) uint16_t w[LP_WIDE_BLOCKS][LP_WIDE_PIECE * LP_MAT_ROWS];
    _Alignas(64) uint16_t tiles[3 * LP_WIDE_SIDE * CHECK_VALUES] = {0};
    float x[CHECK_ROWS][CHECK_VALUES], sums[LP_WIDE_BLOCKS][3 * LP_WIDE_SIDE * LP_MAT_ROWS];
    float *out[] = {sums[0], sums[1]};
    struct lp_rng rng;
    lp_rng_init(&rng, 21);
    for (int b = 0; b < LP_WIDE_BLOCKS; b++)
        for (int i = 0; i < CHECK_VALUES * LP_MAT_ROWS; i++) w[b][i] = cut_off(lp_rng_normal(&rng));
    for (int t = 0; t < CHECK_ROWS; t++) {
        for (int i = 0; i < CHECK_VALUES; i++) x[t][i] = widened(cut_off(lp_rng_normal(&rng)));
        wide->put_row(x[t], CHECK_VALUES, t, tiles);
    }
    for (int n_blocks = 1; n_blocks <= LP_WIDE_BLOCKS; n_blocks++) {
        wide->multiply(tiles, LP_WIDE_SIDE * CHECK_VALUES, 3, w, n_blocks, CHECK_VALUES, false,
                       out);
        for (int i = 0; i < n_blocks * CHECK_ROWS * LP_MAT_ROWS; i++) {
            const int b = i / (CHECK_ROWS * LP_MAT_ROWS), t = i / LP_MAT_ROWS % CHECK_ROWS,
                      r = i % LP_MAT_ROWS;
            double sum = 0, size = 0;
            for (int k = 0; k < CHECK_VALUES; k++) {
                const double p = (double)x[t][k] *
                                 (double)widened(w[b][k / 2 * 2 * LP_MAT_ROWS + 2 * r + k % 2]);
                sum += p, size += fabs(p);
            }
            if (!(fabs(sums[b][t * LP_MAT_ROWS + r] - sum) <= 1e-5 * size)) return false;
        }
    }
    return true;
}

void lp_cpu_wide_choose(struct lp_cpu_device *dev) {
#if defined(__x86_64__)
    if ((dev->features & LP_CPU_LEVEL_AMX) != LP_CPU_LEVEL_AMX) return;
    if (lp_cpu_wide_selfcheck(&lp_cpu_wide_amx))
        dev->wide = &lp_cpu_wide_amx;
    else
        lp_log(LP_LOG_WARN,
               "products of bfloat16 by the tiles of this CPU disagree with the definition; they "
               "are not used");
#endif
    (void)dev;
}

bool lp_cpu_wide_takes(const struct lp_cpu_device *dev, const struct lp_cpu_mat_kernel *kernel,
                       int64_t n_rows, int64_t n_in, int64_t n_sets) {
    return dev->wide && dev->may_vary && kernel->widen && n_rows >= LP_WIDE_MIN_ROWS &&
           n_sets * lp_cpu_wide_values(n_rows, n_in) <=
               dev->mat_scratch->act_quads * LP_QUAD_VALUES;
}

// ---- products

// Activations that stay in the cache of a core (2 MB where there are tiles) while a run of blocks passes
#define NEAR_BYTES (1 << 20)

// Values of n_x rows that are near.
static int64_t near_values(int64_t n_x) {
    const int64_t n = NEAR_BYTES / (int64_t)sizeof(uint16_t) / lp_cpu_wide_values(n_x, 1);
    return n < LP_WIDE_PIECE ? LP_WIDE_PIECE : n / LP_WIDE_PIECE * LP_WIDE_PIECE;
}

int lp_cpu_wide_run_blocks(int64_t n_in, int64_t n_x) {
    return n_in <= near_values(n_x) ? LP_WIDE_BLOCKS : LP_WIDE_RUN_BLOCKS;
}

// n values from `first` of a block, as tiles. step: how many blocks further the next one of its matrix is.
static void widen(const struct lp_cpu_wide_block *block, int step, int64_t first, int64_t n,
                  uint16_t *tiles) {
    const struct lp_cpu_mat *mat = block->mat;
    const int64_t left = mat->n_out - block->row;
    const int n_rows = left < LP_MAT_ROWS ? (int)left : LP_MAT_ROWS;
    const size_t bytes = mat->packed ? mat->packed_block : mat->row_bytes * LP_MAT_ROWS;
    mat->kernel->widen(lp_cpu_mat_at(mat, block->row), mat->packed ? 0 : mat->row_bytes, n_rows,
                       first, n, (size_t)step * bytes, tiles);
}

// Values first ... end - 1 of the activations with one block or two.
static void product(const struct lp_cpu_wide *wide, const struct lp_cpu_wide_block *blocks,
                    int n_blocks, const uint16_t *x, int64_t n_x, int64_t first, int64_t end) {
    _Alignas(64) uint16_t w[LP_WIDE_BLOCKS][LP_WIDE_PIECE * LP_MAT_ROWS];
    const int64_t n_in = blocks[0].mat->n_in;
    const int step = n_blocks > 1 && blocks[0].mat == blocks[1].mat ? 2 : 1;
    float *const out[] = {blocks[0].out, n_blocks > 1 ? blocks[1].out : NULL};
    for (; first < end; first += LP_WIDE_PIECE) {
        const int64_t n = end - first < LP_WIDE_PIECE ? end - first : LP_WIDE_PIECE;
        for (int b = 0; b < n_blocks; b++) widen(blocks + b, step, first, n, w[b]);
        wide->multiply(x + first * LP_WIDE_SIDE, n_in * LP_WIDE_SIDE, lp_cpu_wide_tiles(n_x),
                       (const uint16_t(*)[LP_WIDE_PIECE * LP_MAT_ROWS]) w, n_blocks, n, first != 0,
                       out);
    }
}

void lp_cpu_wide_run(const struct lp_cpu_wide *wide, const struct lp_cpu_wide_block *blocks,
                     int n_blocks, const uint16_t *x, int64_t n_x) {
    const int64_t n_in = blocks[0].mat->n_in, near = near_values(n_x);
    for (int64_t first = 0; first < n_in; first += near)
        for (int b = 0; b < n_blocks; b += LP_WIDE_BLOCKS)
            product(wide, blocks + b, n_blocks - b < LP_WIDE_BLOCKS ? 1 : LP_WIDE_BLOCKS, x, n_x,
                    first, n_in - first < near ? n_in : first + near);
    for (int b = 0; b < n_blocks; b++)
        if (blocks[b].mat->factor != 1.0f)
            for (int64_t i = 0; i < n_x * LP_MAT_ROWS; i++)
                blocks[b].out[i] *= blocks[b].mat->factor;
}
