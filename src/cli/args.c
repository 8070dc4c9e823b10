#include "cli/args.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/memory_budget.h"
#include "cli/program_ranks.h"
#include "cli/wrap.h"

int lp_fail(const limpid_error *err) {
    return lp_fail_text("%s", err->text);
}

int lp_fail_text(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("limpid: error: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return LP_EXIT_FAILURE;
}

int lp_usage(const struct lp_command *command, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "limpid %s: ", command->name);
    vfprintf(stderr, format, args);
    fprintf(stderr, " (limpid %s --help lists the options)\n", command->name);
    va_end(args);
    return LP_EXIT_USAGE;
}

static void print_help(const struct lp_command *command, const struct lp_option *options,
                       size_t n) {
    char head[64];
    int indent = snprintf(head, sizeof head, "limpid %s", command->name);
    lp_wrap(stdout, head, command->synopsis, (size_t)indent + 1);
    putchar('\n');
    lp_wrap(stdout, "", command->summary, 0);
    putchar('\n');
    for (size_t i = 0; i < n; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", options[i].name, options[i].argument ? " " : "",
                 options[i].argument ? options[i].argument : "");
        char row[72];
        snprintf(row, sizeof row, "  %-26s", left);
        lp_wrap(stdout, row, options[i].help, 29);
    }
}

static int parse_value(const struct lp_command *command, const struct lp_option *o,
                       const char *text) {
    char *end;
    errno = 0;
    switch (o->kind) {
    case LP_OPT_TEXT:
        *(const char **)o->value = text;
        return LP_EXIT_OK;
    case LP_OPT_INT: {
        long long value = strtoll(text, &end, 10);
        if (end == text || *end || errno || value < 0)
            return lp_usage(command, "%s is '%s', expected a whole number of 0 or more", o->name,
                            text);
        *(int64_t *)o->value = value;
        return LP_EXIT_OK;
    }
    case LP_OPT_FLOAT: {
        double value = strtod(text, &end);
        if (end == text || *end || !isfinite(value))
            return lp_usage(command, "%s is '%s', expected a number", o->name, text);
        *(double *)o->value = value;
        return LP_EXIT_OK;
    }
    case LP_OPT_TEXTS: {
        struct lp_texts *texts = o->value;
        if (texts->n == LP_MAX_TEXTS)
            return lp_usage(command, "%s is given more than %d times", o->name, LP_MAX_TEXTS);
        texts->items[texts->n++] = text;
        return LP_EXIT_OK;
    }
    case LP_OPT_FLAG:
        break;
    }
    return LP_EXIT_USAGE;
}

static const struct lp_option *find(const struct lp_option *options, size_t n, const char *name,
                                    size_t len) {
    for (size_t i = 0; i < n; i++)
        if (strlen(options[i].name) == len && memcmp(options[i].name, name, len) == 0)
            return &options[i];
    return NULL;
}

int lp_args_parse(int argc, char **argv, const struct lp_command *command,
                  const struct lp_option *options, size_t n_options, const char **positional,
                  size_t max_positional) {
    size_t n_positional = 0;
    bool only_positional = false;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (only_positional || arg[0] != '-' || !arg[1]) {
            if (n_positional == max_positional)
                return lp_usage(command, "unexpected argument '%s'", arg);
            positional[n_positional++] = arg;
            continue;
        }
        if (strcmp(arg, "--") == 0) {
            only_positional = true;
            continue;
        }
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            print_help(command, options, n_options);
            return -1;
        }
        const char *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
        const struct lp_option *o =
            find(options, n_options, arg, equals ? (size_t)(equals - arg) : strlen(arg));
        if (!o) return lp_usage(command, "unknown option '%s'", arg);
        if (o->kind == LP_OPT_FLAG) {
            if (equals) return lp_usage(command, "%s takes no value", o->name);
            *(bool *)o->value = true;
            continue;
        }
        const char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value) return lp_usage(command, "%s needs a value (%s)", o->name, o->argument);
        int status = parse_value(command, o, value);
        if (status) return status;
    }
    return LP_EXIT_OK;
}

void lp_common_options(struct lp_common *c, struct lp_option *rows) {
    *c = (struct lp_common){.backend = "cpu", .cpu_level = "auto", .kv = "f16", .route = "auto"};
    const struct lp_option table[LP_N_COMMON] = {
        {"--threads", LP_OPT_INT, &c->threads, "N",
         "threads (default: a physical core each, at most the process's share of CPU time)"},
        {"--pin", LP_OPT_TEXT, &c->pin, "HOW",
         "bind threads to cores: auto (default; with several NUMA nodes), none, cores"},
        {"--huge-pages", LP_OPT_TEXT, &c->huge_pages, "HOW",
         "auto (default; for the KV cache, scratch and repacked weights), all (for prefetched "
         "weights too), off"},
        {"--prefetch", LP_OPT_FLAG, &c->prefetch, NULL,
         "read the weights into memory first, at the rate of the disk; otherwise they are mapped"},
        {"--repack", LP_OPT_TEXT, &c->repack, "HOW",
         "copy the weights in the order in which the kernels read them: auto (default; where "
         "memory allows), on, off"},
        {"--load", LP_OPT_TEXT, &c->load, "HOW",
         "file (default), or dummy: random weights on the device, to measure speed (cuda)"},
        {"--backend", LP_OPT_TEXT, &c->backend, "NAME",
         "cpu (default), cuda (an NVIDIA GPU), or ref, the slow definition of every operation"},
        {"--cpu", LP_OPT_TEXT, &c->cpu_level, "LEVEL",
         "highest instruction set: auto, generic (or plain), avx2, avx512, vnni, vbmi, bf16, amx; "
         "on ARM neon, dotprod, i8mm"},
        {"--ctx", LP_OPT_INT, &c->context, "N",
         "tokens of context (default: the model's, at most 32768)"},
        {"--kv", LP_OPT_TEXT, &c->kv, "TYPE", "type of the KV cache: f32, f16, bf16, q8_0, fp8"},
        {"--chunk", LP_OPT_INT, &c->chunk, "N",
         "most prompt tokens in one step (default 512; on a GPU 2048)"},
        {"--route", LP_OPT_TEXT, &c->route, "FORM",
         "attention: auto, expanded, absorbed, dense (ignores the indexer)"},
        {"--deterministic", LP_OPT_FLAG, &c->deterministic, NULL,
         "bit-identical results for every chunking and thread count"},
        {"--memory-budget", LP_OPT_TEXT, &c->memory_budget, "SIZE",
         "weights in memory (of each rank), as 20G or 40% of the file; other experts are read from "
         "disk"},
        {"--experts", LP_OPT_TEXT, &c->experts, "WHERE",
         "with a GPU: device (default), or cpu: routed experts stay in the host's memory"},
        {"--vram-budget", LP_OPT_TEXT, &c->vram_budget, "SIZE",
         "of the GPU's memory, as 60G or 40% of the file: the experts of layers that do not fit "
         "stay on the CPU"},
        {"--expert-profile", LP_OPT_TEXT, &c->expert_profile, "FILE",
         "keep there which experts are used, and start with those (with --memory-budget)"},
        {"--ranks", LP_OPT_INT, &c->ranks, "N",
         "run the model in N processes of this machine, started with mpirun (docs/ranks.md)"},
        {"--pipeline", LP_OPT_INT, &c->pipeline, "P",
         "with ranks: stages that they form, each with a run of the layers (default 1)"},
        {"--rank-timeout", LP_OPT_FLOAT, &c->rank_timeout, "S",
         "with ranks: seconds that one waits for another in a step (default 120)"},
        {"--shard-experts", LP_OPT_TEXT, &c->shard_experts, "HOW",
         "with ranks: split (a part of every expert on each), whole (some experts on each), auto "
         "(default)"},
        {"--attention-parallel", LP_OPT_TEXT, &c->attention_parallel, "HOW",
         "with ranks: heads (some of them on each, and all of the MLA cache), data (some sequences "
         "on each, with "
         "their cache), auto (default; heads, where its cache fits)"},
        {"--trace", LP_OPT_TEXT, &c->trace, "FILE", "write what was decided, as JSON lines"},
        {"--log", LP_OPT_TEXT, &c->log, "LEVEL", "error, warn (default), info, debug"},
    };
    memcpy(rows, table, sizeof table);
}

int lp_check_threads(const struct lp_command *command, int64_t threads) {
    if (threads <= 1024) return LP_EXIT_OK;
    return lp_usage(command, "--threads is %lld, expected 1 to 1024", (long long)threads);
}

// A value that no file could make right is wrong usage, like an unknown option.
int lp_fail_setting(const limpid_error *err) {
    lp_fail(err);
    return err->status == LIMPID_INVALID ? LP_EXIT_USAGE : LP_EXIT_FAILURE;
}

int lp_common_model_options(const struct lp_common *c, const char *path,
                            limpid_model_options *options) {
    limpid_error err;
    if (c->log && limpid_set_log_level(c->log, &err)) return lp_fail_setting(&err);
    if (c->threads > 1024) {
        lp_fail_text("threads is %lld, expected 1 to 1024", (long long)c->threads);
        return LP_EXIT_USAGE;
    }
    *options = (limpid_model_options){.backend = c->backend,
                                      .cpu_level = c->cpu_level,
                                      .n_threads = (int)c->threads,
                                      .pin = c->pin,
                                      .huge_pages = c->huge_pages,
                                      .prefetch = c->prefetch,
                                      .repack = c->repack,
                                      .load = c->load,
                                      .experts = c->experts,
                                      .ranks = lp_program_ranks,
                                      .shard_experts = c->shard_experts,
                                      .attention_parallel = c->attention_parallel,
                                      .expert_profile = c->expert_profile};
    if (c->pipeline > INT32_MAX) {
        lp_fail_text("--pipeline is %lld, there are not as many ranks", (long long)c->pipeline);
        return LP_EXIT_USAGE;
    }
    options->pipeline = (int32_t)c->pipeline;
    options->rank_timeout_s = c->rank_timeout;
    if (c->memory_budget && lp_memory_budget_parse("--memory-budget", c->memory_budget, path,
                                                   &options->memory_budget_bytes, &err))
        return lp_fail_setting(&err);
    if (c->vram_budget && lp_memory_budget_parse("--vram-budget", c->vram_budget, path,
                                                 &options->vram_budget_bytes, &err))
        return lp_fail_setting(&err);
    return LP_EXIT_OK;
}

int lp_common_open_model(const struct lp_common *c, const char *path, limpid_model **model) {
    limpid_error err;
    limpid_model_options options;
    int status = lp_common_model_options(c, path, &options);
    if (!status && limpid_model_open(model, path, &options, &err)) status = lp_fail_setting(&err);
    return status;
}

limpid_engine_options lp_common_engine_options(const struct lp_common *c) {
    limpid_engine_options options = limpid_engine_default_options();
    options.n_context = c->context;
    options.kv_type = c->kv;
    options.route = c->route;
    options.chunk = c->chunk;
    options.deterministic = c->deterministic;
    options.trace_path = c->trace;
    return options;
}

int lp_common_open_engine(const struct lp_common *c, limpid_model *model, limpid_engine **engine) {
    limpid_error err;
    limpid_engine_options options = lp_common_engine_options(c);
    return limpid_engine_new(engine, model, &options, &err) ? lp_fail_setting(&err) : LP_EXIT_OK;
}
