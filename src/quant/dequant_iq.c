// Dequantisation of the codebook (IQ), ternary and FP4 formats: the plain definition. Bit layouts:
// blocks.h; tables: codebooks.h.
#include "quant/dequant.h"

#include "quant/blocks.h"
#include "quant/codebooks.h"

static float sign_of(uint8_t signs, int j) {
    return signs >> j & 1 ? -1.0f : 1.0f;
}

// Eight values of an 8-wide grid entry: out[j] = scale * entry[j], negative where the sign bit is
// set
static void put_octet(float *out, uint64_t entry, uint8_t signs, float scale) {
    for (int j = 0; j < 8; j++)
        out[j] = scale * (float)(int8_t)(entry >> 8 * j) * sign_of(signs, j);
}

static uint64_t join(uint32_t low, uint32_t high) {
    return low | (uint64_t)high << 32;
}

void lp_dequant_iq2_xxs(const void *blocks, float *out, size_t n) {
    const struct lp_block_iq2_xxs *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d);
        for (int g = 0; g < 8; g++) {
            uint32_t aux = b->groups[g].aux;
            float scale = d * (0.5f + (float)(aux >> 28)) * 0.25f;
            for (int l = 0; l < 4; l++)
                put_octet(out + 32 * g + 8 * l, lp_codebooks_iq2xxs[b->groups[g].idx[l]],
                          lp_codebooks_signs[aux >> 7 * l & 127], scale);
        }
    }
}

// The scale of octet l of a group of IQ2_XS and IQ2_S
static float iq2_scale(float d, uint8_t scales, int l) {
    return d * (0.5f + (float)(l < 2 ? scales & 15 : scales >> 4)) * 0.25f;
}

void lp_dequant_iq2_xs(const void *blocks, float *out, size_t n) {
    const struct lp_block_iq2_xs *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d);
        for (int o = 0; o < 32; o++) {
            uint16_t w = b->qs[o];
            put_octet(out + 8 * o, lp_codebooks_iq2xs[w & 511], lp_codebooks_signs[w >> 9],
                      iq2_scale(d, b->scales[o / 4], o % 4));
        }
    }
}

void lp_dequant_iq2_s(const void *blocks, float *out, size_t n) {
    const struct lp_block_iq2_s *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d);
        for (int o = 0; o < 32; o++) {
            int index = b->qs[o] | (b->qh[o / 4] >> 2 * (o % 4) & 3) << 8;
            put_octet(out + 8 * o, lp_codebooks_iq2s[index], b->signs[o],
                      iq2_scale(d, b->scales[o / 4], o % 4));
        }
    }
}

void lp_dequant_iq3_xxs(const void *blocks, float *out, size_t n) {
    const struct lp_block_iq3_xxs *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d);
        for (int o = 0; o < 32; o++) {
            uint32_t aux = b->aux[o / 4];
            uint64_t entry =
                join(lp_codebooks_iq3xxs[b->qs[2 * o]], lp_codebooks_iq3xxs[b->qs[2 * o + 1]]);
            put_octet(out + 8 * o, entry, lp_codebooks_signs[aux >> 7 * (o % 4) & 127],
                      d * (0.5f + (float)(aux >> 28)) * 0.5f);
        }
    }
}

void lp_dequant_iq3_s(const void *blocks, float *out, size_t n) {
    const struct lp_block_iq3_s *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d);
        for (int o = 0; o < 32; o++) {
            int g = o / 4, l = o % 4;
            int first = b->qs[2 * o] | (b->qh[g] >> 2 * l & 1) << 8;
            int second = b->qs[2 * o + 1] | (b->qh[g] >> (2 * l + 1) & 1) << 8;
            int scale = b->scales[g / 2] >> 4 * (g & 1) & 15;
            put_octet(out + 8 * o, join(lp_codebooks_iq3s[first], lp_codebooks_iq3s[second]),
                      b->signs[o], d * (float)(1 + 2 * scale));
        }
    }
}

// Eight values of IQ1_S and IQ1_M: scale * (entry +- 1/8)
static void put_iq1_octet(float *out, int index, bool negative_delta, float scale) {
    uint64_t entry = lp_codebooks_iq1s[index];
    float delta = negative_delta ? -0.125f : 0.125f;
    for (int j = 0; j < 8; j++) out[j] = scale * ((float)(int8_t)(entry >> 8 * j) + delta);
}

void lp_dequant_iq1_s(const void *blocks, float *out, size_t n) {
    const struct lp_block_iq1_s *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d);
        for (int o = 0; o < 32; o++) {
            uint16_t qh = b->qh[o / 4];
            int index = b->qs[o] | (qh >> 3 * (o % 4) & 7) << 8;
            put_iq1_octet(out + 8 * o, index, qh >> 15, d * (float)(2 * (qh >> 12 & 7) + 1));
        }
    }
}

void lp_dequant_iq1_m(const void *blocks, float *out, size_t n) {
    const struct lp_block_iq1_m *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(lp_blocks_iq1_m_d(b->scales));
        for (int o = 0; o < 32; o++) {
            // two octets share a 3-bit scale; a u16 of scales holds four of them, i.e. two groups
            int pair = o / 2, nibble = b->qh[pair] >> 4 * (o & 1) & 15;
            int word = b->scales[2 * (pair / 4)] | b->scales[2 * (pair / 4) + 1] << 8;
            int scale = word >> 3 * (pair % 4) & 7;
            put_iq1_octet(out + 8 * o, b->qs[o] | (nibble & 7) << 8, nibble & 8,
                          d * (float)(2 * scale + 1));
        }
    }
}

// 16 bytes of nibbles through a table of 16: low nibbles first, then high ones
static void put_table(float *out, const uint8_t *qs, int n_bytes, const int8_t table[16],
                      float scale) {
    for (int j = 0; j < n_bytes; j++) {
        out[j] = scale * (float)table[qs[j] & 15];
        out[j + n_bytes] = scale * (float)table[qs[j] >> 4];
    }
}

void lp_dequant_iq4_nl(const void *blocks, float *out, size_t n) {
    const struct lp_block_iq4_nl *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, out += 32)
        put_table(out, b->qs, 16, lp_codebooks_iq4_nl, lp_f16_to_f32(b->d));
}

void lp_dequant_iq4_xs(const void *blocks, float *out, size_t n) {
    const struct lp_block_iq4_xs *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d);
        for (int g = 0; g < 8; g++) {
            int scale = (b->scales_l[g / 2] >> 4 * (g & 1) & 15) | (b->scales_h >> 2 * g & 3) << 4;
            put_table(out + 32 * g, b->qs + 16 * g, 16, lp_codebooks_iq4_nl,
                      d * (float)(scale - 32));
        }
    }
}

void lp_dequant_mxfp4(const void *blocks, float *out, size_t n) {
    const struct lp_block_mxfp4 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, out += 32)
        put_table(out, b->qs, 16, lp_codebooks_fp4, lp_blocks_mxfp4_scale(b->e));
}

void lp_dequant_nvfp4(const void *blocks, float *out, size_t n) {
    const struct lp_block_nvfp4 *b = blocks;
    for (size_t i = 0; i < n / 64; i++, b++, out += 64)
        for (int s = 0; s < 4; s++)
            put_table(out + 16 * s, b->qs + 8 * s, 8, lp_codebooks_fp4,
                      lp_blocks_nvfp4_scale(b->d[s]));
}

// ---- one, two and log2(3) bits

void lp_dequant_q1_0(const void *blocks, float *out, size_t n) {
    const struct lp_block_q1_0 *b = blocks;
    for (size_t i = 0; i < n / 128; i++, b++, out += 128) {
        float d = lp_f16_to_f32(b->d);
        for (int j = 0; j < 128; j++) out[j] = b->qs[j / 8] >> j % 8 & 1 ? d : -d;
    }
}

void lp_dequant_q2_0(const void *blocks, float *out, size_t n) {
    const struct lp_block_q2_0 *b = blocks;
    for (size_t i = 0; i < n / 64; i++, b++, out += 64) {
        float d = lp_f16_to_f32(b->d);
        for (int j = 0; j < 64; j++) out[j] = d * (float)((b->qs[j / 4] >> 2 * (j % 4) & 3) - 1);
    }
}

// Digit k (0 = most significant) of the byte's base-3 fraction, minus 1
static float trit(uint8_t byte, int k) {
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    uint8_t shifted = (uint8_t)(byte * pow3[k]);
    return (float)((shifted * 3 >> 8) - 1);
}

void lp_dequant_tq1_0(const void *blocks, float *out, size_t n) {
    const struct lp_block_tq1_0 *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++) {
        float d = lp_f16_to_f32(b->d);
        for (int k = 0; k < 5; k++)
            for (int j = 0; j < 32; j++) *out++ = d * trit(b->qs[j], k);
        for (int k = 0; k < 5; k++)
            for (int j = 32; j < 48; j++) *out++ = d * trit(b->qs[j], k);
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < 4; j++) *out++ = d * trit(b->qh[j], k);
    }
}

void lp_dequant_tq2_0(const void *blocks, float *out, size_t n) {
    const struct lp_block_tq2_0 *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d);
        for (int v = 0; v < 256; v++)
            out[v] = d * (float)((b->qs[32 * (v / 128) + v % 32] >> 2 * (v / 32 % 4) & 3) - 1);
    }
}
