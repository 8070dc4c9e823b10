// The search for the scale and the minimum of a group: y = scale q - min, q = 0 .. levels, scale
// and min not negative, least sum of w (x - y)^2, for sixteen groups of 32 at once.
//
// All is done on u = x - low, low the smallest value that counts, or 0 if all are above: y = low +
// offset + scale q, so that a small spread far from zero loses no digits; min >= 0 means offset <=
// -low.
// A trial scale and offset give integers, and these the best scale and offset in closed form.
// Trials cover the range with a few more or fewer steps, shifted by a quarter of a step either way;
// the best is tried again with its own solution, twice. On normal numbers the error is within 1.5 %
// of the least there is.
#ifndef LP_QUANT_QUANTIZE_AFFINE_H
#define LP_QUANT_QUANTIZE_AFFINE_H

#include "quant/quantize_tile.h"

// What does not depend on a trial
struct affine_group {
    vf low, sum_w, sum_u; // the sums weighted
};

struct affine_fit {
    vf scale, offset;
    vf error; // less sum w u^2
};

// shifted: x + min or u - offset
static inline vf affine_round(vf shifted, vf inverse, float levels) {
    return v_nearest(v_clamp(v_mul(shifted, inverse), v_zero(), v_set1(levels)));
}

// Keeps the solution for these sums if it is better.
static inline void affine_solve(const struct affine_group *g, vf q, vf qq, vf uq,
                                struct affine_fit *best) {
    vf w = g->sum_w, u = g->sum_u, two = v_set1(2.0f), highest = v_sub(v_zero(), g->low);
    vf wqq = v_mul(w, qq), determinant = v_sub(wqq, v_mul(q, q));
    vf scale = v_ratio(v_sub(v_mul(w, uq), v_mul(u, q)), determinant);
    vf offset = v_ratio(v_sub(u, v_mul(scale, q)), w);
    // No two different integers (but for rounding errors): the scale alone
    vm sound = v_gt(determinant, v_mul(wqq, v_set1(0x1p-16f)));
    offset = v_pick(sound, offset, v_zero());
    // The format cannot shift upwards
    vm over = v_gt(offset, highest);
    offset = v_pick(over, highest, offset);
    vf alone = v_ratio(v_sub(uq, v_mul(offset, q)), qq);
    scale = v_pick(over, alone, v_pick(sound, scale, alone));
    vf of_scale = v_add(v_mul(scale, qq), v_mul(two, v_sub(v_mul(offset, q), uq)));
    vf of_offset = v_sub(v_mul(offset, w), v_mul(two, u));
    vf error = v_add(v_mul(scale, of_scale), v_mul(offset, of_offset));
    vm better = vm_and(v_gt(best->error, error), v_gt(scale, v_zero()));
    best->scale = v_pick(better, scale, best->scale);
    best->offset = v_pick(better, offset, best->offset);
    best->error = v_pick(better, error, best->error);
}

static inline void affine_try(const struct tile *t, float levels, const struct affine_group *g,
                              vf inverse, vf offset, struct affine_fit *best) {
    vf sum_q = v_zero(), sum_qq = v_zero(), sum_uq = v_zero();
    for (int j = 0; j < 32; j++) {
        vf u = v_sub(v_load(t->x[j]), g->low);
        vf q = affine_round(v_sub(u, offset), inverse, levels);
        vf wq = v_mul(v_load(t->w[j]), q);
        sum_q = v_add(sum_q, wq);
        sum_qq = v_add(sum_qq, v_mul(wq, q));
        sum_uq = v_add(sum_uq, v_mul(wq, u));
    }
    affine_solve(g, sum_q, sum_qq, sum_uq, best);
}

// Sum of w (x - y)^2 of each group
static inline vf affine_error(const struct tile *t, float levels, vf scale, vf min) {
    vf sum = v_zero(), inverse = v_ratio(v_set1(1.0f), scale);
    for (int j = 0; j < 32; j++) {
        vf x = v_load(t->x[j]);
        vf y = v_sub(v_mul(scale, affine_round(v_add(x, min), inverse, levels)), min);
        vf off = v_sub(x, y);
        sum = v_add(sum, v_mul(v_load(t->w[j]), v_mul(off, off)));
    }
    return sum;
}

// The range of the values and 0; only of those that count, if asked. low <= 0.
static inline void affine_range(const struct tile *t, bool counting, vf *low, vf *high) {
    vf heaviest = counting ? tile_heaviest(t, 32) : v_zero();
    *low = v_zero();
    *high = v_set1(-INFINITY);
    for (int j = 0; j < 32; j++) {
        vf x = v_load(t->x[j]);
        vf below = v_min(x, *low), above = v_max(x, *high);
        if (counting) {
            vm take = tile_counts(v_load(t->w[j]), heaviest);
            below = v_pick(take, below, *low);
            above = v_pick(take, above, *high);
        }
        *low = below;
        *high = above;
    }
}

// from, to: the range that is covered, above g->low
static inline void affine_trials(const struct tile *t, float levels, const struct affine_group *g,
                                 vf from, vf to, struct affine_fit *best) {
    vf range = v_sub(to, from), reciprocal = v_ratio(v_set1(1.0f), range);
    for (float more = -3.0f; more <= 1.0f; more += 0.5f) {
        vf inverse = v_mul(reciprocal, v_set1(levels + more));
        for (float shift = -0.25f; shift <= 0.25f; shift += 0.5f) {
            vf offset = v_add(from, v_mul(range, v_set1(shift / (levels + more))));
            affine_try(t, levels, g, inverse, offset, best);
        }
    }
}

static inline void affine_search(const struct tile *t, float levels, vf *scale, vf *min) {
    vf low, high, counting_low, counting_high;
    affine_range(t, false, &low, &high);
    counting_low = low;
    counting_high = high;
    if (t->weighted) affine_range(t, true, &counting_low, &counting_high);

    struct affine_group g = {counting_low, v_zero(), v_zero()};
    for (int j = 0; j < 32; j++) {
        vf w = v_load(t->w[j]);
        g.sum_w = v_add(g.sum_w, w);
        g.sum_u = v_add(g.sum_u, v_mul(w, v_sub(v_load(t->x[j]), g.low)));
    }
    struct affine_fit best = {v_zero(), v_zero(), v_zero()};
    affine_trials(t, levels, &g, v_sub(low, g.low), v_sub(high, g.low), &best);
    if (v_any(v_gt(v_sub(high, low), v_sub(counting_high, counting_low))))
        affine_trials(t, levels, &g, v_zero(), v_sub(counting_high, g.low), &best);
    for (int round = 0; round < 2; round++)
        affine_try(t, levels, &g, v_ratio(v_set1(1.0f), best.scale), best.offset, &best);
    *scale = best.scale;
    *min = v_sub(v_zero(), v_add(g.low, best.offset));
}

#endif
