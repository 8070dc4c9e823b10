// The sieve with the tiles of AMX: as cpu_sieve_vnni.c, whose bits it gives, but for the scores of 16
// heads with 16 keys at a time. A strip of keys lies as a tile wants its second operand, and the rows of
// a query as the first.
#if (defined(__AMX_INT8__) || defined(LP_AMX_MODEL)) && defined(__AVX512VNNI__) &&                 \
    defined(__AVX512VL__)
#include "backend/cpu/cpu_amx.h"
#include "backend/cpu/cpu_sieve_512.h"

#define WIDTH 128 // of rows that tiles are for
#define HALF 64   // bytes of a tile's row
#define SIDE 16
#define PAIR (2 * SIDE)                      // heads
#define STRIP_LINES (LANES * WIDTH / 64 + 2) // of a block's bytes and scales, at each strip
_Static_assert(TILE_STRIPS == N_STRIPS, "score_tile takes all strips");

// The sums of PAIR heads, whose rows are in tiles 4 to 7, with every strip.
INLINE void multiply_strips(const struct lp_cpu_sieve_block *keys, const char **ahead,
                            int32_t (*sums)[PAIR][LANES]) {
    const uint8_t *bytes = keys->bytes;
    for (int strip = 0; strip < N_STRIPS; strip++, bytes += LANES * WIDTH) {
        for (int i = 0; i < STRIP_LINES; i++) fetch_line(ahead, keys->ahead_end);
        _tile_zero(0);
        _tile_zero(1);
        _tile_loadd(2, bytes, 64);
        _tile_loadd(3, bytes + LANES * HALF, 64);
        _tile_dpbsud(0, 4, 2);
        _tile_dpbsud(1, 6, 2);
        _tile_dpbsud(0, 5, 3);
        _tile_dpbsud(1, 7, 3);
        _tile_stored(0, sums[strip][0], 64);
        _tile_stored(1, sums[strip][SIDE], 64);
    }
}

static void score_by_tiles(const struct lp_cpu_sieve_query *query,
                           const struct lp_cpu_sieve_block *keys, int n_heads, int width,
                           float scale, float *out) {
    if (lp_cpu_sieve_width(width) != WIDTH) {
        score(query, keys, n_heads, width, scale, out);
        return;
    }
    _Alignas(64) int32_t sums[N_STRIPS][PAIR][LANES];
    vf total[N_STRIPS];
    int head = 0;
    const char *ahead = keys->ahead;
    lp_cpu_amx_configure(&lp_cpu_amx_whole);
    for (int s = 0; s < N_STRIPS; s++) total[s] = v_zero();
    for (; head + PAIR <= n_heads; head += PAIR) {
        const int8_t *q = query->q + head * WIDTH;
        _tile_loadd(4, q, WIDTH);
        _tile_loadd(5, q + HALF, WIDTH);
        _tile_loadd(6, q + SIDE * WIDTH, WIDTH);
        _tile_loadd(7, q + SIDE * WIDTH + HALF, WIDTH);
        multiply_strips(keys, &ahead, sums);
        for (int h = 0; h < PAIR; h++) {
            const vint start = v_set1_int(query->start[head + h]);
            const vf w = v_set1(query->w[head + h]);
            UNROLL for (int s = 0; s < N_STRIPS; s++) total[s] =
                v_fma(w, v_positive(_mm512_add_epi32(start, v_load_int(sums[s][h]))), total[s]);
        }
    }
    for (; head < n_heads; head++) score_tile(query, keys, head, 1, 0, WIDTH, &ahead, total);
    for (int s = 0; s < N_STRIPS; s++)
        v_store(out + s * LANES,
                v_mul(total[s], v_mul(v_load(keys->d + s * LANES), v_set1(scale))));
}

LP_CPU_SIEVE_TABLE(amx, score_by_tiles);

#endif
