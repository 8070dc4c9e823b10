// Matrices that are equal byte for byte though they should not be: a layer, a tensor or an expert
// stored twice; and attn_k_b and attn_v_b against the attn_kv_b that they were cut from, where a
// file has both.
#ifndef LP_DOCTOR_WEIGHT_TWINS_H
#define LP_DOCTOR_WEIGHT_TWINS_H

#include "doctor/exam.h"
#include "doctor/weight_stats.h"

// Notes the checks "no weights stored twice" and, where it can be made, "k_b and v_b against kv_b",
// with their faults. Errors: MEMORY.
lp_status lp_weight_twins_check(struct lp_exam *exam, const struct lp_weight_stats *stats,
                                struct lp_err *err);

// sqrt(sum (a-b)^2 / sum b^2) over a sample of one head's k_b and v_b against kv_b; -1: the three
// do not belong together (shapes).
double lp_weight_twins_kv_difference(const struct lp_gguf_tensor *k_b,
                                     const struct lp_gguf_tensor *v_b,
                                     const struct lp_gguf_tensor *kv_b, uint64_t head);

#endif
