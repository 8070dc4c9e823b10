// The paged KV cache: a pool of pages, and the page table of each sequence.
//
// The model says which kinds of state a token has on each layer (latent + rope part, indexer key;
// or key and value; the MTP layer's beside them). A page holds page_tokens tokens of every kind of
// every layer, and behind the rows what the backend keeps of them for itself
// (lp_backend.index_page_extra); page p of a kind and layer lies at base + p * page_bytes. So one page
// number moves everything that a token's state needs, and nothing can be left behind.
//
//   P1. A page is free (no references) or held by as many tables and tree nodes as it counts.
//   P2. A table of n tokens holds ceil(n / page_tokens) pages; position s is in page
//       s / page_tokens.
//   P3. The device's copy of a table is the host's after every change.
//   P4. Only a page with one reference is written: what is shared stays as it is.
//   P5. What a page holds depends on the tokens of this page and of those before it, on no later
//       one. (The MTP layer's state of position t is made from token t + 1 too, and lies in slot
//       t + 1.)
//
//   P6. All pages of a table are of its part (lp_kv_set_parts), which is fixed while it has any.
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
    int32_t rope;        // how many values of a latent row are its rotated part
    int32_t slot_offset; // position p has slot p + slot_offset (P5): 1 for the MTP layer, else 0
};

struct lp_kv;

// A cache of n_tokens (rounded up to pages) in values of `type` (kv_types.h). Device memory.
// INVALID for a type that a layer's widths do not allow.
lp_status lp_kv_new(struct lp_kv **out, struct lp_device *dev, const struct lp_kv_layer *layers,
                    int32_t n_layers, lp_type type, int64_t n_tokens, struct lp_err *err);
void lp_kv_free(struct lp_kv *kv); // NULL is allowed; every table must have been released

// What a token's state of one layer takes in a cache of `type`, with what the device keeps of it for itself.
size_t lp_kv_layer_token_bytes(const struct lp_device *dev, lp_type type,
                               const struct lp_kv_layer *layer);
size_t lp_kv_bytes(const struct lp_kv *kv);       // all pages that are here
size_t lp_kv_token_bytes(const struct lp_kv *kv); // one token, all layers and kinds
int64_t lp_kv_capacity_tokens(const struct lp_kv *kv);
int64_t lp_kv_free_tokens(const struct lp_kv *kv);
static inline int64_t lp_kv_pages_of(int64_t n_tokens) {
    return (n_tokens + LP_KV_PAGE_TOKENS - 1) / LP_KV_PAGE_TOKENS;
}

// Where each of several ranks keeps the sequences that are its own (data-parallel attention), rank 0 counts the
// pages of all: part i, of pages [i * n, (i + 1) * n) where n is lp_kv_part_pages, is what rank i has; part 0 lies
// here. Before any page is taken. Errors: LIMIT (numbers of pages), MEMORY. A cache begins with one part.
lp_status lp_kv_set_parts(struct lp_kv *kv, int32_t n_parts, struct lp_err *err);
int32_t lp_kv_n_parts(const struct lp_kv *kv);
int64_t lp_kv_part_pages(const struct lp_kv *kv);
int32_t lp_kv_part_of(const struct lp_kv *kv, int32_t page);

// Single pages, for the prefix tree. take: -1 when none is free; put gives a reference back.
int64_t lp_kv_n_pages(const struct lp_kv *kv); // of all parts, as the next one
int64_t lp_kv_n_free(const struct lp_kv *kv);
int64_t lp_kv_n_free_in(const struct lp_kv *kv, int32_t part);
int32_t lp_kv_page_take(struct lp_kv *kv); // of part 0
int32_t lp_kv_page_take_in(struct lp_kv *kv, int32_t part);
void lp_kv_page_share(struct lp_kv *kv, int32_t page);
void lp_kv_page_put(struct lp_kv *kv, int32_t page);
int32_t lp_kv_page_refs(const struct lp_kv *kv, int32_t page);
// Whether one of the references is the prefix tree's; and how many pages it alone holds.
void lp_kv_page_set_cached(struct lp_kv *kv, int32_t page, bool cached);
int64_t lp_kv_n_idle(const struct lp_kv *kv);
int64_t lp_kv_n_idle_in(const struct lp_kv *kv, int32_t part);
void lp_kv_page_copy(struct lp_kv *kv, int32_t to, int32_t from); // of one part
// Where ranks run a model together each has a cache with the same pages, of other layers or heads. What is
// done to a page here is then done to theirs; and a page's bytes are the own ones, followed by theirs. With parts
// a page is on one rank: what is done to those of part 0 is done here alone, to others there alone, and page_bytes
// is 0.
struct lp_kv_others {
    void *user;
    size_t page_bytes; // of theirs together
    void (*copy)(void *user, int32_t to, int32_t from);
    bool (*read)(void *user, int32_t page, void *out);
    void (*write)(void *user, int32_t page, const void *whole); // with the own bytes
};
void lp_kv_set_others(struct lp_kv *kv, const struct lp_kv_others *others);
size_t lp_kv_own_page_bytes(const struct lp_kv *kv);

// All state of a page as host bytes, [page_bytes], in the order of layers and kinds.
size_t lp_kv_page_bytes(const struct lp_kv *kv);
// Behind the rows of a page of indexer keys; there is nothing behind those of the MTP layer.
size_t lp_kv_index_extra(const struct lp_kv *kv);
// False: another rank's could not be had, and `out` means nothing.
bool lp_kv_page_read(const struct lp_kv *kv, int32_t page, void *out);
void lp_kv_page_write(struct lp_kv *kv, int32_t page, const void *in);
lp_type lp_kv_type(const struct lp_kv *kv);

struct lp_page_table {
    int32_t *pages;        // host, [capacity]
    int32_t *device_pages; // device, [capacity]
    int64_t n_pages, capacity;
    int64_t n_tokens; // positions that have a page
    int32_t part;     // where its pages are (P6)
};

// Zero-initialise a table, but for its part. Makes room for n_tokens positions; takes pages from the pool. LIMIT when
// its part of the pool is empty (the table keeps what it had).
lp_status lp_page_table_grow(struct lp_page_table *table, struct lp_kv *kv, int64_t n_tokens,
                             struct lp_err *err);
// Puts a page behind those of a full table (n_tokens a multiple of the page) and takes over the
// caller's reference; n_tokens of it count. MEMORY: the reference stays the caller's.
lp_status lp_page_table_append(struct lp_page_table *table, struct lp_kv *kv, int32_t page,
                               int64_t n_tokens, struct lp_err *err);
// Makes a zero-initialised or mirrored table that of another process: its pages, which nobody here counts.
// MEMORY. Its memory goes with lp_page_table_unmirror.
lp_status lp_page_table_mirror(struct lp_page_table *table, struct lp_kv *kv, const int32_t *pages,
                               int64_t n_pages, int64_t n_tokens, struct lp_err *err);
void lp_page_table_unmirror(struct lp_page_table *table, struct lp_kv *kv);
// Gives back the pages behind position n_tokens.
void lp_page_table_truncate(struct lp_page_table *table, struct lp_kv *kv, int64_t n_tokens);
void lp_page_table_release(struct lp_page_table *table, struct lp_kv *kv); // all of it is zero then

// What a backend operation needs to reach one layer's state of one kind in one sequence.
struct lp_cache_view lp_kv_view(const struct lp_kv *kv, int32_t layer, enum lp_kv_kind kind,
                                const struct lp_page_table *table);

#endif
