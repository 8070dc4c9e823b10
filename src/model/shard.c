#include "model/shard.h"

bool lp_shard_is_first_stage(const struct lp_model *m) {
    return m->part.stage == 0;
}

bool lp_shard_is_last_stage(const struct lp_model *m) {
    return m->part.stage + 1 >= m->part.n_stages;
}

struct lp_range lp_shard_layers(const struct lp_model *m) {
    return m->part.n_stages > 1 ? m->part.layers : (struct lp_range){0, m->h.n_layers};
}

bool lp_shard_embeds(const struct lp_model *m) {
    const bool is_output = !m->binding.model.tensor[LP_SLOT_OUTPUT];
    return lp_shard_is_first_stage(m) ||
           (lp_shard_is_last_stage(m) && (is_output || m->binding.has_mtp));
}

bool lp_shard_is_cut(const struct lp_model *m) {
    return m->part.n_tensor > 1;
}

int32_t lp_shard_cache_parts(const struct lp_model *m) {
    return m->part.data_attention ? m->part.n_tensor : 1;
}

bool lp_shard_has_layer(const struct lp_model *m, int32_t l) {
    const struct lp_range layers = lp_shard_layers(m);
    if (l == m->h.n_layers) return lp_shard_is_last_stage(m);
    return l >= layers.first && l < layers.first + layers.n;
}

static struct lp_range share(const struct lp_model *m, int64_t n, int64_t step) {
    return lp_shard_is_cut(m) ? lp_share(n, step, m->part.n_tensor, m->part.tensor)
                              : (struct lp_range){0, n};
}

static int64_t block_of(const struct lp_gguf_tensor *t) {
    return lp_type_info((uint32_t)t->type)->block_values;
}

// The least number of things of `width` values each that are whole blocks together.
static int64_t step_of(int64_t block, int64_t width) {
    int64_t n = 1;
    while (n * width % block) n++;
    return n;
}

struct lp_head_units lp_shard_head_units(const struct lp_hparams *h) {
    const int64_t n = h->arch->attention == LP_ATTENTION_MLA ? h->n_heads : h->n_kv_heads;
    return (struct lp_head_units){n, h->n_heads / n * h->v_dim};
}

struct lp_range lp_shard_heads(const struct lp_model *m, int32_t l) {
    const struct lp_gguf_tensor *out = m->binding.blocks[l].tensor[LP_SLOT_ATTN_OUTPUT];
    const struct lp_head_units units = lp_shard_head_units(&m->h);
    if (m->part.data_attention) return (struct lp_range){0, units.n};
    return share(m, units.n, step_of(block_of(out), units.width));
}

// Of floats, too, rows that begin where vectors do, if all ranks get some.
#define FLOAT_STEP 64

struct lp_range lp_shard_width(const struct lp_model *m, int64_t width,
                               const struct lp_gguf_tensor *down) {
    const int64_t block = block_of(down);
    const bool even = width >= (int64_t)FLOAT_STEP * m->part.n_tensor;
    return share(m, width, block == 1 && even ? FLOAT_STEP : block);
}

struct lp_range lp_shard_shared_width(const struct lp_model *m, const struct lp_gguf_tensor *down) {
    const int64_t width = (int64_t)down->ne[0];
    return m->part.sends_rows ? (struct lp_range){0, width} : lp_shard_width(m, width, down);
}

struct lp_range lp_shard_experts_of(const struct lp_model *m, int32_t tensor) {
    return lp_share(m->h.n_experts, 1, m->part.n_tensor, tensor);
}

struct lp_range lp_shard_experts(const struct lp_model *m) {
    return m->part.whole_experts ? share(m, m->h.n_experts, 1)
                                 : (struct lp_range){0, m->h.n_experts};
}

#define VOCAB_STEP 64 // whole strips of the kernels

struct lp_range lp_shard_vocab_of(const struct lp_model *m, int32_t tensor) {
    return lp_share(m->h.n_vocab, VOCAB_STEP, m->part.n_tensor, tensor);
}

struct lp_range lp_shard_vocab(const struct lp_model *m) {
    return share(m, m->h.n_vocab, VOCAB_STEP);
}

// Whether every rank gets columns of every expert.
static bool all_can_split(const struct lp_model *m) {
    for (int32_t l = 0; l < m->h.n_layers + m->binding.has_mtp; l++) {
        const struct lp_gguf_tensor *down = m->binding.blocks[l].tensor[LP_SLOT_DOWN_EXPS];
        if (down && m->h.expert_ff / block_of(down) < m->part.n_tensor) return false;
    }
    return true;
}

lp_status lp_shard_experts_on_disk(enum lp_shard_experts *experts, int32_t n_ranks,
                                   int32_t n_stages, struct lp_err *err) {
    if (n_ranks <= (n_stages > 1 ? n_stages : 1)) return LP_OK; // nothing is divided in a stage
    if (*experts == LP_SHARD_EXPERTS_SPLIT)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "with a memory budget experts are read from disk whole, and "
                          "--shard-experts split gives every rank a part of each; use "
                          "--shard-experts whole");
    *experts = LP_SHARD_EXPERTS_WHOLE;
    return LP_OK;
}

static lp_status choose(struct lp_model *m, enum lp_shard_experts wanted, struct lp_err *err) {
    const bool can_have_whole = m->dev->backend->expert_range;
    if (wanted == LP_SHARD_EXPERTS_WHOLE && !can_have_whole && lp_shard_is_cut(m))
        return lp_err_set(
            err, LP_STATUS_UNSUPPORTED,
            "the backend %s cannot run some of the experts; use --shard-experts split",
            m->dev->backend->name);
    m->part.whole_experts =
        lp_shard_is_cut(m) && m->h.n_experts > 0 &&
        (wanted == LP_SHARD_EXPERTS_WHOLE ||
         (wanted == LP_SHARD_EXPERTS_AUTO && can_have_whole && !all_can_split(m)));
    return LP_OK;
}

static lp_status choose_attention(struct lp_model *m, enum lp_attention_parallel wanted,
                                  struct lp_err *err) {
    if (wanted != LP_ATTENTION_PARALLEL_DATA || (m->part.n_stages == 1 && !lp_shard_is_cut(m)))
        return LP_OK;
    if (m->part.n_stages > 1)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "--attention-parallel data does not work in a pipeline of stages yet; "
                          "leave it or --pipeline out");
    m->part.data_attention = true;
    // Between devices with memory of their own rows go through the hosts, all of them.
    m->part.sends_rows = m->part.whole_experts && m->dev->backend->host_memory;
    return LP_OK;
}

// What stages are balanced by.
static void add_layer_bytes(const struct lp_model *m, uint64_t *bytes) {
    for (int32_t l = 0; l < m->h.n_layers; l++)
        for (int slot = 0; slot < LP_N_SLOTS; slot++)
            if (m->binding.blocks[l].tensor[slot])
                bytes[l] += m->binding.blocks[l].tensor[slot]->n_bytes;
}

lp_status lp_shard_divide(struct lp_model *m, int32_t rank, int32_t n_ranks, int32_t n_stages,
                          enum lp_shard_experts experts, enum lp_attention_parallel attention,
                          struct lp_err *err) {
    uint64_t bytes[LP_MAX_LAYERS] = {0};
    add_layer_bytes(m, bytes);
    lp_status status =
        lp_sharding_make(&m->part, rank, n_ranks, n_stages, bytes, m->h.n_layers, err);
    if (!status) status = choose(m, experts, err);
    return status ? status : choose_attention(m, attention, err);
}

static struct lp_weight cut_columns(const struct lp_weight *w, struct lp_range columns) {
    const struct lp_type_info *type = lp_type_info((uint32_t)w->type);
    const size_t skip = (size_t)columns.first / type->block_values * type->block_bytes;
    struct lp_weight part = *w;
    part.n_in = columns.n;
    part.packed = NULL;
    if (w->mats)
        part.mats_offset += skip;
    else
        part.data = (const char *)w->data + skip;
    return part;
}

struct lp_weight lp_weight_cut(const struct lp_weight *w, struct lp_cut cut) {
    switch (cut.kind) {
    case LP_CUT_ROWS:
        return lp_weight_part(w, 0, w->n_mats, cut.range.first, cut.range.n);
    case LP_CUT_MATRICES:
        return lp_weight_part(w, cut.range.first, cut.range.n, 0, w->n_out);
    case LP_CUT_COLUMNS:
        return cut_columns(w, cut.range);
    case LP_CUT_NOTHING:
        break;
    }
    return *w;
}
