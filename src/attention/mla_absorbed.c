// MLA as multi-query attention over the latents: the key up-projection is absorbed into the query,
// the value up-projection is applied to the result. Right for few queries and for selected keys.
#include "attention/attention.h"

// q_latent[h] = W_UK[h]^T q_nope[h]. attn_k_b holds W_UK transposed, so there it is a plain
// product.
static void absorb_query(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                         const float *q, int64_t q_stride, float *q_latent, int64_t n_rows) {
    step->dev->backend->head_matmul(
        step->dev, &(struct lp_op_head_matmul){.w = &w->k_up,
                                               .transposed = !w->k_transposed,
                                               .x = q,
                                               .x_row_stride = q_stride,
                                               .x_head_stride = w->nope + w->rope_dim,
                                               .y = q_latent,
                                               .y_row_stride = (int64_t)w->n_heads * w->latent,
                                               .y_head_stride = w->latent,
                                               .n_rows = n_rows});
}

void lp_mla_absorbed(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                     const struct lp_mla_buffers *buf, const struct lp_span *span, bool select) {
    struct lp_device *dev = step->dev;
    struct lp_cache_view cache = lp_kv_view(step->kv, layer, LP_KV_LATENT, span->pages);
    int64_t head = w->nope + w->rope_dim, q_stride = w->n_heads * head,
            z_stride = (int64_t)w->n_heads * w->latent;
    int64_t out_stride = (int64_t)w->n_heads * w->v_dim;
    const float *q = buf->q + span->first_row * q_stride;
    float *q_latent = buf->q_latent + span->first_row * z_stride,
          *z = buf->z + span->first_row * z_stride;
    absorb_query(step, w, q, q_stride, q_latent, span->n_rows);
    dev->backend->mla_absorbed(
        dev, &(struct lp_op_mla_absorbed){.q_latent = q_latent,
                                          .q_latent_stride = z_stride,
                                          .q_rope = q + w->nope,
                                          .q_rope_stride = q_stride,
                                          .q_rope_head_stride = head,
                                          .cache = &cache,
                                          .visible = lp_sparse_visible(buf, span, select),
                                          .n_heads = w->n_heads,
                                          .latent = w->latent,
                                          .rope = w->rope_dim,
                                          .scale = w->scale,
                                          .out = z,
                                          .out_stride = z_stride});
    dev->backend->head_matmul(
        dev, &(struct lp_op_head_matmul){.w = &w->v_up,
                                         .x = z,
                                         .x_row_stride = z_stride,
                                         .x_head_stride = w->latent,
                                         .y = buf->out + span->first_row * out_stride,
                                         .y_row_stride = out_stride,
                                         .y_head_stride = w->v_dim,
                                         .n_rows = span->n_rows});
}
