// Bodies of Anthropic's Messages API as conversations in OpenAI's form. The bodies follow the
// examples of Anthropic's reference, the expected messages those of OpenAI's.
#include "lp_test.h"

#include <jansson.h>

#include "serve/anthropic_parts.h"
#include "serve/fields.h"

static struct lp_chat_request r;
static struct lp_api_error err;

static bool read_body(const char *body) {
    json_t *root = lp_body_parse(body, strlen(body), 4096, &err);
    lp_chat_request_release(&r);
    lp_chat_request_init(&r);
    bool ok = root && lp_anthropic_read(&r, root, &err) && lp_anthropic_read_params(&r, root, &err);
    json_decref(root);
    return ok;
}

static int release(void **state) {
    (void)state;
    lp_chat_request_release(&r);
    return 0;
}

static void equals(const json_t *found, const char *expected) {
    json_t *wanted = json_loads(expected, JSON_ALLOW_NUL, NULL);
    assert_non_null(wanted);
    if (!json_equal(found, wanted)) {
        char *text = json_dumps(found, 0);
        json_decref(wanted);
        fail_msg("%s\n  is not %s", text, expected);
    }
    json_decref(wanted);
}

// members: behind max_tokens and before the body's end
static void reads(const char *members) {
    char body[8192];
    snprintf(body, sizeof body, "{\"model\": \"m\", \"max_tokens\": 16, %s}", members);
    if (!read_body(body)) fail_msg("%s: %s", members, err.message);
}

static void refuses(const char *members, const char *param, const char *part_of_message) {
    char body[8192];
    snprintf(body, sizeof body, "{\"model\": \"m\", \"max_tokens\": 16, %s}", members);
    assert_false(read_body(body));
    assert_int_equal(err.http, 400);
    assert_string_equal(err.param, param);
    if (!strstr(err.message, part_of_message))
        fail_msg("'%s' lacks '%s'", err.message, part_of_message);
}

#define HI "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]"

static void strings_and_text_blocks_are_the_same(void **state) {
    (void)state;
    static const char expected[] = "[{\"role\": \"system\", \"content\": \"Be brief.\"},"
                                   " {\"role\": \"user\", \"content\": \"Hello, world\"}]";
    reads("\"system\": \"Be brief.\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello, "
          "world\"}]");
    equals(r.messages, expected);
    reads("\"system\": [{\"type\": \"text\", \"text\": \"Be brief.\", \"cache_control\": "
          "{\"type\": \"ephemeral\"}}], \"messages\": [{\"role\": \"user\", \"content\": "
          "[{\"type\": \"text\", \"text\": \"Hello, world\"}]}]");
    equals(r.messages, expected);
    assert_false(r.continue_final);
    assert_int_equal(r.params.max_tokens, 16);
    assert_true(r.params.temperature == 1 && r.params.top_p == 1 && r.params.top_k == 0);
}

static void messages_of_one_role_are_one_turn(void **state) {
    (void)state;
    reads(
        "\"messages\": [{\"role\": \"user\", \"content\": \"A\"}, {\"role\": \"user\", "
        "\"content\": [{\"type\": \"text\", \"text\": \"B\"}, {\"type\": \"text\", \"text\": "
        "\"C\"}]}, {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"D\"}, "
        "{\"type\": \"text\", \"text\": \"E\"}]}, {\"role\": \"assistant\", \"content\": \"F\"}, "
        "{\"role\": \"user\", \"content\": \"G\"}]");
    equals(r.messages, "[{\"role\": \"user\", \"content\": \"A\\nB\\nC\"},"
                       " {\"role\": \"assistant\", \"content\": \"DE\\nF\"},"
                       " {\"role\": \"user\", \"content\": \"G\"}]");
}

static void tool_use_comes_back_with_its_results(void **state) {
    (void)state;
    reads(
        "\"messages\": [{\"role\": \"user\", \"content\": \"Weather?\"}, {\"role\": \"assistant\", "
        "\"content\": [{\"type\": \"thinking\", \"thinking\": \"I look.\", \"signature\": \"x\"}, "
        "{\"type\": \"redacted_thinking\", \"data\": \"zz\"}, {\"type\": \"text\", \"text\": "
        "\"Let me see.\"}, {\"type\": \"tool_use\", \"id\": \"toolu_1\", \"name\": "
        "\"get_weather\", \"input\": {\"city\": \"Paris\", \"days\": 2}}, {\"type\": "
        "\"tool_use\", \"id\": \"toolu_2\", \"name\": \"now\", \"input\": {}}]}, {\"role\": "
        "\"user\", \"content\": [{\"type\": \"text\", \"text\": \"Also say hi.\"}, {\"type\": "
        "\"tool_result\", \"tool_use_id\": \"toolu_1\", \"content\": \"15 degrees\"}, {\"type\": "
        "\"tool_result\", \"tool_use_id\": \"toolu_2\", \"content\": [{\"type\": \"text\", "
        "\"text\": \"12\"}, {\"type\": \"text\", \"text\": \"00\"}]}]}]");
    equals(r.messages,
           "[{\"role\": \"user\", \"content\": \"Weather?\"},"
           " {\"role\": \"assistant\", \"content\": \"Let me see.\", \"reasoning_content\": "
           "\"I look.\", \"tool_calls\": [{\"id\": \"toolu_1\", \"type\": \"function\", "
           "\"function\": {\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": "
           "\\\"Paris\\\", \\\"days\\\": 2}\"}}, {\"id\": \"toolu_2\", \"type\": \"function\", "
           "\"function\": {\"name\": \"now\", \"arguments\": \"{}\"}}]},"
           " {\"role\": \"tool\", \"tool_call_id\": \"toolu_1\", \"content\": \"15 degrees\"},"
           " {\"role\": \"tool\", \"tool_call_id\": \"toolu_2\", \"content\": \"12\\n00\"},"
           " {\"role\": \"user\", \"content\": \"Also say hi.\"}]");
}

static void a_failed_tool_says_so(void **state) {
    (void)state;
    reads("\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", "
          "\"tool_use_id\": \"a\", \"is_error\": true, \"content\": \"no such city\"}, {\"type\": "
          "\"tool_result\", \"tool_use_id\": \"b\", \"is_error\": true, \"content\": \"HTTP Error "
          "500\"}, {\"type\": \"tool_result\", \"tool_use_id\": \"c\"}, {\"type\": "
          "\"tool_result\", \"tool_use_id\": \"d\", \"is_error\": true}]}]");
    equals(r.messages,
           "[{\"role\": \"tool\", \"tool_call_id\": \"a\", \"content\": \"Error: no such city\"},"
           " {\"role\": \"tool\", \"tool_call_id\": \"b\", \"content\": \"HTTP Error 500\"},"
           " {\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": \"\"},"
           " {\"role\": \"tool\", \"tool_call_id\": \"d\", \"content\": \"Error: \"}]");
}

static void a_final_assistant_is_gone_on_with(void **state) {
    (void)state;
#define ENDS_WITH(content)                                                                         \
    "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "         \
    "\"content\": " content "}]"
    reads(ENDS_WITH("\"The best answer is (\""));
    assert_true(r.continue_final);
    equals(json_array_get(r.messages, 1),
           "{\"role\": \"assistant\", \"content\": \"The best answer is (\"}");
    reads(ENDS_WITH("\"\""));
    assert_false(r.continue_final);
    assert_int_equal(json_array_size(r.messages), 1);
    static const char thought[] = ENDS_WITH("[{\"type\": \"thinking\", \"thinking\": \"Hm.\"}, "
                                            "{\"type\": \"text\", \"text\": \"So\"}]");
    char with[1024];
    reads(thought); // thinking is off
    equals(json_array_get(r.messages, 1), "{\"role\": \"assistant\", \"content\": \"So\"}");
    snprintf(with, sizeof with, "%s, \"thinking\": {\"type\": \"adaptive\"}", thought);
    reads(with);
    equals(json_array_get(r.messages, 1),
           "{\"role\": \"assistant\", \"content\": \"<think>Hm.</think>So\"}");
    assert_true(r.continue_final);
    refuses(ENDS_WITH("[{\"type\": \"tool_use\", \"id\": \"a\", \"name\": \"b\", \"input\": {}}]"),
            "messages", "tool_result");
}

static void a_line_that_changes_with_each_request_is_dropped(void **state) {
    (void)state;
    reads("\"system\": [{\"type\": \"text\", \"text\": \"x-anthropic-billing-header: "
          "cc_version=2.1; cch=1a2b3;\"}, {\"type\": \"text\", \"text\": \"You help.\"}], " HI);
    equals(json_array_get(r.messages, 0), "{\"role\": \"system\", \"content\": \"You help.\"}");
    reads("\"system\": \"x-anthropic-billing-header: cch=1;\", " HI);
    assert_int_equal(json_array_size(r.messages), 1);
    reads("\"system\": \"About x-anthropic-billing-header: it stays.\", " HI);
    equals(json_array_get(r.messages, 0),
           "{\"role\": \"system\", \"content\": \"About x-anthropic-billing-header: it stays.\"}");
}

static void nul_characters_are_kept_or_refused(void **state) {
    (void)state;
    reads("\"messages\": [{\"role\": \"user\", \"content\": \"a\\u0000b\"}]");
    equals(r.messages, "[{\"role\": \"user\", \"content\": \"a\\u0000b\"}]");
    refuses("\"messages\": [{\"role\": \"us\\u0000er\", \"content\": \"a\"}]", "messages[0].role",
            "NUL");
}

static void messages_of_a_system_keep_their_place(void **state) {
    (void)state;
    reads("\"system\": \"A\", \"messages\": [{\"role\": \"user\", \"content\": \"B\"}, {\"role\": "
          "\"system\", \"content\": \"C\"}]");
    equals(r.messages, "[{\"role\": \"system\", \"content\": \"A\"}, {\"role\": \"user\", "
                       "\"content\": \"B\"}, {\"role\": \"system\", \"content\": \"C\"}]");
}

static void tools_become_functions(void **state) {
    (void)state;
#define TOOLS                                                                                      \
    "\"tools\": [{\"name\": \"get_weather\", \"description\": \"Weather\", \"input_schema\": "     \
    "{\"type\": \"object\"}, \"cache_control\": {\"type\": \"ephemeral\"}}, {\"type\": "           \
    "\"custom\", \"name\": \"now\", \"input_schema\": {\"type\": \"object\"}, \"strict\": true}]"
    reads(HI ", " TOOLS);
    equals(r.tools,
           "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": "
           "\"Weather\", \"parameters\": {\"type\": \"object\"}}}, {\"type\": \"function\", "
           "\"function\": {\"name\": \"now\", \"parameters\": {\"type\": \"object\"}, \"strict\": "
           "true}}]");
    assert_int_equal(r.tool_choice, LP_TOOLS_AUTO);
    assert_false(r.one_call);
    static const struct {
        const char *json;
        enum lp_tool_choice choice;
        bool one_call;
    } choices[] = {
        {"{\"type\": \"auto\"}", LP_TOOLS_AUTO, false},
        {"{\"type\": \"auto\", \"disable_parallel_tool_use\": true}", LP_TOOLS_AUTO, true},
        {"{\"type\": \"any\"}", LP_TOOLS_REQUIRED, false},
        {"{\"type\": \"none\"}", LP_TOOLS_NONE, false},
        {"{\"type\": \"tool\", \"name\": \"now\"}", LP_TOOLS_NAMED, false},
    };
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        char members[2048];
        snprintf(members, sizeof members, HI ", " TOOLS ", \"tool_choice\": %s", choices[i].json);
        reads(members);
        assert_int_equal(r.tool_choice, choices[i].choice);
        assert_int_equal(r.one_call, choices[i].one_call);
    }
    assert_string_equal(r.tool_name, "now");
    reads(HI ", \"tools\": []");
    assert_null(r.tools);
}

static void wrong_tools_are_refused_by_path(void **state) {
    (void)state;
    refuses(HI ", \"tools\": {}", "tools", "an object");
    refuses(HI ", \"tools\": [1]", "tools[0]", "a number");
    refuses(HI ", \"tools\": [{\"input_schema\": {}}]", "tools[0].name", "missing");
    refuses(HI ", \"tools\": [{\"name\": \"a\"}]", "tools[0].input_schema", "missing");
    refuses(HI ", \"tools\": [{\"name\": \"a\", \"input_schema\": \"{}\"}]",
            "tools[0].input_schema", "a string");
    refuses(HI ", \"tools\": [{\"type\": \"web_search_20250305\", \"name\": \"web_search\"}]",
            "tools[0].type", "web_search_20250305");
    refuses(HI ", \"tools\": [{\"type\": \"bash_20250124\", \"name\": \"bash\"}]", "tools[0].type",
            "bash_20250124");
    refuses(HI ", " TOOLS ", \"tool_choice\": \"auto\"", "tool_choice", "a string");
    refuses(HI ", " TOOLS ", \"tool_choice\": {}", "tool_choice.type", "missing");
    refuses(HI ", " TOOLS ", \"tool_choice\": {\"type\": \"required\"}", "tool_choice.type",
            "'required'");
    refuses(HI ", " TOOLS ", \"tool_choice\": {\"type\": \"tool\"}", "tool_choice.name", "missing");
    refuses(HI ", " TOOLS ", \"tool_choice\": {\"type\": \"tool\", \"name\": \"then\"}",
            "tool_choice.name", "'then'");
    refuses(HI ", \"tool_choice\": {\"type\": \"any\"}", "tool_choice", "no tools");
}

static void what_other_servers_hold_is_refused(void **state) {
    (void)state;
    refuses(HI ", \"thread\": {\"type\": \"create\"}", "thread", "all messages");
    json_t *found = lp_anthropic_error(&err);
    equals(json_object_get(json_object_get(found, "error"), "details"),
           "{\"error_code\": \"thread_unsupported_request\", \"unsupported\": []}");
    json_decref(found);
    refuses(HI ", \"mcp_servers\": [{\"type\": \"url\"}]", "mcp_servers", "tools");
    refuses(HI ", \"container\": \"c\"", "container", "no code");
    refuses(HI ", \"compaction\": {\"type\": \"summarize\"}", "compaction", "shorten");
    reads(HI ", \"thread\": null, \"mcp_servers\": [], \"context_management\": {\"edits\": []}, "
             "\"cache_control\": {\"type\": \"ephemeral\"}");
}

static void thinking_is_off_unless_asked_for(void **state) {
    (void)state;
    static const struct {
        const char *json;
        bool on;
    } rows[] = {
        {"null", false},
        {"{\"type\": \"disabled\"}", false},
        {"{\"type\": \"enabled\", \"budget_tokens\": 1024}", true},
        {"{\"type\": \"enabled\"}", true},
        {"{\"type\": \"adaptive\", \"display\": \"omitted\"}", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char members[256];
        snprintf(members, sizeof members, HI ", \"thinking\": %s", rows[i].json);
        reads(members);
        assert_int_equal(json_is_true(json_object_get(r.variables, "enable_thinking")), rows[i].on);
        assert_int_equal(json_is_false(json_object_get(r.variables, "enable_thinking")),
                         !rows[i].on);
    }
    refuses(HI ", \"thinking\": true", "thinking", "a boolean");
    refuses(HI ", \"thinking\": {}", "thinking.type", "missing");
    refuses(HI ", \"thinking\": {\"type\": \"on\"}", "thinking.type", "'on'");
    refuses(HI ", \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 0}",
            "thinking.budget_tokens", "1 or more");
    refuses(HI ", \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": \"many\"}",
            "thinking.budget_tokens", "1 or more");
    refuses(HI ", \"thinking\": {\"type\": \"enabled\", \"display\": \"upside down\"}",
            "thinking.display", "upside down");
}

static void params_are_those_of_the_api(void **state) {
    (void)state;
    reads(HI
          ", \"stop_sequences\": [\"END\", \"\\n\\n\"], \"temperature\": 0.5, \"top_p\": 0.25, "
          "\"top_k\": 5, \"stream\": true, \"metadata\": {\"user_id\": \"u\"}, \"service_tier\": "
          "\"auto\", \"min_p\": 0.125, \"seed\": 3");
    assert_int_equal(r.params.n_stop, 2);
    assert_string_equal(r.params.stop[0], "END");
    assert_true(r.params.temperature == 0.5 && r.params.top_p == 0.25 && r.params.min_p == 0.125);
    assert_int_equal(r.params.top_k, 5);
    assert_int_equal(r.params.seed, 3);
    assert_true(r.params.stream && r.params.has_seed);
    assert_int_equal(r.params.n, 1);
    assert_false(read_body("{" HI "}"));
    assert_string_equal(err.param, "max_tokens");
    assert_int_equal(err.http, 400);
}

static void a_schema_is_the_form_of_the_answer(void **state) {
    (void)state;
#define FORMAT "{\"type\": \"json_schema\", \"schema\": {\"type\": \"object\"}}"
    static const char *const ways[] = {HI ", \"output_config\": {\"format\": " FORMAT "}",
                                       HI ", \"output_format\": " FORMAT};
    for (size_t i = 0; i < 2; i++) {
        reads(ways[i]);
        assert_string_equal(r.params.grammar_kind, "json_schema");
        json_t *schema = json_loadb(r.params.grammar, r.params.n_grammar, 0, NULL);
        equals(schema, "{\"type\": \"object\"}");
        json_decref(schema);
    }
    reads(HI ", \"output_config\": {\"effort\": \"low\"}");
    assert_null(r.params.grammar_kind);
    refuses(HI ", \"output_config\": 1", "output_config", "a number");
    refuses(HI ", \"output_config\": {\"format\": {\"type\": \"xml\"}}", "output_config.format",
            "'xml'");
    refuses(HI ", \"output_format\": {\"type\": \"json_schema\"}", "output_format", "no schema");
    refuses(HI ", \"output_format\": " FORMAT ", \"output_config\": {\"format\": " FORMAT "}",
            "output_format", "another field");
}

static void wrong_messages_are_refused_by_path(void **state) {
    (void)state;
#define USER(content) "\"messages\": [{\"role\": \"user\", \"content\": " content "}]"
#define ASSISTANT(content)                                                                         \
    "\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", "          \
    "\"content\": " content "}]"
    refuses("\"n\": 1", "messages", "missing");
    refuses("\"messages\": \"Hi\"", "messages", "a string");
    refuses("\"messages\": []", "messages", "empty");
    refuses("\"messages\": [{\"role\": \"assistant\", \"content\": \"\"}]", "messages", "nothing");
    refuses("\"messages\": [\"Hi\"]", "messages[0]", "a string");
    refuses("\"messages\": [{\"content\": \"x\"}]", "messages[0].role", "missing");
    refuses("\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]", "messages[0].role",
            "'tool'");
    refuses("\"messages\": [{\"role\": 1, \"content\": \"x\"}]", "messages[0].role", "a number");
    refuses("\"messages\": [{\"role\": \"user\"}]", "messages[0].content", "missing");
    refuses(USER("5"), "messages[0].content", "a number");
    refuses(USER("[5]"), "messages[0].content[0]", "a number");
    refuses(USER("[{}]"), "messages[0].content[0].type", "missing");
    refuses(USER("[{\"type\": 5}]"), "messages[0].content[0].type", "a number");
    refuses(USER("[{\"type\": \"sound\"}]"), "messages[0].content[0]", "'sound'");
    refuses(USER("[{\"type\": \"text\"}]"), "messages[0].content[0].text", "missing");
    refuses(USER("[{\"type\": \"text\", \"text\": 5}]"), "messages[0].content[0].text", "a number");
    refuses(USER("[{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"image\", \"source\": {}}]"),
            "messages[0].content[1]", "text only");
    refuses(USER("[{\"type\": \"document\"}]"), "messages[0].content[0]", "text only");
    refuses(USER("[{\"type\": \"thinking\", \"thinking\": \"x\"}]"), "messages[0].content[0]",
            "'user'");
    refuses(USER("[{\"type\": \"tool_result\"}]"), "messages[0].content[0].tool_use_id", "missing");
    refuses(USER("[{\"type\": \"tool_result\", \"tool_use_id\": null}]"),
            "messages[0].content[0].tool_use_id", "missing");
    refuses(USER("[{\"type\": \"tool_result\", \"tool_use_id\": \"a\", \"is_error\": 1}]"),
            "messages[0].content[0].is_error", "a number");
    refuses(USER("[{\"type\": \"tool_result\", \"tool_use_id\": \"a\", \"content\": [{\"type\": "
                 "\"image\"}]}]"),
            "messages[0].content[0].content[0]", "text only");
    refuses(ASSISTANT("[{\"type\": \"tool_use\", \"name\": \"b\"}]"), "messages[1].content[0].id",
            "missing");
    refuses(ASSISTANT("[{\"type\": \"tool_use\", \"id\": \"a\", \"name\": \"\"}]"),
            "messages[1].content[0].name", "missing");
    refuses(ASSISTANT("[{\"type\": \"tool_use\", \"id\": \"a\", \"name\": \"b\", \"input\": []}]"),
            "messages[1].content[0].input", "an array");
    refuses(ASSISTANT("[{\"type\": \"tool_result\", \"tool_use_id\": \"a\"}]"),
            "messages[1].content[0]", "'assistant'");
    refuses("\"system\": 1, " HI, "system", "a number");
    refuses("\"system\": [{\"type\": \"image\"}], " HI, "system[0]", "text only");
}

static void errors_have_the_types_of_the_api(void **state) {
    (void)state;
    static const struct {
        int http;
        const char *type;
    } rows[] = {
        {400, "invalid_request_error"}, {401, "authentication_error"},
        {403, "permission_error"},      {404, "not_found_error"},
        {405, "invalid_request_error"}, {413, "request_too_large"},
        {429, "rate_limit_error"},      {500, "api_error"},
        {503, "overloaded_error"},      {504, "timeout_error"},
        {529, "overloaded_error"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char expected[256];
        lp_api_fail(&err, rows[i].http, NULL, "what \"was\" wrong");
        snprintf(expected, sizeof expected,
                 "{\"type\": \"error\", \"error\": {\"type\": \"%s\", \"message\": \"what "
                 "\\\"was\\\" wrong\"}}",
                 rows[i].type);
        json_t *found = lp_anthropic_error(&err);
        equals(found, expected);
        json_decref(found);
    }
    lp_api_fail(&err, 400, "context_length_exceeded", "5 tokens and 4");
    json_t *found = lp_anthropic_error(&err);
    equals(found, "{\"type\": \"error\", \"error\": {\"type\": \"invalid_request_error\", "
                  "\"message\": \"prompt is too long: 5 tokens and 4\"}}");
    json_decref(found);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(strings_and_text_blocks_are_the_same, release),
        cmocka_unit_test_teardown(messages_of_one_role_are_one_turn, release),
        cmocka_unit_test_teardown(tool_use_comes_back_with_its_results, release),
        cmocka_unit_test_teardown(a_failed_tool_says_so, release),
        cmocka_unit_test_teardown(a_final_assistant_is_gone_on_with, release),
        cmocka_unit_test_teardown(a_line_that_changes_with_each_request_is_dropped, release),
        cmocka_unit_test_teardown(nul_characters_are_kept_or_refused, release),
        cmocka_unit_test_teardown(messages_of_a_system_keep_their_place, release),
        cmocka_unit_test_teardown(tools_become_functions, release),
        cmocka_unit_test_teardown(wrong_tools_are_refused_by_path, release),
        cmocka_unit_test_teardown(what_other_servers_hold_is_refused, release),
        cmocka_unit_test_teardown(thinking_is_off_unless_asked_for, release),
        cmocka_unit_test_teardown(params_are_those_of_the_api, release),
        cmocka_unit_test_teardown(a_schema_is_the_form_of_the_answer, release),
        cmocka_unit_test_teardown(wrong_messages_are_refused_by_path, release),
        cmocka_unit_test_teardown(errors_have_the_types_of_the_api, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
