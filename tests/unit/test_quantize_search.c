// The searching quantisers: error on typical data against known figures, and extreme input.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "quant/quant.h"
#include "quant_vectors.h"

static const lp_type types[] = {LP_TYPE_Q4_0, LP_TYPE_Q5_0,   LP_TYPE_Q4_K,  LP_TYPE_Q5_K,
                                LP_TYPE_Q6_K, LP_TYPE_IQ4_NL, LP_TYPE_IQ4_XS};
#define N_TYPES (sizeof types / sizeof types[0])
#define MOST_BYTES 210 // of 256 values: Q6_K

static bool is_codebook(lp_type type) {
    return type == LP_TYPE_IQ4_NL || type == LP_TYPE_IQ4_XS;
}

// x through the type and back; returns the rms of the error over the rms of x
static double round_trip(lp_type type, const float *x, float *y, size_t n) {
    const struct lp_type_info *info = lp_type_info(type);
    double error = 0.0, power = 0.0;
    for (size_t i = 0; i < n; i += 256) {
        uint8_t blocks[MOST_BYTES];
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

// The most: what llama.cpp's quantisers have on such numbers (docs/quantize-quality.md); the least:
// a tenth below, where no search of scales gets.
static void normal_numbers(void **state) {
    (void)state;
    static const struct {
        lp_type type;
        double least, most;
    } bounds[N_TYPES] = {
        {LP_TYPE_Q4_0, 0.0770, 0.0863},   {LP_TYPE_Q5_0, 0.0380, 0.0429},
        {LP_TYPE_Q4_K, 0.0640, 0.0716},   {LP_TYPE_Q5_K, 0.0320, 0.0362},
        {LP_TYPE_Q6_K, 0.0160, 0.0178},   {LP_TYPE_IQ4_NL, 0.0680, 0.0762},
        {LP_TYPE_IQ4_XS, 0.0680, 0.0768},
    };
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
    assert_true(round_trip(LP_TYPE_Q4_K, x, y, N_MANY) < 0.0187); // 2/15/sqrt(12)/2.08 = 0.0185
    assert_true(round_trip(LP_TYPE_Q5_K, x, y, N_MANY) < 0.0090); // 2/31/sqrt(12)/2.08 = 0.0090
    for (size_t i = 0; i < N_MANY; i++) {
        float size = ldexpf(1.0f, (int)(i / 32 % 8) - 6), shift = (float)(i / 32 % 3) - 1.0f;
        x[i] = size * (lp_rng_normal(&rng) + 0.5f * shift);
    }
    assert_true(round_trip(LP_TYPE_Q4_K, x, y, N_MANY) < 0.08);
    assert_true(round_trip(LP_TYPE_Q6_K, x, y, N_MANY) < 0.02);
}

// ---- the least error there is

// Of 32 or 16 values with one scale and the grid k[0 .. n - 1], ascending: scales so near to each
// other that two trials seldom differ in an integer, either sign, each improved in closed form
static double least_of_scale(const float *x, const float *w, int size, const double *k, int n) {
    double extreme = 0.0, least = INFINITY, largest = fmax(-k[0], k[n - 1]);
    for (int i = 0; i < size; i++) extreme = fmax(extreme, fabs((double)x[i]));
    for (int trial = -3000; trial <= 3000; trial++) {
        double inverse = (double)trial / 2000.0 * largest / extreme, xk = 0, kk = 0, xx = 0;
        for (int i = 0; i < size; i++) {
            int q = 0;
            while (q < n - 1 && x[i] * inverse > 0.5 * (k[q] + k[q + 1])) q++;
            xk += w[i] * x[i] * k[q];
            kk += w[i] * k[q] * k[q];
            xx += (double)w[i] * x[i] * x[i];
        }
        if (kk > 0.0) least = fmin(least, xx - xk * xk / kk);
    }
    return least;
}

// Of 32 values with a scale and a minimum
static double least_of_affine(const float *x, int levels) {
    double low = 0.0, high = 0.0, least = INFINITY;
    for (int i = 0; i < 32; i++) low = fmin(low, x[i]);
    for (int i = 0; i < 32; i++) high = fmax(high, x[i]);
    for (double more = -5.0; more <= 3.0; more += 0.1)
        for (double shift = -0.6; shift <= 0.6; shift += 0.1) {
            double scale = (high - low) / (levels + more), min = -low - shift * scale;
            for (int round = 0; round < 3; round++) {
                double sx = 0, sq = 0, sqq = 0, sxq = 0, error = 0;
                for (int i = 0; i < 32; i++) {
                    double q = fmin(fmax(nearbyint((x[i] + min) / scale), 0.0), levels);
                    sx += x[i], sq += q, sqq += q * q, sxq += x[i] * q;
                    error += (x[i] - scale * q + min) * (x[i] - scale * q + min);
                }
                if (min >= 0.0) least = fmin(least, error);
                scale = (32.0 * sxq - sx * sq) / (32.0 * sqq - sq * sq);
                min = (scale * sq - sx) / 32.0;
            }
        }
    return least;
}

// Blocks with one scale come within half a per cent of the least error, groups whose scales are
// integers of few bits within what those bits cost.
static void near_the_least_error(void **state) {
    (void)state;
    static const struct {
        lp_type type;
        int size, levels; // levels: of an affine type; less than zero: -L .. L - 1; 0: the codebook
        double most;
    } cases[] = {{LP_TYPE_Q4_0, 32, -8, 1.005},  {LP_TYPE_Q5_0, 32, -16, 1.005},
                 {LP_TYPE_IQ4_NL, 32, 0, 1.005}, {LP_TYPE_IQ4_XS, 32, 0, 1.025},
                 {LP_TYPE_Q6_K, 16, -32, 1.10},  {LP_TYPE_Q4_K, 32, 15, 1.04},
                 {LP_TYPE_Q5_K, 32, 31, 1.10}};
    static const double book[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
    enum { N = 256 * 12 };
    static float x[N], y[N], ones[32];
    struct lp_rng rng;
    for (int i = 0; i < 32; i++) ones[i] = 1.0f;
    for (size_t t = 0; t < sizeof cases / sizeof cases[0]; t++) {
        double linear[64], least = 0.0, error = 0.0;
        int levels = cases[t].levels, size = cases[t].size;
        for (int k = 0; k < 64; k++) linear[k] = k + levels;
        lp_rng_init(&rng, 31);
        for (int i = 0; i < N; i++) x[i] = lp_rng_normal(&rng);
        round_trip(cases[t].type, x, y, N);
        for (int i = 0; i < N; i += size)
            least += levels > 0   ? least_of_affine(x + i, levels)
                     : levels < 0 ? least_of_scale(x + i, ones, size, linear, -2 * levels)
                                  : least_of_scale(x + i, ones, size, book, 16);
        for (int i = 0; i < N; i++) error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        if (error > cases[t].most * least || error < 0.999 * least)
            fail_msg("%s: %.4f of the least", lp_type_info(cases[t].type)->name, error / least);
    }
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
            // -3e-3: these d are subnormal as f16, and half a step of s is left, of 100 and of 30
            bool coarse = fabsf(values[k]) < 0.01f;
            double most = coarse && types[t] == LP_TYPE_Q6_K     ? 0.005
                          : coarse && types[t] == LP_TYPE_IQ4_XS ? 0.017
                                                                 : 0.001;
            if (round_trip(types[t], x, y, 256) > most)
                fail_msg("%s of %g: %g", lp_type_info(types[t])->name, values[k], y[0]);
        }
}

static void two_values(void **state) {
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        float x[256], y[256];
        for (int i = 0; i < 256; i++) x[i] = i % 3 ? 0.25f : -0.5f;
        // no two entries of the codebook are -1 : 2, the nearest 35 : -69
        double most = is_codebook(types[t]) ? 0.015 : 0.005;
        assert_true(round_trip(types[t], x, y, 256) < most);
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
            // the codebook's steps are about 16 d
            float coarse = is_codebook(types[t]) ? 16.0f * 2e-7f : 2e-7f;
            if (error > (size < coarse ? 1.0 : size < 10.0f * coarse ? 0.15 : 0.095))
                fail_msg("%s at %g: %.4f", lp_type_info(types[t])->name, size, error);
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
            uint8_t blocks[2 * MOST_BYTES];
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
            uint8_t blocks[MOST_BYTES];
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
    // Those with one scale: where the block fills the grid exactly, else nearly
    static const double most[N_TYPES] = {0.02, 0.01, 0.03, 0.015, 0.01, 0.02, 0.03};
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
        cmocka_unit_test(near_the_least_error),
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
