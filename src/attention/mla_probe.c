// What a probe sees of MLA and its indexer. In the expanded form queries meet keys that the kernel
// makes and forgets; q . (W_UK c) = (W_UK^T q) . c, so scores of both forms come from the latents.
#include <math.h>

#include "attention/attn_probe.h"
#include "base/alloc.h"

struct span_probe { // one span of one layer
    const struct lp_attn_step *step;
    int32_t layer;
    const struct lp_mla_layer *w;
    const struct lp_mla_buffers *buf;
    const struct lp_span *span;
    struct lp_route route;
    struct lp_key_rows latents;
    void *bytes;    // of a row of k_up or v_up
    float *weights; // that row
    float *q;       // one row of queries
    double *query;  // [n_heads, latent + rope]
    double *wide;   // [n_heads, nope + rope] or [n_heads, v_dim]
    int32_t *ids;   // [ids_stride] what the row attends to
};

static void span_release(struct span_probe *p) {
    lp_key_rows_close(&p->latents);
    lp_free(p->bytes);
    lp_free(p->weights);
    lp_free(p->q);
    lp_free(p->query);
    lp_free(p->wide);
    lp_free(p->ids);
}

static bool span_init(struct span_probe *p) {
    const struct lp_mla_layer *w = p->w;
    int64_t heads = w->n_heads, head = w->nope + w->rope_dim;
    size_t row_bytes =
        w->k_up.row_bytes > w->v_up.row_bytes ? w->k_up.row_bytes : w->v_up.row_bytes;
    int64_t n_in = w->k_up.n_in > w->v_up.n_in ? w->k_up.n_in : w->v_up.n_in;
    if (!lp_key_rows_open(&p->latents, p->step, p->layer, LP_KV_LATENT, p->span)) return false;
    p->bytes = lp_alloc(row_bytes, 1);
    p->weights = lp_alloc((size_t)n_in, sizeof *p->weights);
    p->q = lp_alloc((size_t)(heads * (head > w->latent ? head : w->latent)), sizeof *p->q);
    p->query = lp_alloc((size_t)(heads * (w->latent + w->rope_dim)), sizeof *p->query);
    p->wide = lp_alloc((size_t)(heads * (head > w->v_dim ? head : w->v_dim)), sizeof *p->wide);
    p->ids = lp_alloc((size_t)p->buf->ids_stride + 1, sizeof *p->ids);
    return p->bytes && p->weights && p->q && p->query && p->wide && p->ids;
}

static bool wants(const struct span_probe *p, enum lp_probe_point point, int64_t row) {
    return lp_probe_wants(p->step->probe, point, p->layer, p->span->n_past + row, 1);
}

static void read_device(const struct span_probe *p, void *to, const void *from, int64_t n_values) {
    p->step->dev->backend->read(p->step->dev, to, from, (size_t)n_values * 4);
}

// Row `row` of a weight's matrix of head h.
static const float *weight_row(struct span_probe *p, const struct lp_weight *w, int32_t h,
                               int64_t row) {
    lp_probe_weight_row(p->step->dev, w, h, row, p->bytes, p->weights);
    return p->weights;
}

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

// W^T x of a matrix stored by rows, or W x if the rows are the outputs: `by_rows` says that row i of
// the stored matrix belongs to out[i].
static void product(struct span_probe *p, const struct lp_weight *w, int32_t h, bool by_rows,
                    const float *x, double *out) {
    if (by_rows) {
        for (int64_t i = 0; i < w->n_out; i++) out[i] = dot(weight_row(p, w, h, i), x, w->n_in);
        return;
    }
    for (int64_t j = 0; j < w->n_in; j++) out[j] = 0;
    for (int64_t i = 0; i < w->n_out; i++) {
        const float *row = weight_row(p, w, h, i);
        for (int64_t j = 0; j < w->n_in; j++) out[j] += (double)row[j] * (double)x[i];
    }
}

// The queries of a row against latents: the kernel's own on the absorbed route.
static void make_query(struct span_probe *p, int64_t row) {
    const struct lp_mla_layer *w = p->w;
    int64_t head = w->nope + w->rope_dim, width = w->latent + w->rope_dim,
            at = p->span->first_row + row, n_q = w->n_heads * head,
            n_z = (int64_t)w->n_heads * w->latent;
    if (!p->route.expanded) {
        read_device(p, p->q, p->buf->q_latent + at * n_z, n_z);
        for (int64_t i = 0; i < n_z; i++)
            p->query[i / w->latent * width + i % w->latent] = (double)p->q[i];
    }
    read_device(p, p->q, p->buf->q + at * n_q, n_q);
    for (int32_t h = 0; h < w->n_heads; h++) {
        const float *q = p->q + h * head;
        if (p->route.expanded) product(p, &w->k_up, h, w->k_transposed, q, p->query + h * width);
        for (int32_t i = 0; i < w->rope_dim; i++)
            p->query[h * width + w->latent + i] = (double)q[w->nope + i];
    }
}

static bool show_scores(struct span_probe *p, int64_t row) {
    const struct lp_mla_layer *w = p->w;
    int64_t at = p->span->first_row + row;
    struct lp_score_work work = {.keys = &p->latents,
                                 .n_heads = w->n_heads,
                                 .n_kv_heads = 1,
                                 .width = w->latent + w->rope_dim,
                                 .scale = (double)w->scale,
                                 .q = p->query,
                                 .n_keys = p->span->n_past + row + 1};
    if (!wants(p, LP_PROBE_ATTN_SCORES, row) && !wants(p, LP_PROBE_ATTN_PROBS, row)) return true;
    if (p->route.select) {
        int32_t count;
        read_device(p, &count, p->buf->n_selected + at, 1);
        read_device(p, p->ids, p->buf->selected + at * p->buf->ids_stride, p->buf->ids_stride);
        work.ids = p->ids;
        work.n_ids = count;
    }
    make_query(p, row);
    return lp_probe_show_scores(p->step, p->span, row, p->layer, &work);
}

// Key and value of every head at the row's own position, from the latent in the cache.
static void show_keys(struct span_probe *p, int64_t row) {
    const struct lp_mla_layer *w = p->w;
    int64_t head = w->nope + w->rope_dim;
    const float *latent = lp_key_rows_read(&p->latents, p->span->n_past + row);
    if (wants(p, LP_PROBE_ATTN_K, row)) {
        for (int32_t h = 0; h < w->n_heads; h++) {
            product(p, &w->k_up, h, !w->k_transposed, latent, p->wide + h * head);
            for (int32_t i = 0; i < w->rope_dim; i++)
                p->wide[h * head + w->nope + i] = (double)latent[w->latent + i];
        }
        lp_probe_show_row(p->step, p->span, row, LP_PROBE_ATTN_K, p->layer, p->wide, w->n_heads,
                          head);
    }
    if (!wants(p, LP_PROBE_ATTN_V, row)) return;
    for (int32_t h = 0; h < w->n_heads; h++)
        product(p, &w->v_up, h, true, latent, p->wide + (int64_t)h * w->v_dim);
    lp_probe_show_row(p->step, p->span, row, LP_PROBE_ATTN_V, p->layer, p->wide, w->n_heads,
                      w->v_dim);
}

// ---- the indexer ----

static bool show_index_scores(const struct span_probe *p, int64_t row) {
    const struct lp_mla_layer *w = p->w;
    int64_t n_q = (int64_t)w->index_heads * w->index_width, n_keys = p->span->n_past + row + 1,
            at = p->span->first_row + row;
    struct lp_key_rows keys = {0};
    float *q = lp_alloc((size_t)n_q, sizeof *q),
          *weights = lp_alloc((size_t)w->index_heads, sizeof *weights);
    double *scores = lp_alloc((size_t)n_keys, sizeof *scores);
    bool ok =
        q && weights && scores && lp_key_rows_open(&keys, p->step, p->layer, LP_KV_INDEX, p->span);
    if (ok) {
        read_device(p, q, p->buf->index_q + at * n_q, n_q);
        read_device(p, weights, p->buf->index_w + at * w->index_heads, w->index_heads);
        for (int64_t s = 0; s < n_keys; s++) {
            const float *key = lp_key_rows_read(&keys, s);
            for (int32_t h = 0; h < w->index_heads; h++) {
                double product_ = dot(q + (int64_t)h * w->index_width, key, w->index_width);
                scores[s] += (double)weights[h] * (product_ > 0 || isnan(product_) ? product_ : 0);
            }
            scores[s] *= (double)w->index_scale;
        }
        lp_probe_show_row(p->step, p->span, row, LP_PROBE_INDEX_SCORES, p->layer, scores, 0,
                          n_keys);
        lp_key_rows_close(&keys);
    }
    lp_free(q);
    lp_free(weights);
    lp_free(scores);
    return ok;
}

// What the row attends to. Up to top_k keys nothing was selected: it is every key.
static bool show_topk(const struct span_probe *p, int64_t row) {
    int64_t n_keys = p->span->n_past + row + 1, at = p->span->first_row + row,
            n = p->route.select ? p->buf->ids_stride : n_keys;
    int32_t *ids = lp_alloc((size_t)n, sizeof *ids);
    if (!ids) return false;
    if (p->route.select)
        read_device(p, ids, p->buf->selected + at * p->buf->ids_stride, n);
    else
        for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)i;
    struct lp_probe_value value = {.point = LP_PROBE_INDEX_TOPK,
                                   .layer = p->layer,
                                   .sequence = p->span->sequence,
                                   .first_pos = n_keys - 1,
                                   .n_rows = 1,
                                   .data = ids,
                                   .is_int = true,
                                   .host = true,
                                   .row_stride = n,
                                   .n_dims = 1,
                                   .dims = {n}};
    p->step->probe->take(p->step->probe->user, &value);
    lp_free(ids);
    return true;
}

static bool show_index(const struct span_probe *p, int64_t row) {
    bool scored = p->w->indexer == LP_INDEXER_FULL && p->route.select;
    if (scored && wants(p, LP_PROBE_INDEX_SCORES, row) && !show_index_scores(p, row)) return false;
    bool dense = p->w->indexer == LP_INDEXER_NONE || p->step->force == LP_ROUTE_DENSE;
    return dense || !wants(p, LP_PROBE_INDEX_TOPK, row) || show_topk(p, row);
}

// The buffers of the indexer: its queries are there only if a span of the step has a selection.
static void show_index_buffers(const struct lp_attn_step *step, int32_t layer,
                               const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                               const struct lp_span *span, bool selects) {
    if (w->indexer != LP_INDEXER_FULL) return;
    struct lp_probe_rows k = {
        .data = buf->index_k, .row_stride = w->index_width, .width = w->index_width};
    k.data = buf->index_k + span->first_row * k.row_stride;
    k.first_row = span->first_row;
    lp_probe_show(step->probe, span, 1, LP_PROBE_INDEX_K, layer, &k);
    if (!selects) return;
    int64_t stride = (int64_t)w->index_heads * w->index_width;
    lp_probe_show(step->probe, span, 1, LP_PROBE_INDEX_Q, layer,
                  &(struct lp_probe_rows){.data = buf->index_q + span->first_row * stride,
                                          .first_row = span->first_row,
                                          .row_stride = stride,
                                          .n_heads = w->index_heads,
                                          .width = w->index_width,
                                          .head_stride = w->index_width});
    lp_probe_show(step->probe, span, 1, LP_PROBE_INDEX_WEIGHTS, layer,
                  &(struct lp_probe_rows){.data = buf->index_w + span->first_row * w->index_heads,
                                          .first_row = span->first_row,
                                          .row_stride = w->index_heads,
                                          .width = w->index_heads});
}

// ---- a layer ----

static void show_rows(struct span_probe *p) {
    bool ok = span_init(p);
    for (int64_t row = 0; row < p->span->n_rows && ok; row++) {
        ok = show_index(p, row) && show_scores(p, row);
        if (ok && p->route.expanded) show_keys(p, row);
    }
    if (!ok) p->step->probe->failed = true;
    span_release(p);
}

static void show_heads(const struct lp_attn_step *step, int32_t layer, const struct lp_span *span,
                       enum lp_probe_point point, const float *data, int64_t n_heads,
                       int64_t width) {
    lp_probe_show(step->probe, span, 1, point, layer,
                  &(struct lp_probe_rows){.data = data + span->first_row * n_heads * width,
                                          .first_row = span->first_row,
                                          .row_stride = n_heads * width,
                                          .n_heads = n_heads,
                                          .width = width,
                                          .head_stride = width});
}

static void show_span(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                      const struct lp_mla_buffers *buf, const struct lp_span *span) {
    static const enum lp_probe_point by_row[] = {LP_PROBE_INDEX_SCORES, LP_PROBE_INDEX_TOPK,
                                                 LP_PROBE_ATTN_K,       LP_PROBE_ATTN_V,
                                                 LP_PROBE_ATTN_SCORES,  LP_PROBE_ATTN_PROBS};
    struct lp_probe *probe = step->probe;
    struct lp_route route = lp_mla_route(step, w, span);
    if (probe->route) probe->route(probe->user, layer, span->n_past, span->n_rows, route.name);
    show_index_buffers(step, layer, w, buf, span, route.select);
    if (!route.expanded) {
        show_heads(step, layer, span, LP_PROBE_ATTN_Q_ABSORBED, buf->q_latent, w->n_heads,
                   w->latent);
        show_heads(step, layer, span, LP_PROBE_ATTN_LATENT_OUT, buf->z, w->n_heads, w->latent);
    }
    for (size_t i = 0; i < sizeof by_row / sizeof by_row[0]; i++) {
        if (!lp_probe_wants(probe, by_row[i], layer, span->n_past, span->n_rows)) continue;
        struct span_probe p = {
            .step = step, .layer = layer, .w = w, .buf = buf, .span = span, .route = route};
        show_rows(&p);
        break;
    }
}

void lp_mla_probe(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                  const struct lp_mla_buffers *buf) {
    int64_t head = w->nope + w->rope_dim, width = w->latent + w->rope_dim;
    struct lp_probe_rows q = {.data = buf->q,
                              .row_stride = w->n_heads * head,
                              .n_heads = w->n_heads,
                              .width = head,
                              .head_stride = head},
                         nope = q, rope = q,
                         latent = {.data = buf->kv, .row_stride = width, .width = w->latent},
                         key = latent;
    nope.width = w->nope;
    rope.data = buf->q + w->nope;
    rope.width = key.width = w->rope_dim;
    key.data = buf->kv + w->latent;
    lp_probe_show(step->probe, step->spans, step->n_spans, LP_PROBE_ATTN_Q, layer, &q);
    lp_probe_show(step->probe, step->spans, step->n_spans, LP_PROBE_ATTN_Q_NOPE, layer, &nope);
    lp_probe_show(step->probe, step->spans, step->n_spans, LP_PROBE_ATTN_Q_ROPE, layer, &rope);
    lp_probe_show(step->probe, step->spans, step->n_spans, LP_PROBE_ATTN_KV_LATENT, layer, &latent);
    lp_probe_show(step->probe, step->spans, step->n_spans, LP_PROBE_ATTN_K_ROPE, layer, &key);
    if (w->has_q_rank) lp_attn_probe(step, LP_PROBE_ATTN_Q_LATENT, layer, buf->q_low, w->q_rank);
    for (int32_t i = 0; i < step->n_spans; i++) show_span(step, layer, w, buf, &step->spans[i]);
    lp_attn_probe_heads(step, LP_PROBE_ATTN_OUT, layer, buf->out, w->n_heads, w->v_dim);
}
