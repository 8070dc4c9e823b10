// One matrix per head. Plain: the block product of cpu_matmul.c, head by head. Transposed: y +=
// x[d] W[d] over the rows d, on panels of rows dequantised to float32 (activations stay as they
// are);
//     y[j] = (p0 + p1 + ...) factor,  p = the sum over one panel of LP_MAT_AXPY rows, d ascending.
// Items are (head, blocks of rows) or (head, chunk of columns): each output value is made by one
// worker.
#include <assert.h>
#include <stdatomic.h>

#include "backend/cpu/cpu_wide.h"

#define TRANSPOSED_X 64 // activation rows that pass over a panel before the next (128 KiB of y)

struct head_job {
    struct lp_cpu_device *dev;
    const struct lp_op_head_matmul *op;
    int64_t first_x, n_x; // slice of rows
    int64_t item_blocks, n_row_items;
    bool q8, quantize;
    bool wide; // the products are those of cpu_wide.h, the inputs tiles: those of a head together
    _Atomic int64_t next;
};

// Quantised inputs lie [row][head], or [row] where all heads share one.
static int64_t inputs_per_row(const struct lp_op_head_matmul *op) {
    return op->x_head_stride == 0 ? 1 : op->w->n_mats;
}

static uint16_t *tiles_of_head(const struct head_job *job, int64_t head) {
    const int64_t at = inputs_per_row(job->op) == 1 ? 0 : head;
    return job->dev->mat_scratch->act_tiles + at * lp_cpu_wide_values(job->n_x, job->op->w->n_in);
}

static void quantize_inputs(const struct head_job *job, int64_t begin, int64_t end) {
    const struct lp_op_head_matmul *op = job->op;
    const int64_t n_in = op->w->n_in, per_row = inputs_per_row(op);
    for (int64_t i = begin; i < end; i++) {
        const float *x = op->x + (job->first_x + i / per_row) * op->x_row_stride +
                         i % per_row * op->x_head_stride;
        if (job->wide)
            job->dev->wide->put_row(x, n_in, i / per_row, tiles_of_head(job, i % per_row));
        else
            lp_cpu_quantize_rows(x, 0, n_in, 0, 1,
                                 job->dev->mat_scratch->act + i * lp_cpu_quads(n_in));
    }
}

static struct lp_cpu_rows inputs_of_head(const struct head_job *job, int64_t head) {
    const struct lp_op_head_matmul *op = job->op;
    if (!job->q8) {
        const float *x = op->x + job->first_x * op->x_row_stride + head * op->x_head_stride;
        return (struct lp_cpu_rows){(const unsigned char *)x,
                                    (size_t)op->x_row_stride * sizeof(float), NULL};
    }
    const int64_t n_quads = lp_cpu_quads(op->w->n_in), per_row = inputs_per_row(op);
    const struct lp_act_quad *act =
        job->dev->mat_scratch->act + (per_row == 1 ? 0 : head * n_quads);
    return (struct lp_cpu_rows){(const unsigned char *)act,
                                (size_t)(per_row * n_quads) * sizeof *act, NULL};
}

// Where the weights of an item begin; NULL past the last one.
static const uint8_t *weights_of(const struct head_job *job, int64_t item) {
    int64_t head = item / job->n_row_items;
    if (head >= job->op->w->n_mats) return NULL;
    struct lp_cpu_mat mat = lp_cpu_mat_of(job->dev, job->op->w, head);
    return lp_cpu_mat_at(&mat, item % job->n_row_items * job->item_blocks * LP_MAT_ROWS);
}

static void store_block(const struct head_job *job, const float *tile, int64_t head, int64_t row,
                        int n_rows) {
    const struct lp_op_head_matmul *op = job->op;
    for (int64_t t = 0; t < job->n_x; t++) {
        float *y = op->y + (job->first_x + t) * op->y_row_stride + head * op->y_head_stride + row;
        for (int r = 0; r < n_rows; r++) y[r] = tile[t * LP_MAT_ROWS + r];
    }
}

static void wide_item(const struct head_job *job, const struct lp_cpu_mat *mat, int64_t head,
                      int64_t row, int64_t end, const struct lp_cpu_mat_worker *scratch) {
    const int run = lp_cpu_wide_run_blocks(mat->n_in, job->n_x);
    for (; row < end; row += run * LP_MAT_ROWS) {
        struct lp_cpu_wide_block blocks[LP_WIDE_RUN_BLOCKS];
        const int n = lp_cpu_wide_blocks(mat, row, end, run, scratch->run, blocks);
        lp_cpu_wide_run(job->dev->wide, blocks, n, tiles_of_head(job, head), job->n_x);
        for (int b = 0; b < n; b++) {
            const int64_t left = end - blocks[b].row;
            store_block(job, blocks[b].out, head, blocks[b].row,
                        left < LP_MAT_ROWS ? (int)left : LP_MAT_ROWS);
        }
    }
}

static void head_item(const struct head_job *job, int64_t item, int64_t following,
                      const struct lp_cpu_mat_worker *scratch) {
    const struct lp_op_head_matmul *op = job->op;
    int64_t head = item / job->n_row_items;
    int64_t row = item % job->n_row_items * job->item_blocks * LP_MAT_ROWS;
    struct lp_cpu_mat mat = lp_cpu_mat_of(job->dev, op->w, head);
    struct lp_cpu_rows x = inputs_of_head(job, head);
    int64_t end = row + job->item_blocks * LP_MAT_ROWS;
    if (end > mat.n_out) end = mat.n_out;
    if (job->wide) {
        wide_item(job, &mat, head, row, end, scratch);
        return;
    }
    for (; row < end; row += LP_MAT_ROWS) {
        int n_rows = end - row < LP_MAT_ROWS ? (int)(end - row) : LP_MAT_ROWS;
        const uint8_t *next = row + LP_MAT_ROWS < end ? lp_cpu_mat_at(&mat, row + LP_MAT_ROWS)
                                                      : weights_of(job, following);
        lp_cpu_mat_block(&mat, row, n_rows, x, job->n_x, next, scratch->panel, scratch->tile);
        store_block(job, scratch->tile, head, row, n_rows);
    }
}

static void head_worker(void *job_, int worker, int n_workers) {
    struct head_job *job = job_;
    if (job->quantize) {
        size_t begin, end;
        lp_worker_range((size_t)(job->n_x * inputs_per_row(job->op)), 1, worker, n_workers, &begin,
                        &end);
        quantize_inputs(job, (int64_t)begin, (int64_t)end);
        if (n_workers > 1) lp_workers_barrier(job->dev->workers);
    }
    const int64_t n_items = job->op->w->n_mats * job->n_row_items;
    int64_t item = lp_cpu_take(&job->next);
    while (item < n_items) {
        int64_t following = lp_cpu_take(&job->next);
        head_item(job, item, following, &job->dev->mat_scratch->workers[worker]);
        item = following;
    }
}

static void plain_slice(struct lp_cpu_device *dev, const struct lp_op_head_matmul *op,
                        int64_t first_x, int64_t n_x) {
    struct head_job job = {.dev = dev, .op = op, .first_x = first_x, .n_x = n_x};
    struct lp_cpu_mat mat = lp_cpu_mat_of(dev, op->w, 0);
    job.q8 = mat.kernel->act == LP_CPU_ACT_Q8;
    job.wide = lp_cpu_wide_takes(dev, mat.kernel, n_x, mat.n_in, inputs_per_row(op));
    job.quantize = job.q8 && n_x * inputs_per_row(op) * mat.n_in > LP_MAT_QUANTIZE_ALONE;
    if (job.q8 && !job.quantize) quantize_inputs(&job, 0, n_x * inputs_per_row(op));
    job.item_blocks = lp_cpu_mat_item_blocks(&mat, op->w->n_mats, dev->n_workers);
    if (job.wide) job.item_blocks += job.item_blocks % LP_WIDE_BLOCKS;
    int64_t item_rows = job.item_blocks * LP_MAT_ROWS;
    job.n_row_items = (mat.n_out + item_rows - 1) / item_rows;
    lp_cpu_run(dev, n_x * op->w->n_mats * mat.n_in * mat.n_out, head_worker, &job);
}

// ---- transposed

struct transposed_job {
    struct lp_cpu_device *dev;
    const struct lp_op_head_matmul *op;
    int64_t n_chunks;
    _Atomic int64_t next;
};

static void transposed_item(const struct transposed_job *job, int64_t item, float *panel) {
    const struct lp_op_head_matmul *op = job->op;
    const int64_t head = item / job->n_chunks, first = item % job->n_chunks * LP_MAT_CHUNK_F32;
    const struct lp_cpu_mat mat = lp_cpu_mat_of(job->dev, op->w, head);
    const int64_t n = mat.n_in - first < LP_MAT_CHUNK_F32 ? mat.n_in - first : LP_MAT_CHUNK_F32;
    for (int64_t t0 = 0; t0 < op->n_rows; t0 += TRANSPOSED_X) {
        int64_t t1 = t0 + TRANSPOSED_X < op->n_rows ? t0 + TRANSPOSED_X : op->n_rows;
        for (int64_t d = 0; d < mat.n_out; d += LP_MAT_AXPY) {
            int n_d = mat.n_out - d < LP_MAT_AXPY ? (int)(mat.n_out - d) : LP_MAT_AXPY;
            for (int i = 0; i < n_d; i++)
                lp_cpu_mat_to_f32(&mat, d + i, first, n, panel + i * LP_MAT_PANEL_F32);
            for (int64_t t = t0; t < t1; t++)
                mat.kernel->axpy(
                    panel, n_d, op->x + t * op->x_row_stride + head * op->x_head_stride + d,
                    op->y + t * op->y_row_stride + head * op->y_head_stride + first, n, d == 0);
        }
        for (int64_t t = t0; mat.factor != 1.0f && t < t1; t++) {
            float *y = op->y + t * op->y_row_stride + head * op->y_head_stride + first;
            for (int64_t j = 0; j < n; j++) y[j] *= mat.factor;
        }
    }
}

static void transposed_worker(void *job_, int worker, int n_workers) {
    (void)n_workers;
    struct transposed_job *job = job_;
    const int64_t n_items = job->op->w->n_mats * job->n_chunks;
    for (;;) {
        int64_t item = lp_cpu_take(&job->next);
        if (item >= n_items) break;
        transposed_item(job, item, job->dev->mat_scratch->workers[worker].panel);
    }
}

void lp_cpu_head_matmul(struct lp_device *base, const struct lp_op_head_matmul *op) {
    struct lp_cpu_device *dev = lp_cpu_device(base);
    const struct lp_weight *w = op->w;
    if (op->transposed) {
        struct transposed_job job = {.dev = dev, .op = op};
        job.n_chunks = (w->n_in + LP_MAT_CHUNK_F32 - 1) / LP_MAT_CHUNK_F32;
        lp_cpu_run(dev, op->n_rows * w->n_mats * w->n_in * w->n_out, transposed_worker, &job);
        return;
    }
    int64_t slice = LP_MAT_MAX_X;
    if (dev->mat_kernels[w->type]->act == LP_CPU_ACT_Q8) {
        int64_t fit = dev->mat_scratch->act_quads / (inputs_per_row(op) * lp_cpu_quads(w->n_in));
        assert(fit > 0 &&
               "lp_reserve covers n_heads inputs of latent, v_dim or nope + rope values");
        if (fit < slice) slice = fit;
    }
    slice = lp_cpu_even_slice(op->n_rows, slice);
    for (int64_t t = 0; t < op->n_rows; t += slice)
        plain_slice(dev, op, t, op->n_rows - t < slice ? op->n_rows - t : slice);
}
