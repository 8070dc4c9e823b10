#include "model/binding_table.h"

#include <stdio.h>
#include <string.h>

int64_t lp_binding_dim(const struct lp_hparams *h, int32_t block, enum lp_dim d) {
    switch (d) {
    case LP_DIM_NONE:
        return 1;
    case LP_DIM_EMBD:
        return h->n_embd;
    case LP_DIM_EMBD2:
        return 2 * h->n_embd;
    case LP_DIM_VOCAB:
        return h->n_vocab;
    case LP_DIM_FF:
        return h->n_ff[block];
    case LP_DIM_Q_RANK:
        return h->q_rank;
    case LP_DIM_Q_ROWS:
        return (int64_t)h->n_heads *
               (h->arch->attention == LP_ATTENTION_MLA ? h->nope + h->rope_dim : h->head_dim);
    case LP_DIM_KV_ROW:
        return h->latent + h->rope_dim;
    case LP_DIM_LATENT:
        return h->latent;
    case LP_DIM_NOPE:
        return h->nope;
    case LP_DIM_V:
        return h->v_dim;
    case LP_DIM_HEADS:
        return h->n_heads;
    case LP_DIM_KV_B_ROWS:
        return (int64_t)h->n_heads * (h->nope + h->v_dim);
    case LP_DIM_OUT_IN:
        return (int64_t)h->n_heads * h->v_dim;
    case LP_DIM_KV_HEADS_K:
        return (int64_t)h->n_kv_heads * h->head_dim;
    case LP_DIM_KV_HEADS_V:
        return (int64_t)h->n_kv_heads * h->v_dim;
    case LP_DIM_HEAD:
        return h->head_dim;
    case LP_DIM_INDEX_Q:
        return (int64_t)h->index_heads * h->index_width;
    case LP_DIM_INDEX:
        return h->index_width;
    case LP_DIM_INDEX_HEADS:
        return h->index_heads;
    case LP_DIM_EXPERTS:
        return h->n_experts;
    case LP_DIM_EXPERT_FF:
        return h->expert_ff;
    case LP_DIM_EXPERT_FF2:
        return 2 * h->expert_ff;
    case LP_DIM_SHARED_FF:
        return h->shared_ff;
    case LP_DIM_ROPE_HALF:
        return h->rope_width / 2;
    }
    return 0;
}

static bool is_mla(const struct lp_hparams *h) {
    return h->arch->attention == LP_ATTENTION_MLA;
}
static enum lp_need always(const struct lp_hparams *h, int32_t b) {
    (void)h, (void)b;
    return LP_NEED_YES;
}
static enum lp_need optional(const struct lp_hparams *h, int32_t b) {
    (void)h, (void)b;
    return LP_NEED_OPTIONAL;
}
static enum lp_need gqa(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return is_mla(h) ? LP_NEED_NO : LP_NEED_YES;
}
static enum lp_need plain_q(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return is_mla(h) && h->q_rank ? LP_NEED_NO : LP_NEED_YES;
}
static enum lp_need qkv_bias(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return h->arch->qkv_bias            ? LP_NEED_YES
           : h->arch->optional_qkv_bias ? LP_NEED_OPTIONAL
                                        : LP_NEED_NO;
}
static enum lp_need qk_norm(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return h->arch->qk_norm            ? LP_NEED_YES
           : h->arch->optional_qk_norm ? LP_NEED_OPTIONAL
                                       : LP_NEED_NO;
}
static enum lp_need mla(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return is_mla(h) ? LP_NEED_YES : LP_NEED_NO;
}
static enum lp_need q_rank(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return is_mla(h) && h->q_rank ? LP_NEED_YES : LP_NEED_NO;
}
// k_b and v_b, or the fused kv_b: which of the two is checked after the table.
static enum lp_need up(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return is_mla(h) ? LP_NEED_OPTIONAL : LP_NEED_NO;
}
static enum lp_need indexer(const struct lp_hparams *h, int32_t b) {
    return h->index_role[b] == LP_INDEXER_FULL ? LP_NEED_YES : LP_NEED_NO;
}
static enum lp_need dense(const struct lp_hparams *h, int32_t b) {
    return lp_hparams_is_moe(h, b) ? LP_NEED_NO : LP_NEED_YES;
}
static enum lp_need moe(const struct lp_hparams *h, int32_t b) {
    return lp_hparams_is_moe(h, b) ? LP_NEED_YES : LP_NEED_NO;
}
static enum lp_need moe_optional(const struct lp_hparams *h, int32_t b) {
    return lp_hparams_is_moe(h, b) ? LP_NEED_OPTIONAL : LP_NEED_NO;
}
static enum lp_need shared(const struct lp_hparams *h, int32_t b) {
    return lp_hparams_is_moe(h, b) && h->n_shared ? LP_NEED_YES : LP_NEED_NO;
}
static enum lp_need ffn_norm(const struct lp_hparams *h, int32_t b) {
    (void)b;
    return strcmp(h->arch->ffn_norm_name, "ffn_norm") == 0 ? LP_NEED_YES : LP_NEED_NO;
}
static enum lp_need post_norm(const struct lp_hparams *h, int32_t b) {
    return ffn_norm(h, b) == LP_NEED_YES ? LP_NEED_NO : LP_NEED_YES;
}

static enum lp_need nextn(const struct lp_hparams *h, int32_t b) {
    return b >= h->n_layers ? LP_NEED_YES : LP_NEED_NO;
}
static enum lp_need nextn_optional(const struct lp_hparams *h, int32_t b) {
    return b >= h->n_layers ? LP_NEED_OPTIONAL : LP_NEED_NO;
}

const struct lp_binding_row lp_binding_table[LP_BINDING_ROWS] = {
    {LP_SLOT_TOKEN_EMBD, "token_embd", "weight", false, {LP_DIM_EMBD, LP_DIM_VOCAB}, false, always},
    {LP_SLOT_OUTPUT_NORM, "output_norm", "weight", false, {LP_DIM_EMBD}, true, always},
    {LP_SLOT_OUTPUT, "output", "weight", false, {LP_DIM_EMBD, LP_DIM_VOCAB}, false, optional},
    {LP_SLOT_ROPE_FREQS, "rope_freqs", "weight", false, {LP_DIM_ROPE_HALF}, true, optional},
    {LP_SLOT_ATTN_NORM, "attn_norm", "weight", true, {LP_DIM_EMBD}, true, always},
    {LP_SLOT_Q, "attn_q", "weight", true, {LP_DIM_EMBD, LP_DIM_Q_ROWS}, false, plain_q},
    {LP_SLOT_K, "attn_k", "weight", true, {LP_DIM_EMBD, LP_DIM_KV_HEADS_K}, false, gqa},
    {LP_SLOT_V, "attn_v", "weight", true, {LP_DIM_EMBD, LP_DIM_KV_HEADS_V}, false, gqa},
    {LP_SLOT_Q_BIAS, "attn_q", "bias", true, {LP_DIM_Q_ROWS}, true, qkv_bias},
    {LP_SLOT_K_BIAS, "attn_k", "bias", true, {LP_DIM_KV_HEADS_K}, true, qkv_bias},
    {LP_SLOT_V_BIAS, "attn_v", "bias", true, {LP_DIM_KV_HEADS_V}, true, qkv_bias},
    {LP_SLOT_Q_NORM, "attn_q_norm", "weight", true, {LP_DIM_HEAD}, true, qk_norm},
    {LP_SLOT_K_NORM, "attn_k_norm", "weight", true, {LP_DIM_HEAD}, true, qk_norm},
    {LP_SLOT_Q_A, "attn_q_a", "weight", true, {LP_DIM_EMBD, LP_DIM_Q_RANK}, false, q_rank},
    {LP_SLOT_Q_A_NORM, "attn_q_a_norm", "weight", true, {LP_DIM_Q_RANK}, true, q_rank},
    {LP_SLOT_Q_B, "attn_q_b", "weight", true, {LP_DIM_Q_RANK, LP_DIM_Q_ROWS}, false, q_rank},
    {LP_SLOT_KV_A, "attn_kv_a_mqa", "weight", true, {LP_DIM_EMBD, LP_DIM_KV_ROW}, false, mla},
    {LP_SLOT_KV_A_NORM, "attn_kv_a_norm", "weight", true, {LP_DIM_LATENT}, true, mla},
    {LP_SLOT_K_B,
     "attn_k_b",
     "weight",
     true,
     {LP_DIM_NOPE, LP_DIM_LATENT, LP_DIM_HEADS},
     false,
     up},
    {LP_SLOT_V_B, "attn_v_b", "weight", true, {LP_DIM_LATENT, LP_DIM_V, LP_DIM_HEADS}, false, up},
    {LP_SLOT_KV_B, "attn_kv_b", "weight", true, {LP_DIM_LATENT, LP_DIM_KV_B_ROWS}, false, up},
    {LP_SLOT_INDEX_Q,
     "indexer.attn_q_b",
     "weight",
     true,
     {LP_DIM_Q_RANK, LP_DIM_INDEX_Q},
     false,
     indexer},
    {LP_SLOT_INDEX_K,
     "indexer.attn_k",
     "weight",
     true,
     {LP_DIM_EMBD, LP_DIM_INDEX},
     false,
     indexer},
    {LP_SLOT_INDEX_NORM_W, "indexer.k_norm", "weight", true, {LP_DIM_INDEX}, true, indexer},
    {LP_SLOT_INDEX_NORM_B, "indexer.k_norm", "bias", true, {LP_DIM_INDEX}, true, indexer},
    {LP_SLOT_INDEX_PROJ,
     "indexer.proj",
     "weight",
     true,
     {LP_DIM_EMBD, LP_DIM_INDEX_HEADS},
     false,
     indexer},
    {LP_SLOT_ATTN_OUTPUT,
     "attn_output",
     "weight",
     true,
     {LP_DIM_OUT_IN, LP_DIM_EMBD},
     false,
     always},
    {LP_SLOT_FFN_NORM, "ffn_norm", "weight", true, {LP_DIM_EMBD}, true, ffn_norm},
    {LP_SLOT_FFN_NORM, "post_attention_norm", "weight", true, {LP_DIM_EMBD}, true, post_norm},
    {LP_SLOT_FFN_GATE, "ffn_gate", "weight", true, {LP_DIM_EMBD, LP_DIM_FF}, false, dense},
    {LP_SLOT_FFN_UP, "ffn_up", "weight", true, {LP_DIM_EMBD, LP_DIM_FF}, false, dense},
    {LP_SLOT_FFN_DOWN, "ffn_down", "weight", true, {LP_DIM_FF, LP_DIM_EMBD}, false, dense},
    {LP_SLOT_ROUTER, "ffn_gate_inp", "weight", true, {LP_DIM_EMBD, LP_DIM_EXPERTS}, false, moe},
    {LP_SLOT_ROUTER_BIAS, "exp_probs_b", "bias", true, {LP_DIM_EXPERTS}, true, moe_optional},
    {LP_SLOT_GATE_EXPS,
     "ffn_gate_exps",
     "weight",
     true,
     {LP_DIM_EMBD, LP_DIM_EXPERT_FF, LP_DIM_EXPERTS},
     false,
     moe_optional},
    {LP_SLOT_UP_EXPS,
     "ffn_up_exps",
     "weight",
     true,
     {LP_DIM_EMBD, LP_DIM_EXPERT_FF, LP_DIM_EXPERTS},
     false,
     moe_optional},
    {LP_SLOT_GATE_UP_EXPS,
     "ffn_gate_up_exps",
     "weight",
     true,
     {LP_DIM_EMBD, LP_DIM_EXPERT_FF2, LP_DIM_EXPERTS},
     false,
     moe_optional},
    {LP_SLOT_DOWN_EXPS,
     "ffn_down_exps",
     "weight",
     true,
     {LP_DIM_EXPERT_FF, LP_DIM_EMBD, LP_DIM_EXPERTS},
     false,
     moe},
    {LP_SLOT_GATE_SHEXP,
     "ffn_gate_shexp",
     "weight",
     true,
     {LP_DIM_EMBD, LP_DIM_SHARED_FF},
     false,
     shared},
    {LP_SLOT_UP_SHEXP,
     "ffn_up_shexp",
     "weight",
     true,
     {LP_DIM_EMBD, LP_DIM_SHARED_FF},
     false,
     shared},
    {LP_SLOT_DOWN_SHEXP,
     "ffn_down_shexp",
     "weight",
     true,
     {LP_DIM_SHARED_FF, LP_DIM_EMBD},
     false,
     shared},
    {LP_SLOT_NEXTN_EH_PROJ,
     "nextn.eh_proj",
     "weight",
     true,
     {LP_DIM_EMBD2, LP_DIM_EMBD},
     false,
     nextn},
    {LP_SLOT_NEXTN_ENORM, "nextn.enorm", "weight", true, {LP_DIM_EMBD}, true, nextn},
    {LP_SLOT_NEXTN_HNORM, "nextn.hnorm", "weight", true, {LP_DIM_EMBD}, true, nextn},
    {LP_SLOT_NEXTN_HEAD_NORM,
     "nextn.shared_head_norm",
     "weight",
     true,
     {LP_DIM_EMBD},
     true,
     nextn_optional},
    {LP_SLOT_NEXTN_HEAD,
     "nextn.shared_head_head",
     "weight",
     true,
     {LP_DIM_EMBD, LP_DIM_VOCAB},
     false,
     nextn_optional},
    {LP_SLOT_NEXTN_EMBD,
     "nextn.embed_tokens",
     "weight",
     true,
     {LP_DIM_EMBD, LP_DIM_VOCAB},
     false,
     nextn_optional},
};

void lp_binding_name(char *out, size_t bytes, const struct lp_binding_row *row, int32_t block) {
    if (row->block)
        snprintf(out, bytes, "blk.%d.%s.%s", block, row->name, row->suffix);
    else
        snprintf(out, bytes, "%s.%s", row->name, row->suffix);
}
