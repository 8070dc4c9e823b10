// Any bytes as a trace, in every format, whole and of one request, and cut in two as the traces of two
// ranks: nothing is read past the end, what is printed as a text holds no control characters, and
// Chrome's format is JSON.
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "trace/view.h"

static char *view(struct lp_str trace, const char *request, enum lp_view_format format, size_t *n) {
    struct lp_view_notes notes;
    struct lp_err err;
    char *text = NULL;
    FILE *out = open_memstream(&text, n);
    if (!out) abort();
    lp_status status = lp_view_write(trace, request, format, out, &notes, &err);
    fclose(out);
    if (!status && notes.n_events == 0) abort();
    if (status && !err.text[0]) abort();
    if ((status || !notes.found) && *n > 0) abort();
    return text;
}

static char *view_ranks(struct lp_str trace, const struct lp_view_asked *asked, size_t *n) {
    const size_t half = trace.len / 2;
    const struct lp_view_file files[2] = {
        {.path = "a", .lines = {trace.data, half}, .rank = 0},
        {.path = "b", .lines = {trace.data + half, trace.len - half}, .rank = 1}};
    struct lp_view_notes notes;
    struct lp_err err;
    char *text = NULL;
    size_t shown;
    FILE *out = open_memstream(&text, n);
    if (!out) abort();
    lp_status status = lp_view_write_ranks(files, 2, asked, out, &shown, &notes, &err);
    fclose(out);
    if (status ? !err.text[0] : shown > 1) abort();
    return text;
}

static void check_text(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 && text[i] != '\n') abort();
}

static void check_json(const char *text, size_t n) {
    json_t *root = n ? json_loadb(text, n, 0, NULL) : NULL;
    if (n && !root) abort();
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lp_str trace = {(const char *)data, size};
    static const char *const requests[] = {NULL, "a", "3"};
    size_t n;
    for (int r = 0; r < 3; r++) {
        char *text = view(trace, requests[r], LP_VIEW_TEXT, &n);
        check_text(text, n);
        free(text);
        free(view(trace, requests[r], LP_VIEW_JSON, &n));
        text = view(trace, requests[r], LP_VIEW_CHROME, &n);
        check_json(text, n);
        free(text);
    }
    char *text = view_ranks(trace, &(struct lp_view_asked){.steps = true}, &n);
    check_text(text, n);
    free(text);
    text = view_ranks(trace, &(struct lp_view_asked){.format = LP_VIEW_CHROME}, &n);
    check_json(text, n);
    free(text);
    return 0;
}
