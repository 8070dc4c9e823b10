#include "model/rank_plan.h"

#include "base/alloc.h"
#include "model/shard.h"

// n_bytes of a whole of `of`, of which range.n are here
static uint64_t part_of(uint64_t n_bytes, struct lp_range range, int64_t of) {
    return (uint64_t)((double)n_bytes * (double)range.n / (double)of + 0.5);
}

// Of a dense FFN, or routed experts, whose third weight is `down`
static uint64_t width_part(const struct lp_model *m, uint64_t n_bytes,
                           const struct lp_gguf_tensor *down) {
    const int64_t width = (int64_t)down->ne[0];
    return part_of(n_bytes, lp_shard_width(m, width, down), width);
}

static uint64_t slot_bytes(const struct lp_model *m, int32_t l, enum lp_slot slot) {
    const struct lp_hparams *h = &m->h;
    const struct lp_gguf_tensor *const *tensors = m->binding.blocks[l].tensor, *t = tensors[slot];
    switch (slot) {
    case LP_SLOT_Q:
    case LP_SLOT_K:
    case LP_SLOT_V:
    case LP_SLOT_Q_B:
    case LP_SLOT_K_B:
    case LP_SLOT_V_B:
    case LP_SLOT_KV_B:
    case LP_SLOT_ATTN_OUTPUT:
        return part_of(t->n_bytes, lp_shard_heads(m, l), lp_shard_head_units(h).n);
    case LP_SLOT_FFN_GATE:
    case LP_SLOT_FFN_UP:
    case LP_SLOT_FFN_DOWN:
        return width_part(m, t->n_bytes, tensors[LP_SLOT_FFN_DOWN]);
    case LP_SLOT_GATE_SHEXP:
    case LP_SLOT_UP_SHEXP:
    case LP_SLOT_DOWN_SHEXP:
        return part_of(t->n_bytes, lp_shard_shared_width(m, tensors[LP_SLOT_DOWN_SHEXP]),
                       (int64_t)tensors[LP_SLOT_DOWN_SHEXP]->ne[0]);
    case LP_SLOT_GATE_EXPS:
    case LP_SLOT_UP_EXPS:
    case LP_SLOT_DOWN_EXPS:
    case LP_SLOT_GATE_UP_EXPS:
        return m->part.whole_experts ? part_of(t->n_bytes, lp_shard_experts(m), h->n_experts)
                                     : width_part(m, t->n_bytes, tensors[LP_SLOT_DOWN_EXPS]);
    case LP_SLOT_NEXTN_HEAD:
        return part_of(t->n_bytes, lp_shard_vocab(m), h->n_vocab);
    default:
        return t->n_bytes;
    }
}

uint64_t lp_rank_weight_bytes(const struct lp_model *m) {
    const struct lp_gguf_tensor *const *model = m->binding.model.tensor;
    const struct lp_gguf_tensor *embd = model[LP_SLOT_TOKEN_EMBD], *out = model[LP_SLOT_OUTPUT];
    uint64_t sum = 0;
    for (int32_t l = 0; l < m->h.n_layers + m->binding.has_mtp; l++)
        for (int slot = 0; slot < LP_N_SLOTS && lp_shard_has_layer(m, l); slot++)
            if (m->binding.blocks[l].tensor[slot]) sum += slot_bytes(m, l, (enum lp_slot)slot);
    if (lp_shard_embeds(m)) sum += embd->n_bytes;
    if (lp_shard_is_last_stage(m) && out)
        sum += part_of(out->n_bytes, lp_shard_vocab(m), m->h.n_vocab);
    return sum;
}

static uint64_t kv_token_bytes(const struct lp_model *m, lp_type type) {
    struct lp_kv_layer layers[LP_MAX_LAYERS];
    uint64_t sum = 0;
    lp_model_kv_layers(m, false, layers);
    for (int32_t l = 0; l < lp_model_kv_count(m, false); l++)
        sum += lp_kv_layer_token_bytes(m->dev, type, &layers[l]);
    return sum;
}

static struct lp_range columns_of(const struct lp_model *m) {
    for (int32_t l = 0; l < m->h.n_layers; l++) {
        const struct lp_gguf_tensor *down = m->binding.blocks[l].tensor[LP_SLOT_DOWN_EXPS];
        if (!down || !lp_shard_has_layer(m, l)) continue;
        return m->part.whole_experts ? (struct lp_range){0, m->h.expert_ff}
                                     : lp_shard_width(m, m->h.expert_ff, down);
    }
    return (struct lp_range){0};
}

static void describe(const struct lp_model *m, lp_type kv_type, struct lp_rank_plan *out) {
    const struct lp_range none = {0};
    *out = (struct lp_rank_plan){
        .part = m->part,
        .heads = lp_shard_heads(m, (int32_t)lp_shard_layers(m).first),
        .experts = m->h.n_experts ? lp_shard_experts(m) : none,
        .columns = columns_of(m),
        .vocab = lp_shard_is_last_stage(m) ? lp_shard_vocab(m) : none,
        .weight_bytes = lp_rank_weight_bytes(m),
        .kv_token_bytes = kv_token_bytes(m, kv_type),
    };
    out->part.layers = lp_shard_layers(m);
}

// Of the rank that m->part is: what of its experts stays on disk.
static lp_status describe_disk(const struct lp_model *m, struct lp_expert_layout *out,
                               struct lp_err *err) {
    lp_status status = lp_expert_layout_make(out, &m->h, &m->binding, m->gguf, err);
    if (!status) lp_expert_layout_divide(out, m);
    struct lp_expert_layout sizes = *out;
    lp_expert_layout_release(out);
    sizes.layers = NULL;
    *out = sizes;
    return status;
}

// A budget that is too small for one rank is refused with what does for all of them.
static lp_status spend(struct lp_rank_plan *plans, int32_t n_ranks, uint64_t budget_bytes,
                       struct lp_err *err) {
    int32_t most = 0;
    for (int32_t i = 1; i < n_ranks; i++)
        if (lp_expert_layout_least(&plans[i].disk) > lp_expert_layout_least(&plans[most].disk))
            most = i;
    lp_status status =
        lp_expert_layout_slots(&plans[most].disk, budget_bytes, &plans[most].n_slots, err);
    if (status && n_ranks > 1) lp_err_context(err, "rank %d", most);
    for (int32_t i = 0; i < n_ranks && !status; i++)
        status = lp_expert_layout_slots(&plans[i].disk, budget_bytes, &plans[i].n_slots, err);
    return status;
}

lp_status lp_rank_plan_make(struct lp_rank_plan *out, const struct lp_rank_plan_request *request,
                            const struct lp_hparams *h, const struct lp_binding *binding,
                            const struct lp_gguf *gguf, struct lp_device *dev, struct lp_err *err) {
    struct lp_model *m = lp_alloc(1, sizeof *m);
    if (!m) return lp_err_memory(err, sizeof *m, "a plan of the ranks");
    const bool limited = request->budget_bytes > 0;
    enum lp_shard_experts experts = request->experts;
    m->h = *h;
    m->binding = *binding;
    m->gguf = gguf;
    m->dev = dev;
    lp_status status =
        limited ? lp_shard_experts_on_disk(&experts, request->n_ranks, request->n_stages, err)
                : LP_OK;
    for (int32_t i = 0; i < request->n_ranks && !status; i++) {
        status = lp_shard_divide(m, i, request->n_ranks, request->n_stages, experts,
                                 request->attention, err);
        if (!status) describe(m, request->kv_type, &out[i]);
        if (!status && limited) status = describe_disk(m, &out[i].disk, err);
    }
    if (!status && limited) status = spend(out, request->n_ranks, request->budget_bytes, err);
    lp_free(m); // what it points to is the caller's
    return status;
}
