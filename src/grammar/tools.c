// Tool calls in a model's own syntax. The tags that are control tokens of the vocabulary are those
// tokens, the others text.
//
//     glm            <tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value>...</tool_call>
//     hermes         <tool_call>{"name": NAME, "arguments": {...}}</tool_call>
//     kimi           a section of calls, each: functions.NAME:0, separator, JSON
//     deepseek-v3    a section of calls, each: "function", separator, NAME, fenced JSON
//     deepseek-v3.1  a section of calls, each: NAME, separator, JSON
//     deepseek-v3.2  a section of <invoke name="NAME"> with <parameter name="K" string="true">V
//
// No white space but the line ends that a family's own template writes.
#include <stdio.h>

#include "grammar/node_list.h"
#include "grammar/text_without.h"
#include "grammar/tool_arguments.h"
#include "text/reply.h"

#define MAX_TAGS 4

struct syntax;

struct maker {
    struct lp_gb *b;
    struct lp_jg *jg;
    const struct syntax *syntax;
    lp_find_token_fn find_token;
    void *user;
    bool as_doubles; // of lp_schema_load
    struct lp_tool_pairs pairs;
};

struct syntax {
    enum lp_reply_syntax id;
    const char *section, *section_end; // around all calls; NULL: nothing
    bool may_break;                    // a line end may stand between calls
    lp_gb_node (*call)(struct maker *m, const struct lp_tool *tool);
    const char *in_text[MAX_TAGS];  // tags that begin calls: not in other text
    const char *in_value[MAX_TAGS]; // tags that may end a bare value: not in it
};

// ---- tags ----

#define DSML "｜DSML｜"

static int32_t token_of(const struct maker *m, const char *text) {
    return m->find_token ? m->find_token(m->user, lp_str_from(text)) : -1;
}

static lp_gb_node token_or_text(struct maker *m, const char *text) {
    int32_t id = token_of(m, text);
    return id >= 0 ? lp_gb_token(m->b, id) : lp_gb_word(m->b, text);
}

// DSML's tags are three pieces, of which the middle one may be a token.
static lp_gb_node tag(struct maker *m, const char *text) {
    const char *dsml = strstr(text, DSML);
    if (!dsml) return token_or_text(m, text);
    struct lp_str before = {text, (size_t)(dsml - text)};
    return LP_GB_SEQ(m->b, lp_gb_text(m->b, before), token_or_text(m, DSML),
                     lp_gb_word(m->b, dsml + strlen(DSML)));
}

static lp_gb_node without(struct lp_gb *b, const char *const *tags) {
    struct lp_str list[MAX_TAGS];
    size_t n = 0;
    while (n < MAX_TAGS && tags[n]) {
        list[n] = lp_str_from(tags[n]);
        n++;
    }
    return lp_text_without(b, list, n);
}

static lp_gb_node line_end(struct maker *m) {
    return lp_gb_optional(m->b, lp_gb_word(m->b, "\n"));
}

// ---- calls of the JSON syntaxes ----

static lp_gb_node call_hermes(struct maker *m, const struct lp_tool *tool) {
    struct lp_gb *b = m->b;
    lp_gb_node name = lp_jg_member(
        m->jg, lp_str_from("name"),
        LP_GB_SEQ(b, lp_gb_word(b, "\""), lp_gb_word(b, tool->name), lp_gb_word(b, "\"")));
    lp_gb_node arguments = lp_jg_member(m->jg, lp_str_from("arguments"), lp_tool_json(tool, m->jg));
    lp_gb_node members = LP_GB_SEQ(b, name, lp_jg_after_comma(m->jg, arguments));
    return LP_GB_SEQ(b, tag(m, "<tool_call>"), line_end(m),
                     lp_jg_brackets(m->jg, '{', members, false), line_end(m),
                     tag(m, "</tool_call>"));
}

static lp_gb_node call_kimi(struct maker *m, const struct lp_tool *tool) {
    static const struct lp_gb_range digits = {'0', '9'};
    struct lp_gb *b = m->b;
    return LP_GB_SEQ(b, tag(m, "<|tool_call_begin|>"), lp_gb_word(b, "functions."),
                     lp_gb_word(b, tool->name), lp_gb_word(b, ":"),
                     lp_gb_repeat(b, lp_gb_class(b, &digits, 1, false), 1, 4),
                     tag(m, "<|tool_call_argument_begin|>"), lp_tool_json(tool, m->jg),
                     tag(m, "<|tool_call_end|>"));
}

static lp_gb_node call_deepseek_v3(struct maker *m, const struct lp_tool *tool) {
    struct lp_gb *b = m->b;
    return LP_GB_SEQ(b, tag(m, "<｜tool▁call▁begin｜>"), lp_gb_word(b, "function"),
                     tag(m, "<｜tool▁sep｜>"), lp_gb_word(b, tool->name),
                     lp_gb_word(b, "\n```json\n"), lp_tool_json(tool, m->jg),
                     lp_gb_word(b, "\n```"), tag(m, "<｜tool▁call▁end｜>"));
}

static lp_gb_node call_deepseek_v31(struct maker *m, const struct lp_tool *tool) {
    struct lp_gb *b = m->b;
    return LP_GB_SEQ(b, tag(m, "<｜tool▁call▁begin｜>"), lp_gb_word(b, tool->name),
                     tag(m, "<｜tool▁sep｜>"), lp_tool_json(tool, m->jg),
                     tag(m, "<｜tool▁call▁end｜>"));
}

// ---- calls of the pair syntaxes ----

static lp_gb_node pair_glm(void *user, lp_gb_node key, bool is_text, lp_gb_node value) {
    struct maker *m = user;
    (void)is_text;
    return LP_GB_SEQ(m->b, tag(m, "<arg_key>"), key, tag(m, "</arg_key>"), tag(m, "<arg_value>"),
                     value, tag(m, "</arg_value>"));
}

static lp_gb_node call_glm(struct maker *m, const struct lp_tool *tool) {
    m->pairs.pair = pair_glm;
    m->pairs.text_is_any = true;
    m->pairs.forbidden = "<";
    return LP_GB_SEQ(m->b, tag(m, "<tool_call>"), lp_gb_word(m->b, tool->name),
                     lp_tool_pairs(tool, m->jg, &m->pairs), tag(m, "</tool_call>"));
}

static lp_gb_node pair_dsml(void *user, lp_gb_node key, bool is_text, lp_gb_node value) {
    struct maker *m = user;
    lp_gb_node begin = tag(m, "<" DSML "parameter name=\"");
    lp_gb_node middle = lp_gb_word(m->b, is_text ? "\" string=\"true\">" : "\" string=\"false\">");
    return LP_GB_SEQ(m->b, begin, key, middle, value, tag(m, "</" DSML "parameter>"),
                     lp_gb_word(m->b, "\n"));
}

static lp_gb_node call_dsml(struct maker *m, const struct lp_tool *tool) {
    m->pairs.pair = pair_dsml;
    m->pairs.text_is_any = false;
    m->pairs.forbidden = "<>\"";
    lp_gb_node begin = tag(m, "<" DSML "invoke name=\"");
    return LP_GB_SEQ(m->b, begin, lp_gb_word(m->b, tool->name), lp_gb_word(m->b, "\">\n"),
                     lp_tool_pairs(tool, m->jg, &m->pairs), tag(m, "</" DSML "invoke>"),
                     lp_gb_word(m->b, "\n"));
}

static const struct syntax syntaxes[] = {
    {.id = LP_SYNTAX_GLM,
     .call = call_glm,
     .in_text = {"<tool_call>"},
     .in_value = {"</arg_value>", "<arg_key>", "<tool_call>", "</tool_call>"}},
    {.id = LP_SYNTAX_HERMES, .call = call_hermes, .may_break = true, .in_text = {"<tool_call>"}},
    {.id = LP_SYNTAX_KIMI,
     .call = call_kimi,
     .section = "<|tool_calls_section_begin|>",
     .section_end = "<|tool_calls_section_end|>",
     .in_text = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"}},
    {.id = LP_SYNTAX_DEEPSEEK_V3,
     .call = call_deepseek_v3,
     .section = "<｜tool▁calls▁begin｜>",
     .section_end = "<｜tool▁calls▁end｜>",
     .may_break = true,
     .in_text = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"}},
    {.id = LP_SYNTAX_DEEPSEEK_V31,
     .call = call_deepseek_v31,
     .section = "<｜tool▁calls▁begin｜>",
     .section_end = "<｜tool▁calls▁end｜>",
     .in_text = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"}},
    {.id = LP_SYNTAX_DEEPSEEK_V32,
     .call = call_dsml,
     .section = "<" DSML "function_calls>\n",
     .section_end = "</" DSML "function_calls>",
     .in_text = {"<" DSML},
     .in_value = {"<" DSML, "</" DSML}},
};

// ---- the tools ----

static lp_gb_node fail_source(struct lp_gb *b, const char *what) {
    return lp_gb_fail(b, LP_STATUS_INVALID, "tools: %s", what);
}

// A call that the reader of answers takes for text would be no call.
static bool check_name(struct lp_gb *b, const json_t *name) {
    bool good = json_is_string(name) && lp_reply_name_ok(lp_jg_str(name));
    if (!good)
        lp_gb_fail(b, LP_STATUS_INVALID,
                   "tools: a function's \"name\" must be of letters, digits and _ . : - (A-Z, a-z, "
                   "0-9), 1 to %d of them",
                   LP_REPLY_MAX_NAME);
    return good;
}

// OpenAI's form {"type": "function", "function": {...}}, or the function alone.
static lp_gb_node make_call(struct maker *m, json_t *item) {
    json_t *function = json_object_get(item, "function");
    if (!function) function = item;
    const json_t *name = json_object_get(function, "name");
    if (!check_name(m->b, name)) return 0;
    struct lp_tool tool = {.name = json_string_value(name),
                           .as_doubles = m->as_doubles,
                           .is_strict = json_is_true(json_object_get(function, "strict"))};
    lp_gb_node node = 0;
    if (lp_tool_prepare(&tool, m->b, json_object_get(function, "parameters")))
        node = m->syntax->call(m, &tool);
    lp_tool_release(&tool);
    return node;
}

static lp_gb_node make_calls(struct maker *m, json_t *tools, bool parallel) {
    struct lp_gb *b = m->b;
    struct lp_gb_list list = {0};
    size_t i;
    json_t *item;
    json_array_foreach(tools, i, item) {
        if (!lp_gb_failed(b)) lp_gb_list_add(b, &list, make_call(m, item));
    }
    lp_gb_rule call = lp_gb_declare(b, "tool call");
    lp_gb_define(b, call, lp_gb_list_choice(b, &list));
    lp_gb_node all = lp_gb_use(b, call);
    if (parallel) {
        lp_gb_node next = lp_gb_use(b, call);
        if (m->syntax->may_break) next = LP_GB_SEQ(b, line_end(m), next);
        all = LP_GB_SEQ(b, all, lp_gb_repeat(b, next, 0, -1));
    }
    if (!m->syntax->section) return all;
    return LP_GB_SEQ(b, tag(m, m->syntax->section), all, tag(m, m->syntax->section_end));
}

// ---- what else may be written ----

static lp_gb_node make_content(struct lp_gb *b, const json_t *content) {
    enum lp_grammar_kind kind;
    const char *name = json_string_value(json_object_get(content, "kind"));
    const json_t *source = json_object_get(content, "source");
    if (!name || !lp_grammar_kind_from_name(name, &kind) || (source && !json_is_string(source)))
        return fail_source(b, "\"content\" must have a \"kind\" of grammar and its \"source\"");
    struct lp_str text = source ? lp_jg_str(source) : (struct lp_str){"", 0};
    switch (kind) {
    case LP_GRAMMAR_JSON:
        return lp_grammar_from_json(b);
    case LP_GRAMMAR_SCHEMA:
        return lp_grammar_from_schema(b, text);
    case LP_GRAMMAR_REGEX:
        return lp_grammar_from_regex(b, text);
    case LP_GRAMMAR_CHOICE:
        return lp_grammar_from_choice(b, text);
    case LP_GRAMMAR_GBNF:
        return lp_grammar_from_gbnf(b, text);
    case LP_GRAMMAR_TOOLS:
        break;
    }
    return fail_source(b, "\"content\" cannot be tools again");
}

static lp_gb_node make_all(struct maker *m, const json_t *root) {
    bool required = json_is_true(json_object_get(root, "required"));
    const json_t *content = json_object_get(root, "content");
    m->pairs.user = m;
    if (m->syntax->in_value[0]) {
        m->pairs.text = lp_gb_declare(m->b, "bare text");
        lp_gb_define(m->b, m->pairs.text, without(m->b, m->syntax->in_value));
    }
    lp_gb_node calls = make_calls(m, json_object_get(root, "tools"),
                                  json_is_true(json_object_get(root, "parallel")));
    if (required) return calls;
    if (json_is_object(content)) return LP_GB_CHOICE(m->b, make_content(m->b, content), calls);
    return LP_GB_SEQ(m->b, without(m->b, m->syntax->in_text), lp_gb_optional(m->b, calls));
}

static const struct syntax *find_syntax(struct lp_gb *b, const json_t *name) {
    enum lp_reply_syntax id;
    if (!json_is_string(name) || !lp_reply_syntax_from_name(json_string_value(name), &id)) {
        fail_source(b, "\"syntax\" must be the name of a syntax of tool calls");
        return NULL;
    }
    for (size_t i = 0; i < sizeof syntaxes / sizeof *syntaxes; i++)
        if (syntaxes[i].id == id) return &syntaxes[i];
    lp_gb_fail(b, LP_STATUS_UNSUPPORTED, "tools: the model has no syntax of tool calls (\"%s\")",
               json_string_value(name));
    return NULL;
}

lp_gb_node lp_grammar_from_tools(struct lp_gb *b, struct lp_str source, lp_find_token_fn find_token,
                                 void *user) {
    struct lp_jg jg;
    bool as_doubles;
    json_t *root = lp_schema_load(b, source, "tools", &as_doubles);
    if (!root) return 0;
    lp_jg_init(&jg, b);
    struct maker m = {
        .b = b, .jg = &jg, .find_token = find_token, .user = user, .as_doubles = as_doubles};
    lp_gb_node node = 0;
    if (json_array_size(json_object_get(root, "tools")) == 0)
        fail_source(b, "there must be a list of \"tools\" with at least one");
    else if ((m.syntax = find_syntax(b, json_object_get(root, "syntax"))))
        node = make_all(&m, root);
    json_decref(root);
    return node;
}
