// Attention by its formula.
#include "doctor/formula.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

static void read_row(const struct lp_cache_view *cache, int64_t pos, float *out) {
    int64_t slot = pos + cache->slot_offset;
    const uint8_t *row = (const uint8_t *)cache->base +
                         cache->page_bytes * (size_t)cache->pages[slot / cache->page_tokens] +
                         cache->row_bytes * (size_t)(slot % cache->page_tokens);
    lp_cache_row_read(cache, row, out);
}

static int64_t position(const struct lp_formula_keys *keys, int64_t i) {
    return keys->ids ? keys->ids[i] : i;
}

static double dot(const double *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void softmax(double *scores, int64_t n) {
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (scores[i] > max) max = scores[i];
    for (int64_t i = 0; i < n; i++) sum += scores[i] = exp(scores[i] - max);
    for (int64_t i = 0; i < n; i++) scores[i] /= sum;
}

static void weight_row(const struct lp_weight *w, int64_t mat, int64_t row, float *out) {
    lp_type_info((uint32_t)w->type)
        ->dequant(lp_weight_mat(w, mat) + (size_t)row * w->row_bytes, out, (size_t)w->n_in);
    for (int64_t i = 0; i < w->n_in; i++) out[i] *= lp_weight_scale(w, mat);
}

// The query of a head in latent space: W_UK^T q, whichever way W_UK is stored.
static void into_latents(const struct lp_mla_layer *w, int32_t head, const float *q, float *row,
                         double *out) {
    memset(out, 0, (size_t)w->latent * sizeof *out);
    for (int64_t r = 0; r < w->k_up.n_out; r++) {
        weight_row(&w->k_up, head, r, row);
        if (w->k_transposed) // row r: the nope values that latent r goes to
            for (int32_t d = 0; d < w->nope; d++) out[r] += (double)row[d] * q[d];
        else // row r: the latents that nope value r comes from
            for (int32_t j = 0; j < w->latent; j++) out[j] += (double)row[j] * q[r];
    }
}

struct space {
    double *scores, *query, *sum;
    float *row;
};

static bool take_space(struct space *s, int64_t n_keys, int64_t width) {
    s->scores = lp_alloc((size_t)n_keys, sizeof *s->scores);
    s->query = lp_alloc((size_t)width, sizeof *s->query);
    s->sum = lp_alloc((size_t)width, sizeof *s->sum);
    s->row = lp_alloc((size_t)width, sizeof *s->row);
    return s->scores && s->query && s->sum && s->row;
}

static void free_space(struct space *s) {
    lp_free(s->scores);
    lp_free(s->query);
    lp_free(s->sum);
    lp_free(s->row);
}

bool lp_formula_mla(double *out, const struct lp_mla_layer *w, int32_t head, const float *q,
                    const struct lp_formula_keys *keys, double scale) {
    struct space s;
    int64_t width = w->latent + w->rope_dim;
    bool ok = take_space(&s, keys->n, width + w->nope);
    if (ok) {
        into_latents(w, head, q, s.row, s.query);
        for (int32_t d = 0; d < w->rope_dim; d++) s.query[w->latent + d] = q[w->nope + d];
        for (int64_t i = 0; i < keys->n; i++) {
            read_row(&keys->latents, position(keys, i), s.row);
            s.scores[i] = scale * dot(s.query, s.row, width);
        }
        softmax(s.scores, keys->n);
        for (int64_t i = 0; i < keys->n; i++) {
            read_row(&keys->latents, position(keys, i), s.row);
            for (int32_t j = 0; j < w->latent; j++) s.sum[j] += s.scores[i] * s.row[j];
        }
        for (int32_t d = 0; d < w->v_dim; d++) {
            weight_row(&w->v_up, head, d, s.row);
            out[d] = dot(s.sum, s.row, w->latent);
        }
    }
    free_space(&s);
    return ok;
}

bool lp_formula_gqa(double *out, const struct lp_gqa_layer *w, int32_t head, const float *q,
                    const struct lp_formula_keys *keys, double scale) {
    struct space s;
    int32_t kv_head = head / (w->n_heads / w->n_kv_heads);
    int64_t width = keys->keys.width > keys->values.width ? keys->keys.width : keys->values.width;
    bool ok = take_space(&s, keys->n, width);
    if (ok) {
        for (int32_t d = 0; d < w->head_dim; d++) s.query[d] = q[d];
        for (int64_t i = 0; i < keys->n; i++) {
            read_row(&keys->keys, position(keys, i), s.row);
            s.scores[i] = scale * dot(s.query, s.row + kv_head * w->head_dim, w->head_dim);
        }
        softmax(s.scores, keys->n);
        memset(out, 0, (size_t)w->v_dim * sizeof *out);
        for (int64_t i = 0; i < keys->n; i++) {
            read_row(&keys->values, position(keys, i), s.row);
            for (int32_t d = 0; d < w->v_dim; d++)
                out[d] += s.scores[i] * s.row[kv_head * w->v_dim + d];
        }
    }
    free_space(&s);
    return ok;
}
