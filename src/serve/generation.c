#include "serve/generation.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"

#define LOOK_EVERY_NS 200000000u   // at client and server, while nothing comes
#define HEALTH_EVERY_NS 400000000u // at the engine
#define GRACE_NS 2000000000u       // for the engine to end what is over its time by itself

// ---- from the engine's thread ----

static bool is_gone(void *user) {
    const struct lp_generation *g = user;
    return g->client.gone(g->client.user);
}

static void on_event(void *user) {
    struct lp_generation *g = user;
    pthread_mutex_lock(&g->lock);
    g->n_news++;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

// ---- submit ----

// llama-server's, where a request names none.
static const char *const usual_breakers[] = {"\n", ":", "\"", "*"};
#define N_USUAL_BREAKERS (sizeof usual_breakers / sizeof usual_breakers[0])

static bool init_lock(struct lp_generation *g, struct lp_api_error *err) {
    pthread_condattr_t attr;
    if (pthread_mutex_init(&g->lock, NULL)) return lp_api_out_of_memory(err);
    if (pthread_condattr_init(&attr) == 0) {
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        g->has_lock = pthread_cond_init(&g->changed, &attr) == 0;
        pthread_condattr_destroy(&attr);
    }
    if (g->has_lock) return true;
    pthread_mutex_destroy(&g->lock);
    return lp_api_out_of_memory(err);
}

static limpid_request_options options_of(struct lp_generation *g, size_t prompt) {
    const struct lp_completion *c = g->completion;
    const struct lp_completion_prompt *p = &c->prompts[prompt];
    const struct lp_completion_params *s = &c->params;
    int64_t room = limpid_engine_context(c->service->engine) - (int64_t)p->n_ids;
    limpid_request_options o = limpid_request_default_options();
    o.tokens = p->ids;
    o.n_tokens = p->n_ids;
    o.max_tokens = s->max_tokens < room ? s->max_tokens : room; // ends as "length", like max_tokens
    o.n = (int32_t)s->n;
    o.bias_ids = s->bias_ids;
    o.bias = s->bias;
    o.n_bias = s->n_bias;
    o.repetition_penalty = (float)s->repetition_penalty;
    o.presence_penalty = (float)s->presence_penalty;
    o.frequency_penalty = (float)s->frequency_penalty;
    o.dry_multiplier = (float)s->dry_multiplier;
    o.dry_base = (float)s->dry_base;
    o.dry_allowed_length = (int32_t)s->dry_allowed_length;
    o.dry_breakers = s->has_breakers ? (const char *const *)s->breakers : usual_breakers;
    o.n_dry_breakers = s->has_breakers ? s->n_breakers : N_USUAL_BREAKERS;
    o.min_tokens = s->min_tokens < o.max_tokens ? s->min_tokens : o.max_tokens;
    o.top_k = (int32_t)s->top_k;
    o.typical_p = (float)s->typical_p;
    o.top_p = (float)s->top_p;
    o.min_p = (float)s->min_p;
    o.temperature = (float)s->temperature;
    o.seed = c->seed;
    o.stop = (const char *const *)s->stop;
    o.n_stop = s->n_stop;
    o.stop_ids = s->stop_ids;
    o.n_stop_ids = s->n_stop_ids;
    o.ignore_eos = s->ignore_eos;
    o.skip_special = s->skip_special_tokens;
    o.shown_ids = s->shown_ids;
    o.n_shown_ids = s->n_shown_ids;
    o.grammar_kind = s->grammar_kind;
    o.grammar = s->grammar;
    o.grammar_len = s->n_grammar;
    o.grammar_after = s->grammar_after;
    o.n_logprobs = (int32_t)s->logprobs;
    o.prompt_logprobs = s->echo && s->logprobs >= 0;
    o.priority = (int32_t)s->priority;
    o.timeout_ms = c->service->timeout_ms;
    o.id = g->access->id;
    o.is_gone = is_gone;
    o.on_event = on_event;
    o.user = g;
    return o;
}

// What is wrong with a grammar is said of the field that asked for it, limits of its size included.
static bool fail_submit(const struct lp_generation *g, const limpid_error *e,
                        struct lp_api_error *err) {
    const struct lp_completion_params *p = &g->completion->params;
    lp_api_from_limpid(err, e);
    bool of_grammar = e->status == LIMPID_INVALID || e->status == LIMPID_UNSUPPORTED;
    if (p->grammar_kind && of_grammar && !err->param[0])
        snprintf(err->param, sizeof err->param, "%s", p->grammar_param);
    return false;
}

bool lp_generation_submit(struct lp_generation *g, const struct lp_completion *completion,
                          const struct lp_client *client, struct lp_access *access,
                          struct lp_api_error *err) {
    limpid_error e;
    const struct lp_service *service = completion->service;
    size_t n = completion->params.n_prompts;
    uint64_t now = lp_clock_ns();
    g->completion = completion;
    g->client = *client;
    g->access = access;
    g->look_ns = now + HEALTH_EVERY_NS;
    if (service->timeout_ms > 0)
        g->deadline_ns = now + (uint64_t)service->timeout_ms * 1000000u + GRACE_NS;
    g->requests = lp_alloc(n, sizeof *g->requests);
    if (!g->requests) return lp_api_out_of_memory(err);
    if (!init_lock(g, err)) return false;
    for (size_t i = 0; i < n; i++) access->prompt_tokens += (int64_t)completion->prompts[i].n_ids;
    for (size_t i = 0; i < n; i++) {
        limpid_request_options o = options_of(g, i);
        if (limpid_request_new(&g->requests[i], service->engine, &o, &e)) {
            g->requests[i] = NULL;
            return fail_submit(g, &e, err);
        }
        g->n_open++;
    }
    g->at = n - 1; // the first look is at the first
    return true;
}

// ---- events ----

static bool fail_stalled(struct lp_api_error *err, double age_s) {
    return lp_api_fail(err, 503, "engine_stalled",
                       "the engine has made no step for %.3g s; the server is stalled", age_s);
}

// Whoever waits must not wait for an engine that hangs: it looks itself.
static bool still_wanted(struct lp_generation *g, struct lp_api_error *err) {
    struct lp_service *service = g->completion->service;
    uint64_t now = lp_clock_ns();
    double age_s;
    if (atomic_load(&service->stopping))
        return lp_api_fail(err, 503, NULL, "the server is stopping; ask again when it is back");
    if (is_gone(g)) {
        g->dropped = true;
        return lp_api_fail(err, 499, NULL, "the client has closed the connection");
    }
    if (g->deadline_ns && now > g->deadline_ns)
        return lp_api_fail(err, 504, "request_timeout", "the request took longer than %.3g s",
                           (double)service->timeout_ms / 1000);
    if (now < g->look_ns) return true;
    g->look_ns = now + HEALTH_EVERY_NS;
    return lp_service_health(service, &age_s) != LP_HEALTH_STALLED || fail_stalled(err, age_s);
}

static void note(struct lp_generation *g, const limpid_event *event) {
    if ((event->kind == LIMPID_EVENT_TOKEN || event->kind == LIMPID_EVENT_DONE) &&
        !g->access->first_token_ns)
        g->access->first_token_ns = lp_clock_ns();
    if (event->kind == LIMPID_EVENT_TOKEN) g->access->completion_tokens++;
    if (event->kind != LIMPID_EVENT_DONE) return;
    g->access->finish = event->finish_reason[0] == 's' ? "stop" : "length"; // outlives the event
    g->n_generated += event->n_generated;
    if (event->choice > 0) return;
    g->n_prompt_tokens += event->n_prompt;
    g->n_cached += event->n_cached;
    g->access->cached_tokens += event->n_cached;
}

// Looks once at each request, from the one behind the last event on, so that none is forgotten.
static bool look(struct lp_generation *g, limpid_event *event, size_t *choice,
                 struct lp_api_error *err) {
    limpid_error e;
    size_t n = g->completion->params.n_prompts;
    for (size_t i = 0; i < n; i++) {
        size_t at = (g->at + 1 + i) % n;
        if (!g->requests[at]) continue;
        if (limpid_request_poll(g->requests[at], event, 0, &e)) {
            if (e.status == LIMPID_CANCELLED && !still_wanted(g, err)) return false;
            return lp_api_from_limpid(err, &e);
        }
        if (event->kind == LIMPID_EVENT_NONE) continue;
        note(g, event);
        g->at = at;
        *choice = at * (size_t)g->completion->params.n + (size_t)event->choice;
        return true;
    }
    event->kind = LIMPID_EVENT_NONE;
    return true;
}

static uint64_t news(struct lp_generation *g) {
    pthread_mutex_lock(&g->lock);
    uint64_t n = g->n_news;
    pthread_mutex_unlock(&g->lock);
    return n;
}

static void wait_for_news(struct lp_generation *g, uint64_t seen, uint64_t until_ns) {
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    pthread_mutex_lock(&g->lock);
    while (g->n_news == seen && pthread_cond_timedwait(&g->changed, &g->lock, &until) == 0) {
    }
    pthread_mutex_unlock(&g->lock);
}

// Its last event points into it, so it is freed with the next call.
static void set_aside(struct lp_generation *g) {
    g->ended = g->requests[g->at];
    g->requests[g->at] = NULL;
    g->n_open--;
}

static void free_ended(struct lp_generation *g) {
    limpid_request_free(g->ended);
    g->ended = NULL;
}

bool lp_generation_next(struct lp_generation *g, int64_t wait_ms, limpid_event *event,
                        size_t *choice, struct lp_api_error *err) {
    free_ended(g);
    uint64_t until = wait_ms < 0 ? UINT64_MAX : lp_clock_ns() + (uint64_t)wait_ms * 1000000u;
    for (;;) {
        uint64_t seen = news(g), now;
        if (!still_wanted(g, err) || !look(g, event, choice, err)) return false;
        if (event->kind != LIMPID_EVENT_NONE) break;
        if ((now = lp_clock_ns()) >= until) break;
        wait_for_news(g, seen, until - now < LOOK_EVERY_NS ? until : now + LOOK_EVERY_NS);
    }
    if (event->kind == LIMPID_EVENT_DONE && event->last) set_aside(g);
    return true;
}

void lp_generation_end(struct lp_generation *g) {
    free_ended(g);
    for (size_t i = 0; g->requests && i < g->completion->params.n_prompts; i++)
        limpid_request_free(g->requests[i]);
    lp_free(g->requests);
    g->requests = NULL;
    g->n_open = 0;
    if (!g->has_lock) return;
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    g->has_lock = false;
}
