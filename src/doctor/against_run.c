// The dump's tokens through this engine, each claim measured as its values pass by.
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/against.h"
#include "model/runner.h"

struct passage {
    struct lp_claims *claims;
    struct lp_lab *lab;
    struct lp_model *model;
    struct lp_probe probe;
    float *ours, *theirs, *before; // one row each; before: the dump's stream in front
    size_t row_capacity;
    float *delta; // [max_rows, n_embd]: ours - theirs of the stream in front
    const struct lp_claim *last_stream;
    float *logits; // [max_rows, n_vocab]
    bool *bad;
    int32_t *rows;
};

static bool wants(void *user, enum lp_probe_point point, int32_t layer, int64_t first, int64_t n) {
    const struct passage *p = user;
    (void)first, (void)n;
    for (size_t i = 0; i < p->claims->n; i++)
        if (p->claims->list[i].point == point && p->claims->list[i].layer == layer) return true;
    return false;
}

static bool reserve_rows(struct passage *p, int64_t n) {
    if ((size_t)n <= p->row_capacity) return true;
    float **rows[] = {&p->ours, &p->theirs, &p->before};
    for (size_t i = 0; i < 3; i++) {
        lp_free(*rows[i]);
        *rows[i] = lp_alloc((size_t)n, sizeof(float));
    }
    p->row_capacity = p->ours && p->theirs && p->before ? (size_t)n : 0;
    return p->row_capacity > 0;
}

// Square of a difference; two equal infinities do not differ.
static double square(float a, float b) {
    if (a == b) return 0;
    double d = (double)a - (double)b;
    return isfinite(d) ? d * d : INFINITY;
}

static void measure_row(struct lp_claim *c, int64_t at, const float *ours, const float *theirs,
                        int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        c->diff[at] += square(ours[i], theirs[i]);
        if (!isfinite(ours[i]) || !isfinite(theirs[i])) continue;
        c->norm[at] += (double)theirs[i] * (double)theirs[i];
        c->ours += (double)ours[i] * (double)ours[i];
        c->both += (double)ours[i] * (double)theirs[i];
        c->dump += (double)theirs[i] * (double)theirs[i];
    }
}

// The row with its rotary pairs (2i, 2i+1) at (i, i + width/2), and the other way round.
static void measure_reordered(struct lp_claim *c, int64_t at, const float *ours,
                              const float *theirs, int64_t n, int64_t head, int64_t first,
                              int64_t width) {
    for (int64_t i = 0; i < n; i++) {
        int64_t in_head = i % head, k = in_head - first, base = i - in_head + first,
                half = width / 2;
        bool rotated = k >= 0 && k < width;
        int64_t to_halves = k < half ? 2 * k : 2 * (k - half) + 1,
                to_pairs = k % 2 ? half + k / 2 : k / 2;
        c->reordered[0][at] += square(ours[rotated ? base + to_halves : i], theirs[i]);
        c->reordered[1][at] += square(ours[rotated ? base + to_pairs : i], theirs[i]);
    }
}

// What the layers since the claim before have added, here and there.
static void measure_added(struct passage *p, struct lp_claim *c, int64_t at, int64_t row,
                          const struct lp_claim *before) {
    int64_t n = p->model->h.n_embd;
    float *delta = p->delta + row * n;
    if (before) lp_dump_floats(before->array, before->first_value + at * n, n, p->before);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)p->ours[i] - (double)p->theirs[i],
               change = before ? d - (double)delta[i] : d,
               added = (double)p->theirs[i] - (before ? (double)p->before[i] : 0);
        c->added_diff[at] += isfinite(change) ? change * change : INFINITY;
        c->added_norm[at] += isfinite(added) ? added * added : 0;
        delta[i] = (float)d;
    }
}

// Entries of one list that the other lacks: a set has no order. Counted as squares.
static void measure_set(struct lp_claim *c, int64_t at, const int32_t *ours, int64_t n_ours) {
    const struct lp_dump_array *a = c->array;
    for (int64_t i = 0; i < c->row_values; i++) {
        int64_t id = lp_dump_int(a, c->first_value + at * c->row_values + i);
        bool found = id < 0;
        for (int64_t j = 0; j < n_ours && !found; j++) found = ours[j] == id;
        c->diff[at] += !found;
        c->norm[at] += id >= 0;
    }
}

// A row per key has as many values as keys are seen here, and room for all in the dump.
static void read_theirs(struct passage *p, const struct lp_claim *c, const struct lp_probe_value *v,
                        int64_t at) {
    int64_t first = c->first_value + at * c->row_values;
    if (!c->keys) {
        lp_dump_floats(c->array, first, c->row_values, p->theirs);
        return;
    }
    int64_t heads = v->n_dims == 2 ? v->dims[0] : 1, keys = v->dims[v->n_dims - 1];
    for (int64_t h = 0; h < heads; h++)
        lp_dump_floats(c->array, first + h * c->keys, keys, p->theirs + h * keys);
}

static bool measure_value(struct passage *p, struct lp_claim *c, const struct lp_probe_value *v,
                          int64_t row) {
    int64_t at = v->first_pos + row, n = lp_probe_row_values(v), first, width;
    if (at >= p->claims->n_tokens) return true;
    if (!reserve_rows(p, n > c->row_values ? n : c->row_values) ||
        !lp_probe_read(p->model->dev, v, row, 1, p->ours))
        return false;
    c->seen = true;
    if (v->is_int) {
        measure_set(c, at, (const int32_t *)p->ours, n);
        return true;
    }
    read_theirs(p, c, v, at);
    measure_row(c, at, p->ours, p->theirs, n);
    if (lp_claim_rotated(p->model, c, &first, &width))
        measure_reordered(c, at, p->ours, p->theirs, n, v->dims[v->n_dims - 1], first, width);
    if (c->in_stream) measure_added(p, c, at, row, p->last_stream);
    return true;
}

static void take(void *user, const struct lp_probe_value *v) {
    struct passage *p = user;
    for (size_t i = 0; i < p->claims->n; i++) {
        struct lp_claim *c = &p->claims->list[i];
        if (c->point != v->point || c->layer != v->layer) continue;
        for (int64_t row = 0; row < v->n_rows; row++)
            if (!measure_value(p, c, v, row)) p->probe.failed = true;
        if (c->in_stream) p->last_stream = c;
    }
}

bool lp_claim_rotated(const struct lp_model *model, const struct lp_claim *c, int64_t *first,
                      int64_t *width) {
    const struct lp_hparams *h = &model->h;
    bool mla = h->arch->attention == LP_ATTENTION_MLA;
    if (c->layer < 0) return false;
    *first = 0;
    *width = mla ? h->rope_dim : h->rope_width;
    switch (c->point) {
    case LP_PROBE_ATTN_Q:
    case LP_PROBE_ATTN_K:
    case LP_PROBE_ATTN_Q_PROJ:
    case LP_PROBE_ATTN_K_PROJ:
        *first = mla ? h->nope : 0;
        return true;
    case LP_PROBE_ATTN_KV_PROJ:
        *first = h->latent;
        return true;
    case LP_PROBE_ATTN_Q_ROPE:
    case LP_PROBE_ATTN_K_ROPE:
        return true;
    case LP_PROBE_INDEX_Q:
    case LP_PROBE_INDEX_K:
    case LP_PROBE_INDEX_Q_PROJ:
    case LP_PROBE_INDEX_K_PROJ:
        *width = model->layers[c->layer].mla.index_rope.width;
        return true;
    default:
        return false;
    }
}

static void clear(struct lp_claims *claims) {
    size_t n = (size_t)claims->n_tokens * sizeof(double);
    for (size_t i = 0; i < claims->n; i++) {
        struct lp_claim *c = &claims->list[i];
        double *sums[] = {c->diff,       c->norm,         c->added_diff,
                          c->added_norm, c->reordered[0], c->reordered[1]};
        for (size_t k = 0; k < sizeof sums / sizeof sums[0]; k++) memset(sums[k], 0, n);
        c->ours = c->both = c->dump = 0;
        c->seen = false;
    }
}

static lp_status run_chunk(struct passage *p, const struct lp_page_table *table, int64_t at,
                           int64_t n, struct lp_err *err) {
    struct lp_span span = {.pages = table, .n_past = at, .n_rows = n};
    bool head = wants(p, LP_PROBE_LOGITS, -1, at, n) || wants(p, LP_PROBE_FINAL_NORM, -1, at, n);
    struct lp_step step = {.tokens = p->claims->tokens + at,
                           .spans = &span,
                           .n_spans = 1,
                           .n_rows = n,
                           .logit_rows = p->rows,
                           .n_logit_rows = head ? n : 0,
                           .logits = p->logits,
                           .bad = p->bad};
    struct lp_step_settings settings = {.probe = &p->probe};
    p->last_stream = NULL;
    return lp_runner_step(lp_lab_runner(p->lab), &step, &settings, err);
}

lp_status lp_claims_measure(struct lp_claims *claims, struct lp_lab *lab, struct lp_err *err) {
    int64_t chunk = lp_lab_runner(lab)->max_rows, n_embd = lp_lab_model(lab)->h.n_embd;
    struct passage p = {.claims = claims,
                        .lab = lab,
                        .model = lp_lab_model(lab),
                        .probe = {.wants = wants, .take = take}};
    struct lp_page_table table = {0};
    p.probe.user = &p;
    p.delta = lp_alloc((size_t)(chunk * n_embd), sizeof *p.delta);
    p.logits = lp_alloc((size_t)(chunk * p.model->h.n_vocab), sizeof *p.logits);
    p.bad = lp_alloc((size_t)chunk, sizeof *p.bad);
    p.rows = lp_alloc((size_t)chunk, sizeof *p.rows);
    bool ok = p.delta && p.logits && p.bad && p.rows && reserve_rows(&p, n_embd);
    for (int64_t i = 0; ok && i < chunk; i++) p.rows[i] = (int32_t)i;
    clear(claims);
    lp_status status = ok ? lp_page_table_grow(&table, lp_lab_kv(lab), claims->n_tokens, err)
                          : lp_err_memory(err, (size_t)(chunk * (n_embd + p.model->h.n_vocab)) * 4,
                                          "the comparison with a dump");
    for (int64_t at = 0, n; at < claims->n_tokens && !status; at += n) {
        n = claims->n_tokens - at < chunk ? claims->n_tokens - at : chunk;
        status = run_chunk(&p, &table, at, n, err);
    }
    lp_page_table_release(&table, lp_lab_kv(lab));
    lp_free(p.ours);
    lp_free(p.theirs);
    lp_free(p.before);
    lp_free(p.delta);
    lp_free(p.logits);
    lp_free(p.bad);
    lp_free(p.rows);
    return status;
}
