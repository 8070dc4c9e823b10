// What the trace costs a decode step: answers of one engine with its trace taken away (NULL: the
// branches remain), with its rings, and with a file that takes everything (operations are timed
// too), in turns. The cost is in processor time of the whole process, the file's thread with it, per
// token: neighbours on the machine disturb that less than the clock. It is the median over rounds of
// the ratio within a round. Usage: bench_trace MODEL [rounds [tokens [threads]]]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"

#define MAX_ROUNDS 2000
#define N_PROMPT 16
enum { NOTHING, RINGS, FILE_TOO, N_WAYS };
static const char *const way_names[] = {"no trace", "rings", "rings and file"};

static limpid_error err;

static void must(limpid_status status) {
    if (!status) return;
    fprintf(stderr, "bench_trace: %s\n", err.text);
    exit(1);
}

static double processor_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

struct pace { // of an answer's tokens behind the first
    double clock_s, processor_s;
};

static struct pace decode(limpid_engine *engine, int64_t n_tokens) {
    static int32_t prompt[N_PROMPT];
    limpid_request *request;
    limpid_event event;
    limpid_request_options o = limpid_request_default_options();
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = 100 + 7 * i;
    o.tokens = prompt;
    o.n_tokens = N_PROMPT;
    o.temperature = 0;
    o.max_tokens = n_tokens;
    o.ignore_eos = true;
    o.id = "bench";
    must(limpid_request_new(&request, engine, &o, &err));
    must(limpid_request_next(request, &event, &err));
    uint64_t from_ns = lp_clock_ns();
    double from_s = processor_seconds();
    while (event.kind != LIMPID_EVENT_DONE) must(limpid_request_next(request, &event, &err));
    limpid_request_free(request);
    double n = (double)(n_tokens - 1);
    return (struct pace){1e-9 * (double)(lp_clock_ns() - from_ns) / n,
                         (processor_seconds() - from_s) / n};
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *values, int n, double q) {
    static double sorted[MAX_ROUNDS];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return sorted[(int)(q * (n - 1) + 0.5)];
}

static void report(struct pace paces[N_WAYS][MAX_ROUNDS], int n_rounds) {
    static double cost[MAX_ROUNDS], clock_s[MAX_ROUNDS], processor_s[MAX_ROUNDS];
    for (int way = 0; way < N_WAYS; way++) {
        for (int i = 0; i < n_rounds; i++) {
            clock_s[i] = paces[way][i].clock_s;
            processor_s[i] = paces[way][i].processor_s;
            cost[i] = processor_s[i] / paces[NOTHING][i].processor_s - 1;
        }
        printf("%-16s %8.1f us a token, %8.1f us of a processor", way_names[way],
               1e6 * quantile(clock_s, n_rounds, 0.5), 1e6 * quantile(processor_s, n_rounds, 0.5));
        if (way != NOTHING)
            printf("   costs %+.2f %% (quartiles %+.2f to %+.2f)",
                   100 * quantile(cost, n_rounds, 0.5), 100 * quantile(cost, n_rounds, 0.25),
                   100 * quantile(cost, n_rounds, 0.75));
        printf("\n");
    }
}

// The cost of recording one event, warm, and while the ring's pages are touched for the first time.
static void time_events(struct lp_trace *trace) {
    for (int pass = 0; pass < 2; pass++) {
        double start = processor_seconds();
        for (int i = 0; i < LP_TRACE_EVENTS; i++)
            lp_trace_emit_step(trace, &(struct lp_trace_step){.step = i});
        printf("an event, %s: %.0f ns\n", pass ? "warm" : "first touch",
               1e9 * (processor_seconds() - start) / LP_TRACE_EVENTS);
    }
}

int main(int argc, char **argv) {
    static struct pace paces[N_WAYS][MAX_ROUNDS];
    if (argc < 2) {
        fprintf(stderr, "usage: bench_trace MODEL [rounds [tokens [threads]]]\n");
        return 2;
    }
    int n_rounds = argc > 2 ? atoi(argv[2]) : 60;
    int64_t n_tokens = argc > 3 ? atoi(argv[3]) : 128;
    if (n_rounds < 1 || n_rounds > MAX_ROUNDS || n_tokens < 2) return 2;
    limpid_model *model;
    limpid_engine *engine;
    limpid_model_options mo = limpid_model_default_options();
    limpid_engine_options eo = limpid_engine_default_options();
    mo.n_threads = argc > 4 ? atoi(argv[4]) : 1;
    eo.no_prefix_cache = true;
    must(limpid_model_open(&model, argv[1], &mo, &err));
    must(limpid_engine_new(&engine, model, &eo, &err));
    struct lp_trace *traces[N_WAYS] = {NULL, engine->trace, NULL}, *timed;
    char path[] = "/tmp/limpid-bench-trace-XXXXXX";
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    must(lp_public(lp_trace_open(&timed, NULL, lp_err_of(&err))));
    time_events(timed);
    must(lp_public(lp_trace_close(timed, lp_err_of(&err))));
    must(lp_public(lp_trace_open(&traces[FILE_TOO], path, lp_err_of(&err))));
    for (int round = -1; round < n_rounds; round++) // round -1 only warms up
        for (int turn = 0; turn < N_WAYS; turn++) {
            int way = (turn + round + 1) % N_WAYS;
            engine->trace = engine->settings.trace = traces[way];
            engine->settings.clock = way == FILE_TOO ? &engine->step_clock : NULL;
            struct pace pace = decode(engine, n_tokens);
            if (round >= 0) paces[way][round] = pace;
        }
    report(paces, n_rounds);
    engine->trace = engine->settings.trace = traces[RINGS];
    engine->settings.clock = NULL;
    must(lp_public(lp_trace_close(traces[FILE_TOO], lp_err_of(&err))));
    unlink(path);
    must(limpid_engine_free(engine, &err));
    limpid_model_close(model);
    return 0;
}
