// DeepSeek Sparse Attention: the lightning indexer's semantics (docs/attention.md, "Indexer").
//
// A full layer caches one indexer key per token, always, and selects keys for the queries of a span
// once the span sees more than top_k of them; up to top_k every key is kept and nothing is
// computed. A shared layer sees what the last full layer of the same step selected for the same
// token.
#include "attention/attn_probe.h"
#include "base/fault.h"

const char *lp_indexer_role_name(enum lp_indexer_role role) {
    return role == LP_INDEXER_FULL ? "full" : role == LP_INDEXER_SHARED ? "shared" : "none";
}

bool lp_sparse_selects(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                       const struct lp_span *spans, int32_t n_spans) {
    if (w->indexer == LP_INDEXER_NONE || step->force == LP_ROUTE_DENSE) return false;
    for (int32_t i = 0; i < n_spans; i++)
        if (spans[i].n_past + spans[i].n_rows > w->top_k) return true;
    return false;
}

// For the queries of a span, or of spans that go together (span: the first of them).
static void select_keys(const struct lp_attn_step *step, int32_t layer,
                        const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                        const struct lp_span *span, const struct lp_together *together) {
    struct lp_cache_view keys = lp_kv_view(step->kv, layer, LP_KV_INDEX, span->pages);
    int64_t q_stride = (int64_t)w->index_heads * w->index_width;
    step->dev->backend->index_select(
        step->dev,
        &(struct lp_op_index_select){.q = buf->index_q + span->first_row * q_stride,
                                     .q_stride = q_stride,
                                     .w = buf->index_w + span->first_row * w->index_heads,
                                     .w_stride = w->index_heads,
                                     .keys = &keys,
                                     .first_pos = span->n_past,
                                     .n_queries = together ? together->n_rows : span->n_rows,
                                     .batch = together ? &together->batch : NULL,
                                     .n_heads = w->index_heads,
                                     .width = w->index_width,
                                     .top_k = LP_FAULT("index-top-k") ? w->top_k / 8 : w->top_k,
                                     .scale = w->index_scale,
                                     .ids = buf->selected + span->first_row * buf->ids_stride,
                                     .ids_stride = buf->ids_stride,
                                     .counts = buf->n_selected + span->first_row});
}

void lp_sparse_project_keys(const struct lp_attn_step *step, int32_t layer,
                            const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                            const float *x, int64_t x_stride) {
    lp_attn_project(step, &w->index_k, NULL, x, x_stride, true, buf->index_k);
    lp_attn_probe(step, LP_PROBE_INDEX_K_PROJ, layer, buf->index_k, w->index_width);
    if (lp_sparse_selects(step, w, step->spans, step->n_spans))
        lp_attn_project(step, &w->index_proj, NULL, x, x_stride, true, buf->index_w);
    lp_step_lap(step->clock, LP_STEP_PART_INDEX_PROJECT);
}

void lp_sparse_project_queries(const struct lp_attn_step *step, int32_t layer,
                               const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                               bool same_x) {
    if (!lp_sparse_selects(step, w, step->spans, step->n_spans)) return;
    lp_attn_project(step, &w->index_q, NULL, buf->q_low, w->q_rank, same_x, buf->index_q);
    lp_attn_probe_heads(step, LP_PROBE_INDEX_Q_PROJ, layer, buf->index_q, w->index_heads,
                        w->index_width);
    lp_step_lap(step->clock, LP_STEP_PART_INDEX_PROJECT);
}

// The rotated values are the first ones of each indexer head (MLA rotates the last).
int32_t lp_sparse_ready(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                        const struct lp_rope_spec *rope, const struct lp_mla_buffers *buf,
                        struct lp_attn_ready parts[2]) {
    parts[0] = (struct lp_attn_ready){.x = buf->index_k,
                                      .stride = w->index_width,
                                      .n_heads = 1,
                                      .norm_w = w->index_norm_w,
                                      .norm_b = w->index_norm_b,
                                      .eps = w->index_eps,
                                      .norm_width = w->index_width,
                                      .rope = rope,
                                      .stores = true,
                                      .kind = LP_KV_INDEX};
    if (!lp_sparse_selects(step, w, step->spans, step->n_spans)) return 1;
    parts[1] = (struct lp_attn_ready){.x = buf->index_q,
                                      .stride = (int64_t)w->index_heads * w->index_width,
                                      .head_stride = w->index_width,
                                      .n_heads = w->index_heads,
                                      .rope = rope};
    return 2;
}

struct lp_rope_spec lp_sparse_rope(const struct lp_mla_layer *w) {
    struct lp_rope_spec rope = w->index_rope;
    if (LP_FAULT("index-rope-style"))
        rope.pairing = rope.pairing == LP_ROPE_HALF ? LP_ROPE_ADJACENT : LP_ROPE_HALF;
    return rope;
}

void lp_sparse_select(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                      const struct lp_mla_buffers *buf) {
    if (!lp_sparse_selects(step, w, step->spans, step->n_spans)) return;
    for (int32_t i = 0, n; i < step->n_spans; i += n) {
        struct lp_together t = lp_attn_together(step, &step->spans[i], step->n_spans - i);
        n = t.n_spans > 0 ? t.n_spans : 1;
        if (lp_sparse_selects(step, w, &step->spans[i], n))
            select_keys(step, layer, w, buf, &step->spans[i], t.n_spans > 0 ? &t : NULL);
    }
    lp_step_lap(step->clock, LP_STEP_PART_INDEX_SELECT);
}

struct lp_visible lp_sparse_visible(const struct lp_mla_buffers *buf, int64_t first_row,
                                    int64_t n_rows, int64_t first_pos, bool select) {
    struct lp_visible visible = {.first_pos = first_pos, .n_queries = n_rows};
    if (select) {
        visible.ids = buf->selected + first_row * buf->ids_stride;
        visible.counts = buf->n_selected + first_row;
        visible.k = (int32_t)buf->ids_stride;
    }
    return visible;
}
