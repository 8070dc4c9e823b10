// The type table: one row per type, and what is asked of an id or a row before any value is read.
#include <stddef.h>
#include <stdio.h>

#include "base/checked.h"
#include "quant/blocks.h"
#include "quant/dequant.h"
#include "quant/quantize.h"

// How lp_type_find_nonfinite reads a scale
enum scale_kind {
    SCALE_NONE, // integers, or a scale format without NaN
    SCALE_F16,  // at scale_at[0] and, if n_scales is 2, scale_at[1]
    SCALE_BF16,
    SCALE_F32,
    SCALE_F64,
    SCALE_IQ1_M, // an f16 spread over four u16
};

struct row {
    struct lp_type_info info; // name NULL = no such type
    enum scale_kind scale;
    uint8_t n_scales;
    uint8_t scale_at[2]; // bytes from the start of the block
};

#define WEIGHT true
#define NO_WEIGHT false
// The offsets of one or two fields of a block struct
#define AT(type, field) 1, {offsetof(struct type, field)}
#define AT2(type, field, other) 2, {offsetof(struct type, field), offsetof(struct type, other)}
#define START 1, {0}
#define NOWHERE 0, {0}
#define ROW(name, weight, dequant, quantize, ...)                                                  \
    [LP_TYPE_##name] = {{LP_TYPE_##name, #name, LP_BLOCK_VALUES_##name, LP_BLOCK_BYTES_##name,     \
                         LP_TYPE_##name == LP_TYPE_F8_E4M3, weight, dequant, quantize},            \
                        __VA_ARGS__}

static const struct row rows[LP_TYPE_COUNT] = {
    ROW(F32, WEIGHT, lp_dequant_f32, lp_quantize_f32, SCALE_F32, START),
    ROW(F16, WEIGHT, lp_dequant_f16, lp_quantize_f16, SCALE_F16, START),
    ROW(BF16, WEIGHT, lp_dequant_bf16, lp_quantize_bf16, SCALE_BF16, START),
    ROW(Q4_0, WEIGHT, lp_dequant_q4_0, lp_quantize_q4_0, SCALE_F16, AT(lp_block_q4_0, d)),
    ROW(Q4_1, WEIGHT, lp_dequant_q4_1, NULL, SCALE_F16, AT2(lp_block_q4_1, d, m)),
    ROW(Q5_0, WEIGHT, lp_dequant_q5_0, lp_quantize_q5_0, SCALE_F16, AT(lp_block_q5_0, d)),
    ROW(Q5_1, WEIGHT, lp_dequant_q5_1, NULL, SCALE_F16, AT2(lp_block_q5_1, d, m)),
    ROW(Q8_0, WEIGHT, lp_dequant_q8_0, lp_quantize_q8_0, SCALE_F16, AT(lp_block_q8_0, d)),
    ROW(Q8_1, NO_WEIGHT, lp_dequant_q8_1, lp_quantize_q8_1, SCALE_F16, AT2(lp_block_q8_1, d, s)),
    ROW(Q2_K, WEIGHT, lp_dequant_q2_k, NULL, SCALE_F16, AT2(lp_block_q2_k, d, dmin)),
    ROW(Q3_K, WEIGHT, lp_dequant_q3_k, NULL, SCALE_F16, AT(lp_block_q3_k, d)),
    ROW(Q4_K, WEIGHT, lp_dequant_q4_k, lp_quantize_q4_k, SCALE_F16, AT2(lp_block_q4_k, d, dmin)),
    ROW(Q5_K, WEIGHT, lp_dequant_q5_k, lp_quantize_q5_k, SCALE_F16, AT2(lp_block_q5_k, d, dmin)),
    ROW(Q6_K, WEIGHT, lp_dequant_q6_k, lp_quantize_q6_k, SCALE_F16, AT(lp_block_q6_k, d)),
    ROW(Q8_K, NO_WEIGHT, lp_dequant_q8_k, lp_quantize_q8_k, SCALE_F32, AT(lp_block_q8_k, d)),
    ROW(IQ2_XXS, WEIGHT, lp_dequant_iq2_xxs, NULL, SCALE_F16, AT(lp_block_iq2_xxs, d)),
    ROW(IQ2_XS, WEIGHT, lp_dequant_iq2_xs, NULL, SCALE_F16, AT(lp_block_iq2_xs, d)),
    ROW(IQ2_S, WEIGHT, lp_dequant_iq2_s, NULL, SCALE_F16, AT(lp_block_iq2_s, d)),
    ROW(IQ3_XXS, WEIGHT, lp_dequant_iq3_xxs, NULL, SCALE_F16, AT(lp_block_iq3_xxs, d)),
    ROW(IQ3_S, WEIGHT, lp_dequant_iq3_s, NULL, SCALE_F16, AT(lp_block_iq3_s, d)),
    ROW(IQ1_S, WEIGHT, lp_dequant_iq1_s, NULL, SCALE_F16, AT(lp_block_iq1_s, d)),
    ROW(IQ1_M, WEIGHT, lp_dequant_iq1_m, NULL, SCALE_IQ1_M, AT(lp_block_iq1_m, scales)),
    ROW(IQ4_NL, WEIGHT, lp_dequant_iq4_nl, lp_quantize_iq4_nl, SCALE_F16, AT(lp_block_iq4_nl, d)),
    ROW(IQ4_XS, WEIGHT, lp_dequant_iq4_xs, lp_quantize_iq4_xs, SCALE_F16, AT(lp_block_iq4_xs, d)),
    ROW(TQ1_0, WEIGHT, lp_dequant_tq1_0, NULL, SCALE_F16, AT(lp_block_tq1_0, d)),
    ROW(TQ2_0, WEIGHT, lp_dequant_tq2_0, NULL, SCALE_F16, AT(lp_block_tq2_0, d)),
    ROW(MXFP4, WEIGHT, lp_dequant_mxfp4, NULL, SCALE_NONE, NOWHERE),
    ROW(NVFP4, WEIGHT, lp_dequant_nvfp4, NULL, SCALE_NONE, NOWHERE),
    ROW(Q1_0, WEIGHT, lp_dequant_q1_0, NULL, SCALE_F16, AT(lp_block_q1_0, d)),
    ROW(Q2_0, WEIGHT, lp_dequant_q2_0, NULL, SCALE_F16, AT(lp_block_q2_0, d)),
    ROW(F8_E4M3, WEIGHT, lp_dequant_f8_e4m3, lp_quantize_f8_e4m3, SCALE_F32,
        AT(lp_block_f8_e4m3, d)),
    ROW(I8, NO_WEIGHT, NULL, NULL, SCALE_NONE, NOWHERE),
    ROW(I16, NO_WEIGHT, NULL, NULL, SCALE_NONE, NOWHERE),
    ROW(I32, NO_WEIGHT, NULL, NULL, SCALE_NONE, NOWHERE),
    ROW(I64, NO_WEIGHT, NULL, NULL, SCALE_NONE, NOWHERE),
    ROW(F64, NO_WEIGHT, NULL, NULL, SCALE_F64, START),
};

const struct lp_type_info *lp_type_info(uint32_t id) {
    return id < LP_TYPE_COUNT && rows[id].info.name ? &rows[id].info : NULL;
}

bool lp_type_row_bytes(lp_type type, uint64_t n, uint64_t *bytes) {
    const struct lp_type_info *info = lp_type_info((uint32_t)type);
    return info && n % info->block_values == 0 &&
           lp_mul_u64(n / info->block_values, info->block_bytes, bytes);
}

// ---- ids without a row

struct foreign {
    uint16_t id;
    const char *name;
};

// Once in GGUF: 4 and 5 until 2023, the others (repacked copies of Q4_0 and IQ4_NL) until 2024.
static const struct foreign removed[] = {
    {4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};

// Private to ik_llama.cpp; its ids below 43 overlap with GGUF's and cannot be told apart. Its
// formats of activations only (97 .. 99, 136, 147 and others) are left out: no file holds them.
#define IK_FIRST 97
#define IK_LAST 399
static const struct foreign ik[] = {
    {133, "Q6_0"},       {134, "IQ1_BN"},    {135, "IQ2_BN"},     {137, "IQ2_K"},
    {138, "IQ3_K"},      {139, "IQ4_K"},     {140, "IQ5_K"},      {141, "IQ6_K"},
    {144, "IQ4_KS"},     {145, "IQ2_KS"},    {146, "IQ4_KSS"},    {148, "Q8_K32"},
    {151, "Q8_KV"},      {152, "IQ5_KS"},    {153, "IQ2_KT"},     {154, "IQ3_KT"},
    {155, "IQ4_KT"},     {156, "IQ3_KS"},    {157, "IQ2_KL"},     {158, "IQ1_KT"},
    {202, "Q4_0_R8"},    {206, "Q5_0_R4"},   {208, "Q8_0_R8"},    {210, "Q2_K_R4"},
    {211, "Q3_K_R4"},    {212, "Q4_K_R4"},   {213, "Q5_K_R4"},    {214, "Q6_K_R4"},
    {216, "IQ2_XXS_R4"}, {217, "IQ2_XS_R4"}, {218, "IQ3_XXS_R4"}, {219, "IQ1_S_R4"},
    {220, "IQ4_NL_R4"},  {221, "IQ3_S_R4"},  {222, "IQ2_S_R4"},   {223, "IQ4_XS_R8"},
    {229, "IQ1_M_R4"},   {230, "BF16_R16"},  {233, "Q6_0_R4"},    {335, "IQ2_BN_R4"},
    {337, "IQ2_K_R4"},   {338, "IQ3_K_R4"},  {339, "IQ4_K_R4"},   {340, "IQ5_K_R4"},
    {344, "IQ4_KS_R4"},  {352, "IQ5_KS_R4"}, {397, "Q8_K_R16"},   {398, "Q8_KV_R8"},
    {399, "Q8_K_R8"},
};

static const char *foreign_name(const struct foreign *list, size_t n, uint32_t id) {
    for (size_t i = 0; i < n; i++)
        if (list[i].id == id) return list[i].name;
    return NULL;
}

#define N_OF(list) (sizeof(list) / sizeof((list)[0]))

const char *lp_type_explain(uint32_t id, char *buffer, size_t buffer_bytes) {
    if (!buffer || buffer_bytes == 0) return "a type without an implementation";
    const struct lp_type_info *info = lp_type_info(id);
    const char *name;
    if (info && !info->in_memory_only) // an id of no file
        snprintf(buffer, buffer_bytes, "type %u (%s)", (unsigned)id, info->name);
    else if ((name = foreign_name(removed, N_OF(removed), id)))
        snprintf(buffer, buffer_bytes, "type %u (%s, removed from GGUF; re-convert the file)",
                 (unsigned)id, name);
    else if ((name = foreign_name(ik, N_OF(ik), id)))
        snprintf(buffer, buffer_bytes,
                 "type %u (%s, made by ik_llama.cpp; use a file quantised with a GGUF type)",
                 (unsigned)id, name);
    else
        snprintf(buffer, buffer_bytes, "type %u is unknown%s", (unsigned)id,
                 id >= IK_FIRST && id <= IK_LAST ? " (perhaps one of ik_llama.cpp's own)" : "");
    return buffer;
}

// ---- non-finite scales

// True if one of n fields, `stride` bytes apart, has all bits of `exponent` set, i.e. is NaN or
// infinite. Without a branch in the loop: this runs over whole files at load. Inlined into each
// constant stride and width.
#define DEFINE_ANY(name, type)                                                                     \
    static inline bool name(const uint8_t *at, size_t n, size_t stride, type exponent) {           \
        type bad = 0;                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            type bits;                                                                             \
            memcpy(&bits, at + i * stride, sizeof bits);                                           \
            bad |= (type)((bits & exponent) == exponent);                                          \
        }                                                                                          \
        return bad != 0;                                                                           \
    }
DEFINE_ANY(any_16, uint16_t)
DEFINE_ANY(any_32, uint32_t)
DEFINE_ANY(any_64, uint64_t)

static bool any_iq1_m(const uint8_t *at, size_t n, size_t stride) {
    bool bad = false;
    for (size_t i = 0; i < n; i++) bad |= (lp_blocks_iq1_m_d(at + i * stride) & 0x7c00) == 0x7c00;
    return bad;
}

// Whether n blocks from `at` hold a non-finite scale
static bool any_nonfinite(const struct row *row, const uint8_t *at, size_t n) {
    size_t stride = row->info.block_bytes, first = row->scale_at[0];
    switch (row->scale) {
    case SCALE_NONE:
        return false;
    case SCALE_F16:
        if (stride == 2) return any_16(at, n, 2, 0x7c00); // F16 itself: contiguous, vectorised
        return any_16(at + first, n, stride, 0x7c00) ||
               (row->n_scales == 2 && any_16(at + row->scale_at[1], n, stride, 0x7c00));
    case SCALE_BF16:
        return any_16(at, n, 2, 0x7f80);
    case SCALE_F32:
        if (stride == 4) return any_32(at, n, 4, 0x7f800000);
        return any_32(at + first, n, stride, 0x7f800000);
    case SCALE_F64:
        return any_64(at, n, 8, 0x7ff0000000000000);
    case SCALE_IQ1_M:
        return any_iq1_m(at + first, n, stride);
    }
    return false;
}

int64_t lp_type_find_nonfinite(lp_type type, const void *blocks, size_t n) {
    if (!lp_type_info((uint32_t)type)) return -1;
    const struct row *row = &rows[type];
    if (row->scale == SCALE_NONE) return -1;
    const uint8_t *bytes = blocks;
    size_t n_blocks = n / row->info.block_values, block_bytes = row->info.block_bytes;
    size_t chunk = block_bytes <= 8 ? 4096 : 64; // a few cache lines up to a few pages
    for (size_t i = 0; i < n_blocks; i += chunk) {
        size_t part = n_blocks - i < chunk ? n_blocks - i : chunk;
        if (!any_nonfinite(row, bytes + i * block_bytes, part)) continue;
        for (size_t j = i; j < i + part; j++) // found again, to name it
            if (any_nonfinite(row, bytes + j * block_bytes, 1)) return (int64_t)j;
    }
    return -1;
}
