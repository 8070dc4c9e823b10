// Unpacking for the 8-bit kernels: the IQ grid types and TQ2_0, blocks of 256 values. A group of 32
// values is four octets; an octet is one entry of an 8-wide grid or two of a 4-wide one.
//
// IQ1: y = dl (G + delta), delta = +-1/8. With q = 8 G + 8 delta and dl / 8 as the scale the values
// are bytes like all others.
#ifndef LP_BACKEND_CPU_CPU_Q8_IQ_H
#define LP_BACKEND_CPU_CPU_Q8_IQ_H

#include "backend/cpu/cpu_q8_avx2.h"
#include "quant/codebooks.h"

LP_INLINE __m256i octets(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return _mm256_setr_epi64x((long long)a, (long long)b, (long long)c, (long long)d);
}

// Negates byte j where bit j is set.
LP_INLINE __m256i with_signs(__m256i values, uint32_t signs) {
    __m256i mask = spread_bits(signs);
    return _mm256_sub_epi8(_mm256_xor_si256(values, mask), mask);
}

// The sign bytes of four 7-bit codes, the first lowest
LP_INLINE uint32_t code_signs(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint8_t *s = lp_codebooks_signs;
    return s[a & 127] | (uint32_t)s[b & 127] << 8 | (uint32_t)s[c & 127] << 16 |
           (uint32_t)s[d & 127] << 24;
}
LP_INLINE uint32_t aux_signs(uint32_t aux) {
    return code_signs(aux, aux >> 7, aux >> 14, aux >> 21);
}

// base + step * n for the four small integers n of the first and of the second halves, times d
LP_INLINE __m256 eight_scales(const int low[4], const int high[4], float base, float step,
                              float d) {
    __m256i n =
        _mm256_setr_epi32(low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]);
    __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(n), _mm256_set1_ps(step));
    return _mm256_mul_ps(_mm256_add_ps(v, _mm256_set1_ps(base)), _mm256_set1_ps(d));
}

// ---- IQ2

SCALES(iq2_xxs) {
    (void)min;
    const struct lp_block_iq2_xxs *b = unit;
    int n[4];
    for (int g = 0; g < 4; g++) n[g] = (int)(b->groups[4 * quad + g].aux >> 28);
    *scale = eight_scales(n, n, 0.125f, 0.25f, f16_at(b));
}
BYTES(iq2_xxs) {
    const struct lp_block_iq2_xxs *b = unit;
    const uint8_t *idx = b->groups[4 * quad + group].idx;
    const uint64_t *grid = lp_codebooks_iq2xxs;
    return with_signs(octets(grid[idx[0]], grid[idx[1]], grid[idx[2]], grid[idx[3]]),
                      aux_signs(b->groups[4 * quad + group].aux));
}

LP_INLINE __m256 iq2_scales(const uint8_t *scales, float d) {
    int low[4], high[4];
    for (int g = 0; g < 4; g++) {
        low[g] = scales[g] & 15;
        high[g] = scales[g] >> 4;
    }
    return eight_scales(low, high, 0.125f, 0.25f, d);
}

SCALES(iq2_xs) {
    (void)min;
    const struct lp_block_iq2_xs *b = unit;
    *scale = iq2_scales(b->scales + 4 * quad, f16_at(b));
}
BYTES(iq2_xs) {
    const struct lp_block_iq2_xs *b = unit;
    uint64_t w;
    memcpy(&w, (const uint8_t *)b + 2 + 8 * (4 * quad + group), sizeof w); // qs[4G .. 4G + 3]
    const uint64_t *grid = lp_codebooks_iq2xs;
    return with_signs(
        octets(grid[w & 511], grid[w >> 16 & 511], grid[w >> 32 & 511], grid[w >> 48 & 511]),
        code_signs((uint32_t)(w >> 9), (uint32_t)(w >> 25), (uint32_t)(w >> 41),
                   (uint32_t)(w >> 57)));
}

SCALES(iq2_s) {
    (void)min;
    const struct lp_block_iq2_s *b = unit;
    *scale = iq2_scales(b->scales + 4 * quad, f16_at(b));
}
BYTES(iq2_s) {
    const struct lp_block_iq2_s *b = unit;
    const int at = 4 * quad + group;
    const uint8_t *qs = b->qs + 4 * at;
    const uint32_t h = b->qh[at];
    const uint64_t *grid = lp_codebooks_iq2s;
    return with_signs(octets(grid[qs[0] | (h & 3) << 8], grid[qs[1] | (h >> 2 & 3) << 8],
                             grid[qs[2] | (h >> 4 & 3) << 8], grid[qs[3] | (h >> 6) << 8]),
                      load_u32(b->signs + 4 * at));
}

// ---- IQ3

LP_INLINE uint64_t two_words(uint32_t low, uint32_t high) {
    return low | (uint64_t)high << 32;
}

SCALES(iq3_xxs) {
    (void)min;
    const struct lp_block_iq3_xxs *b = unit;
    int n[4];
    for (int g = 0; g < 4; g++) n[g] = (int)(b->aux[4 * quad + g] >> 28);
    *scale = eight_scales(n, n, 0.25f, 0.5f, f16_at(b));
}
BYTES(iq3_xxs) {
    const struct lp_block_iq3_xxs *b = unit;
    const uint8_t *qs = b->qs + 8 * (4 * quad + group);
    const uint32_t *grid = lp_codebooks_iq3xxs;
    return with_signs(
        octets(two_words(grid[qs[0]], grid[qs[1]]), two_words(grid[qs[2]], grid[qs[3]]),
               two_words(grid[qs[4]], grid[qs[5]]), two_words(grid[qs[6]], grid[qs[7]])),
        aux_signs(b->aux[4 * quad + group]));
}

SCALES(iq3_s) {
    (void)min;
    const struct lp_block_iq3_s *b = unit;
    int n[4];
    for (int g = 0; g < 4; g++) n[g] = b->scales[2 * quad + g / 2] >> 4 * (g & 1) & 15;
    *scale = eight_scales(n, n, 1.0f, 2.0f, f16_at(b));
}
BYTES(iq3_s) {
    const struct lp_block_iq3_s *b = unit;
    const int at = 4 * quad + group;
    const uint8_t *qs = b->qs + 8 * at;
    const uint32_t h = b->qh[at];
    const uint32_t *grid = lp_codebooks_iq3s;
    uint32_t v[8];
    for (int i = 0; i < 8; i++) v[i] = grid[qs[i] | (h >> i & 1) << 8];
    return with_signs(octets(two_words(v[0], v[1]), two_words(v[2], v[3]), two_words(v[4], v[5]),
                             two_words(v[6], v[7])),
                      load_u32(b->signs + 4 * at));
}

// ---- IQ1

// 8 G of bytes -1, 0, 1
LP_INLINE __m256i times_8(__m256i g) {
    return _mm256_and_si256(_mm256_slli_epi16(g, 3), _mm256_set1_epi8((char)0xf8));
}

SCALES(iq1_s) {
    (void)min;
    const struct lp_block_iq1_s *b = unit;
    int n[4];
    for (int g = 0; g < 4; g++) n[g] = b->qh[4 * quad + g] >> 12 & 7;
    *scale = eight_scales(n, n, 0.125f, 0.25f, f16_at(b)); // d (2 n + 1) / 8
}
BYTES(iq1_s) {
    const struct lp_block_iq1_s *b = unit;
    const uint8_t *qs = b->qs + 4 * (4 * quad + group);
    const uint32_t h = b->qh[4 * quad + group];
    const uint64_t *grid = lp_codebooks_iq1s;
    __m256i g = octets(grid[qs[0] | (h & 7) << 8], grid[qs[1] | (h >> 3 & 7) << 8],
                       grid[qs[2] | (h >> 6 & 7) << 8], grid[qs[3] | (h >> 9 & 7) << 8]);
    return _mm256_add_epi8(times_8(g), _mm256_set1_epi8(h >> 15 ? -1 : 1));
}

SCALES(iq1_m) {
    (void)min;
    const struct lp_block_iq1_m *b = unit;
    uint16_t bits = lp_blocks_iq1_m_d(b->scales);
    int low[4], high[4];
    for (int g = 0; g < 4; g++) {
        uint16_t s;
        memcpy(&s, b->scales + 2 * (2 * quad + g / 2), sizeof s);
        low[g] = s >> 6 * (g & 1) & 7;
        high[g] = s >> (6 * (g & 1) + 3) & 7;
    }
    *scale = eight_scales(low, high, 0.125f, 0.25f, _cvtsh_ss(bits));
}
LP_INLINE uint64_t delta_octet(uint32_t nibble) {
    return nibble & 8 ? 0xffffffffffffffffull : 0x0101010101010101ull;
}
BYTES(iq1_m) {
    const struct lp_block_iq1_m *b = unit;
    const int at = 4 * quad + group;
    const uint8_t *qs = b->qs + 4 * at;
    const uint32_t h = b->qh[2 * at] | (uint32_t)b->qh[2 * at + 1] << 8; // nibble l: octet l
    const uint64_t *grid = lp_codebooks_iq1s;
    __m256i g = octets(grid[qs[0] | (h & 7) << 8], grid[qs[1] | (h >> 4 & 7) << 8],
                       grid[qs[2] | (h >> 8 & 7) << 8], grid[qs[3] | (h >> 12 & 7) << 8]);
    __m256i delta =
        octets(delta_octet(h), delta_octet(h >> 4), delta_octet(h >> 8), delta_octet(h >> 12));
    return _mm256_add_epi8(times_8(g), delta);
}

// ---- TQ2_0: two bits laid out as in Q2_K, one scale

SCALES(tq2_0) {
    (void)quad, (void)min;
    *scale = _mm256_set1_ps(f16_at((const uint8_t *)unit + 64));
}
BYTES(tq2_0) {
    const struct lp_block_tq2_0 *b = unit;
    __m256i q = _mm256_srli_epi16(load_32(b->qs + 32 * quad), 2 * group);
    return _mm256_sub_epi8(_mm256_and_si256(q, _mm256_set1_epi8(3)), _mm256_set1_epi8(1));
}

STRIP(tq2_0) {
    vfloat d = f16_column(rows, offsetof(struct lp_block_tq2_0, d));
    for (int i = 0; i < 4; i++) { // 16 values of each group of a quad
        vint raw[4];
        columns(rows, 16 * (size_t)i, raw);
        for (int g = 0; g < 4; g++) {
            vint q[4];
            for (int k = 0; k < 4; k++) q[k] = offset_bytes(shift_right(raw[k], 2 * g, 3), 1);
            put(to, i / 2, g, i % 2, q);
            to->strips[i / 2].scale[g] = d;
        }
    }
}

#if defined(__AVX512VBMI__)
#include "backend/cpu/cpu_q8_grid.h"
#define GRID_FORMAT(stem, kind, halves) STRIP_FORMAT(stem, 256, 2, true, kind, ANY_OFFSET, halves)
#else
#define GRID_FORMAT(stem, kind, halves) FORMAT(stem, 256, 2, kind, halves)
#endif
GRID_FORMAT(iq2_xxs, any, false);
GRID_FORMAT(iq2_xs, any_halves, true);
GRID_FORMAT(iq2_s, any_halves, true);
GRID_FORMAT(iq3_xxs, any, false);
GRID_FORMAT(iq3_s, any, false);
GRID_FORMAT(iq1_s, any, false);
GRID_FORMAT(iq1_m, any_halves, true);
STRIP_FORMAT(tq2_0, 256, 2, true, offset, 1, false);

#endif
