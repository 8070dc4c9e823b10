// What a tensor is for, by its name: what presets and rules of the quantiser speak of.
#ifndef LP_FILES_QUANTIZE_ROLES_H
#define LP_FILES_QUANTIZE_ROLES_H

#include <stdint.h>

#include "base/bytes.h"

// Bits, so that a row of a preset may name several.
enum lp_quant_role {
    LP_ROLE_KEEP =
        1 << 0, // norms, biases, router, indexer.proj ...: small, decisive, left as it is
    LP_ROLE_EMBED = 1 << 1,
    LP_ROLE_OUTPUT = 1 << 2,
    LP_ROLE_ATTN = 1 << 3,   // queries, keys, the way back: attn_q, attn_q_a, attn_k_b ...
    LP_ROLE_VALUES = 1 << 4, // what values are made of: attn_v, attn_v_b, attn_kv_b, attn_kv_a_mqa
    LP_ROLE_INDEX = 1 << 5,  // the sparse indexer's matrices
    LP_ROLE_FFN_IN = 1 << 6, // gate and up of a dense layer
    LP_ROLE_FFN_DOWN = 1 << 7,
    LP_ROLE_SHARED_IN = 1 << 8, // of the shared experts
    LP_ROLE_SHARED_DOWN = 1 << 9,
    LP_ROLE_EXPERTS_IN = 1 << 10, // of the routed experts
    LP_ROLE_EXPERTS_DOWN = 1 << 11,
    LP_ROLE_NEXTN = 1 << 12, // the MTP layer's own matrices: eh_proj and, where there, its head
    LP_ROLE_OTHER = 1 << 13, // a matrix that no row of the table knows
    LP_ROLE_SCALE = 1 << 14, // NAME.scale, NAME.input_scale: factors beside NAME.weight
};

#define LP_ROLE_ANY (~0u)

// n_dims as in the file: a tensor of one dimension is kept.
enum lp_quant_role lp_quant_role_of(struct lp_str name, uint32_t n_dims);

// N of "blk.N.", or -1.
int32_t lp_quant_block_of(struct lp_str name);
// Whether a name ends so; whether it has this somewhere.
bool lp_quant_name_ends(struct lp_str name, const char *end);
bool lp_quant_name_has(struct lp_str name, const char *part);

#endif
