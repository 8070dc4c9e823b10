// What a benchmark found: rows of rate and limit, and how they are written.
#ifndef LP_CLI_BENCH_REPORT_H
#define LP_CLI_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct lp_bench_row {
    const char *test; // "prefill", "decode"
    int64_t tokens, depth, batch, repeats;
    double tok_s; // median over the repeats, as all figures below
    double limit_tok_s;
    bool limited_by_memory; // else by arithmetic
    double bytes_per_token; // read: weights and cache (model/cost.h)
    double int_madds_per_token, float_madds_per_token;
    double limit_read_bytes_s, limit_int_madds_s, limit_float_madds_s;
};

struct lp_bench_machine {
    char cpu[128], model[256];
    const char *architecture, *version, *backend, *kernel, *kv; // kernel: of the output matrix
    int threads;
    double load_s;
    uint64_t file_bytes, kv_bytes;
    uint64_t peak_rss_bytes; // of model and engine, without the buffer that measures bandwidth
};

void lp_bench_print_header(FILE *to, const struct lp_bench_machine *m);
void lp_bench_print_row(FILE *to, const struct lp_bench_row *row);
void lp_bench_print_footer(FILE *to, const struct lp_bench_machine *m);

// A JSON array with one object per row (docs/cli.md); path "-" = standard output. Prints the
// error; false when it could not be written whole.
bool lp_bench_write_json(const char *path, const struct lp_bench_machine *m,
                         const struct lp_bench_row *rows, int n);
bool lp_bench_write_csv(const char *path, const struct lp_bench_machine *m,
                        const struct lp_bench_row *rows, int n);

// Whether the file can be opened for writing, asked before the hours of measuring; else prints why.
// NULL and "-" can.
bool lp_bench_can_write(const char *path);

#endif
