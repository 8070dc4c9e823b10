#include "serve/openai.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "serve/choice.h"
#include "serve/json_out.h"
#include "serve/request_id.h"
#include "serve/sse.h"

struct lp_answer {
    struct lp_completion completion;
    struct lp_generation generation;
    struct lp_choice *choices; // [completion.n_choices]
    char id[8 + LP_RANDOM_ID_HEX];
    int64_t created;
    struct lp_bytes first; // of a stream: was made before the head was sent
    bool ended;            // after first
};

void lp_reply_release(struct lp_reply *reply) {
    lp_bytes_release(&reply->body);
    lp_answer_free(reply->stream);
    *reply = (struct lp_reply){0};
}

// Takes the reference. Without memory the reply is a bare status.
static void set_json(struct lp_reply *reply, int status, json_t *body) {
    lp_reply_release(reply);
    reply->status = status;
    if (body && lp_json_dump(&reply->body, body)) lp_bytes_puts(&reply->body, "\n");
    if (!body || reply->body.failed) {
        lp_bytes_release(&reply->body);
        if (status < 400) reply->status = 500;
    }
    json_decref(body);
}

void lp_openai_error(struct lp_reply *reply, const struct lp_api_error *err) {
    set_json(reply, err->http, lp_api_error_json(err));
    reply->retry_after_s = err->retry_after_s;
}

void lp_openai_health(struct lp_service *service, bool live, struct lp_reply *reply) {
    double age_s;
    enum lp_health health = lp_service_health(service, &age_s);
    if (health == LP_HEALTH_STALLED)
        set_json(reply, 503,
                 json_pack("{s:s, s:f}", "status", "stalled", "last_step_age_s", age_s));
    else if (health == LP_HEALTH_DRAINING && !live)
        set_json(reply, 503, json_pack("{s:s}", "status", "draining"));
    else
        set_json(reply, 200, json_pack("{s:s}", "status", "ok"));
}

static json_t *model_json(const struct lp_service *s) {
    return json_pack("{s:o, s:s, s:I, s:s, s:I}", "id", lp_json_text(lp_str_from(s->model_id)),
                     "object", "model", "created", (json_int_t)s->created, "owned_by", "limpid",
                     "max_model_len", (json_int_t)limpid_engine_context(s->engine));
}

void lp_openai_models(const struct lp_service *s, const char *id, struct lp_reply *reply) {
    if (!id) {
        set_json(reply, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(s)));
    } else if (strcmp(id, s->model_id) == 0) {
        set_json(reply, 200, model_json(s));
    } else {
        struct lp_api_error err;
        lp_api_fail(&err, 404, "model_not_found",
                    "the model '%.200s' does not exist; this server has '%.200s'", id, s->model_id);
        lp_openai_error(reply, &err);
    }
}

// ---- the parts of an answer ----

static json_t *usage_json(const struct lp_generation *g) {
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)g->n_prompt_tokens,
                     "completion_tokens", (json_int_t)g->n_generated, "total_tokens",
                     (json_int_t)(g->n_prompt_tokens + g->n_generated), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)g->n_cached);
}

// choices and usage are taken over; usage NULL: no such member
static json_t *completion_json(const struct lp_answer *a, json_t *choices, json_t *usage) {
    json_t *out =
        json_pack("{s:s, s:s, s:I, s:o, s:o}", "id", a->id, "object", "text_completion", "created",
                  (json_int_t)a->created, "model",
                  lp_json_text(lp_str_from(a->completion.service->model_id)), "choices", choices);
    if (!usage) return out;
    if (!out)
        json_decref(usage);
    else
        json_object_set_new(out, "usage", usage);
    return out;
}

// The prompt is computed once, and shown by each of its choices.
static bool add_event(struct lp_answer *a, const limpid_event *event, size_t choice) {
    size_t n = event->kind == LIMPID_EVENT_PROMPT ? (size_t)a->completion.params.n : 1;
    for (size_t i = 0; i < n; i++)
        if (!lp_choice_add(&a->choices[choice + i], &a->completion, event)) return false;
    return true;
}

// The next piece of a choice that is worth sending (streaming), or the next whole choice. *out NULL:
// nothing came for wait_ms. False with the error filled.
static bool next_piece(struct lp_answer *a, bool streaming, int64_t wait_ms, json_t **out,
                       size_t *choice, struct lp_api_error *err) {
    limpid_event event;
    *out = NULL;
    for (;;) {
        if (!lp_generation_next(&a->generation, wait_ms, &event, choice, err)) return false;
        if (event.kind == LIMPID_EVENT_NONE) return true;
        if (!add_event(a, &event, *choice)) return lp_api_out_of_memory(err);
        if (event.kind == LIMPID_EVENT_DONE || (streaming && event.kind == LIMPID_EVENT_TOKEN &&
                                                lp_choice_has_news(&a->choices[*choice])))
            break;
    }
    *out = lp_choice_take(&a->choices[*choice], &event);
    return *out ? true : lp_api_out_of_memory(err);
}

// ---- whole ----

// They end in any order and are listed by index.
static bool gather(struct lp_answer *a, json_t **done, struct lp_api_error *err) {
    size_t choice;
    json_t *one;
    while (!lp_generation_ended(&a->generation)) {
        if (!next_piece(a, false, -1, &one, &choice, err)) return false;
        done[choice] = one;
    }
    return true;
}

static bool whole_answer(struct lp_answer *a, struct lp_reply *reply, struct lp_api_error *err) {
    size_t n = a->completion.n_choices;
    json_t *choices = json_array(), **done = lp_alloc(n, sizeof(json_t *));
    bool ok = choices && done ? gather(a, done, err) : lp_api_out_of_memory(err);
    for (size_t i = 0; ok && i < n; i++) {
        ok = json_array_append(choices, done[i]) == 0;
        if (!ok) lp_api_out_of_memory(err);
    }
    if (ok)
        set_json(reply, 200, completion_json(a, json_incref(choices), usage_json(&a->generation)));
    for (size_t i = 0; done && i < n; i++) json_decref(done[i]);
    json_decref(choices);
    lp_free(done);
    return ok;
}

// ---- streams ----

// Appends one event, or a comment; after the last choice also the usage, if asked for, and the end
// mark.
static bool stream_event(struct lp_answer *a, struct lp_bytes *out, struct lp_api_error *err) {
    int64_t keepalive_ms = a->completion.service->keepalive_ms;
    json_t *one;
    size_t choice;
    if (!next_piece(a, true, keepalive_ms > 0 ? keepalive_ms : -1, &one, &choice, err))
        return false;
    if (!one) return lp_sse_comment(out, "keep-alive") ? true : lp_api_out_of_memory(err);
    bool want_usage = a->completion.params.include_usage;
    json_t *event = completion_json(a, json_pack("[o]", one), want_usage ? json_null() : NULL);
    bool ok = event && lp_sse_event(out, event);
    json_decref(event);
    if (ok && lp_generation_ended(&a->generation)) {
        event = want_usage ? completion_json(a, json_array(), usage_json(&a->generation)) : NULL;
        ok = (!want_usage || (event && lp_sse_event(out, event))) && lp_sse_done(out);
        json_decref(event);
    }
    return ok ? true : lp_api_out_of_memory(err);
}

// The head is out, so the error is an event, and the last.
static void stream_error(struct lp_bytes *out, const struct lp_api_error *err) {
    json_t *event = lp_api_error_json(err);
    if (event) lp_sse_event(out, event);
    json_decref(event);
}

static void note_failure(const struct lp_answer *a) {
    a->generation.access->finish = a->generation.dropped ? "cancelled" : "error";
}

bool lp_answer_next(struct lp_answer *a, struct lp_bytes *out) {
    struct lp_api_error err;
    if (a->first.len) {
        lp_bytes_append(out, a->first.data, a->first.len);
        lp_bytes_release(&a->first);
        return !a->ended;
    }
    if (!stream_event(a, out, &err)) {
        note_failure(a);
        lp_generation_end(&a->generation);
        if (a->generation.dropped) return false;
        lp_log(LP_LOG_WARN, "a stream ends early: %s", err.message);
        stream_error(out, &err);
        return false;
    }
    return !lp_generation_ended(&a->generation);
}

// The first event is made here, so that what fails at once has its own HTTP status. But the head
// does not wait longer than a stream may be silent.
static bool begin_stream(struct lp_answer *a, struct lp_reply *reply, struct lp_api_error *err) {
    if (!stream_event(a, &a->first, err)) return false;
    a->ended = lp_generation_ended(&a->generation);
    reply->status = 200;
    reply->stream = a;
    return true;
}

// ---- from admission to end ----

void lp_answer_free(struct lp_answer *a) {
    if (!a) return;
    if (!lp_generation_ended(&a->generation)) a->generation.access->finish = "cancelled";
    lp_generation_end(&a->generation);
    for (size_t i = 0; a->choices && i < a->completion.n_choices; i++)
        lp_choice_release(&a->choices[i]);
    lp_free(a->choices);
    atomic_fetch_sub(&a->completion.service->n_answers, 1);
    lp_completion_release(&a->completion);
    lp_bytes_release(&a->first);
    lp_free(a);
}

static bool parse(struct lp_service *service, struct lp_completion_params *params, const char *body,
                  size_t n_bytes, struct lp_api_error *err) {
    pthread_mutex_lock(&service->parse_lock);
    bool ok = lp_completion_params_parse(params, body, n_bytes,
                                         limpid_engine_context(service->engine), err);
    pthread_mutex_unlock(&service->parse_lock);
    return ok;
}

static bool check_open(struct lp_service *service, struct lp_api_error *err) {
    switch (lp_service_health(service, NULL)) {
    case LP_HEALTH_OK:
        return true;
    case LP_HEALTH_DRAINING:
        break;
    case LP_HEALTH_STALLED:
        return lp_api_fail(err, 503, "engine_stalled",
                           "the engine makes no steps; the server is stalled");
    }
    return lp_api_fail(err, 503, NULL, "the server is stopping; ask again when it is back");
}

static bool set_up(struct lp_answer *a, struct lp_completion_params *params,
                   const struct lp_client *client, struct lp_access *access,
                   struct lp_api_error *err) {
    struct lp_completion *c = &a->completion;
    if (!lp_completion_admit(c, c->service, params, err)) return false;
    a->choices = lp_alloc(c->n_choices, sizeof *a->choices);
    if (!a->choices) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < c->n_choices; i++) a->choices[i].index = i;
    access->generates = true;
    access->stream = c->params.stream;
    return lp_generation_submit(&a->generation, c, client, access, err);
}

struct lp_answer *lp_openai_admit(struct lp_service *service, const struct lp_client *client,
                                  struct lp_access *access, const char *body, size_t n_bytes,
                                  struct lp_reply *reply) {
    struct lp_answer *a = lp_alloc(1, sizeof *a);
    struct lp_completion_params params = {0};
    struct lp_api_error err;
    bool ok = a ? true : lp_api_out_of_memory(&err);
    if (ok) {
        a->completion.service = service;
        a->created = (int64_t)time(NULL);
        strcpy(a->id, "cmpl-");
        lp_random_id(a->id + 5);
        atomic_fetch_add(&service->n_answers, 1); // first, so that a drain misses nobody
        ok = check_open(service, &err) && parse(service, &params, body, n_bytes, &err) &&
             set_up(a, &params, client, access, &err);
    }
    if (!ok) {
        if (access->generates) access->finish = "error";
        if (a) lp_generation_end(&a->generation);
        lp_openai_error(reply, &err);
        lp_answer_free(a);
        a = NULL;
    }
    lp_completion_params_release(&params);
    return a;
}

void lp_openai_answer(struct lp_answer *a, struct lp_reply *reply) {
    struct lp_api_error err;
    bool streams = a->completion.params.stream;
    if (streams ? begin_stream(a, reply, &err) : whole_answer(a, reply, &err)) {
        if (!streams) lp_answer_free(a);
        return;
    }
    note_failure(a);
    if (a->generation.dropped)
        reply->status = 0;
    else
        lp_openai_error(reply, &err);
    lp_answer_free(a);
}
