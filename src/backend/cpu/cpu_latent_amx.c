// BF16 and F16 rows with the tiles of AMX, which multiply bfloat16 and add in float32. Numbers that
// bfloat16 cannot hold are taken as the sum of two, x = high + low, 16 bits together: queries and
// softmax weights, and the rows of an F16 cache (exactly). Of the products of two such sums, that of the
// low parts is left out, 2^-16 of the whole. The tables for rounded results take one bfloat16 for a row's
// value and a weight, and for one of the two factors of a score.
//
//     scores   [16 keys][16 heads] = rows of keys, as they lie, times queries, transposed
//     values   [16 heads][16 dims] = weights times rows of two keys interleaved, added to the sums
// Heads are taken 16 at a time, those that lack are zeros. A run of 32 values of 32 keys at a time is made
// ready while the tiles multiply the one before, for the scores in the nearest cache, for the values
// (which come later) in the block's packed form.
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

enum rows { // of the cache, and what they are multiplied as
    ROWS_BF16,
    ROWS_F16,        // two bfloat16
    ROWS_F16_ROUNDED // one
};

// ---- where things lie

INLINE int row_width(int latent, int rope) {
    return (latent + rope + RUN - 1) / RUN * RUN;
}

// Rows of values of all keys: [N_STEPS][latent / SIDE] tiles: [SIDE pairs of keys][SIDE dims][2]
static size_t pack_bytes(int latent, int rope) {
    (void)rope;
    return KEYS * sizeof(uint16_t) * (size_t)latent;
}

static size_t pack_bytes_f16(int latent, int rope) {
    return 2 * pack_bytes(latent, rope);
}

INLINE uint16_t *packed_values(const struct lp_cpu_latent_block *b, int part) {
    return (uint16_t *)b->packed + part * KEYS * b->latent;
}

// Queries of SIDE heads: for each RUN of a row a tile of each part, high and low,
// [SIDE pairs of values][SIDE heads][2].
INLINE ptrdiff_t query_group(int latent, int rope, int n_parts) {
    return row_width(latent, rope) / RUN * n_parts * TILE_VALUES;
}

static size_t query_bytes(int n_heads, int latent, int rope) {
    return (size_t)((n_heads + SIDE - 1) / SIDE * query_group(latent, rope, 2)) * sizeof(uint16_t);
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

// One RUN of SIDE heads, of which n are there, from value `at` on. `order`: of its values
INLINE void pack_query_run(const float *q, ptrdiff_t ldq, int n, int at, int width, __m512i order,
                           const int n_parts, uint16_t *out) {
    _Alignas(64) uint16_t parts[2][SIDE][RUN];
    __m512i v[SIDE];
    memset(parts, 0, sizeof parts);
    for (int h = 0; h < n; h++)
        split_run(_mm512_maskz_loadu_ps(first_lanes(width - at), q + h * ldq + at),
                  _mm512_maskz_loadu_ps(first_lanes(width - at - 16), q + h * ldq + at + 16),
                  parts[0][h], parts[1][h]);
    for (int part = 0; part < n_parts; part++) {
        UNROLL for (int h = 0; h < SIDE; h++) v[h] =
            _mm512_permutexvar_epi16(order, _mm512_load_si512(parts[part][h]));
        transpose(v);
        UNROLL for (int i = 0; i < SIDE; i++)
            _mm512_store_si512(out + part * TILE_VALUES + i * RUN, v[i]);
    }
}

// In order as BF16 rows lie, else a run's two halves by turns, as pair_halves() makes the keys
INLINE void pack_queries_in(const enum rows kind, const int n_parts, const float *q, ptrdiff_t ldq,
                            int n_heads, int latent, int rope, uint16_t *out) {
    const int width = latent + rope;
    uint16_t order[RUN];
    for (int i = 0; i < RUN; i++)
        order[i] = (uint16_t)(kind != ROWS_F16 ? i : i / 2 + i % 2 * (RUN / 2));
    for (int h = 0; h < n_heads; h += SIDE)
        for (int at = 0; at < width; at += RUN, out += n_parts * TILE_VALUES)
            pack_query_run(q + h * ldq, ldq, n_heads - h < SIDE ? n_heads - h : SIDE, at, width,
                           _mm512_loadu_si512(order), n_parts, out);
}

// ---- keys

// RUN values of a row as they lie, zeros behind its width and for a key that is not there. whole: it is
// there, and so are all of them.
INLINE __m512i load_run(const void *row, int at, int width, const bool whole) {
    if (whole) return _mm512_loadu_si512((const uint16_t *)row + at);
    if (!row) return _mm512_setzero_si512();
    if (at + RUN <= width) return _mm512_loadu_si512((const uint16_t *)row + at);
    return _mm512_maskz_loadu_epi16((__mmask32)((1u << (width - at)) - 1),
                                    (const uint16_t *)row + at);
}

// Half of it. (Converting what is loaded is one instruction; taking halves of a vector are two more.)
INLINE __m256i load_half_run(const void *row, int at, int half, int width, const bool whole) {
    if (whole) return _mm256_loadu_si256((const void *)((const uint16_t *)row + at + 16 * half));
    const __m512i run = load_run(row, at, width, false);
    return half ? _mm512_extracti64x4_epi64(run, 1) : _mm512_castsi512_si256(run);
}

struct split { // 16 float16 values as the upper halves of floats
    __m512i high, low;
};

// Exact: of 11 bits the high part takes 8. With `any`, what is not finite is all in the high one; without,
// its low part is NaN.
INLINE struct split split_f16(__m256i values, const bool any) {
    const __m512 x = _mm512_cvtph_ps(values);
    const __m512i high =
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000));
    __mmask16 there = 0xffff;
    if (any) there = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
    return (struct split){
        high, _mm512_castps_si512(_mm512_maskz_sub_ps(there, x, _mm512_castsi512_ps(high)))};
}

// The upper halves of two vectors by turns
INLINE __m512i pair_halves(__m512i a, __m512i b) {
    return _mm512_mask_mov_epi16(_mm512_srli_epi32(a, 16), 0xaaaaaaaa, b);
}

// bfloat16 of two keys by turns
INLINE void store_pair_bf16(__m512i a, __m512i b, uint16_t *out) {
    const __m512i order =
        _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7); // for the unpacking of quarters
    a = _mm512_permutexvar_epi64(order, a);
    b = _mm512_permutexvar_epi64(order, b);
    _mm512_store_si512(out, _mm512_unpacklo_epi16(a, b));
    _mm512_store_si512(out + TILE_VALUES, _mm512_unpackhi_epi16(a, b));
}

INLINE void fetch_ahead(struct lp_cpu_latent_block *b) {
    const size_t row_bytes = (size_t)(b->latent + b->rope) * sizeof(uint16_t);
    UNROLL for (int i = 0; i < 2; i++) lp_cpu_latent_fetch_ahead(b, row_bytes);
}

struct run_tiles { // a RUN of values of RUN keys: two tiles of each part
    _Alignas(64) uint16_t parts[2][RUN][RUN];
};

// A RUN of 2 keys: to the run's tiles and, if there are any, the tiles of values
INLINE void pack_two_f16(const bool any, const bool whole, const void *const *rows, int at,
                         int width, int pair, struct run_tiles *run, uint16_t *const values[2]) {
    __m512i x[2][2][2]; // [part][key][half of the run]
    UNROLL for (int i = 0; i < 4; i++) {
        const struct split two =
            split_f16(load_half_run(rows[i / 2], at, i % 2, width, whole), any);
        x[0][i / 2][i % 2] = two.high;
        x[1][i / 2][i % 2] = two.low;
    }
    UNROLL for (int part = 0; part < 2; part++) UNROLL for (int i = 0; i < 2; i++) {
        _mm512_store_si512(run->parts[part][2 * pair + i],
                           pair_halves(x[part][i][0], x[part][i][1]));
        if (values[0])
            _mm512_store_si512(values[part] + i * TILE_VALUES,
                               pair_halves(x[part][0][i], x[part][1][i]));
    }
}

// The same with one bfloat16 for a value, a tie to the even one
INLINE void pack_two_rounded(const bool whole, const void *const *rows, int at, int width,
                             uint16_t (*out)[RUN], uint16_t *values) {
    __m512i x[2];
    UNROLL for (int i = 0; i < 2; i++) {
        const __m512 first = _mm512_cvtph_ps(load_half_run(rows[i], at, 0, width, whole)),
                     second = _mm512_cvtph_ps(load_half_run(rows[i], at, 1, width, whole));
        x[i] = (__m512i)_mm512_cvtne2ps_pbh(second, first);
        _mm512_store_si512(out[i], x[i]);
    }
    if (values) store_pair_bf16(x[0], x[1], values);
}

INLINE void pack_two_bf16(const bool copy, const bool whole, const void *const *rows, int at,
                          int width, uint16_t (*out)[RUN], uint16_t *values) {
    const __m512i first = load_run(rows[0], at, width, whole),
                  second = load_run(rows[1], at, width, whole);
    if (copy) {
        _mm512_store_si512(out[0], first);
        _mm512_store_si512(out[1], second);
    }
    if (values) store_pair_bf16(first, second, values);
}

// The RUN keys of a block from key step * RUN on
struct step_rows {
    const void *rows[RUN]; // NULL: there is none
    ptrdiff_t even;        // bytes from each to the next, if they can be loaded to tiles so, else 0
    int step;
};

static struct step_rows rows_of_step(const struct lp_cpu_latent_block *b, int step) {
    struct step_rows r = {.step = step};
    const int first = step * RUN, n = b->n_keys - first < RUN ? b->n_keys - first : RUN;
    for (int i = 0; i < n; i++) r.rows[i] = b->rows[first + i];
    if (n < RUN || (b->latent + b->rope) % RUN) return r;
    r.even = (const char *)r.rows[1] - (const char *)r.rows[0];
    for (int i = 2; i < RUN; i++)
        if ((const char *)r.rows[i] - (const char *)r.rows[i - 1] != r.even) r.even = 0;
    return r;
}

INLINE void pack_pairs(const enum rows kind, const bool any, const bool whole,
                       struct lp_cpu_latent_block *b, const struct step_rows *from, int at,
                       struct run_tiles *run) {
    const int width = b->latent + b->rope;
    const ptrdiff_t tile = (from->step * (b->latent / SIDE) + at / SIDE) * TILE_VALUES;
    for (int pair = 0; pair < SIDE; pair++) {
        const void *const *rows = from->rows + 2 * pair;
        uint16_t *const values[2] = {
            at < b->latent ? packed_values(b, 0) + tile + pair * RUN : NULL,
            kind == ROWS_F16 ? packed_values(b, 1) + tile + pair * RUN : NULL};
        if (pair % 2) fetch_ahead(b);
        if (kind == ROWS_F16_ROUNDED)
            pack_two_rounded(whole, rows, at, width, run->parts[0] + 2 * pair, values[0]);
        else if (kind == ROWS_BF16)
            pack_two_bf16(any, whole, rows, at, width, run->parts[0] + 2 * pair, values[0]);
        else
            pack_two_f16(any, whole, rows, at, width, pair, run, values);
    }
}

INLINE void pack_run(const enum rows kind, const bool any, struct lp_cpu_latent_block *b,
                     const struct step_rows *from, int at, struct run_tiles *run) {
    if (from->rows[RUN - 1] && at + RUN <= b->latent + b->rope)
        pack_pairs(kind, any, true, b, from, at, run);
    else
        pack_pairs(kind, any, false, b, from, at, run);
}

// ---- scores

// out[key][head] of RUN keys to s[head][key], of the heads that are there. Returns whether all are finite.
INLINE bool put_scores(float (*out)[SIDE], int n_heads, float *s, ptrdiff_t lds) {
    __mmask16 finite = 0xffff;
    for (int tile = 0; tile < RUN / SIDE; tile++, out += SIDE, s += SIDE) {
        __m512i v[SIDE];
        UNROLL for (int i = 0; i < SIDE; i++) {
            v[i] = _mm512_load_si512(out[i]);
            finite &= _mm512_cmp_ps_mask(_mm512_abs_ps(_mm512_castsi512_ps(v[i])),
                                         _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
        }
        transpose(v);
        UNROLL for (int h = 0; h < SIDE; h++) if (h < n_heads)
            _mm512_storeu_si512(s + h * lds, v[h]);
    }
    return finite == 0xffff;
}

// A run's two tiles of keys with the heads whose queries are in tiles 4 and 5: sums in tiles a and b_
#define SCORE_RUN(a, b_)                                                                           \
    _tile_loadd(6, keys, step);                                                                    \
    _tile_loadd(7, keys + SIDE * step, step);                                                      \
    _tile_dpbf16ps(a, 6, 4);                                                                       \
    _tile_dpbf16ps(b_, 7, 4);                                                                      \
    if (n_parts == 2) {                                                                            \
        _tile_dpbf16ps(a, 6, 5);                                                                   \
        _tile_dpbf16ps(b_, 7, 5);                                                                  \
    }                                                                                              \
    if (kind == ROWS_F16) {                                                                        \
        _tile_loadd(6, run->parts[1][0], 64);                                                      \
        _tile_loadd(7, run->parts[1][SIDE], 64);                                                   \
        _tile_dpbf16ps(a, 6, 4);                                                                   \
        _tile_dpbf16ps(b_, 7, 4);                                                                  \
    }

INLINE void load_queries(const uint16_t *q, const int n_parts) {
    _tile_loadd(4, q, 64);
    if (n_parts == 2) _tile_loadd(5, q + TILE_VALUES, 64);
}

// RUN keys with the queries of SIDE or 2 * SIDE heads, q[1] NULL in the first case. Returns whether all
// scores are finite.
INLINE bool score_step(const enum rows kind, const int n_parts, const bool any,
                       const uint16_t *const q[2], int n_heads, struct lp_cpu_latent_block *b,
                       const struct step_rows *from, float *s, ptrdiff_t lds) {
    const int n_runs = row_width(b->latent, b->rope) / RUN;
    const bool in_place = kind == ROWS_BF16 && !any;
    const ptrdiff_t step = in_place ? from->even : 64;
    _Alignas(64) float out[RUN][SIDE];
    struct run_tiles runs[2];
    const char *fetch = b->fetch;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    pack_run(kind, any, b, from, 0, &runs[0]);
    for (int i = 0; i < n_runs; i++) {
        const struct run_tiles *run = &runs[i % 2];
        const char *keys = in_place ? (const char *)from->rows[0] + i * 64 : (const char *)run;
        if (i + 1 < n_runs) pack_run(kind, any, b, from, (i + 1) * RUN, &runs[(i + 1) % 2]);
        for (int line = 0; line < 2; line++) lp_cpu_latent_fetch(&fetch, b->fetch_end);
        load_queries(q[0] + i * n_parts * TILE_VALUES, n_parts);
        SCORE_RUN(0, 1)
        if (!q[1]) continue;
        load_queries(q[1] + i * n_parts * TILE_VALUES, n_parts);
        SCORE_RUN(2, 3)
    }
    b->fetch = fetch;
    _tile_stored(0, out[0], sizeof out[0]);
    _tile_stored(1, out[SIDE], sizeof out[0]);
    bool finite = put_scores(out, n_heads, s, lds);
    if (!q[1]) return finite;
    _tile_stored(2, out[0], sizeof out[0]);
    _tile_stored(3, out[SIDE], sizeof out[0]);
    return put_scores(out, n_heads - SIDE, s + SIDE * lds, lds) && finite;
}

// What is not finite in a key of two parts shows in its scores; the keys are packed with care then, for
// the sake of the values.
INLINE void scores_of(const enum rows kind, const int n_parts, const uint16_t *queries, int n_heads,
                      struct lp_cpu_latent_block *b, float *s, ptrdiff_t lds) {
    const ptrdiff_t group = query_group(b->latent, b->rope, n_parts);
    b->ahead_key = 0;
    b->ahead_at = 0;
    lp_cpu_amx_configure(&lp_cpu_amx_whole);
    for (int step = 0; step * RUN < b->n_keys; step++) {
        const struct step_rows from = rows_of_step(b, step);
        for (int head = 0; head < n_heads; head += 2 * SIDE) {
            const uint16_t *at = queries + head / SIDE * group;
            const uint16_t *const q[2] = {at, n_heads - head > SIDE ? at + group : NULL};
            float *to = s + head * lds + step * RUN;
            const int n = n_heads - head;
            if (kind == ROWS_BF16 && !from.even)
                score_step(kind, n_parts, true, q, n, b, &from, to, lds);
            else if (!score_step(kind, n_parts, false, q, n, b, &from, to, lds) && kind == ROWS_F16)
                score_step(kind, n_parts, true, q, n, b, &from, to, lds);
        }
    }
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

// The sums of SIDE heads over 2 * SIDE dimensions
INLINE void value_tiles(const enum rows kind, const int n_parts, weight_tiles weights, int at,
                        struct lp_cpu_latent_block *b, float *acc, ptrdiff_t ld) {
    const size_t step_bytes = (size_t)ld * sizeof(float);
    const char *fetch = b->fetch;
    _tile_loadd(0, acc, step_bytes);
    _tile_loadd(1, acc + SIDE, step_bytes);
    for (int step = 0; step * RUN < b->n_keys; step++) {
        const ptrdiff_t tile = (step * (b->latent / SIDE) + at / SIDE) * TILE_VALUES;
        const uint16_t *high = packed_values(b, 0) + tile;
        for (int i = 0; i < 2; i++) lp_cpu_latent_fetch(&fetch, b->fetch_end);
        for (int i = 0; i < 9; i++) fetch_ahead(b);
        _tile_loadd(4, weights[step][0], 64);
        _tile_loadd(6, high, 64);
        _tile_loadd(7, high + TILE_VALUES, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (n_parts == 2) {
            _tile_loadd(5, weights[step][1], 64);
            _tile_dpbf16ps(0, 5, 6);
            _tile_dpbf16ps(1, 5, 7);
        }
        if (kind == ROWS_F16) {
            const uint16_t *low = packed_values(b, 1) + tile;
            _tile_loadd(6, low, 64);
            _tile_loadd(7, low + TILE_VALUES, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
        }
    }
    b->fetch = fetch;
    _tile_stored(0, acc, step_bytes);
    _tile_stored(1, acc + SIDE, step_bytes);
}

INLINE void values_of(const enum rows kind, const int n_parts, const float *p, ptrdiff_t ldp,
                      int n_heads, struct lp_cpu_latent_block *b, float *acc, ptrdiff_t ld) {
    lp_cpu_amx_configure(&lp_cpu_amx_whole);
    for (int head = 0; head < n_heads; head += SIDE, acc += SIDE * ld) {
        _Alignas(64) weight_tiles weights;
        const int n = n_heads - head < SIDE ? n_heads - head : SIDE;
        pack_weights(p + head * ldp, ldp, n, b->n_keys, weights);
        for (int at = 0; at < b->latent; at += 2 * SIDE) {
            _Alignas(64) float some[SIDE][2 * SIDE] = {{0}};
            if (n == SIDE) {
                value_tiles(kind, n_parts, weights, at, b, acc + at, ld);
                continue;
            }
            for (int h = 0; h < n; h++) memcpy(some[h], acc + h * ld + at, sizeof some[h]);
            value_tiles(kind, n_parts, weights, at, b, some[0], 2 * SIDE);
            for (int h = 0; h < n; h++) memcpy(acc + h * ld + at, some[h], sizeof some[h]);
        }
    }
}

// ---- tables

#define TABLE(stem, kind, q_parts, p_parts, bytes, error)                                          \
    static void stem##_pack_queries(const float *q, ptrdiff_t ldq, int n_heads, int latent,        \
                                    int rope, void *queries) {                                     \
        pack_queries_in(kind, q_parts, q, ldq, n_heads, latent, rope, queries);                    \
    }                                                                                              \
    static void stem##_scores(const void *queries, ptrdiff_t ldq, int n_heads,                     \
                              struct lp_cpu_latent_block *b, float *s, ptrdiff_t lds) {            \
        (void)ldq;                                                                                 \
        scores_of(kind, q_parts, queries, n_heads, b, s, lds);                                     \
    }                                                                                              \
    static void stem##_values(const float *p, ptrdiff_t ldp, int n_heads,                          \
                              struct lp_cpu_latent_block *b, float *acc, ptrdiff_t ld) {           \
        values_of(kind, p_parts, p, ldp, n_heads, b, acc, ld);                                     \
    }                                                                                              \
    const struct lp_cpu_latent lp_cpu_latent_amx_##stem = {.name = "amx_mla_absorbed_" #stem,      \
                                                           .rounding = (error),                    \
                                                           .pack_bytes = (bytes),                  \
                                                           .query_bytes = query_bytes,             \
                                                           .pack_queries = stem##_pack_queries,    \
                                                           .scores = stem##_scores,                \
                                                           .values = stem##_values};

TABLE(bf16, ROWS_BF16, 2, 2, pack_bytes, 1e-4)
TABLE(f16, ROWS_F16, 2, 2, pack_bytes_f16, 1e-4)
TABLE(bf16_rounded, ROWS_BF16, 1, 1, pack_bytes, 1e-2)
TABLE(f16_rounded, ROWS_F16_ROUNDED, 2, 1, pack_bytes, 1e-2)

#endif
