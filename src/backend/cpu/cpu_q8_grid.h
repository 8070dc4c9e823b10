// Strips of the IQ grid types with AVX-512 VBMI. The indices of 16 rows, four bytes a lane, are looked
// up in the coded grids (cpu_grid_codes.h) at once, and the codes and signs are spread from bits to
// bytes within each lane: nothing is read by a computed address.
//
// The last step turns a byte into the value by a table whose index is the symbol in the low bits and
// the sign in bit 5; the other bits are left over from neighbours, and the table does not depend on
// them.
#ifndef LP_BACKEND_CPU_CPU_Q8_GRID_H
#define LP_BACKEND_CPU_CPU_Q8_GRID_H

#include "backend/cpu/cpu_grid_codes.h"
#include "backend/cpu/cpu_q8_avx2.h"

#define SIGN_BIT LP_CPU_GRID_SIGN_BIT

// In byte i of each lane: the eight bits from bit first + i step of the lane on. What lies outside
// the lane means nothing.
LP_INLINE vint spread(vint v, int first, int step) {
    const uint64_t low = (uint64_t)(first & 63) | (uint64_t)((first + step) & 63) << 8 |
                         (uint64_t)((first + 2 * step) & 63) << 16 |
                         (uint64_t)((first + 3 * step) & 63) << 24;
    uint64_t high = 0;
    UNROLL
    for (int i = 0; i < 4; i++) high |= (uint64_t)((32 + first + i * step) & 63) << 8 * i;
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64((long long)(low | high << 32)), v);
}

// mask: bits to take of a, the others of b
LP_INLINE vint merge_bits(int mask, vint a, vint b) {
    return _mm512_ternarylogic_epi32(every_byte(mask), a, b, 0xca);
}

// Byte by byte plane[index]; index = the byte of low and above it n_high bits, the masks of high.
LP_INLINE vint look_up_64(const uint8_t *plane, vint low, int n_high, const __mmask64 *high) {
    vint r[16];
    __mmask64 bit = _mm512_movepi8_mask(low);
    UNROLL
    for (int i = 0; i < 2 << n_high; i++)
        r[i] = _mm512_permutex2var_epi8(_mm512_load_si512(plane + 128 * i), low,
                                        _mm512_load_si512(plane + 128 * i + 64));
    UNROLL
    for (int b = 0; b <= n_high; b++) {
        UNROLL
        for (int i = 0; i < 2 << n_high >> (b + 1); i++)
            r[i] = _mm512_mask_blend_epi8(bit, r[2 * i], r[2 * i + 1]);
        if (b < n_high) bit = high[b];
    }
    return r[0];
}

LP_INLINE void high_masks(vint bits, int n, __mmask64 *masks) {
    UNROLL
    for (int b = 0; b < n; b++) masks[b] = _mm512_test_epi8_mask(bits, every_byte(1 << b));
}

// Signs of the values of a group, value j at bit j of the lane, moved for its columns k.
LP_INLINE vint column_signs(vint signs, int k) {
    return spread(signs, 4 * k - SIGN_BIT, 1);
}

// The 7-bit sign codes in the low bits of each byte as sign bytes: bit 7 is their parity.
LP_INLINE vint parity_signs(vint codes) {
    const __m128i parity =
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
    vint c = v_and(codes, every_byte(0x7f));
    vint folded = v_and(_mm512_xor_si512(c, _mm512_srli_epi16(c, 4)), every_byte(15));
    return v_or(c, _mm512_shuffle_epi8(byte_table(parity), folded));
}

// A group of octets: codes of planes 0 and 1, octet l at byte at[l].
static const int octets_in_order[4] = {0, 1, 2, 3};
LP_INLINE void put_octets(const struct sink *to, int group, const vint *codes, const int *at,
                          const vint *column_bits, vint table) {
    UNROLL
    for (int h = 0; h < 2; h++) {
        vint q[4];
        UNROLL
        for (int k = 0; k < 4; k++) {
            vint bits = spread(codes[k % 2], 8 * at[2 * h + k / 2], 2);
            q[k] = _mm512_permutexvar_epi8(merge_bits(3, bits, column_bits[4 * h + k]), table);
        }
        put(to, group / 4, group % 4, h, q);
    }
}

LP_INLINE void all_column_signs(vint signs, const int *at, vint *out) {
    UNROLL
    for (int k = 0; k < 8; k++) out[k] = column_signs(signs, 2 * at[k / 2] + k % 2);
}

// (base + step n) d, as eight_scales does it
LP_INLINE vfloat lane_scale(vint n, float base, float step, vfloat d) {
    vfloat v = V_INT(mul_ps)(V_INT(cvtepi32_ps)(n), V_INT(set1_ps)(step));
    return V_INT(mul_ps)(V_INT(add_ps)(v, V_INT(set1_ps)(base)), d);
}
LP_INLINE vint lane_bits(vint v, int first, int mask) {
    return v_and(V_INT(srli_epi32)(v, (unsigned)first), V_INT(set1_epi32)(mask));
}

// Scale nibbles of the halves of group G, in byte G % 4 of bytes[G / 4]
LP_INLINE void iq2_strip_scales(const struct sink *to, const vint *bytes, vfloat d) {
    UNROLL
    for (int g = 0; g < 8; g++) UNROLL
    for (int h = 0; h < 2; h++) {
        vint n = lane_bits(bytes[g / 4], 8 * (g % 4) + 4 * h, 15);
        to->strips[g / 4].scale[g % 4 + 4 * h] = lane_scale(n, 0.125f, 0.25f, d);
    }
}

LP_INLINE void look_up_octets(const uint8_t *code0, const uint8_t *code1, vint low, int n_high,
                              vint high_bits, vint *codes) {
    __mmask64 masks[4];
    high_masks(high_bits, n_high, masks);
    codes[0] = look_up_64(code0, low, n_high, masks);
    codes[1] = look_up_64(code1, low, n_high, masks);
}

STRIP(iq2_xxs) {
    const struct lp_cpu_grid_codes *c = &lp_cpu_grid_codes;
    const vint table = _mm512_load_si512(c->iq2_values);
    vfloat d = f16_column(rows, 0);
    for (int p = 0; p < 4; p++) {
        vint raw[4]; // indices and aux of two groups
        columns(rows, 2 + 16 * (size_t)p, raw);
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int g = 2 * p + i;
            vint aux = raw[2 * i + 1], codes[2], signs[8];
            look_up_octets(c->iq2xxs[0], c->iq2xxs[1], raw[2 * i], 0, aux, codes);
            all_column_signs(parity_signs(spread(aux, 0, 7)), octets_in_order, signs);
            to->strips[g / 4].scale[g % 4] = lane_scale(lane_bits(aux, 28, 15), 0.125f, 0.25f, d);
            put_octets(to, g, codes, octets_in_order, signs, table);
        }
    }
}

STRIP(iq2_xs) {
    const struct lp_cpu_grid_codes *c = &lp_cpu_grid_codes;
    static const int at[4] = {0, 2, 1, 3};
    const vint table = _mm512_load_si512(c->iq2_values), even = V_INT(set1_epi32)(0xff00ff);
    vfloat d = f16_column(rows, 0);
    vint scales[2];
    some_columns(rows, sizeof(struct lp_block_iq2_xs) - 16, 2, 2, scales);
    iq2_strip_scales(to, scales, d);
    for (int p = 0; p < 4; p++) {
        vint raw[4];
        columns(rows, 2 + 16 * (size_t)p, raw); // two octets a lane, four lanes of two groups
        UNROLL
        for (int i = 0; i < 2; i++) {
            vint a = raw[2 * i], b = raw[2 * i + 1], codes[2], signs[8];
            vint low = v_or(v_and(a, even), V_INT(slli_epi16)(b, 8));
            vint high = _mm512_ternarylogic_epi32(even, V_INT(srli_epi16)(a, 8), b, 0xca);
            look_up_octets(c->iq2xs[0], c->iq2xs[1], low, 1, high, codes);
            all_column_signs(parity_signs(V_INT(srli_epi16)(high, 1)), at, signs);
            put_octets(to, 2 * p + i, codes, at, signs, table);
        }
    }
}

STRIP(iq2_s) {
    const struct lp_cpu_grid_codes *c = &lp_cpu_grid_codes;
    const vint table = _mm512_load_si512(c->iq2_values);
    vfloat d = f16_column(rows, 0);
    vint end[4]; // qh, scales
    columns(rows, offsetof(struct lp_block_iq2_s, qh), end);
    iq2_strip_scales(to, end + 2, d);
    for (int p = 0; p < 2; p++) {
        vint low[4], sign_bytes[4];
        columns(rows, offsetof(struct lp_block_iq2_s, qs) + 16 * (size_t)p, low);
        columns(rows, offsetof(struct lp_block_iq2_s, signs) + 16 * (size_t)p, sign_bytes);
        UNROLL
        for (int i = 0; i < 4; i++) {
            vint codes[2], signs[8];
            look_up_octets(c->iq2s[0], c->iq2s[1], low[i], 2, spread(end[p], 8 * i, 2), codes);
            all_column_signs(sign_bytes[i], octets_in_order, signs);
            put_octets(to, 4 * p + i, codes, octets_in_order, signs, table);
        }
    }
}

// ---- IQ3: half h of a group is four indices of four values each

LP_INLINE void put_quartets(const struct sink *to, int group, int h, const vint *codes, vint signs,
                            vint table) {
    vint q[4];
    UNROLL
    for (int k = 0; k < 4; k++) {
        vint low = spread(codes[0], 8 * k, 2), third = spread(codes[1], 8 * k - 2, 1);
        vint index = merge_bits(4, third, column_signs(signs, 4 * h + k));
        q[k] = _mm512_permutexvar_epi8(merge_bits(3, low, index), table);
    }
    put(to, group / 4, group % 4, h, q);
}

STRIP(iq3_xxs) {
    const struct lp_cpu_grid_codes *c = &lp_cpu_grid_codes;
    const vint table = _mm512_load_si512(c->iq3xxs_values);
    vfloat d = f16_column(rows, 0);
    vint aux[8];
    columns(rows, offsetof(struct lp_block_iq3_xxs, aux), aux);
    columns(rows, offsetof(struct lp_block_iq3_xxs, aux) + 16, aux + 4);
    for (int p = 0; p < 4; p++) {
        vint low[4];
        columns(rows, offsetof(struct lp_block_iq3_xxs, qs) + 16 * (size_t)p, low);
        UNROLL
        for (int i = 0; i < 4; i++) {
            const int g = 2 * p + i / 2;
            vint codes[2];
            look_up_octets(c->iq3xxs[0], c->iq3xxs[1], low[i], 0, low[i], codes);
            put_quartets(to, g, i % 2, codes, parity_signs(spread(aux[g], 0, 7)), table);
            to->strips[g / 4].scale[g % 4] = lane_scale(lane_bits(aux[g], 28, 15), 0.25f, 0.5f, d);
        }
    }
}

STRIP(iq3_s) {
    const struct lp_cpu_grid_codes *c = &lp_cpu_grid_codes;
    const vint table = _mm512_load_si512(c->iq3s_values);
    vfloat d = f16_column(rows, 0);
    vint high[2], signs[8], scales;
    some_columns(rows, offsetof(struct lp_block_iq3_s, qh), 0, 2, high);
    columns(rows, offsetof(struct lp_block_iq3_s, signs), signs);
    columns(rows, offsetof(struct lp_block_iq3_s, signs) + 16, signs + 4);
    some_columns(rows, sizeof(struct lp_block_iq3_s) - 16, 3, 1, &scales);
    for (int p = 0; p < 4; p++) {
        vint low[4];
        columns(rows, offsetof(struct lp_block_iq3_s, qs) + 16 * (size_t)p, low);
        UNROLL
        for (int i = 0; i < 4; i++) {
            const int g = 2 * p + i / 2, h = i % 2;
            vint codes[2];
            look_up_octets(c->iq3s[0], c->iq3s[1], low[i], 1,
                           spread(high[g / 4], 8 * (g % 4) + 4 * h, 1), codes);
            put_quartets(to, g, h, codes, signs[g], table);
            to->strips[g / 4].scale[g % 4] = lane_scale(lane_bits(scales, 4 * g, 15), 1, 2, d);
        }
    }
}

// ---- IQ1: the sign bit chooses the delta

STRIP(iq1_s) {
    const struct lp_cpu_grid_codes *c = &lp_cpu_grid_codes;
    const vint table = _mm512_load_si512(c->iq1_values);
    vfloat d = f16_column(rows, 0);
    vint qh[4]; // of two groups each
    columns(rows, offsetof(struct lp_block_iq1_s, qh), qh);
    for (int p = 0; p < 2; p++) {
        vint low[4];
        columns(rows, offsetof(struct lp_block_iq1_s, qs) + 16 * (size_t)p, low);
        for (int i = 0; i < 4; i++) {
            const int g = 4 * p + i, at = 16 * (g % 2);
            vint h = qh[g / 2], codes[2], deltas[8];
            look_up_octets(c->iq1s[0], c->iq1s[1], low[i], 3, spread(h, at, 3), codes);
            UNROLL
            for (int k = 0; k < 8; k++) deltas[k] = spread(h, at + 15 - SIGN_BIT, 0);
            to->strips[p].scale[i] = lane_scale(lane_bits(h, at + 12, 7), 0.125f, 0.25f, d);
            put_octets(to, g, codes, octets_in_order, deltas, table);
        }
    }
}

STRIP(iq1_m) {
    const struct lp_cpu_grid_codes *c = &lp_cpu_grid_codes;
    const vint table = _mm512_load_si512(c->iq1_values);
    vint qh[4], end[2]; // of two groups each; scales
    columns(rows, offsetof(struct lp_block_iq1_m, qh), qh);
    some_columns(rows, sizeof(struct lp_block_iq1_m) - 16, 2, 2, end);
    vint bits = v_or(v_or(lane_bits(end[0], 12, 0xf), lane_bits(end[0], 24, 0xf0)),
                     v_or(lane_bits(end[1], 4, 0xf00), lane_bits(end[1], 16, 0xf000)));
    vfloat d = low_f16(bits);
    for (int p = 0; p < 2; p++) {
        vint low[4];
        columns(rows, offsetof(struct lp_block_iq1_m, qs) + 16 * (size_t)p, low);
        for (int i = 0; i < 4; i++) {
            const int g = 4 * p + i, at = 16 * (g % 2);
            vint h = qh[g / 2], codes[2], deltas[8];
            look_up_octets(c->iq1s[0], c->iq1s[1], low[i], 3, spread(h, at, 4), codes);
            UNROLL
            for (int k = 0; k < 8; k++) deltas[k] = spread(h, at + 4 * (k / 2) + 3 - SIGN_BIT, 0);
            UNROLL
            for (int half = 0; half < 2; half++) {
                vint n = lane_bits(end[p], 16 * (i / 2) + 6 * (i % 2) + 3 * half, 7);
                to->strips[p].scale[i + 4 * half] = lane_scale(n, 0.125f, 0.25f, d);
            }
            put_octets(to, g, codes, octets_in_order, deltas, table);
        }
    }
}

#endif
