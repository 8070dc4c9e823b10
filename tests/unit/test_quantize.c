// The rule-bound quantisers: published bytes, rounding, and what becomes of extreme input.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "quant/blocks.h"
#include "quant/quant.h"
#include "quant_vectors.h"

#define N 256

static void quantize(lp_type type, const float *x, uint8_t *blocks) {
    lp_type_info(type)->quantize(x, blocks, N);
}

static void dequantize(lp_type type, const uint8_t *blocks, float *y) {
    lp_type_info(type)->dequant(blocks, y, N);
}

static uint16_t u16_at(const uint8_t *at) {
    uint16_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

// Published: x_i = (((73 i + 41) mod 256) - 128) / 16, CRC-32 of the bytes
static void published_input_gives_published_bytes(void **state) {
    (void)state;
    static const int8_t first[8] = {-86, -14, 59, -123, -51, 22, 94, -87};
    float x[N];
    uint8_t b[N / 32 * 36];
    for (int i = 0; i < N; i++) x[i] = (float)((73 * i + 41) % 256 - 128) / 16.0f;

    quantize(LP_TYPE_Q8_0, x, b);
    assert_int_equal(u16_at(b), 0x2c08);
    assert_memory_equal(b + 2, first, sizeof first);
    assert_int_equal(crc32_of(b, 272), 0x8e8c5046);

    quantize(LP_TYPE_Q8_1, x, b);
    assert_int_equal(u16_at(b), 0x2c08);
    assert_int_equal(u16_at(b + 2), 0xd0de);
    assert_int_equal(crc32_of(b, 288), 0xfea082f5);

    uint8_t k[292];
    quantize(LP_TYPE_Q8_K, x, k);
    float d;
    memcpy(&d, k, sizeof d);
    assert_true(d == 0.0629921257f);
    assert_memory_equal(k + 4, first, sizeof first);
    assert_int_equal((int16_t)u16_at(k + 260), -309);
    assert_int_equal((int16_t)u16_at(k + 262), -309);
    assert_int_equal((int16_t)u16_at(k + 290), -55);
    assert_int_equal(crc32_of(k, 292), 0xfd002641);
}

// Halves go away from zero in Q8_0, to even in Q8_K.
static void halves(void **state) {
    (void)state;
    static const float x[N] = {127.0f, 0.5f, -0.5f, 1.5f, -2.5f, 0.49999997f, 126.5f};
    static const int8_t away[7] = {127, 1, -1, 2, -3, 0, 127},
                        even[7] = {-127, 0, 0, -2, 2, 0, -126};
    uint8_t b[292];
    quantize(LP_TYPE_Q8_0, x, b);
    assert_memory_equal(b + 2, away, sizeof away);
    quantize(LP_TYPE_Q8_K, x, b);
    assert_memory_equal(b + 4, even, sizeof even);
}

static void the_error_is_half_a_step(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 7);
    for (int round = 0; round < 200; round++) {
        float x[N], y[N];
        uint8_t b[292];
        float size = ldexpf(1.0f, round % 20 - 10);
        for (int i = 0; i < N; i++) x[i] = size * lp_rng_normal(&rng);
        quantize(LP_TYPE_Q8_0, x, b);
        dequantize(LP_TYPE_Q8_0, b, y);
        for (int i = 0; i < N; i++) {
            float largest = 0.0f; // of the block of 32
            for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++)
                largest = fmaxf(largest, fabsf(x[j]));
            // half a step, and d rounded to 11 bits (fewer where it is subnormal as f16)
            float step = largest / 127.0f, d_error = fmaxf(step * 0x1p-11f, 0x1p-25f);
            assert_true(fabsf(x[i] - y[i]) <= step * 0.5001f + 127.0f * d_error);
        }
        quantize(LP_TYPE_Q8_K, x, b);
        dequantize(LP_TYPE_Q8_K, b, y);
        float largest = 0.0f;
        for (int i = 0; i < N; i++) largest = fmaxf(largest, fabsf(x[i]));
        for (int i = 0; i < N; i++) assert_true(fabsf(x[i] - y[i]) <= largest / 127.0f * 0.5001f);
    }
}

static const lp_type q8[] = {LP_TYPE_Q8_0, LP_TYPE_Q8_1, LP_TYPE_Q8_K};

static void zero_gives_zero_bytes(void **state) {
    (void)state;
    static const float x[N];
    static const uint8_t zero[292];
    for (size_t t = 0; t < 3; t++) {
        uint8_t b[292];
        memset(b, 0xff, sizeof b);
        quantize(q8[t], x, b);
        assert_memory_equal(
            b, zero, N / lp_type_info(q8[t])->block_values * lp_type_info(q8[t])->block_bytes);
    }
}

static void values_below_the_scales_become_zero(void **state) {
    (void)state;
    static const float sizes[] = {FLT_TRUE_MIN, 1e-42f, FLT_MIN, 1e-36f};
    for (size_t s = 0; s < 4; s++)
        for (size_t t = 0; t < 3; t++) {
            float x[N], y[N];
            uint8_t b[292];
            for (int i = 0; i < N; i++) x[i] = i & 1 ? -sizes[s] : sizes[s];
            quantize(q8[t], x, b);
            dequantize(q8[t], b, y);
            for (int i = 0; i < N; i++)
                if (!(q8[t] == LP_TYPE_Q8_K && sizes[s] >= 1e-36f)) assert_true(y[i] == 0.0f);
            assert_int_equal(lp_type_find_nonfinite(q8[t], b, N), -1);
        }
}

static void huge_values_fit_q8_k_and_show_as_infinite_scale_elsewhere(void **state) {
    (void)state;
    float x[N] = {0}, y[N];
    uint8_t b[292];
    x[40] = 1e38f; // 127 d must not round past FLT_MAX
    x[41] = -0.5e38f;
    quantize(LP_TYPE_Q8_K, x, b);
    dequantize(LP_TYPE_Q8_K, b, y);
    assert_true(fabsf(y[40] / 1e38f - 1.0f) < 1e-6f && fabsf(y[41] / 1e38f + 0.5f) < 0.005f);
    for (size_t t = 0; t < 2; t++) {
        quantize(q8[t], x, b);
        assert_int_equal(lp_type_find_nonfinite(q8[t], b, N), 1);
    }
}

static void nan_and_infinity_show_in_the_scale(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < 3; k++)
        for (size_t t = 0; t < 3; t++) {
            float x[N];
            uint8_t b[292];
            for (int i = 0; i < N; i++) x[i] = (float)i;
            x[70] = bad[k];
            quantize(q8[t], x, b);
            assert_int_equal(lp_type_find_nonfinite(q8[t], b, N), q8[t] == LP_TYPE_Q8_K ? 0 : 2);
        }
}

// ---- F8_E4M3: sign, four bits of exponent (bias 7), three of mantissa; OCP 8-bit floating point, 2023

static double e4m3_value(int code) { // of a code that is no NaN
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double size = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 128 ? -size : size;
}

// By looking at all of them: of two equally near ones that with an even mantissa.
static int nearest_e4m3(double x) {
    int best = -1;
    for (int sign = 0; sign < 256; sign += 128)
        for (int size = 0; size < 127; size++) {
            const int code = sign | size;
            if ((code & 128) != (signbit(x) ? 128 : 0)) continue;
            const double off = fabs(e4m3_value(code) - x);
            const double best_off = best < 0 ? INFINITY : fabs(e4m3_value(best) - x);
            if (off < best_off || (off == best_off && !(code & 1))) best = code;
        }
    return best;
}

static void check_e4m3(float x) {
    const int got = lp_blocks_to_e4m3(x), want = nearest_e4m3((double)x);
    if (got != want) fail_msg("%.9g becomes %#x, expected %#x", x, got, want);
}

static void e4m3_is_the_nearest_of_all_codes(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 8);
    for (int code = 0; code < 256; code++) {
        if ((code & 127) == 127) continue;
        const float value = (float)e4m3_value(code);
        assert_int_equal(lp_blocks_to_e4m3(value), code);
        if ((code & 127) == 126) continue;
        const float half = (float)(0.5 * (e4m3_value(code) + e4m3_value(code + 1)));
        check_e4m3(half);
        check_e4m3(nextafterf(half, 1000.0f));
        check_e4m3(nextafterf(half, -1000.0f));
    }
    for (int i = 0; i < 20000; i++) check_e4m3(ldexpf(lp_rng_normal(&rng), i % 24 - 14));
    static const float large[] = {448.0f, 449.0f, 464.0f, 480.0f, 1e30f, INFINITY, FLT_TRUE_MIN};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        const float most = large[i] > 1 ? 448.0f : 0.0f;
        assert_int_equal(lp_blocks_to_e4m3(large[i]), nearest_e4m3(most));
        assert_int_equal(lp_blocks_to_e4m3(-large[i]), nearest_e4m3(-most));
    }
    assert_int_equal(lp_blocks_to_e4m3(NAN) & 127, 127);
}

static void f8_blocks_are_the_nearest_codes_of_their_scale(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 9);
    for (int round = 0; round < 300; round++) {
        float x[256], y[256];
        struct lp_block_f8_e4m3 b[2];
        const float size = ldexpf(1.0f, round % 240 - 120);
        for (int i = 0; i < 256; i++) x[i] = size * lp_rng_normal(&rng) * (i % 5 ? 1.0f : 0.01f);
        lp_type_info(LP_TYPE_F8_E4M3)->quantize(x, b, 256);
        lp_type_info(LP_TYPE_F8_E4M3)->dequant(b, y, 256);
        for (int k = 0; k < 2; k++) {
            double largest = 0;
            for (int i = 0; i < 128; i++) largest = fmax(largest, fabs((double)x[128 * k + i]));
            assert_true(b[k].d == (float)(largest / 448));
            for (int i = 0; i < 128; i++) {
                const double exact = x[128 * k + i], d = b[k].d;
                const double off = fabs(d * e4m3_value(b[k].q[i]) - exact);
                const double least = fabs(d * e4m3_value(nearest_e4m3(exact / d)) - exact);
                assert_true(off <= least + 1e-6 * fabs(exact));
                // Half a step: 2^-4 of the value, or 2^-10 of the scale below 2^-6 of it.
                assert_true(off <= fmax(fabs(exact) * 0x1p-4, d * 0x1p-10) * (1 + 1e-6));
                assert_true(y[128 * k + i] == (float)(d * e4m3_value(b[k].q[i])));
            }
        }
    }
}

static void f8_blocks_of_zeros_tiny_and_damaged_values(void **state) {
    (void)state;
    static const struct lp_block_f8_e4m3 zero = {0};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const struct lp_type_info *f8 = lp_type_info(LP_TYPE_F8_E4M3);
    float x[256] = {0}, y[256];
    struct lp_block_f8_e4m3 b[2];
    memset(b, 0xff, sizeof b);
    x[3] = -0.0f;
    x[130] = FLT_TRUE_MIN; // whose scale is nothing
    f8->quantize(x, b, 256);
    assert_memory_equal(&b[0], &zero, sizeof zero);
    assert_memory_equal(&b[1], &zero, sizeof zero);
    for (int i = 0; i < 128; i++) x[i] = (float)(i - 64) * 1e-42f; // a scale of few digits
    f8->quantize(x, b, 128);
    f8->dequant(b, y, 128);
    for (int i = 0; i < 128; i++) assert_true(fabsf(y[i] - x[i]) <= 0.07f * 64e-42f);
    for (int k = 0; k < 3; k++) { // in: not finite; out: the whole block, and it alone
        for (int i = 0; i < 256; i++) x[i] = (float)i;
        x[70] = bad[k];
        f8->quantize(x, b, 256);
        f8->dequant(b, y, 256);
        for (int i = 0; i < 256; i++) assert_int_equal(isnan(y[i]) != 0, i < 128);
        assert_int_equal(lp_type_find_nonfinite(LP_TYPE_F8_E4M3, b, 256), 0);
    }
    x[70] = 3.4e38f;
    f8->quantize(x, b, 128);
    f8->dequant(b, y, 128);
    assert_true(fabsf(y[70] / 3.4e38f - 1) < 1e-6f);
}

static void float_types(void **state) {
    (void)state;
    float x[N] = {1.0f, -65520.0f, 0x1p-25f, 1.0f + 0x1p-9f, NAN}, y[N];
    uint8_t b[N * 4];
    quantize(LP_TYPE_F32, x, b);
    assert_memory_equal(b, x, sizeof x);
    quantize(LP_TYPE_F16, x, b);
    dequantize(LP_TYPE_F16, b, y);
    assert_true(y[0] == 1.0f && y[1] == -INFINITY && y[2] == 0.0f && y[3] == x[3] && isnan(y[4]));
    quantize(LP_TYPE_BF16, x, b);
    dequantize(LP_TYPE_BF16, b, y);
    assert_true(y[0] == 1.0f && y[1] == -65536.0f && y[2] == 0x1p-25f && y[3] == 1.0f &&
                isnan(y[4]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_input_gives_published_bytes),
        cmocka_unit_test(halves),
        cmocka_unit_test(the_error_is_half_a_step),
        cmocka_unit_test(zero_gives_zero_bytes),
        cmocka_unit_test(values_below_the_scales_become_zero),
        cmocka_unit_test(huge_values_fit_q8_k_and_show_as_infinite_scale_elsewhere),
        cmocka_unit_test(nan_and_infinity_show_in_the_scale),
        cmocka_unit_test(e4m3_is_the_nearest_of_all_codes),
        cmocka_unit_test(f8_blocks_are_the_nearest_codes_of_their_scale),
        cmocka_unit_test(f8_blocks_of_zeros_tiny_and_damaged_values),
        cmocka_unit_test(float_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
