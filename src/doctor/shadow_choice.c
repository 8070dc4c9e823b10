// The choices in the shadow: keys that the indexer selects, experts that the router picks. Choices
// must be the same, except where two candidates are so near to each other that rounding decides.
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/shadow_parts.h"

// ---- the indexer

// score(i, s), and in *size what its terms add up to without their signs.
static double index_score(const struct lp_op_index_select *op, int64_t q, int64_t pos, float *row,
                          double *size) {
    const struct lp_cache_view *keys = op->keys;
    int64_t slot = pos + keys->slot_offset;
    const uint8_t *at = (const uint8_t *)keys->base +
                        keys->page_bytes * (size_t)keys->pages[slot / keys->page_tokens] +
                        keys->row_bytes * (size_t)(slot % keys->page_tokens);
    double score = 0;
    lp_type_info((uint32_t)keys->type)->dequant(at, row, (size_t)keys->width);
    *size = 0;
    for (int32_t h = 0; h < op->n_heads; h++) {
        double dot = 0, w = op->w[q * op->w_stride + h];
        for (int32_t d = 0; d < op->width; d++)
            dot += (double)op->q[q * op->q_stride + (int64_t)h * op->width + d] * row[d];
        score += w * (dot > 0 ? dot : 0);
        *size += fabs(w * dot);
    }
    *size = fabs(*size * op->scale);
    return score * op->scale;
}

static bool listed(const int32_t *ids, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

// Whether ids are positions that the query sees, ascending.
static bool in_order(const int32_t *ids, int32_t n, int64_t last) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] > last || (i > 0 && ids[i] <= ids[i - 1])) return false;
    return true;
}

// How far from the edge of ref's selection the keys are that only one of the two has, relative to
// the terms of their scores.
static double selection_error(const struct lp_op_index_select *op, int64_t q, const int32_t *got,
                              int32_t n_got, const int32_t *want, int32_t n_want, float *row) {
    double size, edge = INFINITY, error = 0;
    if (n_got != n_want || !in_order(got, n_got, op->first_pos + q)) return INFINITY;
    if (memcmp(got, want, (size_t)n_want * sizeof *want) == 0) return 0;
    for (int32_t i = 0; i < n_want; i++) edge = fmin(edge, index_score(op, q, want[i], row, &size));
    for (int32_t i = 0; i < n_want; i++)
        for (int side = 0; side < 2; side++) {
            const int32_t *mine = side ? want : got, *others = side ? got : want;
            if (listed(others, n_want, mine[i])) continue;
            double score = index_score(op, q, mine[i], row, &size);
            error = fmax(error, fabs(score - edge) / fmax(size, 1e-30));
        }
    return error;
}

// What the fast device gave, against ref's choice in `ids` and `counts`; marks bad queries.
static void compare_selections(struct lp_shadow *s, const struct lp_op_index_select *op,
                               struct lp_shadow_run queries, const int32_t *ids,
                               const int32_t *counts, int64_t stride) {
    float *row = lp_shadow_floats(s, op->width);
    bool *bad = lp_alloc((size_t)queries.count, sizeof *bad);
    struct lp_shadow_finding finding = {
        .op = "index_select",
        .kernel =
            s->fast->backend->kernel(s->fast, "index_select", op->keys->type, op->keys->type).name,
        .param = op->keys->base,
        .n_rows = op->n_queries,
        .first_pos = op->first_pos + queries.first,
        .whole = queries.count == op->n_queries,
        .bound = LP_SHADOW_BOUND};
    for (int64_t i = 0; row && bad && i < queries.count; i++) {
        int64_t q = queries.first + i;
        double error = selection_error(op, q, op->ids + q * op->ids_stride, op->counts[q],
                                       ids + i * stride, counts[i], row);
        bad[i] = error > finding.bound;
        if (error <= finding.diff.error) continue;
        finding.diff.error = error;
        finding.diff.row = i;
    }
    if (row && bad) {
        lp_diff_pattern(finding.where, sizeof finding.where, bad, queries.count, "position",
                        finding.first_pos);
        lp_shadow_report(s, &finding);
    }
    lp_free(row);
    lp_free(bad);
}

void lp_shadow_index_select(struct lp_device *dev, const struct lp_op_index_select *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    bool compare = lp_shadow_begin(s, "index_select", op);
    s->fast->backend->index_select(s->fast, op);
    if (!compare) return;
    int64_t n_keys = op->first_pos + op->n_queries, stride = op->ids_stride;
    int64_t each = 2 * n_keys * op->n_heads * op->width;
    struct lp_shadow_run queries =
        lp_shadow_pick(s, op->n_queries, lp_shadow_fit(s, op->n_queries, each, 1));
    int32_t *ids = lp_alloc((size_t)(queries.count * stride), sizeof *ids);
    int32_t *counts = lp_alloc((size_t)queries.count, sizeof *counts);
    if (ids && counts) {
        struct lp_op_index_select part = *op;
        part.q += queries.first * op->q_stride;
        part.w += queries.first * op->w_stride;
        part.first_pos += queries.first;
        part.n_queries = queries.count;
        part.ids = ids;
        part.counts = counts;
        s->ref->backend->index_select(s->ref, &part);
        compare_selections(s, op, queries, ids, counts, stride);
        memcpy(op->ids + queries.first * stride, ids,
               (size_t)(queries.count * stride) * sizeof *ids);
        memcpy(op->counts + queries.first, counts, (size_t)queries.count * sizeof *counts);
    } else
        s->failed = true;
    lp_free(ids);
    lp_free(counts);
}

// ---- the router

// What expert e of a row is chosen by.
static double choice_value(const struct lp_op_router *op, int64_t t, int32_t e) {
    const float *z = op->logits + t * op->logits_stride;
    double bias = op->bias ? op->bias[e] : 0, max = -INFINITY, sum = 0;
    if (op->gating == LP_GATING_SIGMOID) return 1 / (1 + exp(-(double)z[e])) + bias;
    if (op->gating == LP_GATING_SOFTMAX_SELECTED) return z[e] + bias;
    for (int32_t i = 0; i < op->n_experts; i++) max = fmax(max, z[i]);
    for (int32_t i = 0; i < op->n_experts; i++) sum += exp(z[i] - max);
    return exp(z[e] - max) / sum + bias;
}

// The largest relative difference of a row's weights, or of what experts were chosen by where the
// choices differ. Whether an expert is left out of a group is not told from a tie within it.
static double router_error(const struct lp_op_router *op, int64_t t, const int32_t *ids,
                           const float *weights) {
    double error = 0;
    for (int32_t j = 0; j < op->n_used; j++) {
        int32_t got = op->ids[t * op->n_used + j], want = ids[j];
        if (got < 0 || got >= op->n_experts) return INFINITY;
        double a = op->weights[t * op->n_used + j], b = weights[j];
        if (got != want) {
            a = choice_value(op, t, got);
            b = choice_value(op, t, want);
        }
        if (isfinite(b))
            error = fmax(error, isfinite(a) ? fabs(a - b) / fmax(fabs(b), 1e-6) : INFINITY);
    }
    return error;
}

void lp_shadow_router(struct lp_device *dev, const struct lp_op_router *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    bool compare = lp_shadow_begin(s, "router", op);
    s->fast->backend->router(s->fast, op);
    if (!compare) return;
    size_t n = (size_t)op->n_rows * (size_t)op->n_used;
    struct lp_op_router ref = *op;
    ref.ids = lp_alloc(n, sizeof *ref.ids);
    ref.weights = lp_alloc(n, sizeof *ref.weights);
    bool *bad = lp_alloc((size_t)op->n_rows, sizeof *bad);
    if (ref.ids && ref.weights && bad) {
        struct lp_shadow_finding finding = {.op = "router",
                                            .param = op->bias,
                                            .n_rows = op->n_rows,
                                            .first_pos = -1,
                                            .whole = true,
                                            .bound = LP_SHADOW_BOUND};
        s->ref->backend->router(s->ref, &ref);
        for (int64_t t = 0; t < op->n_rows; t++) {
            double error =
                router_error(op, t, ref.ids + t * op->n_used, ref.weights + t * op->n_used);
            bad[t] = error > finding.bound;
            if (error <= finding.diff.error) continue;
            finding.diff.error = error;
            finding.diff.row = t;
        }
        lp_diff_pattern(finding.where, sizeof finding.where, bad, op->n_rows, "row", 0);
        lp_shadow_report(s, &finding);
        memcpy(op->ids, ref.ids, n * sizeof *ref.ids);
        memcpy(op->weights, ref.weights, n * sizeof *ref.weights);
    } else
        s->failed = true;
    lp_free(ref.ids);
    lp_free(ref.weights);
    lp_free(bad);
}
