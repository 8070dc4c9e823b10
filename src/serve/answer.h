// One generation behind an HTTP request, from its admission to its last byte, in the wire format of
// any API. The formats (completions.c, chat formats of chat_answer.h) say how events become JSON;
// this says when: whole answers wait for all of it, streams give what there is.
#ifndef LP_SERVE_ANSWER_H
#define LP_SERVE_ANSWER_H

#include "serve/generation.h"

struct lp_answer;

struct lp_http_reply {
    int status;               // 0: nobody is left to answer
    int retry_after_s;        // 0 = none
    struct lp_bytes body;     // JSON
    struct lp_answer *stream; // not NULL: instead of body, server-sent events
};

// Functions give false (or NULL) without memory.
struct lp_format {
    // Takes up an event of a choice. out: of a stream, what shall be sent is appended; NULL: whole.
    bool (*event)(struct lp_answer *a, const limpid_event *event, size_t choice,
                  struct lp_bytes *out);
    bool (*end)(struct lp_answer *a, struct lp_bytes *out); // of a stream, behind the last event
    json_t *(*whole)(struct lp_answer *a);                  // the body, when all has ended
    json_t *(*error)(const struct lp_api_error *err);       // the body of an error
    // Of a stream that has begun: the last that is sent.
    bool (*stream_error)(struct lp_answer *a, const struct lp_api_error *err, struct lp_bytes *out);
    bool (*keep_alive)(struct lp_answer *a, struct lp_bytes *out);
    void (*release)(struct lp_answer *a); // state; it may be NULL or half made
};

struct lp_answer {
    const struct lp_format *format;
    struct lp_service *service;
    struct lp_completion completion;
    struct lp_generation generation;
    int64_t created;       // Unix time
    void *state;           // the format's
    struct lp_bytes first; // of a stream: was made before the head was sent
    bool ended;            // after first
};

// What a request's body becomes: fills a->completion (lp_completion_admit) and a->state. Its
// tree has its place in service->trees. False with the error filled.
typedef bool (*lp_answer_parse)(struct lp_answer *a, const char *body, size_t n_bytes,
                                struct lp_api_error *err);

// Reads the body, which is not needed afterwards, and submits it. NULL: the reply says why not.
// access gets what is known of the generation, as long as the answer lives.
struct lp_answer *lp_answer_admit(struct lp_service *service, const struct lp_format *format,
                                  lp_answer_parse parse, const struct lp_client *client,
                                  struct lp_access *access, const char *body, size_t n_bytes,
                                  struct lp_http_reply *reply);
// Takes the answer over. Returns when it is whole, or has begun (stream).
void lp_answer_run(struct lp_answer *a, struct lp_http_reply *reply);
// Appends the next events to out, or a sign of life if none comes for a while. False: these were
// the last.
bool lp_answer_next(struct lp_answer *a, struct lp_bytes *out);
void lp_answer_free(struct lp_answer *a); // cancels what runs; NULL is allowed

// Takes the reference of body. Without memory the reply is a bare status.
void lp_http_reply_json(struct lp_http_reply *reply, int status, json_t *body);
// form: an API's body of an error.
void lp_http_reply_error(struct lp_http_reply *reply, json_t *(*form)(const struct lp_api_error *),
                         const struct lp_api_error *err);
void lp_http_reply_release(struct lp_http_reply *reply);

#endif
