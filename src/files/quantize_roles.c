#include "files/quantize_roles.h"

#include <string.h>

// Names without "blk.N." and ".weight".
static const struct row {
    const char *stem;
    enum lp_quant_role role;
} rows[] = {
    {"token_embd", LP_ROLE_EMBED},
    {"output", LP_ROLE_OUTPUT},
    {"rope_freqs", LP_ROLE_KEEP},
    {"attn_q", LP_ROLE_ATTN},
    {"attn_k", LP_ROLE_ATTN},
    {"attn_v", LP_ROLE_VALUES},
    {"attn_q_a", LP_ROLE_ATTN},
    {"attn_q_b", LP_ROLE_ATTN},
    {"attn_kv_a_mqa", LP_ROLE_VALUES},
    {"attn_k_b", LP_ROLE_ATTN},
    {"attn_v_b", LP_ROLE_VALUES},
    {"attn_kv_b", LP_ROLE_VALUES},
    {"attn_output", LP_ROLE_ATTN},
    {"indexer.attn_q_b", LP_ROLE_INDEX},
    {"indexer.attn_k", LP_ROLE_INDEX},
    {"indexer.proj", LP_ROLE_KEEP},
    {"ffn_gate", LP_ROLE_FFN_IN},
    {"ffn_up", LP_ROLE_FFN_IN},
    {"ffn_down", LP_ROLE_FFN_DOWN},
    {"ffn_gate_inp", LP_ROLE_KEEP},
    {"exp_probs_b", LP_ROLE_KEEP},
    {"ffn_gate_shexp", LP_ROLE_SHARED_IN},
    {"ffn_up_shexp", LP_ROLE_SHARED_IN},
    {"ffn_down_shexp", LP_ROLE_SHARED_DOWN},
    {"ffn_gate_exps", LP_ROLE_EXPERTS_IN},
    {"ffn_up_exps", LP_ROLE_EXPERTS_IN},
    {"ffn_gate_up_exps", LP_ROLE_EXPERTS_IN},
    {"ffn_down_exps", LP_ROLE_EXPERTS_DOWN},
    {"nextn.eh_proj", LP_ROLE_NEXTN},
    {"nextn.shared_head_head", LP_ROLE_NEXTN},
    {"nextn.embed_tokens", LP_ROLE_NEXTN},
};

bool lp_quant_name_ends(struct lp_str s, const char *end) {
    size_t n = strlen(end);
    return s.len >= n && memcmp(s.data + s.len - n, end, n) == 0;
}

bool lp_quant_name_has(struct lp_str s, const char *part) {
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= s.len; i++)
        if (memcmp(s.data + i, part, n) == 0) return true;
    return false;
}

int32_t lp_quant_block_of(struct lp_str name) {
    if (name.len < 6 || memcmp(name.data, "blk.", 4) != 0) return -1;
    int32_t block = 0;
    size_t at = 4;
    for (; at < name.len && name.data[at] >= '0' && name.data[at] <= '9' && at < 10; at++)
        block = block * 10 + (name.data[at] - '0');
    return at > 4 && at < name.len && name.data[at] == '.' ? block : -1;
}

static struct lp_str stem_of(struct lp_str name) {
    if (lp_quant_block_of(name) >= 0) {
        size_t skip = 4;
        while (name.data[skip] != '.') skip++;
        name.data += skip + 1;
        name.len -= skip + 1;
    }
    name.len -= strlen(".weight");
    return name;
}

enum lp_quant_role lp_quant_role_of(struct lp_str name, uint32_t n_dims) {
    if (lp_quant_name_ends(name, ".scale") || lp_quant_name_ends(name, ".input_scale"))
        return LP_ROLE_SCALE;
    if (n_dims < 2 || !lp_quant_name_ends(name, ".weight") || lp_quant_name_has(name, "norm"))
        return LP_ROLE_KEEP;
    struct lp_str stem = stem_of(name);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (lp_str_is(stem, rows[i].stem)) return rows[i].role;
    return LP_ROLE_OTHER;
}
