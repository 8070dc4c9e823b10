// Messages to prompt: prepares a request's messages as vLLM does, gathers the variables that
// transformers gives to a chat template, and renders.
//
// The caller's JSON is not changed: messages that need a change are copied one level deep.
#include "text/chat.h"

#include <string.h>

#include "text/jinja_ast.h"

static json_t *shared(const json_t *json) {
    return json_incref((json_t *)json);
}

static lp_status out_of_memory(struct lp_err *err) {
    return lp_err_set(err, LP_STATUS_MEMORY, "out of memory for a conversation's messages");
}

// ---- tool calls -------------------------------------------------------------------------------

// *out: a new reference to the arguments as an object.
static lp_status parse_arguments(const json_t *arguments, size_t i, size_t j, json_t **out,
                                 struct lp_err *err) {
    *out = NULL;
    if (json_is_string(arguments) && json_string_length(arguments)) {
        const char *text = json_string_value(arguments);
        size_t n = json_string_length(arguments), flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
        json_error_t error;
        json_t *parsed = json_loadb(text, n, flags, &error);
        // Integers of more than 64 bits are taken as floating point.
        if (!parsed && json_error_code(&error) == json_error_numeric_overflow)
            parsed = json_loadb(text, n, flags | JSON_DECODE_INT_AS_REAL, &error);
        if (!parsed && json_error_code(&error) == json_error_out_of_memory)
            return out_of_memory(err);
        if (!parsed)
            return lp_err_set(err, LP_STATUS_INVALID,
                              "messages[%zu].tool_calls[%zu].function.arguments is not valid JSON "
                              "(%s at byte %d)",
                              i, j, error.text, error.position);
        if (json_is_object(parsed))
            *out = parsed;
        else if (!json_is_null(parsed)) {
            json_decref(parsed);
            return lp_err_set(err, LP_STATUS_INVALID,
                              "messages[%zu].tool_calls[%zu].function.arguments is JSON, but no "
                              "object",
                              i, j);
        } else
            json_decref(parsed);
    } else if (json_is_object(arguments)) {
        *out = shared(arguments);
    } else if (arguments && !json_is_null(arguments) && !json_is_string(arguments)) {
        return lp_err_set(err, LP_STATUS_INVALID,
                          "messages[%zu].tool_calls[%zu].function.arguments must be a JSON object "
                          "or its text",
                          i, j);
    }
    if (!*out) *out = json_object();
    return *out ? LP_OK : out_of_memory(err);
}

static lp_status prepare_call(const json_t *call, size_t i, size_t j, json_t **out,
                              struct lp_err *err) {
    const json_t *function = json_object_get(call, "function");
    *out = NULL;
    if (!json_is_object(call) || (function && !json_is_object(function)))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "messages[%zu].tool_calls[%zu]%s must be an object", i, j,
                          json_is_object(call) ? ".function" : "");
    json_t *copy = json_copy((json_t *)call);
    if (!copy) return out_of_memory(err);
    lp_status status = LP_OK;
    if (function) {
        json_t *inner = json_copy((json_t *)function), *arguments = NULL;
        status =
            inner ? parse_arguments(json_object_get(function, "arguments"), i, j, &arguments, err)
                  : out_of_memory(err);
        if (!status && json_object_set_new(inner, "arguments", arguments))
            status = out_of_memory(err);
        if (status)
            json_decref(inner);
        else if (json_object_set_new(copy, "function", inner))
            status = out_of_memory(err);
    }
    if (status)
        json_decref(copy);
    else
        *out = copy;
    return status;
}

static lp_status prepare_calls(const json_t *calls, size_t i, json_t *message, struct lp_err *err) {
    if (!json_is_array(calls))
        return lp_err_set(err, LP_STATUS_INVALID, "messages[%zu].tool_calls must be an array", i);
    json_t *list = json_array();
    lp_status status = list ? LP_OK : out_of_memory(err);
    for (size_t j = 0; !status && j < json_array_size(calls); j++) {
        json_t *call;
        status = prepare_call(json_array_get(calls, j), i, j, &call, err);
        if (!status && json_array_append_new(list, call)) status = out_of_memory(err);
    }
    if (status) {
        json_decref(list);
        return status;
    }
    return json_object_set_new(message, "tool_calls", list) ? out_of_memory(err) : LP_OK;
}

// ---- content ----------------------------------------------------------------------------------

// Joins a list of text parts by line ends, for a template that takes content as one string.
static lp_status flatten(const json_t *parts, size_t i, json_t *message, struct lp_err *err) {
    struct lp_bytes text = {0};
    for (size_t j = 0; j < json_array_size(parts); j++) {
        const json_t *part = json_array_get(parts, j);
        const json_t *words = json_is_string(part) ? part : json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_string(words) || (type && strcmp(type, "text") && strcmp(type, "input_text") &&
                                       strcmp(type, "output_text"))) {
            lp_bytes_release(&text);
            return lp_err_set(err, LP_STATUS_INVALID,
                              "messages[%zu].content[%zu] is of type %s, but the model takes text "
                              "only",
                              i, j, type ? type : "unknown");
        }
        if (j) lp_bytes_puts(&text, "\n");
        lp_bytes_append(&text, json_string_value(words), json_string_length(words));
    }
    json_t *joined = text.failed ? NULL : json_stringn(text.data ? text.data : "", text.len);
    lp_bytes_release(&text);
    if (!joined) return out_of_memory(err);
    return json_object_set_new(message, "content", joined) ? out_of_memory(err) : LP_OK;
}

static lp_status prepare_content(const struct lp_jinja *jinja, size_t i, json_t *message,
                                 struct lp_err *err) {
    const json_t *content = json_object_get(message, "content");
    if (!content)
        return json_object_set_new(message, "content", json_null()) ? out_of_memory(err) : LP_OK;
    if (json_is_array(content))
        return jinja->iterates_content ? LP_OK : flatten(content, i, message, err);
    if (json_is_string(content) || json_is_null(content)) return LP_OK;
    return lp_err_set(err, LP_STATUS_INVALID,
                      "messages[%zu].content must be a string, an array of parts or null", i);
}

static lp_status prepare_message(const struct lp_jinja *jinja, const json_t *given, size_t i,
                                 json_t **out, struct lp_err *err) {
    *out = NULL;
    if (!json_is_object(given))
        return lp_err_set(err, LP_STATUS_INVALID, "messages[%zu] must be an object", i);
    const char *role = json_string_value(json_object_get(given, "role"));
    if (!role) return lp_err_set(err, LP_STATUS_INVALID, "messages[%zu].role must be a string", i);
    json_t *message = json_copy((json_t *)given);
    if (!message) return out_of_memory(err);
    lp_status status = LP_OK;
    if (!strcmp(role, "developer") && json_object_set_new(message, "role", json_string("system")))
        status = out_of_memory(err);
    if (!status) status = prepare_content(jinja, i, message, err);
    const json_t *calls = json_object_get(given, "tool_calls");
    if (!status && calls && !json_is_null(calls)) status = prepare_calls(calls, i, message, err);
    if (status)
        json_decref(message);
    else
        *out = message;
    return status;
}

// ---- variables --------------------------------------------------------------------------------

static lp_status add_messages(const struct lp_jinja *jinja, const json_t *messages, json_t *vars,
                              struct lp_err *err) {
    if (!json_is_array(messages))
        return lp_err_set(err, LP_STATUS_INVALID, "messages must be an array");
    json_t *list = json_array();
    lp_status status = list ? LP_OK : out_of_memory(err);
    for (size_t i = 0; !status && i < json_array_size(messages); i++) {
        json_t *message;
        status = prepare_message(jinja, json_array_get(messages, i), i, &message, err);
        if (!status && json_array_append_new(list, message)) status = out_of_memory(err);
    }
    if (status) {
        json_decref(list);
        return status;
    }
    return json_object_set_new(vars, "messages", list) ? out_of_memory(err) : LP_OK;
}

static lp_status add_kwargs(const json_t *kwargs, json_t *vars, struct lp_err *err) {
    if (!kwargs || json_is_null(kwargs)) return LP_OK;
    if (!json_is_object(kwargs))
        return lp_err_set(err, LP_STATUS_INVALID, "the template's arguments must be an object");
    if (json_object_get(kwargs, "messages") || json_object_get(kwargs, "tools"))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "the template's arguments may not replace messages or tools");
    return json_object_update(vars, (json_t *)kwargs) ? out_of_memory(err) : LP_OK;
}

static bool set_token(json_t *vars, const char *name, struct lp_str token) {
    return !json_object_set_new(vars, name,
                                json_stringn_nocheck(token.data ? token.data : "", token.len));
}

lp_status lp_chat_render(const struct lp_jinja *jinja, const struct lp_chat_params *params,
                         struct lp_bytes *out, struct lp_err *err) {
    json_t *vars = json_object();
    if (!vars) return out_of_memory(err);
    const json_t *tools = params->tools;
    lp_status status = LP_OK;
    if (tools && !json_is_array(tools) && !json_is_null(tools))
        status = lp_err_set(err, LP_STATUS_INVALID, "tools must be an array");
    else if (!set_token(vars, "bos_token", params->bos_token) ||
             !set_token(vars, "eos_token", params->eos_token) ||
             json_object_set_new(vars, "tools", tools ? shared(tools) : json_null()) ||
             json_object_set_new(vars, "documents", json_null()) ||
             json_object_set_new(vars, "add_generation_prompt",
                                 json_boolean(params->add_generation_prompt)))
        status = out_of_memory(err);
    if (!status) status = add_messages(jinja, params->messages, vars, err);
    if (!status) status = add_kwargs(params->kwargs, vars, err);
    if (!status) status = lp_jinja_render(jinja, vars, NULL, out, err);
    json_decref(vars);
    return status;
}
