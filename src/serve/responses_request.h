// The body of POST /v1/responses: JSON in, a chat request out. Runs no model.
#ifndef LP_SERVE_RESPONSES_REQUEST_H
#define LP_SERVE_RESPONSES_REQUEST_H

#include "serve/chat_prompt.h"

struct lp_responses_request {
    struct lp_chat_request chat;
    json_t *echo; // what the answer repeats of the request: instructions, tools, temperature, ...
};

// Zero-initialised or not; release it either way. Of service only chat_template is looked at. False
// with the error filled.
bool lp_responses_request_parse(struct lp_responses_request *r, const struct lp_service *service,
                                const json_t *root, struct lp_api_error *err);
void lp_responses_request_release(struct lp_responses_request *r);

#endif
