// The engine's requests behind one HTTP request: one for each prompt, all at once, and their events
// as they come.
//
//   submit --> next, next, ... --> end
//
// Threads. The connection's thread calls these functions. The engine's thread looks at the client
// before each step, so that one who has left costs nobody a step, and wakes the connection's thread
// for events; both end with lp_generation_end.
#ifndef LP_SERVE_GENERATION_H
#define LP_SERVE_GENERATION_H

#include "serve/access_log.h"
#include "serve/completion.h"

// Has the client closed the connection? From any thread; does not block.
struct lp_client {
    bool (*gone)(void *user);
    void *user;
};

// Stays where it is between submit and end.
struct lp_generation {
    const struct lp_completion *completion;
    struct lp_client client;
    struct lp_access *access;  // of the HTTP request; what is known is written to it
    limpid_request **requests; // [params.n_prompts]; NULL: not submitted, or ended
    limpid_request *ended;     // the last event is its last
    size_t n_open;             // requests that have not ended
    size_t at;                 // prompt of the last event
    bool dropped;              // an error was that nobody is left to answer
    int64_t n_prompt_tokens, n_cached, n_generated; // of choices that ended; a prompt counts once
    uint64_t deadline_ns, look_ns; // 0 = none; when to look at the engine's health next

    bool has_lock;
    pthread_mutex_t lock;
    pthread_cond_t changed; // CLOCK_MONOTONIC
    uint64_t n_news;        // on_event calls
};

// Zero-initialise. False with the error filled; end it either way.
bool lp_generation_submit(struct lp_generation *g, const struct lp_completion *completion,
                          const struct lp_client *client, struct lp_access *access,
                          struct lp_api_error *err);

// The next event of any choice, or kind NONE after wait_ms (negative: no limit). *choice is its place
// among all choices; of a PROMPT event that of the prompt's first. The event is valid until the next
// call. False with the error filled: the whole HTTP request has failed.
bool lp_generation_next(struct lp_generation *g, int64_t wait_ms, limpid_event *event,
                        size_t *choice, struct lp_api_error *err);
static inline bool lp_generation_ended(const struct lp_generation *g) {
    return g->n_open == 0;
}
void lp_generation_end(struct lp_generation *g); // cancels what runs; may be called again

#endif
