// Products of quantised weights with activations rounded to 8 bits: the memory-bound kernels, of each
// weight type of LP_CUDA_Q8_TYPES. Inside backend/cuda.
//
// Activations: groups of 32 int8 with d = amax / 127, as the cpu backend rounds them
// (cpu_quantize_act.h), rounded once an operation into scratch. A "superblock" is 256 values of a row,
// whatever the type's own blocks; 8 of them are a round.
//
// Sums, per (weight row, activation row), the same in both kernels and for every number of rows (B2).
// Of a superblock, over its groups g from the left, in float32:
//     sum = fma(dot_g * scale_g, d_g, sum)     dot: exact; a scale a half group: two terms
//     low = fma(min_g, d_g * q_sum_g, low)     types with minimums; with one a half group, two terms of
//                                              fma(min * q_sum, d_g, low)
//     acc = fma(d, sum, acc), acc = fma(-dmin, low, acc)        types with a scale a superblock
// acc runs over the superblocks of a slice. Superblock b is in slice (b % 8, b / 8 % parts), parts =
// the rounds, at most 4. The slices of one b % 8 are added from the left, then these eight as
// ((0+4)+(2+6)) + ((1+5)+(3+7)).
#ifndef LP_BACKEND_CUDA_CUDA_Q8_H
#define LP_BACKEND_CUDA_CUDA_Q8_H

#include "backend/cuda/cuda_device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LP_CUDA_SUPERBLOCK 256
#define LP_CUDA_ROUND 8     // superblocks
#define LP_CUDA_MAX_PARTS 4 // of a row, that different warps may take
#define LP_CUDA_VEC_ROWS 2  // most activation rows of the kernel for few

// Where a rounded row's values lie. Both hold, of a superblock, 256 int8 and (d, d * sum of q) of its
// eight groups: 320 bytes.
enum lp_cuda_act_layout {
    // [round][group][half][8 superblocks] 16 bytes; then [round][2 groups][8 superblocks] (d, s, d, s)
    LP_CUDA_ACT_ROUNDS,
    // [superblock]: [2 groups][4 lanes][group][half] 4 bytes, then [group] (d, s)
    LP_CUDA_ACT_SUPERBLOCKS,
};
#define LP_CUDA_ACT_BYTES (LP_CUDA_SUPERBLOCK + 64)

static inline int64_t lp_cuda_superblocks(int64_t n_in) {
    return (n_in + LP_CUDA_SUPERBLOCK - 1) / LP_CUDA_SUPERBLOCK;
}
// Bytes of a rounded row. The rounds layout pads the last round.
static inline size_t lp_cuda_act_bytes(int64_t n_in, enum lp_cuda_act_layout layout) {
    int64_t n = lp_cuda_superblocks(n_in);
    if (layout == LP_CUDA_ACT_ROUNDS) n = (n + LP_CUDA_ROUND - 1) / LP_CUDA_ROUND * LP_CUDA_ROUND;
    return (size_t)n * LP_CUDA_ACT_BYTES;
}

// Rounds n_rows * n_heads rows of n_in values: row t of head h, at x + t * x_row + h * x_head, becomes
// row t * n_heads + h of out.
struct lp_cuda_quantize {
    const float *x;
    int64_t x_row, x_head, n_rows, n_heads, n_in;
    enum lp_cuda_act_layout layout;
    uint8_t *out;
    // The product behind reads more than weights before it waits for its input (experts: who chose
    // whom), so it may not start before the kernels in front of this one have ended.
    bool hold_next;
};
void lp_cuda_quantize_act(struct lp_cuda_device *dev, const struct lp_cuda_quantize *q);

enum lp_cuda_q8_mode {
    LP_CUDA_Q8_MATMUL,  // y[t][h] = W[h] x[t][h]
    LP_CUDA_Q8_GATE_UP, // y[pair] = silu(gate[e] x[pair / n_used]) * (up[e] x[pair / n_used])
    LP_CUDA_Q8_DOWN,    // y[pair] = W[e] x[pair]
};

// A call. x: rounded rows. zero: a rounded row of zeros (SUPERBLOCKS layout).
struct lp_cuda_q8_job {
    const struct lp_weight *w, *up; // up: GATE_UP, of w's type and shape
    enum lp_cuda_q8_mode mode;
    const uint8_t *x, *zero;
    int64_t x_row, x_head; // MATMUL: rounded row of (t, h) = t * x_row + h * x_head
    const float *bias;     // MATMUL; or NULL
    float *y;
    int64_t y_row, y_head; // MATMUL
    bool accumulate;
    int64_t n_rows; // MATMUL: activation rows; else pairs
    int32_t n_used;
    // vec: expert of a pair, which is matrix ids[pair] - first_expert; where there is none, y[pair] stays as it is
    const int32_t *ids;
    int32_t first_expert;
    bool ids_are_new; // vec: the kernel before may still write them
    bool beside;      // vec, MATMUL: lp_cuda_may_go_beside
    // vec, GATE_UP and DOWN: an expert of every row besides, of w's type and shape; y[n_rows + row]. NULL: none
    const struct lp_weight *more, *more_up;
    // tile: tiles[i] = (expert, first place in `pairs`), *n_tiles of them, at most max_tiles; an
    // expert's pairs end at pair_begin[expert + 1]
    const int32_t *pairs, *pair_begin, *tiles, *n_tiles;
    int64_t max_tiles;
};

// The kernels of one weight type.
struct lp_cuda_q8_kernel {
    const char *name;
    // Few activation rows: MATMUL with n_rows <= LP_CUDA_VEC_ROWS; else every pair reads the weights
    // of its expert. Layout ROUNDS. Rows of weights must be aligned, or vec_any_alignment.
    void (*vec)(struct lp_cuda_device *dev, const struct lp_cuda_q8_job *job);
    // Any number of rows, in tiles of tile_rows (8, 16 or 32). Layout SUPERBLOCKS.
    void (*tile)(struct lp_cuda_device *dev, const struct lp_cuda_q8_job *job, int tile_rows);
    bool vec_any_alignment;
    // Fills what the kernels keep in device memory, once a process; NULL: nothing.
    void (*prepare)(struct lp_cuda_device *dev);
};

// Whether a weight's rows begin at multiples of 16 bytes.
static inline bool lp_cuda_q8_aligned(const struct lp_weight *w) {
    return (((uintptr_t)w->data | w->row_bytes | w->mat_bytes) & 15) == 0;
}

// The types that have such kernels, and those of many rows (cuda_wide.h): X(stem, TYPE)
#define LP_CUDA_Q8_TYPES(X)                                                                        \
    X(q4_k, Q4_K)                                                                                  \
    X(q5_k, Q5_K)                                                                                  \
    X(q6_k, Q6_K)                                                                                  \
    X(q8_0, Q8_0)                                                                                  \
    X(q2_k, Q2_K)                                                                                  \
    X(q3_k, Q3_K)                                                                                  \
    X(q4_0, Q4_0)                                                                                  \
    X(q4_1, Q4_1)                                                                                  \
    X(q5_0, Q5_0)                                                                                  \
    X(q5_1, Q5_1)                                                                                  \
    X(iq4_nl, IQ4_NL)                                                                              \
    X(iq4_xs, IQ4_XS)                                                                              \
    X(mxfp4, MXFP4)                                                                                \
    X(nvfp4, NVFP4)                                                                                \
    X(iq2_xxs, IQ2_XXS)                                                                            \
    X(iq2_xs, IQ2_XS)                                                                              \
    X(iq2_s, IQ2_S)                                                                                \
    X(iq3_xxs, IQ3_XXS)                                                                            \
    X(iq3_s, IQ3_S)                                                                                \
    X(iq1_s, IQ1_S)                                                                                \
    X(iq1_m, IQ1_M)

#define LP_CUDA_Q8_DECLARE(stem, TYPE) extern const struct lp_cuda_q8_kernel lp_cuda_q8_##stem;
LP_CUDA_Q8_TYPES(LP_CUDA_Q8_DECLARE)
#undef LP_CUDA_Q8_DECLARE

#ifdef __cplusplus
}
#endif

#endif
