// Filters, tests, methods and globals: agreement with jinja2, and what the data cannot say.
#include "jinja_cases.h"

#include <time.h>

static void agrees_with_jinja2(void **state) {
    (void)state;
    run_group("builtins");
}

static void strftime_now_gives_the_date(void **state) {
    (void)state;
    struct lp_bytes out = {0};
    struct lp_err err = {0};
    char before[32], after[32];
    time_t now = time(NULL);
    strftime(before, sizeof before, "%d %b %Y %%", localtime(&now));
    assert_int_equal(render("{{ strftime_now('%d %b %Y %%') }}", NULL, NULL, &out, &err), LP_OK);
    now = time(NULL);
    strftime(after, sizeof after, "%d %b %Y %%", localtime(&now));
    assert_true(!strcmp(out.data, before) || !strcmp(out.data, after));
    lp_bytes_clear(&out);
    assert_int_equal(render("[{{ strftime_now('') }}]", NULL, NULL, &out, &err), LP_OK);
    assert_string_equal(out.data, "[]");
    assert_int_equal(render("{{ strftime_now('%c' * 400) }}", NULL, NULL, &out, &err),
                     LP_STATUS_LIMIT);
    lp_bytes_release(&out);
}

static void forbidden_methods_say_so(void **state) {
    (void)state;
    struct lp_bytes out = {0};
    struct lp_err err = {0};
    assert_int_equal(render("\n{% set x = [] %}\n{{ x.append(1) }}", NULL, NULL, &out, &err),
                     LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "line 3"));
    assert_non_null(strstr(err.text, "'append' is forbidden"));
    assert_int_equal(render("{{ {}.update({}) }}", NULL, NULL, &out, &err), LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "'update' is forbidden"));
    assert_int_equal(render("{{ ''.__class__.__mro__ }}", NULL, NULL, &out, &err),
                     LP_STATUS_FORMAT);
    lp_bytes_release(&out);
}

static void invalid_utf8_is_passed_through(void **state) {
    (void)state;
    struct lp_bytes out = {0};
    struct lp_err err = {0};
    assert_int_equal(
        render("{% set x = 'a\xff\xe4\xb8' %}{{ x|length }}{{ x[::-1]|upper|trim }}{{ x }}", NULL,
               NULL, &out, &err),
        LP_OK);
    assert_string_equal(out.data, "4\xb8\xe4\xff"
                                  "Aa\xff\xe4\xb8");
    lp_bytes_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_jinja2),
        cmocka_unit_test(strftime_now_gives_the_date),
        cmocka_unit_test(forbidden_methods_say_so),
        cmocka_unit_test(invalid_utf8_is_passed_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
