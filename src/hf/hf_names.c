// The table of names, read in both directions.
//
//   blk.N.STEM  <->  model.layers.N.STEM       (rows with `block`)
//   STEM        <->  STEM                      (the others)
//
// Experts: the file has one stack where the checkpoint has a tensor for each, numbered in the
// place of "*".
#include "hf/hf_names.h"

#include <stdio.h>
#include <string.h>

enum which { EVERY, FFN_NORM, POST_NORM, NO_LLAMA, LLAMA };
enum back { BOTH_WAYS, HALF, COMPUTED };

struct row {
    const char *gguf, *hf;
    bool block;
    enum which which;
    enum back back;
};

static const struct row table[] = {
    {"token_embd.weight", "model.embed_tokens.weight", false, EVERY, BOTH_WAYS},
    {"output_norm.weight", "model.norm.weight", false, EVERY, BOTH_WAYS},
    {"output.weight", "lm_head.weight", false, EVERY, BOTH_WAYS},
    {"rope_freqs.weight", "", false, EVERY, COMPUTED},
    {"attn_norm.weight", "input_layernorm.weight", true, EVERY, BOTH_WAYS},
    {"ffn_norm.weight", "post_attention_layernorm.weight", true, FFN_NORM, BOTH_WAYS},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", true, POST_NORM, BOTH_WAYS},
    {"attn_q.weight", "self_attn.q_proj.weight", true, EVERY, BOTH_WAYS},
    {"attn_k.weight", "self_attn.k_proj.weight", true, EVERY, BOTH_WAYS},
    {"attn_v.weight", "self_attn.v_proj.weight", true, EVERY, BOTH_WAYS},
    {"attn_q.bias", "self_attn.q_proj.bias", true, EVERY, BOTH_WAYS},
    {"attn_k.bias", "self_attn.k_proj.bias", true, EVERY, BOTH_WAYS},
    {"attn_v.bias", "self_attn.v_proj.bias", true, EVERY, BOTH_WAYS},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", true, EVERY, BOTH_WAYS},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", true, EVERY, BOTH_WAYS},
    {"attn_output.weight", "self_attn.o_proj.weight", true, EVERY, BOTH_WAYS},
    {"attn_q_a.weight", "self_attn.q_a_proj.weight", true, EVERY, BOTH_WAYS},
    {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", true, EVERY, BOTH_WAYS},
    {"attn_q_b.weight", "self_attn.q_b_proj.weight", true, EVERY, BOTH_WAYS},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight", true, EVERY, BOTH_WAYS},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", true, EVERY, BOTH_WAYS},
    {"attn_kv_b.weight", "self_attn.kv_b_proj.weight", true, EVERY, BOTH_WAYS},
    {"attn_k_b.weight", "self_attn.kv_b_proj.weight", true, EVERY, HALF},
    {"attn_v_b.weight", "self_attn.kv_b_proj.weight", true, EVERY, HALF},
    {"indexer.attn_q_b.weight", "self_attn.indexer.wq_b.weight", true, EVERY, BOTH_WAYS},
    {"indexer.attn_k.weight", "self_attn.indexer.wk.weight", true, EVERY, BOTH_WAYS},
    {"indexer.k_norm.weight", "self_attn.indexer.k_norm.weight", true, EVERY, BOTH_WAYS},
    {"indexer.k_norm.bias", "self_attn.indexer.k_norm.bias", true, EVERY, BOTH_WAYS},
    {"indexer.proj.weight", "self_attn.indexer.weights_proj.weight", true, EVERY, BOTH_WAYS},
    {"ffn_gate.weight", "mlp.gate_proj.weight", true, EVERY, BOTH_WAYS},
    {"ffn_up.weight", "mlp.up_proj.weight", true, EVERY, BOTH_WAYS},
    {"ffn_down.weight", "mlp.down_proj.weight", true, EVERY, BOTH_WAYS},
    {"ffn_gate_inp.weight", "mlp.gate.weight", true, NO_LLAMA, BOTH_WAYS},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", true, NO_LLAMA, BOTH_WAYS},
    {"ffn_gate_exps.weight", "mlp.experts.*.gate_proj.weight", true, NO_LLAMA, BOTH_WAYS},
    {"ffn_up_exps.weight", "mlp.experts.*.up_proj.weight", true, NO_LLAMA, BOTH_WAYS},
    {"ffn_down_exps.weight", "mlp.experts.*.down_proj.weight", true, NO_LLAMA, BOTH_WAYS},
    {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj", true, NO_LLAMA, BOTH_WAYS},
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight", true, LLAMA, BOTH_WAYS},
    {"ffn_gate_exps.weight", "block_sparse_moe.experts.*.w1.weight", true, LLAMA, BOTH_WAYS},
    {"ffn_down_exps.weight", "block_sparse_moe.experts.*.w2.weight", true, LLAMA, BOTH_WAYS},
    {"ffn_up_exps.weight", "block_sparse_moe.experts.*.w3.weight", true, LLAMA, BOTH_WAYS},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight", true, NO_LLAMA, BOTH_WAYS},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight", true, NO_LLAMA, BOTH_WAYS},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight", true, NO_LLAMA, BOTH_WAYS},
    {"nextn.eh_proj.weight", "eh_proj.weight", true, NO_LLAMA, BOTH_WAYS},
    {"nextn.enorm.weight", "enorm.weight", true, NO_LLAMA, BOTH_WAYS},
    {"nextn.hnorm.weight", "hnorm.weight", true, NO_LLAMA, BOTH_WAYS},
    {"nextn.shared_head_norm.weight", "shared_head.norm.weight", true, NO_LLAMA, BOTH_WAYS},
    {"nextn.shared_head_head.weight", "shared_head.head.weight", true, NO_LLAMA, BOTH_WAYS},
    {"nextn.embed_tokens.weight", "embed_tokens.weight", true, NO_LLAMA, BOTH_WAYS},
};
#define N_ROWS (sizeof table / sizeof table[0])

// Names that older files, other converters and the makers' own checkpoints have used.
static const struct other {
    const char *name, *gguf;
    bool block;
} others[] = {
    {"tok_embeddings.weight", "token_embd.weight", false},
    {"embed_tokens.weight", "token_embd.weight", false},
    {"norm.weight", "output_norm.weight", false},
    {"head.weight", "output.weight", false},
    {"attention_norm.weight", "attn_norm.weight", true},
    {"attention.wq.weight", "attn_q.weight", true},
    {"attention.wk.weight", "attn_k.weight", true},
    {"attention.wv.weight", "attn_v.weight", true},
    {"attention.wo.weight", "attn_output.weight", true},
    {"attn_out.weight", "attn_output.weight", true},
    {"attn_o.weight", "attn_output.weight", true},
    {"feed_forward.w1.weight", "ffn_gate.weight", true},
    {"feed_forward.w2.weight", "ffn_down.weight", true},
    {"feed_forward.w3.weight", "ffn_up.weight", true},
    {"attn_kv_a.weight", "attn_kv_a_mqa.weight", true},
    {"attn_kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", true},
    {"attn_kv_a_layernorm.weight", "attn_kv_a_norm.weight", true},
    {"attn_q_a_layernorm.weight", "attn_q_a_norm.weight", true},
    {"indexer.q_b.weight", "indexer.attn_q_b.weight", true},
    {"indexer.wq_b.weight", "indexer.attn_q_b.weight", true},
    {"indexer.k.weight", "indexer.attn_k.weight", true},
    {"indexer.wk.weight", "indexer.attn_k.weight", true},
    {"indexer.weights_proj.weight", "indexer.proj.weight", true},
    {"exp_probs_b.weight", "exp_probs_b.bias", true},
    {"ffn_exp_probs_b.bias", "exp_probs_b.bias", true},
    {"mlp.gate.e_score_correction.bias", "exp_probs_b.bias", true},
    {"ffn_gate.*.weight", "ffn_gate_exps.weight", true},
    {"ffn_up.*.weight", "ffn_up_exps.weight", true},
    {"ffn_down.*.weight", "ffn_down_exps.weight", true},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", true},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", true},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", true},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", true},
};

static bool row_is_for(const struct row *row, const struct lp_arch *arch) {
    bool llama = strcmp(arch->name, "llama") == 0;
    bool post = strcmp(arch->ffn_norm_name, "ffn_norm") != 0;
    switch (row->which) {
    case EVERY:
        return true;
    case FFN_NORM:
        return !post;
    case POST_NORM:
        return post;
    case NO_LLAMA:
        return !llama;
    case LLAMA:
        return llama;
    }
    return false;
}

// PREFIX + number + "." at the start of name: the number, and what is behind it in *rest.
static int take_block(struct lp_str name, const char *prefix, struct lp_str *rest) {
    size_t n = strlen(prefix), at = n;
    int block = 0;
    if (name.len <= n || memcmp(name.data, prefix, n) != 0) return -1;
    while (at < name.len && name.data[at] >= '0' && name.data[at] <= '9' && block < 100000)
        block = block * 10 + (name.data[at++] - '0');
    if (at == n || at >= name.len || name.data[at] != '.') return -1;
    *rest = (struct lp_str){name.data + at + 1, name.len - at - 1};
    return block;
}

// Whether text is the pattern, in which "*" is one number.
static bool matches(struct lp_str text, const char *pattern) {
    size_t at = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (at >= text.len || text.data[at++] != *pattern) return false;
            continue;
        }
        size_t first = at;
        while (at < text.len && text.data[at] >= '0' && text.data[at] <= '9') at++;
        if (at == first && (at >= text.len || text.data[at++] != '*')) return false;
    }
    return at == text.len;
}

bool lp_hf_name(const struct lp_arch *arch, struct lp_str name, char out[LP_HF_NAME_BYTES]) {
    struct lp_str rest = name;
    int block = take_block(name, "blk.", &rest);
    if (matches(rest, "exp_probs_b")) rest = lp_str_from("exp_probs_b.bias");
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct row *row = &table[i];
        if (row->block != (block >= 0) || !row_is_for(row, arch) || !lp_str_is(rest, row->gguf))
            continue;
        if (row->back == COMPUTED) return false;
        if (row->block)
            snprintf(out, LP_HF_NAME_BYTES, "model.layers.%d.%s", block, row->hf);
        else
            snprintf(out, LP_HF_NAME_BYTES, "%s", row->hf);
        return true;
    }
    return false;
}

static void gguf_name(char out[LP_HF_NAME_BYTES], bool in_block, int block, const char *stem) {
    if (in_block)
        snprintf(out, LP_HF_NAME_BYTES, "blk.%d.%s", block, stem);
    else
        snprintf(out, LP_HF_NAME_BYTES, "%s", stem);
}

// In which spelling is `rest` (of block `block`, or -1) the name of a row? A GGUF name that did not
// stand behind "blk." is another spelling; so is a Hugging Face name that did.
static enum lp_hf_spelling look_up(const struct lp_arch *arch, struct lp_str rest, int block,
                                   bool as_gguf, char out[LP_HF_NAME_BYTES]) {
    bool in_block = block >= 0;
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct row *row = &table[i];
        if (row->block != in_block || !row_is_for(row, arch)) continue;
        gguf_name(out, in_block, block, row->gguf);
        if (lp_str_is(rest, row->gguf)) return as_gguf ? LP_HF_GGUF : LP_HF_OTHER;
        if (row->back == BOTH_WAYS && matches(rest, row->hf))
            return as_gguf && in_block ? LP_HF_OTHER : LP_HF_NAME;
        size_t n = strlen(row->gguf), dot = n - strlen(strrchr(row->gguf, '.'));
        if (rest.len == dot && memcmp(rest.data, row->gguf, dot) == 0) return LP_HF_OTHER;
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].block == in_block && matches(rest, others[i].name)) {
            gguf_name(out, in_block, block, others[i].gguf);
            return LP_HF_OTHER;
        }
    return LP_HF_NONE;
}

enum lp_hf_spelling lp_hf_to_gguf(const struct lp_arch *arch, struct lp_str name,
                                  char out[LP_HF_NAME_BYTES]) {
    static const char *const wrappers[] = {"model.language_model.", "language_model.model.",
                                           "language_model.", "transformer.", "model."};
    struct lp_str rest = name;
    enum lp_hf_spelling found;
    int block = take_block(name, "blk.", &rest);
    if (block >= 0) return look_up(arch, rest, block, true, out);
    if ((block = take_block(name, "model.layers.", &rest)) >= 0)
        return look_up(arch, rest, block, false, out);
    if ((found = look_up(arch, name, -1, true, out))) return found;
    struct lp_str bare = name;
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++) {
        size_t n = strlen(wrappers[i]);
        if (name.len <= n || memcmp(name.data, wrappers[i], n) != 0) continue;
        bare = (struct lp_str){name.data + n, name.len - n};
        break;
    }
    if ((block = take_block(bare, "layers.", &rest)) >= 0 ||
        (block = take_block(bare, "h.", &rest)) >= 0)
        found = look_up(arch, rest, block, false, out);
    else
        found = bare.len < name.len ? look_up(arch, bare, -1, false, out) : LP_HF_NONE;
    return found ? LP_HF_OTHER : LP_HF_NONE;
}

struct lp_hf_count lp_hf_count(const struct lp_arch *arch) {
    struct lp_hf_count count = {0};
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct row *row = &table[i];
        char there[LP_HF_NAME_BYTES], name[LP_HF_NAME_BYTES], back[LP_HF_NAME_BYTES];
        if (!row_is_for(row, arch)) continue;
        count.n_rows++;
        count.n_halves += row->back == HALF;
        count.n_computed += row->back == COMPUTED;
        gguf_name(name, row->block, 7, row->gguf);
        if (row->back == BOTH_WAYS && lp_hf_name(arch, lp_str_from(name), there) &&
            lp_hf_to_gguf(arch, lp_str_from(there), back) == LP_HF_NAME && strcmp(name, back) == 0)
            count.n_there_and_back++;
    }
    return count;
}
