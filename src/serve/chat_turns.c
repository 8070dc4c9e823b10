// Turns that the model has made before (turns.h) and that come back in a conversation: their
// reasoning, which a client may have dropped, and whether they are as they were given.
#include <string.h>

#include "serve/chat_parts.h"
#include "serve/fields.h"

struct lp_turn *lp_chat_turn_of(const struct lp_service *service, const json_t *message) {
    const json_t *calls = json_object_get(message, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(calls, i), "id"));
        struct lp_turn *turn = id ? lp_turns_find(service->turns, id) : NULL;
        if (turn) return turn;
    }
    return NULL;
}

// The reasoning of an assistant's message: as given under either name, else as it was generated.
bool lp_chat_add_reasoning(const struct lp_service *service, json_t *message) {
    if (lp_json_field(message, "reasoning_content")) return true;
    json_t *given = json_object_get(message, "reasoning");
    if (json_is_string(given)) return json_object_set(message, "reasoning_content", given) == 0;
    struct lp_turn *turn = lp_chat_turn_of(service, message);
    bool ok = true;
    if (turn && turn->reasoning.len)
        ok = json_object_set_new(message, "reasoning_content",
                                 json_stringn(turn->reasoning.data, turn->reasoning.len)) == 0;
    lp_turn_put(turn);
    return ok;
}

// Arguments as an object of their own; what cannot be read equals nothing.
static json_t *arguments_of(const json_t *function) {
    const json_t *given = json_object_get(function, "arguments");
    if (json_is_object(given)) return json_incref((json_t *)given);
    if (!json_is_string(given)) return NULL;
    return json_loadb(json_string_value(given), json_string_length(given),
                      JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static bool same_call(const json_t *a, const json_t *b) {
    const json_t *fa = json_object_get(a, "function"), *fb = json_object_get(b, "function");
    json_t *x = arguments_of(fa), *y = arguments_of(fb);
    bool same = x && y && json_equal(x, y) &&
                json_equal(json_object_get(fa, "name"), json_object_get(fb, "name"));
    json_decref(x);
    json_decref(y);
    return same;
}

static bool same_content(const json_t *a, const json_t *b) {
    struct lp_bytes x = {0}, y = {0};
    bool ok = lp_chat_content_text(a, &x) && lp_chat_content_text(b, &y);
    ok = ok && lp_str_equal(lp_chat_trimmed_end(lp_bytes_view(&x)),
                            lp_chat_trimmed_end(lp_bytes_view(&y)));
    lp_bytes_release(&x);
    lp_bytes_release(&y);
    return ok;
}

// Is it what the client was given? It may have been edited.
bool lp_chat_turn_is_given(const json_t *message, const struct lp_turn *turn) {
    json_t *given = json_loadb(turn->message.data, turn->message.len, JSON_ALLOW_NUL, NULL);
    const json_t *a = json_object_get(message, "tool_calls"),
                 *b = json_object_get(given, "tool_calls");
    bool same = given && json_array_size(a) == json_array_size(b) && same_content(message, given);
    for (size_t i = 0; same && i < json_array_size(a); i++)
        same = same_call(json_array_get(a, i), json_array_get(b, i));
    json_decref(given);
    return same;
}
