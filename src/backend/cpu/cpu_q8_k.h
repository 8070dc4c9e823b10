// Unpacking for the 8-bit kernels: types with blocks of 256 values. A unit is one block, two quads.
#ifndef LP_BACKEND_CPU_CPU_Q8_K_H
#define LP_BACKEND_CPU_CPU_Q8_K_H

#include "backend/cpu/cpu_q8_avx2.h"
#include "quant/codebooks.h"

// Four unsigned bytes of a word, times factor, twice
LP_INLINE __m256 four_bytes(uint32_t bytes, float factor) {
    __m128 v = _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128((int)bytes)));
    return twice(_mm_mul_ps(v, _mm_set1_ps(factor)));
}

// Eight signed bytes a0 b0 a1 b1 ..., times factor, as lanes a0 a1 a2 a3 b0 b1 b2 b3
LP_INLINE __m256 eight_halves(__m128i bytes, float factor) {
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i v = _mm256_cvtepi8_epi32(_mm_shuffle_epi8(bytes, order));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(v), _mm256_set1_ps(factor));
}

// Two bits of every byte, at bits 2 group
LP_INLINE __m256i two_bits(__m256i qs, int group) {
    return _mm256_and_si256(_mm256_srli_epi16(qs, 2 * group), _mm256_set1_epi8(3));
}

LP_INLINE __m256i one_nibble(const uint8_t *qs, bool high) {
    __m256i b = load_32(qs);
    return _mm256_and_si256(high ? _mm256_srli_epi16(b, 4) : b, _mm256_set1_epi8(15));
}

// ---- Q2_K: quad = half of 128; scale and min nibbles per 16 values

SCALES(q2_k) {
    const struct lp_block_q2_k *b = unit;
    __m128i s = _mm_loadl_epi64((const __m128i *)(b->scales + 8 * quad)), low = _mm_set1_epi8(15);
    *scale = eight_halves(_mm_and_si128(s, low), f16_at((const uint8_t *)b + 80));
    *min = eight_halves(_mm_and_si128(_mm_srli_epi16(s, 4), low), f16_at((const uint8_t *)b + 82));
}
BYTES(q2_k) {
    return two_bits(load_32(((const struct lp_block_q2_k *)unit)->qs + 32 * quad), group);
}

STRIP(q2_k) {
    vint s[4], end, raw[4];
    columns(rows, 0, s);
    some_columns(rows, sizeof(struct lp_block_q2_k) - 16, 3, 1, &end); // d and dmin
    vfloat d = low_f16(end), dmin = V_INT(mul_ps)(high_f16(end), V_INT(set1_ps)(1.0f / 128));
    for (int i = 0; i < 16; i++) { // two a group
        const int at = i / 2 % 4 + 4 * (i % 2);
        vint low = shift_right(s[i / 4], 0, 15), high = shift_right(s[i / 4], 4, 15);
        to->strips[i / 8].scale[at] = V_INT(mul_ps)(unsigned_byte(low, i % 4), d);
        to->strips[i / 8].min[at] = V_INT(mul_ps)(unsigned_byte(high, i % 4), dmin);
    }
    for (int i = 0; i < 4; i++) { // 16 values of each group of a quad
        columns(rows, offsetof(struct lp_block_q2_k, qs) + 16 * (size_t)i, raw);
        for (int g = 0; g < 4; g++) {
            vint q[4];
            for (int k = 0; k < 4; k++) q[k] = shift_right(raw[k], 2 * g, 3);
            put(to, i / 2, g, i % 2, q);
        }
    }
}

// ---- Q3_K

SCALES(q3_k) {
    (void)min;
    const struct lp_block_q3_k *b = unit;
    // Scales 8 quad .. 8 quad + 7: four bits of the first eight bytes, two of the last four.
    __m128i low = _mm_loadl_epi64((const __m128i *)b->scales);
    low = _mm_and_si128(quad ? _mm_srli_epi16(low, 4) : low, _mm_set1_epi8(15));
    uint32_t up = load_u32(b->scales + 8) >> 4 * quad;
    uint64_t high = (uint64_t)(up & 0x03030303u) | (uint64_t)(up >> 2 & 0x03030303u) << 32;
    __m128i s = _mm_or_si128(low, _mm_cvtsi64_si128((long long)(high << 4)));
    *scale = eight_halves(_mm_sub_epi8(s, _mm_set1_epi8(32)), f16_at((const uint8_t *)b + 108));
}
BYTES(q3_k) { // a clear bit of hmask subtracts 4
    const struct lp_block_q3_k *b = unit;
    __m256i bit = _mm256_set1_epi8((char)(1 << (4 * quad + group)));
    __m256i clear =
        _mm256_cmpeq_epi8(_mm256_and_si256(load_32(b->hmask), bit), _mm256_setzero_si256());
    return _mm256_sub_epi8(two_bits(load_32(b->qs + 32 * quad), group),
                           _mm256_and_si256(clear, _mm256_set1_epi8(4)));
}

STRIP(q3_k) { // q + 4: a set bit of hmask is worth 4
    const size_t at_scales = offsetof(struct lp_block_q3_k, scales);
    vint a = dword_column(rows, at_scales), b = dword_column(rows, at_scales + 4),
         up = dword_column(rows, at_scales + 8);
    vfloat d = f16_column(rows, offsetof(struct lp_block_q3_k, d));
    const vint s[4] = {v_or(shift_right(a, 0, 15), shift_left(up, 4, 48)),
                       v_or(shift_right(b, 0, 15), shift_left(up, 2, 48)),
                       v_or(shift_right(a, 4, 15), shift_right(up, 0, 48)),
                       v_or(shift_right(b, 4, 15), shift_right(up, 2, 48))};
    for (int i = 0; i < 16; i++) {
        vfloat v = V_INT(sub_ps)(unsigned_byte(s[i / 4], i % 4), V_INT(set1_ps)(32.0f));
        to->strips[i / 8].scale[i / 2 % 4 + 4 * (i % 2)] = V_INT(mul_ps)(v, d);
    }
    for (int c = 0; c < 2; c++) { // halves of the groups
        vint high[4], raw[4];
        columns(rows, 16 * (size_t)c, high);
        for (int n = 0; n < 2; n++) {
            columns(rows, offsetof(struct lp_block_q3_k, qs) + 32 * (size_t)n + 16 * (size_t)c,
                    raw);
            for (int g = 0; g < 4; g++) {
                const int bit = 4 * n + g;
                vint q[4];
                for (int k = 0; k < 4; k++) {
                    vint four = bit < 2 ? shift_left(high[k], 2 - bit, 4)
                                        : shift_right(high[k], bit - 2, 4);
                    q[k] = offset_bytes(v_or(shift_right(raw[k], 2 * g, 3), four), 4);
                }
                put(to, n, g, c, q);
            }
        }
    }
}

// ---- Q4_K, Q5_K: quad = groups 4 quad .. 4 quad + 3, a 6-bit scale and min each

LP_INLINE void k_scales(const uint8_t *block, const uint8_t *scales, int quad, __m256 *scale,
                        __m256 *min) {
    uint32_t a = load_u32(scales), b = load_u32(scales + 4), c = load_u32(scales + 8);
    uint32_t s = quad ? (c & 0x0f0f0f0fu) | (a >> 6 & 0x03030303u) << 4 : a & 0x3f3f3f3fu;
    uint32_t m = quad ? (c >> 4 & 0x0f0f0f0fu) | (b >> 6 & 0x03030303u) << 4 : b & 0x3f3f3f3fu;
    *scale = four_bytes(s, f16_at(block));
    *min = four_bytes(m, f16_at(block + 2));
}

SCALES(q4_k) {
    k_scales(unit, ((const struct lp_block_q4_k *)unit)->scales, quad, scale, min);
}
BYTES(q4_k) {
    return one_nibble(((const struct lp_block_q4_k *)unit)->qs + 64 * quad + 32 * (group / 2),
                      group & 1);
}

SCALES(q5_k) {
    k_scales(unit, ((const struct lp_block_q5_k *)unit)->scales, quad, scale, min);
}
BYTES(q5_k) { // the fifth bit is bit 4 quad + group of qh
    const struct lp_block_q5_k *b = unit;
    __m256i qh = load_32(b->qh);
    qh = quad ? _mm256_srli_epi16(qh, group) : _mm256_slli_epi16(qh, 4 - group);
    return _mm256_or_si256(one_nibble(b->qs + 64 * quad + 32 * (group / 2), group & 1),
                           _mm256_and_si256(qh, _mm256_set1_epi8(16)));
}

LP_INLINE void k_strip_scales(struct source *rows, const struct sink *to) {
    vint head[4]; // d and min d, then 12 bytes of scales
    columns(rows, 0, head);
    vint low = every_byte(0x3f), a = head[1], b = head[2], c = head[3];
    vint s[2] = {v_and(a, low), v_or(shift_right(c, 0, 15), shift_right(a, 2, 0x30))};
    vint m[2] = {v_and(b, low), v_or(shift_right(c, 4, 15), shift_right(b, 2, 0x30))};
    vfloat d = low_f16(head[0]), dmin = high_f16(head[0]);
    for (int q = 0; q < 2; q++)
        for (int g = 0; g < 4; g++) {
            to->strips[q].scale[g] = V_INT(mul_ps)(unsigned_byte(s[q], g), d);
            to->strips[q].min[g] = V_INT(mul_ps)(unsigned_byte(m[q], g), dmin);
        }
}

STRIP(q4_k) {
    k_strip_scales(rows, to);
    for (int p = 0; p < 4; p++) { // pairs of groups
        for (int h = 0; h < 2; h++) {
            vint raw[4], low[4], high[4];
            columns(rows, offsetof(struct lp_block_q4_k, qs) + (size_t)(32 * p + 16 * h), raw);
            for (int k = 0; k < 4; k++) {
                low[k] = shift_right(raw[k], 0, 15);
                high[k] = shift_right(raw[k], 4, 15);
            }
            put(to, p / 2, 2 * (p % 2), h, low);
            put(to, p / 2, 2 * (p % 2) + 1, h, high);
        }
    }
}

STRIP(q5_k) {
    k_strip_scales(rows, to);
    vint high[8];
    columns(rows, offsetof(struct lp_block_q5_k, qh), high);
    columns(rows, offsetof(struct lp_block_q5_k, qh) + 16, high + 4);
    for (int p = 0; p < 4; p++) {
        for (int h = 0; h < 2; h++) {
            vint raw[4], even[4], odd[4], *fifth = high + 4 * h;
            columns(rows, offsetof(struct lp_block_q5_k, qs) + (size_t)(32 * p + 16 * h), raw);
            for (int k = 0; k < 4; k++) {
                even[k] = v_or(shift_right(raw[k], 0, 15), shift_left(fifth[k], 4, 16));
                odd[k] = v_or(shift_right(raw[k], 4, 15), shift_left(fifth[k], 3, 16));
                fifth[k] = V_INT(srli_epi16)(fifth[k], 2);
            }
            put(to, p / 2, 2 * (p % 2), h, even);
            put(to, p / 2, 2 * (p % 2) + 1, h, odd);
        }
    }
}

// ---- Q6_K: quad = half of 128, group = quarter of it

SCALES(q6_k) {
    (void)min;
    const struct lp_block_q6_k *b = unit;
    *scale = eight_halves(_mm_loadl_epi64((const __m128i *)(b->scales + 8 * quad)),
                          f16_at((const uint8_t *)b + 208));
}
BYTES(q6_k) {
    const struct lp_block_q6_k *b = unit;
    __m256i qh = load_32(b->qh + 32 * quad);
    qh = group < 2 ? _mm256_slli_epi16(qh, 4 - 2 * group) : _mm256_srli_epi16(qh, 2 * group - 4);
    __m256i q = _mm256_or_si256(one_nibble(b->ql + 64 * quad + 32 * (group & 1), group >= 2),
                                _mm256_and_si256(qh, _mm256_set1_epi8(48)));
    return _mm256_sub_epi8(q, _mm256_set1_epi8(32));
}

STRIP(q6_k) {
    vint s[4];
    columns(rows, offsetof(struct lp_block_q6_k, scales), s);
    vfloat d = last_f16_column(rows, offsetof(struct lp_block_q6_k, d));
    for (int i = 0; i < 16; i++) // two a group
        to->strips[i / 8].scale[i / 2 % 4 + 4 * (i % 2)] =
            V_INT(mul_ps)(signed_byte(s[i / 4], i % 4), d);
    for (int i = 0; i < 4; i++) { // 16 values of each group of a quad
        const size_t n = (size_t)(i / 2), c = (size_t)(i % 2);
        vint low[4], mid[4], high[4], q[4][4];
        columns(rows, 64 * n + 16 * c, low);
        columns(rows, 64 * n + 32 + 16 * c, mid);
        columns(rows, offsetof(struct lp_block_q6_k, qh) + 32 * n + 16 * c, high);
        for (int k = 0; k < 4; k++) {
            q[0][k] = v_or(shift_right(low[k], 0, 15), shift_left(high[k], 4, 48));
            q[1][k] = v_or(shift_right(mid[k], 0, 15), shift_left(high[k], 2, 48));
            q[2][k] = v_or(shift_right(low[k], 4, 15), shift_right(high[k], 0, 48));
            q[3][k] = v_or(shift_right(mid[k], 4, 15), shift_right(high[k], 2, 48));
            for (int g = 0; g < 4; g++) q[g][k] = offset_bytes(q[g][k], 32);
        }
        for (int g = 0; g < 4; g++) put(to, (int)n, g, (int)c, q[g]);
    }
}

// ---- IQ4_XS

SCALES(iq4_xs) { // six bits: a nibble of scales_l, two bits of scales_h
    (void)min;
    const struct lp_block_iq4_xs *b = unit;
    float d = f16_at(b);
    uint16_t high;
    memcpy(&high, (const uint8_t *)b + 2, sizeof high);
    int s[4];
    for (int g = 0; g < 4; g++)
        s[g] = ((b->scales_l[2 * quad + g / 2] >> 4 * (g & 1) & 15) |
                (high >> 2 * (4 * quad + g) & 3) << 4) -
               32;
    __m128 v = _mm_cvtepi32_ps(_mm_setr_epi32(s[0], s[1], s[2], s[3]));
    *scale = twice(_mm_mul_ps(v, _mm_set1_ps(d)));
}
BYTES(iq4_xs) {
    const struct lp_block_iq4_xs *b = unit;
    __m256i table = _mm256_broadcastsi128_si256(load_16(lp_codebooks_iq4_nl));
    return _mm256_shuffle_epi8(table, nibbles_32(b->qs + 64 * quad + 16 * group));
}

STRIP(iq4_xs) {
    const vint table = any_bytes(byte_table(load_16(lp_codebooks_iq4_nl)));
    vint head[2]; // d and scales_h, then scales_l
    some_columns(rows, 0, 0, 2, head);
    vfloat d = low_f16(head[0]);
    for (int g = 0; g < 8; g++) {
        vint low = v_and(V_INT(srli_epi32)(head[1], 4 * g), V_INT(set1_epi32)(15));
        vint high = v_and(V_INT(srli_epi32)(head[0], 16 + 2 * g), V_INT(set1_epi32)(3));
        vint s = v_or(low, V_INT(slli_epi32)(high, 4));
        s = V_INT(sub_epi32)(s, V_INT(set1_epi32)(32));
        to->strips[g / 4].scale[g % 4] = V_INT(mul_ps)(V_INT(cvtepi32_ps)(s), d);
        vint q[8];
        columns(rows, offsetof(struct lp_block_iq4_xs, qs) + 16 * (size_t)g, q);
        look_up_nibbles(q, table);
        put(to, g / 4, g % 4, 0, q);
        put(to, g / 4, g % 4, 1, q + 4);
    }
}

STRIP_FORMAT(q2_k, 256, 2, false, min_halves, 0, true);
STRIP_FORMAT(q3_k, 256, 2, true, offset_halves, 4, true);
STRIP_FORMAT(q4_k, 256, 2, false, min, 0, false);
STRIP_FORMAT(q5_k, 256, 2, false, min, 0, false);
STRIP_FORMAT(q6_k, 256, 2, true, offset_halves, 32, true);
STRIP_FORMAT(iq4_xs, 256, 2, true, any, ANY_OFFSET, false);

#endif
