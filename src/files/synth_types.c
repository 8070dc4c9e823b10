#include "files/synth_types.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool find_type(const char *name, lp_type *out) {
    for (uint32_t id = 0; id < LP_TYPE_COUNT; id++) {
        const struct lp_type_info *info = lp_type_info(id);
        if (!info || !info->is_weight || info->in_memory_only || strcasecmp(info->name, name) != 0)
            continue;
        *out = info->id;
        return true;
    }
    return false;
}

static lp_status unknown(const char *name, struct lp_err *err) {
    return lp_err_set(err, LP_STATUS_INVALID,
                      "'%s' is neither a preset (%s) nor a type of weights, such as IQ2_XXS", name,
                      lp_quant_preset_list());
}

// "Q2_K" or "Q2_K,Q3_K"
static lp_status read_experts(struct lp_synth_types *out, const char *names, struct lp_err *err) {
    char first[32];
    const char *comma = strchr(names, ','), *second = comma ? comma + 1 : names;
    snprintf(first, sizeof first, "%.*s", comma ? (int)(comma - names) : 31, names);
    out->has_experts = true;
    if (!find_type(first, &out->experts)) return unknown(first, err);
    return find_type(second, &out->experts_down) ? LP_OK : unknown(second, err);
}

lp_status lp_synth_types(struct lp_synth_types *out, const struct lp_synth_options *options,
                         const struct lp_hparams *h, struct lp_err *err) {
    bool moe = h->n_experts > 0;
    *out = (struct lp_synth_types){0};
    out->shape = (struct lp_quant_shape){
        .n_layers = h->n_layers,
        .first_moe = moe ? h->n_dense : -1,
        .has_output = true,
        .shares_values = h->arch->attention == LP_ATTENTION_MLA ||
                         (h->n_kv_heads > 0 && h->n_heads / h->n_kv_heads >= 4),
    };
    out->preset = lp_quant_preset_find(options->types);
    if (!out->preset && !find_type(options->types, &out->type)) return unknown(options->types, err);
    if (out->preset) out->file_type = lp_quant_preset_file_type(out->preset);
    if (out->preset && lp_quant_preset_needs_experts(out->preset) && !moe)
        return lp_err_set(err, LP_STATUS_INVALID, "the preset %s is for models with experts",
                          lp_quant_preset_name(out->preset));
    return options->experts ? read_experts(out, options->experts, err) : LP_OK;
}

bool lp_synth_is_experts(const struct lp_expected *t) {
    return t->slot == LP_SLOT_GATE_EXPS || t->slot == LP_SLOT_UP_EXPS ||
           t->slot == LP_SLOT_DOWN_EXPS;
}

lp_type lp_synth_type(const struct lp_synth_types *types, const struct lp_expected *t) {
    struct lp_str name = lp_str_from(t->name);
    lp_type type = types->type;
    if (types->preset)
        type = lp_quant_preset_type(types->preset, &types->shape, lp_quant_role_of(name, t->n_dims),
                                    t->block);
    if (types->has_experts && lp_synth_is_experts(t))
        type = t->slot == LP_SLOT_DOWN_EXPS ? types->experts_down : types->experts;
    type = lp_quant_fallback(type, t->ne[0]);
    // one that the quantiser does not write has no place on its ladder
    bool fits = t->ne[0] % lp_type_info((uint32_t)type)->block_values == 0;
    return fits ? type : lp_quant_fallback(LP_TYPE_Q8_0, t->ne[0]);
}
