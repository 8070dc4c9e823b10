// OpenAI's Responses API: POST /v1/responses. Nothing is stored: a conversation goes on by sending
// the items of earlier answers in "input". docs/api.md lists the fields.
#ifndef LP_SERVE_RESPONSES_H
#define LP_SERVE_RESPONSES_H

#include "serve/chat_answer.h"

// An lp_answer_parse.
bool lp_responses_parse(struct lp_answer *a, const char *body, size_t n_bytes,
                        struct lp_api_error *err);
extern const struct lp_chat_format lp_responses_format;

#endif
