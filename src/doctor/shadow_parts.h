// Inside the shadow: buffers, slices and reports that its operations share.
#ifndef LP_DOCTOR_SHADOW_PARTS_H
#define LP_DOCTOR_SHADOW_PARTS_H

#include "doctor/shadow.h"

// What two right implementations differ by, and what any fault exceeds (docs/numerics.md states
// 2e-5 of the output's scale for sums in float32).
#define LP_SHADOW_BOUND 3e-5
// Experts round the hidden values to 8 bits: one at the edge of two steps may take the other.
#define LP_SHADOW_BOUND_EXPERTS 1e-2

struct lp_shadow {
    struct lp_device base;
    struct lp_device *fast, *ref;
    struct lp_shadow_config config;
    int32_t layer;
    uint64_t turn; // picks another slice each time
    bool failed;
};

static inline struct lp_shadow *lp_shadow_of(struct lp_device *dev) {
    return (struct lp_shadow *)dev;
}
// Tells of an operation that is about to run; whether it is compared.
bool lp_shadow_begin(const struct lp_shadow *s, const char *op, const void *args);

// n floats; NULL sets `failed`.
float *lp_shadow_floats(struct lp_shadow *s, int64_t n);

// A run of `count` of `n`, at the end every other time.
struct lp_shadow_run {
    int64_t first, count;
};
struct lp_shadow_run lp_shadow_pick(struct lp_shadow *s, int64_t n, int64_t count);
// How many of n may be computed if one costs `each`; at least `least`.
int64_t lp_shadow_fit(const struct lp_shadow *s, int64_t n, int64_t each, int64_t least);

// [n_rows, n_groups, width] at these strides, to and from packed.
struct lp_shadow_region {
    float *base;
    int64_t row_stride, group_stride;
    struct lp_diff_shape shape;
};
void lp_shadow_gather(const struct lp_shadow_region *region, float *packed);
void lp_shadow_scatter(const struct lp_shadow_region *region, const float *packed);

// The activations as an 8-bit kernel sees them: `n` values in place, blocks of 32.
void lp_shadow_round_row(float *x, int64_t n);
bool lp_shadow_rounds(const struct lp_weight *w); // a block format: rounding is allowed

// Measures and reports. finding: what is known of the call; its diff and where are filled in.
void lp_shadow_compare(struct lp_shadow *s, struct lp_shadow_finding *finding, const float *got,
                       const float *want, const float *before, struct lp_diff_shape shape);
// Reports a finding whose diff is there.
void lp_shadow_report(struct lp_shadow *s, struct lp_shadow_finding *finding);

// shadow_matmul.c, shadow_attention.c, shadow_choice.c
void lp_shadow_matmul(struct lp_device *, const struct lp_op_matmul *);
void lp_shadow_head_matmul(struct lp_device *, const struct lp_op_head_matmul *);
void lp_shadow_experts(struct lp_device *, const struct lp_op_experts *);
void lp_shadow_gqa(struct lp_device *, const struct lp_op_gqa *);
void lp_shadow_mla_absorbed(struct lp_device *, const struct lp_op_mla_absorbed *);
void lp_shadow_mla_expanded(struct lp_device *, const struct lp_op_mla_expanded *);
void lp_shadow_cache_write(struct lp_device *, const struct lp_op_cache_write *);
void lp_shadow_index_select(struct lp_device *, const struct lp_op_index_select *);
void lp_shadow_router(struct lp_device *, const struct lp_op_router *);

#endif
