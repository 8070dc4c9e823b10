// A cache and a runner of its own: layers that share another's selection get room for indexer keys
// too, so that they can be tried with an indexer of their own.
#include "doctor/recall.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/patch.h"
#include "doctor/tap.h"
#include "model/runner.h"

#define ROWS 64
#define EVEN 0.02 // the best keys hold so little more than random ones: the attention is even

struct lp_recall {
    struct lp_model *model;
    struct lp_kv *kv;
    struct lp_runner *runner;
    struct lp_page_table table;
    int32_t *tokens; // [n]
    int64_t n;
    int32_t top_k, n_queries;
    int64_t *positions; // [n_queries], ascending
    float *mass;        // [n_layers, n_queries, n] attention, mean over heads
    int32_t *ids;       // [n_layers, n_queries, top_k]
    int32_t *counts;    // [n_layers, n_queries]
    bool has_mass;
    double *scores; // [n] scratch
    int32_t layer;  // that runs
};

static lp_status make_cache(struct lp_recall *r, struct lp_err *err) {
    int32_t n = lp_model_kv_count(r->model, false);
    struct lp_kv_layer *layers = lp_alloc((size_t)n, sizeof *layers);
    if (!layers) return lp_err_memory(err, (size_t)n * sizeof *layers, "the layers of the cache");
    lp_model_kv_layers(r->model, false, layers);
    for (int32_t l = 0; l < n; l++) layers[l].width[LP_KV_INDEX] = r->model->h.index_width;
    lp_status status = lp_kv_new(&r->kv, r->model->dev, layers, n, LP_TYPE_F32, r->n, err);
    lp_free(layers);
    if (!status) status = lp_page_table_grow(&r->table, r->kv, r->n, err);
    return status ? status
                  : lp_runner_new(&r->runner, r->model, r->kv, r->n < ROWS ? r->n : ROWS, r->n,
                                  false, err);
}

lp_status lp_recall_new(struct lp_recall **out, struct lp_model *model, const int32_t *tokens,
                        int64_t n, int32_t top_k, int32_t max_queries, struct lp_err *err) {
    if (!model->dev->backend->host_memory)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "the attention can be read on host backends alone: try --backend cpu");
    struct lp_recall *r = lp_alloc(1, sizeof *r);
    if (!r) return lp_err_memory(err, sizeof *r, "the indexer's examination");
    int64_t first = n / 2 > top_k ? n / 2 : top_k, room = n - first;
    r->model = model;
    r->n = n;
    r->top_k = top_k;
    r->n_queries = room < max_queries ? (int32_t)room : max_queries;
    size_t rows = (size_t)model->h.n_layers * (size_t)r->n_queries;
    r->tokens = lp_alloc((size_t)n, sizeof *r->tokens);
    r->positions = lp_alloc((size_t)r->n_queries, sizeof *r->positions);
    r->mass = lp_alloc(rows, (size_t)n * sizeof *r->mass);
    r->ids = lp_alloc(rows, (size_t)top_k * sizeof *r->ids);
    r->counts = lp_alloc(rows, sizeof *r->counts);
    r->scores = lp_alloc((size_t)n, sizeof *r->scores);
    lp_status status = r->tokens && r->positions && r->mass && r->ids && r->counts && r->scores
                           ? make_cache(r, err)
                           : lp_err_memory(err, rows * (size_t)n * 4, "the attention of a text");
    if (status) {
        lp_recall_free(r);
        return status;
    }
    memcpy(r->tokens, tokens, (size_t)n * sizeof *tokens);
    for (int32_t i = 0; i < r->n_queries; i++)
        r->positions[i] = first + room * (i + 1) / r->n_queries - 1;
    *out = r;
    return LP_OK;
}

void lp_recall_free(struct lp_recall *r) {
    if (!r) return;
    if (r->kv) lp_page_table_release(&r->table, r->kv);
    lp_runner_free(r->runner);
    lp_kv_free(r->kv);
    lp_free(r->tokens);
    lp_free(r->positions);
    lp_free(r->mass);
    lp_free(r->ids);
    lp_free(r->counts);
    lp_free(r->scores);
    lp_free(r);
}

// ---- during the run -----------------------------------------------------------------------------

static void on_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                     const int32_t *n_selected, int64_t ids_stride) {
    struct lp_recall *r = user;
    (void)h;
    (void)selected;
    (void)n_selected;
    (void)ids_stride;
    r->layer = layer + 1;
}

static const float *cache_row(const struct lp_cache_view *view, int64_t position) {
    int64_t slot = position + view->slot_offset;
    return (const float *)((const char *)view->base +
                           view->page_bytes * (size_t)view->pages[slot / view->page_tokens] +
                           view->row_bytes * (size_t)(slot % view->page_tokens));
}

static double dot(const float *a, const float *b, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

// Adds the attention of one head of one query to mass [position + 1], weighed.
static void add_head(struct lp_recall *r, const struct lp_op_mla_absorbed *op, int64_t i, int32_t h,
                     double weight, float *mass) {
    int64_t n = op->visible.first_pos + i + 1;
    const float *q = op->q_latent + i * op->q_latent_stride + (int64_t)h * op->latent;
    const float *q_rope = op->q_rope + i * op->q_rope_stride + h * op->q_rope_head_stride;
    double max = -INFINITY, sum = 0;
    for (int64_t s = 0; s < n; s++) {
        const float *row = cache_row(op->cache, s);
        r->scores[s] =
            op->scale * (dot(q, row, op->latent) + dot(q_rope, row + op->latent, op->rope));
        max = fmax(max, r->scores[s]);
    }
    for (int64_t s = 0; s < n; s++) sum += r->scores[s] = exp(r->scores[s] - max);
    for (int64_t s = 0; s < n; s++) mass[s] += (float)(weight * r->scores[s] / sum);
}

static bool sees_all(void *user, const struct lp_op_mla_absorbed *op) {
    struct lp_recall *r = user;
    const struct lp_visible *v = &op->visible;
    for (int32_t k = 0; k < r->n_queries; k++) {
        int64_t i = r->positions[k] - v->first_pos, at = (int64_t)r->layer * r->n_queries + k;
        if (i < 0 || i >= v->n_queries) continue;
        float *mass = r->mass + at * r->n;
        for (int32_t h = 0; h < op->n_heads && !r->has_mass; h++)
            add_head(r, op, i, h, 1.0 / op->n_heads, mass);
        int32_t count = v->ids ? v->counts[i] : 0;
        r->counts[at] = count < r->top_k ? count : r->top_k;
        for (int32_t j = 0; j < r->counts[at]; j++)
            r->ids[at * r->top_k + j] = v->ids[i * v->k + j];
    }
    return true;
}

// ---- figures ------------------------------------------------------------------------------------

double lp_recall_skill(const struct lp_recall_layer *l, double selected) {
    double span = l->best - l->random;
    return span > EVEN ? (selected - l->random) / span : NAN;
}

static int downwards(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static double mass_of(const float *mass, int64_t n, const int32_t *ids, int32_t count) {
    double sum = 0;
    for (int32_t i = 0; i < count; i++)
        if (ids[i] >= 0 && ids[i] < n) sum += mass[ids[i]];
    return sum;
}

void lp_recall_measure(const float *mass, int64_t n, const int32_t *ids, int32_t count,
                       int32_t top_k, struct lp_recall_layer *sum) {
    float *sorted = lp_alloc((size_t)n, sizeof *sorted);
    int64_t k = top_k < n ? top_k : n;
    int32_t common = 0;
    if (!sorted) {
        sum->selected = NAN;
        return;
    }
    memcpy(sorted, mass, (size_t)n * sizeof *mass);
    qsort(sorted, (size_t)n, sizeof *sorted, downwards);
    for (int64_t i = 0; i < k; i++) sum->best += sorted[i];
    for (int64_t i = n - k; i < n; i++) sum->recent += mass[i];
    for (int32_t i = 0; i < count; i++)
        common += ids[i] >= 0 && ids[i] < n && mass[ids[i]] >= sorted[k - 1];
    sum->selected += mass_of(mass, n, ids, count);
    sum->random += (double)k / (double)n;
    sum->overlap += count ? (double)common / count : 0;
    lp_free(sorted);
}

static void measure_layer(const struct lp_recall *r, int32_t l, struct lp_recall_layer *out) {
    *out = (struct lp_recall_layer){.earlier = l > 0 ? 0 : NAN};
    for (int32_t q = 0; q < r->n_queries; q++) {
        int64_t at = (int64_t)l * r->n_queries + q, before = at - r->n_queries;
        const float *mass = r->mass + at * r->n;
        int64_t n = r->positions[q] + 1;
        lp_recall_measure(mass, n, r->ids + at * r->top_k, r->counts[at], r->top_k, out);
        if (l > 0) out->earlier += mass_of(mass, n, r->ids + before * r->top_k, r->counts[before]);
    }
    double *sums[] = {&out->selected, &out->best,    &out->random,
                      &out->recent,   &out->earlier, &out->overlap};
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) *sums[i] /= r->n_queries;
}

static lp_status step_through(struct lp_recall *r, struct lp_err *err) {
    struct lp_step_settings settings = {
        .force = LP_ROUTE_ABSORBED, .watch = on_layer, .watch_user = r};
    for (int64_t at = 0, rows; at < r->n; at += rows) {
        rows = r->n - at < ROWS ? r->n - at : ROWS;
        struct lp_span span = {.pages = &r->table, .n_past = at, .n_rows = rows};
        struct lp_step step = {
            .tokens = r->tokens + at, .spans = &span, .n_spans = 1, .n_rows = rows};
        lp_status status = lp_runner_step(r->runner, &step, &settings, err);
        if (status) return status;
    }
    return LP_OK;
}

lp_status lp_recall_run(struct lp_recall *r, struct lp_recall_layer *out, struct lp_err *err) {
    struct lp_device *dev = r->model->dev;
    struct lp_patch patch = {.dev = dev};
    struct lp_tap tap = {.user = r, .sees_all = sees_all};
    for (int32_t l = 0; l < r->model->h.n_layers; l++)
        lp_patch_set(&patch, &r->model->layers[l].mla.top_k, &r->top_k, sizeof r->top_k);
    lp_status status = patch.failed ? lp_err_memory(err, 64, "an experiment") : LP_OK;
    lp_tap_open(&tap, dev);
    if (!status) status = step_through(r, err);
    lp_tap_close(&tap);
    lp_patch_undo(&patch);
    r->has_mass = !status;
    for (int32_t l = 0; l < r->model->h.n_layers && !status; l++) measure_layer(r, l, &out[l]);
    return status;
}
