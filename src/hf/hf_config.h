// config.json (and generation_config.json) -> GGUF metadata, by the usual names
// (docs/gguf.md). Fields that change the mathematics and are missing get the default of the
// reference implementation's configuration class, never a guess; one that limpid cannot run refuses
// the folder by name.
#ifndef LP_HF_HF_CONFIG_H
#define LP_HF_HF_CONFIG_H

#include "gguf/gguf_write.h"
#include "hf/hf_folder.h"

// What the config says that the weights and the tokenizer are read by.
struct lp_hf_model {
    const char *arch;          // "glm-dsa": general.architecture. Static text
    char model_type[32];       // "glm_moe_dsa", as config.json says
    int64_t n_layers, n_nextn; // the MTP layers are numbered n_layers ... in the checkpoint;
                               // n_nextn 0 where the weights lack them
    int64_t n_vocab, n_embd, n_heads;
    int64_t n_kv_heads, head_dim; // MLA: 1 and nope + rope_dim
    bool is_mla;
    int64_t q_rank, latent, nope, rope_dim, v_dim;   // MLA; q_rank 0 = none
    int64_t n_experts, n_shared, expert_ff, n_dense; // 0 = none; n_dense: leading dense layers
    bool tied;                                       // the output matrix is the embedding
    // Indexer: layer l has its own when top_k > 0 and full[l]; NULL = all have. [n_layers]
    int64_t top_k;
    bool *full; // lp_free
    // Llama 3.1's rope_freqs.weight, which no checkpoint has: divisors of the frequencies; or NULL.
    float *rope_freqs;    // lp_free
    int64_t n_rope_freqs; // half the width that is rotated
};

// Sets the keys general.* and ARCH.*. Only `config` of the folder is needed; without weights the
// MTP layers are as many as it says. Errors: FORMAT, UNSUPPORTED (name the field, its value and
// what is expected), MEMORY. Release in any case.
lp_status lp_hf_config(struct lp_hf_model *out, struct lp_gguf_writer *w,
                       const struct lp_hf_folder *folder, struct lp_err *err);
void lp_hf_model_release(struct lp_hf_model *model);

#endif
