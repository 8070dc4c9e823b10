// The shadow device: memory and scratch of the two devices behind it, and the operations that are
// cheap enough to be compared whole.
#include "doctor/shadow.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/shadow_parts.h"

// ---- what the operations share

bool lp_shadow_begin(const struct lp_shadow *s, const char *op, const void *args) {
    if (s->config.sees) s->config.sees(s->config.user, s->layer, op, args);
    return !s->config.wants || s->config.wants(s->config.user, s->layer, op);
}

float *lp_shadow_floats(struct lp_shadow *s, int64_t n) {
    float *block = lp_alloc((size_t)n, sizeof *block);
    if (!block) s->failed = true;
    return block;
}

struct lp_shadow_run lp_shadow_pick(struct lp_shadow *s, int64_t n, int64_t count) {
    if (count >= n) return (struct lp_shadow_run){0, n};
    uint64_t turn = s->turn++;
    int64_t last = n - count;
    if (turn % 2 == 0) return (struct lp_shadow_run){last, count};
    return (struct lp_shadow_run){(int64_t)(turn * 2654435761u % (uint64_t)(last + 1)), count};
}

int64_t lp_shadow_fit(const struct lp_shadow *s, int64_t n, int64_t each, int64_t least) {
    int64_t fit = each > 0 ? s->config.max_work / each : n;
    if (fit < least) fit = least;
    return fit < n ? fit : n;
}

void lp_shadow_gather(const struct lp_shadow_region *r, float *packed) {
    for (int64_t t = 0; t < r->shape.n_rows; t++)
        for (int64_t g = 0; g < r->shape.n_groups; g++, packed += r->shape.width)
            memcpy(packed, r->base + t * r->row_stride + g * r->group_stride,
                   (size_t)r->shape.width * sizeof *packed);
}

void lp_shadow_scatter(const struct lp_shadow_region *r, const float *packed) {
    for (int64_t t = 0; t < r->shape.n_rows; t++)
        for (int64_t g = 0; g < r->shape.n_groups; g++, packed += r->shape.width)
            memcpy(r->base + t * r->row_stride + g * r->group_stride, packed,
                   (size_t)r->shape.width * sizeof *packed);
}

bool lp_shadow_rounds(const struct lp_weight *w) {
    return lp_weight_may_round(w->type);
}

void lp_shadow_round_row(float *x, int64_t n) {
    for (int64_t g = 0; g < n; g += 32) {
        int64_t end = g + 32 < n ? g + 32 : n;
        float amax = 0;
        for (int64_t i = g; i < end; i++) amax = fmaxf(amax, fabsf(x[i]));
        float step = amax / 127.0f, inverse = 127.0f / amax;
        if (amax == 0 || !isfinite(amax) || !isfinite(inverse)) continue;
        for (int64_t i = g; i < end; i++) x[i] = step * nearbyintf(x[i] * inverse);
    }
}

void lp_shadow_report(struct lp_shadow *s, struct lp_shadow_finding *finding) {
    finding->layer = s->layer;
    if (s->config.found) s->config.found(s->config.user, finding);
}

void lp_shadow_compare(struct lp_shadow *s, struct lp_shadow_finding *finding, const float *got,
                       const float *want, const float *before, struct lp_diff_shape shape) {
    finding->diff = lp_diff_measure(got, want, before, shape);
    if (finding->diff.error > finding->bound)
        lp_diff_where(finding->where, sizeof finding->where, got, want, before, shape,
                      finding->bound, finding->first_pos >= 0 ? "position" : "row",
                      finding->first_pos >= 0 ? finding->first_pos : 0);
    lp_shadow_report(s, finding);
}

// ---- operations from values to values of the same place: run, keep, run again from the inputs

// An operation on a region in place or from other regions: `run` calls it on a device with the
// region's values at `values`, packed.
struct whole_op {
    struct lp_shadow_region out;
    const float *input; // packed inputs that ref starts from (what `out` held), or NULL
    void (*ref)(const struct whole_op *, struct lp_device *ref, float *values);
    const void *op;
};

static void compare_whole(struct lp_shadow *s, struct lp_shadow_finding *finding,
                          const struct whole_op *w, const float *before) {
    struct lp_diff_shape shape = w->out.shape;
    int64_t n = shape.n_rows * shape.n_groups * shape.width;
    float *got = lp_shadow_floats(s, n), *want = lp_shadow_floats(s, n);
    if (got && want) {
        lp_shadow_gather(&w->out, got);
        if (w->input) memcpy(want, w->input, (size_t)n * sizeof *want);
        w->ref(w, s->ref, want);
        finding->whole = true;
        lp_shadow_compare(s, finding, got, want, before, shape);
        lp_shadow_scatter(&w->out, want);
    }
    lp_free(got);
    lp_free(want);
}

static struct lp_shadow_region rows_of(const float *base, int64_t stride, int64_t n_rows,
                                       int64_t width) {
    return (struct lp_shadow_region){(float *)base, stride, 0, {n_rows, 1, width}};
}

// What a region holds, packed; NULL without memory.
static float *copy_of(struct lp_shadow *s, const struct lp_shadow_region *region) {
    const struct lp_diff_shape *shape = &region->shape;
    float *copy = lp_shadow_floats(s, shape->n_rows * shape->n_groups * shape->width);
    if (copy) lp_shadow_gather(region, copy);
    return copy;
}

static void ref_rms_norm(const struct whole_op *w, struct lp_device *ref, float *values) {
    struct lp_op_rms_norm op = *(const struct lp_op_rms_norm *)w->op;
    op.x = op.y = values;
    op.x_stride = op.y_stride = op.width;
    ref->backend->rms_norm(ref, &op);
}

static void shadow_rms_norm(struct lp_device *dev, const struct lp_op_rms_norm *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    struct lp_shadow_region x = rows_of(op->x, op->x_stride, op->n_rows, op->width);
    float *input = lp_shadow_begin(s, "rms_norm", op) ? copy_of(s, &x) : NULL;
    s->fast->backend->rms_norm(s->fast, op);
    if (!input) return;
    struct lp_shadow_finding finding = {.op = "rms_norm",
                                        .param = op->w,
                                        .n_rows = op->n_rows,
                                        .first_pos = -1,
                                        .bound = LP_SHADOW_BOUND};
    struct whole_op w = {rows_of(op->y, op->y_stride, op->n_rows, op->width), input, ref_rms_norm,
                         op};
    compare_whole(s, &finding, &w, NULL);
    lp_free(input);
}

static void ref_layer_norm(const struct whole_op *w, struct lp_device *ref, float *values) {
    struct lp_op_layer_norm op = *(const struct lp_op_layer_norm *)w->op;
    op.x = op.y = values;
    op.x_stride = op.y_stride = op.width;
    ref->backend->layer_norm(ref, &op);
}

static void shadow_layer_norm(struct lp_device *dev, const struct lp_op_layer_norm *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    struct lp_shadow_region x = rows_of(op->x, op->x_stride, op->n_rows, op->width);
    float *input = lp_shadow_begin(s, "layer_norm", op) ? copy_of(s, &x) : NULL;
    s->fast->backend->layer_norm(s->fast, op);
    if (!input) return;
    struct lp_shadow_finding finding = {.op = "layer_norm",
                                        .param = op->w,
                                        .n_rows = op->n_rows,
                                        .first_pos = -1,
                                        .bound = LP_SHADOW_BOUND};
    struct whole_op w = {rows_of(op->y, op->y_stride, op->n_rows, op->width), input, ref_layer_norm,
                         op};
    compare_whole(s, &finding, &w, NULL);
    lp_free(input);
}

static void ref_rope(const struct whole_op *w, struct lp_device *ref, float *values) {
    struct lp_op_rope op = *(const struct lp_op_rope *)w->op;
    op.x = values;
    op.head_stride = op.width;
    op.token_stride = (int64_t)op.width * op.n_heads;
    ref->backend->rope(ref, &op);
}

static void shadow_rope(struct lp_device *dev, const struct lp_op_rope *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    struct lp_shadow_region x = {
        op->x, op->token_stride, op->head_stride, {op->n_tokens, op->n_heads, op->width}};
    float *input = lp_shadow_begin(s, "rope", op) ? copy_of(s, &x) : NULL;
    s->fast->backend->rope(s->fast, op);
    if (!input) return;
    struct lp_shadow_finding finding = {.op = "rope",
                                        .param = op->inv_freq,
                                        .n_rows = op->n_tokens,
                                        .first_pos = -1,
                                        .bound = LP_SHADOW_BOUND};
    struct whole_op w = {x, input, ref_rope, op};
    compare_whole(s, &finding, &w, NULL);
    lp_free(input);
}

static void ref_add(const struct whole_op *w, struct lp_device *ref, float *values) {
    struct lp_op_add op = *(const struct lp_op_add *)w->op;
    op.y = values;
    op.y_stride = op.width;
    ref->backend->add(ref, &op);
}

static void shadow_add(struct lp_device *dev, const struct lp_op_add *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    struct lp_shadow_region y = rows_of(op->y, op->y_stride, op->n_rows, op->width);
    float *input = lp_shadow_begin(s, "add", op) ? copy_of(s, &y) : NULL;
    s->fast->backend->add(s->fast, op);
    if (!input) return;
    struct lp_shadow_finding finding = {
        .op = "add", .n_rows = op->n_rows, .first_pos = -1, .bound = LP_SHADOW_BOUND};
    struct whole_op w = {y, input, ref_add, op};
    compare_whole(s, &finding, &w, input);
    lp_free(input);
}

static void ref_silu_mul(const struct whole_op *w, struct lp_device *ref, float *values) {
    struct lp_op_silu_mul op = *(const struct lp_op_silu_mul *)w->op;
    for (int64_t t = 0; t < op.n_rows; t++) { // up is not packed as the gate is
        struct lp_op_silu_mul row = {values + t * op.width,
                                     op.up + t * op.stride,
                                     values + t * op.width,
                                     op.width,
                                     1,
                                     op.width};
        ref->backend->silu_mul(ref, &row);
    }
}

static void shadow_silu_mul(struct lp_device *dev, const struct lp_op_silu_mul *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    struct lp_shadow_region gate = rows_of(op->gate, op->stride, op->n_rows, op->width);
    bool may = op->y != op->up; // ref needs up as it was
    float *input = lp_shadow_begin(s, "silu_mul", op) && may ? copy_of(s, &gate) : NULL;
    s->fast->backend->silu_mul(s->fast, op);
    if (!input) return;
    struct lp_shadow_finding finding = {
        .op = "silu_mul", .n_rows = op->n_rows, .first_pos = -1, .bound = LP_SHADOW_BOUND};
    struct whole_op w = {rows_of(op->y, op->stride, op->n_rows, op->width), input, ref_silu_mul,
                         op};
    compare_whole(s, &finding, &w, NULL);
    lp_free(input);
}

static void ref_embed(const struct whole_op *w, struct lp_device *ref, float *values) {
    struct lp_op_embed op = *(const struct lp_op_embed *)w->op;
    op.out = values;
    op.out_stride = op.table->n_in;
    ref->backend->embed(ref, &op);
}

static void shadow_embed(struct lp_device *dev, const struct lp_op_embed *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    bool compare = lp_shadow_begin(s, "embed", op);
    s->fast->backend->embed(s->fast, op);
    if (!compare) return;
    struct lp_shadow_finding finding = {.op = "embed",
                                        .weight = op->table->name,
                                        .n_rows = op->n_rows,
                                        .first_pos = -1,
                                        .bound = LP_SHADOW_BOUND};
    struct whole_op w = {rows_of(op->out, op->out_stride, op->n_rows, op->table->n_in), NULL,
                         ref_embed, op};
    compare_whole(s, &finding, &w, NULL);
}

// ---- the device

static lp_status shadow_no_open(struct lp_device **out, const struct lp_device_options *options,
                                struct lp_err *err) {
    (void)out, (void)options;
    return lp_err_set(err, LP_STATUS_INVALID, "a shadow is made over two devices that are open");
}

static void shadow_close(struct lp_device *dev) {
    lp_free(dev);
}

static lp_status shadow_reserve(struct lp_device *dev, const struct lp_reserve *need,
                                struct lp_err *err) {
    struct lp_shadow *s = lp_shadow_of(dev);
    lp_status status = s->fast->backend->reserve(s->fast, need, err);
    return status ? status : s->ref->backend->reserve(s->ref, need, err);
}

static size_t shadow_scratch_bytes(const struct lp_device *dev) {
    const struct lp_shadow *s = (const struct lp_shadow *)dev;
    return s->fast->backend->scratch_bytes(s->fast) + s->ref->backend->scratch_bytes(s->ref);
}

static void *shadow_alloc(struct lp_device *dev, size_t n_bytes) {
    struct lp_shadow *s = lp_shadow_of(dev);
    return s->fast->backend->alloc(s->fast, n_bytes);
}
static void shadow_free(struct lp_device *dev, void *block) {
    struct lp_shadow *s = lp_shadow_of(dev);
    s->fast->backend->free(s->fast, block);
}
static void shadow_copy(struct lp_device *dev, void *to, const void *from, size_t n_bytes) {
    struct lp_shadow *s = lp_shadow_of(dev);
    s->fast->backend->copy(s->fast, to, from, n_bytes);
}
static bool shadow_supports(const struct lp_device *dev, lp_type type) {
    const struct lp_shadow *s = (const struct lp_shadow *)dev;
    return s->fast->backend->supports(s->fast, type) && s->ref->backend->supports(s->ref, type);
}
// Products are compared with what the 8-bit kernels make of a row, so they are always those.
static void shadow_fix_results(struct lp_device *dev, bool fixed) {
    (void)fixed;
    struct lp_device *fast = lp_shadow_of(dev)->fast;
    if (fast->backend->fix_results) fast->backend->fix_results(fast, true);
}
static const char *shadow_matmul_kernel(const struct lp_device *dev, lp_type type) {
    const struct lp_shadow *s = (const struct lp_shadow *)dev;
    return s->fast->backend->matmul_kernel(s->fast, type);
}
static struct lp_attention_kernel shadow_kernel(const struct lp_device *dev, const char *op,
                                                lp_type cache, lp_type weights) {
    const struct lp_shadow *s = (const struct lp_shadow *)dev;
    return s->fast->backend->kernel(s->fast, op, cache, weights);
}

static const struct lp_backend shadow_backend = {
    .name = "shadow",
    .open = shadow_no_open,
    .close = shadow_close,
    .reserve = shadow_reserve,
    .scratch_bytes = shadow_scratch_bytes,
    .alloc = shadow_alloc,
    .free = shadow_free,
    .write = shadow_copy,
    .read = shadow_copy,
    .copy = shadow_copy,
    .host_memory = true,
    .supports = shadow_supports,
    .fix_results = shadow_fix_results,
    .matmul_kernel = shadow_matmul_kernel,
    .kernel = shadow_kernel,
    .embed = shadow_embed,
    .rms_norm = shadow_rms_norm,
    .layer_norm = shadow_layer_norm,
    .rope = shadow_rope,
    .matmul = lp_shadow_matmul,
    .head_matmul = lp_shadow_head_matmul,
    .add = shadow_add,
    .silu_mul = shadow_silu_mul,
    .cache_write = lp_shadow_cache_write,
    .gqa = lp_shadow_gqa,
    .mla_absorbed = lp_shadow_mla_absorbed,
    .mla_expanded = lp_shadow_mla_expanded,
    .index_select = lp_shadow_index_select,
    .router = lp_shadow_router,
    .experts = lp_shadow_experts,
};

lp_status lp_shadow_open(struct lp_device **out, struct lp_device *fast, struct lp_device *ref,
                         const struct lp_shadow_config *config, struct lp_err *err) {
    if (!fast->backend->host_memory || !ref->backend->host_memory)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "the operations of %s cannot be compared one by one: its buffers are not "
                          "in host memory",
                          fast->backend->name);
    struct lp_shadow *s = lp_alloc(1, sizeof *s);
    if (!s) return lp_err_memory(err, sizeof *s, "the shadow device");
    *s = (struct lp_shadow){
        .base.backend = &shadow_backend, .fast = fast, .ref = ref, .config = *config, .layer = -1};
    shadow_fix_results(&s->base, true);
    *out = &s->base;
    return LP_OK;
}

void lp_shadow_set_layer(struct lp_device *shadow, int32_t layer) {
    lp_shadow_of(shadow)->layer = layer;
}

bool lp_shadow_failed(const struct lp_device *shadow) {
    return ((const struct lp_shadow *)shadow)->failed;
}
