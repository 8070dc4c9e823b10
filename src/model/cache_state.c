// States of the cache, compared byte by byte.
#include "model/cache_state.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kv/kv_types.h"

static const char *const kind_names[LP_KV_N_KINDS] = {"latents", "indexer keys", "keys", "values"};

lp_status lp_cache_state_read(struct lp_cache_state *out, const struct lp_kv *kv,
                              const struct lp_page_table *table, int64_t n, struct lp_err *err) {
    size_t page_bytes = lp_kv_page_bytes(kv);
    int64_t n_pages = lp_kv_pages_of(n);
    *out = (struct lp_cache_state){
        .page_bytes = page_bytes, .index_extra = lp_kv_index_extra(kv), .n = n};
    out->bytes = lp_alloc((size_t)n_pages, page_bytes);
    if (!out->bytes) return lp_err_memory(err, (size_t)n_pages * page_bytes, "a copy of the cache");
    for (int64_t i = 0; i < n_pages; i++)
        lp_kv_page_read(kv, table->pages[i], out->bytes + (size_t)i * page_bytes);
    return LP_OK;
}

void lp_cache_state_release(struct lp_cache_state *state) {
    lp_free(state->bytes);
    *state = (struct lp_cache_state){0};
}

struct place { // of one kind of one layer within a page
    size_t offset, row_bytes, latent_bytes;
};

static const uint8_t *row_at(const struct lp_cache_state *s, const struct place *p, int64_t pos) {
    return s->bytes + (size_t)(pos / LP_KV_PAGE_TOKENS) * s->page_bytes + p->offset +
           (size_t)(pos % LP_KV_PAGE_TOKENS) * p->row_bytes;
}

// What part of the rows comes before the rotated one, in whole blocks.
static size_t latent_bytes(const struct lp_kv_layer *layer, lp_type type, int kind) {
    const int32_t latent = layer->width[kind] - layer->rope;
    size_t bytes = 0;
    if (kind != LP_KV_LATENT || latent <= 0 || !lp_cache_row_bytes(type, latent, 0, &bytes))
        return 0;
    return bytes;
}

struct scan {
    const struct lp_cache_state *a, *b;
    int64_t first, n;
};

// Notes the positions at which one kind of a layer differs; *latents: in what is not rotated.
static void compare_kind(const struct scan *s, const struct place *p, int kind,
                         struct lp_cache_difference *d, bool *differs, bool *latents) {
    for (int64_t pos = s->first; pos < s->first + s->n; pos++) {
        const uint8_t *a = row_at(s->a, p, pos), *b = row_at(s->b, p, pos);
        if (memcmp(a, b, p->row_bytes) == 0) continue;
        d->kinds[kind] = true;
        if (memcmp(a, b, p->latent_bytes) != 0) *latents = true;
        differs[pos - s->first] = true;
    }
}

// The position whose row of `a` lies at `pos` in `b`; -1: none.
static int64_t owner_of(const struct scan *s, const struct place *p, int64_t pos) {
    for (int64_t q = 0; q < s->a->n; q++)
        if (q != pos && memcmp(row_at(s->a, p, q), row_at(s->b, p, pos), p->row_bytes) == 0)
            return q;
    return -1;
}

static void note_positions(struct lp_cache_difference *d, const bool *differs, int64_t first,
                           int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!differs[i]) continue;
        if (d->count++ == 0) d->first = first + i;
        d->last = first + i;
    }
}

struct lp_cache_difference lp_cache_state_compare(const struct lp_cache_state *a,
                                                  const struct lp_cache_state *b,
                                                  const struct lp_model *m, lp_type type,
                                                  int64_t first, int64_t n) {
    struct lp_cache_difference d = {.layer = -1, .belongs_to = -1};
    int32_t n_layers = lp_model_kv_count(m, false);
    struct lp_kv_layer *layers = lp_alloc((size_t)n_layers, sizeof *layers);
    bool *differs = lp_alloc((size_t)(n > 0 ? n : 1), sizeof *differs);
    struct scan scan = {a, b, first, n};
    struct place first_place = {0}; // of the first kind that differs
    size_t offset = 0;
    if (layers) lp_model_kv_layers(m, false, layers);
    for (int32_t l = 0; layers && differs && l < n_layers && d.layer < 0; l++) {
        bool latents = false;
        for (int kind = 0; kind < LP_KV_N_KINDS; kind++) {
            const size_t row_bytes = lp_kv_row_bytes(type, &layers[l], (enum lp_kv_kind)kind);
            struct place place = {offset, row_bytes, latent_bytes(&layers[l], type, kind)};
            d.has[kind] = row_bytes > 0;
            offset += row_bytes * LP_KV_PAGE_TOKENS;
            if (kind == LP_KV_INDEX && row_bytes) offset += a->index_extra;
            if (row_bytes) compare_kind(&scan, &place, kind, &d, differs, &latents);
            if (!d.kinds[kind]) continue;
            if (d.layer < 0) first_place = place;
            d.layer = l;
        }
        if (d.layer < 0) continue;
        note_positions(&d, differs, first, n);
        d.belongs_to = owner_of(&scan, &first_place, d.first);
        d.only_rotated = (d.kinds[LP_KV_LATENT] && !latents && m->h.rope_dim > 0 &&
                          first_place.latent_bytes > 0) ||
                         (d.kinds[LP_KV_KEY] && !d.kinds[LP_KV_VALUE]);
    }
    lp_free(layers);
    lp_free(differs);
    return d;
}

// The names of the kinds with flags[kind] == want, of those the layer has.
static void names_of(char *out, size_t n_bytes, const struct lp_cache_difference *d, bool want) {
    out[0] = 0;
    for (int kind = 0; kind < LP_KV_N_KINDS; kind++) {
        size_t used = strlen(out);
        if (d->has[kind] && d->kinds[kind] == want)
            snprintf(out + used, n_bytes - used, "%s%s", used ? " and " : "", kind_names[kind]);
    }
}

void lp_cache_difference_text(char *out, size_t n_bytes, const struct lp_cache_difference *d) {
    char names[64], positions[64];
    names_of(names, sizeof names, d, true);
    if (d->count == 1)
        snprintf(positions, sizeof positions, "position %lld", (long long)d->first);
    else
        snprintf(positions, sizeof positions, "positions %lld to %lld (%lld of them)",
                 (long long)d->first, (long long)d->last, (long long)d->count);
    snprintf(out, n_bytes, "the %s of layer %d at %s", names, d->layer, positions);
}

void lp_cache_difference_same(char *out, size_t n_bytes, const struct lp_cache_difference *d) {
    names_of(out, n_bytes, d, false);
}
