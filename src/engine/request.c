// The life of a request, seen from its owner: submit, wait for events, cancel, free.
#include "engine/request.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#define MAX_LOGPROBS 1000
#define MAX_CHOICES 1024
#define MAX_TIMEOUT_MS 1000000000000ll // 31 years

limpid_request_options limpid_request_default_options(void) {
    return (limpid_request_options){.max_tokens = 16,
                                    .n = 1,
                                    .repetition_penalty = 1.0f,
                                    .dry_base = 1.75f,
                                    .dry_allowed_length = 2,
                                    .typical_p = 1.0f,
                                    .top_p = 1.0f,
                                    .temperature = 1.0f,
                                    .skip_special = true,
                                    .grammar_after = -1,
                                    .n_logprobs = -1};
}

static lp_status check_ids(const limpid_engine *e, const char *what, const int32_t *ids, size_t n,
                           struct lp_err *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->model->weights->h.n_vocab)
            return lp_err_set(err, LP_STATUS_INVALID, "%s %zu has id %d, the model has %lld tokens",
                              what, i, ids[i], (long long)e->model->weights->h.n_vocab);
    return LP_OK;
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
    if (o->max_tokens < 0 || o->min_tokens < 0)
        return lp_err_set(err, LP_STATUS_INVALID, "%s is %lld, expected 0 or more",
                          o->max_tokens < 0 ? "max_tokens" : "min_tokens",
                          (long long)(o->max_tokens < 0 ? o->max_tokens : o->min_tokens));
    if (o->n < 1 || o->n > MAX_CHOICES)
        return lp_err_set(err, LP_STATUS_INVALID, "n is %d, expected 1 to %d", o->n, MAX_CHOICES);
    if (o->n_logprobs < -1 || o->n_logprobs > MAX_LOGPROBS)
        return lp_err_set(err, LP_STATUS_INVALID, "logprobs is %d, expected 0 to %d", o->n_logprobs,
                          MAX_LOGPROBS);
    if (o->timeout_ms < 0 || o->timeout_ms > MAX_TIMEOUT_MS)
        return lp_err_set(err, LP_STATUS_INVALID, "timeout_ms is %lld, expected 0 (none) to %lld",
                          (long long)o->timeout_ms, MAX_TIMEOUT_MS);
    for (size_t i = 0; i < o->n_dry_breakers; i++)
        if (!o->dry_breakers[i][0])
            return lp_err_set(err, LP_STATUS_INVALID, "dry_breakers: text %zu is empty", i);
    if (o->grammar_after < -1 || o->grammar_after >= e->model->weights->h.n_vocab)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "grammar_after is %d, expected a token's id or -1 (from the start)",
                          o->grammar_after);
    lp_status status = check_ids(e, "prompt token", o->tokens, o->n_tokens, err);
    if (!status) status = check_ids(e, "stop_ids", o->stop_ids, o->n_stop_ids, err);
    if (!status) status = check_ids(e, "shown_ids", o->shown_ids, o->n_shown_ids, err);
    return status ? status : check_ids(e, "logit_bias", o->bias_ids, o->n_bias, err);
}

// ---- making

// The control token that each stop text names, or -1; then the stop tokens that were given.
static lp_status find_stop_ids(limpid_request *r, const limpid_request_options *o,
                               struct lp_err *err) {
    const struct lp_tokenizer *tok = r->engine->model->tokenizer;
    r->stop_ids = lp_alloc(o->n_stop + o->n_stop_ids, sizeof *r->stop_ids);
    r->stop = lp_alloc(o->n_stop, sizeof *r->stop);
    if (!r->stop_ids || !r->stop)
        return lp_err_memory(err, (o->n_stop + o->n_stop_ids) * sizeof *r->stop_ids, "stop tokens");
    for (size_t i = 0; i < o->n_stop; i++) {
        if (o->stop[i][0] == 0)
            return lp_err_set(err, LP_STATUS_INVALID, "stop text %zu is empty", i);
        if (!(r->stop[i] = lp_strdup(o->stop[i]))) return lp_err_memory(err, 0, "stop texts");
        int32_t id = lp_tokenizer_find(tok, lp_str_from(o->stop[i]));
        r->stop_ids[i] = id >= 0 && lp_tokenizer_is_special(tok, id) ? id : -1;
    }
    if (o->n_stop_ids)
        memcpy(r->stop_ids + o->n_stop, o->stop_ids, o->n_stop_ids * sizeof *r->stop_ids);
    return LP_OK;
}

// What min_tokens and a grammar hold back: the stop tokens of the request, and the end tokens.
static lp_status find_ends(limpid_request *r, struct lp_err *err) {
    const limpid_model *m = r->engine->model;
    int32_t n_vocab = (int32_t)m->weights->h.n_vocab;
    size_t n = r->options.n_stop + r->options.n_stop_ids, n_all = n;
    for (int32_t id = 0; id < n_vocab; id++) n_all += lp_tokenizer_is_stop(m->tokenizer, id);
    r->ends = lp_alloc(n_all, sizeof *r->ends);
    if (!r->ends) return lp_err_memory(err, n_all * sizeof *r->ends, "end tokens");
    for (size_t i = 0; i < n; i++)
        if (r->stop_ids[i] >= 0) r->ends[r->n_own_ends++] = r->stop_ids[i];
    r->n_ends = r->n_own_ends;
    for (int32_t id = 0; id < n_vocab; id++)
        if (lp_tokenizer_is_stop(m->tokenizer, id)) r->ends[r->n_ends++] = id;
    return LP_OK;
}

static lp_status add_ids(int32_t **ids, size_t *n, const int32_t *more, size_t n_more,
                         struct lp_err *err) {
    int32_t *grown = lp_realloc(*ids, *n + n_more + 1, sizeof *grown);
    if (!grown) return lp_err_memory(err, (*n + n_more) * sizeof *grown, "DRY's breakers");
    *ids = grown;
    if (n_more) memcpy(*ids + *n, more, n_more * sizeof *more);
    *n += n_more;
    return LP_OK;
}

// The tokens whose bytes hold a breaker text, of the whole vocabulary.
static lp_status find_breakers(const limpid_request *r, const limpid_request_options *o,
                               int32_t **ids, size_t *n, struct lp_err *err) {
    const limpid_model *m = r->engine->model;
    struct lp_bytes piece = {0};
    lp_status status = LP_OK;
    for (int32_t id = 0; id < (int32_t)m->weights->h.n_vocab && o->n_dry_breakers && !status;
         id++) {
        lp_bytes_clear(&piece);
        if (!lp_tokenizer_piece(m->tokenizer, id, false, &piece))
            status = lp_err_memory(err, 0, "DRY's breakers");
        bool has = false;
        for (size_t i = 0; i < o->n_dry_breakers && !has; i++)
            has = piece.len && memmem(piece.data, piece.len, o->dry_breakers[i],
                                      strlen(o->dry_breakers[i])) != NULL;
        if (has && !status) status = add_ids(ids, n, &id, 1, err);
    }
    lp_bytes_release(&piece);
    return status;
}

static lp_status make_sampler(limpid_request *r, const limpid_request_options *o, int32_t choice,
                              struct lp_sampler_params *params, struct lp_err *err) {
    const limpid_model *m = r->engine->model;
    params->seed = o->seed + (uint64_t)choice;
    return lp_sampler_new(&r->seqs[choice].sampler, params, m->never,
                          (int32_t)m->weights->h.n_vocab, err);
}

static lp_status make_samplers(limpid_request *r, const limpid_request_options *o,
                               struct lp_err *err) {
    struct lp_bias *bias = lp_alloc(o->n_bias, sizeof *bias);
    int32_t *breakers = NULL;
    size_t n_breakers = 0;
    lp_status status = bias ? LP_OK : lp_err_memory(err, o->n_bias * sizeof *bias, "logit_bias");
    for (size_t i = 0; i < o->n_bias && !status; i++)
        bias[i] = (struct lp_bias){o->bias_ids[i], o->bias[i]};
    if (!status && o->dry_multiplier != 0)
        status = find_breakers(r, o, &breakers, &n_breakers, err);
    struct lp_sampler_params params = {.temperature = o->temperature,
                                       .top_p = o->top_p,
                                       .typical_p = o->typical_p,
                                       .min_p = o->min_p,
                                       .top_k = o->top_k,
                                       .repetition_penalty = o->repetition_penalty,
                                       .presence_penalty = o->presence_penalty,
                                       .frequency_penalty = o->frequency_penalty,
                                       .dry_multiplier = o->dry_multiplier,
                                       .dry_base = o->dry_base,
                                       .dry_allowed_length = o->dry_allowed_length,
                                       .dry_breakers = breakers,
                                       .n_dry_breakers = n_breakers,
                                       .bias = bias,
                                       .n_bias = o->n_bias,
                                       .may_be_masked = o->grammar_kind != NULL,
                                       .min_tokens = o->min_tokens,
                                       .ends = r->ends,
                                       .n_ends = r->n_ends};
    for (int32_t i = 0; i < r->n && !status; i++) status = make_sampler(r, o, i, &params, err);
    lp_free(bias);
    lp_free(breakers);
    return status;
}

static lp_status make_seqs(limpid_request *r, const limpid_request_options *o, struct lp_err *err) {
    r->seqs = lp_alloc((size_t)o->n, sizeof *r->seqs);
    if (!r->seqs) return lp_err_memory(err, (size_t)o->n * sizeof *r->seqs, "a request");
    r->n = o->n;
    for (int32_t i = 0; i < r->n; i++) {
        struct lp_seq *seq = &r->seqs[i];
        seq->request = r;
        seq->choice = i;
        seq->n_tokens = seq->n_prompt = (int64_t)o->n_tokens;
        seq->capacity = seq->n_tokens + 64;
        seq->tokens = lp_alloc((size_t)seq->capacity, sizeof *seq->tokens);
        if (!seq->tokens)
            return lp_err_memory(err, (size_t)seq->capacity * sizeof *seq->tokens, "the prompt");
        memcpy(seq->tokens, o->tokens, o->n_tokens * sizeof *seq->tokens);
        lp_status status = lp_output_new(&seq->output, r, err);
        if (status) return status;
    }
    return LP_OK;
}

static lp_status copy_shown_ids(limpid_request *r, const limpid_request_options *o,
                                struct lp_err *err) {
    r->shown_ids = lp_alloc(o->n_shown_ids, sizeof *r->shown_ids);
    if (!r->shown_ids)
        return lp_err_memory(err, o->n_shown_ids * sizeof *r->shown_ids, "shown tokens");
    if (o->n_shown_ids) memcpy(r->shown_ids, o->shown_ids, o->n_shown_ids * sizeof *r->shown_ids);
    return LP_OK;
}

// Compiles the grammar, in the caller's thread; each choice follows it for itself.
static lp_status make_constraints(limpid_request *r, const limpid_request_options *o,
                                  struct lp_err *err) {
    const limpid_model *m = r->engine->model;
    if (!o->grammar_kind) return LP_OK;
    struct lp_constraint_params params = {.after = o->grammar_after,
                                          .n_vocab = (int32_t)m->weights->h.n_vocab,
                                          .never = m->never,
                                          .ends = r->ends,
                                          .n_ends = r->n_ends,
                                          .n_finals = o->ignore_eos ? r->n_own_ends : r->n_ends};
    lp_status status = lp_grammar_cache_take(
        m->grammars, o->grammar_kind,
        (struct lp_str){o->grammar ? o->grammar : "", o->grammar ? o->grammar_len : 0},
        &params.grammar, err);
    if (status == LP_STATUS_LIMIT) status = LP_STATUS_INVALID; // LIMIT is of the context
    if (status && err) err->status = status;
    if (status) return status;
    for (int32_t i = 0; i < r->n && !status; i++) {
        r->seqs[i].constraint_ns = UINT64_MAX; // nobody knows yet
        status = lp_constraint_new(&r->seqs[i].constraint, &params, err);
    }
    lp_grammar_put(params.grammar);
    return status;
}

static lp_status set_up(limpid_request *r, const limpid_request_options *o, struct lp_err *err) {
    lp_status status = check_options(r->engine, o, err);
    r->options = *o;
    if (!status) status = find_stop_ids(r, o, err);
    if (!status) status = find_ends(r, err);
    if (!status) status = copy_shown_ids(r, o, err);
    if (status) return status;
    r->options.stop = (const char *const *)r->stop;
    status = make_seqs(r, o, err);
    if (!status) status = make_samplers(r, o, err);
    if (!status) status = make_constraints(r, o, err);
    // The caller's arrays; what is needed of them has been copied.
    r->options.tokens = r->options.bias_ids = r->options.stop_ids = r->options.shown_ids = NULL;
    r->options.grammar_kind = r->options.grammar = NULL;
    r->options.bias = NULL;
    r->options.dry_breakers = NULL;
    r->options.id = NULL;
    r->n_open = r->n;
    r->submitted_ns = lp_clock_ns();
    if (o->timeout_ms) r->deadline_ns = r->submitted_ns + (uint64_t)o->timeout_ms * 1000000u;
    return status;
}

void lp_request_destroy(limpid_request *r) {
    for (int32_t i = 0; i < r->n; i++) {
        lp_free(r->seqs[i].tokens);
        lp_sampler_free(r->seqs[i].sampler);
        lp_output_free(r->seqs[i].output);
        lp_constraint_free(r->seqs[i].constraint);
    }
    for (struct lp_event *e = r->first, *next; e; e = next) {
        next = e->next;
        lp_free(e);
    }
    for (size_t i = 0; r->stop && i < r->options.n_stop; i++) lp_free(r->stop[i]);
    lp_free(r->stop);
    lp_free(r->stop_ids);
    lp_free(r->ends);
    lp_free(r->shown_ids);
    lp_free(r->seqs);
    lp_free(r->current);
    pthread_cond_destroy(&r->changed);
    lp_free(r);
}

static lp_status submit(limpid_request *r, struct lp_err *err) {
    limpid_engine *e = r->engine;
    pthread_mutex_lock(&e->lock);
    int64_t free_slots = e->max_seqs - e->n_slots_used;
    if (e->max_queue && e->n_queued + r->n > e->max_queue + (free_slots > 0 ? free_slots : 0)) {
        e->n_rejected++;
        int64_t n = e->n_queued;
        pthread_mutex_unlock(&e->lock);
        return lp_err_set(err, LP_STATUS_BUSY,
                          "the queue is full: %lld sequences wait, at most %d may; ask again later",
                          (long long)n, e->max_queue);
    }
    r->arrival = e->n_arrivals++;
    for (int32_t i = 0; i < r->n; i++) {
        r->seqs[i].number = e->next_sequence++;
        lp_engine_trace_seq(e, &r->seqs[i], "submitted");
    }
    r->in_engine = true;
    r->next = e->incoming;
    e->incoming = r;
    e->n_queued += r->n;
    if (e->n_active == 0) e->beat_ns = lp_clock_ns();
    e->n_active += r->n;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    return LP_OK;
}

limpid_status limpid_request_new(limpid_request **out, limpid_engine *engine,
                                 const limpid_request_options *options, limpid_error *err) {
    if (!options)
        return lp_public(lp_err_set(lp_err_of(err), LP_STATUS_INVALID,
                                    "a request needs options, at least a prompt"));
    limpid_request *r = lp_alloc(1, sizeof *r);
    if (!r) return lp_public(lp_err_memory(lp_err_of(err), sizeof *r, "a request"));
    r->engine = engine;
    lp_trace_copy(r->id, sizeof r->id, options->id);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    lp_status status = set_up(r, options, lp_err_of(err));
    if (!status) status = submit(r, lp_err_of(err));
    if (status) {
        lp_engine_trace_rejected(engine, r->id, options->n_tokens);
        lp_request_destroy(r);
        return lp_public(status);
    }
    *out = r;
    return LIMPID_OK;
}

// ---- events

struct lp_event *lp_event_new(const limpid_event *event) {
    size_t n_top = (size_t)event->n_top;
    size_t stop_len = event->stop_text ? strlen(event->stop_text) + 1 : 0;
    struct lp_event *e =
        lp_alloc(1, sizeof *e + n_top * (sizeof *event->top_ids + sizeof *event->top_logprobs) +
                        event->text_len + 1 + stop_len);
    if (!e) return NULL;
    e->event = *event;
    int32_t *ids = (int32_t *)(e + 1);
    float *logprobs = (float *)(ids + n_top);
    char *text = (char *)(logprobs + n_top);
    if (n_top) {
        memcpy(ids, event->top_ids, n_top * sizeof *ids);
        memcpy(logprobs, event->top_logprobs, n_top * sizeof *logprobs);
    }
    if (event->text_len) memcpy(text, event->text, event->text_len);
    if (stop_len) memcpy(text + event->text_len + 1, event->stop_text, stop_len);
    e->event.top_ids = ids;
    e->event.top_logprobs = logprobs;
    e->event.text = text;
    e->event.stop_text = stop_len ? text + event->text_len + 1 : NULL;
    return e;
}

static void tell(limpid_request *r) { // under lock
    pthread_cond_broadcast(&r->changed);
    if (r->options.on_event && !r->freed) r->options.on_event(r->options.user);
}

void lp_request_push(limpid_request *r, struct lp_event *event) {
    pthread_mutex_lock(&r->engine->lock);
    if (event->event.kind == LIMPID_EVENT_DONE) event->event.last = --r->n_open == 0;
    *(r->last ? &r->last->next : &r->first) = event;
    r->last = event;
    tell(r);
    pthread_mutex_unlock(&r->engine->lock);
}

void lp_request_fail(limpid_request *r, const struct lp_err *err) {
    if (err->status == LP_STATUS_TIMEOUT)
        lp_log(LP_LOG_WARN, "a request ends: %s", err->text);
    else if (err->status != LP_STATUS_CANCELLED)
        lp_log(LP_LOG_ERROR, "a request fails: %s", err->text);
    pthread_mutex_lock(&r->engine->lock);
    if (!r->failed) r->failure = *err;
    r->failed = true;
    tell(r);
    pthread_mutex_unlock(&r->engine->lock);
}

// Under lock. False: nothing is there yet.
static bool take_event(limpid_request *r, limpid_event *event, lp_status *status,
                       struct lp_err *err) {
    *status = LP_OK;
    if (r->first) {
        lp_free(r->current);
        r->current = r->first;
        r->first = r->current->next;
        if (!r->first) r->last = NULL;
        *event = r->current->event;
        return true;
    }
    if (r->failed) {
        if (err) *err = r->failure;
        *status = r->failure.status;
        return true;
    }
    if (r->n_open == 0) {
        *status = lp_err_set(err, LP_STATUS_INVALID, "the request has ended; no event will come");
        return true;
    }
    if (r->cancelled) {
        *status = lp_err_set(err, LP_STATUS_CANCELLED, "the request was cancelled");
        return true;
    }
    return false;
}

static struct timespec in_ms(int64_t ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

limpid_status limpid_request_poll(limpid_request *r, limpid_event *event, int64_t timeout_ms,
                                  limpid_error *err) {
    limpid_engine *e = r->engine;
    struct timespec until = in_ms(timeout_ms > 0 ? timeout_ms : 0);
    lp_status status;
    bool timed_out = timeout_ms <= 0;
    pthread_mutex_lock(&e->lock);
    while (!take_event(r, event, &status, lp_err_of(err))) {
        if (timed_out) {
            *event =
                (limpid_event){.kind = LIMPID_EVENT_NONE, .text = "", .token = -1, .stop_id = -1};
            break;
        }
        timed_out = pthread_cond_timedwait(&r->changed, &e->lock, &until) != 0;
    }
    pthread_mutex_unlock(&e->lock);
    return lp_public(status);
}

limpid_status limpid_request_next(limpid_request *r, limpid_event *event, limpid_error *err) {
    limpid_engine *e = r->engine;
    lp_status status;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        bool got = take_event(r, event, &status, lp_err_of(err));
        bool has_thread = e->has_thread;
        if (!got && has_thread) {
            struct timespec until = in_ms(200); // the thread may be stopped meanwhile
            pthread_cond_timedwait(&r->changed, &e->lock, &until);
        }
        pthread_mutex_unlock(&e->lock);
        if (got) return lp_public(status);
        if (has_thread) continue;
        lp_engine_take_turn(e);
        // Somebody else's step may have brought it.
        pthread_mutex_lock(&e->lock);
        bool waits = !r->first && !r->failed;
        pthread_mutex_unlock(&e->lock);
        if (waits) lp_engine_make_step(e);
        lp_engine_give_turn(e);
    }
}

void limpid_request_cancel(limpid_request *r) {
    limpid_engine *e = r->engine;
    pthread_mutex_lock(&e->lock);
    r->cancelled = true;
    e->any_cancelled = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

void limpid_request_free(limpid_request *r) {
    if (!r) return;
    limpid_engine *e = r->engine;
    pthread_mutex_lock(&e->lock);
    bool has_thread = e->has_thread, in_engine = r->in_engine;
    r->freed = true;
    r->cancelled = true;
    e->any_cancelled = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    if (!in_engine) {
        lp_request_destroy(r);
    } else if (!has_thread) { // nobody may ever make a step again
        lp_engine_take_turn(e);
        lp_engine_sweep(e);
        lp_engine_give_turn(e);
    }
}
