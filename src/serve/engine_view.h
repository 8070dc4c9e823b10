// A look at the engine at work: GET /engine?since=STEP (counters now, and what each step behind
// that one did) and GET /debug/last-prompt (what the last request gave the model).
#ifndef LP_SERVE_ENGINE_VIEW_H
#define LP_SERVE_ENGINE_VIEW_H

#include "serve/answer.h"

void lp_engine_view(const struct lp_service *service, const char *since,
                    struct lp_http_reply *reply);

// Keeps the prompt (a copy), if the service shall.
void lp_last_prompt_keep(struct lp_service *service, const struct lp_completion *c,
                         const char *request_id);
void lp_last_prompt_view(struct lp_service *service, struct lp_http_reply *reply);
void lp_last_prompt_release(struct lp_service *service);

#endif
