// Running what a benchmark times: prefill and decode behind each depth, one sequence or several at
// once, with the limits of the machine measured before and behind every timed block.
#ifndef LP_CLI_BENCH_RUN_H
#define LP_CLI_BENCH_RUN_H

#include "cli/args.h"
#include "cli/bench_report.h"
#include "cli/limits.h"
#include "engine/engine.h"

#define LP_BENCH_MAX_LIST 32
#define LP_BENCH_MAX_REPEATS 99

struct lp_bench_list { // ascending, each once
    int64_t items[LP_BENCH_MAX_LIST];
    int n;
};

struct lp_bench {
    struct lp_common common;
    struct lp_bench_list prefills, decodes, depths, batches; // of the first two 0 is left out
    int64_t repeats;
    limpid_model *model;
    limpid_engine *engine;
    limpid_sequence *sequence;
    struct lp_limits *limits;
    struct lp_bench_machine machine;
    struct lp_bench_row *rows;
    size_t n_rows, max_rows;
    int32_t *tokens; // [lp_bench_longest]: what is fed, by position
    float *logits;   // [n_vocab]
    FILE *table;     // rows are printed as they come
};

// Tokens that the deepest test needs.
int64_t lp_bench_longest(const struct lp_bench *bench);
// Times all of it into rows. The engine's step clock must be on. Prints errors; an exit status.
int lp_bench_run(struct lp_bench *bench);

#endif
