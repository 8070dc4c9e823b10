// A request from its options to its last event, timed.
#include "cli/generator.h"

#include <string.h>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "cli/peak_memory.h"

static void add(struct lp_generated *total, const struct lp_generated *one) {
    total->prefill_ns += one->prefill_ns;
    total->decode_ns += one->decode_ns;
    total->n_prompt += one->n_prompt;
    total->n_cached += one->n_cached;
    total->n_generated += one->n_generated;
    total->n_decode += one->n_decode;
    total->n_drafted += one->n_drafted;
    total->n_accepted += one->n_accepted;
}

static limpid_request_options request_options(const struct lp_generator *g, const int32_t *ids,
                                              size_t n_ids) {
    limpid_request_options o = limpid_request_default_options();
    o.tokens = ids;
    o.n_tokens = n_ids;
    lp_sampling_apply(&g->sampling, limpid_engine_context(g->engine) - (int64_t)n_ids, &o);
    o.ignore_eos = g->ignore_eos;
    o.stop = g->stop ? (const char *const *)&g->stop : NULL;
    o.n_stop = g->stop ? 1 : 0;
    o.grammar_kind = g->grammar_kind;
    o.grammar = g->grammar;
    o.grammar_len = g->grammar_len;
    o.grammar_after = g->grammar_after;
    o.shown_ids = g->shown_ids;
    o.n_shown_ids = g->n_shown_ids;
    o.is_gone = lp_interrupted; // a long prompt is left behind the step that runs
    return o;
}

// last: the last event that came, all zero if none did; n_tokens: that came.
static void count(struct lp_generator *g, const limpid_event *last, int64_t n_tokens,
                  uint64_t start, uint64_t first) {
    uint64_t end = lp_clock_ns();
    g->last = (struct lp_generated){.prefill_ns = (first ? first : end) - start,
                                    .decode_ns = first ? end - first : 0,
                                    .n_prompt = last->n_prompt,
                                    .n_cached = last->n_cached,
                                    .n_generated = n_tokens,
                                    .n_drafted = last->n_drafted,
                                    .n_accepted = last->n_accepted};
    if (last->kind == LIMPID_EVENT_DONE) g->last.n_generated = last->n_generated;
    if (g->last.n_generated > 0) g->last.n_decode = g->last.n_generated - 1;
    add(&g->total, &g->last);
}

static int follow(struct lp_generator *g, limpid_request *request, lp_generator_sink sink,
                  void *user) {
    limpid_error err;
    limpid_event event, last = {0};
    uint64_t start = lp_clock_ns(), first = 0;
    int64_t n_tokens = 0;
    int status = LP_EXIT_OK;
    g->ending = LP_ENDED_INTERRUPT;
    while (!lp_interrupted(NULL)) {
        limpid_status failed = limpid_request_next(request, &event, &err);
        if (failed) {
            if (failed != LIMPID_CANCELLED || !lp_interrupted(NULL)) status = lp_fail(&err);
            break;
        }
        last = event;
        if (event.kind == LIMPID_EVENT_TOKEN) n_tokens++;
        if (!first) first = lp_clock_ns();
        if (!sink(user, event.text, event.text_len)) break;
        if (event.kind != LIMPID_EVENT_DONE) continue;
        bool cut = event.finish_reason && strcmp(event.finish_reason, "length") == 0;
        g->ending = cut ? LP_ENDED_LENGTH : LP_ENDED_STOP;
        break;
    }
    count(g, &last, n_tokens, start, first);
    return status;
}

int lp_generator_run(struct lp_generator *g, const char *text, size_t n_bytes, unsigned flags,
                     lp_generator_sink sink, void *user) {
    limpid_error err;
    limpid_request *request;
    int32_t *ids;
    size_t n_ids;
    if (limpid_tokenize(g->model, text, n_bytes, flags, &ids, &n_ids, &err)) return lp_fail(&err);
    limpid_request_options options = request_options(g, ids, n_ids);
    limpid_status failed = limpid_request_new(&request, g->engine, &options, &err);
    limpid_free(ids);
    if (failed) return lp_fail(&err);
    int status = follow(g, request, sink, user);
    limpid_request_free(request);
    return status;
}

static double rate(int64_t n, double seconds) {
    return seconds > 0 ? (double)n / seconds : 0;
}

static void print_experts(limpid_engine_stats s, FILE *to) {
    uint64_t n = s.expert_hits + s.expert_ahead + s.expert_misses;
    if (!s.expert_slots || !n) return;
    fprintf(to,
            "experts %.1f%% in memory, %.1f%% read ahead, of %llu needed; %llu read from disk "
            "(%.1f MB), %.3f s waited\n",
            100 * (double)s.expert_hits / (double)n, 100 * (double)s.expert_ahead / (double)n,
            (unsigned long long)n, (unsigned long long)s.expert_reads,
            (double)s.expert_read_bytes * 1e-6, s.expert_wait_s);
}

void lp_generator_print_stats(const struct lp_generator *g, FILE *to) {
    const struct lp_generated *t = &g->total;
    double prefill_s = (double)t->prefill_ns * 1e-9, decode_s = (double)t->decode_ns * 1e-9;
    long long n_prefill = (long long)(t->n_prompt - t->n_cached);
    fprintf(to,
            "load    %.3f s\n"
            "prefill %lld tokens in %.3f s: %.1f tokens/s\n"
            "decode  %lld tokens in %.3f s: %.1f tokens/s\n"
            "memory  %.1f MB peak (file %.1f MB, KV cache %.1f MB, step buffers %.1f MB)\n",
            (double)g->load_ns * 1e-9, n_prefill, prefill_s, rate(n_prefill, prefill_s),
            (long long)t->n_decode, decode_s, rate(t->n_decode, decode_s),
            (double)lp_peak_memory() * 1e-6,
            (double)limpid_model_get_info(g->model).file_bytes * 1e-6,
            (double)limpid_engine_kv_bytes(g->engine) * 1e-6,
            (double)limpid_engine_scratch_bytes(g->engine) * 1e-6);
    print_experts(limpid_engine_get_stats(g->engine), to);
    if (g->speculate)
        fprintf(to, "drafts  %lld of %lld accepted\n", (long long)t->n_accepted,
                (long long)t->n_drafted);
    if (g->sampling.temperature > 0) fprintf(to, "seed    %lld\n", (long long)g->sampling.seed);
}
