// One choice of a completion, gathered from events: text, log-probabilities, how it ended. A stream
// takes it piece by piece, an answer once at the end; both are made here, so they cannot differ.
#ifndef LP_SERVE_CHOICE_H
#define LP_SERVE_CHOICE_H

#include "serve/completion.h"
#include "serve/logprobs.h"

struct lp_choice {
    bool started;         // the echo has been written
    size_t index;         // among all choices of the HTTP request
    struct lp_bytes text; // since the last take
    struct lp_logprobs logprobs;
    size_t n_logprobs; // tokens in it
    bool with_logprobs;
    struct lp_char_count position; // in the whole text, before the next token
    struct lp_bytes ids;           // int32_t tokens since the last take, where they are asked for
    bool prompt_ids_sent;
    size_t echo_at; // bytes of the prompt's text that its tokens so far have covered; then 1 more
};

// Zero-initialise and set index. False without memory.
bool lp_choice_add(struct lp_choice *choice, const struct lp_completion *c,
                   const limpid_event *event);
bool lp_choice_has_news(const struct lp_choice *choice);
// {"index", "text", "logprobs", "finish_reason", "stop_reason"} of what came since the last take;
// with return_token_ids also "token_ids" and, the first time, "prompt_token_ids". After a DONE
// event it has let go of its memory. NULL without memory.
json_t *lp_choice_take(struct lp_choice *choice, const struct lp_completion *c,
                       const limpid_event *event);
void lp_choice_release(struct lp_choice *choice);

#endif
