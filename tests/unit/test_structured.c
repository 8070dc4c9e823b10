// Which fields ask for a form of the answer, and what they hand to the engine.
#include "lp_test.h"

#include <string.h>

#include "serve/structured.h"

static struct lp_completion_params p;
static struct lp_api_error err;

static bool parse(const char *body, enum lp_api api) {
    json_error_t at;
    json_t *root = json_loads(body, 0, &at);
    assert_non_null(root);
    p = lp_fields_defaults();
    bool ok = lp_structured_parse(&p, root, api, &err);
    json_decref(root);
    return ok;
}

static void asks(const char *body, enum lp_api api, const char *kind, const char *source) {
    assert_true(parse(body, api));
    if (kind) {
        assert_non_null(p.grammar_kind);
        assert_string_equal(p.grammar_kind, kind);
        assert_int_equal(p.n_grammar, strlen(source));
        assert_string_equal(p.grammar, source);
    } else {
        assert_null(p.grammar_kind);
    }
    lp_completion_params_release(&p);
}

static void refuses(const char *body, const char *param, const char *words) {
    assert_false(parse(body, LP_API_CHAT));
    assert_int_equal(err.http, 400);
    assert_string_equal(err.param, param);
    assert_non_null(strstr(err.message, words));
    lp_completion_params_release(&p);
}

static void every_field_has_its_kind(void **state) {
    (void)state;
    static const struct {
        const char *body, *kind, *source;
    } rows[] = {
        {"{}", NULL, NULL},
        {"{\"response_format\": null}", NULL, NULL},
        {"{\"response_format\": {\"type\": \"text\"}}", NULL, NULL},
        {"{\"response_format\": {\"type\": \"json_object\"}}", "json", ""},
        {"{\"response_format\": {\"type\": \"json_object\", \"schema\": {\"type\": \"null\"}}}",
         "json_schema", "{\"type\":\"null\"}"},
        {"{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": true}}}",
         "json_schema", "true"},
        {"{\"structured_outputs\": {\"json\": {}}}", "json_schema", "{}"},
        {"{\"structured_outputs\": {\"json\": \"{}\"}}", "json_schema", "{}"},
        {"{\"structured_outputs\": {\"regex\": \"a+\"}}", "regex", "a+"},
        {"{\"structured_outputs\": {\"choice\": [\"a\", \"b\"]}}", "choice", "[\"a\",\"b\"]"},
        {"{\"structured_outputs\": {\"grammar\": \"root ::= \\\"a\\\"\"}}", "gbnf",
         "root ::= \"a\""},
        {"{\"structured_outputs\": {\"json_object\": true}}", "json", ""},
        {"{\"structured_outputs\": {\"json_object\": false}}", NULL, NULL},
        {"{\"guided_json\": {\"type\": \"null\"}}", "json_schema", "{\"type\":\"null\"}"},
        {"{\"guided_json\": {}}", NULL, NULL}, // asks for nothing, in vLLM too
        {"{\"guided_regex\": \"\"}", NULL, NULL},
        {"{\"guided_choice\": []}", NULL, NULL},
        {"{\"guided_choice\": [\"x\"]}", "choice", "[\"x\"]"},
        {"{\"grammar\": \"root ::= [a]\"}", "gbnf", "root ::= [a]"},
        {"{\"json_schema\": {\"const\": 1}}", "json_schema", "{\"const\":1}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        asks(rows[i].body, LP_API_CHAT, rows[i].kind, rows[i].source);
        asks(rows[i].body, LP_API_COMPLETIONS, rows[i].kind, rows[i].source);
    }
}

static void responses_have_it_in_text(void **state) {
    (void)state;
    asks("{\"text\": {\"format\": {\"type\": \"json_schema\", \"name\": \"x\", \"schema\": "
         "{\"const\": 1}}}}",
         LP_API_RESPONSES, "json_schema", "{\"const\":1}");
    asks("{\"text\": {\"format\": {\"type\": \"text\"}}}", LP_API_RESPONSES, NULL, NULL);
    asks("{\"text\": {\"verbosity\": \"low\"}}", LP_API_RESPONSES, NULL, NULL);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    refuses("{\"response_format\": 3}", "response_format", "a number");
    refuses("{\"response_format\": {}}", "response_format", "no type");
    refuses("{\"response_format\": {\"type\": 1}}", "response_format", "a number");
    refuses("{\"response_format\": {\"type\": \"xml\"}}", "response_format", "'xml'");
    refuses("{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {}}}",
            "response_format", "no json_schema.schema");
    refuses("{\"structured_outputs\": []}", "structured_outputs", "an array");
    refuses("{\"structured_outputs\": {\"structural_tag\": {}}}",
            "structured_outputs.structural_tag", "not supported");
    refuses("{\"structured_outputs\": {\"regex\": \"a\", \"json\": {}}}",
            "structured_outputs.regex", "one of them");
    refuses("{\"structured_outputs\": {\"choice\": [1]}}", "structured_outputs.choice",
            "[0] is a number");
    refuses("{\"guided_choice\": \"a\"}", "guided_choice", "a string");
    refuses("{\"guided_json\": 5}", "guided_json", "a number");
    refuses("{\"grammar\": 5}", "grammar", "a number");
    refuses("{\"guided_regex\": \"a\", \"grammar\": \"root ::= [a]\"}", "grammar", "one of them");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_has_its_kind),
        cmocka_unit_test(responses_have_it_in_text),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
