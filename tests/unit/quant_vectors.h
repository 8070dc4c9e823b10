// Test input of the block formats: the published one-block vectors, pseudo-random blocks with finite
// scales, and the CRC-32 (polynomial of zip) that names their results. Where the scale fields lie is
// typed here a second time, from the format's description, so as not to trust blocks.h.
#ifndef QUANT_VECTORS_H
#define QUANT_VECTORS_H

#include <string.h>

#include "quant/quant.h"

#define MAX_BLOCK_VALUES 256
#define MAX_BLOCK_BYTES 292

// f16 scale fields of a block: bytes from its start, -1 = none
struct scale_fields {
    lp_type type;
    int d, min;
};

static const struct scale_fields scale_fields[] = {
    {LP_TYPE_F16, 0, -1},       {LP_TYPE_Q4_0, 0, -1},     {LP_TYPE_Q4_1, 0, 2},
    {LP_TYPE_Q5_0, 0, -1},      {LP_TYPE_Q5_1, 0, 2},      {LP_TYPE_Q8_0, 0, -1},
    {LP_TYPE_Q8_1, 0, 2},       {LP_TYPE_Q2_K, 80, 82},    {LP_TYPE_Q3_K, 108, -1},
    {LP_TYPE_Q4_K, 0, 2},       {LP_TYPE_Q5_K, 0, 2},      {LP_TYPE_Q6_K, 208, -1},
    {LP_TYPE_IQ2_XXS, 0, -1},   {LP_TYPE_IQ2_XS, 0, -1},   {LP_TYPE_IQ2_S, 0, -1},
    {LP_TYPE_IQ3_XXS, 0, -1},   {LP_TYPE_IQ3_S, 0, -1},    {LP_TYPE_IQ1_S, 0, -1},
    {LP_TYPE_IQ4_NL, 0, -1},    {LP_TYPE_IQ4_XS, 0, -1},   {LP_TYPE_TQ1_0, 52, -1},
    {LP_TYPE_TQ2_0, 64, -1},    {LP_TYPE_Q1_0, 0, -1},     {LP_TYPE_Q2_0, 0, -1},
};
#define N_SCALE_FIELDS (sizeof scale_fields / sizeof scale_fields[0])

static inline const struct scale_fields *scale_fields_of(lp_type type) {
    for (size_t i = 0; i < N_SCALE_FIELDS; i++)
        if (scale_fields[i].type == type) return &scale_fields[i];
    return NULL;
}

static inline uint32_t crc32_of(const void *data, size_t n) {
    const uint8_t *bytes = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

// CRC over float32 values with -0 turned into +0
static inline uint32_t crc32_of_floats(float *values, size_t n) {
    for (size_t i = 0; i < n; i++) values[i] += 0.0f;
    return crc32_of(values, n * sizeof *values);
}

static inline void put_u16(uint8_t *at, uint16_t bits) { memcpy(at, &bits, sizeof bits); }

// The published input block: byte i = (73 i + 41 + 29 (i / 32)) mod 256, then fixed scales.
static inline void published_block(lp_type type, uint8_t *block) {
    size_t n_bytes = lp_type_info(type)->block_bytes;
    for (size_t i = 0; i < n_bytes; i++) block[i] = (uint8_t)(73 * i + 41 + 29 * (i / 32));
    const struct scale_fields *fields = scale_fields_of(type);
    if (fields) put_u16(block + fields->d, 0x2800);
    if (fields && fields->min >= 0 && type != LP_TYPE_Q8_1)
        put_u16(block + fields->min, type == LP_TYPE_Q4_1 || type == LP_TYPE_Q5_1 ? 0xb400 : 0x2400);
    if (type == LP_TYPE_Q8_K) {
        float d = 0.03125f;
        memcpy(block, &d, sizeof d);
    }
    if (type == LP_TYPE_MXFP4) block[0] = 122;
    if (type == LP_TYPE_IQ1_M)
        for (int k = 0; k < 4; k++) // d = 0x2800, lowest nibble first
            block[49 + 2 * k] = (uint8_t)((block[49 + 2 * k] & 15) | (0x2800 >> 4 * k & 15) << 4);
}

// Pseudo-random blocks: the top bytes of a linear congruential generator (seed = the type's id); then
// each f16 scale field gets an exponent of 8 .. 23. tests/tools/quant_vectors.py makes the same ones.
static inline void random_blocks(lp_type type, uint8_t *blocks, size_t n_blocks) {
    size_t n_bytes = lp_type_info(type)->block_bytes;
    uint32_t state = (uint32_t)type;
    for (size_t i = 0; i < n_blocks * n_bytes; i++) {
        state = state * 1664525u + 1013904223u;
        blocks[i] = (uint8_t)(state >> 24);
    }
    const struct scale_fields *fields = scale_fields_of(type);
    for (size_t b = 0; b < n_blocks; b++) {
        uint8_t *block = blocks + b * n_bytes;
        for (int k = 0; fields && k < 2; k++) {
            int at = k ? fields->min : fields->d;
            if (at < 0) continue;
            uint16_t bits;
            memcpy(&bits, block + at, sizeof bits);
            put_u16(block + at, (uint16_t)((bits & 0x83ff) | (8 + (bits >> 10 & 15)) << 10));
        }
        if (type == LP_TYPE_IQ1_M) block[55] = (uint8_t)((block[55] & 15) | 0x20);
    }
}

#endif
