// The 8-bit kernels' products. Weights are met in strips: as many rows as a vector has 32-bit lanes
// (LANES: 16 with AVX-512 VNNI, 8 with AVX2 and NEON), a row a lane, four of its values in each lane's
// bytes. So an instruction multiplies LANES rows by four activations that are the same for all of
// them (a broadcast), no sum ever crosses lanes, and a strip once decoded serves any number of
// tokens.
//
// Per (weight row, activation row), whatever the call's other rows, the vector's width or the way
// the strip was decoded (rule B2), in float32:
//
//     one scale a group:            acc = acc + dot * (scale * d)
//     a scale for each half of it:  acc = acc + (dot0 * scale0 + dot1 * scale1) * d
//     one scale and min a group:    acc = acc + (scale * dot - min * sum) * d
//     both for each half of it:     acc = acc + (dot0 * scale0 + dot1 * scale1
//                                                - min0 * sum0 - min1 * sum1) * d
//
// group after group, from the left, every sum fused with its product. dot is the integer product of
// the weights' bytes and the activations, d the activations' scale, sum their sum. Bytes that are
// kept raised (w = byte - offset) give dot + offset * sum, from which dot is had exactly. acc starts
// anew with each piece of LP_Q8_PIECE values: y = acc of piece 0 + acc of
// piece 1 + ...
#ifndef LP_BACKEND_CPU_CPU_Q8_STRIP_H
#define LP_BACKEND_CPU_CPU_Q8_STRIP_H

#include <stddef.h>
#include <string.h>

#include "backend/cpu/cpu_matmul.h"
#include "backend/cpu/cpu_vec256.h"

#define LP_INLINE static inline __attribute__((always_inline))
// Before a loop whose counter must become a constant: of shifts, of permutations, of places in arrays
// that are to be registers.
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define LP_Q8_PIECE 512 // values of a piece: a strip of them stays in the L1 cache
#define PIECE_QUADS (LP_Q8_PIECE / LP_QUAD_VALUES)

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

// Eight u16, at p[i] + at
LP_INLINE __m128i eight_u16(const uint8_t *const *p, size_t at) {
    uint16_t v[8];
    for (int i = 0; i < 8; i++) memcpy(&v[i], p[i] + at, sizeof v[i]);
    return _mm_setr_epi16((short)v[0], (short)v[1], (short)v[2], (short)v[3], (short)v[4],
                          (short)v[5], (short)v[6], (short)v[7]);
}

// ---- the vectors of either width

#if defined(__AVX512VNNI__) && defined(__AVX512VL__)

#define LANES 16
typedef __m512i vint;
typedef __m512 vfloat;

#define V_INT(op) _mm512_##op
#define V_SI(op) _mm512_##op##_si512
#define V_AS_FLOAT _mm512_castsi512_ps

LP_INLINE vint load_16_of(const uint8_t *const *rows, size_t at) { // of rows 0, 4, 8, 12
    vint v = _mm512_castsi128_si512(load_16(rows[0] + at));
    v = _mm512_inserti32x4(v, load_16(rows[4] + at), 1);
    v = _mm512_inserti32x4(v, load_16(rows[8] + at), 2);
    return _mm512_inserti32x4(v, load_16(rows[12] + at), 3);
}
LP_INLINE vfloat load_f16_of(const uint8_t *const *rows, size_t at) {
    return _mm512_cvtph_ps(_mm256_set_m128i(eight_u16(rows + 8, at), eight_u16(rows, at)));
}
LP_INLINE vfloat load_f16(const void *p) {
    return _mm512_cvtph_ps(load_32(p));
}
// The f16 in the low and in the high half of each lane
LP_INLINE vfloat low_f16(vint v) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}
LP_INLINE vint byte_table(__m128i table) {
    return _mm512_broadcast_i32x4(table);
}

#else

#define LANES 8
typedef __m256i vint;
typedef __m256 vfloat;

#define V_INT(op) _mm256_##op
#define V_SI(op) _mm256_##op##_si256
#define V_AS_FLOAT _mm256_castsi256_ps

LP_INLINE vint load_16_of(const uint8_t *const *rows, size_t at) { // of rows 0, 4
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(rows[0] + at)),
                                   load_16(rows[4] + at), 1);
}
LP_INLINE vfloat load_f16_of(const uint8_t *const *rows, size_t at) {
    return _mm256_cvtph_ps(eight_u16(rows, at));
}
LP_INLINE vfloat load_f16(const void *p) {
    return _mm256_cvtph_ps(load_16(p));
}
LP_INLINE vfloat low_f16(vint v) {
    v = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    v = _mm256_packus_epi32(v, v);
    return _mm256_cvtph_ps(
        _mm_unpacklo_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}
LP_INLINE vint byte_table(__m128i table) {
    return _mm256_broadcastsi128_si256(table);
}

#endif

LP_INLINE vfloat high_f16(vint v) {
    return low_f16(V_INT(srli_epi32)(v, 16));
}
LP_INLINE vint v_and(vint a, vint b) {
    return V_SI(and)(a, b);
}
LP_INLINE vint v_or(vint a, vint b) {
    return V_SI(or)(a, b);
}
LP_INLINE vint every_byte(int b) {
    return V_INT(set1_epi8)((char)b);
}
// Bits shifted within 16-bit lanes, then masked byte by byte
LP_INLINE vint shift_right(vint v, int n, int mask) {
    return v_and(n ? V_INT(srli_epi16)(v, n) : v, every_byte(mask));
}
LP_INLINE vint shift_left(vint v, int n, int mask) {
    return v_and(n ? V_INT(slli_epi16)(v, n) : v, every_byte(mask));
}

// What will be needed later and is fetched into the cache meanwhile, line by line all along the
// work, so that memory is never idle and no line waits for a place in the queue. (The hardware's
// own prefetch starts anew with each row, which for rows of a few KiB is most of the time.)
struct ahead {
    const uint8_t *at, *end;
    const uint8_t *next; // where to go on from `end`; NULL: nowhere
};

LP_INLINE void fetch_line(struct ahead *ahead) {
    _mm_prefetch((const char *)ahead->at, _MM_HINT_T1);
    ahead->at += 64;
}

// The same at a fixed distance, then on with `next`: for types that are decoded faster than memory
// delivers. (Of Q8_0 a thread reads 30 GB/s so, 21 a whole block ahead; of the K types it is the other
// way round.)
#define FETCH_DISTANCE 1024

LP_INLINE struct ahead ahead_within(const uint8_t *w, size_t block_bytes, const uint8_t *next) {
    const size_t distance = block_bytes < FETCH_DISTANCE ? block_bytes : FETCH_DISTANCE;
    return (struct ahead){w + distance, w + block_bytes, next};
}

LP_INLINE void jump_to_next(struct ahead *ahead) {
    if (!ahead->next || ahead->at < ahead->end) return;
    ahead->at = ahead->next + (ahead->at - ahead->end);
    ahead->next = NULL;
}

// Where a strip's columns come from. Packed, a strip is one run of bytes: what is read of LANES rows,
// column by column, in the order in which the type's function reads it. It is as long as the rows,
// and nothing needs to be turned.
enum source_form {
    FROM_ROWS, // as the file has them
    FROM_PACKED,
    TO_PACKED, // from rows, and written down packed
};

// The places of LANES rows that become a strip.
struct source {
    enum source_form form;
    const uint8_t *rows[LANES];
    const uint8_t *packed; // the next column
    uint8_t *to;           // the place of the next column
    struct ahead ahead;
    int lines;  // to fetch for every 16 bytes read of each row
    bool tiles; // strips are made for the tiles of AMX, which take no raised bytes
};

LP_INLINE vint load_column(const void *p) {
    vint v;
    memcpy(&v, p, sizeof v);
    return v;
}

LP_INLINE void read_packed(struct source *s, int n, vint *out) {
    for (int k = 0; k < n; k++) out[k] = load_column(s->packed + (size_t)k * sizeof *out);
    s->packed += (size_t)n * sizeof *out;
}

LP_INLINE void write_packed(struct source *s, const void *columns, size_t n_bytes) {
    memcpy(s->to, columns, n_bytes);
    s->to += n_bytes;
}

LP_INLINE void turn_columns(const struct source *s, size_t at, vint *out) {
    vint a = load_16_of(s->rows, at), b = load_16_of(s->rows + 1, at),
         c = load_16_of(s->rows + 2, at), d = load_16_of(s->rows + 3, at);
    vint ab = V_INT(unpacklo_epi32)(a, b), cd = V_INT(unpacklo_epi32)(c, d);
    out[0] = V_INT(unpacklo_epi64)(ab, cd);
    out[1] = V_INT(unpackhi_epi64)(ab, cd);
    ab = V_INT(unpackhi_epi32)(a, b), cd = V_INT(unpackhi_epi32)(c, d);
    out[2] = V_INT(unpacklo_epi64)(ab, cd);
    out[3] = V_INT(unpackhi_epi64)(ab, cd);
}

// 16 bytes of each row, from `at`, as four columns: lane i of out[k] holds bytes 4k .. 4k + 3 of
// row i.
LP_INLINE void columns(struct source *s, size_t at, vint *out) {
    for (int i = 0; i < s->lines; i++) fetch_line(&s->ahead);
    if (s->form == FROM_PACKED) {
        read_packed(s, 4, out);
        return;
    }
    turn_columns(s, at, out);
    if (s->form == TO_PACKED) write_packed(s, out, 4 * sizeof *out);
}

// Columns first .. first + n - 1 of the four from `at`, where the others belong to something else.
LP_INLINE void some_columns(struct source *s, size_t at, int first, int n, vint *out) {
    if (s->form == FROM_PACKED) {
        read_packed(s, n, out);
        return;
    }
    vint four[4];
    turn_columns(s, at, four);
    for (int k = 0; k < n; k++) out[k] = four[first + k];
    if (s->form == TO_PACKED) write_packed(s, out, (size_t)n * sizeof *out);
}

// Bytes at .. at + 3 of each row, where fewer than 16 may be read
LP_INLINE vint dword_column(struct source *s, size_t at) {
    vint out;
    if (s->form == FROM_PACKED) {
        read_packed(s, 1, &out);
        return out;
    }
    uint32_t v[LANES];
    for (int i = 0; i < LANES; i++) v[i] = load_u32(s->rows[i] + at);
    memcpy(&out, v, sizeof out);
    if (s->form == TO_PACKED) write_packed(s, &out, sizeof out);
    return out;
}

LP_INLINE vfloat f16_column(struct source *s, size_t at) {
    uint16_t v[LANES];
    if (s->form == FROM_PACKED) {
        s->packed += sizeof v;
        return load_f16(s->packed - sizeof v);
    }
    if (s->form == TO_PACKED) {
        for (int i = 0; i < LANES; i++) memcpy(&v[i], s->rows[i] + at, sizeof v[i]);
        write_packed(s, v, sizeof v);
    }
    return load_f16_of(s->rows, at);
}

// The same where 14 bytes before `at` may be read too.
LP_INLINE vfloat last_f16_column(struct source *s, size_t at) {
    if (s->form != FROM_ROWS) return f16_column(s, at);
    vint end[4];
    turn_columns(s, at - 14, end);
    return high_f16(end[3]);
}

// A byte of each row: out[i] of row i
LP_INLINE void byte_column(struct source *s, size_t at, uint8_t *out) {
    if (s->form == FROM_PACKED) {
        memcpy(out, s->packed, LANES);
        s->packed += LANES;
        return;
    }
    for (int i = 0; i < LANES; i++) out[i] = s->rows[i][at];
    if (s->form == TO_PACKED) write_packed(s, out, LANES);
}

// Four columns of nibbles to the eight of a group whose first half is in the low nibbles
LP_INLINE void split_nibbles(vint *q) {
    for (int k = 0; k < 4; k++) {
        q[4 + k] = shift_right(q[k], 4, 15);
        q[k] = shift_right(q[k], 0, 15);
    }
}

// The same, through a table
LP_INLINE void look_up_nibbles(vint *q, vint table) {
    split_nibbles(q);
    for (int k = 0; k < 8; k++) q[k] = V_INT(shuffle_epi8)(table, q[k]);
}

// Byte n of each lane, as a number
LP_INLINE vfloat unsigned_byte(vint v, int n) {
    return V_INT(cvtepi32_ps)(v_and(V_INT(srli_epi32)(v, 8 * n), V_INT(set1_epi32)(0xff)));
}
LP_INLINE vfloat signed_byte(vint v, int n) {
    return V_INT(cvtepi32_ps)(V_INT(srai_epi32)(V_INT(slli_epi32)(v, 24 - 8 * n), 24));
}

// ---- a strip

// One quad of LANES rows. Scale and min of the first 16 values of group g are those numbered g, of
// the second 16 those numbered g + 4; types with one scale or min for both leave the latter unset.
// Mins of halves are divided by 128 (lp_act_quad.half).
struct strip {
    vint q[LP_QUAD_VALUES / 4]; // q[k]: values 4k .. 4k + 3
    vfloat scale[8], min[8];
};

// How the bytes of a strip are to be read.
enum strip_kind {
    STRIP_MIN,    // 0..31, types with a min
    STRIP_OFFSET, // 0..63, w = q - offset; with VNNI 0..255 and the offset is 128 for all types
    STRIP_SIGNED, // -128..127; not with VNNI
};

// Signed bytes as either set of instructions wants them: VNNI moves them up to 0..255, which the
// pair sums of AVX2 could not hold.
#if LANES == 16
#define ANY_OFFSET 128
#define ANY_FLIP 0x80
#else
#define ANY_OFFSET 0
#define ANY_FLIP 0
#endif

LP_INLINE vint any_bytes(vint v) {
    return ANY_FLIP ? V_SI(xor)(v, every_byte(ANY_FLIP)) : v;
}
// Bytes w + offset as STRIP_OFFSET wants them
LP_INLINE vint offset_bytes(vint v, int offset) {
    return LANES == 16 ? V_INT(add_epi8)(v, every_byte(128 - offset)) : v;
}

// Where a unit's columns go as they are decoded. For many activation rows: into strips, to be used
// again and again. For a few: nowhere, they are multiplied at once.
struct sink {
    struct strip *strips;               // the unit's quads; scales and mins go there in any case
    int nx;                             // activation rows to multiply at once, or 0
    const struct lp_act_quad *const *x; // [nx] their quads of the unit
    vint (*dots)[2][8]; // [nx] products: of quad and half group, numbered as the scales are
    enum strip_kind kind;
    bool tiles; // the strips are for the tiles of AMX
};

// dots: dot[t] = the integer products of n columns with 4 n activations of each of nx rows.
// group_dots: the products, less the offset, of group g, or with `halves` of its half h, as floats.
#if LANES == 16

#define MAX_TILE 8 // activation rows of a product: as the registers allow

// The sums start at what the offset of the bytes adds too much, so that its removal costs nothing.
LP_INLINE void group_dots(const struct strip *strip, const struct lp_act_quad *const *x, int nx,
                          int g, int h, bool halves, enum strip_kind kind, float offset,
                          vfloat *out) {
    (void)offset;
    const vint *q = strip->q + 8 * g + 4 * h;
    const int n = halves ? 4 : 8;
    const int chains = nx <= 2 ? 2 : 1; // few rows wait for each other's sums
    vint sum[2][MAX_TILE];
    for (int t = 0; t < nx; t++) {
        const bool raised = kind == STRIP_OFFSET;
        sum[0][t] = raised ? _mm512_set1_epi32(x[t]->half[g + 4 * h]) : _mm512_setzero_si512();
        sum[1][t] =
            raised && !halves ? _mm512_set1_epi32(x[t]->half[g + 4]) : _mm512_setzero_si512();
    }
    for (int k = 0; k < n; k++)
        for (int t = 0; t < nx; t++) {
            vint *to = &sum[k % chains][t];
            vint xv = _mm512_set1_epi32((int)load_u32(x[t]->q + 32 * g + 16 * h + 4 * k));
            *to = _mm512_dpbusd_epi32(*to, q[k], xv);
        }
    for (int t = 0; t < nx; t++)
        out[t] = _mm512_cvtepi32_ps(chains == 2 || (kind == STRIP_OFFSET && !halves)
                                        ? _mm512_add_epi32(sum[0][t], sum[1][t])
                                        : sum[0][t]);
}

#elif defined(__aarch64__)

#define MAX_TILE 4

#if defined(__ARM_FEATURE_MATMUL_INT8)

// An instruction multiplies eight values of two rows with those of two activation rows. Two columns
// side by side are eight values of each of four rows.
LP_INLINE void dots(const vint *q, int n, const int8_t *const *x, int nx, enum strip_kind kind,
                    vint *dot) {
    (void)kind;
    int32x4_t sum[MAX_TILE / 2][4]; // of rows 2i and 2i + 1: a pair of tokens for each
    for (int p = 0; p < (nx + 1) / 2; p++)
        for (int i = 0; i < 4; i++) sum[p][i] = vdupq_n_s32(0);
    for (int k = 0; k < n; k += 2) {
        const vint low = V_INT(unpacklo_epi32)(q[k], q[k + 1]),
                   high = V_INT(unpackhi_epi32)(q[k], q[k + 1]);
        const int8x16_t w[4] = {(int8x16_t)low.lo, (int8x16_t)high.lo, (int8x16_t)low.hi,
                                (int8x16_t)high.hi};
        for (int p = 0; p < (nx + 1) / 2; p++) {
            int second = 2 * p + 1 < nx ? 2 * p + 1 : 2 * p;
            int8x16_t xv = vcombine_s8(vld1_s8(x[2 * p] + 4 * k), vld1_s8(x[second] + 4 * k));
            for (int i = 0; i < 4; i++) sum[p][i] = vmmlaq_s32(sum[p][i], w[i], xv);
        }
    }
    for (int t = 0; t < nx; t++) {
        const int32x4_t *s = sum[t / 2];
        dot[t].lo = (__m128i)(t % 2 ? vuzp2q_s32(s[0], s[1]) : vuzp1q_s32(s[0], s[1]));
        dot[t].hi = (__m128i)(t % 2 ? vuzp2q_s32(s[2], s[3]) : vuzp1q_s32(s[2], s[3]));
    }
}

#elif defined(__ARM_FEATURE_DOTPROD)

LP_INLINE void dots(const vint *q, int n, const int8_t *const *x, int nx, enum strip_kind kind,
                    vint *dot) {
    (void)kind;
    for (int t = 0; t < nx; t++) {
        int32x4_t low = vdupq_n_s32(0), high = low;
        for (int k = 0; k < n; k += 4) {
            const int8x16_t xv = vld1q_s8(x[t] + 4 * k);
#define STEP(i)                                                                                    \
    low = vdotq_laneq_s32(low, (int8x16_t)q[k + (i)].lo, xv, i);                                   \
    high = vdotq_laneq_s32(high, (int8x16_t)q[k + (i)].hi, xv, i);
            STEP(0) STEP(1) STEP(2) STEP(3)
#undef STEP
        }
        dot[t] = (vint){(__m128i)low, (__m128i)high};
    }
}

#else

// Four products of each row, summed: two of them fit in 16 bits.
LP_INLINE int32x4_t add_products(int32x4_t sum, __m128i w, int8x16_t x) {
    int16x8_t low = vmull_s8((int8x8_t)vget_low_u8(w), vget_low_s8(x));
    int16x8_t high = vmull_high_s8((int8x16_t)w, x);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}

LP_INLINE void dots(const vint *q, int n, const int8_t *const *x, int nx, enum strip_kind kind,
                    vint *dot) {
    (void)kind;
    for (int t = 0; t < nx; t++) {
        int32x4_t low = vdupq_n_s32(0), high = low;
        for (int k = 0; k < n; k++) {
            const int8x16_t xv = (int8x16_t)vdupq_n_u32(load_u32(x[t] + 4 * k));
            low = add_products(low, q[k].lo, xv);
            high = add_products(high, q[k].hi, xv);
        }
        dot[t] = (vint){(__m128i)low, (__m128i)high};
    }
}

#endif

#else

#define MAX_TILE 4

// Pairs are summed in 16 bits as long as they fit: 31 * 127 * 2 * 4 and 63 * 127 * 2 * 2 do, and
// 128 * 127 * 2.
LP_INLINE void dots(const vint *q, int n, const int8_t *const *x, int nx, enum strip_kind kind,
                    vint *dot) {
    const int run = kind == STRIP_MIN ? 4 : kind == STRIP_OFFSET ? 2 : 1;
    for (int k = 0; k < n; k += run)
        for (int t = 0; t < nx; t++) {
            __m256i pairs = _mm256_setzero_si256();
            for (int i = k; i < k + run; i++) {
                __m256i xv = _mm256_set1_epi32((int)load_u32(x[t] + 4 * i)), w = q[i];
                __m256i p = kind == STRIP_SIGNED
                                ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(xv, w))
                                : _mm256_maddubs_epi16(w, xv);
                pairs = i == k ? p : _mm256_add_epi16(pairs, p);
            }
            __m256i sum = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            dot[t] = k == 0 ? sum : _mm256_add_epi32(dot[t], sum);
        }
}

#endif

// The integer products of half h of group g with one row; raised bytes of VNNI lose their offset.
LP_INLINE vint half_dot(const vint *q, const struct lp_act_quad *x, int g, int h,
                        enum strip_kind kind) {
#if LANES == 16
    vint dot =
        kind == STRIP_OFFSET ? _mm512_set1_epi32(x->half[g + 4 * h]) : _mm512_setzero_si512();
    for (int k = 0; k < 4; k++) {
        vint xv = _mm512_set1_epi32((int)load_u32(x->q + 32 * g + 16 * h + 4 * k));
        dot = _mm512_dpbusd_epi32(dot, q[k], xv);
    }
    return dot;
#else
    const int8_t *values = x->q + 32 * g + 16 * h;
    vint dot;
    dots(q, 4, &values, 1, kind, &dot);
    return dot;
#endif
}

// Half h of group g of a quad: four columns.
LP_INLINE void put(const struct sink *to, int quad, int g, int h, const vint *q) {
    for (int t = 0; t < to->nx; t++)
        to->dots[t][quad][g + 4 * h] = half_dot(q, to->x[t] + quad, g, h, to->kind);
    const bool lower = to->tiles && to->kind == STRIP_OFFSET;
    if (to->nx == 0)
        for (int k = 0; k < 4; k++)
            to->strips[quad].q[8 * g + 4 * h + k] =
                lower ? V_SI(xor)(q[k], every_byte(0x80)) : q[k];
}

LP_INLINE vfloat half_sum(const struct lp_act_quad *x, int i) {
    return V_INT(cvtepi32_ps)(V_INT(set1_epi32)(x->half[i]));
}

// A dot as a float, less the offset where the integers still have it.
LP_INLINE vfloat to_float(vint dot, const struct lp_act_quad *x, int g, int h, bool halves,
                          enum strip_kind kind, float offset) {
    vfloat v = V_INT(cvtepi32_ps)(dot);
    if (LANES == 16 || kind != STRIP_OFFSET) return v;
    return halves ? V_INT(fmadd_ps)(V_INT(set1_ps)(offset / 128), half_sum(x, g + 4 * h), v)
                  : V_INT(fnmadd_ps)(V_INT(set1_ps)(offset), V_INT(set1_ps)(x->sum[g]), v);
}

#if LANES == 8
LP_INLINE void group_dots(const struct strip *strip, const struct lp_act_quad *const *x, int nx,
                          int g, int h, bool halves, enum strip_kind kind, float offset,
                          vfloat *out) {
    const int8_t *q[MAX_TILE];
    vint dot[MAX_TILE];
    for (int t = 0; t < nx; t++) q[t] = x[t]->q + 32 * g + 16 * h;
    dots(strip->q + 8 * g + 4 * h, halves ? 4 : 8, q, nx, kind, dot);
    for (int t = 0; t < nx; t++) out[t] = to_float(dot[t], x[t], g, h, halves, kind, offset);
}
#endif

// acc with one activation row's group g. dot: of the group, with `halves` of its first and second
// half.
LP_INLINE vfloat add_group(vfloat acc, vfloat dot, vfloat second, const struct strip *s,
                           const struct lp_act_quad *x, int g, enum strip_kind kind, bool halves) {
    const vfloat d = V_INT(set1_ps)(x->d[g]), *scale = s->scale + g, *min = s->min + g;
    if (kind != STRIP_MIN && !halves) return V_INT(fmadd_ps)(dot, V_INT(mul_ps)(scale[0], d), acc);
    vfloat v = V_INT(mul_ps)(dot, scale[0]);
    if (halves) v = V_INT(fmadd_ps)(second, scale[4], v);
    if (kind == STRIP_MIN && halves) {
        v = V_INT(fmadd_ps)(min[0], half_sum(x, g), v);
        v = V_INT(fmadd_ps)(min[4], half_sum(x, g + 4), v);
    } else if (kind == STRIP_MIN)
        v = V_INT(fnmadd_ps)(min[0], V_INT(set1_ps)(x->sum[g]), v);
    return V_INT(fmadd_ps)(v, d, acc);
}

// A quad whose integer products with one row are known.
LP_INLINE vfloat add_quad(vfloat acc, const vint *dots, const struct strip *s,
                          const struct lp_act_quad *x, enum strip_kind kind, bool halves,
                          float offset) {
    for (int g = 0; g < 4; g++) {
        vint first = halves ? dots[g] : V_INT(add_epi32)(dots[g], dots[g + 4]);
        vfloat dot = to_float(first, x, g, 0, halves, kind, offset), second = dot;
        if (halves) second = to_float(dots[g + 4], x, g, 1, true, kind, offset);
        acc = add_group(acc, dot, second, s, x, g, kind, halves);
    }
    return acc;
}

LP_INLINE void store_sums(float *y, vfloat acc, bool add) {
    V_INT(storeu_ps)(y, add ? V_INT(add_ps)(V_INT(loadu_ps)(y), acc) : acc);
}

// One piece of a strip with nx activation rows: stored to, or added to, out[t * LP_MAT_ROWS].
LP_INLINE void product(const struct strip *strip, int64_t n_quads,
                       const struct lp_act_quad *const *x, int nx, enum strip_kind kind,
                       bool halves, float offset, struct ahead *ahead, int64_t lines, bool add,
                       float *out) {
    vfloat acc[MAX_TILE];
    for (int t = 0; t < nx; t++) acc[t] = V_INT(setzero_ps)();
    for (int64_t i = 0; i < n_quads; i++) {
        const struct lp_act_quad *quads[MAX_TILE];
        for (int t = 0; t < nx; t++) quads[t] = x[t] + i;
        for (int g = 0; g < 4; g++) {
            for (int64_t line = 0; line < lines && ahead->at < ahead->end; line++)
                fetch_line(ahead);
            vfloat dot[MAX_TILE], second[MAX_TILE];
            group_dots(strip + i, quads, nx, g, 0, halves, kind, offset, dot);
            if (halves) group_dots(strip + i, quads, nx, g, 1, true, kind, offset, second);
            for (int t = 0; t < nx; t++)
                acc[t] = add_group(acc[t], dot[t], halves ? second[t] : dot[t], strip + i, quads[t],
                                   g, kind, halves);
        }
    }
    for (int t = 0; t < nx; t++) store_sums(out + t * LP_MAT_ROWS, acc[t], add);
}

#include "backend/cpu/cpu_q8_amx.h"

#if !defined(LP_AMX_TILES)
LP_INLINE bool amx_takes(const void *const *x, int n_x) {
    (void)x, (void)n_x;
    return false;
}
#endif

// All n_x activation rows, MAX_TILE at a time; x[t] begins at quad 0 of the row, the piece at
// first_quad.
LP_INLINE void products(const struct strip *strip, int64_t n_quads, const void *const *x, int n_x,
                        int64_t first_quad, enum strip_kind kind, bool halves, float offset,
                        struct ahead ahead, float *out) {
#if defined(LP_AMX_TILES)
    if (amx_takes(x, n_x)) {
        amx_products(strip, n_quads, x, n_x, first_quad, kind, halves, ahead, out);
        return;
    }
#endif
    const int64_t n_groups = (n_x + MAX_TILE - 1) / MAX_TILE * n_quads * 4;
    const int64_t lines = ((ahead.end - ahead.at) / 64 + n_groups) / n_groups; // a group
    for (int t = 0; t < n_x; t += MAX_TILE, out += MAX_TILE * LP_MAT_ROWS) {
        const struct lp_act_quad *rows[MAX_TILE];
        int nx = n_x - t < MAX_TILE ? n_x - t : MAX_TILE;
        for (int i = 0; i < nx; i++) rows[i] = (const struct lp_act_quad *)x[t + i] + first_quad;
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if ((n) <= MAX_TILE)                                                                       \
            product(strip, n_quads, rows, (n) <= MAX_TILE ? (n) : 1, kind, halves, offset, &ahead, \
                    lines, first_quad != 0, out);                                                  \
        break;
        switch (nx) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) }
#undef CASE
    }
}

// The products of one kind, shared by the types of a file.
typedef void products_fn(const struct strip *strip, int64_t n_quads, const void *const *x, int n_x,
                         int64_t first_quad, float offset, struct ahead ahead, float *out);
#define PRODUCTS(name, kind, halves)                                                               \
    __attribute__((noinline, unused)) static void products_##name(                                 \
        const struct strip *strip, int64_t n_quads, const void *const *x, int n_x,                 \
        int64_t first_quad, float offset, struct ahead ahead, float *out) {                        \
        products(strip, n_quads, x, n_x, first_quad, kind, halves, offset, ahead, out);            \
    }
PRODUCTS(min, STRIP_MIN, false)
PRODUCTS(min_halves, STRIP_MIN, true)
PRODUCTS(offset, STRIP_OFFSET, false)
PRODUCTS(offset_halves, STRIP_OFFSET, true)
#if LANES == 16 // bytes of all signed types are raised by 128
#define products_any products_offset
#define products_any_halves products_offset_halves
#define KIND_any STRIP_OFFSET
#else
PRODUCTS(any, STRIP_SIGNED, false)
PRODUCTS(any_halves, STRIP_SIGNED, true)
#define KIND_any STRIP_SIGNED
#endif
#define KIND_any_halves KIND_any
#define KIND_min STRIP_MIN
#define KIND_min_halves STRIP_MIN
#define KIND_offset STRIP_OFFSET
#define KIND_offset_halves STRIP_OFFSET
#undef PRODUCTS

#endif
