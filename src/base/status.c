// Error text: formatting, cleaning of control bytes, context.
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/clean.h"

static void format_text(char *out, const char *format, va_list args) {
    char raw[2 * LP_ERR_TEXT_BYTES];
    vsnprintf(raw, sizeof raw, format, args);
    lp_clean_text(out, LP_ERR_TEXT_BYTES, lp_str_from(raw));
}

lp_status lp_err_set(struct lp_err *err, lp_status status, const char *format, ...) {
    if (!err) return status;
    char text[LP_ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    format_text(text, format, args);
    va_end(args);
    memcpy(err->text, text, sizeof text);
    err->status = status;
    return status;
}

lp_status lp_err_context(struct lp_err *err, const char *format, ...) {
    if (!err) return LP_STATUS_MEMORY;
    char front[LP_ERR_TEXT_BYTES];
    char text[2 * LP_ERR_TEXT_BYTES + 2];
    va_list args;
    va_start(args, format);
    format_text(front, format, args);
    va_end(args);
    snprintf(text, sizeof text, "%s: %s", front, err->text);
    lp_clean_text(err->text, LP_ERR_TEXT_BYTES, lp_str_from(text));
    return err->status;
}

lp_status lp_err_memory(struct lp_err *err, size_t bytes, const char *what) {
    if (bytes == 0) return lp_err_set(err, LP_STATUS_MEMORY, "out of memory: %s", what);
    return lp_err_set(err, LP_STATUS_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

const char *lp_status_name(lp_status status) {
    static const char *const names[] = {
#define LP_STATUS_TEXT(name, text) text,
        LP_STATUS_LIST(LP_STATUS_TEXT)
#undef LP_STATUS_TEXT
    };
    size_t n = sizeof names / sizeof names[0];
    return (size_t)status < n ? names[status] : "unknown status";
}
