#include "files/synth_models.h"

#include <string.h>

// What the members of a family share. Values: the makers' config.json files.
#define GLM_DSA                                                                                    \
    "\"model_type\": \"glm_moe_dsa\", \"architectures\": [\"GlmMoeDsaForCausalLM\"], "             \
    "\"hidden_act\": \"silu\", \"attention_bias\": false, \"rms_norm_eps\": 1e-05, "               \
    "\"qk_nope_head_dim\": 192, \"qk_rope_head_dim\": 64, \"v_head_dim\": 256, "                   \
    "\"kv_lora_rank\": 512, \"n_shared_experts\": 1, \"n_group\": 1, \"topk_group\": 1, "          \
    "\"routed_scaling_factor\": 2.5, \"norm_topk_prob\": true, \"scoring_func\": \"sigmoid\", "    \
    "\"index_head_dim\": 128, "                                                                    \
    "\"num_nextn_predict_layers\": 1, \"tie_word_embeddings\": false, "
#define GLM5                                                                                       \
    GLM_DSA "\"hidden_size\": 6144, \"num_hidden_layers\": 78, \"num_attention_heads\": 64, "      \
            "\"q_lora_rank\": 2048, \"intermediate_size\": 12288, "                                \
            "\"moe_intermediate_size\": 2048, \"n_routed_experts\": 256, "                         \
            "\"num_experts_per_tok\": 8, \"first_k_dense_replace\": 3, \"vocab_size\": 154880, "
#define INDEXER "\"index_topk\": 2048, \"index_n_heads\": 32, "
#define GLM5_ROPE                                                                                  \
    "\"max_position_embeddings\": 202752, "                                                        \
    "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1000000.0}"
#define DEEPSEEK                                                                                   \
    "\"hidden_act\": \"silu\", \"attention_bias\": false, \"rms_norm_eps\": 1e-06, "               \
    "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, "                   \
    "\"kv_lora_rank\": 512, \"tie_word_embeddings\": false, "
#define DEEPSEEK_V3_SHAPE                                                                          \
    DEEPSEEK "\"hidden_size\": 7168, \"num_hidden_layers\": 61, \"q_lora_rank\": 1536, "           \
             "\"intermediate_size\": 18432, \"moe_intermediate_size\": 2048, "                     \
             "\"num_experts_per_tok\": 8, \"n_shared_experts\": 1, "                               \
             "\"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\", "                      \
             "\"norm_topk_prob\": true, "
#define YARN(factor, mscale)                                                                       \
    "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": " #factor                                  \
    ", \"original_max_position_embeddings\": 4096, \"beta_fast\": 32, \"beta_slow\": 1, "          \
    "\"mscale\": " #mscale ", \"mscale_all_dim\": " #mscale "}"
#define DEEPSEEK_V3                                                                                \
    DEEPSEEK_V3_SHAPE                                                                              \
    "\"num_attention_heads\": 128, \"n_routed_experts\": 256, \"first_k_dense_replace\": 3, "      \
    "\"n_group\": 8, \"topk_group\": 4, \"routed_scaling_factor\": 2.5, "                          \
    "\"num_nextn_predict_layers\": 1, \"vocab_size\": 129280, "                                    \
    "\"max_position_embeddings\": 163840, \"rope_theta\": 10000, " YARN(40, 1.0)
#define GLM45                                                                                      \
    "\"model_type\": \"glm4_moe\", \"architectures\": [\"Glm4MoeForCausalLM\"], "                  \
    "\"hidden_act\": \"silu\", \"attention_bias\": true, \"rms_norm_eps\": 1e-05, "                \
    "\"head_dim\": 128, \"partial_rotary_factor\": 0.5, \"num_key_value_heads\": 8, "              \
    "\"num_experts_per_tok\": 8, \"n_shared_experts\": 1, \"n_group\": 1, \"topk_group\": 1, "     \
    "\"norm_topk_prob\": true, \"num_nextn_predict_layers\": 1, \"vocab_size\": 151552, "          \
    "\"max_position_embeddings\": 131072, \"rope_theta\": 1000000, "                               \
    "\"tie_word_embeddings\": false, "
#define MID_SHAPE                                                                                  \
    "\"hidden_size\": 2048, \"num_hidden_layers\": 12, \"num_attention_heads\": 16, "              \
    "\"q_lora_rank\": 768, \"intermediate_size\": 6144, \"moe_intermediate_size\": 512, "          \
    "\"n_routed_experts\": 64, \"num_experts_per_tok\": 8, \"first_k_dense_replace\": 1, "         \
    "\"vocab_size\": 32000, "

static const struct lp_synth_model models[] = {
    {"glm-5", "GLM-5 and 5.1: 744 billion weights", "{" GLM5 INDEXER GLM5_ROPE "}"},
    {"glm-5.2", "GLM-5.2 and 5.3: three layers in four share an indexer's selection",
     "{" GLM5 INDEXER "\"max_position_embeddings\": 1048576, "
     "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 8000000.0}, "
     "\"index_topk_freq\": 4, \"index_skip_topk_offset\": 3}"},
    {"deepseek-v3", "DeepSeek V3 and R1: 671 billion",
     "{\"model_type\": \"deepseek_v3\", \"architectures\": "
     "[\"DeepseekV3ForCausalLM\"], " DEEPSEEK_V3 "}"},
    {"deepseek-v3.2", "DeepSeek V3.2: as V3, with an indexer",
     "{\"model_type\": \"deepseek_v32\", \"architectures\": [\"DeepseekV32ForCausalLM\"], "
     "\"index_head_dim\": 128, \"index_n_heads\": 64, \"index_topk\": 2048, " DEEPSEEK_V3 "}"},
    {"deepseek-v2-lite", "DeepSeek V2-Lite: 16 billion",
     "{\"model_type\": \"deepseek_v2\", \"architectures\": [\"DeepseekV2ForCausalLM\"], " DEEPSEEK
     "\"hidden_size\": 2048, \"num_hidden_layers\": 27, \"num_attention_heads\": 16, "
     "\"q_lora_rank\": null, \"intermediate_size\": 10944, \"moe_intermediate_size\": 1408, "
     "\"n_routed_experts\": 64, \"num_experts_per_tok\": 6, \"n_shared_experts\": 2, "
     "\"first_k_dense_replace\": 1, \"scoring_func\": \"softmax\", \"topk_method\": \"greedy\", "
     "\"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": false, "
     "\"routed_scaling_factor\": 1.0, \"vocab_size\": 102400, "
     "\"max_position_embeddings\": 163840, \"rope_theta\": 10000, " YARN(40, 0.707) "}"},
    {"kimi-k2", "Kimi K2: 1,026 billion",
     "{\"model_type\": \"kimi_k2\", \"architectures\": "
     "[\"DeepseekV3ForCausalLM\"], " DEEPSEEK_V3_SHAPE
     "\"num_attention_heads\": 64, \"n_routed_experts\": 384, \"first_k_dense_replace\": 1, "
     "\"n_group\": 1, \"topk_group\": 1, \"routed_scaling_factor\": 2.827, "
     "\"num_nextn_predict_layers\": 0, \"vocab_size\": 163840, "
     "\"max_position_embeddings\": 131072, \"rope_theta\": 50000, " YARN(32, 1.0) "}"},
    {"glm-4.7-flash", "GLM-4.7-Flash: 30 billion",
     "{\"model_type\": \"glm4_moe_lite\", \"architectures\": [\"Glm4MoeLiteForCausalLM\"], "
     "\"hidden_act\": \"silu\", \"attention_bias\": false, \"rms_norm_eps\": 1e-05, "
     "\"hidden_size\": 2048, \"num_hidden_layers\": 47, \"num_attention_heads\": 20, "
     "\"q_lora_rank\": 768, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 192, "
     "\"qk_rope_head_dim\": 64, \"v_head_dim\": 256, \"intermediate_size\": 10240, "
     "\"moe_intermediate_size\": 1536, \"n_routed_experts\": 64, \"num_experts_per_tok\": 4, "
     "\"n_shared_experts\": 1, \"first_k_dense_replace\": 1, \"n_group\": 1, \"topk_group\": 1, "
     "\"topk_method\": \"noaux_tc\", \"norm_topk_prob\": true, \"routed_scaling_factor\": 1.8, "
     "\"num_nextn_predict_layers\": 1, \"vocab_size\": 154880, "
     "\"max_position_embeddings\": 202752, \"rope_theta\": 1000000, "
     "\"tie_word_embeddings\": false}"},
    {"glm-4.5", "GLM-4.5, 4.6 and 4.7: 355 billion, grouped-query attention",
     "{" GLM45 "\"hidden_size\": 5120, \"num_hidden_layers\": 92, \"num_attention_heads\": 96, "
     "\"intermediate_size\": 12288, \"moe_intermediate_size\": 1536, \"n_routed_experts\": 160, "
     "\"first_k_dense_replace\": 3, \"routed_scaling_factor\": 2.5, \"use_qk_norm\": true}"},
    {"glm-4.5-air", "GLM-4.5-Air: 106 billion",
     "{" GLM45 "\"hidden_size\": 4096, \"num_hidden_layers\": 46, \"num_attention_heads\": 96, "
     "\"intermediate_size\": 10944, \"moe_intermediate_size\": 1408, \"n_routed_experts\": 128, "
     "\"first_k_dense_replace\": 1, \"routed_scaling_factor\": 1.0, \"use_qk_norm\": false}"},
    {"llama-3.1-8b", "Llama 3.1 8B",
     "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], "
     "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, \"hidden_size\": 4096, "
     "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
     "\"intermediate_size\": 14336, \"vocab_size\": 128256, \"max_position_embeddings\": 131072, "
     "\"rope_theta\": 500000.0, \"tie_word_embeddings\": false}"},
    {"qwen2.5-7b", "Qwen2.5 7B",
     "{\"model_type\": \"qwen2\", \"architectures\": [\"Qwen2ForCausalLM\"], "
     "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-06, \"hidden_size\": 3584, "
     "\"num_hidden_layers\": 28, \"num_attention_heads\": 28, \"num_key_value_heads\": 4, "
     "\"intermediate_size\": 18944, \"vocab_size\": 152064, \"max_position_embeddings\": 32768, "
     "\"rope_theta\": 1000000.0, \"tie_word_embeddings\": false}"},
    {"qwen3-8b", "Qwen3 8B",
     "{\"model_type\": \"qwen3\", \"architectures\": [\"Qwen3ForCausalLM\"], "
     "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-06, \"hidden_size\": 4096, "
     "\"num_hidden_layers\": 36, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
     "\"head_dim\": 128, \"intermediate_size\": 12288, \"vocab_size\": 151936, "
     "\"max_position_embeddings\": 40960, \"rope_theta\": 1000000, "
     "\"tie_word_embeddings\": false}"},
    {"tiny", "GLM-5's head sizes, 4 layers: some 20 MB",
     "{" GLM_DSA "\"hidden_size\": 512, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
     "\"q_lora_rank\": 256, \"intermediate_size\": 1024, \"moe_intermediate_size\": 256, "
     "\"n_routed_experts\": 16, \"num_experts_per_tok\": 4, \"first_k_dense_replace\": 1, "
     "\"vocab_size\": 4096, \"index_n_heads\": 4, \"index_topk\": 256, " GLM5_ROPE "}"},
    {"mid", "GLM-5's head sizes, 12 layers: some 2 GB",
     "{" GLM_DSA INDEXER MID_SHAPE GLM5_ROPE "}"},
    {"mid-ds", "the same sizes as deepseek2, with V3's head sizes",
     "{\"model_type\": \"deepseek_v3\", \"architectures\": [\"DeepseekV3ForCausalLM\"], " DEEPSEEK
     "\"n_shared_experts\": 1, \"n_group\": 1, \"topk_group\": 1, \"scoring_func\": \"sigmoid\", "
     "\"topk_method\": \"noaux_tc\", \"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5, "
     "\"max_position_embeddings\": 163840, \"rope_theta\": 10000, " MID_SHAPE YARN(40, 1.0) "}"},
    {"big", "GLM-5's head sizes, 17 layers: some 12 GB",
     "{" GLM_DSA "\"hidden_size\": 4096, \"num_hidden_layers\": 17, \"num_attention_heads\": 32, "
     "\"q_lora_rank\": 1536, \"intermediate_size\": 8192, \"moe_intermediate_size\": 1024, "
     "\"n_routed_experts\": 80, \"num_experts_per_tok\": 8, \"first_k_dense_replace\": 1, "
     "\"vocab_size\": 64000, " INDEXER GLM5_ROPE "}"},
};

const struct lp_synth_model *lp_synth_model_at(size_t i) {
    return i < sizeof models / sizeof models[0] ? &models[i] : NULL;
}

const struct lp_synth_model *lp_synth_model_find(const char *name) {
    const struct lp_synth_model *m;
    for (size_t i = 0; (m = lp_synth_model_at(i)); i++)
        if (strcmp(m->name, name) == 0) return m;
    return NULL;
}
