// Conversations to prompts: agreement with jinja2 over whole templates (tests/data/chat/*.jinja),
// the preparation of messages, and errors that name the message and field.
#include "jinja_cases.h"

static struct lp_jinja *load_template(const char *file) {
    char path[256], *text;
    size_t n;
    struct lp_err err = {0};
    struct lp_jinja *jinja;
    snprintf(path, sizeof path, "tests/data/chat/%s", file);
    if (lp_file_read(path, 1 << 20, &text, &n, &err)) fail_msg("%s", err.text);
    if (lp_jinja_parse(&jinja, (struct lp_str){text, n}, &err)) fail_msg("%s: %s", file, err.text);
    lp_free(text);
    return jinja;
}

static void agrees_with_jinja2(void **state) {
    (void)state;
    json_t *cases = load_cases(), *one;
    size_t i, n = 0, n_bad = 0;
    json_array_foreach(json_object_get(cases, "cases"), i, one) {
        if (strcmp(json_string_value(json_object_get(one, "group")), "chat")) continue;
        json_t *given = json_object_get(one, "params");
        json_t *prompt = json_object_get(given, "add_generation_prompt");
        struct lp_chat_params params = {
            .messages = json_object_get(given, "messages"),
            .tools = json_object_get(given, "tools"),
            .kwargs = json_object_get(given, "kwargs"),
            .add_generation_prompt = !prompt || json_is_true(prompt),
            .bos_token = lp_str_from("<s>"),
            .eos_token = lp_str_from("</s>"),
        };
        struct lp_jinja *jinja = load_template(json_string_value(json_object_get(one, "file")));
        json_t *before = json_deep_copy(params.messages);
        struct lp_bytes out = {0};
        struct lp_err err = {0};
        lp_status status = lp_chat_render(jinja, &params, &out, &err);
        const char *fault = judge(one, status, &out, &err);
        assert_true(json_equal(before, params.messages)); // the caller's messages stay as they are
        n++;
        if (fault) {
            n_bad++;
            print_error("%s: %s\n  expected: %s\n  got:      %s %s\n",
                        json_string_value(json_object_get(one, "name")), fault,
                        json_string_value(json_object_get(one, "expect")), out.data ? out.data : "",
                        err.text);
        }
        json_decref(before);
        lp_bytes_release(&out);
        lp_jinja_free(jinja);
    }
    json_decref(cases);
    print_message("%zu conversations, %zu bad\n", n, n_bad);
    assert_true(n > 200);
    assert_int_equal(n_bad, 0);
}

static lp_status chat(const char *source, const char *messages, const char *kwargs,
                      struct lp_bytes *out, struct lp_err *err) {
    struct lp_jinja *jinja;
    assert_int_equal(lp_jinja_parse(&jinja, lp_str_from(source), NULL), LP_OK);
    struct lp_chat_params params = {
        .messages = json_loads(messages, JSON_DECODE_ANY, NULL),
        .kwargs = kwargs ? json_loads(kwargs, JSON_DECODE_ANY, NULL) : NULL,
    };
    assert_non_null(params.messages);
    lp_status status = lp_chat_render(jinja, &params, out, err);
    json_decref((json_t *)params.messages);
    json_decref((json_t *)params.kwargs);
    lp_jinja_free(jinja);
    return status;
}

static void faults_name_message_and_field(void **state) {
    (void)state;
    static const struct {
        const char *messages, *says;
    } faults[] = {
        {"{}", "messages must be an array"},
        {"[1]", "messages[0] must be an object"},
        {"[{\"role\":\"user\"},{}]", "messages[1].role must be a string"},
        {"[{\"role\":\"user\",\"content\":5}]", "messages[0].content must be"},
        {"[{\"role\":\"a\",\"tool_calls\":{}}]", "messages[0].tool_calls must be an array"},
        {"[{\"role\":\"a\",\"tool_calls\":[1]}]", "messages[0].tool_calls[0] must be an object"},
        {"[{\"role\":\"a\",\"tool_calls\":[{\"function\":1}]}]",
         "messages[0].tool_calls[0].function must be an object"},
        {"[{\"role\":\"a\",\"tool_calls\":[{},{\"function\":{\"arguments\":\"{\"}}]}]",
         "messages[0].tool_calls[1].function.arguments is not valid JSON"},
        {"[{\"role\":\"a\",\"tool_calls\":[{\"function\":{\"arguments\":\"[1]\"}}]}]",
         "messages[0].tool_calls[0].function.arguments is JSON, but no object"},
        {"[{\"role\":\"a\",\"tool_calls\":[{\"function\":{\"arguments\":5}}]}]",
         "messages[0].tool_calls[0].function.arguments must be"},
        {"[{\"role\":\"a\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]",
         "messages[0].content[0] is of type image_url"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct lp_bytes out = {0};
        struct lp_err err = {0};
        assert_int_equal(chat("{{ messages }}", faults[i].messages, NULL, &out, &err),
                         LP_STATUS_INVALID);
        if (!strstr(err.text, faults[i].says)) fail_msg("%s, not %s", err.text, faults[i].says);
        assert_int_equal(out.len, 0);
    }
    struct lp_bytes out = {0};
    struct lp_err err = {0};
    assert_int_equal(chat("x", "[]", "[1]", &out, &err), LP_STATUS_INVALID);
    assert_int_equal(chat("x", "[]", "{\"messages\": []}", &out, &err), LP_STATUS_INVALID);
}

static void messages_are_prepared(void **state) {
    (void)state;
    struct lp_bytes out = {0};
    struct lp_err err = {0};
    assert_int_equal(
        chat(
            "{{ messages[0].role }} {{ messages[1].content }} "
            "{{ messages[1].tool_calls | map(attribute='function.arguments') | list }} {{ x }}",
            "[{\"role\":\"developer\",\"content\":\"c\"},{\"role\":\"assistant\",\"tool_calls\":["
            "{\"function\":{\"arguments\":\"{\\\"b\\\":1,\\\"a\\\":[1.0,18446744073709551616]}\"}},"
            "{\"function\":{\"arguments\":\"null\"}},{\"function\":{}},"
            "{\"function\":{\"arguments\":{\"k\":true}}}]}]",
            "{\"x\": [null]}", &out, &err),
        LP_OK);
    assert_string_equal(out.data,
                        "system None [{'b': 1.0, 'a': [1.0, 1.8446744073709552e+19]}, {}, {}, "
                        "{'k': True}] [None]");
    lp_bytes_release(&out);
}

static void parts_are_joined_unless_the_template_takes_them(void **state) {
    (void)state;
    static const char messages[] =
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},\"b\"]}]";
    struct lp_bytes out = {0};
    struct lp_err err = {0};
    assert_int_equal(chat("{{ messages[0].content }}", messages, NULL, &out, &err), LP_OK);
    assert_string_equal(out.data, "a\nb");
    lp_bytes_clear(&out);
    assert_int_equal(chat("{% for p in messages[0]['content'] %}{{ p.text or p }};{% endfor %}",
                          messages, NULL, &out, &err),
                     LP_OK);
    assert_string_equal(out.data, "a;b;");
    lp_bytes_release(&out);
}

static void every_failing_allocation_is_survived(void **state) {
    (void)state;
    struct lp_jinja *jinja = load_template("glm_tags.jinja");
    json_t *cases = load_cases(), *one;
    size_t i, n = 0;
    json_array_foreach(json_object_get(cases, "cases"), i, one) {
        const char *file = json_string_value(json_object_get(one, "file"));
        if (!file || strcmp(file, "glm_tags.jinja") || n++ % 8) continue;
        json_t *given = json_object_get(one, "params");
        struct lp_chat_params params = {.messages = json_object_get(given, "messages"),
                                        .tools = json_object_get(given, "tools")};
        lp_status status = LP_STATUS_MEMORY;
        for (size_t nth = 1; status == LP_STATUS_MEMORY; nth++) {
            struct lp_bytes out = {0};
            lp_alloc_fail_after(nth);
            status = lp_chat_render(jinja, &params, &out, NULL);
            lp_alloc_fail_after(0);
            lp_bytes_release(&out);
        }
    }
    json_decref(cases);
    lp_jinja_free(jinja);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_jinja2),
        cmocka_unit_test(faults_name_message_and_field),
        cmocka_unit_test(messages_are_prepared),
        cmocka_unit_test(parts_are_joined_unless_the_template_takes_them),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
