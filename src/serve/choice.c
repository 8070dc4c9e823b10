#include "serve/choice.h"

#include <string.h>

#include "base/alloc.h"
#include "serve/json_out.h"

static struct lp_str rest_of_echo(const struct lp_choice *ch, const struct lp_bytes *echo) {
    return (struct lp_str){echo->data + ch->echo_at, echo->len - ch->echo_at};
}

static bool starts_with(struct lp_str text, struct lp_str with) {
    return with.len <= text.len && memcmp(text.data, with.data, with.len) == 0;
}

// The prompt is shown as it was given, so a token counts as much of it as it spells: nothing, if
// the file's rule added it or it is skipped; without the space that SentencePiece puts in front of
// a text.
static void pass_prompt_token(struct lp_choice *ch, const struct lp_bytes *echo,
                              struct lp_str bytes) {
    if (!echo->len) return;
    struct lp_str rest = rest_of_echo(ch, echo);
    if (!starts_with(rest, bytes) && ch->echo_at == 0 && bytes.len > 1 && bytes.data[0] == ' ') {
        bytes.data++;
        bytes.len--;
    }
    if (!starts_with(rest, bytes)) return;
    lp_char_count_add(&ch->position, bytes);
    ch->echo_at += bytes.len;
}

// Behind the prompt: also what no token of it spelled, and a character that it ends within.
static void pass_prompt_end(struct lp_choice *ch, const struct lp_bytes *echo) {
    if (!echo->len || ch->echo_at > echo->len) return;
    lp_char_count_add(&ch->position, rest_of_echo(ch, echo));
    if (ch->position.n_held) ch->position.n++;
    ch->position.n_held = 0;
    ch->echo_at = echo->len + 1;
}

// The token as it is shown; its bytes are appended too, if wanted.
static json_t *show(const struct lp_completion *c, int32_t id, struct lp_bytes *bytes) {
    limpid_error e;
    char *data;
    size_t n;
    struct lp_bytes shown = {0};
    if (limpid_token_bytes(c->service->model, id, &data, &n, &e)) return NULL;
    json_t *out = lp_logprobs_show(&shown, (struct lp_str){data, n})
                      ? lp_json_text(lp_bytes_view(&shown))
                      : NULL;
    if (bytes && !lp_bytes_append(bytes, data, n)) {
        json_decref(out);
        out = NULL;
    }
    lp_bytes_release(&shown);
    limpid_free(data);
    return out;
}

// Two ids may spell the same text: the more probable one stands.
static bool put_top(json_t *top, const struct lp_completion *c, int32_t id, float logprob) {
    json_t *key = show(c, id, NULL);
    bool ok = key != NULL;
    if (ok && !json_object_get(top, json_string_value(key)))
        ok =
            json_object_set_new(top, json_string_value(key), lp_json_logprob((double)logprob)) == 0;
    json_decref(key);
    return ok;
}

// The most probable tokens and, as OpenAI and vLLM have it, the token itself.
static json_t *top_json(const struct lp_completion *c, const limpid_event *event) {
    json_t *top = json_object();
    bool ok = top != NULL;
    for (int32_t i = 0; i < event->n_top && ok; i++)
        ok = put_top(top, c, event->top_ids[i], event->top_logprobs[i]);
    ok = ok && put_top(top, c, event->token, event->logprob);
    if (ok) return top;
    json_decref(top);
    return NULL;
}

static bool add_logprob(struct lp_choice *ch, const struct lp_completion *c,
                        const limpid_event *event) {
    struct lp_bytes bytes = {0};
    const struct lp_bytes *echo = &lp_completion_prompt(c, ch->index)->text;
    if (event->kind == LIMPID_EVENT_TOKEN) pass_prompt_end(ch, echo);
    struct lp_token_logprob one = {.text = show(c, event->token, &bytes),
                                   .has_logprob = event->has_logprob,
                                   .logprob = (double)event->logprob,
                                   .offset = ch->position.n};
    bool ok = one.text != NULL;
    if (event->has_logprob) ok = (one.top = top_json(c, event)) != NULL && ok;
    ok = lp_logprobs_add(&ch->logprobs, &one) && ok; // takes what is there
    ch->n_logprobs++;
    if (ok && event->kind == LIMPID_EVENT_PROMPT)
        pass_prompt_token(ch, echo, lp_bytes_view(&bytes));
    else if (ok && !lp_completion_is_hidden(c, event->token))
        lp_char_count_add(&ch->position, lp_bytes_view(&bytes));
    lp_bytes_release(&bytes);
    return ok;
}

static bool start(struct lp_choice *ch, const struct lp_completion *c) {
    ch->started = true;
    ch->with_logprobs = c->params.logprobs >= 0;
    return !c->params.echo ||
           lp_json_clean(&ch->text, lp_bytes_view(&lp_completion_prompt(c, ch->index)->text));
}

bool lp_choice_add(struct lp_choice *ch, const struct lp_completion *c, const limpid_event *event) {
    if (!ch->started && !start(ch, c)) return false;
    if (event->kind != LIMPID_EVENT_DONE && ch->with_logprobs && !add_logprob(ch, c, event))
        return false;
    if (event->kind == LIMPID_EVENT_TOKEN && c->params.return_token_ids &&
        !lp_bytes_append(&ch->ids, &event->token, sizeof event->token))
        return false;
    return event->kind == LIMPID_EVENT_PROMPT ||
           lp_bytes_append(&ch->text, event->text, event->text_len);
}

bool lp_choice_has_news(const struct lp_choice *ch) {
    return ch->text.len > 0 || ch->n_logprobs > 0;
}

// vLLM's: the text or the id that ended it.
static json_t *stop_reason(const limpid_event *event) {
    if (event->kind == LIMPID_EVENT_DONE && event->stop_text)
        return lp_json_text(lp_str_from(event->stop_text));
    if (event->kind == LIMPID_EVENT_DONE && event->stop_id >= 0)
        return json_integer(event->stop_id);
    return json_null();
}

static bool add_ids(struct lp_choice *ch, const struct lp_completion *c, json_t *out) {
    const struct lp_completion_prompt *p = lp_completion_prompt(c, ch->index);
    size_t n = ch->ids.len / sizeof(int32_t);
    bool ok = json_object_set_new(out, "token_ids",
                                  lp_json_ids((const int32_t *)(void *)ch->ids.data, n)) == 0;
    lp_bytes_clear(&ch->ids);
    if (ch->prompt_ids_sent) return ok;
    ch->prompt_ids_sent = true;
    return ok && json_object_set_new(out, "prompt_token_ids", lp_json_ids(p->ids, p->n_ids)) == 0;
}

json_t *lp_choice_take(struct lp_choice *ch, const struct lp_completion *c,
                       const limpid_event *event) {
    bool done = event->kind == LIMPID_EVENT_DONE;
    json_t *logprobs = ch->with_logprobs ? lp_logprobs_take(&ch->logprobs) : json_null();
    json_t *out =
        json_pack("{s:I, s:o, s:o, s:s?, s:o}", "index", (json_int_t)ch->index, "text",
                  lp_json_text(lp_bytes_view(&ch->text)), "logprobs", logprobs, "finish_reason",
                  done ? event->finish_reason : NULL, "stop_reason", stop_reason(event));
    ch->n_logprobs = 0;
    lp_bytes_clear(&ch->text);
    if (out && c->params.return_token_ids && !add_ids(ch, c, out)) {
        json_decref(out);
        out = NULL;
    }
    if (done) lp_choice_release(ch);
    return out;
}

void lp_choice_release(struct lp_choice *ch) {
    lp_bytes_release(&ch->text);
    lp_bytes_release(&ch->ids);
    lp_logprobs_release(&ch->logprobs);
}
