// The checks of stage "output" that measure what the model says, each with what a healthy model shows.
#ifndef LP_DOCTOR_OUTPUT_FIGURES_H
#define LP_DOCTOR_OUTPUT_FIGURES_H

#include "doctor/remedies.h"

// Of the three texts that a model knows best it must know this much: 0 = no better than half of
// chance's log-probability, 1 = certain of every token. A model with a fault in its main path is
// below; the smallest trained models are above.
#define LP_HEALTHY_SKILL 0.5

// Notes health, entropy, flatness, overflow and repetition, and the series over depth. Errors: MEMORY,
// LIMIT.
lp_status lp_output_figures(struct lp_exam *exam, struct lp_trial *trial,
                            const struct lp_health *health, struct lp_err *err);

#endif
