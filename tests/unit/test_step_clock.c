// The kinds of operation add up to the time between start and the last word, whatever the clock says.
#include "lp_test.h"

#include <time.h>

#include "base/clock.h"
#include "trace/step_clock.h"

static void spend(long us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static uint64_t sum(const struct lp_step_clock *c) {
    uint64_t all = 0;
    for (int i = 0; i < LP_STEP_N_PARTS; i++) all += c->ns[i];
    return all;
}

static void every_moment_belongs_to_one_kind(void **state) {
    (void)state;
    struct lp_step_clock c = {0};
    spend(2000); // before the start: nobody's
    uint64_t before = lp_clock_ns();
    lp_step_clock_start(&c);
    uint64_t start = c.last_ns;
    spend(3000);
    lp_step_lap(&c, LP_STEP_PART_PROJECT);
    spend(1000);
    lp_step_lap(&c, LP_STEP_PART_EXPERTS);
    spend(2000);
    lp_step_lap(&c, LP_STEP_PART_PROJECT);
    assert_true(before <= start && c.last_ns <= lp_clock_ns());
    assert_int_equal(sum(&c), c.last_ns - start);
    assert_true(c.ns[LP_STEP_PART_PROJECT] >= 5000000);
    assert_true(c.ns[LP_STEP_PART_EXPERTS] >= 1000000);
    assert_int_equal(c.calls[LP_STEP_PART_PROJECT], 2);
    assert_int_equal(c.calls[LP_STEP_PART_EXPERTS], 1);
    assert_int_equal(c.calls[LP_STEP_PART_HEAD], 0);
}

static void time_moves_from_one_kind_to_another(void **state) {
    (void)state;
    struct lp_step_clock c = {.ns[LP_STEP_PART_EXPERTS] = 100};
    lp_step_clock_move(&c, LP_STEP_PART_EXPERTS, LP_STEP_PART_WAIT, 30);
    assert_int_equal(c.ns[LP_STEP_PART_EXPERTS], 70);
    assert_int_equal(c.ns[LP_STEP_PART_WAIT], 30);
    lp_step_clock_move(&c, LP_STEP_PART_EXPERTS, LP_STEP_PART_WAIT, 1000); // threads that overlap
    assert_int_equal(c.ns[LP_STEP_PART_EXPERTS], 0);
    assert_int_equal(c.ns[LP_STEP_PART_WAIT], 100);
    assert_int_equal(c.calls[LP_STEP_PART_WAIT], 2);
    lp_step_clock_move(&c, LP_STEP_PART_EXPERTS, LP_STEP_PART_WAIT, 5);
    assert_int_equal(c.calls[LP_STEP_PART_WAIT], 2);
}

static void differences_are_by_kind(void **state) {
    (void)state;
    struct lp_step_clock a = {.ns[LP_STEP_PART_HEAD] = 9, .calls[LP_STEP_PART_HEAD] = 4},
                         b = {.ns[LP_STEP_PART_HEAD] = 2, .calls[LP_STEP_PART_HEAD] = 1}, d;
    lp_step_clock_difference(&d, &a, &b);
    assert_int_equal(d.ns[LP_STEP_PART_HEAD], 7);
    assert_int_equal(d.calls[LP_STEP_PART_HEAD], 3);
    assert_int_equal(sum(&d), 7);
}

static void no_clock_counts_nothing(void **state) {
    (void)state;
    lp_step_clock_start(NULL);
    lp_step_lap(NULL, LP_STEP_PART_HEAD);
    lp_step_clock_move(NULL, LP_STEP_PART_HEAD, LP_STEP_PART_WAIT, 1);
}

static void names_differ(void **state) {
    (void)state;
    for (enum lp_step_part i = 0; i < LP_STEP_N_PARTS; i++) {
        assert_true(strlen(lp_step_part_meaning(i)) > 0);
        for (enum lp_step_part k = 0; k < i; k++)
            assert_string_not_equal(lp_step_part_name(i), lp_step_part_name(k));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_moment_belongs_to_one_kind),
                                       cmocka_unit_test(time_moves_from_one_kind_to_another),
                                       cmocka_unit_test(differences_are_by_kind),
                                       cmocka_unit_test(no_clock_counts_nothing),
                                       cmocka_unit_test(names_differ)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
