// Stage "kernels": the products of every weight type in the file, on the file's own weights,
// against plainly decoded ones. Each kernel is called with the counts of rows at which kernels
// change their way (1, 2, 7, 8, 31 ... 65) and with inputs that show different things: single ones
// (the decoder), random values, outliers, very small values, values all of one size.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "doctor/exam.h"
#include "doctor/shadow.h"

#define MAX_ROWS 65
#define OUTPUTS 51 // rows of a weight that a product is made of: three blocks of 16 and a part
#define HEADS 2
#define WHOLE_OUTPUTS 20000 // of a matrix that is multiplied whole, for its last rows
#define MAX_WIDTHS 64       // different row lengths of one type
#define ROUNDING_BOUND 0.1  // of 8-bit activations, relative rms: 6e-3 is usual

static const int row_counts[] = {1, 2, 7, 8, 31, 32, 33, 64, 65};
#define N_COUNTS (sizeof row_counts / sizeof row_counts[0])

enum input { SINGLE, RANDOM, OUTLIER, TINY, FLAT, N_INPUTS };

static const char *const op_names[] = {"matmul", "head_matmul", "embed", "experts"};
#define N_OPS (sizeof op_names / sizeof op_names[0])

struct record { // of one operation with one weight type
    int64_t n, n_bad;
    double worst, bound; // worst: the error nearest to its bound, which is `bound`
    struct lp_shadow_finding bad;
    char bad_weight[96], worst_weight[96];
    enum input bad_input;
    bool bad_counts[MAX_ROWS + 1], good_counts[MAX_ROWS + 1];
};

struct kernels {
    struct lp_exam *exam;
    struct lp_device *shadow;
    struct record records[N_OPS][LP_TYPE_COUNT];
    double rounding[LP_TYPE_COUNT]; // what 8-bit activations change, relative
    lp_type type;                   // of the products that run
    enum input input;
    struct lp_rng rng;
    float *x, *y; // [MAX_ROWS * HEADS, widest]
    int64_t widest;
};

static void on_finding(void *user, const struct lp_shadow_finding *f) {
    struct kernels *c = user;
    size_t op = 0;
    while (op < N_OPS && strcmp(op_names[op], f->op) != 0) op++;
    if (op == N_OPS) return;
    struct record *r = &c->records[op][c->type];
    r->n++;
    if (f->diff.error > f->bound) {
        if (r->n_bad++ == 0) {
            r->bad = *f;
            r->bad_input = c->input;
            snprintf(r->bad_weight, sizeof r->bad_weight, "%.*s", LP_STR_ARGS(f->weight));
        }
        if (f->n_rows <= MAX_ROWS) r->bad_counts[f->n_rows] = true;
    } else if (f->n_rows <= MAX_ROWS)
        r->good_counts[f->n_rows] = true;
    if (r->n == 1 || f->diff.error / f->bound > r->worst / r->bound) { // experts have a wider bound
        r->worst = f->diff.error;
        r->bound = f->bound;
        snprintf(r->worst_weight, sizeof r->worst_weight, "%.*s", LP_STR_ARGS(f->weight));
    }
}

// ---- inputs

static void fill(struct kernels *c, enum input input, int64_t n_rows, int64_t n) {
    c->input = input;
    for (int64_t t = 0; t < n_rows; t++) {
        float *x = c->x + t * n;
        for (int64_t i = 0; i < n; i++) {
            float normal = lp_rng_normal(&c->rng);
            x[i] = input == SINGLE ? 0
                   : input == FLAT ? (t % 2 ? -1.5f : 1.5f)
                   : input == TINY ? 1e-20f * normal
                                   : normal;
        }
        int64_t at = t == 0 ? n - 1 : (int64_t)(lp_rng_u64(&c->rng) % (uint64_t)n);
        if (input == SINGLE) x[at] = 1;
        if (input == OUTLIER) x[at] = 1e4f;
    }
}

// ---- products on views of a tensor

// n_rows rows of each of n_mats matrices of a tensor, from a row on.
static struct lp_weight view_of(const struct lp_gguf_tensor *t, int64_t mat, int64_t n_mats,
                                int64_t row, int64_t n_rows) {
    struct lp_weight whole = lp_weight_of(t);
    return lp_weight_part(&whole, mat, n_mats, row, n_rows);
}

static void multiply(struct kernels *c, const struct lp_weight *w, enum input input,
                     int64_t n_rows) {
    fill(c, input, n_rows, w->n_in);
    c->shadow->backend->matmul(c->shadow, &(struct lp_op_matmul){.w = w,
                                                                 .x = c->x,
                                                                 .x_stride = w->n_in,
                                                                 .y = c->y,
                                                                 .y_stride = w->n_out,
                                                                 .n_rows = n_rows});
}

static void multiply_heads(struct kernels *c, const struct lp_weight *w, bool transposed,
                           int64_t n_rows) {
    int64_t n_x = transposed ? w->n_out : w->n_in, n_y = transposed ? w->n_in : w->n_out;
    fill(c, RANDOM, n_rows * w->n_mats, n_x);
    c->shadow->backend->head_matmul(c->shadow,
                                    &(struct lp_op_head_matmul){.w = w,
                                                                .transposed = transposed,
                                                                .x = c->x,
                                                                .x_row_stride = w->n_mats * n_x,
                                                                .x_head_stride = n_x,
                                                                .y = c->y,
                                                                .y_row_stride = w->n_mats * n_y,
                                                                .y_head_stride = n_y,
                                                                .n_rows = n_rows});
}

// What 8-bit activations change in the result: the fast product against the exact one.
static void measure_rounding(struct kernels *c, const struct lp_weight *w) {
    int64_t n_rows = 4, n_y = n_rows * w->n_out;
    if (2 * n_y > MAX_ROWS * HEADS * c->widest) return;
    fill(c, RANDOM, n_rows, w->n_in);
    struct lp_op_matmul op = {
        .w = w, .x = c->x, .x_stride = w->n_in, .y = c->y, .y_stride = w->n_out, .n_rows = n_rows};
    c->exam->fast->backend->matmul(c->exam->fast, &op);
    op.y = c->y + n_y;
    c->exam->ref->backend->matmul(c->exam->ref, &op);
    double d = lp_lab_difference(c->y, c->y + n_y, n_y);
    if (!(d <= c->rounding[w->type])) c->rounding[w->type] = d;
}

// Blocks of the ends of the range, which the usual quantisers never write and a file may hold.
static lp_status try_extremes(struct kernels *c, const struct lp_weight *w, struct lp_err *err) {
    if (w->type != LP_TYPE_Q8_0) return LP_OK;
    size_t n_bytes = w->row_bytes * (size_t)w->n_out, block = lp_type_info(w->type)->block_bytes;
    uint8_t *bytes = lp_alloc(n_bytes, 1);
    if (!bytes) return lp_err_memory(err, n_bytes, "a block of extreme values");
    memcpy(bytes, lp_weight_mat(w, 0), n_bytes);
    for (size_t at = 0; at < n_bytes; at += block) memset(bytes + at + 2, 0x80, block - 2);
    struct lp_weight extreme = *w;
    extreme.data = bytes;
    extreme.mats = NULL;
    multiply(c, &extreme, FLAT, 1);
    multiply(c, &extreme, FLAT, 33);
    lp_free(bytes);
    return LP_OK;
}

static lp_status try_view(struct kernels *c, const struct lp_weight *w, struct lp_err *err) {
    bool quick = c->exam->options->quick;
    for (size_t i = 0; i < N_COUNTS; i++)
        if (!quick || row_counts[i] % 8 != 0) multiply(c, w, RANDOM, row_counts[i]);
    for (enum input input = 0; input < N_INPUTS; input++) {
        if (input != RANDOM) multiply(c, w, input, 3);
        if (input != RANDOM && !quick) multiply(c, w, input, 33);
    }
    measure_rounding(c, w);
    return try_extremes(c, w, err);
}

static lp_status try_tensor(struct kernels *c, const struct lp_gguf_tensor *t, struct lp_err *err) {
    int64_t n_out = (int64_t)t->ne[1], n_mats = (int64_t)(t->ne[2] * t->ne[3]);
    int64_t n = n_out < OUTPUTS ? n_out : OUTPUTS, heads = n_mats < HEADS ? n_mats : HEADS;
    int64_t places[] = {n_out - n, 0, (n_out - n) / 2};
    for (int i = 0; i < (c->exam->options->quick ? 1 : 3); i++) {
        if (i > 0 && places[i] == places[0]) continue;
        int64_t mat = i * (n_mats - 1) / 2;
        struct lp_weight w = view_of(t, mat, 1, places[i], n);
        lp_status status = try_view(c, &w, err);
        if (status) return status;
    }
    // All outputs of a matrix, of which ref computes the last and then some others.
    struct lp_weight all = view_of(t, 0, 1, 0, n_out);
    for (int i = 0; i < 2 && n_out > n && n_out <= WHOLE_OUTPUTS; i++) multiply(c, &all, RANDOM, 3);
    if (heads < 2) return LP_OK;
    struct lp_weight w = view_of(t, n_mats - heads, heads, 0, n);
    for (int i = 0; i < 3; i++) {
        multiply_heads(c, &w, false, row_counts[i * 3]);
        multiply_heads(c, &w, true, row_counts[i * 3]);
    }
    return LP_OK;
}

// ---- which tensors

static bool is_matrix(const struct lp_gguf_tensor *t) {
    const struct lp_type_info *info = lp_type_info((uint32_t)t->type);
    return t->n_dims >= 2 && t->ne[1] > 1 && info && info->is_weight;
}

// Of the tensors of this type and row length: the first, the last and the largest (quick: the
// last).
static int choose(const struct lp_exam *exam, lp_type type, uint64_t n_in,
                  const struct lp_gguf_tensor *out[3]) {
    const struct lp_gguf_tensor *first = NULL, *last = NULL, *largest = NULL;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(exam->gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(exam->gguf, i);
        if (!is_matrix(t) || t->type != type || t->ne[0] != n_in) continue;
        if (!first) first = t;
        last = t;
        if (!largest || t->n_bytes > largest->n_bytes) largest = t;
    }
    int n = 0;
    out[n++] = last;
    if (exam->options->quick) return n;
    if (first != last) out[n++] = first;
    if (largest != last && largest != first) out[n++] = largest;
    return n;
}

// The row lengths of a type's matrices.
static int widths_of(const struct lp_exam *exam, lp_type type, uint64_t widths[MAX_WIDTHS]) {
    int n = 0;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(exam->gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(exam->gguf, i);
        if (!is_matrix(t) || t->type != type) continue;
        int k = 0;
        while (k < n && widths[k] != t->ne[0]) k++;
        if (k == n && n < MAX_WIDTHS) widths[n++] = t->ne[0];
    }
    return n;
}

static lp_status try_type(struct kernels *c, lp_type type, struct lp_err *err) {
    uint64_t widths[MAX_WIDTHS];
    int n_widths = widths_of(c->exam, type, widths);
    c->type = type;
    for (int i = 0; i < n_widths; i++) {
        const struct lp_gguf_tensor *chosen[3];
        int n = choose(c->exam, type, widths[i], chosen);
        for (int k = 0; k < n; k++) {
            lp_status status = try_tensor(c, chosen[k], err);
            if (status) return status;
        }
    }
    return LP_OK;
}

// ---- with the bound model: embedding rows and experts

static void try_embedding(struct kernels *c, const struct lp_model *m) {
    int64_t n_vocab = m->h.n_vocab;
    int32_t ids[] = {(int32_t)(n_vocab - 1), 0, (int32_t)(n_vocab / 2)};
    c->type = m->token_embd.type;
    c->input = RANDOM;
    c->shadow->backend->embed(c->shadow, &(struct lp_op_embed){.table = &m->token_embd,
                                                               .ids = ids,
                                                               .out = c->y,
                                                               .out_stride = m->h.n_embd,
                                                               .n_rows = 3});
}

#define MAX_USED 64

static void try_experts_of(struct kernels *c, const struct lp_layer *w, int32_t n_used,
                           int64_t n_rows) {
    int32_t ids[33 * MAX_USED];
    float weights[33 * MAX_USED];
    int64_t n_embd = w->experts.gate.n_in, n_experts = w->experts.gate.n_mats;
    for (int64_t t = 0; t < n_rows; t++)
        for (int32_t j = 0; j < n_used; j++) {
            ids[t * n_used + j] = (int32_t)((t * 3 + j) % n_experts);
            weights[t * n_used + j] = 1.0f / (float)(j + 1);
        }
    fill(c, RANDOM, n_rows, n_embd);
    memset(c->y, 0, (size_t)(n_rows * n_embd) * sizeof *c->y);
    c->type = w->experts.gate.type;
    c->shadow->backend->experts(c->shadow, &(struct lp_op_experts){.gate = &w->experts.gate,
                                                                   .up = &w->experts.up,
                                                                   .down = &w->experts.down,
                                                                   .x = c->x,
                                                                   .x_stride = n_embd,
                                                                   .n_rows = n_rows,
                                                                   .ids = ids,
                                                                   .weights = weights,
                                                                   .n_used = n_used,
                                                                   .y = c->y,
                                                                   .y_stride = n_embd});
}

// The last layer of each pair of types of its experts.
static void try_experts(struct kernels *c, const struct lp_model *m) {
    for (int32_t l = 0; l < m->h.n_layers; l++) {
        const struct lp_layer *w = &m->layers[l];
        bool later = false;
        for (int32_t k = l + 1; k < m->h.n_layers; k++)
            later = later || (m->layers[k].is_moe &&
                              m->layers[k].experts.gate.type == w->experts.gate.type &&
                              m->layers[k].experts.down.type == w->experts.down.type);
        if (!w->is_moe || later || m->h.n_used > MAX_USED) continue;
        try_experts_of(c, w, m->h.n_used, 1);
        try_experts_of(c, w, m->h.n_used, 7);
        if (!c->exam->options->quick) try_experts_of(c, w, m->h.n_used, 33);
    }
}

// ---- what is said

static void counts_text(const bool flags[MAX_ROWS + 1], char *out, size_t n_bytes) {
    out[0] = 0;
    for (size_t i = 0; i < N_COUNTS; i++) {
        size_t used = strlen(out);
        if (flags[row_counts[i]])
            snprintf(out + used, n_bytes - used, "%s%d", used ? ", " : "", row_counts[i]);
    }
}

// Other types whose kernels are wrong in the same operation.
static void others_text(const struct kernels *c, size_t op, lp_type type, char *out,
                        size_t n_bytes) {
    out[0] = 0;
    for (int other = 0; other < LP_TYPE_COUNT; other++) {
        size_t used = strlen(out);
        if (other != (int)type && c->records[op][other].n_bad)
            snprintf(out + used, n_bytes - used, "%s%s", used ? ", " : "; so is that of ",
                     lp_type_info((uint32_t)other)->name);
    }
}

static void accuse(struct kernels *c, size_t op, lp_type type, const char *check) {
    static const char *const inputs[] = {" with single ones", " with random values",
                                         " with an outlier in each row", " with very small values",
                                         " with values of one size"};
    const struct record *r = &c->records[op][type];
    const struct lp_shadow_finding *f = &r->bad;
    bool right[MAX_ROWS + 1];
    char bad[64], good[64], counts[160] = "", others[128];
    for (int i = 0; i <= MAX_ROWS; i++) right[i] = r->good_counts[i] && !r->bad_counts[i];
    counts_text(r->bad_counts, bad, sizeof bad);
    counts_text(right, good, sizeof good);
    others_text(c, op, type, others, sizeof others);
    if (bad[0] && good[0])
        snprintf(counts, sizeof counts, "; wrong with %s rows, right with %s", bad, good);
    lp_report_fault(
        c->exam->report, LP_STAGE_KERNELS, check, -1, op_names[op],
        "%s of %s weights (kernel %s) does not agree with the plainly decoded weights: %lld "
        "rows through %s%s have a relative error of %.2g, bound %.2g%s%s%s%s. The file is "
        "not at fault; use a lower --cpu level and report this.",
        op_names[op], lp_type_info((uint32_t)type)->name,
        c->exam->fast->backend->matmul_kernel(c->exam->fast, type), (long long)f->n_rows,
        r->bad_weight, op == 2 ? "" : inputs[r->bad_input], f->diff.error, f->bound,
        f->where[0] ? "; " : "", f->where, counts, others);
}

static void report_rounding(struct kernels *c, lp_type type) {
    const char *name = lp_type_info((uint32_t)type)->name;
    char check[64];
    if (!lp_weight_may_round(type) || c->records[0][type].n == 0 || c->records[0][type].n_bad)
        return;
    snprintf(check, sizeof check, "rounding of activations, %s", name);
    if (!lp_report_measure(c->exam->report, LP_STAGE_KERNELS, check, c->rounding[type],
                           ROUNDING_BOUND, "what 8-bit activations change in a product, relative"))
        lp_report_fault(
            c->exam->report, LP_STAGE_KERNELS, check, -1, "matmul",
            "Products of %s weights are off by %.2g, relative: rounding to 8 bits alone "
            "gives about 0.01. Use a lower --cpu level and report this.",
            name, c->rounding[type]);
}

static void report_op(struct kernels *c, size_t op) {
    bool accused = false;
    for (int type = 0; type < LP_TYPE_COUNT; type++) {
        const struct record *r = &c->records[op][type];
        char check[64];
        if (r->n == 0) continue;
        snprintf(check, sizeof check, "%s of %s", op_names[op], lp_type_info((uint32_t)type)->name);
        bool ok = lp_report_measure(
            c->exam->report, LP_STAGE_KERNELS, check, r->n_bad ? r->bad.diff.error : r->worst,
            r->n_bad ? r->bad.bound : r->bound,
            "%s: %lld calls with the file's weights against plainly decoded ones; %s %s",
            c->exam->fast->backend->matmul_kernel(c->exam->fast, (lp_type)type), (long long)r->n,
            r->n_bad ? "the first bad one:" : "the largest in",
            r->n_bad ? r->bad_weight : r->worst_weight);
        if (!ok && !accused) accuse(c, op, (lp_type)type, check);
        accused = accused || !ok;
    }
}

// ---- the stage

static int64_t widest_of(const struct lp_exam *exam) {
    int64_t widest = exam->has_hparams ? exam->h.n_embd : 1;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(exam->gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(exam->gguf, i);
        if (is_matrix(t) && (int64_t)t->ne[0] > widest) widest = (int64_t)t->ne[0];
    }
    return widest;
}

static lp_status set_up(struct kernels *c, struct lp_err *err) {
    const struct lp_model *m = c->exam->fast_lab ? lp_lab_model(c->exam->fast_lab) : NULL;
    struct lp_shadow_config config = {.found = on_finding, .user = c, .max_work = 30000000};
    c->widest = widest_of(c->exam);
    size_t n = (size_t)(MAX_ROWS * HEADS * c->widest + 3 * WHOLE_OUTPUTS);
    c->x = lp_alloc(n, sizeof *c->x);
    c->y = lp_alloc(n, sizeof *c->y);
    if (!c->x || !c->y) return lp_err_memory(err, 2 * n * sizeof *c->x, "rows for the kernels");
    lp_status status = lp_shadow_open(&c->shadow, c->exam->fast, c->exam->ref, &config, err);
    if (status) return status;
    struct lp_reserve need = {.n_rows = MAX_ROWS * HEADS,
                              .max_width = c->widest > WHOLE_OUTPUTS ? c->widest : WHOLE_OUTPUTS,
                              .n_embd = c->widest};
    if (m && m->h.n_experts > 0) {
        need.n_experts = m->h.n_experts;
        need.n_used = m->h.n_used;
        need.expert_width = m->h.expert_ff;
    }
    return c->shadow->backend->reserve(c->shadow, &need, err);
}

static double expected_s(const struct lp_exam *exam) {
    double work = 0;
    for (int type = 0; type < LP_TYPE_COUNT; type++) {
        uint64_t widths[MAX_WIDTHS];
        if (!lp_type_info((uint32_t)type)) continue;
        int n = widths_of(exam, (lp_type)type, widths);
        for (int i = 0; i < n; i++) work += (double)widths[i] * OUTPUTS;
    }
    return work * (exam->options->quick ? 150 : 9 * 400) / 8e8;
}

lp_status lp_check_kernels(struct lp_exam *exam, struct lp_err *err) {
    const struct lp_doctor_options *o = exam->options;
    if (exam->weights_bad || !exam->fast->backend->host_memory) {
        lp_report_say(exam->report, LP_STAGE_KERNELS, LP_CHECK_SKIPPED, "kernels", "%s",
                      exam->weights_bad ? "the weights hold NaN or infinity"
                                        : "this backend's buffers are not in host memory");
        return LP_OK;
    }
    struct kernels *c = lp_alloc(1, sizeof *c);
    if (!c) return lp_err_memory(err, sizeof *c, "the examination of the kernels");
    c->exam = exam;
    lp_rng_init(&c->rng, 3);
    if (o->on_stage) o->on_stage(o->user, LP_STAGE_KERNELS, expected_s(exam));
    lp_status status = set_up(c, err);
    for (int type = 0; type < LP_TYPE_COUNT && !status; type++)
        if (lp_type_info((uint32_t)type)) status = try_type(c, (lp_type)type, err);
    if (!status && exam->fast_lab) {
        try_embedding(c, lp_lab_model(exam->fast_lab));
        try_experts(c, lp_lab_model(exam->fast_lab));
    }
    if (!status && lp_shadow_failed(c->shadow))
        status = lp_err_memory(err, 0, "the comparison of kernels");
    for (size_t op = 0; op < N_OPS && !status; op++) report_op(c, op);
    for (int type = 0; type < LP_TYPE_COUNT && !status; type++)
        if (lp_type_info((uint32_t)type)) report_rounding(c, (lp_type)type);
    if (c->shadow) c->shadow->backend->close(c->shadow);
    lp_free(c->x);
    lp_free(c->y);
    lp_free(c);
    return status;
}
