// Routed experts. A slice of rows becomes pairs (row, j), grouped by expert with a counting sort,
// so that an expert's weights are read once for all its rows. One job, two phases with a barrier
// between:
//
//   1. items (active expert, blocks of gate/up rows):  hidden[pair] = silu(gate x) * (up x)
//      then the hidden rows are quantised where `down` wants 8 bits
//   2. items of down rows: every active expert's product for the block into pairs[place], then
//      y[row] += sum over j of weight * pairs[place of (row, j)], j ascending
//
// A block of y belongs to one worker and its sum runs in the order of j, so neither the grouping
// nor the slices show in the result.
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/cpu_lanes.h"
#include "backend/cpu/cpu_wide.h"

struct experts_job {
    struct lp_cpu_device *dev;
    const struct lp_op_experts *op;
    int64_t first_x, n_x, n_pairs, n_active, width;
    bool quantize_x; // shared by the workers
    bool q8_x, q8_hidden;
    int64_t up_blocks, n_up_items, down_blocks, n_down_items; // items of one expert; of the slice
    _Atomic int64_t next_up, next_down;
};

// ---- grouping

// Experts whose weights are in memory go first, so that the others' can come meanwhile.
static void resident_first(const struct lp_expert_source *source, int32_t *active, int64_t n) {
    int64_t n_resident = 0;
    for (int64_t a = 0; a < n; a++) {
        int32_t e = active[a];
        if (!source->resident(source->user, e)) continue;
        memmove(active + n_resident + 1, active + n_resident,
                (size_t)(a - n_resident) * sizeof *active);
        active[n_resident++] = e;
    }
}

int64_t lp_cpu_group_pairs(struct lp_cpu_mat_scratch *s, const struct lp_op_experts *op,
                           int64_t first_x, int64_t n_x) {
    const int32_t *ids = op->ids + first_x * op->n_used;
    const int64_t n_experts = op->gate->n_mats, n_pairs = n_x * op->n_used;
    for (int64_t e = 0; e <= n_experts; e++) s->begins[e] = 0;
    for (int64_t p = 0; p < n_pairs; p++) {
        const int64_t e = ids[p] - op->first_expert;
        assert(ids[p] >= 0 && ids[p] < (op->n_experts ? op->n_experts : n_experts));
        s->places[p] = -1;
        if (e >= 0 && e < n_experts) s->begins[e + 1]++;
    }
    int64_t n_active = 0;
    for (int64_t e = 0; e < n_experts; e++) {
        if (s->begins[e + 1] > 0) s->active[n_active++] = (int32_t)e;
        s->begins[e + 1] += s->begins[e];
    }
    // Filling moves begins[e] to the end of e, which is the begin of e + 1; the loop after undoes
    // it.
    for (int64_t p = 0; p < n_pairs; p++) {
        const int64_t e = ids[p] - op->first_expert;
        if (e < 0 || e >= n_experts) continue;
        int32_t place = s->begins[e]++;
        s->order[place] = (int32_t)p;
        s->rows[place] = (int32_t)(p / op->n_used);
        s->places[p] = place;
    }
    for (int64_t e = n_experts; e > 0; e--) s->begins[e] = s->begins[e - 1];
    s->begins[0] = 0;
    if (op->source) resident_first(op->source, s->active, n_active);
    return n_active;
}

// ---- phase 1

static struct lp_cpu_rows input_rows(const struct experts_job *job, const struct lp_cpu_mat *mat,
                                     const int32_t *index) {
    const struct lp_op_experts *op = job->op;
    if (mat->kernel->act == LP_CPU_ACT_Q8)
        return (struct lp_cpu_rows){(const unsigned char *)job->dev->mat_scratch->act,
                                    (size_t)lp_cpu_quads(mat->n_in) * sizeof(struct lp_act_quad),
                                    index};
    return (struct lp_cpu_rows){(const unsigned char *)(op->x + job->first_x * op->x_stride),
                                (size_t)op->x_stride * sizeof(float), index};
}

// How many blocks fit a worker's tiles at n rows each: a matrix is read through so many of them before
// the next one is, since memory delivers one long run faster than many short ones.
static int64_t run_of_blocks(int64_t tile_rows, int64_t n) {
    return n < tile_rows ? tile_rows / n : 1;
}

struct run {
    int64_t row, end;    // rows of a matrix
    const uint8_t *next; // the weights behind them
};

static void matrix_run(const struct lp_cpu_mat *mat, struct run run, struct lp_cpu_rows x,
                       int64_t n_x, int64_t out_stride, float *panel, float *out) {
    for (int64_t row = run.row; row < run.end; row += LP_MAT_ROWS, out += out_stride) {
        const int64_t following = row + LP_MAT_ROWS;
        const int n_rows = following < run.end ? LP_MAT_ROWS : (int)(run.end - row);
        const uint8_t *next = following < run.end ? lp_cpu_mat_at(mat, following) : run.next;
        lp_cpu_mat_block(mat, row, n_rows, x, n_x, next, panel, out);
    }
}

static void up_run(const struct experts_job *job, const struct lp_cpu_mat *gate,
                   const struct lp_cpu_mat *up, struct run run, int32_t p, int64_t n,
                   const struct lp_cpu_mat_worker *w) {
    const struct lp_cpu_mat_scratch *s = job->dev->mat_scratch;
    const int64_t stride = n * LP_MAT_ROWS;
    const struct run first = {run.row, run.end, lp_cpu_mat_at(up, run.row)};
    matrix_run(gate, first, input_rows(job, gate, s->rows + p), n, stride, w->panel, w->tile);
    matrix_run(up, run, input_rows(job, up, s->rows + p), n, stride, w->panel, w->tile2);
    for (int64_t row = run.row; row < run.end; row += LP_MAT_ROWS)
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = (row - run.row) / LP_MAT_ROWS * stride + i * LP_MAT_ROWS;
            const int64_t n_rows = run.end - row < LP_MAT_ROWS ? run.end - row : LP_MAT_ROWS;
            float *hidden = s->hidden + s->order[p + i] * job->width + row;
            job->dev->lanes->silu_mul(w->tile + at, w->tile2 + at, hidden, n_rows);
        }
}

// Where the gate weights of an item begin; NULL past the last one.
static const uint8_t *gate_of(const struct experts_job *job, int64_t item) {
    if (item >= job->n_active * job->n_up_items) return NULL;
    struct lp_cpu_mat gate = lp_cpu_mat_of(job->dev, job->op->gate,
                                           job->dev->mat_scratch->active[item / job->n_up_items]);
    return lp_cpu_mat_at(&gate, item % job->n_up_items * job->up_blocks * LP_MAT_ROWS);
}

static void up_item(const struct experts_job *job, int64_t item, int64_t following,
                    const struct lp_cpu_mat_worker *w) {
    const struct lp_cpu_mat_scratch *s = job->dev->mat_scratch;
    int32_t expert = s->active[item / job->n_up_items];
    const struct lp_expert_source *source = job->op->source;
    if (source) source->wait(source->user, expert); // phase 2 finds all of them there
    struct lp_cpu_mat gate = lp_cpu_mat_of(job->dev, job->op->gate, expert);
    struct lp_cpu_mat up = lp_cpu_mat_of(job->dev, job->op->up, expert);
    int64_t row = item % job->n_up_items * job->up_blocks * LP_MAT_ROWS;
    int64_t end = row + job->up_blocks * LP_MAT_ROWS;
    if (end > gate.n_out) end = gate.n_out;
    const int32_t begin_pair = s->begins[expert], end_pair = s->begins[expert + 1];
    const int64_t run_rows = run_of_blocks(LP_MAT_MAX_X, end_pair - begin_pair) * LP_MAT_ROWS;
    for (; row < end; row += run_rows) {
        struct run run = {row, row + run_rows < end ? row + run_rows : end, NULL};
        run.next = run.end < end ? lp_cpu_mat_at(&gate, run.end) : gate_of(job, following);
        for (int32_t p = begin_pair; p < end_pair; p += LP_MAT_MAX_X)
            up_run(job, &gate, &up, run, p,
                   end_pair - p < LP_MAT_MAX_X ? end_pair - p : LP_MAT_MAX_X, w);
    }
}

// ---- phase 2

static struct lp_cpu_rows hidden_rows(const struct experts_job *job, const int32_t *index) {
    const struct lp_cpu_mat_scratch *s = job->dev->mat_scratch;
    if (job->q8_hidden)
        return (struct lp_cpu_rows){(const unsigned char *)s->hidden_act,
                                    (size_t)lp_cpu_quads(job->width) * sizeof(struct lp_act_quad),
                                    index};
    return (struct lp_cpu_rows){(const unsigned char *)s->hidden,
                                (size_t)job->width * sizeof(float), index};
}

static void add_weighted(const struct experts_job *job, const float *pairs, int64_t row,
                         int n_rows) {
    const struct lp_op_experts *op = job->op;
    const int32_t *places = job->dev->mat_scratch->places;
    for (int64_t t = 0; t < job->n_x; t++) {
        float sum[LP_MAT_ROWS] = {0};
        for (int32_t j = 0; j < op->n_used; j++) {
            const int32_t place = places[t * op->n_used + j];
            if (place < 0) continue;
            float weight = op->weights[(job->first_x + t) * op->n_used + j];
            const float *from = pairs + (int64_t)place * LP_MAT_ROWS;
            for (int r = 0; r < LP_MAT_ROWS; r++)
                sum[r] += weight * from[r]; // behind n_rows: no meaning
        }
        float *y = op->y + (job->first_x + t) * op->y_stride + row;
        if (n_rows == LP_MAT_ROWS)
            for (int r = 0; r < LP_MAT_ROWS; r++) y[r] += sum[r];
        else
            for (int r = 0; r < n_rows; r++) y[r] += sum[r];
    }
}

// Rows of the a-th active expert's down matrix; NULL where there are none.
static const uint8_t *down_of(const struct experts_job *job, int64_t a, int64_t row) {
    if (row >= job->op->down->n_out) return NULL;
    struct lp_cpu_mat down =
        lp_cpu_mat_of(job->dev, job->op->down, job->dev->mat_scratch->active[a]);
    return lp_cpu_mat_at(&down, row);
}

// Rows of every active expert's product into pairs: block b of the run at b * n_pairs * LP_MAT_ROWS.
static void down_run(const struct experts_job *job, struct run run, int64_t row_after,
                     const struct lp_cpu_mat_worker *w) {
    const struct lp_cpu_mat_scratch *s = job->dev->mat_scratch;
    for (int64_t a = 0; a < job->n_active; a++) {
        const int32_t e = s->active[a], end_pair = s->begins[e + 1];
        const struct lp_cpu_mat down = lp_cpu_mat_of(job->dev, job->op->down, e);
        run.next =
            a + 1 < job->n_active ? down_of(job, a + 1, run.row) : down_of(job, 0, row_after);
        for (int32_t p = s->begins[e]; p < end_pair; p += LP_MAT_MAX_X)
            matrix_run(&down, run, hidden_rows(job, s->order + p),
                       end_pair - p < LP_MAT_MAX_X ? end_pair - p : LP_MAT_MAX_X,
                       job->n_pairs * LP_MAT_ROWS, w->panel, w->pairs + (int64_t)p * LP_MAT_ROWS);
    }
    for (int64_t row = run.row; row < run.end; row += LP_MAT_ROWS)
        add_weighted(job, w->pairs + (row - run.row) * job->n_pairs, row,
                     run.end - row < LP_MAT_ROWS ? (int)(run.end - row) : LP_MAT_ROWS);
}

static void down_item(const struct experts_job *job, int64_t item, int64_t following,
                      const struct lp_cpu_mat_worker *w) {
    const int64_t n_out = job->op->down->n_out, item_rows = job->down_blocks * LP_MAT_ROWS;
    const int64_t max_pairs = job->dev->mat_scratch->max_pairs;
    const int64_t run_rows = run_of_blocks(max_pairs, job->n_pairs) * LP_MAT_ROWS;
    int64_t row = item * item_rows, end = row + item_rows < n_out ? row + item_rows : n_out;
    for (; row < end; row += run_rows) {
        const struct run run = {row, row + run_rows < end ? row + run_rows : end, NULL};
        down_run(job, run, run.end < end ? run.end : following * item_rows, w);
    }
}

// ---- the job

static void meet(const struct experts_job *job, int n_workers) {
    if (n_workers > 1) lp_workers_barrier(job->dev->workers);
}

// Runs of pairs whose expert is here.
static void quantize_hidden(const struct experts_job *job, int64_t begin, int64_t end) {
    struct lp_cpu_mat_scratch *s = job->dev->mat_scratch;
    for (int64_t next; begin < end; begin = next) {
        for (next = begin; next < end && s->places[next] >= 0;) next++;
        lp_cpu_quantize_rows(s->hidden, job->width, job->width, begin, next, s->hidden_act);
        while (next < end && s->places[next] < 0) next++;
    }
}

static void experts_worker(void *job_, int worker, int n_workers) {
    struct experts_job *job = job_;
    const struct lp_op_experts *op = job->op;
    struct lp_cpu_mat_scratch *s = job->dev->mat_scratch;
    const struct lp_cpu_mat_worker *w = &s->workers[worker];
    size_t begin, end;
    if (job->quantize_x) {
        lp_worker_range((size_t)job->n_x, 1, worker, n_workers, &begin, &end);
        lp_cpu_quantize_rows(op->x + job->first_x * op->x_stride, op->x_stride, op->gate->n_in,
                             (int64_t)begin, (int64_t)end, s->act);
        meet(job, n_workers);
    }
    int64_t item = lp_cpu_take(&job->next_up), following;
    for (; item < job->n_active * job->n_up_items; item = following) {
        following = lp_cpu_take(&job->next_up);
        up_item(job, item, following, w);
    }
    meet(job, n_workers);
    if (job->q8_hidden) {
        lp_worker_range((size_t)job->n_pairs, 1, worker, n_workers, &begin, &end);
        quantize_hidden(job, (int64_t)begin, (int64_t)end);
        meet(job, n_workers);
    }
    item = lp_cpu_take(&job->next_down);
    for (; item < job->n_down_items; item = following) {
        following = lp_cpu_take(&job->next_down);
        down_item(job, item, following, w);
    }
}

static void plan_items(struct experts_job *job) {
    const struct lp_op_experts *op = job->op;
    struct lp_cpu_mat gate = lp_cpu_mat_of(job->dev, op->gate, 0);
    struct lp_cpu_mat down = lp_cpu_mat_of(job->dev, op->down, 0);
    job->up_blocks = lp_cpu_mat_item_blocks(&gate, job->n_active, job->dev->n_workers);
    job->down_blocks = lp_cpu_mat_item_blocks(&down, 1, job->dev->n_workers);
    int64_t up_rows = job->up_blocks * LP_MAT_ROWS, down_rows = job->down_blocks * LP_MAT_ROWS;
    job->n_up_items = (gate.n_out + up_rows - 1) / up_rows;
    job->n_down_items = (down.n_out + down_rows - 1) / down_rows;
}

static void experts_slice(struct lp_cpu_device *dev, const struct lp_op_experts *op,
                          int64_t first_x, int64_t n_x) {
    const int64_t n_in = op->gate->n_in;
    struct experts_job job = {.dev = dev,
                              .op = op,
                              .first_x = first_x,
                              .n_x = n_x,
                              .n_pairs = n_x * op->n_used,
                              .width = op->gate->n_out};
    job.q8_x = dev->mat_kernels[op->gate->type]->act == LP_CPU_ACT_Q8 ||
               dev->mat_kernels[op->up->type]->act == LP_CPU_ACT_Q8;
    job.q8_hidden = dev->mat_kernels[op->down->type]->act == LP_CPU_ACT_Q8;
    job.quantize_x = job.q8_x && n_x > 1 && n_x * n_in > LP_MAT_QUANTIZE_ALONE;
    if (job.q8_x && !job.quantize_x)
        lp_cpu_quantize_rows(op->x + first_x * op->x_stride, op->x_stride, n_in, 0, n_x,
                             dev->mat_scratch->act);
    job.n_active = lp_cpu_group_pairs(dev->mat_scratch, op, first_x, n_x);
    if (job.n_active == 0) return; // none of the rows' experts is here
    plan_items(&job);
    lp_cpu_run(dev, 3 * job.n_pairs * n_in * job.width, experts_worker, &job);
}

void lp_cpu_experts(struct lp_device *base, const struct lp_op_experts *op) {
    struct lp_cpu_device *dev = lp_cpu_device(base);
    const struct lp_cpu_mat_scratch *s = dev->mat_scratch;
    assert(op->n_used > 0 && op->gate->n_mats <= s->max_experts);
    if (lp_cpu_wide_takes_experts(dev, op)) {
        lp_cpu_wide_experts(dev, op);
        return;
    }
    int64_t slice = s->max_pairs / op->n_used, fit = s->act_quads / lp_cpu_quads(op->gate->n_in);
    if (fit < slice) slice = fit;
    if (slice > LP_MAT_MAX_X) slice = LP_MAT_MAX_X;
    assert(slice > 0 && slice * op->n_used * op->gate->n_out <= s->max_hidden);
    for (int64_t t = 0; t < op->n_rows; t += slice)
        experts_slice(dev, op, t, op->n_rows - t < slice ? op->n_rows - t : slice);
}
