#include "lp_test.h"

#include "grammar/build.h"

static lp_status compile(const char *text, struct lp_grammar **out, struct lp_err *err) {
    return lp_grammar_compile(out, LP_GRAMMAR_GBNF, lp_str_from(text), NULL, NULL, NULL, err);
}

static void check(const char *grammar, const char *const *yes, const char *const *no) {
    struct lp_grammar *g;
    struct lp_err err = {0};
    if (compile(grammar, &g, &err)) fail_msg("%s: %s", grammar, err.text);
    for (; *yes; yes++)
        if (!lp_grammar_matches(g, lp_str_from(*yes)))
            fail_msg("%s does not match \"%s\"", grammar, *yes);
    for (; *no; no++)
        if (lp_grammar_matches(g, lp_str_from(*no))) fail_msg("%s matches \"%s\"", grammar, *no);
    lp_grammar_put(g);
}
#define LIST(...)                                                                                  \
    (const char *const[]) {                                                                        \
        __VA_ARGS__, NULL                                                                          \
    }

static void refuse(const char *grammar, lp_status status, const char *part) {
    struct lp_grammar *g;
    struct lp_err err = {0};
    assert_int_equal(compile(grammar, &g, &err), status);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void elements(void **state) {
    (void)state;
    check("root ::= \"a\"", LIST("a"), LIST("", "b", "aa"));
    check("root ::= \"a\" \"b\" | \"c\"", LIST("ab", "c"), LIST("a", "abc"));
    check("root ::= ", LIST(""), LIST("a"));
    check("root ::= \"a\" |", LIST("a", ""), LIST("b"));
    check("root ::= [a-cx]", LIST("a", "c", "x"), LIST("d", "-"));
    check("root ::= [^a-c\\n]", LIST("d", "\xE2\x82\xAC", "\""), LIST("b", "\n", "dd"));
    check("root ::= [-a]", LIST("-", "a"), LIST("b"));
    check("root ::= [a-]", LIST("-", "a"), LIST("b"));
    check("root ::= [\\]\\-\\\\^]", LIST("]", "-", "\\", "^"), LIST("a"));
    check("root ::= .", LIST("a", "\n", "\xF0\x9F\x98\x80"), LIST("", "ab"));
    check("root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\r\\\\\\\"\"",
          LIST("A\xC3\xA9\xF0\x9F\x98\x80\n\t\r\\\""), LIST("A"));
    check("root ::= \"\xC3\xA9\" [\xC3\xA8-\xC3\xAA]", LIST("\xC3\xA9\xC3\xA9"), LIST("\xC3\xA9"));
}

static void repetitions(void **state) {
    (void)state;
    check("root ::= \"ab\"*", LIST("", "ab", "abab"), LIST("a", "aba"));
    check("root ::= [ab]+ \"c\"?", LIST("a", "abc"), LIST("", "c", "acc"));
    check("root ::= \"a\"{3}", LIST("aaa"), LIST("aa", "aaaa"));
    check("root ::= \"a\"{2,}", LIST("aa", "aaaaa"), LIST("a"));
    check("root ::= \"a\" { 1 , 2 }", LIST("a", "aa"), LIST("", "aaa"));
    check("root ::= (\"a\" | \"b\"){2} \"c\"", LIST("abc", "bbc"), LIST("ac", "c"));
    check("root ::= \"a\"{0}", LIST(""), LIST("a"));
    check("root ::= [a]{2}{2}", LIST("aaaa"), LIST("aa", "aaa"));
}

static void rules_and_lines(void **state) {
    (void)state;
    // Comments, continued lines, rules that come later, parentheses over lines.
    check("# a list\n"
          "root ::= item (\",\" ws item)*   # items\n"
          "item ::=\n"
          "   word\n"
          " | number\r\n"
          "word   ::= [a-z]+\n\n"
          "number ::= (\n  \"-\"?\n  [0-9]+  # digits\n)\n"
          "ws ::= \" \"?",
          LIST("a", "-12, b,c"), LIST("", ",", "a,", "-", "a , b"));
    check("root ::= \"(\" root \")\" | \"\"", LIST("", "(())"), LIST("(", "())"));
    check("root ::= a_1 b-2\na_1 ::= \"x\"\nb-2 ::= \"y\"\nunused ::= \"z\" unused", LIST("xy"),
          LIST("x"));
}

// json.gbnf in its usual form, against texts of json.org's grammar.
static void json(void **state) {
    (void)state;
    check("root   ::= object\n"
          "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
          "object ::=\n"
          "  \"{\" ws (\n"
          "            string \":\" ws value\n"
          "    (\",\" ws string \":\" ws value)*\n"
          "  )? \"}\" ws\n"
          "array  ::=\n"
          "  \"[\" ws (\n"
          "            value\n"
          "    (\",\" ws value)*\n"
          "  )? \"]\" ws\n"
          "string ::=\n"
          "  \"\\\"\" (\n"
          "    [^\"\\\\\\x7F\\x00-\\x1F] |\n"
          "    \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4})\n"
          "  )* \"\\\"\" ws\n"
          "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] "
          "[1-9]{0,15})? ws\n"
          "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
          LIST("{}", "{\"a\": [1, -2.5e3, \"\\u00e9\\n\", {\"b\": null}]}",
               "{ \"\":\"\xF0\x9F\x98\x80\"}\n  "),
          LIST("", "{", "[]", "{\"a\"}", "{\"a\":1,}", "{\"a\":01}", "{\"a\":\"\\x\"}",
               "{\"a\":\"\n\"}"));
}

static void faults_are_named(void **state) {
    (void)state;
    refuse("", LP_STATUS_INVALID, "no rule \"root\"");
    refuse("a ::= \"x\"", LP_STATUS_INVALID, "no rule \"root\"");
    refuse("root ::= x", LP_STATUS_INVALID, "\"x\" is used, but not defined");
    refuse("root ::= \"a\"\nroot ::= \"b\"", LP_STATUS_INVALID, "defined twice");
    refuse("root = \"a\"", LP_STATUS_INVALID, "line 1: expected '::='");
    refuse("root ::= \"a\"\n\n  ::= b", LP_STATUS_INVALID, "line 3: expected the name");
    refuse("root ::= \"a", LP_STATUS_INVALID, "line 1: expected the end of the text");
    refuse("root ::= \"a\n\"", LP_STATUS_INVALID, "found the end of the line");
    refuse("root ::= [a-", LP_STATUS_INVALID, "found the end");
    refuse("root ::= [z-a]", LP_STATUS_INVALID, "runs backwards");
    refuse("root ::= (\"a\"", LP_STATUS_INVALID, "expected ')'");
    refuse("root ::= \"a\")", LP_STATUS_INVALID, "expected the end of the rule, found ')'");
    refuse("root ::= * \"a\"", LP_STATUS_INVALID, "found '*'");
    refuse("root ::= \"a\"{x}", LP_STATUS_INVALID, "expected a number");
    refuse("root ::= \"a\"{2,1}", LP_STATUS_INVALID, "at least 2 and at most 1");
    refuse("root ::= \"a\"{99999999999999}", LP_STATUS_LIMIT, "repetition");
    refuse("root ::= \"\\q\"", LP_STATUS_INVALID, "expected an escape");
    refuse("root ::= \"\\ud800\"", LP_STATUS_INVALID, "no character");
    refuse("root ::= \"\xFF\"", LP_STATUS_INVALID, "UTF-8");
    refuse("root ::= <think>", LP_STATUS_UNSUPPORTED, "<...>");
    refuse("root ::= root \"a\" | \"b\"", LP_STATUS_INVALID, "rule \"root\" is left-recursive");
    char deep[600] = "root ::= ";
    memset(deep + 9, '(', 500);
    refuse(deep, LP_STATUS_INVALID, "nested too deeply");
}

static void a_zero_byte_is_no_element(void **state) {
    static const char text[] = "root ::= \0 \"a\"";
    struct lp_grammar *g;
    struct lp_err err = {0};
    (void)state;
    assert_int_equal(lp_grammar_compile(&g, LP_GRAMMAR_GBNF, (struct lp_str){text, sizeof text - 1},
                                        NULL, NULL, NULL, &err),
                     LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "expected a rule's name"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements),         cmocka_unit_test(repetitions),
        cmocka_unit_test(rules_and_lines),  cmocka_unit_test(json),
        cmocka_unit_test(faults_are_named), cmocka_unit_test(a_zero_byte_is_no_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
