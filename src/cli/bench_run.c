// Each timed block has a measurement of the limits before and behind it; a row gives the medians
// over the repeats. One sequence is run by limpid_sequence_append; batches are requests, as a server
// runs them.
#include "cli/bench_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_features.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/grow.h"

#define TELL_NS UINT64_C(10000000000) // how often a long filling of the cache says how far it is

// ---- figures

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

static int64_t last(const struct lp_bench_list *list) {
    return list->n > 0 ? list->items[list->n - 1] : 0;
}

int64_t lp_bench_longest(const struct lp_bench *b) {
    int64_t prefill = last(&b->prefills), decode = last(&b->decodes);
    return last(&b->depths) + (prefill > decode ? prefill : decode) + 1;
}

// Whether products with rows of the cache may be of 16-bit integers, since the rows are rounded to
// 16 bits or fewer: what the limit grants, whichever units a kernel uses.
static bool attention_is_int16(const struct lp_bench *b) {
    uint32_t bits;
    const char *name;
    struct lp_err err;
    lp_type kv = lp_kv_type(b->engine->kv);
    if (strcmp(b->model->dev->backend->name, "cpu") != 0 || kv == LP_TYPE_F32 ||
        b->model->weights->h.arch->attention != LP_ATTENTION_MLA ||
        lp_cpu_features_choose(lp_cpu_features_detect(), b->common.cpu_level, &bits, &name, &err))
        return false;
    return (bits & LP_CPU_LEVEL_AVX2) == LP_CPU_LEVEL_AVX2;
}

static struct lp_cost_work work_of(const struct lp_bench *b, int64_t n_past, int64_t n_rows,
                                   int64_t n_logit_rows) {
    return (struct lp_cost_work){.n_past = n_past,
                                 .n_rows = n_rows,
                                 .n_logit_rows = n_logit_rows,
                                 .force = b->engine->settings.force,
                                 .deterministic = b->common.deterministic,
                                 .int16_attention = attention_is_int16(b)};
}

static void add_cost(const struct lp_bench *b, const struct lp_cost_work *work,
                     struct lp_cost *cost) {
    const struct lp_model *m = b->model->weights;
    lp_cost_step(&m->h, &m->binding, work, lp_kv_type(b->engine->kv), cost);
}

// What the timed tokens cost. In one step for as many as fit the chunk (prefill), or one by one.
static struct lp_cost cost_of(const struct lp_bench *b, int64_t depth, int64_t n, bool one_by_one) {
    struct lp_cost cost = {0};
    int64_t chunk = one_by_one ? 1 : b->engine->chunk;
    for (int64_t done = 0, take; done < n; done += take) {
        take = n - done < chunk ? n - done : chunk;
        struct lp_cost_work work =
            work_of(b, depth + done, take, one_by_one || done + take == n ? 1 : 0);
        add_cost(b, &work, &cost);
    }
    return cost;
}

// The weights are read once a step for all; each sequence reads its own cache.
static struct lp_cost cost_of_batch(const struct lp_bench *b, int64_t depth, int64_t n,
                                    int64_t batch) {
    struct lp_cost all = {0}, own = cost_of(b, depth, n, true);
    for (int64_t i = 0; i < n; i++) {
        struct lp_cost_work work = work_of(b, depth + i, batch, batch);
        work.force = LP_ROUTE_ABSORBED;
        add_cost(b, &work, &all);
    }
    double weight_bytes = all.weight_bytes;
    all = (struct lp_cost){.weight_bytes = weight_bytes,
                           .cache_bytes = own.cache_bytes * (double)batch,
                           .int_madds = own.int_madds * (double)batch,
                           .up_int_madds = own.up_int_madds * (double)batch,
                           .int16_madds = own.int16_madds * (double)batch,
                           .float_madds = own.float_madds * (double)batch};
    return all;
}

static struct lp_cost divided(const struct lp_cost *c, double n) {
    return (struct lp_cost){.weight_bytes = c->weight_bytes / n,
                            .cache_bytes = c->cache_bytes / n,
                            .int_madds = c->int_madds / n,
                            .up_int_madds = c->up_int_madds / n,
                            .int16_madds = c->int16_madds / n,
                            .float_madds = c->float_madds / n};
}

// Decode of one sequence is held against memory alone (design: every weight is read once a token);
// prefill and batches against the slower of memory and arithmetic, whose parts share the units and
// add up.
static void set_limit(struct lp_bench_row *r, bool decode) {
    const struct lp_limits_figures *l = &r->limits;
    double memory_s = lp_bench_bytes_per_token(r) / l->read_bytes_s;
    double madds_s = r->cost.int_madds / l->int_madds_s + r->cost.int16_madds / l->int16_madds_s +
                     r->cost.float_madds / l->float_madds_s;
    r->limited_by_memory = decode || memory_s >= madds_s;
    r->limit_tok_s = 1 / (r->limited_by_memory ? memory_s : madds_s);
}

// ---- one test

#define N_LIMIT_FIGURES (sizeof(struct lp_limits_figures) / sizeof(double))

struct samples { // of the repeats of one test
    double rates[LP_BENCH_MAX_REPEATS];
    double limits[N_LIMIT_FIGURES][2 * LP_BENCH_MAX_REPEATS];
    size_t n_rates, n_limits;
    double wall_s, part_s[LP_STEP_N_PARTS]; // of all repeats together
    struct lp_step_clock began;
    uint64_t start_ns;
};

// Of the device that runs the model. A GPU's are those of copies and of 16-bit products, which stand for
// all kinds.
static struct lp_limits_figures measure_limits(struct lp_bench *b) {
    struct lp_device *dev = b->model->dev;
    struct lp_device_rates r;
    if (!dev->backend->rates) return lp_limits_measure(b->limits);
    if (!dev->backend->rates(dev, &r)) r = (struct lp_device_rates){NAN, NAN};
    return (struct lp_limits_figures){.read_bytes_s = r.copy_bytes_s,
                                      .int_madds_s = r.madds_s,
                                      .int16_madds_s = r.madds_s,
                                      .float_madds_s = r.madds_s,
                                      .bf16_madds_s = r.madds_s};
}

static void add_limits(struct lp_bench *b, struct samples *s) {
    struct lp_limits_figures figures = measure_limits(b);
    double values[N_LIMIT_FIGURES];
    memcpy(values, &figures, sizeof values);
    for (size_t i = 0; i < N_LIMIT_FIGURES; i++) s->limits[i][s->n_limits] = values[i];
    s->n_limits++;
}

static void begin_block(struct lp_bench *b, struct samples *s) {
    add_limits(b, s);
    s->began = b->engine->step_clock;
    s->start_ns = lp_clock_ns();
}

static void end_block(struct lp_bench *b, struct samples *s, int64_t n_tokens) {
    double seconds = (double)(lp_clock_ns() - s->start_ns) * 1e-9;
    struct lp_step_clock spent;
    lp_step_clock_difference(&spent, &b->engine->step_clock, &s->began);
    s->rates[s->n_rates++] = (double)n_tokens / seconds;
    s->wall_s += seconds;
    for (int i = 0; i < LP_STEP_N_PARTS; i++) s->part_s[i] += (double)spent.ns[i] * 1e-9;
    add_limits(b, s);
}

static int add_row(struct lp_bench *b, struct samples *s, bool decode, int64_t depth, int64_t n,
                   int64_t batch, const struct lp_cost *cost) {
    if (!LP_GROW(b->rows, b->max_rows, b->n_rows + 1)) return lp_fail_text("out of memory: a row");
    struct lp_bench_row *r = &b->rows[b->n_rows++];
    double limits[N_LIMIT_FIGURES];
    *r = (struct lp_bench_row){.test = decode ? "decode" : "prefill",
                               .tokens = n,
                               .depth = depth,
                               .batch = batch,
                               .repeats = b->repeats,
                               .tok_s = median(s->rates, s->n_rates),
                               .cost = divided(cost, (double)(n * batch)),
                               .wall_s = s->wall_s};
    for (size_t i = 0; i < N_LIMIT_FIGURES; i++) limits[i] = median(s->limits[i], s->n_limits);
    memcpy(&r->limits, limits, sizeof r->limits);
    memcpy(r->part_s, s->part_s, sizeof r->part_s);
    set_limit(r, decode && batch == 1);
    lp_bench_print_row(b->table, r);
    return LP_EXIT_OK;
}

static int append(struct lp_bench *b, int64_t n, bool logits) {
    limpid_error err;
    int64_t at = limpid_sequence_length(b->sequence);
    if (limpid_sequence_append(b->sequence, b->tokens + at, (size_t)n, NULL,
                               logits ? b->logits : NULL, &err))
        return lp_fail(&err);
    return LP_EXIT_OK;
}

static int run_block(struct lp_bench *b, int64_t n, bool one_by_one) {
    if (!one_by_one) return append(b, n, true);
    int status = LP_EXIT_OK;
    for (int64_t i = 0; i < n && !status; i++) status = append(b, 1, true);
    return status;
}

static int measure(struct lp_bench *b, int64_t depth, int64_t n, bool decode) {
    struct samples s = {.n_limits = 0};
    for (int64_t i = 0; i < b->repeats; i++) {
        begin_block(b, &s);
        int status = run_block(b, n, decode);
        if (status) return status;
        end_block(b, &s, n);
        limpid_sequence_truncate(b->sequence, depth);
    }
    struct lp_cost cost = cost_of(b, depth, n, decode);
    return add_row(b, &s, decode, depth, n, 1, &cost);
}

// ---- batches

// Steps until every request has its first token (all = false) or has ended.
static int step_until(struct lp_bench *b, limpid_request **requests, bool *there, int64_t batch,
                      bool all) {
    limpid_error err;
    limpid_event event;
    for (int64_t n_there = 0; n_there < batch;) {
        if (limpid_engine_step(b->engine, NULL, &err)) return lp_fail(&err);
        for (int64_t i = 0; i < batch; i++)
            while (!(all && there[i])) { // one that has ended has no more events
                if (limpid_request_poll(requests[i], &event, 0, &err)) return lp_fail(&err);
                if (event.kind == LIMPID_EVENT_NONE) break;
                if (all ? event.kind != LIMPID_EVENT_DONE : there[i]) continue;
                there[i] = true;
                n_there++;
            }
    }
    return LP_EXIT_OK;
}

// The prompts differ, so that no prefix is shared: each begins at another of the random tokens.
static int start_batch(struct lp_bench *b, limpid_request **requests, int64_t batch,
                       int64_t n_prompt, int64_t max_tokens) {
    limpid_error err;
    int32_t *prompt = lp_alloc((size_t)n_prompt, sizeof *prompt);
    int status = prompt ? LP_EXIT_OK : lp_fail_text("out of memory: a prompt");
    for (int64_t i = 0; i < batch && !status; i++) {
        for (int64_t t = 0; t < n_prompt; t++)
            prompt[t] = b->tokens[(t + i * 7) % lp_bench_longest(b)];
        limpid_request_options o = limpid_request_default_options();
        o.tokens = prompt;
        o.n_tokens = (size_t)n_prompt;
        o.max_tokens = max_tokens;
        o.temperature = 0;
        o.ignore_eos = true;
        if (limpid_request_new(&requests[i], b->engine, &o, &err)) status = lp_fail(&err);
    }
    lp_free(prompt);
    return status;
}

static void free_batch(limpid_request **requests, bool *there, int64_t batch) {
    for (int64_t k = 0; k < batch; k++) {
        limpid_request_free(requests[k]);
        requests[k] = NULL;
        there[k] = false;
    }
}

// The prompts are computed first and found in the prefix cache by the timed requests, so that all
// of these begin in the same step.
static int run_batch(struct lp_bench *b, limpid_request **requests, bool *there, int64_t depth,
                     int64_t n, int64_t batch, struct samples *s) {
    int64_t n_prompt = depth > 0 ? depth : 1;
    int status = start_batch(b, requests, batch, n_prompt, 1);
    if (!status) status = step_until(b, requests, there, batch, true);
    free_batch(requests, there, batch);
    if (!status) status = start_batch(b, requests, batch, n_prompt, n + 1);
    if (!status) status = step_until(b, requests, there, batch, false); // the first token's step
    for (int64_t k = 0; k < batch; k++) there[k] = false;
    begin_block(b, s);
    if (!status) status = step_until(b, requests, there, batch, true);
    end_block(b, s, n * batch);
    free_batch(requests, there, batch);
    return status;
}

static int measure_batch(struct lp_bench *b, int64_t depth, int64_t n, int64_t batch) {
    struct samples s = {.n_limits = 0};
    limpid_request **requests = lp_alloc((size_t)batch, sizeof *requests);
    bool *there = lp_alloc((size_t)batch, sizeof *there);
    int status = requests && there ? LP_EXIT_OK : lp_fail_text("out of memory: the batch");
    for (int64_t i = 0; i < b->repeats && !status; i++)
        status = run_batch(b, requests, there, depth, n, batch, &s);
    if (!status) {
        struct lp_cost cost = cost_of_batch(b, depth, n, batch);
        status = add_row(b, &s, true, depth, n, batch, &cost);
    }
    lp_free(requests);
    lp_free(there);
    return status;
}

// ---- all tests

// Tokens up to the depth into the cache. What takes long says so on standard error.
static int fill(struct lp_bench *b, int64_t depth) {
    int64_t length = limpid_sequence_length(b->sequence), from = length;
    uint64_t start_ns = lp_clock_ns(), told_ns = start_ns;
    int status = LP_EXIT_OK;
    for (int64_t take; length < depth && !status; length += take) {
        take = depth - length < b->engine->chunk ? depth - length : b->engine->chunk;
        status = append(b, take, false);
        uint64_t now_ns = lp_clock_ns();
        if (now_ns - told_ns < TELL_NS) continue;
        told_ns = now_ns;
        fprintf(stderr, "limpid: filling the cache: %lld of %lld tokens, %.0f tok/s\n",
                (long long)(length + take), (long long)depth,
                (double)(length + take - from) / ((double)(now_ns - start_ns) * 1e-9));
    }
    return status;
}

// The first step of a process pays for pages and clocks.
static int warm_up(struct lp_bench *b) {
    int status = append(b, 1, true);
    limpid_sequence_truncate(b->sequence, 0);
    return status;
}

static int run_depth(struct lp_bench *b, int64_t depth) {
    bool alone = b->prefills.n > 0 || (b->decodes.n > 0 && b->batches.items[0] == 1);
    int status = alone ? fill(b, depth) : LP_EXIT_OK;
    for (int i = 0; i < b->prefills.n && !status; i++)
        status = measure(b, depth, b->prefills.items[i], false);
    for (int k = 0; k < b->batches.n; k++)
        for (int i = 0; i < b->decodes.n && !status; i++)
            status = b->batches.items[k] == 1
                         ? measure(b, depth, b->decodes.items[i], true)
                         : measure_batch(b, depth, b->decodes.items[i], b->batches.items[k]);
    return status;
}

int lp_bench_run(struct lp_bench *b) {
    int status = warm_up(b);
    for (int i = 0; i < b->depths.n && !status; i++) status = run_depth(b, b->depths.items[i]);
    return status;
}
