// Attention of one layer: from the normed input of the layer to the rows that attn_output takes.
// All forms compute the same function (docs/attention.md); route.c decides which one runs.
//
// A step's tokens lie in rows; each sequence owns a run of rows at consecutive positions.
// Projections run over all rows at once, the attention itself sequence by sequence.
#ifndef LP_ATTENTION_ATTENTION_H
#define LP_ATTENTION_ATTENTION_H

#include "attention/route.h"
#include "backend/probe.h"
#include "kv/pages.h"
#include "trace/step_clock.h"
#include "trace/trace.h"

// One sequence's part of a step.
struct lp_span {
    uint64_t sequence;                 // its number, for the trace
    const struct lp_page_table *pages; // grown to n_past + n_rows
    int64_t n_past;                    // positions in the cache before this step
    int64_t first_row, n_rows;         // its rows of the step
};

struct lp_rope_spec {
    int32_t width; // rotated values
    enum lp_rope_pairing pairing;
    const float *inv_freq; // device, [width / 2]
    float magnitude;       // of cos and sin
};

struct lp_route_counts {         // how often each form ran, per span and layer
    uint64_t expanded, absorbed; // over every earlier key
    uint64_t sparse;             // either, over the indexer's selection
    uint64_t dense;              // either, where an indexer was ignored (--route dense)
    uint64_t gqa;
};

struct lp_attn_step { // what is the same for all layers of a step
    struct lp_device *dev;
    struct lp_kv *kv;
    struct lp_trace *trace; // or NULL
    uint64_t step;
    const struct lp_span *spans;
    int32_t n_spans;
    int64_t n_rows;
    const int32_t *positions; // device, [n_rows]
    const int32_t *const
        *row_pages;      // device, [n_rows]; NULL where the backend takes no lp_op_batch
    int64_t max_context; // no sequence is longer
    enum lp_route_force force;
    bool deterministic;
    struct lp_probe *probe;               // or NULL
    struct lp_route_counts *routes;       // added to; or NULL
    struct lp_step_clock *clock;          // added to; or NULL
    const struct lp_weight *const *ahead; // what the layer reads behind its attention; or NULL
    int32_t n_ahead;
};

// What rows of one buffer need behind their projection, in this order, as far as it is given.
struct lp_attn_ready {
    float *x;                    // a row's first value
    int64_t stride, head_stride; // from row to row, and from head to head
    int32_t n_heads;
    // RMSNorm, or with norm_b LayerNorm, of the first norm_width values; NULL: none
    const float *norm_w, *norm_b;
    float eps;
    int32_t norm_width;
    const struct lp_rope_spec *rope;
    int32_t rope_first; // value of a row (and head) that is rotated first
    bool stores;        // rows go into the cache of this kind; n_heads 1
    enum lp_kv_kind kind;
};
// At most LP_READY_PARTS parts; those that store have a norm.
void lp_attn_ready_rows(const struct lp_attn_step *step, int32_t layer,
                        const struct lp_attn_ready *parts, int32_t n_parts);

// y = W x (+ bias) for all rows of the step; y rows are contiguous. same_x: of lp_op_matmul.
void lp_attn_project(const struct lp_attn_step *step, const struct lp_weight *w, const float *bias,
                     const float *x, int64_t x_stride, bool same_x, float *y);
// RMSNorm in place over `width` values of n_rows rows. next: of lp_op_rms_norm.
void lp_attn_norm(const struct lp_attn_step *step, float *x, int64_t stride, const float *w,
                  float eps, int64_t n_rows, int32_t width, const struct lp_weight *next);
// Rotates the first rope->width values of each head in place, at the positions of the step.
void lp_attn_rotate(const struct lp_attn_step *step, const struct lp_rope_spec *rope, float *x,
                    int64_t token_stride, int64_t head_stride, int32_t n_heads);
// All rows of the step into the cache of one kind; rows are contiguous.
void lp_attn_store(const struct lp_attn_step *step, int32_t layer, enum lp_kv_kind kind,
                   const float *rows);

// Spans that go through an operation together, one query a row: neighbours of few rows each.
#define LP_TOGETHER_ROWS 8 // of a span, at most
struct lp_together {
    int32_t n_spans; // 0: the first span goes alone
    int64_t n_rows;
    struct lp_op_batch batch;
};
// Those from spans[0] on.
struct lp_together lp_attn_together(const struct lp_attn_step *step, const struct lp_span *spans,
                                    int32_t n_spans);

// Grouped-query attention.
struct lp_gqa_layer {
    struct lp_weight q, k, v;
    const float *q_bias, *k_bias, *v_bias; // device, or NULL
    const float *q_norm, *k_norm;          // device, [head_dim], or NULL
    int32_t n_heads, n_kv_heads, head_dim, v_dim;
    float eps, scale;
    struct lp_rope_spec rope;
};

// The trace event of a span on these layers.
void lp_gqa_trace(const struct lp_attn_step *step, const struct lp_span *span, int32_t layer,
                  int32_t last_layer);

struct lp_gqa_buffers { // device, one row per token of the step
    float *q;           // [n_heads * head_dim]
    float *k, *v;       // [n_kv_heads * ...]
    float *out;         // [n_heads * v_dim]
};

void lp_gqa_attend(const struct lp_attn_step *step, int32_t layer, const struct lp_gqa_layer *w,
                   const struct lp_gqa_buffers *buf, const float *x, int64_t x_stride);

// Multi-head latent attention.
enum lp_indexer_role { LP_INDEXER_NONE, LP_INDEXER_FULL, LP_INDEXER_SHARED };

struct lp_mla_layer {
    bool has_q_rank;
    struct lp_weight q;          // no q rank: [heads * (nope + rope), n_embd]
    struct lp_weight q_a, q_b;   // q rank
    const float *q_a_norm;       // device, [q_rank]
    struct lp_weight kv_a;       // [latent + rope, n_embd]
    const float *kv_a_norm;      // device, [latent]
    struct lp_weight k_up, v_up; // one matrix per head
    bool k_transposed;           // k_up is [latent, nope] per head (attn_k_b), else [nope, latent]
    int32_t n_heads; // of this rank; 0: the layer's cache and selection are made all the same
    int32_t nope, rope_dim, latent, v_dim, q_rank;
    float eps, scale;
    struct lp_rope_spec rope;

    enum lp_indexer_role indexer;
    struct lp_weight index_q, index_k, index_proj;
    const float *index_norm_w, *index_norm_b; // device
    int32_t index_heads, index_width, top_k;
    float index_eps, index_scale;
    struct lp_rope_spec index_rope;
};

struct lp_mla_buffers { // device, one row per token of the step
    float *q_low;       // [q_rank], the normed query latent
    float *q;           // [n_heads * (nope + rope)]
    float *kv;          // [latent + rope]
    float *q_latent;    // [n_heads * latent]
    float *z;           // [n_heads * latent]
    float *out;         // [n_heads * v_dim]
    float *index_q;     // [index_heads * index_width]
    float *index_k;     // [index_width]
    float *index_w;     // [index_heads]
    int32_t *selected;  // [ids_stride]: the last full layer's selection, kept for shared layers
    int32_t *n_selected;
    int64_t ids_stride; // min(top_k, context)
};

// The result lies in buf->out. `selected` is written by full layers and read by shared ones.
void lp_mla_attend(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                   const struct lp_mla_buffers *buf, const float *x, int64_t x_stride);

// Counts and traces the routes that a layer's spans take, for a layer that runs from a recording.
void lp_mla_take_routes(const struct lp_attn_step *step, int32_t layer,
                        const struct lp_mla_layer *w);
void lp_gqa_take_routes(const struct lp_attn_step *step, int32_t layer);

// The route of a span under the settings of the step.
struct lp_route lp_mla_route(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                             const struct lp_span *span);

// The trace event of a span's route on layers that all take it; indexer: of the first one.
void lp_mla_trace(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                  const struct lp_span *span, int32_t layer, int32_t last_layer);

// sparse.c: the indexer of a full layer. Its keys (and weights of heads, where keys are selected) from x, which the
// last product had too; its queries from buf->q_low (same_x: of lp_op_matmul); what both need then; and, once
// keys are in the cache, the selection of each query where a span sees more than top_k keys.
void lp_sparse_project_keys(const struct lp_attn_step *step, int32_t layer,
                            const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                            const float *x, int64_t x_stride);
void lp_sparse_project_queries(const struct lp_attn_step *step, int32_t layer,
                               const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                               bool same_x);
struct lp_rope_spec lp_sparse_rope(const struct lp_mla_layer *w);
int32_t lp_sparse_ready(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                        const struct lp_rope_spec *rope, const struct lp_mla_buffers *buf,
                        struct lp_attn_ready parts[2]);
void lp_sparse_select(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                      const struct lp_mla_buffers *buf);
// Whether any of these spans sees more than top_k keys, so that keys are selected. Where spans go
// together and one of them does, the others' selection is all that they see.
bool lp_sparse_selects(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                       const struct lp_span *spans, int32_t n_spans);
// The keys that n_rows queries from a row of the step on see, the first of them at first_pos.
struct lp_visible lp_sparse_visible(const struct lp_mla_buffers *buf, int64_t first_row,
                                    int64_t n_rows, int64_t first_pos, bool select);
const char *lp_indexer_role_name(enum lp_indexer_role role);

// The expanded form, for one span, from buf->q and the cache to buf->out.
void lp_mla_expanded(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                     const struct lp_mla_buffers *buf, const struct lp_span *span, bool select);
// The absorbed form in three parts. The projections, buf->q to buf->q_latent before and buf->z to
// buf->out behind, are for any run of rows; attending is for one span, or for spans that go together
// (batch; span: the first of them).
void lp_mla_absorb_queries(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                           const struct lp_mla_buffers *buf, int64_t first_row, int64_t n_rows);
void lp_mla_attend_latents(const struct lp_attn_step *step, int32_t layer,
                           const struct lp_mla_layer *w, const struct lp_mla_buffers *buf,
                           const struct lp_span *span, const struct lp_together *together,
                           bool select);
void lp_mla_make_values(const struct lp_attn_step *step, const struct lp_mla_layer *w,
                        const struct lp_mla_buffers *buf, int64_t first_row, int64_t n_rows);

#endif
