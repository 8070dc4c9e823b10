// Figures of what a model says: how probable it found the obvious, how sure it was, whether it goes
// round in circles, and whether a change made a difference beyond chance. Arithmetic alone.
#ifndef LP_DOCTOR_HEALTH_H
#define LP_DOCTOR_HEALTH_H

#include "doctor/reading.h"

#define LP_BEST_TEXTS 3 // a model is judged by the texts that it knows best

struct lp_health {
    double mean_logprob; // of the obvious tokens, in nats, each at least the floor
    double skill;        // 1 - mean / floor over the best texts: 0 = none known, 1 = all certain
    double median_skill; // over all texts
    double first, ten;   // share of the obvious tokens of rank 0, of rank below 10
    double entropy;      // mean over rows, as a share of log(n_vocab): 1 = knows nothing
    double logit_std, max_logit;
    double bad; // share of rows with logits that are not finite
    int32_t n_texts;
};

void lp_health_measure(const struct lp_passages *passages, const struct lp_scores *scores,
                       double floor, int64_t n_vocab, struct lp_health *out);
// skills: [passages->n], 1 - mean / floor of each text.
void lp_health_skills(const struct lp_passages *passages, const struct lp_scores *scores,
                      double floor, double *skills);

// From one reading to another of the same texts. What counts is doubt, log(-logprob) of each obvious
// token: of a healthy model that is certain of many tokens nearly every wrong setting multiplies the
// surprise at all of them, long before it changes what the model says.
struct lp_gain {
    double mean; // fall of doubt per token: 0.7 = half the surprise
    double z;    // mean over texts / its standard error; 0 for fewer than 2 texts or no change
};
struct lp_gain lp_health_gain(const struct lp_passages *passages, const float *before,
                              const float *after);
double lp_health_doubt(double logprob); // log(-logprob), at least log(1e-6)

struct lp_circles {
    int32_t distinct;         // different tokens
    int32_t period, repeated; // the end repeats the last `period` tokens, over `repeated` tokens
                              // (0: the period does not fit twice)
};
struct lp_circles lp_health_circles(const int32_t *tokens, int32_t n);

#endif
