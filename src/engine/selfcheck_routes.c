#include "engine/selfcheck_routes.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "model/runner.h"
#include "model/shard.h"

// What the other form makes of the layer's input. The step then runs its own attention over the same
// buffers, and writes the same rows into the cache.
static void attend(struct lp_route_check *c, int32_t layer) {
    struct lp_runner *r = c->engine->runner;
    const struct lp_layer *w = &r->model->layers[layer];
    int64_t n_embd = r->model->h.n_embd, n_rows = c->span->n_rows;
    struct lp_attn_step step = lp_runner_attention(r, c->span, 1, n_rows, &c->settings);
    // The step around this is deterministic: its products stay so, and are the same here.
    lp_runner_fix_results(r, true);
    lp_runner_norm(r, r->h, n_embd, w->attn_norm, r->x, n_embd, n_rows);
    lp_mla_attend(&step, layer, &w->mla, &r->mla, r->x, n_embd);
    r->model->dev->backend->read(r->model->dev, c->theirs, r->attn_out,
                                 (size_t)(n_rows * c->width) * sizeof *c->theirs);
}

static double relative(double difference, double all) {
    return all > 0 ? sqrt(difference / all) : sqrt(difference);
}

static void note(struct lp_route_check *c, int32_t layer, double difference) {
    if (difference <= c->worst) return; // NaN is found in the logits
    c->worst = difference;
    c->layer = layer;
}

// Row by row, and head by head over all rows: a fault may touch one of either.
static void compare(struct lp_route_check *c, int32_t layer) {
    struct lp_runner *r = c->engine->runner;
    int64_t n_rows = c->span->n_rows, v_dim = r->model->layers[layer].mla.v_dim;
    if (r->model->layers[layer].mla.n_heads * v_dim != c->width)
        return; // fewer than other layers: on ranks
    r->model->dev->backend->read(r->model->dev, c->ours, r->attn_out,
                                 (size_t)(n_rows * c->width) * sizeof *c->ours);
    for (int64_t first = 0; first < c->width; first += v_dim) {
        double sum = 0, all = 0;
        for (int64_t t = 0; t < n_rows; t++)
            for (int64_t i = t * c->width + first; i < t * c->width + first + v_dim; i++) {
                double d = (double)c->theirs[i] - c->ours[i];
                sum += d * d;
                all += (double)c->ours[i] * c->ours[i];
            }
        note(c, layer, relative(sum, all));
    }
    for (int64_t t = 0; t < n_rows; t++) {
        double sum = 0, all = 0;
        for (int64_t i = t * c->width; i < (t + 1) * c->width; i++) {
            double d = (double)c->theirs[i] - c->ours[i];
            sum += d * d;
            all += (double)c->ours[i] * c->ours[i];
        }
        note(c, layer, relative(sum, all));
    }
}

static void on_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                     const int32_t *n_selected, int64_t ids_stride) {
    struct lp_route_check *c = user;
    const struct lp_range layers = lp_shard_layers(c->engine->model->weights); // rank 0's
    const int64_t end = layers.first + layers.n;
    if (c->watch) c->watch(c->watch_user, layer, h, selected, n_selected, ids_stride);
    if (!c->span) return;
    if (layer >= 0) compare(c, layer);
    if (layer + 1 < end) attend(c, layer + 1);
}

bool lp_route_check_compares(const struct lp_route_check *c) {
    return c->ours != NULL;
}

lp_status lp_route_check_init(struct lp_route_check *c, limpid_engine *engine,
                              struct lp_step_settings *step, int64_t max_rows, struct lp_err *err) {
    const struct lp_hparams *h = &engine->model->weights->h;
    const struct lp_step_settings *own = &engine->settings;
    bool knows_both = own->force == LP_ROUTE_AUTO || own->force == LP_ROUTE_DENSE;
    *c = (struct lp_route_check){.engine = engine, .settings = *own, .layer = -1};
    c->settings.trace = NULL;
    c->settings.clock = NULL;
    c->settings.probe = NULL;
    if (own->deterministic || !knows_both || h->arch->attention != LP_ATTENTION_MLA) return LP_OK;
    if (own->force == LP_ROUTE_AUTO) c->settings.force = LP_ROUTE_EXPANDED;
    c->width = 0;
    for (int32_t l = 0; l < h->n_layers; l++) {
        const int64_t width = (int64_t)engine->model->weights->layers[l].mla.n_heads * h->v_dim;
        if (width > c->width) c->width = width;
    }
    size_t n = (size_t)max_rows, row_bytes = (size_t)c->width * sizeof *c->ours;
    c->ours = lp_alloc(n, row_bytes);
    c->theirs = lp_alloc(n, row_bytes);
    if (!c->ours || !c->theirs) {
        lp_route_check_release(c);
        return lp_err_memory(err, 2 * n * row_bytes, "the self-check of attention");
    }
    c->watch = step->watch;
    c->watch_user = step->watch_user;
    step->watch = on_layer;
    step->watch_user = c;
    return LP_OK;
}

void lp_route_check_release(struct lp_route_check *c) {
    lp_free(c->ours);
    lp_free(c->theirs);
    *c = (struct lp_route_check){0};
}
