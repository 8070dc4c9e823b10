// Figures of a row, against sums done by hand.
#include "lp_test.h"

#include <math.h>

#include "cli/bench_report.h"

static void shares_are_of_all_the_time(void **state) {
    (void)state;
    struct lp_bench_row r = {.wall_s = 20};
    r.part_s[LP_STEP_PART_EXPERTS] = 12;
    r.part_s[LP_STEP_PART_HEAD] = 3;
    double sum = 0;
    for (int i = 0; i <= LP_STEP_N_PARTS; i++) sum += lp_bench_share(&r, i);
    assert_true(fabs(sum - 1) < 1e-12);
    assert_true(fabs(lp_bench_share(&r, LP_STEP_PART_EXPERTS) - 0.6) < 1e-12);
    assert_true(fabs(lp_bench_share(&r, LP_STEP_N_PARTS) - 0.25) < 1e-12);
    assert_string_equal(lp_bench_share_name(LP_STEP_N_PARTS), "between_steps");
    r.wall_s = 0; // nothing ran
    memset(r.part_s, 0, sizeof r.part_s);
    assert_true(lp_bench_share(&r, LP_STEP_PART_HEAD) == 0);
}

// 100 tokens in 10 s, of which matrices take 4; 5 G multiply-adds a token, 1 of them in attention;
// a peak of 200 G a second: 100 * (5 - 1) / 4 = 100 of 200.
static void matrices_are_held_against_their_own_time(void **state) {
    (void)state;
    struct lp_bench_row r = {.wall_s = 10,
                             .tok_s = 10,
                             .cost = {.int_madds = 5e9, .up_int_madds = 1e9, .float_madds = 7e9},
                             .limits = {.int_madds_s = 200e9}};
    r.part_s[LP_STEP_PART_PROJECT] = 1;
    r.part_s[LP_STEP_PART_EXPERTS] = 2.5;
    r.part_s[LP_STEP_PART_HEAD] = 0.5;
    r.part_s[LP_STEP_PART_ATTEND_EXPANDED] = 5;
    r.part_s[LP_STEP_PART_ROUTER] = 0.5; // its weights are floats
    assert_true(fabs(lp_bench_matrix_fraction(&r) - 0.5) < 1e-12);
    r.limits.int_madds_s = 0;
    assert_true(lp_bench_matrix_fraction(&r) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares_are_of_all_the_time),
                                       cmocka_unit_test(matrices_are_held_against_their_own_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
