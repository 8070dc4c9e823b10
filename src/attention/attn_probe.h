// What a probe sees of attention (backend/probe.h). Buffers are shown by one line where they are
// made; what fused kernels never hold is computed here, behind the layer's attention, while all
// that it came from is still there.
#ifndef LP_ATTENTION_ATTN_PROBE_H
#define LP_ATTENTION_ATTN_PROBE_H

#include "attention/attention.h"
#include "backend/probe.h"

struct lp_probe_rows {
    const void *data;                    // device; row 0 is row first_row of the step
    int64_t first_row, n_rows;           // n_rows 0: to the end of the spans
    int64_t row_stride;                  // in values
    int64_t n_heads, width, head_stride; // n_heads 0: a row is one run of `width` values
};

// Whether any row of these spans is wanted.
bool lp_probe_wants_spans(const struct lp_probe *probe, const struct lp_span *spans,
                          int32_t n_spans, enum lp_probe_point point, int32_t layer);
// Shows rows of a step to a probe, span by span. probe may be NULL.
void lp_probe_show(struct lp_probe *probe, const struct lp_span *spans, int32_t n_spans,
                   enum lp_probe_point point, int32_t layer, const struct lp_probe_rows *rows);
// The same for rows of `width` values, and of n_heads heads one behind the other, of a whole step.
void lp_attn_probe(const struct lp_attn_step *step, enum lp_probe_point point, int32_t layer,
                   const void *data, int64_t width);
void lp_attn_probe_heads(const struct lp_attn_step *step, enum lp_probe_point point, int32_t layer,
                         const float *data, int64_t n_heads, int64_t width);

// Everything else of a layer's attention, behind it: from its buffers and the cache.
void lp_mla_probe(const struct lp_attn_step *step, int32_t layer, const struct lp_mla_layer *w,
                  const struct lp_mla_buffers *buf);
void lp_gqa_probe(const struct lp_attn_step *step, int32_t layer, const struct lp_gqa_layer *w,
                  const struct lp_gqa_buffers *buf);

// probe_keys.c: the rows of one kind of a span's cache, as float32 on the host.
struct lp_key_rows {
    struct lp_device *dev;
    struct lp_cache_view view;
    const int32_t *pages; // host
    void *bytes;          // of one row
    float *row;           // [view.width]
};
bool lp_key_rows_open(struct lp_key_rows *rows, const struct lp_attn_step *step, int32_t layer,
                      enum lp_kv_kind kind, const struct lp_span *span);   // false: no memory
const float *lp_key_rows_read(struct lp_key_rows *rows, int64_t position); // valid until the next
void lp_key_rows_close(struct lp_key_rows *rows);

// Row `row` of matrix `mat` of a weight, as float32. bytes: scratch of row_bytes.
void lp_probe_weight_row(struct lp_device *dev, const struct lp_weight *w, int64_t mat, int64_t row,
                         void *bytes, float *out);

// probe_scores.c. Queries against keys, in double.
struct lp_score_work {
    struct lp_key_rows *keys;
    int32_t n_heads, n_kv_heads, width; // MLA: one key/value head of latent + rope values
    double scale;
    const double *q;    // [n_heads, width]
    const int32_t *ids; // [n_ids] visible keys, or NULL: all
    int64_t n_keys, n_ids;
};
// out [n_heads, n_keys]: scaled logits, minus infinity for keys that are not visible.
void lp_probe_scores(const struct lp_score_work *work, double *out);
// In place: the softmax of each of n_rows rows.
void lp_probe_softmax(double *x, int64_t n_rows, int64_t n_keys);
// Shows one row of doubles as float32; values may be overwritten.
void lp_probe_show_row(const struct lp_attn_step *step, const struct lp_span *span, int64_t row,
                       enum lp_probe_point point, int32_t layer, double *values, int64_t n_heads,
                       int64_t width);
// Shows scores and probabilities of the row, as far as they are wanted. False without memory.
bool lp_probe_show_scores(const struct lp_attn_step *step, const struct lp_span *span, int64_t row,
                          int32_t layer, const struct lp_score_work *work);

#endif
