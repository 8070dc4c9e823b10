// The functions of struct lp_cpu_sieve in terms of one set of vectors. A file that includes this
// defines first:
//   LANES, vint, vf          32-bit lanes of a vector, vectors of integers and of floats
//   KEY_LARGEST              keys are rounded to -KEY_LARGEST..KEY_LARGEST and stored with that added
//   TILE_HEADS, TILE_STRIPS  how many sums of products fit the registers
//   COLUMNS                  how many columns multiply takes
//   multiply(sum, keys, q)   sum += the products of 4 unsigned bytes of a key and 4 signed ones of q
//                            in every lane, of COLUMNS columns
//   pack(v, out)             8 vectors of whole numbers to 8 LANES signed bytes, in any fixed order
//   to_columns(rows, step, out)   16 bytes of each of LANES rows to 4 columns: out[k][i] = bytes
//                            4k .. 4k + 3 of row i
//   v_larger(a, b)           the larger magnitude of two values
// and small ones of the names below. Strips: LANES keys, one in each lane, four values a column;
// LP_CPU_SIEVE_KEYS / LANES strips lie behind each other.
#include <float.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_sieve.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define N_STRIPS (LP_CPU_SIEVE_KEYS / LANES)
#define RUN (8 * LANES) // values that are rounded at a time
#define SMALLEST 1e-18f // of largest magnitudes: squares stay normal numbers
#define LARGEST 1e18f

static float largest_lane(vf v) {
    float lanes[LANES], largest = 0;
    v_store(lanes, v);
    for (int i = 0; i < LANES; i++) largest = fabsf(lanes[i]) > largest ? fabsf(lanes[i]) : largest;
    return largest;
}
static float sum_of_lanes(vf v) {
    float lanes[LANES], sum = 0;
    v_store(lanes, v);
    for (int i = 0; i < LANES; i++) sum += lanes[i];
    return sum;
}

// Of the values of a row: *most, the largest magnitude; *norm2, the sum of squares. False where a value
// is not finite or they are not usual; all zeros are usual.
INLINE bool measure(const float *row, int step, float *most, float *norm2) {
    vf largest = v_zero(), squares = v_zero(); // NaN and infinity stay in the squares
    for (int at = 0; at < step; at += RUN) UNROLL for (int k = 0; k < 8; k++) {
            vf v = v_load(row + at + k * LANES);
            largest = v_larger(largest, v);
            squares = v_fma(v, v, squares);
        }
    *most = largest_lane(largest);
    *norm2 = sum_of_lanes(squares);
    return *norm2 <= FLT_MAX && (*most == 0 || (*most >= SMALLEST && *most <= LARGEST));
}

// step values times `inverse`, to bytes
INLINE void round_row(const float *row, int step, float inverse, void *out) {
    for (int at = 0; at < step; at += RUN) {
        vint v[8];
        UNROLL for (int k = 0; k < 8; k++) v[k] =
            v_round(v_mul(v_load(row + at + k * LANES), v_set1(inverse)));
        pack(v, (char *)out + at);
    }
}

static bool pack_query(const float *q, const float *w, int n_heads, int width, float *padded,
                       struct lp_cpu_sieve_query *to) {
    const int step = (int)lp_cpu_sieve_width(width);
    double a = 0, b = 0;
    memset(padded + width, 0, (size_t)(step - width) * sizeof *padded);
    for (int h = 0; h < n_heads; h++) {
        float most, norm2;
        int8_t *out = to->q + (ptrdiff_t)h * step;
        int32_t sum = 0;
        memcpy(padded, q + (ptrdiff_t)h * width, (size_t)width * sizeof *q);
        if (!measure(padded, step, &most, &norm2) || !(fabsf(w[h]) <= LARGEST)) return false;
        round_row(padded, step, most > 0 ? 127.0f / most : 0, out);
        for (int i = 0; i < step; i++) sum += out[i];
        to->start[h] = -KEY_LARGEST * sum;
        to->w[h] = w[h] * (most / 127.0f);
        a += (double)to->w[h] * to->w[h] / 12;
        b += (double)w[h] * w[h] * norm2 / 12;
    }
    to->a = (float)a;
    to->b = (float)b;
    return a <= FLT_MAX && b <= FLT_MAX;
}

// The scale of a key; returns its inverse.
static float set_scale(const float *row, int key, int step, const struct lp_cpu_sieve_block *to) {
    float most, norm2;
    const bool usual = measure(row, step, &most, &norm2);
    to->norm2[key] = usual ? norm2 : NAN;
    to->d[key] = usual ? most / KEY_LARGEST : 0;
    return usual && most > 0 ? KEY_LARGEST / most : 0;
}

static void pack_keys(const float *rows, ptrdiff_t ld, int first, int n_keys, int width,
                      const struct lp_cpu_sieve_block *to) {
    const int step = (int)lp_cpu_sieve_width(width);
    float inverse[LP_CPU_SIEVE_PACK];
    for (int k = 0; k < n_keys; k++) inverse[k] = set_scale(rows + k * ld, first + k, step, to);
    for (int i = 0; i < LP_CPU_SIEVE_PACK; i += LANES) {
        uint8_t *out = to->bytes + (ptrdiff_t)(first + i) * step;
        if (i >= n_keys) { // nobody reads their scores
            memset(out, 0, (size_t)LANES * (size_t)step);
            continue;
        }
        for (int at = 0; at < step; at += 128) {
            _Alignas(64) uint8_t bytes[LANES][128];
            for (int k = 0; k < LANES; k++) { // keys that are not there repeat the last
                const int key = i + k < n_keys ? i + k : n_keys - 1;
                round_row(rows + key * ld + at, 128, inverse[key], bytes[k]);
            }
            for (int c = 0; c < 128; c += 16) to_columns(bytes[0] + c, 128, out + (at + c) * LANES);
        }
    }
}

static void pack_key(const float *row, int key, int width, const struct lp_cpu_sieve_block *to) {
    const int step = (int)lp_cpu_sieve_width(width);
    const float inverse = set_scale(row, key, step, to);
    uint8_t *out = to->bytes + (ptrdiff_t)(key / LANES * LANES) * step + key % LANES * 4;
    for (int at = 0; at < step; at += 128) {
        uint8_t bytes[128];
        round_row(row + at, 128, inverse, bytes);
        for (int i = 0; i < 128; i++) bytes[i] = (uint8_t)(bytes[i] + KEY_LARGEST);
        for (int c = 0; c < 128; c += 4) memcpy(out + (at + c) * LANES, bytes + c, 4);
    }
}

// The next line of what is fetched ahead; in bursts it would stall on the misses that can be in flight.
INLINE void fetch_line(const char **ahead, const char *end) {
    if (*ahead >= end) return;
    __builtin_prefetch(*ahead, 0, 2);
    *ahead += 64;
}

// n heads from `head` on with TILE_STRIPS strips from `first` on; totals take up w max(0, dot). Columns are
// taken no more at a time than `multiply` wants, so that the registers hold all of it.
INLINE void score_tile(const struct lp_cpu_sieve_query *query,
                       const struct lp_cpu_sieve_block *keys, int head, const int n, int first,
                       int step, const char **ahead, vf *total) {
    vint sum[TILE_HEADS][TILE_STRIPS];
    UNROLL for (int h = 0; h < n; h++) UNROLL for (int s = 0; s < TILE_STRIPS; s++) sum[h][s] =
        v_set1_int(query->start[head + h]);
    const int8_t *q = query->q + (ptrdiff_t)head * step;
    const uint8_t *k = keys->bytes + (ptrdiff_t)first * LANES * step;
    const char *fetch = *ahead;
    for (int c = 0; c < step; c += 4 * COLUMNS) {
        if (c % 8 == 0) fetch_line(&fetch, keys->ahead_end);
        vint column[TILE_STRIPS][COLUMNS];
        UNROLL for (int s = 0; s < TILE_STRIPS; s++) UNROLL for (int i = 0; i < COLUMNS; i++)
            column[s][i] = v_load_int(k + (ptrdiff_t)s * LANES * step + (c + 4 * i) * LANES);
        UNROLL for (int h = 0; h < n; h++) {
            vint x[COLUMNS];
            UNROLL for (int i = 0; i < COLUMNS; i++) x[i] = v_four(q + h * step + c + 4 * i);
            UNROLL for (int s = 0; s < TILE_STRIPS; s++) sum[h][s] =
                multiply(sum[h][s], column[s], x);
        }
    }
    *ahead = fetch;
    UNROLL for (int h = 0; h < n; h++) UNROLL for (int s = 0; s < TILE_STRIPS; s++) total[s] =
        v_fma(v_set1(query->w[head + h]), v_positive(sum[h][s]), total[s]);
}

static void score(const struct lp_cpu_sieve_query *query, const struct lp_cpu_sieve_block *keys,
                  int n_heads, int width, float scale, float *out) {
    const int step = (int)lp_cpu_sieve_width(width);
    const char *ahead = keys->ahead;
    for (int first = 0; first < N_STRIPS; first += TILE_STRIPS) {
        vf total[TILE_STRIPS];
        for (int s = 0; s < TILE_STRIPS; s++) total[s] = v_zero();
        int h = 0;
        for (; h + TILE_HEADS <= n_heads; h += TILE_HEADS)
            score_tile(query, keys, h, TILE_HEADS, first, step, &ahead, total);
        for (; h < n_heads; h++) score_tile(query, keys, h, 1, first, step, &ahead, total);
        for (int s = 0; s < TILE_STRIPS; s++) {
            int at = (first + s) * LANES;
            v_store(out + at, v_mul(total[s], v_mul(v_load(keys->d + at), v_set1(scale))));
        }
    }
}

static bool largest(const struct lp_cpu_sieve_block *keys, float *norm2, float *d) {
    vf most_norm2 = v_zero(), most_d = v_zero();
    for (int k = 0; k < LP_CPU_SIEVE_KEYS; k += LANES) {
        const vf here = v_load(keys->norm2 + k);
        if (v_above(here, -1) != (1u << LANES) - 1) return false; // NaN is above nothing
        most_norm2 = v_max(most_norm2, here);
        most_d = v_max(most_d, v_load(keys->d + k));
    }
    *norm2 = largest_lane(most_norm2);
    *d = largest_lane(most_d);
    return true;
}

static void range(const float *scores, int64_t n, float *least, float *most) {
    float low = scores[0], high = scores[0];
    int64_t i = 0;
    if (n >= LANES) {
        vf a = v_load(scores), b = a;
        float lanes[2][LANES];
        for (; i + LANES <= n; i += LANES) {
            a = v_min(a, v_load(scores + i));
            b = v_max(b, v_load(scores + i));
        }
        v_store(lanes[0], a);
        v_store(lanes[1], b);
        for (int k = 0; k < LANES; k++) {
            low = fminf(low, lanes[0][k]);
            high = fmaxf(high, lanes[1][k]);
        }
    }
    for (; i < n; i++) {
        low = fminf(low, scores[i]);
        high = fmaxf(high, scores[i]);
    }
    *least = low;
    *most = high;
}

static bool split(const float *scores, int64_t n, float low, float high, int32_t *sure,
                  int64_t *n_sure, int64_t max_sure, int32_t *open, int64_t *n_open,
                  int64_t max_open) {
    *n_sure = *n_open = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        float rest[LANES];
        const float *at = scores + i;
        if (n - i < LANES) {
            for (int k = 0; k < LANES; k++) rest[k] = i + k < n ? scores[i + k] : -INFINITY;
            at = rest;
        }
        for (unsigned mask = v_above(v_load(at), low); mask; mask &= mask - 1) {
            int32_t k = __builtin_ctz(mask);
            bool is_sure = at[k] > high;
            if (is_sure ? *n_sure == max_sure : *n_open == max_open) return false;
            if (is_sure)
                sure[(*n_sure)++] = (int32_t)i + k;
            else
                open[(*n_open)++] = (int32_t)i + k;
        }
    }
    return true;
}

// score_fn: `score`, or one that gives the same bits
#define LP_CPU_SIEVE_TABLE(isa, score_fn)                                                          \
    const struct lp_cpu_sieve lp_cpu_sieve_##isa = {.name = #isa "_index_select",                  \
                                                    .pack_query = pack_query,                      \
                                                    .pack_keys = pack_keys,                        \
                                                    .pack_key = pack_key,                          \
                                                    .score = score_fn,                             \
                                                    .largest = largest,                            \
                                                    .range = range,                                \
                                                    .split = split}
