// An event as a line of JSON. Async-signal-safe: no allocation, no stdio, no locale.
#ifndef LP_TRACE_TRACE_JSON_H
#define LP_TRACE_TRACE_JSON_H

#include "trace/trace_ring.h"

#define LP_TRACE_JSON_BYTES 8192 // of the longest line

enum lp_trace_level { LP_TRACE_FACT, LP_TRACE_DECISION, LP_TRACE_DETAIL };
enum lp_trace_field_kind {
    LP_TRACE_FIELD_i64,
    LP_TRACE_FIELD_i32,
    LP_TRACE_FIELD_f64,
    LP_TRACE_FIELD_str,
    LP_TRACE_FIELD_text,
    LP_TRACE_FIELD_line,
    LP_TRACE_FIELD_ids,
};

struct lp_trace_field {
    const char *name;
    enum lp_trace_field_kind kind;
    size_t offset; // in the event's struct
};

struct lp_trace_event_info {
    const char *name, *meaning;
    enum lp_trace_level level;
    const struct lp_trace_field *fields;
    size_t n_fields;
};

const struct lp_trace_event_info *lp_trace_info(enum lp_trace_kind kind);

// Writes the line with its '\n' to out[0..LP_TRACE_JSON_BYTES), not terminated. Returns its length.
// start_ns: the time that is 0. Control bytes and invalid UTF-8 in texts become '?'.
size_t lp_trace_json(const struct lp_trace_record *record, uint64_t start_ns, char *out);

#endif
