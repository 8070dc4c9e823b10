// The paged KV cache: a pool of pages, and the page table of each sequence.
//
// The model says which kinds of state a token has on each layer (latent + rope part, indexer key;
// or key and value). A page holds page_tokens tokens of every kind of every layer; page p of a kind
// and layer lies at base + p * page_bytes. So one page number moves everything that a token's state
// needs.
//
//   P1. A page is free or belongs to exactly one table.
//   P2. A table of n tokens holds ceil(n / page_tokens) pages, the position s in page s / page_tokens.
//   P3. The device's copy of a table is the host's after every grow.
//
// One thread (the engine's) uses a cache and its tables.
#ifndef LP_KV_PAGES_H
#define LP_KV_PAGES_H

#include "backend/backend.h"

#define LP_KV_PAGE_TOKENS 64

enum lp_kv_kind {
    LP_KV_LATENT, // [latent, rope part] of MLA, after norm and rotation
    LP_KV_INDEX,  // indexer key, after norm and rotation
    LP_KV_KEY,    // [n_kv_heads, head_dim], after norm and rotation
    LP_KV_VALUE,  // [n_kv_heads, v_dim]
    LP_KV_N_KINDS,
};

struct lp_kv_layer { // row widths in values; 0 = the layer has no such state
    int32_t width[LP_KV_N_KINDS];
};

struct lp_kv;

// A cache of n_tokens (rounded up to pages) in values of `type` (F32, F16 or BF16). Device memory.
lp_status lp_kv_new(struct lp_kv **out, struct lp_device *dev, const struct lp_kv_layer *layers,
                    int32_t n_layers, lp_type type, int64_t n_tokens, struct lp_err *err);
void lp_kv_free(struct lp_kv *kv); // NULL is allowed; every table must have been released

size_t lp_kv_bytes(const struct lp_kv *kv);       // all pages
size_t lp_kv_token_bytes(const struct lp_kv *kv); // one token, all layers and kinds
int64_t lp_kv_capacity_tokens(const struct lp_kv *kv);
int64_t lp_kv_free_tokens(const struct lp_kv *kv);
bool lp_kv_type_supported(lp_type type);

struct lp_page_table {
    int32_t *pages;        // host, [capacity]
    int32_t *device_pages; // device, [capacity]
    int64_t n_pages, capacity;
    int64_t n_tokens; // positions that have a page
};

// Zero-initialise a table. Makes room for n_tokens positions; takes pages from the pool. LIMIT when
// the pool is empty (the table keeps what it had).
lp_status lp_page_table_grow(struct lp_page_table *table, struct lp_kv *kv, int64_t n_tokens,
                             struct lp_err *err);
// Gives back the pages behind position n_tokens.
void lp_page_table_truncate(struct lp_page_table *table, struct lp_kv *kv, int64_t n_tokens);
void lp_page_table_release(struct lp_page_table *table, struct lp_kv *kv);

// What a backend operation needs to reach one layer's state of one kind in one sequence.
struct lp_cache_view lp_kv_view(const struct lp_kv *kv, int32_t layer, enum lp_kv_kind kind,
                                const struct lp_page_table *table);

#endif
