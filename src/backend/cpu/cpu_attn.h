// What the attention files and the indexer share: cache rows, scratch, the online softmax over
// blocks of keys, and the rule that cuts long contexts into segments.
//
// How B2 (backend.h) is kept:
//   A1. A query's keys are taken in blocks of LP_CPU_KEY_BLOCK, in ascending order; where the blocks
//       begin depends on absolute positions (or list indices of a selection) only. Below the top-k
//       the two are the same number.
//   A2. A query's keys form segments (lp_cpu_segment_keys of its own visible count). Each segment
//       starts a fresh softmax; the segments are merged in ascending order, by one thread as well
//       as by many. Absorbed and grouped-query attention only; the expanded form has one segment.
//   A3. A key that a query does not see takes no part in any product or sum of that query; it is
//       not merely weighted 0, since 0 * NaN is NaN.
#ifndef LP_CPU_ATTN_H
#define LP_CPU_ATTN_H

#include <assert.h>
#include <stdatomic.h>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/cpu_lanes.h"

#define LP_CPU_KEY_BLOCK 64
#define LP_CPU_MAX_SEGMENTS 32

// Row distance of a scratch matrix of n columns: an odd number of cache lines, so that the rows of
// a block spread over all cache sets.
static inline int64_t lp_cpu_ld(int64_t n) {
    return ((n + 15) / 16 | 1) * 16;
}

static inline void *lp_cpu_cache_row(const struct lp_cache_view *cache, int64_t pos) {
    int64_t slot = pos + cache->slot_offset;
    size_t page = (size_t)cache->pages[slot / cache->page_tokens];
    return (char *)cache->base + page * cache->page_bytes +
           (size_t)(slot % cache->page_tokens) * cache->row_bytes;
}

// Starts to fetch a row of the cache before its use.
static inline void lp_cpu_cache_fetch(const struct lp_cache_view *cache, int64_t pos) {
    const char *row = lp_cpu_cache_row(cache, pos);
    for (size_t at = 0; at < cache->row_bytes; at += 64) __builtin_prefetch(row + at, 0, 3);
}

// A row's values, [width]
static inline void lp_cpu_cache_load(const struct lp_cpu_lanes *lanes,
                                     const struct lp_cache_view *cache, const void *row,
                                     float *out) {
    const int32_t n = cache->width - cache->n_tail;
    lanes->load(cache->type, row, out, (size_t)n);
    if (cache->n_tail)
        lanes->load(LP_TYPE_BF16, (const char *)row + lp_cache_offset(cache, n), out + n,
                    (size_t)cache->n_tail);
}

static inline int64_t lp_cpu_visible_count(const struct lp_visible *v, int64_t query) {
    return v->ids ? v->counts[query] : v->first_pos + query + 1;
}

// Keys per segment: 512, doubled until there are at most LP_CPU_MAX_SEGMENTS.
static inline int64_t lp_cpu_segment_keys(int64_t n_visible) {
    int64_t keys = 512;
    while (keys * LP_CPU_MAX_SEGMENTS < n_visible) keys *= 2;
    return keys;
}
static inline int64_t lp_cpu_segment_count(int64_t n_visible) {
    int64_t keys = lp_cpu_segment_keys(n_visible);
    return (n_visible + keys - 1) / keys;
}

// The largest count of any context up to n_context (not n_context's own, see above).
static inline int64_t lp_cpu_segment_max(int64_t n_context) {
    int64_t n = (n_context + 511) / 512;
    return n < LP_CPU_MAX_SEGMENTS ? n : LP_CPU_MAX_SEGMENTS;
}

// A walk through scratch memory. With base NULL it only counts.
struct lp_cpu_cut {
    char *base;
    size_t used;
};
static inline void *lp_cpu_cut(struct lp_cpu_cut *cut, int64_t n, size_t size) { // 64-byte aligned
    void *at = cut->base ? cut->base + cut->used : NULL;
    size_t bytes;
    if (n < 0 || __builtin_mul_overflow((size_t)n, size, &bytes) || bytes > SIZE_MAX / 2 - 64 ||
        cut->used > SIZE_MAX / 2)
        cut->used = SIZE_MAX / 2 + 1; // sticky: lp_cpu_cut_ok is false
    else
        cut->used += (bytes + 63) / 64 * 64;
    return at;
}
static inline float *lp_cpu_cut_floats(struct lp_cpu_cut *cut, int64_t n) {
    return lp_cpu_cut(cut, n, sizeof(float));
}

// The online softmax of some rows (a row = one query and head): acc[i] = sum of p * value,
// sum[i] = sum of p, both relative to max[i].
struct lp_cpu_softmax {
    float *acc;
    int64_t ld;
    float *max, *sum;
};
void lp_cpu_softmax_cut(struct lp_cpu_softmax *state, struct lp_cpu_cut *cut, int64_t n_rows,
                        int64_t width);
void lp_cpu_softmax_reset(struct lp_cpu_softmax *state, int64_t n_rows, int64_t width);
// Row i of the state takes up the first n_visible[i] (0..) of a block of keys: scores s[i][key] and
// values v[key][width]. s becomes the weights.
void lp_cpu_softmax_block(const struct lp_cpu_lanes *lanes, struct lp_cpu_softmax *state,
                          int first_row, int n_rows, float *s, int64_t lds,
                          const int32_t *n_visible, float scale, const float *v, int64_t ldv,
                          int width);
// One row takes up the n > 0 keys keys[..] (ascending, of the block) with scores s[0..n-1].
void lp_cpu_softmax_keys(const struct lp_cpu_lanes *lanes, struct lp_cpu_softmax *state, int row,
                         const int32_t *keys, int n, float *s, float scale, const float *v,
                         int64_t ldv, int width);
// acc, *max, *sum of a row take up a later segment's.
void lp_cpu_softmax_merge(float *acc, float *max, float *sum, const float *part_acc, float part_max,
                          float part_sum, int width);
// out = acc / sum
void lp_cpu_softmax_finish(const float *acc, float sum, float *out, int width);

// The next number of a shared count; false when all n are given out.
static inline bool lp_cpu_next(atomic_size_t *counter, size_t n, size_t *number) {
    *number = atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    return *number < n;
}

struct lp_cpu_fixed16; // cpu_fixed16.h
// The 16-bit products that expanded attention runs on where sizes fit (cpu_attn_mla_expanded.c); NULL:
// float32 throughout.
const struct lp_cpu_fixed16 *lp_cpu_mla_fixed(const struct lp_cpu_device *dev, lp_type cache,
                                              lp_type weights);

// Scratch bytes that each operation needs at most for a reservation (SIZE_MAX / 2 or more:
// overflow).
size_t lp_cpu_gqa_scratch(const struct lp_reserve *need, const struct lp_cpu_device *dev);
size_t lp_cpu_mla_absorbed_scratch(const struct lp_reserve *need, const struct lp_cpu_device *dev);
size_t lp_cpu_mla_expanded_scratch(const struct lp_reserve *need, const struct lp_cpu_device *dev);
size_t lp_cpu_index_scratch(const struct lp_reserve *need, const struct lp_cpu_device *dev);
size_t lp_cpu_router_scratch(const struct lp_reserve *need, const struct lp_cpu_device *dev);

// Partial results of the segments of a few queries (decode): a record per row and segment,
// [width values, then max, sum].
static inline int64_t lp_cpu_partial_floats(int64_t width) {
    return lp_cpu_ld(width) + 16;
}
void lp_cpu_partial_put(float *record, const struct lp_cpu_softmax *state, int row, int width);
// Merges n records of one row in order, in place, into out.
void lp_cpu_partial_finish(float *records, int64_t n, int width, float *out);

#endif
