// Which expert leaves the cache: the one that was used least of late. Pure arithmetic, no memory of
// weights and no files, so that it can be replayed on traces (tests/unit/test_expert_policy.c).
//
// An item is one expert of one layer, whether it is in the cache or not: one that was evicted keeps
// its count. With time t in tokens and the half-life T, the count of an item that was used n_i times
// at t_i is
//
//     c(t) = sum_i n_i 2^-((t - t_i) / T)
//
// All counts fade alike, so their order changes only where something is used; what is kept of an
// item is therefore  rank = log2 c(t) + t / T,  which no passing of time changes.
//
// Why not least recently used: routers prefer some experts for long stretches, and a step walks
// through all layers in a circle. Whatever was used in this step is then recent, the preferred and
// the accidental alike, and the accidental drive out the preferred.
#ifndef LP_MODEL_EXPERT_POLICY_H
#define LP_MODEL_EXPERT_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum lp_expert_rule {
    LP_EXPERT_RULE_DECAY,  // the lowest count first; equal ones: least recently used first
    LP_EXPERT_RULE_RECENT, // least recently used first: to compare with
};

struct lp_expert_policy {
    enum lp_expert_rule rule;
    double now;      // tokens so far
    uint64_t n_uses; // orders uses
    int32_t n_items;
    double *rank;   // [n_items]; minus infinity: never used
    uint64_t *last; // [n_items]: number of the last use; 0: never
};

// Errors: MEMORY. Release with lp_expert_policy_release in any case.
lp_status lp_expert_policy_init(struct lp_expert_policy *p, enum lp_expert_rule rule,
                                int32_t n_items, struct lp_err *err);
void lp_expert_policy_release(struct lp_expert_policy *p);

// n_tokens pass through the model.
void lp_expert_policy_pass(struct lp_expert_policy *p, int64_t n_tokens);
// An item was used by n_rows > 0 of the tokens that pass.
void lp_expert_policy_use(struct lp_expert_policy *p, int32_t item, double n_rows);
// Whether item a should leave before item b.
bool lp_expert_policy_before(const struct lp_expert_policy *p, int32_t a, int32_t b);

// The count of an item now, and setting it (profiles).
double lp_expert_policy_count(const struct lp_expert_policy *p, int32_t item);
void lp_expert_policy_set(struct lp_expert_policy *p, int32_t item, double count);

#endif
