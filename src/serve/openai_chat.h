// OpenAI's POST /v1/chat/completions.
#ifndef LP_SERVE_OPENAI_CHAT_H
#define LP_SERVE_OPENAI_CHAT_H

#include "serve/chat_answer.h"

bool lp_openai_chat_parse(struct lp_answer *a, const char *body, size_t n_bytes,
                          struct lp_api_error *err); // an lp_answer_parse
extern const struct lp_chat_format lp_openai_chat_format;

// The body as a request, for others that render one. with_sampling false: only what a prompt is
// made of is read. r is to be released either way.
bool lp_openai_chat_request(struct lp_chat_request *r, const struct lp_service *service,
                            const json_t *root, bool with_sampling, struct lp_api_error *err);

#endif
