// Rows with the importance of their columns: what it changes, what it must not, and what comes of a
// bad one; and what becomes of rows that have been quantised before.
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

enum { N_ROWS = 40, N_IN = 256 * 3, N = N_ROWS * N_IN, MOST_BYTES = N / 256 * 272 };

static const lp_type searched[] = {LP_TYPE_Q4_0, LP_TYPE_Q5_0,   LP_TYPE_Q4_K,  LP_TYPE_Q5_K,
                                   LP_TYPE_Q6_K, LP_TYPE_IQ4_NL, LP_TYPE_IQ4_XS};
static const lp_type rounded[] = {LP_TYPE_F32,  LP_TYPE_F16,  LP_TYPE_BF16,
                                  LP_TYPE_Q8_0, LP_TYPE_Q8_1, LP_TYPE_Q8_K};
#define N_SEARCHED (sizeof searched / sizeof searched[0])
#define N_ROUNDED (sizeof rounded / sizeof rounded[0])

static float x[N], y[N], importance[N_IN];
static uint8_t blocks[N * 4], other[N * 4];

static int fill(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 17);
    for (int i = 0; i < N; i++) x[i] = 0.03f * lp_rng_normal(&rng);
    for (int i = 0; i < N_IN; i++) importance[i] = expf(1.5f * lp_rng_normal(&rng));
    return 0;
}

static size_t bytes_of(lp_type type, size_t n) {
    return n / lp_type_info(type)->block_values * lp_type_info(type)->block_bytes;
}

static void quantize(lp_type type, const float *in, uint8_t *out, const float *w) {
    assert_true(lp_quantize_rows(type, in, out, N_ROWS, N_IN, w));
}

// sum w (x - y)^2, w NULL: 1
static double error_of(lp_type type, const uint8_t *b, const float *w) {
    double sum = 0.0;
    lp_type_info(type)->dequant(b, y, N);
    for (int i = 0; i < N; i++)
        sum += (w ? (double)w[i % N_IN] : 1.0) * ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    return sum;
}

static void without_importance_it_is_the_type_s_quantiser(void **state) {
    (void)state;
    for (size_t t = 0; t < N_SEARCHED; t++) {
        quantize(searched[t], x, blocks, NULL);
        lp_type_info(searched[t])->quantize(x, other, N);
        assert_memory_equal(blocks, other, bytes_of(searched[t], N));
    }
}

static void rounding_types_ignore_it(void **state) {
    (void)state;
    for (size_t t = 0; t < N_ROUNDED; t++) {
        quantize(rounded[t], x, blocks, importance);
        lp_type_info(rounded[t])->quantize(x, other, N);
        assert_memory_equal(blocks, other, bytes_of(rounded[t], N));
    }
}

static void types_without_a_quantiser_and_odd_rows_are_refused(void **state) {
    (void)state;
    static const lp_type none[] = {LP_TYPE_IQ2_XS, LP_TYPE_MXFP4, LP_TYPE_I8,
                                   LP_TYPE_F64,    (lp_type)4,    (lp_type)1000};
    for (size_t t = 0; t < sizeof none / sizeof none[0]; t++)
        assert_false(lp_quantize_rows(none[t], x, blocks, 1, 256, NULL));
    assert_false(lp_quantize_rows(LP_TYPE_Q4_K, x, blocks, 1, 128, NULL));
    assert_false(lp_quantize_rows(LP_TYPE_Q4_0, x, blocks, 1, 48, NULL));
    assert_false(lp_quantize_rows(LP_TYPE_Q4_0, x, blocks, -1, 32, NULL));
    assert_true(lp_quantize_rows(LP_TYPE_Q4_0, x, blocks, 0, 32, importance));
}

// Less where it matters, at a price elsewhere
static void it_lowers_the_weighted_error(void **state) {
    (void)state;
    for (size_t t = 0; t < N_SEARCHED; t++) {
        lp_type type = searched[t];
        quantize(type, x, blocks, NULL);
        double plain = error_of(type, blocks, NULL), weighted = error_of(type, blocks, importance);
        quantize(type, x, blocks, importance);
        double plain_with = error_of(type, blocks, NULL),
               weighted_with = error_of(type, blocks, importance);
        if (weighted_with > 0.92 * weighted || plain_with > 1.5 * plain || plain_with < plain)
            fail_msg("%s: weighted %.3f, plain %.3f", lp_type_info(type)->name,
                     weighted_with / weighted, plain_with / plain);
    }
}

static void equal_importance_is_none(void **state) {
    (void)state;
    static float equal[N_IN];
    for (int i = 0; i < N_IN; i++) equal[i] = 37.0f;
    for (size_t t = 0; t < N_SEARCHED; t++) {
        quantize(searched[t], x, blocks, NULL);
        quantize(searched[t], x, other, equal);
        double without = error_of(searched[t], blocks, NULL),
               with = error_of(searched[t], other, NULL);
        assert_true(fabs(with / without - 1.0) < 0.005);
    }
}

static void its_size_does_not_matter(void **state) {
    (void)state;
    static const int powers[] = {-120, -30, 30, 110};
    static float scaled[N_IN], coarse[N_IN] /* none is subnormal */;
    for (int i = 0; i < N_IN; i++) coarse[i] = ldexpf(rintf(importance[i] * 8.0f), -3);
    for (size_t k = 0; k < sizeof powers / sizeof powers[0]; k++)
        for (size_t t = 0; t < N_SEARCHED; t++) {
            for (int i = 0; i < N_IN; i++) scaled[i] = ldexpf(coarse[i], powers[k]);
            quantize(searched[t], x, blocks, coarse);
            quantize(searched[t], x, other, scaled);
            assert_memory_equal(blocks, other, bytes_of(searched[t], N));
        }
}

// The second block of 256 columns (the blocks of 32 in it that are at fault) as if nothing were
// known, the others as ever
static void a_bad_one_counts_as_none(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, -1.0f, -1e-30f};
    static float spoilt[N_IN];
    static uint8_t none[N * 4];
    for (size_t t = 0; t < N_SEARCHED; t++)
        for (size_t k = 0; k <= sizeof bad / sizeof bad[0]; k++) {
            lp_type type = searched[t];
            size_t values = lp_type_info(type)->block_values,
                   bytes = lp_type_info(type)->block_bytes;
            memcpy(spoilt, importance, sizeof spoilt);
            size_t at = 300 / values; // the block of column 300
            if (k < sizeof bad / sizeof bad[0])
                spoilt[300] = bad[k];
            else
                memset(spoilt + at * values, 0, values * sizeof(float));
            quantize(type, x, none, NULL);
            quantize(type, x, blocks, importance);
            quantize(type, x, other, spoilt);
            for (size_t i = 0; i < N / values; i++)
                assert_memory_equal(other + i * bytes,
                                    (i % (N_IN / values) == at ? none : blocks) + i * bytes, bytes);
        }
}

// A column that nothing meets may be clipped; it must not take the scale from the others.
static void columns_of_no_importance(void **state) {
    (void)state;
    static float with_outliers[N], w[N_IN];
    memcpy(with_outliers, x, sizeof x);
    for (int i = 0; i < N_IN; i++) w[i] = i % 16 == 3 ? 0.0f : 1.0f;
    for (int i = 0; i < N; i++)
        if (i % 16 == 3) with_outliers[i] = i & 64 ? 50.0f : -50.0f;
    for (size_t t = 0; t < N_SEARCHED; t++) {
        quantize(searched[t], x, blocks, w);
        double without = error_of(searched[t], blocks, w);
        quantize(searched[t], with_outliers, other, w);
        double with = error_of(searched[t], other, w);
        if (with > 1.05 * without)
            fail_msg("%s: %.3f times", lp_type_info(searched[t])->name, with / without);
    }
    // a whole group of a block of 256: still stored, if less well
    for (int i = 0; i < N_IN; i++) w[i] = i / 32 % 8 == 2 ? 0.0f : 1.0f;
    for (size_t t = 0; t < N_SEARCHED; t++) {
        quantize(searched[t], x, blocks, w);
        double all = error_of(searched[t], blocks, NULL);
        quantize(searched[t], x, other, NULL);
        assert_true(all < 1.1 * error_of(searched[t], other, NULL));
    }
}

static void q8_0_again_is_the_same(void **state) {
    (void)state;
    static float again[N];
    struct lp_rng rng;
    lp_rng_init(&rng, 5);
    for (int i = 0; i < N; i++) again[i] = ldexpf(lp_rng_normal(&rng), i / 32 % 40 - 30);
    quantize(LP_TYPE_Q8_0, again, blocks, NULL);
    lp_type_info(LP_TYPE_Q8_0)->dequant(blocks, again, N);
    quantize(LP_TYPE_Q8_0, again, other, NULL);
    lp_type_info(LP_TYPE_Q8_0)->dequant(other, y, N);
    for (int i = 0; i < N; i++) assert_true(y[i] == again[i]); // zeros lose their sign
    quantize(LP_TYPE_Q8_0, x, blocks, NULL);                   // and of ordinary numbers the bytes
    lp_type_info(LP_TYPE_Q8_0)->dequant(blocks, y, N);
    quantize(LP_TYPE_Q8_0, y, other, NULL);
    assert_memory_equal(blocks, other, bytes_of(LP_TYPE_Q8_0, N));
}

// What a type holds already it holds again: exactly those with one scale a block, the others but
// for a small part of the first error.
static void again_is_nearly_the_same(void **state) {
    (void)state;
    static float once[N];
    for (size_t t = 0; t < N_SEARCHED; t++) {
        double moved = 0.0;
        quantize(searched[t], x, blocks, NULL);
        double first = error_of(searched[t], blocks, NULL);
        memcpy(once, y, sizeof once);
        quantize(searched[t], once, other, NULL);
        lp_type_info(searched[t])->dequant(other, y, N);
        for (int i = 0; i < N; i++) moved += ((double)once[i] - y[i]) * ((double)once[i] - y[i]);
        bool one_scale = lp_type_info(searched[t])->block_values == 32;
        if (moved > (one_scale ? 0.0 : 0.02 * first))
            fail_msg("%s: %g of the first error", lp_type_info(searched[t])->name, moved / first);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_importance_it_is_the_type_s_quantiser),
        cmocka_unit_test(rounding_types_ignore_it),
        cmocka_unit_test(types_without_a_quantiser_and_odd_rows_are_refused),
        cmocka_unit_test(it_lowers_the_weighted_error),
        cmocka_unit_test(equal_importance_is_none),
        cmocka_unit_test(its_size_does_not_matter),
        cmocka_unit_test(a_bad_one_counts_as_none),
        cmocka_unit_test(columns_of_no_importance),
        cmocka_unit_test(q8_0_again_is_the_same),
        cmocka_unit_test(again_is_nearly_the_same),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
