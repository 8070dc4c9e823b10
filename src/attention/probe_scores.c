// Attention scores for a probe: fused kernels hold them for a moment and in pieces, so they are
// computed once more, in double, for the rows that are asked for.
#include <math.h>
#include <string.h>

#include "attention/attn_probe.h"
#include "base/alloc.h"

static void score_key(const struct lp_score_work *work, int64_t position, double *out) {
    const float *key = lp_key_rows_read(work->keys, position);
    int32_t shared = work->n_heads / work->n_kv_heads;
    for (int32_t h = 0; h < work->n_heads; h++) {
        const double *q = work->q + (int64_t)h * work->width;
        const float *k = key + (int64_t)(h / shared) * work->width;
        double sum = 0;
        for (int32_t i = 0; i < work->width; i++) sum += q[i] * (double)k[i];
        out[h * work->n_keys + position] = work->scale * sum;
    }
}

void lp_probe_scores(const struct lp_score_work *work, double *out) {
    for (int64_t i = 0; i < work->n_heads * work->n_keys; i++) out[i] = -INFINITY;
    int64_t n = work->ids ? work->n_ids : work->n_keys;
    for (int64_t i = 0; i < n; i++) {
        int64_t position = work->ids ? work->ids[i] : i;
        if (position >= 0 && position < work->n_keys) score_key(work, position, out);
    }
}

void lp_probe_softmax(double *x, int64_t n_rows, int64_t n_keys) {
    for (int64_t r = 0; r < n_rows; r++, x += n_keys) {
        double largest = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n_keys; i++)
            if (!(x[i] <= largest)) largest = x[i]; // a NaN stays
        for (int64_t i = 0; i < n_keys; i++) sum += x[i] = exp(x[i] - largest);
        for (int64_t i = 0; i < n_keys; i++) x[i] /= sum;
    }
}

void lp_probe_show_row(const struct lp_attn_step *step, const struct lp_span *span, int64_t row,
                       enum lp_probe_point point, int32_t layer, double *values, int64_t n_heads,
                       int64_t width) {
    int64_t n = (n_heads ? n_heads : 1) * width;
    char *to = (char *)values; // a float is never behind the double that it comes from
    for (int64_t i = 0; i < n; i++) {
        float narrow = (float)values[i];
        memcpy(to + i * (int64_t)sizeof narrow, &narrow, sizeof narrow);
    }
    struct lp_probe_value value = {.point = point,
                                   .layer = layer,
                                   .sequence = span->sequence,
                                   .first_pos = span->n_past + row,
                                   .n_rows = 1,
                                   .data = values,
                                   .host = true,
                                   .row_stride = n,
                                   .n_dims = n_heads ? 2 : 1,
                                   .dims = {n_heads ? n_heads : width, n_heads ? width : 0},
                                   .dim_stride = width};
    step->probe->take(step->probe->user, &value);
}

bool lp_probe_show_scores(const struct lp_attn_step *step, const struct lp_span *span, int64_t row,
                          int32_t layer, const struct lp_score_work *work) {
    int64_t position = span->n_past + row;
    bool scores = lp_probe_wants(step->probe, LP_PROBE_ATTN_SCORES, layer, position, 1),
         probs = lp_probe_wants(step->probe, LP_PROBE_ATTN_PROBS, layer, position, 1);
    size_t n = (size_t)work->n_heads * (size_t)work->n_keys;
    double *made = scores || probs ? lp_alloc(n, sizeof *made) : NULL;
    double *shown = scores || probs ? lp_alloc(n, sizeof *shown) : NULL;
    bool ok = (!scores && !probs) || (made && shown);
    if (made && shown) {
        lp_probe_scores(work, made);
        if (scores) {
            memcpy(shown, made, n * sizeof *shown);
            lp_probe_show_row(step, span, row, LP_PROBE_ATTN_SCORES, layer, shown, work->n_heads,
                              work->n_keys);
        }
        lp_probe_softmax(made, work->n_heads, work->n_keys);
        if (probs)
            lp_probe_show_row(step, span, row, LP_PROBE_ATTN_PROBS, layer, made, work->n_heads,
                              work->n_keys);
    }
    lp_free(made);
    lp_free(shown);
    return ok;
}
