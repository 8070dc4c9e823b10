#include "model/step_trace.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "model/runner.h"

lp_status lp_step_trace_init(struct lp_step_trace *t, int64_t max_rows, int32_t n_used,
                             int32_t n_experts, struct lp_err *err) {
    t->ids = lp_alloc((size_t)max_rows * (size_t)n_used, sizeof *t->ids);
    t->counts = lp_alloc((size_t)n_experts, sizeof *t->counts);
    if (t->ids && t->counts) return LP_OK;
    return lp_err_memory(err, (size_t)max_rows * (size_t)n_used * sizeof *t->ids,
                         "the trace of a step");
}

void lp_step_trace_release(struct lp_step_trace *t) {
    lp_free(t->ids);
    lp_free(t->counts);
}

// ---- routes

static bool has_indexer(const struct lp_runner *r, int32_t layer) {
    return r->model->layers[layer].mla.indexer != LP_INDEXER_NONE;
}

// Of all that a route is made from, layers of a model differ only in whether they have an indexer.
static void trace_routes(const struct lp_runner *r, const struct lp_attn_step *attn,
                         const struct lp_span *span, int32_t first_layer, int32_t end) {
    if (r->model->h.arch->attention != LP_ATTENTION_MLA) {
        lp_gqa_trace(attn, span, first_layer, end - 1);
        return;
    }
    for (int32_t l = first_layer, next; l < end; l = next) {
        next = l + 1;
        while (next < end && has_indexer(r, next) == has_indexer(r, l)) next++;
        lp_mla_trace(attn, &r->model->layers[l].mla, span, l, next - 1);
    }
}

void lp_step_trace_begin(struct lp_runner *r, const struct lp_attn_step *attn, int32_t first_layer,
                         int32_t n_layers) {
    if (!attn->trace) return;
    r->tracing.load = (struct lp_trace_expert_load){0};
    for (int32_t i = 0; i < attn->n_spans && !lp_trace_is_full(attn->trace); i++)
        trace_routes(r, attn, &attn->spans[i], first_layer, first_layer + n_layers);
}

// ---- experts

struct spread { // of one layer's tokens over its experts
    int32_t n_hit, most_expert, n_most;
};

static struct spread spread_of(struct lp_step_trace *t, const int32_t *ids, int64_t n,
                               int32_t n_experts) {
    struct spread s = {0};
    memset(t->counts, 0, (size_t)n_experts * sizeof *t->counts);
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= n_experts) continue;
        int32_t count = ++t->counts[ids[i]];
        s.n_hit += count == 1;
        if (count <= s.n_most) continue;
        s.n_most = count;
        s.most_expert = ids[i];
    }
    return s;
}

static void trace_layer(const struct lp_runner *r, int32_t layer, int64_t n_rows,
                        const int32_t *ids, const struct spread *s, struct lp_trace *trace) {
    int32_t n_used = r->model->h.n_used;
    const int32_t *last = ids + (n_rows - 1) * n_used;
    struct lp_trace_experts event = {.step = (int64_t)r->step,
                                     .layer = layer,
                                     .n_tokens = (int32_t)n_rows,
                                     .n_hit = s->n_hit,
                                     .most_expert = s->most_expert,
                                     .n_most = s->n_most};
    event.experts.n = (int16_t)(n_used < LP_TRACE_MAX_IDS ? n_used : LP_TRACE_MAX_IDS);
    for (int32_t j = 0; j < event.experts.n; j++) event.experts.id[j] = (int16_t)last[j];
    lp_trace_emit_experts(trace, &event);
}

// One token hits n_used experts a layer, which says nothing. What lies on a device is fetched only
// where every layer is recorded.
void lp_step_trace_experts(struct lp_runner *r, int32_t layer, int64_t n_rows,
                           struct lp_trace *trace) {
    struct lp_device *dev = r->model->dev;
    bool is_full = lp_trace_is_full(trace), in_place = dev->backend->host_memory;
    if (!trace || (!is_full && (n_rows == 1 || !in_place))) return;
    int64_t n = n_rows * r->model->h.n_used;
    const int32_t *ids = in_place ? r->expert_ids : r->tracing.ids;
    if (!in_place) dev->backend->read(dev, r->tracing.ids, r->expert_ids, (size_t)n * sizeof *ids);
    struct spread s = spread_of(&r->tracing, ids, n, r->model->h.n_experts);
    struct lp_trace_expert_load *load = &r->tracing.load;
    load->n_layers++;
    load->n_hit += s.n_hit;
    if (s.n_most > load->n_most) {
        load->n_most = s.n_most;
        load->most_expert = s.most_expert;
        load->most_layer = layer;
    }
    if (is_full) trace_layer(r, layer, n_rows, ids, &s, trace);
}

// ---- the step

void lp_step_trace_operations(struct lp_runner *r, const struct lp_step_settings *settings) {
    struct lp_step_clock spent;
    if (!settings->clock || !lp_trace_is_full(settings->trace)) return;
    lp_step_clock_difference(&spent, settings->clock, &r->tracing.told);
    r->tracing.told = *settings->clock;
    for (enum lp_step_part part = 0; part < LP_STEP_N_PARTS; part++)
        if (spent.calls[part] > 0)
            lp_trace_emit_operation(settings->trace, &(struct lp_trace_operation){
                                                         .step = (int64_t)r->step,
                                                         .operation = lp_step_part_name(part),
                                                         .n_calls = (int64_t)spent.calls[part],
                                                         .duration_ns = (int64_t)spent.ns[part]});
}

void lp_step_trace_end(struct lp_runner *r, const struct lp_step *step,
                       const struct lp_step_settings *settings, uint64_t start_ns) {
    struct lp_trace *trace = settings->trace;
    if (!trace) return;
    lp_step_trace_operations(r, settings);
    struct lp_trace_expert_load *load = &r->tracing.load;
    load->step = (int64_t)r->step;
    load->n_tokens = (int32_t)step->n_rows;
    if (load->n_layers > 0 && step->n_rows > 1) lp_trace_emit_expert_load(trace, load);
    lp_trace_emit_step(
        trace, &(struct lp_trace_step){.step = (int64_t)r->step,
                                       .n_tokens = (int32_t)step->n_rows,
                                       .n_sequences = step->n_spans,
                                       .duration_us = (int64_t)((lp_clock_ns() - start_ns) / 1000),
                                       .rows_sent = (int64_t)r->ranks.rows_sent,
                                       .bytes_sent = (int64_t)lp_ranks_sent_bytes(r)});
}
