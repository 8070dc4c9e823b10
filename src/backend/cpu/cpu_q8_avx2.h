// The 8-bit kernels of one type. A type is a struct q8_format of up to three functions,
//
//   scales(unit, quad, &scale, &min)   the two scale vectors of a quad, as in lp_weight_quad
//   bytes(unit, quad, group)           the group's 32 values as bytes
//   strip(rows, sink)                  a unit of LANES rows at once, as cpu_q8_strip.h wants them
//
// The first two read one row. Types without the third, whose values come from tables of octets, are
// read row by row and turned; the products are the same, so both ways give the same bits. The
// format is a constant at every call and all is inlined: no call but that of the products remains
// in the loops.
#ifndef LP_BACKEND_CPU_CPU_Q8_AVX2_H
#define LP_BACKEND_CPU_CPU_Q8_AVX2_H

#include "backend/cpu/cpu_q8_strip.h"
#include "quant/blocks.h"

#define CHUNK_QUADS (LP_MAT_CHUNK_Q8 / LP_QUAD_VALUES)

LP_INLINE __m256 twice(__m128 v) {
    return _mm256_set_m128(v, v);
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

// ---- one type: rows as they are stored

// A type's functions, named after its stem.
#define SCALES(stem)                                                                               \
    LP_INLINE void stem##_scales(const void *unit, int quad, __m256 *scale, __m256 *min)
#define BYTES(stem) LP_INLINE __m256i stem##_bytes(const void *unit, int quad, int group)
#define STRIP(stem) LP_INLINE void stem##_strip(struct source *rows, const struct sink *to)

struct q8_format {
    int block_bytes, block_values;
    int quads;      // of a unit: 1 (128 values, several small blocks) or 2 (a block of 256)
    bool is_signed; // else values are at least 0, and there is a min
    void (*scales)(const void *unit, int quad, __m256 *scale, __m256 *min);
    __m256i (*bytes)(const void *unit, int quad, int group);
    void (*strip)(struct source *rows, const struct sink *to);
    products_fn *products; // for the strip's bytes
    enum strip_kind kind;  // the same
    float offset;
    bool halves; // scales differ between the halves of a group
};

#define FORMAT_HEAD(stem, n_values, n_quads, signed_)                                              \
    .block_bytes = sizeof(struct lp_block_##stem), .block_values = (n_values), .quads = (n_quads), \
    .is_signed = (signed_), .scales = stem##_scales, .bytes = stem##_bytes
#define FORMAT(stem, n_values, n_quads, kind_, halves_)                                            \
    static const struct q8_format stem = {                                                         \
        FORMAT_HEAD(stem, n_values, n_quads, true),                                                \
        .products = products_##kind_,                                                              \
        .kind = KIND_##kind_,                                                                      \
        .offset = ANY_OFFSET,                                                                      \
        .halves = (halves_),                                                                       \
    }
#define STRIP_FORMAT(stem, n_values, n_quads, signed_, kind_, offset_, halves_)                    \
    static const struct q8_format stem = {                                                         \
        FORMAT_HEAD(stem, n_values, n_quads, signed_),                                             \
        .strip = stem##_strip,                                                                     \
        .products = products_##kind_,                                                              \
        .kind = KIND_##kind_,                                                                      \
        .offset = (offset_),                                                                       \
        .halves = (halves_),                                                                       \
    }

LP_INLINE int64_t unit_values(const struct q8_format *f) {
    return f->quads * LP_QUAD_VALUES;
}
LP_INLINE size_t bytes_of(const struct q8_format *f, int64_t n) {
    return (size_t)(n / f->block_values) * (size_t)f->block_bytes;
}

// ---- row by row

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
    uint8_t whole[256] = {0}; // the short last unit, completed with blocks whose scale is 0
    memcpy(whole, p, bytes_of(f, n));
    unpack_unit_q8(f, whole, to);
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

// Turns a quad of LANES unpacked rows.
LP_INLINE void turn_quad(struct source *quads, bool is_signed, bool halves, struct strip *to) {
    for (int k = 0; k < LP_QUAD_VALUES / 4; k += 4) {
        columns(quads, 4 * (size_t)k, to->q + k);
        for (int i = k; i < k + 4 && is_signed && !quads->tiles; i++)
            to->q[i] = any_bytes(to->q[i]);
    }
    for (int k = 0; k < 8; k += 4) {
        vint v[4], m[4];
        columns(quads, offsetof(struct lp_weight_quad, scale) + 4 * (size_t)k, v);
        if (!is_signed) columns(quads, offsetof(struct lp_weight_quad, min) + 4 * (size_t)k, m);
        for (int i = 0; i < 4; i++) {
            to->scale[k + i] = V_AS_FLOAT(v[i]);
            if (is_signed) continue;
            const vfloat unit = V_INT(set1_ps)(halves ? 1.0f / 128 : 1.0f);
            to->min[k + i] = V_INT(mul_ps)(V_AS_FLOAT(m[i]), unit);
        }
    }
}

// Row `row` of n_rows, or the last one in place of those behind it: lanes whose sums nobody reads.
LP_INLINE int clamped(int row, int n_rows) {
    return row < n_rows ? row : n_rows - 1;
}

// For bytes that were turned rather than read as a strip
LP_INLINE products_fn *turned_products(const struct q8_format *f) {
    if (f->is_signed) return f->halves ? products_any_halves : products_any;
    return f->halves ? products_min_halves : products_min;
}

// The kernel's `tile`: panel rows of quads.
LP_INLINE void tile_q8(const struct lp_weight_quad *panel, int n_rows, const void *const *x,
                       int n_x, int64_t first, int64_t n, bool is_signed, bool halves,
                       products_fn *multiply, float *out) {
    for (int r = 0; r < n_rows; r += LANES)
        for (int64_t at = 0; at < n; at += LP_Q8_PIECE) {
            struct strip strips[PIECE_QUADS];
            int64_t n_quads = lp_cpu_quads(n - at < LP_Q8_PIECE ? n - at : LP_Q8_PIECE);
            for (int64_t i = 0; i < n_quads; i++) {
                struct source source = {.tiles = amx_takes(x, n_x)};
                for (int l = 0; l < LANES; l++)
                    source.rows[l] =
                        (const uint8_t *)(panel + clamped(r + l, n_rows) * CHUNK_QUADS +
                                          at / LP_QUAD_VALUES + i);
                turn_quad(&source, is_signed, halves, strips + i);
            }
            multiply(strips, n_quads, x, n_x, (first + at) / LP_QUAD_VALUES,
                     is_signed ? ANY_OFFSET : 0, (struct ahead){0}, out + r);
        }
}

// ---- strips of stored rows

LP_INLINE size_t unit_bytes(const struct q8_format *f) {
    return bytes_of(f, unit_values(f));
}

// Bytes of a packed strip: a whole number of units, the last of which may be more than rows have.
LP_INLINE size_t packed_strip_bytes(const struct q8_format *f, int64_t n_in) {
    return (size_t)((n_in + unit_values(f) - 1) / unit_values(f)) * LANES * unit_bytes(f);
}

LP_INLINE void next_unit(const struct q8_format *f, struct source *source) {
    if (source->form == FROM_PACKED) return;
    for (int l = 0; l < LANES; l++) source->rows[l] += unit_bytes(f);
}

// LANES rows from row r of a block at w
LP_INLINE void start_strip(const struct q8_format *f, struct source *source, const uint8_t *w,
                           size_t row_bytes, int r, int n_rows, int64_t n_in) {
    if (source->form == FROM_PACKED) {
        source->packed = w + (size_t)(r / LANES) * packed_strip_bytes(f, n_in);
        return;
    }
    for (int l = 0; l < LANES; l++)
        source->rows[l] = w + (size_t)clamped(r + l, n_rows) * row_bytes;
}

// A unit of LANES rows; the source moves to the next.
LP_INLINE void strip_unit_q8(const struct q8_format *f, struct source *source, struct strip *to) {
    if (f->strip) {
        const struct sink sink = {.strips = to, .kind = f->kind, .tiles = source->tiles};
        f->strip(source, &sink);
    } else {
        struct lp_weight_quad quads[LANES][2];
        for (int l = 0; l < LANES; l++) unpack_unit_q8(f, source->rows[l], quads[l]);
        for (int q = 0; q < f->quads; q++) {
            struct source unpacked = {
                .ahead = source->ahead, .lines = source->lines, .tiles = source->tiles};
            for (int l = 0; l < LANES; l++) unpacked.rows[l] = (const uint8_t *)&quads[l][q];
            turn_quad(&unpacked, f->is_signed, f->halves, to + q);
            source->ahead = unpacked.ahead;
        }
    }
    next_unit(f, source);
}

// The short last units of rows, completed with zero bytes: blocks whose scale is 0.
LP_INLINE void last_unit_q8(const struct q8_format *f, const struct source *source, size_t n_bytes,
                            struct strip *to) {
    uint8_t whole[LANES][256] = {0};
    struct source copies = {
        .form = source->form, .to = source->to, .ahead = source->ahead, .tiles = source->tiles};
    for (int l = 0; l < LANES; l++) copies.rows[l] = memcpy(whole[l], source->rows[l], n_bytes);
    strip_unit_q8(f, &copies, to);
}

#ifndef DIRECT_X // most activation rows whose products are made while columns are decoded: 1, 2 or 8
#if LANES == 16
#define DIRECT_X 8
#else
#define DIRECT_X 1
#endif
#endif

// A piece for a few activation rows: x[t] from the piece's first quad. Only for types with `strip`.
LP_INLINE void direct_piece_q8(const struct q8_format *f, struct source *source,
                               const struct lp_act_quad **x, int nx, int64_t n, vfloat *acc) {
    for (int t = 0; t < nx; t++) acc[t] = V_INT(setzero_ps)();
    for (int64_t at = 0; at < n; at += unit_values(f)) {
        struct strip strips[2];
        vint dots[DIRECT_X][2][8];
        const struct sink sink = {
            .strips = strips, .nx = nx, .x = x, .dots = dots, .kind = f->kind};
        const uint8_t *end = source->ahead.at + LANES * unit_bytes(f);
        if (source->form == FROM_PACKED || n - at >= unit_values(f)) {
            f->strip(source, &sink);
            next_unit(f, source);
        } else { // as in last_unit_q8
            uint8_t whole[LANES][256] = {0};
            struct source copies = {.ahead = source->ahead};
            for (int l = 0; l < LANES; l++)
                copies.rows[l] = memcpy(whole[l], source->rows[l], bytes_of(f, n - at));
            f->strip(&copies, &sink);
        }
        while (source->ahead.at < end) fetch_line(&source->ahead);
        jump_to_next(&source->ahead);
        for (int t = 0; t < nx; t++) {
            for (int q = 0; q < f->quads; q++)
                acc[t] = add_quad(acc[t], dots[t][q], strips + q, x[t] + q, f->kind, f->halves,
                                  f->offset);
            x[t] += f->quads;
        }
    }
}

// nx: a constant, at least n_x; the rows that are not there are copies of the last.
LP_INLINE void direct_q8(const struct q8_format *f, enum source_form form, const uint8_t *w,
                         size_t row_bytes, int n_rows, const void *const *x, int n_x, int nx,
                         int64_t n_in, const uint8_t *next, float *out) {
    struct source source = {
        .form = form, .ahead = {.at = next ? next : w}, .lines = LANES / 4}; // all that is read
    if (form == FROM_PACKED && f->quads == 1)
        source.ahead = ahead_within(w, LP_MAT_ROWS / LANES * packed_strip_bytes(f, n_in), next);
    for (int r = 0; r < n_rows; r += LANES) {
        const struct lp_act_quad *quads[DIRECT_X];
        for (int t = 0; t < nx; t++) quads[t] = x[t < n_x ? t : n_x - 1];
        start_strip(f, &source, w, row_bytes, r, n_rows, n_in);
        for (int64_t first = 0; first < n_in; first += LP_Q8_PIECE) {
            vfloat acc[DIRECT_X];
            int64_t n = n_in - first < LP_Q8_PIECE ? n_in - first : LP_Q8_PIECE;
            direct_piece_q8(f, &source, quads, nx, n, acc);
            for (int t = 0; t < nx; t++)
                if (t < n_x) store_sums(out + t * LP_MAT_ROWS + r, acc[t], first != 0);
        }
    }
}

// How many rows direct_q8 is to be made for, where that is faster than strips; else 0. Strips are
// stored and loaded again, which costs as much as the products of several rows; but sums over strips
// stay in registers, and units of 128 values gain less.
LP_INLINE int direct_rows(const struct q8_format *f, enum source_form form, int n_x) {
    if (!f->strip || n_x > DIRECT_X) return 0;
    if (n_x <= 2) return n_x;
    if (form == FROM_PACKED) return n_x <= 4 ? 4 : 0;
    if (f->quads == 1) return 0;
    return n_x <= 4 ? 4 : n_x >= 7 ? 8 : 0;
}

// The kernel's `block`. While a piece is used, as many bytes of the next block are fetched.
LP_INLINE void block_q8(const struct q8_format *f, enum source_form form, const uint8_t *w,
                        size_t row_bytes, int n_rows, const void *const *x, int n_x, int64_t n_in,
                        const uint8_t *next, float *out) {
    switch (direct_rows(f, form, n_x)) {
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        direct_q8(f, form, w, row_bytes, n_rows, x, n_x, n, n_in, next, out);                      \
        return;
        CASE(1)
#if DIRECT_X > 1
        CASE(2)
#endif
#if DIRECT_X > 2
        CASE(4) CASE(8)
#endif
#undef CASE
    }
    struct source source = {.form = form,
                            .ahead = {.at = next ? next : w},
                            .lines = LANES / 8, // half
                            .tiles = amx_takes(x, n_x)};
    for (int r = 0; r < n_rows; r += LANES) {
        start_strip(f, &source, w, row_bytes, r, n_rows, n_in);
        for (int64_t first = 0; first < n_in; first += LP_Q8_PIECE) {
            struct strip strips[PIECE_QUADS], *to = strips;
            int64_t n = n_in - first < LP_Q8_PIECE ? n_in - first : LP_Q8_PIECE, at = 0;
            const uint8_t *end = source.ahead.at + LANES * bytes_of(f, n);
            const int64_t whole = form == FROM_PACKED ? n : n / unit_values(f) * unit_values(f);
            for (; at < whole; at += unit_values(f), to += f->quads) strip_unit_q8(f, &source, to);
            if (at < n) last_unit_q8(f, &source, bytes_of(f, n - at), to);
            source.ahead.end = end;
            f->products(strips, lp_cpu_quads(n), x, n_x, first / LP_QUAD_VALUES, f->offset,
                        source.ahead, out + r);
            source.ahead.at = end;
        }
    }
}

// The kernel's `pack`: every strip of a block; rows that are not there are copies of the last.
LP_INLINE void pack_q8(const struct q8_format *f, const uint8_t *w, size_t row_bytes, int n_rows,
                       int64_t n_in, uint8_t *to) {
    for (int r = 0; r < LP_MAT_ROWS; r += LANES) {
        struct source source = {.form = TO_PACKED,
                                .to = to + (size_t)(r / LANES) * packed_strip_bytes(f, n_in)};
        struct strip unused[2];
        start_strip(f, &source, w, row_bytes, r, n_rows, n_in);
        int64_t at = 0;
        for (; n_in - at >= unit_values(f); at += unit_values(f)) strip_unit_q8(f, &source, unused);
        if (at < n_in) last_unit_q8(f, &source, bytes_of(f, n_in - at), unused);
    }
}

// The kernel's `dot`.
LP_INLINE void dot_q8(__typeof__(((struct lp_cpu_mat_kernel *)0)->block) block,
                      const struct lp_type_info *type, const uint8_t *w, size_t row_bytes,
                      int64_t n_rows, const void *x, int64_t n_in, float *out) {
    for (int64_t r = 0; r < n_rows; r += LP_MAT_ROWS) {
        float sums[LP_MAT_ROWS];
        int n = n_rows - r < LP_MAT_ROWS ? (int)(n_rows - r) : LP_MAT_ROWS;
        block(type, w + (size_t)r * row_bytes, row_bytes, n, &x, 1, n_in, NULL, sums);
        memcpy(out + r, sums, (size_t)n * sizeof *out);
    }
}

#if defined(LP_Q8_WIDEN) // by the kernels that run where lp_cpu_wide_amx does
#include "backend/cpu/cpu_q8_wide.h"
#define WIDEN(stem) stem##_widen
#define WIDEN_FUNCTION(stem)                                                                       \
    static void stem##_widen(const uint8_t *w, size_t row_bytes, int n_rows, int64_t first,        \
                             int64_t n, size_t ahead, uint16_t *tiles) {                           \
        if (row_bytes)                                                                             \
            widen_q8(&stem, FROM_ROWS, w, row_bytes, n_rows, first, n, ahead, tiles);              \
        else if (stem.strip)                                                                       \
            widen_q8(&stem, FROM_PACKED, w, 0, n_rows, first, n, ahead, tiles);                    \
    }
#else
#define WIDEN(stem) NULL
#define WIDEN_FUNCTION(stem)
#endif

// Makes the kernel lp_cpu_mat_<isa>_<stem> of a static const struct q8_format named stem.
#define LP_Q8_KERNEL(isa, stem)                                                                    \
    WIDEN_FUNCTION(stem)                                                                           \
    static void stem##_block(const struct lp_type_info *type, const uint8_t *w, size_t row_bytes,  \
                             int n_rows, const void *const *x, int n_x, int64_t n_in,              \
                             const uint8_t *next, float *out) {                                    \
        (void)type;                                                                                \
        block_q8(&stem, FROM_ROWS, w, row_bytes, n_rows, x, n_x, n_in, next, out);                 \
    }                                                                                              \
    static void stem##_packed_block(const uint8_t *w, int n_rows, const void *const *x, int n_x,   \
                                    int64_t n_in, const uint8_t *next, float *out) {               \
        if (stem.strip) block_q8(&stem, FROM_PACKED, w, 0, n_rows, x, n_x, n_in, next, out);       \
    }                                                                                              \
    static void stem##_pack(const uint8_t *w, size_t row_bytes, int n_rows, int64_t n_in,          \
                            uint8_t *to) {                                                         \
        if (stem.strip) pack_q8(&stem, w, row_bytes, n_rows, n_in, to);                            \
    }                                                                                              \
    static size_t stem##_packed_bytes(int64_t n_in) {                                              \
        return stem.strip ? LP_MAT_ROWS / LANES * packed_strip_bytes(&stem, n_in) : 0;             \
    }                                                                                              \
    static void stem##_dot(const struct lp_type_info *type, const uint8_t *w, size_t row_bytes,    \
                           int64_t n_rows, const void *x, int64_t n_in, float *out) {              \
        dot_q8(stem##_block, type, w, row_bytes, n_rows, x, n_in, out);                            \
    }                                                                                              \
    static void stem##_unpack(const struct lp_type_info *type, const uint8_t *row, int64_t first,  \
                              int64_t n, void *panel_row) {                                        \
        (void)type;                                                                                \
        unpack_q8(&stem, row, first, n, panel_row);                                                \
    }                                                                                              \
    static void stem##_tile(const void *panel, int n_rows, const void *const *x, int n_x,          \
                            int64_t first, int64_t n, float *out) {                                \
        tile_q8(panel, n_rows, x, n_x, first, n, stem.is_signed, stem.halves,                      \
                turned_products(&stem), out);                                                      \
    }                                                                                              \
    static void stem##_expand(const struct lp_weight_quad *quads, int64_t n, float *out) {         \
        expand_q8(quads, n, stem.is_signed, out);                                                  \
    }                                                                                              \
    const struct lp_cpu_mat_kernel lp_cpu_mat_##isa##_##stem = {                                   \
        .name = #isa "_" #stem,                                                                    \
        .act = LP_CPU_ACT_Q8,                                                                      \
        .block = stem##_block,                                                                     \
        .packed_bytes = stem##_packed_bytes,                                                       \
        .pack = stem##_pack,                                                                       \
        .packed_block = stem##_packed_block,                                                       \
        .widen = WIDEN(stem),                                                                      \
        .dot = stem##_dot,                                                                         \
        .unpack = stem##_unpack,                                                                   \
        .tile = stem##_tile,                                                                       \
        .expand = stem##_expand,                                                                   \
        .axpy = LP_CPU_AXPY_256,                                                                   \
    };

#endif
