// OpenAI's API: the wire format of models, completions and errors. Knows no HTTP library: a reply
// is a status with a body, or a stream to be pulled.
#ifndef LP_SERVE_OPENAI_H
#define LP_SERVE_OPENAI_H

#include "serve/generation.h"

struct lp_answer; // one completion, from its admission to its last byte

struct lp_reply {
    int status;               // 0: nobody is left to answer
    int retry_after_s;        // 0 = none
    struct lp_bytes body;     // JSON
    struct lp_answer *stream; // not NULL: instead of body, server-sent events
};

// Sets status and body; anything the reply held is released.
void lp_openai_error(struct lp_reply *reply, const struct lp_api_error *err);
// Live: 200 while steps are made; otherwise also 503 while draining.
void lp_openai_health(struct lp_service *service, bool live, struct lp_reply *reply);
// id NULL: the list. Otherwise that model, or 404.
void lp_openai_models(const struct lp_service *service, const char *id, struct lp_reply *reply);

// POST /v1/completions. Reads the body, which is not needed afterwards, and submits it. NULL: the
// reply says why not. access gets what is known of the generation, as long as the answer lives.
struct lp_answer *lp_openai_admit(struct lp_service *service, const struct lp_client *client,
                                  struct lp_access *access, const char *body, size_t n_bytes,
                                  struct lp_reply *reply);
// Takes the answer over. Returns when it is whole, or has begun (stream).
void lp_openai_answer(struct lp_answer *answer, struct lp_reply *reply);

// Appends the next events to out, or a comment if none comes for a while. False: these were the last.
bool lp_answer_next(struct lp_answer *answer, struct lp_bytes *out);
void lp_answer_free(struct lp_answer *answer); // cancels what runs; NULL is allowed

void lp_reply_release(struct lp_reply *reply);

#endif
