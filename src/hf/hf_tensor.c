// The rows of a planned tensor: where each comes from, as values or as blocks.
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "hf/hf.h"

// A run of rows that lie one after the other in one matrix of the checkpoint.
struct run {
    const struct lp_hf_matrix *part;
    int64_t mat, row, n;
};

static struct run run_at(const struct lp_hf_plan *plan, const struct lp_hf_tensor *t, int64_t row,
                         int64_t n) {
    int64_t in_mat = (int64_t)t->ne[1], mat = row / in_mat, at = row % in_mat;
    const struct lp_hf_model *model = &plan->model;
    struct run run = {.part = t->parts, .mat = mat, .row = at, .n = in_mat - at};
    switch (t->make) {
    case LP_HF_MAKE_HALF:
        run.row += t->first_row;
        break;
    case LP_HF_MAKE_V_B:
        run.mat = 0;
        run.row += mat * (model->nope + model->v_dim) + model->nope;
        break;
    case LP_HF_MAKE_PERMUTE: { // (j, i) of the tensor is (i, j) of the checkpoint
        int64_t width = model->head_dim, head = at / width, j = at % width / 2, i = at % 2;
        run.row = head * width + i * (width / 2) + j;
        run.n = 1;
        break;
    }
    default: // parts with one matrix or with several
        for (; run.mat >= run.part->n_mats; run.part++) run.mat -= run.part->n_mats;
    }
    if (run.n > n) run.n = n;
    return run;
}

// ---- what is no run of rows

static void factors(const struct lp_hf_tensor *t, float *out) {
    for (int64_t p = 0; p < t->n_parts; p++)
        for (int64_t m = 0; m < t->parts[p].n_mats; m++)
            *out++ = lp_hf_matrix_factor(&t->parts[p], m);
}

// Row j of head h of the tensor is column j of the head's rows of kv_b_proj.
static lp_status k_b_rows(const struct lp_hf_plan *plan, const struct lp_hf_tensor *t,
                          int64_t first, int64_t n, float *out, struct lp_err *err) {
    int64_t nope = plan->model.nope, latent = plan->model.latent;
    int64_t head_rows = nope + plan->model.v_dim;
    size_t n_head;
    float *head = NULL;
    if (lp_mul_size((size_t)nope, (size_t)latent, &n_head))
        head = lp_alloc_aligned(n_head, sizeof *head);
    if (!head) return lp_err_memory(err, (size_t)latent * sizeof *head, "one head of kv_b_proj");
    for (int64_t h = first / latent, at = first % latent; n > 0; h++, at = 0) {
        lp_hf_matrix_rows(t->parts, 0, h * head_rows, nope, head);
        for (; at < latent && n > 0; at++, n--)
            for (int64_t d = 0; d < nope; d++) *out++ = head[d * latent + at];
    }
    lp_free(head);
    return LP_OK;
}

// A vector: its values are permuted as rows are.
static lp_status permuted_vector(const struct lp_hf_plan *plan, const struct lp_hf_tensor *t,
                                 float *out, struct lp_err *err) {
    int64_t n = (int64_t)t->ne[0], width = plan->model.head_dim;
    float *values = lp_alloc_aligned((size_t)n, sizeof *values);
    if (!values) return lp_err_memory(err, (size_t)n * sizeof *values, t->name);
    lp_hf_matrix_rows(t->parts, 0, 0, 1, values);
    for (int64_t k = 0; k < n; k++)
        out[k] = values[k - k % width + k % 2 * (width / 2) + k % width / 2];
    lp_free(values);
    return LP_OK;
}

// ---- rows

// The values of NVFP4 without the second factor: those of the blocks.
static lp_status rows_without_factor(const struct lp_hf_plan *plan, const struct lp_hf_tensor *t,
                                     struct run run, float *out, struct lp_err *err) {
    lp_type type = t->types[run.part - t->parts];
    uint64_t row_bytes = 0;
    size_t n_bytes;
    uint8_t *blocks = NULL;
    if (lp_type_row_bytes(type, t->ne[0], &row_bytes) &&
        lp_mul_size((size_t)row_bytes, (size_t)run.n, &n_bytes))
        blocks = lp_alloc_aligned(n_bytes, 1);
    if (!blocks) return lp_err_memory(err, row_bytes * (uint64_t)run.n, t->name);
    lp_hf_matrix_pack(run.part, plan->for_file, run.mat, run.row, run.n, blocks);
    lp_type_info(type)->dequant(blocks, out, (size_t)run.n * t->ne[0]);
    lp_free(blocks);
    return LP_OK;
}

static lp_status copied_rows(const struct lp_hf_plan *plan, const struct lp_hf_tensor *t,
                             int64_t first, int64_t n, bool with_factor, float *out,
                             struct lp_err *err) {
    lp_status status = LP_OK;
    while (n > 0 && !status) {
        struct run run = run_at(plan, t, first, n);
        if (with_factor || !t->has_factors)
            lp_hf_matrix_rows(run.part, run.mat, run.row, run.n, out);
        else
            status = rows_without_factor(plan, t, run, out, err);
        out += (uint64_t)run.n * t->ne[0];
        first += run.n;
        n -= run.n;
    }
    return status;
}

lp_status lp_hf_tensor_rows(const struct lp_hf_plan *plan, const struct lp_hf_tensor *t,
                            int64_t first, int64_t n, bool with_factor, float *out,
                            struct lp_err *err) {
    if (t->make == LP_HF_MAKE_K_B) return k_b_rows(plan, t, first, n, out, err);
    if (t->make == LP_HF_MAKE_PERMUTE && t->n_dims == 1) return permuted_vector(plan, t, out, err);
    if (t->make == LP_HF_MAKE_FACTORS)
        factors(t, out);
    else if (t->make == LP_HF_MAKE_VALUES)
        memcpy(out, t->values, t->ne[0] * sizeof *out);
    else
        return copied_rows(plan, t, first, n, with_factor, out, err);
    return LP_OK;
}

static lp_status converted(const struct lp_hf_plan *plan, const struct lp_hf_tensor *t,
                           int64_t first, int64_t n, void *out, struct lp_err *err) {
    size_t n_values = (size_t)n * t->ne[0];
    float *values = lp_alloc_aligned(n_values, sizeof *values);
    if (!values) return lp_err_memory(err, n_values * sizeof *values, t->name);
    lp_status status = lp_hf_tensor_rows(plan, t, first, n, false, values, err);
    if (!status) lp_type_info(t->source_type)->quantize(values, out, n_values);
    lp_free(values);
    return status;
}

lp_status lp_hf_tensor_pack(const struct lp_hf_plan *plan, const struct lp_hf_tensor *t,
                            int64_t first, int64_t n, void *out, struct lp_err *err) {
    uint64_t row_bytes;
    if (t->keep_f32 || t->source_type == LP_TYPE_F32)
        return lp_hf_tensor_rows(plan, t, first, n, false, out, err);
    if (!t->same_type) return converted(plan, t, first, n, out, err);
    lp_type_row_bytes(t->source_type, t->ne[0], &row_bytes);
    while (n > 0) {
        struct run run = run_at(plan, t, first, n);
        lp_hf_matrix_pack(run.part, plan->for_file, run.mat, run.row, run.n, out);
        out = (uint8_t *)out + (uint64_t)run.n * row_bytes;
        first += run.n;
        n -= run.n;
    }
    return LP_OK;
}

// Whole pages only: the others hold neighbours.
static void forget(const struct lp_st_array *array) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin, end;
    if (!array) return;
    begin = ((uintptr_t)array->data + page - 1) / page * page;
    end = ((uintptr_t)array->data + array->n_bytes) / page * page;
    if (begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void lp_hf_tensor_forget(const struct lp_hf_tensor *t) {
    for (int64_t i = 0; i < t->n_parts; i++) {
        forget(t->parts[i].values);
        forget(t->parts[i].scale);
    }
}
