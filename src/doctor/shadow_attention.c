// Attention and cache rows in the shadow. Ref computes some heads and queries of a call;
// up-projections of heads are decoded once for it, since it would do so for every key.
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/shadow_parts.h"

static struct lp_visible part_of(const struct lp_visible *v, struct lp_shadow_run queries) {
    struct lp_visible part = *v;
    part.first_pos += queries.first;
    part.n_queries = queries.count;
    if (!v->ids) return part;
    part.ids += queries.first * v->k;
    part.counts += queries.first;
    return part;
}

static int64_t n_keys_of(const struct lp_visible *v) {
    int64_t n = v->first_pos + v->n_queries;
    return v->ids && v->k < n ? v->k : n;
}

// The heads and queries that are compared. each: multiply-adds of one head of one query; head: of a
// head beside its queries.
static void pick(struct lp_shadow *s, int64_t n_heads, int64_t n_queries, int64_t each,
                 int64_t head, struct lp_shadow_run *heads, struct lp_shadow_run *queries) {
    *heads = lp_shadow_pick(s, n_heads, lp_shadow_fit(s, n_heads, each * n_queries + head, 1));
    *queries = lp_shadow_pick(s, n_queries, lp_shadow_fit(s, n_queries, each * heads->count, 1));
}

// Compares what lies in `out` with want and puts want there if it is all of the call.
static void finish(struct lp_shadow *s, struct lp_attention_kernel kernel,
                   struct lp_shadow_finding *finding, const struct lp_shadow_region *out,
                   const float *want) {
    struct lp_diff_shape shape = out->shape;
    float *got = lp_shadow_floats(s, shape.n_rows * shape.n_groups * shape.width);
    if (!got) return;
    finding->bound = LP_SHADOW_BOUND + kernel.rounding;
    finding->kernel = kernel.name;
    lp_shadow_gather(out, got);
    lp_shadow_compare(s, finding, got, want, NULL, shape);
    if (finding->whole) lp_shadow_scatter(out, want);
    lp_free(got);
}

void lp_shadow_gqa(struct lp_device *dev, const struct lp_op_gqa *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    int64_t n = op->visible.n_queries, n_heads = op->n_heads, v_dim = op->v_dim;
    bool compare = lp_shadow_begin(s, "gqa", op);
    s->fast->backend->gqa(s->fast, op);
    if (!compare) return;
    // Ref decodes whole rows for every head.
    int64_t each = n_heads * n_keys_of(&op->visible) * 2 * (op->k->width + op->v->width);
    struct lp_shadow_run queries = lp_shadow_pick(s, n, lp_shadow_fit(s, n, each, 1));
    float *want = lp_shadow_floats(s, queries.count * n_heads * v_dim);
    if (!want) return;
    struct lp_op_gqa part = *op;
    part.q = op->q + queries.first * op->q_stride;
    part.visible = part_of(&op->visible, queries);
    part.out = want;
    part.out_stride = n_heads * v_dim;
    s->ref->backend->gqa(s->ref, &part);
    struct lp_shadow_region out = {op->out + queries.first * op->out_stride,
                                   op->out_stride,
                                   v_dim,
                                   {queries.count, n_heads, v_dim}};
    struct lp_shadow_finding finding = {
        .op = "gqa", .n_rows = n, .first_pos = part.visible.first_pos, .whole = queries.count == n};
    finish(s, s->fast->backend->kernel(s->fast, "gqa", op->k->type, op->k->type), &finding, &out,
           want);
    lp_free(want);
}

void lp_shadow_mla_absorbed(struct lp_device *dev, const struct lp_op_mla_absorbed *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    struct lp_shadow_run heads, queries;
    bool compare = lp_shadow_begin(s, "mla_absorbed", op);
    s->fast->backend->mla_absorbed(s->fast, op);
    if (!compare) return;
    int64_t each = n_keys_of(&op->visible) * 4 * (op->latent + op->rope);
    pick(s, op->n_heads, op->visible.n_queries, each, 0, &heads, &queries);
    float *want = lp_shadow_floats(s, queries.count * heads.count * op->latent);
    if (!want) return;
    struct lp_op_mla_absorbed part = *op;
    part.n_heads = (int32_t)heads.count;
    part.q_latent += queries.first * op->q_latent_stride + heads.first * op->latent;
    part.q_rope += queries.first * op->q_rope_stride + heads.first * op->q_rope_head_stride;
    part.visible = part_of(&op->visible, queries);
    part.out = want;
    part.out_stride = heads.count * op->latent;
    s->ref->backend->mla_absorbed(s->ref, &part);
    struct lp_shadow_region out = {op->out + queries.first * op->out_stride +
                                       heads.first * op->latent,
                                   op->out_stride,
                                   op->latent,
                                   {queries.count, heads.count, op->latent}};
    struct lp_shadow_finding finding = {.op = "mla_absorbed",
                                        .n_rows = op->visible.n_queries,
                                        .first_pos = part.visible.first_pos,
                                        .whole = queries.count == op->visible.n_queries &&
                                                 heads.count == op->n_heads};
    finish(s, s->fast->backend->kernel(s->fast, "mla_absorbed", op->cache->type, op->cache->type),
           &finding, &out, want);
    lp_free(want);
}

// Matrices [heads] of w as float32; data NULL without memory.
static struct lp_weight decode(struct lp_shadow *s, const struct lp_weight *w,
                               struct lp_shadow_run heads) {
    float *values = lp_shadow_floats(s, heads.count * w->n_out * w->n_in);
    for (int64_t h = 0; values && h < heads.count; h++)
        for (int64_t r = 0; r < w->n_out; r++)
            lp_type_info((uint32_t)w->type)
                ->dequant(lp_weight_mat(w, heads.first + h) + (size_t)r * w->row_bytes,
                          values + (h * w->n_out + r) * w->n_in, (size_t)w->n_in);
    size_t row_bytes = (size_t)w->n_in * sizeof(float);
    return (struct lp_weight){.data = values,
                              .scales = w->scales ? w->scales + heads.first : NULL,
                              .type = LP_TYPE_F32,
                              .n_in = w->n_in,
                              .n_out = w->n_out,
                              .n_mats = heads.count,
                              .row_bytes = row_bytes,
                              .mat_bytes = row_bytes * (size_t)w->n_out,
                              .name = w->name};
}

static void ref_expanded(struct lp_shadow *s, const struct lp_op_mla_expanded *op,
                         struct lp_shadow_run heads, struct lp_shadow_run queries, float *want) {
    struct lp_weight k_up = decode(s, op->k_up, heads), v_up = decode(s, op->v_up, heads);
    struct lp_op_mla_expanded part = *op;
    part.n_heads = (int32_t)heads.count;
    part.k_up = &k_up;
    part.v_up = &v_up;
    part.q += queries.first * op->q_stride + heads.first * (op->nope + op->rope);
    part.visible = part_of(&op->visible, queries);
    part.out = want;
    part.out_stride = heads.count * op->v_dim;
    if (k_up.data && v_up.data) s->ref->backend->mla_expanded(s->ref, &part);
    lp_free((void *)k_up.data);
    lp_free((void *)v_up.data);
}

void lp_shadow_mla_expanded(struct lp_device *dev, const struct lp_op_mla_expanded *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    struct lp_shadow_run heads, queries;
    bool compare = lp_shadow_begin(s, "mla_expanded", op);
    s->fast->backend->mla_expanded(s->fast, op);
    if (!compare) return;
    int64_t n_all = op->visible.first_pos + op->visible.n_queries;
    int64_t each = n_keys_of(&op->visible) * 2 * (op->nope + op->rope + op->v_dim);
    pick(s, op->n_heads, op->visible.n_queries, each,
         n_all * 2 * op->latent * (op->nope + op->v_dim), &heads, &queries);
    float *want = lp_shadow_floats(s, queries.count * heads.count * op->v_dim);
    if (!want) return;
    ref_expanded(s, op, heads, queries, want);
    struct lp_shadow_region out = {op->out + queries.first * op->out_stride +
                                       heads.first * op->v_dim,
                                   op->out_stride,
                                   op->v_dim,
                                   {queries.count, heads.count, op->v_dim}};
    struct lp_shadow_finding finding = {.op = "mla_expanded",
                                        .n_rows = op->visible.n_queries,
                                        .first_pos = op->visible.first_pos + queries.first,
                                        .whole = queries.count == op->visible.n_queries &&
                                                 heads.count == op->n_heads};
    if (!s->failed)
        finish(s,
               s->fast->backend->kernel(s->fast, "mla_expanded", op->cache->type, op->k_up->type),
               &finding, &out, want);
    lp_free(want);
}

// ---- cache rows

static uint8_t *cache_row(const struct lp_cache_view *cache, int64_t pos) {
    int64_t slot = pos + cache->slot_offset;
    return (uint8_t *)cache->base +
           cache->page_bytes * (size_t)cache->pages[slot / cache->page_tokens] +
           cache->row_bytes * (size_t)(slot % cache->page_tokens);
}

#define POISON 0x5a // a row that is not written shows

static void poison(const struct lp_op_cache_write *op) {
    for (int64_t t = 0; t < op->n_rows; t++)
        memset(cache_row(op->cache, op->first_pos + t), POISON, op->cache->row_bytes);
}

static void read_rows(const struct lp_op_cache_write *op, uint8_t *out) {
    for (int64_t t = 0; t < op->n_rows; t++)
        memcpy(out + (size_t)t * op->cache->row_bytes, cache_row(op->cache, op->first_pos + t),
               op->cache->row_bytes);
}

static double largest(const struct lp_op_cache_write *op) {
    double max = 0;
    for (int64_t t = 0; t < op->n_rows; t++)
        for (int32_t i = 0; i < op->cache->width; i++)
            max = fmax(max, fabs((double)op->x[t * op->x_stride + i]));
    return max;
}

// The rows must be equal as bytes, but for the payload of a NaN.
static void compare_rows(struct lp_shadow *s, struct lp_shadow_finding *finding,
                         const struct lp_op_cache_write *op, const uint8_t *got,
                         const uint8_t *want) {
    int64_t width = op->cache->width;
    size_t n_bytes = (size_t)op->n_rows * op->cache->row_bytes;
    float *values[2] = {lp_shadow_floats(s, op->n_rows * width),
                        lp_shadow_floats(s, op->n_rows * width)};
    const uint8_t *rows[2] = {got, want};
    for (int i = 0; i < 2 && values[0] && values[1]; i++)
        for (int64_t t = 0; t < op->n_rows; t++)
            lp_cache_row_read(op->cache, rows[i] + (size_t)t * op->cache->row_bytes,
                              values[i] + t * width);
    if (values[0] && values[1] && memcmp(got, want, n_bytes) != 0)
        lp_shadow_compare(s, finding, values[0], values[1], NULL,
                          (struct lp_diff_shape){op->n_rows, 1, width});
    else if (values[0] && values[1])
        lp_shadow_report(s, finding);
    lp_free(values[0]);
    lp_free(values[1]);
}

void lp_shadow_cache_write(struct lp_device *dev, const struct lp_op_cache_write *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    size_t n_bytes = (size_t)op->n_rows * op->cache->row_bytes;
    uint8_t *got = lp_shadow_begin(s, "cache_write", op) ? lp_alloc(2 * n_bytes, 1) : NULL;
    if (!got) {
        s->fast->backend->cache_write(s->fast, op);
        return;
    }
    poison(op);
    s->fast->backend->cache_write(s->fast, op);
    read_rows(op, got);
    poison(op);
    s->ref->backend->cache_write(s->ref, op);
    read_rows(op, got + n_bytes);
    struct lp_shadow_finding finding = {.op = "cache_write",
                                        .param = op->cache->base,
                                        .n_rows = op->n_rows,
                                        .first_pos = op->first_pos,
                                        .whole = true,
                                        .largest_input = largest(op),
                                        .cache_type = op->cache->type};
    compare_rows(s, &finding, op, got, got + n_bytes);
    lp_free(got);
}
