#include "trace/view_chrome.h"

#include <string.h>

#include "base/clean.h"
#include "trace/view_clock.h"

#define ENGINE 1 // processes, where there are no ranks
#define REQUESTS 2
#define MOST_THREADS 64  // that get a name
#define MOST_CHUNKS 4096 // that wait for the end of their step

struct chunk { // its time is known when its step has ended
    int64_t step, sequence, time_us;
    struct lp_str line;
};

struct chrome {
    const struct lp_view_index *index;
    FILE *out;
    const char *separator;
    int64_t engine, requests; // processes
    int64_t later_us;         // of the part that is written
    bool leads;               // it is the first
    int64_t threads[MOST_THREADS];
    size_t n_threads, n_chunks;
    struct chunk *chunks; // [MOST_CHUNKS]
};

static void put_text(const char *text, FILE *out) {
    char clean[512];
    fputc('"', out);
    for (const char *p = lp_clean_text(clean, sizeof clean, lp_str_from(text)); *p; p++) {
        if (*p == '"' || *p == '\\') fputc('\\', out);
        fputc(*p, out);
    }
    fputc('"', out);
}

// Begins an event; the caller adds fields and '}'.
static void begin(struct chrome *c, const char *phase, const char *name, int64_t process,
                  int64_t track, int64_t time_us) {
    fprintf(c->out, "%s\n{\"ph\":\"%s\",\"name\":", c->separator, phase);
    put_text(name, c->out);
    fprintf(c->out, ",\"pid\":%lld,\"tid\":%lld,\"ts\":%lld", (long long)process, (long long)track,
            (long long)time_us);
    c->separator = ",";
}

static void put_name(struct chrome *c, const char *of, int64_t process, int64_t track,
                     const char *name) {
    begin(c, "M", of, process, track, 0);
    fputs(",\"args\":{\"name\":", c->out);
    put_text(name, c->out);
    fputs("}}", c->out);
}

static int64_t track_of(int64_t sequence) { // a track 0 is none
    return sequence + 1;
}

static void put_args(struct chrome *c, struct lp_str line) { // it is a JSON object
    fprintf(c->out, ",\"args\":%.*s}", (int)line.len, line.data);
}

// ---- sequences ----

static void put_seq(struct chrome *c, const struct lp_view_seq *q) {
    char name[160];
    int n = snprintf(name, sizeof name, "sequence %lld", (long long)q->number);
    if (q->id[0]) n += snprintf(name + n, sizeof name - (size_t)n, ", %.80s", q->id);
    if (q->choice > 0)
        snprintf(name + n, sizeof name - (size_t)n, ", choice %lld", (long long)q->choice);
    put_name(c, "thread_name", c->requests, track_of(q->number), name);
    begin(c, "X", "request", c->requests, track_of(q->number), q->first_us + c->later_us);
    fprintf(c->out,
            ",\"dur\":%lld,\"args\":{\"sequence\":%lld,\"n_prompt\":%lld,\"n_cached\":%lld,"
            "\"tokens_given\":%lld,\"preempted\":%lld,\"ended\":%s}}",
            (long long)(q->last_us - q->first_us), (long long)q->number, (long long)q->n_prompt,
            (long long)q->n_cached, (long long)q->n_given, (long long)q->n_preempted,
            q->ended ? "true" : "false");
}

// ---- steps and their chunks ----

static void put_chunk(struct chrome *c, const struct chunk *chunk, const char *name,
                      int64_t from_us, int64_t until_us) {
    begin(c, "X", name, c->requests, track_of(chunk->sequence), from_us);
    fprintf(c->out, ",\"dur\":%lld", (long long)(until_us > from_us ? until_us - from_us : 0));
    put_args(c, chunk->line);
}

static void drop_chunks(struct chrome *c) {
    for (size_t i = 0; i < c->n_chunks; i++)
        put_chunk(c, &c->chunks[i], "chunk without an end", c->chunks[i].time_us,
                  c->index->last_us + c->later_us);
    c->n_chunks = 0;
}

static void take_chunk(struct chrome *c, const struct lp_view_event *event) {
    if (c->n_chunks == MOST_CHUNKS) drop_chunks(c);
    c->chunks[c->n_chunks++] =
        (struct chunk){lp_view_int(event, "step", -1), lp_view_int(event, "sequence", 0),
                       event->time_us, event->line};
}

static void take_step(struct chrome *c, const struct lp_view_event *event) {
    int64_t step = lp_view_int(event, "step", -1), dur = lp_view_int(event, "duration_us", 0);
    int64_t from = event->time_us - (dur > 0 ? dur : 0);
    char name[40];
    size_t n = 0;
    snprintf(name, sizeof name, "step %lld", (long long)step);
    begin(c, "X", name, c->engine, event->thread, from);
    fprintf(c->out, ",\"dur\":%lld", (long long)(dur > 0 ? dur : 0));
    put_args(c, event->line);
    for (size_t i = 0; i < c->n_chunks; i++)
        if (c->chunks[i].step == step)
            put_chunk(c, &c->chunks[i], name, from, event->time_us);
        else
            c->chunks[n++] = c->chunks[i];
    c->n_chunks = n;
}

// ---- all others ----

static void put_counters(struct chrome *c, const struct lp_view_event *event) {
    begin(c, "C", "sequences", c->engine, event->thread, event->time_us);
    fprintf(c->out, ",\"args\":{\"running\":%lld,\"waiting\":%lld}}",
            (long long)lp_view_int(event, "n_running", 0),
            (long long)lp_view_int(event, "n_waiting", 0));
    begin(c, "C", "free pages", c->engine, event->thread, event->time_us);
    fprintf(c->out, ",\"args\":{\"pages\":%lld}}", (long long)lp_view_int(event, "pages_free", 0));
}

// How much of a step was spent in exchanges with other ranks: high on those that wait.
static void put_exchanges(struct chrome *c, const struct lp_view_event *event) {
    begin(c, "C", "exchanges", c->engine, event->thread, event->time_us);
    fprintf(c->out, ",\"args\":{\"ms\":%.3f}}",
            (double)lp_view_int(event, "duration_ns", 0) * 1e-6);
}

static const char *name_of(const struct lp_view_event *event) {
    const char *route = lp_view_text(event, "route"), *what = lp_view_text(event, "what");
    if (lp_view_is(event, "attention") && route[0]) return route;
    return lp_view_is(event, "request") && what[0] ? what : event->name;
}

static void put_instant(struct chrome *c, const struct lp_view_event *event) {
    int64_t sequence = lp_view_int(event, "sequence", -1);
    bool own = sequence >= 0 && c->leads, crash = lp_view_is(event, "crash");
    begin(c, "i", name_of(event), own ? c->requests : c->engine,
          own ? track_of(sequence) : event->thread, event->time_us);
    fprintf(c->out, ",\"s\":\"%s\"", crash ? "g" : "t");
    put_args(c, event->line);
}

static void name_thread(struct chrome *c, int64_t thread) {
    char name[40];
    for (size_t i = 0; i < c->n_threads; i++)
        if (c->threads[i] == thread) return;
    if (c->n_threads == MOST_THREADS) return;
    c->threads[c->n_threads++] = thread;
    snprintf(name, sizeof name, "thread %lld", (long long)thread);
    put_name(c, "thread_name", c->engine, thread, name);
}

static void take(struct chrome *c, const struct lp_view_event *event) {
    name_thread(c, event->thread);
    if (lp_view_is(event, "operation") && strcmp(lp_view_text(event, "operation"), "ranks") == 0)
        put_exchanges(c, event);
    if (lp_view_is(event, "chunk"))
        take_chunk(c, event);
    else if (lp_view_is(event, "step"))
        take_step(c, event);
    else if (lp_view_is(event, "schedule"))
        put_counters(c, event);
    else
        put_instant(c, event);
}

static void put_part(struct chrome *c, const struct lp_view_chrome_part *part, bool selection,
                     bool ranks) {
    struct lp_view_lines lines;
    struct lp_view_notes notes;
    struct lp_view_event event;
    char name[128] = "engine";
    if (ranks) lp_view_process_name(&part->process, name, sizeof name);
    put_name(c, "process_name", c->engine, 0, name);
    lp_view_lines_init(&lines, part->trace, &notes);
    while (lp_view_lines_next(&lines, &event)) {
        if (selection && !lp_view_index_wants(c->index, &event)) continue;
        if (part->rank) event.time_us = lp_view_clock_common(part->rank, event.time_us);
        event.time_us += part->later_us;
        take(c, &event);
    }
    drop_chunks(c);
}

// Of several ranks each has its number, and what follows the last is free.
static int64_t requests_of(const struct lp_view_chrome_part *parts, size_t n) {
    const struct lp_view_process *last = &parts[n - 1].process;
    return last->rank < last->n_ranks ? last->n_ranks : last->rank + 1;
}

lp_status lp_view_chrome_write(const struct lp_view_index *index,
                               const struct lp_view_chrome_part *parts, size_t n, bool selection,
                               FILE *out, struct lp_err *err) {
    const bool ranks = n > 1 || parts[0].process.n_ranks > 1;
    struct chrome c = {.index = index,
                       .out = out,
                       .separator = "",
                       .requests = ranks ? requests_of(parts, n) : REQUESTS,
                       .later_us = parts[0].later_us};
    c.chunks = lp_alloc(MOST_CHUNKS, sizeof *c.chunks);
    if (!c.chunks) return lp_err_memory(err, MOST_CHUNKS * sizeof *c.chunks, "chunks of a trace");
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", out);
    put_name(&c, "process_name", c.requests, 0, "requests");
    for (size_t i = 0; i < index->n_seqs; i++)
        if (!selection || index->seqs[i]->selected) put_seq(&c, index->seqs[i]);
    for (size_t i = 0; i < n; i++) {
        c.engine = ranks ? parts[i].process.rank : ENGINE;
        c.later_us = parts[i].later_us;
        c.leads = i == 0;
        c.n_threads = 0;
        put_part(&c, &parts[i], selection, ranks);
    }
    fputs("\n]}\n", out);
    lp_free(c.chunks);
    return LP_OK;
}
