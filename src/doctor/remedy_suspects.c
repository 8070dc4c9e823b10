// Remedies for what the weights stage suspects.
#include <stdio.h>

#include "doctor/remedies.h"

static const struct lp_suspect *suspect_of(struct lp_trial *t, const struct lp_remedy *r) {
    return &t->exam->suspects[r->suspect];
}

// The slot and layer of a tensor; false for one that is not part of a layer.
static bool find_slot(const struct lp_model *m, const struct lp_gguf_tensor *tensor, int32_t *layer,
                      enum lp_slot *slot) {
    for (int32_t l = 0; l < m->h.n_layers && tensor; l++)
        for (int s = 0; s < LP_N_SLOTS; s++)
            if (m->binding.blocks[l].tensor[s] == tensor) {
                *layer = l;
                *slot = (enum lp_slot)s;
                return true;
            }
    return false;
}

static struct lp_weight *weight_of(struct lp_trial *t, const struct lp_gguf_tensor *tensor) {
    int32_t layer;
    enum lp_slot slot;
    const struct lp_gguf_tensor **model = t->model->binding.model.tensor;
    if (tensor && tensor == model[LP_SLOT_OUTPUT]) return &t->model->output;
    if (tensor && tensor == model[LP_SLOT_TOKEN_EMBD]) return &t->model->token_embd;
    return find_slot(t->model, tensor, &layer, &slot) ? lp_remedy_weight(t->model, layer, slot)
                                                      : NULL;
}

// Where the model keeps the weights of a norm, and how many they are; NULL for another tensor.
static const float **vector_of(struct lp_trial *t, const struct lp_gguf_tensor *tensor, size_t *n) {
    int32_t layer;
    enum lp_slot slot;
    struct lp_model *m = t->model;
    *n = (size_t)tensor->ne[0];
    if (tensor == m->binding.model.tensor[LP_SLOT_OUTPUT_NORM]) return &m->output_norm;
    if (!find_slot(m, tensor, &layer, &slot)) return NULL;
    struct lp_layer *l = &m->layers[layer];
    bool mla = m->h.arch->attention == LP_ATTENTION_MLA;
    if (slot == LP_SLOT_ATTN_NORM) return &l->attn_norm;
    if (slot == LP_SLOT_FFN_NORM) return &l->ffn_norm;
    if (slot == LP_SLOT_Q_A_NORM && mla) return &l->mla.q_a_norm;
    if (slot == LP_SLOT_KV_A_NORM && mla) return &l->mla.kv_a_norm;
    if (slot == LP_SLOT_Q_NORM && !mla) return &l->gqa.q_norm;
    if (slot == LP_SLOT_K_NORM && !mla) return &l->gqa.k_norm;
    return NULL;
}

static void transpose(struct lp_trial *t, const struct lp_remedy *r) {
    lp_patch_transpose(&t->patch, weight_of(t, suspect_of(t, r)->tensor));
}

static void rescale(struct lp_trial *t, const struct lp_remedy *r) {
    const struct lp_suspect *s = suspect_of(t, r);
    double factor = s->kind == LP_SUSPECT_SIGN ? -1 : 1 / s->factor;
    size_t n;
    const float **vector = vector_of(t, s->tensor, &n);
    if (vector)
        lp_patch_vector(&t->patch, vector, n, (float)factor, 0);
    else
        lp_patch_scale(&t->patch, weight_of(t, s->tensor), (float)factor);
}

static void swap(struct lp_trial *t, const struct lp_remedy *r) {
    const struct lp_suspect *s = suspect_of(t, r);
    struct lp_weight *w = weight_of(t, s->tensor), *other = weight_of(t, s->other);
    bool one_stack = s->expert >= 0 && s->other_expert >= 0 && (!other || other == w);
    if (one_stack && s->expert < w->n_mats && s->other_expert < w->n_mats)
        lp_patch_swap_matrices(&t->patch, w, s->expert, s->other_expert);
    else if (!one_stack && other && w->n_in == other->n_in && w->n_out == other->n_out &&
             w->n_mats == other->n_mats)
        lp_patch_swap(&t->patch, w, other, sizeof *w);
    else
        t->patch.failed = true;
}

static struct lp_remedy *add(struct lp_trial *t, int32_t number, const char *change,
                             void (*apply)(struct lp_trial *, const struct lp_remedy *)) {
    const struct lp_suspect *s = &t->exam->suspects[number];
    struct lp_remedy *r = lp_trial_add(t, apply);
    int32_t other = s->other ? lp_exam_layer_of(s->other) : s->layer;
    r->suspect = number;
    r->layer = s->layer;
    r->from_layer = other < s->layer ? other : s->layer;
    if (r->from_layer < 0 || s->layer >= t->model->h.n_layers) r->from_layer = 0;
    snprintf(r->what, sizeof r->what, "%.*s", LP_STR_ARGS(s->tensor->name));
    snprintf(r->cause, sizeof r->cause, "%.200s", s->text);
    snprintf(r->change, sizeof r->change, "%s", change);
    snprintf(r->repair, sizeof r->repair, "convert the model again, or download it again");
    return r;
}

void lp_remedies_of_suspects(struct lp_trial *t) {
    for (int32_t i = 0; i < t->exam->n_suspects; i++) {
        const struct lp_suspect *s = &t->exam->suspects[i];
        size_t n;
        bool of_size = s->kind == LP_SUSPECT_SCALE || s->kind == LP_SUSPECT_SIGN;
        bool norm = of_size && vector_of(t, s->tensor, &n);
        if (!norm && !weight_of(t, s->tensor)) continue; // a bias, or of the MTP layer
        if (s->kind == LP_SUSPECT_TRANSPOSED)
            add(t, i, "with it transposed", transpose);
        else if (s->kind == LP_SUSPECT_SCALE && s->factor > 0)
            add(t, i, "with it scaled back", rescale);
        else if (s->kind == LP_SUSPECT_SIGN)
            add(t, i, "with its sign turned", rescale);
        else if (s->kind == LP_SUSPECT_SWAPPED)
            add(t, i, "with the two exchanged", swap);
        else if (s->kind == LP_SUSPECT_PERMUTED && s->layer >= 0)
            lp_remedies_of_orders(t, s->layer);
    }
}
