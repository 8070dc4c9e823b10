// The tiles' half of cpu_wide.h.
//
//     tile 0 ... 3   sums: activations 0 with blocks 0 and 1, activations 1 with both
//     tile 4, 5      32 values of 16 activation rows, of the next 16
//     tile 6, 7      32 values of a block, of the other
//
// so that every tile that is loaded is used twice, and a product does not wait for the one before.
#if (defined(__AMX_BF16__) || defined(LP_AMX_MODEL)) && defined(__AVX512BW__) &&                   \
    defined(__AVX512VL__)
#include "backend/cpu/cpu_amx.h"

#include "backend/cpu/cpu_wide.h"

#define INLINE static inline __attribute__((always_inline))
#define ROW_BYTES 64
#define PAIR 2 // tiles of activations that are met together

// ---- rounding

// 16 floats to bfloat16 in the lower halves of the lanes, nearest even; a NaN stays one.
INLINE __m512i rounded(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    up = _mm512_mask_or_epi32(up, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits,
                              _mm512_set1_epi32(0x400000));
    return _mm512_srli_epi32(up, 16);
}

INLINE void put_16(const float *x, uint16_t *to) {
    _mm256_storeu_si256((void *)to, _mm512_cvtepi32_epi16(rounded(_mm512_loadu_ps(x))));
}

INLINE uint16_t *place_of(uint16_t *tiles, int64_t n_in, int64_t t) {
    return tiles + t / LP_WIDE_SIDE * LP_WIDE_SIDE * n_in + t % LP_WIDE_SIDE * LP_WIDE_RUN;
}

static void put_row(const float *x, int64_t n_in, int64_t t, uint16_t *tiles) {
    uint16_t *to = place_of(tiles, n_in, t);
    for (int64_t i = 0; i < n_in; i += LP_WIDE_RUN, to += LP_WIDE_TILE) {
        put_16(x + i, to);
        put_16(x + i + 16, to + 16);
    }
}

static void put_columns(const float *x, int64_t n_rows, int64_t first, int64_t n_in,
                        uint16_t *tiles) {
    tiles += first / LP_WIDE_RUN * LP_WIDE_TILE + first % LP_WIDE_RUN;
    for (int64_t t = 0; t < n_rows; t++) put_16(x + t * LP_MAT_ROWS, place_of(tiles, n_in, t));
}

// ---- products

// The sums of n_t tiles of activations with n_w blocks, both constants: the numbers of tiles are part of
// the instructions.
INLINE void sums_of(const uint16_t *x, int64_t x_step,
                    const uint16_t (*w)[LP_WIDE_PIECE * LP_MAT_ROWS], int64_t n, int n_t, int n_w,
                    bool add, float *out0, float *out1) {
    const uint16_t *x1 = x + x_step, *w0 = w[0], *w1 = w[1];
    if (add) {
        _tile_loadd(0, out0, ROW_BYTES);
        if (n_w > 1) _tile_loadd(1, out1, ROW_BYTES);
        if (n_t > 1) _tile_loadd(2, out0 + 256, ROW_BYTES);
        if (n_t > 1 && n_w > 1) _tile_loadd(3, out1 + 256, ROW_BYTES);
    } else {
        _tile_zero(0);
        if (n_w > 1) _tile_zero(1);
        if (n_t > 1) _tile_zero(2);
        if (n_t > 1 && n_w > 1) _tile_zero(3);
    }
    for (int64_t at = 0; at < n * LP_WIDE_SIDE; at += LP_WIDE_TILE) {
        _tile_loadd(4, x + at, ROW_BYTES);
        _tile_loadd(6, w0 + at, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (n_w > 1) {
            _tile_loadd(7, w1 + at, ROW_BYTES);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (n_t > 1) {
            _tile_loadd(5, x1 + at, ROW_BYTES);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (n_t > 1 && n_w > 1) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out0, ROW_BYTES);
    if (n_w > 1) _tile_stored(1, out1, ROW_BYTES);
    if (n_t > 1) _tile_stored(2, out0 + 256, ROW_BYTES);
    if (n_t > 1 && n_w > 1) _tile_stored(3, out1 + 256, ROW_BYTES);
}

static void all_sums(const uint16_t *x, int64_t x_step, int64_t n_tiles,
                     const uint16_t (*w)[LP_WIDE_PIECE * LP_MAT_ROWS], int n_blocks, int64_t n,
                     bool add, float *const *out) {
    lp_cpu_amx_configure(&lp_cpu_amx_whole);
    float *out0 = out[0], *out1 = n_blocks > 1 ? out[1] : NULL;
    for (int64_t t = 0; t < n_tiles; t += PAIR, x += PAIR * x_step) {
        if (n_tiles - t >= PAIR) {
            if (n_blocks > 1)
                sums_of(x, x_step, w, n, 2, 2, add, out0, out1);
            else
                sums_of(x, x_step, w, n, 2, 1, add, out0, out1);
        } else if (n_blocks > 1)
            sums_of(x, x_step, w, n, 1, 2, add, out0, out1);
        else
            sums_of(x, x_step, w, n, 1, 1, add, out0, out1);
        out0 += PAIR * 256;
        if (out1) out1 += PAIR * 256;
    }
}

const struct lp_cpu_wide lp_cpu_wide_amx = {
    .name = "amx_bf16", .put_row = put_row, .put_columns = put_columns, .multiply = all_sums};

#endif
