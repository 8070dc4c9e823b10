// Inside model: the buffers of a step, and its parts that mtp.c, bad_rows.c and ffn.c share.
#ifndef LP_MODEL_RUNNER_H
#define LP_MODEL_RUNNER_H

#include "model/host_experts.h"
#include "model/ranks.h"
#include "model/step_trace.h"

struct lp_runner {
    struct lp_model *model;
    struct lp_kv *kv;
    int64_t max_rows, max_context, logit_rows, ffn_width;
    size_t bytes;
    uint64_t step, n_steps; // the number of the step that runs or ran last; how many have run
    struct lp_route_counts routes;
    struct lp_step_trace tracing;
    struct lp_host_experts host_experts;
    struct lp_runner_ranks ranks;

    // device, one row per token of the step
    int32_t *tokens, *positions;
    const int32_t *
        *row_pages; // of each row's sequence; NULL where the backend takes no lp_op_batch
    float *h;       // [n_embd] residual stream
    float *x;       // [n_embd] its norm
    struct lp_mla_buffers mla;
    struct lp_gqa_buffers gqa;
    float *attn_out;       // = mla.out or gqa.out
    float *gate, *up;      // [widest dense or shared FFN]
    float *router_logits;  // [n_experts]
    int32_t *expert_ids;   // [n_used]
    float *expert_weights; // [n_used]
    // with an expert cache, [LP_RUNNER_GUESS_ROWS, ...]: what the next layer's router may see, and
    // what it makes of it
    float *guess_x;       // [n_embd]
    float *guess_logits;  // [n_experts]
    int32_t *guess_ids;   // [n_used]
    float *guess_weights; // [n_used]

    // with lp_backend.scan_rows: the largest id of each logit row, whether it is bad, whether a row of the
    // residual stream is; and a byte an id that is not to be looked at
    int32_t *found; // [LP_RUNNER_FOUND][max_rows]
    uint8_t *skip;  // [n_vocab]
    // with lp_backend.top_rows, of the first block of logits: what may be drawn from its rows
    struct lp_top_row *tops; // [logit_rows]
    double *scales;          // [logit_rows]
    float *logit_x;          // [logit_rows, n_embd]
    float *logits;           // [logit_rows, n_vocab]
    float *pair;             // [2 * n_embd] what eh_proj takes; with drafts, in the last stage

    void *blocks[40]; // everything above, to free
    int n_blocks;
    int32_t *host_positions;      // [max_rows]
    const int32_t **host_pages;   // [max_rows]
    float *host_rows;             // [LP_RUNNER_LOGIT_ROWS, n_embd]
    int32_t *host_found;          // as found
    struct lp_top_row *host_tops; // as tops
    double *host_scales;
    const bool *skip_from; // what lies in skip; NULL: nothing

    // host, with drafts (else NULL): the rows of the MTP layer, packed
    int32_t *mtp_tokens;       // [max_rows]
    struct lp_span *mtp_spans; // [max_rows]
    int32_t *mtp_owner;        // [max_rows]: the number of the step's span
    float *mtp_logits;         // [n_vocab]
};

// y = RMSNorm(x), n_rows rows of n_embd values.
void lp_runner_norm(struct lp_runner *r, const float *x, int64_t x_stride, const float *w, float *y,
                    int64_t y_stride, int64_t n_rows);
// Token ids, positions and page tables of the rows onto the device.
void lp_runner_upload(struct lp_runner *r, const int32_t *tokens, const struct lp_span *spans,
                      int32_t n_spans, int64_t n_rows);
// What the operations of a step with these settings share; tells the device whether results are to be fixed
// (lp_backend.fix_results). Before any of them.
struct lp_attn_step lp_runner_attention(struct lp_runner *r, const struct lp_span *spans,
                                        int32_t n_spans, int64_t n_rows,
                                        const struct lp_step_settings *settings);
// h += attention and FFN of a layer. With data-parallel attention of the rows that are this rank's alone.
void lp_runner_layer(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                     const struct lp_step_settings *settings);
// The layers that are here over the rows of a step: r->h = the stream behind the last of them.
void lp_runner_run_rows(struct lp_runner *r, const struct lp_step *step,
                        const struct lp_step_settings *settings);
// Positions and page tables of the rows, on the host.
void lp_runner_place_rows(struct lp_runner *r, const struct lp_span *spans, int32_t n_spans);
// logits = W x; x [n_rows, n_embd], n_rows at most logit_rows.
void lp_runner_head(struct lp_runner *r, const struct lp_weight *w, const float *x, int64_t n_rows);
// Whether the layers that follow may be left out, since experts could not be read from disk and what runs now is worth
// nothing: other ranks would wait for them. And why, once.
bool lp_runner_lacks_experts(const struct lp_runner *r);
lp_status lp_runner_lack(struct lp_runner *r, struct lp_err *err);
lp_status lp_runner_device_failure(struct lp_runner *r, struct lp_err *err); // OK: it works
// The first of n values that is NaN or infinite; -1: none.
int64_t lp_runner_find_nonfinite(const float *x, int64_t n);

#define LP_RUNNER_LOGIT_ROWS 64 // logits are made in blocks of this many rows: they are wide
#define LP_RUNNER_FOUND 3

// step_logits.c: norm and head for the rows that want logits, what a step wants to know of its rows, and
// as few copies to the host as that takes.
void lp_runner_give_logits(struct lp_runner *r, const struct lp_step *step, struct lp_probe *probe);
// NUMERIC where logits are not finite and the caller takes no flags for it.
lp_status lp_runner_check_logits(struct lp_runner *r, const struct lp_step *step,
                                 struct lp_err *err);

#define LP_RUNNER_GUESS_ROWS 16 // steps of more tokens touch nearly every expert

// The first weight of a layer's FFN, but for a router, that x is multiplied with, for lp_op_rms_norm; NULL: none.
const struct lp_weight *lp_ffn_first(const struct lp_runner *r, int32_t layer, int32_t *n_used);
// Where experts come from disk and ranks each add their part of a layer to the stream: what the next layer's router makes
// of it, while it is whole. Before the FFN's norm.
void lp_ffn_look_ahead(struct lp_runner *r, int32_t layer, int64_t n_rows);
// y += FFN(x) of a layer: dense, or routed experts and the shared one.
void lp_ffn_run(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                const struct lp_step_settings *settings);

// probe_added.c: shows a probe what `add` adds to the residual stream: it runs once more, on a
// stream of zeros. Nothing happens where the probe does not want the point.
typedef void (*lp_adder)(struct lp_runner *r, int32_t layer, const struct lp_attn_step *attn,
                         const struct lp_step_settings *settings);
void lp_runner_probe_added(struct lp_runner *r, enum lp_probe_point point, int32_t layer,
                           const struct lp_attn_step *attn, lp_adder add);

#endif
