// Blocks are filled with random bits; then their scales are set to 1, the root mean square of the
// first few blocks is taken, and the scales become std divided by that.
#include "quant/random_blocks.h"

#include <math.h>

#include "quant/blocks.h"

#define PROBE_BLOCKS 64
#define MOST_BLOCK_VALUES 256

static void f16_at(uint8_t *block, size_t at, float value) {
    uint16_t bits = lp_f32_to_f16(value);
    memcpy(block + at, &bits, sizeof bits);
}

// The block's overall scale; a minimum lies half of the integers' range below, so that the values
// have no mean. Types with scales of 8 bits take the nearest that they have.
static void set_scale(lp_type type, uint8_t *b, float scale) {
    switch (type) {
#define AT(name, block, field)                                                                     \
    case LP_TYPE_##name:                                                                           \
        f16_at(b, offsetof(struct block, field), scale);                                           \
        break;
#define AT2(name, block, field, other, half)                                                       \
    case LP_TYPE_##name:                                                                           \
        f16_at(b, offsetof(struct block, field), scale);                                           \
        f16_at(b, offsetof(struct block, other), (half)*scale);                                    \
        break;
        AT(Q4_0, lp_block_q4_0, d)
        AT2(Q4_1, lp_block_q4_1, d, m, -7.5f)
        AT(Q5_0, lp_block_q5_0, d)
        AT2(Q5_1, lp_block_q5_1, d, m, -15.5f)
        AT(Q8_0, lp_block_q8_0, d)
        AT2(Q2_K, lp_block_q2_k, d, dmin, 1.5f)
        AT(Q3_K, lp_block_q3_k, d)
        AT2(Q4_K, lp_block_q4_k, d, dmin, 7.5f)
        AT2(Q5_K, lp_block_q5_k, d, dmin, 15.5f)
        AT(Q6_K, lp_block_q6_k, d)
        AT(IQ2_XXS, lp_block_iq2_xxs, d)
        AT(IQ2_XS, lp_block_iq2_xs, d)
        AT(IQ2_S, lp_block_iq2_s, d)
        AT(IQ3_XXS, lp_block_iq3_xxs, d)
        AT(IQ3_S, lp_block_iq3_s, d)
        AT(IQ1_S, lp_block_iq1_s, d)
        AT(IQ4_NL, lp_block_iq4_nl, d)
        AT(IQ4_XS, lp_block_iq4_xs, d)
        AT(TQ1_0, lp_block_tq1_0, d)
        AT(TQ2_0, lp_block_tq2_0, d)
        AT(Q1_0, lp_block_q1_0, d)
        AT(Q2_0, lp_block_q2_0, d)
#undef AT
#undef AT2
    case LP_TYPE_IQ1_M: { // the nibbles of an f16, in the top of four u16
        struct lp_block_iq1_m *m = (struct lp_block_iq1_m *)b;
        uint16_t bits = lp_f32_to_f16(scale);
        for (int i = 0; i < 4; i++)
            m->scales[2 * i + 1] =
                (uint8_t)((m->scales[2 * i + 1] & 0x0f) | (bits >> 4 * i & 15) << 4);
        break;
    }
    case LP_TYPE_MXFP4: // 2^(e - 128)
        b[0] = (uint8_t)(128 + (int)lrintf(log2f(scale)));
        break;
    case LP_TYPE_NVFP4: { // half an E4M3: 2^(E - 8) where the mantissa is 0
        int exponent = 8 + (int)lrintf(log2f(scale));
        memset(b, (exponent < 1 ? 1 : exponent > 14 ? 14 : exponent) << 3, 4);
        break;
    }
    case LP_TYPE_F8_E4M3:
        memcpy(b, &scale, sizeof scale);
        break;
    default:
        break;
    }
}

// The scales of a K type's groups are their minimums' too.
static void pair_scales(lp_type type, uint8_t *b) {
    uint8_t *s = b + offsetof(struct lp_block_q4_k, scales);
    if (type == LP_TYPE_Q5_K) s = b + offsetof(struct lp_block_q5_k, scales);
    if (type == LP_TYPE_Q4_K || type == LP_TYPE_Q5_K) { // lp_blocks_k_scale_min
        memcpy(s + 4, s, 4);
        for (int i = 8; i < 12; i++) s[i] = (uint8_t)((s[i] & 15) * 17);
    }
    s = b + offsetof(struct lp_block_q2_k, scales);
    for (int i = 0; type == LP_TYPE_Q2_K && i < 16; i++) s[i] = (uint8_t)((s[i] & 15) * 17);
}

// Bits that stand for something no quantiser writes.
static void mend(lp_type type, uint8_t *b, size_t block_bytes) {
    size_t first = block_bytes, end = block_bytes;
    if (type == LP_TYPE_Q8_0) first = offsetof(struct lp_block_q8_0, qs);
    if (type == LP_TYPE_Q6_K) {
        first = offsetof(struct lp_block_q6_k, scales);
        end = first + sizeof((struct lp_block_q6_k *)0)->scales;
    }
    for (size_t i = first; i < end; i++)
        if (b[i] == 0x80) b[i] = 0x81;
    if (type != LP_TYPE_F8_E4M3) return;
    for (size_t i = offsetof(struct lp_block_f8_e4m3, q); i < block_bytes; i++)
        if ((b[i] & 0x7f) > 0x70) b[i] ^= 0x40; // the top of the range, and NaN
}

static void random_bits(struct lp_rng *rng, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i += 8) {
        uint64_t bits = lp_rng_u64(rng);
        memcpy(out + i, &bits, n - i < 8 ? n - i : 8);
    }
}

static void random_floats(const struct lp_type_info *info, float std, struct lp_rng *rng,
                          uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float value = std * lp_rng_normal(rng);
        info->quantize(&value, out + i * info->block_bytes, 1);
    }
}

bool lp_random_blocks(lp_type type, float std, struct lp_rng *rng, void *blocks, size_t n) {
    const struct lp_type_info *info = lp_type_info((uint32_t)type);
    float values[MOST_BLOCK_VALUES];
    double squares = 0.0;
    uint8_t *out = blocks;
    if (!info || !info->is_weight) return false;
    if (info->block_values == 1) {
        random_floats(info, std, rng, out, n);
        return true;
    }
    size_t n_blocks = n / info->block_values, bytes = info->block_bytes;
    size_t n_probe = n_blocks < PROBE_BLOCKS ? n_blocks : PROBE_BLOCKS;
    random_bits(rng, out, n_blocks * bytes);
    for (size_t i = 0; i < n_blocks; i++) {
        pair_scales(type, out + i * bytes);
        mend(type, out + i * bytes, bytes);
    }
    for (size_t i = 0; i < n_probe; i++) {
        set_scale(type, out + i * bytes, 1.0f);
        info->dequant(out + i * bytes, values, info->block_values);
        for (uint32_t j = 0; j < info->block_values; j++) squares += (double)values[j] * values[j];
    }
    double rms = sqrt(squares / (double)(n_probe * info->block_values));
    bool has_sign = type != LP_TYPE_MXFP4 && type != LP_TYPE_NVFP4;
    uint64_t signs = 0; // of the scales: integers from -8 to 7 have a mean
    for (size_t i = 0; i < n_blocks; i++, signs >>= 1) {
        if (i % 64 == 0) signs = lp_rng_u64(rng);
        float scale = (float)(std / rms);
        set_scale(type, out + i * bytes, has_sign && (signs & 1) ? -scale : scale);
    }
    return true;
}
