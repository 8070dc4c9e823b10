// The backend calls that every form of attention makes, over all rows of a step.
#include "attention/attention.h"

void lp_attn_project(const struct lp_attn_step *step, const struct lp_weight *w, const float *bias,
                     const float *x, int64_t x_stride, float *y) {
    step->dev->backend->matmul(step->dev, &(struct lp_op_matmul){.w = w,
                                                                 .x = x,
                                                                 .x_stride = x_stride,
                                                                 .bias = bias,
                                                                 .y = y,
                                                                 .y_stride = w->n_out,
                                                                 .n_rows = step->n_rows});
}

void lp_attn_norm(const struct lp_attn_step *step, float *x, int64_t stride, const float *w,
                  float eps, int64_t n_rows, int32_t width) {
    step->dev->backend->rms_norm(step->dev, &(struct lp_op_rms_norm){.x = x,
                                                                     .x_stride = stride,
                                                                     .w = w,
                                                                     .eps = eps,
                                                                     .y = x,
                                                                     .y_stride = stride,
                                                                     .n_rows = n_rows,
                                                                     .width = width});
}

void lp_attn_rotate(const struct lp_attn_step *step, const struct lp_rope_spec *rope, float *x,
                    int64_t token_stride, int64_t head_stride, int32_t n_heads) {
    step->dev->backend->rope(step->dev, &(struct lp_op_rope){.x = x,
                                                             .token_stride = token_stride,
                                                             .head_stride = head_stride,
                                                             .n_tokens = step->n_rows,
                                                             .n_heads = n_heads,
                                                             .width = rope->width,
                                                             .pairing = rope->pairing,
                                                             .positions = step->positions,
                                                             .inv_freq = rope->inv_freq,
                                                             .magnitude = rope->magnitude});
}

void lp_attn_store(const struct lp_attn_step *step, int32_t layer, enum lp_kv_kind kind,
                   const struct lp_span *span, const float *rows) {
    struct lp_cache_view cache = lp_kv_view(step->kv, layer, kind, span->pages);
    step->dev->backend->cache_write(
        step->dev, &(struct lp_op_cache_write){.cache = &cache,
                                               .x = rows + span->first_row * cache.width,
                                               .x_stride = cache.width,
                                               .first_pos = span->n_past,
                                               .n_rows = span->n_rows});
}
