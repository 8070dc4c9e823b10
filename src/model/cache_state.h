// What the cache holds of a text, and in what two states of the same text differ: layer, kind of
// state, positions.
#ifndef LP_MODEL_CACHE_STATE_H
#define LP_MODEL_CACHE_STATE_H

#include "kv/pages.h"
#include "model/model.h"

struct
    lp_cache_state { // host bytes of the first n tokens: whole pages, as lp_kv_page_read gives them
    uint8_t *bytes;
    size_t page_bytes, index_extra;
    int64_t n;
};
lp_status lp_cache_state_read(struct lp_cache_state *out, const struct lp_kv *kv,
                              const struct lp_page_table *table, int64_t n, struct lp_err *err);
void lp_cache_state_release(struct lp_cache_state *state);

struct lp_cache_difference {
    int32_t layer;              // the first that differs; -1: none does
    int64_t first, last, count; // positions of that layer that differ, in any kind
    bool kinds[LP_KV_N_KINDS];  // that differ in that layer
    bool has[LP_KV_N_KINDS];    // that the layer has
    int64_t belongs_to; // the position in `a` whose state is found at `first` in `b`; -1: none
    bool only_rotated;  // of the latents only the rotated part differs, or only keys and no values:
                        // what a wrong position does
};
// Positions first .. first + n - 1 of both.
struct lp_cache_difference lp_cache_state_compare(const struct lp_cache_state *a,
                                                  const struct lp_cache_state *b,
                                                  const struct lp_model *model, lp_type type,
                                                  int64_t first, int64_t n);
// "the latents and indexer keys of layer 2 at positions 3 to 63"
void lp_cache_difference_text(char *out, size_t n_bytes, const struct lp_cache_difference *d);
// The kinds of that layer that are the same: "latents", or "".
void lp_cache_difference_same(char *out, size_t n_bytes, const struct lp_cache_difference *d);

#endif
