// What the remedies' results mean: who is accused, and what becomes of the weights stage's suspects.
#ifndef LP_DOCTOR_OUTPUT_VERDICT_H
#define LP_DOCTOR_OUTPUT_VERDICT_H

#include "doctor/output_figures.h"

lp_status lp_output_verdict(struct lp_exam *exam, struct lp_trial *trial,
                            const struct lp_health *health, struct lp_err *err);
// Nothing could be tried: suspects that are certain are accused, the others become notes. `why`
// ends the sentence "it could not be tried, because ...".
void lp_output_unjudged(struct lp_exam *exam, const char *why);

#endif
