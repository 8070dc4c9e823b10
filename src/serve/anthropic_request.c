// The body of a Messages request, all but its messages: tools, thinking, the form of the output.
// Fields that OpenAI's APIs have too are those of fields.h; cache_control, metadata, service_tier
// and context_management mean nothing here: every prefix is cached, there is one tier, and no
// message is dropped behind the client's back.
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/anthropic_parts.h"
#include "serve/fields.h"
#include "serve/json_out.h"
#include "serve/structured.h"

#define PATH_BYTES 64

// An object, or NULL if it is not there.
static bool get_object(const json_t *in, const char *name, const char *path, const json_t **out,
                       struct lp_api_error *err) {
    *out = lp_json_field(in, name);
    if (!*out || json_is_object(*out)) return true;
    return lp_api_invalid(err, path, "%s is %s, expected an object", path, lp_json_type_name(*out));
}

// ---- what is not supported ----

// Parts of a conversation that only Anthropic's servers hold or make.
static const struct refusal {
    const char *name, *instead;
    const char *code; // NULL: none
} refusals[] = {
    {"thread", "this server stores no conversations; send all messages", LP_ANTHROPIC_NO_THREADS},
    {"mcp_servers", "give the servers' tools as tools of your own", NULL},
    {"container", "this server runs no code", NULL},
    {"compaction", "shorten messages before you send them", NULL},
};

static bool check_refusals(const json_t *root, struct lp_api_error *err) {
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const json_t *j = lp_json_field(root, refusals[i].name);
        if (!j || (json_is_array(j) && json_array_size(j) == 0)) continue;
        lp_api_invalid(err, refusals[i].name, "%s is not supported: %s", refusals[i].name,
                       refusals[i].instead);
        err->code = refusals[i].code;
        return false;
    }
    return true;
}

// ---- tools ----

// Tools that Anthropic's servers run, or that its models were trained for, come without a schema.
static bool check_tool_type(const json_t *tool, const char *path, struct lp_api_error *err) {
    const char *type = NULL;
    char at[PATH_BYTES + 16];
    snprintf(at, sizeof at, "%s.type", path);
    if (!lp_json_get_string(tool, "type", at, &type, err)) return false;
    if (!type || strcmp(type, "custom") == 0 || lp_json_field(tool, "input_schema")) return true;
    return lp_api_invalid(err, at,
                          "%s is '%.60s', a tool that this server does not have; give a "
                          "tool of your own with name and input_schema",
                          at, type);
}

static bool read_tool(json_t *out, const json_t *tool, size_t i, struct lp_api_error *err) {
    char path[PATH_BYTES], at[PATH_BYTES + 16];
    const char *name = NULL;
    const json_t *schema;
    bool strict = false;
    snprintf(path, sizeof path, "tools[%zu]", i);
    if (!json_is_object(tool))
        return lp_api_invalid(err, path, "%s is %s, expected an object", path,
                              lp_json_type_name(tool));
    snprintf(at, sizeof at, "%s.name", path);
    if (!check_tool_type(tool, path, err) || !lp_json_get_string(tool, "name", at, &name, err))
        return false;
    if (!name || !name[0]) return lp_api_invalid(err, at, "%s is missing", at);
    if (!lp_chat_check_tool_name(name, at, err)) return false;
    snprintf(at, sizeof at, "%s.input_schema", path);
    if (!get_object(tool, "input_schema", at, &schema, err)) return false;
    if (!schema) return lp_api_invalid(err, at, "%s is missing", at);
    const json_t *description = lp_json_field(tool, "description");
    snprintf(at, sizeof at, "%s.description", path);
    if (description && !json_is_string(description))
        return lp_api_invalid(err, at, "%s is %s, expected a string", at,
                              lp_json_type_name(description));
    snprintf(at, sizeof at, "%s.strict", path);
    if (!lp_json_get_bool(tool, "strict", at, &strict, err)) return false;
    json_t *function = json_pack("{s:s, s:O*, s:O}", "name", name, "description", description,
                                 "parameters", schema);
    if (strict && function && json_object_set_new(function, "strict", json_true()) != 0)
        return json_decref(function), lp_api_out_of_memory(err);
    json_t *one = json_pack("{s:s, s:o}", "type", "function", "function", function);
    return json_array_append_new(out, one) == 0 || lp_api_out_of_memory(err);
}

static bool read_tools(struct lp_chat_request *r, const json_t *root, struct lp_api_error *err) {
    const json_t *tools = lp_json_field(root, "tools");
    if (!tools) return true;
    if (!json_is_array(tools))
        return lp_api_invalid(err, "tools", "tools is %s, expected an array",
                              lp_json_type_name(tools));
    if (json_array_size(tools) == 0) return true;
    if (!(r->tools = json_array())) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!read_tool(r->tools, json_array_get(tools, i), i, err)) return false;
    return true;
}

static bool read_tool_name(struct lp_chat_request *r, const json_t *choice,
                           struct lp_api_error *err) {
    static const char at[] = "tool_choice.name";
    const char *name = NULL;
    if (!lp_json_get_string(choice, "name", at, &name, err)) return false;
    if (!name) return lp_api_invalid(err, at, "%s is missing", at);
    if (!lp_chat_has_tool(r, name))
        return lp_api_invalid(err, at, "%s is '%.60s', which is not in tools", at, name);
    r->tool_name = lp_strdup(name);
    return r->tool_name || lp_api_out_of_memory(err);
}

static bool read_tool_choice(struct lp_chat_request *r, const json_t *root,
                             struct lp_api_error *err) {
    static const struct {
        const char *type;
        enum lp_tool_choice choice;
    } choices[] = {{"auto", LP_TOOLS_AUTO},
                   {"any", LP_TOOLS_REQUIRED},
                   {"tool", LP_TOOLS_NAMED},
                   {"none", LP_TOOLS_NONE}};
    const json_t *j;
    const char *type = NULL;
    if (!get_object(root, "tool_choice", "tool_choice", &j, err)) return false;
    if (!j) return true;
    if (!lp_json_get_string(j, "type", "tool_choice.type", &type, err) ||
        !lp_json_get_bool(j, "disable_parallel_tool_use", "tool_choice.disable_parallel_tool_use",
                          &r->one_call, err))
        return false;
    for (size_t i = 0; type && i < sizeof choices / sizeof choices[0]; i++) {
        if (strcmp(type, choices[i].type) != 0) continue;
        r->tool_choice = choices[i].choice;
        bool must = r->tool_choice == LP_TOOLS_REQUIRED || r->tool_choice == LP_TOOLS_NAMED;
        if (must && !r->tools)
            return lp_api_invalid(err, "tool_choice",
                                  "tool_choice asks for a tool, and there are "
                                  "no tools");
        return r->tool_choice != LP_TOOLS_NAMED || read_tool_name(r, j, err);
    }
    return lp_api_invalid(err, "tool_choice.type",
                          "tool_choice.type is %s%.60s%s, expected auto, any, tool or none",
                          type ? "'" : "", type ? type : "missing", type ? "'" : "");
}

// ---- thinking ----

static bool check_budget(const json_t *thinking, struct lp_api_error *err) {
    const json_t *j = lp_json_field(thinking, "budget_tokens");
    if (!j || (json_is_integer(j) && json_integer_value(j) >= 1)) return true;
    return lp_api_invalid(err, "thinking.budget_tokens",
                          "thinking.budget_tokens is no whole number of 1 or more");
}

// How long a model thinks is its own affair, within max_tokens: a budget is not enforced.
static bool read_thinking(struct lp_chat_request *r, const json_t *root, bool *thinks,
                          struct lp_api_error *err) {
    const json_t *j;
    const char *type = NULL, *display = NULL;
    if (!get_object(root, "thinking", "thinking", &j, err)) return false;
    if (!j) return lp_chat_set_thinking(r, false) || lp_api_out_of_memory(err);
    if (!lp_json_get_string(j, "type", "thinking.type", &type, err) || !check_budget(j, err) ||
        !lp_json_get_string(j, "display", "thinking.display", &display, err))
        return false;
    if (!type) return lp_api_invalid(err, "thinking.type", "thinking.type is missing");
    *thinks = strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0;
    if (!*thinks && strcmp(type, "disabled") != 0)
        return lp_api_invalid(err, "thinking.type",
                              "thinking.type is '%.60s', expected enabled, adaptive or disabled",
                              type);
    if (display && strcmp(display, "omitted") != 0 && strcmp(display, "summarized") != 0)
        return lp_api_invalid(err, "thinking.display",
                              "thinking.display is '%.60s', expected summarized or omitted",
                              display);
    return lp_chat_set_thinking(r, *thinks) || lp_api_out_of_memory(err);
}

static bool hides_thinking(const json_t *root) {
    const char *display =
        json_string_value(json_object_get(json_object_get(root, "thinking"), "display"));
    return display && strcmp(display, "omitted") == 0;
}

// ---- the form of the output ----

static bool read_format(struct lp_completion_params *p, const json_t *in, const char *name,
                        const char *path, struct lp_api_error *err) {
    const json_t *format, *schema;
    const char *type = NULL;
    if (!get_object(in, name, path, &format, err)) return false;
    if (!format) return true;
    if (!lp_json_get_string(format, "type", path, &type, err) ||
        !get_object(format, "schema", path, &schema, err))
        return false;
    if (!type || strcmp(type, "json_schema") != 0)
        return lp_api_invalid(err, path, "%s has the type '%.60s', expected json_schema", path,
                              type ? type : "");
    if (!schema) return lp_api_invalid(err, path, "%s has no schema", path);
    return lp_structured_set_json(p, "json_schema", schema, path, err);
}

bool lp_anthropic_read_params(struct lp_chat_request *r, const json_t *root,
                              struct lp_api_error *err) {
    const json_t *config;
    if (!lp_json_field(root, "max_tokens"))
        return lp_api_invalid(err, "max_tokens",
                              "max_tokens is missing; it says how long the answer may be");
    return get_object(root, "output_config", "output_config", &config, err) &&
           lp_fields_parse(&r->params, root, LP_API_MESSAGES, err) &&
           read_format(&r->params, config, "format", "output_config.format", err) &&
           read_format(&r->params, root, "output_format", "output_format", err);
}

// ---- whole bodies ----

bool lp_anthropic_read(struct lp_chat_request *r, const json_t *root, struct lp_api_error *err) {
    bool thinks = false;
    return check_refusals(root, err) && read_thinking(r, root, &thinks, err) &&
           lp_anthropic_read_messages(r, root, thinks, err) && read_tools(r, root, err) &&
           read_tool_choice(r, root, err);
}

// Before thinking, which has the last word on whether there is any.
static bool read_effort(struct lp_chat_request *r, const struct lp_service *service,
                        const json_t *root, struct lp_api_error *err) {
    static const char *const efforts[] = {"low", "medium", "high", "xhigh", "max"};
    static const char path[] = "output_config.effort";
    const json_t *config;
    const char *effort = NULL;
    if (!get_object(root, "output_config", "output_config", &config, err) ||
        !lp_json_get_string(config, "effort", path, &effort, err))
        return false;
    if (!effort) return true;
    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++)
        if (strcmp(effort, efforts[i]) == 0) return lp_chat_set_effort(r, service, effort, err);
    return lp_api_invalid(err, path, "%s is '%.40s', expected low, medium, high, xhigh or max",
                          path, effort);
}

static json_t *parse_prompt(struct lp_service *service, struct lp_chat_request *r, const char *body,
                            size_t n_bytes, struct lp_api_error *err) {
    json_t *root = lp_body_parse(body, n_bytes, limpid_engine_context(service->engine), err);
    if (root && read_effort(r, service, root, err) && lp_anthropic_read(r, root, err)) return root;
    json_decref(root);
    return NULL;
}

static void release_content(void *extra) {
    struct lp_anthropic_content *content = extra;
    for (size_t i = 0; i < content->n_blocks; i++) lp_bytes_release(&content->blocks[i].text);
    lp_free(content->blocks);
}

static bool make_state(struct lp_answer *a, bool hide_thinking, struct lp_api_error *err) {
    struct lp_chat_answer *chat = lp_chat_answer_new(a);
    struct lp_anthropic_content *content = chat ? lp_alloc(1, sizeof *content) : NULL;
    if (!content) return lp_api_out_of_memory(err);
    content->hide_thinking = hide_thinking;
    chat->extra = content;
    chat->release_extra = release_content;
    return true;
}

bool lp_anthropic_parse(struct lp_answer *a, const char *body, size_t n_bytes,
                        struct lp_api_error *err) {
    struct lp_chat_request r;
    lp_chat_request_init(&r);
    json_t *root = parse_prompt(a->service, &r, body, n_bytes, err);
    bool ok =
        root && lp_anthropic_read_params(&r, root, err) && make_state(a, hides_thinking(root), err);
    json_decref(root);
    ok = ok && lp_chat_answer_admit(a, &r, err);
    lp_chat_request_release(&r);
    return ok;
}

void lp_anthropic_count_tokens(struct lp_service *service, const char *body, size_t n_bytes,
                               struct lp_http_reply *reply) {
    struct lp_chat_request r;
    struct lp_chat_prompt prompt = {0};
    struct lp_api_error err;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    lp_chat_request_init(&r);
    json_t *root = parse_prompt(service, &r, body, n_bytes, &err);
    const char *model = NULL;
    bool ok = root && lp_json_get_string(root, "model", "model", &model, &err) &&
              lp_completion_check_model(service, model, &err);
    json_decref(root);
    ok = ok && lp_chat_prompt_make(service, &r, &prompt, &ids, &n_ids, &err);
    lp_chat_request_release(&r);
    lp_chat_prompt_release(&prompt);
    lp_free(ids);
    if (ok)
        lp_http_reply_json(reply, 200, json_pack("{s:I}", "input_tokens", (json_int_t)n_ids));
    else
        lp_http_reply_error(reply, lp_anthropic_error, &err);
}
