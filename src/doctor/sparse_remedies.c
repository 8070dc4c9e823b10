// The changes, and the choice of the one that helps most.
#include "doctor/sparse_remedies.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "doctor/remedies.h"

struct trial {
    struct lp_model *model;
    struct lp_patch patch;
};

struct change {
    void (*apply)(struct trial *t, double x);
    double x;
    enum lp_slot slot;  // the tensor that is accused where one layer gains; LP_N_SLOTS: the key
    const char *key;    // what is accused otherwise
    const char *change; // "with ..."
    const char *repair;
};

static int32_t n_layers(const struct trial *t) {
    return t->model->h.n_layers;
}

static struct lp_mla_layer *mla(struct trial *t, int32_t l) {
    return &t->model->layers[l].mla;
}

static void flip_pairing(struct trial *t, double x) {
    (void)x;
    for (int32_t l = 0; l < n_layers(t); l++) {
        enum lp_rope_pairing *at = &mla(t, l)->index_rope.pairing;
        enum lp_rope_pairing other = *at == LP_ROPE_ADJACENT ? LP_ROPE_HALF : LP_ROPE_ADJACENT;
        lp_patch_set(&t->patch, at, &other, sizeof other);
    }
}

static void reorder_queries(struct trial *t, double x) {
    for (int32_t l = 0; l < n_layers(t); l++)
        lp_remedy_reorder(&t->patch, t->model, l, LP_SLOT_INDEX_Q, x != 0);
}

static void reorder_keys(struct trial *t, double x) {
    for (int32_t l = 0; l < n_layers(t); l++)
        lp_remedy_reorder(&t->patch, t->model, l, LP_SLOT_INDEX_K, x != 0);
}

static void reorder_both(struct trial *t, double x) {
    reorder_queries(t, x);
    reorder_keys(t, x);
}

static void set_base(struct trial *t, double x) {
    struct lp_hparams h = t->model->h;
    size_t half = (size_t)h.rope_width / 2;
    float *host = lp_alloc(half, sizeof *host), *device = lp_patch_block(&t->patch, half * 4);
    h.rope_base = (float)x;
    if (host && device) {
        lp_hparams_inv_freq(&h, NULL, host);
        t->model->dev->backend->write(t->model->dev, device, host, half * sizeof *host);
    } else
        t->patch.failed = true;
    const float *value = device;
    for (int32_t l = 0; l < n_layers(t) && device; l++)
        lp_patch_set(&t->patch, &mla(t, l)->index_rope.inv_freq, &value, sizeof value);
    lp_free(host);
}

static void scale_weights(struct trial *t, double x) {
    for (int32_t l = 0; l < n_layers(t); l++) {
        struct lp_weight *w = lp_remedy_weight(t->model, l, LP_SLOT_INDEX_PROJ);
        if (w) lp_patch_scale(&t->patch, w, (float)x);
    }
}

static void drop_key_bias(struct trial *t, double x) {
    for (int32_t l = 0; l < n_layers(t); l++)
        if (mla(t, l)->index_norm_b)
            lp_patch_vector(&t->patch, &mla(t, l)->index_norm_b, (size_t)t->model->h.index_width,
                            (float)x, 0);
}

static void swap_neighbours(struct trial *t, double x) {
    for (int32_t l = (int32_t)x; l + 1 < n_layers(t); l += 2)
        if (mla(t, l)->indexer == LP_INDEXER_FULL && mla(t, l + 1)->indexer == LP_INDEXER_FULL)
            lp_patch_swap(&t->patch, &mla(t, l)->index_q, &mla(t, l + 1)->index_q,
                          sizeof(struct lp_weight));
}

// ---- an indexer of its own for a shared layer ---------------------------------------------------

static const struct lp_gguf_tensor *own_tensor(const struct trial *t, int32_t l, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.indexer.%s", l, name);
    return lp_gguf_find_tensor(t->model->gguf, lp_str_from(full));
}

static float *as_floats(struct trial *t, const struct lp_gguf_tensor *x) {
    size_t n = (size_t)(x->ne[0] * x->ne[1]);
    float *host = lp_alloc(n, sizeof *host), *device = lp_patch_block(&t->patch, n * sizeof *host);
    if (host && device) {
        lp_type_info(x->type)->dequant(lp_gguf_tensor_mat(x, 0), host, n);
        t->model->dev->backend->write(t->model->dev, device, host, n * sizeof *host);
    } else
        t->patch.failed = true;
    lp_free(host);
    return device;
}

// Whether the file has an indexer of the right shapes for a layer that shares another's selection.
static bool has_own(const struct trial *t, int32_t l, const struct lp_gguf_tensor **x) {
    static const char *const names[] = {"attn_q_b.weight", "attn_k.weight", "proj.weight",
                                        "k_norm.weight", "k_norm.bias"};
    const struct lp_hparams *h = &t->model->h;
    const uint64_t rows[] = {(uint64_t)h->index_heads * (uint64_t)h->index_width,
                             (uint64_t)h->index_width, (uint64_t)h->index_heads, 1, 1};
    const uint64_t columns[] = {(uint64_t)h->q_rank, (uint64_t)h->n_embd, (uint64_t)h->n_embd,
                                (uint64_t)h->index_width, (uint64_t)h->index_width};
    for (int i = 0; i < 5; i++) {
        x[i] = own_tensor(t, l, names[i]);
        if (!x[i] || x[i]->ne[0] != columns[i] || x[i]->ne[1] != rows[i] ||
            !lp_type_info(x[i]->type)->dequant)
            return false;
    }
    return t->model->dev->backend->supports(t->model->dev, x[0]->type) &&
           t->model->dev->backend->supports(t->model->dev, x[1]->type);
}

static void use_own(struct trial *t, double x) {
    const struct lp_hparams *h = &t->model->h;
    const struct lp_gguf_tensor *own[5];
    bool any = false;
    (void)x;
    for (int32_t l = 0; l < n_layers(t); l++) {
        struct lp_mla_layer w = *mla(t, l);
        if (w.indexer != LP_INDEXER_SHARED || !has_own(t, l, own)) continue;
        any = true;
        w.indexer = LP_INDEXER_FULL;
        w.index_heads = h->index_heads;
        w.index_width = h->index_width;
        w.index_eps = h->index_eps;
        w.index_scale = 1.0f / sqrtf((float)h->index_heads * (float)h->index_width);
        w.index_rope = (struct lp_rope_spec){h->rope_width, h->arch->index_rope_pairing,
                                             t->model->inv_freq, h->rope_magnitude};
        w.index_q = lp_weight_of(own[0]);
        w.index_k = lp_weight_of(own[1]);
        w.index_proj = lp_weight_of(own[2]);
        w.index_proj.data = as_floats(t, own[2]);
        w.index_proj.type = LP_TYPE_F32;
        w.index_proj.row_bytes = (size_t)h->n_embd * sizeof(float);
        w.index_proj.mat_bytes = w.index_proj.row_bytes * (size_t)h->index_heads;
        w.index_norm_w = as_floats(t, own[3]);
        w.index_norm_b = as_floats(t, own[4]);
        lp_patch_set(&t->patch, mla(t, l), &w, sizeof w);
    }
    if (!any) t->patch.failed = true; // nothing to try
}

#define CONVERT "Convert the model again, or take the file from another source."
#define ROPE_REPAIR                                                                                \
    "The indexer's rotated rows are in the order of another family: convert the model again for "  \
    "this architecture."
static const struct change changes[] = {
    {flip_pairing, 0, LP_N_SLOTS, "indexer rope", "rotated in the other pairing", ROPE_REPAIR},
    {use_own, 0, LP_N_SLOTS, "attention.indexer.types",
     "with the indexers that the file has for its shared layers",
     "Correct attention.indexer.types: these layers compute a selection of their own."},
    {reorder_queries, 0, LP_SLOT_INDEX_Q, NULL, "with its queries' rotated rows reordered",
     CONVERT},
    {reorder_queries, 1, LP_SLOT_INDEX_Q, NULL, "with its queries' rotated rows reordered",
     CONVERT},
    {reorder_keys, 0, LP_SLOT_INDEX_K, NULL, "with its keys' rotated rows reordered", CONVERT},
    {reorder_keys, 1, LP_SLOT_INDEX_K, NULL, "with its keys' rotated rows reordered", CONVERT},
    {reorder_both, 0, LP_N_SLOTS, "indexer rope", "with its rotated rows reordered", ROPE_REPAIR},
    {reorder_both, 1, LP_N_SLOTS, "indexer rope", "with its rotated rows reordered", ROPE_REPAIR},
    {scale_weights, -1, LP_SLOT_INDEX_PROJ, NULL, "with the sign of its head weights turned",
     CONVERT},
    {set_base, 1e4, LP_N_SLOTS, "indexer rope base", "with a base of 1e4", CONVERT},
    {set_base, 1e6, LP_N_SLOTS, "indexer rope base", "with a base of 1e6", CONVERT},
    {set_base, 8e6, LP_N_SLOTS, "indexer rope base", "with a base of 8e6", CONVERT},
    {drop_key_bias, 0, LP_N_SLOTS, "indexer.k_norm.bias", "without the bias of its keys' norm",
     CONVERT},
    {drop_key_bias, -1, LP_N_SLOTS, "indexer.k_norm.bias", "with the sign of its keys' bias turned",
     CONVERT},
    {swap_neighbours, 0, LP_SLOT_INDEX_Q, NULL, "with the neighbouring layer's queries", CONVERT},
    {swap_neighbours, 1, LP_SLOT_INDEX_Q, NULL, "with the neighbouring layer's queries", CONVERT},
};

// ---- choice -------------------------------------------------------------------------------------

static void name_change(const struct trial *t, const struct change *c,
                        struct lp_sparse_remedy *out) {
    const char *arch = c->apply == use_own ? t->model->h.arch->name : "";
    if (c->key)
        snprintf(out->what, sizeof out->what, "%s%s%s", arch, *arch ? "." : "", c->key);
    else
        lp_remedy_name(t->model, out->layer, c->slot, out->what, sizeof out->what);
    snprintf(out->change, sizeof out->change, "%s", c->change);
    snprintf(out->repair, sizeof out->repair, "%s", c->repair);
}

// What a change does for the layers; the layer that gains most stands for it.
static double weigh(const struct trial *t, const struct change *c,
                    const struct lp_recall_layer *base, const struct lp_recall_layer *now,
                    struct lp_sparse_remedy *out) {
    double sum = 0;
    int32_t first = -1, n_judged = 0, top = -1;
    *out = (struct lp_sparse_remedy){.layer = -1};
    for (int pass = 0; pass < 2; pass++)
        for (int32_t l = 0; l < n_layers(t); l++) {
            double skill = lp_recall_skill(&base[l], base[l].selected);
            double gain = lp_recall_skill(&base[l], now[l].selected) - skill;
            if (!isfinite(gain)) continue;
            if (pass == 0) {
                n_judged++;
                if (gain > out->gain) top = l;
                out->gain = fmax(out->gain, gain);
            } else if (gain > LP_SPARSE_GAIN) {
                if (first < 0) first = l;
                out->n_layers++;
                sum += gain;
            }
        }
    if (top < 0) return 0;
    double after = lp_recall_skill(&base[top], now[top].selected);
    out->convinces = out->gain > LP_SPARSE_GAIN && after > LP_SPARSE_REPAIRED;
    out->layer = 3 * out->n_layers >= 2 * n_judged && out->n_layers > 1 ? -1 : first;
    out->before = base[top].selected;
    out->after = now[top].selected;
    name_change(t, c, out);
    return out->convinces ? sum : out->gain;
}

lp_status lp_sparse_remedies(struct lp_exam *exam, struct lp_recall *recall,
                             const struct lp_recall_layer *base, double limit_s,
                             struct lp_sparse_remedy *best, size_t *n_tried, struct lp_err *err) {
    struct trial t = {.model = lp_lab_model(exam->fast_lab)};
    struct lp_recall_layer *now = lp_alloc((size_t)n_layers(&t), sizeof *now);
    lp_status status =
        now ? LP_OK : lp_err_memory(err, (size_t)n_layers(&t) * sizeof *now, "layers");
    uint64_t end = lp_clock_ns() + (uint64_t)(limit_s * 1e9);
    double best_sum = 0;
    t.patch.dev = t.model->dev;
    *best = (struct lp_sparse_remedy){.layer = -1};
    *n_tried = 0;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0] && !status; i++) {
        struct lp_sparse_remedy found;
        double base_now = t.model->h.rope_base;
        if (lp_clock_ns() > end) break;
        if (changes[i].apply == set_base && fabs(changes[i].x / base_now - 1) < 1e-3) continue;
        changes[i].apply(&t, changes[i].x);
        bool possible = !t.patch.failed && t.patch.n_entries > 0;
        if (possible) status = lp_recall_run(recall, now, err);
        lp_patch_undo(&t.patch);
        if (!possible || status) continue;
        (*n_tried)++;
        double sum = weigh(&t, &changes[i], base, now, &found);
        if (sum <= best_sum) continue;
        best_sum = sum;
        *best = found;
    }
    lp_free(now);
    return status;
}
