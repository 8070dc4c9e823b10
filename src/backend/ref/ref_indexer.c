// The lightning indexer: scores and the selection of the top-k keys (docs/attention.md).
#include "backend/ref/ref.h"

#include <math.h>

static double index_score(struct lp_ref_device *dev, const struct lp_op_index_select *op, int64_t q,
                          const struct lp_cache_view *keys, int64_t s) {
    double score = 0;
    lp_ref_cache_row(keys, s, dev->cache_row);
    for (int32_t h = 0; h < op->n_heads; h++) {
        const float *query = op->q + q * op->q_stride + (int64_t)h * op->width;
        double dot = 0;
        for (int32_t d = 0; d < op->width; d++) dot += (double)query[d] * dev->cache_row[d];
        score += (double)op->w[q * op->w_stride + h] * (dot > 0 || isnan(dot) ? dot : 0);
    }
    return (float)(score * op->scale); // ranked in float32, as every backend does
}

// a before b: NaN first, then the higher score, then the lower position.
static bool ranks_before(const double *scores, int64_t a, int64_t b) {
    bool nan_a = isnan(scores[a]), nan_b = isnan(scores[b]);
    if (nan_a != nan_b) return nan_a;
    if (!nan_a && scores[a] != scores[b]) return scores[a] > scores[b];
    return a < b;
}

// A binary heap of the k best so far, the worst of them at the root.
static void sift_down(const double *scores, int32_t *heap, int64_t n, int64_t at) {
    for (;;) {
        int64_t worst = at, left = 2 * at + 1;
        for (int64_t c = left; c < left + 2 && c < n; c++)
            if (ranks_before(scores, heap[worst], heap[c])) worst = c;
        if (worst == at) return;
        int32_t swap = heap[at];
        heap[at] = heap[worst];
        heap[worst] = swap;
        at = worst;
    }
}

static void sort_ascending(int32_t *ids, int64_t n) { // shell sort: k is a few thousand
    for (int64_t gap = n / 2; gap > 0; gap /= 2)
        for (int64_t i = gap; i < n; i++)
            for (int64_t j = i; j >= gap && ids[j - gap] > ids[j]; j -= gap) {
                int32_t swap = ids[j];
                ids[j] = ids[j - gap];
                ids[j - gap] = swap;
            }
}

static void select_best(const double *scores, int64_t n, int64_t k, int32_t *ids) {
    for (int64_t s = 0; s < k; s++) ids[s] = (int32_t)s;
    for (int64_t at = k / 2; at-- > 0;) sift_down(scores, ids, k, at);
    for (int64_t s = k; s < n; s++) {
        if (!ranks_before(scores, s, ids[0])) continue;
        ids[0] = (int32_t)s;
        sift_down(scores, ids, k, 0);
    }
    sort_ascending(ids, k);
}

void lp_ref_index_select(struct lp_device *device, const struct lp_op_index_select *op) {
    struct lp_ref_device *dev = (struct lp_ref_device *)device;
    for (int64_t q = 0; q < op->n_queries; q++) {
        struct lp_cache_view keys = lp_ref_cache_of(op->keys, op->batch, q);
        int64_t n = (op->batch ? op->batch->positions[q] : op->first_pos + q) + 1,
                k = n < op->top_k ? n : op->top_k;
        int32_t *ids = op->ids + q * op->ids_stride;
        if (n > k) // else every key is kept and no score is needed
            for (int64_t s = 0; s < n; s++) dev->scores[s] = index_score(dev, op, q, &keys, s);
        select_best(dev->scores, n > k ? n : k, k, ids);
        for (int64_t i = k; i < op->ids_stride && i < op->top_k; i++) ids[i] = -1;
        op->counts[q] = (int32_t)k;
    }
}
