// From logits to a token: greedy or sampled, and log-probabilities.
//
// Log-probabilities are those of the model: log softmax over the ids that may be generated, before
// temperature and filters, in double.
#ifndef LP_ENGINE_SAMPLER_H
#define LP_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/status.h"

struct lp_candidate {
    int32_t id;
    float logit;
};

struct lp_sampler {
    float temperature; // 0 = greedy
    float top_p;       // in (0, 1]
    int32_t top_k;     // 0 = off
    const bool *never; // [n_vocab]: ids that are left out
    int32_t n_vocab;
    struct lp_rng rng;
    struct lp_candidate *candidates; // [n_vocab], scratch
};

// Checks the ranges. `never` is not copied.
lp_status lp_sampler_init(struct lp_sampler *s, float temperature, float top_p, int32_t top_k,
                          uint64_t seed, const bool *never, int32_t n_vocab, struct lp_err *err);
void lp_sampler_release(struct lp_sampler *s);

int32_t lp_sampler_pick(struct lp_sampler *s, const float *logits);

// The largest logit among ids that may be generated; ties: lower id.
int32_t lp_sampler_argmax(const float *logits, const bool *never, int32_t n_vocab);

// log(sum(exp(logits))) over the allowed ids: logprob(id) = logits[id] - this.
double lp_sampler_log_sum(const float *logits, const bool *never, int32_t n_vocab);

// The n most probable allowed ids, most probable first (ties: lower id). Returns how many there
// are.
int32_t lp_sampler_top(const float *logits, const bool *never, int32_t n_vocab, int32_t n,
                       int32_t *ids);

#endif
