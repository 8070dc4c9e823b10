#include "lp_test.h"

#include "grammar/build.h"

static lp_status compile(struct lp_str source, struct lp_grammar **out, struct lp_err *err) {
    return lp_grammar_compile(out, LP_GRAMMAR_CHOICE, source, NULL, NULL, NULL, err);
}

static void one_of_the_texts(void **state) {
    (void)state;
    struct lp_grammar *g;
    struct lp_err err = {0};
    if (compile(lp_str_from("[\"yes\", \"yes, but\", \"no\", \"\\u00e9\", \"\", \"a\\u0000b\"]"),
                &g, &err))
        fail_msg("%s", err.text);
    static const char *const yes[] = {"yes", "yes, but", "no", "\xC3\xA9", ""};
    static const char *const no[] = {"ye", "yes,", "yesno", "nope", "\xC3"};
    for (size_t i = 0; i < 5; i++) {
        assert_true(lp_grammar_matches(g, lp_str_from(yes[i])));
        assert_false(lp_grammar_matches(g, lp_str_from(no[i])));
    }
    assert_true(lp_grammar_matches(g, (struct lp_str){"a\0b", 3}));
    lp_grammar_put(g);
}

static void wrong_lists_are_refused(void **state) {
    (void)state;
    static const char *const rows[][2] = {{"", "JSON"},    {"[", "JSON"},
                                          {"{}", "array"}, {"[]", "at least one"},
                                          {"3", "JSON"},   {"[\"a\", 1]", "choice 1"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lp_grammar *g;
        struct lp_err err = {0};
        assert_int_equal(compile(lp_str_from(rows[i][0]), &g, &err), LP_STATUS_INVALID);
        if (!strstr(err.text, rows[i][1])) fail_msg("%s: %s", rows[i][0], err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_of_the_texts),
                                       cmocka_unit_test(wrong_lists_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
