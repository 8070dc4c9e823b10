// The choice of experts (rules and their models: docs/attention.md, "router").
#include "backend/ref/ref.h"

#include <math.h>

// Gate values s of all experts from the logits z.
static double gate_value(const struct lp_op_router *op, const float *z, int32_t e, double max,
                         double sum) {
    switch (op->gating) {
    case LP_GATING_SOFTMAX:
        return exp(z[e] - max) / sum;
    case LP_GATING_SIGMOID:
        return 1.0 / (1.0 + exp(-(double)z[e]));
    case LP_GATING_SOFTMAX_SELECTED:
        return z[e];
    }
    return NAN;
}

static bool better(double a, double b) {
    return (isnan(a) && !isnan(b)) || a > b;
}

// c: what experts are chosen by.
static double choice(const float *s, const struct lp_op_router *op, int32_t e) {
    return (double)s[e] + (op->bias ? op->bias[e] : 0.0);
}

static double group_score(const float *s, const struct lp_op_router *op, int32_t group) {
    int32_t size = op->n_experts / op->n_groups;
    double first = -INFINITY, second = -INFINITY;
    for (int32_t e = group * size; e < (group + 1) * size; e++) {
        double c = choice(s, op, e);
        if (better(c, first)) {
            second = first;
            first = c;
        } else if (better(c, second))
            second = c;
    }
    return op->group_score == LP_GROUP_MAX || size == 1 ? first : first + second;
}

// Is group `g` among the n_groups_used best? (ties: the lower group)
static bool group_kept(const float *s, const struct lp_op_router *op, int32_t g) {
    if (op->n_groups <= 1) return true;
    double mine = group_score(s, op, g);
    int32_t before = 0;
    for (int32_t other = 0; other < op->n_groups; other++) {
        double theirs = group_score(s, op, other);
        before += other != g && (better(theirs, mine) || (!better(mine, theirs) && other < g));
    }
    return before < op->n_groups_used;
}

static bool already(const int32_t *ids, int32_t n, int32_t e) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == e) return true;
    return false;
}

static void choose(const float *s, const struct lp_op_router *op, int32_t *ids) {
    int32_t group_size = op->n_groups > 1 ? op->n_experts / op->n_groups : op->n_experts;
    for (int32_t j = 0; j < op->n_used; j++) {
        int32_t best = -1;
        for (int32_t g = 0; g * group_size < op->n_experts; g++) {
            if (!group_kept(s, op, g)) continue;
            for (int32_t e = g * group_size; e < (g + 1) * group_size; e++)
                if (!already(ids, j, e) &&
                    (best < 0 || better(choice(s, op, e), choice(s, op, best))))
                    best = e;
        }
        ids[j] = best;
    }
}

void lp_ref_router(struct lp_device *device, const struct lp_op_router *op) {
    struct lp_ref_device *dev = (struct lp_ref_device *)device;
    for (int64_t t = 0; t < op->n_rows; t++) {
        const float *z = op->logits + t * op->logits_stride;
        int32_t *ids = op->ids + t * op->n_used;
        float *weights = op->weights + t * op->n_used, *s = dev->row;
        double max = -INFINITY, sum = 0;
        for (int32_t e = 0; e < op->n_experts; e++)
            if (better(z[e], max)) max = z[e];
        for (int32_t e = 0; e < op->n_experts; e++) sum += exp(z[e] - max);
        for (int32_t e = 0; e < op->n_experts; e++) s[e] = (float)gate_value(op, z, e, max, sum);
        choose(s, op, ids);
        double total = 0;
        for (int32_t j = 0; j < op->n_used; j++) {
            double g = s[ids[j]];
            if (op->gating == LP_GATING_SOFTMAX_SELECTED) g = exp(g - (double)z[ids[0]]);
            total += weights[j] = (float)g;
        }
        bool divide = op->normalise || op->gating == LP_GATING_SOFTMAX_SELECTED;
        for (int32_t j = 0; j < op->n_used; j++)
            weights[j] = (float)(weights[j] / (divide ? total + 1e-20 : 1.0) * op->scale);
    }
}
