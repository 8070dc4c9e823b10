#include "serve/answer.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/engine_view.h"
#include "serve/json_out.h"

// ---- replies ----

void lp_http_reply_release(struct lp_http_reply *reply) {
    lp_bytes_release(&reply->body);
    lp_answer_free(reply->stream);
    *reply = (struct lp_http_reply){0};
}

void lp_http_reply_json(struct lp_http_reply *reply, int status, json_t *body) {
    lp_http_reply_release(reply);
    reply->status = status;
    if (!body || !lp_json_dump(&reply->body, body) || !lp_bytes_puts(&reply->body, "\n")) {
        lp_bytes_release(&reply->body);
        if (status < 400) reply->status = 500;
    }
    json_decref(body);
}

void lp_http_reply_error(struct lp_http_reply *reply, json_t *(*form)(const struct lp_api_error *),
                         const struct lp_api_error *err) {
    lp_http_reply_json(reply, err->http, form(err));
    reply->retry_after_s = err->retry_after_s;
}

// ---- whole ----

// Takes up the next event. Nothing may have come (*some false).
static bool next_event(struct lp_answer *a, int64_t wait_ms, struct lp_bytes *out, bool *some,
                       struct lp_api_error *err) {
    limpid_event event;
    size_t choice;
    if (!lp_generation_next(&a->generation, wait_ms, &event, &choice, err)) return false;
    *some = event.kind != LIMPID_EVENT_NONE;
    if (*some && !a->format->event(a, &event, choice, out)) return lp_api_out_of_memory(err);
    return true;
}

static bool whole_answer(struct lp_answer *a, struct lp_http_reply *reply,
                         struct lp_api_error *err) {
    bool some;
    while (!lp_generation_ended(&a->generation))
        if (!next_event(a, -1, NULL, &some, err)) return false;
    json_t *body = a->format->whole(a);
    if (!body) return lp_api_out_of_memory(err);
    lp_http_reply_json(reply, 200, body);
    return true;
}

// ---- streams ----

// How long to wait for the next event: there may be many that nothing is sent for.
static int64_t wait_ms(const struct lp_answer *a, uint64_t since_ns) {
    int64_t limit = a->service->keepalive_ms;
    if (limit <= 0) return -1;
    int64_t waited = (int64_t)((lp_clock_ns() - since_ns) / 1000000u);
    return waited < limit ? limit - waited : 0;
}

// Appends what comes next, which may be a sign of life; behind the last event also the stream's
// end.
static bool stream_events(struct lp_answer *a, struct lp_bytes *out, struct lp_api_error *err) {
    uint64_t since = lp_clock_ns();
    while (out->len == 0) {
        bool some, ok = true;
        int64_t wait = wait_ms(a, since);
        if (!next_event(a, wait, out, &some, err)) return false;
        if (some && lp_generation_ended(&a->generation))
            ok = a->format->end(a, out);
        else if (out->len == 0 && (!some || wait == 0))
            ok = a->format->keep_alive(a, out);
        if (!ok || out->failed) return lp_api_out_of_memory(err);
    }
    return true;
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
    if (!stream_events(a, out, &err)) {
        note_failure(a);
        lp_generation_end(&a->generation);
        if (a->generation.dropped) return false;
        lp_log(LP_LOG_WARN, "a stream ends early: %s", err.message);
        a->format->stream_error(a, &err, out);
        return false;
    }
    return !lp_generation_ended(&a->generation);
}

// The first event is made here, so that what fails at once has its own HTTP status. But the head
// does not wait longer than a stream may be silent.
static bool begin_stream(struct lp_answer *a, struct lp_http_reply *reply,
                         struct lp_api_error *err) {
    if (!stream_events(a, &a->first, err)) return false;
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
    a->format->release(a);
    atomic_fetch_sub(&a->service->n_answers, 1);
    lp_completion_release(&a->completion);
    lp_bytes_release(&a->first);
    lp_free(a);
}

static bool check_open(struct lp_service *service, struct lp_api_error *err) {
    switch (lp_service_health(service, NULL)) {
    case LP_HEALTH_OK:
        return true;
    case LP_HEALTH_DRAINING:
        break;
    case LP_HEALTH_FAILED:
        return lp_api_fail(err, 503, "engine_failed",
                           "the device that runs the model has failed; restart the server");
    case LP_HEALTH_STALLED:
        return lp_api_fail(err, 503, "engine_stalled",
                           "the engine makes no steps; the server is stalled");
    }
    return lp_api_fail(err, 503, NULL, "the server is stopping; ask again when it is back");
}

static bool parse_body(struct lp_answer *a, lp_answer_parse parse, const char *body, size_t n_bytes,
                       struct lp_api_error *err) {
    lp_tree_room_take(&a->service->trees, n_bytes);
    bool ok = parse(a, body, n_bytes, err);
    lp_tree_room_give(&a->service->trees, n_bytes);
    return ok;
}

struct lp_answer *lp_answer_admit(struct lp_service *service, const struct lp_format *format,
                                  lp_answer_parse parse, const struct lp_client *client,
                                  struct lp_access *access, const char *body, size_t n_bytes,
                                  struct lp_http_reply *reply) {
    struct lp_answer *a = lp_alloc(1, sizeof *a);
    struct lp_api_error err;
    bool ok = a ? true : lp_api_out_of_memory(&err);
    if (ok) {
        *a = (struct lp_answer){
            .format = format, .service = service, .created = (int64_t)time(NULL)};
        atomic_fetch_add(&service->n_answers, 1); // first, so that a drain misses nobody
        ok = check_open(service, &err) && parse_body(a, parse, body, n_bytes, &err);
    }
    if (ok) {
        access->generates = true;
        access->stream = a->completion.params.stream;
        lp_last_prompt_keep(service, &a->completion, access->id);
        ok = lp_generation_submit(&a->generation, &a->completion, client, access, &err);
    }
    if (ok) return a;
    if (access->generates) access->finish = "error";
    if (a) lp_generation_end(&a->generation);
    lp_http_reply_error(reply, format->error, &err);
    lp_answer_free(a);
    return NULL;
}

void lp_answer_run(struct lp_answer *a, struct lp_http_reply *reply) {
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
        lp_http_reply_error(reply, a->format->error, &err);
    lp_answer_free(a);
}
