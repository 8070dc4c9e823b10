// The searching quantisers: error on typical data against known figures, and extreme input.
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

static const lp_type types[] = {LP_TYPE_Q4_0, LP_TYPE_Q4_K, LP_TYPE_Q6_K};
#define N_TYPES 3

// x through the type and back; returns the rms of the error over the rms of x
static double round_trip(lp_type type, const float *x, float *y, size_t n) {
    const struct lp_type_info *info = lp_type_info(type);
    double error = 0.0, power = 0.0;
    for (size_t i = 0; i < n; i += 256) {
        uint8_t blocks[8 * 18 + 210];
        info->quantize(x + i, blocks, 256);
        assert_int_equal(lp_type_find_nonfinite(type, blocks, 256), -1);
        info->dequant(blocks, y + i, 256);
    }
    for (size_t i = 0; i < n; i++) {
        error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        power += (double)x[i] * x[i];
    }
    return power > 0.0 ? sqrt(error / power) : sqrt(error);
}

#define N_MANY (256 * 400)

// Q4_0 of the gguf package (no search) has 0.0860 on N(0,1); 0.07 .. 0.08 and 0.02 are what other
// quantisers of Q4_K and Q6_K reach. A step of 1/15 and of 1/63 of the range cannot do much better.
static void normal_numbers(void **state) {
    (void)state;
    static const struct {
        lp_type type;
        double least, most;
    } bounds[N_TYPES] = {{LP_TYPE_Q4_0, 0.075, 0.0830},
                         {LP_TYPE_Q4_K, 0.060, 0.0725},
                         {LP_TYPE_Q6_K, 0.014, 0.0185}};
    static float x[N_MANY], y[N_MANY];
    static const float sizes[] = {1.0f, 0.02f, 300.0f};
    struct lp_rng rng;
    for (size_t s = 0; s < 3; s++)
        for (size_t t = 0; t < N_TYPES; t++) {
            lp_rng_init(&rng, 11);
            for (size_t i = 0; i < N_MANY; i++) x[i] = sizes[s] * lp_rng_normal(&rng);
            double error = round_trip(bounds[t].type, x, y, N_MANY);
            if (error < bounds[t].least || error > bounds[t].most)
                fail_msg("%s at %g: %.5f", lp_type_info(bounds[t].type)->name, sizes[s], error);
        }
}

// A minimum pays where values are all of one sign, and must not be lost where groups differ.
static void shifted_numbers(void **state) {
    (void)state;
    static float x[N_MANY], y[N_MANY];
    struct lp_rng rng;
    lp_rng_init(&rng, 5);
    for (size_t i = 0; i < N_MANY; i++) // uniform in [-3, -1): 16 levels give a step of 2/15
        x[i] = (float)(-3.0 + 2.0 * lp_rng_unit(&rng));
    assert_true(round_trip(LP_TYPE_Q4_K, x, y, N_MANY) < 0.022); // 2/15/sqrt(12)/2.08 = 0.0185
    for (size_t i = 0; i < N_MANY; i++) {
        float size = ldexpf(1.0f, (int)(i / 32 % 8) - 6), shift = (float)(i / 32 % 3) - 1.0f;
        x[i] = size * (lp_rng_normal(&rng) + 0.5f * shift);
    }
    assert_true(round_trip(LP_TYPE_Q4_K, x, y, N_MANY) < 0.08);
    assert_true(round_trip(LP_TYPE_Q6_K, x, y, N_MANY) < 0.02);
}

static void zero(void **state) {
    (void)state;
    static const float x[256];
    float y[256];
    for (size_t t = 0; t < N_TYPES; t++) {
        memset(y, 0xff, sizeof y);
        assert_true(round_trip(types[t], x, y, 256) == 0.0);
    }
}

// A group of zeros in a block of others stays zero.
static void a_zero_group(void **state) {
    (void)state;
    float x[256], y[256];
    struct lp_rng rng;
    lp_rng_init(&rng, 3);
    for (int i = 0; i < 256; i++) x[i] = i / 32 == 2 ? 0.0f : lp_rng_normal(&rng);
    for (size_t t = 0; t < N_TYPES; t++) {
        round_trip(types[t], x, y, 256);
        for (int i = 64; i < 96; i++) assert_true(y[i] == 0.0f);
    }
}

static void constants(void **state) {
    (void)state;
    static const float values[] = {1.0f, -1.0f, 0.37f, -0.37f, 1234.5f, -3e-3f, 6e4f, -6e4f};
    for (size_t k = 0; k < sizeof values / sizeof values[0]; k++)
        for (size_t t = 0; t < N_TYPES; t++) {
            float x[256], y[256];
            for (int i = 0; i < 256; i++) x[i] = values[k];
            if (round_trip(types[t], x, y, 256) > 0.001)
                fail_msg("%s of %g: %g", lp_type_info(types[t])->name, values[k], y[0]);
        }
}

static void two_values(void **state) {
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        float x[256], y[256];
        for (int i = 0; i < 256; i++) x[i] = i % 3 ? 0.25f : -0.5f;
        assert_true(round_trip(types[t], x, y, 256) < 0.005);
    }
}

static void one_outlier(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 9);
    for (int at = 0; at < 256; at += 51)
        for (int sign = -1; sign <= 1; sign += 2)
            for (size_t t = 0; t < N_TYPES; t++) {
                float x[256], y[256];
                for (int i = 0; i < 256; i++) x[i] = 0.01f * lp_rng_normal(&rng);
                x[at] = 100.0f * (float)sign;
                round_trip(types[t], x, y, 256);
                assert_true(fabsf(y[at] - x[at]) < 1.0f);
                for (int i = 0; i < 256; i++) // no other value turns into something large
                    if (i != at) assert_true(fabsf(y[i]) < 1.0f);
            }
}

static void values_below_the_scales_become_zero(void **state) {
    (void)state;
    static const float sizes[] = {FLT_TRUE_MIN, 1e-42f, FLT_MIN, 1e-20f, 1e-12f, 1e-9f};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t t = 0; t < N_TYPES; t++) {
            float x[256], y[256];
            for (int i = 0; i < 256; i++) x[i] = i % 5 ? -sizes[s] : sizes[s];
            round_trip(types[t], x, y, 256);
            for (int i = 0; i < 256; i++) assert_true(y[i] == 0.0f);
        }
}

// Where the scales are subnormal as f16 the result is coarser, but never worse than zero, and good
// again well before the scales are normal.
static void values_near_the_smallest_scales(void **state) {
    (void)state;
    static float x[256 * 20], y[256 * 20];
    struct lp_rng rng;
    lp_rng_init(&rng, 21);
    for (float size = 1e-8f; size < 1e-3f; size *= 3.0f) {
        for (int i = 0; i < 256 * 20; i++) x[i] = size * lp_rng_normal(&rng);
        for (size_t t = 0; t < N_TYPES; t++) {
            double error = round_trip(types[t], x, y, 256 * 20);
            assert_true(error <= (size < 2e-7f ? 1.0 : size < 2e-6f ? 0.15 : 0.095));
            if (types[t] == LP_TYPE_Q6_K && size > 2e-6f) assert_true(error < 0.025);
        }
    }
}

static void huge_values_show_as_infinite_scale(void **state) {
    (void)state;
    static const float sizes[] = {1e10f, 1e30f, FLT_MAX};
    for (size_t s = 0; s < 3; s++)
        for (size_t t = 0; t < N_TYPES; t++) {
            float x[512];
            uint8_t blocks[2 * 8 * 18 + 2 * 210];
            for (int i = 0; i < 512; i++) x[i] = i < 256 ? 1.0f : sizes[s] * (i & 1 ? 1.0f : -0.7f);
            const struct lp_type_info *info = lp_type_info(types[t]);
            info->quantize(x, blocks, 512);
            assert_int_equal(lp_type_find_nonfinite(types[t], blocks, 512),
                             256 / info->block_values);
        }
}

static void nan_and_infinity_show_in_the_scale(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < 3; k++)
        for (size_t t = 0; t < N_TYPES; t++) {
            float x[256];
            uint8_t blocks[8 * 18 + 210];
            for (int i = 0; i < 256; i++) x[i] = (float)i;
            x[255] = bad[k];
            const struct lp_type_info *info = lp_type_info(types[t]);
            info->quantize(x, blocks, 256);
            assert_int_equal(lp_type_find_nonfinite(types[t], blocks, 256),
                             256 / info->block_values - 1);
        }
}

// What a block can hold exactly is found again nearly exactly.
static void representable_values_come_back(void **state) {
    (void)state;
    static uint8_t blocks[64 * 210];
    static float x[64 * 256], y[64 * 256];
    static const double most[N_TYPES] = {0.02, 0.03, 0.01};
    for (size_t t = 0; t < N_TYPES; t++) {
        size_t n = 64 * lp_type_info(types[t])->block_values;
        random_blocks(types[t], blocks, 64);
        lp_type_info(types[t])->dequant(blocks, x, n);
        double error = round_trip(types[t], x, y, n);
        if (error > most[t]) fail_msg("%s: %.4f", lp_type_info(types[t])->name, error);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_numbers),
        cmocka_unit_test(shifted_numbers),
        cmocka_unit_test(zero),
        cmocka_unit_test(a_zero_group),
        cmocka_unit_test(constants),
        cmocka_unit_test(two_values),
        cmocka_unit_test(one_outlier),
        cmocka_unit_test(values_below_the_scales_become_zero),
        cmocka_unit_test(values_near_the_smallest_scales),
        cmocka_unit_test(huge_values_show_as_infinite_scale),
        cmocka_unit_test(nan_and_infinity_show_in_the_scale),
        cmocka_unit_test(representable_values_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
