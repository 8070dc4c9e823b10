// Remedies that change one tensor, or a pair of them, of one layer or of all: transposes, orders of
// rotated rows, swaps, signs, the order of layers.
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/remedies.h"

#define CONVERT "convert the model again, or take the file from another source"

static const struct place { // where a slot's weight lies in a layer
    enum lp_slot slot;
    const char *name;
    size_t offset;
} places[] = {
#define LAYER(slot, name, member)                                                                  \
    { LP_SLOT_##slot, name, offsetof(struct lp_layer, member) }
    LAYER(Q_A, "attn_q_a.weight", mla.q_a),
    LAYER(Q_B, "attn_q_b.weight", mla.q_b),
    LAYER(KV_A, "attn_kv_a_mqa.weight", mla.kv_a),
    LAYER(K_B, "attn_k_b.weight", mla.k_up),
    LAYER(V_B, "attn_v_b.weight", mla.v_up),
    LAYER(INDEX_Q, "indexer.attn_q_b.weight", mla.index_q),
    LAYER(INDEX_K, "indexer.attn_k.weight", mla.index_k),
    LAYER(INDEX_PROJ, "indexer.proj.weight", mla.index_proj),
    LAYER(K, "attn_k.weight", gqa.k),
    LAYER(V, "attn_v.weight", gqa.v),
    LAYER(ATTN_OUTPUT, "attn_output.weight", attn_output),
    LAYER(FFN_GATE, "ffn_gate.weight", dense.gate),
    LAYER(FFN_UP, "ffn_up.weight", dense.up),
    LAYER(FFN_DOWN, "ffn_down.weight", dense.down),
    LAYER(ROUTER, "ffn_gate_inp.weight", router),
    LAYER(GATE_EXPS, "ffn_gate_exps.weight", experts.gate),
    LAYER(UP_EXPS, "ffn_up_exps.weight", experts.up),
    LAYER(DOWN_EXPS, "ffn_down_exps.weight", experts.down),
    LAYER(GATE_SHEXP, "ffn_gate_shexp.weight", shared.gate),
    LAYER(UP_SHEXP, "ffn_up_shexp.weight", shared.up),
    LAYER(DOWN_SHEXP, "ffn_down_shexp.weight", shared.down),
#undef LAYER
};
#define N_PLACES (sizeof places / sizeof places[0])

struct lp_weight *lp_remedy_weight(struct lp_model *m, int32_t l, enum lp_slot slot) {
    struct lp_layer *layer = &m->layers[l];
    struct lp_weight *w = NULL;
    bool mla = m->h.arch->attention == LP_ATTENTION_MLA;
    if (slot == LP_SLOT_Q) w = mla ? &layer->mla.q : &layer->gqa.q;
    for (size_t i = 0; i < N_PLACES && !w; i++)
        if (places[i].slot == slot) w = (struct lp_weight *)((char *)layer + places[i].offset);
    if (mla && (slot == LP_SLOT_K || slot == LP_SLOT_V)) return NULL;
    return w && w->n_mats ? w : NULL;
}

void lp_remedy_name(const struct lp_model *m, int32_t l, enum lp_slot slot, char *out, size_t n) {
    const struct lp_gguf_tensor *t = l >= 0 ? m->binding.blocks[l].tensor[slot] : NULL;
    const char *name = slot == LP_SLOT_Q ? "attn_q.weight" : "?";
    for (size_t i = 0; i < N_PLACES; i++)
        if (places[i].slot == slot) name = places[i].name;
    if (t)
        snprintf(out, n, "%.*s", LP_STR_ARGS(t->name));
    else if (l >= 0)
        snprintf(out, n, "blk.%d.%s", l, name);
    else
        snprintf(out, n, "%s", name);
}

// Runs `change` on the weight of one layer or of all that have it.
static void each(struct lp_trial *t, const struct lp_remedy *r,
                 void (*change)(struct lp_trial *, const struct lp_remedy *, struct lp_weight *)) {
    for (int32_t l = 0; l < t->model->h.n_layers && !t->patch.failed; l++) {
        if (r->layer >= 0 && l != r->layer) continue;
        struct lp_weight *w = lp_remedy_weight(t->model, l, r->slot);
        if (w) change(t, r, w);
    }
}

// The one layer that has a slot; -1 where several have it.
static int32_t only_layer(struct lp_trial *t, enum lp_slot slot) {
    int32_t only = -1;
    for (int32_t l = 0; l < t->model->h.n_layers; l++) {
        if (!lp_remedy_weight(t->model, l, slot)) continue;
        if (only >= 0) return -1;
        only = l;
    }
    return only;
}

// A remedy that accuses the tensor of a slot.
static struct lp_remedy *add(struct lp_trial *t,
                             void (*apply)(struct lp_trial *, const struct lp_remedy *),
                             int32_t layer, enum lp_slot slot, const char *looks,
                             const char *change) {
    struct lp_remedy *r = lp_trial_add(t, apply);
    if (layer < 0) layer = only_layer(t, slot);
    r->layer = layer;
    r->per_layer = true;
    r->from_layer = layer < 0 ? 0 : layer;
    r->slot = slot;
    lp_remedy_name(t->model, layer, slot, r->what, sizeof r->what);
    snprintf(r->cause, sizeof r->cause, "%s%s looks %s", r->what,
             layer < 0 ? " of every layer" : "", looks);
    snprintf(r->change, sizeof r->change, "%s", change);
    snprintf(r->repair, sizeof r->repair, CONVERT);
    return r;
}

static bool has(struct lp_trial *t, int32_t layer, enum lp_slot slot) {
    for (int32_t l = 0; l < t->model->h.n_layers; l++)
        if ((layer < 0 || l == layer) && lp_remedy_weight(t->model, l, slot)) return true;
    return false;
}

// ---- transposes and signs -----------------------------------------------------------------------

static void transpose_one(struct lp_trial *t, const struct lp_remedy *r, struct lp_weight *w) {
    (void)r;
    lp_patch_transpose(&t->patch, w);
}

static void transpose(struct lp_trial *t, const struct lp_remedy *r) {
    each(t, r, transpose_one);
}

static void negate_one(struct lp_trial *t, const struct lp_remedy *r, struct lp_weight *w) {
    (void)r;
    lp_patch_scale(&t->patch, w, -1);
}

static void negate(struct lp_trial *t, const struct lp_remedy *r) {
    each(t, r, negate_one);
}

// The heads' up-projections are the classic; others only where both ways have the same shape.
static bool may_be_transposed(struct lp_trial *t, int32_t layer, enum lp_slot slot) {
    if (slot == LP_SLOT_ROUTER || slot == LP_SLOT_INDEX_Q || slot == LP_SLOT_INDEX_K ||
        slot == LP_SLOT_INDEX_PROJ)
        return false;
    for (int32_t l = 0; l < t->model->h.n_layers; l++) {
        const struct lp_weight *w =
            layer < 0 || l == layer ? lp_remedy_weight(t->model, l, slot) : NULL;
        if (w) return slot == LP_SLOT_K_B || slot == LP_SLOT_V_B || w->n_in == w->n_out;
    }
    return false;
}

static void list_transposes(struct lp_trial *t, int32_t layer) {
    for (size_t i = 0; i < N_PLACES; i++)
        if (may_be_transposed(t, layer, places[i].slot))
            add(t, transpose, layer, places[i].slot, "transposed", "with it transposed");
    if (may_be_transposed(t, layer, LP_SLOT_Q))
        add(t, transpose, layer, LP_SLOT_Q, "transposed", "with it transposed");
}

// Two signs may come to the same (of attn_output and attn_v_b, of down and up): those that write to
// the residual stream are listed first, and the other is named beside.
static void list_signs(struct lp_trial *t, int32_t layer) {
    for (size_t i = N_PLACES; i-- > 0;) {
        enum lp_slot slot = places[i].slot;
        if (!has(t, layer, slot) || slot == LP_SLOT_Q_A || slot == LP_SLOT_INDEX_Q ||
            slot == LP_SLOT_INDEX_K || slot == LP_SLOT_INDEX_PROJ)
            continue;
        add(t, negate, layer, slot, "negated", "with its sign turned");
    }
}

// ---- the order of rotated rows ------------------------------------------------------------------

// Heads of `stride` rows, whose rotated ones begin at `first`.
struct rotated {
    int64_t n_heads, stride, first, width;
};

static bool rotated_rows(const struct lp_model *m, enum lp_slot slot, struct rotated *out) {
    const struct lp_hparams *h = &m->h;
    bool mla = h->arch->attention == LP_ATTENTION_MLA;
    int64_t head = mla ? h->nope + h->rope_dim : h->head_dim, first = mla ? h->nope : 0;
    switch (slot) {
    case LP_SLOT_Q:
    case LP_SLOT_Q_B:
        *out = (struct rotated){h->n_heads, head, first, h->rope_width};
        break;
    case LP_SLOT_K:
        *out = (struct rotated){h->n_kv_heads, head, 0, h->rope_width};
        break;
    case LP_SLOT_KV_A:
        *out = (struct rotated){1, h->latent + h->rope_dim, h->latent, h->rope_width};
        break;
    case LP_SLOT_INDEX_Q:
        *out = (struct rotated){h->index_heads, h->index_width, 0, h->rope_width};
        break;
    case LP_SLOT_INDEX_K:
        *out = (struct rotated){1, h->index_width, 0, h->rope_width};
        break;
    default:
        return false;
    }
    return true;
}

void lp_remedy_reorder(struct lp_patch *patch, struct lp_model *m, int32_t layer, enum lp_slot slot,
                       bool to_halves) {
    struct rotated x;
    struct lp_weight *w = lp_remedy_weight(m, layer, slot);
    if (!w || !rotated_rows(m, slot, &x)) return;
    int64_t *order = lp_alloc((size_t)w->n_out, sizeof *order), half = x.width / 2;
    if (!order) {
        patch->failed = true;
        return;
    }
    for (int64_t i = 0; i < w->n_out; i++) order[i] = i;
    for (int64_t head = 0; head < x.n_heads; head++) {
        int64_t base = head * x.stride + x.first, *rows = order + base;
        for (int64_t i = 0; i < half; i++) {
            rows[to_halves ? i : 2 * i] = base + (to_halves ? 2 * i : i);
            rows[to_halves ? i + half : 2 * i + 1] = base + (to_halves ? 2 * i + 1 : i + half);
        }
    }
    lp_patch_reorder_rows(patch, w, order);
    lp_free(order);
}

// a 0: from split halves to adjacent pairs, 1: the other way.
static void reorder_slot(struct lp_trial *t, const struct lp_remedy *r, enum lp_slot slot) {
    for (int32_t l = 0; l < t->model->h.n_layers && !t->patch.failed; l++)
        if (r->layer < 0 || l == r->layer)
            lp_remedy_reorder(&t->patch, t->model, l, slot, r->a != 0);
}

static void reorder(struct lp_trial *t, const struct lp_remedy *r) {
    reorder_slot(t, r, r->slot);
}

// Queries and keys together.
static void reorder_both(struct lp_trial *t, const struct lp_remedy *r) {
    bool mla = t->model->h.arch->attention == LP_ATTENTION_MLA;
    reorder_slot(t, r, r->slot);
    reorder_slot(t, r, mla ? LP_SLOT_KV_A : LP_SLOT_K);
}

void lp_remedies_of_orders(struct lp_trial *t, int32_t layer) {
    static const enum lp_slot slots[] = {LP_SLOT_Q, LP_SLOT_Q_B, LP_SLOT_K, LP_SLOT_KV_A};
    static const char *const orders[] = {
        "to have its rotated rows in split halves instead of adjacent pairs",
        "to have its rotated rows in adjacent pairs instead of split halves"};
    bool mla = t->model->h.arch->attention == LP_ATTENTION_MLA;
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        for (int a = 0; a < 2 && has(t, layer, slots[i]); a++)
            add(t, reorder, layer, slots[i], orders[a], "with them reordered")->a = a;
    enum lp_slot query = has(t, layer, LP_SLOT_Q) ? LP_SLOT_Q : LP_SLOT_Q_B;
    for (int a = 0; a < 2 && has(t, layer, query); a++) {
        struct lp_remedy *r = add(t, reorder_both, layer, query, orders[a], "with both reordered");
        char key[64];
        r->a = a;
        lp_remedy_name(t->model, layer, mla ? LP_SLOT_KV_A : LP_SLOT_K, key, sizeof key);
        snprintf(r->cause, sizeof r->cause, "%s and %s%s look as if their rotated rows were in %s",
                 r->what, key, layer < 0 ? " of every layer" : "",
                 a ? "adjacent pairs instead of split halves"
                   : "split halves instead of adjacent pairs");
    }
}

// ---- swaps --------------------------------------------------------------------------------------

static void swap_gate_up(struct lp_trial *t, const struct lp_remedy *r) {
    for (int32_t l = 0; l < t->model->h.n_layers; l++) {
        struct lp_layer *w = &t->model->layers[l];
        struct lp_ffn *ffn = r->a == 0 ? &w->dense : r->a == 1 ? &w->experts : &w->shared;
        if ((r->layer < 0 || l == r->layer) && ffn->gate.data)
            lp_patch_swap(&t->patch, &ffn->gate, &ffn->up, sizeof ffn->gate);
    }
}

static void swap_norms(struct lp_trial *t, const struct lp_remedy *r) {
    for (int32_t l = 0; l < t->model->h.n_layers; l++) {
        struct lp_layer *w = &t->model->layers[l];
        if (r->layer < 0 || l == r->layer)
            lp_patch_swap(&t->patch, &w->attn_norm, &w->ffn_norm, sizeof w->attn_norm);
    }
}

static void list_swaps(struct lp_trial *t, int32_t layer) {
    static const enum lp_slot gates[] = {LP_SLOT_FFN_GATE, LP_SLOT_GATE_EXPS, LP_SLOT_GATE_SHEXP};
    for (int a = 0; a < 3; a++)
        if (has(t, layer, gates[a]))
            add(t, swap_gate_up, layer, gates[a], "swapped with the up matrix",
                "with gate and up exchanged")
                ->a = a;
    struct lp_remedy *r = lp_trial_add(t, swap_norms);
    r->layer = layer;
    r->per_layer = true;
    r->from_layer = layer < 0 ? 0 : layer;
    if (layer < 0)
        snprintf(r->what, sizeof r->what, "attn_norm.weight");
    else
        snprintf(r->what, sizeof r->what, "blk.%d.attn_norm.weight", layer);
    snprintf(r->cause, sizeof r->cause, "%s and the layer's ffn_norm.weight look swapped", r->what);
    snprintf(r->change, sizeof r->change, "with them exchanged");
    snprintf(r->repair, sizeof r->repair, CONVERT);
}

void lp_remedies_of_layer(struct lp_trial *t, int32_t layer) {
    list_transposes(t, layer);
    lp_remedies_of_orders(t, layer);
    list_swaps(t, layer);
    if (layer >= 0) list_signs(t, layer); // nobody negates a tensor in every layer
}

// ---- experts ------------------------------------------------------------------------------------

static void swap_experts(struct lp_trial *t, const struct lp_remedy *r) {
    struct lp_weight *w = lp_remedy_weight(t->model, r->layer, r->slot);
    if (r->slot != LP_SLOT_ROUTER) {
        lp_patch_swap_matrices(&t->patch, w, r->a, r->b);
        return;
    }
    int64_t *order = lp_alloc((size_t)w->n_out, sizeof *order);
    if (!order) {
        t->patch.failed = true;
        return;
    }
    for (int64_t i = 0; i < w->n_out; i++) order[i] = i == r->a ? r->b : i == r->b ? r->a : i;
    lp_patch_reorder_rows(&t->patch, w, order);
    lp_free(order);
}

void lp_remedies_of_experts(struct lp_trial *t, int32_t layer) {
    static const enum lp_slot slots[] = {LP_SLOT_ROUTER, LP_SLOT_GATE_EXPS, LP_SLOT_UP_EXPS,
                                         LP_SLOT_DOWN_EXPS};
    int32_t n = t->model->h.n_experts;
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        for (int32_t a = 0; a < n && has(t, layer, slots[i]); a++)
            for (int32_t b = a + 1; b < n; b++) {
                struct lp_remedy *r =
                    add(t, swap_experts, layer, slots[i],
                        "to have experts in another order than the layer's others", "");
                r->a = a;
                r->b = b;
                snprintf(r->change, sizeof r->change, "with experts %d and %d exchanged", a, b);
            }
}

// ---- layers -------------------------------------------------------------------------------------

static void swap_layers(struct lp_trial *t, const struct lp_remedy *r) {
    lp_patch_swap(&t->patch, &t->model->layers[r->a], &t->model->layers[r->b],
                  sizeof t->model->layers[0]);
}

void lp_remedies_of_sequence(struct lp_trial *t) {
    const struct lp_layer *layers = t->model->layers;
    int32_t n = t->model->h.n_layers, reach = n <= 8 ? n : 1; // few layers: any two
    for (int32_t a = 0; a < n; a++)
        for (int32_t b = a + 1; b < n && b <= a + reach; b++) {
            if (layers[a].mla.indexer != layers[b].mla.indexer) continue; // their caches differ
            struct lp_remedy *r = lp_trial_add(t, swap_layers);
            r->layer = r->from_layer = r->a = a;
            r->b = b;
            snprintf(r->what, sizeof r->what, "blk.%d and blk.%d", a, b);
            snprintf(r->cause, sizeof r->cause, "layers %d and %d look swapped", a, b);
            snprintf(r->change, sizeof r->change, "with the layers exchanged");
            snprintf(r->repair, sizeof r->repair, CONVERT);
        }
}
