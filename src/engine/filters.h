// From a row of logits to one id: the ids that a request's filters leave, and a draw among them.
//
// The weight of an id is exp((logit - largest logit) / temperature), in double. Each filter sees
// what the one before has left: min_p, top_k, typical_p, top_p. "The first" ids are those with the
// largest logits; of equal logits, the lower id is first. docs/sampling.md has the formulas.
//
// Nothing is sorted. A filter that keeps the first ids counts them (or their weights) in buckets by
// the leading bits of the logit, finds the bucket in which enough is reached, and looks into that
// one by the next bits, until one logit is left; that is three passes, whatever the numbers are.
#ifndef LP_ENGINE_FILTERS_H
#define LP_ENGINE_FILTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/status.h"

struct lp_filters {
    double temperature;      // > 0
    double min_p;            // 0 = off
    int32_t top_k;           // 0 = off
    double typical_p, top_p; // 1 = off
};

// Ids that may still be drawn, lowest id first.
struct lp_candidates {
    int32_t n;
    int32_t *id;    // [n_vocab]
    float *logit;   // [n_vocab], in the order of id
    double largest; // of the logits at the start, and
    double scale;   // 1 / temperature: what makes weights of logits
    uint32_t *key;  // [n_vocab], what a filter orders by: the smallest is first
    double *block_sums;
};

lp_status lp_candidates_init(struct lp_candidates *c, int32_t n_vocab, struct lp_err *err);
void lp_candidates_release(struct lp_candidates *c); // zeros are allowed

// Fills c with the ids of logits[n_vocab] that are not `never`, not -infinity and pass the filters;
// at least one is left. largest: the largest such logit, finite. logits may be c->logit.
void lp_filters_apply(struct lp_candidates *c, const struct lp_filters *filters,
                      const float *logits, const bool *never, int32_t n_vocab, float largest);

// The same of a row of which only its largest values are known, if all that pass are among them.
void lp_filters_apply_top(struct lp_candidates *c, const struct lp_filters *filters,
                          const struct lp_top_row *top);
// Whether they are, surely.
bool lp_filters_need_no_more(const struct lp_filters *filters, const struct lp_top_row *top);

// The lowest id for which the weights up to and with it are more than unit (in [0, 1)) of them all.
int32_t lp_filters_draw(struct lp_candidates *c, double unit);

#endif
