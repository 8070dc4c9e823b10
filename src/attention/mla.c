// Multi-head latent attention of one layer (docs/attention.md gives the formulas and shapes).
#include "attention/attention.h"

// x -> q [n_heads, nope + rope], rotated; q_low, the normed query latent, stays for the indexer.
static void make_queries(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                         const struct lp_mla_buffers *buf, const float *x, int64_t x_stride) {
    int64_t head = w->nope + w->rope_dim;
    if (w->has_q_rank) {
        lp_attn_project(step, &w->q_a, NULL, x, x_stride, buf->q_low);
        lp_attn_norm(step, buf->q_low, w->q_rank, w->q_a_norm, w->eps, step->n_rows, w->q_rank);
        lp_attn_project(step, &w->q_b, NULL, buf->q_low, w->q_rank, buf->q);
    } else
        lp_attn_project(step, &w->q, NULL, x, x_stride, buf->q);
    lp_attn_rotate(step, &w->rope, buf->q + w->nope, w->n_heads * head, head, w->n_heads);
}

// x -> [latent (normed), rope part (rotated)] -> the cache
static void make_latents(const struct lp_attn_step *step, int32_t layer,
                         const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                         const float *x, int64_t x_stride) {
    int64_t width = w->latent + w->rope_dim;
    lp_attn_project(step, &w->kv_a, NULL, x, x_stride, buf->kv);
    lp_attn_norm(step, buf->kv, width, w->kv_a_norm, w->eps, step->n_rows, w->latent);
    lp_attn_rotate(step, &w->rope, buf->kv + w->latent, width, 0, 1);
    for (int32_t i = 0; i < step->n_spans; i++)
        lp_attn_store(step, layer, LP_KV_LATENT, &step->spans[i], buf->kv);
}

static void count_route(const struct lp_attn_step *step, const struct lp_route_work *work,
                        const struct lp_route *route) {
    struct lp_route_counts *counts = step->routes;
    if (!counts) return;
    if (work->force == LP_ROUTE_DENSE && work->top_k > 0)
        counts->dense++;
    else if (route->select)
        counts->sparse++;
    else if (route->expanded)
        counts->expanded++;
    else
        counts->absorbed++;
}

static void attend_span(const struct lp_attn_step *step, int32_t layer,
                        const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                        const struct lp_span *span) {
    struct lp_route_work work = {.n_query = span->n_rows,
                                 .n_kv = span->n_past + span->n_rows,
                                 .top_k = w->indexer == LP_INDEXER_NONE ? 0 : w->top_k,
                                 .nope = w->nope,
                                 .rope = w->rope_dim,
                                 .latent = w->latent,
                                 .v_dim = w->v_dim,
                                 .deterministic = step->deterministic,
                                 .force = step->force};
    struct lp_route route = lp_route_choose(&work);
    count_route(step, &work, &route);
    if (step->trace) {
        const char *op = route.expanded ? "mla_expanded" : "mla_absorbed";
        lp_trace_emit_attention(
            step->trace,
            &(struct lp_trace_attention){.step = (int64_t)step->step,
                                         .layer = layer,
                                         .sequence = (int64_t)span->sequence,
                                         .n_query = work.n_query,
                                         .n_kv = work.n_kv,
                                         .top_k = work.top_k,
                                         .indexer = lp_indexer_role_name(w->indexer),
                                         .route = route.name,
                                         .reason = route.reason,
                                         .kernel = step->dev->backend->kernel(step->dev, op)});
    }
    if (route.expanded)
        lp_mla_expanded(step, layer, w, buf, span, route.select);
    else
        lp_mla_absorbed(step, layer, w, buf, span, route.select);
}

void lp_mla_attend(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                   const struct lp_mla_buffers *buf, const float *x, int64_t x_stride) {
    make_queries(step, w, buf, x, x_stride);
    make_latents(step, layer, w, buf, x, x_stride);
    if (w->indexer == LP_INDEXER_FULL) lp_sparse_index(step, layer, w, buf, x, x_stride);
    for (int32_t i = 0; i < step->n_spans; i++) attend_span(step, layer, w, buf, &step->spans[i]);
}
