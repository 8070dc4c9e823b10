// From logits to a token: what a request asks for is applied to one row of logits in a fixed order
// (docs/sampling.md), then one id is drawn, or the largest taken.
//
//   0. what the grammar allows   1. logit_bias   2. repetition, 3. presence and frequency penalties
//   4. DRY   5. min_tokens   6. temperature   7. min_p   8. top_k   9. typical_p   10. top_p
//   11. draw
//
// That is vLLM's order (typical_p, which vLLM does not have, stands where llama.cpp has it):
// filters 7 to 10 see tempered probabilities, each those that the one before has left, summing to 1
// again. What the grammar does not allow is left out first, so that no filter counts it. Greedy
// (temperature 0) takes the largest logit after 5; ties: lower id.
//
// Log-probabilities reported to a caller are those of the model: log softmax over the ids that may
// be generated, before all of this, in double.
#ifndef LP_ENGINE_SAMPLER_H
#define LP_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/status.h"
#include "engine/penalties.h"

struct lp_sampler_params {
    float temperature;                         // 0 to 100, 0 = greedy
    float top_p, typical_p;                    // in (0, 1], 1 = off
    float min_p;                               // in [0, 1], 0 = off
    int32_t top_k;                             // 0 = off
    float repetition_penalty;                  // in (0, 10], 1 = off: on prompt and answer
    float presence_penalty, frequency_penalty; // -2 to 2, 0 = off: on the answer
    float dry_multiplier;                      // 0 to 100, 0 = off; the others then do not matter
    float dry_base;                            // 1 to 100
    int32_t dry_allowed_length;                // 1 to LP_DRY_MAX_MATCH
    const int32_t *dry_breakers;               // [n] tokens that end a repeated run
    size_t n_dry_breakers;
    const struct lp_bias *bias; // [n], any order; -100 to 100, not for a `never` id
    size_t n_bias;
    bool may_be_masked;  // lp_sampler_pick may be given `allowed`
    int64_t min_tokens;  // before that many, the ids of `ends` are not drawn
    const int32_t *ends; // [n] end tokens
    size_t n_ends;
    uint64_t seed;
};

// What has been written so far: prompt, then answer, each token in the vocabulary.
struct lp_history {
    const int32_t *tokens; // [n_tokens]
    int64_t n_prompt, n_tokens;
};

struct lp_sampler;

// Checks the ranges (INVALID names the parameter, its value and what is expected) and copies the
// arrays. `never`, [n_vocab], ids that are left out, is not copied; at least one id is not left
// out.
lp_status lp_sampler_new(struct lp_sampler **out, const struct lp_sampler_params *params,
                         const bool *never, int32_t n_vocab, struct lp_err *err);
void lp_sampler_free(struct lp_sampler *s); // NULL is allowed

// Draws the next token. logits [n_vocab], finite; not changed. Every id that may be generated may
// have been excluded (min_tokens where only end tokens are left): then the most probable allowed id
// by the plain logits. allowed: bit id % 32 of word id / 32, at least one of an id that is not
// `never`; NULL: all. One random number is used per call, whatever the parameters. Nothing is
// allocated.
int32_t lp_sampler_pick(struct lp_sampler *s, const float *logits, const struct lp_history *history,
                        const uint32_t *allowed);

// Whether lp_sampler_pick gives the largest of the plain logits, so that nothing else of them matters.
bool lp_sampler_is_plain_greedy(const struct lp_sampler *s);

// For lp_step.draws: one over the temperature if a token may be drawn from a row's largest logits and the
// sum of its weights; else 0, and lp_sampler_pick it must be. Whether those of a row are enough: then
// lp_sampler_pick_top gives the token that lp_sampler_pick would (but for the rounding of the sum).
double lp_sampler_top_scale(const struct lp_sampler *s);
bool lp_sampler_top_is_enough(const void *sampler, const struct lp_top_row *top);
int32_t lp_sampler_pick_top(struct lp_sampler *s, const struct lp_top_row *top);

// The largest logit among ids that may be generated; ties: lower id.
int32_t lp_sampler_argmax(const float *logits, const bool *never, int32_t n_vocab);

// log(sum(exp(logits))) over the allowed ids: logprob(id) = logits[id] - this.
double lp_sampler_log_sum(const float *logits, const bool *never, int32_t n_vocab);

// The n most probable allowed ids, most probable first (ties: lower id). Returns how many there
// are.
int32_t lp_sampler_top(const float *logits, const bool *never, int32_t n_vocab, int32_t n,
                       int32_t *ids);

#endif
