// Two spellings are equal exactly where the expressions differ in nothing but their writing.
#include "lp_test.h"

#include "hf/hf_regex.h"

static bool spell(const char *regex, struct lp_bytes *out) {
    return lp_hf_regex_spell(lp_str_from(regex), out);
}

static void one_expression_written_in_several_ways(void **state) {
    (void)state;
    static const char *const same[][2] = {
        {"(?:a|b)|c", "a|b|c"},
        {"((?:a|(b))|c)", "a|b|c"},
        {"(?i:'s|'ll)", "'[sS]|'[Ll][lL]"},
        {"(?i:[a-c9])", "[A-Ca-c9]"},
        {"[a-cdx-z]", "[xzyd\\x61-c]"},
        {"\\x{4e00}", "\xE4\xB8\x80"},
        {"[\\u4e00-\\u9fa5]", "[\xE4\xB8\x80-\xE9\xBE\xA5]"},
        {"[\\s\\p{L}]", "[\\pL\\s\\s]"},
        {"\\p{Script=Han}+", "[\\p{Han}]{1,}"},
        {"[^\\s]", "\\S"},
        {"[^\\S]", "\\s"},
        {"[^\\P{N}]", "\\p{N}"},
        {"\\p{^N}", "\\P{N}"},
        {"\\p{Letter}?", "\\p{L}{0,1}"},
        {"[\\r\\n]*", "[\n\r]{0,}"},
        {"\\-\\/\\\"", "-/\""},
        {"x{3}", "x{3,3}"},
        {"[]a]", "[a\\]]"},
        {"[a-]", "[\\-a]"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct lp_bytes a = {0}, b = {0};
        if (!spell(same[i][0], &a) || !spell(same[i][1], &b) ||
            !lp_str_equal(lp_bytes_view(&a), lp_bytes_view(&b)))
            fail_msg("%s: %s; %s: %s", same[i][0], a.data, same[i][1], b.data);
        lp_bytes_release(&a);
        lp_bytes_release(&b);
    }
}

static void different_expressions_stay_different(void **state) {
    (void)state;
    static const char *const different[] = {
        "a",      "b",        "a|b",     "b|a",      "ab",     "a?",          "a??",
        "a?+",    "a+",       "a*",      "a{1,3}",   "a{1,2}", "[ab]",        "[^ab]",
        "[^a]",   "(?:ab)?",  "(?:ab)",  "a(?=b)",   "a(?!b)", "(?<!a)b",     "(?<=a)b",
        "a$",     "^a",       "a.",      "\\s",      "\\S",    "\\d",         "\\w",
        "\\p{L}", "\\P{L}",   "\\p{Lu}", "[\\s\\d]", "[[a]",   "[a-d&&[^b]]", "[a-d&&[b]]",
        "[a-d]",  "(?:a|b)c", "a|bc",    "(?i:a)",   "\\p{M}",
    };
    enum { N = sizeof different / sizeof *different };
    struct lp_bytes spelled[N] = {{0}};
    for (size_t i = 0; i < N; i++)
        if (!spell(different[i], &spelled[i])) lp_bytes_clear(&spelled[i]); // not understood: none
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < i; j++)
            if (spelled[i].len &&
                lp_str_equal(lp_bytes_view(&spelled[i]), lp_bytes_view(&spelled[j])))
                // A plain group is the one exception.
                if (strcmp(different[i], "(?:ab)") && strcmp(different[j], "(?:ab)"))
                    fail_msg("%s and %s: %s", different[i], different[j], spelled[i].data);
    for (size_t i = 0; i < N; i++) lp_bytes_release(&spelled[i]);
}

static void what_is_not_understood_is_refused(void **state) {
    (void)state;
    static const char *const strange[] = {
        "",      "(a",      "a)",          "[a",      "a{1",           "a{x}",
        "+a",    "a++*",    "\\",          "\\q",     "\\x{",          "\\x{zz}",
        "\\u12", "\\p{",    "\\p",         "(?i)a",   "(?>a)",         "(?P<n>a)",
        "[b-a]", "[a-\\s]", "[[:alpha:]]", "\\p{L&}", "(?i:\xC3\xA9)", "\xFF",
        "\\1",   "[a&&b]",
    };
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        struct lp_bytes out = {0};
        if (spell(strange[i], &out)) fail_msg("%s: %s", strange[i], out.data);
        lp_bytes_release(&out);
    }
}

static void hostile_expressions_end_soon(void **state) {
    (void)state;
    char *text = malloc(LP_HF_REGEX_BYTES + 1);
    static const char *const pieces[] = {"(", "(?:", "[a&&", "a|", "[^", "(a|", "\\", "\\p{L}"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t n = strlen(pieces[i]), len = 0;
        for (; len + n <= LP_HF_REGEX_BYTES; len += n) memcpy(text + len, pieces[i], n);
        struct lp_bytes out = {.max_bytes = 1 << 20};
        lp_hf_regex_spell((struct lp_str){text, len}, &out);
        lp_bytes_release(&out);
    }
    struct lp_bytes out = {0};
    memset(text, 'a', LP_HF_REGEX_BYTES + 1);
    assert_false(lp_hf_regex_spell((struct lp_str){text, LP_HF_REGEX_BYTES + 1}, &out));
    lp_bytes_release(&out);
    free(text);
}

static void a_text_is_no_expression(void **state) {
    (void)state;
    struct lp_bytes text = {0}, regex = {0};
    assert_true(lp_hf_regex_spell_text(lp_str_from("a+[\\"), &text));
    assert_true(spell("a\\+\\[\\\\", &regex));
    assert_string_equal(text.data, regex.data);
    lp_bytes_release(&text);
    lp_bytes_release(&regex);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_expression_written_in_several_ways),
        cmocka_unit_test(different_expressions_stay_different),
        cmocka_unit_test(what_is_not_understood_is_refused),
        cmocka_unit_test(hostile_expressions_end_soon),
        cmocka_unit_test(a_text_is_no_expression),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
