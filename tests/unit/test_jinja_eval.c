// Evaluation: agreement with jinja2 on operators, scopes and faults; every limit; every allocation
// failing in turn.
#include "jinja_cases.h"

static void agrees_with_jinja2(void **state) {
    (void)state;
    run_group("eval");
}

static const struct lp_jinja_limits small = {
    .max_steps = 200000, .max_output_bytes = 100000, .max_memory_bytes = 4 << 20};

static void expect(lp_status wanted, const char *source) {
    struct lp_bytes out = {0};
    struct lp_err err = {0};
    lp_status status = render(source, NULL, &small, &out, &err);
    if (status != wanted)
        print_error("%s gives %s: %s\n", source, lp_status_name(status), err.text);
    assert_int_equal(status, wanted);
    assert_int_equal(out.len != 0, status == LP_OK && out.len != 0);
    lp_bytes_release(&out);
}

static void endless_work_is_stopped(void **state) {
    (void)state;
    static const char *const sources[] = {
        "{% for a in range(10**9) %}x{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set r = range(1000) %}{% for a in r %}{{ r|map('string')|list|length }}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% for x in [1] %}{{ m() }}{% endfor %}{% endmacro %}{{ m() }}",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% macro m() %}{{ caller is defined }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
        "{{ 'x' * 10**9 }}",
        "{{ [0] * 10**9 }}",
        "{{ 'x' * 9223372036854775807 }}",
        "{{ 'ab' * 9223372036854775807 }}",
        "{{ [1, 2] * 9223372036854775807 }}",
        "{{ ('x' * 3000)|replace('x', 'y' * 3000) }}",
        "{{ ('x' * 3000).replace('', 'y' * 3000) }}",
        "{{ range(3000)|join('y' * 3000) }}",
        "{{ ('y' * 3000).join('x' * 3000) }}",
        "{{ ''|center(10**12) }}",
        "{{ ''.ljust(10**12) }}",
        "{{ '\n'|indent(10**12) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ [1]|tojson(indent=10**12) }}",
        "{{ [1]|batch(10**12, 0)|list }}",
        "{{ [1]|slice(10**12)|list }}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}",
        "{% for i in range(1000) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% set x %}{% for i in range(1000) %}{{ 'x' * 1000 }}{% endfor %}{% endset %}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ 2 ** 64 }}",
        "{{ -9223372036854775807 - 2 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ (-9223372036854775807 - 1)|abs }}",
        "{{ 99999999999 * 99999999999 }}",
        "{{ '%*d' % (9223372036854775807, 1) }}",
        "{{ '%*d' % (-9223372036854775807 - 1, 1) }}",
        "{{ range(0, 9223372036854775807, 4611686018427387904)[1:2] }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        expect(LP_STATUS_LIMIT, sources[i]);
    expect(LP_OK,
           "{{ range(-9 * 10**18, 9 * 10**18, 4 * 10**18)|list }}"); // 12 * 10**18 from the start
}

// Values nested 100,000 deep, or as wide as 2^60 by sharing: every walk over them must stop.
static void deep_values_are_refused(void **state) {
    (void)state;
    static const char *const makers[] = {
        "{% set ns = namespace(v=[]) %}{% for i in range(2000) %}{% set ns.v = [ns.v] %}{% endfor "
        "%}",
        "{% set ns = namespace(v=()) %}{% for i in range(2000) %}{% set ns.v = (ns.v,) %}{% endfor "
        "%}",
        "{% set ns = namespace(v={}) %}{% for i in range(2000) %}{% set ns.v = {1: ns.v} %}{% "
        "endfor %}",
        "{% set ns = namespace(v=(1,)) %}{% for i in range(60) %}{% set ns.v = (ns.v, ns.v) %}{% "
        "endfor %}"
        "{% set ns.v = (ns.v, ns.v) %}",
    };
    static const char *const walks[] = {
        "{{ ns.v }}",        "{{ ns.v|tojson }}",   "{{ ns.v|string }}",
        "{{ [ns.v]|join }}", "{{ '%s' % [ns.v] }}", "{{ {'k': ns.v}|tojson(indent=1) }}",
    };
    for (size_t m = 0; m < sizeof makers / sizeof *makers; m++)
        for (size_t w = 0; w < sizeof walks / sizeof *walks; w++) {
            char source[1024];
            snprintf(source, sizeof source, "%s%s", makers[m], walks[w]);
            expect(LP_STATUS_LIMIT, source);
        }
    // Two equal values, built apart.
    expect(LP_STATUS_LIMIT,
           "{% set a = namespace(v=[]) %}{% set b = namespace(v=[]) %}{% for i in range(2000) %}"
           "{% set a.v = [a.v] %}{% set b.v = [b.v] %}{% endfor %}{{ a.v == b.v }}");
    expect(LP_STATUS_LIMIT,
           "{% set a = namespace(v=(1,)) %}{% set b = namespace(v=(1,)) %}{% for i in range(60) %}"
           "{% set a.v = (a.v, a.v) %}{% set b.v = (b.v, b.v) %}{% endfor %}{{ {a.v: 1}[b.v] }}");
    expect(LP_STATUS_LIMIT, "{% set n = namespace() %}{% set n.n = n %}{{ n }}");
}

static void long_chains_are_refused_at_run_time(void **state) {
    (void)state;
    struct lp_bytes text = {0};
    lp_bytes_puts(&text, "{{ 1");
    for (int i = 0; i < 5000; i++) lp_bytes_puts(&text, " + 1");
    lp_bytes_puts(&text, " }}");
    expect(LP_STATUS_LIMIT, text.data);
    lp_bytes_clear(&text);
    lp_bytes_puts(&text, "{{ 1");
    for (int i = 0; i < 500; i++) lp_bytes_puts(&text, " + 1");
    lp_bytes_puts(&text, " }}");
    expect(LP_OK, text.data);
    lp_bytes_clear(&text);
    lp_bytes_puts(&text, "{% filter upper");
    for (int i = 0; i < 5000; i++) lp_bytes_puts(&text, "|upper");
    lp_bytes_puts(&text, " %}{% endfilter %}");
    expect(LP_STATUS_LIMIT, text.data);
    lp_bytes_release(&text);
}

static void deep_variables_are_refused(void **state) {
    (void)state;
    json_t *deep = json_array();
    for (int i = 0; i < 1000; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    json_t *vars = json_pack("{s:o}", "v", deep);
    struct lp_bytes out = {0};
    struct lp_err err = {0};
    assert_int_equal(render("x", vars, NULL, &out, &err), LP_STATUS_LIMIT);
    json_decref(vars);
    json_t *list = json_array();
    assert_int_equal(render("x", list, NULL, &out, &err), LP_STATUS_INVALID);
    json_decref(list);
}

static void errors_name_the_line(void **state) {
    (void)state;
    struct lp_bytes out = {0};
    struct lp_err err = {0};
    lp_bytes_puts(&out, "kept");
    assert_int_equal(render("{% set x = 1 %}\n\n{{ x }}\n{{ y.z }}", NULL, NULL, &out, &err),
                     LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "line 4"));
    assert_non_null(strstr(err.text, "'y' is undefined"));
    assert_string_equal(out.data, "kept"); // nothing is written on failure
    assert_int_equal(render("{{ raise_exception('no tools here') }}", NULL, NULL, &out, &err),
                     LP_STATUS_INVALID);
    assert_string_equal(err.text, "chat template: no tools here");
    assert_int_equal(render("{{ 'and more' }}", NULL, NULL, &out, NULL), LP_OK);
    assert_string_equal(out.data, "keptand more");
    lp_bytes_release(&out);
}

static void every_failing_allocation_is_survived(void **state) {
    (void)state;
    static const char source[] =
        "{% macro m(a, b=2) %}{{ a ~ b }}{{ caller() }}{% endmacro %}{% set ns = namespace(x=[]) %}"
        "{% for k, v in {'a': 1, 'b': [1.5, 'x']}.items() if k %}{% set ns.x = ns.x + [k, v] %}"
        "{% call m(k, b=v) %}{{ loop.index }}{% endcall %}{% endfor %}{{ ns.x|tojson(indent=2) }}"
        "{{ 'a,b'.split(',')|map('upper')|join('-') }}{{ ('x' * 70000)|length }}{{ ns.x|string }}";
    struct lp_jinja *jinja;
    assert_int_equal(lp_jinja_parse(&jinja, lp_str_from(source), NULL), LP_OK);
    lp_status status = LP_STATUS_MEMORY;
    for (size_t nth = 1; status; nth++) {
        struct lp_bytes out = {0};
        struct lp_err err = {0};
        lp_alloc_fail_after(nth);
        status = lp_jinja_render(jinja, NULL, NULL, &out, &err);
        lp_alloc_fail_after(0);
        assert_true(status == LP_OK || status == LP_STATUS_MEMORY);
        assert_true(nth < 100);
        lp_bytes_release(&out);
    }
    lp_jinja_free(jinja);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_jinja2),
        cmocka_unit_test(endless_work_is_stopped),
        cmocka_unit_test(deep_values_are_refused),
        cmocka_unit_test(long_chains_are_refused_at_run_time),
        cmocka_unit_test(deep_variables_are_refused),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
