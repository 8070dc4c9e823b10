// What the model writes becomes items, and in a stream events:
//
//     response.created, response.in_progress
//       response.output_item.added
//         response.content_part.added         of messages and reasoning
//           response.*.delta, ..., *.done
//         response.content_part.done
//       response.output_item.done
//     response.completed | response.incomplete | error, response.failed
//
// A whole answer goes the same way with out NULL, so its items are those of a stream.
#include "serve/responses_items.h"

#include "serve/json_out.h"
#include "serve/sse.h"

// Takes fields over (NULL: no memory), and adds what all events have.
static bool emit(struct lp_responses_state *s, struct lp_bytes *out, const char *type,
                 json_t *fields) {
    json_t *event =
        json_pack("{s:s, s:I}", "type", type, "sequence_number", (json_int_t)s->n_events);
    bool ok = event && fields && json_object_update(event, fields) == 0 &&
              lp_sse_named_event(out, type, event);
    s->n_events++;
    json_decref(event);
    json_decref(fields);
    return ok;
}

static bool send_object(struct lp_answer *a, struct lp_bytes *out, const char *type, bool ended,
                        const struct lp_api_error *err) {
    return emit(lp_responses_state(a), out, type,
                json_pack("{s:o}", "response", lp_responses_object(a, ended, err)));
}

// ---- events of the last item ----

static json_int_t index_of(const struct lp_responses_state *s) {
    return (json_int_t)s->n_items - 1;
}

static bool send_item(struct lp_responses_state *s, struct lp_bytes *out, const char *type,
                      const struct lp_responses_item *item, const struct lp_chat_choice *choice) {
    return emit(s, out, type,
                json_pack("{s:I, s:o}", "output_index", index_of(s), "item",
                          lp_responses_item_json(item, choice)));
}

// What concerns a part of an item, or its arguments (no part). Takes over: value, which is NULL
// without memory, and logprobs, where NULL means none.
static bool send_of_item(struct lp_responses_state *s, struct lp_bytes *out, const char *type,
                         const struct lp_responses_item *item, const char *key, json_t *value,
                         json_t *logprobs) {
    json_t *fields =
        json_pack("{s:s, s:I, s:o}", "item_id", item->id, "output_index", index_of(s), key, value);
    bool ok = fields != NULL;
    if (ok && item->kind != LP_RESPONSES_CALL)
        ok = json_object_set_new(fields, "content_index", json_integer(0)) == 0;
    if (ok && logprobs) ok = json_object_set(fields, "logprobs", logprobs) == 0;
    json_decref(logprobs);
    if (ok) return emit(s, out, type, fields);
    json_decref(fields);
    return false;
}

static bool send_part(struct lp_responses_state *s, struct lp_bytes *out, const char *type,
                      const struct lp_responses_item *item) {
    return send_of_item(s, out, type, item, "part", lp_responses_part_json(item), NULL);
}

// ---- items begin, grow and end ----

static const struct {
    const char *delta, *done, *key; // key: of what is done
} names[] = {
    [LP_RESPONSES_REASONING] = {"response.reasoning_text.delta", "response.reasoning_text.done",
                                "text"},
    [LP_RESPONSES_MESSAGE] = {"response.output_text.delta", "response.output_text.done", "text"},
    [LP_RESPONSES_CALL] = {"response.function_call_arguments.delta",
                           "response.function_call_arguments.done", "arguments"},
};

static bool begin_item(struct lp_responses_state *s, const struct lp_responses_item *item,
                       const struct lp_chat_choice *choice, struct lp_bytes *out) {
    return !out || (send_item(s, out, "response.output_item.added", item, choice) &&
                    (item->kind == LP_RESPONSES_CALL ||
                     send_part(s, out, "response.content_part.added", item)));
}

static bool send_done(struct lp_responses_state *s, const struct lp_responses_item *item,
                      const struct lp_chat_choice *choice, struct lp_bytes *out) {
    bool call = item->kind == LP_RESPONSES_CALL;
    const struct lp_bytes *text = call ? &choice->calls[item->call].arguments : &item->text;
    json_t *logprobs = NULL;
    if (item->kind == LP_RESPONSES_MESSAGE &&
        !(logprobs = item->logprobs ? json_deep_copy(item->logprobs) : json_array()))
        return false;
    return send_of_item(s, out, names[item->kind].done, item, names[item->kind].key,
                        lp_json_text(lp_bytes_view(text)), logprobs) &&
           (call || send_part(s, out, "response.content_part.done", item)) &&
           send_item(s, out, "response.output_item.done", item, choice);
}

// What was cut with the answer is not whole, even where its arguments were mended to valid JSON.
static bool end_item(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_bytes *out) {
    struct lp_responses_state *s = lp_responses_state(a);
    struct lp_responses_item *item = lp_responses_item_open(s);
    if (!item) return true;
    item->open = false;
    item->cut = choice->hit_length;
    return !out || send_done(s, item, choice, out);
}

// The open item if it is of that kind, else a new one.
static struct lp_responses_item *item_for(struct lp_answer *a, struct lp_chat_choice *choice,
                                          enum lp_responses_kind kind, struct lp_bytes *out) {
    struct lp_responses_state *s = lp_responses_state(a);
    struct lp_responses_item *item = lp_responses_item_open(s);
    if (item && item->kind == kind) return item;
    if (!end_item(a, choice, out) || !(item = lp_responses_item_add(s, kind))) return NULL;
    return begin_item(s, item, choice, out) ? item : NULL;
}

static bool add_reasoning(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_str text,
                          struct lp_bytes *out) {
    if (text.len == 0) return true;
    struct lp_responses_item *item = item_for(a, choice, LP_RESPONSES_REASONING, out);
    if (!item || !lp_bytes_append(&item->text, text.data, text.len)) return false;
    return !out || send_of_item(lp_responses_state(a), out, names[item->kind].delta, item, "delta",
                                lp_json_text(text), NULL);
}

static bool add_text(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_str text,
                     struct lp_bytes *out) {
    if (text.len == 0) return true;
    json_t *logprobs = NULL;
    struct lp_responses_item *item = item_for(a, choice, LP_RESPONSES_MESSAGE, out);
    bool ok = item && lp_bytes_append(&item->text, text.data, text.len);
    if (ok)
        ok = lp_chat_of(a)->with_logprobs
                 ? lp_responses_take_logprobs(item, choice, text.len, &logprobs)
                 : (logprobs = json_array()) != NULL;
    if (ok && out)
        return send_of_item(lp_responses_state(a), out, names[item->kind].delta, item, "delta",
                            lp_json_text(text), logprobs);
    json_decref(logprobs);
    return ok;
}

static bool begin_call(struct lp_answer *a, struct lp_chat_choice *choice, int32_t call,
                       struct lp_bytes *out) {
    struct lp_responses_state *s = lp_responses_state(a);
    if (!end_item(a, choice, out)) return false;
    struct lp_responses_item *item = lp_responses_item_add(s, LP_RESPONSES_CALL);
    if (!item) return false;
    item->call = (size_t)call;
    return begin_item(s, item, choice, out);
}

static bool add_arguments(struct lp_answer *a, struct lp_str text, struct lp_bytes *out) {
    struct lp_responses_state *s = lp_responses_state(a);
    const struct lp_responses_item *item = lp_responses_item_open(s);
    return !out || !item || text.len == 0 ||
           send_of_item(s, out, names[LP_RESPONSES_CALL].delta, item, "delta", lp_json_text(text),
                        NULL);
}

// ---- the format ----

bool lp_responses_start(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_bytes *out) {
    (void)choice;
    if (!out) return true;
    lp_responses_state(a)->begun = true;
    return send_object(a, out, "response.created", false, NULL) &&
           send_object(a, out, "response.in_progress", false, NULL);
}

static void drop_logprobs(struct lp_chat_choice *choice) {
    json_decref(choice->logprobs);
    choice->logprobs = NULL;
}

bool lp_responses_piece(struct lp_answer *a, struct lp_chat_choice *choice,
                        const struct lp_reply_piece *piece, struct lp_bytes *out) {
    if (piece->kind == LP_REPLY_CONTENT) return add_text(a, choice, piece->text, out);
    drop_logprobs(choice);
    switch (piece->kind) {
    case LP_REPLY_REASONING:
        return add_reasoning(a, choice, piece->text, out);
    case LP_REPLY_CALL:
        return begin_call(a, choice, piece->call, out);
    case LP_REPLY_ARGUMENTS:
        return add_arguments(a, piece->text, out);
    case LP_REPLY_CALL_END:
        return end_item(a, choice, out);
    case LP_REPLY_CONTENT:
        break;
    }
    return true;
}

// An answer without any item gets an empty message.
bool lp_responses_done(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_bytes *out) {
    if (lp_responses_state(a)->n_items == 0 && !item_for(a, choice, LP_RESPONSES_MESSAGE, out))
        return false;
    return end_item(a, choice, out);
}

bool lp_responses_end(struct lp_answer *a, struct lp_bytes *out) {
    bool cut = lp_chat_of(a)->choices[0].hit_length;
    return send_object(a, out, cut ? "response.incomplete" : "response.completed", true, NULL);
}

// Clients look at one of the two: what says the error, and what ends the answer.
bool lp_responses_stream_error(struct lp_answer *a, const struct lp_api_error *err,
                               struct lp_bytes *out) {
    struct lp_responses_state *s = lp_responses_state(a);
    struct lp_responses_item *item = lp_responses_item_open(s);
    if (!s->begun && !lp_responses_start(a, &lp_chat_of(a)->choices[0], out)) return false;
    if (item) item->cut = true;
    json_t *fields = json_pack("{s:s?, s:o, s:o}", "code", err->code, "message",
                               lp_json_text(lp_str_from(err->message)), "param",
                               err->param[0] ? lp_json_text(lp_str_from(err->param)) : json_null());
    return emit(s, out, "error", fields) && send_object(a, out, "response.failed", false, err);
}
