// Grouped-query attention on the CPU. The rows of a task are queries and query heads that share one
// key/value head, numbered query * group + head in group; each block of keys and values is
// converted once for up to 32 of them. Segments as in cpu_attn.h (A2): for a few queries over a
// long context they become tasks too.
#include "backend/cpu/cpu_attn.h"

#include <string.h>

// Blocks and row tiles by head size, so that scratch has one size whatever the model is. The block
// of a head size never changes (A1).
#define MAX_DIM 4096
static int block_keys(int64_t dim) {
    return dim <= 512 ? LP_CPU_KEY_BLOCK : 8;
}
static int tile_rows(int64_t dim) {
    return dim <= 512 ? 32 : 4;
}

struct worker_scratch {
    float *keys, *values; // [block_keys, head_dim], [block_keys, v_dim]
    float *queries;       // [tile_rows, head_dim]
    float *scores;        // [tile_rows, LP_CPU_KEY_BLOCK]
    struct lp_cpu_softmax segment, total;
};

struct gqa_job {
    const struct lp_op_gqa *op;
    const struct lp_cpu_lanes *lanes;
    char *scratch;
    size_t worker_bytes;
    int64_t group, n_rows; // heads of a group; rows of a key/value head = n_queries * group
    int block_keys, tile_rows;
    int64_t n_tiles, n_segments;
    float *partials; // [n_kv_heads, n_rows, n_segments] records, or NULL
    size_t n_tasks;
    atomic_size_t next;
};

static int64_t max_dim(int64_t head_dim, int64_t v_dim) {
    return head_dim > v_dim ? head_dim : v_dim;
}

static size_t cut_worker(struct worker_scratch *w, char *base, int64_t head_dim, int64_t v_dim) {
    struct lp_cpu_cut cut = {base, 0};
    int64_t dim = max_dim(head_dim, v_dim);
    w->keys = lp_cpu_cut_floats(&cut, block_keys(dim) * lp_cpu_ld(head_dim));
    w->values = lp_cpu_cut_floats(&cut, block_keys(dim) * lp_cpu_ld(v_dim));
    w->queries = lp_cpu_cut_floats(&cut, tile_rows(dim) * lp_cpu_ld(head_dim));
    w->scores = lp_cpu_cut_floats(&cut, tile_rows(dim) * lp_cpu_ld(LP_CPU_KEY_BLOCK));
    lp_cpu_softmax_cut(&w->segment, &cut, tile_rows(dim), v_dim);
    lp_cpu_softmax_cut(&w->total, &cut, tile_rows(dim), v_dim);
    return cut.used;
}

// The reservation names no head size of grouped-query attention: enough for all up to MAX_DIM.
size_t lp_cpu_gqa_scratch(const struct lp_reserve *need, const struct lp_cpu_device *dev) {
    struct worker_scratch w;
    struct lp_cpu_cut cut = {0};
    size_t small = cut_worker(&w, NULL, 512, 512), large = cut_worker(&w, NULL, MAX_DIM, MAX_DIM);
    lp_cpu_cut(&cut, dev->n_workers, need->max_width > 512 && large > small ? large : small);
    int64_t v_dim = max_dim(need->v_dim, 256);
    lp_cpu_cut(&cut, need->n_heads * lp_cpu_segment_max(need->n_context),
               (size_t)lp_cpu_partial_floats(v_dim) * sizeof(float));
    return cut.used;
}

static int64_t visible_of_row(const struct gqa_job *job, int64_t row) {
    return job->op->visible.first_pos + row / job->group + 1;
}

static void load_block(const struct gqa_job *job, struct worker_scratch *w, int64_t kv_head,
                       int64_t key, int n_keys) {
    const struct lp_op_gqa *op = job->op;
    int64_t ld_key = lp_cpu_ld(op->head_dim), ld_value = lp_cpu_ld(op->v_dim);
    size_t k_offset = lp_cache_offset(op->k, (int32_t)(kv_head * op->head_dim));
    size_t v_offset = lp_cache_offset(op->v, (int32_t)(kv_head * op->v_dim));
    for (int i = 0; i < n_keys; i++) {
        job->lanes->load(op->k->type, (char *)lp_cpu_cache_row(op->k, key + i) + k_offset,
                         w->keys + i * ld_key, (size_t)op->head_dim);
        job->lanes->load(op->v->type, (char *)lp_cpu_cache_row(op->v, key + i) + v_offset,
                         w->values + i * ld_value, (size_t)op->v_dim);
    }
}

// w->segment = the softmax of rows first..first + n_rows - 1 over the keys begin..end-1 as far as
// each row sees them.
static void run_segment(const struct gqa_job *job, struct worker_scratch *w, int64_t kv_head,
                        int64_t first, int n_rows, int64_t begin, int64_t end) {
    const struct lp_op_gqa *op = job->op;
    int64_t ld = lp_cpu_ld(op->head_dim), ld_value = lp_cpu_ld(op->v_dim);
    int64_t ld_scores = lp_cpu_ld(LP_CPU_KEY_BLOCK);
    int32_t n_visible[32];
    lp_cpu_softmax_reset(&w->segment, n_rows, op->v_dim);
    for (int64_t key = begin; key < end; key += job->block_keys) {
        int n_keys = end - key < job->block_keys ? (int)(end - key) : job->block_keys;
        load_block(job, w, kv_head, key, n_keys);
        job->lanes->mul_nt(n_rows, n_keys, op->head_dim, w->queries, ld, w->keys, ld, w->scores,
                           ld_scores, 1);
        for (int i = 0; i < n_rows; i++) {
            int64_t seen = visible_of_row(job, first + i) - key;
            n_visible[i] = seen < 0 ? 0 : seen < n_keys ? (int32_t)seen : n_keys;
        }
        lp_cpu_softmax_block(job->lanes, &w->segment, 0, n_rows, w->scores, ld_scores, n_visible,
                             op->scale, w->values, ld_value, op->v_dim);
    }
}

// The rows' segment number `segment` (all have the same segment length), added to the total or put
// with the partial results.
static void take_segment(const struct gqa_job *job, struct worker_scratch *w, int64_t kv_head,
                         int64_t first, int n_rows, int64_t keys, int64_t segment) {
    const struct lp_op_gqa *op = job->op;
    struct lp_cpu_softmax *total = &w->total, *part = &w->segment;
    int64_t begin = segment * keys, n = visible_of_row(job, first + n_rows - 1);
    run_segment(job, w, kv_head, first, n_rows, begin, begin + keys < n ? begin + keys : n);
    for (int i = 0; i < n_rows; i++) {
        if (visible_of_row(job, first + i) <= begin) continue;
        if (job->partials) {
            int64_t record = (kv_head * job->n_rows + first + i) * job->n_segments + segment;
            lp_cpu_partial_put(job->partials + record * lp_cpu_partial_floats(op->v_dim), part, i,
                               op->v_dim);
        } else if (segment == 0) {
            memcpy(total->acc + i * total->ld, part->acc + i * part->ld,
                   (size_t)op->v_dim * sizeof(float));
            total->max[i] = part->max[i];
            total->sum[i] = part->sum[i];
        } else
            lp_cpu_softmax_merge(total->acc + i * total->ld, &total->max[i], &total->sum[i],
                                 part->acc + i * part->ld, part->max[i], part->sum[i], op->v_dim);
    }
}

static float *out_of_row(const struct gqa_job *job, int64_t kv_head, int64_t row) {
    const struct lp_op_gqa *op = job->op;
    int64_t head = kv_head * job->group + row % job->group;
    return op->out + row / job->group * op->out_stride + head * op->v_dim;
}

// Rows of one segment length; segment -1 = all of them, to the end.
static void run_rows(const struct gqa_job *job, struct worker_scratch *w, int64_t kv_head,
                     int64_t first, int n_rows, int64_t segment) {
    const struct lp_op_gqa *op = job->op;
    int64_t n = visible_of_row(job, first + n_rows - 1), keys = lp_cpu_segment_keys(n);
    for (int i = 0; i < n_rows; i++) {
        int64_t row = first + i, head = kv_head * job->group + row % job->group;
        memcpy(w->queries + i * lp_cpu_ld(op->head_dim),
               op->q + row / job->group * op->q_stride + head * op->head_dim,
               (size_t)op->head_dim * sizeof(float));
    }
    if (segment >= 0) {
        if (segment * keys < n) take_segment(job, w, kv_head, first, n_rows, keys, segment);
        return;
    }
    for (int64_t s = 0; s * keys < n; s++) take_segment(job, w, kv_head, first, n_rows, keys, s);
    for (int i = 0; i < n_rows; i++)
        lp_cpu_softmax_finish(w->total.acc + i * w->total.ld, w->total.sum[i],
                              out_of_row(job, kv_head, first + i), op->v_dim);
}

static void run_tasks(void *job_, int worker, int n_workers) {
    (void)n_workers;
    struct gqa_job *job = job_;
    struct worker_scratch w;
    cut_worker(&w, job->scratch + (size_t)worker * job->worker_bytes, job->op->head_dim,
               job->op->v_dim);
    for (size_t task; lp_cpu_next(&job->next, job->n_tasks, &task);) {
        int64_t segment = job->partials ? (int64_t)task % job->n_segments : -1;
        int64_t rest = (int64_t)task / job->n_segments;
        int64_t kv_head = rest % job->op->n_kv_heads;
        int64_t row = rest / job->op->n_kv_heads * job->tile_rows, end = row + job->tile_rows;
        if (end > job->n_rows) end = job->n_rows;
        while (row < end) { // cut where the segment length grows
            int64_t keys = lp_cpu_segment_keys(visible_of_row(job, row)), next = row + 1;
            while (next < end && lp_cpu_segment_keys(visible_of_row(job, next)) == keys) next++;
            run_rows(job, &w, kv_head, row, (int)(next - row), segment);
            row = next;
        }
    }
}

static void merge_tasks(void *job_, int worker, int n_workers) {
    (void)worker, (void)n_workers;
    struct gqa_job *job = job_;
    int width = job->op->v_dim;
    for (size_t task; lp_cpu_next(&job->next, job->n_tasks, &task);) {
        int64_t kv_head = (int64_t)task / job->n_rows, row = (int64_t)task % job->n_rows;
        float *records =
            job->partials + (int64_t)task * job->n_segments * lp_cpu_partial_floats(width);
        lp_cpu_partial_finish(records, lp_cpu_segment_count(visible_of_row(job, row)), width,
                              out_of_row(job, kv_head, row));
    }
}

// As in cpu_attn_mla.c: segments become tasks when rows alone leave workers idle and scratch
// allows.
static void plan(struct gqa_job *job, struct lp_cpu_device *dev) {
    const struct lp_op_gqa *op = job->op;
    int64_t most = 1, first = visible_of_row(job, 0), last = visible_of_row(job, job->n_rows - 1);
    for (int64_t n = first; n <= last; n++) // where the length doubles, the count halves
        if (lp_cpu_segment_count(n) > most) most = lp_cpu_segment_count(n);
    int64_t tasks = job->n_tiles * op->n_kv_heads;
    size_t workers_bytes = (size_t)dev->n_workers * job->worker_bytes;
    size_t partial_bytes =
        (size_t)(job->n_rows * op->n_kv_heads * most * lp_cpu_partial_floats(op->v_dim)) *
        sizeof(float);
    bool split = dev->n_workers > 1 && most > 1 && tasks < 2 * dev->n_workers &&
                 partial_bytes <= dev->attn_scratch_bytes - workers_bytes;
    job->n_segments = split ? most : 1;
    job->partials = split ? (float *)(void *)(dev->attn_scratch + workers_bytes) : NULL;
    job->n_tasks = (size_t)(tasks * job->n_segments);
}

void lp_cpu_gqa(struct lp_device *device, const struct lp_op_gqa *op) {
    struct lp_cpu_device *dev = lp_cpu_device(device);
    struct worker_scratch w;
    struct gqa_job job = {.op = op, .lanes = dev->lanes, .scratch = (char *)dev->attn_scratch};
    int64_t dim = max_dim(op->head_dim, op->v_dim);
    if (op->visible.n_queries == 0) return;
    assert(lp_cache_type_fits(op->k->type, op->head_dim) &&
           lp_cache_type_fits(op->v->type, op->v_dim));
    job.worker_bytes = cut_worker(&w, NULL, op->head_dim, op->v_dim);
    assert(dim <= MAX_DIM && (size_t)dev->n_workers * job.worker_bytes <= dev->attn_scratch_bytes);
    job.group = op->n_heads / op->n_kv_heads;
    job.n_rows = op->visible.n_queries * job.group;
    job.block_keys = block_keys(dim);
    job.tile_rows = tile_rows(dim);
    job.n_tiles = (job.n_rows + job.tile_rows - 1) / job.tile_rows;
    plan(&job, dev);
    int64_t n_ops = visible_of_row(&job, job.n_rows - 1) * job.n_rows * op->n_kv_heads *
                    (op->head_dim + op->v_dim);
    lp_cpu_run(dev, n_ops, run_tasks, &job);
    if (!job.partials) return;
    atomic_store(&job.next, 0);
    job.n_tasks = (size_t)(job.n_rows * op->n_kv_heads);
    lp_workers_run(dev->workers, merge_tasks, &job);
}
