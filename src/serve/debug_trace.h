// GET /debug/trace?request=ID&format=text|json|chrome: what the engine decided last, of one request
// or of all, as limpid trace tells it. Always there; it shows no prompts, and tokens of answers
// only to a service that shows prompts (--debug-prompts).
#ifndef LP_SERVE_DEBUG_TRACE_H
#define LP_SERVE_DEBUG_TRACE_H

#include "base/bytes.h"
#include "serve/api_error.h"
#include "serve/service.h"

// request NULL: all; its id (X-Request-Id), or the number of a sequence. format NULL: text. out:
// zero-initialised, release it either way. *content_type: static. Never waits for a step. False
// with the error filled: 400 for another format, 404 where nothing of the request is remembered.
bool lp_debug_trace(struct lp_service *service, const char *request, const char *format,
                    struct lp_bytes *out, const char **content_type, struct lp_api_error *err);

// Blanks the ids of tokens in JSON lines as the trace writes them; the lines stay JSON.
void lp_debug_trace_hide_tokens(char *lines, size_t n_bytes);

#endif
