#include "cli/bench_report.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "cli/args.h"

static double fraction(const struct lp_bench_row *r) {
    return r->limit_tok_s > 0 ? r->tok_s / r->limit_tok_s : 0;
}
static double read_bytes_s(const struct lp_bench_row *r) {
    return r->tok_s * r->bytes_per_token;
}
static double madds_per_token(const struct lp_bench_row *r) {
    return r->int_madds_per_token + r->float_madds_per_token;
}

void lp_bench_print_header(FILE *to, const struct lp_bench_machine *m) {
    fprintf(to, "%s (%s, %.2f GB), loaded in %.3f s\n\n", m->model, m->architecture,
            (double)m->file_bytes * 1e-9, m->load_s);
    fprintf(to, "%-8s %6s %7s %5s %10s %10s %9s %9s %9s %9s  %s\n", "test", "tokens", "depth",
            "batch", "tok/s", "limit", "fraction", "MB/token", "GB/s", "limit", "limited by");
}

void lp_bench_print_row(FILE *to, const struct lp_bench_row *r) {
    fprintf(to, "%-8s %6lld %7lld %5lld %10.2f %10.2f %8.1f%% %9.2f %9.2f %9.2f  %s\n", r->test,
            (long long)r->tokens, (long long)r->depth, (long long)r->batch, r->tok_s,
            r->limit_tok_s, 100 * fraction(r), r->bytes_per_token * 1e-6, read_bytes_s(r) * 1e-9,
            r->limit_read_bytes_s * 1e-9, r->limited_by_memory ? "memory" : "arithmetic");
    fflush(to);
}

void lp_bench_print_footer(FILE *to, const struct lp_bench_machine *m) {
    double mb = 1e-6;
    double rest = (double)m->peak_rss_bytes - (double)m->file_bytes - (double)m->kv_bytes;
    fprintf(to, "\npeak memory %.0f MB: file %.0f MB, KV cache %.0f MB, the rest %.0f MB\n",
            (double)m->peak_rss_bytes * mb, (double)m->file_bytes * mb, (double)m->kv_bytes * mb,
            rest > 0 ? rest * mb : 0.0); // a cache that is not full is not all touched
    fprintf(to, "%s, %d threads; limpid %s, backend %s, kernel %s, KV %s\n", m->cpu, m->threads,
            m->version, m->backend, m->kernel, m->kv);
}

static bool finish(FILE *f, const char *path, bool ok) {
    bool written = ok && fflush(f) == 0 && !ferror(f);
    int error = errno;
    if (f != stdout && fclose(f) != 0) written = false;
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

static json_t *row_json(const struct lp_bench_machine *m, const struct lp_bench_row *r) {
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f,"
        " s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:I, s:I, s:I}",
        "test", r->test, "tokens", (json_int_t)r->tokens, "depth", (json_int_t)r->depth, "batch",
        (json_int_t)r->batch, "repeats", (json_int_t)r->repeats, "tok_s", r->tok_s, "limit_tok_s",
        r->limit_tok_s, "limit_fraction", fraction(r), "limited_by",
        r->limited_by_memory ? "memory" : "arithmetic", "bytes_per_token", r->bytes_per_token,
        "read_gb_s", read_bytes_s(r) * 1e-9, "limit_gb_s", r->limit_read_bytes_s * 1e-9,
        "madds_per_token", madds_per_token(r), "gmadds_s", r->tok_s * madds_per_token(r) * 1e-9,
        "limit_int_gmadds_s", r->limit_int_madds_s * 1e-9, "limit_float_gmadds_s",
        r->limit_float_madds_s * 1e-9, "int_madds_per_token", r->int_madds_per_token, "model",
        m->model, "architecture", m->architecture, "cpu", m->cpu, "version", m->version, "backend",
        m->backend, "kernel", m->kernel, "kv", m->kv, "threads", m->threads, "load_s", m->load_s,
        "file_bytes", (json_int_t)m->file_bytes, "kv_bytes", (json_int_t)m->kv_bytes,
        "peak_rss_bytes", (json_int_t)m->peak_rss_bytes);
}

bool lp_bench_write_json(const char *path, const struct lp_bench_machine *m,
                         const struct lp_bench_row *rows, int n) {
    FILE *f = open_output(path);
    if (!f) return false;
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int i = 0; i < n && ok; i++) ok = json_array_append_new(list, row_json(m, &rows[i])) == 0;
    if (!ok)
        lp_fail_text("out of memory: the JSON of %d rows", n);
    else
        ok = json_dumpf(list, f, JSON_INDENT(2) | JSON_REAL_PRECISION(8)) == 0 &&
             fputc('\n', f) != EOF;
    json_decref(list);
    return finish(f, path, ok);
}

static void put_quoted(FILE *f, const char *text) {
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    fputs("\",", f);
}

bool lp_bench_write_csv(const char *path, const struct lp_bench_machine *m,
                        const struct lp_bench_row *rows, int n) {
    FILE *f = open_output(path);
    if (!f) return false;
    fputs("cpu,model,version,backend,kernel,kv,threads,load_s,peak_rss_bytes,test,tokens,depth,"
          "batch,repeats,tok_s,"
          "limit_tok_s,limit_fraction,limited_by,bytes_per_token,read_gb_s,limit_gb_s,gmadds_s\n",
          f);
    for (int i = 0; i < n; i++) {
        const struct lp_bench_row *r = &rows[i];
        const char *texts[] = {m->cpu, m->model, m->version, m->backend, m->kernel, m->kv};
        for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) put_quoted(f, texts[k]);
        fprintf(f, "%d,%.4f,%llu,%s,%lld,%lld,%lld,%lld,%.4f,%.4f,%.5f,%s,%.0f,%.4f,%.4f,%.4f\n",
                m->threads, m->load_s, (unsigned long long)m->peak_rss_bytes, r->test,
                (long long)r->tokens, (long long)r->depth, (long long)r->batch,
                (long long)r->repeats, r->tok_s, r->limit_tok_s, fraction(r),
                r->limited_by_memory ? "memory" : "arithmetic", r->bytes_per_token,
                read_bytes_s(r) * 1e-9, r->limit_read_bytes_s * 1e-9,
                r->tok_s * madds_per_token(r) * 1e-9);
    }
    return finish(f, path, true);
}
