// The body of /v1/responses: items become turns of a chat, fields become settings, and what is not
// supported is refused by name. Expectations: OpenAI's reference of the two APIs.
#include "lp_test.h"

#include "base/alloc.h"
#include "serve/responses_request.h"

static struct lp_service service = {.chat_template = "{{ reasoning_effort }} 'low' 'high'"};
static struct lp_responses_request r;
static struct lp_api_error err;

static bool parse(const char *body) {
    json_error_t at;
    json_t *root = json_loads(body, JSON_ALLOW_NUL, &at);
    if (!root) fail_msg("the test's body is no JSON: %s in %s", at.text, body);
    bool ok = lp_responses_request_parse(&r, &service, root, &err);
    json_decref(root);
    return ok;
}

static int release(void **state) {
    (void)state;
    lp_responses_request_release(&r);
    return 0;
}

static void same_json(const json_t *found, const char *expected) {
    json_t *e = json_loads(expected, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    assert_non_null(e);
    char *text = json_dumps(found, JSON_ENCODE_ANY);
    if (!json_equal(found, e)) fail_msg("found %s, expected %s", text, expected);
    free(text);
    json_decref(e);
}

static void gives_messages(const char *body, const char *messages) {
    if (!parse(body)) fail_msg("%s: %s", body, err.message);
    same_json(r.chat.messages, messages);
    lp_responses_request_release(&r);
}

static void refuses(const char *body, const char *param, const char *part_of_message) {
    if (parse(body)) fail_msg("accepted: %s", body);
    assert_int_equal(err.http, 400);
    assert_string_equal(err.type, "invalid_request_error");
    assert_string_equal(err.param, param);
    if (!strstr(err.message, part_of_message))
        fail_msg("'%s' lacks '%s'", err.message, part_of_message);
    lp_responses_request_release(&r);
}

// ---- input ----

static void a_text_is_a_user_message_behind_the_instructions(void **state) {
    (void)state;
    gives_messages("{\"input\": \"Hi\"}", "[{\"role\": \"user\", \"content\": \"Hi\"}]");
    gives_messages("{\"input\": \"Hi\", \"instructions\": \"Be brief.\"}",
                   "[{\"role\": \"system\", \"content\": \"Be brief.\"},"
                   " {\"role\": \"user\", \"content\": \"Hi\"}]");
    gives_messages("{\"input\": \"a\\u0000b\"}",
                   "[{\"role\": \"user\", \"content\": \"a\\u0000b\"}]");
}

static void messages_may_lack_a_type_and_have_parts(void **state) {
    (void)state;
    gives_messages(
        "{\"input\": [{\"role\": \"developer\", \"content\": \"d\"},"
        " {\"type\": \"message\", \"role\": \"user\", \"content\":"
        "  [{\"type\": \"input_text\", \"text\": \"a\\u0000\"}, {\"type\": \"text\", \"text\": "
        "\"b\"}]},"
        " {\"role\": \"assistant\", \"content\": [{\"type\": \"output_text\", \"text\": \"c\","
        "  \"annotations\": []}, {\"type\": \"refusal\", \"refusal\": \"no\"}]},"
        " {\"role\": \"user\", \"content\": []}]}",
        "[{\"role\": \"system\", \"content\": \"d\"}, {\"role\": \"user\", \"content\": "
        "\"a\\u0000b\"},"
        " {\"role\": \"assistant\", \"content\": \"cno\"}, {\"role\": \"user\", \"content\": "
        "\"\"}]");
}

static void items_of_an_answer_become_one_message(void **state) {
    (void)state;
    gives_messages(
        "{\"input\": [{\"role\": \"user\", \"content\": \"q\"},"
        " {\"type\": \"reasoning\", \"id\": \"rs_1\", \"summary\": [],"
        "  \"content\": [{\"type\": \"reasoning_text\", \"text\": \"th\"},"
        "                {\"type\": \"reasoning_text\", \"text\": \"ink\"}]},"
        " {\"type\": \"message\", \"id\": \"msg_1\", \"role\": \"assistant\", \"status\": "
        "\"completed\","
        "  \"content\": [{\"type\": \"output_text\", \"text\": \"I look.\", \"annotations\": []}]},"
        " {\"type\": \"function_call\", \"id\": \"fc_1\", \"call_id\": \"call_1\", \"name\": \"f\","
        "  \"arguments\": \"{\\\"x\\\": 1}\"},"
        " {\"type\": \"function_call\", \"call_id\": \"call_2\", \"name\": \"g\", \"arguments\": "
        "\"{}\"},"
        " {\"type\": \"function_call_output\", \"call_id\": \"call_1\", \"output\": \"one\"},"
        " {\"type\": \"function_call_output\", \"call_id\": \"call_2\","
        "  \"output\": [{\"type\": \"input_text\", \"text\": \"two\"}]},"
        " {\"type\": \"message\", \"role\": \"assistant\", \"content\": \"done\"}]}",
        "[{\"role\": \"user\", \"content\": \"q\"},"
        " {\"role\": \"assistant\", \"content\": \"I look.\", \"reasoning_content\": \"think\","
        "  \"tool_calls\": [{\"id\": \"call_1\", \"type\": \"function\","
        "                    \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}},"
        "                   {\"id\": \"call_2\", \"type\": \"function\","
        "                    \"function\": {\"name\": \"g\", \"arguments\": \"{}\"}}]},"
        " {\"role\": \"tool\", \"tool_call_id\": \"call_1\", \"content\": \"one\"},"
        " {\"role\": \"tool\", \"tool_call_id\": \"call_2\", \"content\": \"two\"},"
        " {\"role\": \"assistant\", \"content\": \"done\"}]");
}

static void text_around_a_call_is_of_its_turn(void **state) {
    (void)state;
    gives_messages(
        "{\"input\": [{\"role\": \"assistant\", \"content\": \"a\"},"
        " {\"type\": \"function_call\", \"call_id\": \"1\", \"name\": \"f\", \"arguments\": "
        "\"{}\"},"
        " {\"role\": \"assistant\", \"content\": \"b\"}]}",
        "[{\"role\": \"assistant\", \"content\": \"ab\", \"tool_calls\": [{\"id\": \"1\","
        " \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}]");
}

static void turns_of_an_assistant_stay_apart(void **state) {
    (void)state;
    gives_messages(
        "{\"input\": [{\"role\": \"assistant\", \"content\": \"a\"},"
        " {\"role\": \"assistant\", \"content\": \"b\"},"
        " {\"type\": \"reasoning\", \"summary\": [{\"type\": \"summary_text\", \"text\": \"s\"}]},"
        " {\"role\": \"assistant\", \"content\": \"c\"},"
        " {\"type\": \"reasoning\", \"summary\": []}]}",
        "[{\"role\": \"assistant\", \"content\": \"a\"},"
        " {\"role\": \"assistant\", \"content\": \"b\"},"
        " {\"role\": \"assistant\", \"reasoning_content\": \"s\", \"content\": \"c\"}]");
}

static void bad_items_are_refused_by_their_path(void **state) {
    (void)state;
    refuses("{}", "input", "missing");
    refuses("{\"input\": 5}", "input", "a number");
    refuses("{\"input\": []}", "input", "empty");
    refuses("{\"input\": [{\"type\": \"reasoning\", \"summary\": []}]}", "input", "no text");
    refuses("{\"input\": [\"x\"]}", "input[0]", "a string, expected an object");
    refuses("{\"input\": [{}]}", "input[0].type", "missing");
    refuses("{\"input\": [{\"type\": 1}]}", "input[0].type", "a number");
    refuses("{\"input\": [{\"role\": \"tool\", \"content\": \"\"}]}", "input[0].role", "'tool'");
    refuses("{\"input\": [{\"role\": \"user\"}]}", "input[0].content", "missing");
    refuses("{\"input\": [{\"role\": \"us\\u0000er\", \"content\": \"\"}]}", "input[0].role",
            "NUL");
    refuses("{\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_image\","
            " \"image_url\": \"data:\"}]}]}",
            "input[0].content[0].type", "text only");
    refuses("{\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": "
            "1}]}]}",
            "input[0].content[0].text", "a number");
    refuses("{\"input\": [{\"role\": \"user\", \"content\": [{\"text\": \"x\"}]}]}",
            "input[0].content[0].type", "missing");
    refuses("{\"input\": [{\"type\": \"function_call\", \"name\": \"f\", \"arguments\": \"{}\"}]}",
            "input[0].call_id", "missing");
    refuses("{\"input\": [{\"type\": \"function_call\", \"call_id\": \"1\", \"name\": \"f\", "
            "\"arguments\": {}}]}",
            "input[0].arguments", "an object");
    refuses("{\"input\": [{\"type\": \"function_call\", \"call_id\": \"1\", \"name\": \"f\", "
            "\"arguments\": \"[]\"}]}",
            "input[0].arguments", "JSON object");
    refuses("{\"input\": [{\"type\": \"function_call_output\", \"call_id\": \"1\"}]}",
            "input[0].output", "missing");
    refuses("{\"input\": [{\"type\": \"item_reference\", \"id\": \"msg_1\"}]}", "input[0].type",
            "stores no items");
    refuses("{\"input\": [{\"type\": \"computer_call\"}]}", "input[0].type", "computer_call");
    refuses("{\"input\": \"x\", \"instructions\": [\"x\"]}", "instructions", "an array");
}

// ---- fields ----

static void settings_have_the_defaults_of_a_chat(void **state) {
    (void)state;
    assert_true(
        parse("{\"input\": \"x\", \"max_output_tokens\": null, \"temperature\": null,"
              " \"tools\": null, \"include\": null, \"metadata\": null, \"reasoning\": null,"
              " \"text\": null, \"truncation\": null, \"previous_response_id\": null}"));
    const struct lp_completion_params *p = &r.chat.params;
    assert_true(p->temperature == 1 && p->top_p == 1 && p->max_tokens == INT32_MAX);
    assert_int_equal(p->logprobs, -1);
    assert_false(p->stream || r.chat.one_call || r.chat.continue_final);
    assert_null(r.chat.tools);
    assert_null(r.chat.variables);
    assert_int_equal(r.chat.tool_choice, LP_TOOLS_AUTO);
    same_json(
        r.echo,
        "{\"instructions\": null, \"max_output_tokens\": null, \"metadata\": {}, \"tools\": [],"
        " \"tool_choice\": \"auto\", \"parallel_tool_calls\": true, \"temperature\": 1.0,"
        " \"top_p\": 1.0, \"top_logprobs\": 0, \"truncation\": \"disabled\","
        " \"text\": {\"format\": {\"type\": \"text\"}, \"verbosity\": \"medium\"},"
        " \"reasoning\": {\"effort\": null, \"summary\": null}}");
}

static void settings_are_taken(void **state) {
    (void)state;
    assert_true(
        parse("{\"input\": \"x\", \"model\": \"m\", \"max_output_tokens\": 7, \"temperature\": 0, "
              "\"top_p\": 0.5,"
              " \"top_k\": 3, \"seed\": 9, \"stream\": true, \"parallel_tool_calls\": false, "
              "\"top_logprobs\": 2,"
              " \"include\": [\"reasoning.encrypted_content\", \"message.output_text.logprobs\"],"
              " \"metadata\": {\"a\": \"b\"}, \"store\": true, \"user\": \"u\", \"service_tier\": "
              "\"auto\","
              " \"stream_options\": {\"include_obfuscation\": false}, \"truncation\": \"disabled\","
              " \"reasoning\": {\"effort\": \"minimal\", \"summary\": \"auto\"},"
              " \"text\": {\"verbosity\": \"low\", \"format\": {\"type\": \"json_object\"}}}"));
    const struct lp_completion_params *p = &r.chat.params;
    assert_true(p->temperature == 0 && p->top_p == 0.5 && p->max_tokens == 7 && p->top_k == 3);
    assert_true(p->stream && r.chat.one_call && p->has_seed && p->seed == 9);
    assert_int_equal(p->logprobs, 2);
    assert_string_equal(p->grammar_kind, "json");
    same_json(r.chat.variables, "{\"reasoning_effort\": \"low\", \"verbosity\": \"low\"}");
    same_json(json_object_get(r.echo, "metadata"), "{\"a\": \"b\"}");
    same_json(json_object_get(r.echo, "reasoning"),
              "{\"effort\": \"minimal\", \"summary\": \"auto\"}");
    same_json(json_object_get(r.echo, "max_output_tokens"), "7");
    same_json(json_object_get(r.echo, "parallel_tool_calls"), "false");
}

static void effort_none_turns_thinking_off(void **state) {
    (void)state;
    assert_true(parse("{\"input\": \"x\", \"reasoning\": {\"effort\": \"none\"}}"));
    assert_true(json_is_false(json_object_get(r.chat.variables, "enable_thinking")));
}

static void a_schema_lies_flat_in_text_format(void **state) {
    (void)state;
    assert_true(parse("{\"input\": \"x\", \"text\": {\"format\": {\"type\": \"json_schema\","
                      " \"name\": \"n\", \"strict\": true, \"schema\": {\"type\": \"object\"}}}}"));
    assert_string_equal(r.chat.params.grammar_kind, "json_schema");
    assert_string_equal(r.chat.params.grammar, "{\"type\":\"object\"}");
}

static void tools_get_the_form_of_chat(void **state) {
    (void)state;
    assert_true(
        parse("{\"input\": \"x\", \"tools\": [{\"type\": \"function\", \"name\": \"f\","
              " \"description\": \"d\", \"parameters\": {\"type\": \"object\"}, \"strict\": true},"
              " {\"type\": \"function\", \"name\": \"g\", \"parameters\": null}],"
              " \"tool_choice\": {\"type\": \"function\", \"name\": \"g\"}}"));
    same_json(r.chat.tools, "[{\"type\": \"function\", \"function\": {\"name\": \"f\","
                            " \"description\": \"d\", \"parameters\": {\"type\": \"object\"},"
                            " \"strict\": true}},"
                            " {\"type\": \"function\", \"function\": {\"name\": \"g\"}}]");
    assert_int_equal(r.chat.tool_choice, LP_TOOLS_NAMED);
    assert_string_equal(r.chat.tool_name, "g");
    same_json(
        json_object_get(r.echo, "tools"),
        "[{\"type\": \"function\", \"name\": \"f\", \"description\": \"d\","
        "  \"parameters\": {\"type\": \"object\"}, \"strict\": true},"
        " {\"type\": \"function\", \"name\": \"g\", \"description\": null, \"parameters\": null,"
        "  \"strict\": null}]");
    same_json(json_object_get(r.echo, "tool_choice"), "{\"type\": \"function\", \"name\": \"g\"}");
}

static void choice_of_tools_is_a_word(void **state) {
    (void)state;
    assert_true(parse("{\"input\": \"x\", \"tool_choice\": \"none\"}"));
    assert_int_equal(r.chat.tool_choice, LP_TOOLS_NONE);
    lp_responses_request_release(&r);
    assert_true(parse("{\"input\": \"x\", \"tool_choice\": \"required\","
                      " \"tools\": [{\"type\": \"function\", \"name\": \"f\"}]}"));
    assert_int_equal(r.chat.tool_choice, LP_TOOLS_REQUIRED);
}

static void bad_tools_are_refused(void **state) {
    (void)state;
    static const char *const built_in[] = {"web_search",         "file_search", "code_interpreter",
                                           "computer_use",       "mcp",         "image_generation",
                                           "web_search_preview", "custom"};
    for (size_t i = 0; i < sizeof built_in / sizeof built_in[0]; i++) {
        char body[120];
        snprintf(body, sizeof body, "{\"input\": \"x\", \"tools\": [{\"type\": \"%s\"}]}",
                 built_in[i]);
        refuses(body, "tools[0].type", built_in[i]);
    }
    refuses("{\"input\": \"x\", \"tools\": {}}", "tools", "an object");
    refuses("{\"input\": \"x\", \"tools\": [1]}", "tools[0]", "a number");
    refuses("{\"input\": \"x\", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "
            "\"f\"}}]}",
            "tools[0].name", "beside type");
    refuses("{\"input\": \"x\", \"tools\": [{\"type\": \"function\", \"name\": \"f\", "
            "\"parameters\": []}]}",
            "tools[0].parameters", "an array");
    refuses(
        "{\"input\": \"x\", \"tools\": [{\"type\": \"function\", \"name\": \"f\", \"strict\": 1}]}",
        "tools[0].strict", "a number");
    refuses("{\"input\": \"x\", \"tool_choice\": \"required\"}", "tool_choice", "no tools");
    refuses("{\"input\": \"x\", \"tool_choice\": \"some\"}", "tool_choice", "another word");
    refuses("{\"input\": \"x\", \"tool_choice\": 1}", "tool_choice", "a number");
    refuses("{\"input\": \"x\", \"tool_choice\": {\"type\": \"function\", \"name\": \"f\"}}",
            "tool_choice.name", "none of the tools");
    refuses("{\"input\": \"x\", \"tool_choice\": {\"type\": \"web_search\"}}", "tool_choice.type",
            "web_search");
    refuses("{\"input\": \"x\", \"tool_choice\": {\"type\": \"allowed_tools\"}}",
            "tool_choice.type", "only those");
}

static void what_is_not_supported_is_refused_by_name(void **state) {
    (void)state;
    refuses("{\"input\": \"x\", \"previous_response_id\": \"resp_1\"}", "previous_response_id",
            "earlier items in input");
    refuses("{\"input\": \"x\", \"conversation\": \"conv_1\"}", "conversation", "earlier items");
    refuses("{\"input\": \"x\", \"prompt\": {\"id\": \"p\"}}", "prompt", "instructions");
    refuses("{\"input\": \"x\", \"background\": true}", "background", "stream");
    refuses("{\"input\": \"x\", \"truncation\": \"auto\"}", "truncation", "shorten");
    refuses("{\"input\": \"x\", \"context_management\": [{\"type\": \"compaction\"}]}",
            "context_management", "shorten");
    refuses("{\"input\": \"x\", \"moderation\": {\"model\": \"m\"}}", "moderation",
            "not supported");
}

static void wrong_types_and_words_are_refused(void **state) {
    (void)state;
    refuses("{\"input\": \"x\", \"include\": \"y\"}", "include", "a string");
    refuses("{\"input\": \"x\", \"include\": [\"y\"]}", "include", "'y'");
    refuses("{\"input\": \"x\", \"include\": [1]}", "include", "a number");
    refuses("{\"input\": \"x\", \"metadata\": []}", "metadata", "an array");
    refuses("{\"input\": \"x\", \"reasoning\": \"high\"}", "reasoning", "a string");
    refuses("{\"input\": \"x\", \"reasoning\": {\"effort\": 1}}", "reasoning.effort", "a number");
    refuses("{\"input\": \"x\", \"reasoning\": {\"effort\": \"huge\"}}", "reasoning.effort",
            "'huge'");
    refuses("{\"input\": \"x\", \"reasoning\": {\"summary\": \"x\"}}", "reasoning.summary", "'x'");
    refuses("{\"input\": \"x\", \"text\": []}", "text", "an array");
    refuses("{\"input\": \"x\", \"text\": {\"verbosity\": \"x\"}}", "text.verbosity", "'x'");
    refuses("{\"input\": \"x\", \"text\": {\"format\": {\"type\": \"xml\"}}}", "text.format",
            "xml");
    refuses("{\"input\": \"x\", \"stream_options\": 1}", "stream_options", "a number");
    refuses("{\"input\": \"x\", \"background\": 1}", "background", "a number");
    refuses("{\"input\": \"x\", \"max_output_tokens\": 0}", "max_output_tokens", "1 or more");
    refuses("{\"input\": \"x\", \"parallel_tool_calls\": \"no\"}", "parallel_tool_calls",
            "a string");
    refuses("{\"input\": \"x\", \"chat_template_kwargs\": {\"tools\": []}}", "chat_template_kwargs",
            "own field");
}

static void without_memory_it_fails_and_leaks_nothing(void **state) {
    (void)state;
    const char *body =
        "{\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]},"
        " {\"type\": \"reasoning\", \"content\": \"b\"}, {\"type\": \"reasoning\", \"content\": "
        "\"c\"},"
        " {\"role\": \"assistant\", \"content\": \"d\"}], \"model\": \"m\", \"stop\": [\"x\"],"
        " \"tools\": [{\"type\": \"function\", \"name\": \"f\"}],"
        " \"tool_choice\": {\"type\": \"function\", \"name\": \"f\"},"
        " \"text\": {\"format\": {\"type\": \"json_schema\", \"schema\": {}}}}";
    json_t *root = json_loads(body, 0, NULL);
    bool ok = false;
    for (size_t nth = 1; !ok && nth < 100; nth++) {
        lp_alloc_fail_after(nth);
        ok = lp_responses_request_parse(&r, &service, root, &err);
        lp_alloc_fail_after(0);
        if (!ok) assert_int_equal(err.http, 500);
        if (ok) assert_true(nth > 4);
        lp_responses_request_release(&r);
    }
    assert_true(ok);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_text_is_a_user_message_behind_the_instructions, release),
        cmocka_unit_test_teardown(messages_may_lack_a_type_and_have_parts, release),
        cmocka_unit_test_teardown(items_of_an_answer_become_one_message, release),
        cmocka_unit_test_teardown(text_around_a_call_is_of_its_turn, release),
        cmocka_unit_test_teardown(turns_of_an_assistant_stay_apart, release),
        cmocka_unit_test_teardown(bad_items_are_refused_by_their_path, release),
        cmocka_unit_test_teardown(settings_have_the_defaults_of_a_chat, release),
        cmocka_unit_test_teardown(settings_are_taken, release),
        cmocka_unit_test_teardown(effort_none_turns_thinking_off, release),
        cmocka_unit_test_teardown(a_schema_lies_flat_in_text_format, release),
        cmocka_unit_test_teardown(tools_get_the_form_of_chat, release),
        cmocka_unit_test_teardown(choice_of_tools_is_a_word, release),
        cmocka_unit_test_teardown(bad_tools_are_refused, release),
        cmocka_unit_test_teardown(what_is_not_supported_is_refused_by_name, release),
        cmocka_unit_test_teardown(wrong_types_and_words_are_refused, release),
        cmocka_unit_test_teardown(without_memory_it_fails_and_leaks_nothing, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
