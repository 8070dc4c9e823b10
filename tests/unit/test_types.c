// The type table against the published list of GGUF types, and what is said of other ids.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "quant/quant.h"
#include "quant_vectors.h"

struct listed {
    uint32_t id;
    const char *name;
    uint32_t values, bytes;
    bool weight, dequant, quantize;
};

static const struct listed listed[] = {
    {0, "F32", 1, 4, true, true, true},          {1, "F16", 1, 2, true, true, true},
    {2, "Q4_0", 32, 18, true, true, true},       {3, "Q4_1", 32, 20, true, true, false},
    {6, "Q5_0", 32, 22, true, true, true},       {7, "Q5_1", 32, 24, true, true, false},
    {8, "Q8_0", 32, 34, true, true, true},       {9, "Q8_1", 32, 36, false, true, true},
    {10, "Q2_K", 256, 84, true, true, false},    {11, "Q3_K", 256, 110, true, true, false},
    {12, "Q4_K", 256, 144, true, true, true},    {13, "Q5_K", 256, 176, true, true, true},
    {14, "Q6_K", 256, 210, true, true, true},    {15, "Q8_K", 256, 292, false, true, true},
    {16, "IQ2_XXS", 256, 66, true, true, false}, {17, "IQ2_XS", 256, 74, true, true, false},
    {18, "IQ3_XXS", 256, 98, true, true, false}, {19, "IQ1_S", 256, 50, true, true, false},
    {20, "IQ4_NL", 32, 18, true, true, true},    {21, "IQ3_S", 256, 110, true, true, false},
    {22, "IQ2_S", 256, 82, true, true, false},   {23, "IQ4_XS", 256, 136, true, true, true},
    {24, "I8", 1, 1, false, false, false},       {25, "I16", 1, 2, false, false, false},
    {26, "I32", 1, 4, false, false, false},      {27, "I64", 1, 8, false, false, false},
    {28, "F64", 1, 8, false, false, false},      {29, "IQ1_M", 256, 56, true, true, false},
    {30, "BF16", 1, 2, true, true, true},        {34, "TQ1_0", 256, 54, true, true, false},
    {35, "TQ2_0", 256, 66, true, true, false},   {39, "MXFP4", 32, 17, true, true, false},
    {40, "NVFP4", 64, 36, true, true, false},    {41, "Q1_0", 128, 18, true, true, false},
    {42, "Q2_0", 64, 18, true, true, false},
};
#define N_LISTED (sizeof listed / sizeof listed[0])

static void the_table_is_the_published_list(void **state) {
    (void)state;
    size_t next = 0;
    for (uint32_t id = 0; id < 1000; id++) {
        const struct lp_type_info *info = lp_type_info(id);
        if (info && info->in_memory_only) { // of no list
            assert_int_equal(id, LP_TYPE_F8_E4M3);
            continue;
        }
        if (next == N_LISTED || listed[next].id != id) {
            assert_null(info);
            continue;
        }
        const struct listed *want = &listed[next++];
        assert_non_null(info);
        assert_int_equal(info->id, id);
        assert_string_equal(info->name, want->name);
        assert_int_equal(info->block_values, want->values);
        assert_int_equal(info->block_bytes, want->bytes);
        assert_int_equal(info->is_weight, want->weight);
        assert_int_equal(info->dequant != NULL, want->dequant);
        assert_int_equal(info->quantize != NULL, want->quantize);
    }
    assert_int_equal(next, N_LISTED);
    assert_null(lp_type_info(UINT32_MAX));
}

static void other_ids_are_named_where_known(void **state) {
    (void)state;
    static const struct {
        uint32_t id;
        const char *says;
    } cases[] = {
        {4, "type 4 (Q4_2, removed from GGUF"},
        {5, "type 5 (Q4_3, removed"},
        {31, "type 31 (Q4_0_4_4, removed from GGUF; re-convert the file)"},
        {32, "type 32 (Q4_0_4_8, removed"},
        {33, "type 33 (Q4_0_8_8, removed"},
        {36, "type 36 (IQ4_NL_4_4, removed"},
        {37, "type 37 (IQ4_NL_4_8, removed"},
        {38, "type 38 (IQ4_NL_8_8, removed"},
        {137, "type 137 (IQ2_K, made by ik_llama.cpp"},
        {144, "type 144 (IQ4_KS, made by ik_llama.cpp"},
        {212, "type 212 (Q4_K_R4, made by ik_llama.cpp"},
        {399, "type 399 (Q8_K_R8, made by ik_llama.cpp"},
        {43, "type 43 is unknown"},
        {159, "type 159 is unknown"},
        {4294967295u, "type 4294967295 is unknown"},
        {12, "type 12 (Q4_K)"},
    };
    char buffer[128];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = lp_type_explain(cases[i].id, buffer, sizeof buffer);
        if (!strstr(text, cases[i].says)) fail_msg("id %u: %s", cases[i].id, text);
    }
    char small[8];
    assert_true(strlen(lp_type_explain(137, small, sizeof small)) < sizeof small);
    assert_non_null(lp_type_explain(137, NULL, 0));
}

static void row_bytes(void **state) {
    (void)state;
    uint64_t bytes = 0;
    assert_true(lp_type_row_bytes(LP_TYPE_Q4_K, 7168, &bytes));
    assert_int_equal(bytes, 28 * 144);
    assert_true(lp_type_row_bytes(LP_TYPE_Q8_0, 0, &bytes));
    assert_int_equal(bytes, 0);
    assert_false(lp_type_row_bytes(LP_TYPE_Q4_K, 7168 + 32, &bytes));
    assert_false(lp_type_row_bytes(LP_TYPE_F32, UINT64_MAX / 2, &bytes));
    assert_false(lp_type_row_bytes(LP_TYPE_Q8_K, UINT64_MAX - 255, &bytes)); // 2^64 - 256 values
    assert_true(lp_type_row_bytes(LP_TYPE_Q1_0, UINT64_MAX - 127, &bytes));  // smaller as blocks
    assert_false(lp_type_row_bytes((lp_type)4, 32, &bytes));
    assert_false(lp_type_row_bytes((lp_type)-1, 32, &bytes));
}

#define N_BLOCKS 5000 // more than one chunk of the scan, and no multiple of it

static void expect_found(lp_type type, uint8_t *blocks, size_t at, const void *bits,
                         size_t n_bits) {
    const struct lp_type_info *info = lp_type_info(type);
    uint8_t old[8];
    static const size_t where[] = {0, 1, 63, 64, 4095, 4097, N_BLOCKS - 1};
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        uint8_t *field = blocks + where[i] * info->block_bytes + at;
        memcpy(old, field, n_bits);
        memcpy(field, bits, n_bits);
        int64_t found = lp_type_find_nonfinite(type, blocks, (size_t)N_BLOCKS * info->block_values);
        if (found != (int64_t)where[i])
            fail_msg("%s: block %zu, found %lld", info->name, where[i], (long long)found);
        // out of reach when the row ends before it
        assert_int_equal(lp_type_find_nonfinite(type, blocks, where[i] * info->block_values), -1);
        memcpy(field, old, n_bits);
    }
}

// All bytes 0xff except the scales: what is not a scale must not be taken for one.
static uint8_t *blocks_of(lp_type type) {
    const struct lp_type_info *info = lp_type_info(type);
    uint8_t *blocks = lp_alloc((size_t)N_BLOCKS + 1, info->block_bytes);
    assert_non_null(blocks);
    memset(blocks, 0xff, (size_t)N_BLOCKS * info->block_bytes);
    const struct scale_fields *fields = scale_fields_of(type);
    for (size_t b = 0; fields && b < N_BLOCKS; b++) {
        put_u16(blocks + b * info->block_bytes + fields->d, 0x7bff); // 65504, the largest f16
        if (fields->min >= 0) put_u16(blocks + b * info->block_bytes + fields->min, 0xfbff);
    }
    return blocks;
}

static void nonfinite_f16_scales_are_found(void **state) {
    (void)state;
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff};
    for (size_t i = 0; i < N_SCALE_FIELDS; i++) {
        lp_type type = scale_fields[i].type;
        uint8_t *blocks = blocks_of(type);
        size_t n = (size_t)N_BLOCKS * lp_type_info(type)->block_values;
        assert_int_equal(lp_type_find_nonfinite(type, blocks, n), -1);
        for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
            expect_found(type, blocks, (size_t)scale_fields[i].d, &bad[k], 2);
            if (scale_fields[i].min >= 0)
                expect_found(type, blocks, (size_t)scale_fields[i].min, &bad[k], 2);
        }
        lp_free(blocks);
    }
}

static void fill(uint8_t *blocks, const void *unit, size_t unit_bytes) {
    for (size_t b = 0; b < N_BLOCKS; b++) memcpy(blocks + b * unit_bytes, unit, unit_bytes);
}

static void nonfinite_values_of_the_float_types_are_found(void **state) {
    (void)state;
    uint8_t *blocks = lp_alloc(N_BLOCKS + 1, 8);
    float largest = -3.4028235e38f, bad_float = NAN;
    fill(blocks, &largest, 4);
    expect_found(LP_TYPE_F32, blocks, 0, &bad_float, 4);
    bad_float = -INFINITY;
    expect_found(LP_TYPE_F32, blocks, 0, &bad_float, 4);
    double wide = 1e308, bad_double = INFINITY;
    fill(blocks, &wide, 8);
    expect_found(LP_TYPE_F64, blocks, 0, &bad_double, 8);
    uint16_t bf16 = 0xff7f, bad_bf16 = 0x7f81;
    fill(blocks, &bf16, 2);
    expect_found(LP_TYPE_BF16, blocks, 0, &bad_bf16, 2);
    lp_free(blocks);
}

static void the_scales_of_q8_k_and_iq1_m_are_found(void **state) {
    (void)state;
    uint8_t *blocks = blocks_of(LP_TYPE_Q8_K);
    float d = 1.0f, bad = -NAN;
    for (size_t b = 0; b < N_BLOCKS; b++) memcpy(blocks + b * 292, &d, 4);
    assert_int_equal(lp_type_find_nonfinite(LP_TYPE_Q8_K, blocks, N_BLOCKS * 256), -1);
    expect_found(LP_TYPE_Q8_K, blocks, 0, &bad, 4);
    lp_free(blocks);

    // d of IQ1_M: top nibbles of the u16 at 48, 50, 52, 54; exponent bits are 6..2 of 0x7c00,
    // so in the nibbles of the third (bits 3,2 of it) and the fourth (bits 2..0)
    blocks = blocks_of(LP_TYPE_IQ1_M);
    for (size_t b = 0; b < N_BLOCKS; b++) blocks[b * 56 + 53] = 0xbf; // 0xfbff = -65504
    assert_int_equal(lp_type_find_nonfinite(LP_TYPE_IQ1_M, blocks, N_BLOCKS * 256), -1);
    uint8_t infinite = 0xcf; // 0xfcff
    expect_found(LP_TYPE_IQ1_M, blocks, 53, &infinite, 1);
    lp_free(blocks);
}

static void types_without_such_fields_have_none(void **state) {
    (void)state;
    static const lp_type none[] = {LP_TYPE_MXFP4, LP_TYPE_NVFP4, LP_TYPE_I8, LP_TYPE_I16,
                                   LP_TYPE_I32,   LP_TYPE_I64,   (lp_type)4};
    uint8_t bytes[256];
    memset(bytes, 0xff, sizeof bytes);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_int_equal(lp_type_find_nonfinite(none[i], bytes, i < 2 ? 64 : 16), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_the_published_list),
        cmocka_unit_test(other_ids_are_named_where_known),
        cmocka_unit_test(row_bytes),
        cmocka_unit_test(nonfinite_f16_scales_are_found),
        cmocka_unit_test(nonfinite_values_of_the_float_types_are_found),
        cmocka_unit_test(the_scales_of_q8_k_and_iq1_m_are_found),
        cmocka_unit_test(types_without_such_fields_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
