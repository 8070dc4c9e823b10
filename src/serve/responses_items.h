// The items of an answer of the Responses API, in the order in which the model wrote them:
// reasoning, messages, function calls. The same for streams and whole answers.
#ifndef LP_SERVE_RESPONSES_ITEMS_H
#define LP_SERVE_RESPONSES_ITEMS_H

#include "serve/chat_answer.h"

enum lp_responses_kind { LP_RESPONSES_REASONING, LP_RESPONSES_MESSAGE, LP_RESPONSES_CALL };

struct lp_responses_item {
    enum lp_responses_kind kind;
    char id[32];
    struct lp_bytes text; // so far; not of a CALL
    size_t call;          // of a CALL: its place among the choice's
    json_t *logprobs;     // of a MESSAGE, with log-probabilities: entries so far
    bool open;            // more may come
    bool cut;             // it ended before its end
};

struct lp_responses_state { // lp_chat_answer.extra
    struct lp_responses_item *items;
    size_t n_items, capacity;
    int64_t n_events; // of a stream, sent
    bool begun;       // a stream: its head has been sent
};

static inline struct lp_responses_state *lp_responses_state(const struct lp_answer *a) {
    return lp_chat_of(a)->extra;
}
void lp_responses_state_release(void *state); // a release_extra

// A new open item behind the others; NULL without memory. Valid until the next.
struct lp_responses_item *lp_responses_item_add(struct lp_responses_state *s,
                                                enum lp_responses_kind kind);
// The last item if it is open, or NULL.
struct lp_responses_item *lp_responses_item_open(const struct lp_responses_state *s);
// A MESSAGE has grown by n_bytes of text: moves the log-probabilities of its tokens from the
// choice, those before its first text (</think>, a tool call) left out. *out: a new reference to
// those that came, an array. False without memory.
bool lp_responses_take_logprobs(struct lp_responses_item *item, struct lp_chat_choice *choice,
                                size_t n_bytes, json_t **out);

// As they are on the wire. An item that is open and without text has no parts yet. NULL without
// memory.
json_t *lp_responses_part_json(const struct lp_responses_item *item);
json_t *lp_responses_item_json(const struct lp_responses_item *item,
                               const struct lp_chat_choice *choice);

// The answer's object: in progress, or ended (how, the choice says). err: it has failed. NULL
// without memory.
json_t *lp_responses_object(const struct lp_answer *a, bool ended, const struct lp_api_error *err);

// ---- events: responses_stream.c, as in struct lp_chat_format and lp_format ----

bool lp_responses_start(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_bytes *out);
bool lp_responses_piece(struct lp_answer *a, struct lp_chat_choice *choice,
                        const struct lp_reply_piece *piece, struct lp_bytes *out);
bool lp_responses_done(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_bytes *out);
bool lp_responses_end(struct lp_answer *a, struct lp_bytes *out);
bool lp_responses_stream_error(struct lp_answer *a, const struct lp_api_error *err,
                               struct lp_bytes *out);

#endif
