// A probe (backend/probe.h) on a step over ranks.
//
// Rank 0 asks the probe which rows of which points it wants, and says so in the step's order, so that all ranks take
// the same branches. While a layer runs each keeps what its points show; behind the layer rank 0 gets that of the
// others, puts the parts of each value together, and hands the probe what one process would. Heads and columns that
// are divided lie one behind the other, in the order of ranks; what ranks add to the stream is summed; anything else
// is the same on all ranks that have it (with data-parallel attention one, of each sequence). A layer's values are in memory until it is through: as many as are wanted.
//
// Not where rows go to the ranks of their experts: what experts add comes back as a sum.
#ifndef LP_MODEL_RANKS_PROBE_H
#define LP_MODEL_RANKS_PROBE_H

#include "backend/probe.h"
#include "dist/order.h"
#include "model/model.h"

struct lp_runner;

struct lp_ranks_probe_run { // rows of a point that are wanted
    int32_t point, layer;
    int64_t first_pos, n_rows;
};

struct lp_ranks_probe {
    bool on;                // the step that runs has a probe
    struct lp_probe own;    // what the step shows its points to
    struct lp_probe *asked; // rank 0: whose they are
    struct lp_bytes list;   // rank 0: what is wanted, runs
    // of rank 1 and up
    struct lp_ranks_probe_run *wanted;
    int64_t n_wanted;
    int64_t
        *first; // [(n_layers + 1) * LP_N_PROBE_POINTS + 1]: the first run of a point of layer - 1
    // of the layer that runs
    struct lp_bytes records; // this rank's
    struct lp_bytes
        *others; // rank 0, [n_tensor]: of the ranks of a stage; own records are not among them
    size_t *at;  // rank 0, [n_tensor]: where the next record is looked for
    char *piece; // what is sent at a time
};

// Rank 0: the probe is asked, and `order` gets what it wants. Errors: UNSUPPORTED (lp_sharding.sends_rows), MEMORY.
lp_status lp_ranks_probe_ask(struct lp_runner *r, const struct lp_step *step,
                             struct lp_probe *probe, struct lp_order *order, struct lp_err *err);
// The other ranks: what it wants. Errors: IO (the order says what cannot be), MEMORY.
lp_status lp_ranks_probe_follow(struct lp_runner *r, struct lp_order_reader *from,
                                struct lp_err *err);
// What the step shows its points to: `probe` itself, where there are no ranks.
struct lp_probe *lp_ranks_probe_of(struct lp_runner *r, struct lp_probe *probe);

// Inside the step; nothing happens where it has no probe. Behind a layer that is here:
void lp_ranks_probe_layer(struct lp_runner *r);
// Rank 0, a layer of another stage:
void lp_ranks_probe_other_layer(struct lp_runner *r, int32_t stage);
// Rows of r->logit_x, from the last stage to rank 0.
void lp_ranks_probe_final_norm(struct lp_runner *r, int64_t n_rows);

void lp_ranks_probe_release(struct lp_runner *r);

#endif
