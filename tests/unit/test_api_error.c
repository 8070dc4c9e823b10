// What clients decide by: status, type, code, param, and when to ask again.
#include "lp_test.h"

#include "serve/api_error.h"

static struct lp_api_error from(limpid_status status, const char *text) {
    struct lp_api_error err;
    limpid_error e = {.status = status};
    snprintf(e.text, sizeof e.text, "%s", text);
    assert_false(lp_api_from_limpid(&err, &e));
    assert_string_equal(err.message, text);
    return err;
}

static void is(struct lp_api_error err, int http, const char *type, const char *code, int retry) {
    assert_int_equal(err.http, http);
    assert_string_equal(err.type, type);
    if (code)
        assert_string_equal(err.code, code);
    else
        assert_null(err.code);
    assert_int_equal(err.retry_after_s, retry);
}

static void each_status_of_the_engine_has_its_answer(void **state) {
    (void)state;
    is(from(LIMPID_INVALID, "bad"), 400, "invalid_request_error", NULL, 0);
    is(from(LIMPID_LIMIT, "17 and 16"), 400, "invalid_request_error", "context_length_exceeded", 0);
    is(from(LIMPID_BUSY, "full"), 429, "rate_limit_error", "rate_limit_exceeded", 1);
    is(from(LIMPID_TIMEOUT, "late"), 504, "server_error", "request_timeout", 0);
    is(from(LIMPID_CANCELLED, "stop"), 503, "server_error", NULL, 5);
    is(from(LIMPID_NUMERIC, "NaN"), 500, "server_error", NULL, 0);
    is(from(LIMPID_MEMORY, "none"), 500, "server_error", NULL, 0);
    is(from(LIMPID_IO, "disk"), 500, "server_error", NULL, 0);
}

static void the_field_that_a_sentence_begins_with_is_the_param(void **state) {
    (void)state;
    const struct {
        const char *text, *param;
    } rows[] = {
        {"min_p is 2, expected at least 0 and at most 1", "min_p"},
        {"n is 2000, expected 1 to 1024", "n"},
        {"logit_bias has token 5, which is never generated; leave it out", "logit_bias"},
        {"stop_ids 0 has id 9, the model has 5 tokens", "stop_token_ids"},
        {"prompt token 0 has id 9, the model has 5 tokens", "prompt"},
        {"timeout_ms is -1", ""},
        {"the prompt is empty", ""},
        {"min_power is no field", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(from(LIMPID_INVALID, rows[i].text).param, rows[i].param);
    assert_string_equal(from(LIMPID_LIMIT, "min_p").param, "prompt");
}

static void the_body_is_openais(void **state) {
    (void)state;
    struct lp_api_error err;
    assert_false(lp_api_invalid(&err, "stop", "bad \xff"));
    json_t *json = lp_api_error_json(&err), *e = json_object_get(json, "error");
    assert_int_equal(json_object_size(e), 4);
    assert_string_equal(json_string_value(json_object_get(e, "message")), "bad \xEF\xBF\xBD");
    assert_string_equal(json_string_value(json_object_get(e, "param")), "stop");
    assert_true(json_is_null(json_object_get(e, "code")));
    json_decref(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_status_of_the_engine_has_its_answer),
        cmocka_unit_test(the_field_that_a_sentence_begins_with_is_the_param),
        cmocka_unit_test(the_body_is_openais)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
