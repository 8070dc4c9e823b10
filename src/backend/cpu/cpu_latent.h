// Absorbed MLA's two products with cache rows as they lie in the cache: one table per instruction
// set and cache type. Where there is none, rows are converted to float32 first (cpu_attn_mla.c).
//
// What every table promises: an output depends on its own head and, for scores, its own key alone;
// how many are in the call does not change its bits (B2 of backend.h). NaN and infinity go through.
#ifndef LP_CPU_LATENT_H
#define LP_CPU_LATENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/quant.h"

#define LP_CPU_LATENT_KEYS 64 // most keys of a block

// The rows of a block of keys, and room that a table may use for a packed form of them.
struct lp_cpu_latent_block {
    const void *rows[LP_CPU_LATENT_KEYS];
    const void *ahead[LP_CPU_LATENT_KEYS]; // rows to fetch into the cache meanwhile; any addresses
    int n_keys;
    int latent, rope;
    void *packed; // [pack_bytes], 64-byte aligned
    // Memory that is brought nearer a line at a time all along the products, as far as there is time:
    // fetch moves towards fetch_end.
    const char *fetch, *fetch_end;
    int ahead_key; // how far a table has come with `ahead`
    size_t ahead_at;
};

// The next lines of a block's fetch, to be called between multiplications.
static inline void lp_cpu_latent_fetch(const char **at, const char *end) {
    for (int i = 0; i < 2; i++) {
        __builtin_prefetch(*at, 0, 2);
        *at = *at < end ? *at + 64 : end;
    }
}

// The next line of the rows ahead, row after row, so that the cache's own fetching joins in.
static inline void lp_cpu_latent_fetch_ahead(struct lp_cpu_latent_block *b, size_t row_bytes) {
    if (b->ahead_key >= b->n_keys) return;
    __builtin_prefetch((const char *)b->ahead[b->ahead_key] + b->ahead_at, 0, 2);
    b->ahead_at += 64;
    if (b->ahead_at < row_bytes) return;
    b->ahead_at = 0;
    b->ahead_key++;
}

struct lp_cpu_latent {
    const char *name; // "avx512_mla_absorbed_f16"
    double rounding;  // of its results, relative to the largest of a row, beyond float32's
    // Bytes of lp_cpu_latent_block.packed and of packed queries. NULL: nothing is packed.
    size_t (*pack_bytes)(int latent, int rope);
    size_t (*query_bytes)(int n_heads, int latent, int rope);
    // q: [n_heads] rows of ldq floats, latent part first. NULL: `queries` of scores are q itself.
    void (*pack_queries)(const float *q, ptrdiff_t ldq, int n_heads, int latent, int rope,
                         void *queries);
    void (*pack_keys)(struct lp_cpu_latent_block *keys); // or NULL
    // s[h * lds + t] = q[h] . row t, t < n_keys; what it writes for other t < LP_CPU_LATENT_KEYS means
    // nothing.
    void (*scores)(const void *queries, ptrdiff_t ldq, int n_heads,
                   struct lp_cpu_latent_block *keys, float *s, ptrdiff_t lds);
    // acc[h * ld + j] += sum_t p[h * ldp + t] * row t [j], j < latent. Of a block whose scores were taken:
    // that may have packed the rows.
    void (*values)(const float *p, ptrdiff_t ldp, int n_heads, struct lp_cpu_latent_block *keys,
                   float *acc, ptrdiff_t ld);
};

#define LP_CPU_LATENT_ANY 0 // as `latent`: one that fits

// The first table for a cache type that `features` (LP_CPU_*) allow, or NULL. A block type's blocks
// must not hold both latent and rotated values. may_vary: lp_backend.fix_results is off, so that bfloat16
// may stand for finer numbers.
const struct lp_cpu_latent *lp_cpu_latent_find(lp_type type, int latent, uint32_t features,
                                               bool may_vary);

// The most that any table's pack_bytes and query_bytes say, to plan scratch with. Of the tables that
// `features` allow: even these two functions are made of the table's instructions.
size_t lp_cpu_latent_pack_most(uint32_t features, int latent, int rope);
size_t lp_cpu_latent_query_most(uint32_t features, int n_heads, int latent, int rope);

#endif
