#include "serve/openai.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/choice.h"
#include "serve/json_out.h"
#include "serve/sse.h"

// One answer: the choices in order, each as it is written, and what all its parts have in common.
struct answer {
    struct lp_completion completion;
    struct lp_choice choice;
    char id[40];
    int64_t created;
};

struct lp_stream {
    struct answer answer;
    struct lp_bytes first; // was made before the head was sent
    bool ended;            // after first
};

void lp_reply_release(struct lp_reply *reply) {
    lp_bytes_release(&reply->body);
    lp_stream_free(reply->stream);
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
}

void lp_openai_health(struct lp_reply *reply) {
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

static void new_id(char id[40]) {
    unsigned char random[12];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        uint64_t now = lp_clock_ns();
        memset(random, 0, sizeof random);
        memcpy(random, &now, sizeof now);
    }
    size_t n = (size_t)sprintf(id, "cmpl-");
    for (size_t i = 0; i < sizeof random; i++) n += (size_t)sprintf(id + n, "%02x", random[i]);
}

static json_t *usage_json(const struct lp_completion *c) {
    return json_pack("{s:I, s:I, s:I, s:{s:i}}", "prompt_tokens", (json_int_t)c->n_prompt_tokens,
                     "completion_tokens", (json_int_t)c->n_generated, "total_tokens",
                     (json_int_t)(c->n_prompt_tokens + c->n_generated), "prompt_tokens_details",
                     "cached_tokens", 0);
}

// choices and usage are taken over; usage NULL: no such member
static json_t *completion_json(const struct answer *a, json_t *choices, json_t *usage) {
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

// The next piece of the answer that is worth sending (streaming), or the next whole choice.
// NULL: the error is filled.
static json_t *next_choice(struct answer *a, bool streaming, struct lp_api_error *err) {
    limpid_event event = {.kind = LIMPID_EVENT_PROMPT};
    do {
        bool ok = lp_choice_start(&a->choice, &a->completion);
        if (ok && !lp_completion_next(&a->completion, &event, err)) return NULL;
        if (!ok || !lp_choice_add(&a->choice, &a->completion, &event)) {
            lp_api_out_of_memory(err);
            return NULL;
        }
    } while (event.kind != LIMPID_EVENT_DONE &&
             (!streaming || event.kind == LIMPID_EVENT_PROMPT || !lp_choice_has_news(&a->choice)));
    json_t *out = lp_choice_take(&a->choice, &event);
    if (!out) lp_api_out_of_memory(err);
    return out;
}

static bool whole_answer(struct answer *a, struct lp_reply *reply, struct lp_api_error *err) {
    json_t *choices = json_array(), *one;
    bool ok = choices != NULL;
    if (!ok) lp_api_out_of_memory(err);
    while (ok && !lp_completion_ended(&a->completion)) {
        one = next_choice(a, false, err);
        ok = one && json_array_append_new(choices, one) == 0;
        if (one && !ok) lp_api_out_of_memory(err);
    }
    lp_completion_end(&a->completion); // the next in line need not wait for this client to read
    if (ok)
        set_json(reply, 200, completion_json(a, choices, usage_json(&a->completion)));
    else
        json_decref(choices);
    return ok;
}

// Appends one event; after the last choice also the usage, if asked for, and the end mark.
static bool stream_event(struct answer *a, struct lp_bytes *out, struct lp_api_error *err) {
    json_t *one = next_choice(a, true, err);
    if (!one) return false;
    bool want_usage = a->completion.params.include_usage;
    json_t *event = completion_json(a, json_pack("[o]", one), want_usage ? json_null() : NULL);
    bool ok = event && lp_sse_event(out, event);
    json_decref(event);
    if (ok && lp_completion_ended(&a->completion)) {
        lp_completion_end(&a->completion);
        event = want_usage ? completion_json(a, json_array(), usage_json(&a->completion)) : NULL;
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

bool lp_stream_next(struct lp_stream *s, struct lp_bytes *out) {
    struct lp_api_error err;
    if (s->first.len) {
        lp_bytes_append(out, s->first.data, s->first.len);
        lp_bytes_release(&s->first);
        return !s->ended;
    }
    if (!stream_event(&s->answer, out, &err)) {
        lp_log(LP_LOG_WARN, "a stream ends early: %s", err.message);
        lp_completion_end(&s->answer.completion);
        if (!s->answer.completion.dropped) stream_error(out, &err);
        return false;
    }
    return !lp_completion_ended(&s->answer.completion);
}

static void answer_release(struct answer *a) {
    lp_completion_release(&a->completion);
    lp_choice_release(&a->choice);
}

void lp_stream_free(struct lp_stream *s) {
    if (!s) return;
    answer_release(&s->answer);
    lp_bytes_release(&s->first);
    lp_free(s);
}

// Takes the answer over. The first event is made here, so that what fails at once has its own HTTP
// status.
static bool begin_stream(struct answer *a, struct lp_reply *reply, struct lp_api_error *err) {
    struct lp_stream *s = lp_alloc(1, sizeof *s);
    if (!s) return lp_api_out_of_memory(err);
    s->answer = *a;
    memset(a, 0, sizeof *a);
    if (!stream_event(&s->answer, &s->first, err)) {
        *a = s->answer;
        memset(&s->answer, 0, sizeof s->answer);
        lp_stream_free(s);
        return false;
    }
    s->ended = lp_completion_ended(&s->answer.completion);
    reply->status = 200;
    reply->stream = s;
    return true;
}

static bool parse(struct lp_service *service, struct lp_completion_params *params, const char *body,
                  size_t n_bytes, struct lp_api_error *err) {
    pthread_mutex_lock(&service->parse_lock);
    bool ok = lp_completion_params_parse(params, body, n_bytes, err);
    pthread_mutex_unlock(&service->parse_lock);
    return ok;
}

void lp_openai_completions(struct lp_service *service, const struct lp_client *client,
                           const char *body, size_t n_bytes, struct lp_reply *reply) {
    struct answer a = {.created = (int64_t)time(NULL)};
    struct lp_completion_params params;
    struct lp_api_error err;
    new_id(a.id);
    bool ok = parse(service, &params, body, n_bytes, &err) &&
              lp_completion_admit(&a.completion, service, client, &params, &err) &&
              lp_completion_take_turn(&a.completion, &err);
    if (ok)
        ok = a.completion.params.stream ? begin_stream(&a, reply, &err)
                                        : whole_answer(&a, reply, &err);
    if (!ok && a.completion.dropped)
        reply->status = 0;
    else if (!ok)
        lp_openai_error(reply, &err);
    if (a.completion.service) answer_release(&a);
    lp_completion_params_release(&params);
}
