// Texts read by a model again and again, with something changed each time: all of them in few steps,
// probabilities for the obvious tokens alone, and from a layer on where only that layer and later
// ones were changed.
//
// It steps by itself (model/runner.h) and not through a lab, because a lab runs one sequence at a
// time and computes every logit.
#ifndef LP_DOCTOR_READING_H
#define LP_DOCTOR_READING_H

#include "doctor/texts.h"
#include "model/model.h"

// What the model said to each scored token, in the order of the passages.
struct lp_scores {
    int64_t n;                   // scored tokens
    float *logprob;              // [n] of the obvious token; never below lp_reading_floor
    int32_t *rank;               // [n] 0: it was the most probable
    float *entropy;              // [n] of the whole distribution, in nats
    double logit_std, max_logit; // mean over rows; largest |logit|
    int64_t n_bad;               // rows with a logit that is not finite
};
lp_status lp_scores_new(struct lp_scores *out, int64_t n, struct lp_err *err);
void lp_scores_release(struct lp_scores *scores);

struct lp_reading;

// Scratch and cache for the passages, which stay the caller's and must outlive it. n_layers + 1
// hidden states are kept for at most keep_bytes (then of every second, third ... layer).
lp_status lp_reading_new(struct lp_reading **out, struct lp_model *model,
                         const struct lp_passages *passages, size_t keep_bytes, struct lp_err *err);
void lp_reading_free(struct lp_reading *reading); // NULL is allowed

enum lp_part { LP_PART_NONE, LP_PART_ATTENTION, LP_PART_FFN };

struct lp_reading_run {
    int32_t from_layer; // what lies before it is as at the last run with keep; n_layers: the head
    bool keep;          // whole run, whose hidden states are kept
    enum lp_route_force force;
    int32_t input_shift, target_shift; // added to token ids that go in, that are looked for
    int32_t skip_layer; // this part of it adds nothing; with skip LP_PART_NONE: unused
    enum lp_part skip;
    double *by_depth; // [n_layers + 1] or NULL: mean log-probability where the head reads the
                      // residual stream after the embedding and each layer (of the first step)
    double *largest;  // [n_layers + 1] largest |h| after the embedding and each layer, or NULL
};

// Errors: MEMORY; LIMIT.
lp_status lp_reading_run(struct lp_reading *reading, const struct lp_reading_run *run,
                         struct lp_scores *out, struct lp_err *err);
// A scored token's log-probability counts as no less: half of chance's, -log(n_vocab) / 2. Whether
// what is obvious gets a probability of 1e-3 or of 1e-9 says nothing about what is wrong, and a
// change that only makes a model less sure of everything must not look like a repair.
double lp_reading_floor(const struct lp_model *model);
// Seconds of one token within many, from a reading of one short text. Errors: as those of
// lp_reading_new; INVALID (the vocabulary can take no text, or names tokens that the model has not).
lp_status lp_reading_time_token(struct lp_model *model, const struct lp_tokenizer *tokenizer,
                                const struct lp_gguf *gguf, double *seconds, struct lp_err *err);

#endif
