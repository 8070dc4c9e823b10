// fields.c reads what is common to all APIs, responses_input.c the conversation; here is the rest.
// What would change the answer and is not supported is refused by name.
#include "serve/responses_request.h"

#include <string.h>

#include "base/alloc.h"
#include "serve/fields.h"
#include "serve/responses_input.h"

#define ONE_OF(text, ...)                                                                          \
    is_one_of(text, (const char *const[]){__VA_ARGS__},                                            \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static bool is_one_of(const char *text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

// A field that is there and not null must be an object. *out NULL: it is not there.
static bool get_object(const json_t *root, const char *name, const json_t **out,
                       struct lp_api_error *err) {
    *out = lp_json_field(root, name);
    return !*out || json_is_object(*out) ||
           lp_api_invalid(err, name, "%s is %s, expected an object", name, lp_json_type_name(*out));
}

// ---- what is not supported ----

static const struct refusal {
    const char *name, *instead;
} refusals[] = {
    {"previous_response_id", "this server stores no answers; send the earlier items in input"},
    {"conversation", "this server stores no conversations; send the earlier items in input"},
    {"prompt", "this server stores no prompts; send instructions and input"},
    {"context_management", "shorten input before you send it"},
    {"moderation", "leave it out"},
};

static bool is_empty(const json_t *j) {
    return (json_is_array(j) && json_array_size(j) == 0) ||
           (json_is_object(j) && json_object_size(j) == 0);
}

static bool check_refusals(const json_t *root, struct lp_api_error *err) {
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const json_t *j = lp_json_field(root, refusals[i].name);
        if (j && !is_empty(j))
            return lp_api_invalid(err, refusals[i].name, "%s is not supported: %s",
                                  refusals[i].name, refusals[i].instead);
    }
    bool background = false;
    const char *truncation = "disabled";
    if (!lp_json_get_bool(root, "background", "background", &background, err) ||
        !lp_json_get_string(root, "truncation", "truncation", &truncation, err))
        return false;
    if (background)
        return lp_api_invalid(err, "background",
                              "background is not supported: this server stores no answers; wait "
                              "for the answer, or ask for a stream");
    return strcmp(truncation, "disabled") == 0 ||
           lp_api_invalid(err, "truncation",
                          "truncation '%.40s' is not supported, only 'disabled': shorten input "
                          "before you send it",
                          truncation);
}

// ---- what is reported ----

// Results of tools that only OpenAI runs are none here, so asking for them asks for nothing.
static bool parse_include(struct lp_completion_params *p, const json_t *root,
                          struct lp_api_error *err) {
    const json_t *include = lp_json_field(root, "include");
    if (!include) return true;
    if (!json_is_array(include))
        return lp_api_invalid(err, "include", "include is %s, expected an array of strings",
                              lp_json_type_name(include));
    for (size_t i = 0; i < json_array_size(include); i++) {
        const json_t *one = json_array_get(include, i);
        if (!json_is_string(one))
            return lp_api_invalid(err, "include", "include[%zu] is %s, expected a string", i,
                                  lp_json_type_name(one));
        if (strcmp(json_string_value(one), "message.output_text.logprobs") == 0)
            p->logprobs = p->top_logprobs;
        else if (!ONE_OF(json_string_value(one), "reasoning.encrypted_content",
                         "file_search_call.results", "web_search_call.results",
                         "web_search_call.action.sources", "code_interpreter_call.outputs",
                         "message.input_image.image_url", "computer_call_output.output.image_url"))
            return lp_api_invalid(err, "include",
                                  "include[%zu] is '%.60s', which this server does not know", i,
                                  json_string_value(one));
    }
    return true;
}

static bool check_metadata(const json_t *root, struct lp_api_error *err) {
    const json_t *metadata;
    return get_object(root, "metadata", &metadata, err);
}

static bool check_stream_options(const json_t *root, struct lp_api_error *err) {
    const json_t *options;
    return get_object(root, "stream_options", &options, err);
}

// ---- how to answer ----

static bool parse_reasoning(struct lp_chat_request *r, const struct lp_service *service,
                            const json_t *root, struct lp_api_error *err) {
    const json_t *reasoning;
    const char *effort = NULL, *summary = "auto";
    if (!get_object(root, "reasoning", &reasoning, err)) return false;
    if (!lp_json_get_string(reasoning, "effort", "reasoning.effort", &effort, err) ||
        !lp_json_get_string(reasoning, "summary", "reasoning.summary", &summary, err))
        return false;
    if (!ONE_OF(summary, "auto", "concise", "detailed", "none"))
        return lp_api_invalid(err, "reasoning.summary",
                              "reasoning.summary is '%.40s', expected auto, concise or detailed",
                              summary);
    if (!effort || lp_chat_set_effort(r, service, effort, err)) return true;
    if (err->param[0]) strcpy(err->param, "reasoning.effort"); // not of a chat
    return false;
}

// For templates that know the word. text.format is read by structured.c.
static bool parse_verbosity(struct lp_chat_request *r, const json_t *root,
                            struct lp_api_error *err) {
    const json_t *text;
    const char *verbosity = NULL;
    if (!get_object(root, "text", &text, err) ||
        !lp_json_get_string(text, "verbosity", "text.verbosity", &verbosity, err))
        return false;
    if (!verbosity) return true;
    if (!ONE_OF(verbosity, "low", "medium", "high"))
        return lp_api_invalid(err, "text.verbosity",
                              "text.verbosity is '%.40s', expected low, medium or high", verbosity);
    return lp_chat_set_variable(r, "verbosity", json_string(verbosity)) ||
           lp_api_out_of_memory(err);
}

static bool parse_template_variables(struct lp_chat_request *r, const json_t *root,
                                     struct lp_api_error *err) {
    const json_t *variables;
    const char *name;
    json_t *value;
    if (!get_object(root, "chat_template_kwargs", &variables, err)) return false;
    json_object_foreach((json_t *)variables, name, value) {
        if (ONE_OF(name, "messages", "tools", "add_generation_prompt"))
            return lp_api_invalid(err, "chat_template_kwargs",
                                  "chat_template_kwargs may not hold '%s', which has its own field",
                                  name);
        if (!lp_chat_set_variable(r, name, json_incref(value))) return lp_api_out_of_memory(err);
    }
    return true;
}

// ---- tools ----

static bool check_tool(const json_t *tool, size_t i, struct lp_api_error *err) {
    char path[40];
    const char *type = NULL, *name = NULL, *description = NULL;
    bool strict = false;
    snprintf(path, sizeof path, "tools[%zu]", i);
    if (!json_is_object(tool))
        return lp_api_invalid(err, path, "%s is %s, expected an object", path,
                              lp_json_type_name(tool));
    snprintf(path, sizeof path, "tools[%zu].type", i);
    if (!lp_json_get_string(tool, "type", path, &type, err)) return false;
    if (!type || strcmp(type, "function") != 0)
        return lp_api_invalid(
            err, path,
            "%s is '%.60s'; this server runs no tools of its own: declare it as a "
            "'function' and run it yourself",
            path, type ? type : "");
    snprintf(path, sizeof path, "tools[%zu].name", i);
    if (!lp_json_get_string(tool, "name", path, &name, err)) return false;
    if (!name || !name[0])
        return lp_api_invalid(err, path, "%s is missing; it stands beside type, not in 'function'",
                              path);
    if (!lp_chat_check_tool_name(name, path, err)) return false;
    snprintf(path, sizeof path, "tools[%zu].parameters", i);
    const json_t *parameters = lp_json_field(tool, "parameters");
    if (parameters && !json_is_object(parameters))
        return lp_api_invalid(err, path, "%s is %s, expected a JSON schema", path,
                              lp_json_type_name(parameters));
    snprintf(path, sizeof path, "tools[%zu].strict", i);
    if (!lp_json_get_bool(tool, "strict", path, &strict, err)) return false;
    snprintf(path, sizeof path, "tools[%zu].description", i);
    return lp_json_get_string(tool, "description", path, &description, err);
}

// {"type": "function", "name", ...} -> {"type": "function", "function": {"name", ...}}
static json_t *chat_tool(const json_t *tool) {
    static const char *const keys[] = {"name", "description", "parameters", "strict"};
    json_t *function = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *value = (json_t *)lp_json_field(tool, keys[i]);
        if (value && json_object_set(function, keys[i], value)) {
            json_decref(function);
            return NULL;
        }
    }
    return json_pack("{s:s, s:o}", "type", "function", "function", function);
}

static bool parse_tools(struct lp_chat_request *r, const json_t *root, struct lp_api_error *err) {
    const json_t *tools = lp_json_field(root, "tools");
    if (!tools) return true;
    if (!json_is_array(tools))
        return lp_api_invalid(err, "tools", "tools is %s, expected an array",
                              lp_json_type_name(tools));
    if (json_array_size(tools) == 0) return true;
    if (!(r->tools = json_array())) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        if (!check_tool(tool, i, err)) return false;
        if (json_array_append_new(r->tools, chat_tool(tool))) return lp_api_out_of_memory(err);
    }
    return true;
}

// {"type": "function", "name"}
static bool parse_named_tool(struct lp_chat_request *r, const json_t *choice,
                             struct lp_api_error *err) {
    const char *type = "", *name = "";
    if (!lp_json_get_string(choice, "type", "tool_choice.type", &type, err) ||
        !lp_json_get_string(choice, "name", "tool_choice.name", &name, err))
        return false;
    if (strcmp(type, "allowed_tools") == 0)
        return lp_api_invalid(err, "tool_choice.type",
                              "tool_choice.type 'allowed_tools' is not supported: send only those "
                              "tools");
    if (strcmp(type, "function") != 0)
        return lp_api_invalid(err, "tool_choice.type",
                              "tool_choice.type is '%.60s', expected 'function'", type);
    if (!lp_chat_has_tool(r, name))
        return lp_api_invalid(err, "tool_choice.name",
                              "tool_choice.name is '%.60s', which is none of the tools", name);
    r->tool_choice = LP_TOOLS_NAMED;
    r->tool_name = lp_strdup(name);
    return r->tool_name || lp_api_out_of_memory(err);
}

static bool parse_tool_choice(struct lp_chat_request *r, const json_t *root,
                              struct lp_api_error *err) {
    static const char *const words[] = {
        [LP_TOOLS_AUTO] = "auto", [LP_TOOLS_NONE] = "none", [LP_TOOLS_REQUIRED] = "required"};
    const json_t *choice = lp_json_field(root, "tool_choice");
    bool parallel = true;
    if (!lp_json_get_bool(root, "parallel_tool_calls", "parallel_tool_calls", &parallel, err))
        return false;
    r->one_call = !parallel;
    if (!choice) return true;
    if (json_is_object(choice)) return parse_named_tool(r, choice, err);
    for (size_t i = 0; json_is_string(choice) && i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(json_string_value(choice), words[i]) != 0) continue;
        r->tool_choice = (enum lp_tool_choice)i;
        if (i == LP_TOOLS_REQUIRED && !r->tools)
            return lp_api_invalid(err, "tool_choice",
                                  "tool_choice is 'required', but there are no tools");
        return true;
    }
    return lp_api_invalid(
        err, "tool_choice",
        "tool_choice is %s, expected 'auto', 'none', 'required' or an object with "
        "type and name",
        json_is_string(choice) ? "another word" : lp_json_type_name(choice));
}

// ---- what the answer repeats ----

// The field as it was sent; without it what `otherwise` says, taken over.
static bool echo_field(json_t *echo, const json_t *root, const char *name, json_t *otherwise) {
    json_t *given = (json_t *)lp_json_field(root, name);
    if (!given) return json_object_set_new(echo, name, otherwise) == 0;
    json_decref(otherwise);
    return json_object_set(echo, name, given) == 0;
}

static json_t *echo_tools(const json_t *root) {
    const json_t *tools = lp_json_field(root, "tools");
    json_t *out = json_array();
    for (size_t i = 0; out && i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        json_t *one = json_pack("{s:s, s:O, s:O?, s:O?, s:O?}", "type", "function", "name",
                                json_object_get(tool, "name"), "description",
                                json_object_get(tool, "description"), "parameters",
                                json_object_get(tool, "parameters"), "strict",
                                json_object_get(tool, "strict"));
        if (json_array_append_new(out, one) == 0) continue;
        json_decref(out);
        out = NULL;
    }
    return out;
}

static json_t *echo_text(const json_t *root) {
    const json_t *text = lp_json_field(root, "text");
    json_t *out = json_object();
    if (out && echo_field(out, text, "format", json_pack("{s:s}", "type", "text")) &&
        echo_field(out, text, "verbosity", json_string("medium")))
        return out;
    json_decref(out);
    return NULL;
}

static json_t *echo_reasoning(const json_t *root) {
    const json_t *reasoning = lp_json_field(root, "reasoning");
    json_t *out = json_object();
    if (out && echo_field(out, reasoning, "effort", json_null()) &&
        echo_field(out, reasoning, "summary", json_null()))
        return out;
    json_decref(out);
    return NULL;
}

static bool make_echo(struct lp_responses_request *r, const json_t *root,
                      struct lp_api_error *err) {
    const struct lp_completion_params *p = &r->chat.params;
    r->echo =
        json_pack("{s:o, s:o, s:o, s:f, s:f, s:I, s:b, s:s}", "tools", echo_tools(root), "text",
                  echo_text(root), "reasoning", echo_reasoning(root), "temperature", p->temperature,
                  "top_p", p->top_p, "top_logprobs", (json_int_t)p->top_logprobs,
                  "parallel_tool_calls", !r->chat.one_call, "truncation", "disabled");
    bool ok = r->echo && echo_field(r->echo, root, "instructions", json_null()) &&
              echo_field(r->echo, root, "metadata", json_object()) &&
              echo_field(r->echo, root, "tool_choice", json_string("auto")) &&
              echo_field(r->echo, root, "max_output_tokens", json_null());
    return ok || lp_api_out_of_memory(err);
}

// ---- the whole ----

bool lp_responses_request_parse(struct lp_responses_request *r, const struct lp_service *service,
                                const json_t *root, struct lp_api_error *err) {
    *r = (struct lp_responses_request){0};
    lp_chat_request_init(&r->chat);
    if (!check_refusals(root, err) ||
        !lp_fields_parse(&r->chat.params, root, LP_API_RESPONSES, err) ||
        !parse_include(&r->chat.params, root, err) || !check_metadata(root, err) ||
        !check_stream_options(root, err) || !parse_reasoning(&r->chat, service, root, err) ||
        !parse_verbosity(&r->chat, root, err) || !parse_template_variables(&r->chat, root, err) ||
        !parse_tools(&r->chat, root, err) || !parse_tool_choice(&r->chat, root, err))
        return false;
    r->chat.messages = lp_responses_input(root, err);
    return r->chat.messages && make_echo(r, root, err);
}

void lp_responses_request_release(struct lp_responses_request *r) {
    lp_chat_request_release(&r->chat);
    json_decref(r->echo);
    *r = (struct lp_responses_request){0};
}
