// Shapes are words (probe_points.def): names of hyperparameters, sums of them, commas between
// dimensions. Here the words become numbers.
#include "model/probe_shape.h"

#include <string.h>

#include "base/bytes.h"

static bool is_mla(const struct lp_hparams *h) {
    return h->arch->attention == LP_ATTENTION_MLA;
}

static int64_t number_of(const struct lp_hparams *h, int32_t layer, struct lp_str word) {
    bool mla = is_mla(h);
    const struct {
        const char *word;
        int64_t value;
    } words[] = {
        {"n_embd", h->n_embd},
        {"n_vocab", h->n_vocab},
        {"n_heads", h->n_heads},
        {"n_kv_heads", mla ? h->n_heads : h->n_kv_heads},
        {"head_dim", mla ? h->nope + h->rope_dim : h->head_dim},
        {"v_dim", h->v_dim},
        {"nope", h->nope},
        {"rope", h->rope_dim},
        {"latent", h->latent},
        {"q_rank", h->q_rank},
        {"index_heads", h->index_heads},
        {"index_width", h->index_width},
        {"n_experts", h->n_experts},
        {"n_used", h->n_used},
        {"shared_ff", h->shared_ff},
        {"n_ff", layer >= 0 ? h->n_ff[layer] : 0},
        {"n_keys", LP_PROBE_N_KEYS},
        {"n_selected", LP_PROBE_N_KEYS},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (lp_str_is(word, words[i].word)) return words[i].value;
    return 0;
}

int32_t lp_probe_dims(const struct lp_hparams *h, enum lp_probe_point point, int32_t layer,
                      int64_t dims[2]) {
    int32_t n = 0;
    dims[0] = dims[1] = 0;
    for (const char *at = lp_probe_shape(point); *at;) {
        size_t len = strcspn(at, ",+ ");
        if (len) dims[n] += number_of(h, layer, (struct lp_str){at, len});
        if (at[len] == ',') n++;
        at += len + (at[len] != 0);
    }
    return n + 1;
}

bool lp_probe_layer_has(const struct lp_hparams *h, enum lp_probe_point point, int32_t layer) {
    if (!lp_probe_in_layer(point)) return layer < 0;
    if (layer < 0 || layer >= h->n_blocks) return false;
    bool moe = h->n_experts > 0 && layer >= h->n_dense;
    switch (lp_probe_need(point)) {
    case LP_PROBE_NEED_ALWAYS:
    case LP_PROBE_NEED_KEYS:
        return true;
    case LP_PROBE_NEED_MLA:
    case LP_PROBE_NEED_ABSORBED:
        return is_mla(h);
    case LP_PROBE_NEED_GQA:
        return !is_mla(h);
    case LP_PROBE_NEED_Q_RANK:
        return is_mla(h) && h->q_rank > 0;
    case LP_PROBE_NEED_INDEXER:
        return h->top_k > 0 && h->index_role[layer] != LP_INDEXER_NONE;
    case LP_PROBE_NEED_INDEXER_FULL:
    case LP_PROBE_NEED_SELECTION_FULL:
        return h->top_k > 0 && h->index_role[layer] == LP_INDEXER_FULL;
    case LP_PROBE_NEED_DENSE:
        return !moe;
    case LP_PROBE_NEED_MOE:
        return moe;
    case LP_PROBE_NEED_SHARED:
        return moe && h->n_shared > 0;
    }
    return false;
}

int32_t lp_probe_count_layers(const struct lp_hparams *h, enum lp_probe_point point) {
    if (!lp_probe_in_layer(point)) return 1;
    int32_t n = 0;
    for (int32_t layer = 0; layer < h->n_layers; layer++) n += lp_probe_layer_has(h, point, layer);
    return n;
}
