// An error as OpenAI's API reports it: {"error": {"message", "type", "param", "code"}} and an HTTP
// status.
#ifndef LP_SERVE_API_ERROR_H
#define LP_SERVE_API_ERROR_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"
#include "limpid.h"

struct lp_api_error {
    int http;
    int retry_after_s;       // 0 = says nothing about when
    const char *type, *code; // code may be NULL
    char param[64];          // "" = none
    char message[LP_ERR_TEXT_BYTES];
};

// A request that is wrong: 400, invalid_request_error. Returns false, so that "return
// lp_api_invalid(...)" works.
bool lp_api_invalid(struct lp_api_error *err, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Any other: type follows from the status (401 authentication_error, 429 rate_limit_error, other
// 4xx invalid_request_error, else server_error), and so does when to ask again (429, 503).
bool lp_api_fail(struct lp_api_error *err, int http, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool lp_api_out_of_memory(struct lp_api_error *err);
// What a function of limpid.h said about a prompt or its generation. INVALID: the word that the
// sentence begins with is the param, if it is the name of a field.
bool lp_api_from_limpid(struct lp_api_error *err, const limpid_error *from);

json_t *lp_api_error_json(const struct lp_api_error *err); // a new reference, NULL without memory

#endif
