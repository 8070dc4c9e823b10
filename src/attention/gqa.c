// Grouped-query attention of the standard architectures.
#include "attention/attention.h"

static void project(struct lp_device *dev, const struct lp_weight *w, const float *bias, const float *x,
                    int64_t x_stride, int64_t n_rows, float *y) {
    dev->backend->matmul(dev, &(struct lp_op_matmul){.w = w, .x = x, .x_stride = x_stride, .bias = bias,
                                                     .y = y, .y_stride = w->n_out, .n_rows = n_rows});
}

// RMSNorm over each head of each row, where the model has one.
static void norm_heads(struct lp_device *dev, float *x, const float *w, int64_t n_heads_all_rows,
                       int32_t head_dim, float eps) {
    if (!w) return;
    dev->backend->rms_norm(dev, &(struct lp_op_rms_norm){.x = x, .x_stride = head_dim, .w = w, .eps = eps,
                                                         .y = x, .y_stride = head_dim,
                                                         .n_rows = n_heads_all_rows, .width = head_dim});
}

static void rotate(const struct lp_attn_step *step, const struct lp_gqa_layer *w, float *x, int32_t n_heads) {
    step->dev->backend->rope(
        step->dev, &(struct lp_op_rope){.x = x, .token_stride = (int64_t)n_heads * w->head_dim,
                                        .head_stride = w->head_dim, .n_tokens = step->n_rows,
                                        .n_heads = n_heads, .width = w->rope.width,
                                        .pairing = w->rope.pairing, .positions = step->positions,
                                        .inv_freq = w->rope.inv_freq, .magnitude = w->rope.magnitude});
}

static void attend_span(const struct lp_attn_step *step, int32_t layer, const struct lp_gqa_layer *w,
                        const struct lp_gqa_buffers *buf, const struct lp_span *span) {
    struct lp_device *dev = step->dev;
    struct lp_cache_view keys = lp_kv_view(step->kv, layer, LP_KV_KEY, span->pages);
    struct lp_cache_view values = lp_kv_view(step->kv, layer, LP_KV_VALUE, span->pages);
    int64_t q_width = (int64_t)w->n_heads * w->head_dim, out_width = (int64_t)w->n_heads * w->v_dim;
    dev->backend->cache_write(dev, &(struct lp_op_cache_write){
                                       .cache = &keys, .x = buf->k + span->first_row * keys.width,
                                       .x_stride = keys.width, .first_pos = span->n_past, .n_rows = span->n_rows});
    dev->backend->cache_write(dev, &(struct lp_op_cache_write){
                                       .cache = &values, .x = buf->v + span->first_row * values.width,
                                       .x_stride = values.width, .first_pos = span->n_past, .n_rows = span->n_rows});
    dev->backend->gqa(dev, &(struct lp_op_gqa){
                               .q = buf->q + span->first_row * q_width, .q_stride = q_width,
                               .k = &keys, .v = &values,
                               .visible = {.first_pos = span->n_past, .n_queries = span->n_rows},
                               .n_heads = w->n_heads, .n_kv_heads = w->n_kv_heads, .head_dim = w->head_dim,
                               .v_dim = w->v_dim, .scale = w->scale,
                               .out = buf->out + span->first_row * out_width, .out_stride = out_width});
    if (!step->trace) return;
    lp_trace_emit_attention(step->trace, &(struct lp_trace_attention){
                                             .step = (int64_t)step->step, .layer = layer,
                                             .sequence = (int64_t)span->sequence, .n_query = span->n_rows,
                                             .n_kv = span->n_past + span->n_rows, .indexer = "none",
                                             .route = "gqa", .reason = "the architecture's only form",
                                             .kernel = dev->backend->kernel(dev, "gqa")});
}

void lp_gqa_attend(const struct lp_attn_step *step, int32_t layer, const struct lp_gqa_layer *w,
                   const struct lp_gqa_buffers *buf, const float *x, int64_t x_stride) {
    struct lp_device *dev = step->dev;
    project(dev, &w->q, w->q_bias, x, x_stride, step->n_rows, buf->q);
    project(dev, &w->k, w->k_bias, x, x_stride, step->n_rows, buf->k);
    project(dev, &w->v, w->v_bias, x, x_stride, step->n_rows, buf->v);
    norm_heads(dev, buf->q, w->q_norm, step->n_rows * w->n_heads, w->head_dim, w->eps);
    norm_heads(dev, buf->k, w->k_norm, step->n_rows * w->n_kv_heads, w->head_dim, w->eps);
    rotate(step, w, buf->q, w->n_heads);
    rotate(step, w, buf->k, w->n_kv_heads);
    for (int32_t i = 0; i < step->n_spans; i++) attend_span(step, layer, w, buf, &step->spans[i]);
}
