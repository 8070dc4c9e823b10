// Routed experts with many rows each, by the products of cpu_wide.h. Two phases with a barrier between:
//
//   1. items (active expert, part of its gate and up rows): the expert's rows of x are rounded into the
//      worker's own tiles, GATHERED of them at a time, and meet a block of gate and one of up together;
//      silu(gate x) * (up x) goes to the tiles of hidden rows, which are begun anew for each expert
//   2. items of down rows: every active expert's product, one after the other, times the weight of each
//      (row, expert) to y
//
// A block of y belongs to one worker, and its sum runs in the order of the experts' numbers.
#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/cpu_lanes.h"
#include "backend/cpu/cpu_wide.h"

#define DOWN_ROWS                                                                                  \
    256 // most rows of a down item: an expert's hidden rows stay in the cache meanwhile

struct wide_job {
    struct lp_cpu_device *dev;
    const struct lp_op_experts *op;
    int64_t first_x, n_x, n_active, width;
    int64_t part_rows, n_parts; // gate and up rows of an item; items of an expert
    int64_t down_rows, n_down;  // down rows of an item; items
    _Atomic int64_t next_up, next_down;
};

// ---- phase 1

static void up_item(const struct wide_job *job, int64_t item, const struct lp_cpu_mat_worker *w) {
    const struct lp_op_experts *op = job->op;
    const struct lp_cpu_mat_scratch *s = job->dev->mat_scratch;
    const struct lp_cpu_wide *wide = job->dev->wide;
    const int32_t expert = s->active[item / job->n_parts];
    if (op->source) op->source->wait(op->source->user, expert); // phase 2 finds all of them there
    const struct lp_cpu_mat gate = lp_cpu_mat_of(job->dev, op->gate, expert),
                            up = lp_cpu_mat_of(job->dev, op->up, expert);
    const int64_t begin = s->begins[expert], end = s->begins[expert + 1];
    const int64_t row0 = item % job->n_parts * job->part_rows;
    const int64_t row1 = row0 + job->part_rows < job->width ? row0 + job->part_rows : job->width;
    for (int64_t p = begin; p < end; p += LP_WIDE_GATHERED) {
        const int64_t n = end - p < LP_WIDE_GATHERED ? end - p : LP_WIDE_GATHERED;
        for (int64_t i = 0; i < n; i++)
            wide->put_row(op->x + (job->first_x + s->rows[p + i]) * op->x_stride, gate.n_in, i,
                          w->gathered);
        uint16_t *hidden =
            s->hidden_tiles + (s->tile_begins[expert] * LP_WIDE_SIDE + p - begin) * job->width;
        const int run = lp_cpu_wide_run_blocks(gate.n_in, n);
        for (int64_t row = row0; row < row1; row += run / 2 * LP_MAT_ROWS) {
            struct lp_cpu_wide_block blocks[LP_WIDE_RUN_BLOCKS];
            int n_blocks = 0;
            for (int64_t r = row; n_blocks < run && r < row1; r += LP_MAT_ROWS)
                for (int i = 0; i < 2; i++, n_blocks++)
                    blocks[n_blocks] = (struct lp_cpu_wide_block){
                        i ? &up : &gate, r, w->run + n_blocks * LP_MAT_MAX_X * LP_MAT_ROWS};
            lp_cpu_wide_run(wide, blocks, n_blocks, w->gathered, n);
            for (int b = 0; b < n_blocks; b += 2) {
                float *product = blocks[b].out;
                job->dev->lanes->silu_mul(product, blocks[b + 1].out, product, n * LP_MAT_ROWS);
                wide->put_columns(product, n, blocks[b].row, job->width, hidden);
            }
        }
    }
}

// ---- phase 2

// y += weight * product, for the pairs from p and the rows of a block.
static void add_weighted(const struct wide_job *job, const float *product, int64_t p, int64_t n,
                         int64_t row) {
    const struct lp_op_experts *op = job->op;
    const struct lp_cpu_mat_scratch *s = job->dev->mat_scratch;
    const int64_t left = op->down->n_out - row;
    for (int64_t i = 0; i < n; i++, product += LP_MAT_ROWS) {
        const float weight = op->weights[job->first_x * op->n_used + s->order[p + i]];
        float *y = op->y + (job->first_x + s->rows[p + i]) * op->y_stride + row;
        if (left >= LP_MAT_ROWS)
            for (int r = 0; r < LP_MAT_ROWS; r++) y[r] += weight * product[r];
        else
            for (int r = 0; r < left; r++) y[r] += weight * product[r];
    }
}

static void down_item(const struct wide_job *job, int64_t item, const struct lp_cpu_mat_worker *w) {
    const struct lp_op_experts *op = job->op;
    const struct lp_cpu_mat_scratch *s = job->dev->mat_scratch;
    const int64_t row0 = item * job->down_rows, n_out = op->down->n_out;
    const int64_t row1 = row0 + job->down_rows < n_out ? row0 + job->down_rows : n_out;
    for (int64_t e = 0; e < op->down->n_mats; e++) {
        const int64_t begin = s->begins[e], end = s->begins[e + 1];
        const struct lp_cpu_mat down = lp_cpu_mat_of(job->dev, op->down, e);
        for (int64_t p = begin; p < end; p += LP_MAT_MAX_X) {
            const int64_t n = end - p < LP_MAT_MAX_X ? end - p : LP_MAT_MAX_X;
            const uint16_t *hidden =
                s->hidden_tiles + (s->tile_begins[e] * LP_WIDE_SIDE + p - begin) * job->width;
            const int run = lp_cpu_wide_run_blocks(job->width, n);
            for (int64_t row = row0; row < row1; row += run * LP_MAT_ROWS) {
                struct lp_cpu_wide_block blocks[LP_WIDE_RUN_BLOCKS];
                const int n_blocks = lp_cpu_wide_blocks(&down, row, row1, run, w->run, blocks);
                lp_cpu_wide_run(job->dev->wide, blocks, n_blocks, hidden, n);
                for (int b = 0; b < n_blocks; b++)
                    add_weighted(job, blocks[b].out, p, n, blocks[b].row);
            }
        }
    }
}

// ---- the job

static void worker_of(void *job_, int worker, int n_workers) {
    struct wide_job *job = job_;
    const struct lp_cpu_mat_worker *w = &job->dev->mat_scratch->workers[worker];
    for (int64_t item; (item = lp_cpu_take(&job->next_up)) < job->n_active * job->n_parts;)
        up_item(job, item, w);
    if (n_workers > 1) lp_workers_barrier(job->dev->workers);
    for (int64_t item; (item = lp_cpu_take(&job->next_down)) < job->n_down;)
        down_item(job, item, w);
}

// Blocks of n rows cut so that there are at least 4 items for each worker, of which `beside` are there.
static int64_t rows_of_item(int64_t n, int64_t beside, int n_workers, int64_t most) {
    const int64_t parts = (4 * n_workers + beside - 1) / beside, side = 2 * LP_MAT_ROWS;
    const int64_t rows = (n / parts + side - 1) / side * side;
    return rows < side ? side : rows > most ? most : rows;
}

static void wide_slice(struct lp_cpu_device *dev, const struct lp_op_experts *op, int64_t first_x,
                       int64_t n_x) {
    struct lp_cpu_mat_scratch *s = dev->mat_scratch;
    struct wide_job job = {.dev = dev, .op = op, .first_x = first_x, .n_x = n_x};
    const int64_t n_embd = op->down->n_out;
    job.width = op->gate->n_out;
    job.n_active = lp_cpu_group_pairs(s, op, first_x, n_x);
    if (job.n_active == 0) return; // none of the rows' experts is here
    int32_t tiles = 0;
    for (int64_t e = 0; e < op->gate->n_mats; e++) {
        s->tile_begins[e] = tiles;
        tiles += (int32_t)lp_cpu_wide_tiles(s->begins[e + 1] - s->begins[e]);
    }
    job.part_rows = rows_of_item(job.width, job.n_active, dev->n_workers, job.width);
    job.n_parts = (job.width + job.part_rows - 1) / job.part_rows;
    job.down_rows = rows_of_item(n_embd, 1, dev->n_workers, DOWN_ROWS);
    job.n_down = (n_embd + job.down_rows - 1) / job.down_rows;
    lp_cpu_run(dev, 3 * n_x * op->n_used * op->gate->n_in * job.width, worker_of, &job);
}

static int64_t slice_of(const struct lp_cpu_device *dev, const struct lp_op_experts *op) {
    return lp_cpu_even_slice(op->n_rows, dev->mat_scratch->wide_pairs / op->n_used);
}

bool lp_cpu_wide_takes_experts(const struct lp_cpu_device *dev, const struct lp_op_experts *op) {
    const struct lp_cpu_mat_kernel *const *kernels = dev->mat_kernels;
    if (!dev->wide || !dev->may_vary || !kernels[op->gate->type]->widen ||
        !kernels[op->up->type]->widen || !kernels[op->down->type]->widen)
        return false;
    const int64_t slice = slice_of(dev, op), n_rows = op->n_rows < slice ? op->n_rows : slice;
    const int64_t n_experts = op->n_experts ? op->n_experts : op->gate->n_mats;
    return n_rows * op->n_used >= LP_WIDE_MIN_EXPERT * n_experts;
}

void lp_cpu_wide_experts(struct lp_cpu_device *dev, const struct lp_op_experts *op) {
    const int64_t slice = slice_of(dev, op);
    for (int64_t t = 0; t < op->n_rows; t += slice)
        wide_slice(dev, op, t, op->n_rows - t < slice ? op->n_rows - t : slice);
}
