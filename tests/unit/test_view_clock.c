// The traces of several ranks on one clock: by their host, by the steps they have in common, by the
// hosts' wall clocks.
#include "lp_test.h"

#include "base/alloc.h"
#include "trace/view_clock.h"

enum { N = 4, MANY = 200 };

struct
    run { // steps of 400 us every 1000 us; rank 0 plans them 20 us before, and has all results 30 us behind
    struct lp_view_rank_step steps[2][MANY];
    struct lp_view_rank ranks[3];
};

static void add_rank(struct run *run, int at, int64_t ahead_us, const char *host,
                     int64_t monotonic_us) {
    struct lp_view_rank *rank = &run->ranks[at];
    *rank = (struct lp_view_rank){.steps = run->steps[at], .n = N};
    rank->process = lp_view_process_untold;
    rank->process.rank = at;
    rank->process.monotonic_us = monotonic_us;
    snprintf(rank->process.host, sizeof rank->process.host, "%s", host);
    for (int i = 0; i < N; i++) {
        const int64_t start_us = 1000 * (i + 1) + ahead_us;
        run->steps[at][i] = (struct lp_view_rank_step){.step = i,
                                                       .start_us = start_us,
                                                       .end_us = start_us + 400,
                                                       .before_us = start_us - (at ? 600 : 20),
                                                       .after_us = start_us + (at ? 1000 : 430)};
    }
}

static void align(struct run *run, size_t n) {
    struct lp_err err;
    assert_int_equal(lp_view_clock_align(run->ranks, n, &err), LP_OK);
}

static int64_t ahead_of(const struct lp_view_rank *rank) {
    return -lp_view_clock_common(rank, 0);
}

static void is_within_error(const struct lp_view_rank *rank, int64_t ahead_us) {
    assert_true(ahead_of(rank) - ahead_us <= rank->error_us);
    assert_true(ahead_us - ahead_of(rank) <= rank->error_us);
}

static void release(struct run *run, size_t n) {
    for (size_t i = 0; i < n; i++) {
        lp_free(run->ranks[i].pieces);
        run->ranks[i].pieces = NULL;
        run->ranks[i].n_pieces = run->ranks[i].max_pieces = 0;
    }
}

static struct run *two(int64_t ahead_us, const char *host, int64_t monotonic_us) {
    static struct run run;
    add_rank(&run, 0, 0, "a", 500000);
    add_rank(&run, 1, ahead_us, host, monotonic_us);
    return &run;
}

static void ranks_of_a_host_have_one_clock(void **state) {
    (void)state;
    struct run *run = two(-300, "a", 500300); // it began 300 us later, so its times are smaller
    align(run, 2);
    assert_int_equal(run->ranks[0].clock, LP_VIEW_CLOCK_COMMON);
    assert_int_equal(ahead_of(&run->ranks[0]), 0);
    assert_int_equal(run->ranks[1].clock, LP_VIEW_CLOCK_HOST);
    assert_int_equal(ahead_of(&run->ranks[1]), -300);
    release(run, 2);
    run->ranks[1].n = 0; // also where it came to no step
    align(run, 2);
    assert_int_equal(run->ranks[1].clock, LP_VIEW_CLOCK_HOST);
    release(run, 2);
}

static void steps_bring_hosts_together(void **state) {
    (void)state;
    static const int64_t aheads[] = {0, 70000, -70000, 4000000000000};
    for (size_t i = 0; i < sizeof aheads / sizeof aheads[0]; i++) {
        struct run *run = two(aheads[i], "b", 9);
        align(run, 2);
        const struct lp_view_rank *rank = &run->ranks[1];
        assert_int_equal(rank->clock, LP_VIEW_CLOCK_STEPS);
        assert_int_equal(rank->n_common, N);
        assert_int_equal(rank->error_us, (20 + 30 + 2 + 1) / 2);
        assert_int_equal(rank->apart_us, 0);
        is_within_error(rank, aheads[i]);
        release(run, 2);
    }
}

static void the_tightest_step_counts(void **state) {
    (void)state;
    struct run *run = two(70000, "b", 9);
    run->steps[1][2].start_us += 5000; // it came late to this one
    run->steps[1][2].end_us += 5000;
    run->steps[0][2].after_us += 6000;
    run->steps[0][1].after_us -= 29;
    align(run, 2);
    assert_int_equal(run->ranks[1].error_us, (1 + 20 + 2 + 1) / 2);
    is_within_error(&run->ranks[1], 70000);
    release(run, 2);
}

// A rank that crashed has fewer; of those of which one side is missing no bound is made.
static void steps_of_one_rank_alone_tell_nothing(void **state) {
    (void)state;
    struct run *run = two(70000, "b", 9);
    run->ranks[1].n = 2;
    run->steps[1][0].step = -5;
    align(run, 2);
    assert_int_equal(run->ranks[1].clock, LP_VIEW_CLOCK_STEPS);
    assert_int_equal(run->ranks[1].n_common, 1);
    release(run, 2);
    run = two(70000, "b", 9);
    for (int i = 0; i < N; i++) run->steps[0][i].after_us = INT64_MAX;
    align(run, 2);
    assert_int_equal(run->ranks[1].clock, LP_VIEW_CLOCK_NONE);
    assert_int_equal(ahead_of(&run->ranks[1]), 0);
    release(run, 2);
}

static void wall_clocks_are_the_last_resort(void **state) {
    (void)state;
    struct run *run = two(0, "b", 9);
    run->ranks[1].n = 0;
    run->ranks[0].process.wall_us = 7000000;
    run->ranks[1].process.wall_us = 7000050; // it began later
    align(run, 2);
    assert_int_equal(run->ranks[1].clock, LP_VIEW_CLOCK_WALL);
    assert_int_equal(ahead_of(&run->ranks[1]), -50);
    release(run, 2);
}

static void one_name_is_not_one_host(void **state) {
    (void)state;
    struct run *run = two(70000, "a", 123456789);
    align(run, 2);
    const struct lp_view_rank *rank = &run->ranks[1];
    assert_int_equal(rank->clock, LP_VIEW_CLOCK_STEPS);
    is_within_error(rank, 70000);
    assert_true(rank->apart_us > 100000000);
    release(run, 2);
}

static void clocks_of_other_speed_contradict(void **state) {
    (void)state;
    struct run *run = two(0, "b", 9);
    for (int i = 0; i < N; i++) {
        run->steps[1][i].start_us += 100 * i;
        run->steps[1][i].end_us += 100 * i;
    }
    align(run, 2);
    assert_int_equal(run->ranks[1].clock, LP_VIEW_CLOCK_STEPS);
    assert_int_equal(run->ranks[1].apart_us, (300 - 30 - 1) - (20 + 1));
    assert_int_equal(run->ranks[1].error_us, run->ranks[1].apart_us);
    release(run, 2);
}

// A step a second for 200 s, by a clock that gains 10 us in each of them.
static void a_clock_that_gains_is_followed(void **state) {
    (void)state;
    struct run *run = two(0, "b", 9);
    run->ranks[0].n = run->ranks[1].n = MANY;
    for (int i = 0; i < MANY; i++)
        for (int r = 0; r < 2; r++) {
            const int64_t start_us = (int64_t)1000000 * (i + 1) + r * 10 * i;
            run->steps[r][i] = (struct lp_view_rank_step){.step = i,
                                                          .start_us = start_us,
                                                          .end_us = start_us + 400,
                                                          .before_us = start_us - 20,
                                                          .after_us = start_us + 430};
        }
    align(run, 2);
    const struct lp_view_rank *rank = &run->ranks[1];
    assert_int_equal(rank->clock, LP_VIEW_CLOCK_STEPS);
    assert_int_equal(rank->apart_us, 0);
    assert_true(rank->n_pieces > 1 && rank->error_us < 100);
    for (int i = 0; i < MANY; i++) {
        const int64_t off_us =
            lp_view_clock_common(rank, rank->steps[i].start_us) - run->ranks[0].steps[i].start_us;
        assert_true(off_us >= -rank->error_us && off_us <= rank->error_us);
    }
    release(run, 2);
}

static void lack_of_memory_is_an_error(void **state) {
    (void)state;
    for (size_t nth = 1;; nth++) {
        struct run *run = two(70000, "b", 9);
        run->ranks[2] = run->ranks[1];
        struct lp_err err;
        lp_alloc_fail_after(nth);
        const lp_status status = lp_view_clock_align(run->ranks, 3, &err);
        lp_alloc_fail_after(0);
        release(run, 3);
        if (status == LP_OK) break;
        assert_int_equal(status, LP_STATUS_MEMORY);
        assert_true(nth < 100);
    }
}

static void ranks_of_another_host_help_each_other(void **state) {
    (void)state;
    static struct lp_view_rank_step steps[N];
    struct run *run = two(70000, "b", 1000);
    memcpy(steps, run->steps[1], sizeof steps);
    for (int i = 0; i < N; i++) { // it began 400 us later, and ends closer to the result
        steps[i].start_us -= 400;
        steps[i].end_us += 25 - 400;
    }
    run->ranks[2] = run->ranks[1];
    run->ranks[2].steps = steps;
    run->ranks[2].process.monotonic_us = 1400;
    align(run, 3);
    for (int i = 1; i < 3; i++) assert_int_equal(run->ranks[i].error_us, (20 + 5 + 2 + 1) / 2);
    assert_int_equal(ahead_of(&run->ranks[1]) - ahead_of(&run->ranks[2]), 400);
    release(run, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_host_have_one_clock),
        cmocka_unit_test(steps_bring_hosts_together),
        cmocka_unit_test(the_tightest_step_counts),
        cmocka_unit_test(steps_of_one_rank_alone_tell_nothing),
        cmocka_unit_test(wall_clocks_are_the_last_resort),
        cmocka_unit_test(one_name_is_not_one_host),
        cmocka_unit_test(clocks_of_other_speed_contradict),
        cmocka_unit_test(a_clock_that_gains_is_followed),
        cmocka_unit_test(ranks_of_another_host_help_each_other),
        cmocka_unit_test(lack_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
