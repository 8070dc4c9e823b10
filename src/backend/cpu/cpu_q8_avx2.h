// The 8-bit kernels' common body, for files compiled with AVX2 or more: what happens to a group of
// 32 weights once it is unpacked. A type is a struct q8_format with two functions,
//
//   scales(unit, quad, &scale, &min)   the two scale vectors of a quad, as in lp_weight_quad
//   bytes(unit, quad, group)           the group's 32 values as bytes
//
// from which dot, unpack and tile are made, so that all three run the same float operations in the
// same order. Per quad and (weight row, activation row):
//
//   acc = acc - min * s                                  (types with a min)
//   acc = acc + float(dot32(group)) * (scale * d)[group] for its four groups
//
// where dot32 gives 8 exact int32 lanes of 4 products; lanes 0..3 are the group's first 16 values.
// The format is a constant at every call and all is inlined: no call remains in the loops.
#ifndef LP_BACKEND_CPU_CPU_Q8_AVX2_H
#define LP_BACKEND_CPU_CPU_Q8_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "backend/cpu/cpu_matmul.h"
#include "quant/blocks.h"

#define LP_INLINE static inline __attribute__((always_inline))
#define CHUNK_QUADS (LP_MAT_CHUNK_Q8 / LP_QUAD_VALUES)

// u unsigned, s signed bytes; every pair sum u0 s0 + u1 s1 fits 16 bits (|u| <= 128, |s| <= 127).
LP_INLINE __m256i dot32_unsigned(__m256i u, __m256i s) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), u, s);
#else
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
#endif
}

// w signed, -128 included (its absolute value is the unsigned byte 128); x in -127..127, which can
// be negated without overflow.
LP_INLINE __m256i dot32_signed(__m256i w, __m256i x) {
    return dot32_unsigned(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

LP_INLINE __m256 add_group(__m256 acc, __m256i dot, __m256 group_scale) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), group_scale, acc);
}

LP_INLINE float hsum8(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

LP_INLINE __m256i load_x(const struct lp_act_quad *x, int group) {
    return _mm256_load_si256((const __m256i *)(x->q + 32 * group));
}

LP_INLINE __m256 twice(__m128 v) {
    return _mm256_set_m128(v, v);
}

// Loads at any address.
LP_INLINE uint32_t load_u32(const void *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
LP_INLINE float f16_at(const void *p) {
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return _cvtsh_ss(bits);
}
LP_INLINE __m128i load_16(const void *p) {
    return _mm_loadu_si128(p);
}
LP_INLINE __m256i load_32(const void *p) {
    return _mm256_loadu_si256(p);
}

// Byte j is all ones where bit j is set, zero elsewhere.
LP_INLINE __m256i spread_bits(uint32_t bits) {
    const __m256i byte = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                          2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i b = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte);
    return _mm256_cmpeq_epi8(_mm256_and_si256(b, bit), bit);
}

// 32 values of 16 bytes: low nibbles, then high nibbles
LP_INLINE __m256i nibbles_32(const uint8_t *qs) {
    __m128i b = load_16(qs);
    __m256i both = _mm256_set_m128i(_mm_srli_epi16(b, 4), b);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

// The group is an immediate operand of the shuffle, so the four steps are written out, not looped.
#define FOUR_GROUPS(STEP) STEP(0) STEP(1) STEP(2) STEP(3)

// ---- panels of unpacked rows

LP_INLINE void tile_q8(const struct lp_weight_quad *w, int64_t w_stride, int nr,
                       const struct lp_act_quad *const *x, int nx, int64_t n_quads, bool is_signed,
                       bool add, float *out) {
    __m256 acc[2][LP_MAT_TILE];
    for (int r = 0; r < nr; r++)
        for (int t = 0; t < nx; t++) acc[r][t] = _mm256_setzero_ps();
    for (int64_t i = 0; i < n_quads; i++) {
        __m256 scale[2][LP_MAT_TILE];
        for (int r = 0; r < nr; r++)
            for (int t = 0; t < nx; t++) {
                const struct lp_weight_quad *wq = w + r * w_stride + i;
                scale[r][t] = _mm256_mul_ps(_mm256_load_ps(wq->scale), _mm256_load_ps(x[t][i].d));
                if (!is_signed)
                    acc[r][t] = _mm256_fnmadd_ps(_mm256_load_ps(wq->min), _mm256_load_ps(x[t][i].s),
                                                 acc[r][t]);
            }
#define STEP(g)                                                                                    \
    for (int r = 0; r < nr; r++) {                                                                 \
        __m256i b = _mm256_load_si256((const __m256i *)(w[r * w_stride + i].q + 32 * (g)));        \
        for (int t = 0; t < nx; t++) {                                                             \
            __m256i xq = load_x(&x[t][i], g);                                                      \
            __m256i dot = is_signed ? dot32_signed(b, xq) : dot32_unsigned(b, xq);                 \
            acc[r][t] = add_group(acc[r][t], dot, _mm256_permute_ps(scale[r][t], (g)*0x55));       \
        }                                                                                          \
    }
        FOUR_GROUPS(STEP)
#undef STEP
    }
    for (int r = 0; r < nr; r++)
        for (int t = 0; t < nx; t++) {
            float sum = hsum8(acc[r][t]), *y = out + t * LP_MAT_ROWS + r;
            *y = add ? *y + sum : sum;
        }
}

// Two panel rows at a time against four activation rows; what is left over one by one.
LP_INLINE void tile_rows_q8(const void *panel, int n_rows, const void *const *x, int n_x,
                            int64_t first, int64_t n, bool is_signed, float *out) {
    const struct lp_act_quad *rows[LP_MAT_TILE];
    for (int t = 0; t < n_x; t++)
        rows[t] = (const struct lp_act_quad *)x[t] + first / LP_QUAD_VALUES;
    int64_t n_quads = lp_cpu_quads(n);
    const struct lp_weight_quad *w = panel;
    for (int r = 0; r < n_rows; r += 2) {
        bool pair = r + 1 < n_rows, add = first != 0;
        const struct lp_weight_quad *wr = w + r * CHUNK_QUADS;
        if (pair && n_x == 4)
            tile_q8(wr, CHUNK_QUADS, 2, rows, 4, n_quads, is_signed, add, out + r);
        else
            for (int k = 0; k < 1 + pair; k++)
                for (int t = 0; t < n_x; t++)
                    tile_q8(wr + k * CHUNK_QUADS, CHUNK_QUADS, 1, rows + t, 1, n_quads, is_signed,
                            add, out + t * LP_MAT_ROWS + r + k);
    }
}

LP_INLINE void expand_q8(const struct lp_weight_quad *quads, int64_t n, bool is_signed,
                         float *out) {
    for (int64_t i = 0; i < n; i += 16) { // half a group: one lane of scale and min
        const struct lp_weight_quad *w = quads + i / LP_QUAD_VALUES;
        int at = (int)(i % LP_QUAD_VALUES), lane = at / 32 + (at / 16 % 2) * 4;
        __m256 scale = _mm256_set1_ps(w->scale[lane]), min = _mm256_set1_ps(w->min[lane]);
        for (int k = 0; k < 16; k += 8) {
            __m128i b = _mm_loadl_epi64((const __m128i *)(w->q + at + k));
            __m256 v =
                _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(b) : _mm256_cvtepu8_epi32(b));
            v = _mm256_mul_ps(v, scale);
            if (!is_signed) v = _mm256_sub_ps(v, min);
            _mm256_storeu_ps(out + i + k, v);
        }
    }
}

// ---- one type: rows as they are stored

// A type's two functions, named after its stem.
#define SCALES(stem)                                                                               \
    LP_INLINE void stem##_scales(const void *unit, int quad, __m256 *scale, __m256 *min)
#define BYTES(stem) LP_INLINE __m256i stem##_bytes(const void *unit, int quad, int group)
#define FORMAT(stem, n_values, n_quads, signed_)                                                   \
    static const struct q8_format stem = {                                                         \
        .block_bytes = sizeof(struct lp_block_##stem),                                             \
        .block_values = n_values,                                                                  \
        .quads = n_quads,                                                                          \
        .is_signed = signed_,                                                                      \
        .scales = stem##_scales,                                                                   \
        .bytes = stem##_bytes,                                                                     \
    }

struct q8_format {
    int block_bytes, block_values;
    int quads; // of a unit: 1 (128 values, several small blocks) or 2 (a block of 256)
    bool is_signed;
    void (*scales)(const void *unit, int quad, __m256 *scale, __m256 *min);
    __m256i (*bytes)(const void *unit, int quad, int group);
};

LP_INLINE int64_t unit_values(const struct q8_format *f) {
    return f->quads * LP_QUAD_VALUES;
}
LP_INLINE size_t bytes_of(const struct q8_format *f, int64_t n) {
    return (size_t)(n / f->block_values) * (size_t)f->block_bytes;
}

LP_INLINE __m256 unit_q8(const struct q8_format *f, __m256 acc, const uint8_t *unit,
                         const struct lp_act_quad *x) {
    for (int q = 0; q < f->quads; q++, x++) {
        __m256 scale, min = _mm256_setzero_ps();
        f->scales(unit, q, &scale, &min);
        scale = _mm256_mul_ps(scale, _mm256_load_ps(x->d));
        if (!f->is_signed) acc = _mm256_fnmadd_ps(min, _mm256_load_ps(x->s), acc);
#define STEP(g)                                                                                    \
    {                                                                                              \
        __m256i b = f->bytes(unit, q, g), xq = load_x(x, g);                                       \
        __m256i dot = f->is_signed ? dot32_signed(b, xq) : dot32_unsigned(b, xq);                  \
        acc = add_group(acc, dot, _mm256_permute_ps(scale, (g)*0x55));                             \
    }
        FOUR_GROUPS(STEP)
#undef STEP
    }
    return acc;
}

// Fetches the same place two rows ahead: the next pair's. The hardware's own prefetch starts anew
// with each row, which for rows of a few KiB is most of the time.
LP_INLINE void prefetch_unit(const uint8_t *unit, size_t row_bytes, int64_t n_bytes) {
    for (int64_t i = 0; i < n_bytes; i += 64)
        _mm_prefetch((const char *)unit + 2 * row_bytes + i, _MM_HINT_T1);
}

// The short last unit of a row, completed with zero bytes: blocks whose scale is 0.
LP_INLINE __m256 last_unit_q8(const struct q8_format *f, __m256 acc, const uint8_t *unit,
                              size_t n_bytes, const struct lp_act_quad *x) {
    uint8_t whole[256] = {0};
    memcpy(whole, unit, n_bytes);
    return unit_q8(f, acc, whole, x);
}

LP_INLINE void rows_q8(const struct q8_format *f, const uint8_t *w, size_t row_bytes, int nr,
                       const struct lp_act_quad *x, int64_t n_in, float *out) {
    const size_t unit_bytes = bytes_of(f, unit_values(f));
    float sum[2] = {0, 0};
    for (int64_t first = 0; first < n_in; first += LP_MAT_CHUNK_Q8) {
        int64_t n = n_in - first < LP_MAT_CHUNK_Q8 ? n_in - first : LP_MAT_CHUNK_Q8;
        const uint8_t *chunk = w + bytes_of(f, first);
        const struct lp_act_quad *xc = x + first / LP_QUAD_VALUES;
        __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        int64_t n_units = n / unit_values(f), rest = n % unit_values(f);
        for (int64_t i = 0; i < n_units; i++)
            for (int r = 0; r < nr; r++) {
                const uint8_t *unit = chunk + (size_t)r * row_bytes + (size_t)i * unit_bytes;
                prefetch_unit(unit, row_bytes, (int64_t)unit_bytes);
                acc[r] = unit_q8(f, acc[r], unit, xc + i * f->quads);
            }
        for (int r = 0; r < nr && rest > 0; r++)
            acc[r] = last_unit_q8(f, acc[r],
                                  chunk + (size_t)r * row_bytes + (size_t)n_units * unit_bytes,
                                  bytes_of(f, rest), xc + n_units * f->quads);
        for (int r = 0; r < nr; r++) sum[r] = first == 0 ? hsum8(acc[r]) : sum[r] + hsum8(acc[r]);
    }
    for (int r = 0; r < nr; r++) out[r] = sum[r];
}

LP_INLINE void dot_q8(const struct q8_format *f, const uint8_t *w, size_t row_bytes, int64_t n_rows,
                      const void *x, int64_t n_in, float *out) {
    int64_t r = 0;
    for (; r + 2 <= n_rows; r += 2)
        rows_q8(f, w + (size_t)r * row_bytes, row_bytes, 2, x, n_in, out + r);
    if (r < n_rows) rows_q8(f, w + (size_t)r * row_bytes, row_bytes, 1, x, n_in, out + r);
}

LP_INLINE void unpack_unit_q8(const struct q8_format *f, const uint8_t *unit,
                              struct lp_weight_quad *to) {
    for (int q = 0; q < f->quads; q++, to++) {
        __m256 scale, min = _mm256_setzero_ps();
        f->scales(unit, q, &scale, &min);
        _mm256_store_ps(to->scale, scale);
        _mm256_store_ps(to->min, min);
#define STEP(g) _mm256_store_si256((__m256i *)(to->q + 32 * (g)), f->bytes(unit, q, g));
        FOUR_GROUPS(STEP)
#undef STEP
    }
}

LP_INLINE void unpack_q8(const struct q8_format *f, const uint8_t *row, int64_t first, int64_t n,
                         struct lp_weight_quad *to) {
    const uint8_t *p = row + bytes_of(f, first);
    const size_t unit_bytes = bytes_of(f, unit_values(f));
    for (; n >= unit_values(f); n -= unit_values(f), p += unit_bytes, to += f->quads)
        unpack_unit_q8(f, p, to);
    if (n == 0) return;
    uint8_t whole[256] = {0};
    memcpy(whole, p, bytes_of(f, n));
    unpack_unit_q8(f, whole, to);
}

// Makes the kernel lp_cpu_mat_<isa>_<stem> of a static const struct q8_format named stem.
#define LP_Q8_KERNEL(isa, stem, kind)                                                              \
    static void stem##_dot(const struct lp_type_info *type, const uint8_t *w, size_t row_bytes,    \
                           int64_t n_rows, const void *x, int64_t n_in, float *out) {              \
        (void)type;                                                                                \
        dot_q8(&stem, w, row_bytes, n_rows, x, n_in, out);                                         \
    }                                                                                              \
    static void stem##_unpack(const struct lp_type_info *type, const uint8_t *row, int64_t first,  \
                              int64_t n, void *panel_row) {                                        \
        (void)type;                                                                                \
        unpack_q8(&stem, row, first, n, panel_row);                                                \
    }                                                                                              \
    const struct lp_cpu_mat_kernel lp_cpu_mat_##isa##_##stem = {                                   \
        .name = #isa "_" #stem,                                                                    \
        .act = LP_CPU_ACT_Q8,                                                                      \
        .dot = stem##_dot,                                                                         \
        .unpack = stem##_unpack,                                                                   \
        .tile = tile_##kind,                                                                       \
        .expand = expand_##kind,                                                                   \
        .axpy = lp_cpu_axpy_avx2,                                                                  \
    };

// ---- tile and expand depend on the sign only

static void tile_signed(const void *panel, int n_rows, const void *const *x, int n_x, int64_t first,
                        int64_t n, float *out) {
    tile_rows_q8(panel, n_rows, x, n_x, first, n, true, out);
}
__attribute__((unused)) static void tile_unsigned(const void *panel, int n_rows,
                                                  const void *const *x, int n_x, int64_t first,
                                                  int64_t n, float *out) {
    tile_rows_q8(panel, n_rows, x, n_x, first, n, false, out);
}
static void expand_signed(const struct lp_weight_quad *quads, int64_t n, float *out) {
    expand_q8(quads, n, true, out);
}
__attribute__((unused)) static void expand_unsigned(const struct lp_weight_quad *quads, int64_t n,
                                                    float *out) {
    expand_q8(quads, n, false, out);
}

#endif
