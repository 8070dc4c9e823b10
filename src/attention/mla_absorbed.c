// MLA as multi-query attention over the latents: the key up-projection is absorbed into the query,
// the value up-projection is applied to the result. Right for few queries and for selected keys.
#include "base/fault.h"
#include "attention/attention.h"

// q_latent[h] = W_UK[h]^T q_nope[h]. attn_k_b holds W_UK transposed, so there it is a plain
// product.
void lp_mla_absorb_queries(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                           const struct lp_mla_buffers *buf, int64_t first_row, int64_t n_rows) {
    int64_t head = w->nope + w->rope_dim, q_stride = w->n_heads * head,
            z_stride = (int64_t)w->n_heads * w->latent;
    step->dev->backend->head_matmul(
        step->dev, &(struct lp_op_head_matmul){.w = &w->k_up,
                                               .transposed = !w->k_transposed,
                                               .x = buf->q + first_row * q_stride,
                                               .x_row_stride = q_stride,
                                               .x_head_stride = head,
                                               .y = buf->q_latent + first_row * z_stride,
                                               .y_row_stride = z_stride,
                                               .y_head_stride = w->latent,
                                               .n_rows = n_rows});
    lp_step_lap(step->clock, LP_STEP_PART_PROJECT);
}

void lp_mla_attend_latents(const struct lp_attn_step *step, int32_t layer,
                           const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                           const struct lp_span *span, const struct lp_together *together,
                           bool select) {
    const struct lp_page_table *pages =
        LP_FAULT("batch-first-pages") ? step->spans[0].pages : span->pages;
    struct lp_cache_view cache = lp_kv_view(step->kv, layer, LP_KV_LATENT, pages);
    int64_t head = w->nope + w->rope_dim, q_stride = w->n_heads * head,
            z_stride = (int64_t)w->n_heads * w->latent;
    struct lp_visible visible = lp_sparse_visible(
        buf, span->first_row, together ? together->n_rows : span->n_rows, span->n_past, select);
    if (together) visible.batch = &together->batch;
    step->dev->backend->mla_absorbed(
        step->dev,
        &(struct lp_op_mla_absorbed){.q_latent = buf->q_latent + span->first_row * z_stride,
                                     .q_latent_stride = z_stride,
                                     .q_rope = buf->q + span->first_row * q_stride + w->nope,
                                     .q_rope_stride = q_stride,
                                     .q_rope_head_stride = head,
                                     .cache = &cache,
                                     .visible = visible,
                                     .n_heads = w->n_heads,
                                     .latent = w->latent,
                                     .rope = w->rope_dim,
                                     .scale = w->scale,
                                     .out = buf->z + span->first_row * z_stride,
                                     .out_stride = z_stride,
                                     .ahead = span == step->spans ? step->ahead : NULL,
                                     .n_ahead = step->n_ahead});
    lp_step_lap(step->clock, select ? LP_STEP_PART_ATTEND_SPARSE : LP_STEP_PART_ATTEND_ABSORBED);
}

void lp_mla_make_values(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                        const struct lp_mla_buffers *buf, int64_t first_row, int64_t n_rows) {
    int64_t z_stride = (int64_t)w->n_heads * w->latent, out_stride = (int64_t)w->n_heads * w->v_dim;
    step->dev->backend->head_matmul(
        step->dev, &(struct lp_op_head_matmul){.w = &w->v_up,
                                               .x = buf->z + first_row * z_stride,
                                               .x_row_stride = z_stride,
                                               .x_head_stride = w->latent,
                                               .y = buf->out + first_row * out_stride,
                                               .y_row_stride = out_stride,
                                               .y_head_stride = w->v_dim,
                                               .n_rows = n_rows});
    lp_step_lap(step->clock, LP_STEP_PART_PROJECT);
}
