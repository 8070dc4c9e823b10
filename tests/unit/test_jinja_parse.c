// Parsing: agreement with jinja2 on text, white space, literals, precedence, blocks and faults;
// limits on nesting and size; line numbers; every allocation failing in turn.
#include "jinja_cases.h"

static void agrees_with_jinja2(void **state) {
    (void)state;
    run_group("parse");
}

static lp_status parse(const char *source, struct lp_err *err) {
    struct lp_jinja *jinja;
    lp_status status = lp_jinja_parse(&jinja, lp_str_from(source), err);
    assert_true((status == LP_OK) == (jinja != NULL));
    lp_jinja_free(jinja);
    return status;
}

// begin, then `again` n times, middle, then `close` n times, end.
static lp_status parse_nested(const char *begin, const char *again, size_t n, const char *middle,
                              const char *close, const char *end) {
    struct lp_bytes text = {0};
    struct lp_err err = {0};
    lp_bytes_puts(&text, begin);
    for (size_t i = 0; i < n; i++) lp_bytes_puts(&text, again);
    lp_bytes_puts(&text, middle);
    for (size_t i = 0; i < n; i++) lp_bytes_puts(&text, close);
    lp_bytes_puts(&text, end);
    lp_status status = parse(text.data, &err);
    lp_bytes_release(&text);
    return status;
}

static lp_status parse_repeated(const char *begin, const char *again, size_t n, const char *end) {
    return parse_nested(begin, again, n, "", "", end);
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"(", ")"},   {"[", "]"},   {"{'a':", "}"},  {"not ", ""},         {"- ", ""},
        {"a[", "]"},  {"f(", ")"},  {"x|d((", "))"}, {"[(", ")]"},         {"1 is in (", ")"},
        {"a[:", "]"}, {"f(*", ")"}, {"f(k=", ")"},   {"a if b else ", ""}, {"a ~ (", ")"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *open = pairs[i][0], *close = pairs[i][1];
        assert_int_equal(parse_nested("{{ ", open, 50000, "1", close, " }}"), LP_STATUS_LIMIT);
        assert_int_equal(parse_nested("{{ ", open, 60, "1", close, " }}"), LP_OK);
    }
    static const char *const blocks[][2] = {
        {"{% if a %}", "{% endif %}"},
        {"{% for a in b %}", "{% endfor %}"},
        {"{% macro m() %}", "{% endmacro %}"},
        {"{% call m() %}", "{% endcall %}"},
        {"{% set x %}", "{% endset %}"},
        {"{% with %}", "{% endwith %}"},
        {"{% filter upper %}", "{% endfilter %}"},
        {"{% generation %}", "{% endgeneration %}"},
        {"{% if a %}{% else %}", "{% endif %}"},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        const char *open = blocks[i][0], *close = blocks[i][1];
        assert_int_equal(parse_nested("", open, 20000, "x", close, ""), LP_STATUS_LIMIT);
        assert_int_equal(parse_nested("", open, 60, "x", close, ""), LP_OK);
        assert_int_equal(parse_nested("", open, 60, "x", "", ""), LP_STATUS_FORMAT);
    }
    assert_int_equal(parse_nested("{% set ", "(", 50000, "a", ")", " = 1 %}"), LP_STATUS_LIMIT);
    assert_int_equal(parse_nested("{% for ", "(", 50000, "a", ")", " in 1 %}{% endfor %}"),
                     LP_STATUS_LIMIT);
}

static void long_chains_parse_flat(void **state) {
    (void)state;
    assert_int_equal(parse_repeated("{{ 1", " + 1", 50000, " }}"), LP_OK);
    assert_int_equal(parse_repeated("{{ a", ".b", 50000, " }}"), LP_OK);
    assert_int_equal(parse_repeated("{{ a", "|string", 50000, " }}"), LP_OK);
    assert_int_equal(parse_repeated("{% if a %}", "{% elif b %}", 50000, "{% endif %}"), LP_OK);
    assert_int_equal(parse_repeated("{{ [", "1,", 50000, "] }}"), LP_OK);
}

static void large_source_is_refused(void **state) {
    (void)state;
    assert_int_equal(parse_repeated("", "0123456789abcdef", 70000, ""), LP_STATUS_LIMIT);
}

static void errors_name_line_and_construct(void **state) {
    (void)state;
    struct lp_err err = {0};
    assert_int_equal(parse("a\nb\n{{ 1 + }}", &err), LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "line 3"));
    assert_int_equal(parse("\n\n\n{% include 'x' %}", &err), LP_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "line 4"));
    assert_non_null(strstr(err.text, "include"));
    assert_int_equal(parse("{{ x|urlize }}", &err), LP_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "urlize"));
    assert_int_equal(parse("{{ x|nosuch }}", &err), LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "nosuch"));
    assert_int_equal(parse("{% for x in y %}\n{% if z %}\n{% endfor %}", &err), LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "endfor"));
    assert_int_equal(parse("{{ '\\N{DASH}' }}", &err), LP_STATUS_UNSUPPORTED);
    assert_int_equal(parse("{{ 99999999999999999999 }}", &err), LP_STATUS_LIMIT);
    assert_int_equal(parse("{{ 0xffffffffffffffffff }}", &err), LP_STATUS_LIMIT);
}

static void every_failing_allocation_is_survived(void **state) {
    (void)state;
    static const char source[] =
        "{% macro m(a, b=[1, {'k': 2}]) %}{{ a ~ b ~ 'x\\n' 'y' }}{% endmacro %}"
        "{% for i, j in x.items() if i is not none %}{{ m(i, b=j)|trim|d('') }}"
        "{% elif %}{% endfor %}";
    static const char good[] =
        "{% macro m(a, b=[1, {'k': 2}]) %}{{ a ~ b ~ 'x\\n' 'y' }}{% endmacro %}"
        "{% for i, j in x.items() if i < 3 <= 4 %}{{ m(i, b=j)|trim|d('') }}{% endfor %}";
    for (size_t nth = 1; nth < 200; nth++) {
        struct lp_err err = {0};
        lp_alloc_fail_after(nth);
        lp_status status = parse(good, &err);
        lp_alloc_fail_after(0);
        if (!status) break;
        assert_int_equal(status, LP_STATUS_MEMORY);
        assert_true(nth < 199);
    }
    for (size_t nth = 1; nth < 50; nth++) {
        struct lp_err err = {0};
        lp_alloc_fail_after(nth);
        assert_int_not_equal(parse(source, &err), LP_OK);
        lp_alloc_fail_after(0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_jinja2),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(long_chains_parse_flat),
        cmocka_unit_test(large_source_is_refused),
        cmocka_unit_test(errors_name_line_and_construct),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
