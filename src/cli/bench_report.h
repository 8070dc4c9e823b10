// What a benchmark found: rows of rate and limit, and how they are written.
#ifndef LP_CLI_BENCH_REPORT_H
#define LP_CLI_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/limits.h"
#include "model/cost.h"
#include "trace/step_clock.h"

struct lp_bench_row {
    const char *test; // "prefill", "decode"
    int64_t tokens, depth, batch, repeats;
    double tok_s; // median over the repeats
    double limit_tok_s;
    bool limited_by_memory;          // else by arithmetic
    struct lp_cost cost;             // of one token
    struct lp_limits_figures limits; // medians of those measured around the repeats

    // Of all repeats together: the time in which they ran, and what the operations took of it.
    double wall_s, part_s[LP_STEP_N_PARTS];
};

double lp_bench_bytes_per_token(const struct lp_bench_row *row);
double lp_bench_madds_per_token(const struct lp_bench_row *row);
double lp_bench_limit_fraction(const struct lp_bench_row *row);
// Of the row's time, 0 to 1; LP_STEP_N_PARTS: what passed between the steps.
double lp_bench_share(const struct lp_bench_row *row, int part);
const char *lp_bench_share_name(int part); // "experts", "between_steps"
// The products with block-quantised weights (outside attention) against the peak of 8-bit integer
// multiply-adds, in the time of the operations that do them. 0 where there are none.
double lp_bench_matrix_fraction(const struct lp_bench_row *row);

struct lp_bench_machine {
    char cpu[128], model[256];
    const char *architecture, *version, *backend, *kernel, *kv; // kernel: of the output matrix
    int threads;
    double load_s;
    uint64_t file_bytes, kv_bytes;
    uint64_t repacked_bytes;  // of weights, copied in place of those pages of the file
    uint64_t peak_rss_bytes;  // of model and engine, without the buffer that measures bandwidth
    uint64_t anonymous_bytes; // of it, at the end, what is not the mapped file
};

void lp_bench_print_header(FILE *to, const struct lp_bench_machine *m);
void lp_bench_print_row(FILE *to, const struct lp_bench_row *row);
// Where the time of each row went, largest first.
void lp_bench_print_shares(FILE *to, const struct lp_bench_row *rows, int n);
void lp_bench_print_footer(FILE *to, const struct lp_bench_machine *m);

// A JSON array with one object per row (docs/cli.md); path "-" = standard output. Prints the
// error; false when it could not be written whole.
bool lp_bench_write_json(const char *path, const struct lp_bench_machine *m,
                         const struct lp_bench_row *rows, int n);
bool lp_bench_write_csv(const char *path, const struct lp_bench_machine *m,
                        const struct lp_bench_row *rows, int n);
// The curves over the depth (bench_svg.h).
bool lp_bench_write_svg(const char *path, const struct lp_bench_machine *m,
                        const struct lp_bench_row *rows, int n);
// What the machine can do, alone: lines for people, or an object of JSON.
void lp_bench_print_limits(FILE *to, const struct lp_limits_figures *limits, int n_threads);
bool lp_bench_write_limits(const char *path, const struct lp_limits_figures *limits, int n_threads);

// Whether the file can be opened for writing, asked before the hours of measuring; else prints why.
// NULL and "-" can.
bool lp_bench_can_write(const char *path);

#endif
