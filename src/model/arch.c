// The architectures: one row each, and the metadata keys that limpid reads.
#include "model/hparams.h"

#include <string.h>

static const struct lp_arch architectures[] = {
    {.name = "glm-dsa",
     .attention = LP_ATTENTION_MLA,
     .indexer = LP_INDEXER_ALWAYS,
     .rope_pairing = LP_ROPE_ADJACENT,
     .index_rope_pairing = LP_ROPE_ADJACENT,
     .needs_mla_keys = true,
     .may_have_nextn = true,
     .may_have_experts = true,
     .ffn_norm_name = "ffn_norm",
     .default_gating = LP_GATING_SIGMOID},
    {.name = "deepseek32",
     .attention = LP_ATTENTION_MLA,
     .indexer = LP_INDEXER_ALWAYS,
     .rope_pairing = LP_ROPE_ADJACENT,
     .index_rope_pairing = LP_ROPE_HALF,
     .needs_mla_keys = true,
     .may_have_nextn = true,
     .may_have_experts = true,
     .ffn_norm_name = "ffn_norm",
     .default_gating = LP_GATING_SIGMOID},
    {.name = "deepseek2",
     .attention = LP_ATTENTION_MLA,
     .rope_pairing = LP_ROPE_ADJACENT,
     .may_have_nextn = true,
     .may_have_experts = true,
     .ffn_norm_name = "ffn_norm"},
    {.name = "llama",
     .attention = LP_ATTENTION_GQA,
     .rope_pairing = LP_ROPE_ADJACENT,
     .optional_qkv_bias = true,
     .may_have_experts = true,
     .normalise_by_default = true,
     .ffn_norm_name = "ffn_norm",
     .default_gating = LP_GATING_SOFTMAX},
    {.name = "qwen2",
     .attention = LP_ATTENTION_GQA,
     .rope_pairing = LP_ROPE_HALF,
     .qkv_bias = true,
     .ffn_norm_name = "ffn_norm"},
    {.name = "qwen3",
     .attention = LP_ATTENTION_GQA,
     .rope_pairing = LP_ROPE_HALF,
     .qk_norm = true,
     .ffn_norm_name = "ffn_norm"},
    {.name = "glm4moe",
     .attention = LP_ATTENTION_GQA,
     .rope_pairing = LP_ROPE_HALF,
     .qkv_bias = true,
     .optional_qk_norm = true,
     .may_have_nextn = true,
     .may_have_experts = true,
     .ffn_norm_name = "post_attention_norm",
     .default_gating = LP_GATING_SIGMOID},
};

const struct lp_arch *lp_arch_find(struct lp_str name) {
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++)
        if (lp_str_is(name, architectures[i].name)) return &architectures[i];
    return NULL;
}

const char *lp_arch_list(void) {
    return "glm-dsa, deepseek32, deepseek2, llama, qwen2, qwen3 and glm4moe";
}

bool lp_hparams_knows_key(const struct lp_arch *arch, struct lp_str key) {
    static const char *const suffixes[] = {"block_count",
                                           "context_length",
                                           "embedding_length",
                                           "feed_forward_length",
                                           "vocab_size",
                                           "attention.head_count",
                                           "attention.head_count_kv",
                                           "attention.key_length",
                                           "attention.value_length",
                                           "attention.key_length_mla",
                                           "attention.value_length_mla",
                                           "attention.q_lora_rank",
                                           "attention.kv_lora_rank",
                                           "attention.layer_norm_rms_epsilon",
                                           "attention.layer_norm_epsilon",
                                           "attention.indexer.head_count",
                                           "attention.indexer.key_length",
                                           "attention.indexer.top_k",
                                           "attention.indexer.types",
                                           "attention.indexer.top_k_frequency",
                                           "attention.indexer.skip_top_k_offset",
                                           "rope.dimension_count",
                                           "rope.freq_base",
                                           "rope.scaling.type",
                                           "rope.scaling.factor",
                                           "rope.scale_linear",
                                           "rope.scaling.original_context_length",
                                           "rope.scaling.yarn_log_multiplier",
                                           "rope.scaling.yarn_beta_fast",
                                           "rope.scaling.yarn_beta_slow",
                                           "rope.scaling.yarn_ext_factor",
                                           "rope.scaling.yarn_attn_factor",
                                           "rope.scaling.attn_factor",
                                           "rope.dimension_sections",
                                           "expert_count",
                                           "expert_used_count",
                                           "expert_shared_count",
                                           "expert_feed_forward_length",
                                           "expert_shared_feed_forward_length",
                                           "expert_group_count",
                                           "expert_group_used_count",
                                           "expert_gating_func",
                                           "expert_weights_norm",
                                           "expert_weights_scale",
                                           "leading_dense_block_count",
                                           "nextn_predict_layers",
                                           "logit_scale",
                                           "attn_logit_softcapping",
                                           "final_logit_softcapping",
                                           "attention.sliding_window"};
    size_t prefix = strlen(arch->name);
    if (key.len <= prefix + 1 || memcmp(key.data, arch->name, prefix) != 0 ||
        key.data[prefix] != '.')
        return false;
    struct lp_str rest = {key.data + prefix + 1, key.len - prefix - 1};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (lp_str_is(rest, suffixes[i])) return true;
    return false;
}
