#include "files/quantize_plan.h"

#include <string.h>

#include "base/alloc.h"

#define MAX_ROW_VALUES ((uint64_t)1 << 24)

// ---- the model's shape

static struct lp_quant_shape shape_of(const struct lp_source *source, bool has_importance) {
    struct lp_quant_shape shape = {.first_moe = -1, .has_importance = has_importance};
    int32_t first_nextn = INT32_MAX;
    uint64_t q_rows = 0, v_rows = 0;
    for (uint64_t i = 0; i < source->n_tensors; i++) {
        const struct lp_source_tensor *t = &source->tensors[i];
        int32_t block = lp_quant_block_of(t->name);
        if (block >= shape.n_layers) shape.n_layers = block + 1;
        if (lp_quant_name_has(t->name, ".nextn.") && block >= 0 && block < first_nextn)
            first_nextn = block;
        if (lp_quant_name_has(t->name, "_exps.weight") &&
            (shape.first_moe < 0 || block < shape.first_moe))
            shape.first_moe = block;
        if (lp_str_is(t->name, "output.weight")) shape.has_output = true;
        if (lp_quant_name_has(t->name, ".attn_kv_a_mqa.")) shape.shares_values = true;
        if (lp_quant_name_ends(t->name, ".attn_q.weight")) q_rows = t->ne[1];
        if (lp_quant_name_ends(t->name, ".attn_v.weight")) v_rows = t->ne[1];
    }
    if (first_nextn < shape.n_layers) shape.n_layers = first_nextn;
    if (v_rows && q_rows / v_rows >= 4) shape.shares_values = true;
    return shape;
}

// ---- types

static lp_status choose_type(struct lp_quant_plan *plan, const struct lp_quantize_options *o,
                             struct lp_quant_item *item, struct lp_err *err) {
    const struct lp_source_tensor *t = item->tensor;
    bool found;
    item->wanted = t->type;
    item->why = LP_WHY_KEPT;
    lp_status status =
        lp_quant_rules_apply(&plan->rules, t->name, item->role, &found, &item->wanted, err);
    if (status) return status;
    if (found) {
        item->why = LP_WHY_RULE;
        if (item->wanted == LP_QUANT_KEEP) item->wanted = t->type;
    } else if (item->role != LP_ROLE_KEEP && item->role != LP_ROLE_SCALE &&
               lp_type_info((uint32_t)t->type)->dequant) { // integers are no weights
        item->why = LP_WHY_PRESET;
        item->wanted = o->pure ? lp_quant_preset_base(plan->preset)
                               : lp_quant_preset_type(plan->preset, &plan->shape, item->role,
                                                      lp_quant_block_of(t->name));
    }
    item->to = item->wanted;
    if (item->why != LP_WHY_KEPT && item->to != t->type)
        item->to = lp_quant_fallback(item->wanted, t->ne[0]);
    item->copied = item->to == t->type;
    plan->n_fallback += item->to != item->wanted;
    return LP_OK;
}

// From these nothing is lost that the new type would keep.
static bool is_good_source(lp_type type) {
    return lp_type_info((uint32_t)type)->block_values == 1 || type == LP_TYPE_Q8_0;
}

static lp_status check_source(struct lp_quant_plan *plan, const struct lp_quantize_options *o,
                              const struct lp_quant_item *item, struct lp_err *err) {
    const struct lp_source_tensor *t = item->tensor;
    const struct lp_type_info *type = lp_type_info((uint32_t)t->type);
    if (t->ne[0] > MAX_ROW_VALUES)
        return lp_err_set(err, LP_STATUS_LIMIT, "tensor %.*s has rows of %llu values, at most %llu",
                          LP_STR_ARGS(t->name), (unsigned long long)t->ne[0],
                          (unsigned long long)MAX_ROW_VALUES);
    if (item->copied) return LP_OK;
    if (!type->dequant)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "tensor %.*s is %s, which is no type of a weight; leave it out of the "
                          "rules",
                          LP_STR_ARGS(t->name), type->name);
    if (is_good_source(t->type)) return LP_OK;
    plan->n_lossy++;
    if (o->allow_requantize) return LP_OK;
    return lp_err_set(err, LP_STATUS_INVALID,
                      "tensor %.*s is %s already: %s made from it would have the errors of both. "
                      "Quantise a file of F32, F16, BF16 or Q8_0, or say --allow-requantize",
                      LP_STR_ARGS(t->name), type->name, lp_type_info((uint32_t)item->to)->name);
}

// ---- importances

bool lp_quant_uses_importance(const struct lp_quant_item *item) {
    return !item->copied && lp_type_info((uint32_t)item->to)->block_values > 1 &&
           item->to != LP_TYPE_Q8_0;
}

static lp_status count_unmet(struct lp_quant_plan *plan, const struct lp_quant_item *item,
                             struct lp_err *err) {
    const struct lp_source_tensor *t = item->tensor;
    uint64_t n_mats = t->ne[2] * t->ne[3];
    float *means = lp_alloc(t->ne[0], sizeof *means);
    if (!means) return lp_err_memory(err, t->ne[0] * sizeof *means, "importances");
    plan->n_experts += n_mats;
    for (uint64_t m = 0; m < n_mats; m++)
        plan->n_unmet += !lp_imatrix_means(item->importance, t->ne[0], n_mats, m, means);
    lp_free(means);
    return LP_OK;
}

static lp_status find_importance(struct lp_quant_plan *plan, struct lp_quant_item *item,
                                 struct lp_err *err) {
    const struct lp_source_tensor *t = item->tensor;
    if (!plan->imatrix || !lp_quant_uses_importance(item)) return LP_OK;
    item->importance = lp_imatrix_find(plan->imatrix, t->name);
    if (!item->importance) {
        plan->n_unimportant++;
        return LP_OK;
    }
    if (lp_imatrix_fits(item->importance, t->ne[0], t->ne[2] * t->ne[3])) {
        lp_status status = lp_imatrix_check(item->importance, err);
        return status ? status : count_unmet(plan, item, err);
    }
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "the importance matrix has %llu values for %.*s, whose %llu matrices have "
                      "%llu columns; it was made with another model",
                      (unsigned long long)item->importance->n_values, LP_STR_ARGS(t->name),
                      (unsigned long long)(t->ne[2] * t->ne[3]), (unsigned long long)t->ne[0]);
}

// ---- the list

// NAME.scale, NAME.input_scale stay beside a NAME.weight that is copied.
static bool is_dropped(const struct lp_quant_plan *plan, const struct lp_quant_item *scale) {
    struct lp_str name = scale->tensor->name;
    char weight[96];
    size_t stem = name.len - (lp_quant_name_ends(name, ".input_scale") ? 12 : 6);
    if (scale->role != LP_ROLE_SCALE || stem + 8 > sizeof weight) return false;
    memcpy(weight, name.data, stem);
    memcpy(weight + stem, ".weight", 7);
    const struct lp_source_tensor *t =
        lp_source_find(&plan->source, (struct lp_str){weight, stem + 7});
    return t && !plan->items[t - plan->source.tensors].copied;
}

static lp_status make_items(struct lp_quant_plan *plan, const struct lp_quantize_options *o,
                            struct lp_err *err) {
    lp_status status = LP_OK;
    plan->items = lp_alloc(plan->source.n_tensors, sizeof *plan->items);
    if (!plan->items)
        return lp_err_memory(err, plan->source.n_tensors * sizeof *plan->items, "the tensors");
    for (uint64_t i = 0; i < plan->source.n_tensors && !status; i++) {
        struct lp_quant_item *item = &plan->items[i];
        item->tensor = &plan->source.tensors[i];
        item->role = lp_quant_role_of(item->tensor->name, item->tensor->n_dims);
        status = choose_type(plan, o, item, err);
        if (!status) status = check_source(plan, o, item, err);
        if (!status) status = find_importance(plan, item, err);
    }
    if (!status) status = lp_quant_rules_check(&plan->rules, err);
    return status;
}

static lp_status add_tensors(struct lp_quant_plan *plan, struct lp_err *err) {
    uint64_t n = 0;
    bool *dropped = lp_alloc(plan->source.n_tensors, sizeof *dropped);
    if (!dropped) return lp_err_memory(err, plan->source.n_tensors, "the tensors");
    for (uint64_t i = 0; i < plan->source.n_tensors; i++)
        dropped[i] = is_dropped(plan, &plan->items[i]);
    lp_status status = LP_OK;
    for (uint64_t i = 0; i < plan->source.n_tensors && !status; i++) {
        struct lp_quant_item item = plan->items[i];
        const struct lp_source_tensor *t = item.tensor;
        plan->n_dropped += dropped[i];
        if (dropped[i]) continue;
        status = lp_gguf_writer_add(plan->source.writer, t->name, item.to, t->n_dims, t->ne, err);
        uint64_t row_bytes = 0;
        lp_type_row_bytes(item.to, t->ne[0], &row_bytes); // checked by add
        item.n_bytes = row_bytes * t->n_rows;
        plan->n_bytes += item.n_bytes;
        plan->n_values += t->ne[0] * t->n_rows;
        plan->items[n++] = item;
    }
    plan->n_items = n;
    lp_free(dropped);
    return status;
}

// ---- the header

static void set_keys(struct lp_quant_plan *plan, const struct lp_quantize_options *o) {
    static const char *const from_imatrix[] = {"quantize.imatrix.file", "quantize.imatrix.dataset",
                                               "quantize.imatrix.entries_count",
                                               "quantize.imatrix.chunks_count"};
    struct lp_gguf_writer *w = plan->source.writer;
    lp_gguf_writer_u32(w, "general.file_type", lp_quant_preset_file_type(plan->preset));
    lp_gguf_writer_u32(w, "general.quantization_version", 2);
    for (int i = 0; i < 4; i++) lp_gguf_writer_remove(w, from_imatrix[i]);
    if (!plan->imatrix) return;
    lp_gguf_writer_str(w, from_imatrix[0], lp_str_from(o->imatrix));
    if (lp_imatrix_dataset(plan->imatrix).len)
        lp_gguf_writer_str(w, from_imatrix[1], lp_imatrix_dataset(plan->imatrix));
    lp_gguf_writer_u32(w, from_imatrix[2], (uint32_t)lp_imatrix_n_entries(plan->imatrix));
    if (lp_imatrix_n_chunks(plan->imatrix))
        lp_gguf_writer_u32(w, from_imatrix[3], lp_imatrix_n_chunks(plan->imatrix));
}

static lp_status find_preset(struct lp_quant_plan *plan, const struct lp_quantize_options *o,
                             struct lp_err *err) {
    plan->preset = lp_quant_preset_find(o->preset);
    if (!plan->preset)
        return lp_err_set(err, LP_STATUS_INVALID, "there is no preset '%s'; there are %s",
                          o->preset, lp_quant_preset_list());
    return LP_OK;
}

static lp_status check_model(const struct lp_quant_plan *plan, struct lp_err *err) {
    if (plan->source.n_tensors == 0)
        return lp_err_set(err, LP_STATUS_FORMAT, "the file has no tensors");
    if (lp_quant_preset_needs_experts(plan->preset) && plan->shape.first_moe < 0)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "%s is for models with routed experts, which this one has not; take "
                          "Q4_K_M or Q5_K_M",
                          lp_quant_preset_name(plan->preset));
    return LP_OK;
}

lp_status lp_quant_plan_make(struct lp_quant_plan *out, const struct lp_quantize_options *o,
                             struct lp_err *err) {
    *out = (struct lp_quant_plan){0};
    lp_status status = find_preset(out, o, err);
    if (!status && o->rules) status = lp_quant_rules_read(&out->rules, o->rules, err);
    if (!status && o->imatrix) status = lp_imatrix_open(&out->imatrix, o->imatrix, err);
    if (!status) status = lp_source_open(&out->source, o->input, err);
    if (status) return status;
    out->shape = shape_of(&out->source, out->imatrix != NULL);
    status = check_model(out, err);
    if (!status) status = make_items(out, o, err);
    if (!status) status = add_tensors(out, err);
    if (status) return status;
    set_keys(out, o);
    return lp_gguf_writer_finish(out->source.writer, err);
}

void lp_quant_plan_release(struct lp_quant_plan *plan) {
    lp_free(plan->items);
    lp_quant_rules_release(&plan->rules);
    lp_imatrix_close(plan->imatrix);
    lp_source_release(&plan->source);
    *plan = (struct lp_quant_plan){0};
}
