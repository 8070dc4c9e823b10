// An answer in a conversation, as every chat API gives it: the parts of text/reply.h gathered by
// choice. A chat format says how they look on the wire.
//
// For each choice, in this order: start, then piece for each part as it comes, and done. Of a whole
// answer they are called with out NULL, so that a format that keeps a list of parts makes the same
// one for both.
#ifndef LP_SERVE_CHAT_ANSWER_H
#define LP_SERVE_CHAT_ANSWER_H

#include "serve/answer.h"
#include "serve/chat_prompt.h"

struct lp_chat_call {
    char id[64];
    struct lp_bytes name, arguments; // arguments: JSON text
};

struct lp_chat_choice {
    size_t index;
    bool started;
    struct lp_reply *reply;             // its parser
    struct lp_bytes reasoning, content; // so far
    struct lp_chat_call *calls;         // [n_calls]
    size_t n_calls, call_capacity;
    bool in_call; // the last piece was of a call that has not ended
    // done: a stop text or the length limit fell into a call, so its arguments, though mended to
    // valid JSON, are not all that the model wanted; known before the last pieces come
    bool cut_call;
    json_t *logprobs;           // entries (OpenAI's form) since they were last taken, or NULL
    struct lp_bytes ids;        // int32_t tokens generated
    size_t n_ids_sent;          // formats that send ids: how many have been
    int64_t n_reasoning;        // tokens of reasoning
    int64_t n_prompt, n_cached; // known from the first event on
    bool done;
    bool hit_length; // max_tokens or the context ended it; known before the last pieces come
    char *stop_text; // done: the stop text that was met, or NULL
    int32_t stop_id; // done: the stop token (stop_token_ids) that was met, or -1
    void *sink;      // chat_answer.c's, during an event
};

struct lp_chat_answer;

struct lp_chat_format {
    struct lp_format base;   // .event, .release: lp_chat_answer_event, lp_chat_answer_release
    const char *id_prefix;   // of the answer: "chatcmpl-"
    const char *call_prefix; // of tool calls: "call_"
    // Each appends server-sent events to out, unless that is NULL; each may be NULL. False without
    // memory. n_cached and n_prompt are known.
    bool (*start)(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_bytes *out);
    bool (*piece)(struct lp_answer *a, struct lp_chat_choice *choice,
                  const struct lp_reply_piece *piece, struct lp_bytes *out);
    bool (*done)(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_bytes *out);
};

struct lp_chat_answer { // a->state
    const struct lp_chat_format *format;
    char id[64];
    struct lp_chat_prompt prompt;
    struct lp_chat_choice *choices; // [completion.n_choices]
    bool with_logprobs;
    json_t *echo;                       // what the format wants to keep of the request; owned
    void *extra;                        // the format's own; freed with lp_free
    void (*release_extra)(void *extra); // before that; may be NULL
};

static inline struct lp_chat_answer *lp_chat_of(const struct lp_answer *a) {
    return a->state;
}

// For an lp_answer_parse: makes a->state and admits the request (its params are taken over). What
// is in state already (echo, extra) stays.
bool lp_chat_answer_admit(struct lp_answer *a, struct lp_chat_request *request,
                          struct lp_api_error *err);
// Makes a->state, empty, so that a parse function can set echo and extra before it admits.
struct lp_chat_answer *lp_chat_answer_new(struct lp_answer *a); // NULL without memory

bool lp_chat_answer_event(struct lp_answer *a, const limpid_event *event, size_t choice,
                          struct lp_bytes *out);
void lp_chat_answer_release(struct lp_answer *a);

// The usage of all choices; n_prompt counts once.
struct lp_chat_usage {
    int64_t prompt, cached, generated, reasoning;
};
struct lp_chat_usage lp_chat_answer_usage(const struct lp_answer *a);

#endif
