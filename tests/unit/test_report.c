// The data of a report. What a report says of faults that follow is in test_report_view.c.
#include "lp_test.h"

#include <math.h>

#include "base/alloc.h"
#include "doctor/report.h"

static size_t n_told;

static void tell(void *user, const struct lp_check *check) {
    assert_ptr_equal(user, &n_told);
    assert_non_null(check->name);
    assert_non_null(check->text);
    n_told++;
}

static void fill(struct lp_report *r) {
    const double values[] = {1, NAN, 3};
    lp_report_set_model(r, "llama, 2 layers");
    for (int i = 0; i < 5; i++) {
        lp_report_say(r, LP_STAGE_FILE, LP_CHECK_NOTE, "note", "number %d", i);
        assert_false(lp_report_measure(r, LP_STAGE_WEIGHTS, "size", 2, 1, "too large"));
        lp_report_fault(r, LP_STAGE_WEIGHTS, "size", i, "blk.0.ffn_up.weight", "Number %d.", i);
        lp_report_series(r, "series", "layer", "size", false, values, 3);
    }
    lp_report_fault(r, LP_STAGE_WEIGHTS, "sign", -1, "output.weight", "Turned.");
    lp_report_follow(r, "size");
}

static void what_is_in_a_report_is_whole(const struct lp_report *r) {
    for (size_t i = 0; i < r->n_checks; i++) {
        const struct lp_check *c = &r->checks[i];
        assert_true(c->name && c->figure && c->bound && c->text);
    }
    for (size_t i = 0; i < r->n_faults; i++) {
        const struct lp_fault *f = &r->faults[i];
        assert_true(f->check && f->what && f->advice);
    }
    for (size_t i = 0; i < r->n_series; i++) {
        const struct lp_series *s = &r->series[i];
        assert_true(s->name && s->x_label && s->y_label && s->values);
    }
}

// Without memory for one of its texts nothing of an entry is there, and closing says so.
static void every_failed_allocation_is_told_at_the_end(void **state) {
    (void)state;
    lp_status status = LP_STATUS_MEMORY;
    size_t n_failed = 0;
    for (size_t nth = 1; status != LP_OK; nth++, n_failed++) {
        struct lp_err err;
        lp_alloc_fail_after(nth);
        struct lp_report *r = lp_report_new("m.gguf", false);
        if (r) {
            r->on_check = tell;
            r->user = &n_told;
            fill(r);
            status = lp_report_close(r, &err);
            assert_true(status == LP_OK || status == LP_STATUS_MEMORY);
            what_is_in_a_report_is_whole(r);
        }
        lp_alloc_fail_after(0);
        lp_report_free(r);
    }
    assert_in_range(n_failed, 60, 1000); // at least the texts of 10 checks, 6 faults, 5 series
}

static void what_a_later_stage_explains_follows(void **state) {
    (void)state;
    struct lp_report *r = lp_report_new("m.gguf", false);
    assert_non_null(r);
    fill(r);
    assert_int_equal(lp_report_close(r, NULL), LP_OK);
    assert_int_equal(r->n_checks, 10);
    for (size_t i = 0; i < r->n_checks; i++)
        assert_int_equal(r->checks[i].outcome, i % 2 ? LP_CHECK_FOLLOWS : LP_CHECK_NOTE);
    assert_int_equal(r->n_series, 5);
    assert_string_equal(r->verdict, "The file is whole and every tensor is bound. Number 0. 5 more "
                                    "faults are listed.");
    lp_report_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failed_allocation_is_told_at_the_end),
                                       cmocka_unit_test(what_a_later_stage_explains_follows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
