// The steps that one sequence took part in, put together from the events of a trace: what each
// computed of it, how its layers attended, what it gave out.
#ifndef LP_TRACE_VIEW_STEPS_H
#define LP_TRACE_VIEW_STEPS_H

#include "trace/view_index.h"

struct lp_view_layers { // consecutive layers that attended alike
    int64_t first, last;
    const char *how; // a word of the index: route, reason, kernel, indexer as a text
};

struct lp_view_token {
    int64_t position, id, rank; // rank -1: not told
    double logprob;             // NAN: not told
};

struct lp_view_seq_step {
    int64_t step, time_us;                          // time_us: of its first event
    int64_t n_prompt, n_answer, n_draft;            // rows of the sequence
    int64_t n_past, n_kv;                           // keys before it, and the most behind it
    int64_t n_sequences;                            // of the whole step; -1: not told
    int64_t duration_us;                            // -1: not told
    int64_t n_accepted;                             // drafts that came true
    int64_t n_hit, n_most, most_layer, most_expert; // the step's experts; n_hit 0: not told
    bool has_chunk;                // n_prompt, n_answer, n_draft and n_past are told
    struct lp_view_layers *layers; // [n_layers], by their numbers
    size_t n_layers, max_layers;
    size_t first_token, n_given; // of steps->tokens
};

struct lp_view_steps {
    struct lp_view_seq_step *rows; // by their numbers
    size_t n, max;
    struct lp_view_token *tokens; // in order
    size_t n_tokens, max_tokens;
    int64_t n_stray; // events too far from their place, which are left out
};

// Takes up an event of the sequence (chunk, attention, token, draft) or of a step that it took part
// in (step, expert_load). Others are ignored. False without memory.
bool lp_view_steps_take(struct lp_view_steps *steps, struct lp_view_index *index,
                        const struct lp_view_event *event);
// The same in kind: as many tokens of prompt and answer, attended alike. Drafts may differ.
bool lp_view_steps_alike(const struct lp_view_seq_step *a, const struct lp_view_seq_step *b);
void lp_view_steps_release(struct lp_view_steps *steps);

#endif
