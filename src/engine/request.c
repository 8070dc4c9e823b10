// A request: prompt, then token after token until an end token, a stop text or a limit.
//
//   NEW --next--> PROMPT events (if asked) --> TOKEN events --> DONE
//
// A stop text that names a control token also stops on that token, whose text is not printed.
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/stop.h"

enum state { STATE_NEW, STATE_PROMPT, STATE_GENERATE, STATE_DONE };

#define MAX_LOGPROBS 1000

struct limpid_request {
    limpid_engine *engine;
    limpid_request_options options;
    int32_t *prompt;
    limpid_sequence *sequence;
    bool own_sequence;
    enum state state;
    struct lp_sampler sampler;
    struct lp_stop stop;
    struct lp_detok detok;
    struct lp_bytes decoded, text;
    int32_t *stop_ids; // [stop.n]: the control token that a stop text names, or -1
    float *logits;     // [n_vocab], of the next token
    int64_t n_prompt, n_generated, n_cached, next_prompt_event;
    // per prompt token, when asked for
    float *prompt_logprobs;
    int32_t *prompt_top_ids;
    float *prompt_top_logprobs;
    int32_t prompt_n_top; // of n_logprobs: as many as the vocabulary has to offer
    int32_t *top_ids;     // [n_logprobs], of the current event
    float *top_logprobs;
    const char *finish_reason;
    int stop_met;    // index of the stop text that was met in the text, or -1
    int stop_id_met; // index of the stop text whose control token was met, or -1
};

limpid_request_options limpid_request_default_options(void) {
    return (limpid_request_options){.max_tokens = 16,
                                    .temperature = 1.0f,
                                    .top_p = 1.0f,
                                    .skip_special = true,
                                    .n_logprobs = -1};
}

static lp_status check_options(const limpid_engine *e, const limpid_request_options *o,
                               struct lp_err *err) {
    if (o->n_tokens == 0)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "the prompt is empty; it needs at least one token");
    if (o->n_tokens > (size_t)e->n_context ||
        (o->n_tokens == (size_t)e->n_context && o->max_tokens > 0))
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "the prompt has %zu tokens, which leaves no room in the context of %lld",
                          o->n_tokens, (long long)e->n_context);
    for (size_t i = 0; i < o->n_tokens; i++)
        if (o->tokens[i] < 0 || o->tokens[i] >= e->model->weights->h.n_vocab)
            return lp_err_set(err, LP_STATUS_INVALID,
                              "prompt token %zu has id %d, the model has %lld tokens", i,
                              o->tokens[i], (long long)e->model->weights->h.n_vocab);
    if (o->max_tokens < 0)
        return lp_err_set(err, LP_STATUS_INVALID, "max_tokens is %lld, expected 0 or more",
                          (long long)o->max_tokens);
    if (o->n_logprobs < -1 || o->n_logprobs > MAX_LOGPROBS)
        return lp_err_set(err, LP_STATUS_INVALID, "logprobs is %d, expected 0 to %d", o->n_logprobs,
                          MAX_LOGPROBS);
    return LP_OK;
}

static lp_status find_stop_ids(limpid_request *r, struct lp_err *err) {
    if (r->options.n_stop == 0) return LP_OK;
    r->stop_ids = lp_alloc(r->options.n_stop, sizeof *r->stop_ids);
    if (!r->stop_ids)
        return lp_err_memory(err, r->options.n_stop * sizeof *r->stop_ids, "stop tokens");
    const struct lp_tokenizer *tok = r->engine->model->tokenizer;
    for (size_t i = 0; i < r->options.n_stop; i++) {
        int32_t id = lp_tokenizer_find(tok, lp_str_from(r->options.stop[i]));
        r->stop_ids[i] = id >= 0 && lp_tokenizer_is_special(tok, id) ? id : -1;
    }
    return LP_OK;
}

static lp_status alloc_logprobs(limpid_request *r, struct lp_err *err) {
    size_t n_top = r->options.n_logprobs > 0 ? (size_t)r->options.n_logprobs : 0;
    size_t n_prompt = r->options.prompt_logprobs ? r->options.n_tokens : 0;
    r->logits = lp_alloc((size_t)r->engine->model->weights->h.n_vocab, sizeof *r->logits);
    r->top_ids = lp_alloc(n_top, sizeof *r->top_ids);
    r->top_logprobs = lp_alloc(n_top, sizeof *r->top_logprobs);
    r->prompt_logprobs = lp_alloc(n_prompt, sizeof *r->prompt_logprobs);
    r->prompt_top_ids = lp_alloc(n_prompt, (n_top ? n_top : 1) * sizeof *r->prompt_top_ids);
    r->prompt_top_logprobs =
        lp_alloc(n_prompt, (n_top ? n_top : 1) * sizeof *r->prompt_top_logprobs);
    bool ok = r->logits && r->top_ids && r->top_logprobs && r->prompt_logprobs &&
              r->prompt_top_ids && r->prompt_top_logprobs;
    return ok ? LP_OK : lp_err_memory(err, n_prompt * (n_top + 1) * 8, "log-probabilities");
}

// What the reused sequence already holds of the prompt stays; the last prompt token always runs, as
// its logits are needed.
static void keep_common_prefix(limpid_request *r) {
    limpid_sequence *s = r->sequence;
    int64_t n = 0, most = r->n_prompt - 1;
    if (r->options.prompt_logprobs) most = 0; // every prompt token's logits are wanted
    while (n < s->n_tokens && n < most && s->tokens[n] == r->prompt[n]) n++;
    limpid_sequence_truncate(s, n);
    r->n_cached = n;
}

static lp_status set_up(limpid_request *r, struct lp_err *err) {
    const limpid_request_options *o = &r->options;
    const limpid_model *m = r->engine->model;
    lp_status status = check_options(r->engine, o, err);
    if (status) return status;
    r->n_prompt = (int64_t)o->n_tokens;
    r->prompt = lp_alloc(o->n_tokens, sizeof *r->prompt);
    if (!r->prompt) return lp_err_memory(err, o->n_tokens * sizeof *r->prompt, "the prompt");
    memcpy(r->prompt, o->tokens, o->n_tokens * sizeof *r->prompt);
    status = lp_sampler_init(&r->sampler, o->temperature, o->top_p, o->top_k, o->seed, m->never,
                             (int32_t)m->weights->h.n_vocab, err);
    if (!status) status = lp_stop_init(&r->stop, o->stop, o->n_stop, err);
    if (!status) status = find_stop_ids(r, err);
    if (!status) status = alloc_logprobs(r, err);
    if (status) return status;
    lp_detok_init(&r->detok, m->tokenizer, o->skip_special);
    r->detok.started = true; // the text goes on behind a prompt
    if (o->reuse) {
        r->sequence = o->reuse;
        keep_common_prefix(r);
        return LP_OK;
    }
    r->own_sequence = true;
    return (lp_status)limpid_sequence_new(&r->sequence, r->engine, (limpid_error *)err);
}

limpid_status limpid_request_new(limpid_request **out, limpid_engine *engine,
                                 const limpid_request_options *options, limpid_error *err) {
    limpid_request *r = lp_alloc(1, sizeof *r);
    if (!r) return lp_public(lp_err_memory(lp_err_of(err), sizeof *r, "a request"));
    r->engine = engine;
    r->options = *options;
    r->stop_met = r->stop_id_met = -1;
    lp_status status = set_up(r, lp_err_of(err));
    r->options.tokens = NULL; // the caller's; copied above
    r->options.stop = NULL;
    if (status) {
        limpid_request_free(r);
        return lp_public(status);
    }
    *out = r;
    return LIMPID_OK;
}

void limpid_request_free(limpid_request *r) {
    if (!r) return;
    if (r->own_sequence) limpid_sequence_free(r->sequence);
    lp_sampler_release(&r->sampler);
    lp_stop_release(&r->stop);
    lp_bytes_release(&r->decoded);
    lp_bytes_release(&r->text);
    void *blocks[] = {r->prompt,          r->stop_ids,       r->logits,
                      r->prompt_logprobs, r->prompt_top_ids, r->prompt_top_logprobs,
                      r->top_ids,         r->top_logprobs};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) lp_free(blocks[i]);
    lp_free(r);
}

// Log-probability of id and the most probable ids, from one row of logits. Returns n_top.
static int32_t log_probabilities(limpid_request *r, const float *logits, int32_t id, float *logprob,
                                 int32_t *top_ids, float *top_logprobs) {
    const limpid_model *m = r->engine->model;
    int32_t n_vocab = (int32_t)m->weights->h.n_vocab;
    double log_sum = lp_sampler_log_sum(logits, m->never, n_vocab);
    *logprob = (float)(logits[id] - log_sum);
    if (r->options.n_logprobs <= 0) return 0;
    int32_t n = lp_sampler_top(logits, m->never, n_vocab, r->options.n_logprobs, top_ids);
    for (int32_t i = 0; i < n; i++) top_logprobs[i] = (float)(logits[top_ids[i]] - log_sum);
    return n;
}

static void on_prompt_logits(void *user, int64_t first, int64_t n, const float *logits) {
    limpid_request *r = user;
    int64_t n_vocab = r->engine->model->weights->h.n_vocab,
            width = r->options.n_logprobs > 0 ? r->options.n_logprobs : 1;
    for (int64_t i = 0; i < n && first + i + 1 < r->n_prompt; i++) {
        int64_t at = first + i + 1; // this row predicts the token behind it
        r->prompt_n_top =
            log_probabilities(r, logits + i * n_vocab, r->prompt[at], &r->prompt_logprobs[at],
                              r->prompt_top_ids + at * width, r->prompt_top_logprobs + at * width);
    }
}

static lp_status run_prompt(limpid_request *r, limpid_error *err) {
    limpid_watch watch = {.user = r, .logits = on_prompt_logits};
    return (lp_status)limpid_sequence_append(
        r->sequence, r->prompt + r->n_cached, (size_t)(r->n_prompt - r->n_cached),
        r->options.prompt_logprobs ? &watch : NULL, r->logits, err);
}

static lp_status out_of_memory(limpid_error *err) {
    return lp_err_memory(lp_err_of(err), 0, "generated text");
}

static limpid_event base_event(const limpid_request *r, limpid_event_kind kind) {
    return (limpid_event){.kind = kind,
                          .token = -1,
                          .text = r->text.data ? r->text.data : "",
                          .text_len = r->text.len,
                          .top_ids = r->top_ids,
                          .top_logprobs = r->top_logprobs};
}

static lp_status prompt_event(limpid_request *r, limpid_event *event, limpid_error *err) {
    int64_t at = r->next_prompt_event++,
            width = r->options.n_logprobs > 0 ? r->options.n_logprobs : 1;
    if (!lp_tokenizer_piece(r->engine->model->tokenizer, r->prompt[at], r->options.skip_special,
                            &r->text))
        return out_of_memory(err);
    *event = base_event(r, LIMPID_EVENT_PROMPT);
    event->token = r->prompt[at];
    event->has_logprob = at > 0;
    event->logprob = r->prompt_logprobs[at];
    event->top_ids = r->prompt_top_ids + at * width;
    event->top_logprobs = r->prompt_top_logprobs + at * width;
    event->n_top = at > 0 ? r->prompt_n_top : 0;
    if (r->next_prompt_event == r->n_prompt) r->state = STATE_GENERATE;
    return LP_OK;
}

static lp_status done_event(limpid_request *r, limpid_event *event, limpid_error *err) {
    bool ok = true;
    if (r->stop_met < 0) { // give out what was held back for a character or a stop text
        lp_bytes_clear(&r->decoded);
        ok = lp_detok_finish(&r->detok, &r->decoded);
        if (ok) r->stop_met = lp_stop_push(&r->stop, lp_bytes_view(&r->decoded), &r->text, &ok);
        if (r->stop_met >= 0)
            r->finish_reason = "stop";
        else
            ok = ok && lp_stop_flush(&r->stop, &r->text);
    }
    if (!ok) return out_of_memory(err);
    *event = base_event(r, LIMPID_EVENT_DONE);
    event->finish_reason = r->finish_reason;
    int stop = r->stop_met >= 0 ? r->stop_met : r->stop_id_met;
    event->stop_text = stop >= 0 ? r->stop.texts[stop] : NULL;
    event->n_prompt = r->n_prompt;
    event->n_generated = r->n_generated;
    event->n_cached = r->n_cached;
    return LP_OK;
}

static bool is_end(limpid_request *r, int32_t id) {
    for (size_t i = 0; i < r->stop.n && r->stop_id_met < 0; i++)
        if (r->stop_ids[i] == id) r->stop_id_met = (int)i;
    if (r->stop_id_met >= 0) return true;
    return !r->options.ignore_eos && lp_tokenizer_is_stop(r->engine->model->tokenizer, id);
}

static void finish(limpid_request *r, const char *reason) {
    r->finish_reason = reason;
    r->state = STATE_DONE;
}

// Samples the next token from r->logits. The end token is an event too, but has no text.
static lp_status token_event(limpid_request *r, limpid_event *event, limpid_error *err) {
    bool ok;
    int32_t id = lp_sampler_pick(&r->sampler, r->logits);
    r->n_generated++;
    *event = base_event(r, LIMPID_EVENT_TOKEN);
    event->token = id;
    if (r->options.n_logprobs >= 0) {
        event->n_top =
            log_probabilities(r, r->logits, id, &event->logprob, r->top_ids, r->top_logprobs);
        event->has_logprob = true;
    }
    if (is_end(r, id)) {
        finish(r, "stop");
        return LP_OK;
    }
    lp_bytes_clear(&r->decoded);
    ok = lp_detok_push(&r->detok, id, &r->decoded);
    if (ok) r->stop_met = lp_stop_push(&r->stop, lp_bytes_view(&r->decoded), &r->text, &ok);
    if (!ok) return out_of_memory(err);
    event->text = r->text.data ? r->text.data : "";
    event->text_len = r->text.len;
    if (r->stop_met >= 0)
        finish(r, "stop");
    else if (r->n_generated >= r->options.max_tokens ||
             r->sequence->n_tokens + 1 > r->engine->n_context)
        finish(r, "length");
    if (r->state == STATE_DONE) return LP_OK;
    return (lp_status)limpid_sequence_append(r->sequence, &id, 1, NULL, r->logits, err);
}

limpid_status limpid_request_next(limpid_request *r, limpid_event *event, limpid_error *err) {
    lp_status status = LP_OK;
    lp_bytes_clear(&r->text);
    if (r->state == STATE_NEW) {
        status = run_prompt(r, err);
        if (status) return lp_public(status);
        r->state = r->options.prompt_logprobs ? STATE_PROMPT : STATE_GENERATE;
    }
    if (r->state == STATE_PROMPT) return lp_public(prompt_event(r, event, err));
    if (r->state == STATE_GENERATE && r->options.max_tokens == 0) finish(r, "length");
    if (r->state == STATE_GENERATE) return lp_public(token_event(r, event, err));
    return lp_public(done_event(r, event, err));
}

int32_t limpid_argmax(const limpid_model *m, const float *logits) {
    return lp_sampler_argmax(logits, m->never, (int32_t)m->weights->h.n_vocab);
}
