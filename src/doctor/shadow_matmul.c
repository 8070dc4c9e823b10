// The products in the shadow: a part of a weight's rows and of the tokens on ref, with the
// activations as they are and, for block formats, rounded to 8 bits; the nearer one counts.
#include <string.h>

#include "base/alloc.h"
#include "doctor/shadow_parts.h"

#define MIN_OUTPUTS 48 // rows of a weight that are compared at least

// Rows [run] of matrix m as a weight of its own.
static struct lp_weight part_of(const struct lp_weight *w, struct lp_shadow_run mats,
                                struct lp_shadow_run rows) {
    return lp_weight_part(w, mats.first, mats.count, rows.first, rows.count);
}

static struct lp_weight rows_of(const struct lp_weight *w, struct lp_shadow_run rows) {
    return part_of(w, (struct lp_shadow_run){0, 1}, rows);
}

// Two answers that are right; the nearer one is compared.
struct answers {
    float *got, *want[2];
    float *before; // or NULL
    float *x;      // packed inputs of ref
};

static void free_answers(struct answers *a) {
    float *blocks[] = {a->got, a->want[0], a->want[1], a->before, a->x};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) lp_free(blocks[i]);
}

static bool new_answers(struct lp_shadow *s, struct answers *a, int64_t n, int64_t n_x,
                        bool accumulate) {
    *a = (struct answers){.got = lp_shadow_floats(s, n),
                          .want = {lp_shadow_floats(s, n), lp_shadow_floats(s, n)},
                          .x = lp_shadow_floats(s, n_x)};
    if (accumulate) a->before = lp_shadow_floats(s, n);
    bool ok = a->got && a->want[0] && a->want[1] && a->x && (!accumulate || a->before);
    if (!ok) free_answers(a);
    return ok;
}

// One call under comparison: its output, its inputs in rows of n_in values, and ref's way to
// the answer from packed inputs.
struct product {
    struct lp_shadow_region out, in;
    bool may_round;
    void (*ref)(const struct product *, struct lp_device *ref, const float *x, float *want);
    const void *op;
    struct lp_shadow_run rows, outs, mats;
};

// Computes both answers and leaves the nearer one in want[0]: that with fewer bad rows, since a
// fault in some rows is as large against either.
static void answer(struct lp_shadow *s, const struct product *p, struct answers *a, double bound) {
    struct lp_diff_shape shape = p->out.shape, in = p->in.shape;
    int64_t n = shape.n_rows * shape.n_groups * shape.width;
    double error[2] = {0, 0};
    lp_shadow_gather(&p->in, a->x);
    for (int i = 0; i < (p->may_round ? 2 : 1); i++) {
        bool rounded = p->may_round && i == 0; // what a fast kernel does, first
        if (i == 1) lp_shadow_gather(&p->in, a->x);
        for (int64_t r = 0; rounded && r < in.n_rows * in.n_groups; r++)
            lp_shadow_round_row(a->x + r * in.width, in.width);
        if (a->before) memcpy(a->want[i], a->before, (size_t)n * sizeof(float));
        p->ref(p, s->ref, a->x, a->want[i]);
        error[i] = lp_diff_measure(a->got, a->want[i], a->before, shape).error;
        if (error[i] <= bound) break;
    }
    if (!p->may_round || error[0] <= bound) return;
    int64_t n_bad[2];
    for (int i = 0; i < 2; i++)
        n_bad[i] = lp_diff_count(a->got, a->want[i], a->before, shape, bound);
    if (n_bad[1] > n_bad[0] || (n_bad[1] == n_bad[0] && error[1] >= error[0])) return;
    float *nearer = a->want[1];
    a->want[1] = a->want[0];
    a->want[0] = nearer;
}

static void ref_matmul(const struct product *p, struct lp_device *ref, const float *x,
                       float *want) {
    struct lp_op_matmul op = *(const struct lp_op_matmul *)p->op;
    struct lp_weight w = rows_of(op.w, p->outs);
    op.w = &w;
    op.x = x;
    op.x_stride = w.n_in;
    op.bias = op.bias ? op.bias + p->outs.first : NULL;
    op.y = want;
    op.y_stride = w.n_out;
    op.n_rows = p->rows.count;
    ref->backend->matmul(ref, &op);
}

// Which tokens and outputs are compared: all, or as many as max_work allows.
static void pick_matmul(struct lp_shadow *s, const struct lp_op_matmul *op, struct product *p) {
    int64_t n_in = op->w->n_in, n_out = op->w->n_out;
    int64_t outs = lp_shadow_fit(s, n_out, n_in * (op->n_rows + 1), MIN_OUTPUTS);
    int64_t rows = op->n_rows;
    if (outs <= MIN_OUTPUTS && outs < n_out) rows = lp_shadow_fit(s, op->n_rows, n_in * outs, 1);
    p->outs = lp_shadow_pick(s, n_out, outs);
    p->rows = lp_shadow_pick(s, op->n_rows, rows);
}

void lp_shadow_matmul(struct lp_device *dev, const struct lp_op_matmul *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    struct product p = {.ref = ref_matmul, .op = op, .may_round = lp_shadow_rounds(op->w)};
    struct answers a;
    if (lp_shadow_begin(s, "matmul", op)) pick_matmul(s, op, &p);
    p.out = (struct lp_shadow_region){op->y + p.rows.first * op->y_stride + p.outs.first,
                                      op->y_stride,
                                      0,
                                      {p.rows.count, 1, p.outs.count}};
    p.in = (struct lp_shadow_region){(float *)op->x + p.rows.first * op->x_stride,
                                     op->x_stride,
                                     0,
                                     {p.rows.count, 1, op->w->n_in}};
    bool compare = p.rows.count > 0 && new_answers(s, &a, p.rows.count * p.outs.count,
                                                   p.rows.count * op->w->n_in, op->accumulate);
    if (compare && a.before) lp_shadow_gather(&p.out, a.before);
    s->fast->backend->matmul(s->fast, op);
    if (!compare) return;
    lp_shadow_gather(&p.out, a.got);
    answer(s, &p, &a, LP_SHADOW_BOUND);
    struct lp_shadow_finding finding = {
        .op = "matmul",
        .kernel = s->fast->backend->matmul_kernel(s->fast, op->w->type),
        .weight = op->w->name,
        .param = lp_weight_mat(op->w, 0),
        .n_rows = op->n_rows,
        .first_pos = -1,
        .whole = p.rows.count == op->n_rows && p.outs.count == op->w->n_out,
        .bound = LP_SHADOW_BOUND};
    lp_shadow_compare(s, &finding, a.got, a.want[0], a.before, p.out.shape);
    if (finding.whole) lp_shadow_scatter(&p.out, a.want[0]);
    free_answers(&a);
}

// ---- one matrix per head

static void ref_head_matmul(const struct product *p, struct lp_device *ref, const float *x,
                            float *want) {
    struct lp_op_head_matmul op = *(const struct lp_op_head_matmul *)p->op;
    struct lp_weight w = part_of(op.w, p->mats, (struct lp_shadow_run){0, op.w->n_out});
    bool shared = op.x_head_stride == 0;
    op.w = &w;
    op.x = x;
    op.x_head_stride = shared ? 0 : p->in.shape.width;
    op.x_row_stride = p->in.shape.width * p->in.shape.n_groups;
    op.y = want;
    op.y_head_stride = p->out.shape.width;
    op.y_row_stride = p->out.shape.width * p->mats.count;
    op.n_rows = p->rows.count;
    ref->backend->head_matmul(ref, &op);
}

void lp_shadow_head_matmul(struct lp_device *dev, const struct lp_op_head_matmul *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    const struct lp_weight *w = op->w;
    struct product p = {.ref = ref_head_matmul, .op = op};
    struct answers a;
    int64_t n_x = op->transposed ? w->n_out : w->n_in, n_y = op->transposed ? w->n_in : w->n_out;
    p.may_round = lp_shadow_rounds(w) && !op->transposed;
    if (lp_shadow_begin(s, "head_matmul", op)) {
        int64_t each = 2 * w->n_in * w->n_out; // ref decodes the matrix for each token
        int64_t heads = lp_shadow_fit(s, w->n_mats, each * op->n_rows, 1);
        p.rows = lp_shadow_pick(s, op->n_rows, lp_shadow_fit(s, op->n_rows, each * heads, 1));
        p.mats = lp_shadow_pick(s, w->n_mats, heads);
    }
    bool shared = op->x_head_stride == 0;
    p.out = (struct lp_shadow_region){op->y + p.rows.first * op->y_row_stride +
                                          p.mats.first * op->y_head_stride,
                                      op->y_row_stride,
                                      op->y_head_stride,
                                      {p.rows.count, p.mats.count, n_y}};
    p.in = (struct lp_shadow_region){(float *)op->x + p.rows.first * op->x_row_stride +
                                         p.mats.first * op->x_head_stride,
                                     op->x_row_stride,
                                     op->x_head_stride,
                                     {p.rows.count, shared ? 1 : p.mats.count, n_x}};
    bool compare = p.rows.count > 0 && new_answers(s, &a, p.rows.count * p.mats.count * n_y,
                                                   p.rows.count * p.mats.count * n_x, false);
    s->fast->backend->head_matmul(s->fast, op);
    if (!compare) return;
    lp_shadow_gather(&p.out, a.got);
    answer(s, &p, &a, LP_SHADOW_BOUND);
    struct lp_shadow_finding finding = {.op = "head_matmul",
                                        .kernel = s->fast->backend->matmul_kernel(s->fast, w->type),
                                        .weight = w->name,
                                        .param = lp_weight_mat(w, 0),
                                        .n_rows = op->n_rows,
                                        .first_pos = -1,
                                        .whole =
                                            p.rows.count == op->n_rows && p.mats.count == w->n_mats,
                                        .bound = LP_SHADOW_BOUND};
    lp_shadow_compare(s, &finding, a.got, a.want[0], NULL, p.out.shape);
    if (finding.whole) lp_shadow_scatter(&p.out, a.want[0]);
    free_answers(&a);
}

// ---- experts: token by token, each of its experts through products on ref

struct expert_buffers {
    float *x, *gate, *up, *out;
};

// want += the weighted outputs of the experts that one token chose, rows `outs` of them.
static void ref_token(struct lp_device *ref, const struct lp_op_experts *op, int64_t t,
                      struct lp_shadow_run outs, bool rounded, const struct expert_buffers *b,
                      float *want) {
    int64_t n_in = op->gate->n_in, width = op->gate->n_out;
    for (int32_t j = 0; j < op->n_used; j++) {
        struct lp_shadow_run mat = {op->ids[t * op->n_used + j] - op->first_expert, 1};
        if (mat.first < 0 || mat.first >= op->gate->n_mats) continue; // another rank's
        const struct lp_weight *weights[2] = {op->gate, op->up};
        float *results[2] = {b->gate, b->up};
        for (int i = 0; i < 2; i++) {
            struct lp_weight w = part_of(weights[i], mat, (struct lp_shadow_run){0, width});
            memcpy(b->x, op->x + t * op->x_stride, (size_t)n_in * sizeof *b->x);
            if (rounded && lp_shadow_rounds(&w)) lp_shadow_round_row(b->x, n_in);
            ref->backend->matmul(ref, &(struct lp_op_matmul){.w = &w,
                                                             .x = b->x,
                                                             .x_stride = n_in,
                                                             .y = results[i],
                                                             .y_stride = width,
                                                             .n_rows = 1});
        }
        ref->backend->silu_mul(ref, &(struct lp_op_silu_mul){.gate = b->gate,
                                                             .up = b->up,
                                                             .y = b->gate,
                                                             .stride = width,
                                                             .n_rows = 1,
                                                             .width = (int32_t)width});
        struct lp_weight down = part_of(op->down, mat, outs);
        if (rounded && lp_shadow_rounds(&down)) lp_shadow_round_row(b->gate, width);
        ref->backend->matmul(ref, &(struct lp_op_matmul){.w = &down,
                                                         .x = b->gate,
                                                         .x_stride = width,
                                                         .y = b->out,
                                                         .y_stride = outs.count,
                                                         .n_rows = 1});
        for (int64_t i = 0; i < outs.count; i++)
            want[i] += op->weights[t * op->n_used + j] * b->out[i];
    }
}

struct experts_product {
    struct product p; // first: what `answer` sees
    const struct expert_buffers *buffers;
    int n_calls; // the first answer is the rounded one
};

static void ref_experts(const struct product *p, struct lp_device *ref, const float *x,
                        float *want) {
    struct experts_product *e = (struct experts_product *)p;
    (void)x; // each weight rounds for itself
    bool rounded = p->may_round && e->n_calls++ == 0;
    for (int64_t t = 0; t < p->rows.count; t++)
        ref_token(ref, p->op, p->rows.first + t, p->outs, rounded, e->buffers,
                  want + t * p->outs.count);
}

static void pick_experts(struct lp_shadow *s, const struct lp_op_experts *op, struct product *p) {
    int64_t n_in = op->gate->n_in, width = op->gate->n_out, n_out = op->down->n_out;
    int64_t inner = 4 * op->n_used * n_in * width; // gate and up, decoded and multiplied
    int64_t outs = lp_shadow_fit(s, n_out, 2 * op->n_used * width, MIN_OUTPUTS);
    int64_t rows = lp_shadow_fit(s, op->n_rows, inner + 2 * op->n_used * width * outs, 1);
    p->outs = lp_shadow_pick(s, n_out, outs);
    p->rows = lp_shadow_pick(s, op->n_rows, rows);
}

static bool new_expert_buffers(struct lp_shadow *s, struct expert_buffers *b,
                               const struct lp_op_experts *op) {
    *b = (struct expert_buffers){.x = lp_shadow_floats(s, op->gate->n_in),
                                 .gate = lp_shadow_floats(s, op->gate->n_out),
                                 .up = lp_shadow_floats(s, op->gate->n_out),
                                 .out = lp_shadow_floats(s, op->down->n_out)};
    return b->x && b->gate && b->up && b->out;
}

static void free_expert_buffers(struct expert_buffers *b) {
    lp_free(b->x);
    lp_free(b->gate);
    lp_free(b->up);
    lp_free(b->out);
}

void lp_shadow_experts(struct lp_device *dev, const struct lp_op_experts *op) {
    struct lp_shadow *s = lp_shadow_of(dev);
    struct expert_buffers buffers = {0};
    struct experts_product e = {.p = {.ref = ref_experts, .op = op}, .buffers = &buffers};
    struct product *p = &e.p;
    struct answers a;
    p->may_round = lp_shadow_rounds(op->gate) || lp_shadow_rounds(op->down);
    if (lp_shadow_begin(s, "experts", op)) pick_experts(s, op, p);
    p->out = (struct lp_shadow_region){op->y + p->rows.first * op->y_stride + p->outs.first,
                                       op->y_stride,
                                       0,
                                       {p->rows.count, 1, p->outs.count}};
    bool compare = p->rows.count > 0 && new_expert_buffers(s, &buffers, op) &&
                   new_answers(s, &a, p->rows.count * p->outs.count, 1, true);
    if (compare) lp_shadow_gather(&p->out, a.before);
    s->fast->backend->experts(s->fast, op);
    if (compare) {
        lp_shadow_gather(&p->out, a.got);
        answer(s, p, &a, LP_SHADOW_BOUND_EXPERTS);
        struct lp_shadow_finding finding = {
            .op = "experts",
            .kernel = s->fast->backend->matmul_kernel(s->fast, op->gate->type),
            .weight = op->gate->name,
            .param = lp_weight_mat(op->gate, 0),
            .n_rows = op->n_rows,
            .first_pos = -1,
            .whole = p->rows.count == op->n_rows && p->outs.count == op->down->n_out,
            .bound = LP_SHADOW_BOUND_EXPERTS};
        lp_shadow_compare(s, &finding, a.got, a.want[0], a.before, p->out.shape);
        if (finding.whole) lp_shadow_scatter(&p->out, a.want[0]);
        free_answers(&a);
    }
    free_expert_buffers(&buffers);
}
