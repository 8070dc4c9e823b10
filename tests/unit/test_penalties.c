#include "lp_test.h"

#include <float.h>
#include <math.h>

#include "engine/penalties.h"

enum { N_VOCAB = 6 };

static void bias_is_added(void **state) {
    (void)state;
    float logits[N_VOCAB] = {1, 2, 3, 4, 5, 6};
    const struct lp_bias bias[] = {{4, -100}, {0, 2.5f}, {0, 0.25f}};
    lp_penalties_bias(logits, bias, 3);
    const float expected[N_VOCAB] = {3.75f, 2, 3, 4, -95, 6};
    assert_memory_equal(logits, expected, sizeof expected);
}

static void repetition_divides_positive_and_multiplies_others(void **state) {
    (void)state;
    float logits[N_VOCAB] = {3, -3, 0, 0.75f, 2, -1};
    int32_t scratch[N_VOCAB] = {0}, zeros[N_VOCAB] = {0};
    const int32_t tokens[] = {0, 1, 0, 3, 2, 1}; // once an id, however often it occurs
    lp_penalties_repetition(logits, scratch, tokens, 6, 1.5f);
    const float expected[N_VOCAB] = {2, -4.5f, 0, 0.5f, 2, -1};
    assert_memory_equal(logits, expected, sizeof expected);
    assert_memory_equal(scratch, zeros, sizeof zeros);
    lp_penalties_repetition(logits, scratch, tokens, 1, 0.5f); // below 1 it encourages
    assert_true(logits[0] == 4);
}

static void counts_are_charged(void **state) {
    (void)state;
    float logits[N_VOCAB] = {1, 1, 1, 1, 1, 1};
    int32_t scratch[N_VOCAB] = {0}, zeros[N_VOCAB] = {0};
    const int32_t tokens[] = {5, 2, 5, 5};
    lp_penalties_count(logits, scratch, tokens, 4, 0.5f, 0.25f);
    const float expected[N_VOCAB] = {1, 1, 1 - 0.75f, 1, 1, 1 - 1.25f};
    assert_memory_equal(logits, expected, sizeof expected);
    assert_memory_equal(scratch, zeros, sizeof zeros);
    lp_penalties_count(logits, scratch, tokens, 4, -2, 0); // negative encourages
    assert_true(logits[5] == 1.75f);
    lp_penalties_count(logits, scratch, tokens, 0, 2, 2);
    assert_true(logits[5] == 1.75f);
}

static void results_stay_finite(void **state) {
    (void)state;
    float logits[2] = {FLT_MAX, -FLT_MAX};
    int32_t scratch[2] = {0};
    const int32_t tokens[] = {0, 1};
    lp_penalties_repetition(logits, scratch, tokens, 1, 1e-30f);
    assert_true(logits[0] == FLT_MAX);
    lp_penalties_repetition(logits, scratch, tokens + 1, 1, 10);
    assert_true(logits[1] == -FLT_MAX);
    assert_true(lp_penalties_lower(-FLT_MAX, 1e35) == -FLT_MAX);
    assert_true(lp_penalties_lower(1, INFINITY) == -FLT_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bias_is_added),
        cmocka_unit_test(repetition_divides_positive_and_multiplies_others),
        cmocka_unit_test(counts_are_charged),
        cmocka_unit_test(results_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
