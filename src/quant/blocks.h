// The blocks of each quantised type as structs: fields in file order, without padding, at any
// address (packed: a block may lie unaligned in a mapped file). Little-endian, as GGUF files are.
//
// Drawings: one row of a byte is its bits 7..0; "v5" is value 5 of the block. d, m, dmin: f16.
#ifndef LP_QUANT_BLOCKS_H
#define LP_QUANT_BLOCKS_H

#include <stdint.h>
#include <string.h>

#include "quant/quant.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "blocks are read in place; a big-endian machine would need byte swaps in every reader"
#endif

// LP_BLOCK_VALUES_Q4_K, LP_BLOCK_BYTES_Q4_K, ... : the sizes of quant.h's list as constants
enum {
#define LP_BLOCK_SIZES(name, id, values, bytes)                                                    \
    LP_BLOCK_VALUES_##name = values, LP_BLOCK_BYTES_##name = bytes,
    LP_TYPE_LIST(LP_BLOCK_SIZES)
#undef LP_BLOCK_SIZES
};

#ifdef __cplusplus
#define LP_BLOCK_CHECK(type, name) static_assert(sizeof(struct type) == LP_BLOCK_BYTES_##name, #name)
#else
#define LP_BLOCK_CHECK(type, name) _Static_assert(sizeof(struct type) == LP_BLOCK_BYTES_##name, #name)
#endif
#define LP_BLOCK_PACKED __attribute__((packed))

// ---- 32 values -------------------------------------------------------------------------------

// 4-bit values of these formats:  qs[j] = | v(j+16) | v(j) |,  j = 0..15
struct lp_block_q4_0 { uint16_t d; uint8_t qs[16]; } LP_BLOCK_PACKED;             // d (q - 8)
struct lp_block_q4_1 { uint16_t d, m; uint8_t qs[16]; } LP_BLOCK_PACKED;          // d q + m
// The fifth bit of value j is bit j of qh, j = 0..31.
struct lp_block_q5_0 { uint16_t d; uint32_t qh; uint8_t qs[16]; } LP_BLOCK_PACKED;    // d (q - 16)
struct lp_block_q5_1 { uint16_t d, m; uint32_t qh; uint8_t qs[16]; } LP_BLOCK_PACKED; // d q + m
struct lp_block_q8_0 { uint16_t d; int8_t qs[32]; } LP_BLOCK_PACKED;              // d q
struct lp_block_q8_1 { uint16_t d, s; int8_t qs[32]; } LP_BLOCK_PACKED;           // d q; s = d sum q
struct lp_block_iq4_nl { uint16_t d; uint8_t qs[16]; } LP_BLOCK_PACKED;           // d K[q]
struct lp_block_mxfp4 { uint8_t e; uint8_t qs[16]; } LP_BLOCK_PACKED;             // 2^(e-128) M[q]

LP_BLOCK_CHECK(lp_block_q4_0, Q4_0);
LP_BLOCK_CHECK(lp_block_q4_1, Q4_1);
LP_BLOCK_CHECK(lp_block_q5_0, Q5_0);
LP_BLOCK_CHECK(lp_block_q5_1, Q5_1);
LP_BLOCK_CHECK(lp_block_q8_0, Q8_0);
LP_BLOCK_CHECK(lp_block_q8_1, Q8_1);
LP_BLOCK_CHECK(lp_block_iq4_nl, IQ4_NL);
LP_BLOCK_CHECK(lp_block_mxfp4, MXFP4);

// ---- 64 and 128 values -----------------------------------------------------------------------

// Four sub-blocks of 16 values, each with an unsigned E4M3 scale (lp_blocks_nvfp4_scale):
//   qs[8s + j] = | v(16s+8+j) | v(16s+j) |,  s = 0..3, j = 0..7;   y = scale(d[s]) M[q]
struct lp_block_nvfp4 { uint8_t d[4]; uint8_t qs[32]; } LP_BLOCK_PACKED;
// qs[i] = | v(8i+7) ... v(8i) |, one bit each: 1 is +d, 0 is -d
struct lp_block_q1_0 { uint16_t d; uint8_t qs[16]; } LP_BLOCK_PACKED;
// qs[i] = | v(4i+3) | v(4i+2) | v(4i+1) | v(4i) |, two bits each: d (q - 1)
struct lp_block_q2_0 { uint16_t d; uint8_t qs[16]; } LP_BLOCK_PACKED;
// One row segment of an FP8 checkpoint with the scale of its 128 x 128 block, or 128 values of a row of an
// FP8 cache: y = d E4M3(q)
struct lp_block_f8_e4m3 { float d; uint8_t q[128]; } LP_BLOCK_PACKED;

LP_BLOCK_CHECK(lp_block_f8_e4m3, F8_E4M3);
LP_BLOCK_CHECK(lp_block_nvfp4, NVFP4);
LP_BLOCK_CHECK(lp_block_q1_0, Q1_0);
LP_BLOCK_CHECK(lp_block_q2_0, Q2_0);

// ---- K: 256 values ---------------------------------------------------------------------------

// Two-bit parts of Q2_K and Q3_K, half n = 0,1 of 128 values, i = 0..31:
//   qs[32n + i] = | v(128n+96+i) | v(128n+64+i) | v(128n+32+i) | v(128n+i) |
// Group k = 0..15 is values 16k .. 16k+15.
struct lp_block_q2_k { // y = d lo(scales[k]) q - dmin hi(scales[k])
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d, dmin;
} LP_BLOCK_PACKED;

// hmask[i] bit b: value 32b + i; a clear bit subtracts 4.
struct lp_block_q3_k { // y = d (scale[k] - 32) (q - (hmask bit ? 0 : 4))
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12]; // lp_blocks_q3_k_scale
    uint16_t d;
} LP_BLOCK_PACKED;

// Four-bit parts of Q4_K and Q5_K, pair p = 0..3 of groups of 32, l = 0..31:
//   qs[32p + l] = | v(64p+32+l) | v(64p+l) |
// scales: eight 6-bit scales s and mins m, one a group (lp_blocks_k_scale_min):
//   byte j   (j = 0..3) = | s(j+4) bits 5,4 | s(j)               |
//   byte j+4            = | m(j+4) bits 5,4 | m(j)               |
//   byte j+8            = | m(j+4) bits 3..0 | s(j+4) bits 3..0  |
struct lp_block_q4_k { // y = d s q - dmin m
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
} LP_BLOCK_PACKED;

// qh[l] bit g: fifth bit of value 32g + l.
struct lp_block_q5_k { // y = d s q - dmin m
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} LP_BLOCK_PACKED;

// Half n = 0,1, l = 0..31, c = 0,1:
//   ql[64n + 32c + l] = | v(128n+64+32c+l) bits 3..0 | v(128n+32c+l) bits 3..0 |
//   qh[32n + l] = | v(128n+96+l) | v(128n+64+l) | v(128n+32+l) | v(128n+l) |, bits 5,4 of each
struct lp_block_q6_k { // y = d scales[k] (q - 32), groups of 16
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
} LP_BLOCK_PACKED;

struct lp_block_q8_k { // y = d q; the partner of the K and IQ formats in integer dot products
    float d;
    int8_t qs[256];
    int16_t bsums[16]; // sum of qs[16i .. 16i+15]
} LP_BLOCK_PACKED;

LP_BLOCK_CHECK(lp_block_q2_k, Q2_K);
LP_BLOCK_CHECK(lp_block_q3_k, Q3_K);
LP_BLOCK_CHECK(lp_block_q4_k, Q4_K);
LP_BLOCK_CHECK(lp_block_q5_k, Q5_K);
LP_BLOCK_CHECK(lp_block_q6_k, Q6_K);
LP_BLOCK_CHECK(lp_block_q8_k, Q8_K);

// ---- IQ and ternary: 256 values --------------------------------------------------------------

// Group g = 0..7 is values 32g .. 32g+31; its octet l = 0..3 is values 32g+8l .. 32g+8l+7, one
// entry of an 8-wide grid or two of a 4-wide one. aux of IQ2_XXS and IQ3_XXS:
//   | scale 31..28 | signs l=3, 27..21 | l=2, 20..14 | l=1, 13..7 | l=0, 6..0 |
struct lp_block_iq2_xxs {
    uint16_t d;
    struct { uint8_t idx[4]; uint32_t aux; } LP_BLOCK_PACKED groups[8];
} LP_BLOCK_PACKED;
struct lp_block_iq2_xs {
    uint16_t d;
    uint16_t qs[32];   // qs[4g + l] = | sign code 15..9 | grid index 8..0 |
    uint8_t scales[8]; // scales[g] = | octets 2, 3 | octets 0, 1 |
} LP_BLOCK_PACKED;
struct lp_block_iq2_s {
    uint16_t d;
    uint8_t qs[32];    // qs[4g + l]: grid index bits 7..0
    uint8_t signs[32]; // signs[4g + l]: sign byte
    uint8_t qh[8];     // qh[g] bits 2l+1, 2l: grid index bits 9, 8
    uint8_t scales[8];
} LP_BLOCK_PACKED;
struct lp_block_iq3_xxs {
    uint16_t d;
    uint8_t qs[64]; // qs[8g + 2l], qs[8g + 2l + 1]: the two grid indices of an octet
    uint32_t aux[8];
} LP_BLOCK_PACKED;
struct lp_block_iq3_s {
    uint16_t d;
    uint8_t qs[64];
    uint8_t qh[8]; // qh[g] bit i: bit 8 of the index qs[8g + i]
    uint8_t signs[32];
    uint8_t scales[4]; // scales[i] = | group 2i+1 | group 2i |
} LP_BLOCK_PACKED;
struct lp_block_iq1_s {
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8]; // | delta sign 15 | scale 14..12 | index bits 10..8 of octets 3, 2, 1, 0 |
} LP_BLOCK_PACKED;
struct lp_block_iq1_m {
    uint8_t qs[32];
    uint8_t qh[16];    // nibble l of group g: | delta sign 3 | index bits 10..8 |
    uint8_t scales[8]; // four u16: | 4 bits of d | four 3-bit scales |; lp_blocks_iq1_m_d
} LP_BLOCK_PACKED;
struct lp_block_iq4_xs {
    uint16_t d;
    uint16_t scales_h;   // bits 2g+1, 2g: scale bits 5, 4 of group g
    uint8_t scales_l[4]; // scales_l[i] = | group 2i+1 | group 2i |, scale bits 3..0
    uint8_t qs[128];     // qs[16g + j] = | v(32g+16+j) | v(32g+j) |
} LP_BLOCK_PACKED;
// Five (qh: four) base-3 digits a byte, the most significant first.
struct lp_block_tq1_0 { uint8_t qs[48]; uint8_t qh[4]; uint16_t d; } LP_BLOCK_PACKED; // d (q - 1)
// Two-bit values laid out as in Q2_K.
struct lp_block_tq2_0 { uint8_t qs[64]; uint16_t d; } LP_BLOCK_PACKED;                // d (q - 1)

LP_BLOCK_CHECK(lp_block_iq2_xxs, IQ2_XXS);
LP_BLOCK_CHECK(lp_block_iq2_xs, IQ2_XS);
LP_BLOCK_CHECK(lp_block_iq2_s, IQ2_S);
LP_BLOCK_CHECK(lp_block_iq3_xxs, IQ3_XXS);
LP_BLOCK_CHECK(lp_block_iq3_s, IQ3_S);
LP_BLOCK_CHECK(lp_block_iq1_s, IQ1_S);
LP_BLOCK_CHECK(lp_block_iq1_m, IQ1_M);
LP_BLOCK_CHECK(lp_block_iq4_xs, IQ4_XS);
LP_BLOCK_CHECK(lp_block_tq1_0, TQ1_0);
LP_BLOCK_CHECK(lp_block_tq2_0, TQ2_0);

// ---- scales that are packed oddly ------------------------------------------------------------

// 6-bit scale and min of group j = 0..7 of Q4_K and Q5_K
static inline void lp_blocks_k_scale_min(const uint8_t s[12], int j, uint8_t *scale, uint8_t *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (uint8_t)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
        *min = (uint8_t)((s[j + 4] >> 4) | (s[j] >> 6) << 4);
    }
}

// 6-bit scale of group k = 0..15 of Q3_K, already minus 32
static inline int lp_blocks_q3_k_scale(const uint8_t s[12], int k) {
    int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4;
    int up = (s[8 + (k & 3)] >> 2 * (k >> 2)) & 3;
    return (low | up << 4) - 32;
}

// The bits of IQ1_M's f16 d: the top nibbles of its four u16, lowest first
static inline uint16_t lp_blocks_iq1_m_d(const uint8_t s[8]) {
    return (uint16_t)(s[1] >> 4 | (s[3] >> 4) << 4 | (s[5] >> 4) << 8 | (s[7] >> 4) << 12);
}

// 2^(e - 128): MXFP4's scale, halved because M holds twice the E2M1 values
static inline float lp_blocks_mxfp4_scale(uint8_t e) {
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

// Half the unsigned E4M3 value of a byte: NVFP4's scale. 0x7f is 0; otherwise bit 7 is ignored, so
// that 0xff is 240 (as in the gguf Python package).
static inline float lp_blocks_nvfp4_scale(uint8_t b) {
    int exponent = (b >> 3) & 15, mantissa = b & 7;
    if (b == 0x7f) return 0.0f;
    if (exponent == 0) return (float)mantissa * 0x1p-10f;
    uint32_t bits = (uint32_t)(exponent - 8 + 127) << 23 | (uint32_t)mantissa << 20;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

// The value of an OCP E4M3 byte (the "fn" kind: no infinities; 0x7f and 0xff are NaN): 1 sign bit,
// 4 of exponent (bias 7), 3 of mantissa.
static inline float lp_blocks_e4m3(uint8_t b) {
    uint32_t exponent = (b >> 3) & 15, mantissa = b & 7, sign = (uint32_t)(b & 0x80) << 24;
    float value;
    uint32_t bits;
    if ((b & 0x7f) == 0x7f)
        bits = 0x7fc00000u;
    else if (exponent == 0) {
        value = (float)mantissa * 0x1p-9f;
        memcpy(&bits, &value, sizeof bits);
    } else
        bits = (exponent - 7 + 127) << 23 | mantissa << 20;
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The nearest E4M3 byte, of two equally near the one with an even mantissa; +-448 for all that is
// larger, NaN for NaN. Without branches, so that a loop over it can be made of vectors.
static inline uint8_t lp_blocks_to_e4m3(float value) {
    uint32_t bits, size, low, normal;
    memcpy(&bits, &value, sizeof bits);
    size = bits & 0x7fffffffu;
    const bool nan = size > 0x7f800000u;
    size = size < 0x43e00000u ? size : 0x43e00000u; // 448
    // From 2^-6 on: three of the 23 bits stay, and a carry moves on into the exponent.
    normal = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120 << 3);
    // Below: steps of 2^-9, which are the last bit of floats from 2^14 on.
    memcpy(&value, &size, sizeof value);
    value += 0x1p14f;
    memcpy(&low, &value, sizeof low);
    low -= 0x46800000u;
    uint32_t byte = size < 0x3c800000u ? low : normal;
    byte = nan ? 0x7f : byte;
    return (uint8_t)(byte | (bits >> 24 & 0x80));
}

#endif
