// What a search works on: sixteen groups of 16 or 32 values side by side, value j of group l at
// [j][l], with the weight of its squared error.
//
// The values of a block are multiplied by a power of two, so that the largest is in [1, 2): exact,
// and squares neither overflow nor vanish; its weights likewise. A lane holds nothing of another
// block, so that the bytes of a block do not depend on which blocks are quantised with it.
#ifndef LP_QUANT_QUANTIZE_TILE_H
#define LP_QUANT_QUANTIZE_TILE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "quant/quant.h"
#include "quant/quantize_lanes.h"
#include "quant/quantize_search.h"

struct tile {
    float x[32][LP_LANES];
    float w[32][LP_LANES]; // > 0; 1 where no importance is known
    // x times this is the input: a power of two; 0 for a block whose values are below every f16 (or
    // that is not there), NaN for one with a value that is not finite. Of those two x is 0.
    float unit[LP_LANES];
    bool weighted; // w is not 1 everywhere
};

// What the weights of values without any importance have, beside 1 .. 2 for the largest of the
// block: they follow the others, but a group of nothing else is still stored.
#define TILE_LEAST_WEIGHT 0x1p-40f

static inline float tile_power(uint32_t exponent) { // 2^(exponent - 127)
    uint32_t bits = exponent ? exponent << 23 : 1u << 22;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

// The power of two that brings v > 0 into [1, 2) (a subnormal: below 2), and its inverse
static inline float tile_factor(float v, float *inverse) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint32_t exponent = bits >> 23 & 0xff;
    *inverse = tile_power(exponent);
    return tile_power(254 - exponent);
}

// out[j][l] = from[l][j]
static inline void tile_transpose(const float *const from[LP_LANES], int size,
                                  float (*out)[LP_LANES]) {
    for (int l = 0; l < LP_LANES; l += 4)
        for (int j = 0; j < size; j += 4) {
            const float *const four[4] = {from[l] + j, from[l + 1] + j, from[l + 2] + j,
                                          from[l + 3] + j};
            float corner[4][LP_LANES];
            v_transpose4(four, corner);
            for (int i = 0; i < 4; i++) memcpy(&out[j + i][l], corner[i], 4 * sizeof(float));
        }
}

// The largest magnitude of each block, in all of its lanes; NaN where a value is not finite
static inline void tile_largest(float (*v)[LP_LANES], int size, int span, float largest[LP_LANES]) {
    vf top = v_zero(), poison = v_zero();
    for (int j = 0; j < size; j++) {
        vf x = v_load(v[j]);
        top = v_max(v_abs(x), top);
        poison = v_add(poison, v_mul(x, v_zero())); // 0, or NaN for ever
    }
    float bad[LP_LANES];
    v_store(largest, top);
    v_store(bad, poison);
    for (int at = 0; at < LP_LANES; at += span) {
        float most = 0.0f, sum = 0.0f;
        for (int l = at; l < at + span; l++) {
            most = largest[l] > most ? largest[l] : most;
            sum += bad[l];
        }
        for (int l = at; l < at + span; l++) largest[l] = sum == 0.0f ? most : NAN;
    }
}

static inline void tile_load_values(struct tile *t, int size, int span,
                                    const float *const from[LP_LANES]) {
    float largest[LP_LANES], factor[LP_LANES];
    tile_transpose(from, size, t->x);
    tile_largest(t->x, size, span, largest);
    for (int l = 0; l < LP_LANES; l++) {
        factor[l] = 0.0f;
        t->unit[l] = isnan(largest[l]) ? NAN : 0.0f;
        if (largest[l] >= 0x1p-40f) factor[l] = tile_factor(largest[l], &t->unit[l]);
    }
    vf by = v_load(factor);
    vm live = v_gt(by, v_zero());
    for (int j = 0; j < size; j++)
        v_store(t->x[j], v_pick(live, v_mul(v_load(t->x[j]), by), v_zero()));
}

static inline void tile_load_weights(struct tile *t, int size, int span,
                                     const float *const from[LP_LANES]) {
    vf one = v_set1(1.0f);
    if (!t->weighted) {
        for (int j = 0; j < size; j++) v_store(t->w[j], one);
        return;
    }
    float largest[LP_LANES], factor[LP_LANES], inverse;
    tile_transpose(from, size, t->w);
    for (int j = 0; j < size; j++) { // a negative one is as bad as NaN
        vf w = v_load(t->w[j]);
        v_store(t->w[j], v_pick(v_gt(v_zero(), w), v_set1(NAN), w));
    }
    tile_largest(t->w, size, span, largest);
    for (int l = 0; l < LP_LANES; l++)
        factor[l] = largest[l] > 0.0f ? tile_factor(largest[l], &inverse) : 0.0f;
    vf by = v_load(factor), least = v_set1(TILE_LEAST_WEIGHT);
    vm known = v_gt(by, v_zero());
    for (int j = 0; j < size; j++)
        v_store(t->w[j], v_pick(known, v_add(v_mul(v_load(t->w[j]), by), least), one));
}

// Groups first .. first + 15 of `size` values, `span` to a block (1, 8 or 16); behind the end of
// the job blocks of zeros. first is a multiple of span.
static inline void tile_load(struct tile *t, const struct lp_quantize_job *job, int size, int span,
                             size_t first) {
    static const float nothing[32];
    const float *x[LP_LANES], *w[LP_LANES];
    size_t per_row = job->n_in / (size_t)size, left = job->n / (size_t)size - first;
    size_t column = first % per_row;
    for (size_t l = 0; l < LP_LANES; l++) {
        bool there = l < left;
        x[l] = there ? job->in + (first + l) * (size_t)size : nothing;
        w[l] = there && job->importance ? job->importance + column * (size_t)size : nothing;
        column = column + 1 < per_row ? column + 1 : 0;
    }
    t->weighted = job->importance != NULL;
    tile_load_values(t, size, span, x);
    tile_load_weights(t, size, span, w);
}

// Whether a value's error counts at all beside the others of its group. Where it does not, the
// value must not decide where a search begins: heaviest is the largest weight of the group.
static inline vm tile_counts(vf w, vf heaviest) {
    return v_gt(w, v_mul(heaviest, v_set1(0x1p-10f)));
}

static inline vf tile_heaviest(const struct tile *t, int size) {
    vf heaviest = v_zero();
    for (int j = 0; j < size; j++) heaviest = v_max(v_load(t->w[j]), heaviest);
    return heaviest;
}

#endif
