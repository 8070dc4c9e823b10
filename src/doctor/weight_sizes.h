// Sizes (root mean squares) that fall out of the row: a tensor against the same one in the other
// layers, an expert or head against the others of its stack.
#ifndef LP_DOCTOR_WEIGHT_SIZES_H
#define LP_DOCTOR_WEIGHT_SIZES_H

#include "doctor/exam.h"
#include "doctor/weight_stats.h"

// Notes "sizes as in sibling layers" and suspects of kind SCALE, with series for plots. Errors:
// MEMORY.
lp_status lp_weight_sizes_check(struct lp_exam *exam, const struct lp_weight_stats *stats,
                                struct lp_err *err);

#endif
