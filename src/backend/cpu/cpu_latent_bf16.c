// BF16 rows with AVX-512 BF16: both products multiply bfloat16 and add in float32, two products a lane
// and instruction. A key is taken as it is stored, or of an F16 cache rounded to bfloat16 (where results
// may vary); queries and softmax weights are rounded to bfloat16 (8 bits, nearest even), as the attention
// kernels of GPUs do it. The weights' sum, which divides the result, is of the unrounded ones.
//
// Scores: per (head, key) one vector of sums over the row, 32 values at a time. Values: two keys at a
// time, whose rows are interleaved, so that a lane holds the same dimension of both.
#if defined(__AVX512BF16__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/cpu_latent.h"
#include "backend/cpu/cpu_vec512.h"

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))
#define RUN 32        // values of a vector of bfloat16, and of a cache line
#define SCORE_HEADS 4 // of a tile, with four keys
#define VALUE_HEADS 8 // of a tile, with 32 dimensions
#define MOST_HEADS 32 // whose weights are held at a time
#define KEYS LP_CPU_LATENT_KEYS

static ptrdiff_t query_step(int width) { // values from one query to the next
    return (width + RUN - 1) / RUN * RUN;
}

static size_t query_bytes(int n_heads, int latent, int rope) {
    return (size_t)n_heads * (size_t)query_step(latent + rope) * sizeof(uint16_t);
}

INLINE __mmask16 first_lanes(int n) {
    return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

// n <= 32 floats to bfloat16, zeros behind
INLINE __m512i to_bf16(const float *x, int n) {
    const __m512 low = _mm512_maskz_loadu_ps(first_lanes(n), x),
                 high = _mm512_maskz_loadu_ps(first_lanes(n - 16), x + 16);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

static void pack_queries(const float *q, ptrdiff_t ldq, int n_heads, int latent, int rope,
                         void *queries) {
    const int width = latent + rope;
    uint16_t *out = queries;
    for (int h = 0; h < n_heads; h++, out += query_step(width))
        for (int at = 0; at < width; at += RUN)
            _mm512_storeu_si512(out + at, to_bf16(q + h * ldq + at, width - at));
}

// The values of a row from `at` on, zeros behind its width
INLINE __m512bh load_row(const uint16_t *row, int at, int width) {
    if (at + RUN <= width) return (__m512bh)_mm512_loadu_si512(row + at);
    const __mmask32 there = (__mmask32)((1u << (width - at)) - 1);
    return (__m512bh)_mm512_maskz_loadu_epi16(there, row + at);
}

// ---- rows of F16

static size_t pack_bytes_f16(int latent, int rope) {
    return KEYS * sizeof(uint16_t) * (size_t)query_step(latent + rope);
}

// The block's rows become bfloat16 in its packed form.
static void pack_keys_f16(struct lp_cpu_latent_block *b) {
    const int width = b->latent + b->rope;
    uint16_t *out = b->packed;
    for (int t = 0; t < b->n_keys; t++, out += query_step(width)) {
        for (int at = 0; at < width; at += RUN) {
            const __m512i x = (__m512i)load_row(b->rows[t], at, width);
            _mm512_storeu_si512(out + at, (__m512i)_mm512_cvtne2ps_pbh(
                                              _mm512_cvtph_ps(_mm512_extracti64x4_epi64(x, 1)),
                                              _mm512_cvtph_ps(_mm512_castsi512_si256(x))));
        }
        b->rows[t] = out;
    }
}

// ---- scores

// Of the steps of both products, which share the fetching of the rows ahead evenly (in bursts it stalls on
// the misses that can be in flight): a line each, each second, each fourth; as a mask.
INLINE int fetch_seldom(int n_heads) {
    return n_heads > 16 ? 3 : n_heads > 8 ? 1 : 0;
}

// n_heads (of n_all) x n_keys (4 or 1) scores
INLINE void score_tile(const int n_heads, int n_all, const int n_keys, int width, const uint16_t *q,
                       const void *const *rows, struct lp_cpu_latent_block *b, float *s,
                       ptrdiff_t lds) {
    const ptrdiff_t step = query_step(width);
    const size_t row_bytes = (size_t)width * sizeof(uint16_t);
    const int seldom = fetch_seldom(n_all);
    __m512 sum[SCORE_HEADS][4];
    UNROLL for (int h = 0; h < n_heads; h++) UNROLL for (int t = 0; t < n_keys; t++) sum[h][t] =
        _mm512_setzero_ps();
    const char *fetch = b->fetch;
    for (int at = 0; at < width; at += RUN) {
        if ((at / RUN & seldom) == 0) lp_cpu_latent_fetch_ahead(b, row_bytes);
        lp_cpu_latent_fetch(&fetch, b->fetch_end);
        __m512bh k[4];
        UNROLL for (int t = 0; t < n_keys; t++) k[t] = load_row(rows[t], at, width);
        UNROLL for (int h = 0; h < n_heads; h++) {
            const __m512bh x = (__m512bh)_mm512_loadu_si512(q + h * step + at);
            UNROLL for (int t = 0; t < n_keys; t++) sum[h][t] =
                _mm512_dpbf16_ps(sum[h][t], x, k[t]);
        }
    }
    b->fetch = fetch;
    UNROLL for (int h = 0; h < n_heads; h++) {
        if (n_keys == 4)
            lp_sum4_512(sum[h], s + h * lds);
        else
            s[h * lds] = lp_sum_512(sum[h][0]);
    }
}

// All heads with n_keys (4 or 1) keys from t on
INLINE void score_keys(const int n_keys, int t, const uint16_t *q, int n_heads,
                       struct lp_cpu_latent_block *b, float *s, ptrdiff_t lds) {
    const int width = b->latent + b->rope;
    int h = 0;
#define TILE(n)                                                                                    \
    for (; h + (n) <= n_heads; h += (n))                                                           \
        score_tile(n, n_heads, n_keys, width, q + h * query_step(width), b->rows + t, b,           \
                   s + h * lds + t, lds);
    TILE(SCORE_HEADS)
    TILE(2)
    TILE(1)
#undef TILE
}

static void scores(const void *queries, ptrdiff_t ldq, int n_heads, struct lp_cpu_latent_block *b,
                   float *s, ptrdiff_t lds) {
    (void)ldq;
    b->ahead_key = 0;
    b->ahead_at = 0;
    int t = 0;
    for (; t + 4 <= b->n_keys; t += 4) score_keys(4, t, queries, n_heads, b, s, lds);
    for (; t < b->n_keys; t++) score_keys(1, t, queries, n_heads, b, s, lds);
}

// ---- values

// Interleaved rows hold the dimensions 4i .. 4i + 3 with i even in one vector and with i odd in the
// other, and so do the sums meanwhile.
struct sums {
    __m512 even, odd;
};

INLINE struct sums load_sums(const float *acc, int n) {
    const __m512 low = _mm512_maskz_loadu_ps(first_lanes(n), acc),
                 high = _mm512_maskz_loadu_ps(first_lanes(n - 16), acc + 16);
    const __m512 a = _mm512_shuffle_f32x4(low, high, 0x88),
                 b = _mm512_shuffle_f32x4(low, high, 0xdd);
    return (struct sums){a, b}; // quarters 0, 2 of both; quarters 1, 3
}

INLINE void store_sums(float *acc, struct sums s, int n) {
    // quarters: e0 o0 e1 o1 | e2 o2 e3 o3
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
                  second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29,
                                             30, 31);
    _mm512_mask_storeu_ps(acc, first_lanes(n), _mm512_permutex2var_ps(s.even, first, s.odd));
    _mm512_mask_storeu_ps(acc + 16, first_lanes(n - 16),
                          _mm512_permutex2var_ps(s.even, second, s.odd));
}

// n_heads (of n_all) with the dimensions at .. at + 31 (as far as there are any)
INLINE void value_tile(const uint16_t (*p)[KEYS], const int n_heads, int n_all, int at,
                       struct lp_cpu_latent_block *b, float *acc, ptrdiff_t ld) {
    const size_t row_bytes = (size_t)(b->latent + b->rope) * sizeof(uint16_t);
    const int n = b->latent - at, seldom = fetch_seldom(n_all);
    struct sums sum[VALUE_HEADS];
    UNROLL for (int h = 0; h < n_heads; h++) sum[h] = load_sums(acc + h * ld + at, n);
    const char *fetch = b->fetch;
    for (int t = 0; t < b->n_keys; t += 2) {
        if ((t / 2 & seldom) == 0) lp_cpu_latent_fetch_ahead(b, row_bytes);
        lp_cpu_latent_fetch(&fetch, b->fetch_end);
        const __m512i first = (__m512i)load_row(b->rows[t], at, b->latent),
                      second = t + 1 < b->n_keys ? (__m512i)load_row(b->rows[t + 1], at, b->latent)
                                                 : _mm512_setzero_si512();
        const __m512bh even = (__m512bh)_mm512_unpacklo_epi16(first, second),
                       odd = (__m512bh)_mm512_unpackhi_epi16(first, second);
        UNROLL for (int h = 0; h < n_heads; h++) {
            int32_t two;
            memcpy(&two, p[h] + t, sizeof two);
            const __m512bh x = (__m512bh)_mm512_set1_epi32(two);
            sum[h].even = _mm512_dpbf16_ps(sum[h].even, x, even);
            sum[h].odd = _mm512_dpbf16_ps(sum[h].odd, x, odd);
        }
    }
    b->fetch = fetch;
    UNROLL for (int h = 0; h < n_heads; h++) store_sums(acc + h * ld + at, sum[h], n);
}

// The dimensions are the outer loop: 32 of them of all rows stay in the nearest cache for all heads.
static void values(const float *p, ptrdiff_t ldp, int n_heads, struct lp_cpu_latent_block *b,
                   float *acc, ptrdiff_t ld) {
    _Alignas(64) uint16_t weights[MOST_HEADS][KEYS];
    for (int first = 0; first < n_heads; first += MOST_HEADS) {
        const int n = n_heads - first < MOST_HEADS ? n_heads - first : MOST_HEADS;
        for (int h = 0; h < n; h++)
            for (int t = 0; t < KEYS; t += RUN)
                _mm512_store_si512(weights[h] + t,
                                   to_bf16(p + (first + h) * ldp + t, b->n_keys - t));
        for (int at = 0; at < b->latent; at += RUN) {
            int h = 0;
            for (; h + VALUE_HEADS <= n; h += VALUE_HEADS)
                value_tile(weights + h, VALUE_HEADS, n_heads, at, b, acc + (first + h) * ld, ld);
            for (; h < n; h++)
                value_tile(weights + h, 1, n_heads, at, b, acc + (first + h) * ld, ld);
        }
    }
}

const struct lp_cpu_latent lp_cpu_latent_bf16_bf16 = {.name = "bf16_mla_absorbed_bf16",
                                                      .rounding = 1e-2,
                                                      .query_bytes = query_bytes,
                                                      .pack_queries = pack_queries,
                                                      .scores = scores,
                                                      .values = values};
const struct lp_cpu_latent lp_cpu_latent_bf16_f16_rounded = {.name = "bf16_mla_absorbed_f16",
                                                             .rounding = 2e-2,
                                                             .pack_bytes = pack_bytes_f16,
                                                             .query_bytes = query_bytes,
                                                             .pack_queries = pack_queries,
                                                             .pack_keys = pack_keys_f16,
                                                             .scores = scores,
                                                             .values = values};

#endif
