// From a sampled token to the caller: text, stop texts, log-probabilities, the end of a choice.
//
// A stop text that names a control token also stops on that token, whose text is not printed.
#include <string.h>

#include "base/alloc.h"
#include "engine/request.h"

struct lp_output {
    struct lp_stop stop;
    struct lp_detok detok;
    struct lp_bytes decoded, text;
    int32_t *top_ids; // [n_logprobs]
    float *top_logprobs;
    const char *finish_reason;
    int stop_met;            // index of the stop text that was met in the text, or -1
    int stop_id_met;         // index into request->stop_ids, or -1
    int64_t n_prompt_events; // given; a sequence that was pre-empted computes them again
};

lp_status lp_output_new(struct lp_output **out, const limpid_request *r, struct lp_err *err) {
    const limpid_request_options *o = &r->options;
    size_t n_top = o->n_logprobs > 0 ? (size_t)o->n_logprobs : 0;
    struct lp_output *t = lp_alloc(1, sizeof *t);
    if (!t) return lp_err_memory(err, sizeof *t, "a request");
    *out = t;
    t->stop_met = t->stop_id_met = -1;
    t->top_ids = lp_alloc(n_top, sizeof *t->top_ids);
    t->top_logprobs = lp_alloc(n_top, sizeof *t->top_logprobs);
    if (!t->top_ids || !t->top_logprobs)
        return lp_err_memory(err, n_top * (sizeof *t->top_ids + sizeof *t->top_logprobs),
                             "log-probabilities");
    lp_detok_init(&t->detok, r->engine->model->tokenizer, o->skip_special);
    t->detok.started = true; // the text goes on behind a prompt
    return lp_stop_init(&t->stop, o->stop, o->n_stop, err);
}

void lp_output_free(struct lp_output *t) {
    if (!t) return;
    lp_stop_release(&t->stop);
    lp_bytes_release(&t->decoded);
    lp_bytes_release(&t->text);
    lp_free(t->top_ids);
    lp_free(t->top_logprobs);
    lp_free(t);
}

const char *lp_output_finish_reason(const struct lp_output *t) {
    return t->finish_reason;
}

static lp_status out_of_memory(struct lp_err *err) {
    return lp_err_memory(err, 0, "generated text");
}

// Log-probability of the event's token and the most probable ids, from one row of logits.
static void add_logprobs(const struct lp_seq *seq, const float *logits, limpid_event *event) {
    const limpid_model *m = seq->request->engine->model;
    int32_t n_vocab = (int32_t)m->weights->h.n_vocab, n_want = seq->request->options.n_logprobs;
    struct lp_output *t = seq->output;
    double log_sum = lp_sampler_log_sum(logits, m->never, n_vocab);
    event->has_logprob = true;
    event->logprob = (float)(logits[event->token] - log_sum);
    event->top_ids = t->top_ids;
    event->top_logprobs = t->top_logprobs;
    if (n_want <= 0) return;
    event->n_top = lp_sampler_top(logits, m->never, n_vocab, n_want, t->top_ids);
    for (int32_t i = 0; i < event->n_top; i++)
        t->top_logprobs[i] = (float)(logits[t->top_ids[i]] - log_sum);
}

static lp_status push(const struct lp_seq *seq, limpid_event *event, struct lp_err *err) {
    event->text = seq->output->text.data ? seq->output->text.data : "";
    event->text_len = seq->output->text.len;
    event->choice = seq->choice;
    struct lp_event *copy = lp_event_new(event);
    if (!copy) return out_of_memory(err);
    lp_request_push(seq->request, copy);
    return LP_OK;
}

static lp_status push_done(struct lp_seq *seq, struct lp_err *err) {
    struct lp_output *t = seq->output;
    const limpid_request *r = seq->request;
    bool ok = true;
    lp_bytes_clear(&t->text);
    if (t->stop_met < 0) { // give out what was held back for a character or a stop text
        lp_bytes_clear(&t->decoded);
        ok = lp_detok_finish(&t->detok, &t->decoded);
        if (ok) t->stop_met = lp_stop_push(&t->stop, lp_bytes_view(&t->decoded), &t->text, &ok);
        if (t->stop_met >= 0)
            t->finish_reason = "stop";
        else
            ok = ok && lp_stop_flush(&t->stop, &t->text);
    }
    if (!ok) return out_of_memory(err);
    int stop = t->stop_met >= 0 ? t->stop_met : t->stop_id_met;
    bool is_text = stop >= 0 && (size_t)stop < t->stop.n;
    limpid_event event = {.kind = LIMPID_EVENT_DONE,
                          .token = -1,
                          .finish_reason = t->finish_reason,
                          .stop_text = is_text ? t->stop.texts[stop] : NULL,
                          .stop_id = stop >= 0 && !is_text ? r->stop_ids[stop] : -1,
                          .n_prompt = seq->n_prompt,
                          .n_generated = seq->n_tokens - seq->n_prompt,
                          .n_cached = seq->n_cached,
                          .n_drafted = seq->n_drafted,
                          .n_accepted = seq->n_accepted};
    return push(seq, &event, err);
}

static bool is_end(struct lp_seq *seq, int32_t id) {
    const limpid_request *r = seq->request;
    struct lp_output *t = seq->output;
    size_t n = r->options.n_stop + r->options.n_stop_ids;
    for (size_t i = 0; i < n && t->stop_id_met < 0; i++)
        if (r->stop_ids[i] == id) t->stop_id_met = (int)i;
    if (t->stop_id_met >= 0) return true;
    return !r->options.ignore_eos && lp_tokenizer_is_stop(r->engine->model->tokenizer, id);
}

static lp_status keep_token(struct lp_seq *seq, int32_t id, struct lp_err *err) {
    if (seq->n_tokens == seq->capacity) {
        int64_t capacity = 2 * seq->capacity;
        int32_t *tokens = lp_realloc(seq->tokens, (size_t)capacity, sizeof *tokens);
        if (!tokens)
            return lp_err_memory(err, (size_t)capacity * sizeof *tokens, "a sequence's tokens");
        seq->tokens = tokens;
        seq->capacity = capacity;
    }
    seq->tokens[seq->n_tokens++] = id;
    return LP_OK;
}

static bool is_shown(const limpid_request *r, int32_t id) {
    for (size_t i = 0; i < r->options.n_shown_ids; i++)
        if (r->shown_ids[i] == id) return true;
    return false;
}

// What the token means for the text; whether it ends the choice. The end token has no text.
static lp_status take_up(struct lp_seq *seq, int32_t id, bool *ended, struct lp_err *err) {
    const limpid_request *r = seq->request;
    struct lp_output *t = seq->output;
    bool ok;
    lp_bytes_clear(&t->text);
    if (is_end(seq, id)) {
        t->finish_reason = "stop";
        *ended = true;
        return LP_OK;
    }
    lp_bytes_clear(&t->decoded);
    t->detok.skip_special = r->options.skip_special && !is_shown(r, id);
    ok = lp_detok_push(&t->detok, id, &t->decoded);
    // As in vLLM, stop texts count from the token on that min_tokens allows to be the last.
    if (ok && seq->n_tokens - seq->n_prompt < r->options.min_tokens)
        ok = lp_bytes_append(&t->text, t->decoded.data, t->decoded.len);
    else if (ok)
        t->stop_met = lp_stop_push(&t->stop, lp_bytes_view(&t->decoded), &t->text, &ok);
    if (!ok) return out_of_memory(err);
    bool full = seq->n_tokens - seq->n_prompt >= r->options.max_tokens ||
                seq->n_tokens >= r->engine->n_context;
    if (t->stop_met >= 0)
        t->finish_reason = "stop";
    else if (full)
        t->finish_reason = "length";
    *ended = t->finish_reason != NULL;
    return LP_OK;
}

lp_status lp_output_token(struct lp_seq *seq, int32_t id, const float *logits, bool *ended,
                          struct lp_err *err) {
    limpid_event event = {.kind = LIMPID_EVENT_TOKEN,
                          .token = id,
                          .stop_id = -1,
                          .n_prompt = seq->n_prompt,
                          .n_cached = seq->n_cached};
    *ended = false;
    lp_status status = keep_token(seq, id, err);
    if (!status) status = take_up(seq, id, ended, err);
    if (status) return status;
    if (seq->request->options.n_logprobs >= 0) add_logprobs(seq, logits, &event);
    status = push(seq, &event, err);
    return !status && *ended ? push_done(seq, err) : status;
}

lp_status lp_output_end(struct lp_seq *seq, const char *finish_reason, struct lp_err *err) {
    seq->output->finish_reason = finish_reason;
    return push_done(seq, err);
}

lp_status lp_output_prompt(struct lp_seq *seq, int64_t first, int64_t n, const float *logits,
                           struct lp_err *err) {
    const limpid_model *m = seq->request->engine->model;
    struct lp_output *t = seq->output;
    lp_status status = LP_OK;
    // The first token has no log-probability; the row of the last one predicts the answer.
    for (int64_t at = t->n_prompt_events; at <= first + n && at < seq->n_prompt && !status; at++) {
        lp_bytes_clear(&t->text);
        if (!lp_tokenizer_piece(m->tokenizer, seq->tokens[at], seq->request->options.skip_special,
                                &t->text))
            return out_of_memory(err);
        limpid_event event = {.kind = LIMPID_EVENT_PROMPT, .token = seq->tokens[at], .stop_id = -1};
        if (at > 0) add_logprobs(seq, logits + (at - first - 1) * m->weights->h.n_vocab, &event);
        status = push(seq, &event, err);
        t->n_prompt_events = at + 1;
    }
    return status;
}
