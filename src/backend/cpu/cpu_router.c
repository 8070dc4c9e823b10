// Expert choice on the CPU: a row at a time, rows spread over the workers. Double precision as in
// ref, since a last bit here decides which weights are read; the gate values themselves are
// float32.
#include "backend/cpu/cpu_attn.h"

#include <math.h>
#include <string.h>

struct row_scratch {
    double *choice; // [n_experts]: what experts are chosen by
    float *gate;    // [n_experts]
    double *group;  // [n_groups]
    uint8_t *out;   // [n_experts]: chosen already, or in a dropped group
};

struct router_job {
    const struct lp_op_router *op;
    char *scratch;
    size_t worker_bytes;
};

static size_t cut_row(struct row_scratch *w, char *base, int64_t n_experts, int64_t n_groups) {
    struct lp_cpu_cut cut = {base, 0};
    w->choice = lp_cpu_cut(&cut, n_experts, sizeof *w->choice);
    w->gate = lp_cpu_cut_floats(&cut, n_experts);
    w->group = lp_cpu_cut(&cut, n_groups, sizeof *w->group);
    w->out = lp_cpu_cut(&cut, n_experts, 1);
    return cut.used;
}

size_t lp_cpu_router_scratch(const struct lp_reserve *need, const struct lp_cpu_device *dev) {
    struct row_scratch w;
    struct lp_cpu_cut cut = {0};
    lp_cpu_cut(&cut, dev->n_workers,
               cut_row(&w, NULL, need->n_experts, need->n_experts)); // groups <= experts
    return cut.used;
}

// NaN ranks above all numbers, so that it is chosen and seen.
static bool better(double a, double b) {
    return (isnan(a) && !isnan(b)) || a > b;
}

static void gate_values(const struct lp_op_router *op, const float *z, float *gate) {
    double max = -INFINITY, sum = 0;
    switch (op->gating) {
    case LP_GATING_SOFTMAX:
        for (int32_t e = 0; e < op->n_experts; e++)
            if (better(z[e], max)) max = z[e];
        for (int32_t e = 0; e < op->n_experts; e++) sum += exp(z[e] - max);
        for (int32_t e = 0; e < op->n_experts; e++) gate[e] = (float)(exp(z[e] - max) / sum);
        return;
    case LP_GATING_SIGMOID:
        for (int32_t e = 0; e < op->n_experts; e++)
            gate[e] = (float)(1.0 / (1.0 + exp(-(double)z[e])));
        return;
    case LP_GATING_SOFTMAX_SELECTED:
        memcpy(gate, z, (size_t)op->n_experts * sizeof *gate);
        return;
    }
}

static double group_score(const struct lp_op_router *op, const double *choice, int32_t size) {
    double first = -INFINITY, second = -INFINITY;
    for (int32_t i = 0; i < size; i++) {
        if (better(choice[i], first)) {
            second = first;
            first = choice[i];
        } else if (better(choice[i], second))
            second = choice[i];
    }
    return op->group_score == LP_GROUP_MAX || size == 1 ? first : first + second;
}

// The best of n values whose mark is not set, the first of equals; -1 when all are marked.
static int32_t best_of(const double *values, const uint8_t *marked, int32_t n, int32_t step) {
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++)
        if (!marked[i * step] && (best < 0 || better(values[i], values[best]))) best = i;
    return best;
}

// Marks the experts of all groups but the n_groups_used best.
static void drop_groups(const struct lp_op_router *op, struct row_scratch *w) {
    int32_t size = op->n_experts / op->n_groups;
    for (int32_t g = 0; g < op->n_groups; g++)
        w->group[g] = group_score(op, w->choice + g * size, size);
    // First mark the kept groups at their first expert, then turn the marks round.
    for (int32_t i = 0; i < op->n_groups_used && i < op->n_groups; i++)
        w->out[best_of(w->group, w->out, op->n_groups, size) * size] = 1;
    for (int32_t g = 0; g < op->n_groups; g++)
        memset(w->out + g * size, !w->out[g * size], (size_t)size);
}

static void set_weights(const struct lp_op_router *op, const float *z, const float *gate,
                        const int32_t *ids, float *weights) {
    bool selected = op->gating == LP_GATING_SOFTMAX_SELECTED;
    double total = 0;
    for (int32_t j = 0; j < op->n_used; j++) {
        weights[j] = selected ? (float)exp((double)z[ids[j]] - (double)z[ids[0]]) : gate[ids[j]];
        total += weights[j];
    }
    double divisor = op->normalise || selected ? total + 1e-20 : 1.0;
    for (int32_t j = 0; j < op->n_used; j++) weights[j] = (float)(weights[j] / divisor * op->scale);
}

static void route_row(const struct lp_op_router *op, struct row_scratch *w, int64_t row) {
    const float *z = op->logits + row * op->logits_stride;
    int32_t *ids = op->ids + row * op->n_used;
    gate_values(op, z, w->gate);
    for (int32_t e = 0; e < op->n_experts; e++)
        w->choice[e] = (double)w->gate[e] + (op->bias ? op->bias[e] : 0.0);
    memset(w->out, 0, (size_t)op->n_experts);
    if (op->n_groups > 1) drop_groups(op, w);
    for (int32_t j = 0; j < op->n_used; j++) {
        ids[j] = best_of(w->choice, w->out, op->n_experts, 1);
        assert(ids[j] >= 0); // n_used experts are in the kept groups
        w->out[ids[j]] = 1;
    }
    set_weights(op, z, w->gate, ids, op->weights + row * op->n_used);
}

static void run_rows(void *job_, int worker, int n_workers) {
    const struct router_job *job = job_;
    struct row_scratch w;
    size_t row, end;
    cut_row(&w, job->scratch + (size_t)worker * job->worker_bytes, job->op->n_experts,
            job->op->n_groups);
    lp_worker_range((size_t)job->op->n_rows, 1, worker, n_workers, &row, &end);
    for (; row < end; row++) route_row(job->op, &w, (int64_t)row);
}

void lp_cpu_router(struct lp_device *device, const struct lp_op_router *op) {
    struct lp_cpu_device *dev = lp_cpu_device(device);
    struct row_scratch w;
    struct router_job job = {.op = op, .scratch = (char *)dev->attn_scratch};
    job.worker_bytes = cut_row(&w, NULL, op->n_experts, op->n_groups);
    assert((size_t)dev->n_workers * job.worker_bytes <= dev->attn_scratch_bytes);
    // An exp costs about 20 multiply-adds, each choice a pass over the experts.
    lp_cpu_run(dev, op->n_rows * op->n_experts * (20 + op->n_used), run_rows, &job);
}
