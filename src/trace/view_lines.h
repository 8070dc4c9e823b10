// The events of a trace, one line after another. A line is an event when it is one JSON object with
// a text "event"; unknown events and fields are kept.
#ifndef LP_TRACE_VIEW_LINES_H
#define LP_TRACE_VIEW_LINES_H

#include <jansson.h>

#include "trace/view.h"

#define LP_VIEW_LINE_BYTES (1 << 20) // a longer line is no event

struct lp_view_event {
    struct lp_str line; // without its end
    const json_t *json;
    const char *name;
    int64_t time_us, thread; // 0 where not said
};

struct lp_view_lines {
    struct lp_str rest;
    json_t *json; // of the event that was given last
    struct lp_view_notes *notes;
};

// notes: counts from 0 on.
void lp_view_lines_init(struct lp_view_lines *lines, struct lp_str trace,
                        struct lp_view_notes *notes);
// The next event, valid until the next call. False: there is none, and nothing is left to release.
bool lp_view_lines_next(struct lp_view_lines *lines, struct lp_view_event *event);
void lp_view_lines_release(struct lp_view_lines *lines); // before its end

bool lp_view_is(const struct lp_view_event *event, const char *name);
// A field's value, or `absent` where it is missing or of another kind. A number with a fraction is
// cut to a whole one.
int64_t lp_view_int(const struct lp_view_event *event, const char *field, int64_t absent);
double lp_view_real(const struct lp_view_event *event, const char *field, double absent);
const char *lp_view_text(const struct lp_view_event *event, const char *field); // "": absent
// Numbers of a file may be anything: the sum stays at its limit.
void lp_view_add(int64_t *sum, int64_t value);

#endif
