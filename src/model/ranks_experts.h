// Routed experts that are whole on one rank each, beside sequences that are too (lp_sharding.sends_rows): the rows go to
// the ranks of their experts, and what those make of a row comes back as one sum.
//
//   a rank's own rows -> router -> [everyone's choices, to all] -> [a row, to each rank that has an expert of its choice]
//   -> those experts, rows of all ranks together -> [a sum for each row that came, to its rank] -> added in order of ranks
//
// From the choices every rank knows who sends how much to whom. What a row gets depends on its own choice alone, not on
// where its sequence is nor on what runs beside it.
#ifndef LP_MODEL_RANKS_EXPERTS_H
#define LP_MODEL_RANKS_EXPERTS_H

#include "model/model.h"

struct lp_runner;
struct lp_attn_step;
struct lp_step_clock;

struct lp_expert_rows {   // what routed experts are called with, one behind the other
    const float *x;       // [n_rows, n_embd]
    const int32_t *ids;   // [n_rows, n_used]
    const float *weights; // [n_rows, n_used]
    float *y;             // [n_rows, n_embd]: added to
    int64_t n_rows;
};

struct lp_ranks_experts { // of a runner; host memory; all NULL where no rows are sent
    int32_t *rank_of;     // [n_experts]
    int32_t *
        choices; // [max_rows, 2 * n_used]: of each row of a step its ids and the bits of their weights
    float
        *away; // [max_rows * min(ranks, n_used), n_embd]: own rows for the others, then their sums
    float *x, *y;         // [max_rows, n_embd]: the rows that came, and their sums
    int32_t *ids;         // [max_rows, n_used]
    float *weights;       // [max_rows, n_used]
    size_t *n_out, *n_in; // [size]: values for each rank, and from it
    int64_t n_here;       // rows that came
};

// Errors: MEMORY; what was taken is given back by release.
lp_status lp_ranks_experts_init(struct lp_runner *r, struct lp_err *err);
void lp_ranks_experts_release(struct lp_ranks_experts *e);

// Own rows lie in r->x, their choices in r->expert_ids and r->expert_weights. Returns the rows that experts of this rank
// are to add to, of all ranks; their y are zeros. r->expert_ids has the choices of all rows of the step from now on:
// *n_rows of them; -1: the ranks have failed (R1 of comm.h), as they do where a choice names no expert.
struct lp_expert_rows lp_ranks_send_rows(struct lp_runner *r, int64_t n_own, int64_t *n_rows,
                                         struct lp_step_clock *clock);
// r->h, the stream's own rows, += what all ranks made of them.
void lp_ranks_add_sums(struct lp_runner *r, int64_t n_own, struct lp_step_clock *clock);

#endif
