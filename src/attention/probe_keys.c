// Single rows of the cache and of weights, on the host.
#include "attention/attn_probe.h"
#include "base/alloc.h"

bool lp_key_rows_open(struct lp_key_rows *rows, const struct lp_attn_step *step, int32_t layer,
                      enum lp_kv_kind kind, const struct lp_span *span) {
    *rows = (struct lp_key_rows){.dev = step->dev,
                                 .view = lp_kv_view(step->kv, layer, kind, span->pages),
                                 .pages = span->pages->pages};
    rows->bytes = lp_alloc(rows->view.row_bytes, 1);
    rows->row = lp_alloc((size_t)rows->view.width, sizeof *rows->row);
    if (rows->bytes && rows->row) return true;
    lp_key_rows_close(rows);
    return false;
}

const float *lp_key_rows_read(struct lp_key_rows *rows, int64_t position) {
    const struct lp_cache_view *view = &rows->view;
    int64_t slot = position + view->slot_offset;
    size_t page = (size_t)rows->pages[slot / view->page_tokens];
    const char *from = (const char *)view->base + view->page_bytes * page +
                       view->row_bytes * (size_t)(slot % view->page_tokens);
    rows->dev->backend->read(rows->dev, rows->bytes, from, view->row_bytes);
    lp_cache_row_read(view, rows->bytes, rows->row);
    return rows->row;
}

void lp_key_rows_close(struct lp_key_rows *rows) {
    lp_free(rows->bytes);
    lp_free(rows->row);
    rows->bytes = NULL;
    rows->row = NULL;
}

void lp_probe_weight_row(struct lp_device *dev, const struct lp_weight *w, int64_t mat, int64_t row,
                         void *bytes, float *out) {
    const uint8_t *from = lp_weight_mat(w, mat) + (size_t)row * w->row_bytes;
    dev->backend->read(dev, bytes, from, w->row_bytes);
    lp_type_info(w->type)->dequant(bytes, out, (size_t)w->n_in);
    if (!w->scales) return;
    float factor;
    dev->backend->read(dev, &factor, w->scales + mat, sizeof factor);
    for (int64_t i = 0; i < w->n_in; i++) out[i] *= factor;
}
