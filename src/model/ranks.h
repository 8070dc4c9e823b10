// A model that several ranks run together (dist/): what a runner does beside the mathematics of a layer.
//
// Rank 0's runner is called as any other; each of its calls goes to all ranks as one order, which carries
// all that the call was made with, and every rank runs it in lock-step. At its end each tells rank 0 how it
// went. What rank 0 does to pages of the cache outside of steps is an order too.
#ifndef LP_MODEL_RANKS_H
#define LP_MODEL_RANKS_H

#include "dist/order.h"
#include "model/model.h"
#include "model/ranks_experts.h"
#include "model/ranks_probe.h"

struct lp_runner;

#define LP_RANKS_REPORT_BYTES 384 // what a rank tells at the end of a step

struct lp_rank_times {     // of a rank, since its runner was made
    uint64_t step_ns;      // in steps
    uint64_t wait_ns;      // of that: in exchanges with other ranks
    uint64_t memory_bytes; // the most that the process has had in memory
    // Of its cache of experts, since it was made; all zeros without one (lp_expert_stats)
    uint64_t expert_slots, expert_hits, expert_ahead, expert_misses, expert_reads,
        expert_read_bytes, expert_wait_ns;
};

struct lp_runner_ranks { // of a runner; all zeros where its model has no ranks
    struct lp_order order;
    int32_t owner;               // the engine's number in orders
    float *staged;               // host, [max_rows, n_embd]: of devices with memory of their own
    float *logits;               // host, [logit_rows, n_vocab]
    float *part;                 // device, [logit_rows, this rank's share of the vocabulary]
    float *part_on_host;         // [logit_rows, the largest share]
    size_t *page_bytes;          // [size]: of a page, those that are on no rank before
    uint8_t *reports;            // [size] of what ranks tell at the end of a step
    struct lp_rank_times *times; // [size]: rank 0's of all; NULL without ranks
    uint64_t step_ns, began_ns, wait_from_ns;
    bool lacked;       // in the step that runs experts could not be read; in the next they may
    uint64_t reported; // the last order whose end was told to rank 0
    uint64_t rows_sent, sent_from_bytes; // in the step that runs; what was sent before it
    // With stages: rows of a window, which runs through them behind the one before; 0: all rows at once
    int64_t window_rows;
    struct lp_span *window; // [max_rows]: its spans
    bool watched;           // of rank 1 and up: rank 0 wants to see each layer's output
    // With data-parallel attention, of the spans that run
    size_t *gathered;    // [size]: values of the stream that each rank gives the others
    struct lp_span *own; // [max_rows]: those whose cache is here, rows counted from own_rows.first
    int32_t n_own;
    struct lp_range own_rows;
    size_t *spans_of; // [2 * size]: what recorded operations of each rank depend on (step.c)
    struct lp_ranks_experts experts;
    struct lp_ranks_probe probe;
    bool *bad; // [max_rows]
    // of rank 1 and up: what an order says
    struct lp_page_table *tables; // [max_rows]
    struct lp_span *spans;        // [max_rows]
    int32_t *tokens, *logit_rows; // [max_rows]
};

// The devices of a stage's ranks become a group that exchanges numbers without the hosts, where they can: each has its
// own, and the library is there; else a warning says why not. With several stages all ranks' devices too. Collective
// over m->ranks. Errors: IO (a rank is lost).
lp_status lp_ranks_join_devices(struct lp_model *m, struct lp_err *err);

// Where ranks run the runner's model: its buffers, before its first step; all then call lp_ranks_join_caches.
// owner: a number that tells it from the runners of other engines. Errors: MEMORY.
lp_status lp_ranks_init(struct lp_runner *r, int32_t owner, struct lp_err *err);
void lp_ranks_release(struct lp_runner *r);

// ---- inside a step: nothing of it does anything where there are no ranks

// What a part of the layer adds to the stream is summed over the stage's ranks: before it the stream is
// cleared on all of them but the first, behind it summed.
void lp_ranks_begin_sum(struct lp_runner *r, int64_t n_rows);
void lp_ranks_end_sum(struct lp_runner *r, int64_t n_rows, struct lp_step_clock *clock);
// The same around attention, where ranks have heads; where they have sequences nothing is summed.
void lp_ranks_begin_attention(struct lp_runner *r, int64_t n_rows);
void lp_ranks_end_attention(struct lp_runner *r, int64_t n_rows, struct lp_step_clock *clock);
// Where ranks have sequences, the stream counts for their rows alone: behind attention, and behind a layer. Each gives
// all others its rows: before a FFN that is divided, behind the last layer, and behind a layer that is watched.
void lp_ranks_gather_stream(struct lp_runner *r, int64_t n_rows, struct lp_step_clock *clock);
// Notes whose rows the spans are; they lie in the order of the parts of their tables.
void lp_ranks_divide_rows(struct lp_runner *r, const struct lp_span *spans, int32_t n_spans);
// What of a step attention runs over here, and from which row on: all of it, or the sequences whose cache is here.
struct lp_attn_step lp_ranks_own_part(const struct lp_runner *r, const struct lp_attn_step *attn,
                                      int64_t *first_row);
// Counts what the layers of a step that ran from a recording gave others.
void lp_ranks_count_recorded(struct lp_runner *r);
// Of a step that is watched, the selection of all rows, to rank 0.
void lp_ranks_show_selection(struct lp_runner *r, bool watched);
// The stream (and the selection, where the next layer keeps to it) from the stage before, and to the next.
void lp_ranks_take_stream(struct lp_runner *r, int64_t n_rows, bool selected,
                          struct lp_step_clock *clock);
void lp_ranks_give_stream(struct lp_runner *r, int64_t n_rows, bool selected,
                          struct lp_step_clock *clock);
// Of a step that rank 0 watches, or puts a probe on: what the layers of the other stages make, to it. show_*: on the
// first rank of such a stage, how many layers come and then, watched, each; watch_others: on rank 0, once its own layers
// are through.
struct lp_step_settings;
void lp_ranks_show_begin(struct lp_runner *r);
void lp_ranks_show_layer(struct lp_runner *r, int64_t n_rows, bool selected);
void lp_ranks_watch_others(struct lp_runner *r, int64_t n_rows, bool selected,
                           const struct lp_step_settings *settings);
// logits of x's rows, whole on rank 0. x counts on ranks of the last stage alone.
void lp_ranks_head(struct lp_runner *r, const struct lp_weight *w, const float *x, int64_t n_rows);
// Of all rows, whether the stream behind the last layer is not finite: on rank 0. Only with several stages.
void lp_ranks_bad_rows(struct lp_runner *r, int64_t n_rows, bool *bad);
// n ids that rank 0 has chosen, to all.
void lp_ranks_share_ids(struct lp_runner *r, int32_t *ids, int64_t n);
bool lp_ranks_follows(const struct lp_runner *r); // not rank 0
// Time in exchanges with other ranks until now, of this process; 0 without ranks.
uint64_t lp_ranks_wait_ns(const struct lp_runner *r);
// From now on what this rank gives others is counted for a step of its own; how many bytes that were until now.
void lp_ranks_begin_count(struct lp_runner *r);
uint64_t lp_ranks_sent_bytes(const struct lp_runner *r);
// The rows of a step window by window: a stage takes the next one up as soon as it has given one on.
void lp_ranks_run_windows(struct lp_runner *r, const struct lp_step *step,
                          const struct lp_step_settings *settings);

// ---- around it

// Rank 0: tells the others what is about to run; and how it went everywhere. Errors: MEMORY; IO (names the
// rank that failed or ran something else).
lp_status lp_ranks_give_step(struct lp_runner *r, const struct lp_step *step,
                             const struct lp_step_settings *settings, struct lp_err *err);
lp_status lp_ranks_give_draft(struct lp_runner *r, const struct lp_draft *draft,
                              const struct lp_step_settings *settings, struct lp_err *err);
lp_status lp_ranks_end_step(struct lp_runner *r, lp_status status, struct lp_err *err);
// Of all ranks, as of the last step: on rank 0, [size]; NULL without ranks.
const struct lp_rank_times *lp_ranks_times(const struct lp_runner *r);
// Pages of the cache that are one on all ranks (lp_kv_others). Collective. Errors: IO.
lp_status lp_ranks_join_caches(struct lp_runner *r, struct lp_err *err);

// The other ranks: runs an order that is for a runner. Errors: as the call's; IO.
lp_status lp_runner_follow(struct lp_runner *r, const struct lp_order *order,
                           const struct lp_step_settings *settings, struct lp_err *err);

#endif
