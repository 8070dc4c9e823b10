// OpenAI's API: the wire format of models, completions and errors. Knows no HTTP library: a reply
// is a status with a body, or a stream to be pulled.
#ifndef LP_SERVE_OPENAI_H
#define LP_SERVE_OPENAI_H

#include "serve/completion.h"

struct lp_stream;

struct lp_reply {
    int status;               // 0: nobody is left to answer
    struct lp_bytes body;     // JSON
    struct lp_stream *stream; // not NULL: instead of body, server-sent events
};

// Sets status and body; anything the reply held is released.
void lp_openai_error(struct lp_reply *reply, const struct lp_api_error *err);
void lp_openai_health(struct lp_reply *reply);
// id NULL: the list. Otherwise that model, or 404.
void lp_openai_models(const struct lp_service *service, const char *id, struct lp_reply *reply);
// POST /v1/completions. Returns when the answer is whole, or has begun (stream).
void lp_openai_completions(struct lp_service *service, const struct lp_client *client,
                           const char *body, size_t n_bytes, struct lp_reply *reply);

// Appends the next events to out. False: these were the last.
bool lp_stream_next(struct lp_stream *stream, struct lp_bytes *out);
void lp_stream_free(struct lp_stream *stream); // cancels what runs; NULL is allowed

void lp_reply_release(struct lp_reply *reply);

#endif
