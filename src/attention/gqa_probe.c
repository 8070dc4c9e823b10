// What a probe sees of grouped-query attention.
#include "attention/attn_probe.h"
#include "base/alloc.h"

static bool show_row(const struct lp_attn_step *step, int32_t layer, const struct lp_gqa_layer *w,
                     const struct lp_gqa_buffers *buf, const struct lp_span *span,
                     struct lp_key_rows *keys, int64_t row) {
    int64_t n = (int64_t)w->n_heads * w->head_dim, position = span->n_past + row;
    if (!lp_probe_wants(step->probe, LP_PROBE_ATTN_SCORES, layer, position, 1) &&
        !lp_probe_wants(step->probe, LP_PROBE_ATTN_PROBS, layer, position, 1))
        return true;
    float *q = lp_alloc((size_t)n, sizeof *q);
    double *query = lp_alloc((size_t)n, sizeof *query);
    bool ok = q && query;
    if (ok) {
        step->dev->backend->read(step->dev, q, buf->q + (span->first_row + row) * n,
                                 (size_t)n * sizeof *q);
        for (int64_t i = 0; i < n; i++) query[i] = (double)q[i];
        ok = lp_probe_show_scores(step, span, row, layer,
                                  &(struct lp_score_work){.keys = keys,
                                                          .n_heads = w->n_heads,
                                                          .n_kv_heads = w->n_kv_heads,
                                                          .width = w->head_dim,
                                                          .scale = (double)w->scale,
                                                          .q = query,
                                                          .n_keys = position + 1});
    }
    lp_free(q);
    lp_free(query);
    return ok;
}

static void show_span(const struct lp_attn_step *step, int32_t layer, const struct lp_gqa_layer *w,
                      const struct lp_gqa_buffers *buf, const struct lp_span *span) {
    struct lp_probe *probe = step->probe;
    if (probe->route) probe->route(probe->user, layer, span->n_past, span->n_rows, LP_ROUTE_GQA);
    if (!lp_probe_wants(probe, LP_PROBE_ATTN_SCORES, layer, span->n_past, span->n_rows) &&
        !lp_probe_wants(probe, LP_PROBE_ATTN_PROBS, layer, span->n_past, span->n_rows))
        return;
    struct lp_key_rows keys = {0};
    bool ok = lp_key_rows_open(&keys, step, layer, LP_KV_KEY, span);
    for (int64_t row = 0; row < span->n_rows && ok; row++)
        ok = show_row(step, layer, w, buf, span, &keys, row);
    if (!ok) probe->failed = true;
    lp_key_rows_close(&keys);
}

void lp_gqa_probe(const struct lp_attn_step *step, int32_t layer, const struct lp_gqa_layer *w,
                  const struct lp_gqa_buffers *buf) {
    lp_attn_probe_heads(step, LP_PROBE_ATTN_Q, layer, buf->q, w->n_heads, w->head_dim);
    lp_attn_probe_heads(step, LP_PROBE_ATTN_K, layer, buf->k, w->n_kv_heads, w->head_dim);
    lp_attn_probe_heads(step, LP_PROBE_ATTN_V, layer, buf->v, w->n_kv_heads, w->v_dim);
    for (int32_t i = 0; i < step->n_spans; i++) show_span(step, layer, w, buf, &step->spans[i]);
    lp_attn_probe_heads(step, LP_PROBE_ATTN_OUT, layer, buf->out, w->n_heads, w->v_dim);
}
