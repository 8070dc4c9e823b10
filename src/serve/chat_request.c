// Requests of the chat APIs: made, changed, released; and what can be said of a message by itself.
#include "serve/chat_request.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/chat_parts.h"
#include "serve/fields.h"
#include "text/reply.h"

void lp_chat_request_init(struct lp_chat_request *r) {
    *r = (struct lp_chat_request){.params = lp_fields_defaults()};
    r->params.max_tokens = INT32_MAX;
}

void lp_chat_request_release(struct lp_chat_request *r) {
    json_decref(r->messages);
    json_decref(r->tools);
    json_decref(r->variables);
    lp_free(r->tool_name);
    lp_completion_params_release(&r->params);
    *r = (struct lp_chat_request){0};
}

bool lp_chat_set_variable(struct lp_chat_request *r, const char *name, json_t *value) {
    if (!r->variables) r->variables = json_object();
    if (r->variables) return json_object_set_new(r->variables, name, value) == 0;
    json_decref(value);
    return false;
}

bool lp_chat_set_thinking(struct lp_chat_request *r, bool on) {
    return lp_chat_set_variable(r, "enable_thinking", json_boolean(on)) &&
           lp_chat_set_variable(r, "thinking", json_boolean(on));
}

// Does the template spell this word as a literal?
static bool knows_word(const char *chat_template, const char *word) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", word);
    if (strstr(chat_template, quoted)) return true;
    snprintf(quoted, sizeof quoted, "\"%s\"", word);
    return strstr(chat_template, quoted) != NULL;
}

// GLM-5.2 knows "high" and takes all else for the maximum; 5.3 also knows "low".
bool lp_chat_set_effort(struct lp_chat_request *r, const struct lp_service *service,
                        const char *effort, struct lp_api_error *err) {
    static const struct {
        const char *word, *wish; // wish: to be sent if the template knows it, else "high"
    } efforts[] = {{"minimal", "low"}, {"low", "low"},   {"medium", "medium"},
                   {"high", "high"},   {"xhigh", "max"}, {"max", "max"}};
    if (strcmp(effort, "none") == 0)
        return lp_chat_set_thinking(r, false) ? true : lp_api_out_of_memory(err);
    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++) {
        if (strcmp(efforts[i].word, effort) != 0) continue;
        if (!strstr(service->chat_template, "reasoning_effort")) return true;
        const char *wish = efforts[i].wish;
        if (strcmp(wish, "max") != 0 && !knows_word(service->chat_template, wish)) wish = "high";
        return lp_chat_set_variable(r, "reasoning_effort", json_string(wish))
                   ? true
                   : lp_api_out_of_memory(err);
    }
    return lp_api_invalid(err, "reasoning_effort",
                          "reasoning_effort is '%.40s', expected none, minimal, low, medium, high, "
                          "xhigh or max",
                          effort);
}

bool lp_chat_check_tool_name(const char *name, const char *path, struct lp_api_error *err) {
    if (lp_reply_name_ok(lp_str_from(name))) return true;
    return lp_api_invalid(err, path,
                          "the name of a tool is '%.140s', expected 1 to %d of the characters "
                          "A-Z a-z 0-9 _ . : -; a model could not call it otherwise",
                          name, LP_REPLY_MAX_NAME);
}

bool lp_chat_has_tool(const struct lp_chat_request *r, const char *name) {
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        const json_t *function = json_object_get(json_array_get(r->tools, i), "function");
        if (strcmp(json_string_value(json_object_get(function, "name")), name) == 0) return true;
    }
    return false;
}

// ---- messages ----

bool lp_chat_is_assistant(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

struct lp_str lp_chat_trimmed_end(struct lp_str text) {
    while (text.len && strchr(" \t\r\n", text.data[text.len - 1])) text.len--;
    return text;
}

// The text of a message: a string, or parts.
bool lp_chat_content_text(const json_t *message, struct lp_bytes *out) {
    const json_t *content = json_object_get(message, "content");
    if (json_is_string(content))
        return lp_bytes_append(out, json_string_value(content), json_string_length(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        const json_t *text = json_is_string(part) ? part : json_object_get(part, "text");
        if (!text) text = json_object_get(part, "refusal");
        if (json_is_string(text))
            lp_bytes_append(out, json_string_value(text), json_string_length(text));
    }
    return !out->failed;
}
