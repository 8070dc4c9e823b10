// Absorbed MLA on the CPU: multi-query attention over the latent rows themselves. A task is one
// query and a block of heads: each key row serves all these heads, as key and as value, as it lies in
// the cache where there are products for its type (cpu_latent.h), else converted to float32 once. For
// a few queries over a long context the segments (cpu_attn.h, A2) become tasks too.
//
// About 1100 multiply-adds per head and key against about 1100 bytes per key: with some 16 heads a
// block this is bound by arithmetic, not by memory.
#include "backend/cpu/cpu_attn.h"
#include "backend/cpu/cpu_latent.h"

#include <string.h>

// Of a block: 64 keys, 32 queries and sums of 576 floats stay in a 512 KiB cache.
#define MAX_HEADS 32
_Static_assert(LP_CPU_KEY_BLOCK <= LP_CPU_LATENT_KEYS, "a block of keys is one of cpu_latent.h");
// Queries that take block after block together: what neighbours select is much the same, and is in a near
// cache then for all but the first.
#define GROUP 4

// One of the queries that a worker takes along together.
struct query_part {
    float *queries; // [MAX_HEADS, latent + rope]
    void *packed;   // the same as job->latent wants them
    struct lp_cpu_softmax segment, total;
    const int32_t *ids; // its selection, or NULL
    int64_t n_keys;     // that it sees
};

struct worker_scratch {
    float *keys;   // [LP_CPU_KEY_BLOCK, latent + rope]
    float *scores; // [MAX_HEADS, LP_CPU_KEY_BLOCK]
    struct lp_cpu_latent_block block;
    size_t ahead, ahead_end; // what the task is to fetch yet of op->ahead, laid end to end
    struct query_part parts[GROUP];
};

struct absorbed_job {
    const struct lp_cpu_device *dev;
    const struct lp_op_mla_absorbed *op;
    const struct lp_cpu_lanes *lanes;
    const struct lp_cpu_latent *latent; // of the cache's type, or NULL
    char *scratch;
    size_t worker_bytes;
    int block_heads, group;
    int64_t n_blocks, n_segments; // n_segments: of the query with the most; 1 when not split
    float *partials;              // [n_queries, n_heads, n_segments] records, or NULL
    size_t n_tasks;
    atomic_size_t next;
    int64_t n_ops;      // multiply-adds, about
    size_t ahead_bytes; // of op->ahead, of which each task fetches its share
};

static size_t cut_worker(const struct lp_cpu_device *dev, struct worker_scratch *w, char *base,
                         int64_t latent, int64_t rope) {
    struct lp_cpu_cut cut = {base, 0};
    int64_t ld = lp_cpu_ld(latent + rope);
    w->keys = lp_cpu_cut_floats(&cut, LP_CPU_KEY_BLOCK * ld);
    w->block.packed =
        lp_cpu_cut(&cut, 1, lp_cpu_latent_pack_most(dev->features, (int)latent, (int)rope));
    w->scores = lp_cpu_cut_floats(&cut, MAX_HEADS * lp_cpu_ld(LP_CPU_KEY_BLOCK));
    for (int i = 0; i < GROUP; i++) {
        struct query_part *part = &w->parts[i];
        part->queries = lp_cpu_cut_floats(&cut, MAX_HEADS * ld);
        part->packed = lp_cpu_cut(
            &cut, 1, lp_cpu_latent_query_most(dev->features, MAX_HEADS, (int)latent, (int)rope));
        lp_cpu_softmax_cut(&part->segment, &cut, MAX_HEADS, latent);
        lp_cpu_softmax_cut(&part->total, &cut, MAX_HEADS, latent);
    }
    return cut.used;
}

size_t lp_cpu_mla_absorbed_scratch(const struct lp_reserve *need, const struct lp_cpu_device *dev) {
    struct worker_scratch w;
    struct lp_cpu_cut cut = {0};
    if (need->n_heads == 0 || need->latent == 0) return 0;
    size_t worker_bytes = cut_worker(dev, &w, NULL, need->latent, need->rope);
    lp_cpu_cut(&cut, dev->n_workers, worker_bytes);
    lp_cpu_cut(&cut, need->n_heads * lp_cpu_segment_max(need->n_context),
               (size_t)lp_cpu_partial_floats(need->latent) * sizeof(float));
    return cut.used;
}

static void load_queries(const struct absorbed_job *job, struct query_part *part, int64_t query,
                         int first_head, int n_heads) {
    const struct lp_op_mla_absorbed *op = job->op;
    float *out = part->queries;
    int64_t ld = lp_cpu_ld(op->latent + op->rope);
    for (int i = 0; i < n_heads; i++) {
        int64_t head = first_head + i;
        memcpy(out + i * ld, op->q_latent + query * op->q_latent_stride + head * op->latent,
               (size_t)op->latent * sizeof(float));
        memcpy(out + i * ld + op->latent,
               op->q_rope + query * op->q_rope_stride + head * op->q_rope_head_stride,
               (size_t)op->rope * sizeof(float));
    }
    if (job->latent && job->latent->pack_queries)
        job->latent->pack_queries(out, ld, n_heads, op->latent, op->rope, part->packed);
    part->ids = op->visible.ids ? op->visible.ids + query * op->visible.k : NULL;
    part->n_keys = lp_cpu_visible_count(&op->visible, query);
}

// ---- weights ahead

static size_t weight_bytes(const struct lp_weight *w) {
    if (w->packed) return (size_t)w->n_mats * w->packed_mat_bytes;
    return w->mats ? 0 : (size_t)w->n_mats * w->mat_bytes;
}

// What is fetched must not push itself out of the last cache.
static size_t bytes_ahead(const struct lp_cpu_device *dev, const struct lp_op_mla_absorbed *op) {
    size_t bytes = 0, most = dev->last_cache_bytes / 2;
    for (int32_t i = 0; op->ahead && i < op->n_ahead; i++) bytes += weight_bytes(op->ahead[i]);
    return bytes < most ? bytes : most;
}

// Gives the block the next piece of the task's share once the last one is through.
static void feed_fetch(const struct absorbed_job *job, struct worker_scratch *w) {
    const struct lp_op_mla_absorbed *op = job->op;
    if (w->block.fetch < w->block.fetch_end || w->ahead >= w->ahead_end) return;
    size_t first = 0;
    for (int32_t i = 0; i < op->n_ahead; i++) {
        size_t bytes = weight_bytes(op->ahead[i]), end = first + bytes;
        if (w->ahead < end) {
            if (end > w->ahead_end) end = w->ahead_end;
            const struct lp_weight *weight = op->ahead[i];
            const char *data =
                (const char *)(weight->packed ? weight->packed : lp_weight_mat(weight, 0));
            w->block.fetch = data + (w->ahead - first);
            w->block.fetch_end = data + (end - first);
            w->ahead = end;
            return;
        }
        first = end;
    }
}

// ---- segments

static int keys_of_block(const struct query_part *part, int64_t at) {
    return part->n_keys - at < LP_CPU_KEY_BLOCK ? (int)(part->n_keys - at) : LP_CPU_KEY_BLOCK;
}

static const void *key_row(const struct absorbed_job *job, const struct query_part *part,
                           int64_t number) {
    return lp_cpu_cache_row(job->op->cache, part->ids ? part->ids[number] : number);
}

// A block's keys as they lie in the cache. Those of another part's block, which comes next, are fetched
// meanwhile, if there is one.
static void attend_rows(const struct absorbed_job *job, struct worker_scratch *w,
                        struct query_part *part, int n_heads, int64_t at,
                        const struct query_part *next, int64_t next_at) {
    const struct lp_op_mla_absorbed *op = job->op;
    const int64_t ld = lp_cpu_ld(op->latent + op->rope), ld_scores = lp_cpu_ld(LP_CPU_KEY_BLOCK);
    const int n_next = next && next_at < next->n_keys ? keys_of_block(next, next_at) : 0;
    struct lp_cpu_softmax *state = &part->segment;
    struct lp_cpu_latent_block *block = &w->block;
    block->n_keys = keys_of_block(part, at);
    block->latent = op->latent;
    block->rope = op->rope;
    for (int i = 0; i < block->n_keys; i++) {
        block->rows[i] = key_row(job, part, at + i);
        block->ahead[i] = i < n_next ? key_row(job, next, next_at + i) : block->rows[i];
    }
    if (job->ahead_bytes) feed_fetch(job, w);
    if (job->latent->pack_keys) job->latent->pack_keys(block);
    job->latent->scores(job->latent->pack_queries ? part->packed : part->queries, ld, n_heads,
                        block, w->scores, ld_scores);
    for (int i = 0; i < n_heads; i++) {
        float rescale = job->lanes->softmax_step(w->scores + i * ld_scores, block->n_keys,
                                                 op->scale, &state->max[i], &state->sum[i]);
        if (rescale != 1.0f)
            job->lanes->scale(state->acc + i * state->ld, (size_t)op->latent, rescale);
    }
    job->latent->values(w->scores, ld_scores, n_heads, block, state->acc, state->ld);
}

// The same with the keys as float32
static void attend_floats(const struct absorbed_job *job, struct worker_scratch *w,
                          struct query_part *part, int n_heads, int64_t at) {
    const struct lp_op_mla_absorbed *op = job->op;
    const int width = op->latent + op->rope, n_keys = keys_of_block(part, at);
    const int64_t ld = lp_cpu_ld(width), ld_scores = lp_cpu_ld(LP_CPU_KEY_BLOCK);
    int32_t n_visible[MAX_HEADS];
    for (int i = 0; i < n_keys; i++)
        lp_cpu_cache_load(job->lanes, op->cache, key_row(job, part, at + i), w->keys + i * ld);
    job->lanes->mul_nt(n_heads, n_keys, width, part->queries, ld, w->keys, ld, w->scores, ld_scores,
                       1);
    for (int i = 0; i < n_heads; i++) n_visible[i] = n_keys;
    lp_cpu_softmax_block(job->lanes, &part->segment, 0, n_heads, w->scores, ld_scores, n_visible,
                         op->scale, w->keys, ld, op->latent);
}

// part->segment takes up the block of keys at `at` (numbers, or indices of ids).
static void attend_block(const struct absorbed_job *job, struct worker_scratch *w,
                         struct query_part *part, int n_heads, int64_t at,
                         const struct query_part *next, int64_t next_at) {
    if (job->latent)
        attend_rows(job, w, part, n_heads, at, next, next_at);
    else
        attend_floats(job, w, part, n_heads, at);
}

static void run_split_task(const struct absorbed_job *job, struct worker_scratch *w, int64_t query,
                           int first_head, int n_heads, int64_t segment) {
    const struct lp_op_mla_absorbed *op = job->op;
    struct query_part *part = &w->parts[0];
    int64_t n = lp_cpu_visible_count(&op->visible, query), keys = lp_cpu_segment_keys(n);
    int64_t begin = segment * keys, end = begin + keys < n ? begin + keys : n;
    if (begin >= n) return;
    load_queries(job, part, query, first_head, n_heads);
    lp_cpu_softmax_reset(&part->segment, n_heads, op->latent);
    for (int64_t at = begin, next; at < end; at = next) {
        next = at + LP_CPU_KEY_BLOCK;
        attend_block(job, w, part, n_heads, at, next < end ? part : NULL, next);
    }
    for (int i = 0; i < n_heads; i++) {
        int64_t record = (query * op->n_heads + first_head + i) * job->n_segments + segment;
        lp_cpu_partial_put(job->partials + record * lp_cpu_partial_floats(op->latent),
                           &part->segment, i, op->latent);
    }
}

// A segment is through: the total takes it up, or is it.
static void end_segment(struct query_part *part, int n_heads, int width, bool is_first) {
    struct lp_cpu_softmax *total = &part->total, *segment = &part->segment;
    if (is_first) {
        struct lp_cpu_softmax swap = *total;
        *total = *segment;
        *segment = swap;
        return;
    }
    for (int i = 0; i < n_heads; i++)
        lp_cpu_softmax_merge(total->acc + i * total->ld, &total->max[i], &total->sum[i],
                             segment->acc + i * segment->ld, segment->max[i], segment->sum[i],
                             width);
}

// The block at `at` of part i, if it has one, and the ends of the segment on both sides of it
static void run_block(const struct absorbed_job *job, struct worker_scratch *w, int i,
                      int n_queries, int n_heads, int64_t at) {
    struct query_part *part = &w->parts[i];
    const int64_t keys = lp_cpu_segment_keys(part->n_keys), after = at + LP_CPU_KEY_BLOCK;
    if (at >= part->n_keys) return;
    if (at % keys == 0) lp_cpu_softmax_reset(&part->segment, n_heads, job->op->latent);
    if (i + 1 < n_queries)
        attend_block(job, w, part, n_heads, at, &w->parts[i + 1], at);
    else
        attend_block(job, w, part, n_heads, at, &w->parts[0], after);
    if (after % keys == 0 || after >= part->n_keys)
        end_segment(part, n_heads, job->op->latent, at < keys);
}

static void run_whole_task(const struct absorbed_job *job, struct worker_scratch *w, int64_t query,
                           int n_queries, int first_head, int n_heads) {
    const struct lp_op_mla_absorbed *op = job->op;
    int64_t most = 0;
    for (int i = 0; i < n_queries; i++) {
        load_queries(job, &w->parts[i], query + i, first_head, n_heads);
        lp_cpu_softmax_reset(&w->parts[i].total, n_heads, op->latent); // of one that sees no key
        if (w->parts[i].n_keys > most) most = w->parts[i].n_keys;
    }
    for (int64_t at = 0; at < most; at += LP_CPU_KEY_BLOCK)
        for (int i = 0; i < n_queries; i++) run_block(job, w, i, n_queries, n_heads, at);
    for (int i = 0; i < n_queries; i++)
        for (int h = 0; h < n_heads; h++) {
            const struct lp_cpu_softmax *total = &w->parts[i].total;
            lp_cpu_softmax_finish(total->acc + h * total->ld, total->sum[h],
                                  op->out + (query + i) * op->out_stride +
                                      (int64_t)(first_head + h) * op->latent,
                                  op->latent);
        }
}

static void run_tasks(void *job_, int worker, int n_workers) {
    (void)n_workers;
    struct absorbed_job *job = job_;
    struct worker_scratch w;
    cut_worker(job->dev, &w, job->scratch + (size_t)worker * job->worker_bytes, job->op->latent,
               job->op->rope);
    for (size_t task; lp_cpu_next(&job->next, job->n_tasks, &task);) {
        int64_t segment = (int64_t)task % job->n_segments, rest = (int64_t)task / job->n_segments;
        int64_t query = rest / job->n_blocks * job->group,
                n_queries = job->op->visible.n_queries - query;
        int first_head = (int)(rest % job->n_blocks) * job->block_heads;
        int left = job->op->n_heads - first_head;
        int n_heads = left < job->block_heads ? left : job->block_heads;
        w.block.fetch = w.block.fetch_end = NULL;
        w.ahead = job->ahead_bytes * task / job->n_tasks;
        w.ahead_end = job->ahead_bytes * (task + 1) / job->n_tasks;
        if (job->partials)
            run_split_task(job, &w, query, first_head, n_heads, segment);
        else
            run_whole_task(job, &w, query, n_queries < job->group ? (int)n_queries : job->group,
                           first_head, n_heads);
    }
}

static void merge_tasks(void *job_, int worker, int n_workers) {
    (void)worker, (void)n_workers;
    struct absorbed_job *job = job_;
    const struct lp_op_mla_absorbed *op = job->op;
    for (size_t task; lp_cpu_next(&job->next, job->n_tasks, &task);) {
        int64_t query = (int64_t)task / op->n_heads, head = (int64_t)task % op->n_heads;
        int64_t n = lp_cpu_segment_count(lp_cpu_visible_count(&op->visible, query));
        float *records =
            job->partials + (int64_t)task * job->n_segments * lp_cpu_partial_floats(op->latent);
        lp_cpu_partial_finish(records, n, op->latent,
                              op->out + query * op->out_stride + head * op->latent);
    }
}

// Splits over segments when queries and heads alone leave workers idle and the partial results fit
// the scratch. Which of the two ways runs does not show in the result (A2).
static void plan(struct absorbed_job *job, struct lp_cpu_device *dev) {
    const struct lp_op_mla_absorbed *op = job->op;
    int64_t n_queries = op->visible.n_queries, most = 1, wanted = 2 * (int64_t)dev->n_workers;
    for (int64_t i = 0; i < n_queries; i++) {
        int64_t n = lp_cpu_segment_count(lp_cpu_visible_count(&op->visible, i));
        if (n > most) most = n;
        job->n_ops +=
            lp_cpu_visible_count(&op->visible, i) * op->n_heads * (2 * op->latent + op->rope);
    }
    size_t workers_bytes = (size_t)dev->n_workers * job->worker_bytes;
    size_t partial_bytes =
        (size_t)(n_queries * op->n_heads * most * lp_cpu_partial_floats(op->latent)) *
        sizeof(float);
    bool split = dev->n_workers > 1 && most > 1 &&
                 n_queries * ((op->n_heads + MAX_HEADS - 1) / MAX_HEADS) < wanted &&
                 partial_bytes <= dev->attn_scratch_bytes - workers_bytes;
    job->n_segments = split ? most : 1;
    job->partials = split ? (float *)(void *)(dev->attn_scratch + workers_bytes) : NULL;
    job->block_heads = MAX_HEADS;
    do job->n_blocks = (op->n_heads + job->block_heads - 1) / job->block_heads;
    while (n_queries * job->n_blocks * job->n_segments < wanted && job->block_heads > 8 &&
           (job->block_heads /= 2) > 0);
    const int64_t n_rows = n_queries * job->n_blocks;
    job->group = !split && n_rows >= GROUP * wanted ? GROUP : 1;
    job->n_tasks =
        (size_t)((n_queries + job->group - 1) / job->group * job->n_blocks * job->n_segments);
}

void lp_cpu_mla_absorbed(struct lp_device *device, const struct lp_op_mla_absorbed *op) {
    struct lp_cpu_device *dev = lp_cpu_device(device);
    struct worker_scratch w;
    struct absorbed_job job = {
        .dev = dev, .op = op, .lanes = dev->lanes, .scratch = (char *)dev->attn_scratch};
    job.latent = lp_cpu_latent_find(op->cache->type, op->latent, dev->features, dev->may_vary);
    job.worker_bytes = cut_worker(dev, &w, NULL, op->latent, op->rope);
    assert((size_t)dev->n_workers * job.worker_bytes <= dev->attn_scratch_bytes);
    if (op->visible.n_queries == 0) return;
    plan(&job, dev);
    if (job.latent) job.ahead_bytes = bytes_ahead(dev, op);
    lp_cpu_run(dev, job.n_ops, run_tasks, &job);
    if (!job.partials) return;
    atomic_store(&job.next, 0);
    job.n_tasks = (size_t)(op->visible.n_queries * op->n_heads);
    lp_workers_run(dev->workers, merge_tasks, &job);
}
