// Q4_K and Q5_K: blocks of 256 values in eight groups of 32, y = d s q - dmin m, q = 0 .. 15 or
// 0 .. 31, s and m = 0 .. 63 for each group.
//
//   1. each group's own best scale and min (quantize_affine.h)
//   2. the largest of each become 63, which gives d and dmin; each group takes the pair s, m near
//      its own that has the least error with the values these give
//   3. the d and dmin of least error for these integers, and step 2 again, if the error falls; twice
#ifndef LP_QUANT_QUANTIZE_K_AFFINE_H
#define LP_QUANT_QUANTIZE_K_AFFINE_H

#include "quant/blocks.h"
#include "quant/quantize_affine.h"
#include "quant/quantize_k_block.h"

struct k_affine_plan {
    struct block_scale d, dmin;
    float s[LP_LANES], m[LP_LANES];
    float error[LP_LANES]; // of the block, in each of its lanes
};

// The s and m of each group for given d and dmin. The neighbours of the nearest are tried, but for
// s and m moved in opposite directions: such errors add up.
static inline void k_affine_choose(const struct tile *t, float levels, vf scale, vf min,
                                   struct k_affine_plan *plan) {
    static const float moves[][2] = {{0, 0}, {-1, -1}, {-1, 0}, {0, -1}, {0, 1}, {1, 0}, {1, 1}};
    vf d = v_load(plan->d.value), dmin = v_load(plan->dmin.value), top = v_set1(63.0f);
    vf s0 = v_nearest(v_clamp(v_ratio(scale, d), v_zero(), top));
    vf m0 = v_nearest(v_clamp(v_ratio(min, dmin), v_zero(), top));
    vf best_s = s0, best_m = m0, best = v_set1(INFINITY);
    for (size_t k = 0; k < sizeof moves / sizeof moves[0]; k++) {
        vf s = v_clamp(v_add(s0, v_set1(moves[k][0])), v_zero(), top);
        vf m = v_clamp(v_add(m0, v_set1(moves[k][1])), v_zero(), top);
        vf error = affine_error(t, levels, v_mul(s, d), v_mul(m, dmin));
        vm better = v_gt(best, error);
        best_s = v_pick(better, s, best_s);
        best_m = v_pick(better, m, best_m);
        best = v_pick(better, error, best);
    }
    v_store(plan->s, best_s);
    v_store(plan->m, best_m);
    v_store(plan->error, best);
    block_sum(plan->error, 8);
}

// The d and dmin of least error for the plan's integers: x ~ d a - dmin m, a = s q
static inline void k_affine_refit(const struct tile *t, float levels,
                                  const struct k_affine_plan *plan, float d[LP_LANES],
                                  float dmin[LP_LANES]) {
    vf s = v_load(plan->s), m = v_load(plan->m), xa = v_zero(), xm = v_zero(), aa = v_zero(),
       am = v_zero(), mm = v_zero();
    vf inverse = v_ratio(v_set1(1.0f), v_mul(s, v_load(plan->d.value)));
    vf shift = v_mul(m, v_load(plan->dmin.value));
    for (int j = 0; j < 32; j++) {
        vf x = v_load(t->x[j]), w = v_load(t->w[j]);
        vf a = v_mul(s, affine_round(v_add(x, shift), inverse, levels));
        vf wa = v_mul(w, a), wm = v_mul(w, m);
        xa = v_add(xa, v_mul(wa, x));
        aa = v_add(aa, v_mul(wa, a));
        am = v_add(am, v_mul(wa, m));
        xm = v_add(xm, v_mul(wm, x));
        mm = v_add(mm, v_mul(wm, m));
    }
    float sums[5][LP_LANES];
    v_store(sums[0], xa);
    v_store(sums[1], xm);
    v_store(sums[2], aa);
    v_store(sums[3], am);
    v_store(sums[4], mm);
    for (int k = 0; k < 5; k++) block_sum(sums[k], 8);
    for (int l = 0; l < LP_LANES; l++) {
        double x_a = sums[0][l], x_m = sums[1][l], a_a = sums[2][l], a_m = sums[3][l],
               m_m = sums[4][l];
        double determinant = a_a * m_m - a_m * a_m;
        d[l] = plan->d.value[l];
        dmin[l] = plan->dmin.value[l];
        if (!(m_m > 0.0)) {
            if (a_a > 0.0) d[l] = (float)(x_a / a_a);
        } else if (determinant > 0.0) {
            double new_d = (x_a * m_m - x_m * a_m) / determinant;
            double new_dmin = (x_a * a_m - x_m * a_a) / determinant;
            if (!(new_d > 0.0 && new_dmin > 0.0)) continue;
            d[l] = (float)new_d;
            dmin[l] = (float)new_dmin;
        }
    }
}

// Takes another d and dmin, for the blocks where these are better.
static inline void k_affine_improve(const struct tile *t, float levels, vf scale, vf min,
                                    const float d[LP_LANES], const float dmin[LP_LANES],
                                    struct k_affine_plan *plan) {
    struct k_affine_plan next;
    block_scale_store(t, 8, d, &next.d);
    block_scale_store(t, 8, dmin, &next.dmin);
    k_affine_choose(t, levels, scale, min, &next);
    for (int l = 0; l < LP_LANES; l++) {
        if (!(next.error[l] < plan->error[l])) continue;
        block_scale_copy(&plan->d, &next.d, l);
        block_scale_copy(&plan->dmin, &next.dmin, l);
        plan->s[l] = next.s[l];
        plan->m[l] = next.m[l];
        plan->error[l] = next.error[l];
    }
}

// The next sixteen groups, two blocks: scales and integers, value j of group l at [j][l]
static inline void k_affine_next(const struct lp_quantize_job *job, size_t first, float levels,
                                 struct k_affine_plan *plan, uint8_t q[32][LP_LANES]) {
    struct tile t;
    tile_load(&t, job, 32, 8, first);
    vf scale, min;
    affine_search(&t, levels, &scale, &min);
    float d[LP_LANES], dmin[LP_LANES];
    v_store(d, scale);
    v_store(dmin, min);
    block_extreme(d, 8);
    block_extreme(dmin, 8);
    for (int l = 0; l < LP_LANES; l++) {
        d[l] /= 63.0f;
        dmin[l] /= 63.0f;
    }
    block_scale_store(&t, 8, d, &plan->d);
    block_scale_store(&t, 8, dmin, &plan->dmin);
    k_affine_choose(&t, levels, scale, min, plan);
    for (int round = 0; round < 2; round++) {
        k_affine_refit(&t, levels, plan, d, dmin);
        k_affine_improve(&t, levels, scale, min, d, dmin, plan);
    }
    vf inverse = v_ratio(v_set1(1.0f), v_mul(v_load(plan->s), v_load(plan->d.value)));
    vf shift = v_mul(v_load(plan->m), v_load(plan->dmin.value));
    for (int j = 0; j < 32; j++)
        v_store_u8(q[j], affine_round(v_add(v_load(t.x[j]), shift), inverse, levels));
}

static inline void pack_scale_min(const struct k_affine_plan *plan, int at, uint8_t scales[12]) {
    for (int j = 0; j < 4; j++) {
        int s = (int)plan->s[at + j], m = (int)plan->m[at + j];
        int s4 = (int)plan->s[at + j + 4], m4 = (int)plan->m[at + j + 4];
        scales[j] = (uint8_t)(s | s4 >> 4 << 6);
        scales[j + 4] = (uint8_t)(m | m4 >> 4 << 6);
        scales[j + 8] = (uint8_t)((s4 & 15) | (m4 & 15) << 4);
    }
}

// Low four bits: qs[32 p + l] = value l of groups 2 p and 2 p + 1
static inline void pack_nibbles(uint8_t q[32][LP_LANES], int at, uint8_t qs[128]) {
    for (int l = 0; l < 32; l++)
        for (int p = 0; p < 4; p++)
            qs[32 * p + l] = (uint8_t)((q[l][at + 2 * p] & 15) | q[l][at + 2 * p + 1] << 4);
}

static inline void quantize_q4_k(const struct lp_quantize_job *job, void *blocks) {
    struct lp_block_q4_k *b = blocks;
    struct k_affine_plan plan;
    uint8_t q[32][LP_LANES];
    for (size_t i = 0; i < job->n / 32; i += LP_LANES) {
        k_affine_next(job, i, 15.0f, &plan, q);
        for (int l = 0; l < LP_LANES && i + (size_t)l < job->n / 32; l += 8, b++) {
            b->d = plan.d.bits[l];
            b->dmin = plan.dmin.bits[l];
            pack_scale_min(&plan, l, b->scales);
            pack_nibbles(q, l, b->qs);
        }
    }
}

static inline void quantize_q5_k(const struct lp_quantize_job *job, void *blocks) {
    struct lp_block_q5_k *b = blocks;
    struct k_affine_plan plan;
    uint8_t q[32][LP_LANES];
    for (size_t i = 0; i < job->n / 32; i += LP_LANES) {
        k_affine_next(job, i, 31.0f, &plan, q);
        for (int l = 0; l < LP_LANES && i + (size_t)l < job->n / 32; l += 8, b++) {
            b->d = plan.d.bits[l];
            b->dmin = plan.dmin.bits[l];
            pack_scale_min(&plan, l, b->scales);
            pack_nibbles(q, l, b->qs);
            for (int j = 0; j < 32; j++) {
                int fifth = 0;
                for (int g = 0; g < 8; g++) fifth |= q[j][l + g] >> 4 << g;
                b->qh[j] = (uint8_t)fifth;
            }
        }
    }
}

#endif
