// Hyperparameters: the numbers of a model's mathematics, from its GGUF metadata. Each one comes
// from the file or from a documented per-architecture rule (docs/gguf.md), and the record says
// which; what has no rule and is missing, contradictory or absurd refuses the file by name.
#ifndef LP_MODEL_HPARAMS_H
#define LP_MODEL_HPARAMS_H

#include "attention/attention.h"
#include "gguf/gguf.h"

#define LP_MAX_LAYERS 512
#define LP_MAX_FACTS 96

enum lp_attention_kind { LP_ATTENTION_GQA, LP_ATTENTION_MLA };
enum lp_indexer_kind { LP_INDEXER_NEVER, LP_INDEXER_ALWAYS };

// What an architecture name implies (capabilities; nothing asks for the name itself afterwards).
struct lp_arch {
    const char *name;
    enum lp_attention_kind attention;
    enum lp_indexer_kind indexer;
    enum lp_rope_pairing rope_pairing, index_rope_pairing;
    bool needs_mla_keys; // key_length_mla and value_length_mla must be there
    bool qkv_bias, optional_qkv_bias;
    bool qk_norm, optional_qk_norm;
    bool may_have_nextn, may_have_experts;
    bool normalise_by_default;     // expert_weights_norm when the key is missing
    const char *ffn_norm_name;     // "ffn_norm" or "post_attention_norm"
    enum lp_gating default_gating; // 0: sigmoid if the file has routing biases, softmax if not
};

struct lp_fact { // one number of the mathematics, for inspect, logs and the doctor
    char name[48];
    char value[80];
    char source[112]; // "file", or the rule
};

struct lp_hparams {
    const struct lp_arch *arch;
    int32_t n_blocks, n_nextn, n_layers; // blocks = layers + nextn
    int64_t n_vocab, n_context, n_embd;
    int32_t n_heads, n_kv_heads;
    int64_t n_ff[LP_MAX_LAYERS]; // dense FFN width of a block
    float eps;

    int32_t head_dim, v_dim;                // GQA: per head; MLA: v_dim per head
    int32_t q_rank, latent, nope, rope_dim; // MLA; q_rank 0 = none
    bool legacy_kv_b;                       // MLA: key_length_mla absent

    int32_t index_heads, index_width, top_k; // 0 = no indexer
    float index_eps;
    enum lp_indexer_role index_role[LP_MAX_LAYERS];

    int32_t rope_width;
    float rope_base, rope_scale; // rope_scale: frequencies are divided by it (linear)
    bool yarn;
    float yarn_factor, yarn_beta_fast, yarn_beta_slow;
    int64_t yarn_context;
    float rope_magnitude; // of cos and sin
    float attn_scale;     // softmax scale, with the yarn factor where there is one

    int32_t n_experts, n_used, n_shared, n_groups, n_groups_used,
        n_dense; // n_dense: leading layers
    int64_t expert_ff, shared_ff;
    enum lp_gating gating;
    enum lp_group_score group_score;
    bool normalise;
    float expert_scale;

    struct lp_fact facts[LP_MAX_FACTS];
    int32_t n_facts;
};

// Errors: FORMAT or UNSUPPORTED naming the key, its value and what is expected.
lp_status lp_hparams_read(struct lp_hparams *out, const struct lp_gguf *gguf, struct lp_err *err);

// Whether the key (full name) is one that limpid reads for this architecture.
bool lp_hparams_knows_key(const struct lp_arch *arch, struct lp_str key);

const struct lp_arch *lp_arch_find(struct lp_str name); // or NULL
const char *lp_arch_list(void);                         // "glm-dsa, deepseek2, ..."

// inv_freq[i], i < rope_width / 2: base^(-2i/width), mixed by YaRN or divided by the linear factor;
// divisors (may be NULL) are those of rope_freqs.weight.
void lp_hparams_inv_freq(const struct lp_hparams *h, const float *divisors, float *out);

// Whether block b has routed experts.
static inline bool lp_hparams_is_moe(const struct lp_hparams *h, int32_t b) {
    return h->n_experts > 0 && b >= h->n_dense;
}

#endif
