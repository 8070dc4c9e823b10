// The rule-bound quantisers: published bytes, rounding, and what becomes of extreme input.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
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
        cmocka_unit_test(float_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
