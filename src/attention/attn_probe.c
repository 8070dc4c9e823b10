// Rows of a step's buffers shown to a probe.
#include "attention/attn_probe.h"

bool lp_probe_wants_spans(const struct lp_probe *probe, const struct lp_span *spans,
                          int32_t n_spans, enum lp_probe_point point, int32_t layer) {
    for (int32_t i = 0; probe && i < n_spans; i++)
        if (lp_probe_wants(probe, point, layer, spans[i].n_past, spans[i].n_rows)) return true;
    return false;
}

// The part of the rows that belongs to one span.
static void show_span(struct lp_probe *probe, const struct lp_span *span, enum lp_probe_point point,
                      int32_t layer, const struct lp_probe_rows *rows) {
    int64_t from = span->first_row, to = span->first_row + span->n_rows;
    if (from < rows->first_row) from = rows->first_row;
    if (rows->n_rows && to > rows->first_row + rows->n_rows) to = rows->first_row + rows->n_rows;
    int64_t position = span->n_past + from - span->first_row;
    if (from >= to || !lp_probe_wants(probe, point, layer, position, to - from)) return;
    bool heads = rows->n_heads > 0;
    struct lp_probe_value value = {
        .point = point,
        .layer = layer,
        .sequence = span->sequence,
        .first_pos = position,
        .n_rows = to - from,
        .data = (const float *)rows->data + (from - rows->first_row) * rows->row_stride,
        .is_int = lp_probe_is_int(point),
        .row_stride = rows->row_stride,
        .n_dims = heads ? 2 : 1,
        .dims = {heads ? rows->n_heads : rows->width, heads ? rows->width : 0},
        .dim_stride = rows->head_stride};
    probe->take(probe->user, &value);
}

void lp_probe_show(struct lp_probe *probe, const struct lp_span *spans, int32_t n_spans,
                   enum lp_probe_point point, int32_t layer, const struct lp_probe_rows *rows) {
    for (int32_t i = 0; probe && i < n_spans; i++) show_span(probe, &spans[i], point, layer, rows);
}

void lp_attn_probe(const struct lp_attn_step *step, enum lp_probe_point point, int32_t layer,
                   const void *data, int64_t width) {
    lp_probe_show(step->probe, step->spans, step->n_spans, point, layer,
                  &(struct lp_probe_rows){.data = data, .row_stride = width, .width = width});
}

void lp_attn_probe_heads(const struct lp_attn_step *step, enum lp_probe_point point, int32_t layer,
                         const float *data, int64_t n_heads, int64_t width) {
    lp_probe_show(step->probe, step->spans, step->n_spans, point, layer,
                  &(struct lp_probe_rows){.data = data,
                                          .row_stride = n_heads * width,
                                          .n_heads = n_heads,
                                          .width = width,
                                          .head_stride = width});
}
