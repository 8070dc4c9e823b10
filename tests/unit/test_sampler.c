#include "lp_test.h"

#include <math.h>

#include "engine/sampler.h"

static const float logits[6] = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 9.0f};
static const bool never[6] = {false, false, false, false, false, true}; // the largest is padding

static void greedy_skips_padding_and_breaks_ties_low(void **state) {
    (void)state;
    struct lp_sampler s;
    assert_int_equal(lp_sampler_init(&s, 0, 1, 0, 1, never, 6, NULL), LP_OK);
    assert_int_equal(lp_sampler_pick(&s, logits), 1);
    lp_sampler_release(&s);
}

static void log_probabilities_sum_to_one(void **state) {
    (void)state;
    double log_sum = lp_sampler_log_sum(logits, never, 6), sum = 0;
    for (int i = 0; i < 5; i++) sum += exp(logits[i] - log_sum);
    assert_true(fabs(sum - 1) < 1e-12);
    assert_true(fabs(log_sum - log(exp(1) + 2 * exp(3) + exp(2) + exp(-1))) < 1e-12);
}

static void top_is_ordered(void **state) {
    (void)state;
    int32_t ids[6];
    assert_int_equal(lp_sampler_top(logits, never, 6, 3, ids), 3);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 3);
    assert_int_equal(ids[2], 2);
    assert_int_equal(lp_sampler_top(logits, never, 6, 6, ids), 5); // there are no more
    assert_int_equal(lp_sampler_top(logits, never, 6, 0, ids), 0);
}

// Draws many tokens and compares their shares with the probabilities by formula.
static void check_shares(float temperature, float top_p, int32_t top_k, const double *expected) {
    struct lp_sampler s;
    int counts[6] = {0};
    assert_int_equal(lp_sampler_init(&s, temperature, top_p, top_k, 42, never, 6, NULL), LP_OK);
    for (int i = 0; i < 20000; i++) counts[lp_sampler_pick(&s, logits)]++;
    for (int i = 0; i < 6; i++) assert_true(fabs(counts[i] / 20000.0 - expected[i]) < 0.015);
    lp_sampler_release(&s);
}

static void shares_follow_temperature_and_filters(void **state) {
    (void)state;
    double sum = exp(0.5) + 2 * exp(1.5) + exp(1) + exp(-0.5), p[6];
    for (int i = 0; i < 6; i++) p[i] = i == 5 ? 0 : exp(logits[i] / 2.0) / sum;
    check_shares(2.0f, 1.0f, 0, p);
    const double top2[6] = {0, 0.5, 0, 0.5, 0, 0};
    check_shares(2.0f, 1.0f, 2, top2);
    check_shares(1.0f, 0.5f, 0, top2); // at temperature 1 ids 1 and 3 hold 0.41 each
    const double one[6] = {0, 1, 0, 0, 0, 0};
    check_shares(1.0f, 0.01f, 0, one);
}

static void same_seed_same_tokens(void **state) {
    (void)state;
    struct lp_sampler a, b;
    lp_sampler_init(&a, 1, 1, 0, 5, never, 6, NULL);
    lp_sampler_init(&b, 1, 1, 0, 5, never, 6, NULL);
    for (int i = 0; i < 100; i++)
        assert_int_equal(lp_sampler_pick(&a, logits), lp_sampler_pick(&b, logits));
    lp_sampler_release(&a);
    lp_sampler_release(&b);
}

static void settings_out_of_range_are_named(void **state) {
    (void)state;
    struct lp_sampler s;
    struct lp_err err;
    const float bad[][2] = {{-1, 1}, {NAN, 1}, {INFINITY, 1}, {1, 0}, {1, 1.5f}, {1, NAN}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(lp_sampler_init(&s, bad[i][0], bad[i][1], 0, 1, never, 6, &err),
                         LP_STATUS_INVALID);
    assert_int_equal(lp_sampler_init(&s, 1, 1, -1, 1, never, 6, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "top_k is -1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_skips_padding_and_breaks_ties_low),
        cmocka_unit_test(log_probabilities_sum_to_one),
        cmocka_unit_test(top_is_ordered),
        cmocka_unit_test(shares_follow_temperature_and_filters),
        cmocka_unit_test(same_seed_same_tokens),
        cmocka_unit_test(settings_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
