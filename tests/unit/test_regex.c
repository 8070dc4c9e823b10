// Regular expressions. What matches is known from the meaning of the notation; the dialects (ECMA,
// Python's re) agree on each row.
#include "grammar_rows.h"

static void test_matches(void **state) {
    (void)state;
    static const struct grammar_row rows[] = {
        {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
        {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
        {"a*", {"", "a", "aaaa"}, {"b", "ab"}},
        {"a+b?", {"a", "ab", "aaab"}, {"", "b", "abb"}},
        {"a{2}", {"aa"}, {"a", "aaa"}},
        {"a{2,}", {"aa", "aaaaa"}, {"a", ""}},
        {"a{1,3}", {"a", "aaa"}, {"", "aaaa"}},
        {"(ab){2}c", {"ababc"}, {"abc", "abababc"}},
        {"a*?b+?c??d{2}?", {"bdd", "aabbcdd"}, {"dd", "bd"}},
        {"(?:a|b)+", {"a", "abba"}, {"", "c"}},
        {"(?<year>\\d{4})", {"2024"}, {"202", "20245"}},
        {"(?P<x>a)", {"a"}, {"b"}},
        {"^abc$", {"abc"}, {"abcd", "xabc"}},
        {"^a|b$", {"a", "b"}, {"ab", "ax"}},
        {"[abc]", {"a", "b", "c"}, {"d", "", "ab"}},
        {"[a-cx-z0]", {"a", "c", "y", "0"}, {"d", "w", "1"}},
        {"[^a-c]", {"d", "A", "\xC3\xA9", "\n"}, {"a", "c", ""}},
        {"[-a]", {"-", "a"}, {"b"}},
        {"[a-]", {"-", "a"}, {"b"}},
        {"[\\]\\\\]", {"]", "\\"}, {"["}},
        {"[.$^*+?()|{}[]", {".", "$", "^", "*", "[", "{"}, {"a", "]"}},
        {"[\\d.]+", {"1.5", "..."}, {"a", ""}},
        {"[\\w-]+", {"a-b_9"}, {"a b", "\xC3\xA9"}},
        {"[^\\s\"]+", {"abc", "\xC3\xA9"}, {"a b", "\"", "\xC2\xA0"}},
        {"[\\b]", {"\b"}, {"b"}},
        {".", {"a", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\t"}, {"\n", "\r", "", "ab"}},
        {"\\d+", {"0", "0123456789"}, {"a", "\xD9\xA3"}},
        {"\\D", {"a", " "}, {"5"}},
        {"\\w+", {"aZ_9"}, {"-", "\xC3\xA9"}},
        {"\\W", {"-", " "}, {"a", "_"}},
        {"\\s", {" ", "\t", "\n"}, {"a", ""}},
        {"\\S+", {"a-\xC3\xA9"}, {" ", "\xE2\x80\x83"}},
        {"\\n\\r\\t\\f\\v", {"\n\r\t\f\v"}, {"nrtfv"}},
        {"\\x41\\u0042\\u{43}\\u{1F600}", {"ABC\xF0\x9F\x98\x80"}, {"ABC"}},
        {"\\uD83D\\uDE00", {"\xF0\x9F\x98\x80"}, {"\xEF\xBF\xBD"}},
        {"\\.\\*\\/\\-\\$", {".*/-$"}, {"a*/-$"}},
        {"a{,b}", {"a{,b}"}, {"a"}},
        {"a{x}", {"a{x}"}, {"ax"}},
        {"{}", {"{}"}, {""}},
        {"a]b", {"a]b"}, {"ab"}},
        {"\xC3\xA9+", {"\xC3\xA9\xC3\xA9"}, {"\xC3", "e"}},
        {"[\xC3\xA0-\xC3\xBF]", {"\xC3\xA9"}, {"a", "\xC3\x80"}},
        {"((a)|(b(c|d)))e", {"ae", "bce", "bde"}, {"be", "abe"}},
        {"(a*)*b", {"b", "aab"}, {"a"}},
        {"(|a)+", {"", "a", "aa"}, {"b"}},
        {"(a{2}){3}", {"aaaaaa"}, {"aaaaa", "aaaaaaa"}},
        {"x{0}y", {"y"}, {"xy"}},
        {"(\\+\\d{1,3} )?\\(?\\d{3}\\)?[ -]\\d{4}", {"+1 (555) 1234", "555-1234"}, {"5551234"}},
        {"", {""}, {"a"}},
    };
    CHECK_ROWS(LP_GRAMMAR_REGEX, rows);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct refused_row rows[] = {
        {"(?=a)", LP_STATUS_UNSUPPORTED, "lookahead"},
        {"a(?!b)", LP_STATUS_UNSUPPORTED, "character 4: lookahead"},
        {"(?<=a)", LP_STATUS_UNSUPPORTED, "lookbehind"},
        {"(?<!a)", LP_STATUS_UNSUPPORTED, "lookbehind"},
        {"(?i)a", LP_STATUS_UNSUPPORTED, "flags"},
        {"(?>a)", LP_STATUS_UNSUPPORTED, "atomic"},
        {"(a)\\1", LP_STATUS_UNSUPPORTED, "backreferences"},
        {"(?P=a)", LP_STATUS_UNSUPPORTED, "backreferences"},
        {"\\k<a>", LP_STATUS_UNSUPPORTED, "backreferences"},
        {"\\bword", LP_STATUS_UNSUPPORTED, "\"\\b\": assertions"},
        {"\\p{L}", LP_STATUS_UNSUPPORTED, "Unicode properties"},
        {"a++", LP_STATUS_UNSUPPORTED, "possessive"},
        {"a^b", LP_STATUS_UNSUPPORTED, "\"^\""},
        {"a$b", LP_STATUS_UNSUPPORTED, "\"$\""},
        {"(^a)", LP_STATUS_UNSUPPORTED, "\"^\""},
        {"\\012", LP_STATUS_UNSUPPORTED, "octal"},
        {"(a", LP_STATUS_INVALID, "\")\" is missing"},
        {"a)", LP_STATUS_INVALID, "character 2: this \")\""},
        {"[a", LP_STATUS_INVALID, "\"]\" is missing"},
        {"[]", LP_STATUS_INVALID, "empty class"},
        {"[z-a]", LP_STATUS_INVALID, "ascending"},
        {"[\\d-z]", LP_STATUS_INVALID, "two characters"},
        {"*a", LP_STATUS_INVALID, "nothing to repeat"},
        {"a|+", LP_STATUS_INVALID, "nothing to repeat"},
        {"{2}", LP_STATUS_INVALID, "nothing to repeat"},
        {"a**", LP_STATUS_INVALID, "two quantifiers"},
        {"a{3,2}", LP_STATUS_INVALID, "{3,2}"},
        {"a{,3}", LP_STATUS_INVALID, "{0,n}"},
        {"a{10001}", LP_STATUS_LIMIT, "10000"},
        {"\xC3\xA9\xC3\xA9\\q", LP_STATUS_INVALID, "character 5: \"\\q\" is no escape"},
        {"a\\", LP_STATUS_INVALID, "nothing follows"},
        {"\\x4", LP_STATUS_INVALID, "two hexadecimal digits"},
        {"\\uD83D", LP_STATUS_INVALID, "name a character"},
        {"\\u{110000}", LP_STATUS_INVALID, "name a character"},
        {"a\xFF", LP_STATUS_INVALID, "UTF-8"},
        {"(?<a", LP_STATUS_INVALID, "\">\""},
    };
    CHECK_REFUSED(LP_GRAMMAR_REGEX, rows);
}

static void test_deep_groups_are_refused(void **state) {
    (void)state;
    char deep[300];
    memset(deep, '(', sizeof deep);
    deep[sizeof deep - 1] = 0;
    const struct refused_row row = {deep, LP_STATUS_LIMIT, "nested deeper"};
    check_refused(LP_GRAMMAR_REGEX, &row, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_deep_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
