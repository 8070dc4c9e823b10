#include "cli/bench_report.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "cli/args.h"
#include "cli/bench_svg.h"

// ---- figures

double lp_bench_bytes_per_token(const struct lp_bench_row *r) {
    return r->cost.weight_bytes + r->cost.cache_bytes;
}
double lp_bench_madds_per_token(const struct lp_bench_row *r) {
    return r->cost.int_madds + r->cost.int16_madds + r->cost.float_madds;
}
double lp_bench_limit_fraction(const struct lp_bench_row *r) {
    return r->limit_tok_s > 0 ? r->tok_s / r->limit_tok_s : 0;
}
static double read_bytes_s(const struct lp_bench_row *r) {
    return r->tok_s * lp_bench_bytes_per_token(r);
}

const char *lp_bench_share_name(int part) {
    return part == LP_STEP_N_PARTS ? "between_steps" : lp_step_part_name((enum lp_step_part)part);
}

double lp_bench_share(const struct lp_bench_row *r, int part) {
    double all = 0;
    for (int i = 0; i < LP_STEP_N_PARTS; i++) all += r->part_s[i];
    double wall = r->wall_s > all ? r->wall_s : all; // two clocks may differ by nanoseconds
    if (wall <= 0) return 0;
    return (part == LP_STEP_N_PARTS ? wall - all : r->part_s[part]) / wall;
}

double lp_bench_matrix_fraction(const struct lp_bench_row *r) {
    static const enum lp_step_part parts[] = {LP_STEP_PART_PROJECT, LP_STEP_PART_INDEX_PROJECT,
                                              LP_STEP_PART_EXPERTS, LP_STEP_PART_SHARED,
                                              LP_STEP_PART_DENSE,   LP_STEP_PART_HEAD};
    double share = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        share += lp_bench_share(r, parts[i]);
    double madds_s = r->tok_s * (r->cost.int_madds - r->cost.up_int_madds);
    return share > 0 && r->limits.int_madds_s > 0 ? madds_s / share / r->limits.int_madds_s : 0;
}

// ---- for people

void lp_bench_print_header(FILE *to, const struct lp_bench_machine *m) {
    fprintf(to, "%s (%s, %.2f GB), loaded in %.3f s\n\n", m->model, m->architecture,
            (double)m->file_bytes * 1e-9, m->load_s);
    fprintf(to, "%-8s %6s %7s %5s %10s %10s %9s %9s %9s %9s %7s  %s\n", "test", "tokens", "depth",
            "batch", "tok/s", "limit", "fraction", "MB/token", "GB/s", "limit", "matrix",
            "limited by");
}

void lp_bench_print_row(FILE *to, const struct lp_bench_row *r) {
    fprintf(to, "%-8s %6lld %7lld %5lld %10.2f %10.2f %8.1f%% %9.2f %9.2f %9.2f %6.1f%%  %s\n",
            r->test, (long long)r->tokens, (long long)r->depth, (long long)r->batch, r->tok_s,
            r->limit_tok_s, 100 * lp_bench_limit_fraction(r), lp_bench_bytes_per_token(r) * 1e-6,
            read_bytes_s(r) * 1e-9, r->limits.read_bytes_s * 1e-9,
            100 * lp_bench_matrix_fraction(r), r->limited_by_memory ? "memory" : "arithmetic");
    fflush(to);
}

static int next_largest(const struct lp_bench_row *r, bool *given) {
    int best = -1;
    for (int i = 0; i <= LP_STEP_N_PARTS; i++)
        if (!given[i] && (best < 0 || lp_bench_share(r, i) > lp_bench_share(r, best))) best = i;
    if (best >= 0) given[best] = true;
    return best;
}

void lp_bench_print_shares(FILE *to, const struct lp_bench_row *rows, int n) {
    fprintf(to, "\nwhere the time went (of 100; below 0.05 left out)\n");
    for (int k = 0; k < n; k++) {
        const struct lp_bench_row *r = &rows[k];
        bool given[LP_STEP_N_PARTS + 1] = {false};
        fprintf(to, "%-8s %6lld %7lld %5lld ", r->test, (long long)r->tokens, (long long)r->depth,
                (long long)r->batch);
        for (int i; (i = next_largest(r, given)) >= 0;)
            if (lp_bench_share(r, i) >= 0.0005)
                fprintf(to, " %s %.1f", lp_bench_share_name(i), 100 * lp_bench_share(r, i));
        fputc('\n', to);
    }
}

void lp_bench_print_footer(FILE *to, const struct lp_bench_machine *m) {
    double mb = 1e-6;
    double rest = (double)m->anonymous_bytes - (double)m->kv_bytes - (double)m->repacked_bytes;
    fprintf(to, "\npeak memory %.0f MB: file %.0f MB", (double)m->peak_rss_bytes * mb,
            (double)m->file_bytes * mb);
    if (m->repacked_bytes)
        fprintf(to, " of which %.0f MB lie repacked", (double)m->repacked_bytes * mb);
    fprintf(to, ", KV cache %.0f MB, the rest %.0f MB\n", (double)m->kv_bytes * mb,
            rest > 0 ? rest * mb : 0.0); // a cache that is not full is not all touched
    fprintf(to, "%s, %d threads; limpid %s, backend %s, kernel %s, KV %s\n", m->cpu, m->threads,
            m->version, m->backend, m->kernel, m->kv);
}

struct limit_row {
    const char *key, *text;
    double value;
};
#define N_LIMITS 5
static void limit_rows(struct limit_row out[N_LIMITS], const struct lp_limits_figures *l) {
    const struct limit_row rows[N_LIMITS] = {
        {"limit_gb_s", "GB/s read from memory", l->read_bytes_s * 1e-9},
        {"limit_int_gmadds_s", "G multiply-adds/s of 8-bit integers", l->int_madds_s * 1e-9},
        {"limit_int16_gmadds_s", "G multiply-adds/s of 16-bit integers", l->int16_madds_s * 1e-9},
        {"limit_float_gmadds_s", "G multiply-adds/s of float32", l->float_madds_s * 1e-9},
        {"limit_bf16_gmadds_s", "G multiply-adds/s of bfloat16", l->bf16_madds_s * 1e-9}};
    memcpy(out, rows, sizeof rows);
}

void lp_bench_print_limits(FILE *to, const struct lp_limits_figures *limits, int n_threads) {
    struct limit_row rows[N_LIMITS];
    limit_rows(rows, limits);
    fprintf(to, "%d threads\n", n_threads);
    for (int i = 0; i < N_LIMITS; i++)
        if (rows[i].value > 0) fprintf(to, "%10.2f %s\n", rows[i].value, rows[i].text);
}

// ---- files

static bool finish(FILE *f, const char *path, bool ok) {
    bool written = ok && fflush(f) == 0 && !ferror(f);
    int error = errno;
    if (f != stdout && fclose(f) != 0 && written) {
        written = false;
        error = errno;
    }
    if (!written) lp_fail_text("cannot write %s: %s", path, strerror(error));
    return written;
}

static FILE *open_output(const char *path) {
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (!f) lp_fail_text("cannot write %s: %s", path, strerror(errno));
    return f;
}

bool lp_bench_can_write(const char *path) {
    if (!path || strcmp(path, "-") == 0) return true;
    FILE *f = fopen(path, "a"); // what is there stays until there are rows
    if (!f) lp_fail_text("cannot write %s: %s", path, strerror(errno));
    return f && fclose(f) == 0;
}

static bool write_json(const char *path, json_t *json, const char *what) {
    FILE *f = open_output(path);
    if (!f) {
        json_decref(json);
        return false;
    }
    bool ok = json != NULL;
    if (!ok)
        lp_fail_text("out of memory: the JSON of %s", what);
    else
        ok = json_dumpf(json, f, JSON_INDENT(2) | JSON_REAL_PRECISION(8)) == 0 &&
             fputc('\n', f) != EOF;
    json_decref(json);
    return finish(f, path, ok);
}

static bool put_limits(json_t *to, const struct lp_limits_figures *limits) {
    struct limit_row rows[N_LIMITS];
    bool ok = to != NULL;
    limit_rows(rows, limits);
    for (int i = 0; i < N_LIMITS && ok; i++)
        ok = json_object_set_new(to, rows[i].key, json_real(rows[i].value)) == 0;
    return ok;
}

static bool put_shares(json_t *to, const struct lp_bench_row *r) {
    json_t *shares = json_object();
    bool ok = shares != NULL;
    for (int i = 0; i <= LP_STEP_N_PARTS && ok; i++)
        ok = json_object_set_new(shares, lp_bench_share_name(i), json_real(lp_bench_share(r, i))) ==
             0;
    if (ok) return json_object_set_new(to, "time_share", shares) == 0;
    json_decref(shares);
    return false;
}

static json_t *row_json(const struct lp_bench_machine *m, const struct lp_bench_row *r) {
    double madds = lp_bench_madds_per_token(r);
    json_t *row = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f,"
        " s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:I, s:I, s:I, s:I, s:I}",
        "test", r->test, "tokens", (json_int_t)r->tokens, "depth", (json_int_t)r->depth, "batch",
        (json_int_t)r->batch, "repeats", (json_int_t)r->repeats, "tok_s", r->tok_s, "limit_tok_s",
        r->limit_tok_s, "limit_fraction", lp_bench_limit_fraction(r), "limited_by",
        r->limited_by_memory ? "memory" : "arithmetic", "bytes_per_token",
        lp_bench_bytes_per_token(r), "read_gb_s", read_bytes_s(r) * 1e-9, "madds_per_token", madds,
        "gmadds_s", r->tok_s * madds * 1e-9, "int_madds_per_token", r->cost.int_madds,
        "int16_madds_per_token", r->cost.int16_madds, "float_madds_per_token", r->cost.float_madds,
        "matrix_fraction", lp_bench_matrix_fraction(r), "wall_s", r->wall_s, "model", m->model,
        "architecture", m->architecture, "cpu", m->cpu, "version", m->version, "backend",
        m->backend, "kernel", m->kernel, "kv", m->kv, "threads", m->threads, "load_s", m->load_s,
        "file_bytes", (json_int_t)m->file_bytes, "kv_bytes", (json_int_t)m->kv_bytes,
        "peak_rss_bytes", (json_int_t)m->peak_rss_bytes, "anonymous_bytes",
        (json_int_t)m->anonymous_bytes, "repacked_bytes", (json_int_t)m->repacked_bytes);
    if (row && put_limits(row, &r->limits) && put_shares(row, r)) return row;
    json_decref(row);
    return NULL;
}

bool lp_bench_write_json(const char *path, const struct lp_bench_machine *m,
                         const struct lp_bench_row *rows, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n && list; i++)
        if (json_array_append_new(list, row_json(m, &rows[i]))) {
            json_decref(list);
            list = NULL;
        }
    return write_json(path, list, "the rows");
}

bool lp_bench_write_limits(const char *path, const struct lp_limits_figures *limits,
                           int n_threads) {
    json_t *json = json_pack("{s:i}", "threads", n_threads);
    if (!put_limits(json, limits)) {
        json_decref(json);
        json = NULL;
    }
    return write_json(path, json, "the limits");
}

static void put_quoted(FILE *f, const char *text) {
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    fputs("\",", f);
}

static void put_csv_row(FILE *f, const struct lp_bench_machine *m, const struct lp_bench_row *r) {
    const char *texts[] = {m->cpu, m->model, m->version, m->backend, m->kernel, m->kv};
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) put_quoted(f, texts[k]);
    fprintf(f, "%d,%.4f,%llu,%s,%lld,%lld,%lld,%lld,%.4f,%.4f,%.5f,%s,%.0f,%.4f,%.4f,%.4f,%.5f",
            m->threads, m->load_s, (unsigned long long)m->peak_rss_bytes, r->test,
            (long long)r->tokens, (long long)r->depth, (long long)r->batch, (long long)r->repeats,
            r->tok_s, r->limit_tok_s, lp_bench_limit_fraction(r),
            r->limited_by_memory ? "memory" : "arithmetic", lp_bench_bytes_per_token(r),
            read_bytes_s(r) * 1e-9, r->limits.read_bytes_s * 1e-9,
            r->tok_s * lp_bench_madds_per_token(r) * 1e-9, lp_bench_matrix_fraction(r));
    for (int i = 0; i <= LP_STEP_N_PARTS; i++) fprintf(f, ",%.5f", lp_bench_share(r, i));
    fputc('\n', f);
}

bool lp_bench_write_csv(const char *path, const struct lp_bench_machine *m,
                        const struct lp_bench_row *rows, int n) {
    FILE *f = open_output(path);
    if (!f) return false;
    fputs("cpu,model,version,backend,kernel,kv,threads,load_s,peak_rss_bytes,test,tokens,depth,"
          "batch,repeats,tok_s,limit_tok_s,limit_fraction,limited_by,bytes_per_token,read_gb_s,"
          "limit_gb_s,gmadds_s,matrix_fraction",
          f);
    for (int i = 0; i <= LP_STEP_N_PARTS; i++) fprintf(f, ",share_%s", lp_bench_share_name(i));
    fputc('\n', f);
    for (int i = 0; i < n; i++) put_csv_row(f, m, &rows[i]);
    return finish(f, path, true);
}

bool lp_bench_write_svg(const char *path, const struct lp_bench_machine *m,
                        const struct lp_bench_row *rows, int n) {
    struct lp_bytes svg = {0};
    FILE *f = open_output(path);
    if (!f) return false;
    bool made = lp_bench_svg(&svg, m, rows, n);
    if (!made) lp_fail_text("out of memory: the drawing of %d rows", n);
    bool ok = finish(f, path, made && fwrite(svg.data, 1, svg.len, f) == svg.len);
    lp_bytes_release(&svg);
    return ok;
}
