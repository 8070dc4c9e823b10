// The conversation of a Messages request in OpenAI's form: turns of content blocks become messages.
//
//     user       [tool_result A, tool_result B, text]  ->  tool A, tool B, user
//     assistant  [thinking, text, tool_use C]          ->  assistant with reasoning and call C
//
// Messages of one role that follow each other are one turn. Texts of a user's or a system's turn
// are set apart by a line break; those of an assistant's message are parts of one text.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/anthropic_parts.h"
#include "serve/fields.h"
#include "serve/json_out.h"

#define PATH_BYTES 128

enum role { ROLE_NONE = 0, ROLE_USER = 1, ROLE_ASSISTANT = 2, ROLE_SYSTEM = 4 };

static const struct {
    const char *name;
    enum role role;
} roles[] = {{"user", ROLE_USER}, {"assistant", ROLE_ASSISTANT}, {"system", ROLE_SYSTEM}};
#define N_ROLES (sizeof roles / sizeof roles[0])

struct reader {
    json_t *out; // messages
    struct lp_api_error *err;
    enum role role; // of the turn that is being read
    struct lp_bytes text, thinking;
    bool apart;       // the next text is not the last one's continuation
    json_t *calls;    // tool_use blocks of the turn, or NULL
    size_t n_results; // tool_result blocks of it
};

static void release(struct reader *in) {
    lp_bytes_release(&in->text);
    lp_bytes_release(&in->thinking);
    json_decref(in->calls);
    json_decref(in->out);
}

static const char *role_name(enum role role) {
    for (size_t i = 0; i < N_ROLES; i++)
        if (roles[i].role == role) return roles[i].name;
    return "";
}

// ---- turns ----

static bool append(struct reader *in, json_t *message) {
    return json_array_append_new(in->out, message) == 0 || lp_api_out_of_memory(in->err);
}

static json_t *turn_json(struct reader *in) {
    json_t *m = json_pack("{s:s, s:o}", "role", role_name(in->role), "content",
                          lp_json_text(lp_bytes_view(&in->text)));
    bool ok = m != NULL;
    if (ok && in->thinking.len)
        ok = json_object_set_new(m, "reasoning_content",
                                 lp_json_text(lp_bytes_view(&in->thinking))) == 0;
    if (ok && in->calls) ok = json_object_set(m, "tool_calls", in->calls) == 0;
    if (ok) return m;
    json_decref(m);
    return NULL;
}

// Results of tools are messages already; a user who says nothing beside them has none.
static bool end_turn(struct reader *in) {
    bool is_empty = in->role == ROLE_NONE || (in->n_results && in->text.len == 0);
    if (in->text.failed || in->thinking.failed) return lp_api_out_of_memory(in->err);
    if (!is_empty && !append(in, turn_json(in))) return false;
    lp_bytes_clear(&in->text);
    lp_bytes_clear(&in->thinking);
    json_decref(in->calls);
    in->calls = NULL;
    in->n_results = 0;
    in->role = ROLE_NONE;
    return true;
}

static bool begin_message(struct reader *in, enum role role) {
    if (role != in->role && !end_turn(in)) return false;
    in->role = role;
    in->apart = true;
    return true;
}

static void add_text(struct reader *in, struct lp_str text) {
    if (text.len == 0) return;
    if (in->apart && in->text.len) lp_bytes_puts(&in->text, "\n");
    lp_bytes_append(&in->text, text.data, text.len);
    in->apart = in->role != ROLE_ASSISTANT;
}

// ---- blocks ----

static bool get_text(struct reader *in, const json_t *block, const char *path, const char *name,
                     struct lp_str *out) {
    char at[PATH_BYTES + 32];
    const json_t *j = lp_json_field(block, name);
    snprintf(at, sizeof at, "%s.%s", path, name);
    if (!j) return lp_api_invalid(in->err, at, "%s is missing", at);
    if (!json_is_string(j))
        return lp_api_invalid(in->err, at, "%s is %s, expected a string", at, lp_json_type_name(j));
    *out = (struct lp_str){json_string_value(j), json_string_length(j)};
    return true;
}

// A name or an id: no NUL in it.
static bool get_name(struct reader *in, const json_t *block, const char *path, const char *name,
                     const char **out) {
    char at[PATH_BYTES + 32];
    snprintf(at, sizeof at, "%s.%s", path, name);
    *out = NULL;
    if (!lp_json_get_string(block, name, at, out, in->err)) return false;
    if (!*out || !(*out)[0]) return lp_api_invalid(in->err, at, "%s is missing", at);
    return true;
}

static bool read_text(struct reader *in, const json_t *block, const char *path) {
    struct lp_str text = {0};
    if (!get_text(in, block, path, "text", &text)) return false;
    add_text(in, text);
    return true;
}

static bool read_thinking(struct reader *in, const json_t *block, const char *path) {
    struct lp_str text = {0};
    if (!get_text(in, block, path, "thinking", &text)) return false;
    lp_bytes_append(&in->thinking, text.data, text.len);
    return true;
}

static bool skip(struct reader *in, const json_t *block, const char *path) {
    (void)in, (void)block, (void)path;
    return true;
}

// The arguments as text, spaced as models write it.
static bool read_tool_use(struct reader *in, const json_t *block, const char *path) {
    const char *id, *name;
    const json_t *input = lp_json_field(block, "input");
    if (!get_name(in, block, path, "id", &id) || !get_name(in, block, path, "name", &name))
        return false;
    if (input && !json_is_object(input)) {
        char at[PATH_BYTES + 32];
        snprintf(at, sizeof at, "%s.input", path);
        return lp_api_invalid(in->err, at, "%s is %s, expected an object", at,
                              lp_json_type_name(input));
    }
    char *arguments = input ? json_dumps(input, 0) : strdup("{}");
    if (!in->calls) in->calls = json_array();
    json_t *call = arguments ? json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function",
                                         "function", "name", name, "arguments", arguments)
                             : NULL;
    free(arguments);
    return json_array_append_new(in->calls, call) == 0 || lp_api_out_of_memory(in->err);
}

typedef bool (*read_fn)(struct reader *in, const json_t *block, const char *type, const char *path);

static bool read_content(struct reader *in, const json_t *content, const char *path, read_fn read);

// What may stand in a tool's result: text.
static bool read_result_block(struct reader *in, const json_t *block, const char *type,
                              const char *path) {
    if (strcmp(type, "text") == 0) return read_text(in, block, path);
    return lp_api_invalid(in->err, path, "%s is of type '%.60s'; the model takes text only", path,
                          type);
}

// Chat templates know no failed results, so that the text says it.
static bool add_result(struct reader *in, const char *id, bool is_error) {
    struct lp_bytes text = {0};
    bool says_so = in->text.data && strcasestr(in->text.data, "error");
    bool ok = !in->text.failed && (!is_error || says_so || lp_bytes_puts(&text, "Error: ")) &&
              lp_bytes_append(&text, in->text.data ? in->text.data : "", in->text.len);
    ok = (ok || lp_api_out_of_memory(in->err)) &&
         append(in, json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id, "content",
                              lp_json_text(lp_bytes_view(&text))));
    lp_bytes_release(&text);
    return ok;
}

static bool read_tool_result(struct reader *in, const json_t *block, const char *path) {
    const char *id;
    bool is_error = false;
    char at[PATH_BYTES + 32];
    snprintf(at, sizeof at, "%s.is_error", path);
    if (!get_name(in, block, path, "tool_use_id", &id) ||
        !lp_json_get_bool(block, "is_error", at, &is_error, in->err))
        return false;
    struct lp_bytes beside = in->text; // the turn's own text waits
    bool apart = in->apart;
    const json_t *content = lp_json_field(block, "content");
    in->text = (struct lp_bytes){0};
    snprintf(at, sizeof at, "%s.content", path);
    bool ok = (!content || read_content(in, content, at, read_result_block)) &&
              add_result(in, id, is_error);
    lp_bytes_release(&in->text);
    in->text = beside;
    in->apart = apart;
    in->n_results++;
    return ok;
}

static const struct {
    const char *type;
    unsigned roles;
    bool (*read)(struct reader *in, const json_t *block, const char *path);
} kinds[] = {
    {"text", ROLE_USER | ROLE_ASSISTANT | ROLE_SYSTEM, read_text},
    {"thinking", ROLE_ASSISTANT, read_thinking},
    {"redacted_thinking", ROLE_ASSISTANT, skip}, // nobody here can read it
    {"tool_use", ROLE_ASSISTANT, read_tool_use},
    {"tool_result", ROLE_USER, read_tool_result},
};

static bool read_block(struct reader *in, const json_t *block, const char *type, const char *path) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(type, kinds[i].type) != 0) continue;
        if (kinds[i].roles & in->role) return kinds[i].read(in, block, path);
        return lp_api_invalid(in->err, path,
                              "%s is of type '%s', which has no place in a message "
                              "of the role '%s'",
                              path, type, role_name(in->role));
    }
    if (strcmp(type, "image") == 0 || strcmp(type, "document") == 0)
        return lp_api_invalid(in->err, path, "%s is of type '%s'; the model takes text only", path,
                              type);
    return lp_api_invalid(in->err, path, "%s is of type '%.60s', which is not supported", path,
                          type);
}

// A string, or an array of blocks, each of which is read by its type.
static bool read_content(struct reader *in, const json_t *content, const char *path, read_fn read) {
    char at[PATH_BYTES];
    if (json_is_string(content)) {
        add_text(in, (struct lp_str){json_string_value(content), json_string_length(content)});
        return true;
    }
    if (!json_is_array(content))
        return lp_api_invalid(in->err, path, "%s is %s, expected a string or an array of blocks",
                              path, lp_json_type_name(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const char *type;
        snprintf(at, sizeof at, "%.*s[%zu]", PATH_BYTES - 24, path, i);
        if (!json_is_object(block))
            return lp_api_invalid(in->err, at, "%s is %s, expected a content block", at,
                                  lp_json_type_name(block));
        if (!get_name(in, block, at, "type", &type) || !read(in, block, type, at)) return false;
    }
    return true;
}

// ---- messages ----

static bool read_role(struct reader *in, const json_t *message, const char *path, enum role *out) {
    const char *name;
    char at[PATH_BYTES + 32];
    if (!get_name(in, message, path, "role", &name)) return false;
    for (size_t i = 0; i < N_ROLES; i++) {
        *out = roles[i].role;
        if (strcmp(roles[i].name, name) == 0) return true;
    }
    snprintf(at, sizeof at, "%s.role", path);
    return lp_api_invalid(in->err, at, "%s is '%.60s', expected user or assistant", at, name);
}

static bool read_message(struct reader *in, const json_t *message, size_t i) {
    char path[PATH_BYTES];
    enum role role;
    snprintf(path, sizeof path, "messages[%zu]", i);
    if (!json_is_object(message))
        return lp_api_invalid(in->err, path, "%s is %s, expected an object", path,
                              lp_json_type_name(message));
    if (!read_role(in, message, path, &role)) return false;
    const json_t *content = lp_json_field(message, "content");
    snprintf(path, sizeof path, "messages[%zu].content", i);
    if (!content) return lp_api_invalid(in->err, path, "%s is missing", path);
    return begin_message(in, role) && read_content(in, content, path, read_block);
}

// Claude Code sends a line with numbers that change from turn to turn before all else; with it in
// the prompt no prefix would ever be found in the cache. It says nothing to a model.
static void drop_billing_line(struct lp_bytes *text) {
    static const char mark[] = "x-anthropic-billing-header:";
    if (text->len < sizeof mark - 1 || memcmp(text->data, mark, sizeof mark - 1) != 0) return;
    const char *line_end = memchr(text->data, '\n', text->len);
    size_t n = line_end ? (size_t)(line_end - text->data) + 1 : text->len;
    while (n < text->len && text->data[n] == '\n') n++;
    memmove(text->data, text->data + n, text->len - n + 1);
    text->len -= n;
}

static bool read_system(struct reader *in, const json_t *system) {
    if (!system) return true;
    if (!begin_message(in, ROLE_SYSTEM) || !read_content(in, system, "system", read_block))
        return false;
    drop_billing_line(&in->text);
    if (in->text.len == 0) in->role = ROLE_NONE;
    return true;
}

// Thinking is part of the text that the answer goes on with, as the model writes it.
static bool join_thinking(struct reader *in) {
    struct lp_bytes joined = {0};
    lp_bytes_puts(&joined, LP_REPLY_THINK);
    lp_bytes_append(&joined, in->thinking.data, in->thinking.len);
    if (in->text.len) {
        lp_bytes_puts(&joined, LP_REPLY_END_THINK);
        lp_bytes_append(&joined, in->text.data, in->text.len);
    }
    lp_bytes_release(&in->text);
    in->text = joined;
    return !joined.failed || lp_api_out_of_memory(in->err);
}

// An assistant's turn at the end is the beginning of the answer.
static bool read_final_turn(struct reader *in, bool thinks, struct lp_chat_request *r) {
    if (in->role == ROLE_ASSISTANT && in->calls)
        return lp_api_invalid(in->err, "messages",
                              "messages ends with tool_use blocks; their tool_result blocks are "
                              "missing");
    if (in->role == ROLE_ASSISTANT && in->thinking.len && thinks && !join_thinking(in))
        return false;
    if (in->role == ROLE_ASSISTANT && in->text.len == 0) in->role = ROLE_NONE;
    r->continue_final = in->role == ROLE_ASSISTANT;
    if (r->continue_final) lp_bytes_clear(&in->thinking);
    return end_turn(in);
}

bool lp_anthropic_read_messages(struct lp_chat_request *r, const json_t *root, bool thinks,
                                struct lp_api_error *err) {
    const json_t *messages = lp_json_field(root, "messages");
    if (!messages) return lp_api_invalid(err, "messages", "messages is missing");
    if (!json_is_array(messages))
        return lp_api_invalid(err, "messages", "messages is %s, expected an array",
                              lp_json_type_name(messages));
    if (json_array_size(messages) == 0)
        return lp_api_invalid(err, "messages", "messages is empty; it needs at least one message");
    struct reader in = {.out = json_array(), .err = err};
    bool ok = in.out ? read_system(&in, lp_json_field(root, "system")) : lp_api_out_of_memory(err);
    for (size_t i = 0; ok && i < json_array_size(messages); i++)
        ok = read_message(&in, json_array_get(messages, i), i);
    ok = ok && read_final_turn(&in, thinks, r);
    if (ok && json_array_size(in.out) == 0)
        ok = lp_api_invalid(err, "messages", "messages says nothing; it needs at least one text");
    if (ok) r->messages = json_incref(in.out);
    release(&in);
    return ok;
}
