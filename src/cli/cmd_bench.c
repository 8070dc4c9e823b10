// limpid bench: tokens per second beside the limit of the machine, both measured in this run.
//
// Each timed block has a measurement of the limits before and behind it; a row gives the medians
// over the repeats. The tokens are random but the same in every run. One sequence is run by
// limpid_sequence_append; batches are requests, as a server runs them.
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/workers.h"
#include "cli/peak_memory.h"
#include "cli/args.h"
#include "cli/bench_report.h"
#include "cli/find_model.h"
#include "base/clean.h"
#include "cli/limits.h"
#include "engine/engine.h"
#include "model/cost.h"

#define MAX_DEPTHS 32
#define MAX_REPEATS 99
#define SEED 1

struct bench {
    struct lp_common common;
    int64_t n_prefill, n_decode, repeats;
    int64_t depths[MAX_DEPTHS], batches[MAX_DEPTHS];
    int n_depths, n_batches;
    limpid_model *model;
    limpid_engine *engine;
    limpid_sequence *sequence;
    struct lp_limits *limits;
    struct lp_bench_machine machine;
    struct lp_bench_row rows[MAX_DEPTHS * (MAX_DEPTHS + 2)];
    int n_rows;
    int32_t *tokens; // what is fed, by position
    float *logits;
    FILE *table;
};

// ---- figures

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

static void read_cpu_name(char *out, size_t bytes) {
    char line[512];
    snprintf(out, bytes, "unknown CPU");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (!value || strncmp(line, "model name", 10) != 0) continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = 0;
        snprintf(out, bytes, "%s", value);
        break;
    }
    if (f) fclose(f);
}

static int64_t longest(const struct bench *b) {
    return b->depths[b->n_depths - 1] + (b->n_prefill > b->n_decode ? b->n_prefill : b->n_decode) +
           1;
}

static double kv_value_bytes(const struct bench *b) {
    const struct lp_type_info *type = lp_type_info(lp_kv_type(b->engine->kv));
    return (double)type->block_bytes / (double)type->block_values;
}

// What the timed tokens cost. In one step for as many as fit the chunk (prefill), or one by one.
static struct lp_cost cost_of(const struct bench *b, int64_t depth, int64_t n, bool one_by_one) {
    const struct lp_model *m = b->model->weights;
    struct lp_cost cost = {0};
    int64_t chunk = one_by_one ? 1 : b->engine->chunk;
    for (int64_t done = 0, take; done < n; done += take) {
        take = n - done < chunk ? n - done : chunk;
        struct lp_cost_work work = {.n_past = depth + done,
                                    .n_rows = take,
                                    .n_logit_rows = one_by_one || done + take == n ? 1 : 0,
                                    .force = b->engine->settings.force,
                                    .deterministic = b->common.deterministic};
        lp_cost_step(&m->h, &m->binding, &work, kv_value_bytes(b), &cost);
    }
    return cost;
}

// Decode is held against memory alone (design: every weight is read once a token); prefill against
// the slower of memory and arithmetic, whose integer and float parts share the units and add up.
static void set_limit(struct lp_bench_row *r, bool decode) {
    double memory_s = r->bytes_per_token / r->limit_read_bytes_s;
    double madds_s = r->int_madds_per_token / r->limit_int_madds_s +
                     r->float_madds_per_token / r->limit_float_madds_s;
    r->limited_by_memory = decode || memory_s >= madds_s;
    r->limit_tok_s = 1 / (r->limited_by_memory ? memory_s : madds_s);
}

// ---- running

static int append(struct bench *b, int64_t n, bool logits) {
    limpid_error err;
    int64_t at = limpid_sequence_length(b->sequence);
    if (limpid_sequence_append(b->sequence, b->tokens + at, (size_t)n, NULL,
                               logits ? b->logits : NULL, &err))
        return lp_fail(&err);
    return LP_EXIT_OK;
}

static int run_block(struct bench *b, int64_t n, bool one_by_one) {
    if (!one_by_one) return append(b, n, true);
    int status = LP_EXIT_OK;
    for (int64_t i = 0; i < n && !status; i++) status = append(b, 1, true);
    return status;
}

struct samples { // of the repeats of one test

    double rates[MAX_REPEATS], reads[2 * MAX_REPEATS], ints[2 * MAX_REPEATS],
        floats[2 * MAX_REPEATS];
    size_t n_limits;
};

static void add_limits(struct samples *s, struct lp_limits_figures f) {
    s->reads[s->n_limits] = f.read_bytes_s;
    s->ints[s->n_limits] = f.int_madds_s;
    s->floats[s->n_limits++] = f.float_madds_s;
}

static void add_row(struct bench *b, struct samples *s, bool decode, int64_t depth, int64_t n,
                    int64_t batch, const struct lp_cost *cost) {
    double all = (double)(n * batch);
    struct lp_bench_row *r = &b->rows[b->n_rows++];
    *r = (struct lp_bench_row){.test = decode ? "decode" : "prefill",
                               .tokens = n,
                               .depth = depth,
                               .batch = batch,
                               .repeats = b->repeats,
                               .tok_s = median(s->rates, (size_t)b->repeats),
                               .bytes_per_token = (cost->weight_bytes + cost->cache_bytes) / all,
                               .int_madds_per_token = cost->int_madds / all,
                               .float_madds_per_token = cost->float_madds / all,
                               .limit_read_bytes_s = median(s->reads, s->n_limits),
                               .limit_int_madds_s = median(s->ints, s->n_limits),
                               .limit_float_madds_s = median(s->floats, s->n_limits)};
    set_limit(r, decode && batch == 1);
    lp_bench_print_row(b->table, r);
}

static int measure(struct bench *b, int64_t depth, int64_t n, bool decode) {
    struct samples s = {.n_limits = 0};
    for (int64_t i = 0; i < b->repeats; i++) {
        add_limits(&s, lp_limits_measure(b->limits));
        uint64_t start_ns = lp_clock_ns();
        int status = run_block(b, n, decode);
        s.rates[i] = (double)n / ((double)(lp_clock_ns() - start_ns) * 1e-9);
        if (status) return status;
        limpid_sequence_truncate(b->sequence, depth);
        add_limits(&s, lp_limits_measure(b->limits));
    }
    struct lp_cost cost = cost_of(b, depth, n, decode);
    add_row(b, &s, decode, depth, n, 1, &cost);
    return LP_EXIT_OK;
}

// ---- batches

// The weights are read once a step for all; each sequence reads its own cache.
static struct lp_cost cost_of_batch(const struct bench *b, int64_t depth, int64_t n,
                                    int64_t batch) {
    const struct lp_model *m = b->model->weights;
    struct lp_cost all = {0}, own = cost_of(b, depth, n, true);
    for (int64_t i = 0; i < n; i++) {
        struct lp_cost_work work = {.n_past = depth + i,
                                    .n_rows = batch,
                                    .n_logit_rows = batch,
                                    .force = LP_ROUTE_ABSORBED,
                                    .deterministic = b->common.deterministic};
        lp_cost_step(&m->h, &m->binding, &work, kv_value_bytes(b), &all);
    }
    all.cache_bytes = own.cache_bytes * (double)batch;
    all.int_madds = own.int_madds * (double)batch;
    all.float_madds = own.float_madds * (double)batch;
    return all;
}

// Steps until every request has its first token (all = false) or has ended.
static int step_until(struct bench *b, limpid_request **requests, bool *there, int64_t batch,
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
static int start_batch(struct bench *b, limpid_request **requests, int64_t batch, int64_t n_prompt,
                       int64_t max_tokens) {
    limpid_error err;
    int32_t *prompt = lp_alloc((size_t)n_prompt, sizeof *prompt);
    int status = prompt ? LP_EXIT_OK : lp_fail_text("out of memory: a prompt");
    for (int64_t i = 0; i < batch && !status; i++) {
        for (int64_t t = 0; t < n_prompt; t++) prompt[t] = b->tokens[(t + i * 7) % longest(b)];
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
    for (int64_t k = 0; k < batch; k++) limpid_request_free(requests[k]);
    memset(requests, 0, (size_t)batch * sizeof *requests);
    memset(there, 0, (size_t)batch * sizeof *there);
}

// The prompts are computed first and found in the prefix cache by the timed requests, so that all
// of these begin in the same step.
static int run_batch(struct bench *b, limpid_request **requests, bool *there, int64_t depth,
                     int64_t n, int64_t batch, struct samples *s) {
    int64_t n_prompt = depth > 0 ? depth : 1;
    int status = start_batch(b, requests, batch, n_prompt, 1);
    if (!status) status = step_until(b, requests, there, batch, true);
    free_batch(requests, there, batch);
    if (!status) status = start_batch(b, requests, batch, n_prompt, n + 1);
    if (!status) status = step_until(b, requests, there, batch, false); // the first token's step
    memset(there, 0, (size_t)batch * sizeof *there);
    add_limits(s, lp_limits_measure(b->limits));
    uint64_t start_ns = lp_clock_ns();
    if (!status) status = step_until(b, requests, there, batch, true);
    double seconds = (double)(lp_clock_ns() - start_ns) * 1e-9;
    add_limits(s, lp_limits_measure(b->limits));
    s->rates[s->n_limits / 2 - 1] = (double)(n * batch) / seconds;
    free_batch(requests, there, batch);
    return status;
}

static int measure_batch(struct bench *b, int64_t depth, int64_t n, int64_t batch) {
    struct samples s = {.n_limits = 0};
    limpid_request **requests = lp_alloc((size_t)batch, sizeof *requests);
    bool *there = lp_alloc((size_t)batch, sizeof *there);
    int status = requests && there ? LP_EXIT_OK : lp_fail_text("out of memory: the batch");
    for (int64_t i = 0; i < b->repeats && !status; i++)
        status = run_batch(b, requests, there, depth, n, batch, &s);
    if (!status) {
        struct lp_cost cost = cost_of_batch(b, depth, n, batch);
        add_row(b, &s, true, depth, n, batch, &cost);
    }
    lp_free(requests);
    lp_free(there);
    return status;
}

static int run_depths(struct bench *b) {
    int status = LP_EXIT_OK;
    for (int i = 0; i < b->n_depths && !status; i++) {
        int64_t depth = b->depths[i], length = limpid_sequence_length(b->sequence);
        if (depth > length)
            status = append(b, depth - length, false);
        else if (i == 0 && !status) { // the first step of a process pays for pages and clocks
            status = append(b, 1, true);
            limpid_sequence_truncate(b->sequence, 0);
        }
        if (!status && b->n_prefill) status = measure(b, depth, b->n_prefill, false);
        for (int k = 0; k < b->n_batches && b->n_decode && !status; k++)
            status = b->batches[k] == 1 ? measure(b, depth, b->n_decode, true)
                                        : measure_batch(b, depth, b->n_decode, b->batches[k]);
    }
    return status;
}

// ---- setting up

static int make_tokens(struct bench *b) {
    struct lp_rng rng;
    int64_t n = longest(b), n_vocab = b->model->weights->h.n_vocab;
    b->tokens = lp_alloc((size_t)n, sizeof *b->tokens);
    b->logits = lp_alloc((size_t)n_vocab, sizeof *b->logits);
    if (!b->tokens || !b->logits) return lp_fail_text("out of memory: %lld tokens", (long long)n);
    lp_rng_init(&rng, SEED);
    for (int64_t i = 0; i < n; i++) // some ids may be generated, or loading would have failed
        do b->tokens[i] = (int32_t)(lp_rng_u64(&rng) % (uint64_t)n_vocab);
        while (b->model->never[b->tokens[i]]);
    return LP_EXIT_OK;
}

static int open_engine(struct bench *b) {
    limpid_error err;
    int64_t most = b->batches[b->n_batches - 1];
    limpid_engine_options o = lp_common_engine_options(&b->common);
    o.n_kv_tokens = b->common.context;
    if (most > 1) o.n_kv_tokens += most * (longest(b) + 2 * LP_KV_PAGE_TOKENS);
    o.max_seqs = (int32_t)most;
    return limpid_engine_new(&b->engine, b->model, &o, &err) ? lp_fail_setting(&err) : LP_EXIT_OK;
}

static int set_up(struct bench *b, const char *given) {
    limpid_error err;
    char *path;
    int status = lp_find_model(&path, given, &lp_cmd_bench);
    if (status) return status;
    uint64_t start_ns = lp_clock_ns();
    status = lp_common_open_model(&b->common, path, &b->model);
    lp_free(path);
    if (status) return status;
    b->machine.load_s = (double)(lp_clock_ns() - start_ns) * 1e-9;
    if (!b->common.context) b->common.context = longest(b);
    if (b->common.context < longest(b))
        return lp_fail_text("--ctx is %lld, but the deepest test needs %lld tokens",
                            (long long)b->common.context, (long long)longest(b));
    status = open_engine(b);
    if (status) return status;
    limpid_model_info info = limpid_model_get_info(b->model);
    read_cpu_name(b->machine.cpu, sizeof b->machine.cpu);
    lp_clean_text(b->machine.model, sizeof b->machine.model,
                  lp_str_from(info.name[0] ? info.name : path));
    b->machine.architecture = info.architecture;
    b->machine.version = limpid_version();
    b->machine.backend = info.backend;
    b->machine.kernel = info.matmul_kernel ? info.matmul_kernel : "unknown";
    b->machine.kv = b->common.kv;
    b->machine.threads = info.n_threads;
    b->machine.file_bytes = info.file_bytes;
    b->machine.kv_bytes = limpid_engine_kv_bytes(b->engine);
    b->machine.peak_rss_bytes = lp_peak_memory(); // before the buffer of the limits exists
    if (lp_limits_new(&b->limits, info.n_threads, b->common.cpu_level, lp_err_of(&err)) ||
        limpid_sequence_new(&b->sequence, b->engine, &err))
        return lp_fail(&err);
    return make_tokens(b);
}

static void tear_down(struct bench *b, int *status) {
    limpid_error err;
    limpid_sequence_free(b->sequence);
    if (limpid_engine_free(b->engine, &err) && !*status) *status = lp_fail(&err);
    limpid_model_close(b->model);
    lp_limits_free(b->limits);
    lp_free(b->tokens);
    lp_free(b->logits);
}

static int compare_i64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// "0,4096": ascending afterwards, so that the cache is filled once.
static int parse_list(const char *option, const char *text, int64_t *out, int max, int *n) {
    for (const char *p = text;;) {
        char *end;
        errno = 0;
        long long value = strtoll(p, &end, 10);
        if (end == p || !isdigit((unsigned char)*p) || errno || value > INT32_MAX ||
            (*end && *end != ','))
            return lp_usage(&lp_cmd_bench, "%s is '%s', expected whole numbers with commas between",
                            option, text);
        if (*n == max) return lp_usage(&lp_cmd_bench, "%s has more than %d numbers", option, max);
        out[(*n)++] = value;
        if (!*end) break;
        p = end + 1;
    }
    qsort(out, (size_t)*n, sizeof *out, compare_i64);
    return LP_EXIT_OK;
}

static int check(struct bench *b, const char *depths, const char *batches) {
    int status = parse_list("-d", depths, b->depths, MAX_DEPTHS, &b->n_depths);
    if (!status) status = parse_list("-b", batches, b->batches, MAX_DEPTHS, &b->n_batches);
    if (status) return status;
    for (int i = 0; i < b->n_batches; i++)
        if (b->batches[i] < 1 || b->batches[i] > LP_MAX_SEQS)
            return lp_usage(&lp_cmd_bench, "-b is %lld, expected 1 to %d", (long long)b->batches[i],
                            LP_MAX_SEQS);
    if (b->repeats < 1 || b->repeats > MAX_REPEATS)
        return lp_usage(&lp_cmd_bench, "--repeat is %lld, expected 1 to %d", (long long)b->repeats,
                        MAX_REPEATS);
    if (b->n_prefill > INT32_MAX / 4 || b->n_decode > INT32_MAX / 4 ||
        b->n_prefill + b->n_decode == 0)
        return lp_usage(&lp_cmd_bench,
                        "-p and -n are %lld and %lld, expected 0 to %d and not both 0",
                        (long long)b->n_prefill, (long long)b->n_decode, INT32_MAX / 4);
    return LP_EXIT_OK;
}

static int bench_model(struct bench *b, const char *path, const char *json, const char *csv) {
    bool to_stdout = (json && strcmp(json, "-") == 0) || (csv && strcmp(csv, "-") == 0);
    b->table = to_stdout ? stderr : stdout;
    int status = set_up(b, path);
    if (!status) {
        lp_bench_print_header(b->table, &b->machine);
        status = run_depths(b);
    }
    if (!status) {
        uint64_t peak = lp_peak_memory() - lp_limits_buffer_bytes(b->limits);
        if (peak > b->machine.peak_rss_bytes) b->machine.peak_rss_bytes = peak;
        lp_bench_print_footer(b->table, &b->machine);
        if (json && !lp_bench_write_json(json, &b->machine, b->rows, b->n_rows))
            status = LP_EXIT_FAILURE;
        if (csv && !lp_bench_write_csv(csv, &b->machine, b->rows, b->n_rows))
            status = LP_EXIT_FAILURE;
    }
    tear_down(b, &status);
    return status;
}

static int run(int argc, char **argv) {
    struct bench *b = lp_alloc(1, sizeof *b);
    if (!b) return lp_fail_text("out of memory: the benchmark");
    const char *path = NULL, *depths = "0", *batches = "1", *json = NULL, *csv = NULL;
    b->n_prefill = 512;
    b->n_decode = 64;
    b->repeats = 3;
    struct lp_option options[LP_N_COMMON + 7] = {
        {"-p", LP_OPT_INT, &b->n_prefill, "N", "prompt tokens to time (default 512; 0 = none)"},
        {"-n", LP_OPT_INT, &b->n_decode, "N",
         "tokens to decode, of each sequence (default 64; 0 = none)"},
        {"-d", LP_OPT_TEXT, &depths, "DEPTH,..",
         "tokens in the cache before each test (default 0)"},
        {"-b", LP_OPT_TEXT, &batches, "BATCH,..", "sequences that decode at once (default 1)"},
        {"--repeat", LP_OPT_INT, &b->repeats, "R",
         "times that each test runs (default 3); rows are medians"},
        {"--json", LP_OPT_TEXT, &json, "F", "write the rows as JSON (- = standard output)"},
        {"--csv", LP_OPT_TEXT, &csv, "F", "write the rows as CSV (- = standard output)"},
    };
    lp_common_options(&b->common, options + 7);
    int status = lp_args_parse(argc, argv, &lp_cmd_bench, options, LP_N_COMMON + 7, &path, 1);
    if (status < 0)
        status = LP_EXIT_OK;
    else if (!status && !path)
        status = lp_usage(&lp_cmd_bench, "MODEL is needed");
    else if (!status) {
        status = check(b, depths, batches);
        if (!status && !(lp_bench_can_write(json) && lp_bench_can_write(csv)))
            status = LP_EXIT_FAILURE;
        if (!status) status = bench_model(b, path, json, csv);
    }
    lp_free(b);
    return status;
}

const struct lp_command lp_cmd_bench = {
    "bench", "MODEL [-p N] [-n N] [-d DEPTH,..] [-b BATCH,..] [--repeat R] [--json F] [--csv F]",
    "tokens per second, bytes per token and the fraction of this machine's measured limit", run};
