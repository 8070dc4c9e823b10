// The trace: typed events, written as JSON lines in the order in which they happen. Off (a NULL
// trace) costs one predictable branch. Events: trace_events.def and docs/tracing.md.
//
//     {"event":"attention","time_us":812,"step":3,"layer":0,"sequence":0,"n_query":1,...}
//
// Thread-safe: a line is written whole.
#ifndef LP_TRACE_TRACE_H
#define LP_TRACE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct lp_trace;

// Opens (truncates) a file for JSON lines; "-" is standard error.
lp_status lp_trace_open(struct lp_trace **out, const char *path, struct lp_err *err);

// Flushes and closes; an IO error of any earlier write is returned here. NULL is allowed.
lp_status lp_trace_close(struct lp_trace *trace, struct lp_err *err);

typedef int64_t lp_trace_i64;
typedef const char *lp_trace_str;
typedef double lp_trace_f64;

// struct lp_trace_<event> with the event's fields, and
// void lp_trace_emit_<event>(struct lp_trace *, const struct lp_trace_<event> *).
#define FIELD(kind, name) lp_trace_##kind name;
#define EVENT(name, meaning, fields)                                                               \
    struct lp_trace_##name {                                                                       \
        fields                                                                                     \
    };                                                                                             \
    void lp_trace_emit_##name(struct lp_trace *trace, const struct lp_trace_##name *event);
#include "trace/trace_events.def"
#undef EVENT
#undef FIELD

#endif
