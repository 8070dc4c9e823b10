// Which matrix kernel each weight type gets, and which inner functions (cpu_lanes.h) the rest. The
// tables list the candidates, best first; before a matrix kernel is used it must agree with double
// precision on a few rows, and before a lanes table is used with the plain one, so that code for an
// instruction set that was never run on the developers' machines cannot spoil results silently.
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_grid_codes.h"
#include "backend/cpu/cpu_lanes.h"
#include "backend/cpu/cpu_matmul.h"
#include "base/log.h"
#include "base/rng.h"
#include "quant/blocks.h"

#define ROW(level, isa, stem, type)                                                                \
    {"matmul", #isa "_" #stem, LP_TYPE_##type, LP_CPU_LEVEL_##level, &lp_cpu_mat_##isa##_##stem},
#define DEQUANT_ROW(level, isa)                                                                    \
    {"matmul", #isa "_dequant", LP_KERNEL_ANY_TYPE, LP_CPU_LEVEL_##level,                          \
     &lp_cpu_mat_##isa##_dequant},
#define FLOAT_LIST(X) X(f32, F32) X(f16, F16) X(bf16, BF16) X(f8_e4m3, F8_E4M3)

#define VBMI_ROW(stem, type) ROW(VBMI, vbmi, stem, type)
#define AMX_ROW(stem, type) ROW(AMX, amx, stem, type)
#define VNNI_ROW(stem, type) ROW(VNNI, vnni, stem, type)
#define AVX512_ROW(stem, type) ROW(AVX512, avx512, stem, type)
#define AVX2_ROW(stem, type) ROW(AVX2, avx2, stem, type)
#define I8MM_ROW(stem, type) ROW(I8MM, i8mm, stem, type)
#define DOTPROD_ROW(stem, type) ROW(DOTPROD, dotprod, stem, type)
#define NEON_ROW(stem, type) ROW(NEON, neon, stem, type)

// clang-format off
static const struct lp_kernel candidates[] = {
#if defined(__x86_64__)
    LP_CPU_VBMI_LIST(VBMI_ROW)
    LP_CPU_Q8_LIST(AMX_ROW)
    LP_CPU_Q8_LIST(VNNI_ROW)
    LP_CPU_Q8_LIST(AVX2_ROW)
    FLOAT_LIST(AVX512_ROW)
    FLOAT_LIST(AVX2_ROW)
    DEQUANT_ROW(AVX512, avx512)
    DEQUANT_ROW(AVX2, avx2)
#elif defined(__aarch64__)
    LP_CPU_Q8_LIST(I8MM_ROW)
    LP_CPU_Q8_LIST(DOTPROD_ROW)
    LP_CPU_Q8_LIST(NEON_ROW)
    FLOAT_LIST(NEON_ROW)
    DEQUANT_ROW(NEON, neon)
#endif
    {"matmul", "plain_dequant", LP_KERNEL_ANY_TYPE, LP_CPU_LEVEL_PLAIN, &lp_cpu_mat_plain},
};
// clang-format on
#define N_CANDIDATES (sizeof candidates / sizeof candidates[0])

#define CHECK_VALUES 512 // two blocks of the largest kind
#define CHECK_ROWS 11    // eight, a pair and a single: every size of a tile
#define CHECK_BOUND 1e-4 // of sum |w x|; wrong bits or a saturated sum are far above it
#define MAX_ROW_BYTES (CHECK_VALUES * 4)

// Bytes of any kind but NaN, under a scale as weights have it: most float32 bits are no such thing.
static void tame_f8(struct lp_block_f8_e4m3 *block, struct lp_rng *rng) {
    block->d = lp_rng_normal(rng) * 0.01f;
    for (int i = 0; i < 128; i++)
        if ((block->q[i] & 0x7f) == 0x7f) block->q[i] ^= 1;
}

// An exponent of which no sum overflows.
static void tame_mxfp4(struct lp_block_mxfp4 *block) {
    block->e = (uint8_t)(96 + block->e % 64);
}

// Random bytes until every scale is finite; where the format has a quantiser, its output.
static bool make_row(const struct lp_type_info *type, struct lp_rng *rng, uint8_t *row) {
    uint64_t bytes;
    if (!lp_type_row_bytes(type->id, CHECK_VALUES, &bytes) || bytes > MAX_ROW_BYTES) return false;
    if (type->block_values == 1) {
        float values[CHECK_VALUES];
        for (int i = 0; i < CHECK_VALUES; i++) values[i] = lp_rng_normal(rng);
        if (!type->quantize) return false;
        type->quantize(values, row, CHECK_VALUES);
        return true;
    }
    for (int attempt = 0; attempt < 10000; attempt++) {
        for (uint64_t i = 0; i < bytes; i++) row[i] = (uint8_t)lp_rng_u64(rng);
        for (uint64_t i = 0; type->id == LP_TYPE_F8_E4M3 && i < bytes; i += type->block_bytes)
            tame_f8((void *)(row + i), rng);
        for (uint64_t i = 0; type->id == LP_TYPE_MXFP4 && i < bytes; i += type->block_bytes)
            tame_mxfp4((void *)(row + i));
        if (lp_type_find_nonfinite(type->id, row, CHECK_VALUES) < 0) return true;
    }
    return false;
}

// What the kernel sees of the activations: for 8-bit kernels, after rounding.
static void as_rounded(const struct lp_act_quad *quads, float *x) {
    for (int i = 0; i < CHECK_VALUES; i++) {
        const struct lp_act_quad *quad = &quads[i / LP_QUAD_VALUES];
        int at = i % LP_QUAD_VALUES;
        x[i] = quad->d[at / 32] * (float)quad->q[at];
    }
}

static bool agrees(const struct lp_type_info *type, const uint8_t *row, const float *x, float y) {
    float w[CHECK_VALUES];
    type->dequant(row, w, CHECK_VALUES);
    double scale = 0;
    for (int i = 0; i < CHECK_VALUES; i++) scale += fabs((double)w[i] * (double)x[i]);
    return fabs((double)y - lp_dot_ref(type->id, row, x, CHECK_VALUES)) <= CHECK_BOUND * scale;
}

#define CHECK_TOKENS 27 // whole tiles of 16 and 8 tokens and a part of one

// A block of weights for several tokens at once: the same bits as for one.
static bool block_agrees(const struct lp_cpu_mat_kernel *kernel, const struct lp_type_info *type,
                         const uint8_t *rows, const void *act, const float *y) {
    const void *acts[CHECK_TOKENS];
    float out[CHECK_TOKENS * LP_MAT_ROWS];
    for (int t = 0; t < CHECK_TOKENS; t++) acts[t] = act;
    kernel->block(type, rows, MAX_ROW_BYTES, CHECK_ROWS, acts, CHECK_TOKENS, CHECK_VALUES, NULL,
                  out);
    for (int t = 0; t < CHECK_TOKENS; t++)
        if (memcmp(y, out + t * LP_MAT_ROWS, CHECK_ROWS * sizeof *y) != 0) return false;
    return true;
}

// The same block packed, for one row and for several.
static bool packed_agrees(const struct lp_cpu_mat_kernel *kernel, const uint8_t *rows,
                          const void *act, const float *y) {
    static const int counts[] = {1, 2, 11};
    _Alignas(64) uint8_t packed[LP_MAT_ROWS * MAX_ROW_BYTES];
    const void *acts[11];
    float out[11 * LP_MAT_ROWS];
    if (kernel->packed_bytes(CHECK_VALUES) > sizeof packed) return false;
    kernel->pack(rows, MAX_ROW_BYTES, CHECK_ROWS, CHECK_VALUES, packed);
    for (int t = 0; t < 11; t++) acts[t] = act;
    for (int i = 0; i < 3; i++) {
        kernel->packed_block(packed, CHECK_ROWS, acts, counts[i], CHECK_VALUES, NULL, out);
        for (int t = 0; t < counts[i]; t++)
            if (memcmp(y, out + t * LP_MAT_ROWS, CHECK_ROWS * sizeof *y) != 0) return false;
    }
    return true;
}

// The same block, and packed, as bfloat16: each weight to within its last bit, but for what float32 loses
// where a minimum is taken off.
static bool widen_agrees(const struct lp_cpu_mat_kernel *kernel, const struct lp_type_info *type,
                         const uint8_t *rows) {
    _Alignas(64) uint16_t tiles[2][CHECK_VALUES * LP_MAT_ROWS];
    _Alignas(64) uint8_t packed[LP_MAT_ROWS * MAX_ROW_BYTES];
    kernel->widen(rows, MAX_ROW_BYTES, CHECK_ROWS, 0, CHECK_VALUES, 0, tiles[0]);
    const bool packs = kernel->packed_bytes(CHECK_VALUES) > 0;
    if (packs) {
        kernel->pack(rows, MAX_ROW_BYTES, CHECK_ROWS, CHECK_VALUES, packed);
        kernel->widen(packed, 0, CHECK_ROWS, 0, CHECK_VALUES, 0, tiles[1]);
    }
    for (int r = 0; r < CHECK_ROWS; r++) {
        float w[CHECK_VALUES], largest = 0;
        type->dequant(rows + r * MAX_ROW_BYTES, w, CHECK_VALUES);
        for (int i = 0; i < CHECK_VALUES; i++) largest = fmaxf(largest, fabsf(w[i]));
        for (int i = 0; i < CHECK_VALUES; i++) {
            const int at = i / 2 * 2 * LP_MAT_ROWS + 2 * r + i % 2;
            const uint32_t bits = (uint32_t)tiles[0][at] << 16;
            float got;
            memcpy(&got, &bits, sizeof got);
            if (!(fabsf(got - w[i]) <= 0x1p-8f * fabsf(w[i]) + 1e-5f * largest)) return false;
            if (packs && tiles[1][at] != tiles[0][at]) return false;
        }
    }
    return true;
}

// x: random, or with `flat` all of one size, the largest sums that 8-bit products can give.
static bool check_once(const struct lp_cpu_mat_kernel *kernel, const struct lp_type_info *type,
                       struct lp_rng *rng, bool flat) {
    uint8_t rows[CHECK_ROWS][MAX_ROW_BYTES];
    for (int r = 0; r < CHECK_ROWS; r++)
        if (!make_row(type, rng, rows[r])) return false;
    float x[CHECK_VALUES];
    for (int i = 0; i < CHECK_VALUES; i++) x[i] = flat ? -2.0f : lp_rng_normal(rng);
    struct lp_act_quad quads[CHECK_VALUES / LP_QUAD_VALUES];
    const void *act = x;
#if defined(__x86_64__) || defined(__aarch64__)
    if (kernel->act == LP_CPU_ACT_Q8) {
        lp_cpu_quantize_act(x, CHECK_VALUES, quads);
        float exact[CHECK_VALUES];
        memcpy(exact, x, sizeof exact);
        as_rounded(quads, x);
        for (int i = 0; i < CHECK_VALUES; i++)
            if (!(fabsf(exact[i] - x[i]) <=
                  0.51f * quads[i / LP_QUAD_VALUES].d[i % LP_QUAD_VALUES / 32]))
                return false;
        act = quads;
    }
#else
    (void)quads, (void)as_rounded;
#endif
    float y[CHECK_ROWS];
    kernel->dot(type, rows[0], MAX_ROW_BYTES, CHECK_ROWS, act, CHECK_VALUES, y);
    for (int r = 0; r < CHECK_ROWS; r++)
        if (!agrees(type, rows[r], x, y[r])) return false;

    // The tile must give the same bits.
    _Alignas(64) unsigned char panel[LP_MAT_ROWS * sizeof(struct lp_weight_quad) * 16];
    _Static_assert(sizeof panel >= LP_MAT_ROWS * LP_MAT_PANEL_F32 * sizeof(float),
                   "panel holds both kinds");
    size_t panel_row = kernel->act == LP_CPU_ACT_Q8 ? sizeof panel / LP_MAT_ROWS
                                                    : LP_MAT_PANEL_F32 * sizeof(float);
    for (int r = 0; r < CHECK_ROWS; r++)
        kernel->unpack(type, rows[r], 0, CHECK_VALUES, panel + (size_t)r * panel_row);
    const void *acts[LP_MAT_TILE] = {act, act, act, act};
    float tile[LP_MAT_TILE * LP_MAT_ROWS];
    kernel->tile(panel, CHECK_ROWS, acts, LP_MAT_TILE, 0, CHECK_VALUES, tile);
    for (int t = 0; t < LP_MAT_TILE; t++)
        if (memcmp(y, tile + t * LP_MAT_ROWS, sizeof y) != 0) return false;
    if (kernel->block && !block_agrees(kernel, type, rows[0], act, y)) return false;
    if (kernel->widen && !widen_agrees(kernel, type, rows[0])) return false;
    return !kernel->packed_bytes || !kernel->packed_bytes(CHECK_VALUES) ||
           packed_agrees(kernel, rows[0], act, y);
}

bool lp_cpu_mat_selfcheck(const struct lp_cpu_mat_kernel *kernel, const struct lp_type_info *type) {
    struct lp_rng rng;
    lp_rng_init(&rng, 20 + (uint64_t)type->id);
    return check_once(kernel, type, &rng, false) && check_once(kernel, type, &rng, true);
}

static void choose_one(struct lp_cpu_device *dev, const struct lp_type_info *type) {
    bool rejected[N_CANDIDATES] = {false};
    struct lp_kernel_query query = {.op = "matmul",
                                    .type = type->id,
                                    .features = dev->features,
                                    .rejected = rejected,
                                    .features_text = lp_cpu_features_text};
    for (;;) {
        int i = lp_kernel_choose(candidates, N_CANDIDATES, &query);
        if (i < 0) break;
        if (lp_cpu_mat_selfcheck(candidates[i].impl, type)) {
            dev->mat_kernels[type->id] = candidates[i].impl;
            break;
        }
        lp_log(LP_LOG_WARN,
               "kernel %s disagrees with the definition for %s on this CPU; it is not used",
               candidates[i].name, type->name);
        rejected[i] = true;
    }
    if (lp_log_enabled(LP_LOG_DEBUG)) {
        char text[400];
        lp_log(LP_LOG_DEBUG, "matmul %s: %s", type->name,
               lp_kernel_explain(candidates, N_CANDIDATES, &query, text, sizeof text));
    }
}

void lp_cpu_mat_choose(struct lp_cpu_device *dev) {
    lp_cpu_grid_codes_fill();
    for (uint32_t id = 0; id < LP_TYPE_COUNT; id++) {
        const struct lp_type_info *type = lp_type_info(id);
        if (type && type->is_weight && type->dequant) choose_one(dev, type);
    }
}

// ---- inner functions

static const struct lp_kernel lanes_candidates[] = {
#if defined(__x86_64__)
    {"lanes", "avx512", LP_KERNEL_ANY_TYPE, LP_CPU_LEVEL_AVX512, &lp_cpu_lanes_avx512},
    {"lanes", "avx2", LP_KERNEL_ANY_TYPE, LP_CPU_LEVEL_AVX2, &lp_cpu_lanes_avx2},
#elif defined(__aarch64__)
    {"lanes", "neon", LP_KERNEL_ANY_TYPE, LP_CPU_LEVEL_NEON, &lp_cpu_lanes_neon},
#endif
    {"lanes", "plain", LP_KERNEL_ANY_TYPE, LP_CPU_LEVEL_PLAIN, &lp_cpu_lanes_plain},
};
#define N_LANES_CANDIDATES (sizeof lanes_candidates / sizeof lanes_candidates[0])

// Sizes that reach every tile of cpu_lanes_body.h at 16 lanes: 8 rows, 4 and one more; 8 vectors, one
// vector and a tail.
#define LANES_M 13
#define LANES_N (9 * 16 + 5)
#define LANES_K (2 * 16 + 7)
#define LANES_BLOCK 128 // values of the cache row, whole blocks of each type

struct lanes_data {
    float a[LANES_M * LANES_K], b[LANES_N * LANES_K], b_t[LANES_K * LANES_N];
    float x[LANES_M * LANES_N], y[LANES_M * LANES_N]; // results: of the plain table, of the other
};

static bool same(const struct lanes_data *d) {
    return memcmp(d->x, d->y, sizeof d->x) == 0;
}
// Of sums whose terms have magnitudes that add up to some 30.
static bool near(const struct lanes_data *d) {
    for (size_t i = 0; i < sizeof d->x / sizeof *d->x; i++)
        if (!(fabsf(d->x[i] - d->y[i]) <= 1e-4f)) return false;
    return true;
}

static bool check_products(const struct lp_cpu_lanes *lanes, struct lanes_data *d) {
    const struct lp_cpu_lanes *plain = &lp_cpu_lanes_plain;
    int32_t rows[LANES_K];
    plain->mul_nt(LANES_M, LANES_N, LANES_K, d->a, LANES_K, d->b, LANES_K, d->x, LANES_N, 1);
    lanes->mul_nt(LANES_M, LANES_N, LANES_K, d->a, LANES_K, d->b, LANES_K, d->y, LANES_N, 1);
    if (!near(d)) return false;
    plain->mul_nn(LANES_M, LANES_N, LANES_K, d->a, LANES_K, d->b_t, LANES_N, d->x, LANES_N, true);
    lanes->mul_nn(LANES_M, LANES_N, LANES_K, d->a, LANES_K, d->b_t, LANES_N, d->y, LANES_N, true);
    if (!near(d)) return false;
    for (int i = 0; i < LANES_K; i++) rows[i] = LANES_K - 1 - i;
    plain->mul_rows(LANES_N, LANES_K, d->a, rows, d->b_t, LANES_N, d->x);
    lanes->mul_rows(LANES_N, LANES_K, d->a, rows, d->b_t, LANES_N, d->y);
    plain->relu_sum(LANES_M - 1, LANES_N, d->x + LANES_N, LANES_N, d->a, d->x);
    lanes->relu_sum(LANES_M - 1, LANES_N, d->y + LANES_N, LANES_N, d->a, d->y);
    return near(d);
}

static bool check_rows(const struct lp_cpu_lanes *lanes, struct lanes_data *d) {
    const struct lp_cpu_lanes *plain = &lp_cpu_lanes_plain;
    memcpy(d->x, d->b, sizeof d->x);
    memcpy(d->y, d->b, sizeof d->y);
    plain->scale(d->x, LANES_N, 0.3f);
    lanes->scale(d->y, LANES_N, 0.3f);
    plain->transpose(9, LANES_K, d->b, LANES_K, d->x + LANES_N, 9); // blocks of 8 x 8, and a rest
    lanes->transpose(9, LANES_K, d->b, LANES_K, d->y + LANES_N, 9);
    if (!same(d)) return false;
    plain->silu_mul(d->a, d->b, d->x, LANES_N);
    lanes->silu_mul(d->a, d->b, d->y, LANES_N);
    d->x[2 * LANES_N] = d->y[2 * LANES_N] = 6.0f; // the maximum moves
    float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, rescale[2];
    for (int row = 1; row < 3; row++) {
        rescale[0] = plain->softmax_step(d->x + row * LANES_N, LANES_N - row, 2, &max[0], &sum[0]);
        rescale[1] = lanes->softmax_step(d->y + row * LANES_N, LANES_N - row, 2, &max[1], &sum[1]);
    }
    return near(d) && max[0] == max[1] && fabsf(sum[0] - sum[1]) <= 1e-4f * sum[0] &&
           fabsf(rescale[0] - rescale[1]) <= 1e-4f;
}

static bool check_types(const struct lp_cpu_lanes *lanes, struct lanes_data *d) {
    static const lp_type types[] = {LP_TYPE_F32, LP_TYPE_F16, LP_TYPE_BF16, LP_TYPE_Q8_0,
                                    LP_TYPE_F8_E4M3};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        uint8_t rows[2][LANES_BLOCK * sizeof(float)] = {{0}};
        lp_cpu_lanes_plain.store(types[i], d->a, rows[0], LANES_BLOCK);
        lanes->store(types[i], d->a, rows[1], LANES_BLOCK);
        if (memcmp(rows[0], rows[1], sizeof rows[0]) != 0) return false;
        lp_cpu_lanes_plain.load(types[i], rows[0], d->x, LANES_BLOCK);
        lanes->load(types[i], rows[0], d->y, LANES_BLOCK);
        if (memcmp(d->x, d->y, LANES_BLOCK * sizeof(float)) != 0) return false;
    }
    return true;
}

bool lp_cpu_lanes_selfcheck(const struct lp_cpu_lanes *lanes) {
    struct lanes_data d = {0};
    struct lp_rng rng;
    lp_rng_init(&rng, 19);
    for (int i = 0; i < LANES_M * LANES_K; i++) d.a[i] = lp_rng_normal(&rng);
    for (int i = 0; i < LANES_N * LANES_K; i++) d.b[i] = d.b_t[i] = lp_rng_normal(&rng);
    return check_products(lanes, &d) && check_rows(lanes, &d) && check_types(lanes, &d);
}

void lp_cpu_lanes_choose(struct lp_cpu_device *dev) {
    bool rejected[N_LANES_CANDIDATES] = {false};
    struct lp_kernel_query query = {.op = "lanes",
                                    .type = LP_KERNEL_ANY_TYPE,
                                    .features = dev->features,
                                    .rejected = rejected,
                                    .features_text = lp_cpu_features_text};
    for (;;) {
        int i = lp_kernel_choose(lanes_candidates, N_LANES_CANDIDATES, &query);
        dev->lanes = lanes_candidates[i].impl; // the last one, plain, always fits
        if (dev->lanes == &lp_cpu_lanes_plain || lp_cpu_lanes_selfcheck(dev->lanes)) return;
        lp_log(LP_LOG_WARN,
               "the %s functions of attention disagree with the plain ones on this CPU; they are "
               "not used",
               dev->lanes->name);
        rejected[i] = true;
    }
}
