// The parts of hf_config.c. One reader carries the first failure along, so that the parts read as
// lists of fields; what a model type implies is one row of hf_config_families.c.
#ifndef LP_HF_HF_CONFIG_PARTS_H
#define LP_HF_HF_CONFIG_PARTS_H

#include "hf/hf_config.h"

#define LP_HF_CONFIG_NONE (-1) // of an integer field: null, or a default of None

// Integer fields of config.json: name, other name, least and greatest value, which model types have
// it, and whether null means something. The limits are those of model/hparams.c.
#define LP_HF_CONFIG_INTS(X)                                                                       \
    X(LAYERS, "num_hidden_layers", NULL, 1, 512, LP_HF_ANY, false)                                 \
    X(CONTEXT, "max_position_embeddings", NULL, 1, INT32_MAX / 2, LP_HF_ANY, false)                \
    X(EMBD, "hidden_size", NULL, 1, 1 << 20, LP_HF_ANY, false)                                     \
    X(FF, "intermediate_size", NULL, 1, 1 << 22, LP_HF_ANY, false)                                 \
    X(VOCAB, "vocab_size", NULL, 1, 1 << 24, LP_HF_ANY, false)                                     \
    X(HEADS, "num_attention_heads", NULL, 1, 4096, LP_HF_ANY, false)                               \
    X(KV_HEADS, "num_key_value_heads", NULL, 1, 4096, LP_HF_GQA, true)                             \
    X(HEAD_DIM, "head_dim", NULL, 2, 4096, LP_HF_GQA, true)                                        \
    X(Q_RANK, "q_lora_rank", NULL, 1, 65536, LP_HF_MLA, true)                                      \
    X(LATENT, "kv_lora_rank", NULL, 1, 65536, LP_HF_MLA, false)                                    \
    X(NOPE, "qk_nope_head_dim", NULL, 1, 4096, LP_HF_MLA, false)                                   \
    X(ROPE_DIM, "qk_rope_head_dim", NULL, 2, 4096, LP_HF_MLA, false)                               \
    X(V_DIM, "v_head_dim", NULL, 1, 8192, LP_HF_MLA, false)                                        \
    X(EXPERTS, "n_routed_experts", "num_experts", 1, 65536, LP_HF_ROUTED, false)                   \
    X(LOCAL_EXPERTS, "num_local_experts", "num_experts", 1, 65536, LP_HF_MIXTRAL, false)           \
    X(USED, "num_experts_per_tok", NULL, 1, 1024, LP_HF_ROUTED | LP_HF_MIXTRAL, false)             \
    X(SHARED, "n_shared_experts", NULL, 0, 1024, LP_HF_ROUTED, true)                               \
    X(EXPERT_FF, "moe_intermediate_size", NULL, 1, 1 << 22, LP_HF_ROUTED, false)                   \
    X(DENSE, "first_k_dense_replace", NULL, 0, 1 << 20, LP_HF_ROUTED, false)                       \
    X(GROUPS, "n_group", NULL, 1, 65536, LP_HF_ROUTED, true)                                       \
    X(GROUPS_USED, "topk_group", NULL, 1, 65536, LP_HF_ROUTED, true)                               \
    X(TOP_K, "index_topk", NULL, 1, 1 << 24, LP_HF_INDEXER, false)                                 \
    X(INDEX_WIDTH, "index_head_dim", NULL, 1, 4096, LP_HF_INDEXER, false)                          \
    X(INDEX_HEADS, "index_n_heads", NULL, 1, 1024, LP_HF_INDEXER, false)

enum lp_hf_config_int {
#define LP_HF_CONFIG_ENUM(name, field, also, min, max, types, null) LP_HF_INT_##name,
    LP_HF_CONFIG_INTS(LP_HF_CONFIG_ENUM)
#undef LP_HF_CONFIG_ENUM
        LP_HF_N_INTS
};

// What a model type implies.
enum {
    LP_HF_MLA = 1 << 0,
    LP_HF_GQA = 1 << 1,
    LP_HF_ROUTED = 1 << 2,         // experts with a shared one beside them (DeepSeek, GLM)
    LP_HF_MIXTRAL = 1 << 3,        // experts in every layer, softmax over the chosen
    LP_HF_INDEXER = 1 << 4,        // sparse attention
    LP_HF_HALF_INDEXER = 1 << 5,   // its rotary pairs are halves, not neighbours
    LP_HF_SOFTMAX = 1 << 6,        // router of the DeepSeek V2 class; the others' is a sigmoid
    LP_HF_NEXTN = 1 << 7,          // checkpoints may have MTP layers
    LP_HF_WINDOW = 1 << 8,         // sliding_window counts where it is set
    LP_HF_WINDOW_SWITCH = 1 << 9,  // ... and use_sliding_window is
    LP_HF_OWN_BIAS = 1 << 10,      // biases of q, k and v are part of the class
    LP_HF_ASKED_BIAS = 1 << 11,    // attention_bias adds those of q, k and v, and limpid needs them
    LP_HF_ASKED_QK_NORM = 1 << 12, // use_qk_norm adds what limpid runs
    LP_HF_ROTATED_PART = 1 << 13,  // partial_rotary_factor may be less than 1
    LP_HF_VOCAB_KEY = 1 << 14,     // the usual converter writes vocab_size and
    LP_HF_ROPE_KEY = 1 << 15,      // rope.dimension_count for it
    LP_HF_NEXTN_KEY = 1 << 16,     // ... and nextn_predict_layers, though it be 0
    LP_HF_ANY = LP_HF_MLA | LP_HF_GQA
};

struct lp_hf_family {
    const char *model_type, *arch;
    unsigned flags;
    int64_t ints[LP_HF_N_INTS]; // defaults, of fields that the flags make count
    double eps, theta, scale;   // rms_norm_eps, rope_theta, routed_scaling_factor
    double rotated;             // partial_rotary_factor
    int64_t window;             // sliding_window; LP_HF_CONFIG_NONE
    bool normalise;             // norm_topk_prob
    const char *topk_method;
};

const struct lp_hf_family *lp_hf_family_find(const char *model_type); // or NULL
// All model types, for messages: "glm_moe_dsa, deepseek_v2, ... and qwen3".
const char *lp_hf_family_list(char *out, size_t n_bytes);

struct lp_hf_config_reader {
    const json_t *config;
    const struct lp_hf_family *family;
    int64_t v[LP_HF_N_INTS];
    struct lp_hf_model *model;
    struct lp_gguf_writer *w;
    const struct lp_hf_folder *folder;
    const char *file; // "config.json", for messages
    lp_status status;
    struct lp_err *err;
};

// Whether the row's model type has all of these flags.
static inline bool lp_hf_config_is(const struct lp_hf_config_reader *r, unsigned flags) {
    return (r->family->flags & flags) == flags;
}

// ---- reading (hf_config_read.c). `object` may be NULL (no field is there); `where` is put before
// a name in messages ("rope_scaling."). After a failure they give `otherwise` and do nothing.

void lp_hf_config_fail(struct lp_hf_config_reader *r, lp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The field, or NULL where it is missing or null.
const json_t *lp_hf_config_get(const json_t *object, const char *name);
double lp_hf_config_number(struct lp_hf_config_reader *r, const json_t *object, const char *where,
                           const char *name, double min, double max, double otherwise);
int64_t lp_hf_config_whole(struct lp_hf_config_reader *r, const json_t *object, const char *where,
                           const char *name, int64_t min, int64_t max, int64_t otherwise);
bool lp_hf_config_bool(struct lp_hf_config_reader *r, const json_t *object, const char *where,
                       const char *name, bool otherwise);
const char *lp_hf_config_text(struct lp_hf_config_reader *r, const json_t *object,
                              const char *where, const char *name, const char *otherwise);
// Whether it is a list with an element for each layer, and for none, some or all of the MTP layers;
// fails where it is not.
bool lp_hf_config_per_layer(struct lp_hf_config_reader *r, const char *name, const json_t *list);
// A value for messages and comparisons: 1, 0.5, true, null, silu, "a list", "an object"; cut.
#define LP_HF_VALUE_BYTES 64
const char *lp_hf_config_value(const json_t *value, char out[LP_HF_VALUE_BYTES]);

// ---- keys: ARCH.suffix. After a failure nothing is set.

#define LP_HF_KEY_BYTES 96
const char *lp_hf_config_key(const struct lp_hf_config_reader *r, const char *suffix,
                             char out[LP_HF_KEY_BYTES]); // returns out
void lp_hf_config_put_int(struct lp_hf_config_reader *r, const char *suffix, int64_t value);
void lp_hf_config_put_float(struct lp_hf_config_reader *r, const char *suffix, double value);

// ---- the parts, in the order in which hf_config.c calls them

void lp_hf_config_general(struct lp_hf_config_reader *r); // general.*
void lp_hf_config_refuse(struct lp_hf_config_reader *r);  // what limpid cannot run
void lp_hf_config_rope(struct lp_hf_config_reader *r);
void lp_hf_config_router(struct lp_hf_config_reader *r);
void lp_hf_config_indexer(struct lp_hf_config_reader *r);

#endif
