// 16-bit products (cpu_fixed16.h) with AVX-512 VNNI.
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#include <float.h>
#include <immintrin.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_fixed16.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define RUN LP_CPU_FIXED16_RUN
#define LARGEST 32766.0f // of the norm of a run: the rounded values' stays below 32767.5
#define SMALLEST_NORM2 1e-30f
#define TILE 4 // rows of a tile, with 4 vectors

// The scale for a largest norm squared of a run; *inverse what values are multiplied by.
INLINE bool scale_of(float norm2, float *scale, float *inverse) {
    if (norm2 == 0) {
        *scale = *inverse = 0;
        return true;
    }
    float norm = sqrtf(norm2);
    *scale = norm / LARGEST;
    *inverse = LARGEST / norm;
    if (norm2 >= SMALLEST_NORM2 && norm2 <= FLT_MAX) return true;
    *inverse = 0;
    *scale = norm2 < SMALLEST_NORM2 ? 0 : NAN;
    return false;
}

static bool round_rows(const float *x, ptrdiff_t ldx, int m, int k, int16_t *out, ptrdiff_t ldo,
                       float *scale) {
    bool usual = true;
    for (int i = 0; i < m; i++) {
        const float *row = x + i * ldx;
        float most = 0, inverse;
        for (int run = 0; run < k; run += RUN) {
            int end = k - run < RUN ? k : run + RUN, at = run;
            __m512 sum = _mm512_setzero_ps();
            for (; at + 16 <= end; at += 16) {
                __m512 v = _mm512_loadu_ps(row + at);
                sum = _mm512_fmadd_ps(v, v, sum);
            }
            if (at < end) {
                __m512 v = _mm512_maskz_loadu_ps((__mmask16)((1u << (end - at)) - 1), row + at);
                sum = _mm512_fmadd_ps(v, v, sum);
            }
            float norm2 = _mm512_reduce_add_ps(sum);
            if (!(norm2 <= most)) most = norm2; // NaN stays: nothing compares with it afterwards
            if (isnan(most)) break;
        }
        usual &= scale_of(most, &scale[i], &inverse);
        const __m512 factor = _mm512_set1_ps(inverse);
        int at = 0;
        for (; at + 16 <= k; at += 16) {
            __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(row + at), factor));
            _mm256_storeu_si256((void *)(out + i * ldo + at), _mm512_cvtepi32_epi16(v));
        }
        if (at < k) {
            __mmask16 there = (__mmask16)((1u << (k - at)) - 1);
            __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(there, row + at), factor);
            _mm256_mask_storeu_epi16(out + i * ldo + at, there,
                                     _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(v)));
        }
    }
    return usual;
}

// 16 columns
INLINE bool round_16_columns(const float *x, ptrdiff_t ldx, int k, int32_t *out, ptrdiff_t ldo,
                             float *scale) {
    __m512 most = _mm512_setzero_ps();
    for (int run = 0; run < k; run += RUN) {
        __m512 sum = _mm512_setzero_ps();
        for (int at = run; at < k && at < run + RUN; at++) {
            __m512 v = _mm512_loadu_ps(x + at * ldx);
            sum = _mm512_fmadd_ps(v, v, sum);
        }
        most = _mm512_max_ps(sum, most); // the second where one is NaN: seen below
        const __mmask16 bad = _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q);
        most = _mm512_mask_mov_ps(most, bad, _mm512_set1_ps(INFINITY));
    }
    const __mmask16 zero = _mm512_cmp_ps_mask(most, _mm512_setzero_ps(), _CMP_EQ_OQ);
    const __mmask16 tiny = _mm512_cmp_ps_mask(most, _mm512_set1_ps(SMALLEST_NORM2), _CMP_LT_OQ);
    const __mmask16 usual = _mm512_cmp_ps_mask(most, _mm512_set1_ps(SMALLEST_NORM2), _CMP_GE_OQ) &
                            _mm512_cmp_ps_mask(most, _mm512_set1_ps(FLT_MAX), _CMP_LE_OQ);
    const __m512 norm = _mm512_sqrt_ps(most);
    const __m512 inverse = _mm512_maskz_div_ps(usual, _mm512_set1_ps(LARGEST), norm);
    __m512 scales = _mm512_mask_mov_ps(_mm512_set1_ps(NAN), usual,
                                       _mm512_div_ps(norm, _mm512_set1_ps(LARGEST)));
    _mm512_storeu_ps(scale, _mm512_mask_mov_ps(scales, tiny, _mm512_setzero_ps()));
    for (int at = 0; at < k; at += 2) {
        __m512 low = _mm512_mul_ps(_mm512_loadu_ps(x + at * ldx), inverse);
        __m512 high = _mm512_mul_ps(_mm512_loadu_ps(x + (at + 1) * ldx), inverse);
        __m512i pairs = _mm512_slli_epi32(_mm512_cvtps_epi32(high), 16);
        _mm512_storeu_si512(out + at / 2 * ldo,
                            _mm512_mask_mov_epi16(pairs, 0x55555555u, _mm512_cvtps_epi32(low)));
    }
    return (zero | usual) == 0xffff;
}

static bool round_columns(const float *x, ptrdiff_t ldx, int k, int n, int32_t *out, ptrdiff_t ldo,
                          float *scale) {
    bool usual = true;
    for (int j = 0; j < n; j += 16)
        usual &= round_16_columns(x + j, ldx, k, out + j, ldo, scale + j);
    return usual;
}

// n_rows x 64 outputs
INLINE void product_tile(const int n_rows, int k, const int16_t *a, ptrdiff_t lda,
                         const float *a_scale, const int32_t *b, ptrdiff_t ldb,
                         const float *b_scale, float *c, ptrdiff_t ldc, bool add) {
    for (int run = 0; run < k; run += RUN, add = true) {
        __m512i sum[TILE][4];
        UNROLL for (int i = 0; i < n_rows; i++) UNROLL for (int j = 0; j < 4; j++) sum[i][j] =
            _mm512_setzero_si512();
        const int end = k - run < RUN ? k : run + RUN;
        for (int at = run; at < end; at += 2) {
            const int32_t *row = b + at / 2 * ldb;
            __m512i y[4];
            UNROLL for (int j = 0; j < 4; j++) y[j] = _mm512_loadu_si512(row + j * 16);
            UNROLL for (int i = 0; i < n_rows; i++) {
                int32_t two;
                memcpy(&two, a + i * lda + at, sizeof two);
                const __m512i x = _mm512_set1_epi32(two);
                UNROLL for (int j = 0; j < 4; j++) sum[i][j] =
                    _mm512_dpwssd_epi32(sum[i][j], x, y[j]);
            }
        }
        UNROLL for (int i = 0; i < n_rows; i++) UNROLL for (int j = 0; j < 4; j++) {
            float *to = c + i * ldc + j * 16;
            __m512 scale =
                _mm512_mul_ps(_mm512_set1_ps(a_scale[i]), _mm512_loadu_ps(b_scale + j * 16));
            __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i][j]), scale);
            _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), v) : v);
        }
    }
}

static void multiply(int m, int n, int k, const int16_t *a, ptrdiff_t lda, const float *a_scale,
                     const int32_t *b, ptrdiff_t ldb, const float *b_scale, float *c, ptrdiff_t ldc,
                     bool add) {
    for (int j = 0; j < n; j += LP_CPU_FIXED16_COLUMNS) {
        int i = 0;
        for (; i + TILE <= m; i += TILE)
            product_tile(TILE, k, a + i * lda, lda, a_scale + i, b + j, ldb, b_scale + j,
                         c + i * ldc + j, ldc, add);
        for (; i < m; i++)
            product_tile(1, k, a + i * lda, lda, a_scale + i, b + j, ldb, b_scale + j,
                         c + i * ldc + j, ldc, add);
    }
}

const struct lp_cpu_fixed16 lp_cpu_fixed16_vnni = {.name = "vnni_mla_expanded",
                                                   .rounding = 1e-3,
                                                   .multiple = 2,
                                                   .most = INT_MAX,
                                                   .round_rows = round_rows,
                                                   .round_columns = round_columns,
                                                   .multiply = multiply};

#endif
