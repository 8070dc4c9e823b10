// The type of each matrix of a synthetic model.
#ifndef LP_FILES_SYNTH_TYPES_H
#define LP_FILES_SYNTH_TYPES_H

#include "files/quantize_presets.h"
#include "files/synth.h"
#include "model/binding.h"

struct lp_synth_types {
    const struct lp_quant_preset *preset; // or NULL: `type` for all
    struct lp_quant_shape shape;
    lp_type type, experts, experts_down;
    bool has_experts;   // these two are the routed experts' types
    uint32_t file_type; // general.file_type; 0: none fits
};

// Errors: INVALID (names the preset or type, and lists what there is).
lp_status lp_synth_types(struct lp_synth_types *out, const struct lp_synth_options *options,
                         const struct lp_hparams *h, struct lp_err *err);

// Where rows are no multiple of its block: the next type that takes them (lp_quant_fallback).
lp_type lp_synth_type(const struct lp_synth_types *types, const struct lp_expected *tensor);
bool lp_synth_is_experts(const struct lp_expected *tensor); // a stack of routed experts

#endif
