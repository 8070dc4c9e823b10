// Grouped-query attention of the standard architectures.
#include "attention/attn_probe.h"

// RMSNorm over each head of each row, where the model has one.
static void norm_heads(const struct lp_attn_step *step, const struct lp_gqa_layer *w, float *x,
                       const float *norm, int32_t n_heads) {
    if (norm)
        lp_attn_norm(step, x, w->head_dim, norm, w->eps, step->n_rows * n_heads, w->head_dim, NULL);
}

void lp_gqa_trace(const struct lp_attn_step *step, const struct lp_span *span, int32_t layer,
                  int32_t last_layer) {
    struct lp_device *dev = step->dev;
    lp_trace_emit_attention(
        step->trace,
        &(struct lp_trace_attention){
            .step = (int64_t)step->step,
            .layer = layer,
            .last_layer = last_layer,
            .sequence = (int64_t)span->sequence,
            .n_query = (int32_t)span->n_rows,
            .n_kv = (int32_t)(span->n_past + span->n_rows),
            .indexer = "none",
            .route = LP_ROUTE_GQA,
            .reason = "the architecture's only form",
            .kernel =
                dev->backend->kernel(dev, "gqa", lp_kv_type(step->kv), lp_kv_type(step->kv)).name});
}

// A span, or spans that go together (span: the first of them).
static void attend(const struct lp_attn_step *step, int32_t layer, const struct lp_gqa_layer *w,
                   const struct lp_gqa_buffers *buf, const struct lp_span *span,
                   const struct lp_together *together) {
    struct lp_device *dev = step->dev;
    struct lp_cache_view keys = lp_kv_view(step->kv, layer, LP_KV_KEY, span->pages);
    struct lp_cache_view values = lp_kv_view(step->kv, layer, LP_KV_VALUE, span->pages);
    int64_t q_width = (int64_t)w->n_heads * w->head_dim, out_width = (int64_t)w->n_heads * w->v_dim;
    dev->backend->gqa(dev, &(struct lp_op_gqa){
                               .q = buf->q + span->first_row * q_width,
                               .q_stride = q_width,
                               .k = &keys,
                               .v = &values,
                               .visible = {.first_pos = span->n_past,
                                           .n_queries = together ? together->n_rows : span->n_rows,
                                           .batch = together ? &together->batch : NULL},
                               .n_heads = w->n_heads,
                               .n_kv_heads = w->n_kv_heads,
                               .head_dim = w->head_dim,
                               .v_dim = w->v_dim,
                               .scale = w->scale,
                               .out = buf->out + span->first_row * out_width,
                               .out_stride = out_width});
    lp_step_lap(step->clock, LP_STEP_PART_ATTEND_GQA);
}

void lp_gqa_take_routes(const struct lp_attn_step *step, int32_t layer) {
    if (step->routes) step->routes->gqa += (uint64_t)step->n_spans;
    for (int32_t i = 0; i < step->n_spans && lp_trace_is_full(step->trace); i++)
        lp_gqa_trace(step, &step->spans[i], layer, layer);
}

void lp_gqa_attend(const struct lp_attn_step *step, int32_t layer, const struct lp_gqa_layer *w,
                   const struct lp_gqa_buffers *buf, const float *x, int64_t x_stride) {
    int64_t head = w->head_dim;
    lp_attn_project(step, &w->q, w->q_bias, x, x_stride, true, buf->q);
    lp_attn_project(step, &w->k, w->k_bias, x, x_stride, true, buf->k);
    lp_attn_project(step, &w->v, w->v_bias, x, x_stride, true, buf->v);
    lp_step_lap(step->clock, LP_STEP_PART_PROJECT);
    lp_attn_probe_heads(step, LP_PROBE_ATTN_Q_PROJ, layer, buf->q, w->n_heads, head);
    lp_attn_probe_heads(step, LP_PROBE_ATTN_K_PROJ, layer, buf->k, w->n_kv_heads, head);
    norm_heads(step, w, buf->q, w->q_norm, w->n_heads);
    norm_heads(step, w, buf->k, w->k_norm, w->n_kv_heads);
    lp_attn_rotate(step, &w->rope, buf->q, w->n_heads * head, head, w->n_heads);
    lp_attn_rotate(step, &w->rope, buf->k, w->n_kv_heads * head, head, w->n_kv_heads);
    lp_attn_store(step, layer, LP_KV_KEY, buf->k);
    lp_attn_store(step, layer, LP_KV_VALUE, buf->v);
    lp_step_lap(step->clock, LP_STEP_PART_OTHER);
    for (int32_t i = 0, n; i < step->n_spans; i += n) {
        struct lp_together t = lp_attn_together(step, &step->spans[i], step->n_spans - i);
        n = t.n_spans > 0 ? t.n_spans : 1;
        attend(step, layer, w, buf, &step->spans[i], t.n_spans > 0 ? &t : NULL);
    }
    lp_gqa_take_routes(step, layer);
    if (step->probe) lp_gqa_probe(step, layer, w, buf);
}
