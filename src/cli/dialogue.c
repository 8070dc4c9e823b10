#include "cli/dialogue.h"

#include <string.h>

lp_status lp_dialogue_init(struct lp_dialogue *d, struct lp_err *err) {
    d->messages = json_array();
    return d->messages ? LP_OK : lp_err_memory(err, 0, "the conversation");
}

void lp_dialogue_release(struct lp_dialogue *d) {
    json_decref(d->messages);
    d->messages = NULL;
}

static const char *role_at(const struct lp_dialogue *d, size_t i) {
    const char *role = json_string_value(json_object_get(json_array_get(d->messages, i), "role"));
    return role ? role : "";
}

static bool is_role(const struct lp_dialogue *d, size_t i, const char *role) {
    return strcmp(role_at(d, i), role) == 0;
}

// {"role": role, "content": content}, or NULL with the error.
static json_t *message(const char *role, struct lp_str content, struct lp_err *err) {
    json_t *text = json_stringn(content.data, content.len);
    json_t *made = text ? json_pack("{s:s, s:o}", "role", role, "content", text) : NULL;
    if (!made)
        lp_err_set(err, LP_STATUS_INVALID,
                   "the text is not valid UTF-8 and cannot become a message");
    return made;
}

lp_status lp_dialogue_add_user(struct lp_dialogue *d, const char *text, struct lp_err *err) {
    json_t *made = message("user", lp_str_from(text), err);
    if (!made) return LP_STATUS_INVALID;
    return json_array_append_new(d->messages, made) ? lp_err_memory(err, 0, "the conversation")
                                                    : LP_OK;
}

lp_status lp_dialogue_add_answer(struct lp_dialogue *d, struct lp_str content,
                                 struct lp_str reasoning, struct lp_err *err) {
    json_t *made = message("assistant", content, err);
    if (!made) return LP_STATUS_INVALID;
    if (reasoning.len && json_object_set_new(made, "reasoning_content",
                                             json_stringn(reasoning.data, reasoning.len))) {
        json_decref(made);
        return lp_err_set(err, LP_STATUS_INVALID, "the reasoning is not valid UTF-8");
    }
    return json_array_append_new(d->messages, made) ? lp_err_memory(err, 0, "the conversation")
                                                    : LP_OK;
}

lp_status lp_dialogue_set_system(struct lp_dialogue *d, const char *text, struct lp_err *err) {
    json_t *made = text ? message("system", lp_str_from(text), err) : NULL;
    if (text && !made) return LP_STATUS_INVALID;
    if (lp_dialogue_system(d)) json_array_remove(d->messages, 0);
    if (made && json_array_insert_new(d->messages, 0, made))
        return lp_err_memory(err, 0, "the conversation");
    return LP_OK;
}

const char *lp_dialogue_system(const struct lp_dialogue *d) {
    if (!is_role(d, 0, "system")) return NULL;
    return json_string_value(json_object_get(json_array_get(d->messages, 0), "content"));
}

// The index of the last user's message, or the number of messages.
static size_t last_user(const struct lp_dialogue *d) {
    size_t n = json_array_size(d->messages);
    for (size_t i = n; i-- > 0;)
        if (is_role(d, i, "user")) return i;
    return n;
}

static bool cut(struct lp_dialogue *d, size_t n) {
    bool any = json_array_size(d->messages) > n;
    while (json_array_size(d->messages) > n)
        json_array_remove(d->messages, json_array_size(d->messages) - 1);
    return any;
}

bool lp_dialogue_drop_turn(struct lp_dialogue *d) {
    return cut(d, last_user(d));
}

bool lp_dialogue_drop_answer(struct lp_dialogue *d) {
    return cut(d, last_user(d) + 1);
}

void lp_dialogue_clear(struct lp_dialogue *d) {
    cut(d, lp_dialogue_system(d) ? 1 : 0);
}

size_t lp_dialogue_n_turns(const struct lp_dialogue *d) {
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(d->messages); i++) n += is_role(d, i, "user");
    return n;
}

bool lp_dialogue_is_answered(const struct lp_dialogue *d) {
    size_t n = json_array_size(d->messages);
    return n == 0 || !is_role(d, n - 1, "user");
}
