// Multi-head latent attention of one layer (docs/attention.md gives the formulas and shapes).
#include "attention/attention.h"

static void project(const struct lp_attn_step *step, const struct lp_weight *w, const float *x,
                    int64_t x_stride, float *y) {
    step->dev->backend->matmul(step->dev, &(struct lp_op_matmul){.w = w, .x = x, .x_stride = x_stride, .y = y,
                                                                 .y_stride = w->n_out, .n_rows = step->n_rows});
}

static void norm(const struct lp_attn_step *step, float *x, int64_t stride, const float *w, float eps,
                 int32_t width) {
    step->dev->backend->rms_norm(step->dev, &(struct lp_op_rms_norm){.x = x, .x_stride = stride, .w = w, .eps = eps,
                                                                     .y = x, .y_stride = stride,
                                                                     .n_rows = step->n_rows, .width = width});
}

static void rotate(const struct lp_attn_step *step, const struct lp_rope_spec *rope, float *x,
                   int64_t token_stride, int64_t head_stride, int32_t n_heads) {
    step->dev->backend->rope(step->dev, &(struct lp_op_rope){.x = x, .token_stride = token_stride,
                                                             .head_stride = head_stride, .n_tokens = step->n_rows,
                                                             .n_heads = n_heads, .width = rope->width,
                                                             .pairing = rope->pairing, .positions = step->positions,
                                                             .inv_freq = rope->inv_freq,
                                                             .magnitude = rope->magnitude});
}

// x -> q [n_heads, nope + rope], rotated; q_low, the normed query latent, stays for the indexer.
static void make_queries(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                         const struct lp_mla_buffers *buf, const float *x, int64_t x_stride) {
    int64_t head = w->nope + w->rope_dim;
    if (w->has_q_rank) {
        project(step, &w->q_a, x, x_stride, buf->q_low);
        norm(step, buf->q_low, w->q_rank, w->q_a_norm, w->eps, w->q_rank);
        project(step, &w->q_b, buf->q_low, w->q_rank, buf->q);
    } else project(step, &w->q, x, x_stride, buf->q);
    rotate(step, &w->rope, buf->q + w->nope, w->n_heads * head, head, w->n_heads);
}

// x -> [latent (normed), rope part (rotated)] -> the cache
static void make_latents(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                         const struct lp_mla_buffers *buf, const float *x, int64_t x_stride) {
    int64_t width = w->latent + w->rope_dim;
    project(step, &w->kv_a, x, x_stride, buf->kv);
    norm(step, buf->kv, width, w->kv_a_norm, w->eps, w->latent);
    rotate(step, &w->rope, buf->kv + w->latent, width, 0, 1);
    for (int32_t i = 0; i < step->n_spans; i++) {
        const struct lp_span *span = &step->spans[i];
        struct lp_cache_view cache = lp_kv_view(step->kv, layer, LP_KV_LATENT, span->pages);
        step->dev->backend->cache_write(step->dev, &(struct lp_op_cache_write){
                                                       .cache = &cache, .x = buf->kv + span->first_row * width,
                                                       .x_stride = width, .first_pos = span->n_past,
                                                       .n_rows = span->n_rows});
    }
}

static void attend_span(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                        const struct lp_mla_buffers *buf, const struct lp_span *span) {
    struct lp_route_work work = {
        .n_query = span->n_rows, .n_kv = span->n_past + span->n_rows,
        .top_k = w->indexer == LP_INDEXER_NONE ? 0 : w->top_k, .nope = w->nope, .rope = w->rope_dim,
        .latent = w->latent, .v_dim = w->v_dim, .deterministic = step->deterministic, .force = step->force};
    struct lp_route route = lp_route_choose(&work);
    if (step->trace) {
        const char *op = route.expanded ? "mla_expanded" : "mla_absorbed";
        lp_trace_emit_attention(step->trace, &(struct lp_trace_attention){
                                                 .step = (int64_t)step->step, .layer = layer,
                                                 .sequence = (int64_t)span->sequence, .n_query = work.n_query,
                                                 .n_kv = work.n_kv, .top_k = work.top_k,
                                                 .indexer = lp_indexer_role_name(w->indexer), .route = route.name,
                                                 .reason = route.reason,
                                                 .kernel = step->dev->backend->kernel(step->dev, op)});
    }
    if (route.expanded) lp_mla_expanded(step, layer, w, buf, span, route.select);
    else lp_mla_absorbed(step, layer, w, buf, span, route.select);
}

void lp_mla_attend(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                   const struct lp_mla_buffers *buf, const float *x, int64_t x_stride) {
    make_queries(step, w, buf, x, x_stride);
    make_latents(step, layer, w, buf, x, x_stride);
    if (w->indexer == LP_INDEXER_FULL) lp_sparse_index(step, layer, w, buf, x, x_stride);
    for (int32_t i = 0; i < step->n_spans; i++) attend_span(step, layer, w, buf, &step->spans[i]);
}
