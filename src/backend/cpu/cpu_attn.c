// The shared parts of attention on the CPU (cpu_attn.h): the online softmax, segments, scratch.
#include "backend/cpu/cpu_attn.h"
#include "backend/cpu/cpu_fixed16.h"
#include "backend/cpu/cpu_latent.h"
#include "backend/cpu/cpu_sieve.h"

#include <math.h>
#include <string.h>

static const char *lanes_kernel(const struct lp_cpu_lanes *lanes, const char *op) {
    static const char *const rows[][5] = {
        // operation, plain, avx2, avx512, neon
        {"gqa", "plain_gqa", "avx2_gqa", "avx512_gqa", "neon_gqa"},
        {"mla_absorbed", "plain_mla_absorbed", "avx2_mla_absorbed", "avx512_mla_absorbed",
         "neon_mla_absorbed"},
        {"mla_expanded", "plain_mla_expanded", "avx2_mla_expanded", "avx512_mla_expanded",
         "neon_mla_expanded"},
        {"index_select", "plain_index_select", "avx2_index_select", "avx512_index_select",
         "neon_index_select"},
    };
    int column = 1;
    for (int i = 2; i < 5; i++)
        if (strncmp(rows[0][i], lanes->name, strlen(lanes->name)) == 0) column = i;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i][0], op) == 0) return rows[i][column];
    return NULL;
}

// The roundings: docs/numerics.md, "Attention in whole numbers and bfloat16".
struct lp_attention_kernel lp_cpu_attn_kernel(const struct lp_cpu_device *dev, const char *op,
                                              lp_type cache, lp_type weights) {
    if (strcmp(op, "mla_absorbed") == 0) {
        const struct lp_cpu_latent *latent =
            lp_cpu_latent_find(cache, LP_CPU_LATENT_ANY, dev->features, dev->may_vary);
        if (latent) return (struct lp_attention_kernel){latent->name, latent->rounding};
    }
    if (strcmp(op, "mla_expanded") == 0) {
        const struct lp_cpu_fixed16 *fixed = lp_cpu_mla_fixed(dev, cache, weights);
        if (fixed) return (struct lp_attention_kernel){fixed->name, fixed->rounding};
    }
    if (strcmp(op, "index_select") == 0 && dev->sieve)
        return (struct lp_attention_kernel){dev->sieve->name, 0};
    return (struct lp_attention_kernel){lanes_kernel(dev->lanes, op), 0};
}

size_t lp_cpu_attn_scratch_bytes(const struct lp_cpu_device *dev, const struct lp_reserve *need) {
    size_t (*const ops[])(const struct lp_reserve *, const struct lp_cpu_device *) = {
        lp_cpu_gqa_scratch, lp_cpu_mla_absorbed_scratch, lp_cpu_mla_expanded_scratch,
        lp_cpu_index_scratch, lp_cpu_router_scratch};
    size_t most = 0;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        size_t bytes = ops[i](need, dev);
        if (bytes > most) most = bytes;
    }
    return most < SIZE_MAX / 2 ? most : SIZE_MAX;
}

void lp_cpu_softmax_cut(struct lp_cpu_softmax *state, struct lp_cpu_cut *cut, int64_t n_rows,
                        int64_t width) {
    state->ld = lp_cpu_ld(width);
    state->acc = lp_cpu_cut_floats(cut, n_rows * state->ld);
    state->max = lp_cpu_cut_floats(cut, n_rows);
    state->sum = lp_cpu_cut_floats(cut, n_rows);
}

void lp_cpu_softmax_reset(struct lp_cpu_softmax *state, int64_t n_rows, int64_t width) {
    for (int64_t i = 0; i < n_rows; i++) {
        memset(state->acc + i * state->ld, 0, (size_t)width * sizeof(float));
        state->max[i] = -INFINITY;
        state->sum[i] = 0;
    }
}

void lp_cpu_softmax_block(const struct lp_cpu_lanes *lanes, struct lp_cpu_softmax *state,
                          int first_row, int n_rows, float *s, int64_t lds,
                          const int32_t *n_visible, float scale, const float *v, int64_t ldv,
                          int width) {
    float *acc = state->acc + first_row * state->ld;
    for (int i = 0; i < n_rows; i++) {
        if (n_visible[i] == 0) continue;
        float rescale = lanes->softmax_step(s + i * lds, n_visible[i], scale,
                                            &state->max[first_row + i], &state->sum[first_row + i]);
        if (rescale != 1.0f) lanes->scale(acc + i * state->ld, (size_t)width, rescale);
    }
    for (int i = 0, next; i < n_rows; i = next) { // runs of rows that see equally many
        for (next = i + 1; next < n_rows && n_visible[next] == n_visible[i];) next++;
        if (n_visible[i] > 0)
            lanes->mul_nn(next - i, width, n_visible[i], s + i * lds, lds, v, ldv,
                          acc + i * state->ld, state->ld, true);
    }
}

void lp_cpu_softmax_keys(const struct lp_cpu_lanes *lanes, struct lp_cpu_softmax *state, int row,
                         const int32_t *keys, int n, float *s, float scale, const float *v,
                         int64_t ldv, int width) {
    float *acc = state->acc + row * state->ld;
    float rescale = lanes->softmax_step(s, n, scale, &state->max[row], &state->sum[row]);
    if (rescale != 1.0f) lanes->scale(acc, (size_t)width, rescale);
    lanes->mul_rows(width, n, s, keys, v, ldv, acc);
}

// exp(max - base); 0 for a state without a finite score
static float relative(float max, float base) {
    return max == base ? 1.0f : expf(max - base);
}

void lp_cpu_softmax_merge(float *acc, float *max, float *sum, const float *part_acc, float part_max,
                          float part_sum, int width) {
    float base = part_max > *max ? part_max : *max;
    float mine = relative(*max, base), theirs = relative(part_max, base);
    for (int i = 0; i < width; i++) acc[i] = acc[i] * mine + part_acc[i] * theirs;
    *sum = *sum * mine + part_sum * theirs;
    *max = base;
}

void lp_cpu_softmax_finish(const float *acc, float sum, float *out, int width) {
    float inverse = 1.0f / sum;
    for (int i = 0; i < width; i++) out[i] = acc[i] * inverse;
}

void lp_cpu_partial_put(float *record, const struct lp_cpu_softmax *state, int row, int width) {
    memcpy(record, state->acc + row * state->ld, (size_t)width * sizeof(float));
    record[lp_cpu_ld(width)] = state->max[row];
    record[lp_cpu_ld(width) + 1] = state->sum[row];
}

void lp_cpu_partial_finish(float *records, int64_t n, int width, float *out) {
    int64_t step = lp_cpu_partial_floats(width), at_max = lp_cpu_ld(width);
    for (int64_t i = 1; i < n; i++) {
        const float *part = records + i * step;
        lp_cpu_softmax_merge(records, records + at_max, records + at_max + 1, part, part[at_max],
                             part[at_max + 1], width);
    }
    lp_cpu_softmax_finish(records, records[at_max + 1], out, width);
}
