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
    uint64_t bits = (uint64_t)d[0] | (uint64_t)d[1] << 16 | (uint64_t)d[2] << 32 | (uint64_t)d[3] << 48;
    return twice(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)bits)));
}

LP_INLINE __m256 negated(__m256 v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }

// Bit j of the word at p in bit 4 of byte j
LP_INLINE __m256i fifth_bits(const void *p) {
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                            2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i b = _mm256_shuffle_epi8(_mm256_set1_epi32((int)load_u32(p)), spread);
    b = _mm256_cmpeq_epi8(_mm256_and_si256(b, bit), bit);
    return _mm256_and_si256(b, _mm256_set1_epi8(16));
}

LP_INLINE __m256i look_up(const int8_t table[16], __m256i nibbles) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_16(table)), nibbles);
}

#define SCALES(stem) LP_INLINE void stem##_scales(const void *unit, int quad, __m256 *scale, __m256 *min)
#define BYTES(stem) LP_INLINE __m256i stem##_bytes(const void *unit, int quad, int group)

SCALES(q8_0) {
    (void)quad, (void)min;
    *scale = four_f16(unit, sizeof(struct lp_block_q8_0));
}
BYTES(q8_0) {
    (void)quad;
    return load_32(((const struct lp_block_q8_0 *)unit)[group].qs);
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

SCALES(q4_1) { // y = d q + m: the min is -m
    (void)quad;
    *scale = four_f16(unit, sizeof(struct lp_block_q4_1));
    *min = negated(four_f16((const uint8_t *)unit + 2, sizeof(struct lp_block_q4_1)));
}
BYTES(q4_1) {
    (void)quad;
    return nibbles_32(((const struct lp_block_q4_1 *)unit)[group].qs);
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

SCALES(iq4_nl) {
    (void)quad, (void)min;
    *scale = four_f16(unit, sizeof(struct lp_block_iq4_nl));
}
BYTES(iq4_nl) {
    (void)quad;
    return look_up(lp_codebooks_iq4_nl, nibbles_32(((const struct lp_block_iq4_nl *)unit)[group].qs));
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

SCALES(nvfp4) { // group g is half g % 2 of block g / 2; its sub-blocks have a scale each
    (void)quad, (void)min;
    const struct lp_block_nvfp4 *b = unit;
    float s[8];
    for (int g = 0; g < 4; g++)
        for (int half = 0; half < 2; half++)
            s[g + 4 * half] = lp_blocks_nvfp4_scale(b[g / 2].d[g % 2 * 2 + half]);
    *scale = _mm256_loadu_ps(s);
}
BYTES(nvfp4) {
    (void)quad;
    const struct lp_block_nvfp4 *b = (const struct lp_block_nvfp4 *)unit + group / 2;
    __m128i q = load_16(b->qs + 16 * (group % 2)), low = _mm_set1_epi8(15);
    __m128i lo = _mm_and_si128(q, low), hi = _mm_and_si128(_mm_srli_epi16(q, 4), low);
    __m256i nibbles = _mm256_set_m128i(_mm_unpackhi_epi64(lo, hi), _mm_unpacklo_epi64(lo, hi));
    return look_up(lp_codebooks_fp4, nibbles);
}

#define FORMAT_128(stem, values, signed_)                                                          \
    static const struct q8_format stem = {                                                         \
        .block_bytes = sizeof(struct lp_block_##stem),                                             \
        .block_values = values,                                                                    \
        .quads = 1,                                                                                \
        .is_signed = signed_,                                                                      \
        .scales = stem##_scales,                                                                   \
        .bytes = stem##_bytes,                                                                     \
    }
FORMAT_128(q8_0, 32, true);
FORMAT_128(q4_0, 32, true);
FORMAT_128(q4_1, 32, false);
FORMAT_128(q5_0, 32, true);
FORMAT_128(q5_1, 32, false);
FORMAT_128(iq4_nl, 32, true);
FORMAT_128(mxfp4, 32, true);
FORMAT_128(nvfp4, 64, true);

#undef SCALES
#undef BYTES
#undef FORMAT_128

#endif
