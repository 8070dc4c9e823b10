// Matrix products: the block product and the drivers of matmul and embed.
//
// Weights are walked in blocks of LP_MAT_ROWS rows. A block meets up to LP_MAT_MAX_X activation
// rows at once. 8-bit kernels decode it a small piece at a time, in the cache nearest to the core,
// for all of them (cpu_q8_strip.h). Float kernels take a few rows directly from the stored weights
// (dot), more by unpacking the block chunk by chunk into a panel. Threads take items of blocks from
// a shared counter, one ahead of the one they work at, so that its weights can be fetched
// meanwhile; the inner dimension is never split, so results do not depend on who took what.
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/cpu_wide.h"

#define DIRECT_MAX 2 // activation rows up to which unpacking into a float panel does not pay

struct lp_cpu_mat lp_cpu_mat_of(const struct lp_cpu_device *dev, const struct lp_weight *w,
                                int64_t m) {
    const struct lp_cpu_mat_kernel *kernel = dev->mat_kernels[w->type];
    assert(kernel);
    const bool packed = w->packed != NULL;
    return (struct lp_cpu_mat){
        .kernel = kernel,
        .type = lp_type_info((uint32_t)w->type),
        .data = lp_weight_mat(w, m),
        .packed = packed ? w->packed + (size_t)m * w->packed_mat_bytes : NULL,
        .packed_block = packed ? kernel->packed_bytes(w->n_in) : 0,
        .factor = lp_weight_scale(w, m),
        .row_bytes = w->row_bytes,
        .n_in = w->n_in,
        .n_out = w->n_out,
    };
}

static const void *row_at(struct lp_cpu_rows x, int64_t t) {
    return x.base + x.stride * (size_t)(x.index ? x.index[t] : t);
}

static void block_by_panel(const struct lp_cpu_mat *mat, const uint8_t *w, int n_rows,
                           const void *const *x, int64_t n_x, float *panel, float *out) {
    const struct lp_cpu_mat_kernel *kernel = mat->kernel;
    for (int64_t first = 0; first < mat->n_in; first += LP_MAT_CHUNK_F32) {
        int64_t n = mat->n_in - first < LP_MAT_CHUNK_F32 ? mat->n_in - first : LP_MAT_CHUNK_F32;
        for (int r = 0; r < n_rows; r++)
            kernel->unpack(mat->type, w + (size_t)r * mat->row_bytes, first, n,
                           panel + r * LP_MAT_PANEL_F32);
        for (int64_t t = 0; t < n_x; t += LP_MAT_TILE) {
            int n_t = n_x - t < LP_MAT_TILE ? (int)(n_x - t) : LP_MAT_TILE;
            kernel->tile(panel, n_rows, x + t, n_t, first, n, out + t * LP_MAT_ROWS);
        }
    }
}

void lp_cpu_mat_block(const struct lp_cpu_mat *mat, int64_t first_row, int n_rows,
                      struct lp_cpu_rows x, int64_t n_x, const uint8_t *next, float *panel,
                      float *out) {
    const struct lp_cpu_mat_kernel *kernel = mat->kernel;
    const uint8_t *w = lp_cpu_mat_at(mat, first_row);
    const void *rows[LP_MAT_MAX_X];
    for (int64_t t = 0; t < n_x; t++) rows[t] = row_at(x, t);
    if (mat->packed)
        kernel->packed_block(w, n_rows, rows, (int)n_x, mat->n_in, next, out);
    else if (kernel->block)
        kernel->block(mat->type, w, mat->row_bytes, n_rows, rows, (int)n_x, mat->n_in, next, out);
    else if (n_x > DIRECT_MAX)
        block_by_panel(mat, w, n_rows, rows, n_x, panel, out);
    else
        for (int64_t t = 0; t < n_x; t++)
            kernel->dot(mat->type, w, mat->row_bytes, n_rows, rows[t], mat->n_in,
                        out + t * LP_MAT_ROWS);
    if (mat->factor == 1.0f) return;
    for (int64_t t = 0; t < n_x; t++)
        for (int r = 0; r < n_rows; r++) out[t * LP_MAT_ROWS + r] *= mat->factor;
}

int64_t lp_cpu_mat_item_blocks(const struct lp_cpu_mat *mat, int64_t n_items_beside,
                               int n_workers) {
    int64_t n_blocks = (mat->n_out + LP_MAT_ROWS - 1) / LP_MAT_ROWS;
    int64_t by_bytes = (int64_t)(65536 / (mat->row_bytes * LP_MAT_ROWS + 1)) + 1;
    int64_t by_share = n_blocks * n_items_beside / (4 * n_workers);
    if (by_share < 1) by_share = 1;
    return by_bytes < by_share ? by_bytes : by_share;
}

void lp_cpu_quantize_rows(const float *x, int64_t x_stride, int64_t n, int64_t begin, int64_t end,
                          struct lp_act_quad *out) {
#if defined(__x86_64__) || defined(__aarch64__) // the machines that have Q8 kernels
    for (int64_t t = begin; t < end; t++)
        lp_cpu_quantize_act(x + t * x_stride, n, out + t * lp_cpu_quads(n));
#else
    (void)x, (void)x_stride, (void)n, (void)begin, (void)end, (void)out;
#endif
}

void lp_cpu_mat_to_f32(const struct lp_cpu_mat *mat, int64_t row, int64_t first, int64_t n,
                       float *out) {
    const uint8_t *w = lp_cpu_mat_row(mat, row);
    if (mat->kernel->act == LP_CPU_ACT_F32) {
        mat->kernel->unpack(mat->type, w, first, n, out);
        return;
    }
    struct lp_weight_quad quads[LP_MAT_CHUNK_F32 / LP_QUAD_VALUES];
    mat->kernel->unpack(mat->type, w, first, n, quads);
    mat->kernel->expand(quads, n, out);
}

// ---- matmul

struct matmul_job {
    struct lp_cpu_device *dev;
    const struct lp_op_matmul *op;
    struct lp_cpu_mat mat;
    int64_t first_x, n_x; // the slice of rows that this job does
    struct lp_cpu_rows x;
    bool wide;     // the products are those of cpu_wide.h, x their tiles
    bool quantize; // the workers share the quantisation, or the making of tiles, then meet
    int64_t item_blocks, n_row_items, item_x, n_x_items;
    _Atomic int64_t next;
};

// Adds bias and the old y where asked, and stores a block's results.
static void store_block(const struct lp_op_matmul *op, const float *tile, int64_t t0, int64_t n_x,
                        int64_t row, int n_rows) {
    const bool as_is = !op->bias && !op->accumulate && n_rows == LP_MAT_ROWS;
    for (int64_t t = 0; as_is && t < n_x; t++) // of a size that the compiler knows
        memcpy(op->y + (t0 + t) * op->y_stride + row, tile + t * LP_MAT_ROWS,
               LP_MAT_ROWS * sizeof *tile);
    for (int64_t t = 0; !as_is && t < n_x; t++) {
        float *y = op->y + (t0 + t) * op->y_stride + row, value[LP_MAT_ROWS];
        for (int r = 0; r < LP_MAT_ROWS; r++) value[r] = tile[t * LP_MAT_ROWS + r];
        for (int r = 0; op->bias && r < n_rows; r++) value[r] += op->bias[row + r];
        for (int r = 0; op->accumulate && r < n_rows; r++) value[r] = y[r] + value[r];
        memcpy(y, value, (size_t)n_rows * sizeof *y);
    }
}

static void wide_item(const struct matmul_job *job, int64_t row, int64_t t, int64_t n_x,
                      const struct lp_cpu_mat_worker *scratch) {
    const int64_t after = row + job->item_blocks * LP_MAT_ROWS;
    const int64_t end = after < job->mat.n_out ? after : job->mat.n_out;
    const int run = lp_cpu_wide_run_blocks(job->mat.n_in, n_x);
    for (; row < end; row += run * LP_MAT_ROWS) {
        struct lp_cpu_wide_block blocks[LP_WIDE_RUN_BLOCKS];
        const int n = lp_cpu_wide_blocks(&job->mat, row, end, run, scratch->run, blocks);
        lp_cpu_wide_run(job->dev->wide, blocks, n,
                        job->dev->mat_scratch->act_tiles + t * job->mat.n_in, n_x);
        for (int b = 0; b < n; b++) {
            const int64_t left = end - blocks[b].row;
            store_block(job->op, blocks[b].out, job->first_x + t, n_x, blocks[b].row,
                        left < LP_MAT_ROWS ? (int)left : LP_MAT_ROWS);
        }
    }
}

static int64_t first_row_of(const struct matmul_job *job, int64_t item) {
    return item / job->n_x_items * job->item_blocks * LP_MAT_ROWS;
}

// following: the item that this worker does next; n_items or more when there is none.
static void matmul_item(struct matmul_job *job, int64_t item, int64_t following,
                        const struct lp_cpu_mat_worker *scratch) {
    int64_t t = item % job->n_x_items * job->item_x;
    int64_t n_x = job->n_x - t < job->item_x ? job->n_x - t : job->item_x;
    struct lp_cpu_rows x = job->x;
    x.base += (size_t)t * x.stride;
    int64_t row = first_row_of(job, item);
    if (job->wide) {
        wide_item(job, row, t, n_x, scratch);
        return;
    }
    for (int64_t b = 0; b < job->item_blocks && row < job->mat.n_out; b++, row += LP_MAT_ROWS) {
        int n_rows = job->mat.n_out - row < LP_MAT_ROWS ? (int)(job->mat.n_out - row) : LP_MAT_ROWS;
        int64_t next = b + 1 < job->item_blocks ? row + LP_MAT_ROWS : first_row_of(job, following);
        lp_cpu_mat_block(&job->mat, row, n_rows, x, n_x,
                         next < job->mat.n_out ? lp_cpu_mat_at(&job->mat, next) : NULL,
                         scratch->panel, scratch->tile);
        store_block(job->op, scratch->tile, job->first_x + t, n_x, row, n_rows);
    }
}

static void matmul_worker(void *job_, int worker, int n_workers) {
    struct matmul_job *job = job_;
    const struct lp_op_matmul *op = job->op;
    struct lp_cpu_mat_scratch *scratch = job->dev->mat_scratch;
    if (job->quantize) {
        size_t begin, end;
        lp_worker_range((size_t)job->n_x, 1, worker, n_workers, &begin, &end);
        const float *x = op->x + job->first_x * op->x_stride;
        if (!job->wide)
            lp_cpu_quantize_rows(x, op->x_stride, job->mat.n_in, (int64_t)begin, (int64_t)end,
                                 scratch->act);
        for (size_t t = begin; job->wide && t < end; t++)
            job->dev->wide->put_row(x + (int64_t)t * op->x_stride, job->mat.n_in, (int64_t)t,
                                    scratch->act_tiles);
        if (n_workers > 1) lp_workers_barrier(job->dev->workers);
    }
    const int64_t n_items = job->n_row_items * job->n_x_items;
    int64_t item = lp_cpu_take(&job->next);
    while (item < n_items) {
        int64_t following = lp_cpu_take(&job->next);
        matmul_item(job, item, following, &scratch->workers[worker]);
        item = following;
    }
}

// Where the output has too few rows for all workers, the activation rows are cut as well.
static void plan_items(struct matmul_job *job, int n_workers) {
    const int64_t step = job->wide ? LP_WIDE_SIDE : LP_MAT_TILE;
    job->item_blocks = lp_cpu_mat_item_blocks(&job->mat, 1, n_workers);
    if (job->wide) job->item_blocks += job->item_blocks % LP_WIDE_BLOCKS;
    int64_t item_rows = job->item_blocks * LP_MAT_ROWS;
    job->n_row_items = (job->mat.n_out + item_rows - 1) / item_rows;
    job->item_x = job->n_x;
    while (job->item_x >= 32 && job->n_row_items * (job->n_x / job->item_x) < 4 * n_workers)
        job->item_x = (job->item_x / 2 + step - 1) / step * step;
    job->n_x_items = (job->n_x + job->item_x - 1) / job->item_x;
}

static void matmul_slice(struct lp_cpu_device *dev, const struct lp_op_matmul *op, int64_t first_x,
                         int64_t n_x) {
    struct matmul_job job = {.dev = dev, .op = op, .first_x = first_x, .n_x = n_x};
    job.mat = lp_cpu_mat_of(dev, op->w, 0);
    const float *x = op->x + first_x * op->x_stride;
    const int64_t n_in = job.mat.n_in, n_quads = lp_cpu_quads(n_in);
    job.wide = lp_cpu_wide_takes(dev, job.mat.kernel, n_x, n_in, 1);
    if (job.wide) {
        job.quantize = true;
    } else if (job.mat.kernel->act == LP_CPU_ACT_Q8) {
        job.x = (struct lp_cpu_rows){(const unsigned char *)dev->mat_scratch->act,
                                     (size_t)n_quads * sizeof(struct lp_act_quad), NULL};
        job.quantize = n_x > 1 && n_x * n_in > LP_MAT_QUANTIZE_ALONE;
        if (!job.quantize)
            lp_cpu_quantize_rows(x, op->x_stride, n_in, 0, n_x, dev->mat_scratch->act);
    } else {
        job.x = (struct lp_cpu_rows){(const unsigned char *)x, (size_t)op->x_stride * sizeof(float),
                                     NULL};
    }
    plan_items(&job, dev->n_workers);
    lp_cpu_run(dev, n_x * n_in * job.mat.n_out, matmul_worker, &job);
}

void lp_cpu_matmul(struct lp_device *base, const struct lp_op_matmul *op) {
    struct lp_cpu_device *dev = lp_cpu_device(base);
    int64_t slice = LP_MAT_MAX_X;
    if (dev->mat_kernels[op->w->type]->act == LP_CPU_ACT_Q8) {
        int64_t fit = dev->mat_scratch->act_quads / lp_cpu_quads(op->w->n_in);
        assert(fit > 0 && "lp_reserve.max_width covers every matrix");
        if (fit < slice) slice = fit;
    }
    slice = lp_cpu_even_slice(op->n_rows, slice);
    for (int64_t t = 0; t < op->n_rows; t += slice)
        matmul_slice(dev, op, t, op->n_rows - t < slice ? op->n_rows - t : slice);
}

// ---- embed: exactly the format's values, times the matrix's factor

static void embed_worker(void *job, int worker, int n_workers) {
    const struct lp_op_embed *op = job;
    const struct lp_weight *table = op->table;
    const struct lp_type_info *type = lp_type_info((uint32_t)table->type);
    const uint8_t *rows = lp_weight_mat(table, 0);
    const float factor = lp_weight_scale(table, 0);
    size_t begin, end;
    lp_worker_range((size_t)op->n_rows, 1, worker, n_workers, &begin, &end);
    for (size_t t = begin; t < end; t++) {
        float *out = op->out + (int64_t)t * op->out_stride;
        type->dequant(rows + (size_t)op->ids[t] * table->row_bytes, out, (size_t)table->n_in);
        for (int64_t i = 0; factor != 1.0f && i < table->n_in; i++) out[i] *= factor;
    }
}

void lp_cpu_embed(struct lp_device *dev, const struct lp_op_embed *op) {
    struct lp_op_embed copy = *op;
    lp_cpu_run(lp_cpu_device(dev), op->n_rows * op->table->n_in, embed_worker, &copy);
}
