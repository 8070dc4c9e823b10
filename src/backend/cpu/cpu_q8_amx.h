// The products of a strip with 16 activation rows at once by the tile registers of AMX. A strip's
// columns lie as these want their second operand: a row of the tile is a column, four bytes of each of
// 16 weight rows. The first operand is a piece of 16 activation rows, and the result holds the integer
// sums of 16 x 16 pairs; the float half is that of cpu_q8_strip.h, whose file includes this one.
//
//     tile 0, 1   the sums of a group, or of its two halves   [16 activation rows][16 weight rows]
//     tile 2, 4   32 or 16 values of the activation rows      [16][32 or 16 bytes], signed
//     tile 3, 5   8 or 4 columns of the strip                 [8 or 4][64 bytes], unsigned
#ifndef LP_BACKEND_CPU_CPU_Q8_AMX_H
#define LP_BACKEND_CPU_CPU_Q8_AMX_H

#define AMX_TILE 16

#if defined(LP_AMX_TILES)

struct amx_config {
    uint8_t palette, start_row, zeros[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// A thread sets its tiles once: no other code of the program uses them.
LP_INLINE void amx_configure(void) {
    static _Thread_local bool done;
    if (done) return;
    const struct amx_config config = {
        .palette = 1,
        .row_bytes = {64, 64, 32, 64, 16, 64},
        .rows = {16, 16, 16, 8, 16, 4},
    };
    _tile_loadconfig(&config);
    done = true;
}

// sums: of group g, or of both its halves. The numbers of tiles are part of the instructions.
LP_INLINE void amx_group(const struct strip *strip, const int8_t x[AMX_TILE][LP_QUAD_VALUES], int g,
                         bool halves, int32_t sums[2][AMX_TILE][LANES]) {
    const int8_t *values = x[0] + 32 * g;
    const vint *q = strip->q + 8 * g;
    _tile_zero(0);
    if (!halves) {
        _tile_loadd(2, values, LP_QUAD_VALUES);
        _tile_loadd(3, q, sizeof *q);
        _tile_dpbsud(0, 2, 3);
    } else {
        _tile_zero(1);
        _tile_loadd(4, values, LP_QUAD_VALUES);
        _tile_loadd(5, q, sizeof *q);
        _tile_dpbsud(0, 4, 5);
        _tile_loadd(4, values + 16, LP_QUAD_VALUES);
        _tile_loadd(5, q + 4, sizeof *q);
        _tile_dpbsud(1, 4, 5);
        _tile_stored(1, sums[1], sizeof sums[1][0]);
    }
    _tile_stored(0, sums[0], sizeof sums[0][0]);
}

// The sum of row t, less the offset of the bytes, as a float.
LP_INLINE vfloat amx_dot(const int32_t *sums, const struct lp_act_quad *x, int g, int h,
                         bool halves, enum strip_kind kind) {
    int32_t raised = x->half[g + 4 * h] + (halves ? 0 : x->half[g + 4]);
    vint dot = _mm512_load_si512(sums);
    if (kind == STRIP_OFFSET) dot = _mm512_add_epi32(dot, _mm512_set1_epi32(raised));
    return _mm512_cvtepi32_ps(dot);
}

// As `product` of cpu_q8_strip.h, for AMX_TILE activation rows.
LP_INLINE void amx_product(const struct strip *strip, int64_t n_quads,
                           const struct lp_act_quad *const *x, enum strip_kind kind, bool halves,
                           struct ahead *ahead, int64_t lines, bool add, float *out) {
    _Alignas(64) int8_t values[AMX_TILE][LP_QUAD_VALUES];
    _Alignas(64) int32_t sums[2][AMX_TILE][LANES];
    vfloat acc[AMX_TILE];
    amx_configure();
    for (int t = 0; t < AMX_TILE; t++) acc[t] = _mm512_setzero_ps();
    for (int64_t i = 0; i < n_quads; i++) {
        for (int t = 0; t < AMX_TILE; t++) memcpy(values[t], x[t][i].q, sizeof values[t]);
        for (int g = 0; g < 4; g++) {
            for (int64_t line = 0; line < lines && ahead->at < ahead->end; line++)
                fetch_line(ahead);
            amx_group(strip + i, values, g, halves, sums);
            for (int t = 0; t < AMX_TILE; t++) {
                const struct lp_act_quad *quad = x[t] + i;
                vfloat dot = amx_dot(sums[0][t], quad, g, 0, halves, kind), second = dot;
                if (halves) second = amx_dot(sums[1][t], quad, g, 1, true, kind);
                acc[t] = add_group(acc[t], dot, second, strip + i, quad, g, kind, halves);
            }
        }
    }
    for (int t = 0; t < AMX_TILE; t++) store_sums(out + t * LP_MAT_ROWS, acc[t], add);
}

#endif
#endif
