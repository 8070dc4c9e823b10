#include "serve/chat_answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/chat_logprobs.h"
#include "serve/json_out.h"
#include "serve/request_id.h"

struct lp_chat_answer *lp_chat_answer_new(struct lp_answer *a) {
    const struct lp_chat_format *format = (const struct lp_chat_format *)a->format;
    struct lp_chat_answer *s = a->state = lp_alloc(1, sizeof *s);
    if (!s) return NULL;
    s->format = format;
    strcpy(s->id, format->id_prefix);
    lp_random_id(s->id + strlen(s->id));
    return s;
}

// ---- pieces ----

struct sink { // what a piece goes to
    struct lp_answer *a;
    struct lp_chat_choice *choice;
    struct lp_bytes *out;
};

static bool reserve_call(struct lp_chat_choice *ch) {
    if (ch->n_calls < ch->call_capacity) return true;
    size_t capacity = ch->call_capacity ? 2 * ch->call_capacity : 4;
    struct lp_chat_call *calls = lp_alloc(capacity, sizeof *calls);
    if (!calls) return false;
    if (ch->n_calls) memcpy(calls, ch->calls, ch->n_calls * sizeof *calls);
    lp_free(ch->calls);
    ch->calls = calls;
    ch->call_capacity = capacity;
    return true;
}

static bool add_call(const struct lp_chat_answer *s, struct lp_chat_choice *ch,
                     struct lp_str name) {
    if (!reserve_call(ch)) return false;
    struct lp_chat_call *call = &ch->calls[ch->n_calls++];
    strcpy(call->id, s->format->call_prefix);
    lp_random_id(call->id + strlen(call->id));
    return lp_bytes_append(&call->name, name.data, name.len);
}

static bool take_piece(void *user, const struct lp_reply_piece *piece) {
    struct sink *to = *(struct sink **)user;
    struct lp_chat_choice *ch = to->choice;
    const struct lp_chat_answer *s = to->a->state;
    bool ok = true;
    ch->in_call = piece->kind == LP_REPLY_CALL || piece->kind == LP_REPLY_ARGUMENTS;
    switch (piece->kind) {
    case LP_REPLY_REASONING:
        ok = lp_bytes_append(&ch->reasoning, piece->text.data, piece->text.len);
        break;
    case LP_REPLY_CONTENT:
        ok = lp_bytes_append(&ch->content, piece->text.data, piece->text.len);
        break;
    case LP_REPLY_CALL:
        ok = add_call(s, ch, piece->text);
        break;
    case LP_REPLY_ARGUMENTS:
        ok = lp_bytes_append(&ch->calls[piece->call].arguments, piece->text.data, piece->text.len);
        break;
    case LP_REPLY_CALL_END:
        break;
    }
    return ok && (!s->format->piece || s->format->piece(to->a, ch, piece, to->out));
}

// ---- admission ----

static bool init_choice(struct lp_answer *a, size_t i) {
    struct lp_chat_answer *s = a->state;
    struct lp_chat_choice *ch = &s->choices[i];
    struct lp_err ignored;
    ch->index = i;
    ch->stop_id = -1;
    struct lp_reply_params params = {.syntax = s->prompt.syntax,
                                     .in_reasoning = s->prompt.in_reasoning,
                                     .tools = s->prompt.tools,
                                     .sink = take_piece,
                                     .user = &ch->sink};
    return lp_reply_new(&ch->reply, &params, &ignored) == LP_OK;
}

bool lp_chat_answer_admit(struct lp_answer *a, struct lp_chat_request *request,
                          struct lp_api_error *err) {
    struct lp_chat_answer *s = a->state ? a->state : lp_chat_answer_new(a);
    if (!s) return lp_api_out_of_memory(err);
    if (!lp_chat_admit(&a->completion, a->service, request, &s->prompt, err)) return false;
    s->with_logprobs = a->completion.params.logprobs >= 0;
    s->choices = lp_alloc(a->completion.n_choices, sizeof *s->choices);
    if (!s->choices) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < a->completion.n_choices; i++)
        if (!init_choice(a, i)) return lp_api_out_of_memory(err);
    return true;
}

static void release_choice(struct lp_chat_choice *ch) {
    lp_reply_free(ch->reply);
    lp_bytes_release(&ch->reasoning);
    lp_bytes_release(&ch->content);
    for (size_t i = 0; i < ch->n_calls; i++) {
        lp_bytes_release(&ch->calls[i].name);
        lp_bytes_release(&ch->calls[i].arguments);
    }
    lp_free(ch->calls);
    json_decref(ch->logprobs);
    lp_bytes_release(&ch->ids);
    lp_free(ch->stop_text);
}

void lp_chat_answer_release(struct lp_answer *a) {
    struct lp_chat_answer *s = a->state;
    if (!s) return;
    for (size_t i = 0; s->choices && i < a->completion.n_choices; i++)
        release_choice(&s->choices[i]);
    lp_free(s->choices);
    lp_chat_prompt_release(&s->prompt);
    json_decref(s->echo);
    if (s->release_extra) s->release_extra(s->extra);
    lp_free(s->extra);
    lp_free(s);
    a->state = NULL;
}

// ---- keeping turns that may come back ----

// What the client was given, for chat_prompt.c to compare with what comes back. NULL without
// memory.
static json_t *given_message(const struct lp_chat_choice *ch) {
    json_t *calls = json_array();
    for (size_t i = 0; calls && i < ch->n_calls; i++) {
        json_t *one = json_pack("{s:{s:o, s:o}}", "function", "name",
                                lp_json_text(lp_bytes_view(&ch->calls[i].name)), "arguments",
                                lp_json_text(lp_bytes_view(&ch->calls[i].arguments)));
        if (json_array_append_new(calls, one) == 0) continue;
        json_decref(calls);
        calls = NULL;
    }
    return json_pack("{s:o, s:o}", "content", lp_json_text(lp_bytes_view(&ch->content)),
                     "tool_calls", calls);
}

static void keep(struct lp_answer *a, const struct lp_chat_choice *ch) {
    const struct lp_chat_answer *s = a->state;
    const struct lp_completion_prompt *prompt = lp_completion_prompt(&a->completion, ch->index);
    const int32_t *answer = (const int32_t *)(void *)ch->ids.data;
    size_t n_answer = ch->ids.len / sizeof *answer, n_text = 0, n_end = 0;
    limpid_error e;
    char *text = NULL, *end = NULL, *message = NULL;
    const char **call_ids = lp_alloc(ch->n_calls, sizeof *call_ids);
    int32_t *ids = lp_alloc(prompt->n_ids + n_answer, sizeof *ids);
    json_t *given = given_message(ch);
    bool ends = n_answer && limpid_token_is_stop(a->service->model, answer[n_answer - 1]);
    if (ends) n_answer--;
    bool ok = call_ids && ids && given && (message = json_dumps(given, JSON_COMPACT)) != NULL;
    ok = ok && limpid_detokenize(a->service->model, answer, n_answer, false, &text, &n_text, &e) ==
                   LIMPID_OK;
    if (ok && ends)
        ok = limpid_detokenize(a->service->model, answer + n_answer, 1, false, &end, &n_end, &e) ==
             LIMPID_OK;
    if (ok) {
        memcpy(ids, prompt->ids, prompt->n_ids * sizeof *ids);
        memcpy(ids + prompt->n_ids, answer, n_answer * sizeof *ids);
        for (size_t i = 0; i < ch->n_calls; i++) call_ids[i] = ch->calls[i].id;
        lp_turns_keep(a->service->turns, call_ids, ch->n_calls,
                      &(struct lp_turn){.prompt = lp_bytes_view(&s->prompt.text),
                                        .text = {text, n_text},
                                        .reasoning = lp_bytes_view(&ch->reasoning),
                                        .end = {end, n_end},
                                        .message = lp_str_from(message),
                                        .ids = ids,
                                        .n_prompt = prompt->n_ids,
                                        .n_answer = n_answer});
    }
    limpid_free(text);
    limpid_free(end);
    free(message);
    json_decref(given);
    lp_free(call_ids);
    lp_free(ids);
}

// ---- events ----

static bool take_token(struct lp_answer *a, struct lp_chat_choice *ch, const limpid_event *event) {
    const struct lp_chat_answer *s = a->state;
    bool reasoning = lp_reply_in_reasoning(ch->reply);
    bool ok = lp_bytes_append(&ch->ids, &event->token, sizeof event->token);
    if (ok && s->with_logprobs) ok = lp_chat_logprobs_add(&ch->logprobs, &a->completion, event);
    ok = ok && lp_reply_push(ch->reply, (struct lp_str){event->text, event->text_len});
    // The token of </think> is one of reasoning, as OpenAI and vLLM count.
    if (reasoning) ch->n_reasoning++;
    return ok;
}

static bool take_done(struct lp_answer *a, struct lp_chat_choice *ch, const limpid_event *event) {
    ch->hit_length = strcmp(event->finish_reason, "length") == 0;
    ch->stop_id = event->stop_id;
    if (event->stop_text && !(ch->stop_text = lp_strdup(event->stop_text))) return false;
    bool ok = lp_reply_push(ch->reply, (struct lp_str){event->text, event->text_len});
    ch->cut_call = ch->in_call && (ch->hit_length || ch->stop_text || ch->stop_id >= 0);
    ok = ok && lp_reply_finish(ch->reply);
    ch->done = true;
    atomic_fetch_add(&a->service->n_repairs, (unsigned)lp_reply_n_repairs(ch->reply));
    if (ok && ch->n_calls && !ch->cut_call) keep(a, ch);
    return ok;
}

bool lp_chat_answer_event(struct lp_answer *a, const limpid_event *event, size_t choice,
                          struct lp_bytes *out) {
    struct lp_chat_answer *s = a->state;
    struct lp_chat_choice *ch = &s->choices[choice];
    const struct lp_chat_format *format = s->format;
    struct sink sink = {a, ch, out};
    bool ok = true;
    ch->sink = &sink;
    ch->n_prompt = event->n_prompt;
    ch->n_cached = event->n_cached;
    if (!ch->started) {
        ch->started = true;
        ok = !format->start || format->start(a, ch, out);
    }
    if (ok && event->kind == LIMPID_EVENT_TOKEN) ok = take_token(a, ch, event);
    if (ok && event->kind == LIMPID_EVENT_DONE)
        ok = take_done(a, ch, event) && (!format->done || format->done(a, ch, out));
    ch->sink = NULL;
    return ok;
}

struct lp_chat_usage lp_chat_answer_usage(const struct lp_answer *a) {
    const struct lp_chat_answer *s = a->state;
    struct lp_chat_usage usage = {.prompt = a->generation.n_prompt_tokens,
                                  .cached = a->generation.n_cached,
                                  .generated = a->generation.n_generated};
    for (size_t i = 0; i < a->completion.n_choices; i++)
        usage.reasoning += s->choices[i].n_reasoning;
    return usage;
}
