// limpid bench: tokens per second beside the limit of the machine, both measured in this run.
//
// The tokens are random but the same in every run (bench_run.c times them, bench_report.c and
// bench_svg.c write what was found).
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clean.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/workers.h"
#include "cli/bench_run.h"
#include "cli/find_model.h"
#include "cli/memory_check.h"
#include "cli/peak_memory.h"

#define SEED 1

struct outputs {
    const char *json, *csv, *svg; // paths, or NULL
};

// ---- setting up

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

static int make_tokens(struct lp_bench *b) {
    struct lp_rng rng;
    int64_t n = lp_bench_longest(b), n_vocab = b->model->weights->h.n_vocab;
    b->tokens = lp_alloc((size_t)n, sizeof *b->tokens);
    b->logits = lp_alloc((size_t)n_vocab, sizeof *b->logits);
    if (!b->tokens || !b->logits) return lp_fail_text("out of memory: %lld tokens", (long long)n);
    lp_rng_init(&rng, SEED);
    for (int64_t i = 0; i < n; i++) // some ids may be generated, or loading would have failed
        do b->tokens[i] = (int32_t)(lp_rng_u64(&rng) % (uint64_t)n_vocab);
        while (b->model->never[b->tokens[i]]);
    return LP_EXIT_OK;
}

static limpid_engine_options engine_options(const struct lp_bench *b) {
    int64_t most = b->batches.items[b->batches.n - 1];
    limpid_engine_options o = lp_common_engine_options(&b->common);
    o.n_kv_tokens = b->common.context;
    if (most > 1) o.n_kv_tokens += most * (lp_bench_longest(b) + 2 * LP_KV_PAGE_TOKENS);
    o.max_seqs = (int32_t)most;
    return o;
}

static int open_engine(struct lp_bench *b) {
    limpid_error err;
    limpid_engine_options o = engine_options(b);
    if (limpid_engine_new(&b->engine, b->model, &o, &err)) return lp_fail_setting(&err);
    b->engine->settings.clock = &b->engine->step_clock; // what each operation takes
    return LP_EXIT_OK;
}

static int set_up(struct lp_bench *b, const char *given) {
    limpid_error err;
    char *path;
    if (!b->common.context) b->common.context = lp_bench_longest(b);
    if (b->common.context < lp_bench_longest(b))
        return lp_fail_text("--ctx is %lld, but the deepest test needs %lld tokens",
                            (long long)b->common.context, (long long)lp_bench_longest(b));
    int status = lp_find_model(&path, given, &lp_cmd_bench);
    if (status) return status;
    limpid_engine_options options = engine_options(b);
    uint64_t start_ns = lp_clock_ns();
    status = lp_memory_check_and_open(&b->common, path, &options, &b->model);
    b->machine.load_s = (double)(lp_clock_ns() - start_ns) * 1e-9;
    limpid_model_info info = {0};
    if (!status) {
        info = limpid_model_get_info(b->model);
        lp_clean_text(b->machine.model, sizeof b->machine.model,
                      lp_str_from(info.name[0] ? info.name : path));
    }
    lp_free(path);
    if (status) return status;
    status = open_engine(b);
    if (status) return status;
    read_cpu_name(b->machine.cpu, sizeof b->machine.cpu);
    b->machine.architecture = info.architecture;
    if (!b->model->dev->backend->host_memory)
        lp_log(LP_LOG_WARN,
               "the shares of time are those of starting operations, which run behind them on "
               "the GPU");
    b->machine.version = limpid_version();
    b->machine.backend = info.backend;
    b->machine.kernel = info.matmul_kernel ? info.matmul_kernel : "unknown";
    b->machine.kv = b->common.kv;
    b->machine.threads = info.n_threads;
    b->machine.file_bytes = info.file_bytes;
    b->machine.kv_bytes = limpid_engine_kv_bytes(b->engine);
    b->machine.repacked_bytes = b->model->weights->packed_bytes;
    b->machine.peak_rss_bytes = lp_peak_memory(); // before the buffer of the limits exists
    if (lp_limits_new(&b->limits, info.n_threads, b->common.cpu_level, lp_err_of(&err)) ||
        limpid_sequence_new(&b->sequence, b->engine, &err))
        return lp_fail(&err);
    return make_tokens(b);
}

static void tear_down(struct lp_bench *b, int *status) {
    limpid_error err;
    limpid_sequence_free(b->sequence);
    if (limpid_engine_free(b->engine, &err) && !*status) *status = lp_fail(&err);
    limpid_model_close(b->model);
    lp_limits_free(b->limits);
    lp_free(b->rows);
    lp_free(b->tokens);
    lp_free(b->logits);
}

// ---- options

static int compare_i64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// "0,4096": ascending and each once afterwards, so that the cache is filled once.
static int parse_list(const char *option, const char *text, int64_t least, int64_t most,
                      struct lp_bench_list *out) {
    for (const char *p = text;; p++) {
        char *end;
        errno = 0;
        long long value = strtoll(p, &end, 10);
        if (end == p || !isdigit((unsigned char)*p) || errno || (*end && *end != ','))
            return lp_usage(&lp_cmd_bench, "%s is '%s', expected whole numbers with commas between",
                            option, text);
        if (value < least || value > most)
            return lp_usage(&lp_cmd_bench, "%s is %lld, expected %lld to %lld", option, value,
                            (long long)least, (long long)most);
        if (out->n == LP_BENCH_MAX_LIST)
            return lp_usage(&lp_cmd_bench, "%s has more than %d numbers", option,
                            LP_BENCH_MAX_LIST);
        out->items[out->n++] = value;
        p = end;
        if (!*p) break;
    }
    qsort(out->items, (size_t)out->n, sizeof *out->items, compare_i64);
    int n = 1;
    for (int i = 1; i < out->n; i++)
        if (out->items[i] != out->items[n - 1]) out->items[n++] = out->items[i];
    out->n = n;
    return LP_EXIT_OK;
}

static void drop_zero(struct lp_bench_list *list) {
    if (list->n == 0 || list->items[0] != 0) return;
    memmove(list->items, list->items + 1, (size_t)--list->n * sizeof *list->items);
}

struct texts { // of the lists
    const char *prefills, *decodes, *depths, *batches;
};

static int check(struct lp_bench *b, const struct texts *t) {
    int status = parse_list("-p", t->prefills, 0, INT32_MAX / 4, &b->prefills);
    if (!status) status = parse_list("-n", t->decodes, 0, INT32_MAX / 4, &b->decodes);
    if (!status) status = parse_list("-d", t->depths, 0, INT32_MAX / 4, &b->depths);
    if (!status) status = parse_list("-b", t->batches, 1, LP_MAX_SEQS, &b->batches);
    if (status) return status;
    drop_zero(&b->prefills);
    drop_zero(&b->decodes);
    if (b->repeats < 1 || b->repeats > LP_BENCH_MAX_REPEATS)
        return lp_usage(&lp_cmd_bench, "--repeat is %lld, expected 1 to %d", (long long)b->repeats,
                        LP_BENCH_MAX_REPEATS);
    if (b->prefills.n + b->decodes.n == 0)
        return lp_usage(&lp_cmd_bench, "-p and -n are both 0: nothing is left to time");
    return LP_EXIT_OK;
}

static bool is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

// ---- the command

static int write_outputs(const struct lp_bench *b, const struct outputs *to) {
    const struct lp_bench_row *rows = b->rows;
    int n = (int)b->n_rows;
    bool ok = !to->json || lp_bench_write_json(to->json, &b->machine, rows, n);
    ok = (!to->csv || lp_bench_write_csv(to->csv, &b->machine, rows, n)) && ok;
    ok = (!to->svg || lp_bench_write_svg(to->svg, &b->machine, rows, n)) && ok;
    return ok ? LP_EXIT_OK : LP_EXIT_FAILURE;
}

static int bench_model(struct lp_bench *b, const char *path, const struct outputs *to) {
    bool to_stdout = is_stdout(to->json) || is_stdout(to->csv) || is_stdout(to->svg);
    b->table = to_stdout ? stderr : stdout;
    int status = set_up(b, path);
    if (!status) {
        lp_bench_print_header(b->table, &b->machine);
        status = lp_bench_run(b);
    }
    if (!status) {
        uint64_t buffer = lp_limits_buffer_bytes(b->limits), peak = lp_peak_memory() - buffer;
        if (peak > b->machine.peak_rss_bytes) b->machine.peak_rss_bytes = peak;
        uint64_t anonymous = lp_anonymous_memory();
        b->machine.anonymous_bytes = anonymous > buffer ? anonymous - buffer : 0;
        lp_bench_print_shares(b->table, b->rows, (int)b->n_rows);
        lp_bench_print_footer(b->table, &b->machine);
        status = write_outputs(b, to);
    }
    tear_down(b, &status);
    return status;
}

// Without a model: what the machine can do.
static int bench_machine(const struct lp_bench *b, const struct outputs *to) {
    limpid_error err;
    struct lp_limits *limits = NULL;
    int status = lp_check_threads(&lp_cmd_bench, b->common.threads);
    if (status) return status;
    int n_threads = b->common.threads ? (int)b->common.threads : lp_cpu_count();
    if (lp_limits_new(&limits, n_threads, b->common.cpu_level, lp_err_of(&err)))
        return lp_fail_setting(&err);
    struct lp_limits_figures figures = lp_limits_measure(limits);
    lp_limits_free(limits);
    if (!is_stdout(to->json)) lp_bench_print_limits(stdout, &figures, n_threads);
    return !to->json || lp_bench_write_limits(to->json, &figures, n_threads) ? LP_EXIT_OK
                                                                             : LP_EXIT_FAILURE;
}

static int run_command(struct lp_bench *b, int argc, char **argv) {
    const char *path = NULL;
    bool limits = false;
    struct texts t = {"512", "64", "0", "1"};
    struct outputs to = {0};
    b->repeats = 3;
    struct lp_option options[LP_N_COMMON + 9] = {
        {"-p", LP_OPT_TEXT, &t.prefills, "N,..",
         "prompt tokens to time at once (default 512; 0 = none)"},
        {"-n", LP_OPT_TEXT, &t.decodes, "N,..",
         "tokens to decode, of each sequence (default 64; 0 = none)"},
        {"-d", LP_OPT_TEXT, &t.depths, "DEPTH,..",
         "tokens in the cache before each test (default 0)"},
        {"-b", LP_OPT_TEXT, &t.batches, "BATCH,..", "sequences that decode at once (default 1)"},
        {"--repeat", LP_OPT_INT, &b->repeats, "R",
         "times that each test runs (default 3); rows are medians"},
        {"--json", LP_OPT_TEXT, &to.json, "F", "write the rows as JSON (- = standard output)"},
        {"--csv", LP_OPT_TEXT, &to.csv, "F", "write the rows as CSV (- = standard output)"},
        {"--svg", LP_OPT_TEXT, &to.svg, "F", "draw rates and time over the depth as SVG"},
        {"--limits", LP_OPT_FLAG, &limits, NULL,
         "measure this machine's limits alone; no MODEL is needed"},
    };
    lp_common_options(&b->common, options + 9);
    int status = lp_args_parse(argc, argv, &lp_cmd_bench, options, LP_N_COMMON + 9, &path, 1);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (limits && (path || to.csv || to.svg))
        return lp_usage(&lp_cmd_bench, "--limits measures the machine alone and writes lines or "
                                       "--json: leave MODEL, --csv and --svg out");
    if (limits) return bench_machine(b, &to);
    if (!path) return lp_usage(&lp_cmd_bench, "MODEL is needed");
    status = check(b, &t);
    if (status) return status;
    if (!lp_bench_can_write(to.json) || !lp_bench_can_write(to.csv) || !lp_bench_can_write(to.svg))
        return LP_EXIT_FAILURE;
    return bench_model(b, path, &to);
}

static int run(int argc, char **argv) {
    struct lp_bench *b = lp_alloc(1, sizeof *b);
    if (!b) return lp_fail_text("out of memory: the benchmark");
    int status = run_command(b, argc, argv);
    lp_free(b);
    return status;
}

const struct lp_command lp_cmd_bench = {
    "bench",
    "MODEL [-p N,..] [-n N,..] [-d DEPTH,..] [-b BATCH,..] [--repeat R] [--json F] [--csv F] "
    "[--svg F] | --limits",
    "tokens per second, bytes per token, the fraction of this machine's measured limit, and where "
    "the time went",
    run};
