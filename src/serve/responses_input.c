// What an assistant does in one turn is several items of input, and one message:
//
//     reasoning, message, function_call, function_call | function_call_output, ...
//     {role: assistant, reasoning_content, content, tool_calls} {role: tool}
//
// The texts of a turn are joined as they are, so that the items of an answer that come back give
// the very text that was generated.
#include "serve/responses_input.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "serve/fields.h"

#define PATH_BYTES 64 // as of lp_api_error.param

struct input {
    json_t *messages;
    json_t *turn;          // of messages: the assistant's that the next item goes on; NULL: none
    bool after_message;    // the item before was a message of that turn
    char path[PATH_BYTES]; // of the item
    struct lp_api_error *err;
};

static void join_path(char out[PATH_BYTES], const char *path, const char *rest) {
    int n = snprintf(out, PATH_BYTES, "%s%s", path, rest);
    if (n >= PATH_BYTES) memcpy(out + PATH_BYTES - 4, "...", 4);
}

static bool wrong_type(struct lp_api_error *err, const char *path, const json_t *j,
                       const char *expected) {
    if (!j) return lp_api_invalid(err, path, "%s is missing, expected %s", path, expected);
    return lp_api_invalid(err, path, "%s is %s, expected %s", path, lp_json_type_name(j), expected);
}

// A string of the item that must be there, without a NUL.
static bool get_name(struct input *in, const json_t *item, const char *key, const char **out) {
    char path[PATH_BYTES], rest[32];
    snprintf(rest, sizeof rest, ".%s", key);
    join_path(path, in->path, rest);
    if (!lp_json_get_string(item, key, path, out, in->err)) return false;
    return *out ? true : wrong_type(in->err, path, NULL, "a string");
}

// ---- texts ----

static const struct {
    const char *type, *field;
} text_parts[] = {{"input_text", "text"},     {"output_text", "text"},  {"text", "text"},
                  {"reasoning_text", "text"}, {"summary_text", "text"}, {"refusal", "refusal"}};

static bool append_part(struct lp_bytes *out, const json_t *part, const char *path,
                        struct lp_api_error *err) {
    char at[PATH_BYTES], rest[16];
    const char *type = NULL;
    if (!json_is_object(part)) return wrong_type(err, path, part, "an object");
    join_path(at, path, ".type");
    if (!lp_json_get_string(part, "type", at, &type, err)) return false;
    if (!type) return wrong_type(err, at, NULL, "input_text or output_text");
    for (size_t i = 0; i < sizeof text_parts / sizeof text_parts[0]; i++) {
        if (strcmp(type, text_parts[i].type) != 0) continue;
        const json_t *text = json_object_get(part, text_parts[i].field);
        snprintf(rest, sizeof rest, ".%s", text_parts[i].field);
        join_path(at, path, rest);
        if (!json_is_string(text)) return wrong_type(err, at, text, "a string");
        return lp_bytes_append(out, json_string_value(text), json_string_length(text)) ||
               lp_api_out_of_memory(err);
    }
    return lp_api_invalid(err, at, "%s is '%.60s'; the model takes text only (input_text)", at,
                          type);
}

// A string, or parts, whose texts are joined. *out: a JSON string.
static bool parse_text(json_t **out, const json_t *content, const char *path,
                       struct lp_api_error *err) {
    struct lp_bytes text = {0};
    if (json_is_string(content)) {
        *out = json_incref((json_t *)content);
        return true;
    }
    if (!json_is_array(content))
        return wrong_type(err, path, content, "a string or an array of parts");
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        char at[PATH_BYTES], rest[32];
        snprintf(rest, sizeof rest, "[%zu]", i);
        join_path(at, path, rest);
        ok = append_part(&text, json_array_get(content, i), at, err);
    }
    if (ok && !(*out = json_stringn(lp_bytes_view(&text).data, text.len)))
        ok = lp_api_out_of_memory(err);
    lp_bytes_release(&text);
    return ok;
}

static bool item_text(struct input *in, const json_t *item, const char *key, json_t **out) {
    char path[PATH_BYTES], rest[32];
    snprintf(rest, sizeof rest, ".%s", key);
    join_path(path, in->path, rest);
    return parse_text(out, lp_json_field(item, key), path, in->err);
}

// ---- messages ----

// Takes the message over, which may be NULL (no memory).
static bool append_message(struct input *in, json_t *message) {
    in->turn = NULL;
    return json_array_append_new(in->messages, message) == 0 || lp_api_out_of_memory(in->err);
}

static bool begin_turn(struct input *in) {
    json_t *turn = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    if (!append_message(in, turn)) return false;
    in->turn = turn;
    in->after_message = false;
    return true;
}

// Takes text over.
static bool append_to_turn(struct input *in, const char *key, json_t *text) {
    struct lp_bytes joined = {0};
    const json_t *old = json_object_get(in->turn, key);
    if (json_string_length(old) == 0) {
        bool set = json_object_set_new(in->turn, key, text) == 0;
        return set || lp_api_out_of_memory(in->err);
    }
    lp_bytes_append(&joined, json_string_value(old), json_string_length(old));
    lp_bytes_append(&joined, json_string_value(text), json_string_length(text));
    bool ok = !joined.failed &&
              json_object_set_new(in->turn, key, json_stringn(joined.data, joined.len)) == 0;
    lp_bytes_release(&joined);
    json_decref(text);
    return ok || lp_api_out_of_memory(in->err);
}

// Two messages with nothing between them are two turns: an answer has no such pair.
static bool add_assistant_text(struct input *in, json_t *text) {
    if ((!in->turn || in->after_message) && !begin_turn(in)) {
        json_decref(text);
        return false;
    }
    in->after_message = true;
    return append_to_turn(in, "content", text);
}

static bool add_message(struct input *in, const json_t *item) {
    const char *role = NULL;
    json_t *text = NULL;
    if (!get_name(in, item, "role", &role)) return false;
    bool assistant = strcmp(role, "assistant") == 0;
    if (strcmp(role, "developer") == 0) role = "system";
    if (!assistant && strcmp(role, "user") != 0 && strcmp(role, "system") != 0) {
        char path[PATH_BYTES];
        join_path(path, in->path, ".role");
        return lp_api_invalid(in->err, path,
                              "%s is '%.60s', expected user, assistant, system or developer", path,
                              role);
    }
    if (!item_text(in, item, "content", &text)) return false;
    if (assistant) return add_assistant_text(in, text);
    return append_message(in, json_pack("{s:s, s:o}", "role", role, "content", text));
}

// Its text, or a summary where there is no more. An item without either says nothing.
static bool add_reasoning(struct input *in, const json_t *item) {
    json_t *text = NULL;
    const json_t *content = lp_json_field(item, "content");
    bool has_content = content && !(json_is_array(content) && json_array_size(content) == 0);
    if (!has_content && !lp_json_field(item, "summary")) return true;
    if (!item_text(in, item, has_content ? "content" : "summary", &text)) return false;
    bool has_begun = in->turn && (json_string_length(json_object_get(in->turn, "content")) ||
                                  json_object_get(in->turn, "tool_calls"));
    bool ok = json_string_length(text) == 0 || (in->turn && !has_begun) || begin_turn(in);
    if (!ok || json_string_length(text) == 0) {
        json_decref(text);
        return ok;
    }
    in->after_message = false;
    return append_to_turn(in, "reasoning_content", text);
}

// A template may need the object that they spell.
static bool check_arguments(struct input *in, const char *arguments) {
    json_t *object = json_loads(arguments, JSON_ALLOW_NUL, NULL);
    bool ok = json_is_object(object);
    json_decref(object);
    if (ok) return true;
    char path[PATH_BYTES];
    join_path(path, in->path, ".arguments");
    return lp_api_invalid(in->err, path, "%s is not the text of a JSON object", path);
}

static bool add_call(struct input *in, const json_t *item) {
    const char *id = NULL, *name = NULL, *arguments = NULL;
    if (!get_name(in, item, "call_id", &id) || !get_name(in, item, "name", &name) ||
        !get_name(in, item, "arguments", &arguments))
        return false;
    if (!arguments[0]) arguments = "{}";
    if (!check_arguments(in, arguments)) return false;
    if (!in->turn && !begin_turn(in)) return false;
    in->after_message = false;
    json_t *calls = json_object_get(in->turn, "tool_calls");
    if (!calls && json_object_set_new(in->turn, "tool_calls", calls = json_array()) != 0)
        return lp_api_out_of_memory(in->err);
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function",
                             "name", name, "arguments", arguments);
    return json_array_append_new(calls, call) == 0 || lp_api_out_of_memory(in->err);
}

static bool add_output(struct input *in, const json_t *item) {
    const char *id = NULL;
    json_t *text = NULL;
    if (!get_name(in, item, "call_id", &id) || !item_text(in, item, "output", &text)) return false;
    return append_message(
        in, json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id, "content", text));
}

// ---- items ----

static const struct {
    const char *type;
    bool (*add)(struct input *in, const json_t *item);
} item_kinds[] = {{"message", add_message},
                  {"reasoning", add_reasoning},
                  {"function_call", add_call},
                  {"function_call_output", add_output}};

static bool add_item(struct input *in, const json_t *item) {
    char path[PATH_BYTES];
    const char *type = NULL;
    if (!json_is_object(item)) return wrong_type(in->err, in->path, item, "an object");
    join_path(path, in->path, ".type");
    if (!lp_json_get_string(item, "type", path, &type, in->err)) return false;
    if (!type && lp_json_field(item, "role")) type = "message";
    if (!type) return wrong_type(in->err, path, NULL, "message, or another kind of item");
    for (size_t i = 0; i < sizeof item_kinds / sizeof item_kinds[0]; i++)
        if (strcmp(type, item_kinds[i].type) == 0) return item_kinds[i].add(in, item);
    if (strcmp(type, "item_reference") == 0)
        return lp_api_invalid(in->err, path,
                              "%s is 'item_reference', but this server stores no items; send the "
                              "item itself",
                              path);
    return lp_api_invalid(in->err, path,
                          "%s is '%.60s', expected message, reasoning, function_call or "
                          "function_call_output",
                          path, type);
}

static bool add_instructions(struct input *in, const json_t *root) {
    const json_t *text = lp_json_field(root, "instructions");
    if (!text) return true;
    if (!json_is_string(text)) return wrong_type(in->err, "instructions", text, "a string");
    return append_message(in, json_pack("{s:s, s:O}", "role", "system", "content", text));
}

static bool add_input(struct input *in, const json_t *input) {
    if (json_is_string(input))
        return append_message(in, json_pack("{s:s, s:O}", "role", "user", "content", input));
    if (!json_is_array(input))
        return wrong_type(in->err, "input", input, "a string or an array of items");
    if (json_array_size(input) == 0)
        return lp_api_invalid(in->err, "input", "input is empty, expected at least one item");
    for (size_t i = 0; i < json_array_size(input); i++) {
        snprintf(in->path, sizeof in->path, "input[%zu]", i);
        if (!add_item(in, json_array_get(input, i))) return false;
    }
    return json_array_size(in->messages) > 0 ||
           lp_api_invalid(in->err, "input", "input holds no text");
}

json_t *lp_responses_input(const json_t *root, struct lp_api_error *err) {
    struct input in = {.messages = json_array(), .err = err};
    bool ok = in.messages
                  ? add_instructions(&in, root) && add_input(&in, lp_json_field(root, "input"))
                  : lp_api_out_of_memory(err);
    if (ok) return in.messages;
    json_decref(in.messages);
    return NULL;
}
