// What the operations of a step are given, against the metadata and the tokens of the step.
#include "doctor/layer_numbers.h"

#include <string.h>

#include "model/runner.h"

static void note(struct lp_layer_numbers *n, int32_t layer, const char *op, const char *what) {
    if (!what || (n->what && n->layer <= layer)) return;
    n->layer = layer;
    n->what = what;
    n->op = op;
}

// The part of the step that row `row` begins; NULL: none does.
static const struct lp_walk_part *part_at(const struct lp_layer_numbers *n, int64_t row) {
    int64_t first = 0;
    for (int32_t i = 0; i < n->n_parts; first += n->parts[i++].n)
        if (first == row) return &n->parts[i];
    return NULL;
}

static bool right_positions(const struct lp_layer_numbers *n, const int32_t *positions) {
    for (int32_t i = 0; i < n->n_parts; i++)
        for (int64_t t = 0; t < n->parts[i].n; t++)
            if (*positions++ != n->walk->n_past[n->parts[i].sequence] + t) return false;
    return true;
}

static const char *odd_rope(const struct lp_layer_numbers *n, const struct lp_op_rope *op) {
    const struct lp_runner *r = n->walk->runner;
    const struct lp_hparams *h = &n->walk->model->h;
    bool indexer = h->top_k > 0 && (op->x == r->mla.index_q || op->x == r->mla.index_k);
    if (op->pairing != (indexer ? h->arch->index_rope_pairing : h->arch->rope_pairing))
        return indexer ? "rope pairing of the indexer" : "rope pairing of the attention";
    if (op->magnitude != h->rope_magnitude) return "magnitude of the rotation";
    return right_positions(n, op->positions) ? NULL : "positions of the tokens";
}

// Attention of one span: the keys that its queries may see.
static const char *odd_span(const struct lp_layer_numbers *n, int64_t row,
                            const struct lp_visible *visible, const struct lp_cache_view *cache) {
    const struct lp_walk_part *part = part_at(n, row);
    if (!part || visible->n_queries != part->n) return "rows of a sequence";
    if (visible->first_pos != n->walk->n_past[part->sequence]) return "positions of the queries";
    if (cache->pages != n->walk->tables[part->sequence].device_pages)
        return "pages of another sequence";
    return NULL;
}

static const char *odd_attention(const struct lp_layer_numbers *n, int32_t layer, const char *op,
                                 const void *args) {
    const struct lp_runner *r = n->walk->runner;
    const struct lp_hparams *h = &n->walk->model->h;
    const struct lp_visible *visible;
    const char *odd;
    float scale;
    if (strcmp(op, "mla_absorbed") == 0) {
        const struct lp_op_mla_absorbed *a = args;
        odd = odd_span(n, (a->q_latent - r->mla.q_latent) / a->q_latent_stride, &a->visible,
                       a->cache);
        visible = &a->visible;
        scale = a->scale;
    } else if (strcmp(op, "mla_expanded") == 0) {
        const struct lp_op_mla_expanded *a = args;
        odd = odd_span(n, (a->q - r->mla.q) / a->q_stride, &a->visible, a->cache);
        visible = &a->visible;
        scale = a->scale;
    } else {
        const struct lp_op_gqa *a = args;
        odd = odd_span(n, (a->q - r->gqa.q) / a->q_stride, &a->visible, a->k);
        visible = &a->visible;
        scale = a->scale;
    }
    if (odd) return odd;
    if (scale != h->attn_scale) return "softmax scale";
    bool may_select = h->top_k > 0 && h->index_role[layer] != LP_INDEXER_NONE &&
                      visible->first_pos + visible->n_queries > h->top_k;
    return visible->ids && !may_select ? "selection of keys" : NULL;
}

static const char *odd_selection(const struct lp_layer_numbers *n, int32_t layer,
                                 const struct lp_op_index_select *op) {
    const struct lp_runner *r = n->walk->runner;
    const struct lp_hparams *h = &n->walk->model->h;
    const struct lp_walk_part *part = part_at(n, (op->q - r->mla.index_q) / op->q_stride);
    if (!part || op->n_queries != part->n) return "rows of a sequence";
    if (op->first_pos != n->walk->n_past[part->sequence]) return "positions of the queries";
    if (op->top_k != h->top_k) return "number of selected keys (top-k)";
    if (op->keys->pages != n->walk->tables[part->sequence].device_pages)
        return "pages of another sequence";
    return op->scale != n->walk->model->layers[layer].mla.index_scale ? "scale of the indexer"
                                                                      : NULL;
}

static const char *odd_router(const struct lp_layer_numbers *n, int32_t layer,
                              const struct lp_op_router *op) {
    const struct lp_hparams *h = &n->walk->model->h;
    if (op->gating != h->gating) return "gating function of the router";
    if (op->bias != n->walk->model->layers[layer].router_bias) return "bias of the router";
    if (op->n_used != h->n_used) return "number of experts";
    if (op->n_groups != h->n_groups || op->n_groups_used != h->n_groups_used)
        return "groups of experts";
    if (op->normalise != h->normalise) return "normalisation of the experts' weights";
    return op->scale != h->expert_scale ? "scale of the experts' weights" : NULL;
}

static const char *odd_store(struct lp_layer_numbers *n, int32_t layer,
                             const struct lp_op_cache_write *op) {
    for (int kind = 0; kind < LP_KV_N_KINDS; kind++)
        for (int32_t i = 0; i < n->n_parts; i++) {
            int32_t sequence = n->parts[i].sequence;
            const struct lp_page_table *table = &n->walk->tables[sequence];
            struct lp_cache_view view =
                lp_kv_view(n->walk->kv, layer, (enum lp_kv_kind)kind, table);
            if (view.base != op->cache->base || view.pages != op->cache->pages) continue;
            n->wrote_index = n->wrote_index || kind == LP_KV_INDEX;
            return op->first_pos != n->walk->n_past[sequence] || op->n_rows != n->parts[i].n
                       ? "positions of the cached rows"
                       : NULL;
        }
    return "pages of another sequence or layer";
}

void lp_layer_numbers_see(struct lp_layer_numbers *n, int32_t layer, const char *op,
                          const void *args) {
    const struct lp_hparams *h = &n->walk->model->h;
    const char *odd = NULL;
    n->n_seen++;
    if (strcmp(op, "rms_norm") == 0) {
        if (((const struct lp_op_rms_norm *)args)->eps != h->eps) odd = "epsilon of a norm";
    } else if (layer < 0 || layer >= h->n_layers)
        return; // embedding and head have no other numbers
    else if (strcmp(op, "layer_norm") == 0)
        odd = ((const struct lp_op_layer_norm *)args)->eps != h->index_eps
                  ? "epsilon of the indexer's norm"
                  : NULL;
    else if (strcmp(op, "rope") == 0)
        odd = odd_rope(n, args);
    else if (strcmp(op, "gqa") == 0 || strncmp(op, "mla_", 4) == 0)
        odd = odd_attention(n, layer, op, args);
    else if (strcmp(op, "index_select") == 0)
        odd = odd_selection(n, layer, args);
    else if (strcmp(op, "router") == 0)
        odd = odd_router(n, layer, args);
    else if (strcmp(op, "cache_write") == 0)
        odd = odd_store(n, layer, args);
    note(n, layer, op, odd);
}

void lp_layer_numbers_end(struct lp_layer_numbers *n, int32_t layer) {
    const struct lp_hparams *h = &n->walk->model->h;
    if (layer >= 0 && h->top_k > 0 && n->wrote_index != (h->index_role[layer] == LP_INDEXER_FULL))
        note(n, layer, "indexer", "role of the indexer");
    n->wrote_index = false;
}
