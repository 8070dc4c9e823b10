// The trace: what an engine decides, as typed events (trace_events.def, docs/tracing.md), always
// recorded. Each thread writes fixed-size events into a ring of its own, without a lock; the last
// LP_TRACE_EVENTS of each thread can be read at any time, also by a handler of a crash (crash.h).
//
//     thread A ──> [ring A] ──┐
//     thread B ──> [ring B] ──┼──> in order of time: text (GET /debug/trace), dump of a crash,
//     facts    ──> [facts ] ──┘    trace file
//
// With a file nothing is lost: a thread of the trace empties the rings into it, and a writer whose
// ring is full empties it itself. Without one the oldest events are overwritten.
//
//     {"event":"chunk","time_us":812,"thread":4711,"step":3,"sequence":0,"n_past":512,...}
//
// All functions may be called by any thread, lp_trace_open and lp_trace_close by their owner.
#ifndef LP_TRACE_TRACE_H
#define LP_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define LP_TRACE_EVENTS 65536 // that a thread's ring holds: 8 MiB, touched as they are written
#define LP_TRACE_TEXT_BYTES 64
#define LP_TRACE_LINE_BYTES 96
#define LP_TRACE_MAX_IDS 31
#define LP_TRACE_PAYLOAD_BYTES 104

struct lp_trace; // a NULL trace records nothing

// path: a file (truncated) for everything, DETAIL too; "-" is standard error; NULL: rings alone.
// Errors: IO (names the path), MEMORY.
lp_status lp_trace_open(struct lp_trace **out, const char *path, struct lp_err *err);

// Writes what the file does not have yet. An IO error of any earlier write is returned here. No
// thread may record any more. NULL is allowed.
lp_status lp_trace_close(struct lp_trace *trace, struct lp_err *err);

// Whether DETAIL events are wanted, and all that costs time to find out. False for NULL.
bool lp_trace_is_full(const struct lp_trace *trace);

// The time that is 0 in the trace, by lp_clock_ns.
uint64_t lp_trace_start_ns(const struct lp_trace *trace);

// Appends what the rings hold, as JSON lines in order of time. request_id: only the facts, the
// events of requests of this id, and what else happened in their steps; NULL: everything. Never
// waits for a writer. Errors: MEMORY.
lp_status lp_trace_text(const struct lp_trace *trace, const char *request_id, struct lp_bytes *out,
                        struct lp_err *err);

struct lp_trace_ids {
    int16_t n; // at most LP_TRACE_MAX_IDS
    int16_t id[LP_TRACE_MAX_IDS];
};

// Copies a text into a field of n_bytes, cut and terminated. text may be NULL.
void lp_trace_copy(char *field, size_t n_bytes, const char *text);

enum lp_trace_kind {
#define FIELD(kind, name)
#define EVENT(level, name, meaning, fields) LP_TRACE_KIND_##name,
#include "trace/trace_events.def"
    LP_TRACE_N_KINDS
#undef EVENT
#undef FIELD
};

// Records an event; `event` is the struct of its kind. (The typed functions below call it.)
void lp_trace_put(struct lp_trace *trace, enum lp_trace_kind kind, const void *event,
                  size_t n_bytes);

// struct lp_trace_<event> with the event's fields, and
// void lp_trace_emit_<event>(struct lp_trace *, const struct lp_trace_<event> *).
#define LP_TRACE_MEMBER_i64(name) int64_t name;
#define LP_TRACE_MEMBER_i32(name) int32_t name;
#define LP_TRACE_MEMBER_f64(name) double name;
#define LP_TRACE_MEMBER_str(name) const char *name;
#define LP_TRACE_MEMBER_text(name) char name[LP_TRACE_TEXT_BYTES];
#define LP_TRACE_MEMBER_line(name) char name[LP_TRACE_LINE_BYTES];
#define LP_TRACE_MEMBER_ids(name) struct lp_trace_ids name;
#define FIELD(kind, name) LP_TRACE_MEMBER_##kind(name)
#define EVENT(level, name, meaning, fields)                                                        \
    struct lp_trace_##name {                                                                       \
        fields                                                                                     \
    };                                                                                             \
    _Static_assert(sizeof(struct lp_trace_##name) <= LP_TRACE_PAYLOAD_BYTES,                       \
                   #name " does not fit into a slot");                                             \
    static inline void lp_trace_emit_##name(struct lp_trace *trace,                                \
                                            const struct lp_trace_##name *event) {                 \
        if (trace) lp_trace_put(trace, LP_TRACE_KIND_##name, event, sizeof *event);                \
    }
#include "trace/trace_events.def"
#undef EVENT
#undef FIELD

#endif
