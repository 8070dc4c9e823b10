// The feed-forward half of a layer: dense SwiGLU, or the mixture of experts (router semantics:
// docs/attention.md, "Router").
#include "attention/attn_probe.h"
#include "model/runner.h"

static void matmul(struct lp_device *dev, const struct lp_weight *w, const float *x, float *y,
                   int64_t y_stride, int64_t n_rows, bool accumulate) {
    dev->backend->matmul(dev, &(struct lp_op_matmul){.w = w,
                                                     .x = x,
                                                     .x_stride = w->n_in,
                                                     .y = y,
                                                     .y_stride = y_stride,
                                                     .n_rows = n_rows,
                                                     .accumulate = accumulate});
}

struct ffn_points { // where a probe sees it
    enum lp_probe_point gate, up, act;
};
static const struct ffn_points dense_points = {LP_PROBE_FFN_GATE, LP_PROBE_FFN_UP,
                                               LP_PROBE_FFN_ACT};
static const struct ffn_points shared_points = {LP_PROBE_FFN_SHARED_GATE, LP_PROBE_FFN_SHARED_UP,
                                                LP_PROBE_FFN_SHARED_ACT};

// h += down(silu(gate x) * up x)
static void swiglu(struct lp_runner *r, const struct lp_ffn *w, int32_t layer,
                   const struct lp_attn_step *attn, const struct ffn_points *points) {
    struct lp_device *dev = r->model->dev;
    int64_t width = w->gate.n_out, n_rows = attn->n_rows;
    matmul(dev, &w->gate, r->x, r->gate, width, n_rows, false);
    matmul(dev, &w->up, r->x, r->up, width, n_rows, false);
    lp_attn_probe(attn, points->gate, layer, r->gate, width);
    lp_attn_probe(attn, points->up, layer, r->up, width);
    dev->backend->silu_mul(dev, &(struct lp_op_silu_mul){.gate = r->gate,
                                                         .up = r->up,
                                                         .y = r->gate,
                                                         .stride = width,
                                                         .n_rows = n_rows,
                                                         .width = (int32_t)width});
    lp_attn_probe(attn, points->act, layer, r->gate, width);
    matmul(dev, &w->down, r->gate, r->h, w->down.n_out, n_rows, true);
}

static void add_experts(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                        const struct lp_step_settings *settings) {
    struct lp_device *dev = r->model->dev;
    const struct lp_hparams *h = &r->model->h;
    const struct lp_layer *w = &r->model->layers[layer];
    (void)settings;
    dev->backend->experts(dev, &(struct lp_op_experts){.gate = &w->experts.gate,
                                                       .up = &w->experts.up,
                                                       .down = &w->experts.down,
                                                       .x = r->x,
                                                       .x_stride = h->n_embd,
                                                       .n_rows = attn->n_rows,
                                                       .ids = r->expert_ids,
                                                       .weights = r->expert_weights,
                                                       .n_used = h->n_used,
                                                       .y = r->h,
                                                       .y_stride = h->n_embd});
}

static void add_shared(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                       const struct lp_step_settings *settings) {
    (void)settings;
    swiglu(r, &r->model->layers[layer].shared, layer, attn, &shared_points);
}

static void mixture(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                    const struct lp_step_settings *settings) {
    struct lp_device *dev = r->model->dev;
    int64_t n_rows = attn->n_rows;
    const struct lp_hparams *h = &r->model->h;
    const struct lp_layer *w = &r->model->layers[layer];
    matmul(dev, &w->router, r->x, r->router_logits, h->n_experts, n_rows, false);
    dev->backend->router(dev, &(struct lp_op_router){.logits = r->router_logits,
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
                                                     .ids = r->expert_ids,
                                                     .weights = r->expert_weights});
    lp_step_trace_experts(r, layer, n_rows, settings->trace);
    lp_attn_probe(attn, LP_PROBE_FFN_ROUTER_LOGITS, layer, r->router_logits, h->n_experts);
    lp_attn_probe(attn, LP_PROBE_FFN_EXPERT_IDS, layer, r->expert_ids, h->n_used);
    lp_attn_probe(attn, LP_PROBE_FFN_EXPERT_WEIGHTS, layer, r->expert_weights, h->n_used);
    lp_runner_probe_added(r, LP_PROBE_FFN_EXPERTS_OUT, layer, attn, add_experts);
    add_experts(r, layer, attn, settings);
    if (!w->has_shared) return;
    lp_runner_probe_added(r, LP_PROBE_FFN_SHARED_OUT, layer, attn, add_shared);
    add_shared(r, layer, attn, settings);
}

void lp_ffn_run(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                const struct lp_step_settings *settings) {
    const struct lp_layer *w = &r->model->layers[layer];
    if (w->is_moe)
        mixture(r, layer, attn, settings);
    else
        swiglu(r, &w->dense, layer, attn, &dense_points);
}
