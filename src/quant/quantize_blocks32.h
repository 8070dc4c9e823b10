// Q4_0, Q5_0, IQ4_NL: blocks of 32 values with one f16 scale, sixteen blocks at a time.
#ifndef LP_QUANT_QUANTIZE_BLOCKS32_H
#define LP_QUANT_QUANTIZE_BLOCKS32_H

#include <stddef.h>

#include "quant/blocks.h"
#include "quant/quantize_scale.h"

struct scales16 {
    uint16_t bits[LP_LANES];
    float value[LP_LANES]; // what the bits stand for, of normalised values; 0 if not finite
};

// The f16 of scale * unit, a subnormal one moved by `step` places; infinite past the range, NaN for
// a block with a value that is not finite. True if a block's scale is subnormal.
static inline bool scales_store(const struct tile *t, vf scale, int step, struct scales16 *out) {
    bool subnormal = false;
    float wanted[LP_LANES];
    v_store(wanted, scale);
    for (int l = 0; l < LP_LANES; l++) {
        uint16_t bits = lp_f32_to_f16(wanted[l] * t->unit[l]);
        if ((bits & 0x7fff) < 0x400 && (bits & 0x7fff) + step >= 0) bits = (uint16_t)(bits + step);
        bool normal = t->unit[l] > 0.0f;
        if (!normal) bits = t->unit[l] == 0.0f ? 0 : 0x7e00;
        subnormal |= normal && (bits & 0x7fff) < 0x400;
        out->bits[l] = bits;
        out->value[l] =
            normal && (bits & 0x7c00) != 0x7c00 ? lp_f16_to_f32(bits) / t->unit[l] : 0.0f;
    }
    return subnormal;
}

// Rounds the scales to f16. Where that is coarse (subnormals) the neighbours are tried too.
static inline void scales_round(const struct tile *t, enum grid grid, vf scale,
                                struct scales16 *s) {
    if (!scales_store(t, scale, 0, s)) return;
    float best[LP_LANES], error[LP_LANES];
    v_store(best, scale_error(t, 32, grid, v_load(s->value)));
    for (int step = -1; step <= 1; step += 2) {
        struct scales16 other;
        scales_store(t, scale, step, &other);
        v_store(error, scale_error(t, 32, grid, v_load(other.value)));
        for (int l = 0; l < LP_LANES; l++) {
            if (!(error[l] < best[l])) continue;
            best[l] = error[l];
            s->bits[l] = other.bits[l];
            s->value[l] = other.value[l];
        }
    }
}

// The next sixteen blocks: their scales and the indices, value j of block l at [j][l]
static inline void blocks32_next(const struct lp_quantize_job *job, size_t first, enum grid grid,
                                 struct scales16 *s, uint8_t q[32][LP_LANES]) {
    struct tile t;
    tile_load(&t, job, 32, 1, first);
    scales_round(&t, grid, scale_search(&t, 32, grid), s);
    vf inverse = v_ratio(v_set1(1.0f), v_load(s->value));
    for (int j = 0; j < 32; j++) grid_store_index(q[j], v_mul(v_load(t.x[j]), inverse), grid);
}

// Low four bits of the values 0 .. 15 and 16 .. 31 of block l
static inline void blocks32_nibbles(uint8_t q[32][LP_LANES], int l, uint8_t qs[16]) {
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)((q[j][l] & 15) | q[j + 16][l] << 4);
}

#define BLOCKS32_EACH(job, first, l)                                                               \
    for (int l = 0; l < LP_LANES && (first) + (size_t)l < (job)->n / 32; l++)

_Static_assert(sizeof(struct lp_block_iq4_nl) == sizeof(struct lp_block_q4_0) &&
                   offsetof(struct lp_block_iq4_nl, qs) == offsetof(struct lp_block_q4_0, qs),
               "Q4_0 and IQ4_NL lay their blocks out alike");

// What four bits mean is all that tells the two types apart.
static inline void quantize_four_bits(const struct lp_quantize_job *job, enum grid grid,
                                      struct lp_block_q4_0 *b) {
    struct scales16 s;
    uint8_t q[32][LP_LANES];
    for (size_t i = 0; i < job->n / 32; i += LP_LANES) {
        blocks32_next(job, i, grid, &s, q);
        BLOCKS32_EACH(job, i, l) {
            b[i + (size_t)l].d = s.bits[l];
            blocks32_nibbles(q, l, b[i + (size_t)l].qs);
        }
    }
}

static inline void quantize_q4_0(const struct lp_quantize_job *job, void *blocks) {
    quantize_four_bits(job, GRID_Q4, blocks);
}

static inline void quantize_iq4_nl(const struct lp_quantize_job *job, void *blocks) {
    quantize_four_bits(job, GRID_CODEBOOK, blocks);
}

static inline void quantize_q5_0(const struct lp_quantize_job *job, void *blocks) {
    struct lp_block_q5_0 *b = blocks;
    struct scales16 s;
    uint8_t q[32][LP_LANES];
    for (size_t i = 0; i < job->n / 32; i += LP_LANES) {
        blocks32_next(job, i, GRID_Q5, &s, q);
        BLOCKS32_EACH(job, i, l) {
            uint32_t fifth = 0;
            for (int j = 0; j < 32; j++) fifth |= (uint32_t)(q[j][l] >> 4) << j;
            b[i + (size_t)l].d = s.bits[l];
            b[i + (size_t)l].qh = fifth;
            blocks32_nibbles(q, l, b[i + (size_t)l].qs);
        }
    }
}

#endif
