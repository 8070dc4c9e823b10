// Requests through the scheduler: the same one alone, again with its prefix cached, and among
// others in a cache too small for all, so that sequences are pre-empted. Tokens and
// log-probabilities must be the same, bit for bit.
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/check_cache.h"

#define N_ANSWER 6
#define N_CROWD 4 // requests at a time

struct answer {
    int32_t ids[N_ANSWER];
    float logprobs[N_ANSWER];
    int32_t n;
    int64_t n_cached;
};

static limpid_request_options options_of(const int32_t *tokens, int64_t n) {
    limpid_request_options o = limpid_request_default_options();
    o.tokens = tokens;
    o.n_tokens = (size_t)n;
    o.max_tokens = N_ANSWER;
    o.temperature = 0;
    o.ignore_eos = true;
    o.n_logprobs = 0;
    return o;
}

// Makes steps until the request is done.
static lp_status collect(struct answer *out, limpid_request *request, limpid_error *err) {
    limpid_event event = {0};
    limpid_status status = LIMPID_OK;
    *out = (struct answer){0};
    do {
        status = limpid_request_next(request, &event, err);
        if (status) break;
        if (event.kind == LIMPID_EVENT_TOKEN && out->n < N_ANSWER) {
            out->ids[out->n] = event.token;
            out->logprobs[out->n++] = event.logprob;
        }
        if (event.kind == LIMPID_EVENT_DONE) out->n_cached = event.n_cached;
    } while (event.kind != LIMPID_EVENT_DONE);
    return (lp_status)status;
}

// The prompt first of `n` requests, which run together; the others read it from another token on.
static lp_status ask(struct answer *out, struct lp_cache_exam *c, limpid_engine *e, int32_t n,
                     limpid_error *err) {
    limpid_request *requests[N_CROWD] = {NULL};
    limpid_status status = LIMPID_OK;
    for (int32_t i = n; i-- > 0 && !status;) { // the others come first, to be in the way
        limpid_request_options o = options_of(c->prompt + i, c->n);
        status = limpid_request_new(&requests[i], e, &o, err);
    }
    if (!status) status = (limpid_status)collect(out, requests[0], err);
    for (int32_t i = 0; i < n; i++) limpid_request_free(requests[i]);
    return (lp_status)status;
}

static bool same_answer(const struct answer *a, const struct answer *b) {
    size_t n = (size_t)a->n;
    return a->n == b->n && memcmp(a->ids, b->ids, n * sizeof *a->ids) == 0 &&
           memcmp(a->logprobs, b->logprobs, n * sizeof *a->logprobs) == 0;
}

static void compare(struct lp_cache_exam *c, const struct answer *alone, const struct answer *got,
                    const char *check, const char *what, const char *how) {
    char text[200];
    int32_t at = 0;
    snprintf(text, sizeof text, "%s: %d tokens with their log-probabilities", how, alone->n);
    if (same_answer(alone, got)) {
        lp_cache_ok(c, check, text);
        return;
    }
    while (at < alone->n && at < got->n && alone->ids[at] == got->ids[at] &&
           memcmp(&alone->logprobs[at], &got->logprobs[at], sizeof(float)) == 0)
        at++;
    snprintf(text, sizeof text,
             "the same request gives another answer %s, from token %d of the "
             "answer on",
             how, at);
    lp_cache_accuse(c,
                    &(struct lp_cache_fault){check, what, "another answer", -1, text,
                                             "Run with --no-prefix-cache or one request at a time, "
                                             "and report this."});
}

// A request ends in an error: as a rule non-finite numbers, with their layer.
static void accuse_failure(struct lp_cache_exam *c, const limpid_error *why) {
    char text[600];
    snprintf(text, sizeof text, "a request for %d tokens fails: %.500s", N_ANSWER, why->text);
    lp_cache_accuse(c,
                    &(struct lp_cache_fault){"requests", "request", limpid_status_name(why->status),
                                             -1, text, "Try --backend ref, and report this."});
}

static lp_status make_engine(limpid_engine **out, struct lp_cache_exam *c, limpid_error *err) {
    limpid_engine_options o = limpid_engine_default_options();
    o.n_context = c->n + N_ANSWER + N_CROWD;
    if (o.n_context > c->model.weights->h.n_context) o.n_context = c->model.weights->h.n_context;
    o.n_kv_tokens = o.n_context; // far too few for all requests of a crowd
    o.chunk = 32;
    o.max_seqs = N_CROWD;
    o.max_batch_tokens = 48;
    o.deterministic = true;
    return (lp_status)limpid_engine_new(out, &c->model, &o, err);
}

lp_status lp_cache_check_requests(struct lp_cache_exam *c, struct lp_err *err) {
    struct answer alone, again, among;
    limpid_engine *e = NULL;
    limpid_error why = {0};
    int64_t whole = c->n;
    if (!c->model.tokenizer) {
        lp_report_say(c->exam->report, LP_STAGE_CACHE, LP_CHECK_SKIPPED, "requests",
                      "there is no tokenizer to make requests with");
        return LP_OK;
    }
    if (c->accused) { // and what is wrong may do anything in a crowd
        lp_report_say(c->exam->report, LP_STAGE_CACHE, LP_CHECK_SKIPPED, "requests",
                      "the engine's ways differ before any request");
        return LP_OK;
    }
    if (!lp_cache_has_time(c, "requests")) return LP_OK;
    if (c->n + N_ANSWER + N_CROWD > c->model.weights->h.n_context)
        c->n = c->model.weights->h.n_context - N_ANSWER - N_CROWD;
    lp_status status = make_engine(&e, c, &why);
    if (!status) status = ask(&alone, c, e, 1, &why);
    if (!status) status = ask(&again, c, e, 1, &why);
    if (!status)
        compare(c, &alone, &again, "requests: again", "prefix cache",
                "when it comes again and its prefix is cached");
    if (!status) status = ask(&among, c, e, N_CROWD, &why);
    bool preempted = e && limpid_engine_get_stats(e).preemptions > 0;
    if (!status)
        compare(c, &alone, &among, "requests: among others", preempted ? "pre-emption" : "batching",
                preempted
                    ? "among others in a cache too small for all, where sequences are pre-empted"
                    : "among others");
    limpid_engine_free(e, NULL);
    c->n = whole;
    if (status == LP_STATUS_MEMORY) return lp_err_set(err, status, "%s", why.text);
    if (status) accuse_failure(c, &why);
    return LP_OK;
}
