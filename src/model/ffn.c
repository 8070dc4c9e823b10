// The feed-forward half of a layer: dense SwiGLU, or the mixture of experts (router semantics:
// docs/attention.md, "Router").
#include "attention/attn_probe.h"
#include "model/expert_cache.h"
#include "model/runner.h"
#include "model/shard.h"

static void matmul(struct lp_device *dev, const struct lp_weight *w, const float *x, float *y,
                   int64_t y_stride, int64_t n_rows, bool accumulate, bool same_x) {
    dev->backend->matmul(dev, &(struct lp_op_matmul){.w = w,
                                                     .x = x,
                                                     .x_stride = w->n_in,
                                                     .y = y,
                                                     .y_stride = y_stride,
                                                     .n_rows = n_rows,
                                                     .accumulate = accumulate,
                                                     .same_x = same_x});
}

struct ffn_points { // where a probe sees it
    enum lp_probe_point gate, up, act;
};
static const struct ffn_points dense_points = {LP_PROBE_FFN_GATE, LP_PROBE_FFN_UP,
                                               LP_PROBE_FFN_ACT};
static const struct ffn_points shared_points = {LP_PROBE_FFN_SHARED_GATE, LP_PROBE_FFN_SHARED_UP,
                                                LP_PROBE_FFN_SHARED_ACT};

// gate = silu(gate x) * up x
static void gate_up(struct lp_runner *r, const struct lp_ffn *w, int32_t layer,
                    const struct lp_attn_step *attn, const struct ffn_points *points, bool same_x) {
    struct lp_device *dev = r->model->dev;
    const int64_t width = w->gate.n_out, n_rows = attn->n_rows;
    if (dev->backend->gate_up && !attn->probe &&
        dev->backend->gate_up(dev, &(struct lp_op_gate_up){.gate = &w->gate,
                                                           .up = &w->up,
                                                           .x = r->x,
                                                           .x_stride = w->gate.n_in,
                                                           .y = r->gate,
                                                           .n_rows = n_rows,
                                                           .same_x = same_x}))
        return;
    matmul(dev, &w->gate, r->x, r->gate, width, n_rows, false, same_x);
    matmul(dev, &w->up, r->x, r->up, width, n_rows, false, true);
    lp_attn_probe(attn, points->gate, layer, r->gate, width);
    lp_attn_probe(attn, points->up, layer, r->up, width);
    dev->backend->silu_mul(dev, &(struct lp_op_silu_mul){.gate = r->gate,
                                                         .up = r->up,
                                                         .y = r->gate,
                                                         .stride = width,
                                                         .n_rows = n_rows,
                                                         .width = (int32_t)width});
}

// h += down(silu(gate x) * up x)
static void swiglu(struct lp_runner *r, const struct lp_ffn *w, int32_t layer,
                   const struct lp_attn_step *attn, const struct ffn_points *points) {
    struct lp_device *dev = r->model->dev;
    int64_t width = w->gate.n_out, n_rows = attn->n_rows;
    if (width == 0 || n_rows == 0) return; // nothing of it is on this rank
    // The norm, or the routed experts, had x too, if no probe ran others between and they were not given other rows.
    gate_up(r, w, layer, attn, points, !attn->probe && !r->model->part.sends_rows);
    lp_attn_probe(attn, points->act, layer, r->gate, width);
    matmul(dev, &w->down, r->gate, r->h, w->down.n_out, n_rows, true, false);
    lp_step_lap(attn->clock, points == &shared_points ? LP_STEP_PART_SHARED : LP_STEP_PART_DENSE);
}

// same_x: of lp_op_matmul
static void run_router(struct lp_runner *r, int32_t layer, const float *x, int64_t n_rows,
                       bool same_x, float *logits, int32_t *ids, float *weights) {
    struct lp_device *dev = r->model->dev;
    const struct lp_hparams *h = &r->model->h;
    const struct lp_layer *w = &r->model->layers[layer];
    matmul(dev, &w->router, x, logits, h->n_experts, n_rows, false, same_x);
    dev->backend->router(dev, &(struct lp_op_router){.logits = logits,
                                                     .logits_stride = h->n_experts,
                                                     .n_rows = n_rows,
                                                     .bias = w->router_bias,
                                                     .n_experts = h->n_experts,
                                                     .n_used = h->n_used,
                                                     .n_groups = h->n_groups,
                                                     .n_groups_used = h->n_groups_used,
                                                     .gating = h->gating,
                                                     .group_score = h->group_score,
                                                     .normalise = h->normalise,
                                                     .scale = h->expert_scale,
                                                     .ids = ids,
                                                     .weights = weights});
}

static struct lp_op_experts experts_op(const struct lp_runner *r, int32_t layer,
                                       const struct lp_expert_rows *rows, bool same_x,
                                       const struct lp_expert_source *source) {
    const struct lp_hparams *h = &r->model->h;
    const struct lp_layer *w = &r->model->layers[layer];
    return (struct lp_op_experts){.gate = &w->experts.gate,
                                  .up = &w->experts.up,
                                  .down = &w->experts.down,
                                  .first_expert = (int32_t)lp_shard_experts(r->model).first,
                                  .n_experts = h->n_experts,
                                  .x = rows->x,
                                  .x_stride = h->n_embd,
                                  .n_rows = rows->n_rows,
                                  .ids = rows->ids,
                                  .weights = rows->weights,
                                  .n_used = h->n_used,
                                  .same_x = same_x,
                                  .y = rows->y,
                                  .y_stride = h->n_embd,
                                  .source = source};
}

// Whether some of these rows' experts may be on this rank
static bool has_experts(const struct lp_layer *w, int64_t n_rows) {
    return n_rows > 0 && w->experts.gate.n_out > 0 && w->experts.gate.n_mats > 0;
}

static void call_experts(struct lp_runner *r, int32_t layer, const struct lp_expert_rows *rows,
                         bool same_x, const struct lp_expert_source *source) {
    const struct lp_op_experts op = experts_op(r, layer, rows, same_x, source);
    if (has_experts(&r->model->layers[layer], rows->n_rows))
        r->model->dev->backend->experts(r->model->dev, &op);
}

static struct lp_expert_rows stream_rows(const struct lp_runner *r, int64_t n_rows) {
    return (struct lp_expert_rows){
        .x = r->x, .ids = r->expert_ids, .weights = r->expert_weights, .y = r->h, .n_rows = n_rows};
}

// The shared expert with the others, where the backend does that; false: it does not, and nothing was added.
static bool add_together(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn) {
    struct lp_device *dev = r->model->dev;
    const struct lp_layer *w = &r->model->layers[layer];
    if (!dev->backend->experts_and_shared || attn->probe || r->model->expert_cache ||
        w->host_experts || !w->has_shared || w->shared.gate.n_out == 0 ||
        !has_experts(w, attn->n_rows))
        return false;
    const struct lp_expert_rows rows = stream_rows(r, attn->n_rows);
    const struct lp_op_experts op = experts_op(r, layer, &rows, true, NULL);
    const struct lp_shared_expert shared = {&w->shared.gate, &w->shared.up, &w->shared.down};
    return dev->backend->experts_and_shared(dev, &op, &shared);
}

static bool may_guess(const struct lp_runner *r, int32_t next) {
    const struct lp_model *m = r->model;
    return next < m->h.n_layers && lp_shard_has_layer(m, next) && m->layers[next].is_moe &&
           lp_expert_cache_guesses(m->expert_cache);
}

// Which experts a layer may want, of the residual stream as it is now. For a layer to come that is without what the
// layers before it still add, which is little, so most of the choice is the same: three in four on the models of
// bench/experts without the shared expert and the next attention, seven in ten before a layer's experts are added.
static void choose_for(struct lp_runner *r, int32_t next, int64_t n_rows) {
    const struct lp_hparams *h = &r->model->h;
    lp_runner_norm(r, r->h, h->n_embd, r->model->layers[next].ffn_norm, r->guess_x, h->n_embd,
                   n_rows);
    run_router(r, next, r->guess_x, n_rows, false, r->guess_logits, r->guess_ids, r->guess_weights);
}

void lp_ffn_look_ahead(struct lp_runner *r, int32_t layer, int64_t n_rows) {
    if (!r->model->expert_cache || !lp_shard_is_cut(r->model) || n_rows > LP_RUNNER_GUESS_ROWS ||
        !r->model->layers[layer].is_moe || !may_guess(r, layer + 1))
        return;
    choose_for(r, layer + 1, n_rows);
}

// Reads for the next layer. Where ranks add to the stream each its part, their choice was made before
// (lp_ffn_look_ahead); rows that are sent to their experts are not the stream's, so that nothing chooses.
static void guess_next(struct lp_runner *r, int32_t layer, int64_t n_rows) {
    const int32_t next = layer + 1;
    if (!may_guess(r, next)) return;
    const bool chosen = n_rows <= LP_RUNNER_GUESS_ROWS && !r->model->part.sends_rows;
    if (chosen && !lp_shard_is_cut(r->model)) choose_for(r, next, n_rows);
    lp_expert_cache_guess(r->model->expert_cache, next, chosen ? r->guess_ids : NULL, n_rows);
}

// Experts that come from disk as they are needed.
static void call_cached(struct lp_runner *r, int32_t layer, const struct lp_expert_rows *all) {
    struct lp_expert_cache *cache = r->model->expert_cache;
    const struct lp_hparams *h = &r->model->h;
    for (int64_t t = 0, n; t < all->n_rows; t += n) {
        n = lp_expert_cache_begin(cache, layer, all->ids + t * h->n_used, all->n_rows - t);
        bool idle = n == all->n_rows && lp_expert_cache_is_idle(cache);
        if (idle) guess_next(r, layer, all->n_rows); // the disk would be, all the while
        const struct lp_expert_rows rows = {.x = all->x + t * h->n_embd,
                                            .ids = all->ids + t * h->n_used,
                                            .weights = all->weights + t * h->n_used,
                                            .y = all->y + t * h->n_embd,
                                            .n_rows = n};
        call_experts(r, layer, &rows, false, lp_expert_cache_source(cache, layer));
        lp_expert_cache_end(cache);
        if (!idle && t + n == all->n_rows) guess_next(r, layer, all->n_rows);
    }
}

static void fetch_experts(struct lp_runner *r, int64_t n_rows) {
    lp_host_experts_fetch(&r->host_experts, r->model, r->x, r->expert_ids, r->expert_weights,
                          n_rows);
}

static void add_experts(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                        const struct lp_step_settings *settings) {
    const struct lp_expert_rows rows = stream_rows(r, attn->n_rows);
    (void)settings;
    if (r->model->layers[layer].host_experts) {
        fetch_experts(r, attn->n_rows);
        lp_host_experts_add(&r->host_experts, r->model, layer, r->h, attn->n_rows);
    } else if (r->model->expert_cache)
        call_cached(r, layer, &rows);
    else
        call_experts(r, layer, &rows, !attn->probe, NULL);
}

static void add_shared(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                       const struct lp_step_settings *settings) {
    (void)settings;
    swiglu(r, &r->model->layers[layer].shared, layer, attn, &shared_points);
}

// How long experts were waited for until now; a clock takes it out of their time.
static uint64_t waited_ns(const struct lp_runner *r, const struct lp_attn_step *attn) {
    struct lp_expert_cache *cache = r->model->expert_cache;
    return attn->clock && cache ? lp_expert_cache_get_stats(cache).wait_ns : 0;
}

// Experts on the CPU while the device does the shared one.
static void add_side_by_side(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                             const struct lp_step_settings *settings) {
    fetch_experts(r, attn->n_rows);
    if (r->model->layers[layer].has_shared) add_shared(r, layer, attn, settings);
    lp_host_experts_add(&r->host_experts, r->model, layer, r->h, attn->n_rows);
    lp_step_lap(attn->clock, LP_STEP_PART_EXPERTS);
}

// The same where rows go to the ranks of their experts: the stream and the choices are of this rank's rows.
static void mixture_over_ranks(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                               const struct lp_step_settings *settings) {
    const int64_t n_own = attn->n_rows;
    int64_t n_rows;
    if (n_own > 0)
        run_router(r, layer, r->x, n_own, false, r->router_logits, r->expert_ids,
                   r->expert_weights);
    lp_step_lap(attn->clock, LP_STEP_PART_ROUTER);
    const struct lp_expert_rows rows = lp_ranks_send_rows(r, n_own, &n_rows, attn->clock);
    if (n_rows < 0) return; // a rank has failed
    lp_step_trace_experts(r, layer, n_rows, settings->trace);
    const uint64_t before_ns = waited_ns(r, attn);
    if (r->model->expert_cache)
        call_cached(r, layer, &rows);
    else
        call_experts(r, layer, &rows, false, NULL);
    lp_step_lap(attn->clock, LP_STEP_PART_EXPERTS);
    lp_step_clock_move(attn->clock, LP_STEP_PART_EXPERTS, LP_STEP_PART_WAIT,
                       waited_ns(r, attn) - before_ns);
    lp_ranks_add_sums(r, n_own, attn->clock);
    if (r->model->layers[layer].has_shared) add_shared(r, layer, attn, settings);
}

static void mixture(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                    const struct lp_step_settings *settings) {
    int64_t n_rows = attn->n_rows;
    const struct lp_hparams *h = &r->model->h;
    const struct lp_layer *w = &r->model->layers[layer];
    run_router(r, layer, r->x, n_rows, !attn->probe, r->router_logits, r->expert_ids,
               r->expert_weights);
    lp_step_lap(attn->clock, LP_STEP_PART_ROUTER);
    lp_step_trace_experts(r, layer, n_rows, settings->trace);
    lp_attn_probe(attn, LP_PROBE_FFN_ROUTER_LOGITS, layer, r->router_logits, h->n_experts);
    lp_attn_probe(attn, LP_PROBE_FFN_EXPERT_IDS, layer, r->expert_ids, h->n_used);
    lp_attn_probe(attn, LP_PROBE_FFN_EXPERT_WEIGHTS, layer, r->expert_weights, h->n_used);
    if (w->host_experts && !attn->probe) {
        add_side_by_side(r, layer, attn, settings);
        return;
    }
    if (add_together(r, layer, attn)) {
        lp_step_lap(attn->clock, LP_STEP_PART_EXPERTS);
        return;
    }
    lp_runner_probe_added(r, LP_PROBE_FFN_EXPERTS_OUT, layer, attn, add_experts);
    uint64_t before_ns = waited_ns(r, attn);
    add_experts(r, layer, attn, settings);
    lp_step_lap(attn->clock, LP_STEP_PART_EXPERTS);
    lp_step_clock_move(attn->clock, LP_STEP_PART_EXPERTS, LP_STEP_PART_WAIT,
                       waited_ns(r, attn) - before_ns);
    if (!w->has_shared) return;
    lp_runner_probe_added(r, LP_PROBE_FFN_SHARED_OUT, layer, attn, add_shared);
    add_shared(r, layer, attn, settings);
}

const struct lp_weight *lp_ffn_first(const struct lp_runner *r, int32_t layer, int32_t *n_used) {
    const struct lp_layer *w = &r->model->layers[layer];
    *n_used = 0;
    if (!w->is_moe) return &w->dense.gate;
    if (w->host_experts || w->experts.gate.n_mats == 0 || w->experts.gate.n_out == 0)
        return w->has_shared ? &w->shared.gate : NULL;
    *n_used = r->model->h.n_used;
    return &w->experts.gate;
}

void lp_ffn_run(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                const struct lp_step_settings *settings) {
    const struct lp_layer *w = &r->model->layers[layer];
    if (w->is_moe && r->model->part.sends_rows)
        mixture_over_ranks(r, layer, attn, settings);
    else if (w->is_moe)
        mixture(r, layer, attn, settings);
    else
        swiglu(r, &w->dense, layer, attn, &dense_points);
}
