#include "lp_test.h"

#include "base/progress.h"

#define SECOND UINT64_C(1000000000)

static uint64_t now_ns;

static uint64_t fake_clock(void) {
    return now_ns;
}

struct screen {
    struct lp_progress bar;
    char *text;
    size_t n;
};

static void begin(struct screen *s, uint64_t total, bool terminal) {
    lp_progress_init(&s->bar, "copying", total);
    now_ns = 5 * SECOND;
    s->bar.clock_ns = fake_clock;
    s->bar.start_ns = now_ns;
    s->bar.terminal = terminal;
    s->bar.out = open_memstream(&s->text, &s->n);
    assert_non_null(s->bar.out);
}

static void end(struct screen *s) {
    fclose(s->bar.out);
    free(s->text);
}

static size_t count(const char *text, char c) {
    size_t n = 0;
    for (; *text; text++) n += *text == c;
    return n;
}

static void a_short_job_leaves_no_line_in_a_log(void **state) {
    (void)state;
    struct screen s;
    begin(&s, 1000, false);
    for (int i = 0; i < 29; i++) {
        now_ns += SECOND;
        lp_progress_update(&s.bar, (uint64_t)i * 30);
    }
    lp_progress_finish(&s.bar);
    fflush(s.bar.out);
    assert_int_equal(s.n, 0);
    end(&s);
}

static void a_long_job_has_a_line_every_30_seconds(void **state) {
    (void)state;
    struct screen s;
    begin(&s, 120 * SECOND, false); // 1 GB/s for 120 s
    for (uint64_t i = 1; i <= 95; i++) {
        now_ns += SECOND;
        lp_progress_update(&s.bar, i * SECOND);
    }
    lp_progress_finish(&s.bar);
    fflush(s.bar.out);
    assert_int_equal(count(s.text, '\n'), 3);
    assert_non_null(strstr(s.text, "limpid: copying: 25% of 120.0 GB, 1.00 GB/s, 1:30 left\n"));
    assert_non_null(strstr(s.text, "limpid: copying: 75% of 120.0 GB, 1.00 GB/s, 0:30 left\n"));
    assert_null(strchr(s.text, '\r'));
    end(&s);
}

static void a_terminal_has_a_bar_at_once_and_ten_times_a_second(void **state) {
    (void)state;
    struct screen s;
    begin(&s, 4 * SECOND, true);
    for (int i = 0; i < 100; i++) { // 1 s in all
        lp_progress_update(&s.bar, 0);
        now_ns += SECOND / 100;
    }
    lp_progress_update(&s.bar, SECOND);
    fflush(s.bar.out);
    assert_int_equal(count(s.text, '\r'), 11);
    assert_non_null(strstr(s.text,
                           "\rcopying [######..................]  25% of 4.0 GB, 1.00 GB/s, "
                           "0:03 left"));
    lp_progress_finish(&s.bar);
    fflush(s.bar.out);
    assert_string_equal(s.text + s.n - 4, "\r\033[K");
    end(&s);
}

static void what_was_there_before_is_no_rate(void **state) {
    (void)state;
    struct screen s;
    begin(&s, 100 * SECOND, false);
    lp_progress_resume(&s.bar, 40 * SECOND);
    now_ns += 30 * SECOND;
    lp_progress_update(&s.bar, 55 * SECOND); // 15 GB in 30 s; 45 GB are left
    fflush(s.bar.out);
    assert_string_equal(s.text, "limpid: copying: 55% of 100.0 GB, 0.50 GB/s, 1:30 left\n");
    end(&s);
}

static void hours_are_written_out_and_no_rate_is_no_time(void **state) {
    (void)state;
    struct screen s;
    begin(&s, 10000 * SECOND, false);
    now_ns += 100 * SECOND;
    lp_progress_update(&s.bar, 100 * SECOND);
    now_ns += 30 * SECOND;
    lp_progress_resume(&s.bar, 100 * SECOND);
    lp_progress_update(&s.bar, 100 * SECOND);
    fflush(s.bar.out);
    assert_string_equal(s.text, "limpid: copying: 1% of 10000.0 GB, 1.00 GB/s, 2:45:00 left\n"
                                "limpid: copying: 1% of 10000.0 GB, 0.00 GB/s\n");
    end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_job_leaves_no_line_in_a_log),
        cmocka_unit_test(a_long_job_has_a_line_every_30_seconds),
        cmocka_unit_test(a_terminal_has_a_bar_at_once_and_ten_times_a_second),
        cmocka_unit_test(what_was_there_before_is_no_rate),
        cmocka_unit_test(hours_are_written_out_and_no_rate_is_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
