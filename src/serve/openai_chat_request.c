// The body of POST /v1/chat/completions.
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/fields.h"
#include "serve/openai_chat.h"

// ---- messages ----

static bool check_part(const json_t *part, size_t i, size_t k, struct lp_api_error *err) {
    static const char *const texts[] = {"text", "input_text", "output_text", "refusal"};
    const char *type = json_string_value(json_object_get(part, "type"));
    char path[64];
    snprintf(path, sizeof path, "messages[%zu].content[%zu]", i, k);
    if (json_is_string(part)) return true;
    if (!json_is_object(part))
        return lp_api_invalid(err, path, "%s is %s, expected an object", path,
                              lp_json_type_name(part));
    if (!type) return lp_api_invalid(err, path, "%s has no type", path);
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        if (strcmp(type, texts[t]) != 0) continue;
        const char *name = t == 3 ? "refusal" : "text";
        if (json_is_string(json_object_get(part, name))) return true;
        return lp_api_invalid(err, path, "%s.%s is %s, expected a string", path, name,
                              lp_json_type_name(json_object_get(part, name)));
    }
    return lp_api_invalid(err, path, "%s is of type '%.40s', but the model takes text only", path,
                          type);
}

static bool check_message(const json_t *message, size_t i, struct lp_api_error *err) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    char path[64];
    snprintf(path, sizeof path, "messages[%zu]", i);
    if (!json_is_object(message))
        return lp_api_invalid(err, path, "%s is %s, expected an object", path,
                              lp_json_type_name(message));
    const json_t *role = json_object_get(message, "role"),
                 *content = json_object_get(message, "content");
    bool known = false;
    for (size_t r = 0; json_is_string(role) && r < sizeof roles / sizeof roles[0]; r++)
        known = known || strcmp(json_string_value(role), roles[r]) == 0;
    if (!json_is_string(role))
        return lp_api_invalid(err, path, "%s.role is %s, expected a string", path,
                              role ? lp_json_type_name(role) : "missing");
    if (!known)
        return lp_api_invalid(err, path,
                              "%s.role is '%.40s', expected system, developer, user, assistant or "
                              "tool",
                              path, json_string_value(role));
    bool may_lack = strcmp(json_string_value(role), "assistant") == 0;
    if ((!content || json_is_null(content)) && !may_lack)
        return lp_api_invalid(err, path, "%s.content is missing", path);
    if (content && !json_is_string(content) && !json_is_array(content) && !json_is_null(content))
        return lp_api_invalid(err, path, "%s.content is %s, expected a string or an array of parts",
                              path, lp_json_type_name(content));
    for (size_t k = 0; k < json_array_size(content); k++)
        if (!check_part(json_array_get(content, k), i, k, err)) return false;
    return true;
}

static bool parse_messages(struct lp_chat_request *r, const json_t *j, struct lp_api_error *err) {
    if (!j) return lp_api_invalid(err, "messages", "messages is missing");
    if (!json_is_array(j) || json_array_size(j) == 0)
        return lp_api_invalid(err, "messages", "messages is %s, expected an array of messages",
                              json_is_array(j) ? "empty" : lp_json_type_name(j));
    for (size_t i = 0; i < json_array_size(j); i++)
        if (!check_message(json_array_get(j, i), i, err)) return false;
    r->messages = json_incref((json_t *)j);
    return true;
}

// ---- tools ----

static bool check_tool(const json_t *tool, size_t i, struct lp_api_error *err) {
    char path[64];
    snprintf(path, sizeof path, "tools[%zu]", i);
    const json_t *type = json_object_get(tool, "type"),
                 *function = json_object_get(tool, "function"),
                 *name = json_object_get(function, "name"),
                 *parameters = lp_json_field(function, "parameters");
    if (!json_is_object(tool))
        return lp_api_invalid(err, path, "%s is %s, expected an object", path,
                              lp_json_type_name(tool));
    if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0)
        return lp_api_invalid(err, path, "%s.type is %s%.40s%s, expected \"function\"", path,
                              json_is_string(type) ? "'" : "",
                              json_is_string(type) ? json_string_value(type)
                                                   : (type ? lp_json_type_name(type) : "missing"),
                              json_is_string(type) ? "'" : "");
    if (!json_is_object(function))
        return lp_api_invalid(err, path, "%s.function is %s, expected an object", path,
                              function ? lp_json_type_name(function) : "missing");
    if (!json_is_string(name) || !json_string_value(name)[0])
        return lp_api_invalid(err, path, "%s.function.name is missing or no name", path);
    if (!lp_chat_check_tool_name(json_string_value(name), path, err)) return false;
    if (parameters && !json_is_object(parameters))
        return lp_api_invalid(err, path, "%s.function.parameters is %s, expected a JSON schema",
                              path, lp_json_type_name(parameters));
    return true;
}

static bool parse_tools(struct lp_chat_request *r, const json_t *j, struct lp_api_error *err) {
    if (!j) return true;
    if (!json_is_array(j))
        return lp_api_invalid(err, "tools", "tools is %s, expected an array", lp_json_type_name(j));
    for (size_t i = 0; i < json_array_size(j); i++)
        if (!check_tool(json_array_get(j, i), i, err)) return false;
    if (json_array_size(j)) r->tools = json_incref((json_t *)j);
    return true;
}

static bool parse_named_choice(struct lp_chat_request *r, const json_t *j,
                               struct lp_api_error *err) {
    const json_t *function = json_object_get(j, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    if (!name) name = json_string_value(json_object_get(j, "name"));
    if (!json_is_object(j) || !name)
        return lp_api_invalid(err, "tool_choice",
                              "tool_choice is %s, expected \"none\", \"auto\", \"required\" or "
                              "{\"type\": \"function\", \"function\": {\"name\": ...}}",
                              lp_json_type_name(j));
    if (!lp_chat_has_tool(r, name))
        return lp_api_invalid(err, "tool_choice",
                              "tool_choice names '%.100s', which is not in tools", name);
    r->tool_choice = LP_TOOLS_NAMED;
    return (r->tool_name = lp_strdup(name)) ? true : lp_api_out_of_memory(err);
}

static bool parse_tool_choice(struct lp_chat_request *r, const json_t *j,
                              struct lp_api_error *err) {
    const char *word = json_string_value(j);
    if (!j) return true;
    if (!word) return parse_named_choice(r, j, err);
    if (strcmp(word, "none") == 0)
        r->tool_choice = LP_TOOLS_NONE;
    else if (strcmp(word, "required") == 0)
        r->tool_choice = LP_TOOLS_REQUIRED;
    else if (strcmp(word, "auto") != 0)
        return lp_api_invalid(err, "tool_choice",
                              "tool_choice is '%.40s', expected none, auto, required or a function",
                              word);
    if (r->tool_choice == LP_TOOLS_REQUIRED && !r->tools)
        return lp_api_invalid(err, "tool_choice",
                              "tool_choice is 'required', but there are no tools");
    return true;
}

// ---- what the template shall know ----

static bool parse_kwargs(struct lp_chat_request *r, json_t *j, struct lp_api_error *err) {
    const char *key;
    json_t *value;
    if (!j) return true;
    if (!json_is_object(j))
        return lp_api_invalid(err, "chat_template_kwargs",
                              "chat_template_kwargs is %s, expected an object",
                              lp_json_type_name(j));
    json_object_foreach(j, key, value) {
        if (strcmp(key, "messages") == 0 || strcmp(key, "tools") == 0 ||
            strcmp(key, "add_generation_prompt") == 0)
            return lp_api_invalid(err, "chat_template_kwargs",
                                  "chat_template_kwargs may not hold '%s', which has its own field",
                                  key);
        if (!lp_chat_set_variable(r, key, json_incref(value))) return lp_api_out_of_memory(err);
    }
    return true;
}

// Z.ai's: {"type": "enabled" | "disabled"}.
static bool parse_thinking(struct lp_chat_request *r, const json_t *j, struct lp_api_error *err) {
    const char *type = json_string_value(json_object_get(j, "type"));
    if (!j) return true;
    bool on = type && strcmp(type, "enabled") == 0;
    if (!type || (!on && strcmp(type, "disabled") != 0))
        return lp_api_invalid(err, "thinking",
                              "thinking is %s, expected {\"type\": \"enabled\" or \"disabled\"}",
                              lp_json_type_name(j));
    return lp_chat_set_thinking(r, on) ? true : lp_api_out_of_memory(err);
}

static bool parse_variables(struct lp_chat_request *r, const struct lp_service *service,
                            const json_t *root, struct lp_api_error *err) {
    const char *effort = NULL;
    return lp_json_get_string(root, "reasoning_effort", "reasoning_effort", &effort, err) &&
           (!effort || lp_chat_set_effort(r, service, effort, err)) &&
           parse_thinking(r, lp_json_field(root, "thinking"), err) &&
           parse_kwargs(r, (json_t *)lp_json_field(root, "chat_template_kwargs"), err);
}

// ---- the rest ----

static bool check_refused(const json_t *root, struct lp_api_error *err) {
    static const struct {
        const char *name, *advice;
    } rows[] = {{"functions", "use tools"},
                {"function_call", "use tool_choice"},
                {"audio", "the model writes text only"},
                {"web_search_options", "offer a tool of your own"},
                {"chat_template", "the template of the model's file is used"},
                {"documents", "put them into messages"},
                {"mm_processor_kwargs", "the model takes text only"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (lp_json_field(root, rows[i].name))
            return lp_api_invalid(err, rows[i].name, "%s is not supported: %s", rows[i].name,
                                  rows[i].advice);
    const json_t *modalities = lp_json_field(root, "modalities");
    for (size_t i = 0; i < json_array_size(modalities); i++) {
        const char *one = json_string_value(json_array_get(modalities, i));
        if (!one || strcmp(one, "text") != 0)
            return lp_api_invalid(err, "modalities", "modalities may hold \"text\" only");
    }
    return true;
}

static bool parse_logprobs(struct lp_completion_params *p, const json_t *root,
                           struct lp_api_error *err) {
    bool on = false, top = lp_json_field(root, "top_logprobs") != NULL;
    if (!lp_json_get_bool(root, "logprobs", "logprobs", &on, err)) return false;
    if (top && p->top_logprobs > 0 && !on)
        return lp_api_invalid(err, "top_logprobs", "top_logprobs needs \"logprobs\": true");
    p->logprobs = on ? p->top_logprobs : -1;
    return true;
}

static bool parse_continue(struct lp_chat_request *r, const json_t *root,
                           struct lp_api_error *err) {
    bool generation_prompt = true;
    if (!lp_json_get_bool(root, "continue_final_message", "continue_final_message",
                          &r->continue_final, err) ||
        !lp_json_get_bool(root, "add_generation_prompt", "add_generation_prompt",
                          &generation_prompt, err))
        return false;
    if (!generation_prompt && !r->continue_final)
        return lp_api_invalid(err, "add_generation_prompt",
                              "add_generation_prompt is false, which is supported together with "
                              "\"continue_final_message\": true only");
    size_t n = json_array_size(r->messages);
    const char *role =
        json_string_value(json_object_get(json_array_get(r->messages, n - 1), "role"));
    if (r->continue_final && strcmp(role, "assistant") != 0)
        return lp_api_invalid(err, "continue_final_message",
                              "continue_final_message needs a last message of role assistant, not "
                              "%s",
                              role);
    return true;
}

bool lp_openai_chat_request(struct lp_chat_request *r, const struct lp_service *service,
                            const json_t *root, bool with_sampling, struct lp_api_error *err) {
    bool parallel = true;
    lp_chat_request_init(r);
    bool ok = parse_messages(r, lp_json_field(root, "messages"), err) &&
              parse_tools(r, lp_json_field(root, "tools"), err) &&
              parse_tool_choice(r, lp_json_field(root, "tool_choice"), err) &&
              parse_variables(r, service, root, err) && parse_continue(r, root, err) &&
              check_refused(root, err) &&
              lp_json_get_bool(root, "parallel_tool_calls", "parallel_tool_calls", &parallel, err);
    r->one_call = !parallel;
    if (!ok || !with_sampling) return ok;
    return lp_fields_parse(&r->params, root, LP_API_CHAT, err) &&
           parse_logprobs(&r->params, root, err);
}

bool lp_openai_chat_parse(struct lp_answer *a, const char *body, size_t n_bytes,
                          struct lp_api_error *err) {
    struct lp_chat_request r = {0};
    json_t *root = lp_body_parse(body, n_bytes, limpid_engine_context(a->service->engine), err);
    bool ok = root && lp_openai_chat_request(&r, a->service, root, true, err) &&
              lp_chat_answer_admit(a, &r, err);
    lp_chat_request_release(&r);
    json_decref(root);
    return ok;
}
