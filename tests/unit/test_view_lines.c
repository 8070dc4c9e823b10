// What is an event of a trace, and what is none.
#include "lp_test.h"

#include "trace/view_lines.h"

static struct lp_view_notes count(struct lp_str trace) {
    struct lp_view_lines lines;
    struct lp_view_notes notes;
    struct lp_view_event event;
    lp_view_lines_init(&lines, trace, &notes);
    while (lp_view_lines_next(&lines, &event)) assert_non_null(event.name);
    return notes;
}

static void is_skipped(const char *line) {
    char text[256];
    snprintf(text, sizeof text, "{\"event\":\"a\"}\n%s\n{\"event\":\"b\"}\n", line);
    struct lp_view_notes notes = count(lp_str_from(text));
    assert_int_equal(notes.n_events, 2);
    assert_int_equal(notes.n_skipped, 1);
    assert_false(notes.cut);
}

static void what_is_no_event_is_skipped_and_counted(void **state) {
    (void)state;
    static const char *const lines[] = {"x",
                                        "{}",
                                        "[{\"event\":\"a\"}]",
                                        "{\"event\":1}",
                                        "\"event\"",
                                        "{\"event\"",
                                        "{\"event\":\"\xff\"}",
                                        "null",
                                        "{\"event\":\"a\"}{\"event\":\"a\"}",
                                        "{\"event\":\"a\",\"n\":1e999}"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) is_skipped(lines[i]);
    static const char nul[] = "{\"event\":\"a\"}\n{\"event\":\"\0\"}\n\0\n";
    assert_int_equal(count((struct lp_str){nul, sizeof nul - 1}).n_skipped, 2);
}

static void a_last_line_without_its_end_is_cut(void **state) {
    (void)state;
    struct lp_view_notes notes = count(lp_str_from("{\"event\":\"a\"}\n{\"event\":\"step\",\"st"));
    assert_int_equal(notes.n_events, 1);
    assert_int_equal(notes.n_skipped, 0);
    assert_true(notes.cut);
    notes = count(lp_str_from("{\"event\":\"a\"}\r\n\n\n{\"event\":\"b\"}")); // whole, but for '\n'
    assert_int_equal(notes.n_events, 2);
    assert_false(notes.cut);
    assert_int_equal(count((struct lp_str){NULL, 0}).n_events, 0);
}

static void a_line_has_a_most_length(void **state) {
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct lp_bytes text = {0};
        lp_bytes_puts(&text, "{\"event\":\"a\",\"b\":\"");
        while (text.len < LP_VIEW_LINE_BYTES - 2 + (size_t)more) lp_bytes_puts(&text, "x");
        lp_bytes_puts(&text, "\"}\n{\"event\":\"c\"}\n");
        struct lp_view_notes notes = count(lp_bytes_view(&text));
        assert_int_equal(notes.n_events, 2 - more);
        assert_int_equal(notes.n_skipped, more);
        lp_bytes_release(&text);
    }
}

static void fields_have_values_or_are_absent(void **state) {
    (void)state;
    struct lp_view_lines lines;
    struct lp_view_notes notes;
    struct lp_view_event e;
    lp_view_lines_init(
        &lines,
        lp_str_from("{\"event\":\"e\",\"time_us\":12,\"thread\":5,\"n\":-3,\"f\":2.75,\"t\":\"x\","
                    "\"null\":null,\"huge\":9007199254740993,\"far\":1e300}"),
        &notes);
    assert_true(lp_view_lines_next(&lines, &e));
    assert_true(lp_view_is(&e, "e"));
    assert_int_equal(e.time_us, 12);
    assert_int_equal(e.thread, 5);
    assert_int_equal(lp_view_int(&e, "n", 9), -3);
    assert_int_equal(lp_view_int(&e, "f", 9), 2);
    assert_int_equal(lp_view_int(&e, "t", 9), 9);
    assert_int_equal(lp_view_int(&e, "null", 9), 9);
    assert_int_equal(lp_view_int(&e, "huge", 9), 9); // no trace counts beyond 2^53
    assert_int_equal(lp_view_int(&e, "far", 9), 9);
    assert_int_equal(lp_view_int(&e, "none", 9), 9);
    assert_true(lp_view_real(&e, "f", 0) == 2.75);
    assert_true(lp_view_real(&e, "null", -1) == -1);
    assert_string_equal(lp_view_text(&e, "t"), "x");
    assert_string_equal(lp_view_text(&e, "n"), "");
    assert_false(lp_view_lines_next(&lines, &e));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_event_is_skipped_and_counted),
        cmocka_unit_test(a_last_line_without_its_end_is_cut),
        cmocka_unit_test(a_line_has_a_most_length),
        cmocka_unit_test(fields_have_values_or_are_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
