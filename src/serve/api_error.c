#include "serve/api_error.h"

#include <stdarg.h>
#include <stdio.h>

#include "serve/json_out.h"

static const char *type_of(int http) {
    if (http == 401) return "authentication_error";
    return http < 500 ? "invalid_request_error" : "server_error";
}

static void set(struct lp_api_error *err, int http, const char *code, const char *param,
                const char *format, va_list args) {
    *err = (struct lp_api_error){.http = http, .type = type_of(http), .code = code};
    snprintf(err->param, sizeof err->param, "%s", param ? param : "");
    vsnprintf(err->message, sizeof err->message, format, args);
}

bool lp_api_invalid(struct lp_api_error *err, const char *param, const char *format, ...) {
    va_list args;
    va_start(args, format);
    set(err, 400, NULL, param, format, args);
    va_end(args);
    return false;
}

bool lp_api_fail(struct lp_api_error *err, int http, const char *code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    set(err, http, code, NULL, format, args);
    va_end(args);
    return false;
}

bool lp_api_out_of_memory(struct lp_api_error *err) {
    return lp_api_fail(err, 500, NULL, "the server is out of memory for this request");
}

bool lp_api_from_limpid(struct lp_api_error *err, const limpid_error *from) {
    switch (from->status) {
    case LIMPID_INVALID:
        return lp_api_fail(err, 400, NULL, "%s", from->text);
    case LIMPID_LIMIT: {
        lp_api_fail(err, 400, "context_length_exceeded", "%s", from->text);
        snprintf(err->param, sizeof err->param, "prompt");
        return false;
    }
    case LIMPID_CANCELLED:
        return lp_api_fail(err, 503, NULL, "%s", from->text);
    default:
        return lp_api_fail(err, 500, NULL, "%s", from->text);
    }
}

json_t *lp_api_error_json(const struct lp_api_error *err) {
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message",
                     lp_json_text(lp_str_from(err->message)), "type", err->type, "param",
                     err->param[0] ? lp_json_text(lp_str_from(err->param)) : json_null(), "code",
                     err->code);
}
