// Dequantisation of the float types, the 32-value formats and the K formats: the plain definition.
// Formulas and bit layouts: blocks.h. The IQ, ternary and FP4 formats are in dequant_iq.c.
#include "quant/dequant.h"

#include "quant/blocks.h"

void lp_dequant_f32(const void *blocks, float *out, size_t n) {
    if (n) memcpy(out, blocks, n * sizeof *out);
}

void lp_dequant_f16(const void *blocks, float *out, size_t n) {
    const uint8_t *bytes = blocks;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, bytes + 2 * i, sizeof bits);
        out[i] = lp_f16_to_f32(bits);
    }
}

void lp_dequant_bf16(const void *blocks, float *out, size_t n) {
    const uint8_t *bytes = blocks;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, bytes + 2 * i, sizeof bits);
        out[i] = lp_bf16_to_f32(bits);
    }
}

// ---- 32 values

void lp_dequant_q4_0(const void *blocks, float *out, size_t n) {
    const struct lp_block_q4_0 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, out += 32) {
        float d = lp_f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            out[j] = d * (float)((b->qs[j] & 15) - 8);
            out[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
        }
    }
}

void lp_dequant_q4_1(const void *blocks, float *out, size_t n) {
    const struct lp_block_q4_1 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, out += 32) {
        float d = lp_f16_to_f32(b->d), m = lp_f16_to_f32(b->m);
        for (int j = 0; j < 16; j++) {
            out[j] = d * (float)(b->qs[j] & 15) + m;
            out[j + 16] = d * (float)(b->qs[j] >> 4) + m;
        }
    }
}

void lp_dequant_q5_0(const void *blocks, float *out, size_t n) {
    const struct lp_block_q5_0 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, out += 32) {
        float d = lp_f16_to_f32(b->d);
        uint32_t qh = b->qh;
        for (int j = 0; j < 16; j++) {
            int low = (int)((b->qs[j] & 15u) | (qh >> j & 1) << 4);
            int high = (int)((b->qs[j] >> 4) | (qh >> (j + 16) & 1) << 4);
            out[j] = d * (float)(low - 16);
            out[j + 16] = d * (float)(high - 16);
        }
    }
}

void lp_dequant_q5_1(const void *blocks, float *out, size_t n) {
    const struct lp_block_q5_1 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, out += 32) {
        float d = lp_f16_to_f32(b->d), m = lp_f16_to_f32(b->m);
        uint32_t qh = b->qh;
        for (int j = 0; j < 16; j++) {
            int low = (int)((b->qs[j] & 15u) | (qh >> j & 1) << 4);
            int high = (int)((b->qs[j] >> 4) | (qh >> (j + 16) & 1) << 4);
            out[j] = d * (float)low + m;
            out[j + 16] = d * (float)high + m;
        }
    }
}

void lp_dequant_q8_0(const void *blocks, float *out, size_t n) {
    const struct lp_block_q8_0 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, out += 32) {
        float d = lp_f16_to_f32(b->d);
        for (int j = 0; j < 32; j++) out[j] = d * (float)b->qs[j];
    }
}

void lp_dequant_q8_1(const void *blocks, float *out, size_t n) {
    const struct lp_block_q8_1 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, out += 32) {
        float d = lp_f16_to_f32(b->d);
        for (int j = 0; j < 32; j++) out[j] = d * (float)b->qs[j];
    }
}

// ---- K: 256 values

void lp_dequant_q2_k(const void *blocks, float *out, size_t n) {
    const struct lp_block_q2_k *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d), dmin = lp_f16_to_f32(b->dmin);
        for (int v = 0; v < 256; v++) {
            int q = b->qs[32 * (v / 128) + v % 32] >> 2 * (v / 32 % 4) & 3;
            uint8_t s = b->scales[v / 16];
            out[v] = d * (float)((s & 15) * q) - dmin * (float)(s >> 4);
        }
    }
}

void lp_dequant_q3_k(const void *blocks, float *out, size_t n) {
    const struct lp_block_q3_k *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d);
        for (int v = 0; v < 256; v++) {
            int q = b->qs[32 * (v / 128) + v % 32] >> 2 * (v / 32 % 4) & 3;
            if (!(b->hmask[v % 32] >> v / 32 & 1)) q -= 4;
            out[v] = d * (float)(lp_blocks_q3_k_scale(b->scales, v / 16) * q);
        }
    }
}

void lp_dequant_q4_k(const void *blocks, float *out, size_t n) {
    const struct lp_block_q4_k *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d), dmin = lp_f16_to_f32(b->dmin);
        for (int g = 0; g < 8; g++) {
            uint8_t scale, min;
            lp_blocks_k_scale_min(b->scales, g, &scale, &min);
            float s = d * (float)scale, m = dmin * (float)min;
            const uint8_t *qs = b->qs + 32 * (g / 2);
            for (int l = 0; l < 32; l++)
                out[32 * g + l] = s * (float)(qs[l] >> 4 * (g & 1) & 15) - m;
        }
    }
}

void lp_dequant_q5_k(const void *blocks, float *out, size_t n) {
    const struct lp_block_q5_k *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d), dmin = lp_f16_to_f32(b->dmin);
        for (int g = 0; g < 8; g++) {
            uint8_t scale, min;
            lp_blocks_k_scale_min(b->scales, g, &scale, &min);
            float s = d * (float)scale, m = dmin * (float)min;
            const uint8_t *qs = b->qs + 32 * (g / 2);
            for (int l = 0; l < 32; l++) {
                int q = (qs[l] >> 4 * (g & 1) & 15) | (b->qh[l] >> g & 1) << 4;
                out[32 * g + l] = s * (float)q - m;
            }
        }
    }
}

void lp_dequant_q6_k(const void *blocks, float *out, size_t n) {
    const struct lp_block_q6_k *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256) {
        float d = lp_f16_to_f32(b->d);
        for (int half = 0; half < 2; half++)
            for (int k = 0; k < 4; k++)
                for (int l = 0; l < 32; l++) {
                    int low = b->ql[64 * half + 32 * (k & 1) + l] >> 4 * (k / 2) & 15;
                    int up = b->qh[32 * half + l] >> 2 * k & 3;
                    int scale = b->scales[8 * half + 2 * k + l / 16];
                    out[128 * half + 32 * k + l] = d * (float)(scale * ((low | up << 4) - 32));
                }
    }
}

void lp_dequant_q8_k(const void *blocks, float *out, size_t n) {
    const struct lp_block_q8_k *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, out += 256)
        for (int j = 0; j < 256; j++) out[j] = b->d * (float)b->qs[j];
}

void lp_dequant_f8_e4m3(const void *blocks, float *out, size_t n) {
    const struct lp_block_f8_e4m3 *b = blocks;
    for (size_t i = 0; i < n / 128; i++, b++, out += 128)
        for (int j = 0; j < 128; j++) out[j] = b->d * lp_blocks_e4m3(b->q[j]);
}
