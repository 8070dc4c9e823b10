// The model types: which architecture each is, what it implies, and the default of every field that
// config.json may leave out. Defaults are those of the configuration classes of transformers 5.17
// (configuration_<model type>.py; kimi_k2 is loaded as deepseek_v3 there).
#include "hf/hf_config_parts.h"

#include <stdio.h>
#include <string.h>

#define NONE LP_HF_CONFIG_NONE
#define I(name) [LP_HF_INT_##name]

#define DEEPSEEK_V3(type)                                                                          \
    {                                                                                              \
        .model_type = type, .arch = "deepseek2",                                                   \
        .flags = LP_HF_MLA | LP_HF_ROUTED | LP_HF_NEXTN | LP_HF_VOCAB_KEY,                         \
        .ints = {I(VOCAB) = 129280, I(EMBD) = 7168,   I(FF) = 18432,      I(EXPERT_FF) = 2048,     \
                 I(LAYERS) = 61,    I(HEADS) = 128,   I(SHARED) = 1,      I(EXPERTS) = 256,        \
                 I(LATENT) = 512,   I(Q_RANK) = 1536, I(ROPE_DIM) = 64,   I(V_DIM) = 128,          \
                 I(NOPE) = 128,     I(GROUPS) = 8,    I(GROUPS_USED) = 4, I(USED) = 8,             \
                 I(DENSE) = 3,      I(CONTEXT) = 4096},                                            \
        .eps = 1e-6, .theta = 1e4, .scale = 2.5, .rotated = 1, .normalise = true,                  \
        .topk_method = "noaux_tc"                                                                  \
    }

static const struct lp_hf_family families[] = {
    {.model_type = "glm_moe_dsa",
     .arch = "glm-dsa",
     .flags =
         LP_HF_MLA | LP_HF_ROUTED | LP_HF_INDEXER | LP_HF_NEXTN | LP_HF_VOCAB_KEY | LP_HF_NEXTN_KEY,
     .ints = {I(VOCAB) = 154880,  I(EMBD) = 6144,      I(FF) = 12288,      I(EXPERT_FF) = 2048,
              I(LAYERS) = 78,     I(HEADS) = 64,       I(SHARED) = 1,      I(EXPERTS) = 256,
              I(LATENT) = 512,    I(Q_RANK) = 2048,    I(ROPE_DIM) = 64,   I(V_DIM) = 256,
              I(NOPE) = 192,      I(GROUPS) = 1,       I(GROUPS_USED) = 1, I(USED) = 8,
              I(DENSE) = 3,       I(CONTEXT) = 202752, I(TOP_K) = 2048,    I(INDEX_WIDTH) = 128,
              I(INDEX_HEADS) = 32},
     .eps = 1e-5,
     .theta = 1e4,
     .scale = 2.5,
     .rotated = 1,
     .normalise = true,
     .topk_method = "noaux_tc"},
    {.model_type = "deepseek_v2",
     .arch = "deepseek2",
     .flags = LP_HF_MLA | LP_HF_ROUTED | LP_HF_SOFTMAX | LP_HF_VOCAB_KEY,
     // num_experts_per_tok: None, which no model can have
     .ints = {I(VOCAB) = 102400, I(EMBD) = 4096, I(FF) = 11008, I(EXPERT_FF) = 1407, I(LAYERS) = 32,
              I(HEADS) = 32, I(SHARED) = 2, I(EXPERTS) = 64, I(LATENT) = 512, I(Q_RANK) = 1536,
              I(ROPE_DIM) = 64, I(V_DIM) = 128, I(NOPE) = 128, I(GROUPS) = NONE,
              I(GROUPS_USED) = NONE, I(USED) = NONE, I(DENSE) = 0, I(CONTEXT) = 2048},
     .eps = 1e-6,
     .theta = 1e4,
     .scale = 1,
     .rotated = 1,
     .topk_method = "greedy"},
    DEEPSEEK_V3("deepseek_v3"),
    DEEPSEEK_V3("kimi_k2"),
    {.model_type = "deepseek_v32",
     .arch = "deepseek32",
     .flags = LP_HF_MLA | LP_HF_ROUTED | LP_HF_INDEXER | LP_HF_HALF_INDEXER | LP_HF_NEXTN |
              LP_HF_VOCAB_KEY,
     .ints = {I(VOCAB) = 129280,  I(EMBD) = 7168,      I(FF) = 18432,      I(EXPERT_FF) = 2048,
              I(LAYERS) = 61,     I(HEADS) = 128,      I(SHARED) = 1,      I(EXPERTS) = 256,
              I(LATENT) = 512,    I(Q_RANK) = 1536,    I(ROPE_DIM) = 64,   I(V_DIM) = 128,
              I(NOPE) = 128,      I(GROUPS) = 8,       I(GROUPS_USED) = 4, I(USED) = 8,
              I(DENSE) = 3,       I(CONTEXT) = 163840, I(TOP_K) = 2048,    I(INDEX_WIDTH) = 128,
              I(INDEX_HEADS) = 64},
     .eps = 1e-6,
     .theta = 1e4,
     .scale = 2.5,
     .rotated = 1,
     .normalise = true,
     .topk_method = "noaux_tc"},
    {.model_type = "glm4_moe",
     .arch = "glm4moe",
     .flags = LP_HF_GQA | LP_HF_ROUTED | LP_HF_NEXTN | LP_HF_ASKED_BIAS | LP_HF_ASKED_QK_NORM |
              LP_HF_ROTATED_PART | LP_HF_ROPE_KEY | LP_HF_NEXTN_KEY,
     .ints = {I(VOCAB) = 151552, I(EMBD) = 4096, I(FF) = 10944, I(LAYERS) = 46, I(HEADS) = 96,
              I(KV_HEADS) = 8, I(HEAD_DIM) = NONE, I(CONTEXT) = 131072, I(EXPERT_FF) = 1408,
              I(USED) = 8, I(SHARED) = 1, I(EXPERTS) = 128, I(GROUPS) = 1, I(GROUPS_USED) = 1,
              I(DENSE) = 1},
     .eps = 1e-5,
     .theta = 1e4,
     .scale = 1,
     .rotated = 0.5,
     .normalise = true,
     .topk_method = "noaux_tc"},
    {.model_type = "glm4_moe_lite",
     .arch = "deepseek2",
     .flags = LP_HF_MLA | LP_HF_ROUTED | LP_HF_NEXTN | LP_HF_VOCAB_KEY,
     // the class has mlp_layer_types for first_k_dense_replace, one dense layer by default
     .ints = {I(VOCAB) = 154880, I(EMBD) = 2048, I(FF) = 10240, I(EXPERT_FF) = 1536, I(LAYERS) = 47,
              I(HEADS) = 20, I(SHARED) = 1, I(EXPERTS) = 64, I(LATENT) = 512, I(Q_RANK) = 768,
              I(ROPE_DIM) = 64, I(V_DIM) = 256, I(NOPE) = 192, I(GROUPS) = 1, I(GROUPS_USED) = 1,
              I(USED) = 4, I(DENSE) = 1, I(CONTEXT) = 202752},
     .eps = 1e-5,
     .theta = 1e4,
     .scale = 1.8,
     .rotated = 1,
     .normalise = true,
     .topk_method = "noaux_tc"},
    {.model_type = "llama",
     .arch = "llama",
     .flags = LP_HF_GQA | LP_HF_VOCAB_KEY | LP_HF_ROPE_KEY,
     .ints = {I(VOCAB) = 32000, I(EMBD) = 4096, I(FF) = 11008, I(LAYERS) = 32, I(HEADS) = 32,
              I(KV_HEADS) = NONE, I(HEAD_DIM) = NONE, I(CONTEXT) = 2048},
     .eps = 1e-6,
     .theta = 1e4,
     .rotated = 1},
    {.model_type = "mistral",
     .arch = "llama",
     .flags = LP_HF_GQA | LP_HF_WINDOW | LP_HF_VOCAB_KEY | LP_HF_ROPE_KEY,
     .ints = {I(VOCAB) = 32000, I(EMBD) = 4096, I(FF) = 14336, I(LAYERS) = 32, I(HEADS) = 32,
              I(KV_HEADS) = 8, I(HEAD_DIM) = NONE, I(CONTEXT) = 131072},
     .eps = 1e-6,
     .theta = 1e4,
     .rotated = 1,
     .window = 4096},
    {.model_type = "mixtral",
     .arch = "llama",
     .flags = LP_HF_GQA | LP_HF_MIXTRAL | LP_HF_WINDOW | LP_HF_VOCAB_KEY | LP_HF_ROPE_KEY,
     .ints = {I(VOCAB) = 32000, I(EMBD) = 4096, I(FF) = 14336, I(LAYERS) = 32, I(HEADS) = 32,
              I(KV_HEADS) = 8, I(HEAD_DIM) = NONE, I(CONTEXT) = 131072, I(LOCAL_EXPERTS) = 8,
              I(USED) = 2},
     .eps = 1e-5,
     .theta = 1e6,
     .rotated = 1,
     .window = NONE},
    {.model_type = "qwen2",
     .arch = "qwen2",
     .flags = LP_HF_GQA | LP_HF_WINDOW_SWITCH | LP_HF_OWN_BIAS,
     .ints = {I(VOCAB) = 151936, I(EMBD) = 4096, I(FF) = 22016, I(LAYERS) = 32, I(HEADS) = 32,
              I(KV_HEADS) = 32, I(HEAD_DIM) = NONE, I(CONTEXT) = 32768},
     .eps = 1e-6,
     .theta = 1e4,
     .rotated = 1,
     .window = 4096},
    {.model_type = "qwen3",
     .arch = "qwen3",
     .flags = LP_HF_GQA | LP_HF_WINDOW_SWITCH,
     .ints = {I(VOCAB) = 151936, I(EMBD) = 4096, I(FF) = 22016, I(LAYERS) = 32, I(HEADS) = 32,
              I(KV_HEADS) = 32, I(HEAD_DIM) = 128, I(CONTEXT) = 32768},
     .eps = 1e-6,
     .theta = 1e4,
     .rotated = 1,
     .window = 4096},
};
#define N_FAMILIES (sizeof families / sizeof families[0])

const struct lp_hf_family *lp_hf_family_find(const char *model_type) {
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0) return &families[i];
    return NULL;
}

const char *lp_hf_family_list(char *out, size_t n_bytes) {
    size_t used = 0;
    for (size_t i = 0; i < N_FAMILIES && used < n_bytes; i++)
        used += (size_t)snprintf(out + used, n_bytes - used, "%s%s",
                                 i == 0                ? ""
                                 : i + 1 == N_FAMILIES ? " and "
                                                       : ", ",
                                 families[i].model_type);
    return out;
}
