// The feed-forward half of a layer: dense SwiGLU, or the mixture of experts (router semantics:
// docs/attention.md, "Router").
#include "base/bytes.h"
#include "model/runner.h"

#define MAX_USED 1024 // as hparams allows

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

// h += down(silu(gate x) * up x)
static void swiglu(struct lp_runner *r, const struct lp_ffn *w, int64_t n_rows) {
    struct lp_device *dev = r->model->dev;
    int64_t width = w->gate.n_out;
    matmul(dev, &w->gate, r->x, r->gate, width, n_rows, false);
    matmul(dev, &w->up, r->x, r->up, width, n_rows, false);
    dev->backend->silu_mul(dev, &(struct lp_op_silu_mul){.gate = r->gate,
                                                         .up = r->up,
                                                         .y = r->gate,
                                                         .stride = width,
                                                         .n_rows = n_rows,
                                                         .width = (int32_t)width});
    matmul(dev, &w->down, r->gate, r->h, w->down.n_out, n_rows, true);
}

static void trace_experts(struct lp_runner *r, int32_t layer, int64_t n_rows,
                          struct lp_trace *trace) {
    int32_t n_used = r->model->h.n_used, ids[MAX_USED];
    struct lp_bytes text = {0};
    r->model->dev->backend->read(r->model->dev, ids, r->expert_ids + (n_rows - 1) * n_used,
                                 (size_t)n_used * sizeof *ids);
    for (int32_t j = 0; j < n_used; j++) lp_bytes_printf(&text, j ? " %d" : "%d", ids[j]);
    lp_trace_emit_experts(trace, &(struct lp_trace_experts){.step = (int64_t)r->step,
                                                            .layer = layer,
                                                            .n_tokens = n_rows,
                                                            .experts = text.data});
    lp_bytes_release(&text);
}

static void mixture(struct lp_runner *r, int32_t layer, int64_t n_rows, struct lp_trace *trace) {
    struct lp_device *dev = r->model->dev;
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
    if (trace) trace_experts(r, layer, n_rows, trace);
    dev->backend->experts(dev, &(struct lp_op_experts){.gate = &w->experts.gate,
                                                       .up = &w->experts.up,
                                                       .down = &w->experts.down,
                                                       .x = r->x,
                                                       .x_stride = h->n_embd,
                                                       .n_rows = n_rows,
                                                       .ids = r->expert_ids,
                                                       .weights = r->expert_weights,
                                                       .n_used = h->n_used,
                                                       .y = r->h,
                                                       .y_stride = h->n_embd});
    if (w->has_shared) swiglu(r, &w->shared, n_rows);
}

void lp_ffn_run(struct lp_runner *r, int32_t layer, int64_t n_rows,
                const struct lp_step_settings *settings) {
    const struct lp_layer *w = &r->model->layers[layer];
    if (w->is_moe)
        mixture(r, layer, n_rows, settings->trace);
    else
        swiglu(r, &w->dense, n_rows);
}
