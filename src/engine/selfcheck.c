// The self-check of an engine: the same prompt, whole, in chunks, behind a cached prefix, beside
// another sequence and token by token, must give the same logits for its last token. Run before a
// model is served, so that a fault of the cache, of a route or of a kernel is found by the operator
// and not in somebody's answer.
//
// First in the deterministic formulation, where every way must agree bit for bit: that is the
// machinery of pages, chunks and batches. Then each form of attention against it, where rounding
// differs and a bound holds: the relative root mean square difference of the logits.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "engine/engine.h"

#define MAX_PROMPT 80 // over a page's border
#define MIN_PROMPT 6
#define TIME_NS 700000000u // what the check may take, where the model allows it
#define N_RUNS 6           // prompts that are run, about
#define MAX_DIFFERENCE                                                                             \
    0.15 // relative; a swapped head, a wrong position or a lost key give 0.3 and more

struct check {
    limpid_engine *e;
    struct lp_step_settings settings;
    int32_t *tokens; // [n + 1]
    int64_t n;
    float *expected, *got; // [n_vocab]
    bool beside;           // another sequence fitted into the step
    double worst;          // relative difference among the routes
    struct lp_err *err;
};

static lp_status step(struct check *c, struct lp_span *spans, int32_t n_spans,
                      const int32_t *tokens, int64_t n_rows, float *logits) {
    int32_t row = (int32_t)(n_rows - 1);
    struct lp_step s = {.tokens = tokens,
                        .spans = spans,
                        .n_spans = n_spans,
                        .n_rows = n_rows,
                        .logit_rows = &row,
                        .n_logit_rows = 1,
                        .logits = logits};
    return lp_runner_step(c->e->runner, &s, &c->settings, c->err);
}

// tokens[from .. n) in chunks of at most `chunk` behind what the table holds.
static lp_status run(struct check *c, struct lp_page_table *table, int64_t from, int64_t chunk,
                     float *logits) {
    lp_status status = lp_engine_grow(c->e, table, c->n, c->err);
    if (chunk > c->e->max_batch_tokens) chunk = c->e->max_batch_tokens;
    for (int64_t at = from, n; at < c->n && !status; at += n) {
        n = c->n - at < chunk ? c->n - at : chunk;
        struct lp_span span = {.pages = table, .n_past = at, .n_rows = n};
        status = step(c, &span, 1, c->tokens + at, n, logits);
    }
    return status;
}

static double difference(const struct check *c) {
    double sum = 0, all = 0;
    int64_t n_vocab = c->e->model->weights->h.n_vocab;
    for (int64_t i = 0; i < n_vocab; i++) {
        double d = (double)c->got[i] - c->expected[i];
        sum += d * d;
        all += (double)c->expected[i] * c->expected[i];
    }
    return all > 0 ? sqrt(sum / all) : sqrt(sum);
}

static lp_status compare(struct check *c, const char *what, bool bits) {
    size_t n_bytes = (size_t)c->e->model->weights->h.n_vocab * sizeof(float);
    if (bits && memcmp(c->expected, c->got, n_bytes) == 0) return LP_OK;
    double d = difference(c);
    if (!bits && d > c->worst) c->worst = d;
    if (!bits && d <= MAX_DIFFERENCE) return LP_OK;
    return lp_err_set(c->err, LP_STATUS_NUMERIC,
                      "self-check: a prompt of %lld tokens %s gives other logits than whole "
                      "(relative difference %.3g, bound %g); this build or this model file is at "
                      "fault: try --backend ref, --kv f32, --cpu avx2",
                      (long long)c->n, what, d, bits ? 0.0 : MAX_DIFFERENCE);
}

// A run on an empty table, compared.
static lp_status check_run(struct check *c, int64_t chunk, const char *what, bool bits) {
    struct lp_page_table table = {0};
    lp_status status = run(c, &table, 0, chunk, c->got);
    lp_page_table_release(&table, c->e->kv);
    return status ? status : compare(c, what, bits);
}

// Beside another sequence in the same steps.
static lp_status check_beside(struct check *c) {
    struct lp_page_table tables[2] = {{0}, {0}};
    int32_t *tokens = lp_alloc(2 * (size_t)c->n, sizeof *tokens);
    if (!tokens) return lp_err_memory(c->err, 8 * (size_t)c->n, "the self-check");
    int64_t n_other = (c->n + 1) / 2;
    c->beside = n_other + c->n <= c->e->max_batch_tokens;
    for (int64_t i = 0; i < n_other; i++) tokens[i] = c->tokens[c->n - 1 - i];
    memcpy(tokens + n_other, c->tokens, (size_t)c->n * sizeof *tokens);
    lp_status status = lp_engine_grow(c->e, &tables[0], n_other, c->err);
    if (!status) status = lp_engine_grow(c->e, &tables[1], c->n, c->err);
    struct lp_span spans[2] = {{.pages = &tables[0], .n_rows = n_other},
                               {.pages = &tables[1], .first_row = n_other, .n_rows = c->n}};
    if (!status && c->beside) {
        status = step(c, spans, 2, tokens, n_other + c->n, c->got);
        if (!status) status = compare(c, "beside another sequence", true);
    }
    for (int i = 0; i < 2; i++) lp_page_table_release(&tables[i], c->e->kv);
    lp_free(tokens);
    return status;
}

// Behind a prefix that the tree holds: of all but one token, and of one that ends within a page.
static lp_status check_cached(struct check *c) {
    struct lp_page_table source = {0}, table = {0};
    struct lp_prefix_match match;
    int64_t lengths[] = {c->n - 1, c->n / 2};
    lp_status status = run(c, &source, 0, c->n, c->got);
    if (!status) lp_prefix_insert(c->e->prefix, &source, c->tokens, c->n, true, false);
    for (int i = 0; i < 2 && !status; i++) {
        status =
            lp_prefix_attach(c->e->prefix, &table, c->tokens, lengths[i], false, &match, c->err);
        if (!status) status = run(c, &table, match.n_tokens, c->n, c->got);
        if (!status) status = compare(c, "behind a cached prefix", true);
        lp_page_table_release(&table, c->e->kv);
    }
    lp_page_table_release(&source, c->e->kv);
    lp_prefix_forget(c->e->prefix, c->tokens, c->n);
    return status;
}

static lp_status check_exact(struct check *c) {
    struct lp_page_table table = {0};
    c->settings.deterministic = true;
    lp_status status = run(c, &table, 0, c->n, c->expected);
    lp_page_table_release(&table, c->e->kv);
    if (!status) status = check_run(c, c->n > 14 ? 7 : (c->n + 1) / 2, "in chunks", true);
    if (!status) status = check_beside(c);
    if (!status) status = check_cached(c);
    return status ? status : check_run(c, 1, "token by token", true);
}

// The formulations that the engine's own settings may take, against the last exact run.
static lp_status check_routes(struct check *c) {
    const struct lp_hparams *h = &c->e->model->weights->h;
    c->settings = c->e->settings;
    c->settings.trace = NULL;
    c->settings.clock = NULL;
    if (c->settings.deterministic || h->arch->attention != LP_ATTENTION_MLA) return LP_OK;
    lp_status status = check_run(c, c->n, "by the routes of these settings", false);
    if (status || c->settings.force == LP_ROUTE_ABSORBED) return status;
    c->settings.force = LP_ROUTE_EXPANDED;
    return check_run(c, c->n, "by the expanded route", false);
}

// Random ids that may be generated; how many depends on how long one token takes.
static lp_status choose_prompt(struct check *c) {
    const limpid_model *m = c->e->model;
    struct lp_page_table table = {0};
    struct lp_rng rng;
    int64_t n_vocab = m->weights->h.n_vocab;
    lp_rng_init(&rng, 20);
    for (int64_t i = 0; i < MAX_PROMPT; i++) {
        int64_t id = (int64_t)(lp_rng_u64(&rng) % (uint64_t)n_vocab);
        while (m->never[id]) id = (id + 1) % n_vocab;
        c->tokens[i] = (int32_t)id;
    }
    c->n = 1;
    lp_status status = run(c, &table, 0, 1, c->got); // the first touch of the weights is not timed
    uint64_t start = lp_clock_ns();
    if (!status) status = run(c, &table, 0, 1, c->got);
    uint64_t token_ns = lp_clock_ns() - start + 1;
    lp_page_table_release(&table, c->e->kv);
    int64_t most = MAX_PROMPT < c->e->n_context ? MAX_PROMPT : c->e->n_context;
    c->n = (int64_t)(TIME_NS / token_ns / N_RUNS);
    if (c->n < MIN_PROMPT) c->n = MIN_PROMPT;
    if (c->n > most) c->n = most;
    return status;
}

limpid_status limpid_engine_self_check(limpid_engine *e, char **report, limpid_error *err) {
    size_t n_vocab = (size_t)e->model->weights->h.n_vocab;
    struct check c = {.e = e,
                      .settings = e->settings,
                      .tokens = lp_alloc(MAX_PROMPT, sizeof *c.tokens),
                      .expected = lp_alloc(n_vocab, sizeof *c.expected),
                      .got = lp_alloc(n_vocab, sizeof *c.got),
                      .err = lp_err_of(err)};
    lp_status status = c.tokens && c.expected && c.got
                           ? LP_OK
                           : lp_err_memory(c.err, 2 * n_vocab * sizeof(float), "the self-check");
    c.settings.trace = NULL;
    c.settings.clock = NULL;
    uint64_t start = lp_clock_ns();
    lp_engine_take_turn(e);
    uint64_t next_step = lp_runner_next_step(e->runner);
    struct lp_route_counts routes = lp_runner_route_counts(e->runner);
    if (!status) status = choose_prompt(&c);
    if (!status) status = check_exact(&c);
    if (!status) status = check_routes(&c);
    lp_runner_set_counts(e->runner, next_step, routes);
    lp_engine_give_turn(e);
    if (!status && report) {
        char text[256];
        snprintf(
            text, sizeof text,
            "%lld tokens whole, in chunks,%s behind cached prefixes and one by one agree bit for "
            "bit; routes differ by at most %.2g (bound %g); %.2f s",
            (long long)c.n, c.beside ? " beside others," : "", c.worst, MAX_DIFFERENCE,
            (double)(lp_clock_ns() - start) * 1e-9);
        if (!(*report = lp_strdup(text))) status = lp_err_memory(c.err, sizeof text, "a report");
    }
    lp_free(c.tokens);
    lp_free(c.expected);
    lp_free(c.got);
    return lp_public(status);
}
