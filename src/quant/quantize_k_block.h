// What the types with blocks of 256 do over a block, i.e. over its 8 or 16 lanes: sums, extremes,
// and a scale as f16.
#ifndef LP_QUANT_QUANTIZE_K_BLOCK_H
#define LP_QUANT_QUANTIZE_K_BLOCK_H

#include "quant/quantize_tile.h"

// The f16 scale of a block, in all of its lanes
struct block_scale {
    uint16_t bits[LP_LANES];
    float value[LP_LANES]; // what the bits stand for, of normalised values; 0 if not finite
};

// scale (of normalised values, one for a block) as f16. A subnormal is rounded up: too large a
// scale costs a little accuracy, too small a one clips, or loses all when it is zero. Past the
// range of f16 it is infinite, and NaN for a block that has a value which is not finite.
static inline void block_scale_store(const struct tile *t, int span, const float scale[LP_LANES],
                                     struct block_scale *out) {
    for (int at = 0; at < LP_LANES; at += span) {
        float unit = t->unit[at], wanted = scale[at] * unit, value = 0.0f;
        uint16_t bits = unit > 0.0f ? lp_f32_to_f16(wanted) : unit == 0.0f ? 0 : 0x7e00;
        if ((bits & 0x7c00) == 0 && fabsf(lp_f16_to_f32(bits)) < fabsf(wanted)) bits++;
        if (unit > 0.0f && (bits & 0x7c00) != 0x7c00) value = lp_f16_to_f32(bits) / unit;
        for (int l = at; l < at + span; l++) {
            out->bits[l] = bits;
            out->value[l] = value;
        }
    }
}

static inline void block_scale_copy(struct block_scale *to, const struct block_scale *from, int l) {
    to->bits[l] = from->bits[l];
    to->value[l] = from->value[l];
}

// Each lane becomes the sum of the lanes of its block.
static inline void block_sum(float v[LP_LANES], int span) {
    for (int at = 0; at < LP_LANES; at += span) {
        double sum = 0.0;
        for (int l = at; l < at + span; l++) sum += v[l];
        for (int l = at; l < at + span; l++) v[l] = (float)sum;
    }
}

// ... the one of largest magnitude (the first on ties)
static inline void block_extreme(float v[LP_LANES], int span) {
    for (int at = 0; at < LP_LANES; at += span) {
        float most = 0.0f;
        for (int l = at; l < at + span; l++) most = fabsf(v[l]) > fabsf(most) ? v[l] : most;
        for (int l = at; l < at + span; l++) v[l] = most;
    }
}

#endif
