// Any bytes as a trace, in every format, whole and of one request: nothing is read past the end, what
// is printed as a text holds no control characters, and Chrome's format is JSON.
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lp_str trace = {(const char *)data, size};
    static const char *const requests[] = {NULL, "a", "3"};
    for (int r = 0; r < 3; r++) {
        size_t n;
        char *text = view(trace, requests[r], LP_VIEW_TEXT, &n);
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)text[i] < 0x20 && text[i] != '\n') abort();
        free(text);
        free(view(trace, requests[r], LP_VIEW_JSON, &n));
        text = view(trace, requests[r], LP_VIEW_CHROME, &n);
        json_t *root = n ? json_loadb(text, n, 0, NULL) : NULL;
        if (n && !root) abort();
        json_decref(root);
        free(text);
    }
    return 0;
}
