// One line of a trace at a time: cut out, read as JSON, looked at.
#include "trace/view_lines.h"

#include <math.h>
#include <string.h>

void lp_view_lines_init(struct lp_view_lines *lines, struct lp_str trace,
                        struct lp_view_notes *notes) {
    *lines = (struct lp_view_lines){.rest = trace, .notes = notes};
    notes->n_events = notes->n_skipped = 0;
    notes->cut = false;
}

void lp_view_lines_release(struct lp_view_lines *lines) {
    json_decref(lines->json);
    lines->json = NULL;
}

static struct lp_str take_line(struct lp_str *rest, bool *ended) {
    const char *end = memchr(rest->data, '\n', rest->len);
    size_t n = end ? (size_t)(end - rest->data) : rest->len;
    struct lp_str line = {rest->data, n};
    *ended = end;
    rest->data += n + (end != NULL);
    rest->len -= n + (end != NULL);
    if (n > 0 && line.data[n - 1] == '\r') line.len--;
    return line;
}

// A year of microseconds and all counters are far below; differences of such numbers never
// overflow.
#define LARGEST (INT64_C(1) << 53)

static int64_t whole(const json_t *value, int64_t absent) {
    if (json_is_integer(value)) {
        json_int_t v = json_integer_value(value);
        return v >= -LARGEST && v <= LARGEST ? (int64_t)v : absent;
    }
    double v = json_is_real(value) ? json_real_value(value) : NAN;
    return v >= -(double)LARGEST && v <= (double)LARGEST ? (int64_t)v : absent;
}

static bool read_event(struct lp_view_lines *lines, struct lp_str line,
                       struct lp_view_event *event) {
    lp_view_lines_release(lines);
    if (line.len > LP_VIEW_LINE_BYTES) return false;
    lines->json = json_loadb(line.data, line.len, 0, NULL);
    *event =
        (struct lp_view_event){.line = line,
                               .json = lines->json,
                               .name = json_string_value(json_object_get(lines->json, "event"))};
    if (!event->name) return false;
    event->time_us = lp_view_int(event, "time_us", 0);
    event->thread = lp_view_int(event, "thread", 0);
    return true;
}

bool lp_view_lines_next(struct lp_view_lines *lines, struct lp_view_event *event) {
    while (lines->rest.len > 0) {
        bool ended;
        struct lp_str line = take_line(&lines->rest, &ended);
        if (line.len == 0) continue;
        if (read_event(lines, line, event)) {
            lines->notes->n_events++;
            return true;
        }
        if (ended)
            lines->notes->n_skipped++;
        else
            lines->notes->cut = true;
    }
    lp_view_lines_release(lines);
    return false;
}

bool lp_view_is(const struct lp_view_event *event, const char *name) {
    return strcmp(event->name, name) == 0;
}

int64_t lp_view_int(const struct lp_view_event *event, const char *field, int64_t absent) {
    return whole(json_object_get(event->json, field), absent);
}

double lp_view_real(const struct lp_view_event *event, const char *field, double absent) {
    const json_t *value = json_object_get(event->json, field);
    return json_is_number(value) ? json_number_value(value) : absent;
}

const char *lp_view_text(const struct lp_view_event *event, const char *field) {
    const char *text = json_string_value(json_object_get(event->json, field));
    return text ? text : "";
}

void lp_view_add(int64_t *sum, int64_t value) {
    if (__builtin_add_overflow(*sum, value, sum)) *sum = value > 0 ? INT64_MAX : INT64_MIN;
}
