// Anthropic's Messages API: what its bodies, answers and events mean here. A format of
// chat_answer.h; the conversation itself is OpenAI's form behind anthropic_request.c, as in every
// chat API.
#ifndef LP_SERVE_ANTHROPIC_H
#define LP_SERVE_ANTHROPIC_H

#include "serve/chat_answer.h"

// POST /v1/messages. An lp_answer_parse.
bool lp_anthropic_parse(struct lp_answer *a, const char *body, size_t n_bytes,
                        struct lp_api_error *err);
extern const struct lp_chat_format lp_anthropic_format;

// {"type": "error", "error": {"type", "message", maybe "details"}}. NULL without memory.
json_t *lp_anthropic_error(const struct lp_api_error *err);

// POST /v1/messages/count_tokens: the prompt is rendered and tokenized as for an answer.
void lp_anthropic_count_tokens(struct lp_service *service, const char *body, size_t n_bytes,
                               struct lp_http_reply *reply);

#endif
