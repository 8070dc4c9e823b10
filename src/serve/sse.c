#include "serve/sse.h"

#include "serve/json_out.h"

// Takes back half an event, which would swallow the next.
static bool cut_back(struct lp_bytes *out, size_t to) {
    out->len = to;
    if (out->data) out->data[to] = 0;
    return false;
}

// JSON in one line has no line break that could end the event: control characters are escaped.
bool lp_sse_event(struct lp_bytes *out, const json_t *value) {
    size_t from = out->len;
    return (lp_bytes_puts(out, "data: ") && lp_json_dump(out, value) &&
            lp_bytes_puts(out, "\n\n")) ||
           cut_back(out, from);
}

bool lp_sse_named_event(struct lp_bytes *out, const char *name, const json_t *value) {
    size_t from = out->len;
    return (lp_bytes_printf(out, "event: %s\n", name) && lp_sse_event(out, value)) ||
           cut_back(out, from);
}

bool lp_sse_comment(struct lp_bytes *out, const char *line) {
    return lp_bytes_printf(out, ": %s\n\n", line);
}

bool lp_sse_done(struct lp_bytes *out) {
    return lp_bytes_puts(out, "data: [DONE]\n\n");
}
