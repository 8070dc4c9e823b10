// The sparse indexer: its sizes, and which layers compute a selection of their own.
#include "hf/hf_config_parts.h"

#include <string.h>

#include "base/alloc.h"

// A list with a word per layer: full or shared.
static void set_by_list(struct lp_hf_config_reader *r, const char *name, const json_t *list) {
    struct lp_hf_model *m = r->model;
    if (!lp_hf_config_per_layer(r, name, list)) return;
    for (int64_t l = 0; l < m->n_layers; l++) {
        char text[LP_HF_VALUE_BYTES];
        lp_hf_config_value(json_array_get(list, (size_t)l), text);
        m->full[l] = strcmp(text, "full") == 0;
        if (m->full[l] || strcmp(text, "shared") == 0) continue;
        lp_hf_config_fail(r, LP_STATUS_FORMAT,
                          "%s has '%s' for layer %lld, expected full or shared", name, text,
                          (long long)l);
        return;
    }
}

// "FFFSSSFS...": a letter per layer.
static void set_by_pattern(struct lp_hf_config_reader *r, const char *pattern) {
    struct lp_hf_model *m = r->model;
    size_t n = strlen(pattern);
    if (n < (size_t)m->n_layers || n > (size_t)(m->n_layers + m->n_nextn) ||
        strspn(pattern, "FS") != n) {
        lp_hf_config_fail(
            r, LP_STATUS_FORMAT,
            "index_topk_pattern is '%.60s', expected a letter F or S per layer (%lld)", pattern,
            (long long)m->n_layers);
        return;
    }
    for (int64_t l = 0; l < m->n_layers; l++) m->full[l] = pattern[l] == 'F';
}

// Layer l is full if max(l - offset + 1, 0) is a multiple of freq; 1 and 2 by default, all full
// (configuration_glm_moe_dsa.py).
static void set_by_frequency(struct lp_hf_config_reader *r) {
    struct lp_hf_model *m = r->model;
    int64_t freq = lp_hf_config_whole(r, r->config, "", "index_topk_freq", 0, 1 << 20, 1);
    int64_t offset = lp_hf_config_whole(r, r->config, "", "index_skip_topk_offset", 0, 1 << 20, 2);
    if (freq < 1) freq = 1;
    for (int64_t l = 0; l < m->n_layers; l++)
        m->full[l] = (l - offset + 1 > 0 ? l - offset + 1 : 0) % freq == 0;
}

static void set_schedule(struct lp_hf_config_reader *r) {
    const json_t *types = lp_hf_config_get(r->config, "indexer_types");
    const json_t *pattern = lp_hf_config_get(r->config, "index_topk_pattern");
    if (types)
        set_by_list(r, "indexer_types", types);
    else if (json_is_string(pattern))
        set_by_pattern(r, json_string_value(pattern));
    else if (pattern)
        set_by_list(r, "index_topk_pattern", pattern);
    else
        set_by_frequency(r);
    if (!r->status && !r->model->full[0])
        lp_hf_config_fail(
            r, LP_STATUS_FORMAT,
            "layer 0 shares the indexer's selection of an earlier layer, of which there is none; "
            "expected a full one (indexer_types, index_topk_pattern, index_topk_freq)");
}

// Of this shape a file without a schedule is taken for GLM-5.2 (hparams_indexer.c).
static bool is_guessed(const struct lp_hf_config_reader *r) {
    return r->model->n_layers == 78 && r->v[LP_HF_INT_CONTEXT] >= 1048576;
}

// Where all layers are full nothing is kept, and nothing written that readers do not need.
static void put_schedule(struct lp_hf_config_reader *r) {
    struct lp_hf_model *m = r->model;
    bool shares = memchr(m->full, false, (size_t)m->n_layers) != NULL;
    if (shares || is_guessed(r)) {
        char key[LP_HF_KEY_BYTES];
        lp_hf_config_key(r, "attention.indexer.types", key);
        lp_gguf_writer_array(r->w, key, LP_GGUF_BOOL, m->full, (uint64_t)m->n_layers);
    }
    if (shares) return;
    lp_free(m->full);
    m->full = NULL;
}

void lp_hf_config_indexer(struct lp_hf_config_reader *r) {
    struct lp_hf_model *m = r->model;
    if (!lp_hf_config_is(r, LP_HF_INDEXER)) return;
    m->top_k = r->v[LP_HF_INT_TOP_K];
    if (r->v[LP_HF_INT_INDEX_WIDTH] < m->rope_dim) {
        lp_hf_config_fail(r, LP_STATUS_FORMAT,
                          "index_head_dim is %lld, expected at least qk_rope_head_dim (%lld)",
                          (long long)r->v[LP_HF_INT_INDEX_WIDTH], (long long)m->rope_dim);
        return;
    }
    if (!m->q_rank) {
        lp_hf_config_fail(r, LP_STATUS_FORMAT,
                          "q_lora_rank is null, expected a number: the indexer needs the latent "
                          "of the query");
        return;
    }
    lp_hf_config_put_int(r, "attention.indexer.head_count", r->v[LP_HF_INT_INDEX_HEADS]);
    lp_hf_config_put_int(r, "attention.indexer.key_length", r->v[LP_HF_INT_INDEX_WIDTH]);
    lp_hf_config_put_int(r, "attention.indexer.top_k", m->top_k);
    m->full = lp_alloc((size_t)m->n_layers, sizeof *m->full);
    if (!m->full) {
        r->status = lp_err_memory(r->err, (size_t)m->n_layers, "the indexer's layers");
        return;
    }
    set_schedule(r);
    if (!r->status) put_schedule(r);
}
