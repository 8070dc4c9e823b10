// How an answer looks in OpenAI's chat API: one message a choice, or chunks of it. Reasoning is
// there under both of its names, reasoning_content and reasoning.
#include "serve/openai_chat.h"

#include <string.h>

#include "serve/json_out.h"
#include "serve/openai.h"
#include "serve/sse.h"

static const char *finish_reason(const struct lp_chat_choice *ch) {
    if (ch->hit_length) return "length";
    return ch->n_calls && !ch->cut_call ? "tool_calls" : "stop";
}

// vLLM's: the text or the id that ended it.
static json_t *stop_reason(const struct lp_chat_choice *ch) {
    if (ch->stop_text) return lp_json_text(lp_str_from(ch->stop_text));
    return ch->stop_id >= 0 ? json_integer(ch->stop_id) : json_null();
}

static json_t *head_json(const struct lp_answer *a, const char *object) {
    return json_pack("{s:s, s:s, s:I, s:o, s:n}", "id", lp_chat_of(a)->id, "object", object,
                     "created", (json_int_t)a->created, "model",
                     lp_json_text(lp_str_from(a->service->model_id)), "system_fingerprint");
}

static json_t *usage_json(const struct lp_answer *a) {
    struct lp_chat_usage u = lp_chat_answer_usage(a);
    return lp_openai_usage(u.prompt, u.cached, u.generated, u.reasoning);
}

// What was reported of tokens since the last time; null where nobody asked.
static json_t *take_logprobs(const struct lp_answer *a, struct lp_chat_choice *ch) {
    if (!lp_chat_of(a)->with_logprobs) return json_null();
    json_t *entries = ch->logprobs ? ch->logprobs : json_array();
    ch->logprobs = NULL;
    return json_pack("{s:o, s:n}", "content", entries, "refusal");
}

static json_t *take_ids(struct lp_chat_choice *ch) {
    const int32_t *ids = (const int32_t *)(void *)ch->ids.data;
    size_t n = ch->ids.len / sizeof *ids, from = ch->n_ids_sent;
    ch->n_ids_sent = n;
    return lp_json_ids(ids + from, n - from);
}

static bool set_prompt_ids(const struct lp_answer *a, const struct lp_chat_choice *ch,
                           json_t *body) {
    const struct lp_completion_prompt *p = lp_completion_prompt(&a->completion, ch->index);
    return json_object_set_new(body, "prompt_token_ids", lp_json_ids(p->ids, p->n_ids)) == 0;
}

// ---- streams ----

// Takes delta over. The chunk of a choice; finish NULL while it goes on.
static json_t *chunk_json(struct lp_answer *a, struct lp_chat_choice *ch, json_t *delta,
                          const char *finish) {
    json_t *choice = json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)ch->index, "delta",
                               delta, "logprobs", take_logprobs(a, ch), "finish_reason", finish);
    json_t *out = head_json(a, "chat.completion.chunk");
    bool ok = choice && out;
    if (ok && finish) ok = json_object_set_new(choice, "stop_reason", stop_reason(ch)) == 0;
    if (ok && a->completion.params.return_token_ids)
        ok = json_object_set_new(choice, "token_ids", take_ids(ch)) == 0;
    if (ok && a->completion.params.include_usage)
        ok = json_object_set_new(out, "usage", json_null()) == 0;
    ok = ok && json_object_set_new(out, "choices", json_pack("[O]", choice)) == 0;
    json_decref(choice);
    if (ok) return out;
    json_decref(out);
    return NULL;
}

static bool send(json_t *event, struct lp_bytes *out) {
    bool ok = event && lp_sse_event(out, event);
    json_decref(event);
    return ok;
}

static bool start(struct lp_answer *a, struct lp_chat_choice *ch, struct lp_bytes *out) {
    if (!out) return true;
    json_t *event =
        chunk_json(a, ch, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL);
    bool ok = event != NULL;
    if (ok && a->completion.params.return_token_ids) ok = set_prompt_ids(a, ch, event);
    if (ok) return send(event, out);
    json_decref(event);
    return false;
}

// The id, type and name come once; then arguments alone.
static json_t *call_delta(const struct lp_chat_choice *ch, const struct lp_reply_piece *piece) {
    if (piece->kind == LP_REPLY_CALL)
        return json_pack("{s:[{s:i, s:s, s:s, s:{s:o, s:s}}]}", "tool_calls", "index",
                         (int)piece->call, "id", ch->calls[piece->call].id, "type", "function",
                         "function", "name", lp_json_text(piece->text), "arguments", "");
    return json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", (int)piece->call, "function",
                     "arguments", lp_json_text(piece->text));
}

static json_t *delta_json(const struct lp_chat_choice *ch, const struct lp_reply_piece *piece) {
    switch (piece->kind) {
    case LP_REPLY_REASONING:
        return json_pack("{s:o, s:o}", "reasoning_content", lp_json_text(piece->text), "reasoning",
                         lp_json_text(piece->text));
    case LP_REPLY_CONTENT:
        return json_pack("{s:o}", "content", lp_json_text(piece->text));
    default:
        return call_delta(ch, piece);
    }
}

static bool send_piece(struct lp_answer *a, struct lp_chat_choice *ch,
                       const struct lp_reply_piece *piece, struct lp_bytes *out) {
    if (!out || piece->kind == LP_REPLY_CALL_END) return true;
    return send(chunk_json(a, ch, delta_json(ch, piece), NULL), out);
}

static bool send_done(struct lp_answer *a, struct lp_chat_choice *ch, struct lp_bytes *out) {
    return !out || send(chunk_json(a, ch, json_object(), finish_reason(ch)), out);
}

static bool end(struct lp_answer *a, struct lp_bytes *out) {
    bool ok = true;
    if (a->completion.params.include_usage) {
        json_t *event = head_json(a, "chat.completion.chunk");
        ok = event && json_object_set_new(event, "choices", json_array()) == 0 &&
             json_object_set_new(event, "usage", usage_json(a)) == 0 && lp_sse_event(out, event);
        json_decref(event);
    }
    return ok && lp_sse_done(out);
}

// ---- whole ----

static json_t *calls_json(const struct lp_chat_choice *ch) {
    json_t *out = json_array();
    for (size_t i = 0; out && i < ch->n_calls; i++) {
        const struct lp_chat_call *call = &ch->calls[i];
        json_t *one = json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", call->id, "type", "function",
                                "function", "name", lp_json_text(lp_bytes_view(&call->name)),
                                "arguments", lp_json_text(lp_bytes_view(&call->arguments)));
        if (json_array_append_new(out, one) == 0) continue;
        json_decref(out);
        out = NULL;
    }
    return out;
}

static json_t *message_json(const struct lp_chat_choice *ch) {
    bool empty = ch->content.len == 0 && (ch->n_calls || ch->reasoning.len);
    json_t *out =
        json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                  empty ? json_null() : lp_json_text(lp_bytes_view(&ch->content)), "refusal");
    bool ok = out != NULL;
    if (ok && ch->reasoning.len)
        ok =
            json_object_set_new(out, "reasoning_content",
                                lp_json_text(lp_bytes_view(&ch->reasoning))) == 0 &&
            json_object_set_new(out, "reasoning", lp_json_text(lp_bytes_view(&ch->reasoning))) == 0;
    if (ok && ch->n_calls) ok = json_object_set_new(out, "tool_calls", calls_json(ch)) == 0;
    if (ok) return out;
    json_decref(out);
    return NULL;
}

static json_t *choice_json(const struct lp_answer *a, struct lp_chat_choice *ch) {
    json_t *out = json_pack("{s:I, s:o, s:o, s:s, s:o}", "index", (json_int_t)ch->index, "message",
                            message_json(ch), "logprobs", take_logprobs(a, ch), "finish_reason",
                            finish_reason(ch), "stop_reason", stop_reason(ch));
    if (!out || !a->completion.params.return_token_ids ||
        json_object_set_new(out, "token_ids", take_ids(ch)) == 0)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *whole(struct lp_answer *a) {
    struct lp_chat_answer *s = lp_chat_of(a);
    json_t *out = head_json(a, "chat.completion"), *choices = json_array();
    bool ok = out && choices;
    for (size_t i = 0; ok && i < a->completion.n_choices; i++)
        ok = json_array_append_new(choices, choice_json(a, &s->choices[i])) == 0;
    ok = ok && json_object_set(out, "choices", choices) == 0 &&
         json_object_set_new(out, "usage", usage_json(a)) == 0;
    if (ok && a->completion.params.return_token_ids) ok = set_prompt_ids(a, &s->choices[0], out);
    json_decref(choices);
    if (ok) return out;
    json_decref(out);
    return NULL;
}

const struct lp_chat_format lp_openai_chat_format = {
    .base = {.event = lp_chat_answer_event,
             .end = end,
             .whole = whole,
             .error = lp_api_error_json,
             .stream_error = lp_openai_stream_error,
             .keep_alive = lp_openai_keep_alive,
             .release = lp_chat_answer_release},
    .id_prefix = "chatcmpl-",
    .call_prefix = "call_",
    .start = start,
    .piece = send_piece,
    .done = send_done,
};
