// Inside model: the buffers of a step, shared by step.c and ffn.c.
#ifndef LP_MODEL_RUNNER_H
#define LP_MODEL_RUNNER_H

#include "model/model.h"

struct lp_runner {
    struct lp_model *model;
    struct lp_kv *kv;
    int64_t max_rows, max_context, logit_rows;
    size_t bytes;
    uint64_t step;

    // device, one row per token of the step
    int32_t *tokens, *positions;
    float *h; // [n_embd] residual stream
    float *x; // [n_embd] its norm
    struct lp_mla_buffers mla;
    struct lp_gqa_buffers gqa;
    float *attn_out;       // = mla.out or gqa.out
    float *gate, *up;      // [widest dense or shared FFN]
    float *router_logits;  // [n_experts]
    int32_t *expert_ids;   // [n_used]
    float *expert_weights; // [n_used]
    float *logit_x;        // [logit_rows, n_embd]
    float *logits;         // [logit_rows, n_vocab]

    void *blocks[24]; // everything above, to free
    int n_blocks;
    int32_t *host_positions; // [max_rows]
};

// y += FFN(x) of a layer: dense, or routed experts and the shared one.
void lp_ffn_run(struct lp_runner *r, int32_t layer, int64_t n_rows,
                const struct lp_step_settings *settings);

#endif
