// Runs the cases of tests/data/chat/cases.json, which Python's jinja2 has answered
// (tools/make_chat_cases.py): the output must agree byte by byte; where Python refuses, so must we.
#ifndef LP_TESTS_JINJA_CASES_H
#define LP_TESTS_JINJA_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "text/chat.h"

static inline lp_status render(const char *source, const json_t *vars,
                               const struct lp_jinja_limits *limits, struct lp_bytes *out,
                               struct lp_err *err) {
    struct lp_jinja *jinja;
    lp_status status = lp_jinja_parse(&jinja, lp_str_from(source), err);
    if (!status) status = lp_jinja_render(jinja, vars, limits, out, err);
    lp_jinja_free(jinja);
    return status;
}

static inline json_t *load_cases(void) {
    json_error_t error;
    json_t *cases = json_load_file("tests/data/chat/cases.json", JSON_ALLOW_NUL, &error);
    if (!cases) fail_msg("cases.json: %s", error.text);
    return cases;
}

// Says what is wrong with a case's result, or NULL.
static inline const char *judge(const json_t *one, lp_status status, const struct lp_bytes *out,
                                const struct lp_err *err) {
    const json_t *expect = json_object_get(one, "expect");
    const char *error = json_string_value(json_object_get(one, "error"));
    if (error && !strcmp(error, "raise")) {
        const char *message = json_string_value(json_object_get(one, "message"));
        if (status != LP_STATUS_INVALID) return "raise_exception must give INVALID";
        return strstr(err->text, message) ? NULL : "the message is not that of the template";
    }
    if (error) return status ? NULL : "an error is expected";
    if (status) return "no error is expected";
    bool same = out->len == json_string_length(expect) &&
                (!out->len || !memcmp(out->data, json_string_value(expect), out->len));
    return same ? NULL : "the output differs";
}

// Runs all cases of a group; the vars of `cases` are those of its snippets.
static inline void run_group(const char *group) {
    json_t *cases = load_cases(), *one;
    size_t i, n = 0, n_bad = 0;
    json_array_foreach(json_object_get(cases, "cases"), i, one) {
        if (strcmp(json_string_value(json_object_get(one, "group")), group)) continue;
        const char *source = json_string_value(json_object_get(one, "template"));
        struct lp_bytes out = {0};
        struct lp_err err = {0};
        lp_status status = render(source, json_object_get(cases, "variables"), NULL, &out, &err);
        const char *fault = judge(one, status, &out, &err);
        n++;
        if (fault) {
            n_bad++;
            print_error("%s\n  template: %s\n  expected: %s\n  got:      %s %s\n", fault, source,
                        json_string_value(json_object_get(one, "expect")), out.data ? out.data : "",
                        err.text);
        }
        lp_bytes_release(&out);
    }
    json_decref(cases);
    print_message("%zu cases of group %s, %zu bad\n", n, group, n_bad);
    assert_true(n > 50);
    assert_int_equal(n_bad, 0);
}

#endif
