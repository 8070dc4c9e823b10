// The sparse indexer: sizes, and which layers compute their own selection (full) or use the last
// one (shared). The rules for files that do not say, in order: docs/gguf.md, "Indexer schedule".
#include "model/hparams_keys.h"

#include <stdio.h>
#include <string.h>

static void set_all(struct lp_hparams *h, enum lp_indexer_role role) {
    for (int32_t l = 0; l < h->n_layers; l++) h->index_role[l] = role;
}

// Layer i is full if max(i - offset + 1, 0) is a multiple of freq.
static void set_by_frequency(struct lp_hparams *h, int64_t freq, int64_t offset) {
    for (int32_t l = 0; l < h->n_layers; l++) {
        int64_t step = l - offset + 1 > 0 ? l - offset + 1 : 0;
        h->index_role[l] = step % freq == 0 ? LP_INDEXER_FULL : LP_INDEXER_SHARED;
    }
}

// attention.indexer.types: BOOL, any integer (0/1), or "full"/"shared"; one per layer, or one more.
static void read_types(struct lp_hparams_reader *r, const struct lp_gguf_kv *kv) {
    struct lp_hparams *h = r->h;
    if (kv->type != LP_GGUF_ARRAY ||
        (kv->count != (uint64_t)h->n_layers && kv->count != (uint64_t)h->n_blocks)) {
        lp_hparams_fail(
            r, LP_STATUS_FORMAT,
            "metadata key %s has %llu elements, expected an array of one per layer (%d)",
            lp_hparams_key(r, "attention.indexer.types"),
            (unsigned long long)(kv->type == LP_GGUF_ARRAY ? kv->count : 1), h->n_layers);
        return;
    }
    for (int32_t l = 0; l < h->n_layers; l++) {
        int64_t value = -1;
        if (kv->strings)
            value = lp_str_is(kv->strings[l], "full")     ? 1
                    : lp_str_is(kv->strings[l], "shared") ? 0
                                                          : -1;
        else if (lp_gguf_is_integral(kv->element_type))
            value = lp_gguf_int_at(kv, (uint64_t)l);
        if (value != 0 && value != 1) {
            lp_hparams_fail(
                r, LP_STATUS_FORMAT,
                "metadata key %s: element %d is not full (true, 1) or shared (false, 0)",
                lp_hparams_key(r, "attention.indexer.types"), l);
            return;
        }
        h->index_role[l] = value ? LP_INDEXER_FULL : LP_INDEXER_SHARED;
    }
}

static bool has_indexer_tensors(const struct lp_gguf *gguf, int32_t layer) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.indexer.attn_k.weight", layer);
    return lp_gguf_find_tensor(gguf, lp_str_from(name)) != NULL;
}

// Indexer tensors on some layers only are a schedule if they follow the generating rule; a pattern
// that does not, or a single layer without, is a damaged file: then every layer counts as full, and
// binding names the tensor that is missing.
static bool set_by_tensors(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    int32_t n_without = 0;
    for (int32_t l = 0; l < h->n_layers; l++) n_without += !has_indexer_tensors(r->gguf, l);
    if (n_without < 2 || n_without == h->n_layers) return false;
    for (int64_t freq = 2; freq <= 8; freq++)
        for (int64_t offset = 1; offset < h->n_layers; offset++) {
            bool same = true;
            set_by_frequency(h, freq, offset);
            for (int32_t l = 0; l < h->n_layers && same; l++)
                same = has_indexer_tensors(r->gguf, l) == (h->index_role[l] == LP_INDEXER_FULL);
            if (same) return true;
        }
    return false;
}

static const char *choose_schedule(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    const struct lp_gguf_kv *types =
        lp_gguf_find(r->gguf, lp_hparams_key(r, "attention.indexer.types"));
    if (types) {
        read_types(r, types);
        return "file (attention.indexer.types)";
    }
    if (lp_hparams_has(r, "attention.indexer.top_k_frequency")) {
        int64_t freq =
            lp_hparams_int(r, "attention.indexer.top_k_frequency", 1, LP_MAX_LAYERS, 1, NULL);
        int64_t offset = lp_hparams_int(r, "attention.indexer.skip_top_k_offset", 0, LP_MAX_LAYERS,
                                        2, "2 when absent");
        set_by_frequency(h, freq, offset);
        return "file (top_k_frequency, skip_top_k_offset)";
    }
    if (set_by_tensors(r))
        return "full where the file has indexer tensors (attention.indexer.types is absent)";
    if (h->n_layers == 78 && h->n_context >= 1048576 && h->rope_base == 8e6f) {
        set_by_frequency(h, 4, 3);
        return "GLM-5.2's schedule by its shape (78 layers, context 1048576, rope base 8e6)";
    }
    set_all(h, LP_INDEXER_FULL);
    return "every layer is full when attention.indexer.types is absent";
}

void lp_hparams_read_indexer(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    h->index_heads = (int32_t)lp_hparams_int(r, "attention.indexer.head_count", 1, 1024, 0, NULL);
    h->index_width = (int32_t)lp_hparams_int(r, "attention.indexer.key_length", 1, 4096, 0, NULL);
    h->top_k = (int32_t)lp_hparams_int(r, "attention.indexer.top_k", 1, 1 << 24, 0, NULL);
    h->index_eps =
        lp_hparams_float(r, "attention.layer_norm_epsilon", 1e-12, 0.1, 1e-6f, "1e-6 when absent");
    if (r->status) return;
    if (h->index_width < h->rope_width) {
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s is %d, expected at least rope.dimension_count (%d)",
                        lp_hparams_key(r, "attention.indexer.key_length"), h->index_width,
                        h->rope_width);
        return;
    }
    if (h->q_rank == 0) {
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s is missing; the indexer needs the query latent",
                        lp_hparams_key(r, "attention.q_lora_rank"));
        return;
    }
    const char *source = choose_schedule(r);
    if (r->status) return;
    bool shares = false;
    for (int32_t l = 0; l < h->n_layers; l++)
        shares = shares || h->index_role[l] == LP_INDEXER_SHARED;
    if (shares && strncmp(source, "file", 4) != 0)
        lp_hparams_guessed(r, "attention.indexer.types", "a schedule with shared layers", source);
    for (int32_t l = h->n_layers; l < h->n_blocks; l++) // an MTP layer always has its own
        h->index_role[l] = LP_INDEXER_FULL;
    if (h->index_role[0] != LP_INDEXER_FULL) {
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "layer 0 shares the selection of an earlier layer, but there is none (%s)",
                        source);
        return;
    }
    char letters[72];
    int32_t n = h->n_layers < 70 ? h->n_layers : 70;
    for (int32_t l = 0; l < n; l++) letters[l] = h->index_role[l] == LP_INDEXER_FULL ? 'F' : 'S';
    letters[n] = 0;
    lp_hparams_fact(r, "indexer schedule", source, "%s%s", letters, n < h->n_layers ? "..." : "");
}
