// What a pass over a whole trace finds: its sequences with the request and the steps of each, and
// the figures of a summary. A second pass can then tell of every event whose it is.
#ifndef LP_TRACE_VIEW_INDEX_H
#define LP_TRACE_VIEW_INDEX_H

#include "base/alloc.h"
#include "base/map.h"
#include "trace/view_process.h"

#define LP_VIEW_KEPT_ID_BYTES 63 // of a longer id the trace keeps that many

struct lp_view_range { // of steps
    int64_t first, last;
};

struct lp_view_seq { // a sequence: one choice of a request, as far as the trace tells of it
    int64_t number;
    const char *id;                                  // of its request, "": none was given
    const char *what;                                // its last change of state, "": none is there
    const char *why;                                 // it failed, or ""
    int64_t choice, n_prompt, n_cached, n_from_disk; // -1: not known
    int64_t n_tokens, n_given, n_preempted, n_drafted, n_accepted; // n_given: token events
    int64_t first_us, admitted_us, last_us;                        // admitted_us -1: not known
    bool ended;
    size_t selected;             // its place in the selection, from 1 on; 0: not in it
    struct lp_view_range *steps; // ascending and apart when the index is whole
    size_t n_ranges, max_ranges;
};

#define LP_VIEW_N_ENDS 3
extern const char *const lp_view_ends[LP_VIEW_N_ENDS]; // the `what` of a sequence that is over

struct lp_view_refusal { // a request that was not taken: it has no sequence
    const char *id;
    int64_t time_us, n_prompt;
    bool selected;
};

struct lp_view_tally { // how often something was met; the words are told apart by their address
    const char *what, *with, *why;
    int64_t n;
};

#define LP_VIEW_MOST_TALLIES 256
struct lp_view_tallies {
    struct lp_view_tally *rows; // at most LP_VIEW_MOST_TALLIES
    size_t n, max;
    int64_t n_others; // met when rows was full
};

#define LP_VIEW_SLOW_STEPS 5
struct lp_view_step {
    int64_t step, n_tokens, n_sequences, duration_us;
};

struct lp_view_index {
    struct lp_arena arena; // words and sequences
    struct lp_map words, by_number;
    const char **word_list;
    struct lp_view_seq **seqs, **selected; // in order of appearance
    struct lp_view_refusal *refusals;
    size_t n_words, max_words, n_seqs, max_seqs, n_selected, n_refusals, max_refusals;
    const char *asked; // the id that was selected, or NULL

    int64_t first_us, last_us, n_steps, n_step_tokens, step_us;
    struct lp_view_step slow[LP_VIEW_SLOW_STEPS];   // slowest first
    struct lp_view_tallies routes, kernels, events; // events: those that have no part in a summary
    struct lp_view_tallies operations;              // of the steps; their n: nanoseconds
    const char *architecture, *path, *backend, *signal, *address; // NULL: not told
    int64_t n_layers, n_threads, most_running, most_waiting;
    int64_t most_load;              // tokens that one expert of a layer got in a step
    int64_t begun_step, ended_step; // the last that has a chunk, the last that has an end; -1: none
    int64_t n_overwritten;          // events that a crash's dump lacks
    struct lp_view_process process;
};

// Reads all events. MEMORY; release it either way.
lp_status lp_view_index_build(struct lp_view_index *index, struct lp_str trace,
                              struct lp_view_notes *notes, struct lp_err *err);
void lp_view_index_release(struct lp_view_index *index);

// A copy that lives as long as the index, the same for the same text. NULL without memory.
const char *lp_view_word(struct lp_view_index *index, const char *text);
// Marks what is of a request (view.h): index->selected, refusals. Once; *found: there is something.
// MEMORY.
lp_status lp_view_index_select(struct lp_view_index *index, const char *request, bool *found,
                               struct lp_err *err);
// The sequence that an event names, or NULL.
struct lp_view_seq *lp_view_index_seq(const struct lp_view_index *index,
                                      const struct lp_view_event *event);
bool lp_view_seq_has_step(const struct lp_view_seq *seq, int64_t step);
// Is it of a marked sequence, of a step that such a sequence took part in, or of nobody's?
bool lp_view_index_wants(const struct lp_view_index *index, const struct lp_view_event *event);

#endif
