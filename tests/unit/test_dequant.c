// The dequantisers against published one-block vectors (made by running the formats' C reference)
// and against the gguf Python package on pseudo-random blocks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "quant/blocks.h"
#include "quant/quant.h"
#include "quant_vectors.h"

struct vector {
    lp_type type;
    uint32_t crc; // of the float32 values of the block
    double sum;   // exact
    double first[6], last;
};

// Input: published_block()
static const struct vector published[] = {
    {LP_TYPE_Q4_0, 0xF0D25AFD, -1.03125, {0.09375, -0.125, 0.15625, -0.0625, 0.21875, 0}, -0.25},
    {LP_TYPE_Q4_1, 0xA833CD2C, -0.96875, {0.15625, -0.0625, 0.21875, 0, -0.21875, 0.0625}, 0.03125},
    {LP_TYPE_Q5_0, 0xFB92137A, -1.40625, {0.46875, 0.25, -0.46875, 0.3125, 0.09375, 0.375}, 0.0625},
    {LP_TYPE_Q5_1,
     0x6B619D56,
     7.65625,
     {0.28125, 0.0625, 0.34375, 0.625, -0.09375, 0.1875},
     0.09375},
    {LP_TYPE_Q8_0,
     0x6A5A060C,
     0.3125,
     {-2.15625, 0.125, 2.40625, -3.3125, -1.03125, 1.25},
     -2.53125},
    {LP_TYPE_Q2_K, 0x84B28BED, 64.5, {0.25, 0.53125, 0.8125, -0.03125, 0.25, 0.53125}, -0.109375},
    {LP_TYPE_Q3_K, 0x05EC8C93, 17.40625, {-2, 1, 0, 3, -2, 1}, 1.78125},
    {LP_TYPE_Q4_K,
     0xFC42B562,
     1586.375,
     {2.890625, 0.046875, 3.703125, 0.859375, 4.515625, 1.671875},
     -0.359375},
    {LP_TYPE_Q5_K,
     0xF30F7838,
     3313.125,
     {8.171875, 5.328125, 8.984375, -0.359375, 9.796875, 0.453125},
     -0.359375},
    {LP_TYPE_Q6_K,
     0x3CE01368,
     226.1875,
     {22.96875, -6.5625, -88.59375, 91.875, 9.84375, -19.6875},
     22.3125},
    {LP_TYPE_Q8_K, 0x6ADC2092, 13, {2.40625, -3.3125, -1.03125, 1.25, 3.53125, -2.1875}, -0.625},
    {LP_TYPE_IQ1_S,
     0xF7DC2FEE,
     2.75,
     {0.03515625, 0.03515625, 0.31640625, 0.03515625, 0.31640625, 0.31640625},
     0.24609375},
    {LP_TYPE_IQ1_M,
     0x62074369,
     -4.25,
     {-0.35546875, 0.45703125, -0.35546875, 0.45703125, -0.35546875, 0.45703125},
     -0.17578125},
    {LP_TYPE_IQ2_XXS,
     0xF55994A5,
     -45.8984375,
     {-3.86328125, -3.86328125, -0.71875, -0.71875, -2.24609375, 2.24609375},
     2.83203125},
    {LP_TYPE_IQ2_XS,
     0xC2B77640,
     -4.50390625,
     {0.34375, -1.07421875, 0.34375, 0.34375, 1.07421875, 1.07421875},
     -0.21875},
    {LP_TYPE_IQ2_S,
     0x4F252DBE,
     -50.77734375,
     {2.63671875, 0.84375, 0.84375, -2.63671875, -2.63671875, -2.63671875},
     -0.46875},
    {LP_TYPE_IQ3_XXS,
     0xB5707695,
     24.515625,
     {-1.03125, 0.84375, -0.65625, 0.84375, -0.65625, -0.28125},
     -2.421875},
    {LP_TYPE_IQ3_S,
     0x44F17D78,
     -62.6875,
     {-3.28125, 0.65625, -9.84375, -7.21875, -9.84375, -0.65625},
     2.96875},
    {LP_TYPE_IQ4_NL,
     0xB7BFE95D,
     -15.03125,
     {1.1875, -1.53125, 2.15625, -0.6875, 3.53125, 0.03125},
     -3.96875},
    {LP_TYPE_IQ4_XS,
     0xD2096A27,
     236.0625,
     {-94.25, 22.65625, -58.90625, 48.03125, -31.71875, 80.65625},
     97.5},
    {LP_TYPE_TQ1_0, 0xB7537152, -0.46875, {-0.03125, 0, 0.03125, -0.03125, -0.03125, 0}, -0.03125},
    {LP_TYPE_TQ2_0, 0x4A4AE774, 3.90625, {0, 0.03125, 0.0625, -0.03125, 0, 0.03125}, -0.03125},
    {LP_TYPE_MXFP4,
     0x2EEDE791,
     0.390625,
     {0.03125, -0.046875, 0.0625, -0.09375, 0.125, -0.1875},
     -0.046875},
    {LP_TYPE_NVFP4,
     0xAC82F2BA,
     1510.421875,
     {-0.84375, 1.125, -1.6875, 0, 0.140625, -0.28125},
     0.015625},
    {LP_TYPE_Q1_0,
     0xAE9A53A3,
     -0.1875,
     {0.03125, 0.03125, -0.03125, 0.03125, 0.03125, 0.03125},
     -0.03125},
    {LP_TYPE_Q2_0, 0x20F88C85, 0.84375, {0.0625, 0.03125, 0.0625, 0.03125, -0.03125, 0}, -0.03125},
};
#define N_PUBLISHED (sizeof published / sizeof published[0])

static void published_blocks_give_published_values(void **state) {
    (void)state;
    for (size_t i = 0; i < N_PUBLISHED; i++) {
        const struct vector *v = &published[i];
        const struct lp_type_info *info = lp_type_info(v->type);
        uint8_t block[MAX_BLOCK_BYTES];
        float out[MAX_BLOCK_VALUES];
        published_block(v->type, block);
        info->dequant(block, out, info->block_values);
        double sum = 0.0;
        for (uint32_t j = 0; j < info->block_values; j++) sum += out[j];
        for (int j = 0; j < 6; j++)
            if (out[j] != v->first[j]) fail_msg("%s: value %d is %g", info->name, j, out[j]);
        if (out[info->block_values - 1] != v->last) fail_msg("%s: last value", info->name);
        if (sum != v->sum) fail_msg("%s: sum %.10g, expected %.10g", info->name, sum, v->sum);
        if (crc32_of_floats(out, info->block_values) != v->crc) fail_msg("%s: CRC", info->name);
    }
}

// Of E4M3 (S.EEEE.MMM, bias 7; OCP 8-bit floating point, 2023) times a scale: all 256 bytes.
static void f8_is_e4m3_times_the_scale(void **state) {
    (void)state;
    struct lp_block_f8_e4m3 blocks[2];
    float out[256];
    for (int i = 0; i < 256; i++) {
        blocks[i / 128].d = 0.375f;
        blocks[i / 128].q[i % 128] = (uint8_t)i;
    }
    lp_type_info(LP_TYPE_F8_E4M3)->dequant(blocks, out, 256);
    for (int i = 0; i < 256; i++) {
        int exponent = i >> 3 & 15, mantissa = i & 7;
        double value = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
        if ((i & 127) == 127)
            assert_true(isnan(out[i]));
        else
            assert_true(out[i] == (float)(0.375 * (i & 128 ? -value : value)));
    }
}

// Every quantised type has a published vector.
static void no_type_is_left_out(void **state) {
    (void)state;
    size_t n = 0;
    for (uint32_t id = 0; id < LP_TYPE_COUNT; id++) {
        const struct lp_type_info *info = lp_type_info(id);
        n += info && info->block_values > 1 && !info->in_memory_only;
    }
    assert_int_equal(n, N_PUBLISHED + 1); // Q8_1, which differs from Q8_0 in the place of qs only
}

struct random_vector {
    lp_type type;
    uint32_t crc;
};

// 64 blocks of random_blocks(); printed by tests/tools/quant_vectors.py from the gguf package 0.19
#define N_RANDOM_BLOCKS 64
static const struct random_vector random_vectors[] = {
    {LP_TYPE_Q4_0, 0xeeb3fea3},   {LP_TYPE_Q4_1, 0x0be8558c},    {LP_TYPE_Q5_0, 0x9bad4288},
    {LP_TYPE_Q5_1, 0xd8aeca6d},   {LP_TYPE_Q8_0, 0xf17253c0},    {LP_TYPE_Q2_K, 0x21218a0d},
    {LP_TYPE_Q3_K, 0x548c48e7},   {LP_TYPE_Q4_K, 0x2343d876},    {LP_TYPE_Q5_K, 0x8c1c5911},
    {LP_TYPE_Q6_K, 0xbaff9635},   {LP_TYPE_IQ2_XXS, 0x73a856b9}, {LP_TYPE_IQ2_XS, 0xbe4b217f},
    {LP_TYPE_IQ2_S, 0x1cb05cdd},  {LP_TYPE_IQ3_XXS, 0x23562b38}, {LP_TYPE_IQ3_S, 0x759c831c},
    {LP_TYPE_IQ1_S, 0x794b3404},  {LP_TYPE_IQ1_M, 0xa051eeec},   {LP_TYPE_IQ4_NL, 0x4ff3b211},
    {LP_TYPE_IQ4_XS, 0xa56a8910}, {LP_TYPE_TQ1_0, 0x18e15590},   {LP_TYPE_TQ2_0, 0xc5d8946a},
    {LP_TYPE_MXFP4, 0x3c379da6},  {LP_TYPE_NVFP4, 0xf8c1e237},
};

static void random_blocks_agree_with_the_gguf_package(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof random_vectors / sizeof random_vectors[0]; i++) {
        const struct lp_type_info *info = lp_type_info(random_vectors[i].type);
        size_t n = (size_t)N_RANDOM_BLOCKS * info->block_values;
        uint8_t *blocks = lp_alloc(N_RANDOM_BLOCKS, info->block_bytes);
        float *out = lp_alloc(n, sizeof *out);
        random_blocks(info->id, blocks, N_RANDOM_BLOCKS);
        info->dequant(blocks, out, n);
        if (crc32_of_floats(out, n) != random_vectors[i].crc) fail_msg("%s: CRC", info->name);
        lp_free(blocks);
        lp_free(out);
    }
}

// Blocks at odd addresses, several in a row, nothing written past the end.
static void a_row_is_its_blocks(void **state) {
    (void)state;
    for (uint32_t id = 0; id < LP_TYPE_COUNT; id++) {
        const struct lp_type_info *info = lp_type_info(id);
        if (!info || !info->dequant) continue;
        uint8_t blocks[3 * MAX_BLOCK_BYTES + 1];
        float row[3 * MAX_BLOCK_VALUES + 1], one[MAX_BLOCK_VALUES];
        random_blocks(info->id, blocks + 1, 3);
        row[3 * info->block_values] = 1234.5f;
        info->dequant(blocks + 1, row, 3 * info->block_values);
        assert_true(row[3 * info->block_values] == 1234.5f);
        for (uint32_t b = 0; b < 3; b++) {
            info->dequant(blocks + 1 + b * info->block_bytes, one, info->block_values);
            assert_memory_equal(one, row + b * info->block_values,
                                info->block_values * sizeof *one);
        }
        row[0] = 1234.5f;
        info->dequant(blocks + 1, row, 0);
        assert_true(row[0] == 1234.5f);
    }
}

static void q8_1_is_d_times_q(void **state) {
    (void)state;
    uint8_t block[36] = {0};
    put_u16(block, 0x3800);     // d = 0.5
    put_u16(block + 2, 0x4900); // s = 10 plays no part
    block[4] = 0x80;
    block[35] = 0x7f;
    float out[32];
    lp_type_info(LP_TYPE_Q8_1)->dequant(block, out, 32);
    assert_true(out[0] == -64.0f && out[1] == 0.0f && out[31] == 63.5f);
}

static void scalars(void **state) {
    (void)state;
    const uint16_t half[4] = {0x3c00, 0xc000, 0x0001, 0x7bff}, brain[2] = {0x3f80, 0xc2f7};
    const float single[2] = {0.1f, -3e38f};
    float out[4];
    lp_type_info(LP_TYPE_F16)->dequant(half, out, 4);
    assert_true(out[0] == 1.0f && out[1] == -2.0f && out[2] == 0x1p-24f && out[3] == 65504.0f);
    lp_type_info(LP_TYPE_BF16)->dequant(brain, out, 2);
    assert_true(out[0] == 1.0f && out[1] == -123.5f);
    lp_type_info(LP_TYPE_F32)->dequant(single, out, 2);
    assert_memory_equal(out, single, sizeof single);
}

// The factor is 2^(e - 128) for every e; the smallest two are subnormal in float32.
static void every_mxfp4_exponent(void **state) {
    (void)state;
    for (int e = 0; e < 256; e++) {
        uint8_t block[17] = {(uint8_t)e, 0x91}; // codes 1 and 9: +1 and -1 times the factor
        float out[32];
        lp_type_info(LP_TYPE_MXFP4)->dequant(block, out, 32);
        assert_true(out[0] == ldexp(1.0, e - 128) && out[16] == -ldexp(1.0, e - 128));
    }
}

// Unsigned E4M3, halved: bytes 0 and 0x7f are zero.
static void every_nvfp4_scale(void **state) {
    (void)state;
    for (int b = 0; b < 256; b++) {
        uint8_t block[36] = {(uint8_t)b, 0, 0, 0, 0x91};
        float out[64];
        int e = b >> 3 & 15, m = b & 7;
        double scale = e ? ldexp(8 + m, e - 7 - 3 - 1) : ldexp(m, -9 - 1);
        if (b == 0x7f) scale = 0.0;
        lp_type_info(LP_TYPE_NVFP4)->dequant(block, out, 64);
        assert_true(out[0] == scale && out[8] == -scale);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_blocks_give_published_values),
        cmocka_unit_test(f8_is_e4m3_times_the_scale),
        cmocka_unit_test(no_type_is_left_out),
        cmocka_unit_test(random_blocks_agree_with_the_gguf_package),
        cmocka_unit_test(a_row_is_its_blocks),
        cmocka_unit_test(q8_1_is_d_times_q),
        cmocka_unit_test(scalars),
        cmocka_unit_test(every_mxfp4_exponent),
        cmocka_unit_test(every_nvfp4_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
