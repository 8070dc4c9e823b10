// BF16 and F16 rows with the tiles of AMX, which multiply bfloat16 and add in float32. Numbers that
// bfloat16 cannot hold are taken as the sum of two, x = high + low, 16 bits together: queries and
// softmax weights, and the rows of an F16 cache (exactly). Of the products of two such sums, that of the
// low parts is left out, 2^-16 of the whole.
//
// A block of keys is packed once for all heads.
//     scores   [16 keys][16 heads] = rows of keys, as they lie, times queries, transposed
//     values   [16 heads][16 dims] = weights times rows of two keys interleaved, added to the sums
// Heads are taken 16 at a time, those that lack are zeros.
#if (defined(__AMX_BF16__) || defined(LP_AMX_MODEL)) && defined(__AVX512BF16__) &&                 \
    defined(__AVX512VL__) && defined(__AVX512BW__)
#include "backend/cpu/cpu_amx.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "backend/cpu/cpu_latent.h"

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))
#define KEYS LP_CPU_LATENT_KEYS
#define SIDE 16         // rows of a tile, and float columns
#define RUN 32          // bfloat16 columns
#define TILE_VALUES 512 // bfloat16 values of a tile
#define N_STEPS (KEYS / RUN)

// ---- where things lie

struct packed {
    struct keys_at {
        const uint16_t *rows;
        size_t step;     // bytes from one to the next
    } * keys;            // [2]: the rows for scores, high and low parts
    uint16_t *rows[2];   // [KEYS][row_width]: where the cache's own do not do
    uint16_t *values[2]; // [N_STEPS][latent / SIDE] tiles: [SIDE pairs of keys][SIDE dims][2]
};

INLINE int row_width(int latent, int rope) {
    return (latent + rope + RUN - 1) / RUN * RUN;
}

static size_t pack_bytes_of(int latent, int rope, int n_parts) {
    return 64 +
           (size_t)n_parts * KEYS * sizeof(uint16_t) * (size_t)(row_width(latent, rope) + latent);
}

static size_t pack_bytes_bf16(int latent, int rope) {
    return pack_bytes_of(latent, rope, 1);
}

static size_t pack_bytes_f16(int latent, int rope) {
    return pack_bytes_of(latent, rope, 2);
}

INLINE struct packed packed_of(const struct lp_cpu_latent_block *b, int n_parts) {
    struct packed p = {.keys = b->packed};
    uint16_t *at = (uint16_t *)((char *)b->packed + 64);
    for (int i = 0; i < n_parts; i++, at += KEYS * row_width(b->latent, b->rope)) p.rows[i] = at;
    for (int i = 0; i < n_parts; i++, at += KEYS * b->latent) p.values[i] = at;
    return p;
}

// Queries of SIDE heads: for each RUN of a row two tiles, high and low, [SIDE pairs of values][SIDE heads][2].
static size_t query_bytes(int n_heads, int latent, int rope) {
    const int n_runs = row_width(latent, rope) / RUN;
    return (size_t)((n_heads + SIDE - 1) / SIDE * n_runs * 2 * TILE_VALUES) * sizeof(uint16_t);
}

// ---- two numbers for one

INLINE __mmask16 first_lanes(int n) {
    return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

INLINE __m512 widen(__m256bh x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)x), 16));
}

// 32 floats to their high and low parts; what is not finite is all in the high one.
INLINE void split_run(__m512 a, __m512 b, uint16_t *high, uint16_t *low) {
    const __m256bh high_a = _mm512_cvtneps_pbh(a), high_b = _mm512_cvtneps_pbh(b);
    const __m512 infinite = _mm512_set1_ps(INFINITY);
    const __m512 back_a = widen(high_a), back_b = widen(high_b);
    const __m512 low_a = _mm512_maskz_sub_ps(
        _mm512_cmp_ps_mask(_mm512_abs_ps(back_a), infinite, _CMP_LT_OQ), a, back_a);
    const __m512 low_b = _mm512_maskz_sub_ps(
        _mm512_cmp_ps_mask(_mm512_abs_ps(back_b), infinite, _CMP_LT_OQ), b, back_b);
    _mm256_storeu_si256((void *)high, (__m256i)high_a);
    _mm256_storeu_si256((void *)(high + 16), (__m256i)high_b);
    _mm256_storeu_si256((void *)low, (__m256i)_mm512_cvtneps_pbh(low_a));
    _mm256_storeu_si256((void *)(low + 16), (__m256i)_mm512_cvtneps_pbh(low_b));
}

// out[j][i] = in[i][j] of 16 x 16 lanes
INLINE void transpose(__m512i *v) {
    __m512i t[16];
    UNROLL for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL for (int j = 0; j < 4; j++) { // column 4 quarter + j of rows 0-3, 4-7, 8-11, 12-15
        t[j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xdd);
        t[8 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xdd);
    }
    UNROLL for (int j = 0; j < 4; j++) {
        v[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
        v[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
        v[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
        v[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xdd);
    }
}

// ---- queries

// One RUN of SIDE heads, of which n are there, from value `at` on
static void pack_query_run(const float *q, ptrdiff_t ldq, int n, int at, int width, uint16_t *out) {
    _Alignas(64) uint16_t parts[2][SIDE][RUN];
    __m512i v[SIDE];
    memset(parts, 0, sizeof parts);
    for (int h = 0; h < n; h++)
        split_run(_mm512_maskz_loadu_ps(first_lanes(width - at), q + h * ldq + at),
                  _mm512_maskz_loadu_ps(first_lanes(width - at - 16), q + h * ldq + at + 16),
                  parts[0][h], parts[1][h]);
    for (int part = 0; part < 2; part++) {
        UNROLL for (int h = 0; h < SIDE; h++) v[h] = _mm512_load_si512(parts[part][h]);
        transpose(v);
        UNROLL for (int i = 0; i < SIDE; i++)
            _mm512_store_si512(out + part * TILE_VALUES + i * RUN, v[i]);
    }
}

static void pack_queries(const float *q, ptrdiff_t ldq, int n_heads, int latent, int rope,
                         void *queries) {
    const int width = latent + rope;
    uint16_t *out = queries;
    for (int h = 0; h < n_heads; h += SIDE)
        for (int at = 0; at < width; at += RUN, out += 2 * TILE_VALUES)
            pack_query_run(q + h * ldq, ldq, n_heads - h < SIDE ? n_heads - h : SIDE, at, width,
                           out);
}

// ---- keys

// RUN values of a row as they lie, zeros behind its width and for a key that is not there
INLINE __m512i load_run(const void *row, int at, int width) {
    if (!row) return _mm512_setzero_si512();
    if (at + RUN <= width) return _mm512_loadu_si512((const uint16_t *)row + at);
    return _mm512_maskz_loadu_epi16((__mmask32)((1u << (width - at)) - 1),
                                    (const uint16_t *)row + at);
}

INLINE void store_pair_bf16(__m512i a, __m512i b, uint16_t *out) {
    const __m512i order =
        _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7); // for the unpacking of quarters
    a = _mm512_permutexvar_epi64(order, a);
    b = _mm512_permutexvar_epi64(order, b);
    _mm512_store_si512(out, _mm512_unpacklo_epi16(a, b));
    _mm512_store_si512(out + TILE_VALUES, _mm512_unpackhi_epi16(a, b));
}

// Where the fetching of the rows ahead is: row after row, so that the cache's own fetching joins in.
struct fetching {
    int key;
    size_t at; // bytes
};

// The next two lines
INLINE void fetch_ahead(const struct lp_cpu_latent_block *b, struct fetching *f) {
    const size_t row_bytes = (size_t)(b->latent + b->rope) * sizeof(uint16_t);
    if (f->key >= b->n_keys) return;
    const char *row = b->ahead[f->key];
    __builtin_prefetch(row + f->at, 0, 2);
    __builtin_prefetch(row + f->at + 64, 0, 2);
    f->at += 128;
    if (f->at < row_bytes) return;
    f->at = 0;
    f->key++;
}

// Whether the rows can be loaded to tiles where they lie
static bool evenly_spaced(const struct lp_cpu_latent_block *b) {
    const ptrdiff_t step = (const char *)b->rows[1] - (const char *)b->rows[0];
    bool even = b->n_keys == KEYS && (b->latent + b->rope) % RUN == 0;
    for (int i = 2; even && i < KEYS; i++)
        even = (const char *)b->rows[i] - (const char *)b->rows[i - 1] == step;
    return even;
}

// RUN values of two keys
INLINE void pack_two_bf16(const struct lp_cpu_latent_block *b, const struct packed *to, int pair,
                          int at, bool copy, struct fetching *ahead) {
    const int width = b->latent + b->rope, step = row_width(b->latent, b->rope), i = 2 * pair;
    const __m512i first = load_run(i < b->n_keys ? b->rows[i] : NULL, at, width),
                  second = load_run(i + 1 < b->n_keys ? b->rows[i + 1] : NULL, at, width);
    fetch_ahead(b, ahead);
    if (copy) {
        _mm512_storeu_si512(to->rows[0] + i * step + at, first);
        _mm512_storeu_si512(to->rows[0] + (i + 1) * step + at, second);
    }
    if (at < b->latent) {
        uint16_t *tiles =
            to->values[0] + (pair / SIDE * (b->latent / SIDE) + at / SIDE) * TILE_VALUES;
        store_pair_bf16(first, second, tiles + pair % SIDE * RUN);
    }
}

static void pack_keys_bf16(struct lp_cpu_latent_block *b) {
    const struct packed to = packed_of(b, 1);
    const int width = b->latent + b->rope;
    const bool copy = !evenly_spaced(b);
    to.keys[0] =
        (struct keys_at){to.rows[0], (size_t)row_width(b->latent, b->rope) * sizeof(uint16_t)};
    if (!copy)
        to.keys[0] = (struct keys_at){
            b->rows[0], (size_t)((const char *)b->rows[1] - (const char *)b->rows[0])};
    struct fetching ahead = {0};
    for (int pair = 0; 2 * pair < b->n_keys; pair += SIDE)
        for (int at = 0; at < width; at += RUN)
            if (copy)
                for (int i = 0; i < SIDE; i++) pack_two_bf16(b, &to, pair + i, at, true, &ahead);
            else
                for (int i = 0; i < SIDE; i++) pack_two_bf16(b, &to, pair + i, at, false, &ahead);
}

struct split { // 16 float16 values as the upper halves of floats
    __m512i high, low;
};

// Exact: of 11 bits the high part takes 8. What is not finite is all in the high one.
INLINE struct split split_f16(__m256i values) {
    const __m512 x = _mm512_cvtph_ps(values);
    const __m512i high =
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000));
    const __mmask16 finite =
        _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
    return (struct split){
        high, _mm512_castps_si512(_mm512_maskz_sub_ps(finite, x, _mm512_castsi512_ps(high)))};
}

// The upper halves of two vectors, one behind the other
INLINE __m512i upper_halves(__m512i a, __m512i b) {
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm512_permutexvar_epi64(
        order, _mm512_packus_epi32(_mm512_srli_epi32(a, 16), _mm512_srli_epi32(b, 16)));
}

// The upper halves of two vectors by turns; those of b have nothing below.
INLINE __m512i pair_halves(__m512i a, __m512i b) {
    return _mm512_or_si512(_mm512_srli_epi32(a, 16), b);
}

INLINE void pack_two_f16(const struct lp_cpu_latent_block *b, const struct packed *to, int pair,
                         int at, struct fetching *ahead) {
    const int width = b->latent + b->rope, step = row_width(b->latent, b->rope), key = 2 * pair;
    struct split x[2][2]; // of two keys, the two halves of the run
    fetch_ahead(b, ahead);
    for (int i = 0; i < 2; i++) {
        const __m512i run = load_run(key + i < b->n_keys ? b->rows[key + i] : NULL, at, width);
        x[i][0] = split_f16(_mm512_castsi512_si256(run));
        x[i][1] = split_f16(_mm512_extracti64x4_epi64(run, 1));
        _mm512_storeu_si512(to->rows[0] + (key + i) * step + at,
                            upper_halves(x[i][0].high, x[i][1].high));
        _mm512_storeu_si512(to->rows[1] + (key + i) * step + at,
                            upper_halves(x[i][0].low, x[i][1].low));
    }
    if (at >= b->latent) return;
    const ptrdiff_t tile =
        (pair / SIDE * (b->latent / SIDE) + at / SIDE) * TILE_VALUES + pair % SIDE * RUN;
    for (int half = 0; half < 2; half++) {
        _mm512_store_si512(to->values[0] + tile + half * TILE_VALUES,
                           pair_halves(x[0][half].high, x[1][half].high));
        _mm512_store_si512(to->values[1] + tile + half * TILE_VALUES,
                           pair_halves(x[0][half].low, x[1][half].low));
    }
}

static void pack_keys_f16(struct lp_cpu_latent_block *b) {
    const struct packed to = packed_of(b, 2);
    const size_t step = (size_t)row_width(b->latent, b->rope) * sizeof(uint16_t);
    struct fetching ahead = {0};
    for (int part = 0; part < 2; part++) to.keys[part] = (struct keys_at){to.rows[part], step};
    for (int pair = 0; 2 * pair < b->n_keys; pair += SIDE)
        for (int at = 0; at < b->latent + b->rope; at += RUN)
            for (int i = 0; i < SIDE; i++) pack_two_f16(b, &to, pair + i, at, &ahead);
}

// ---- scores

// Key tile i, whose number is part of the instructions: with the query tiles in 4 and 5
#define SCORE_TILE(i)                                                                              \
    if (n_tiles > (i)) {                                                                           \
        _tile_loadd(6, keys[0].rows + (i)*rows_0 + at, keys[0].step);                              \
        _tile_dpbf16ps(i, 6, 4);                                                                   \
        _tile_dpbf16ps(i, 6, 5);                                                                   \
        if (n_parts == 2) {                                                                        \
            _tile_loadd(7, keys[1].rows + (i)*rows_0 + at, keys[1].step);                          \
            _tile_dpbf16ps(i, 7, 4);                                                               \
        }                                                                                          \
    }

// SIDE heads with n_tiles of keys: out[key][head]
INLINE void score_tiles(const uint16_t *queries, const struct keys_at *keys, const int n_parts,
                        int n_tiles, int width, struct lp_cpu_latent_block *b, float (*out)[SIDE]) {
    const size_t rows_0 = SIDE * keys[0].step / sizeof(uint16_t); // of both parts
    const char *fetch = b->fetch;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int at = 0; at < width; at += RUN, queries += 2 * TILE_VALUES) {
        for (int i = 0; i < 4; i++) lp_cpu_latent_fetch(&fetch, b->fetch_end);
        _tile_loadd(4, queries, 64);
        _tile_loadd(5, queries + TILE_VALUES, 64);
        SCORE_TILE(0)
        SCORE_TILE(1)
        SCORE_TILE(2)
        SCORE_TILE(3)
    }
    b->fetch = fetch;
    _tile_stored(0, out[0], sizeof out[0]);
    _tile_stored(1, out[SIDE], sizeof out[0]);
    _tile_stored(2, out[2 * SIDE], sizeof out[0]);
    _tile_stored(3, out[3 * SIDE], sizeof out[0]);
}

INLINE void scores_of(const void *queries, int n_heads, struct lp_cpu_latent_block *b,
                      const int n_parts, float *s, ptrdiff_t lds) {
    const struct packed p = packed_of(b, n_parts);
    const int n_tiles = (b->n_keys + SIDE - 1) / SIDE, width = row_width(b->latent, b->rope);
    const uint16_t *q = queries;
    lp_cpu_amx_configure(&lp_cpu_amx_whole);
    for (int head = 0; head < n_heads; head += SIDE, q += width / RUN * 2 * TILE_VALUES) {
        _Alignas(64) float out[KEYS][SIDE];
        score_tiles(q, p.keys, n_parts, n_tiles, width, b, out);
        for (int tile = 0; tile < n_tiles; tile++) {
            __m512i v[SIDE];
            UNROLL for (int i = 0; i < SIDE; i++) v[i] = _mm512_load_si512(out[tile * SIDE + i]);
            transpose(v);
            UNROLL for (int h = 0; h < SIDE; h++) if (head + h < n_heads)
                _mm512_storeu_si512(s + (head + h) * lds + tile * SIDE, v[h]);
        }
    }
}

static void scores_bf16(const void *queries, ptrdiff_t ldq, int n_heads,
                        struct lp_cpu_latent_block *b, float *s, ptrdiff_t lds) {
    (void)ldq;
    scores_of(queries, n_heads, b, 1, s, lds);
}

static void scores_f16(const void *queries, ptrdiff_t ldq, int n_heads,
                       struct lp_cpu_latent_block *b, float *s, ptrdiff_t lds) {
    (void)ldq;
    scores_of(queries, n_heads, b, 2, s, lds);
}

// ---- values

typedef uint16_t weight_tiles[N_STEPS][2][SIDE][RUN]; // of RUN keys, high and low parts

static void pack_weights(const float *p, ptrdiff_t ldp, int n_heads, int n_keys, weight_tiles out) {
    memset(out, 0, sizeof(weight_tiles));
    for (int h = 0; h < n_heads; h++)
        for (int step = 0; step < N_STEPS; step++) {
            const float *x = p + h * ldp + step * RUN;
            const int n = n_keys - step * RUN;
            split_run(_mm512_maskz_loadu_ps(first_lanes(n), x),
                      _mm512_maskz_loadu_ps(first_lanes(n - 16), x + 16), out[step][0][h],
                      out[step][1][h]);
        }
}

#define VALUE_TILE(i)                                                                              \
    _tile_loadd(6, values[0] + (i)*TILE_VALUES, 64);                                               \
    _tile_dpbf16ps(i, 4, 6);                                                                       \
    _tile_dpbf16ps(i, 5, 6);                                                                       \
    if (n_parts == 2) {                                                                            \
        _tile_loadd(7, values[1] + (i)*TILE_VALUES, 64);                                           \
        _tile_dpbf16ps(i, 4, 7);                                                                   \
    }

// The sums of SIDE heads over 2 * SIDE dimensions
INLINE void value_tiles(weight_tiles weights, const struct packed *p, int at, const int n_parts,
                        struct lp_cpu_latent_block *b, float *acc, ptrdiff_t ld) {
    const size_t step_bytes = (size_t)ld * sizeof(float);
    const char *fetch = b->fetch;
    _tile_loadd(0, acc, step_bytes);
    _tile_loadd(1, acc + SIDE, step_bytes);
    for (int step = 0; step * RUN < b->n_keys; step++) {
        const ptrdiff_t tile = (step * (b->latent / SIDE) + at / SIDE) * TILE_VALUES;
        const uint16_t *values[2] = {p->values[0] + tile,
                                     n_parts == 2 ? p->values[1] + tile : NULL};
        for (int i = 0; i < 2; i++) lp_cpu_latent_fetch(&fetch, b->fetch_end);
        _tile_loadd(4, weights[step][0], 64);
        _tile_loadd(5, weights[step][1], 64);
        VALUE_TILE(0)
        VALUE_TILE(1)
    }
    b->fetch = fetch;
    _tile_stored(0, acc, step_bytes);
    _tile_stored(1, acc + SIDE, step_bytes);
}

INLINE void values_of(const float *p, ptrdiff_t ldp, int n_heads, struct lp_cpu_latent_block *b,
                      const int n_parts, float *acc, ptrdiff_t ld) {
    const struct packed parts = packed_of(b, n_parts);
    lp_cpu_amx_configure(&lp_cpu_amx_whole);
    for (int head = 0; head < n_heads; head += SIDE, acc += SIDE * ld) {
        _Alignas(64) weight_tiles weights;
        const int n = n_heads - head < SIDE ? n_heads - head : SIDE;
        pack_weights(p + head * ldp, ldp, n, b->n_keys, weights);
        for (int at = 0; at < b->latent; at += 2 * SIDE) {
            _Alignas(64) float some[SIDE][2 * SIDE] = {{0}};
            if (n == SIDE) {
                value_tiles(weights, &parts, at, n_parts, b, acc + at, ld);
                continue;
            }
            for (int h = 0; h < n; h++) memcpy(some[h], acc + h * ld + at, sizeof some[h]);
            value_tiles(weights, &parts, at, n_parts, b, some[0], 2 * SIDE);
            for (int h = 0; h < n; h++) memcpy(acc + h * ld + at, some[h], sizeof some[h]);
        }
    }
}

static void values_bf16(const float *p, ptrdiff_t ldp, int n_heads, struct lp_cpu_latent_block *b,
                        float *acc, ptrdiff_t ld) {
    values_of(p, ldp, n_heads, b, 1, acc, ld);
}

static void values_f16(const float *p, ptrdiff_t ldp, int n_heads, struct lp_cpu_latent_block *b,
                       float *acc, ptrdiff_t ld) {
    values_of(p, ldp, n_heads, b, 2, acc, ld);
}

const struct lp_cpu_latent lp_cpu_latent_amx_bf16 = {.name = "amx_mla_absorbed_bf16",
                                                     .rounding = 1e-4,
                                                     .pack_bytes = pack_bytes_bf16,
                                                     .query_bytes = query_bytes,
                                                     .pack_queries = pack_queries,
                                                     .pack_keys = pack_keys_bf16,
                                                     .scores = scores_bf16,
                                                     .values = values_bf16};
const struct lp_cpu_latent lp_cpu_latent_amx_f16 = {.name = "amx_mla_absorbed_f16",
                                                    .rounding = 1e-4,
                                                    .pack_bytes = pack_bytes_f16,
                                                    .query_bytes = query_bytes,
                                                    .pack_queries = pack_queries,
                                                    .pack_keys = pack_keys_f16,
                                                    .scores = scores_f16,
                                                    .values = values_f16};

#endif
