// f16 <-> float32 against ldexp and against the rule "nearest, ties to even", over all f16 values.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "quant/quant.h"

static double f16_value(uint16_t bits) { // finite
    int exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    double v = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -v : v;
}

static void every_f16_is_exact(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float v = lp_f16_to_f32((uint16_t)h);
        if ((h & 0x7c00) != 0x7c00) {
            assert_true((double)v == f16_value((uint16_t)h));
            assert_int_equal(signbit(v) != 0, h >> 15);
            assert_int_equal(lp_f32_to_f16(v), h);
        } else if (h & 0x3ff) {
            assert_true(isnan(v));
            uint16_t back = lp_f32_to_f16(v);
            assert_true((back & 0x7c00) == 0x7c00 && (back & 0x3ff));
        } else {
            assert_true(isinf(v) && (signbit(v) != 0) == (h >> 15));
            assert_int_equal(lp_f32_to_f16(v), h);
        }
    }
}

static void between_two_f16_the_nearer_wins_and_a_tie_goes_to_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = f16_value((uint16_t)h),
               high = h == 0x7bff ? 65536.0 : f16_value((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2); // exact: one bit more than f16
        uint32_t even = h & 1 ? h + 1 : h;
        for (uint32_t sign = 0; sign < 2; sign++) {
            float s = sign ? -1.0f : 1.0f;
            assert_int_equal(lp_f32_to_f16(s * middle), even | sign << 15);
            assert_int_equal(lp_f32_to_f16(s * nextafterf(middle, 0.0f)), h | sign << 15);
            assert_int_equal(lp_f32_to_f16(s * nextafterf(middle, INFINITY)), (h + 1) | sign << 15);
        }
    }
}

static void far_values(void **state) {
    (void)state;
    assert_int_equal(lp_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(lp_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(lp_f32_to_f16(3.4e38f), 0x7c00);
    assert_int_equal(lp_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(lp_f32_to_f16(1e-45f), 0);
    assert_int_equal(lp_f32_to_f16(-1e-45f), 0x8000);
    uint32_t payload = 0x7f800001; // its bits are all below those an f16 keeps: must stay a NaN
    float nan_value;
    memcpy(&nan_value, &payload, sizeof nan_value);
    assert_int_equal(lp_f32_to_f16(nan_value), 0x7e00);
}

static void bf16_is_the_upper_half_rounded_to_even(void **state) {
    (void)state;
    assert_true(lp_bf16_to_f32(0x3fc0) == 1.5f);
    assert_true(isinf(lp_bf16_to_f32(0x7f80)));
    assert_int_equal(lp_f32_to_bf16(1.0f + 0x1p-8f), 0x3f80); // tie, even below
    assert_int_equal(lp_f32_to_bf16(1.0f + 0x1p-8f + 0x1p-23f), 0x3f81);
    assert_int_equal(lp_f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82); // tie, even above
    assert_int_equal(lp_f32_to_bf16(3.4028235e38f), 0x7f80);      // the nearest is infinity
    uint32_t payload = 0xff800001;
    float nan_value;
    memcpy(&nan_value, &payload, sizeof nan_value);
    assert_int_equal(lp_f32_to_bf16(nan_value), 0xffc0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_is_exact),
        cmocka_unit_test(between_two_f16_the_nearer_wins_and_a_tie_goes_to_even),
        cmocka_unit_test(far_values),
        cmocka_unit_test(bf16_is_the_upper_half_rounded_to_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
