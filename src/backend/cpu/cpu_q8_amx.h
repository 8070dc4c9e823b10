// The products of a strip with many activation rows by the tile registers of AMX, 16 rows at a time.
// A strip's columns lie as these want their second operand: a row of the tile is a column, four bytes
// of each of 16 weight rows. The first operand is a piece of 16 activation rows, and the result holds
// the integer sums of 16 x 16 pairs; the float half is that of cpu_q8_strip.h, whose file includes
// this one. All bytes are signed: those that are raised for VNNI are not for the tiles (struct sink),
// so that no offset is left to be taken off the sums.
//
//     tile 0, 1   the sums of two groups in turn, or of a group's halves [16 activation rows][16]
//     tile 2, 3   the values of the group in 16 activation rows  [16][32 bytes]
//     tile 4, 5   8 columns of the strip                         [8][64 bytes]
//     tile 6, 7   the same of half a group                       [16][16 bytes], [4][64 bytes]
//
// The sums go through memory. A vector that loads them at once would wait for the tile's store, so
// that the float half runs AMX_BEHIND groups behind.
#ifndef LP_BACKEND_CPU_CPU_Q8_AMX_H
#define LP_BACKEND_CPU_CPU_Q8_AMX_H

#define AMX_TILE 16
// From so many activation rows on, the last 16 of which may be filled up with copies. Fewer are
// faster with VNNI.
#define AMX_MIN_X 9

#if defined(LP_AMX_TILES)
#include "backend/cpu/cpu_amx.h"

// Whether rows are for the tiles: enough of them, equally far apart, and not so that they meet in few
// sets of the cache. (Rows from here and there, as those of an expert, would have to be copied for
// every strip, which was slower than VNNI.)
LP_INLINE bool amx_takes(const void *const *x, int n_x) {
    if (n_x < AMX_MIN_X) return false;
    const ptrdiff_t stride = (const char *)x[1] - (const char *)x[0];
    bool even = stride > 0 && stride % 4096 != 0;
    for (int t = 2; t < n_x; t++)
        even = even && (const char *)x[t] - (const char *)x[t - 1] == stride;
    return even;
}

#define AMX_BEHIND 3
#define AMX_RING 4 // groups whose sums are kept

typedef int32_t amx_sums[2][AMX_TILE][LANES]; // of a group; or of its halves

static const struct lp_cpu_amx_shapes amx_shapes = {
    .palette = 1,
    .row_bytes = {64, 64, 32, 32, 64, 64, 16, 64},
    .rows = {16, 16, 16, 16, 8, 8, 16, 4},
};

// Sixteen activation rows, equally far apart.
struct amx_rows {
    const uint8_t *base; // quad 0 of the piece in row 0
    size_t stride;
};

LP_INLINE const struct lp_act_quad *amx_quad(struct amx_rows x, int t, int64_t i) {
    return (const struct lp_act_quad *)(x.base + (size_t)t * x.stride) + i;
}

// The sums of group g. The numbers of tiles are part of the instructions.
LP_INLINE void amx_group(const struct strip *strip, const int8_t *values, size_t stride, int g,
                         bool halves, amx_sums sums) {
    const vint *q = strip->q + 8 * g;
    values += 32 * g;
    if (halves) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_loadd(6, values, stride);
        _tile_loadd(7, q, sizeof *q);
        _tile_dpbssd(0, 6, 7);
        _tile_loadd(6, values + 16, stride);
        _tile_loadd(7, q + 4, sizeof *q);
        _tile_dpbssd(1, 6, 7);
        _tile_stored(0, sums[0], sizeof sums[0][0]);
        _tile_stored(1, sums[1], sizeof sums[1][0]);
    } else if (g % 2 == 0) {
        _tile_zero(0);
        _tile_loadd(2, values, stride);
        _tile_loadd(4, q, sizeof *q);
        _tile_dpbssd(0, 2, 4);
        _tile_stored(0, sums[0], sizeof sums[0][0]);
    } else {
        _tile_zero(1);
        _tile_loadd(3, values, stride);
        _tile_loadd(5, q, sizeof *q);
        _tile_dpbssd(1, 3, 5);
        _tile_stored(1, sums[0], sizeof sums[0][0]);
    }
}

// The piece of the rows that come next, fetched into the nearest cache as evenly as the groups pass.
struct amx_ahead {
    const void *const *x;
    int n; // rows, at most AMX_TILE
    int64_t first_quad;
};

LP_INLINE void amx_fetch_row(const struct amx_ahead *next, int64_t row, int64_t n_quads) {
    if (row >= next->n) return;
    const char *at = (const char *)((const struct lp_act_quad *)next->x[row] + next->first_quad);
    for (int64_t i = 0; i < n_quads * (int64_t)sizeof(struct lp_act_quad); i += 64)
        _mm_prefetch(at + i, _MM_HINT_T0);
}

// At group k: of a whole piece, whose size the compiler knows, one row.
LP_INLINE void amx_fetch(const struct amx_ahead *next, int64_t k, int64_t n_quads) {
    if (n_quads == PIECE_QUADS) {
        amx_fetch_row(next, k, PIECE_QUADS);
        return;
    }
    const int64_t n = AMX_TILE / (4 * n_quads) + 1;
    for (int64_t row = k * n; row < (k + 1) * n; row++) amx_fetch_row(next, row, n_quads);
}

// As `product` of cpu_q8_strip.h, for AMX_TILE activation rows; what the last AMX_TILE - n_out give is
// not stored.
LP_INLINE void amx_product(const struct strip *strip, int64_t n_quads, struct amx_rows x,
                           enum strip_kind kind, bool halves, const struct amx_ahead *next,
                           struct ahead *ahead, int64_t lines, bool add, int n_out, float *out) {
    _Alignas(64) amx_sums ring[AMX_RING];
    vfloat acc[AMX_TILE];
    UNROLL
    for (int t = 0; t < AMX_TILE; t++) acc[t] = _mm512_setzero_ps();
    const int64_t n_groups = 4 * n_quads;
    for (int64_t k = 0; k < n_groups + AMX_BEHIND; k++) {
        if (k < n_groups)
            amx_group(strip + k / 4, amx_quad(x, 0, k / 4)->q, x.stride, (int)(k % 4), halves,
                      ring[k % AMX_RING]);
        amx_fetch(next, k, n_quads);
        const int64_t done = k - AMX_BEHIND;
        if (done < 0) continue;
        for (int64_t line = 0; line < lines && ahead->at < ahead->end; line++) fetch_line(ahead);
        const int32_t(*sums)[AMX_TILE][LANES] = ring[done % AMX_RING];
        UNROLL
        for (int t = 0; t < AMX_TILE; t++) {
            vfloat dot = _mm512_cvtepi32_ps(_mm512_load_si512(sums[0][t])), second = dot;
            if (halves) second = _mm512_cvtepi32_ps(_mm512_load_si512(sums[1][t]));
            acc[t] = add_group(acc[t], dot, second, strip + done / 4, amx_quad(x, t, done / 4),
                               (int)(done % 4), kind, halves);
        }
    }
    UNROLL
    for (int t = 0; t < AMX_TILE; t++)
        if (t < n_out) store_sums(out + t * LP_MAT_ROWS, acc[t], add);
}

// As `products` of cpu_q8_strip.h.
LP_INLINE void amx_products(const struct strip *strip, int64_t n_quads, const void *const *x,
                            int n_x, int64_t first_quad, enum strip_kind kind, bool halves,
                            struct ahead ahead, float *out) {
    struct lp_act_quad copy[AMX_TILE][PIECE_QUADS];
    const int64_t n_groups = (n_x + AMX_TILE - 1) / AMX_TILE * n_quads * 4;
    const int64_t lines = ((ahead.end - ahead.at) / 64 + n_groups) / n_groups; // a group
    lp_cpu_amx_configure(&amx_shapes);
    for (int t = 0; t < n_x; t += AMX_TILE, out += AMX_TILE * LP_MAT_ROWS) {
        const int n = n_x - t < AMX_TILE ? n_x - t : AMX_TILE;
        struct amx_rows rows = {(const uint8_t *)copy, sizeof copy[0]};
        if (n == AMX_TILE) {
            rows.base = (const uint8_t *)((const struct lp_act_quad *)x[t] + first_quad);
            rows.stride = (size_t)((const char *)x[t + 1] - (const char *)x[t]);
        } else
            for (int i = 0; i < AMX_TILE; i++)
                memcpy(copy[i], (const struct lp_act_quad *)x[t + (i < n ? i : n - 1)] + first_quad,
                       (size_t)n_quads * sizeof copy[i][0]);
        const int left = n_x - t - n;
        const struct amx_ahead next = {x + t + n, left < AMX_TILE ? left : AMX_TILE, first_quad};
        amx_product(strip, n_quads, rows, kind, halves, &next, &ahead, lines, first_quad != 0, n,
                    out);
    }
}

#endif
#endif
