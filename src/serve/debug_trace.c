#include "serve/debug_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/view.h"

// Of service->trees, which stands for 40 times as much memory: all that is remembered, as a text,
// twice.
#define ROOM (2u << 20)

// ---- tokens ----

static void blank(char *from, const char *end) {
    static const char field[] = ",\"token\":";
    char *at = memmem(from, (size_t)(end - from), field, sizeof field - 1);
    if (!at) return;
    memset(at, ' ', sizeof field - 1);
    for (at += sizeof field - 1; at < end && *at != ',' && *at != '}'; at++) *at = ' ';
}

void lp_debug_trace_hide_tokens(char *lines, size_t n_bytes) {
    static const char head[] = "{\"event\":\"token\",";
    const char *end = lines + n_bytes;
    while (lines < end) {
        char *newline = memchr(lines, '\n', (size_t)(end - lines));
        const char *line_end = newline ? newline : end;
        if ((size_t)(line_end - lines) >= sizeof head - 1 &&
            memcmp(lines, head, sizeof head - 1) == 0)
            blank(lines, line_end);
        lines += line_end - lines + (newline != NULL);
    }
}

// ---- the view ----

static bool is_number(const char *text) {
    size_t n = strspn(text, "0123456789");
    return n > 0 && !text[n];
}

// *found false: nothing of the request is there.
static bool view(const struct lp_service *service, const char *recorded, const char *shown,
                 enum lp_view_format format, struct lp_bytes *out, bool *found,
                 struct lp_api_error *err) {
    limpid_error e;
    struct lp_err why;
    struct lp_view_notes notes = {0};
    char *lines, *text = NULL;
    size_t n_lines, n_text = 0;
    if (limpid_engine_trace(service->engine, recorded, &lines, &n_lines, &e))
        return lp_api_from_limpid(err, &e);
    if (!service->keep_last_prompt) lp_debug_trace_hide_tokens(lines, n_lines);
    FILE *to = open_memstream(&text, &n_text);
    lp_status status =
        to ? lp_view_write((struct lp_str){lines, n_lines}, shown, format, to, &notes, &why)
           : lp_err_memory(&why, 0, "a trace");
    bool ok = to && fclose(to) == 0 && !status && lp_bytes_append(out, text, n_text);
    free(text);
    limpid_free(lines);
    *found = notes.found;
    return ok || (status ? lp_api_fail(err, 500, NULL, "the trace: %s", why.text)
                         : lp_api_out_of_memory(err));
}

// An id is looked for where it is recorded; else it may be the number of a sequence.
static bool view_request(const struct lp_service *service, const char *request,
                         enum lp_view_format format, struct lp_bytes *out,
                         struct lp_api_error *err) {
    bool found;
    if (!view(service, request, request, format, out, &found, err)) return false;
    if (!found && request && is_number(request) &&
        !view(service, NULL, request, format, out, &found, err))
        return false;
    return found || lp_api_fail(err, 404, NULL,
                                "nothing of the request '%.130s' is remembered; it is the "
                                "X-Request-Id of an answer, and old ones are forgotten",
                                request);
}

bool lp_debug_trace(struct lp_service *service, const char *request, const char *format_name,
                    struct lp_bytes *out, const char **content_type, struct lp_api_error *err) {
    static const char *const types[LP_VIEW_N_FORMATS] = {
        [LP_VIEW_TEXT] = "text/plain; charset=utf-8",
        [LP_VIEW_JSON] = "application/x-ndjson",
        [LP_VIEW_CHROME] = "application/json",
    };
    enum lp_view_format format = LP_VIEW_TEXT;
    if (format_name && !lp_view_format_parse(format_name, &format))
        return lp_api_invalid(err, "format", "format is '%.40s', expected text, json or chrome",
                              format_name);
    if (request && !request[0])
        return lp_api_invalid(err, "request", "request is empty; leave it out to see all");
    *content_type = types[format];
    lp_tree_room_take(&service->trees, ROOM);
    bool ok = view_request(service, request, format, out, err);
    lp_tree_room_give(&service->trees, ROOM);
    return ok;
}
