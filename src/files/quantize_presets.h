// Presets: which type a tensor gets, by its role and the position of its layer. Tables
// (quantize_presets.c; docs/quantize.md prints them).
#ifndef LP_FILES_QUANTIZE_PRESETS_H
#define LP_FILES_QUANTIZE_PRESETS_H

#include "files/quantize_roles.h"
#include "quant/quant.h"

struct lp_quant_shape {  // of the model, from its tensors' names
    int32_t n_layers;    // without MTP layers; 0: no blocks
    int32_t first_moe;   // the first layer with routed experts, or -1
    bool has_output;     // else the embedding is the output matrix too
    bool shares_values;  // MLA, or four and more query heads to a value head: values are few and
                         // used often
    bool has_importance; // an importance matrix is there
};

struct lp_quant_preset;

// By name, in any case ("Q4_K_M", "DYN-Q4"), or the name of a type that can be written; aliases:
// Q4_K and Q5_K mean Q4_K_M and Q5_K_M. NULL for an unknown name.
const struct lp_quant_preset *lp_quant_preset_find(const char *name);
const char *lp_quant_preset_list(void);                     // "Q8_0, Q6_K, ...": static text
const struct lp_quant_preset *lp_quant_preset_at(size_t i); // NULL past the last
const char *lp_quant_preset_name(const struct lp_quant_preset *p);
const char *lp_quant_preset_summary(const struct lp_quant_preset *p);
lp_type lp_quant_preset_base(const struct lp_quant_preset *p);
uint32_t lp_quant_preset_file_type(const struct lp_quant_preset *p); // general.file_type
bool lp_quant_preset_needs_experts(const struct lp_quant_preset *p);

// The type of a tensor whose role is a matrix's (not KEEP, not SCALE). block: lp_quant_block_of.
lp_type lp_quant_preset_type(const struct lp_quant_preset *p, const struct lp_quant_shape *shape,
                             enum lp_quant_role role, int32_t block);

// Where rows of n_in values are no multiple of the type's block: the next type that takes them, on
// a fixed ladder; its end is F16.
lp_type lp_quant_fallback(lp_type type, uint64_t n_in);

// A type that can be written, by name in any case; false for others.
bool lp_quant_type_parse(struct lp_str name, lp_type *out);
const char *lp_quant_type_list(void); // "F32, F16, ...": static text

#endif
