// What quantising a model will do, tensor by tensor, before anything is written.
#ifndef LP_FILES_QUANTIZE_PLAN_H
#define LP_FILES_QUANTIZE_PLAN_H

#include "files/imatrix.h"
#include "files/quantize_presets.h"
#include "files/quantize_rules.h"
#include "files/tensor_source.h"

struct lp_quantize_options {
    const char *input;     // a GGUF, any part of a split set, or a Hugging Face folder
    const char *preset;    // lp_quant_preset_find
    const char *rules;     // a rule file, or NULL
    const char *imatrix;   // an importance matrix, or NULL
    bool pure;             // the preset's base type for every matrix
    bool allow_requantize; // from types that have lost much already
};

enum lp_quant_why { // why a tensor gets its type
    LP_WHY_KEPT,    // small and decisive: as it is
    LP_WHY_PRESET,
    LP_WHY_RULE,
};

struct lp_quant_item { // one tensor of the output
    const struct lp_source_tensor *tensor;
    enum lp_quant_role role;
    enum lp_quant_why why;
    lp_type wanted, to;                        // to differs where rows are no multiple of the block
    bool copied;                               // bit for bit
    const struct lp_imatrix_entry *importance; // or NULL: none known, or of no use to the type
    uint64_t n_bytes;
};

struct lp_quant_plan {
    struct lp_source source;
    struct lp_imatrix *imatrix; // or NULL
    const struct lp_quant_preset *preset;
    struct lp_quant_shape shape;
    struct lp_quant_rules rules;
    struct lp_quant_item *items; // in the order of the file
    uint64_t n_items;
    uint64_t n_dropped;          // factors that are in the values now: NAME.scale
    uint64_t n_fallback;         // items whose `to` is not `wanted`
    uint64_t n_unimportant;      // matrices that would use importances, and have none
    uint64_t n_experts, n_unmet; // matrices of stacks with importances; those that nothing met
    uint64_t n_lossy;            // requantised from a type that has lost much already
    uint64_t n_bytes, n_values;  // of all tensors in the output
};

// Whether importances have a say in its blocks: it is not copied, and its type searches for scales.
bool lp_quant_uses_importance(const struct lp_quant_item *item);

// Opens the source, reads rules and importances, decides every type and makes the header of the
// output (source.writer has finished). Errors: INVALID (an unknown preset, a preset that the model
// is not for, a source that has lost too much: says what to do), and those of what it reads.
// Release in any case.
lp_status lp_quant_plan_make(struct lp_quant_plan *out, const struct lp_quantize_options *options,
                             struct lp_err *err);
void lp_quant_plan_release(struct lp_quant_plan *plan);

#endif
