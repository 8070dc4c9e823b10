// The two names of a tensor: in a GGUF file, and in the Hugging Face checkpoint that it was made
// from. Covers what binding.c binds: glm_moe_dsa, deepseek_v2, deepseek_v3, deepseek_v32, kimi_k2,
// glm4_moe(_lite), llama, mixtral, qwen2, qwen3.
#ifndef LP_HF_HF_NAMES_H
#define LP_HF_HF_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "model/hparams.h"

#define LP_HF_NAME_BYTES 160

// blk.3.attn_kv_b.weight -> model.layers.3.self_attn.kv_b_proj.weight. A stack of experts has "*"
// for the expert's number. False for a tensor that no checkpoint has.
bool lp_hf_name(const struct lp_arch *arch, struct lp_str gguf_name, char out[LP_HF_NAME_BYTES]);

enum lp_hf_spelling {
    LP_HF_NONE,
    LP_HF_GGUF,  // the name is a GGUF name already
    LP_HF_NAME,  // it is the Hugging Face name
    LP_HF_OTHER, // some other converter's or an older name
};
// The GGUF name of a tensor that goes by another one, and whose that is.
enum lp_hf_spelling lp_hf_to_gguf(const struct lp_arch *arch, struct lp_str name,
                                  char out[LP_HF_NAME_BYTES]);

// The table itself: rows that an architecture may use, and how many of them lead to a Hugging Face
// name and from there back to themselves. The rest are halves of one tensor (attn_k_b and attn_v_b
// of kv_b_proj) or are computed by the converter (rope_freqs).
struct lp_hf_count {
    int n_rows, n_there_and_back, n_halves, n_computed;
};
struct lp_hf_count lp_hf_count(const struct lp_arch *arch);

#endif
