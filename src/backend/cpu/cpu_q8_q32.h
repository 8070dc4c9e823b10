// Unpacking for the 8-bit kernels: types with blocks of 32 or 64 values. A unit is 128 values, four
// blocks (NVFP4: two). The scale of a block of 32 serves both halves of its group.
#ifndef LP_BACKEND_CPU_CPU_Q8_Q32_H
#define LP_BACKEND_CPU_CPU_Q8_Q32_H

#include "backend/cpu/cpu_q8_avx2.h"
#include "quant/codebooks.h"

// Four f16 at p, p + step, ... as floats, twice
LP_INLINE __m256 four_f16(const uint8_t *p, size_t step) {
    uint16_t d[4];
    for (int i = 0; i < 4; i++) memcpy(&d[i], p + (size_t)i * step, sizeof d[i]);
    uint64_t bits =
        (uint64_t)d[0] | (uint64_t)d[1] << 16 | (uint64_t)d[2] << 32 | (uint64_t)d[3] << 48;
    return twice(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)bits)));
}

LP_INLINE __m256 negated(__m256 v) {
    return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f));
}

// Bit j of the word at p in bit 4 of byte j
LP_INLINE __m256i fifth_bits(const void *p) {
    return _mm256_and_si256(spread_bits(load_u32(p)), _mm256_set1_epi8(16));
}

LP_INLINE __m256i look_up(const int8_t table[16], __m256i nibbles) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_16(table)), nibbles);
}

// All eight columns of a group.
LP_INLINE void put_group(const struct sink *to, size_t g, const vint *q) {
    put(to, 0, (int)g, 0, q);
    put(to, 0, (int)g, 1, q + 4);
}

// d, an f16 at the head of each block. (Scales are read before the values of all blocks, so that
// packed columns of values lie at whole cache lines.)
LP_INLINE void read_scales(struct source *rows, size_t block_bytes, const struct sink *to) {
    for (size_t g = 0; g < 4; g++) to->strips->scale[g] = f16_column(rows, g * block_bytes);
}
// d and m: the min is -m
LP_INLINE void read_scales_mins(struct source *rows, size_t block_bytes, const struct sink *to) {
    read_scales(rows, block_bytes, to);
    for (size_t g = 0; g < 4; g++)
        to->strips->min[g] =
            V_INT(sub_ps)(V_INT(set1_ps)(-0.0f), f16_column(rows, g * block_bytes + 2));
}

// Bits 4k .. 4k + 3 of each lane of qh as 16 in the four bytes of q[k]: the factor puts bit i at
// bit 8 i + 4, and three more copies beside.
LP_INLINE void add_fifth_bits(vint *q, vint qh) {
    for (int k = 0; k < 8; k++) {
        vint nibble = v_and(V_INT(srli_epi32)(qh, 4 * k), V_INT(set1_epi32)(15));
        vint bits = V_INT(mullo_epi32)(nibble, V_INT(set1_epi32)(0x02040810));
        q[k] = v_or(q[k], v_and(bits, every_byte(16)));
    }
}

SCALES(q8_0) {
    (void)quad, (void)min;
    *scale = four_f16(unit, sizeof(struct lp_block_q8_0));
}
BYTES(q8_0) {
    (void)quad;
    return load_32(((const struct lp_block_q8_0 *)unit)[group].qs);
}
STRIP(q8_0) {
    read_scales(rows, sizeof(struct lp_block_q8_0), to);
    for (size_t g = 0; g < 4; g++) {
        const size_t at = g * sizeof(struct lp_block_q8_0);
        for (size_t h = 0; h < 2; h++) {
            vint q[4];
            columns(rows, at + 2 + 16 * h, q);
            for (int k = 0; k < 4; k++) q[k] = any_bytes(q[k]);
            put(to, 0, (int)g, (int)h, q);
        }
    }
}

SCALES(q4_0) {
    (void)quad, (void)min;
    *scale = four_f16(unit, sizeof(struct lp_block_q4_0));
}
BYTES(q4_0) {
    (void)quad;
    return _mm256_sub_epi8(nibbles_32(((const struct lp_block_q4_0 *)unit)[group].qs),
                           _mm256_set1_epi8(8));
}
STRIP(q4_0) {
    read_scales(rows, sizeof(struct lp_block_q4_0), to);
    for (size_t g = 0; g < 4; g++) {
        const size_t at = g * sizeof(struct lp_block_q4_0);
        vint q[8];
        columns(rows, at + 2, q);
        split_nibbles(q);
        for (int k = 0; k < 8; k++) q[k] = offset_bytes(q[k], 8);
        put_group(to, g, q);
    }
}

SCALES(q4_1) { // y = d q + m: the min is -m
    (void)quad;
    *scale = four_f16(unit, sizeof(struct lp_block_q4_1));
    *min = negated(four_f16((const uint8_t *)unit + 2, sizeof(struct lp_block_q4_1)));
}
BYTES(q4_1) {
    (void)quad;
    return nibbles_32(((const struct lp_block_q4_1 *)unit)[group].qs);
}
STRIP(q4_1) {
    read_scales_mins(rows, sizeof(struct lp_block_q4_1), to);
    for (size_t g = 0; g < 4; g++) {
        const size_t at = g * sizeof(struct lp_block_q4_1);
        vint q[8];
        columns(rows, at + 4, q);
        split_nibbles(q);
        put_group(to, g, q);
    }
}

SCALES(q5_0) {
    (void)quad, (void)min;
    *scale = four_f16(unit, sizeof(struct lp_block_q5_0));
}
BYTES(q5_0) {
    (void)quad;
    const struct lp_block_q5_0 *b = (const struct lp_block_q5_0 *)unit + group;
    __m256i q = _mm256_or_si256(nibbles_32(b->qs), fifth_bits((const uint8_t *)b + 2));
    return _mm256_sub_epi8(q, _mm256_set1_epi8(16));
}
STRIP(q5_0) {
    read_scales(rows, sizeof(struct lp_block_q5_0), to);
    for (size_t g = 0; g < 4; g++) {
        const size_t at = g * sizeof(struct lp_block_q5_0);
        vint q[8];
        columns(rows, at + 6, q);
        split_nibbles(q);
        add_fifth_bits(q, dword_column(rows, at + 2));
        for (int k = 0; k < 8; k++) q[k] = offset_bytes(q[k], 16);
        put_group(to, g, q);
    }
}

SCALES(q5_1) {
    (void)quad;
    *scale = four_f16(unit, sizeof(struct lp_block_q5_1));
    *min = negated(four_f16((const uint8_t *)unit + 2, sizeof(struct lp_block_q5_1)));
}
BYTES(q5_1) {
    (void)quad;
    const struct lp_block_q5_1 *b = (const struct lp_block_q5_1 *)unit + group;
    return _mm256_or_si256(nibbles_32(b->qs), fifth_bits((const uint8_t *)b + 4));
}
STRIP(q5_1) {
    read_scales_mins(rows, sizeof(struct lp_block_q5_1), to);
    for (size_t g = 0; g < 4; g++) {
        const size_t at = g * sizeof(struct lp_block_q5_1);
        vint q[8];
        columns(rows, at + 8, q);
        split_nibbles(q);
        add_fifth_bits(q, dword_column(rows, at + 4));
        put_group(to, g, q);
    }
}

SCALES(iq4_nl) {
    (void)quad, (void)min;
    *scale = four_f16(unit, sizeof(struct lp_block_iq4_nl));
}
BYTES(iq4_nl) {
    (void)quad;
    return look_up(lp_codebooks_iq4_nl,
                   nibbles_32(((const struct lp_block_iq4_nl *)unit)[group].qs));
}
STRIP(iq4_nl) {
    const vint table = any_bytes(byte_table(load_16(lp_codebooks_iq4_nl)));
    read_scales(rows, sizeof(struct lp_block_iq4_nl), to);
    for (size_t g = 0; g < 4; g++) {
        const size_t at = g * sizeof(struct lp_block_iq4_nl);
        vint q[8];
        columns(rows, at + 2, q);
        look_up_nibbles(q, table);
        put_group(to, g, q);
    }
}

SCALES(mxfp4) {
    (void)quad, (void)min;
    const struct lp_block_mxfp4 *b = unit;
    *scale = twice(_mm_setr_ps(lp_blocks_mxfp4_scale(b[0].e), lp_blocks_mxfp4_scale(b[1].e),
                               lp_blocks_mxfp4_scale(b[2].e), lp_blocks_mxfp4_scale(b[3].e)));
}
BYTES(mxfp4) {
    (void)quad;
    return look_up(lp_codebooks_fp4, nibbles_32(((const struct lp_block_mxfp4 *)unit)[group].qs));
}
STRIP(mxfp4) {
    const vint table = any_bytes(byte_table(load_16(lp_codebooks_fp4)));
    for (size_t g = 0; g < 4; g++) {
        uint8_t e[LANES];
        float scales[LANES];
        byte_column(rows, g * sizeof(struct lp_block_mxfp4), e);
        for (int l = 0; l < LANES; l++) scales[l] = lp_blocks_mxfp4_scale(e[l]);
        to->strips->scale[g] = V_INT(loadu_ps)(scales);
    }
    for (size_t g = 0; g < 4; g++) {
        vint q[8];
        columns(rows, g * sizeof(struct lp_block_mxfp4) + 1, q);
        look_up_nibbles(q, table);
        put_group(to, g, q);
    }
}

// Group g is half g % 2 of block g / 2; its two sub-blocks have a scale each, an unsigned E4M3
// byte: moved to a float's exponent and mantissa it is too small by 2^120, zero exponents included.
SCALES(nvfp4) {
    (void)quad, (void)min;
    const struct lp_block_nvfp4 *b = unit;
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, -1, -1, -1, -1, -1, -1, -1, -1);
    uint64_t bytes = load_u32(b[0].d) | (uint64_t)load_u32(b[1].d) << 32;
    __m256i e = _mm256_cvtepu8_epi32(_mm_shuffle_epi8(_mm_cvtsi64_si128((long long)bytes), order));
    __m256i zero = _mm256_cmpeq_epi32(e, _mm256_set1_epi32(0x7f)); // the format's NaN is read as 0
    e = _mm256_and_si256(e, _mm256_set1_epi32(0x7f));
    __m256 v = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_andnot_si256(zero, e), 20));
    *scale =
        _mm256_mul_ps(v, _mm256_set1_ps(0x1p119f)); // halved: the codebook holds twice the values
}
BYTES(nvfp4) {
    (void)quad;
    const struct lp_block_nvfp4 *b = (const struct lp_block_nvfp4 *)unit + group / 2;
    __m128i q = load_16(b->qs + 16 * (group % 2)), low = _mm_set1_epi8(15);
    __m128i lo = _mm_and_si128(q, low), hi = _mm_and_si128(_mm_srli_epi16(q, 4), low);
    __m256i nibbles = _mm256_set_m128i(_mm_unpackhi_epi64(lo, hi), _mm_unpacklo_epi64(lo, hi));
    return look_up(lp_codebooks_fp4, nibbles);
}

STRIP_FORMAT(q8_0, 32, 1, true, any, ANY_OFFSET, false);
STRIP_FORMAT(q4_0, 32, 1, true, offset, 8, false);
STRIP_FORMAT(q4_1, 32, 1, false, min, 0, false);
STRIP_FORMAT(q5_0, 32, 1, true, offset, 16, false);
STRIP_FORMAT(q5_1, 32, 1, false, min, 0, false);
STRIP_FORMAT(iq4_nl, 32, 1, true, any, ANY_OFFSET, false);
STRIP_FORMAT(mxfp4, 32, 1, true, any, ANY_OFFSET, false);
FORMAT(nvfp4, 64, 1, any_halves, true);

#endif
