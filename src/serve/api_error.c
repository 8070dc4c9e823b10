#include "serve/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "serve/json_out.h"

#define BUSY_RETRY_S 1 // a place in the queue is free as soon as any request ends
#define AWAY_RETRY_S 5

static const char *type_of(int http) {
    if (http == 401) return "authentication_error";
    if (http == 429) return "rate_limit_error";
    return http < 500 ? "invalid_request_error" : "server_error";
}

static void set(struct lp_api_error *err, int http, const char *code, const char *param,
                const char *format, va_list args) {
    *err = (struct lp_api_error){.http = http,
                                 .type = type_of(http),
                                 .code = code,
                                 .retry_after_s = http == 429   ? BUSY_RETRY_S
                                                  : http == 503 ? AWAY_RETRY_S
                                                                : 0};
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

// Options of limpid.h that have another name on the wire.
static const struct {
    const char *option, *field;
} names[] = {
    {"tokens", "prompt"},
    {"bias", "logit_bias"},
    {"bias_ids", "logit_bias"},
    {"stop_ids", "stop_token_ids"},
    {"dry_breakers", "dry_sequence_breakers"},
    {"n_logprobs", "logprobs"},
    {"timeout_ms", ""},
};

static const char *const same_names[] = {
    "prompt",
    "max_tokens",
    "n",
    "logit_bias",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_tokens",
    "top_k",
    "dry_multiplier",
    "dry_base",
    "typical_p",
    "top_p",
    "min_p",
    "dry_allowed_length",
    "temperature",
    "stop",
    "logprobs",
    "priority",
    "dry_sequence_breakers",
    "stop_token_ids",
    "seed",
};

static void name_param(struct lp_api_error *err, const char *text) {
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i].option) == n && memcmp(names[i].option, text, n) == 0)
            snprintf(err->param, sizeof err->param, "%s", names[i].field);
    for (size_t i = 0; i < sizeof same_names / sizeof same_names[0]; i++)
        if (strlen(same_names[i]) == n && memcmp(same_names[i], text, n) == 0)
            snprintf(err->param, sizeof err->param, "%s", same_names[i]);
}

bool lp_api_from_limpid(struct lp_api_error *err, const limpid_error *from) {
    switch (from->status) {
    case LIMPID_INVALID:
        lp_api_fail(err, 400, NULL, "%s", from->text);
        name_param(err, from->text);
        return false;
    case LIMPID_UNSUPPORTED: // of what was asked: a schema's keyword, a model without a template
        return lp_api_fail(err, 400, NULL, "%s", from->text);
    case LIMPID_LIMIT:
        lp_api_fail(err, 400, "context_length_exceeded", "%s", from->text);
        snprintf(err->param, sizeof err->param, "prompt");
        return false;
    case LIMPID_BUSY:
        return lp_api_fail(err, 429, "rate_limit_exceeded", "%s", from->text);
    case LIMPID_TIMEOUT:
        return lp_api_fail(err, 504, "request_timeout", "%s", from->text);
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
