// Tool calls. The texts are those of the families' own chat templates.
#include "grammar_rows.h"

#include "text/reply.h"

#define CITY                                                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":"          \
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},"   \
    "\"unit\":{\"type\":\"string\",\"enum\":[\"C\",\"F\"]}},\"required\":[\"city\"]}}}"
#define NOW "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}"
#define ONE(syntax) "{\"syntax\":\"" syntax "\",\"required\":true,\"tools\":[" CITY "," NOW "]}"
#define MANY(syntax)                                                                               \
    "{\"syntax\":\"" syntax "\",\"required\":true,\"parallel\":true,\"tools\":[" CITY "," NOW "]}"
#define WITH(syntax, parameters, more)                                                             \
    "{\"syntax\":\"" syntax "\",\"required\":true,\"tools\":[{\"function\":{\"name\":\"f\"" more   \
    ",\"parameters\":" parameters "}}]}"
#define PARAMETER(schema)                                                                          \
    "{\"type\":\"object\",\"properties\":{\"p\":" schema "},\"required\":[\"p\"]}"
#define GLM(schema) WITH("glm", PARAMETER(schema), "")
#define GLM_P(value) "<tool_call>f<arg_key>p</arg_key><arg_value>" value "</arg_value></tool_call>"

static void test_glm(void **state) {
    (void)state;
    static const struct grammar_row rows[] = {
        {ONE("glm"),
         {"<tool_call>weather<arg_key>city</arg_key><arg_value>New York</arg_value></tool_call>",
          "<tool_call>weather<arg_key>city</arg_key><arg_value>a\n\"b\" < c > </arg_valu"
          "</arg_value><arg_key>days</arg_key><arg_value>3</arg_value><arg_key>unit</arg_key>"
          "<arg_value>C</arg_value></tool_call>",
          "<tool_call>weather<arg_key>city</arg_key><arg_value></arg_value></tool_call>",
          "<tool_call>now</tool_call>"},
         {"", "text", "<tool_call>weather</tool_call>", "<tool_call>other</tool_call>",
          "<tool_call>weather<arg_key>city</arg_key><arg_value>x</arg_value><arg_key>days</arg_key>"
          "<arg_value>three</arg_value></tool_call>",
          "<tool_call>weather<arg_key>city</arg_key><arg_value>x</arg_value><arg_key>unit</arg_key>"
          "<arg_value>K</arg_value></tool_call>",
          "<tool_call>weather<arg_key>city</arg_key><arg_value>x</arg_value></arg_value></"
          "tool_call>",
          "<tool_call>weather<arg_key>city</arg_key><arg_value>x</tool_call></arg_value></"
          "tool_call>",
          "<tool_call>now<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>",
          "<tool_call>now</tool_call><tool_call>now</tool_call>", "<tool_call>now</tool_call> "}},
        {MANY("glm"),
         {"<tool_call>now</tool_call>", "<tool_call>now</tool_call><tool_call>now</tool_call>"},
         {"<tool_call>now</tool_call>\n<tool_call>now</tool_call>"}},
        {"{\"syntax\":\"glm\",\"tools\":[" NOW "]}",
         {"", "Any text < with <tool_cal no call", "<tool_call>now</tool_call>",
          "Let me see.<tool_call>now</tool_call>"},
         {"a<tool_call>b", "<tool_call>now</tool_call>b", "<tool_call>"}},
        {"{\"syntax\":\"glm\",\"tools\":[" NOW "],\"content\":{\"kind\":\"json_schema\",\"source\":"
         "\"{\\\"type\\\":\\\"integer\\\"}\"}}",
         {"12", "<tool_call>now</tool_call>"},
         {"x", "12<tool_call>now</tool_call>"}},
        {GLM("{\"type\":\"boolean\"}"), {GLM_P("true")}, {GLM_P("True"), GLM_P("\"true\"")}},
        {GLM("{\"type\":[\"string\",\"null\"],\"enum\":[\"a b\",null]}"),
         {GLM_P("a b"), GLM_P("null")},
         {GLM_P("\"a b\""), GLM_P("")}},
        {GLM("{\"type\":\"string\",\"pattern\":\"^[a-z\\\"]+$\"}"),
         {GLM_P("a\"b")},
         {GLM_P("a\\\"b"), GLM_P("A")}},
        {GLM("{\"type\":\"string\",\"maxLength\":2}"), {GLM_P("\n\xC3\xA9")}, {GLM_P("abc")}},
        {GLM("{\"type\":\"string\",\"format\":\"date\"}"),
         {GLM_P("2024-02-29")},
         {GLM_P("2023-02-29")}},
        {GLM("{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"),
         {GLM_P("[\"a\", \"b\"]")},
         {GLM_P("[a]"), GLM_P("a")}},
        {GLM("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}"),
         {GLM_P("3"), GLM_P("null")},
         {GLM_P("x")}},
        {GLM("{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}"),
         {GLM_P("x"), GLM_P("null")},
         {GLM_P("</arg_value>")}},
        {GLM("{\"$ref\":\"#/$defs/"
             "d\"},\"q\":{\"type\":\"null\"}},\"$defs\":{\"d\":{\"type\":\"integer\"}"),
         {GLM_P("3")},
         {GLM_P("x")}},
        {GLM("{}"), {GLM_P("x"), GLM_P("{\"a\":1}")}, {GLM_P("<arg_key>")}},
        // Not supported: any value of the type.
        {GLM("{\"type\":\"array\",\"uniqueItems\":true}"), {GLM_P("[1,1]")}, {GLM_P("1")}},
        {GLM("{\"type\":\"string\",\"format\":\"iri\"}"), {GLM_P("x y")}, {GLM_P("<tool_call>")}},
        {GLM("{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}}}}"),
         {GLM_P("{\"a\":1}")},
         {GLM_P("1")}},
        {GLM("{\"not\":{}}"), {GLM_P("1"), GLM_P("x")}, {"<tool_call>f</tool_call>"}},
        {WITH("glm", "{\"type\":\"object\",\"patternProperties\":{\"x\":{}}}", ""),
         {"<tool_call>f</tool_call>",
          "<tool_call>f<arg_key>any</arg_key><arg_value>thing</arg_value></tool_call>"},
         {"<tool_call>g</tool_call>"}},
        {WITH("glm",
              "{\"anyOf\":[" PARAMETER("{\"type\":\"null\"}") "," PARAMETER(
                  "{\"type\":\"integer\"}") "]}",
              ""),
         {GLM_P("null"), GLM_P("1")},
         {GLM_P("x"), "<tool_call>f</tool_call>"}},
    };
    CHECK_ROWS(LP_GRAMMAR_TOOLS, rows);
}

#define V31(name, arguments)                                                                       \
    "<｜tool▁call▁begin｜>" name "<｜tool▁sep｜>" arguments "<｜tool▁call▁end｜>"
#define V3(name, arguments)                                                                        \
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" name "\n```json\n" arguments                     \
    "\n```<｜tool▁call▁end｜>"
#define DS(calls) "<｜tool▁calls▁begin｜>" calls "<｜tool▁calls▁end｜>"
#define DSML(name, parameters)                                                                     \
    "<｜DSML｜invoke name=\"" name "\">\n" parameters "</｜DSML｜invoke>\n"
#define DSML_P(key, string, value)                                                                 \
    "<｜DSML｜parameter name=\"" key "\" string=\"" string "\">" value "</｜DSML｜parameter>\n"
#define DSML_ALL(calls) "<｜DSML｜function_calls>\n" calls "</｜DSML｜function_calls>"
#define KIMI(name, arguments)                                                                      \
    "<|tool_call_begin|>functions." name "<|tool_call_argument_begin|>" arguments                  \
    "<|tool_call_end|>"
#define KIMI_ALL(calls) "<|tool_calls_section_begin|>" calls "<|tool_calls_section_end|>"
#define HERMES(object) "<tool_call>\n" object "\n</tool_call>"

static void test_other_syntaxes(void **state) {
    (void)state;
    static const struct grammar_row rows[] = {
        {MANY("deepseek-v3.1"),
         {DS(V31("weather", "{\"city\": \"Paris\"}")), DS(V31("now", "{}") V31("now", "{}"))},
         {V31("now", "{}"), DS(""), DS(V31("weather", "{}")), DS(V31("weather", "{\"town\":1}")),
          DS(V31("weather", "{\"city\":\"x\",\"extra\":1}"))}},
        {MANY("deepseek-v3"),
         {DS(V3("weather", "{\"city\":\"Paris\",\"unit\":\"C\"}")),
          DS(V3("now", "{}") "\n" V3("now", "{}"))},
         {DS(V31("now", "{}")), DS(V3("weather", "{\"city\":1}"))}},
        {MANY("deepseek-v3.2"),
         {DSML_ALL(DSML("weather", DSML_P("city", "true", "Paris") DSML_P("days", "false", "3"))),
          DSML_ALL(DSML("now", "") DSML("now", "")),
          DSML_ALL(
              DSML("weather", DSML_P("city", "true", "a <b> \"c\"") DSML_P("unit", "true", "C")))},
         {DSML("now", ""), DSML_ALL(""), DSML_ALL(DSML("weather", "")),
          DSML_ALL(DSML("weather", DSML_P("city", "false", "\"x\""))),
          DSML_ALL(DSML("weather", DSML_P("city", "true", "</｜DSML｜invoke>")))}},
        {WITH("deepseek-v3.2", PARAMETER("{\"type\":[\"string\",\"integer\"]}"), ""),
         {DSML_ALL(DSML("f", DSML_P("p", "true", "5"))),
          DSML_ALL(DSML("f", DSML_P("p", "false", "5")))},
         {DSML_ALL(DSML("f", DSML_P("p", "false", "x")))}},
        {WITH("deepseek-v3.2", PARAMETER("{}"), ""),
         {DSML_ALL(DSML("f", DSML_P("p", "true", "x y"))),
          DSML_ALL(DSML("f", DSML_P("p", "false", "[1]")))},
         {DSML_ALL(DSML("f", DSML_P("p", "false", "x y")))}},
        {MANY("kimi"),
         {KIMI_ALL(KIMI("weather:0", "{\"city\":\"Paris\",\"days\":2}")),
          KIMI_ALL(KIMI("now:0", "{}") KIMI("now:12", "{ }"))},
         {KIMI("now:0", "{}"), KIMI_ALL(KIMI("now", "{}")), KIMI_ALL(KIMI("other:0", "{}"))}},
        {MANY("hermes"),
         {HERMES("{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}"),
          "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>",
          HERMES("{\"name\": \"now\", \"arguments\": {}}") "\n" HERMES(
              "{\"name\": \"now\", \"arguments\": {}}")},
         {HERMES("{\"name\": \"other\", \"arguments\": {}}"),
          HERMES("{\"name\": \"weather\", \"arguments\": {}}"),
          HERMES("{\"arguments\": {}, \"name\": \"now\"}")}},
        {"{\"syntax\":\"kimi\",\"tools\":[" NOW "]}",
         {"Hello", KIMI_ALL(KIMI("now:0", "{}"))},
         {"<|tool_call_begin|>", KIMI_ALL(KIMI("now:0", "{}") KIMI("now:1", "{}"))}},
        {WITH("hermes", PARAMETER("{\"type\":\"array\",\"uniqueItems\":true}"), ""),
         {HERMES("{\"name\": \"f\", \"arguments\": {\"p\": [1, 1]}}")},
         {HERMES("{\"name\": \"f\", \"arguments\": {\"p\": 1}}"),
          HERMES("{\"name\": \"f\", \"arguments\": {}}")}},
        {WITH("hermes", "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
              ""),
         {HERMES("{\"name\": \"f\", \"arguments\": {\"any\": 1}}")},
         {HERMES("{\"name\": \"f\", \"arguments\": {\"any\": \"x\"}}")}},
    };
    CHECK_ROWS(LP_GRAMMAR_TOOLS, rows);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct refused_row rows[] = {
        {WITH("glm", PARAMETER("{\"type\":\"array\",\"uniqueItems\":true}"), ",\"strict\":true"),
         LP_STATUS_UNSUPPORTED, "the tool \"f\", #/properties/p: the keyword \"uniqueItems\""},
        {WITH("hermes", "{\"type\":\"object\",\"not\":{}}", ",\"strict\":true"),
         LP_STATUS_UNSUPPORTED, "\"not\""},
        {"{\"syntax\":\"plain\",\"tools\":[" NOW "]}", LP_STATUS_UNSUPPORTED, "no syntax"},
        {"{\"syntax\":\"klingon\",\"tools\":[" NOW "]}", LP_STATUS_INVALID, "\"syntax\""},
        {"{\"syntax\":\"glm\",\"tools\":[]}", LP_STATUS_INVALID, "\"tools\""},
        {"{\"syntax\":\"glm\",\"tools\":[{\"function\":{}}]}", LP_STATUS_INVALID, "\"name\""},
        {"{\"syntax\":\"glm\",\"tools\":[{\"function\":{\"name\":\"a b\"}}]}", LP_STATUS_INVALID,
         "\"name\""},
        {"{\"syntax\":\"glm\",\"tools\":[{\"function\":{\"name\":\"a<b\"}}]}", LP_STATUS_INVALID,
         "\"name\""},
        {"{\"syntax\":\"glm\",\"tools\":[3]}", LP_STATUS_INVALID, "\"name\""},
        {"{\"syntax\":\"glm\",\"tools\":[" NOW
         "],\"content\":{\"kind\":\"tools\",\"source\":\"\"}}",
         LP_STATUS_INVALID, "again"},
        {"{\"syntax\":\"glm\",\"tools\":[" NOW "],\"content\":{\"kind\":\"x\"}}", LP_STATUS_INVALID,
         "\"content\""},
        {"{\"syntax\":\"glm\",\"tools\":[" NOW
         "],\"content\":{\"kind\":\"regex\",\"source\":\"(\"}}",
         LP_STATUS_INVALID, "\")\""},
        {"[", LP_STATUS_INVALID, "no JSON"},
        {WITH("glm", "{\"type\":\"object\",\"properties\":{\"a<b\":{}},\"required\":[\"a<b\"]}",
              ""),
         LP_STATUS_INVALID, "cannot be written"},
    };
    CHECK_REFUSED(LP_GRAMMAR_TOOLS, rows);
}

// ---- control tokens ----

static const char *const control[] = {"<tool_call>", "</tool_call>", "｜DSML｜"};
enum { FIRST_CONTROL = 256, N_VOCAB = FIRST_CONTROL + 3 };

static bool token_bytes(void *user, int32_t id, struct lp_bytes *out) {
    (void)user;
    if (id >= FIRST_CONTROL) return false;
    return lp_bytes_append(out, &(char){(char)id}, 1);
}

static int32_t find_control(void *user, struct lp_str text) {
    (void)user;
    for (int i = 0; i < 3; i++)
        if (lp_str_is(text, control[i])) return FIRST_CONTROL + i;
    return -1;
}

// Feeds bytes, and control tokens as {id}; how many steps were allowed.
static size_t feed(struct lp_matcher *matcher, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!lp_matcher_accept(matcher, ids[i])) return i;
    return n;
}

static size_t spell(int32_t *ids, const char *text, int32_t token_for_hash) {
    size_t n = 0;
    for (; *text; text++) ids[n++] = *text == '#' ? token_for_hash : (unsigned char)*text;
    return n;
}

static void check_control(const char *source, const char *good, int32_t token, const char *bad) {
    struct lp_token_trie *trie;
    struct lp_grammar *grammar;
    struct lp_matcher *matcher;
    const bool is_control[N_VOCAB] = {[256] = true, [257] = true, [258] = true};
    int32_t ids[512];
    assert_int_equal(lp_token_trie_new(&trie, N_VOCAB, token_bytes, NULL, is_control, NULL), LP_OK);
    assert_int_equal(lp_grammar_compile(&grammar, LP_GRAMMAR_TOOLS, lp_str_from(source), trie,
                                        find_control, NULL, NULL),
                     LP_OK);
    assert_int_equal(lp_matcher_new(&matcher, grammar, NULL), LP_OK);
    size_t n = spell(ids, good, token);
    assert_int_equal(feed(matcher, ids, n), n);
    lp_matcher_free(matcher);
    assert_int_equal(lp_matcher_new(&matcher, grammar, NULL), LP_OK);
    n = spell(ids, bad, token);
    assert_true(feed(matcher, ids, n) < n);
    lp_matcher_free(matcher);
    lp_grammar_put(grammar);
    lp_token_trie_free(trie);
}

static void test_tags_that_are_control_tokens(void **state) {
    (void)state;
    check_control("{\"syntax\":\"glm\",\"required\":true,\"tools\":[" NOW "]}", "#now",
                  FIRST_CONTROL, "<tool_call>now");
    check_control("{\"syntax\":\"deepseek-v3.2\",\"required\":true,\"tools\":[" NOW "]}",
                  "<#function_calls>\n<#invoke name=\"now\">\n</#invoke>\n</#function_calls>",
                  FIRST_CONTROL + 2, "<｜DSML｜function_calls>");
}

// ---- what the grammar allows is what the parser of answers reads ----

struct heard {
    struct lp_bytes arguments;
    int calls, faults;
};

static bool hear(void *user, const struct lp_reply_piece *piece) {
    struct heard *heard = user;
    if (piece->kind == LP_REPLY_CALL) {
        heard->calls++;
        lp_bytes_clear(&heard->arguments);
    }
    if (piece->kind == LP_REPLY_CONTENT || piece->kind == LP_REPLY_REASONING) heard->faults++;
    if (piece->kind == LP_REPLY_ARGUMENTS)
        lp_bytes_append(&heard->arguments, piece->text.data, piece->text.len);
    if (piece->kind != LP_REPLY_CALL_END) return true;
    json_t *arguments =
        json_loadb(heard->arguments.data, heard->arguments.len, JSON_ALLOW_NUL, NULL);
    const json_t *days = json_object_get(arguments, "days");
    const json_t *unit = json_object_get(arguments, "unit");
    if (!json_is_object(arguments) || !json_is_string(json_object_get(arguments, "city")) ||
        (days && !json_is_integer(days)) ||
        (unit && strcmp(json_string_value(unit), "C") != 0 &&
         strcmp(json_string_value(unit), "F") != 0))
        heard->faults++;
    json_decref(arguments);
    return true;
}

static uint32_t draw(uint32_t n) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 20) % n);
}

static bool is_allowed(const uint32_t *mask, int byte) {
    return mask && (mask[byte / 32] >> (byte % 32) & 1);
}

// Writes the byte if it is allowed.
static bool put(struct lp_matcher *matcher, struct lp_bytes *text, int byte) {
    if (!is_allowed(lp_matcher_mask(matcher), byte)) return false;
    assert_true(lp_matcher_accept(matcher, byte));
    return lp_bytes_append(text, &(char){(char)byte}, 1);
}

// A random walk over single bytes, and over tags as far as they are allowed. False: it did not end.
static bool walk(struct lp_grammar *grammar, struct lp_bytes *text) {
    static const char *const tags[] = {"</arg_value>", "</｜DSML｜parameter>", "\"", "<tool_call>"};
    struct lp_matcher *matcher;
    assert_int_equal(lp_matcher_new(&matcher, grammar, NULL), LP_OK);
    lp_bytes_clear(text);
    while (text->len < 2000 && !(lp_matcher_can_end(matcher) && draw(2))) {
        const char *tag = draw(4) ? "" : tags[draw(4)];
        while (*tag && put(matcher, text, (unsigned char)*tag)) tag++;
        int allowed[256], n = 0;
        const uint32_t *mask = lp_matcher_mask(matcher);
        for (int byte = 0; byte < 256; byte++)
            if (is_allowed(mask, byte)) allowed[n++] = byte;
        if (!n || !put(matcher, text, allowed[draw((uint32_t)n)])) break;
    }
    bool ended = lp_matcher_can_end(matcher);
    lp_matcher_free(matcher);
    return ended;
}

static void check_reading(const char *source, enum lp_reply_syntax syntax, const json_t *tools) {
    struct lp_token_trie *trie;
    struct lp_grammar *grammar;
    struct lp_bytes text = {0};
    const bool is_control[256] = {false};
    assert_int_equal(lp_token_trie_new(&trie, 256, token_bytes, NULL, is_control, NULL), LP_OK);
    assert_int_equal(
        lp_grammar_compile(&grammar, LP_GRAMMAR_TOOLS, lp_str_from(source), trie, NULL, NULL, NULL),
        LP_OK);
    int n_ended = 0;
    for (int i = 0; i < 60; i++) {
        if (!walk(grammar, &text)) continue;
        struct heard heard = {0};
        struct lp_reply *reply;
        const struct lp_reply_params params = {
            .syntax = syntax, .tools = tools, .sink = hear, .user = &heard};
        assert_int_equal(lp_reply_new(&reply, &params, NULL), LP_OK);
        assert_true(lp_reply_push(reply, lp_bytes_view(&text)) && lp_reply_finish(reply));
        if (!heard.calls || heard.faults || lp_reply_n_repairs(reply))
            fail_msg("%d calls, %d faults, %d repairs in: %s", heard.calls, heard.faults,
                     (int)lp_reply_n_repairs(reply), text.data);
        lp_reply_free(reply);
        lp_bytes_release(&heard.arguments);
        n_ended++;
    }
    assert_true(n_ended > 10);
    lp_bytes_release(&text);
    lp_grammar_put(grammar);
    lp_token_trie_free(trie);
}

static void test_what_is_allowed_can_be_read(void **state) {
    (void)state;
    json_t *tools = json_loads("[" CITY "]", 0, NULL);
    for (int syntax = LP_SYNTAX_GLM; syntax <= LP_SYNTAX_HERMES; syntax++) {
        char source[1000];
        snprintf(source, sizeof source,
                 "{\"syntax\":\"%s\",\"required\":true,\"parallel\":true,\"tools\":[%s]}",
                 lp_reply_syntax_name((enum lp_reply_syntax)syntax), CITY);
        check_reading(source, (enum lp_reply_syntax)syntax, tools);
    }
    json_decref(tools);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_glm),
        cmocka_unit_test(test_other_syntaxes),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_tags_that_are_control_tokens),
        cmocka_unit_test(test_what_is_allowed_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
