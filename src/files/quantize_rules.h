// Rule files of the quantiser: types for tensors by name, over what the preset says.
//
//   # a comment
//   *.ffn_down_exps.weight layers 0-7,70- = Q6_K
//   *.attn_*               = Q8_0
//   ? nextn.*              = F16       (?: no error where nothing matches)
//   blk.3.*                = keep      (as it is in the source)
//
// A line is PATTERN [layers LIST] = TYPE; the first one that matches a tensor counts. In a pattern
// * stands for any text and ? for one character; it is held against the whole name, and against
// what is behind "blk.N.". Tensors that are kept (norms, router, vectors) are named whole or not at
// all, and take F32, F16 or BF16.
#ifndef LP_FILES_QUANTIZE_RULES_H
#define LP_FILES_QUANTIZE_RULES_H

#include "base/bytes.h"
#include "base/status.h"
#include "files/quantize_roles.h"
#include "quant/quant.h"

#define LP_QUANT_KEEP LP_TYPE_COUNT

struct lp_quant_rules {
    char *text; // of the file, taken apart
    char *path;
    struct lp_quant_rule *rules;
    size_t n, capacity;
};

// Errors: IO, FORMAT ("FILE:LINE: ..."), LIMIT (over 1 MB, 4096 rules,
// 256 bytes of a pattern), MEMORY. Release in any case.
lp_status lp_quant_rules_read(struct lp_quant_rules *out, const char *path, struct lp_err *err);
void lp_quant_rules_release(struct lp_quant_rules *rules);

// The type that a rule gives the tensor (LP_QUANT_KEEP: its own): *found and *type, or neither.
// Notes what has matched.
// Errors: FORMAT for a block type given to a tensor that is kept.
lp_status lp_quant_rules_apply(struct lp_quant_rules *rules, struct lp_str name,
                               enum lp_quant_role role, bool *found, lp_type *type,
                               struct lp_err *err);

// After all tensors: FORMAT names the first rule that has matched nothing and has no ? before it.
lp_status lp_quant_rules_check(const struct lp_quant_rules *rules, struct lp_err *err);

// * any text, ? one character.
bool lp_quant_glob(struct lp_str pattern, struct lp_str name);

#endif
