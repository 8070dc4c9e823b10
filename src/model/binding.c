// The binding table: tensor name -> slot, with the shape in terms of the hyperparameters and the
// condition under which a block needs it.
#include "model/binding.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum dim { // the sizes that shapes are made of
    D_NONE,
    D_EMBD,
    D_EMBD2,
    D_VOCAB,
    D_FF,
    D_Q_RANK,
    D_Q_ROWS,
    D_KV_ROW,
    D_LATENT,
    D_NOPE,
    D_V,
    D_HEADS,
    D_KV_B_ROWS,
    D_OUT_IN,
    D_KV_HEADS_K,
    D_KV_HEADS_V,
    D_HEAD,
    D_INDEX_Q,
    D_INDEX,
    D_INDEX_HEADS,
    D_EXPERTS,
    D_EXPERT_FF,
    D_EXPERT_FF2,
    D_SHARED_FF,
    D_ROPE_HALF,
};

static int64_t dim_value(const struct lp_hparams *h, int32_t block, enum dim d) {
    switch (d) {
    case D_NONE:
        return 1;
    case D_EMBD:
        return h->n_embd;
    case D_EMBD2:
        return 2 * h->n_embd;
    case D_VOCAB:
        return h->n_vocab;
    case D_FF:
        return h->n_ff[block];
    case D_Q_RANK:
        return h->q_rank;
    case D_Q_ROWS:
        return (int64_t)h->n_heads *
               (h->arch->attention == LP_ATTENTION_MLA ? h->nope + h->rope_dim : h->head_dim);
    case D_KV_ROW:
        return h->latent + h->rope_dim;
    case D_LATENT:
        return h->latent;
    case D_NOPE:
        return h->nope;
    case D_V:
        return h->v_dim;
    case D_HEADS:
        return h->n_heads;
    case D_KV_B_ROWS:
        return (int64_t)h->n_heads * (h->nope + h->v_dim);
    case D_OUT_IN:
        return (int64_t)h->n_heads * h->v_dim;
    case D_KV_HEADS_K:
        return (int64_t)h->n_kv_heads * h->head_dim;
    case D_KV_HEADS_V:
        return (int64_t)h->n_kv_heads * h->v_dim;
    case D_HEAD:
        return h->head_dim;
    case D_INDEX_Q:
        return (int64_t)h->index_heads * h->index_width;
    case D_INDEX:
        return h->index_width;
    case D_INDEX_HEADS:
        return h->index_heads;
    case D_EXPERTS:
        return h->n_experts;
    case D_EXPERT_FF:
        return h->expert_ff;
    case D_EXPERT_FF2:
        return 2 * h->expert_ff;
    case D_SHARED_FF:
        return h->shared_ff;
    case D_ROPE_HALF:
        return h->rope_width / 2;
    }
    return 0;
}

enum need { NEED_NO, NEED_OPTIONAL, NEED_YES };

static bool is_mla(const struct lp_hparams *h) {
    return h->arch->attention == LP_ATTENTION_MLA;
}
static bool is_moe(const struct lp_hparams *h, int32_t b) {
    return h->n_experts > 0 && b >= h->n_dense;
}

static enum need always(const struct lp_hparams *h, int32_t b) {
    (void)h, (void)b;
    return NEED_YES;
}
static enum need optional(const struct lp_hparams *h, int32_t b) {
    (void)h, (void)b;
    return NEED_OPTIONAL;
}
static enum need gqa(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return is_mla(h) ? NEED_NO : NEED_YES;
}
static enum need plain_q(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return is_mla(h) && h->q_rank ? NEED_NO : NEED_YES;
}
static enum need qkv_bias(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return h->arch->qkv_bias ? NEED_YES : h->arch->optional_qkv_bias ? NEED_OPTIONAL : NEED_NO;
}
static enum need qk_norm(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return h->arch->qk_norm ? NEED_YES : h->arch->optional_qk_norm ? NEED_OPTIONAL : NEED_NO;
}
static enum need mla(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return is_mla(h) ? NEED_YES : NEED_NO;
}
static enum need q_rank(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return is_mla(h) && h->q_rank ? NEED_YES : NEED_NO;
}
// k_b and v_b, or the fused kv_b: which of the two is checked after the table.
static enum need up(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return is_mla(h) ? NEED_OPTIONAL : NEED_NO;
}
static enum need indexer(const struct lp_hparams *h, int32_t b) {
    return h->index_role[b] == LP_INDEXER_FULL ? NEED_YES : NEED_NO;
}
static enum need dense(const struct lp_hparams *h, int32_t b) {
    return is_moe(h, b) ? NEED_NO : NEED_YES;
}
static enum need moe(const struct lp_hparams *h, int32_t b) {
    return is_moe(h, b) ? NEED_YES : NEED_NO;
}
static enum need moe_optional(const struct lp_hparams *h, int32_t b) {
    return is_moe(h, b) ? NEED_OPTIONAL : NEED_NO;
}
static enum need shared(const struct lp_hparams *h, int32_t b) {
    return is_moe(h, b) && h->n_shared ? NEED_YES : NEED_NO;
}
static enum need ffn_norm(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return strcmp(h->arch->ffn_norm_name, "ffn_norm") == 0 ? NEED_YES : NEED_NO;
}
static enum need post_norm(const struct lp_hparams *h, int32_t b) {
    return ffn_norm(h, b) == NEED_YES ? NEED_NO : NEED_YES;
}

static enum need nextn(const struct lp_hparams *h, int32_t b) {
    return b >= h->n_layers ? NEED_YES : NEED_NO;
}
static enum need nextn_optional(const struct lp_hparams *h, int32_t b) {
    return b >= h->n_layers ? NEED_OPTIONAL : NEED_NO;
}

struct row {
    enum lp_slot slot;
    const char *name, *suffix;
    bool block;
    enum dim dims[3]; // fastest first, as in the file
    bool vector;      // converted to float32 at load: F32, F16 or BF16 only
    enum need (*need)(const struct lp_hparams *, int32_t);
};

static const struct row table[] = {
    {LP_SLOT_TOKEN_EMBD, "token_embd", "weight", false, {D_EMBD, D_VOCAB}, false, always},
    {LP_SLOT_OUTPUT_NORM, "output_norm", "weight", false, {D_EMBD}, true, always},
    {LP_SLOT_OUTPUT, "output", "weight", false, {D_EMBD, D_VOCAB}, false, optional},
    {LP_SLOT_ROPE_FREQS, "rope_freqs", "weight", false, {D_ROPE_HALF}, true, optional},
    {LP_SLOT_ATTN_NORM, "attn_norm", "weight", true, {D_EMBD}, true, always},
    {LP_SLOT_Q, "attn_q", "weight", true, {D_EMBD, D_Q_ROWS}, false, plain_q},
    {LP_SLOT_K, "attn_k", "weight", true, {D_EMBD, D_KV_HEADS_K}, false, gqa},
    {LP_SLOT_V, "attn_v", "weight", true, {D_EMBD, D_KV_HEADS_V}, false, gqa},
    {LP_SLOT_Q_BIAS, "attn_q", "bias", true, {D_Q_ROWS}, true, qkv_bias},
    {LP_SLOT_K_BIAS, "attn_k", "bias", true, {D_KV_HEADS_K}, true, qkv_bias},
    {LP_SLOT_V_BIAS, "attn_v", "bias", true, {D_KV_HEADS_V}, true, qkv_bias},
    {LP_SLOT_Q_NORM, "attn_q_norm", "weight", true, {D_HEAD}, true, qk_norm},
    {LP_SLOT_K_NORM, "attn_k_norm", "weight", true, {D_HEAD}, true, qk_norm},
    {LP_SLOT_Q_A, "attn_q_a", "weight", true, {D_EMBD, D_Q_RANK}, false, q_rank},
    {LP_SLOT_Q_A_NORM, "attn_q_a_norm", "weight", true, {D_Q_RANK}, true, q_rank},
    {LP_SLOT_Q_B, "attn_q_b", "weight", true, {D_Q_RANK, D_Q_ROWS}, false, q_rank},
    {LP_SLOT_KV_A, "attn_kv_a_mqa", "weight", true, {D_EMBD, D_KV_ROW}, false, mla},
    {LP_SLOT_KV_A_NORM, "attn_kv_a_norm", "weight", true, {D_LATENT}, true, mla},
    {LP_SLOT_K_B, "attn_k_b", "weight", true, {D_NOPE, D_LATENT, D_HEADS}, false, up},
    {LP_SLOT_V_B, "attn_v_b", "weight", true, {D_LATENT, D_V, D_HEADS}, false, up},
    {LP_SLOT_KV_B, "attn_kv_b", "weight", true, {D_LATENT, D_KV_B_ROWS}, false, up},
    {LP_SLOT_INDEX_Q, "indexer.attn_q_b", "weight", true, {D_Q_RANK, D_INDEX_Q}, false, indexer},
    {LP_SLOT_INDEX_K, "indexer.attn_k", "weight", true, {D_EMBD, D_INDEX}, false, indexer},
    {LP_SLOT_INDEX_NORM_W, "indexer.k_norm", "weight", true, {D_INDEX}, true, indexer},
    {LP_SLOT_INDEX_NORM_B, "indexer.k_norm", "bias", true, {D_INDEX}, true, indexer},
    {LP_SLOT_INDEX_PROJ, "indexer.proj", "weight", true, {D_EMBD, D_INDEX_HEADS}, false, indexer},
    {LP_SLOT_ATTN_OUTPUT, "attn_output", "weight", true, {D_OUT_IN, D_EMBD}, false, always},
    {LP_SLOT_FFN_NORM, "ffn_norm", "weight", true, {D_EMBD}, true, ffn_norm},
    {LP_SLOT_FFN_NORM, "post_attention_norm", "weight", true, {D_EMBD}, true, post_norm},
    {LP_SLOT_FFN_GATE, "ffn_gate", "weight", true, {D_EMBD, D_FF}, false, dense},
    {LP_SLOT_FFN_UP, "ffn_up", "weight", true, {D_EMBD, D_FF}, false, dense},
    {LP_SLOT_FFN_DOWN, "ffn_down", "weight", true, {D_FF, D_EMBD}, false, dense},
    {LP_SLOT_ROUTER, "ffn_gate_inp", "weight", true, {D_EMBD, D_EXPERTS}, false, moe},
    {LP_SLOT_ROUTER_BIAS, "exp_probs_b", "bias", true, {D_EXPERTS}, true, moe_optional},
    {LP_SLOT_GATE_EXPS,
     "ffn_gate_exps",
     "weight",
     true,
     {D_EMBD, D_EXPERT_FF, D_EXPERTS},
     false,
     moe_optional},
    {LP_SLOT_UP_EXPS,
     "ffn_up_exps",
     "weight",
     true,
     {D_EMBD, D_EXPERT_FF, D_EXPERTS},
     false,
     moe_optional},
    {LP_SLOT_GATE_UP_EXPS,
     "ffn_gate_up_exps",
     "weight",
     true,
     {D_EMBD, D_EXPERT_FF2, D_EXPERTS},
     false,
     moe_optional},
    {LP_SLOT_DOWN_EXPS,
     "ffn_down_exps",
     "weight",
     true,
     {D_EXPERT_FF, D_EMBD, D_EXPERTS},
     false,
     moe},
    {LP_SLOT_GATE_SHEXP, "ffn_gate_shexp", "weight", true, {D_EMBD, D_SHARED_FF}, false, shared},
    {LP_SLOT_UP_SHEXP, "ffn_up_shexp", "weight", true, {D_EMBD, D_SHARED_FF}, false, shared},
    {LP_SLOT_DOWN_SHEXP, "ffn_down_shexp", "weight", true, {D_SHARED_FF, D_EMBD}, false, shared},
    {LP_SLOT_NEXTN_EH_PROJ, "nextn.eh_proj", "weight", true, {D_EMBD2, D_EMBD}, false, nextn},
    {LP_SLOT_NEXTN_ENORM, "nextn.enorm", "weight", true, {D_EMBD}, true, nextn},
    {LP_SLOT_NEXTN_HNORM, "nextn.hnorm", "weight", true, {D_EMBD}, true, nextn},
    {LP_SLOT_NEXTN_HEAD_NORM,
     "nextn.shared_head_norm",
     "weight",
     true,
     {D_EMBD},
     true,
     nextn_optional},
    {LP_SLOT_NEXTN_HEAD,
     "nextn.shared_head_head",
     "weight",
     true,
     {D_EMBD, D_VOCAB},
     false,
     nextn_optional},
    {LP_SLOT_NEXTN_EMBD,
     "nextn.embed_tokens",
     "weight",
     true,
     {D_EMBD, D_VOCAB},
     false,
     nextn_optional},
};
#define N_ROWS (sizeof table / sizeof table[0])

static void full_name(char *out, size_t bytes, const struct row *row, int32_t block) {
    if (row->block)
        snprintf(out, bytes, "blk.%d.%s.%s", block, row->name, row->suffix);
    else
        snprintf(out, bytes, "%s.%s", row->name, row->suffix);
}

static void shape_text(char *out, size_t bytes, const int64_t *ne, int n) {
    size_t used = 0;
    for (int i = 0; i < n && used < bytes; i++)
        used +=
            (size_t)snprintf(out + used, bytes - used, i ? ", %lld" : "[%lld", (long long)ne[i]);
    if (used < bytes) snprintf(out + used, bytes - used, "]");
}

struct maker {
    const struct lp_hparams *h;
    const struct lp_gguf *gguf;
    bool (*supports)(const struct lp_device *, lp_type);
    const struct lp_device *device;
    struct lp_binding *out;
    bool *used; // [n_tensors]
    struct lp_err *err;
    struct misfits *all; // or NULL: the first misfit ends the binding
};

struct misfits {
    struct lp_misfit *list;
    size_t n, capacity;
};

// Something does not fit, as m->err says: the end, or one more of the list.
static lp_status misfit(struct maker *m, lp_status status, enum lp_misfit_kind kind, int32_t block,
                        const char *name) {
    struct misfits *all = m->all;
    if (!all || m->err->status == LP_STATUS_MEMORY) return status;
    if (all->n == all->capacity) {
        size_t capacity = all->capacity ? 2 * all->capacity : 16;
        struct lp_misfit *grown = lp_realloc(all->list, capacity, sizeof *grown);
        if (!grown) return lp_err_memory(m->err, capacity * sizeof *grown, "binding");
        all->list = grown;
        all->capacity = capacity;
    }
    struct lp_misfit *one = &all->list[all->n++];
    *one = (struct lp_misfit){.kind = kind, .block = block};
    snprintf(one->name, sizeof one->name, "%s", name);
    snprintf(one->text, sizeof one->text, "%.319s", m->err->text);
    return LP_OK;
}

static uint64_t tensor_index(const struct maker *m, const struct lp_gguf_tensor *tensor) {
    return (uint64_t)(tensor - lp_gguf_tensor_at(m->gguf, 0));
}

static lp_status check_shape(const struct maker *m, const struct row *row, int32_t block,
                             const char *name, const struct lp_gguf_tensor *t) {
    int64_t expected[4] = {1, 1, 1, 1}, got[4];
    int n = 0, n_got = (int)t->n_dims;
    bool same = true;
    for (int i = 0; i < 4; i++) {
        if (i < 3 && row->dims[i] != D_NONE) {
            expected[i] = dim_value(m->h, block, row->dims[i]);
            n = i + 1;
        }
        got[i] = t->ne[i] > INT64_MAX ? INT64_MAX : (int64_t)t->ne[i];
        same = same && got[i] == expected[i];
    }
    if (same) return LP_OK;
    char a[96], b[96];
    shape_text(a, sizeof a, got, n_got);
    shape_text(b, sizeof b, expected, n);
    bool turned = n > 1 && got[0] == expected[1] && got[1] == expected[0] && got[2] == expected[2];
    return lp_err_set(m->err, LP_STATUS_FORMAT,
                      "tensor %s has shape %s, expected %s from the metadata; %s", name, a, b,
                      turned ? "it is stored transposed"
                             : "the file may be damaged or converted for another variant");
}

static lp_status check_type(const struct maker *m, const struct row *row, const char *name,
                            const struct lp_gguf_tensor *t) {
    const char *type = lp_type_info(t->type)->name;
    if (row->vector) {
        if (t->type == LP_TYPE_F32 || t->type == LP_TYPE_F16 || t->type == LP_TYPE_BF16)
            return LP_OK;
        return lp_err_set(m->err, LP_STATUS_FORMAT,
                          "tensor %s is of type %s, expected F32 (or F16, BF16)", name, type);
    }
    if (m->supports(m->device, t->type)) return LP_OK;
    return lp_err_set(m->err, LP_STATUS_UNSUPPORTED,
                      "tensor %s is of type %s, which has no matrix kernel in this backend", name,
                      type);
}

static bool is_experts(const struct row *row) {
    return row->dims[2] == D_EXPERTS;
}

// The factors beside a bound matrix, if the file has any.
static lp_status bind_scale(struct maker *m, const struct row *row, int32_t block,
                            struct lp_bound *bound) {
    char name[LP_TENSOR_NAME_BYTES], shape[96];
    struct row scale = *row;
    scale.suffix = "scale";
    full_name(name, sizeof name, &scale, block);
    const struct lp_gguf_tensor *t = lp_gguf_find_tensor(m->gguf, lp_str_from(name));
    if (row->vector || !t) return LP_OK; // one beside a vector has no owner
    int64_t n = row->dims[2] == D_NONE ? 1 : dim_value(m->h, block, row->dims[2]);
    bool fits = t->ne[1] * t->ne[2] * t->ne[3] == 1 &&
                (t->ne[0] == (uint64_t)n || (t->ne[0] == 1 && !is_experts(row)));
    int64_t got[4] = {(int64_t)t->ne[0], (int64_t)t->ne[1], (int64_t)t->ne[2], (int64_t)t->ne[3]};
    shape_text(shape, sizeof shape, got, (int)t->n_dims);
    lp_status status = LP_OK;
    if (t->type != LP_TYPE_F32) {
        lp_err_set(m->err, LP_STATUS_FORMAT, "tensor %s is of type %s, expected F32", name,
                   lp_type_info(t->type)->name);
        status = misfit(m, LP_STATUS_FORMAT, LP_MISFIT_TYPE, row->block ? block : -1, name);
    } else if (!fits) {
        lp_err_set(m->err, LP_STATUS_FORMAT,
                   "tensor %s has shape %s, expected [%lld]: one factor for each matrix of %s.%s",
                   name, shape, (long long)n, row->name, row->suffix);
        status = misfit(m, LP_STATUS_FORMAT, LP_MISFIT_SHAPE, row->block ? block : -1, name);
    }
    if (status) return status;
    m->used[tensor_index(m, t)] = true;
    m->out->n_bound++;
    bound->scale[row->slot] = t;
    return LP_OK;
}

static lp_status bind_row(struct maker *m, const struct row *row, int32_t block) {
    char name[LP_TENSOR_NAME_BYTES];
    int32_t number = row->block ? block : -1;
    full_name(name, sizeof name, row, block);
    enum need need = row->need(m->h, block);
    if (need == NEED_NO) return LP_OK;
    const struct lp_gguf_tensor *t = lp_gguf_find_tensor(m->gguf, lp_str_from(name));
    if (!t && row->slot == LP_SLOT_ROUTER_BIAS) { // some old files leave the suffix out
        snprintf(name, sizeof name, "blk.%d.exp_probs_b", block);
        t = lp_gguf_find_tensor(m->gguf, lp_str_from(name));
    }
    if (!t) {
        if (need == NEED_OPTIONAL) return LP_OK;
        lp_status status = lp_err_set(m->err, LP_STATUS_FORMAT,
                                      "tensor %s is missing; the %s architecture needs it", name,
                                      m->h->arch->name);
        return misfit(m, status, LP_MISFIT_MISSING, number, name);
    }
    lp_status status = check_shape(m, row, block, name, t);
    if (status)
        status = misfit(m, status, LP_MISFIT_SHAPE, number, name);
    else if ((status = check_type(m, row, name, t)))
        status = misfit(m, status, LP_MISFIT_TYPE, number, name);
    if (status) return status;
    m->used[tensor_index(m, t)] = true;
    m->out->n_bound++;
    struct lp_bound *bound = row->block ? &m->out->blocks[block] : &m->out->model;
    bound->tensor[row->slot] = t;
    return bind_scale(m, row, block, bound);
}

static lp_status missing(struct maker *m, int32_t block, const char *name) {
    char full[LP_TENSOR_NAME_BYTES];
    snprintf(full, sizeof full, "blk.%d.%s", block, name);
    lp_status status =
        lp_err_set(m->err, LP_STATUS_FORMAT, "tensor %s is missing; the %s architecture needs it",
                   full, m->h->arch->name);
    return misfit(m, status, LP_MISFIT_MISSING, block, full);
}

// Alternatives that the table cannot say: k_b and v_b or kv_b; gate and up or gate_up; routing
// biases.
static lp_status check_up(struct maker *m, int32_t b) {
    const struct lp_gguf_tensor **t = m->out->blocks[b].tensor;
    if (!is_mla(m->h)) return LP_OK;
    bool split = t[LP_SLOT_K_B] || t[LP_SLOT_V_B];
    if (split && !t[LP_SLOT_K_B] && !t[LP_SLOT_KV_B]) return missing(m, b, "attn_k_b.weight");
    if (split && !t[LP_SLOT_V_B] && !t[LP_SLOT_KV_B]) return missing(m, b, "attn_v_b.weight");
    if (split || t[LP_SLOT_KV_B]) return LP_OK;
    if (m->h->legacy_kv_b) return missing(m, b, "attn_kv_b.weight");
    lp_status status = missing(m, b, "attn_k_b.weight");
    return status ? status : missing(m, b, "attn_v_b.weight");
}

static lp_status check_experts(struct maker *m, int32_t b) {
    const struct lp_gguf_tensor **t = m->out->blocks[b].tensor;
    lp_status status = LP_OK;
    if (!is_moe(m->h, b)) return LP_OK;
    if (!t[LP_SLOT_GATE_UP_EXPS]) {
        if (!t[LP_SLOT_GATE_EXPS]) status = missing(m, b, "ffn_gate_exps.weight");
        if (!status && !t[LP_SLOT_UP_EXPS]) status = missing(m, b, "ffn_up_exps.weight");
    }
    if (status || m->h->gating != LP_GATING_SIGMOID || t[LP_SLOT_ROUTER_BIAS]) return status;
    // Sigmoid routers of the MLA families and of glm4moe choose with a bias; without it they choose
    // wrongly.
    char name[LP_TENSOR_NAME_BYTES];
    snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", b);
    status = lp_err_set(m->err, LP_STATUS_FORMAT, "tensor %s is missing; a sigmoid router needs it",
                        name);
    return misfit(m, status, LP_MISFIT_MISSING, b, name);
}

static lp_status check_alternatives(struct maker *m, int32_t b) {
    lp_status status = check_up(m, b);
    return status ? status : check_experts(m, b);
}

static const char *bound_but_unused(struct maker *m, int32_t b, enum lp_slot slot) {
    const struct lp_gguf_tensor **t = m->out->blocks[b].tensor;
    if (slot == LP_SLOT_KV_B && t[LP_SLOT_K_B] && t[LP_SLOT_V_B])
        return "attn_k_b and attn_v_b hold the same weights";
    if ((slot == LP_SLOT_K_B || slot == LP_SLOT_V_B) && t[LP_SLOT_KV_B] &&
        !(t[LP_SLOT_K_B] && t[LP_SLOT_V_B]))
        return "attn_kv_b holds both halves; its partner is missing";
    if ((slot == LP_SLOT_GATE_EXPS || slot == LP_SLOT_UP_EXPS) && t[LP_SLOT_GATE_UP_EXPS])
        return "ffn_gate_up_exps holds the same weights";
    return NULL;
}

static void drop_duplicates(struct maker *m, int32_t b) {
    static const enum lp_slot slots[] = {LP_SLOT_K_B, LP_SLOT_V_B, LP_SLOT_KV_B, LP_SLOT_GATE_EXPS,
                                         LP_SLOT_UP_EXPS};
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        const struct lp_gguf_tensor *t = m->out->blocks[b].tensor[slots[i]];
        const char *reason = t ? bound_but_unused(m, b, slots[i]) : NULL;
        if (!reason) continue;
        m->out->ignored[m->out->n_ignored++] = (struct lp_ignored){t, reason};
        m->out->n_bound--;
        const struct lp_gguf_tensor **scale = &m->out->blocks[b].scale[slots[i]];
        if (!*scale) continue;
        m->out->ignored[m->out->n_ignored++] = (struct lp_ignored){*scale, reason};
        m->out->n_bound--;
        *scale = NULL;
    }
    for (size_t i = 0; i < sizeof slots / sizeof slots[0];
         i++) // second pass: reasons look at the partners
        for (uint64_t k = 0; k < m->out->n_ignored; k++)
            if (m->out->ignored[k].tensor == m->out->blocks[b].tensor[slots[i]])
                m->out->blocks[b].tensor[slots[i]] = NULL;
}

// Why a tensor that nothing bound may stay unbound, or NULL.
static const char *reason_to_ignore(const struct maker *m, struct lp_str name) {
    int block = -1, consumed = 0;
    char text[64];
    if (name.len >= sizeof text) return NULL;
    memcpy(text, name.data, name.len);
    text[name.len] = 0;
    if (name.len > 12 && strcmp(text + name.len - 12, ".input_scale") == 0)
        return "a factor for activations of 4 bits, which limpid does not use";
    if (sscanf(text, "blk.%d.%n", &block, &consumed) == 1 && consumed > 0 && block >= 0) {
        if (block == m->h->n_layers && block < m->h->n_blocks && m->out->mtp_reason)
            return m->out->mtp_reason;
        if (block > m->h->n_layers && block < m->h->n_blocks)
            return "next-token-prediction (MTP) layer behind the first one: not used";
        if (block < m->h->n_layers && strncmp(text + consumed, "indexer.", 8) == 0 &&
            m->h->top_k > 0 && m->h->index_role[block] == LP_INDEXER_SHARED)
            return "this layer shares the selection of an earlier one";
        if (strcmp(text + consumed, "attn_rot_embd.weight") == 0 ||
            strcmp(text + consumed, "attn_rot_embd") == 0)
            return "rotary frequencies are computed";
        if (block == m->h->n_layers && block < m->h->n_blocks)
            return "not part of an MTP layer as limpid knows it; drafts may suffer";
    }
    return NULL;
}

static lp_status unknown(struct maker *m, struct lp_str name) {
    char text[LP_TENSOR_NAME_BYTES];
    int32_t block = -1;
    static const char scale[] = ".scale";
    const size_t n = sizeof scale - 1;
    lp_status status = lp_err_set(m->err, LP_STATUS_FORMAT,
                                  "tensor %.*s is not part of the %s architecture as limpid knows "
                                  "it; the file may be of a variant that is not supported",
                                  LP_STR_ARGS(name), m->h->arch->name);
    if (name.len > n && memcmp(name.data + name.len - n, scale, n) == 0)
        lp_err_set(m->err, LP_STATUS_FORMAT,
                   "tensor %.*s holds factors, but there is no matrix %.*s.weight that they belong "
                   "to; the file may be damaged",
                   LP_STR_ARGS(name), (int)(name.len - n), name.data);
    snprintf(text, sizeof text, "%.*s", LP_STR_ARGS(name));
    if (sscanf(text, "blk.%d.", &block) != 1 || block < 0) block = -1;
    return misfit(m, status, LP_MISFIT_UNKNOWN, block, text);
}

static lp_status account_for_rest(struct maker *m) {
    lp_status status = LP_OK;
    for (uint64_t i = 0; i < m->out->n_tensors && !status; i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(m->gguf, i);
        if (m->used[i]) continue;
        const char *reason = reason_to_ignore(m, t->name);
        if (!reason)
            status = unknown(m, t->name);
        else
            m->out->ignored[m->out->n_ignored++] = (struct lp_ignored){t, reason};
    }
    return status;
}

static lp_status bind_block(struct maker *m, int32_t b) {
    lp_status status = LP_OK;
    for (size_t i = 0; i < N_ROWS && !status; i++)
        if (table[i].block) status = bind_row(m, &table[i], b);
    if (!status) status = check_alternatives(m, b);
    if (!status) drop_duplicates(m, b);
    return status;
}

// The first MTP layer, whole or not at all: what is wrong with it becomes the reason to ignore it.
static lp_status bind_mtp(struct maker *m) {
    struct lp_err why = {0}, *err = m->err;
    struct misfits *all = m->all;
    uint64_t n_bound = m->out->n_bound;
    if (m->h->n_nextn == 0) return LP_OK;
    m->err = &why;
    m->all = NULL;
    m->out->has_mtp = bind_block(m, m->h->n_layers) == LP_OK;
    m->all = all;
    m->err = err;
    if (m->out->has_mtp) return LP_OK;
    struct lp_bound *bound = &m->out->blocks[m->h->n_layers];
    for (int s = 0; s < LP_N_SLOTS; s++) {
        if (bound->tensor[s]) m->used[tensor_index(m, bound->tensor[s])] = false;
        if (bound->scale[s]) m->used[tensor_index(m, bound->scale[s])] = false;
    }
    *bound = (struct lp_bound){0};
    m->out->n_bound = n_bound;
    static const char prefix[] = "next-token-prediction (MTP) layer, not usable: ";
    size_t n_bytes = sizeof prefix + strlen(why.text);
    m->out->mtp_reason = lp_alloc(n_bytes, 1);
    if (!m->out->mtp_reason) return lp_err_memory(err, n_bytes, "binding");
    snprintf(m->out->mtp_reason, n_bytes, "%s%s", prefix, why.text);
    return LP_OK;
}

struct lp_mtp_size lp_binding_mtp_size(const struct lp_binding *binding,
                                       const struct lp_hparams *h) {
    struct lp_mtp_size size = {0};
    double bytes = 0, values = 0;
    for (int s = 0; s < LP_N_SLOTS && binding->has_mtp; s++) {
        const struct lp_gguf_tensor *t = binding->blocks[h->n_layers].tensor[s];
        const struct lp_gguf_tensor *scale = binding->blocks[h->n_layers].scale[s];
        if (!t) continue;
        size.n_bytes += t->n_bytes + (scale ? scale->n_bytes : 0);
        if (t->n_dims < 2) continue;
        bytes += (double)t->n_bytes;
        values += (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2] * (double)t->ne[3];
    }
    if (values > 0) size.bits_per_weight = 8 * bytes / values;
    return size;
}

static void note_mtp(const struct lp_binding *binding, struct lp_hparams *h) {
    static const char name[] = "MTP layer";
    struct lp_fact *fact = NULL;
    if (h->n_nextn == 0) return;
    for (int32_t i = 0; i < h->n_facts && !fact; i++) // binding again says it anew
        if (strcmp(h->facts[i].name, name) == 0) fact = &h->facts[i];
    if (!fact && h->n_facts == LP_MAX_FACTS) return;
    if (!fact) fact = &h->facts[h->n_facts++];
    struct lp_mtp_size size = lp_binding_mtp_size(binding, h);
    snprintf(fact->name, sizeof fact->name, "%s", name);
    if (binding->has_mtp)
        snprintf(fact->value, sizeof fact->value, "block %d, %.1f MB, %.1f bits per weight",
                 h->n_layers, (double)size.n_bytes * 1e-6, size.bits_per_weight);
    else
        snprintf(fact->value, sizeof fact->value, "none that can be used");
    snprintf(fact->source, sizeof fact->source, "%s",
             binding->has_mtp ? "file" : "the tensors that are ignored say why");
}

static lp_status bind_all(struct maker *m) {
    lp_status status = LP_OK;
    for (size_t i = 0; i < N_ROWS && !status; i++)
        if (!table[i].block) status = bind_row(m, &table[i], 0);
    for (int32_t b = 0; b < m->h->n_layers && !status; b++) status = bind_block(m, b);
    if (!status) status = bind_mtp(m);
    return status ? status : account_for_rest(m);
}

static lp_status make(struct lp_binding *out, const struct lp_hparams *h,
                      const struct lp_gguf *gguf,
                      bool (*supports)(const struct lp_device *, lp_type),
                      const struct lp_device *device, struct misfits *all, struct lp_err *err) {
    uint64_t n = lp_gguf_n_tensors(gguf);
    *out = (struct lp_binding){.n_tensors = n};
    if (n == 0)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the file holds no tensors; it is not a whole model");
    out->blocks = lp_alloc((size_t)h->n_layers + 1, sizeof *out->blocks);
    out->ignored = lp_alloc((size_t)n, sizeof *out->ignored);
    bool *used = lp_alloc((size_t)n, sizeof *used);
    lp_status status;
    if (!out->blocks || !out->ignored || !used)
        status = lp_err_memory(err, (size_t)n * sizeof *out->ignored, "binding");
    else {
        struct maker m = {h, gguf, supports, device, out, used, err, all};
        status = bind_all(&m);
    }
    lp_free(used);
    if (status) lp_binding_release(out);
    return status;
}

lp_status lp_binding_make(struct lp_binding *out, struct lp_hparams *h, const struct lp_gguf *gguf,
                          bool (*supports)(const struct lp_device *, lp_type),
                          const struct lp_device *device, struct lp_err *err) {
    lp_status status = make(out, h, gguf, supports, device, NULL, err);
    if (!status) note_mtp(out, h);
    return status;
}

lp_status lp_binding_misfits(struct lp_misfit **out, size_t *n, const struct lp_hparams *h,
                             const struct lp_gguf *gguf,
                             bool (*supports)(const struct lp_device *, lp_type),
                             const struct lp_device *device, struct lp_err *err) {
    struct lp_binding binding;
    struct misfits all = {0};
    struct lp_err text;
    lp_status status = make(&binding, h, gguf, supports, device, &all, &text);
    lp_binding_release(&binding);
    if (status) {
        lp_free(all.list);
        all = (struct misfits){0};
        lp_err_set(err, status, "%s", text.text);
    }
    *out = all.list;
    *n = all.n;
    return status;
}

void lp_binding_release(struct lp_binding *binding) {
    lp_free(binding->blocks);
    lp_free(binding->ignored);
    lp_free(binding->mtp_reason);
    *binding = (struct lp_binding){0};
}

// ---- what a file should hold

// Rows of the table, for the model and then for n_blocks blocks: all that may be there, or what is
// written.
struct choice {
    size_t n_blocks;
    bool all, untied, qk_norm;
};

// Of the tensors that may be there: those that converters write.
static bool is_written(const struct lp_hparams *h, enum lp_slot slot, struct choice choice) {
    switch (slot) {
    case LP_SLOT_OUTPUT:
        return choice.untied;
    case LP_SLOT_Q_NORM:
    case LP_SLOT_K_NORM:
        return choice.qk_norm;
    case LP_SLOT_ROUTER_BIAS:
        return h->gating == LP_GATING_SIGMOID;
    case LP_SLOT_K_B:
    case LP_SLOT_V_B:
    case LP_SLOT_GATE_EXPS:
    case LP_SLOT_UP_EXPS:
    case LP_SLOT_NEXTN_HEAD_NORM:
        return true;
    default:
        return false;
    }
}

static void expect(struct lp_expected *e, const struct row *row, const struct lp_hparams *h,
                   int32_t block) {
    *e = (struct lp_expected){.slot = row->slot, .block = row->block ? block : -1};
    e->needed = row->need(h, block) == NEED_YES;
    full_name(e->name, sizeof e->name, row, block);
    e->vector = row->vector || row->slot == LP_SLOT_ROUTER || row->slot == LP_SLOT_INDEX_PROJ;
    for (int d = 0; d < 4; d++) {
        enum dim dim = d < 3 ? row->dims[d] : D_NONE;
        e->ne[d] = (uint64_t)dim_value(h, block, dim);
        if (dim != D_NONE) e->n_dims++;
    }
}

static lp_status choose(struct lp_expected **out, size_t *n, const struct lp_hparams *h,
                        struct choice choice, struct lp_err *err) {
    size_t most = N_ROWS * (choice.n_blocks + 1);
    *n = 0;
    if (!(*out = lp_alloc(most, sizeof **out)))
        return lp_err_memory(err, most * sizeof **out, "the tensors of a model");
    for (size_t turn = 0; turn <= choice.n_blocks; turn++) // turn 0: what is outside the blocks
        for (size_t i = 0; i < N_ROWS; i++) {
            const struct row *row = &table[i];
            int32_t b = turn ? (int32_t)turn - 1 : 0;
            if (row->block != (turn > 0)) continue;
            enum need need = row->need(h, b);
            if (need == NEED_YES ||
                (need == NEED_OPTIONAL && (choice.all || is_written(h, row->slot, choice))))
                expect(&(*out)[(*n)++], row, h, b);
        }
    return LP_OK;
}

lp_status lp_binding_expected(struct lp_expected **out, size_t *n, const struct lp_hparams *h,
                              bool untied, bool qk_norm, struct lp_err *err) {
    struct choice choice = {(size_t)h->n_layers + (h->n_nextn > 0), false, untied, qk_norm};
    return choose(out, n, h, choice, err);
}

lp_status lp_binding_possible(struct lp_expected **out, size_t *n, const struct lp_hparams *h,
                              struct lp_err *err) {
    return choose(out, n, h, (struct choice){(size_t)h->n_blocks, true, false, false}, err);
}
