// Attention in its forms: grouped-query, absorbed MLA, expanded MLA (docs/attention.md). Each query
// and head is computed alone: scores, softmax, weighted sum.
#include "backend/ref/ref.h"

#include <math.h>
#include <string.h>

static uint8_t *cache_row_at(const struct lp_cache_view *cache, int64_t pos) {
    int64_t slot = pos + cache->slot_offset;
    size_t page = (size_t)cache->pages[slot / cache->page_tokens];
    return (uint8_t *)cache->base + page * cache->page_bytes +
           (size_t)(slot % cache->page_tokens) * cache->row_bytes;
}

void lp_ref_cache_row(const struct lp_cache_view *cache, int64_t pos, float *out) {
    lp_cache_row_read(cache, cache_row_at(cache, pos), out);
}

struct lp_cache_view lp_ref_cache_of(const struct lp_cache_view *cache,
                                     const struct lp_op_batch *batch, int64_t row) {
    struct lp_cache_view of_row = *cache;
    if (batch) of_row.pages = batch->pages[row];
    return of_row;
}

void lp_ref_cache_write(struct lp_device *dev, const struct lp_op_cache_write *op) {
    (void)dev;
    const struct lp_cache_view *cache = op->cache;
    for (int64_t t = 0; t < op->n_rows; t++) {
        struct lp_cache_view of_row = lp_ref_cache_of(cache, op->batch, t);
        int64_t pos = op->batch ? op->batch->positions[t] : op->first_pos + t;
        lp_cache_row_write(cache, op->x + t * op->x_stride, cache_row_at(&of_row, pos));
    }
}

int64_t lp_ref_visible_count(const struct lp_visible *visible, int64_t q) {
    if (visible->ids) return visible->counts[q];
    return visible->batch ? visible->batch->positions[q] + 1 : visible->first_pos + q + 1;
}

int64_t lp_ref_visible_pos(const struct lp_visible *visible, int64_t q, int64_t i) {
    return visible->ids ? visible->ids[q * visible->k + i] : i;
}

static void softmax(double *scores, int64_t n) {
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (scores[i] > max || isnan(scores[i])) max = scores[i];
    for (int64_t i = 0; i < n; i++) sum += scores[i] = exp(scores[i] - max);
    for (int64_t i = 0; i < n; i++) scores[i] /= sum;
}

static void gqa_head(struct lp_ref_device *dev, const struct lp_op_gqa *op, int64_t q, int32_t h) {
    const float *query = op->q + q * op->q_stride + (int64_t)h * op->head_dim;
    int32_t kv_head = h / (op->n_heads / op->n_kv_heads);
    int64_t n = lp_ref_visible_count(&op->visible, q);
    for (int64_t s = 0; s < n; s++) {
        lp_ref_cache_row(op->k, lp_ref_visible_pos(&op->visible, q, s), dev->cache_row);
        dev->scores[s] =
            op->scale * lp_ref_dot(query, dev->cache_row + kv_head * op->head_dim, op->head_dim);
    }
    softmax(dev->scores, n);
    memset(dev->sum, 0, (size_t)op->v_dim * sizeof *dev->sum);
    for (int64_t s = 0; s < n; s++) {
        lp_ref_cache_row(op->v, lp_ref_visible_pos(&op->visible, q, s), dev->cache_row);
        for (int32_t d = 0; d < op->v_dim; d++)
            dev->sum[d] += dev->scores[s] * dev->cache_row[kv_head * op->v_dim + d];
    }
    float *out = op->out + q * op->out_stride + (int64_t)h * op->v_dim;
    for (int32_t d = 0; d < op->v_dim; d++) out[d] = (float)dev->sum[d];
}

void lp_ref_gqa(struct lp_device *device, const struct lp_op_gqa *op) {
    for (int64_t q = 0; q < op->visible.n_queries; q++) {
        struct lp_op_gqa of_row = *op;
        struct lp_cache_view k = lp_ref_cache_of(op->k, op->visible.batch, q),
                             v = lp_ref_cache_of(op->v, op->visible.batch, q);
        of_row.k = &k;
        of_row.v = &v;
        for (int32_t h = 0; h < op->n_heads; h++)
            gqa_head((struct lp_ref_device *)device, &of_row, q, h);
    }
}

static void absorbed_head(struct lp_ref_device *dev, const struct lp_op_mla_absorbed *op, int64_t q,
                          int32_t h) {
    const float *q_latent = op->q_latent + q * op->q_latent_stride + (int64_t)h * op->latent;
    const float *q_rope = op->q_rope + q * op->q_rope_stride + h * op->q_rope_head_stride;
    int64_t n = lp_ref_visible_count(&op->visible, q);
    for (int64_t s = 0; s < n; s++) {
        lp_ref_cache_row(op->cache, lp_ref_visible_pos(&op->visible, q, s), dev->cache_row);
        dev->scores[s] = op->scale * (lp_ref_dot(q_latent, dev->cache_row, op->latent) +
                                      lp_ref_dot(q_rope, dev->cache_row + op->latent, op->rope));
    }
    softmax(dev->scores, n);
    memset(dev->sum, 0, (size_t)op->latent * sizeof *dev->sum);
    for (int64_t s = 0; s < n; s++) {
        lp_ref_cache_row(op->cache, lp_ref_visible_pos(&op->visible, q, s), dev->cache_row);
        for (int32_t d = 0; d < op->latent; d++) dev->sum[d] += dev->scores[s] * dev->cache_row[d];
    }
    float *out = op->out + q * op->out_stride + (int64_t)h * op->latent;
    for (int32_t d = 0; d < op->latent; d++) out[d] = (float)dev->sum[d];
}

void lp_ref_mla_absorbed(struct lp_device *device, const struct lp_op_mla_absorbed *op) {
    for (int64_t q = 0; q < op->visible.n_queries; q++) {
        struct lp_op_mla_absorbed of_row = *op;
        struct lp_cache_view cache = lp_ref_cache_of(op->cache, op->visible.batch, q);
        of_row.cache = &cache;
        for (int32_t h = 0; h < op->n_heads; h++)
            absorbed_head((struct lp_ref_device *)device, &of_row, q, h);
    }
}

// k_nope[s] = W_UK[h] c[s] for all s < n_keys: W_UK is stored as [nope][latent], or transposed.
static void expand_keys(struct lp_ref_device *dev, const struct lp_op_mla_expanded *op, int32_t h,
                        int64_t n_keys) {
    const struct lp_weight *w = op->k_up;
    for (int64_t s = 0; s < n_keys; s++) {
        float *key = dev->keys + s * op->nope;
        lp_ref_cache_row(op->cache, s, dev->cache_row);
        if (op->k_transposed) memset(dev->sum, 0, (size_t)op->nope * sizeof *dev->sum);
        for (int64_t r = 0; r < w->n_out; r++) {
            lp_ref_weight_row(w, h, r, dev->row);
            if (!op->k_transposed)
                key[r] = (float)(lp_ref_dot(dev->row, dev->cache_row, op->latent) *
                                 lp_weight_scale(w, h));
            else
                for (int32_t d = 0; d < op->nope; d++)
                    dev->sum[d] += (double)dev->cache_row[r] * dev->row[d];
        }
        if (op->k_transposed)
            for (int32_t d = 0; d < op->nope; d++)
                key[d] = (float)(dev->sum[d] * lp_weight_scale(w, h));
    }
}

static void expand_values(struct lp_ref_device *dev, const struct lp_op_mla_expanded *op, int32_t h,
                          int64_t n_keys) {
    for (int32_t d = 0; d < op->v_dim; d++) {
        lp_ref_weight_row(op->v_up, h, d, dev->row);
        for (int64_t s = 0; s < n_keys; s++) {
            lp_ref_cache_row(op->cache, s, dev->cache_row);
            dev->values[s * op->v_dim + d] =
                (float)(lp_ref_dot(dev->row, dev->cache_row, op->latent) *
                        lp_weight_scale(op->v_up, h));
        }
    }
}

static void expanded_query(struct lp_ref_device *dev, const struct lp_op_mla_expanded *op,
                           int64_t q, int32_t h) {
    const float *query = op->q + q * op->q_stride + (int64_t)h * (op->nope + op->rope);
    int64_t n = lp_ref_visible_count(&op->visible, q);
    for (int64_t i = 0; i < n; i++) {
        int64_t s = lp_ref_visible_pos(&op->visible, q, i);
        lp_ref_cache_row(op->cache, s, dev->cache_row);
        dev->scores[i] =
            op->scale * (lp_ref_dot(query, dev->keys + s * op->nope, op->nope) +
                         lp_ref_dot(query + op->nope, dev->cache_row + op->latent, op->rope));
    }
    softmax(dev->scores, n);
    memset(dev->sum, 0, (size_t)op->v_dim * sizeof *dev->sum);
    for (int64_t i = 0; i < n; i++) {
        const float *value = dev->values + lp_ref_visible_pos(&op->visible, q, i) * op->v_dim;
        for (int32_t d = 0; d < op->v_dim; d++) dev->sum[d] += dev->scores[i] * value[d];
    }
    float *out = op->out + q * op->out_stride + (int64_t)h * op->v_dim;
    for (int32_t d = 0; d < op->v_dim; d++) out[d] = (float)dev->sum[d];
}

void lp_ref_mla_expanded(struct lp_device *device, const struct lp_op_mla_expanded *op) {
    struct lp_ref_device *dev = (struct lp_ref_device *)device;
    int64_t n_keys = op->visible.first_pos + op->visible.n_queries;
    for (int32_t h = 0; h < op->n_heads; h++) {
        expand_keys(dev, op, h, n_keys);
        expand_values(dev, op, h, n_keys);
        for (int64_t q = 0; q < op->visible.n_queries; q++) expanded_query(dev, op, q, h);
    }
}
