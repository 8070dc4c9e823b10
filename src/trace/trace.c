// Writes events as JSON lines. One function per event is generated from trace_events.def.
#include "trace/trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clean.h"
#include "base/clock.h"

struct lp_trace {
    FILE *file;
    bool failed;
    uint64_t start_ns;
    pthread_mutex_t mutex;
};

lp_status lp_trace_open(struct lp_trace **out, const char *path, struct lp_err *err) {
    struct lp_trace *trace = lp_alloc(1, sizeof *trace);
    if (!trace) return lp_err_memory(err, sizeof *trace, "the trace");
    trace->file = strcmp(path, "-") == 0 ? stderr : fopen(path, "w");
    if (!trace->file) {
        lp_free(trace);
        return lp_err_set(err, LP_STATUS_IO, "cannot write the trace to %s: %s", path,
                          strerror(errno));
    }
    trace->start_ns = lp_clock_ns();
    pthread_mutex_init(&trace->mutex, NULL);
    *out = trace;
    return LP_OK;
}

lp_status lp_trace_close(struct lp_trace *trace, struct lp_err *err) {
    if (!trace) return LP_OK;
    bool failed = trace->failed || fflush(trace->file) != 0;
    if (trace->file != stderr && fclose(trace->file) != 0) failed = true;
    pthread_mutex_destroy(&trace->mutex);
    lp_free(trace);
    return failed ? lp_err_set(err, LP_STATUS_IO, "the trace is incomplete: writing it failed")
                  : LP_OK;
}

static void put_str(FILE *f, const char *text) {
    char clean[LP_CLEAN_MAX_BYTES];
    lp_clean_text(clean, sizeof clean, lp_str_from(text ? text : ""));
    fputc('"', f);
    for (const char *p = clean; *p; p++) {
        if (*p == '"' || *p == '\\') fputc('\\', f);
        fputc(*p, f);
    }
    fputc('"', f);
}

static void put_i64(FILE *f, int64_t value) {
    fprintf(f, "%lld", (long long)value);
}

static void put_f64(FILE *f, double value) { // JSON has no infinity
    if (value - value == 0)
        fprintf(f, "%.9g", value);
    else
        fputs("null", f);
}

#define FIELD(kind, field)                                                                         \
    fprintf(trace->file, ",\"%s\":", #field);                                                      \
    put_##kind(trace->file, event->field);
#define EVENT(name, meaning, fields)                                                               \
    void lp_trace_emit_##name(struct lp_trace *trace, const struct lp_trace_##name *event) {       \
        if (!trace) return;                                                                        \
        pthread_mutex_lock(&trace->mutex);                                                         \
        fprintf(trace->file, "{\"event\":\"%s\",\"time_us\":%llu", #name,                          \
                (unsigned long long)((lp_clock_ns() - trace->start_ns) / 1000));                   \
        fields fputs("}\n", trace->file);                                                          \
        if (ferror(trace->file)) trace->failed = true;                                             \
        pthread_mutex_unlock(&trace->mutex);                                                       \
    }
#include "trace/trace_events.def"
#undef EVENT
#undef FIELD
