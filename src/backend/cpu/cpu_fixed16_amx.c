// 16-bit products (cpu_fixed16.h) with the tiles of AMX, which multiply bytes: a number n is taken as
// 256 h + l, h signed and l not, so that
//
//     sum of n m = 65536 sum of h h' + 256 (sum of h l' + sum of l h') + sum of l l'
//
// in whole numbers that may wrap, as the sum itself does not: the bits of cpu_fixed16_vnni.c, which also
// does the rounding. Its results are taken apart where they lie:
//     rows      of every 64 values the 64 h, then the 64 l
//     columns   of every 64 values (32 rows of pairs) and 16 columns, 16 rows of h in quads, then of l
#if (defined(__AMX_INT8__) || defined(LP_AMX_MODEL)) && defined(__AVX512VNNI__)
#include "backend/cpu/cpu_amx.h"

#include <string.h>

#include "backend/cpu/cpu_fixed16.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define RUN LP_CPU_FIXED16_RUN
#define STEP 64 // values of a tile's row
#define SIDE 16

static bool round_rows(const float *x, ptrdiff_t ldx, int m, int k, int16_t *out, ptrdiff_t ldo,
                       float *scale) {
    const bool usual = lp_cpu_fixed16_vnni.round_rows(x, ldx, m, k, out, ldo, scale);
    for (int i = 0; i < m; i++)
        for (int at = 0; at < k; at += STEP) {
            int16_t *here = out + i * ldo + at;
            const __m512i a = _mm512_loadu_si512(here), b = _mm512_loadu_si512(here + STEP / 2);
            const __m256i high_a = _mm512_cvtepi16_epi8(_mm512_srai_epi16(a, 8)),
                          high_b = _mm512_cvtepi16_epi8(_mm512_srai_epi16(b, 8));
            _mm512_storeu_si512(here,
                                _mm512_inserti64x4(_mm512_castsi256_si512(high_a), high_b, 1));
            _mm512_storeu_si512(here + STEP / 2,
                                _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)),
                                                   _mm512_cvtepi16_epi8(b), 1));
        }
    return usual;
}

// 32 rows of pairs in 16 columns
static void part_columns(int32_t *at, ptrdiff_t ld) {
    const __m512i high_a = _mm512_set1_epi32((int)0x80800301),
                  high_b = _mm512_set1_epi32(0x03018080),
                  low_a = _mm512_set1_epi32((int)0x80800200), low_b = _mm512_set1_epi32(0x02008080);
    // The indices are those of a lane; each quarter needs its own.
    const __m512i lane = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    __m512i low[SIDE];
    UNROLL for (int r = 0; r < SIDE; r++) { // row r is behind what it is read from
        const __m512i a = _mm512_loadu_si512(at + 2 * r * ld),
                      b = _mm512_loadu_si512(at + (2 * r + 1) * ld);
        const __m512i high = _mm512_or_si512(_mm512_shuffle_epi8(a, _mm512_or_si512(high_a, lane)),
                                             _mm512_shuffle_epi8(b, _mm512_or_si512(high_b, lane)));
        low[r] = _mm512_or_si512(_mm512_shuffle_epi8(a, _mm512_or_si512(low_a, lane)),
                                 _mm512_shuffle_epi8(b, _mm512_or_si512(low_b, lane)));
        _mm512_storeu_si512(at + r * ld, high);
    }
    UNROLL for (int r = 0; r < SIDE; r++) _mm512_storeu_si512(at + (SIDE + r) * ld, low[r]);
}

static bool round_columns(const float *x, ptrdiff_t ldx, int k, int n, int32_t *out, ptrdiff_t ldo,
                          float *scale) {
    const bool usual = lp_cpu_fixed16_vnni.round_columns(x, ldx, k, n, out, ldo, scale);
    for (int at = 0; at < k; at += STEP)
        for (int j = 0; j < n; j += SIDE) part_columns(out + at / 2 * ldo + j, ldo);
    return usual;
}

// The four products of one step; tiles 0: h h', 1: h l' + l h', 2: l l'
INLINE void multiply_step(const int16_t *a, size_t a_bytes, const int32_t *b, ptrdiff_t ldb) {
    const size_t b_bytes = (size_t)ldb * sizeof *b;
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, b + SIDE * ldb, b_bytes);
    _tile_dpbsud(1, 4, 7);
    _tile_loadd(5, a + STEP / 2, a_bytes);
    _tile_dpbusd(1, 5, 6);
    _tile_dpbuud(2, 5, 7);
}

// SIDE rows, of which n are stored, and SIDE columns
INLINE void product_tile(int n, int k, const int16_t *a, ptrdiff_t lda, const float *a_scale,
                         const int32_t *b, ptrdiff_t ldb, __m512 b_scale, float *c, ptrdiff_t ldc,
                         bool add) {
    for (int run = 0; run < k; run += RUN, add = true) {
        _Alignas(64) int32_t sums[3][SIDE][SIDE];
        const int end = k - run < RUN ? k : run + RUN;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        for (int at = run; at < end; at += STEP)
            multiply_step(a + at, (size_t)lda * sizeof *a, b + at / 2 * ldb, ldb);
        _tile_stored(0, sums[0], sizeof sums[0][0]);
        _tile_stored(1, sums[1], sizeof sums[1][0]);
        _tile_stored(2, sums[2], sizeof sums[2][0]);
        for (int i = 0; i < n; i++) {
            float *to = c + i * ldc;
            const __m512i high = _mm512_load_si512(sums[0][i]), mid = _mm512_load_si512(sums[1][i]),
                          low = _mm512_load_si512(sums[2][i]);
            const __m512i sum = _mm512_add_epi32(
                _mm512_slli_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 8), mid), 8), low);
            const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum),
                                           _mm512_mul_ps(_mm512_set1_ps(a_scale[i]), b_scale));
            _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), v) : v);
        }
    }
}

#define MAX_K 1024 // of the rows that are copied, else VNNI would do

static void multiply(int m, int n, int k, const int16_t *a, ptrdiff_t lda, const float *a_scale,
                     const int32_t *b, ptrdiff_t ldb, const float *b_scale, float *c, ptrdiff_t ldc,
                     bool add) {
    lp_cpu_amx_configure(&lp_cpu_amx_whole);
    for (int i = 0; i < m; i += SIDE) {
        const int n_rows = m - i < SIDE ? m - i : SIDE;
        const int16_t *rows = a + i * lda;
        ptrdiff_t ld = lda;
        int16_t copy[SIDE][MAX_K];
        if (n_rows < SIDE) { // the tile's other rows are not there to be read
            for (int r = 0; r < SIDE; r++)
                memcpy(copy[r], rows + (r < n_rows ? r : 0) * lda, (size_t)k * sizeof *rows);
            rows = copy[0];
            ld = MAX_K;
        }
        for (int j = 0; j < n; j += SIDE)
            product_tile(n_rows, k, rows, ld, a_scale + i, b + j, ldb, _mm512_loadu_ps(b_scale + j),
                         c + i * ldc + j, ldc, add);
    }
}

const struct lp_cpu_fixed16 lp_cpu_fixed16_amx = {.name = "amx_mla_expanded",
                                                  .rounding = 1e-3,
                                                  .multiple = STEP,
                                                  .most = MAX_K,
                                                  .round_rows = round_rows,
                                                  .round_columns = round_columns,
                                                  .multiply = multiply};

#endif
