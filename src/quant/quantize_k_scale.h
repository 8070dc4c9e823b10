// Q6_K and IQ4_XS: blocks of 256 values in groups, y = d s K[q], s a small integer for each group
// and d an f16 for the block.
//
//   1. each group's own best scale (quantize_scale.h)
//   2. the largest of them becomes the lowest s, or that plus one, which gives d; each group takes
//      the s near its scale that has the least error with the values that d s gives
//   3. the d of least error for these integers, and step 2 again, if the error of the block falls
#ifndef LP_QUANT_QUANTIZE_K_SCALE_H
#define LP_QUANT_QUANTIZE_K_SCALE_H

#include "quant/blocks.h"
#include "quant/quantize_k_block.h"
#include "quant/quantize_scale.h"

// A form of such a block
struct k_scale_form {
    enum grid grid;
    int size, span; // values of a group, groups of a block
    float lowest;   // s = lowest .. -lowest - 1
};

struct k_scale_plan {
    struct block_scale d;
    float s[LP_LANES];
    float error[LP_LANES]; // of the block, in each of its lanes
};

// The s of each group for a given d
static inline void k_scale_choose(const struct tile *t, struct k_scale_form form, vf fitted,
                                  struct k_scale_plan *plan) {
    vf d = v_load(plan->d.value), low = v_set1(form.lowest), high = v_set1(-form.lowest - 1.0f);
    vf middle = v_nearest(v_clamp(v_ratio(fitted, d), low, high));
    vf best = middle, error = scale_error(t, form.size, form.grid, v_mul(middle, d));
    for (float step = -1.0f; step <= 1.0f; step += 2.0f) {
        vf s = v_clamp(v_add(middle, v_set1(step)), low, high);
        vf other = scale_error(t, form.size, form.grid, v_mul(s, d));
        vm better = v_gt(error, other);
        best = v_pick(better, s, best);
        error = v_pick(better, other, error);
    }
    v_store(plan->s, best);
    v_store(plan->error, error);
    block_sum(plan->error, form.span);
}

// The d of least error for the plan's integers
static inline void k_scale_refit(const struct tile *t, struct k_scale_form form,
                                 const struct k_scale_plan *plan, float d[LP_LANES]) {
    vf s = v_load(plan->s), inverse = v_ratio(v_set1(1.0f), v_mul(s, v_load(plan->d.value)));
    vf xk = v_zero(), kk = v_zero();
    for (int j = 0; j < form.size; j++) {
        vf x = v_load(t->x[j]), k = v_mul(s, grid_round(v_mul(x, inverse), form.grid));
        vf wk = v_mul(v_load(t->w[j]), k);
        xk = v_add(xk, v_mul(wk, x));
        kk = v_add(kk, v_mul(wk, k));
    }
    float sum_xk[LP_LANES], sum_kk[LP_LANES];
    v_store(sum_xk, xk);
    v_store(sum_kk, kk);
    block_sum(sum_xk, form.span);
    block_sum(sum_kk, form.span);
    for (int l = 0; l < LP_LANES; l++)
        d[l] = sum_kk[l] > 0.0f ? sum_xk[l] / sum_kk[l] : plan->d.value[l];
}

// Takes another d, for the blocks where that is better.
static inline void k_scale_improve(const struct tile *t, struct k_scale_form form, vf fitted,
                                   const float d[LP_LANES], struct k_scale_plan *plan) {
    struct k_scale_plan next;
    block_scale_store(t, form.span, d, &next.d);
    k_scale_choose(t, form, fitted, &next);
    for (int l = 0; l < LP_LANES; l++) {
        if (!(next.error[l] < plan->error[l])) continue;
        block_scale_copy(&plan->d, &next.d, l);
        plan->s[l] = next.s[l];
        plan->error[l] = next.error[l];
    }
}

// The next sixteen groups: scales, and indices of the grid, value j of group l at [j][l]
static inline void k_scale_next(const struct lp_quantize_job *job, size_t first,
                                struct k_scale_form form, struct k_scale_plan *plan,
                                uint8_t q[32][LP_LANES]) {
    struct tile t;
    tile_load(&t, job, form.size, form.span, first);
    vf fitted = scale_search(&t, form.size, form.grid);
    float d[LP_LANES], extreme[LP_LANES];
    v_store(extreme, fitted);
    block_extreme(extreme, form.span);
    for (int l = 0; l < LP_LANES; l++) d[l] = extreme[l] / form.lowest;
    block_scale_store(&t, form.span, d, &plan->d);
    k_scale_choose(&t, form, fitted, plan);
    for (int l = 0; l < LP_LANES; l++) d[l] = extreme[l] / (form.lowest + 1.0f);
    k_scale_improve(&t, form, fitted, d, plan);
    k_scale_refit(&t, form, plan, d);
    k_scale_improve(&t, form, fitted, d, plan);
    vf inverse = v_ratio(v_set1(1.0f), v_mul(v_load(plan->s), v_load(plan->d.value)));
    for (int j = 0; j < form.size; j++)
        grid_store_index(q[j], v_mul(v_load(t.x[j]), inverse), form.grid);
}

static inline void pack_q6_k(struct lp_block_q6_k *b, const struct k_scale_plan *plan,
                             uint8_t q[32][LP_LANES]) {
    uint8_t flat[256];
    for (int i = 0; i < 256; i++) flat[i] = q[i % 16][i / 16];
    b->d = plan->d.bits[0];
    for (int g = 0; g < 16; g++) b->scales[g] = (int8_t)plan->s[g];
    for (int half = 0; half < 2; half++) {
        const uint8_t *v = flat + 128 * half;
        for (int l = 0; l < 64; l++) b->ql[64 * half + l] = (uint8_t)((v[l] & 15) | v[l + 64] << 4);
        for (int l = 0; l < 32; l++)
            b->qh[32 * half + l] = (uint8_t)(v[l] >> 4 | v[l + 32] >> 4 << 2 | v[l + 64] >> 4 << 4 |
                                             v[l + 96] >> 4 << 6);
    }
}

static inline void quantize_q6_k(const struct lp_quantize_job *job, void *blocks) {
    struct lp_block_q6_k *b = blocks;
    struct k_scale_form form = {GRID_Q6, 16, 16, -128.0f};
    struct k_scale_plan plan;
    uint8_t q[32][LP_LANES];
    for (size_t i = 0; i < job->n / 16; i += LP_LANES, b++) {
        k_scale_next(job, i, form, &plan, q);
        pack_q6_k(b, &plan, q);
    }
}

// The block whose first group is in lane `at`
static inline void pack_iq4_xs(struct lp_block_iq4_xs *b, const struct k_scale_plan *plan,
                               uint8_t q[32][LP_LANES], int at) {
    memset(b, 0, sizeof *b);
    b->d = plan->d.bits[at];
    unsigned high = 0;
    for (int g = 0; g < 8; g++) {
        unsigned s = (unsigned)((int)plan->s[at + g] + 32);
        b->scales_l[g / 2] |= (uint8_t)((s & 15) << 4 * (g & 1));
        high |= s >> 4 << 2 * g;
        for (int j = 0; j < 16; j++)
            b->qs[16 * g + j] = (uint8_t)(q[j][at + g] | q[j + 16][at + g] << 4);
    }
    b->scales_h = (uint16_t)high;
}

static inline void quantize_iq4_xs(const struct lp_quantize_job *job, void *blocks) {
    struct lp_block_iq4_xs *b = blocks;
    struct k_scale_form form = {GRID_CODEBOOK, 32, 8, -32.0f};
    struct k_scale_plan plan;
    uint8_t q[32][LP_LANES];
    for (size_t i = 0; i < job->n / 32; i += LP_LANES) {
        k_scale_next(job, i, form, &plan, q);
        for (int l = 0; l < LP_LANES && i + (size_t)l < job->n / 32; l += 8, b++)
            pack_iq4_xs(b, &plan, q, l);
    }
}

#endif
