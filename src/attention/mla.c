// Multi-head latent attention of one layer (docs/attention.md gives the formulas and shapes).
#include "attention/attn_probe.h"
#include "base/fault.h"

static struct lp_rope_spec rope_of(const struct lp_mla_layer *w) {
    struct lp_rope_spec rope = w->rope;
    if (LP_FAULT("main-rope-style"))
        rope.pairing = rope.pairing == LP_ROPE_HALF ? LP_ROPE_ADJACENT : LP_ROPE_HALF;
    return rope;
}

// What is made of x itself, one behind the other: the query latent (or, without a rank, the queries), latent and
// rotated part of the cache, and what the indexer has of x. The norm in front may have made x ready for these.
static void project_input(const struct lp_attn_step *step, int32_t layer,
                          const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                          const float *x, int64_t x_stride, bool indexes) {
    if (w->has_q_rank)
        lp_attn_project(step, &w->q_a, NULL, x, x_stride, true, buf->q_low);
    else if (w->n_heads > 0)
        lp_attn_project(step, &w->q, NULL, x, x_stride, true, buf->q);
    lp_attn_project(step, &w->kv_a, NULL, x, x_stride, true, buf->kv);
    lp_step_lap(step->clock, LP_STEP_PART_PROJECT);
    lp_attn_probe(step, LP_PROBE_ATTN_KV_PROJ, layer, buf->kv, w->latent + w->rope_dim);
    if (indexes) lp_sparse_project_keys(step, layer, w, buf, x, x_stride);
}

// q_low, the normed query latent -> q [n_heads, nope + rope], and the indexer's queries
static void project_queries(const struct lp_attn_step *step, int32_t layer,
                            const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                            bool indexes) {
    const bool has_heads = w->n_heads > 0;
    if (w->has_q_rank) {
        lp_attn_norm(step, buf->q_low, w->q_rank, w->q_a_norm, w->eps, step->n_rows, w->q_rank,
                     has_heads ? &w->q_b : &w->index_q);
        lp_step_lap(step->clock, LP_STEP_PART_OTHER);
        if (has_heads) lp_attn_project(step, &w->q_b, NULL, buf->q_low, w->q_rank, true, buf->q);
        lp_step_lap(step->clock, LP_STEP_PART_PROJECT);
    }
    if (has_heads)
        lp_attn_probe_heads(step, LP_PROBE_ATTN_Q_PROJ, layer, buf->q, w->n_heads,
                            w->nope + w->rope_dim);
    if (indexes) lp_sparse_project_queries(step, layer, w, buf, true);
}

// Queries rotated; kv -> [latent (normed), rope part (rotated)] -> the cache; the indexer's likewise.
static void ready_rows(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                       const struct lp_mla_buffers *buf, bool indexes) {
    const struct lp_rope_spec rope = rope_of(w), index_rope = lp_sparse_rope(w);
    const int64_t width = w->latent + w->rope_dim, head = w->nope + w->rope_dim;
    struct lp_attn_ready parts[LP_READY_PARTS];
    int32_t n = 0;
    parts[n++] = (struct lp_attn_ready){.x = buf->kv,
                                        .stride = width,
                                        .n_heads = 1,
                                        .norm_w = w->kv_a_norm,
                                        .eps = w->eps,
                                        .norm_width = w->latent,
                                        .rope = &rope,
                                        .rope_first = w->latent,
                                        .stores = true,
                                        .kind = LP_KV_LATENT};
    if (w->n_heads > 0)
        parts[n++] = (struct lp_attn_ready){.x = buf->q,
                                            .stride = w->n_heads * head,
                                            .head_stride = head,
                                            .n_heads = w->n_heads,
                                            .rope = &rope,
                                            .rope_first = w->nope};
    if (indexes) n += lp_sparse_ready(step, w, &index_rope, buf, &parts[n]);
    lp_attn_ready_rows(step, layer, parts, n);
    lp_step_lap(step->clock, LP_STEP_PART_OTHER);
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

static struct lp_route route_of(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                                const struct lp_span *span, struct lp_route_work *work) {
    *work = (struct lp_route_work){.n_query = span->n_rows,
                                   .n_kv = span->n_past + span->n_rows,
                                   .top_k = w->indexer == LP_INDEXER_NONE ? 0 : w->top_k,
                                   .nope = w->nope,
                                   .rope = w->rope_dim,
                                   .latent = w->latent,
                                   .v_dim = w->v_dim,
                                   .deterministic = step->deterministic,
                                   .selects_latents = step->dev->backend->selects_latents,
                                   .force = step->force};
    return lp_route_choose(work);
}

struct lp_route lp_mla_route(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                             const struct lp_span *span) {
    struct lp_route_work work;
    return route_of(step, w, span, &work);
}

void lp_mla_trace(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                  const struct lp_span *span, int32_t layer, int32_t last_layer) {
    struct lp_route_work work;
    struct lp_route route = route_of(step, w, span, &work);
    const char *op = route.expanded ? "mla_expanded" : "mla_absorbed";
    lp_trace_emit_attention(
        step->trace,
        &(struct lp_trace_attention){
            .step = (int64_t)step->step,
            .layer = layer,
            .last_layer = last_layer,
            .sequence = (int64_t)span->sequence,
            .n_query = (int32_t)work.n_query,
            .n_kv = (int32_t)work.n_kv,
            .top_k = work.top_k,
            .indexer = lp_indexer_role_name(w->indexer),
            .route = route.name,
            .reason = route.reason,
            .kernel = step->dev->backend->kernel(step->dev, op, lp_kv_type(step->kv), w->k_up.type)
                          .name});
}

// The route of a span that is about to run: counted, and traced where every layer is.
static struct lp_route take_route(const struct lp_attn_step *step, int32_t layer,
                                  const struct lp_mla_layer *w, const struct lp_span *span) {
    struct lp_route_work work;
    struct lp_route route = route_of(step, w, span, &work);
    count_route(step, &work, &route);
    if (lp_trace_is_full(step->trace)) lp_mla_trace(step, w, span, layer, layer);
    return route;
}

// How many spans from the first on take the absorbed form and lie in one run of rows: their
// projections go together, so that the weights are read once for all.
static int32_t absorbed_run(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                            const struct lp_span *spans, int32_t n_spans, int64_t *n_rows) {
    struct lp_route_work work;
    int32_t n = 0;
    for (*n_rows = 0; n < n_spans; n++) {
        if (spans[n].first_row != spans[0].first_row + *n_rows ||
            route_of(step, w, &spans[n], &work).expanded)
            break;
        *n_rows += spans[n].n_rows;
    }
    return n;
}

// Spans of the absorbed form: those that can go together do.
static void attend_latents(const struct lp_attn_step *step, int32_t layer,
                           const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                           const struct lp_span *spans, int32_t n_spans) {
    for (int32_t i = 0, n; i < n_spans; i += n) {
        struct lp_together t = lp_attn_together(step, &spans[i], n_spans - i);
        bool select = false;
        n = t.n_spans > 0 ? t.n_spans : 1;
        for (int32_t k = 0; k < n; k++)
            select = take_route(step, layer, w, &spans[i + k]).select || select;
        lp_mla_attend_latents(step, layer, w, buf, &spans[i], t.n_spans > 0 ? &t : NULL, select);
    }
}

void lp_mla_take_routes(const struct lp_attn_step *step, int32_t layer,
                        const struct lp_mla_layer *w) {
    for (int32_t i = 0; i < step->n_spans; i++) take_route(step, layer, w, &step->spans[i]);
}

void lp_mla_attend(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                   const struct lp_mla_buffers *buf, const float *x, int64_t x_stride) {
    bool indexes = w->indexer == LP_INDEXER_FULL && !(LP_FAULT("index-shared") && layer > 0);
    project_input(step, layer, w, buf, x, x_stride, indexes);
    project_queries(step, layer, w, buf, indexes);
    ready_rows(step, layer, w, buf, indexes);
    if (indexes) lp_sparse_select(step, layer, w, buf);
    if (w->n_heads == 0) return; // cache and selection are there for other layers and ranks
    for (int32_t i = 0, n; i < step->n_spans; i += n) {
        const struct lp_span *spans = &step->spans[i];
        int64_t n_rows;
        n = absorbed_run(step, w, spans, step->n_spans - i, &n_rows);
        if (n == 0) {
            lp_mla_expanded(step, layer, w, buf, spans, take_route(step, layer, w, spans).select);
            n = 1;
            continue;
        }
        lp_mla_absorb_queries(step, w, buf, spans->first_row, n_rows);
        attend_latents(step, layer, w, buf, spans, n);
        lp_mla_make_values(step, w, buf, spans->first_row, n_rows);
    }
    if (step->probe) lp_mla_probe(step, layer, w, buf);
}
