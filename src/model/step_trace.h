// What the trace tells of a step inside the model: the routes of its layers, the load of their
// experts, its time and how that is spread over operations. The decisions are always recorded; a
// trace with a file also takes every layer.
#ifndef LP_MODEL_STEP_TRACE_H
#define LP_MODEL_STEP_TRACE_H

#include "attention/attention.h"

struct lp_runner;
struct lp_step;
struct lp_step_settings;

struct lp_step_trace {                // host
    int32_t *ids;                     // [max_rows, n_used]: a copy of one layer's choice
    int32_t *counts;                  // [n_experts]: tokens of one layer
    struct lp_trace_expert_load load; // of the layers of a step that have run
    struct lp_step_clock told;        // what operation events have told of the settings' clock
};

lp_status lp_step_trace_init(struct lp_step_trace *t, int64_t max_rows, int32_t n_used,
                             int32_t n_experts, struct lp_err *err);
void lp_step_trace_release(struct lp_step_trace *t);

// Before layers first_layer ... first_layer + n_layers - 1 run. A route is recorded once for layers
// in a row that take the same; where every layer is recorded, each does so itself as it runs.
void lp_step_trace_begin(struct lp_runner *r, const struct lp_attn_step *attn, int32_t first_layer,
                         int32_t n_layers);
// Behind the router of a layer, whose choice lies in r->expert_ids.
void lp_step_trace_experts(struct lp_runner *r, int32_t layer, int64_t n_rows,
                           struct lp_trace *trace);
void lp_step_trace_end(struct lp_runner *r, const struct lp_step *step,
                       const struct lp_step_settings *settings, uint64_t start_ns);
// What the clock of the settings took since the last call, an event for each kind of operation.
// Nothing without a clock or a full trace.
void lp_step_trace_operations(struct lp_runner *r, const struct lp_step_settings *settings);

#endif
