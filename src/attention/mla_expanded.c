// MLA as multi-head attention: keys and values of every head are made from the cached latents.
// Right for many queries that share the keys.
#include "attention/attention.h"

void lp_mla_expanded(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                     const struct lp_mla_buffers *buf, const struct lp_span *span, bool select) {
    struct lp_cache_view cache = lp_kv_view(step->kv, layer, LP_KV_LATENT, span->pages);
    int64_t q_stride = (int64_t)w->n_heads * (w->nope + w->rope_dim),
            out_stride = (int64_t)w->n_heads * w->v_dim;
    struct lp_visible visible =
        lp_sparse_visible(buf, span->first_row, span->n_rows, span->n_past, select);
    step->dev->backend->mla_expanded(
        step->dev, &(struct lp_op_mla_expanded){.q = buf->q + span->first_row * q_stride,
                                                .q_stride = q_stride,
                                                .cache = &cache,
                                                .k_up = &w->k_up,
                                                .k_transposed = w->k_transposed,
                                                .v_up = &w->v_up,
                                                .visible = visible,
                                                .n_heads = w->n_heads,
                                                .nope = w->nope,
                                                .rope = w->rope_dim,
                                                .latent = w->latent,
                                                .v_dim = w->v_dim,
                                                .scale = w->scale,
                                                .out = buf->out + span->first_row * out_stride,
                                                .out_stride = out_stride});
    lp_step_lap(step->clock,
                select ? LP_STEP_PART_ATTEND_EXPANDED_SPARSE : LP_STEP_PART_ATTEND_EXPANDED);
}
