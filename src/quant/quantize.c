// Quantisers that follow a fixed rule: the float types and the 8-bit formats, which are also the
// activation formats of integer dot products. Rounding is that of the format's reference code, so
// the bytes are the same everywhere.
#include "quant/quantize.h"

#include <math.h>

#include "quant/blocks.h"

void lp_quantize_f32(const float *in, void *blocks, size_t n) {
    if (n) memcpy(blocks, in, n * sizeof *in);
}

void lp_quantize_f16(const float *in, void *blocks, size_t n) {
    uint8_t *bytes = blocks;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = lp_f32_to_f16(in[i]);
        memcpy(bytes + 2 * i, &bits, sizeof bits);
    }
}

void lp_quantize_bf16(const float *in, void *blocks, size_t n) {
    uint8_t *bytes = blocks;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = lp_f32_to_bf16(in[i]);
        memcpy(bytes + 2 * i, &bits, sizeof bits);
    }
}

// Half away from zero, as roundf; exact because the half is added in double. |v| < 2^31.
static int round_away(float v) {
    return (int)((double)v + (v < 0 ? -0.5 : 0.5));
}

// The integers of Q8_0 and Q8_1 for 32 values. Returns the float32 scale: max|x| / 127; NaN (and
// zeros) when a value is not finite. Divides by the unrounded scale.
static float round_32(const float *x, int8_t q[32]) {
    float largest = 0.0f;
    bool finite = true;
    for (int j = 0; j < 32; j++) {
        finite &= isfinite(x[j]) != 0;
        largest = fabsf(x[j]) > largest ? fabsf(x[j]) : largest;
    }
    float d = largest / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    // 1/d overflows only for a d that is zero as f16 anyway
    if (!finite || isinf(inverse)) inverse = 0.0f;
    for (int j = 0; j < 32; j++) q[j] = finite ? (int8_t)round_away(x[j] * inverse) : 0;
    return finite ? d : NAN;
}

void lp_quantize_q8_0(const float *in, void *blocks, size_t n) {
    struct lp_block_q8_0 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, in += 32) b->d = lp_f32_to_f16(round_32(in, b->qs));
}

void lp_quantize_q8_1(const float *in, void *blocks, size_t n) {
    struct lp_block_q8_1 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, in += 32) {
        float d = round_32(in, b->qs);
        int sum = 0;
        for (int j = 0; j < 32; j++) sum += b->qs[j];
        b->d = lp_f32_to_f16(d);
        b->s = lp_f32_to_f16(d * (float)sum);
    }
}

// The largest magnitude becomes 448. Dividing by the rounded scale, and correctly, takes the scale's own
// rounding out of the result; where the scale is so small that it has lost digits, values past 448 stay
// there. A scale that is zero makes zeros.
void lp_quantize_f8_e4m3(const float *in, void *blocks, size_t n) {
    struct lp_block_f8_e4m3 *b = blocks;
    for (size_t i = 0; i < n / 128; i++, b++, in += 128) {
        float largest = 0.0f;
        bool finite = true;
        for (int j = 0; j < 128; j++) {
            finite &= isfinite(in[j]) != 0;
            largest = fabsf(in[j]) > largest ? fabsf(in[j]) : largest;
        }
        const float d = largest / 448.0f;
        b->d = finite ? d : NAN;
        if (!finite || d == 0)
            memset(b->q, 0, sizeof b->q);
        else
            for (int j = 0; j < 128; j++) b->q[j] = lp_blocks_to_e4m3(in[j] / d);
    }
}

// The value of largest magnitude (the first on ties) becomes exactly -127.
void lp_quantize_q8_k(const float *in, void *blocks, size_t n) {
    struct lp_block_q8_k *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, in += 256) {
        float largest = 0.0f;
        bool finite = true;
        for (int j = 0; j < 256; j++) {
            finite &= isfinite(in[j]) != 0;
            if (fabsf(in[j]) > fabsf(largest)) largest = in[j];
        }
        memset(b, 0, sizeof *b);
        float inverse = -127.0f / largest;
        if (!finite) b->d = NAN;
        if (!finite || !isfinite(inverse)) continue;
        b->d = 1.0f / inverse;
        for (int j = 0; j < 256; j++) {
            // adding 1.5 * 2^23 rounds to the nearest integer, ties to even
            int q = (int)((inverse * in[j] + 0x1.8p23f) - 0x1.8p23f);
            b->qs[j] = (int8_t)(q < 127 ? q : 127);
            b->bsums[j / 16] = (int16_t)(b->bsums[j / 16] + b->qs[j]);
        }
    }
}
