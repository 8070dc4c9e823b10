// What the matrix half of the CPU backend shares: the forms of activations and unpacked weights,
// the functions of one kernel, and the block product that matmul, head_matmul and experts are built
// of.
//
// One definition for every shape of call (rule B2): what a (weight row, activation row) pair gives
// does not depend on the other rows of the call. Float kernels cut the inner dimension into chunks
// with one vector accumulator of 8 float lanes per pair,
//     y = hsum(chunk 0) + hsum(chunk 1) + ...      (in this order, float32)
// whether the pair is computed alone (dot: decode) or inside a tile of many (unpack + tile:
// prefill). 8-bit kernels: see cpu_q8_strip.h.
#ifndef LP_BACKEND_CPU_CPU_MATMUL_H
#define LP_BACKEND_CPU_CPU_MATMUL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_device.h"
#include "backend/kernels.h"

#define LP_QUAD_VALUES 128

// 128 activations as four groups of 32 int8 with a float scale each; zeros past the end of the row.
// x = d q, |q| <= 127, nearest even. A group that holds NaN or infinity has d = NaN, q = 0. The
// sums are of q, exact.
struct lp_act_quad {
    _Alignas(64) int8_t q[LP_QUAD_VALUES];
    float d[4];      // of group g
    float sum[4];    // of group g
    int32_t half[8]; // -128 sum: half[g] of the first 16 of group g, half[g + 4] of its second 16
};

// 128 weights unpacked to bytes: w = scale q - min. Lane g of scale and min belongs to the first 16
// values of group g, lane g + 4 to the second 16. Unsigned kinds (with a min) have q >= 0.
struct lp_weight_quad {
    _Alignas(64) int8_t q[LP_QUAD_VALUES];
    float scale[8];
    float min[8];
};

enum lp_cpu_act { LP_CPU_ACT_F32, LP_CPU_ACT_Q8 };

#define LP_MAT_CHUNK_F32 512 // values of a chunk, float kernels (2 KiB a row)
#define LP_MAT_CHUNK_Q8 2048 // values of a panel row, 8-bit kernels (16 quads)
#define LP_MAT_PANEL_F32                                                                           \
    528                  // floats between rows of a float panel: not a power of two (cache sets)
#define LP_MAT_ROWS 16   // weight rows of a block and of a panel
#define LP_MAT_TILE 4    // activation rows of a tile call
#define LP_MAT_MAX_X 256 // activation rows that one pass over the weights serves
#define LP_MAT_AXPY 8    // weight rows of one axpy call

// The functions of one kernel. `type` is the weight's row in the type table; weight pointers are
// unaligned. Chunk `first` is a multiple of the chunk size; its n is the chunk size or what is
// left.
struct lp_cpu_mat_kernel {
    const char *name;
    enum lp_cpu_act act;
    // out[t * LP_MAT_ROWS + r] = w_r . x_t for r < n_rows <= LP_MAT_ROWS, t < n_x <= LP_MAT_MAX_X;
    // what it writes for other r means nothing. next: what the caller will need afterwards, as many
    // bytes as a whole block, or NULL; fetched meanwhile, never read. NULL in float kernels.
    void (*block)(const struct lp_type_info *type, const uint8_t *w, size_t row_bytes, int n_rows,
                  const void *const *x, int n_x, int64_t n_in, const uint8_t *next, float *out);
    // A block packed for this kernel: the same bytes in the order in which it reads them. packed_bytes:
    // of a block of LP_MAT_ROWS rows; 0 where the type has no such form. pack: n_rows rows into `to`
    // (the places of rows that are not there are filled with something). packed_block: as `block`, to
    // the bit. NULL in float kernels.
    size_t (*packed_bytes)(int64_t n_in);
    void (*pack)(const uint8_t *w, size_t row_bytes, int n_rows, int64_t n_in, uint8_t *to);
    void (*packed_block)(const uint8_t *w, int n_rows, const void *const *x, int n_x, int64_t n_in,
                         const uint8_t *next, float *out);
    // Values first ... first + n - 1 (first a multiple of 512, n <= 512) of a block as tiles of bfloat16
    // (cpu_wide.h). row_bytes 0: w is a packed block. ahead: 0, or how far behind w lie as many bytes that
    // are to be fetched meanwhile. NULL where there is no such way.
    void (*widen)(const uint8_t *w, size_t row_bytes, int n_rows, int64_t first, int64_t n,
                  size_t ahead, uint16_t *tiles);
    // out[r] = w_r . x for n_rows weight rows. x: float[n_in] or lp_act_quad[ceil(n_in / 128)].
    void (*dot)(const struct lp_type_info *type, const uint8_t *w, size_t row_bytes, int64_t n_rows,
                const void *x, int64_t n_in, float *out);
    // One chunk of one weight row into its panel row: float[LP_MAT_PANEL_F32], zero up to the next
    // multiple of 8; or lp_weight_quad[ceil(n / 128)].
    void (*unpack)(const struct lp_type_info *type, const uint8_t *row, int64_t first, int64_t n,
                   void *panel_row);
    // For r < n_rows <= LP_MAT_ROWS, t < n_x <= LP_MAT_TILE: the chunk's hsum, stored (first == 0)
    // or added to out[t * LP_MAT_ROWS + r]. x[t] is the start of activation row t (not of the
    // chunk). In Q8 kernels only the check at open uses it: a second way to the bits of `block`.
    void (*tile)(const void *panel, int n_rows, const void *const *x, int n_x, int64_t first,
                 int64_t n, float *out);
    // Q8 kernels: n values (a multiple of 32) of a panel row as float32.
    void (*expand)(const struct lp_weight_quad *quads, int64_t n, float *out);
    // y[j] = (first ? 0 : y[j]) + sum_{d < n_d} x[d] panel[d * LP_MAT_PANEL_F32 + j], j < n,
    // n_d <= LP_MAT_AXPY; the sum over d from 0 upwards.
    void (*axpy)(const float *panel, int n_d, const float *x, float *y, int64_t n, bool first);
};

// The kernels, one object each; cpu_selfcheck.c lists them in order of preference.
// cpu_matmul_plain.c: any type. cpu_matmul_avx2.c: float types, and any type through
// dequantisation.
extern const struct lp_cpu_mat_kernel lp_cpu_mat_plain;
extern const struct lp_cpu_mat_kernel lp_cpu_mat_avx2_f32, lp_cpu_mat_avx2_f16,
    lp_cpu_mat_avx2_bf16, lp_cpu_mat_avx2_dequant;
extern const struct lp_cpu_mat_kernel lp_cpu_mat_avx2_f8_e4m3; // cpu_matmul_avx2_f8.c
// cpu_matmul_avx512.c and cpu_matmul_neon.c: the same for AVX-512 and for NEON, with the same bits
extern const struct lp_cpu_mat_kernel lp_cpu_mat_avx512_f32, lp_cpu_mat_avx512_f16,
    lp_cpu_mat_avx512_bf16, lp_cpu_mat_avx512_f8_e4m3, lp_cpu_mat_avx512_dequant;
extern const struct lp_cpu_mat_kernel lp_cpu_mat_neon_f32, lp_cpu_mat_neon_f16,
    lp_cpu_mat_neon_bf16, lp_cpu_mat_neon_f8_e4m3, lp_cpu_mat_neon_dequant;

// The types with 8-bit kernels: stem, type. cpu_matmul_avx2_q32.c (blocks of 32 and 64 values) and
// cpu_matmul_avx2_k.c, _iq.c (of 256) define lp_cpu_mat_avx2_<stem>, cpu_matmul_vnni.c
// lp_cpu_mat_vnni_<stem>; cpu_matmul_amx.c, cpu_matmul_neon_q8.c, cpu_matmul_dotprod.c and
// cpu_matmul_i8mm.c lp_cpu_mat_amx_<stem> and so on. Only those of the machine that is compiled for
// are there.
#define LP_CPU_Q8_LIST(X)                                                                          \
    X(q8_0, Q8_0)                                                                                  \
    X(q4_0, Q4_0)                                                                                  \
    X(q4_1, Q4_1)                                                                                  \
    X(q5_0, Q5_0)                                                                                  \
    X(q5_1, Q5_1)                                                                                  \
    X(iq4_nl, IQ4_NL)                                                                              \
    X(mxfp4, MXFP4)                                                                                \
    X(nvfp4, NVFP4)                                                                                \
    X(q2_k, Q2_K)                                                                                  \
    X(q3_k, Q3_K)                                                                                  \
    X(q4_k, Q4_K)                                                                                  \
    X(q5_k, Q5_K)                                                                                  \
    X(q6_k, Q6_K)                                                                                  \
    X(iq4_xs, IQ4_XS)                                                                              \
    X(iq2_xxs, IQ2_XXS)                                                                            \
    X(iq2_xs, IQ2_XS)                                                                              \
    X(iq2_s, IQ2_S)                                                                                \
    X(iq3_xxs, IQ3_XXS)                                                                            \
    X(iq3_s, IQ3_S)                                                                                \
    X(iq1_s, IQ1_S)                                                                                \
    X(iq1_m, IQ1_M)                                                                                \
    X(tq2_0, TQ2_0)
// Those of them that cpu_matmul_vbmi.c has a kernel lp_cpu_mat_vbmi_<stem> for
#define LP_CPU_VBMI_LIST(X)                                                                        \
    X(iq2_xxs, IQ2_XXS)                                                                            \
    X(iq2_xs, IQ2_XS)                                                                              \
    X(iq2_s, IQ2_S)                                                                                \
    X(iq3_xxs, IQ3_XXS)                                                                            \
    X(iq3_s, IQ3_S)                                                                                \
    X(iq1_s, IQ1_S)                                                                                \
    X(iq1_m, IQ1_M)
#define LP_CPU_Q8_DECLARE(stem, type)                                                              \
    extern const struct lp_cpu_mat_kernel lp_cpu_mat_avx2_##stem, lp_cpu_mat_vnni_##stem,          \
        lp_cpu_mat_amx_##stem, lp_cpu_mat_neon_##stem, lp_cpu_mat_dotprod_##stem,                  \
        lp_cpu_mat_i8mm_##stem;
LP_CPU_Q8_LIST(LP_CPU_Q8_DECLARE)
#undef LP_CPU_Q8_DECLARE
#define LP_CPU_VBMI_DECLARE(stem, type)                                                            \
    extern const struct lp_cpu_mat_kernel lp_cpu_mat_vbmi_##stem;
LP_CPU_VBMI_LIST(LP_CPU_VBMI_DECLARE)
#undef LP_CPU_VBMI_DECLARE

// x[0..n-1] to quads, with the lowest ISA that has Q8 kernels; the same bits from both
// (cpu_quantize_act_avx2.c, cpu_quantize_act_neon.c).
#if defined(__aarch64__)
#define lp_cpu_quantize_act lp_cpu_quantize_act_neon
#define LP_CPU_AXPY_256 lp_cpu_axpy_neon
#else
#define lp_cpu_quantize_act lp_cpu_quantize_act_avx2
#define LP_CPU_AXPY_256 lp_cpu_axpy_avx2
#endif
void lp_cpu_quantize_act(const float *x, int64_t n, struct lp_act_quad *out);
// lp_cpu_mat_kernel.axpy of all kernels with 256-bit vectors (cpu_float_256.h)
void LP_CPU_AXPY_256(const float *panel, int n_d, const float *x, float *y, int64_t n, bool first);

static inline int64_t lp_cpu_quads(int64_t n) {
    return (n + LP_QUAD_VALUES - 1) / LP_QUAD_VALUES;
}

// ---- choice (cpu_selfcheck.c)

// Chooses a kernel for every weight type, running each choice once against lp_dot_ref; one that
// disagrees is logged and the next candidate is taken.
void lp_cpu_mat_choose(struct lp_cpu_device *dev);

// Whether a kernel agrees with double precision on a few fixed rows of a type.
bool lp_cpu_mat_selfcheck(const struct lp_cpu_mat_kernel *kernel, const struct lp_type_info *type);

// ---- scratch (cpu_mat_scratch.c)

struct lp_cpu_mat_worker {
    float *panel; // [LP_MAT_ROWS][LP_MAT_PANEL_F32]
    float *tile;  // [LP_MAT_MAX_X][LP_MAT_ROWS]
    float *tile2;
    float *pairs;       // [LP_MAT_MAX_X * n_used][LP_MAT_ROWS], experts only
    uint16_t *gathered; // [LP_WIDE_GATHERED][n_embd], experts with dev->wide only
    float *run;         // [LP_WIDE_RUN_BLOCKS][LP_MAT_MAX_X][LP_MAT_ROWS], with dev->wide only
};

#define LP_WIDE_GATHERED 128 // rows of an expert that cpu_wide_experts.c takes together
#define LP_WIDE_MAX_X 2048   // most rows of a slice there

struct lp_cpu_mat_scratch {
    unsigned char *block; // all of the arrays, one allocation
    size_t bytes;
    struct lp_act_quad *act; // activations of a slice of rows
    uint16_t *act_tiles;     // the same place, with dev->wide: [act_quads * LP_QUAD_VALUES]
    int64_t act_quads;
    struct lp_cpu_mat_worker *workers;
    // experts, per slice; a pair is (row, j), numbered row * n_used + j
    int64_t max_experts, max_pairs, max_hidden; // max_hidden: values of hidden
    float *hidden;                              // [pairs][expert width]
    struct lp_act_quad *hidden_act;             // [pairs][lp_cpu_quads(expert width)]
    int32_t *begins;                            // [experts + 1] first place of each expert
    int32_t *active;                            // [experts] those with pairs, those in memory first
    int32_t *order;                             // [pairs] place -> pair, grouped by expert
    int32_t *rows;                              // [pairs] place -> row
    int32_t *places;                            // [pairs] pair -> place
    // cpu_wide_experts.c, whose slices have more rows; the arrays of pairs serve both
    int64_t wide_pairs, n_hidden_tiles;
    uint16_t *hidden_tiles; // of each expert in turn, whole tiles of its rows
    int32_t *tile_begins;   // [experts] the first 16 rows of each
};

// (Re)allocates dev->mat_scratch for `need` (the merged reservation).
lp_status lp_cpu_mat_reserve(struct lp_cpu_device *dev, const struct lp_reserve *need,
                             struct lp_err *err);
void lp_cpu_mat_release(struct lp_cpu_device *dev);

// ---- block product (cpu_matmul.c)

// One matrix with its kernel.
struct lp_cpu_mat {
    const struct lp_cpu_mat_kernel *kernel;
    const struct lp_type_info *type;
    const uint8_t *data;
    size_t row_bytes;
    const uint8_t *packed; // its blocks, or NULL: rows are used
    size_t packed_block;   // bytes of a block
    float factor;          // of its products (lp_weight.scales)
    int64_t n_in, n_out;
};

struct lp_cpu_mat lp_cpu_mat_of(const struct lp_cpu_device *dev, const struct lp_weight *w,
                                int64_t m);

// Activation rows: row t at base + stride * (index ? index[t] : t).
struct lp_cpu_rows {
    const unsigned char *base;
    size_t stride;
    const int32_t *index;
};

static inline const uint8_t *lp_cpu_mat_row(const struct lp_cpu_mat *mat, int64_t row) {
    return mat->data + (size_t)row * mat->row_bytes;
}

// The block of weights from a row, a multiple of LP_MAT_ROWS, as lp_cpu_mat_block reads it.
static inline const uint8_t *lp_cpu_mat_at(const struct lp_cpu_mat *mat, int64_t row) {
    return mat->packed ? mat->packed + (size_t)(row / LP_MAT_ROWS) * mat->packed_block
                       : lp_cpu_mat_row(mat, row);
}

// lp_backend.packed_bytes and pack (cpu_pack.c)
size_t lp_cpu_packed_bytes(const struct lp_device *dev, const struct lp_weight *w);
void lp_cpu_pack(struct lp_device *dev, const struct lp_weight *w, uint8_t *to);

// out[t * LP_MAT_ROWS + r] = factor * (row (first_row + r) . x_t), r < n_rows <= LP_MAT_ROWS, t <
// n_x <= LP_MAT_MAX_X. next: the block of weights that the caller needs afterwards, or NULL.
void lp_cpu_mat_block(const struct lp_cpu_mat *mat, int64_t first_row, int n_rows,
                      struct lp_cpu_rows x, int64_t n_x, const uint8_t *next, float *panel,
                      float *out);

// Groups the pairs of a slice of rows by expert: begins, active, order, rows and places. Returns how many
// experts have pairs. Those whose weights are in memory are the first of `active`. (cpu_experts.c)
int64_t lp_cpu_group_pairs(struct lp_cpu_mat_scratch *s, const struct lp_op_experts *op,
                           int64_t first_x, int64_t n_x);

// The next item of a job.
static inline int64_t lp_cpu_take(_Atomic int64_t *next) {
    return atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
}

// n_rows cut into as few slices of at most `most` as do, of about one size: none has far fewer rows than
// the others, whose products could be of another kind (cpu_wide.h).
static inline int64_t lp_cpu_even_slice(int64_t n_rows, int64_t most) {
    const int64_t n = (n_rows + most - 1) / most;
    if (n <= 1) return most;
    const int64_t slice = ((n_rows + n - 1) / n + 15) / 16 * 16;
    return slice < most ? slice : most;
}

// Cuts the blocks of n_out rows into items that move at least some 64 KiB of weights each but leave
// every worker several: blocks per item.
int64_t lp_cpu_mat_item_blocks(const struct lp_cpu_mat *mat, int64_t n_items_beside, int n_workers);

// Rows begin..end-1 of x (n values each) to quads: row t at out + t * lp_cpu_quads(n).
void lp_cpu_quantize_rows(const float *x, int64_t x_stride, int64_t n, int64_t begin, int64_t end,
                          struct lp_act_quad *out);

// Below this many values one thread quantises faster than several that must meet afterwards.
#define LP_MAT_QUANTIZE_ALONE 32768

// n values of a row from `first` (a multiple of LP_MAT_CHUNK_F32), n <= LP_MAT_CHUNK_F32, as
// float32 into a float panel row, without the factor.
void lp_cpu_mat_to_f32(const struct lp_cpu_mat *mat, int64_t row, int64_t first, int64_t n,
                       float *out);

#endif
