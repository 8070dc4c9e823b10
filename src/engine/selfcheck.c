// The self-check of an engine: the same prompt, whole, in chunks, behind a cached prefix, beside
// another sequence and token by token, must leave the same state in the cache and give the same
// logits for its last token. Run before a model is served, so that a fault of the cache, of a route
// or of a kernel is found by the operator and not in somebody's answer.
//
// All of it in the deterministic formulation, where every way must agree bit for bit: that is the
// machinery of pages, chunks and batches. The state is compared too, since the prompt is shorter than
// an indexer's top-k: lost indexer keys change no logits yet. Pages are cleared before each way, or
// what an earlier one left behind would stand in for what this one loses. The other form of attention
// is compared within the same steps, layer by layer (selfcheck_routes.h). Where ranks have sequences of their own,
// each part of the cache is checked, and must leave and give what the first does.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "engine/selfcheck_routes.h"
#include "model/cache_state.h"

#define MAX_PROMPT 144 // three pages: a table grows past two of them
#define MIN_PROMPT 6
#define TIME_NS 600000000u // what the check may take, where the model allows it
#define N_RUNS 6           // prompts that are run, about
#define CHUNK 23           // no divisor of a page
#define N_SINGLE 16        // tokens that are run one by one
#define BATCH 16           // tokens whose time is measured, where one is quick
#define QUICK_NS 10000000u

struct check {
    limpid_engine *e;
    struct lp_step_settings settings;
    int32_t *tokens; // [n]
    int32_t *other;  // [n]: begins with the first n_alike of them
    int64_t n, n_alike;
    int32_t part;                // of the cache, that is being checked
    float *expected, *got;       // [n_vocab]
    struct lp_cache_state state; // of the prompt whole
    struct lp_route_check routes;
    bool compares_routes; // in the steps that run
    bool beside;          // another sequence fitted into the step
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
    c->routes.span = c->compares_routes ? spans : NULL;
    return lp_runner_step(c->e->runner, &s, &c->settings, c->err);
}

// tokens[from .. to) in chunks of at most `chunk` behind what the table holds, which grows with them.
static lp_status run(struct check *c, struct lp_page_table *table, const int32_t *tokens,
                     int64_t from, int64_t to, int64_t chunk) {
    lp_status status = LP_OK;
    if (chunk > c->e->max_batch_tokens) chunk = c->e->max_batch_tokens;
    for (int64_t at = from, n; at < to && !status; at += n) {
        n = to - at < chunk ? to - at : chunk;
        struct lp_span span = {.pages = table, .n_past = at, .n_rows = n};
        status = lp_engine_grow(c->e, table, at + n, c->err);
        if (!status) status = step(c, &span, 1, tokens + at, n, c->got);
    }
    return status;
}

// As run, and the form of attention that the steps do not take is compared with them.
static lp_status run_routes(struct check *c, struct lp_page_table *table, int64_t chunk) {
    c->compares_routes = c->part == 0; // of what is computed here
    lp_status status = run(c, table, c->tokens, 0, c->n, chunk);
    c->compares_routes = false;
    return status;
}

// Clears the pages that the next way may take.
static lp_status clear_pages(struct check *c) {
    struct lp_page_table table = {.part = c->part};
    size_t page_bytes = lp_kv_page_bytes(c->e->kv);
    int64_t n = 2 * lp_kv_pages_of(c->n);
    void *zeros = lp_alloc(1, page_bytes);
    if (!zeros) return lp_err_memory(c->err, page_bytes, "the self-check");
    const int64_t n_free = lp_kv_n_free_in(c->e->kv, c->part);
    if (n > n_free) n = n_free;
    lp_status status = lp_page_table_grow(&table, c->e->kv, n * LP_KV_PAGE_TOKENS, c->err);
    for (int64_t i = 0; i < table.n_pages; i++) lp_kv_page_write(c->e->kv, table.pages[i], zeros);
    lp_page_table_release(&table, c->e->kv);
    lp_free(zeros);
    return status;
}

// ---- what must be the same

static lp_status differs(struct check *c, const char *what, const char *how) {
    return lp_err_set(c->err, LP_STATUS_NUMERIC,
                      "self-check: a prompt of %lld tokens %s %s than whole; this build or this "
                      "model file is at fault: try --backend ref, --kv f32, --cpu avx2",
                      (long long)c->n, what, how);
}

static lp_status compare_logits(struct check *c, const char *what) {
    size_t n_vocab = (size_t)c->e->model->weights->h.n_vocab;
    double sum = 0, all = 0;
    char how[96];
    if (memcmp(c->expected, c->got, n_vocab * sizeof(float)) == 0) return LP_OK;
    for (size_t i = 0; i < n_vocab; i++) {
        double d = (double)c->got[i] - c->expected[i];
        sum += d * d;
        all += (double)c->expected[i] * c->expected[i];
    }
    snprintf(how, sizeof how, "gives other logits (relative difference %.3g)",
             sqrt(all > 0 ? sum / all : sum));
    return differs(c, what, how);
}

static lp_status compare_state(struct check *c, const struct lp_page_table *table,
                               const char *what) {
    struct lp_cache_state state;
    char place[160], how[224];
    lp_status status = lp_cache_state_read(&state, c->e->kv, table, c->n, c->err);
    if (status) return status;
    struct lp_cache_difference d = lp_cache_state_compare(&c->state, &state, c->e->model->weights,
                                                          lp_kv_type(c->e->kv), 0, c->n);
    lp_cache_state_release(&state);
    if (d.layer < 0) return LP_OK;
    lp_cache_difference_text(place, sizeof place, &d);
    snprintf(how, sizeof how, "leaves other state in the cache (%s)", place);
    return differs(c, what, how);
}

static lp_status compare(struct check *c, const struct lp_page_table *table, const char *what) {
    lp_status status = compare_state(c, table, what);
    return status ? status : compare_logits(c, what);
}

// ---- the ways

static lp_status check_chunks(struct check *c) {
    struct lp_page_table table = {.part = c->part};
    lp_status status = clear_pages(c);
    if (!status) status = run_routes(c, &table, c->n > 2 * CHUNK ? CHUNK : (c->n + 1) / 2);
    if (!status) status = compare(c, &table, "in chunks");
    lp_page_table_release(&table, c->e->kv);
    return status;
}

// Beside another sequence in the same step.
static lp_status check_beside(struct check *c) {
    struct lp_page_table tables[2] = {{.part = c->part}, {.part = c->part}};
    int64_t n_other = (c->n + 1) / 2;
    c->beside = n_other + c->n <= c->e->max_batch_tokens;
    if (!c->beside) return LP_OK;
    int32_t *tokens = lp_alloc(2 * (size_t)c->n, sizeof *tokens);
    if (!tokens) return lp_err_memory(c->err, 8 * (size_t)c->n, "the self-check");
    for (int64_t i = 0; i < n_other; i++) tokens[i] = c->tokens[c->n - 1 - i];
    memcpy(tokens + n_other, c->tokens, (size_t)c->n * sizeof *tokens);
    lp_status status = clear_pages(c);
    // As many pages as ours: should a step read these in their place, they are there.
    if (!status) status = lp_engine_grow(c->e, &tables[0], c->n, c->err);
    if (!status) status = lp_engine_grow(c->e, &tables[1], c->n, c->err);
    struct lp_span spans[2] = {{.pages = &tables[0], .n_rows = n_other},
                               {.pages = &tables[1], .first_row = n_other, .n_rows = c->n}};
    if (!status) status = step(c, spans, 2, tokens, n_other + c->n, c->got);
    if (!status) status = compare(c, &tables[1], "beside another sequence");
    for (int i = 0; i < 2; i++) lp_page_table_release(&tables[i], c->e->kv);
    lp_free(tokens);
    return status;
}

// Behind the part of another prompt that begins alike, which ends within a page.
static lp_status check_cached(struct check *c) {
    struct lp_page_table source = {.part = c->part}, table = {.part = c->part};
    struct lp_prefix_match match;
    if (c->n_alike < 1) return LP_OK;
    lp_status status = clear_pages(c);
    if (!status) status = run(c, &source, c->other, 0, c->n, c->n);
    if (!status) lp_prefix_insert(c->e->prefix, &source, c->other, c->n, true, false);
    lp_page_table_release(&source, c->e->kv);
    if (!status)
        status = lp_prefix_attach(c->e->prefix, &table, c->tokens, c->n - 1, false, &match, c->err);
    if (!status) status = run(c, &table, c->tokens, match.n_tokens, c->n, c->n);
    if (!status) status = compare(c, &table, "behind a cached prefix");
    lp_page_table_release(&table, c->e->kv);
    lp_prefix_forget(c->e->prefix, c->other, c->n);
    return status;
}

// Behind all but one of its tokens.
static lp_status check_repeated(struct check *c, const struct lp_page_table *whole) {
    struct lp_page_table table = {.part = c->part};
    struct lp_prefix_match match;
    lp_status status = clear_pages(c);
    lp_prefix_insert(c->e->prefix, whole, c->tokens, c->n, true, false);
    if (!status)
        status = lp_prefix_attach(c->e->prefix, &table, c->tokens, c->n - 1, false, &match, c->err);
    if (!status) status = run(c, &table, c->tokens, match.n_tokens, c->n, c->n);
    if (!status) status = compare(c, &table, "asked for again");
    lp_page_table_release(&table, c->e->kv);
    lp_prefix_forget(c->e->prefix, c->tokens, c->n);
    return status;
}

// Pages written and read as those of --cache-dir are.
static lp_status check_disk(struct check *c, const struct lp_page_table *whole) {
    struct lp_page_table table = {.part = c->part};
    if (!c->e->store) return LP_OK;
    void *payload = lp_alloc(1, lp_kv_page_bytes(c->e->kv));
    if (!payload) return lp_err_memory(c->err, lp_kv_page_bytes(c->e->kv), "the self-check");
    lp_status status = clear_pages(c);
    if (!status) status = lp_engine_grow(c->e, &table, c->n, c->err);
    for (int64_t i = 0; i < table.n_pages; i++) {
        if (!lp_kv_page_read(c->e->kv, whole->pages[i], payload)) break;
        lp_kv_page_write(c->e->kv, table.pages[i], payload);
    }
    if (!status) status = compare_state(c, &table, "back from --cache-dir");
    lp_page_table_release(&table, c->e->kv);
    lp_free(payload);
    return status;
}

static lp_status check_singles(struct check *c) {
    struct lp_page_table table = {.part = c->part};
    int64_t n_single = c->n - 1 < N_SINGLE ? c->n - 1 : N_SINGLE;
    lp_status status = clear_pages(c);
    if (!status) status = run(c, &table, c->tokens, 0, c->n - n_single, c->n);
    if (!status) status = run(c, &table, c->tokens, c->n - n_single, c->n, 1);
    if (!status) status = compare(c, &table, "token by token");
    lp_page_table_release(&table, c->e->kv);
    return status;
}

static lp_status check_ways(struct check *c) {
    struct lp_page_table whole = {.part = c->part};
    size_t n_vocab = (size_t)c->e->model->weights->h.n_vocab;
    lp_status status = clear_pages(c);
    if (!status) status = run_routes(c, &whole, c->n);
    if (!status && c->part > 0) status = compare(c, &whole, "on another rank");
    if (!status && c->part == 0) {
        memcpy(c->expected, c->got, n_vocab * sizeof *c->got);
        status = lp_cache_state_read(&c->state, c->e->kv, &whole, c->n, c->err);
    }
    if (!status) status = check_disk(c, &whole);
    if (!status) status = check_repeated(c, &whole);
    lp_page_table_release(&whole, c->e->kv);
    if (!status) status = check_chunks(c);
    if (!status) status = check_beside(c);
    if (!status) status = check_cached(c);
    return status ? status : check_singles(c);
}

// After the ways: a fault of the cache has its own message.
static lp_status check_routes(const struct check *c) {
    if (c->routes.worst <= LP_ROUTE_CHECK_BOUND) return LP_OK;
    return lp_err_set(c->err, LP_STATUS_NUMERIC,
                      "self-check: attention by the expanded route gives other values than by the "
                      "absorbed one, from the same input (relative difference %.3g on layer %d, "
                      "bound %g); this build or this model file is at fault: try --backend ref, "
                      "--route absorbed, --cpu avx2",
                      c->routes.worst, c->routes.layer, LP_ROUTE_CHECK_BOUND);
}

// ---- the prompt

static int32_t next_allowed(const limpid_model *m, int64_t id) {
    int64_t n_vocab = m->weights->h.n_vocab;
    do id = (id + 1) % n_vocab;
    while (m->never[id]);
    return (int32_t)id;
}

// Random ids that may be generated.
static void draw_tokens(struct check *c) {
    const limpid_model *m = c->e->model;
    struct lp_rng rng;
    lp_rng_init(&rng, 20);
    for (int64_t i = 0; i < MAX_PROMPT; i++)
        c->tokens[i] =
            next_allowed(m, (int64_t)(lp_rng_u64(&rng) % (uint64_t)m->weights->h.n_vocab));
}

static void draw_other(struct check *c) {
    c->n_alike = c->n / 2;
    if (c->n_alike % LP_KV_PAGE_TOKENS == 0) c->n_alike--; // inside a page
    for (int64_t i = 0; i < c->n; i++)
        c->other[i] = i < c->n_alike ? c->tokens[i] : next_allowed(c->e->model, c->tokens[i]);
}

// Time that this process has worked, per thread.
static uint64_t work_ns(const limpid_model *m) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) /
           (uint64_t)(m->n_threads > 0 ? m->n_threads : 1);
}

// The time per token of the quickest of three runs of n tokens. What else the machine does only makes
// it longer, so the work counts where that is less, and nothing is read from disk meanwhile.
static lp_status measure(struct check *c, int64_t n, uint64_t *token_ns) {
    lp_status status = LP_OK;
    for (int i = 0; i < 3 && !status; i++) {
        struct lp_page_table table = {.part = c->part};
        uint64_t start = lp_clock_ns(), began = work_ns(c->e->model);
        status = run(c, &table, c->tokens, 0, n, n);
        uint64_t wall = lp_clock_ns() - start, work = work_ns(c->e->model) - began;
        bool works = work < wall && !c->e->model->weights->expert_cache;
        uint64_t ns = (works ? work : wall) / (uint64_t)n + 1;
        if (ns < *token_ns) *token_ns = ns;
        lp_page_table_release(&table, c->e->kv);
        if (ns > QUICK_NS && i > 0) break; // the first run touches the weights first
    }
    return status;
}

// How long the prompt is depends on how long a token takes, if it need not be full.
static lp_status choose_prompt(struct check *c, bool full) {
    lp_status status = LP_OK;
    uint64_t token_ns = full ? 1 : UINT64_MAX;
    int64_t n_pages = lp_kv_part_pages(c->e->kv), most = MAX_PROMPT;
    if (most > c->e->n_context) most = c->e->n_context;
    if (most > n_pages / 2 * LP_KV_PAGE_TOKENS) most = n_pages / 2 * LP_KV_PAGE_TOKENS;
    draw_tokens(c);
    if (!full) status = measure(c, 1, &token_ns);
    if (!status && !full && token_ns < QUICK_NS && most >= BATCH)
        status = measure(c, BATCH, &token_ns);
    c->n = (int64_t)(TIME_NS / token_ns / N_RUNS) / lp_kv_n_parts(c->e->kv);
    if (c->n < MIN_PROMPT) c->n = MIN_PROMPT;
    if (c->n > most) c->n = most;
    draw_other(c);
    return status;
}

static lp_status init(struct check *c, limpid_engine *e, struct lp_err *err) {
    size_t n_vocab = (size_t)e->model->weights->h.n_vocab;
    *c = (struct check){.e = e,
                        .settings = e->settings,
                        .tokens = lp_alloc(MAX_PROMPT, sizeof *c->tokens),
                        .other = lp_alloc(MAX_PROMPT, sizeof *c->other),
                        .expected = lp_alloc(n_vocab, sizeof *c->expected),
                        .got = lp_alloc(n_vocab, sizeof *c->got),
                        .err = err};
    c->settings.trace = NULL;
    c->settings.clock = NULL;
    c->settings.deterministic = true;
    if (!c->tokens || !c->other || !c->expected || !c->got)
        return lp_err_memory(err, 2 * n_vocab * sizeof(float), "the self-check");
    return lp_route_check_init(&c->routes, e, &c->settings, MAX_PROMPT, err);
}

static void release(struct check *c) {
    lp_cache_state_release(&c->state);
    lp_route_check_release(&c->routes);
    lp_free(c->tokens);
    lp_free(c->other);
    lp_free(c->expected);
    lp_free(c->got);
}

static char *report_of(const struct check *c, uint64_t start_ns) {
    char text[256], routes[80] = "";
    if (lp_route_check_compares(&c->routes))
        snprintf(routes, sizeof routes,
                 "; the forms of attention differ by at most %.2g (bound %g)", c->routes.worst,
                 LP_ROUTE_CHECK_BOUND);
    snprintf(text, sizeof text,
             "%lld tokens whole, in chunks,%s behind cached prefixes and one by one agree bit for "
             "bit%s; %.2g s",
             (long long)c->n, c->beside ? " beside others," : "", routes,
             (double)(lp_clock_ns() - start_ns) * 1e-9);
    return lp_strdup(text);
}

limpid_status limpid_engine_self_check(limpid_engine *e, bool full, char **report,
                                       limpid_error *err) {
    struct check c;
    uint64_t start = lp_clock_ns();
    lp_status status = init(&c, e, lp_err_of(err));
    lp_engine_take_turn(e);
    uint64_t next_step = lp_runner_next_step(e->runner);
    struct lp_route_counts routes = lp_runner_route_counts(e->runner);
    if (!status) status = choose_prompt(&c, full);
    for (c.part = 0; c.part < lp_kv_n_parts(e->kv) && !status; c.part++) status = check_ways(&c);
    if (!status) status = check_routes(&c);
    lp_runner_set_counts(e->runner, next_step, routes);
    lp_engine_give_turn(e);
    if (!status && report) {
        *report = report_of(&c, start);
        if (!*report) status = lp_err_memory(c.err, 0, "the self-check's report");
    }
    release(&c);
    return lp_public(status);
}
