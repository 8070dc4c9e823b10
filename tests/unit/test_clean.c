#include "lp_test.h"

#include "base/clean.h"

static void check(const char *in, size_t n, const char *out) {
    char buffer[64];
    assert_string_equal(lp_clean_text(buffer, sizeof buffer, (struct lp_str){in, n}), out);
}

static void keeps_text_and_replaces_the_rest(void **state) {
    (void)state;
    check("", 0, "");
    check("abc", 3, "abc");
    check("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    check("a\x1b[31m\x7f\n", 8, "a?[31m??");
    check("a\0b", 3, "a?b");
    check("\xc2\x9b"
          "31m",
          5, "?31m");                     // CSI as a C1 control
    check("\xc0\xaf", 2, "??");           // overlong
    check("\xed\xa0\x80", 3, "???");      // surrogate
    check("\xf4\x90\x80\x80", 4, "????"); // above U+10FFFF
    check("\xe2\x82", 2, "??");           // cut
}

static void cuts_at_a_character(void **state) {
    (void)state;
    char small[9];
    assert_string_equal(lp_clean_text(small, sizeof small, lp_str_from("0123456789")), "01234...");
    assert_string_equal(lp_clean_text(small, sizeof small,
                                      lp_str_from("0123\xe2\x82\xac"
                                                  "6789")),
                        "0123...");
    assert_string_equal(lp_clean_text(small, sizeof small, lp_str_from("01234")), "01234");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_text_and_replaces_the_rest),
                                       cmocka_unit_test(cuts_at_a_character)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
