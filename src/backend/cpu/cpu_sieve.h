// The sieve of the indexer: scores of keys from 8-bit products, near enough to rule out most keys,
// so that only those near the threshold are scored exactly (cpu_indexer.c).
//
// A query's head and a key are rounded to whole numbers, with a scale for each head and one for each
// key: q = d_q a + e, |e| <= d_q / 2 in every value, and k likewise. The error of a dot
// product, sum of e k + ..., has the variance (d_q^2 |k|^2 + d_k^2 |q|^2) / 12 if rounding errors are
// independent and even, and that of the score is the same of its heads, weighted:
//
//     variance = scale^2 (A |k|^2 + B d_k^2),  A = sum_h w_h^2 d_q,h^2 / 12,  B = sum_h w_h^2 |q_h|^2 / 12
//
// (max(0, x) makes errors smaller, not larger). The order of the values within a row is the sieve's
// own, the same for queries and keys.
#ifndef LP_CPU_SIEVE_H
#define LP_CPU_SIEVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LP_CPU_SIEVE_KEYS 64 // keys of a block
#define LP_CPU_SIEVE_PACK 16 // keys that are packed together

// A query as the sieve wants it; the arrays are the caller's.
struct lp_cpu_sieve_query {
    int8_t *q;      // [n_heads][lp_cpu_sieve_width(width)], zeros behind the width
    int32_t *start; // [n_heads]: what undoes the keys' offset
    float *w;       // [n_heads]: weight times d_q
    float a, b;     // of the variance, without scale^2
};

// Up to LP_CPU_SIEVE_KEYS keys.
struct lp_cpu_sieve_block {
    uint8_t *bytes; // [LP_CPU_SIEVE_KEYS * lp_cpu_sieve_width(width)], 64-byte aligned
    float *d;       // [LP_CPU_SIEVE_KEYS]
    float *norm2;   // [LP_CPU_SIEVE_KEYS]: |k|^2; NaN of a key that must be scored exactly
    // Memory that is fetched into a cache meanwhile, a line at a time: any addresses, or none.
    const char *ahead, *ahead_end;
};

static inline int64_t lp_cpu_sieve_width(int64_t width) {
    return (width + 127) / 128 * 128;
}

// A block laid out in one piece of so many bytes, 64-byte aligned.
static inline size_t lp_cpu_sieve_block_bytes(int64_t width) {
    return LP_CPU_SIEVE_KEYS * ((size_t)lp_cpu_sieve_width(width) + 2 * sizeof(float));
}
static inline struct lp_cpu_sieve_block lp_cpu_sieve_block_at(void *piece, int64_t width) {
    struct lp_cpu_sieve_block block = {.bytes = piece};
    block.d = (float *)(void *)(block.bytes + LP_CPU_SIEVE_KEYS * lp_cpu_sieve_width(width));
    block.norm2 = block.d + LP_CPU_SIEVE_KEYS;
    return block;
}

struct lp_cpu_sieve {
    const char *name; // "vnni_index_select"
    // False where a value is not finite, or so small or large that the arithmetic above would not
    // hold: such queries must be scored exactly. q: [n_heads, width], w: [n_heads].
    // padded: [lp_cpu_sieve_width(width)], scratch.
    bool (*pack_query)(const float *q, const float *w, int n_heads, int width, float *padded,
                       struct lp_cpu_sieve_query *to);
    // Keys first .. first + n_keys - 1 of a block: first is a multiple of LP_CPU_SIEVE_PACK, n_keys <=
    // LP_CPU_SIEVE_PACK (0: there are none). rows: [n_keys] rows of ld floats, ld >=
    // lp_cpu_sieve_width(width), zeros behind the width.
    void (*pack_keys)(const float *rows, ptrdiff_t ld, int first, int n_keys, int width,
                      const struct lp_cpu_sieve_block *to);
    // One key of a block, with the same bytes; the others stay as they are.
    void (*pack_key)(const float *row, int key, int width, const struct lp_cpu_sieve_block *to);
    // out[LP_CPU_SIEVE_KEYS] = scale * sum_h w[h] max(0, dot of head h with the key)
    void (*score)(const struct lp_cpu_sieve_query *query, const struct lp_cpu_sieve_block *keys,
                  int n_heads, int width, float scale, float *out);
    // Of all keys of a block: the largest norm2 and d. False where one must be scored exactly.
    bool (*largest)(const struct lp_cpu_sieve_block *keys, float *norm2, float *d);
    // The least and the largest of n > 0 scores that are numbers.
    void (*range)(const float *scores, int64_t n, float *least, float *most);
    // The indices, ascending, of scores above `high` to sure, of the others above `low` to open.
    // False when a list is full.
    bool (*split)(const float *scores, int64_t n, float low, float high, int32_t *sure,
                  int64_t *n_sure, int64_t max_sure, int32_t *open, int64_t *n_open,
                  int64_t max_open);
};

#if defined(__x86_64__)
extern const struct lp_cpu_sieve lp_cpu_sieve_amx;  // needs AMX besides
extern const struct lp_cpu_sieve lp_cpu_sieve_vnni; // needs AVX-512 F, BW, DQ, VL and VNNI
extern const struct lp_cpu_sieve lp_cpu_sieve_avx2; // needs AVX2, FMA, F16C
#endif

#endif
