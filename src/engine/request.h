// A request: what was asked for, its choices, and the events that wait for whoever asked.
//
// Submitted by any thread, run by whoever makes steps, read by one thread. It lives until both the
// scheduler has no choice of it any more and its owner has freed it.
#ifndef LP_ENGINE_REQUEST_H
#define LP_ENGINE_REQUEST_H

#include "engine/constraint.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/stop.h"

struct lp_event { // what an event points to lies behind it in the same block
    struct lp_event *next;
    limpid_event event;
};

struct limpid_request {
    limpid_engine *engine;
    limpid_request_options options;     // pointers to copies that the request owns
    char id[LP_TRACE_TEXT_BYTES];       // the caller's name for it
    uint64_t arrival;                   // seniority within a priority
    uint64_t submitted_ns, deadline_ns; // deadline 0 = none
    uint64_t first_ns;                  // first token; 0 = none yet
    struct lp_seq *seqs;                // [n]
    int32_t n, n_ended;
    bool prompt_done; // the first choice's prompt is computed; the others may start
    // [n_stop + n_stop_ids]: the control token that each stop text names or -1, then the ids
    int32_t *stop_ids;
    // Tokens that end a choice, [n_ends]: the request's stop tokens, then (from n_own_ends on) the
    // vocabulary's end tokens
    int32_t *ends;
    size_t n_own_ends, n_ends;
    int32_t *shown_ids;
    char **stop;

    // under engine->lock
    struct limpid_request *next; // incoming
    struct lp_event *first, *last;
    pthread_cond_t changed;
    struct lp_err failure;
    bool failed, ended, freed, in_engine;
    atomic_bool cancelled;
    struct lp_event *current; // what the owner looks at; freed at its next call
    int64_t n_open;           // DONE events that are still to come
};

// By whoever has the turn: the events of a step are gathered and given out at its end.
struct lp_event *lp_event_new(const limpid_event *event); // a copy with all it points to, or NULL
void lp_request_push(limpid_request *request, struct lp_event *event); // takes lock
void lp_request_fail(limpid_request *request,
                     const struct lp_err *err);   // takes lock; its choices end
void lp_request_destroy(limpid_request *request); // nobody knows it any more

// output.c: from a sampled token to the caller.
lp_status lp_output_new(struct lp_output **out, const limpid_request *request, struct lp_err *err);
void lp_output_free(struct lp_output *output);
// Takes up the token that was sampled from `logits` for seq, pushes its event, and the DONE event
// if it ends the choice: *ended. Appends the token to seq->tokens.
lp_status lp_output_token(struct lp_seq *seq, int32_t id, const float *logits, bool *ended,
                          struct lp_err *err);
// "stop" or "length", once the choice has ended.
const char *lp_output_finish_reason(const struct lp_output *output);
// The choice ends without a further token: "length" (nothing to generate) or "stop" (its grammar
// allows none).
lp_status lp_output_end(struct lp_seq *seq, const char *finish_reason, struct lp_err *err);
// The events of prompt tokens first .. first + n - 1, from the rows of logits that predict the
// tokens behind them: row i is of position first + i.
lp_status lp_output_prompt(struct lp_seq *seq, int64_t first, int64_t n, const float *logits,
                           struct lp_err *err);

#endif
