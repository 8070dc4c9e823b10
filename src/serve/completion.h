// The generations of one HTTP request, one after another: each prompt n times, in order.
//
//   admit (any thread, no engine) --> take turn --> next, next, ... --> end (gives the turn back)
//
// Between two tokens, and between two chunks of a prompt, it looks whether the client is still
// there and the server goes on.
#ifndef LP_SERVE_COMPLETION_H
#define LP_SERVE_COMPLETION_H

#include "base/bytes.h"
#include "serve/completion_params.h"
#include "serve/turn.h"

// What the requests of a server share.
struct lp_service {
    limpid_model *model;
    limpid_engine *engine;
    const char *model_id;
    int64_t created; // Unix time
    int64_t chunk;
    struct lp_turn turn;
    pthread_mutex_t
        parse_lock; // one body at a time becomes a JSON tree, which may be 40 times its size
};

struct lp_completion_prompt {
    int32_t *ids;
    size_t n_ids;
    struct lp_bytes text; // as given; of ids: their bytes. For echo
};

struct lp_completion {
    struct lp_service *service;
    struct lp_client client;
    struct lp_completion_params params;
    struct lp_completion_prompt *prompts; // [params.n_prompts]
    uint64_t seed;
    size_t choice, n_choices; // the running one, and all
    limpid_sequence *sequence;
    limpid_request *request;
    bool choice_done; // request is that of the choice before
    bool has_turn;
    bool dropped;                         // an error was that nobody is left to answer
    int64_t n_prompt_tokens, n_generated; // of the choices that have ended; a prompt counts once
};

// Takes params over (they are empty afterwards), tokenizes, checks against model and context.
// False with the error filled; release c either way.
bool lp_completion_admit(struct lp_completion *c, struct lp_service *service,
                         const struct lp_client *client, struct lp_completion_params *params,
                         struct lp_api_error *err);
bool lp_completion_take_turn(struct lp_completion *c, struct lp_api_error *err);
// The next event of choice c->choice. After its DONE event, which is valid until the next call,
// c->choice is the next one; lp_completion_ended tells whether there is one.
bool lp_completion_next(struct lp_completion *c, limpid_event *event, struct lp_api_error *err);
bool lp_completion_ended(const struct lp_completion *c);
void lp_completion_end(struct lp_completion *c);     // cancels what runs, gives the turn back
void lp_completion_release(struct lp_completion *c); // and frees

static inline const struct lp_completion_prompt *
lp_completion_prompt(const struct lp_completion *c) {
    return &c->prompts[c->choice / (size_t)c->params.n];
}

// Is the token left out of the text when special tokens are skipped?
bool lp_completion_is_hidden(const struct lp_completion *c, int32_t id);

#endif
