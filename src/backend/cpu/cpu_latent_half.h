// Tables of cpu_latent.h for rows of 16-bit floats, which are widened as they are loaded. Scores:
// per (head, key) one vector of sums over the row in steps of LANES, then v_sum; the last values of
// a row that is no multiple of LANES are filled up with zeros. Values: keys in order, one fused
// multiply-add each. float32 throughout.
// A file that includes this defines first: LANES, vf, v_zero, v_set1, v_load, v_load_n, v_store,
// v_store_n, v_fma, v_sum, v_sum4 (cpu_lanes_body.h), SCORE_HEADS (times 4 keys), TILE_HEADS,
// TILE_VECTORS, and load_half(type, p): LANES values, of which all may be read.
#include <string.h>

#include "backend/cpu/cpu_latent.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

INLINE vf load_rest(lp_type type, const uint16_t *p, int n) {
    uint16_t whole[LANES] = {0};
    memcpy(whole, p, (size_t)n * sizeof *p);
    return load_half(type, whole);
}

// n_heads x n_keys (4 or 1) scores
INLINE void score_tile(lp_type type, const int n_heads, const int n_keys, int width, const float *q,
                       ptrdiff_t ldq, const void *const *rows, struct lp_cpu_latent_block *b,
                       float *s, ptrdiff_t lds) {
    vf sum[SCORE_HEADS][4];
    UNROLL for (int h = 0; h < n_heads; h++) UNROLL for (int t = 0; t < n_keys; t++) sum[h][t] =
        v_zero();
    const size_t row_bytes = (size_t)width * sizeof(uint16_t);
    const char *fetch = b->fetch;
    int at = 0;
    for (; at + LANES <= width; at += LANES) {
        if (at % 32 == 0) lp_cpu_latent_fetch_ahead(b, row_bytes);
        lp_cpu_latent_fetch(&fetch, b->fetch_end);
        vf k[4];
        UNROLL for (int t = 0; t < n_keys; t++) k[t] =
            load_half(type, (const uint16_t *)rows[t] + at);
        UNROLL for (int h = 0; h < n_heads; h++) {
            vf x = v_load(q + h * ldq + at);
            UNROLL for (int t = 0; t < n_keys; t++) sum[h][t] = v_fma(x, k[t], sum[h][t]);
        }
    }
    b->fetch = fetch;
    if (at < width) UNROLL for (int t = 0; t < n_keys; t++) {
            vf k = load_rest(type, (const uint16_t *)rows[t] + at, width - at);
            UNROLL for (int h = 0; h < n_heads; h++) sum[h][t] =
                v_fma(v_load_n(q + h * ldq + at, width - at, 0), k, sum[h][t]);
        }
    UNROLL for (int h = 0; h < n_heads; h++) {
        if (n_keys == 4)
            v_sum4(sum[h], s + h * lds);
        else
            s[h * lds] = v_sum(sum[h][0]);
    }
}

// All heads with n_keys (4 or 1) keys from t on
INLINE void score_keys(lp_type type, const int n_keys, int t, const float *q, ptrdiff_t ldq,
                       int n_heads, struct lp_cpu_latent_block *b, float *s, ptrdiff_t lds) {
    const int width = b->latent + b->rope;
    int h = 0;
#define TILE(n)                                                                                    \
    for (; h + (n) <= n_heads; h += (n))                                                           \
        score_tile(type, n, n_keys, width, q + h * ldq, ldq, b->rows + t, b, s + h * lds + t, lds);
    TILE(SCORE_HEADS)
    TILE(2)
    TILE(1)
#undef TILE
}

INLINE void scores(lp_type type, const float *q, ptrdiff_t ldq, int n_heads,
                   struct lp_cpu_latent_block *b, float *s, ptrdiff_t lds) {
    b->ahead_key = 0;
    b->ahead_at = 0;
    int t = 0;
    for (; t + 4 <= b->n_keys; t += 4) score_keys(type, 4, t, q, ldq, n_heads, b, s, lds);
    for (; t < b->n_keys; t++) score_keys(type, 1, t, q, ldq, n_heads, b, s, lds);
}

// n_heads x n_vectors sums (or n_rest > 0 values of one vector) from column `at` on
INLINE void value_tile(lp_type type, const int n_heads, const int n_vectors, int n_rest, int at,
                       const float *p, ptrdiff_t ldp, struct lp_cpu_latent_block *b, float *acc,
                       ptrdiff_t ld) {
    vf sum[TILE_HEADS][TILE_VECTORS];
    UNROLL for (int h = 0; h < n_heads; h++) UNROLL for (int j = 0; j < n_vectors; j++) sum[h][j] =
        n_rest ? v_load_n(acc + h * ld + at, n_rest, 0) : v_load(acc + h * ld + at + j * LANES);
    const char *fetch = b->fetch;
    for (int t = 0; t < b->n_keys; t++) {
        lp_cpu_latent_fetch(&fetch, b->fetch_end);
        const uint16_t *row = (const uint16_t *)b->rows[t] + at;
        vf v[TILE_VECTORS];
        UNROLL for (int j = 0; j < n_vectors; j++) v[j] =
            n_rest ? load_rest(type, row, n_rest) : load_half(type, row + j * LANES);
        UNROLL for (int h = 0; h < n_heads; h++) {
            vf x = v_set1(p[h * ldp + t]);
            UNROLL for (int j = 0; j < n_vectors; j++) sum[h][j] = v_fma(x, v[j], sum[h][j]);
        }
    }
    b->fetch = fetch;
    UNROLL for (int h = 0; h < n_heads; h++) UNROLL for (int j = 0; j < n_vectors; j++) {
        if (n_rest)
            v_store_n(acc + h * ld + at, sum[h][j], n_rest);
        else
            v_store(acc + h * ld + at + j * LANES, sum[h][j]);
    }
}

INLINE void value_band(lp_type type, const int n_heads, const float *p, ptrdiff_t ldp,
                       struct lp_cpu_latent_block *b, float *acc, ptrdiff_t ld) {
    int at = 0;
    for (; at + TILE_VECTORS * LANES <= b->latent; at += TILE_VECTORS * LANES)
        value_tile(type, n_heads, TILE_VECTORS, 0, at, p, ldp, b, acc, ld);
    for (; at + LANES <= b->latent; at += LANES)
        value_tile(type, n_heads, 1, 0, at, p, ldp, b, acc, ld);
    if (at < b->latent) value_tile(type, n_heads, 1, b->latent - at, at, p, ldp, b, acc, ld);
}

INLINE void values(lp_type type, const float *p, ptrdiff_t ldp, int n_heads,
                   struct lp_cpu_latent_block *b, float *acc, ptrdiff_t ld) {
    int h = 0;
    for (; h + TILE_HEADS <= n_heads; h += TILE_HEADS)
        value_band(type, TILE_HEADS, p + h * ldp, ldp, b, acc + h * ld, ld);
    for (; h < n_heads; h++) value_band(type, 1, p + h * ldp, ldp, b, acc + h * ld, ld);
}

#define LP_CPU_LATENT_HALF(isa, stem, type)                                                        \
    static void stem##_scores(const void *q, ptrdiff_t ldq, int n_heads,                           \
                              struct lp_cpu_latent_block *b, float *s, ptrdiff_t lds) {            \
        scores(type, q, ldq, n_heads, b, s, lds);                                                  \
    }                                                                                              \
    static void stem##_values(const float *p, ptrdiff_t ldp, int n_heads,                          \
                              struct lp_cpu_latent_block *b, float *acc, ptrdiff_t ld) {           \
        values(type, p, ldp, n_heads, b, acc, ld);                                                 \
    }                                                                                              \
    const struct lp_cpu_latent lp_cpu_latent_##isa##_##stem = {                                    \
        .name = #isa "_mla_absorbed_" #stem, .scores = stem##_scores, .values = stem##_values}
