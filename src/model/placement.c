// From bound tensors to the layer structs that the operations take. Host backends use matrices
// where the file is mapped; vectors, routers and the indexer's head weights become float32 (they
// are small and decide much: docs/numerics.md).
#include "model/model.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

static float *own(struct lp_model *m, size_t n_floats, struct lp_err *err) {
    if (m->n_owned == m->owned_capacity) {
        size_t capacity = m->owned_capacity ? 2 * m->owned_capacity : 64;
        void **owned = lp_realloc(m->owned, capacity, sizeof *owned);
        if (!owned) {
            lp_err_memory(err, capacity * sizeof *owned, "the model's tensors");
            return NULL;
        }
        m->owned = owned;
        m->owned_capacity = capacity;
    }
    float *block = m->dev->backend->alloc(m->dev, n_floats * sizeof(float));
    if (!block) {
        lp_err_memory(err, n_floats * sizeof(float), "a float32 tensor");
        return NULL;
    }
    m->owned[m->n_owned++] = block;
    m->owned_bytes += n_floats * sizeof(float);
    return block;
}

// A float32 device copy of a tensor of F32, F16, BF16 or any dequantisable type.
static lp_status to_f32(struct lp_model *m, const struct lp_gguf_tensor *t, const float **out,
                        struct lp_err *err) {
    *out = NULL;
    if (!t) return LP_OK;
    size_t n = (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    float *host = lp_alloc(n, sizeof *host);
    if (!host) return lp_err_memory(err, n * sizeof *host, "a tensor");
    float *device = own(m, n, err);
    if (device) {
        lp_type_info(t->type)->dequant(t->data, host, n);
        m->dev->backend->write(m->dev, device, host, n * sizeof *host);
    }
    lp_free(host);
    *out = device;
    return device ? LP_OK : LP_STATUS_MEMORY;
}

static struct lp_weight as_weight(const struct lp_gguf_tensor *t) {
    uint64_t row_bytes = 0;
    if (!t) return (struct lp_weight){0};
    lp_type_row_bytes(t->type, t->ne[0], &row_bytes); // checked by the reader
    return (struct lp_weight){.data = t->data,
                              .type = t->type,
                              .n_in = (int64_t)t->ne[0],
                              .n_out = (int64_t)t->ne[1],
                              .n_mats = (int64_t)t->ne[2],
                              .row_bytes = row_bytes,
                              .mat_bytes = row_bytes * t->ne[1],
                              .name = t->name.data};
}

static lp_status as_f32_weight(struct lp_model *m, const struct lp_gguf_tensor *t,
                               struct lp_weight *out, struct lp_err *err) {
    const float *data;
    lp_status status = to_f32(m, t, &data, err);
    if (status) return status;
    *out = as_weight(t);
    out->data = data;
    out->type = LP_TYPE_F32;
    out->row_bytes = (size_t)out->n_in * sizeof(float);
    out->mat_bytes = out->row_bytes * (size_t)out->n_out;
    return LP_OK;
}

// Rows [first, first + n_out) of every run of `stride` rows of a matrix, as a stack of n_mats
// matrices.
static struct lp_weight row_view(struct lp_weight w, int64_t first, int64_t n_out, int64_t stride,
                                 int64_t n_mats) {
    w.data = (const uint8_t *)w.data + (size_t)first * w.row_bytes;
    w.n_out = n_out;
    w.n_mats = n_mats;
    w.mat_bytes = (size_t)stride * w.row_bytes;
    return w;
}

static lp_status place_indexer(struct lp_model *m, int32_t l, struct lp_err *err) {
    const struct lp_hparams *h = &m->h;
    const struct lp_gguf_tensor **t = m->binding.blocks[l].tensor;
    struct lp_mla_layer *w = &m->layers[l].mla;
    w->indexer = h->top_k ? h->index_role[l] : LP_INDEXER_NONE;
    w->top_k = h->top_k;
    if (w->indexer != LP_INDEXER_FULL) return LP_OK;
    w->index_heads = h->index_heads;
    w->index_width = h->index_width;
    w->index_eps = h->index_eps;
    w->index_scale = 1.0f / __builtin_sqrtf((float)h->index_heads * (float)h->index_width);
    w->index_rope = (struct lp_rope_spec){h->rope_width, h->arch->index_rope_pairing, m->inv_freq,
                                          h->rope_magnitude};
    w->index_q = as_weight(t[LP_SLOT_INDEX_Q]);
    w->index_k = as_weight(t[LP_SLOT_INDEX_K]);
    lp_status status = as_f32_weight(m, t[LP_SLOT_INDEX_PROJ], &w->index_proj, err);
    if (!status) status = to_f32(m, t[LP_SLOT_INDEX_NORM_W], &w->index_norm_w, err);
    if (!status) status = to_f32(m, t[LP_SLOT_INDEX_NORM_B], &w->index_norm_b, err);
    return status;
}

static lp_status place_mla(struct lp_model *m, int32_t l, struct lp_err *err) {
    const struct lp_hparams *h = &m->h;
    const struct lp_gguf_tensor **t = m->binding.blocks[l].tensor;
    struct lp_mla_layer *w = &m->layers[l].mla;
    *w = (struct lp_mla_layer){.has_q_rank = h->q_rank > 0,
                               .n_heads = h->n_heads,
                               .nope = h->nope,
                               .rope_dim = h->rope_dim,
                               .latent = h->latent,
                               .v_dim = h->v_dim,
                               .q_rank = h->q_rank,
                               .eps = h->eps,
                               .scale = h->attn_scale};
    w->rope =
        (struct lp_rope_spec){h->rope_width, h->arch->rope_pairing, m->inv_freq, h->rope_magnitude};
    w->q = as_weight(t[LP_SLOT_Q]);
    w->q_a = as_weight(t[LP_SLOT_Q_A]);
    w->q_b = as_weight(t[LP_SLOT_Q_B]);
    w->kv_a = as_weight(t[LP_SLOT_KV_A]);
    if (t[LP_SLOT_K_B]) {
        w->k_up = as_weight(t[LP_SLOT_K_B]);
        w->v_up = as_weight(t[LP_SLOT_V_B]);
        w->k_transposed = true;
    } else { // rows of head h: nope rows of W_UK, then v rows of W_UV
        struct lp_weight both = as_weight(t[LP_SLOT_KV_B]);
        w->k_up = row_view(both, 0, h->nope, h->nope + h->v_dim, h->n_heads);
        w->v_up = row_view(both, h->nope, h->v_dim, h->nope + h->v_dim, h->n_heads);
    }
    lp_status status = to_f32(m, t[LP_SLOT_Q_A_NORM], &w->q_a_norm, err);
    if (!status) status = to_f32(m, t[LP_SLOT_KV_A_NORM], &w->kv_a_norm, err);
    return status ? status : place_indexer(m, l, err);
}

static lp_status place_gqa(struct lp_model *m, int32_t l, struct lp_err *err) {
    const struct lp_hparams *h = &m->h;
    const struct lp_gguf_tensor **t = m->binding.blocks[l].tensor;
    struct lp_gqa_layer *w = &m->layers[l].gqa;
    *w = (struct lp_gqa_layer){.q = as_weight(t[LP_SLOT_Q]),
                               .k = as_weight(t[LP_SLOT_K]),
                               .v = as_weight(t[LP_SLOT_V]),
                               .n_heads = h->n_heads,
                               .n_kv_heads = h->n_kv_heads,
                               .head_dim = h->head_dim,
                               .v_dim = h->v_dim,
                               .eps = h->eps,
                               .scale = h->attn_scale};
    w->rope =
        (struct lp_rope_spec){h->rope_width, h->arch->rope_pairing, m->inv_freq, h->rope_magnitude};
    const struct {
        enum lp_slot slot;
        const float **to;
    } vectors[] = {{LP_SLOT_Q_BIAS, &w->q_bias},
                   {LP_SLOT_K_BIAS, &w->k_bias},
                   {LP_SLOT_V_BIAS, &w->v_bias},
                   {LP_SLOT_Q_NORM, &w->q_norm},
                   {LP_SLOT_K_NORM, &w->k_norm}};
    lp_status status = LP_OK;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0] && !status; i++)
        status = to_f32(m, t[vectors[i].slot], vectors[i].to, err);
    return status;
}

static lp_status place_ffn(struct lp_model *m, int32_t l, struct lp_err *err) {
    const struct lp_hparams *h = &m->h;
    const struct lp_gguf_tensor **t = m->binding.blocks[l].tensor;
    struct lp_layer *layer = &m->layers[l];
    layer->is_moe = t[LP_SLOT_ROUTER] != NULL;
    if (!layer->is_moe) {
        layer->dense = (struct lp_ffn){as_weight(t[LP_SLOT_FFN_GATE]), as_weight(t[LP_SLOT_FFN_UP]),
                                       as_weight(t[LP_SLOT_FFN_DOWN])};
        return LP_OK;
    }
    layer->experts.down = as_weight(t[LP_SLOT_DOWN_EXPS]);
    if (t[LP_SLOT_GATE_UP_EXPS]) {
        struct lp_weight both = as_weight(t[LP_SLOT_GATE_UP_EXPS]);
        layer->experts.gate = row_view(both, 0, h->expert_ff, 2 * h->expert_ff, h->n_experts);
        layer->experts.up =
            row_view(both, h->expert_ff, h->expert_ff, 2 * h->expert_ff, h->n_experts);
    } else {
        layer->experts.gate = as_weight(t[LP_SLOT_GATE_EXPS]);
        layer->experts.up = as_weight(t[LP_SLOT_UP_EXPS]);
    }
    layer->has_shared = h->n_shared > 0;
    if (layer->has_shared)
        layer->shared =
            (struct lp_ffn){as_weight(t[LP_SLOT_GATE_SHEXP]), as_weight(t[LP_SLOT_UP_SHEXP]),
                            as_weight(t[LP_SLOT_DOWN_SHEXP])};
    lp_status status = as_f32_weight(m, t[LP_SLOT_ROUTER], &layer->router, err);
    return status ? status : to_f32(m, t[LP_SLOT_ROUTER_BIAS], &layer->router_bias, err);
}

static lp_status place_rope(struct lp_model *m, struct lp_err *err) {
    size_t half = (size_t)m->h.rope_width / 2;
    const struct lp_gguf_tensor *t = m->binding.model.tensor[LP_SLOT_ROPE_FREQS];
    float *divisors = NULL, *inv_freq = lp_alloc(half, sizeof *inv_freq);
    lp_status status = LP_OK;
    if (!inv_freq || (t && !(divisors = lp_alloc(half, sizeof *divisors)))) {
        lp_free(inv_freq);
        return lp_err_memory(err, half * sizeof *inv_freq, "rotary frequencies");
    }
    if (t) lp_type_info(t->type)->dequant(t->data, divisors, half);
    for (size_t i = 0; t && i < half && !status; i++)
        if (!(divisors[i] > 0))
            status = lp_err_set(err, LP_STATUS_FORMAT,
                                "tensor rope_freqs.weight holds %g, expected positive numbers",
                                (double)divisors[i]);
    lp_hparams_inv_freq(&m->h, divisors, inv_freq);
    if (!status) {
        m->inv_freq = own(m, half, err);
        if (m->inv_freq)
            m->dev->backend->write(m->dev, m->inv_freq, inv_freq, half * sizeof *inv_freq);
        else
            status = LP_STATUS_MEMORY;
    }
    lp_free(divisors);
    lp_free(inv_freq);
    return status;
}

static lp_status place_layer(struct lp_model *m, int32_t l, struct lp_err *err) {
    struct lp_layer *layer = &m->layers[l];
    const struct lp_gguf_tensor **b = m->binding.blocks[l].tensor;
    lp_status status = to_f32(m, b[LP_SLOT_ATTN_NORM], &layer->attn_norm, err);
    if (!status) status = to_f32(m, b[LP_SLOT_FFN_NORM], &layer->ffn_norm, err);
    layer->attn_output = as_weight(b[LP_SLOT_ATTN_OUTPUT]);
    if (!status)
        status =
            m->h.arch->attention == LP_ATTENTION_MLA ? place_mla(m, l, err) : place_gqa(m, l, err);
    return status ? status : place_ffn(m, l, err);
}

static lp_status place_mtp(struct lp_model *m, struct lp_err *err) {
    const struct lp_gguf_tensor **t = m->binding.blocks[m->h.n_layers].tensor;
    struct lp_mtp *mtp = &m->mtp;
    m->has_mtp = true;
    mtp->eh_proj = as_weight(t[LP_SLOT_NEXTN_EH_PROJ]);
    mtp->embd = t[LP_SLOT_NEXTN_EMBD] ? as_weight(t[LP_SLOT_NEXTN_EMBD]) : m->token_embd;
    mtp->head = t[LP_SLOT_NEXTN_HEAD] ? as_weight(t[LP_SLOT_NEXTN_HEAD]) : m->output;
    lp_status status = to_f32(m, t[LP_SLOT_NEXTN_ENORM], &mtp->enorm, err);
    if (!status) status = to_f32(m, t[LP_SLOT_NEXTN_HNORM], &mtp->hnorm, err);
    if (!status) status = to_f32(m, t[LP_SLOT_NEXTN_HEAD_NORM], &mtp->head_norm, err);
    if (!mtp->head_norm) mtp->head_norm = m->output_norm;
    return status ? status : place_layer(m, m->h.n_layers, err);
}

lp_status lp_model_place(struct lp_model *m, struct lp_err *err) {
    const struct lp_gguf_tensor **t = m->binding.model.tensor;
    m->token_embd = as_weight(t[LP_SLOT_TOKEN_EMBD]);
    m->output = t[LP_SLOT_OUTPUT] ? as_weight(t[LP_SLOT_OUTPUT]) : m->token_embd;
    lp_status status = to_f32(m, t[LP_SLOT_OUTPUT_NORM], &m->output_norm, err);
    if (!status) status = place_rope(m, err);
    for (int32_t l = 0; l < m->h.n_layers && !status; l++) status = place_layer(m, l, err);
    if (!status && m->binding.has_mtp) status = place_mtp(m, err);
    return status;
}
