// Command-line options: one row per option, parsed and printed from the same table.
#ifndef LP_CLI_ARGS_H
#define LP_CLI_ARGS_H

#include <stddef.h>

#include "limpid.h"

enum lp_option_kind { LP_OPT_FLAG, LP_OPT_INT, LP_OPT_FLOAT, LP_OPT_TEXT, LP_OPT_TEXTS };

#define LP_MAX_TEXTS 64
struct lp_texts { // of an option that may be given several times
    const char *items[LP_MAX_TEXTS];
    size_t n;
};

struct lp_option {
    const char *name; // "--threads" or "-n"
    enum lp_option_kind kind;
    void *value;          // bool *, int64_t *, double *, const char **, struct lp_texts *
    const char *argument; // "N", for the help
    const char *help;
};

struct lp_command {
    const char *name, *synopsis, *summary;
    int (*run)(int argc, char **argv); // argv[0] is the command; returns the exit status
};

enum { LP_EXIT_OK = 0, LP_EXIT_FAILURE = 1, LP_EXIT_USAGE = 2 };

// Parses argv[1..]. Positional arguments go to positional[0..max_positional-1] (missing ones stay
// NULL). Returns LP_EXIT_OK; LP_EXIT_USAGE after printing what is wrong; or -1 after printing the
// help (--help). An INT is a whole number of 0 or more with nothing behind it; a default may be
// negative, to tell that the option was not given.
int lp_args_parse(int argc, char **argv, const struct lp_command *command,
                  const struct lp_option *options, size_t n_options, const char **positional,
                  size_t max_positional);

// Options that every command with a model takes.
struct lp_common {
    int64_t threads, context, chunk;
    const char *backend, *cpu_level, *kv, *trace, *log, *route;
    const char *memory_budget, *expert_profile;     // or NULL
    const char *experts, *vram_budget;              // or NULL
    const char *pin, *huge_pages, *repack, *load;   // or NULL
    const char *shard_experts, *attention_parallel; // or NULL
    int64_t pipeline, ranks;
    double rank_timeout;
    bool deterministic, prefetch;
};
#define LP_N_COMMON 24
void lp_common_options(struct lp_common *common,
                       struct lp_option *rows); // fills LP_N_COMMON rows, and defaults

// Opens model and engine with these options. On failure prints the error and returns
// LP_EXIT_FAILURE.
int lp_common_model_options(const struct lp_common *common, const char *path,
                            limpid_model_options *options);
int lp_common_open_model(const struct lp_common *common, const char *path, limpid_model **model);
// What the common options say; the rest has its defaults.
limpid_engine_options lp_common_engine_options(const struct lp_common *common);
int lp_common_open_engine(const struct lp_common *common, limpid_model *model,
                          limpid_engine **engine);

// "limpid: error: TEXT" on standard error, one line; returns LP_EXIT_FAILURE.
int lp_fail(const limpid_error *err);
int lp_fail_setting(const limpid_error *err); // the same, but INVALID is LP_EXIT_USAGE
int lp_fail_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
int lp_usage(const struct lp_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// LP_EXIT_OK, or LP_EXIT_USAGE after printing that there are more threads than any machine has.
int lp_check_threads(const struct lp_command *command, int64_t threads);

extern const struct lp_command lp_cmd_run, lp_cmd_serve, lp_cmd_dump, lp_cmd_tokenize,
    lp_cmd_inspect, lp_cmd_doctor, lp_cmd_trace, lp_cmd_probe, lp_cmd_bench, lp_cmd_merge,
    lp_cmd_split, lp_cmd_diff, lp_cmd_quantize, lp_cmd_imatrix, lp_cmd_convert, lp_cmd_synth;

#endif
