// The ref backend: the definition of every operation. Plain C on one thread, products and sums in
// double, one output at a time, written to be read beside docs/attention.md. Speed does not matter
// here, except that a weight row is dequantised once per call.
#ifndef LP_BACKEND_REF_H
#define LP_BACKEND_REF_H

#include "backend/backend.h"

struct lp_ref_device {
    struct lp_device base;
    struct lp_reserve sizes; // of the scratch below
    float *row;              // [max_width]           one dequantised weight row
    float *row2;             // [max_width]           a second one
    double *scores;          // [n_context]           of one query and head
    double *sum;             // [max(widths)]         an accumulator
    float *keys, *values;    // [n_context, nope], [n_context, v_dim] of one head
    float *hidden;           // [n_rows, expert_width]
    float *expert_out;       // [n_rows, n_used, max_width]
    float *cache_row;        // [latent + rope or more]
    size_t bytes;
};

// Reads the cache row of position pos as float32 into out.
void lp_ref_cache_row(const struct lp_cache_view *cache, int64_t pos, float *out);
// The view with the pages of a row's sequence.
struct lp_cache_view lp_ref_cache_of(const struct lp_cache_view *cache,
                                     const struct lp_op_batch *batch, int64_t row);
// The i-th visible position of query q, and how many it has.
int64_t lp_ref_visible_count(const struct lp_visible *visible, int64_t q);
int64_t lp_ref_visible_pos(const struct lp_visible *visible, int64_t q, int64_t i);
static inline double lp_ref_dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}
// Row r of matrix m, dequantised.
void lp_ref_weight_row(const struct lp_weight *w, int64_t m, int64_t r, float *out);

void lp_ref_embed(struct lp_device *, const struct lp_op_embed *);
void lp_ref_rms_norm(struct lp_device *, const struct lp_op_rms_norm *);
void lp_ref_layer_norm(struct lp_device *, const struct lp_op_layer_norm *);
void lp_ref_rope(struct lp_device *, const struct lp_op_rope *);
void lp_ref_matmul(struct lp_device *, const struct lp_op_matmul *);
void lp_ref_head_matmul(struct lp_device *, const struct lp_op_head_matmul *);
void lp_ref_scan_rows(struct lp_device *, const struct lp_op_scan_rows *);
void lp_ref_top_rows(struct lp_device *, const struct lp_op_top_rows *);
void lp_ref_add(struct lp_device *, const struct lp_op_add *);
void lp_ref_silu_mul(struct lp_device *, const struct lp_op_silu_mul *);
void lp_ref_cache_write(struct lp_device *, const struct lp_op_cache_write *);
void lp_ref_gqa(struct lp_device *, const struct lp_op_gqa *);
void lp_ref_mla_absorbed(struct lp_device *, const struct lp_op_mla_absorbed *);
void lp_ref_mla_expanded(struct lp_device *, const struct lp_op_mla_expanded *);
void lp_ref_index_select(struct lp_device *, const struct lp_op_index_select *);
void lp_ref_router(struct lp_device *, const struct lp_op_router *);
void lp_ref_experts(struct lp_device *, const struct lp_op_experts *);

#endif
