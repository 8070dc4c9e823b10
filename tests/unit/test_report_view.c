#include "lp_test.h"

#include "doctor/report_view.h"
#include "report_fake.h"

static void a_fault_finds_its_check(void **state) {
    (void)state;
    struct lp_report *r = fake_ill();
    const struct lp_check *c = lp_report_view_check(r, &r->faults[0]);
    assert_non_null(c);
    assert_string_equal(c->figure, "0.41");
    struct lp_fault other = {.stage = LP_STAGE_TOKENS, .check = r->faults[0].check};
    assert_null(lp_report_view_check(r, &other)); // a name belongs to a stage
    other = (struct lp_fault){.stage = LP_STAGE_FILE, .check = r->checks[0].name};
    assert_null(lp_report_view_check(r, &other)); // that one was in order
    lp_report_free(r);
}

static void counts(void **state) {
    (void)state;
    struct lp_report *r = fake_ill();
    assert_int_equal(lp_report_view_count(r, LP_CHECK_OK), 4);
    assert_int_equal(lp_report_view_count(r, LP_CHECK_FAULT), 2);
    assert_int_equal(lp_report_view_count(r, LP_CHECK_FOLLOWS), 1);
    assert_int_equal(lp_report_view_faults(r, false), 2);
    assert_int_equal(lp_report_view_faults(r, true), 1);
    lp_report_free(r);
}

static void every_stage_says_what_it_looks_at(void **state) {
    (void)state;
    for (int stage = 0; stage < LP_N_STAGES; stage++)
        assert_true(strlen(lp_report_view_stage(stage)) > 10);
}

static void clean_texts_lose_nothing_else(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"", ""},
        {"a", "a"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"a\nb\x1b[31m\x7f", "a?b?[31m?"},
        {"\xff\xfe\xc3", "???"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *clean = lp_report_view_clean(rows[i][0]);
        assert_string_equal(clean, rows[i][1]);
        lp_free(clean);
    }
    char *none = lp_report_view_clean(NULL);
    assert_string_equal(none, "");
    lp_free(none);
}

static void escaped_texts_may_stand_in_text_and_in_quotes(void **state) {
    (void)state;
    struct lp_bytes out = {0};
    assert_true(lp_report_view_escape(&out, "<a href='x' title=\"y\">&amp;</a>\x01"));
    assert_string_equal(out.data,
                        "&lt;a href=&#39;x&#39; title=&quot;y&quot;&gt;&amp;amp;&lt;/a&gt;?");
    lp_bytes_release(&out);
}

static void cut_at_a_character(void **state) {
    (void)state;
    struct lp_bytes out = {0};
    assert_true(lp_report_view_escape_cut(&out, "\xc3\xa9<\xe2\x82\xac", 2));
    assert_string_equal(out.data, "\xc3\xa9&lt;...");
    lp_bytes_clear(&out);
    assert_true(lp_report_view_escape_cut(&out, "\xc3\xa9<\xe2\x82\xac", 3));
    assert_string_equal(out.data, "\xc3\xa9&lt;\xe2\x82\xac");
    lp_bytes_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_finds_its_check),
        cmocka_unit_test(counts),
        cmocka_unit_test(every_stage_says_what_it_looks_at),
        cmocka_unit_test(clean_texts_lose_nothing_else),
        cmocka_unit_test(escaped_texts_may_stand_in_text_and_in_quotes),
        cmocka_unit_test(cut_at_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
