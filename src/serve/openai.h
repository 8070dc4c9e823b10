// What OpenAI's APIs have in common here: models, health, usage, errors in streams.
#ifndef LP_SERVE_OPENAI_H
#define LP_SERVE_OPENAI_H

#include "serve/answer.h"

// Live: 200 while steps are made; otherwise also 503 while draining.
void lp_openai_health(struct lp_service *service, bool live, struct lp_http_reply *reply);
// id NULL: the list. Otherwise that model, or 404.
void lp_openai_models(const struct lp_service *service, const char *id,
                      struct lp_http_reply *reply);

// "usage". reasoning: tokens of reasoning among those generated; negative: not told. NULL without
// memory.
json_t *lp_openai_usage(int64_t prompt, int64_t cached, int64_t generated, int64_t reasoning);

// Of a format: the head is out, so the error is an event, and the last.
bool lp_openai_stream_error(struct lp_answer *a, const struct lp_api_error *err,
                            struct lp_bytes *out);
bool lp_openai_keep_alive(struct lp_answer *a, struct lp_bytes *out);

#endif
