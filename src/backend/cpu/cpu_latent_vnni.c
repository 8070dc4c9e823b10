// Q8_0 rows with AVX-512 VNNI: both products from whole numbers.
//
// Scores. A query is rounded to 15 bits in blocks of 32 values, q = d_q (128 h + l), h and l 8-bit
// numbers; a key is taken as it is stored:
//     s = sum over blocks b of (sum of (128 h + l) k, exact) * (d_q[b] * d_k[b])   float32, b ascending
// Values. A key's latent blocks are brought to one scale, d_v, the largest of the row's: v = d_v c,
// c rounded to 16 bits. The scale joins the weight, p' = p d_v, which is rounded to 15 bits of the
// block of keys, so that no sum leaves 32 bits:
//     acc = acc + (sum of p' c over the block of keys, exact) * scale
// The weights' sum, which divides the result, is of the unrounded p.
//
// A block of keys is packed once for all heads: for scores sixteen keys a vector, one in each lane,
// four values a column; for values sixteen dimensions a vector, two keys in each lane.
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#include <immintrin.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_latent.h"
#include "quant/blocks.h"

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))
#define KEYS LP_CPU_LATENT_KEYS
#define STRIP 16 // keys of a vector
#define N_STRIPS (KEYS / STRIP)
#define N_PAIRS (KEYS / 2)  // keys that a lane holds for values
#define BLOCK 32            // values of a Q8_0 block
#define OFFSET 128          // of the keys' bytes in strips
#define MOST_QUERY 16256.0f // 127 * 128
#define SCORE_HEADS 4       // of a tile, with two strips
#define VALUE_HEADS 8       // of a tile, with 32 dimensions
#define LEAST_WEIGHT 1e-30f // a block whose p' are smaller adds nothing
#define MOST_WEIGHT 32767.0f
#define MOST_WEIGHTS 65000.0f // of a block: times 32767 below 2^31

// ---- where things lie

struct packed {
    uint8_t *strips; // [N_STRIPS][width / 4][STRIP][4]
    float *d;        // [N_STRIPS][width / BLOCK][STRIP]
    int16_t *values; // [latent / BLOCK] pieces of PIECE bytes: [N_PAIRS][BLOCK][2]
    float *d_v;      // [KEYS]
    int32_t *ratios; // [width / BLOCK][STRIP]: of the blocks' scales to d_v, times 32767; a strip's
    int16_t *rows;   // [2][latent]: of two keys, on the way to values
};

// More than the pairs take, so that a pair's pieces do not all meet in the same sets of a cache.
#define PIECE (N_PAIRS * BLOCK * 4 + 256)

// With base NULL the parts count the bytes up.
static struct packed parts_of(char *base, int latent, int rope, size_t *bytes) {
    const size_t width = (size_t)(latent + rope), n_blocks = width / BLOCK;
    const size_t sizes[] = {KEYS * width,
                            KEYS * n_blocks * sizeof(float),
                            (size_t)latent / BLOCK * PIECE,
                            KEYS * sizeof(float),
                            STRIP * n_blocks * 4,
                            4 * (size_t)latent};
    size_t at[6], end = 0;
    for (int i = 0; i < 6; i++) {
        at[i] = end;
        end += (sizes[i] + 63) / 64 * 64;
    }
    *bytes = end;
    if (!base) return (struct packed){0};
    return (struct packed){.strips = (uint8_t *)(base + at[0]),
                           .d = (float *)(void *)(base + at[1]),
                           .values = (int16_t *)(void *)(base + at[2]),
                           .d_v = (float *)(void *)(base + at[3]),
                           .ratios = (int32_t *)(void *)(base + at[4]),
                           .rows = (int16_t *)(void *)(base + at[5])};
}

static struct packed packed_of(const struct lp_cpu_latent_block *b) {
    size_t bytes;
    return parts_of(b->packed, b->latent, b->rope, &bytes);
}

static size_t pack_bytes(int latent, int rope) {
    size_t bytes;
    parts_of(NULL, latent, rope, &bytes);
    return bytes;
}

struct query {      // of one head, behind each other
    int8_t *q;      // [2][width]: h, then l
    float *d;       // [width / BLOCK]
    int32_t *start; // [2][width / BLOCK]: -OFFSET times the sums of h and of l
};

static size_t query_step(int width) {
    return (2 * (size_t)width + (size_t)(width / BLOCK) * 12 + 63) / 64 * 64;
}

static size_t query_bytes(int n_heads, int latent, int rope) {
    return (size_t)n_heads * query_step(latent + rope);
}

static struct query query_at(const void *queries, int head, int width) {
    char *at = (char *)(uintptr_t)queries + (size_t)head * query_step(width);
    struct query q = {.q = (int8_t *)at, .d = (float *)(void *)(at + 2 * width)};
    q.start = (int32_t *)(void *)(q.d + width / BLOCK);
    return q;
}

// ---- queries

// 16 values in units of 1 / inverse to h and l; returns the vectors' sums in *h_sum and *l_sum.
INLINE void split_16(const float *x, __m512 inverse, int8_t *h, int8_t *l, __m512i *h_sum,
                     __m512i *l_sum) {
    const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inverse));
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(whole, _mm512_set1_epi32(64)), 7);
    const __m512i low = _mm512_sub_epi32(whole, _mm512_slli_epi32(high, 7));
    _mm_storeu_si128((void *)h, _mm512_cvtepi32_epi8(high));
    _mm_storeu_si128((void *)l, _mm512_cvtepi32_epi8(low));
    *h_sum = _mm512_add_epi32(*h_sum, high);
    *l_sum = _mm512_add_epi32(*l_sum, low);
}

// -OFFSET times the sum of the lanes; where values are not finite it means nothing and may overflow.
INLINE int32_t offset_start(__m512i sums) {
    return (int32_t)(0u - OFFSET * (uint32_t)_mm512_reduce_add_epi32(sums));
}

static void pack_queries(const float *q, ptrdiff_t ldq, int n_heads, int latent, int rope,
                         void *queries) {
    const int width = latent + rope, n_blocks = width / BLOCK;
    for (int h = 0; h < n_heads; h++) {
        struct query to = query_at(queries, h, width);
        for (int b = 0; b < n_blocks; b++) {
            const float *x = q + h * ldq + b * BLOCK;
            const __m512 low = _mm512_abs_ps(_mm512_loadu_ps(x)),
                         high = _mm512_abs_ps(_mm512_loadu_ps(x + 16));
            const float most = _mm512_reduce_max_ps(_mm512_max_ps(low, high));
            const float sum = _mm512_reduce_add_ps(_mm512_add_ps(low, high));
            to.d[b] = sum <= FLT_MAX ? most / MOST_QUERY : NAN; // the sum keeps what max drops
            const __m512 inverse = _mm512_set1_ps(to.d[b] > 1e-36f ? 1.0f / to.d[b] : 0.0f);
            __m512i h_sum = _mm512_setzero_si512(), l_sum = h_sum;
            for (int i = 0; i < BLOCK; i += 16)
                split_16(x + i, inverse, to.q + b * BLOCK + i, to.q + width + b * BLOCK + i, &h_sum,
                         &l_sum);
            to.start[b] = offset_start(h_sum);
            to.start[n_blocks + b] = offset_start(l_sum);
        }
    }
}

// ---- keys

INLINE const struct lp_block_q8_0 *row_of(const struct lp_cpu_latent_block *b, int key) {
    return b->rows[key < b->n_keys ? key : b->n_keys - 1]; // those behind repeat the last
}

INLINE __m512i four_rows(const uint8_t *const *rows, int first) { // 16 bytes of every fourth
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)rows[first]));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)rows[first + 4]), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)rows[first + 8]), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)rows[first + 12]), 3);
}

// 16 bytes of each of STRIP rows to four columns
INLINE void columns(const uint8_t *const *rows, uint8_t *out) {
    const __m512i flip = _mm512_set1_epi8((char)OFFSET);
    __m512i a = four_rows(rows, 0), b = four_rows(rows, 1), c = four_rows(rows, 2),
            d = four_rows(rows, 3);
    a = _mm512_xor_si512(a, flip), b = _mm512_xor_si512(b, flip);
    c = _mm512_xor_si512(c, flip), d = _mm512_xor_si512(d, flip);
    __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    _mm512_store_si512(out, _mm512_unpacklo_epi64(ab, cd));
    _mm512_store_si512(out + 64, _mm512_unpackhi_epi64(ab, cd));
    ab = _mm512_unpackhi_epi32(a, b), cd = _mm512_unpackhi_epi32(c, d);
    _mm512_store_si512(out + 128, _mm512_unpacklo_epi64(ab, cd));
    _mm512_store_si512(out + 192, _mm512_unpackhi_epi64(ab, cd));
}

#define MAX_TABLE 64 // blocks of a row whose scales are turned at a time

// Scales of the strip's blocks, a vector of keys each; d_v and the ratios of the latent blocks.
static void pack_scales(const struct lp_block_q8_0 *const *rows, int n_latent, int n_blocks,
                        float *d, float *d_v, int32_t *ratios) {
    for (int first = 0; first < n_blocks; first += MAX_TABLE) {
        int n = n_blocks - first < MAX_TABLE ? n_blocks - first : MAX_TABLE;
        uint16_t table[MAX_TABLE][STRIP];
        for (int i = 0; i < STRIP; i++)
            for (int k = 0; k < n; k++) table[k][i] = rows[i][first + k].d;
        for (int k = 0; k < n; k++)
            _mm512_store_ps(d + (first + k) * STRIP,
                            _mm512_cvtph_ps(_mm256_loadu_si256((const void *)table[k])));
    }
    __m512 most = _mm512_setzero_ps();
    for (int k = 0; k < n_latent; k++) most = _mm512_max_ps(most, _mm512_load_ps(d + k * STRIP));
    _mm512_store_ps(d_v, most);
    const __mmask16 any = _mm512_cmp_ps_mask(most, _mm512_setzero_ps(), _CMP_GT_OQ);
    const __m512 to_fixed = _mm512_maskz_div_ps(any, _mm512_set1_ps(32767.0f), most);
    for (int k = 0; k < n_latent; k++)
        _mm512_store_si512(ratios + k * STRIP, _mm512_cvtps_epi32(_mm512_mul_ps(
                                                   _mm512_load_ps(d + k * STRIP), to_fixed)));
}

static void pack_strip(const struct lp_block_q8_0 *const *rows, int n_blocks, uint8_t *out) {
    for (int k = 0; k < n_blocks; k++, out += STRIP * BLOCK) {
        const uint8_t *low[STRIP], *high[STRIP];
        for (int i = 0; i < STRIP; i++) {
            low[i] = (const uint8_t *)rows[i][k].qs;
            high[i] = low[i] + 16;
        }
        columns(low, out);
        columns(high, out + 4 * STRIP * 4);
    }
}

// Key `lane` of a strip: its latent values with one scale, in the order that pack_pair wants: of
// each 32, the first and the second 16 by turns, four at a time.
static void pack_row(const struct lp_block_q8_0 *row, int n_latent, const int32_t *ratios, int lane,
                     int16_t *out) {
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    for (int k = 0; k < n_latent; k++) {
        __m512i wide = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)row[k].qs));
        wide = _mm512_mulhrs_epi16(_mm512_slli_epi16(wide, 8),
                                   _mm512_set1_epi16((int16_t)ratios[k * STRIP + lane]));
        _mm512_store_si512(out + k * BLOCK, _mm512_permutexvar_epi64(order, wide));
    }
}

// Two packed rows to lanes of two numbers, one of each row.
static void pack_pair(const int16_t *rows, int latent, int pair, int16_t *values) {
    for (int k = 0; k < latent / BLOCK; k++) {
        char *out = (char *)values + (ptrdiff_t)k * PIECE + pair * BLOCK * 4;
        __m512i a = _mm512_load_si512(rows + k * BLOCK),
                b = _mm512_load_si512(rows + latent + k * BLOCK);
        _mm512_store_si512(out, _mm512_unpacklo_epi16(a, b));
        _mm512_store_si512(out + 64, _mm512_unpackhi_epi16(a, b));
    }
}

static void pack_keys(struct lp_cpu_latent_block *b) {
    const struct packed to = packed_of(b);
    const int n_latent = b->latent / BLOCK, n_blocks = (b->latent + b->rope) / BLOCK;
    const size_t row_bytes = (size_t)n_blocks * sizeof(struct lp_block_q8_0);
    for (int strip = 0; strip * STRIP < b->n_keys; strip++) {
        const struct lp_block_q8_0 *rows[STRIP];
        for (int i = 0; i < STRIP; i++) rows[i] = row_of(b, strip * STRIP + i);
        pack_scales(rows, n_latent, n_blocks, to.d + (ptrdiff_t)strip * n_blocks * STRIP,
                    to.d_v + strip * STRIP, to.ratios);
        pack_strip(rows, n_blocks, to.strips + (ptrdiff_t)strip * STRIP * n_blocks * BLOCK);
        for (int i = 0; i < STRIP; i++) {
            int key = strip * STRIP + i;
            pack_row(rows[i], n_latent, to.ratios, i, to.rows + i % 2 * b->latent);
            for (size_t at = 0; key < b->n_keys && at < row_bytes; at += 64)
                __builtin_prefetch((const char *)b->ahead[key] + at);
            if (i % 2 == 1) pack_pair(to.rows, b->latent, key / 2, to.values);
        }
    }
}

// ---- scores

// n heads from `head` on with two strips
INLINE void score_tile(const void *queries, int head, const int n, const struct packed *p,
                       int n_blocks, int strip, struct lp_cpu_latent_block *b, float *s,
                       ptrdiff_t lds) {
    const uint8_t *bytes[2];
    const float *d[2];
    struct query q[SCORE_HEADS];
    __m512 total[SCORE_HEADS][2];
    UNROLL for (int i = 0; i < 2; i++) {
        bytes[i] = p->strips + (ptrdiff_t)(strip + i) * STRIP * n_blocks * BLOCK;
        d[i] = p->d + (ptrdiff_t)(strip + i) * n_blocks * STRIP;
    }
    UNROLL for (int h = 0; h < n; h++) {
        q[h] = query_at(queries, head + h, n_blocks * BLOCK);
        total[h][0] = total[h][1] = _mm512_setzero_ps();
    }
    const char *fetch = b->fetch;
    for (int k = 0; k < n_blocks; k++) {
        lp_cpu_latent_fetch(&fetch, b->fetch_end);
        lp_cpu_latent_fetch(&fetch, b->fetch_end);
        __m512i sum[SCORE_HEADS][2][2]; // of h and of l, with each strip
        UNROLL for (int h = 0; h < n; h++) UNROLL for (int part = 0; part < 2; part++)
            sum[h][part][0] = sum[h][part][1] = _mm512_set1_epi32(q[h].start[part * n_blocks + k]);
        UNROLL for (int c = 0; c < BLOCK / 4; c++) {
            __m512i key[2];
            UNROLL for (int i = 0; i < 2; i++) key[i] =
                _mm512_load_si512(bytes[i] + (k * (BLOCK / 4) + c) * STRIP * 4);
            UNROLL for (int h = 0; h < n; h++) UNROLL for (int part = 0; part < 2; part++) {
                int32_t four;
                memcpy(&four, q[h].q + (part * n_blocks + k) * BLOCK + 4 * c, sizeof four);
                const __m512i x = _mm512_set1_epi32(four);
                UNROLL for (int i = 0; i < 2; i++) sum[h][part][i] =
                    _mm512_dpbusd_epi32(sum[h][part][i], key[i], x);
            }
        }
        UNROLL for (int h = 0; h < n; h++) {
            const __m512 d_q = _mm512_set1_ps(q[h].d[k]);
            UNROLL for (int i = 0; i < 2; i++) {
                const __m512i whole =
                    _mm512_add_epi32(_mm512_slli_epi32(sum[h][0][i], 7), sum[h][1][i]);
                total[h][i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole),
                                              _mm512_mul_ps(d_q, _mm512_load_ps(d[i] + k * STRIP)),
                                              total[h][i]);
            }
        }
    }
    b->fetch = fetch;
    UNROLL for (int h = 0; h < n; h++) UNROLL for (int i = 0; i < 2; i++)
        _mm512_storeu_ps(s + (head + h) * lds + (strip + i) * STRIP, total[h][i]);
}

static void scores(const void *queries, ptrdiff_t ldq, int n_heads, struct lp_cpu_latent_block *b,
                   float *s, ptrdiff_t lds) {
    (void)ldq;
    const struct packed p = packed_of(b);
    const int n_blocks = (b->latent + b->rope) / BLOCK;
    for (int strip = 0; strip * STRIP < b->n_keys; strip += 2) {
        int h = 0;
        for (; h + SCORE_HEADS <= n_heads; h += SCORE_HEADS)
            score_tile(queries, h, SCORE_HEADS, &p, n_blocks, strip, b, s, lds);
        for (; h < n_heads; h++) score_tile(queries, h, 1, &p, n_blocks, strip, b, s, lds);
    }
}

// ---- values

// The weights of one head to 15 bits; returns what one is worth, NaN where a product with d_v is not
// finite (a weight of 0 with an infinite key, which the sum of the weights does not show).
INLINE float pack_weights(const float *p, const float *d_v, int n_keys, int16_t *out) {
    __m512 v[N_STRIPS], most = _mm512_setzero_ps(), all = most;
    UNROLL for (int i = 0; i < N_STRIPS; i++) {
        int left = n_keys - i * STRIP;
        __mmask16 there = left >= STRIP ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
        v[i] = _mm512_mul_ps(_mm512_maskz_loadu_ps(there, p + i * STRIP),
                             _mm512_maskz_loadu_ps(there, d_v + i * STRIP));
        most = _mm512_max_ps(most, v[i]);
        all = _mm512_add_ps(all, v[i]);
    }
    const float largest = _mm512_reduce_max_ps(most), sum = _mm512_reduce_add_ps(all);
    float factor = 0;
    if (largest >= LEAST_WEIGHT && sum <= FLT_MAX)
        factor = largest * MOST_WEIGHTS >= sum * MOST_WEIGHT ? MOST_WEIGHT / largest
                                                             : MOST_WEIGHTS / sum;
    UNROLL for (int i = 0; i < N_STRIPS; i++) {
        __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], _mm512_set1_ps(factor)));
        _mm256_storeu_si256((void *)(out + i * STRIP), _mm512_cvtsepi32_epi16(whole));
    }
    if (!(sum <= FLT_MAX)) return NAN;
    return factor > 0 ? 1.0f / factor / 256.0f : 0; // 256: of the values' 8 bits more
}

// n heads with the 32 dimensions of a piece
INLINE void value_tile(const int16_t (*p)[KEYS], const float *worth, const int n, int n_pairs,
                       const char *piece, struct lp_cpu_latent_block *b, float *acc, ptrdiff_t ld) {
    __m512i sum[VALUE_HEADS][2];
    UNROLL for (int h = 0; h < n; h++) sum[h][0] = sum[h][1] = _mm512_setzero_si512();
    const char *fetch = b->fetch;
    for (int pair = 0; pair < n_pairs; pair++) {
        lp_cpu_latent_fetch(&fetch, b->fetch_end);
        const __m512i low = _mm512_load_si512(piece + pair * BLOCK * 4),
                      high = _mm512_load_si512(piece + pair * BLOCK * 4 + 64);
        UNROLL for (int h = 0; h < n; h++) {
            int32_t two;
            memcpy(&two, p[h] + 2 * pair, sizeof two);
            const __m512i x = _mm512_set1_epi32(two);
            sum[h][0] = _mm512_dpwssd_epi32(sum[h][0], x, low);
            sum[h][1] = _mm512_dpwssd_epi32(sum[h][1], x, high);
        }
    }
    b->fetch = fetch;
    UNROLL for (int h = 0; h < n; h++) for (int j = 0; j < 2; j++) {
        float *to = acc + h * ld + j * 16;
        _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[h][j]),
                                             _mm512_set1_ps(worth[h]), _mm512_loadu_ps(to)));
    }
}

static void values(const float *p, ptrdiff_t ldp, int n_heads, struct lp_cpu_latent_block *b,
                   float *acc, ptrdiff_t ld) {
    const struct packed parts = packed_of(b);
    const int n_pairs = (b->n_keys + 1) / 2;
    for (int head = 0, n; head < n_heads; head += n) {
        _Alignas(64) int16_t weights[VALUE_HEADS][KEYS];
        float worth[VALUE_HEADS];
        n = n_heads - head < VALUE_HEADS ? 1 : VALUE_HEADS;
        for (int h = 0; h < n; h++)
            worth[h] = pack_weights(p + (head + h) * ldp, parts.d_v, b->n_keys, weights[h]);
        for (int k = 0; k < b->latent / BLOCK; k++) {
            const char *piece = (const char *)parts.values + (ptrdiff_t)k * PIECE;
            float *to = acc + head * ld + k * BLOCK;
            if (n == VALUE_HEADS)
                value_tile(weights, worth, VALUE_HEADS, n_pairs, piece, b, to, ld);
            else
                value_tile(weights, worth, 1, n_pairs, piece, b, to, ld);
        }
    }
}

const struct lp_cpu_latent lp_cpu_latent_vnni_q8_0 = {.name = "vnni_mla_absorbed_q8_0",
                                                      .rounding = 1e-3,
                                                      .pack_bytes = pack_bytes,
                                                      .query_bytes = query_bytes,
                                                      .pack_queries = pack_queries,
                                                      .pack_keys = pack_keys,
                                                      .scores = scores,
                                                      .values = values};

#endif
