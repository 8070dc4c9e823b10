// The backend calls that every form of attention makes, over all rows of a step.
#include "attention/attention.h"

void lp_attn_project(const struct lp_attn_step *step, const struct lp_weight *w, const float *bias,
                     const float *x, int64_t x_stride, bool same_x, float *y) {
    step->dev->backend->matmul(step->dev, &(struct lp_op_matmul){.w = w,
                                                                 .x = x,
                                                                 .x_stride = x_stride,
                                                                 .bias = bias,
                                                                 .y = y,
                                                                 .y_stride = w->n_out,
                                                                 .n_rows = step->n_rows,
                                                                 .same_x = same_x});
}

void lp_attn_norm(const struct lp_attn_step *step, float *x, int64_t stride, const float *w,
                  float eps, int64_t n_rows, int32_t width, const struct lp_weight *next) {
    step->dev->backend->rms_norm(step->dev, &(struct lp_op_rms_norm){.x = x,
                                                                     .x_stride = stride,
                                                                     .w = w,
                                                                     .eps = eps,
                                                                     .y = x,
                                                                     .y_stride = stride,
                                                                     .n_rows = n_rows,
                                                                     .width = width,
                                                                     .next = next});
}

static struct lp_op_rope rope_of(const struct lp_attn_step *step, const struct lp_attn_ready *r) {
    return (struct lp_op_rope){.x = r->x + r->rope_first,
                               .token_stride = r->stride,
                               .head_stride = r->head_stride,
                               .n_tokens = step->n_rows,
                               .n_heads = r->n_heads,
                               .width = r->rope->width,
                               .pairing = r->rope->pairing,
                               .positions = step->positions,
                               .inv_freq = r->rope->inv_freq,
                               .magnitude = r->rope->magnitude};
}

void lp_attn_rotate(const struct lp_attn_step *step, const struct lp_rope_spec *rope, float *x,
                    int64_t token_stride, int64_t head_stride, int32_t n_heads) {
    const struct lp_op_rope op = rope_of(step, &(struct lp_attn_ready){.x = x,
                                                                       .stride = token_stride,
                                                                       .head_stride = head_stride,
                                                                       .n_heads = n_heads,
                                                                       .rope = rope});
    step->dev->backend->rope(step->dev, &op);
}

static void store_span(const struct lp_attn_step *step, int32_t layer, enum lp_kv_kind kind,
                       const struct lp_span *span, const float *rows) {
    struct lp_cache_view cache = lp_kv_view(step->kv, layer, kind, span->pages);
    step->dev->backend->cache_write(
        step->dev, &(struct lp_op_cache_write){.cache = &cache,
                                               .x = rows + span->first_row * cache.width,
                                               .x_stride = cache.width,
                                               .first_pos = span->n_past,
                                               .n_rows = span->n_rows});
}

void lp_attn_store(const struct lp_attn_step *step, int32_t layer, enum lp_kv_kind kind,
                   const float *rows) {
    if (!step->row_pages) {
        for (int32_t i = 0; i < step->n_spans; i++)
            store_span(step, layer, kind, &step->spans[i], rows);
        return;
    }
    struct lp_cache_view cache = lp_kv_view(step->kv, layer, kind, step->spans[0].pages);
    struct lp_op_batch batch = {step->positions, step->row_pages, step->max_context};
    step->dev->backend->cache_write(step->dev, &(struct lp_op_cache_write){.cache = &cache,
                                                                           .x = rows,
                                                                           .x_stride = cache.width,
                                                                           .n_rows = step->n_rows,
                                                                           .batch = &batch});
}

// ---- what rows need behind their projections

// In one operation; false where the backend has none for these.
static bool ready_at_once(const struct lp_attn_step *step, int32_t layer,
                          const struct lp_attn_ready *parts, int32_t n_parts) {
    struct lp_op_ready_part all[LP_READY_PARTS];
    struct lp_cache_view views[LP_READY_PARTS];
    const struct lp_op_batch batch = {step->positions, step->row_pages, step->max_context};
    if (!step->dev->backend->ready_rows || !step->row_pages) return false;
    for (int32_t i = 0; i < n_parts; i++) {
        const struct lp_attn_ready *r = &parts[i];
        all[i] = (struct lp_op_ready_part){.rope = rope_of(step, r),
                                           .rope_first = r->rope_first,
                                           .norm_w = r->norm_w,
                                           .norm_b = r->norm_b,
                                           .eps = r->eps,
                                           .norm_width = r->norm_width};
        if (!r->stores) continue;
        views[i] = lp_kv_view(step->kv, layer, r->kind, step->spans[0].pages);
        all[i].cache = &views[i];
    }
    return step->dev->backend->ready_rows(
        step->dev, &(struct lp_op_ready_rows){
                       .parts = all, .n_parts = n_parts, .n_rows = step->n_rows, .batch = &batch});
}

static void ready_apart(const struct lp_attn_step *step, int32_t layer,
                        const struct lp_attn_ready *r) {
    const struct lp_op_rope rope = rope_of(step, r);
    if (r->norm_b)
        step->dev->backend->layer_norm(step->dev,
                                       &(struct lp_op_layer_norm){.x = r->x,
                                                                  .x_stride = r->stride,
                                                                  .w = r->norm_w,
                                                                  .b = r->norm_b,
                                                                  .eps = r->eps,
                                                                  .y = r->x,
                                                                  .y_stride = r->stride,
                                                                  .n_rows = step->n_rows,
                                                                  .width = r->norm_width});
    else if (r->norm_w)
        lp_attn_norm(step, r->x, r->stride, r->norm_w, r->eps, step->n_rows, r->norm_width, NULL);
    step->dev->backend->rope(step->dev, &rope);
    if (r->stores) lp_attn_store(step, layer, r->kind, r->x);
}

void lp_attn_ready_rows(const struct lp_attn_step *step, int32_t layer,
                        const struct lp_attn_ready *parts, int32_t n_parts) {
    if (ready_at_once(step, layer, parts, n_parts)) return;
    for (int32_t i = 0; i < n_parts; i++) ready_apart(step, layer, &parts[i]);
}

// A bound for n keys that stays the same while sequences grow a little, so that recorded operations
// serve for many steps: one of four in an octave.
static int64_t round_keys(int64_t n, int64_t most) {
    int64_t octave = 256;
    while (octave < n) octave *= 2;
    int64_t each = octave / 8, rounded = (n + each - 1) / each * each;
    return rounded < most ? rounded : most;
}

struct lp_together lp_attn_together(const struct lp_attn_step *step, const struct lp_span *spans,
                                    int32_t n_spans) {
    struct lp_together t = {0};
    int64_t most = 0;
    if (!step->row_pages) return t;
    for (; t.n_spans < n_spans; t.n_spans++) {
        const struct lp_span *span = &spans[t.n_spans];
        if (span->n_rows > LP_TOGETHER_ROWS || span->first_row != spans[0].first_row + t.n_rows)
            break;
        if (span->n_past + span->n_rows > most) most = span->n_past + span->n_rows;
        t.n_rows += span->n_rows;
    }
    if (t.n_spans == 0) return t;
    t.batch = (struct lp_op_batch){.positions = step->positions + spans[0].first_row,
                                   .pages = step->row_pages + spans[0].first_row,
                                   .most_keys = round_keys(most, step->max_context)};
    return t;
}
