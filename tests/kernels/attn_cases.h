// What the tests of attention share: one problem of each form in arrays, the calls that solve it,
// and its formula in double.
#ifndef TESTS_ATTN_CASES_H
#define TESTS_ATTN_CASES_H

#include "attn_fixture.h"

struct mla_case {
    int32_t n_heads, latent, rope, nope, v_dim;
    int64_t first_pos, n_queries;
    int32_t page_tokens;
    lp_type type;
    int32_t k; // selection, 0 = none
    bool k_transposed;
    bool quantised; // the weights, to Q8_0; else F32
};

struct mla {
    struct mla_case c;
    int64_t n_keys;
    float *rows; // [n_keys, latent + rope], as rounded to the cache
    struct cache cache;
    float *q;        // [n_queries, n_heads, nope + rope]
    float *q_latent; // [n_queries, n_heads, latent] = W_UK^T q_nope
    float *k_up, *v_up, *k_stored, *v_stored;
    struct lp_weight k_weight, v_weight;
    const uint8_t **mats; // [2 * n_heads], where the weights have factors
    float *factors;       // [2 * n_heads]
    int32_t *ids, *counts;
    float scale;
    int64_t q_stride, latent_stride, out_stride, latent_out_stride;
};

static inline struct lp_weight weight(const float *data, int64_t n_in, int64_t n_out,
                                      int64_t n_mats) {
    return (struct lp_weight){.data = data,
                              .type = LP_TYPE_F32,
                              .n_in = n_in,
                              .n_out = n_out,
                              .n_mats = n_mats,
                              .row_bytes = (size_t)n_in * 4,
                              .mat_bytes = (size_t)(n_in * n_out) * 4,
                              .name = {"test", 4}};
}

// W_UK and W_UV as lists of matrices, backwards in memory and with factors; k_up and v_up are the
// products.
static inline void scatter(struct lp_weight *w, float *values, float *stored, const uint8_t **mats,
                           float *factors) {
    int64_t n = w->n_in * w->n_out;
    float *copy = new_array(n, sizeof *copy);
    for (int64_t h = 0; h < w->n_mats; h++) {
        factors[h] = 0.6f + 0.3f * (float)(h % 3);
        mats[h] = (const uint8_t *)(stored + (w->n_mats - 1 - h) * n);
        for (int64_t i = 0; i < n; i++) values[h * n + i] *= factors[h];
    }
    for (int64_t h = 0; h < w->n_mats / 2; h++) {
        float *a = stored + h * n, *b = stored + (w->n_mats - 1 - h) * n;
        memcpy(copy, a, (size_t)n * sizeof *a);
        memcpy(a, b, (size_t)n * sizeof *a);
        memcpy(b, copy, (size_t)n * sizeof *a);
    }
    lp_free(copy);
    w->data = NULL;
    w->mats = mats;
    w->scales = factors;
}

// A weight's rows as Q8_0, in place; values (in `stored`'s order) become what the blocks hold.
static inline void quantise_weight(struct lp_weight *w, float *stored) {
    const struct lp_type_info *type = lp_type_info(LP_TYPE_Q8_0);
    const int64_t n = w->n_mats * w->n_out * w->n_in;
    uint64_t bytes;
    assert_true(lp_type_row_bytes(LP_TYPE_Q8_0, (uint64_t)w->n_in, &bytes));
    void *blocks = new_array(w->n_mats * w->n_out, bytes);
    type->quantize(stored, blocks, (size_t)n);
    type->dequant(blocks, stored, (size_t)n);
    w->data = blocks;
    w->type = LP_TYPE_Q8_0;
    w->row_bytes = bytes;
    w->mat_bytes = bytes * (size_t)w->n_out;
}

static inline void make_weights(struct mla *m, struct lp_rng *rng) {
    const struct mla_case *c = &m->c;
    int64_t n = (int64_t)c->n_heads * c->nope * c->latent;
    m->k_up = random_floats(rng, n, 1.0f / sqrtf((float)c->latent));
    m->v_up = random_floats(rng, (int64_t)c->n_heads * c->v_dim * c->latent,
                            1.0f / sqrtf((float)c->latent));
    m->k_stored = new_array(n, sizeof(float));
    m->v_stored = new_array((int64_t)c->n_heads * c->v_dim * c->latent, sizeof(float));
    memcpy(m->v_stored, m->v_up, (size_t)(c->n_heads * c->v_dim * c->latent) * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        int64_t j = i % c->latent, d = i / c->latent % c->nope, h = i / c->latent / c->nope;
        m->k_stored[c->k_transposed ? (h * c->latent + j) * c->nope + d : i] = m->k_up[i];
    }
    m->k_weight = c->k_transposed ? weight(m->k_stored, c->nope, c->latent, c->n_heads)
                                  : weight(m->k_stored, c->latent, c->nope, c->n_heads);
    m->v_weight = weight(m->v_stored, c->latent, c->v_dim, c->n_heads);
    if (c->quantised) {
        quantise_weight(&m->k_weight, m->k_stored);
        quantise_weight(&m->v_weight, m->v_stored);
        memcpy(m->v_up, m->v_stored, (size_t)(c->n_heads * c->v_dim * c->latent) * sizeof(float));
        for (int64_t i = 0; i < n; i++) {
            int64_t j = i % c->latent, d = i / c->latent % c->nope, h = i / c->latent / c->nope;
            m->k_up[i] = m->k_stored[c->k_transposed ? (h * c->latent + j) * c->nope + d : i];
        }
        return;
    }
    if (lp_rng_u64(rng) & 1) return;
    m->mats = new_array(2 * c->n_heads, sizeof *m->mats);
    m->factors = new_array(2 * c->n_heads, sizeof *m->factors);
    scatter(&m->k_weight, m->k_up, m->k_stored, m->mats, m->factors);
    scatter(&m->v_weight, m->v_up, m->v_stored, m->mats + c->n_heads, m->factors + c->n_heads);
}

static inline void absorb_queries(struct mla *m) {
    const struct mla_case *c = &m->c;
    for (int64_t q = 0; q < c->n_queries; q++)
        for (int32_t h = 0; h < c->n_heads; h++)
            for (int32_t j = 0; j < c->latent; j++) {
                const float *x = m->q + q * m->q_stride + (int64_t)h * (c->nope + c->rope);
                double sum = 0;
                for (int32_t d = 0; d < c->nope; d++)
                    sum += (double)x[d] * m->k_up[((int64_t)h * c->nope + d) * c->latent + j];
                m->q_latent[q * m->latent_stride + (int64_t)h * c->latent + j] = (float)sum;
            }
}

static inline void make_mla(struct mla *m, const struct mla_case *c, uint64_t seed) {
    struct lp_rng rng;
    lp_rng_init(&rng, seed);
    *m = (struct mla){.c = *c, .n_keys = c->first_pos + c->n_queries};
    m->scale = 1.0f / sqrtf((float)(c->nope + c->rope));
    m->q_stride = (int64_t)c->n_heads * (c->nope + c->rope) + 3;
    m->latent_stride = (int64_t)c->n_heads * c->latent + 1;
    m->out_stride = (int64_t)c->n_heads * c->v_dim + 5;
    m->latent_out_stride = (int64_t)c->n_heads * c->latent + 5;
    m->rows = random_floats(&rng, m->n_keys * (c->latent + c->rope), 1.0f);
    m->cache = new_cache_tail(&rng, m->rows, m->n_keys, c->latent + c->rope, c->rope, c->type,
                              c->page_tokens, 0);
    m->q = random_floats(&rng, c->n_queries * m->q_stride, 2.0f);
    m->q_latent = random_floats(&rng, c->n_queries * m->latent_stride, 1.0f);
    make_weights(m, &rng);
    absorb_queries(m);
    if (!c->k) return;
    m->ids = new_array(c->n_queries * c->k, sizeof *m->ids);
    m->counts = new_array(c->n_queries, sizeof *m->counts);
    random_selection(&rng, c->first_pos, c->n_queries, c->k, m->ids, m->counts);
}

static inline void free_mla(struct mla *m) {
    if (m->c.quantised) {
        lp_free((void *)(uintptr_t)m->k_weight.data);
        lp_free((void *)(uintptr_t)m->v_weight.data);
    }
    void *blocks[] = {m->rows,    m->q,        m->q_latent, m->k_up,
                      m->v_up,    m->k_stored, m->v_stored, (void *)m->mats,
                      m->factors, m->ids,      m->counts};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) lp_free(blocks[i]);
    free_cache(&m->cache);
}

static inline struct lp_reserve mla_reserve(const struct mla *m) {
    const struct mla_case *c = &m->c;
    int32_t widths[] = {c->latent + c->rope, c->nope, c->v_dim};
    int32_t widest = 1;
    for (int i = 0; i < 3; i++)
        if (widths[i] > widest) widest = widths[i];
    return (struct lp_reserve){.n_rows = c->n_queries,
                               .n_context = m->n_keys,
                               .max_width = widest,
                               .n_heads = c->n_heads,
                               .latent = c->latent,
                               .rope = c->rope,
                               .nope = c->nope,
                               .v_dim = c->v_dim};
}

static inline struct lp_visible visible(const struct mla *m, int64_t first, int64_t n) {
    return (struct lp_visible){.first_pos = m->c.first_pos + first,
                               .n_queries = n,
                               .ids = m->ids ? m->ids + first * m->c.k : NULL,
                               .counts = m->counts ? m->counts + first : NULL,
                               .k = m->c.k};
}

// The queries first..first + n - 1 as one call.
static inline void absorbed(struct lp_device *dev, const struct mla *m, int64_t first, int64_t n,
                            float *out) {
    const struct mla_case *c = &m->c;
    struct lp_op_mla_absorbed op = {.q_latent = m->q_latent + first * m->latent_stride,
                                    .q_latent_stride = m->latent_stride,
                                    .q_rope = m->q + first * m->q_stride + c->nope,
                                    .q_rope_stride = m->q_stride,
                                    .q_rope_head_stride = c->nope + c->rope,
                                    .cache = &m->cache.view,
                                    .visible = visible(m, first, n),
                                    .n_heads = c->n_heads,
                                    .latent = c->latent,
                                    .rope = c->rope,
                                    .scale = m->scale,
                                    .out = out + first * m->latent_out_stride,
                                    .out_stride = m->latent_out_stride};
    dev->backend->mla_absorbed(dev, &op);
}

static inline void expanded(struct lp_device *dev, const struct mla *m, int64_t first, int64_t n,
                            float *out) {
    const struct mla_case *c = &m->c;
    struct lp_op_mla_expanded op = {.q = m->q + first * m->q_stride,
                                    .q_stride = m->q_stride,
                                    .cache = &m->cache.view,
                                    .k_up = &m->k_weight,
                                    .k_transposed = c->k_transposed,
                                    .v_up = &m->v_weight,
                                    .visible = visible(m, first, n),
                                    .n_heads = c->n_heads,
                                    .nope = c->nope,
                                    .rope = c->rope,
                                    .latent = c->latent,
                                    .v_dim = c->v_dim,
                                    .scale = m->scale,
                                    .out = out + first * m->out_stride,
                                    .out_stride = m->out_stride};
    dev->backend->mla_expanded(dev, &op);
}

typedef void (*mla_form)(struct lp_device *, const struct mla *, int64_t, int64_t, float *);

// The bounds of docs/numerics.md: 2e-5 of the row's largest value in float32; where a device may
// multiply whole numbers (the expanded form of quantised weights, the absorbed form of a Q8_0
// cache) or bfloat16 (the absorbed form of such a cache), what their rounding allows.
static inline double bound_of(int device, const struct mla_case *c, mla_form form) {
#if defined(TESTS_CUDA) // shapes of its tensor-core kernels are multiplied in the cache's type
    const bool tensor = form == absorbed ? c->latent == 512 && c->rope == 64
                                         : !c->k && c->rope == 64 &&
                                               ((c->nope == 192 && c->v_dim == 256) ||
                                                (c->nope == 128 && c->v_dim == 128));
    if (tensor && c->type == LP_TYPE_BF16) return 1e-2;
    if (tensor && c->type == LP_TYPE_F8_E4M3) return 2e-2; // rows too are rounded to bfloat16
    return tensor && c->type == LP_TYPE_F16 ? 2e-3 : 2e-5;
#endif
    bool best = device >= 1 && device <= N_SAME;
    if (best && form == expanded && c->quantised) return 1e-3;
    if (best && form == absorbed && c->type == LP_TYPE_Q8_0) return 1e-3;
    const bool amx = (LP_CPU_LEVEL_AMX & ~lp_cpu_features_detect()) == 0 && c->latent % 32 == 0;
    if (best && amx && form == absorbed && (c->type == LP_TYPE_F16 || c->type == LP_TYPE_BF16))
        return 1e-4;
    const bool bf16 = (LP_CPU_LEVEL_BF16 & ~lp_cpu_features_detect()) == 0;
    if (best && bf16 && form == absorbed && c->type == LP_TYPE_BF16) return 1e-2;
    return 2e-5;
}

typedef double (*mla_bound)(int device, const struct mla_case *, mla_form);

// The same where results may vary: an F16 cache too may be multiplied as bfloat16, with AMX times finer
// queries.
static inline double bound_varying(int device, const struct mla_case *c, mla_form form) {
#if !defined(TESTS_CUDA)
    const uint32_t lacks = ~lp_cpu_features_detect();
    if (device >= 1 && device <= N_SAME && form == absorbed) {
        const bool amx = (LP_CPU_LEVEL_AMX & lacks) == 0 && c->latent % 32 == 0;
        if ((LP_CPU_LEVEL_BF16 & lacks) == 0 && c->type == LP_TYPE_BF16) return 1e-2;
        if ((LP_CPU_LEVEL_BF16 & lacks) == 0 && c->type == LP_TYPE_F16) return amx ? 1e-2 : 2e-2;
    }
#endif
    return bound_of(device, c, form);
}

// The formula of the absorbed form, for one query and head, in double.
static inline void formula(const struct mla *m, int64_t q, int32_t h, double *out) {
    const struct mla_case *c = &m->c;
    int64_t n = m->ids ? m->counts[q] : c->first_pos + q + 1, width = c->latent + c->rope;
    double *p = new_array(n, sizeof *p), max = -INFINITY, sum = 0;
    const float *q_rope = m->q + q * m->q_stride + (int64_t)h * (c->nope + c->rope) + c->nope;
    for (int64_t i = 0; i < n; i++) {
        const float *row = m->rows + (m->ids ? m->ids[q * c->k + i] : i) * width;
        p[i] = 0;
        for (int32_t j = 0; j < c->latent; j++)
            p[i] += (double)m->q_latent[q * m->latent_stride + (int64_t)h * c->latent + j] * row[j];
        for (int32_t j = 0; j < c->rope; j++) p[i] += (double)q_rope[j] * row[c->latent + j];
        p[i] *= m->scale;
        if (p[i] > max) max = p[i];
    }
    for (int64_t i = 0; i < n; i++) sum += p[i] = exp(p[i] - max);
    for (int32_t j = 0; j < c->latent; j++) {
        out[j] = 0;
        for (int64_t i = 0; i < n; i++)
            out[j] += p[i] / sum * m->rows[(m->ids ? m->ids[q * c->k + i] : i) * width + j];
    }
    lp_free(p);
}

// latent: the formula's output. v = W_UV latent is that of the expanded form.
static inline void formula_outputs(const struct mla *m, float *latent_out, float *out) {
    const struct mla_case *c = &m->c;
    double *latent = new_array(c->latent, sizeof *latent);
    for (int64_t q = 0; q < c->n_queries; q++)
        for (int32_t h = 0; h < c->n_heads; h++) {
            formula(m, q, h, latent);
            for (int32_t j = 0; j < c->latent; j++)
                latent_out[q * m->latent_out_stride + (int64_t)h * c->latent + j] =
                    (float)latent[j];
            for (int32_t d = 0; d < c->v_dim; d++) {
                double sum = 0;
                for (int32_t j = 0; j < c->latent; j++)
                    sum += m->v_up[((int64_t)h * c->v_dim + d) * c->latent + j] * latent[j];
                out[q * m->out_stride + (int64_t)h * c->v_dim + d] = (float)sum;
            }
        }
    lp_free(latent);
}

struct gqa_case {
    int32_t n_heads, n_kv_heads, head_dim, v_dim;
    int64_t first_pos, n_queries;
    int32_t page_tokens;
    lp_type type;
};

struct gqa {
    struct gqa_case c;
    int64_t n_keys, q_stride, out_stride;
    float *q, *k_rows, *v_rows;
    struct cache k, v;
};

static inline void make_gqa(struct gqa *g, const struct gqa_case *c, struct lp_rng *rng) {
    *g = (struct gqa){.c = *c, .n_keys = c->first_pos + c->n_queries};
    g->q_stride = (int64_t)c->n_heads * c->head_dim + 2;
    g->out_stride = (int64_t)c->n_heads * c->v_dim + 5;
    g->q = random_floats(rng, c->n_queries * g->q_stride, 2.0f);
    int32_t k_width = c->n_kv_heads * c->head_dim, v_width = c->n_kv_heads * c->v_dim;
    g->k_rows = random_floats(rng, g->n_keys * k_width, 1.0f);
    g->v_rows = random_floats(rng, g->n_keys * v_width, 1.0f);
    g->k = new_cache(rng, g->k_rows, g->n_keys, k_width, c->type, c->page_tokens);
    g->v = new_cache(rng, g->v_rows, g->n_keys, v_width, c->type, c->page_tokens);
}

static inline void free_gqa(struct gqa *g) {
    void *blocks[] = {g->q, g->k_rows, g->v_rows};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) lp_free(blocks[i]);
    free_cache(&g->k);
    free_cache(&g->v);
}

static inline struct lp_reserve gqa_reserve(const struct gqa *g) {
    const struct gqa_case *c = &g->c;
    int32_t width = c->head_dim > c->v_dim ? c->head_dim : c->v_dim;
    return (struct lp_reserve){.n_rows = c->n_queries,
                               .n_context = g->n_keys,
                               .max_width = c->n_heads * width,
                               .n_heads = c->n_heads};
}

static inline void gqa(struct lp_device *dev, const struct gqa *g, int64_t first, int64_t n,
                       float *out) {
    struct lp_op_gqa op = {.q = g->q + first * g->q_stride,
                           .q_stride = g->q_stride,
                           .k = &g->k.view,
                           .v = &g->v.view,
                           .visible = {.first_pos = g->c.first_pos + first, .n_queries = n},
                           .n_heads = g->c.n_heads,
                           .n_kv_heads = g->c.n_kv_heads,
                           .head_dim = g->c.head_dim,
                           .v_dim = g->c.v_dim,
                           .scale = 1.0f / sqrtf((float)g->c.head_dim),
                           .out = out + first * g->out_stride,
                           .out_stride = g->out_stride};
    dev->backend->gqa(dev, &op);
}

static inline void gqa_formula(const struct gqa *g, float *out) {
    const struct gqa_case *c = &g->c;
    double *p = new_array(g->n_keys, sizeof *p), scale = 1.0f / sqrtf((float)c->head_dim);
    for (int64_t q = 0; q < c->n_queries; q++)
        for (int32_t h = 0; h < c->n_heads; h++) {
            int64_t n = c->first_pos + q + 1, kv = h / (c->n_heads / c->n_kv_heads);
            double max = -INFINITY, sum = 0;
            for (int64_t s = 0; s < n; s++) {
                p[s] = 0;
                for (int32_t d = 0; d < c->head_dim; d++)
                    p[s] += (double)g->q[q * g->q_stride + (int64_t)h * c->head_dim + d] *
                            g->k_rows[(s * c->n_kv_heads + kv) * c->head_dim + d];
                p[s] *= scale;
                if (p[s] > max) max = p[s];
            }
            for (int64_t s = 0; s < n; s++) sum += p[s] = exp(p[s] - max);
            for (int32_t d = 0; d < c->v_dim; d++) {
                double value = 0;
                for (int64_t s = 0; s < n; s++)
                    value += p[s] * g->v_rows[(s * c->n_kv_heads + kv) * c->v_dim + d];
                out[q * g->out_stride + (int64_t)h * c->v_dim + d] = (float)(value / sum);
            }
        }
    lp_free(p);
}

#endif
