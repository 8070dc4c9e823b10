// A stand-in for a model in tests of the cache: the state of a token is a hash of it and of all tokens
// before it, as P5 of pages.h says. So a table that shows the state of another text, or of a page
// that was given away, is found by looking at the bytes.
#ifndef LP_TEST_KV_STATE_H
#define LP_TEST_KV_STATE_H

#include "lp_test.h"

#include "backend/backend.h"
#include "kv/pages.h"

enum { STATE_MAIN, STATE_DRAFT, STATE_N_LAYERS };

static const struct lp_kv_layer state_layers[STATE_N_LAYERS] = {
    {.width = {[LP_KV_LATENT] = 32}},
    {.width = {[LP_KV_KEY] = 32},
     .slot_offset = 1}}; // as the MTP layer: made from the next token too

static struct lp_device *state_device(void) {
    struct lp_device *dev;
    struct lp_device_options options = {.n_threads = 1, .cpu_level = "auto"};
    assert_int_equal(lp_backend_ref.open(&dev, &options, NULL), LP_OK);
    return dev;
}

static struct lp_kv *state_kv(struct lp_device *dev, int64_t n_pages) {
    struct lp_kv *kv;
    struct lp_err err = {0};
    if (lp_kv_new(&kv, dev, state_layers, STATE_N_LAYERS, LP_TYPE_F32, n_pages * LP_KV_PAGE_TOKENS,
                  &err) != LP_OK)
        fail_msg("%s", err.text);
    return kv;
}

// Of a cache of several parts (lp_kv_set_parts) what the other ranks have, each its pages from 0 on.
#define STATE_MAX_PARTS 4
static struct lp_kv *state_elsewhere[STATE_MAX_PARTS];

static inline void state_copy_there(void *user, int32_t to, int32_t from) {
    const struct lp_kv *kv = user;
    const int32_t part = lp_kv_part_of(kv, to), first = part * (int32_t)lp_kv_part_pages(kv);
    assert_true(part > 0 && lp_kv_part_of(kv, from) == part);
    lp_kv_page_copy(state_elsewhere[part], to - first, from - first);
}

static inline void state_divide(struct lp_kv *kv, int32_t n_parts, struct lp_device *dev) {
    const struct lp_kv_others others = {.user = kv, .copy = state_copy_there};
    assert_true(n_parts <= STATE_MAX_PARTS);
    struct lp_err err;
    for (int32_t i = 1; i < n_parts; i++)
        if (lp_kv_new(&state_elsewhere[i], dev, state_layers, STATE_N_LAYERS, LP_TYPE_F32,
                      lp_kv_part_pages(kv) * LP_KV_PAGE_TOKENS, &err))
            fail_msg("%s", err.text);
    assert_int_equal(lp_kv_set_parts(kv, n_parts, NULL), LP_OK);
    lp_kv_set_others(kv, &others);
}

// The hash of a text that goes on with `token` behind a text of hash `before` (0: nothing).
static uint64_t state_next(uint64_t before, int32_t token) {
    uint64_t x = (before ^ ((uint64_t)(uint32_t)token + 1)) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

static uint64_t *state_slot(const struct lp_kv *kv, int32_t layer,
                            const struct lp_page_table *table, int64_t slot) {
    const struct lp_kv *home = table->part ? state_elsewhere[table->part] : kv;
    struct lp_cache_view view =
        lp_kv_view(home, layer, layer == STATE_MAIN ? LP_KV_LATENT : LP_KV_KEY, table);
    assert_true(slot / LP_KV_PAGE_TOKENS < table->n_pages);
    const int64_t page = view.pages[slot / LP_KV_PAGE_TOKENS];
    assert_int_equal(lp_kv_part_of(kv, (int32_t)page), table->part); // P6
    return (uint64_t *)((char *)view.base +
                        (size_t)(page - table->part * lp_kv_part_pages(kv)) * view.page_bytes +
                        (size_t)(slot % LP_KV_PAGE_TOKENS) * view.row_bytes);
}

// Writes a slot of both layers; P4: the page must be the table's own.
static void state_write(struct lp_kv *kv, const struct lp_page_table *table, int64_t slot,
                        uint64_t hash, bool with_draft) {
    assert_int_equal(lp_kv_page_refs(kv, table->pages[slot / LP_KV_PAGE_TOKENS]), 1);
    *state_slot(kv, STATE_MAIN, table, slot) = hash;
    if (with_draft) *state_slot(kv, STATE_DRAFT, table, slot) = ~hash;
}

// The state of a whole text: what the table shows must be that of these tokens. Slot 0 of the draft
// layer belongs to no position.
static void state_check(const struct lp_kv *kv, const struct lp_page_table *table,
                        const int32_t *tokens, int64_t n, bool with_draft) {
    uint64_t hash = 0;
    for (int64_t i = 0; i < n; i++) {
        hash = state_next(hash, tokens[i]);
        assert_true(*state_slot(kv, STATE_MAIN, table, i) == hash);
        if (with_draft && i > 0) assert_true(*state_slot(kv, STATE_DRAFT, table, i) == ~hash);
    }
}

#endif
