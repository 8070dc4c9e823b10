#include "hf/hf_arrays.h"

#include <stdio.h>

#include "base/alloc.h"

// How models are wrapped: alone, or as the language part of a larger one.
static const struct wrapping {
    const char *prefix, *head;
} wrappings[] = {
    {"model.", "lm_head."},
    {"model.language_model.", "lm_head."},
    {"language_model.model.", "language_model.lm_head."},
    {"language_model.", "lm_head."},
    {"", "lm_head."},
};

static bool has(const struct lp_hf_folder *folder, const char *prefix, const char *name) {
    char full[2 * LP_HF_NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return lp_safetensors_find(folder->weights, full) != NULL;
}

static lp_status find_wrapping(struct lp_hf_arrays *a, struct lp_err *err) {
    for (size_t i = 0; i < sizeof wrappings / sizeof wrappings[0]; i++) {
        const char *prefix = wrappings[i].prefix;
        if (!has(a->folder, prefix, "embed_tokens.weight") &&
            !has(a->folder, prefix, "norm.weight") &&
            !has(a->folder, prefix, "layers.0.input_layernorm.weight"))
            continue;
        a->prefix = prefix;
        a->head = wrappings[i].head;
        return LP_OK;
    }
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "the folder %s holds %llu arrays, but no model.embed_tokens.weight: it is no "
                      "language model as limpid knows them",
                      a->folder->name,
                      (unsigned long long)lp_safetensors_count(a->folder->weights));
}

lp_status lp_hf_arrays_init(struct lp_hf_arrays *a, const struct lp_hf_folder *folder,
                            struct lp_err *err) {
    uint64_t n = lp_safetensors_count(folder->weights);
    *a = (struct lp_hf_arrays){.folder = folder, .prefix = "model.", .head = "lm_head."};
    if (n >= LP_MAP_NONE)
        return lp_err_set(err, LP_STATUS_LIMIT, "the folder %s holds %llu arrays", folder->name,
                          (unsigned long long)n);
    a->used = lp_alloc((size_t)n, sizeof *a->used);
    if (!a->used || !lp_map_reserve(&a->names, (size_t)n))
        return lp_err_memory(err, (size_t)n, "the names of arrays");
    for (uint64_t i = 0; i < n; i++)
        if (!lp_map_add(&a->names, lp_str_from(lp_safetensors_at(folder->weights, i)->name),
                        (uint32_t)i, NULL))
            return lp_err_memory(err, (size_t)n, "the names of arrays");
    return find_wrapping(a, err);
}

void lp_hf_arrays_release(struct lp_hf_arrays *a) {
    lp_map_release(&a->names);
    lp_free(a->used);
    *a = (struct lp_hf_arrays){0};
}

void lp_hf_arrays_name(const struct lp_hf_arrays *a, const char *name, char out[LP_HF_NAME_BYTES]) {
    static const char model[] = "model.", head[] = "lm_head.";
    if (strncmp(name, model, sizeof model - 1) == 0)
        snprintf(out, LP_HF_NAME_BYTES, "%s%s", a->prefix, name + sizeof model - 1);
    else if (strncmp(name, head, sizeof head - 1) == 0)
        snprintf(out, LP_HF_NAME_BYTES, "%s%s", a->head, name + sizeof head - 1);
    else
        snprintf(out, LP_HF_NAME_BYTES, "%s", name);
}

static void mark(struct lp_hf_arrays *a, const struct lp_st_array *array) {
    uint32_t i = array ? lp_map_get(&a->names, lp_str_from(array->name)) : LP_MAP_NONE;
    if (i != LP_MAP_NONE) a->used[i] = true;
}

lp_status lp_hf_arrays_take(struct lp_hf_arrays *a, const char *name, struct lp_hf_matrix *out,
                            bool *found, struct lp_err *err) {
    static const char weight[] = ".weight";
    char stem[LP_HF_NAME_BYTES];
    snprintf(stem, sizeof stem, "%s", name);
    size_t n = strlen(stem), suffix = sizeof weight - 1;
    if (n > suffix && strcmp(stem + n - suffix, weight) == 0) stem[n - suffix] = 0;
    lp_status status = lp_hf_matrix_find(out, found, a->folder, stem, err);
    if (status || !*found) return status;
    mark(a, out->values);
    mark(a, out->scale);
    mark(a, out->scale_2);
    return LP_OK;
}

// ---- what is left

static bool ends(const char *name, const char *with) {
    size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

static bool begins_with_any(const char *name, const char *const *with, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strncmp(name, with[i], strlen(with[i])) == 0) return true;
    return false;
}

static const char *companion_of_matrix(const char *name) {
    static const char *const activations[] = {
        ".input_scale", ".input_global_scale", ".output_scale", ".k_scale", ".v_scale",
        ".q_scale",     ".input_zero_point"};
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (ends(name, activations[i]))
            return "a scale of activations, which stay as they are here";
    if (ends(name, ".weight_shape")) return "a shape that the packed array tells by itself";
    return NULL;
}

static const char *reason_in_layer(const struct lp_hf_arrays *a, const struct lp_hf_rest *rest,
                                   int64_t layer, const char *stem) {
    char mtp[LP_HF_NAME_BYTES];
    snprintf(mtp, sizeof mtp, "%slayers.%lld.", a->prefix, (long long)layer);
    if (layer >= rest->n_blocks && has(a->folder, mtp, "eh_proj.weight"))
        return rest->without_mtp ? "next-token-prediction (MTP) layer: left out as asked for"
                                 : "next-token-prediction (MTP) layer that config.json does not "
                                   "name (num_nextn_predict_layers)";
    bool indexer = strncmp(stem, "self_attn.indexer.", 18) == 0;
    if (indexer && layer < rest->n_layers && rest->full && !rest->full[layer])
        return "this layer shares the selection of an earlier one";
    return NULL;
}

static const char *reason(const struct lp_hf_arrays *a, const struct lp_hf_rest *rest,
                          const char *name) {
    static const char *const not_text[] = {"visual.",
                                           "model.visual.",
                                           "vision_tower.",
                                           "model.vision_tower.",
                                           "vision_model.",
                                           "model.vision_model.",
                                           "multi_modal_projector.",
                                           "model.multi_modal_projector.",
                                           "mm_projector.",
                                           "model.mm_projector.",
                                           "audio_tower.",
                                           "model.audio_tower."};
    if (begins_with_any(name, not_text, sizeof not_text / sizeof not_text[0]))
        return "part of the model for images or sound";
    if (ends(name, "rotary_emb.inv_freq")) return "rotary frequencies are computed";
    if (rest->tied && strncmp(name, a->head, strlen(a->head)) == 0)
        return "the output matrix is the embedding (tie_word_embeddings)";
    size_t n = strlen(a->prefix);
    long long layer = -1;
    int used = 0;
    const char *why = NULL;
    if (strncmp(name, a->prefix, n) == 0 &&
        sscanf(name + n, "layers.%6lld.%n", &layer, &used) == 1 && used > 0 && layer >= 0)
        why = reason_in_layer(a, rest, layer, name + n + used);
    return why ? why : companion_of_matrix(name);
}

lp_status lp_hf_arrays_rest(const struct lp_hf_arrays *a, const struct lp_hf_rest *rest,
                            struct lp_hf_ignored **out, uint64_t *n, struct lp_err *err) {
    const struct lp_safetensors *weights = a->folder->weights;
    uint64_t count = lp_safetensors_count(weights), n_unknown = 0;
    struct lp_bytes unknown = {.max_bytes = 600};
    *n = 0;
    if (!(*out = lp_alloc((size_t)count, sizeof **out)))
        return lp_err_memory(err, (size_t)count * sizeof **out, "the arrays that are ignored");
    for (uint64_t i = 0; i < count; i++) {
        const char *name = lp_safetensors_at(weights, i)->name;
        if (a->used[i]) continue;
        const char *why = reason(a, rest, name);
        if (why)
            (*out)[(*n)++] = (struct lp_hf_ignored){name, why};
        else if (++n_unknown <= 4)
            lp_bytes_printf(&unknown, "%s%.120s", n_unknown > 1 ? ", " : "", name);
    }
    lp_status status = LP_OK;
    if (n_unknown)
        status = lp_err_set(
            err, LP_STATUS_FORMAT,
            "%llu array%s of the checkpoint %s unknown (%s%s); the folder may be of a "
            "variant that is not supported",
            (unsigned long long)n_unknown, n_unknown > 1 ? "s" : "", n_unknown > 1 ? "are" : "is",
            unknown.data ? unknown.data : "", n_unknown > 4 ? ", ..." : "");
    lp_bytes_release(&unknown);
    return status;
}
