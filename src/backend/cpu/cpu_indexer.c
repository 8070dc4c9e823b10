// The lightning indexer on the CPU: scores of a tile of queries against all keys, then the top-k of
// each. No context is sorted, and with a sieve (cpu_sieve.h) few keys are scored exactly:
//
//   1. scores    a task is a block of keys, taken by all heads of all queries of the tile
//   2. bounds    a task is a query: the threshold from the sieve's scores, and three kinds of keys:
//                surely in (above it by more than the sieve can err), surely out, open
//   3. exact     a task is a query and a block of its open keys
//   4. choice    a task is a query: the best of the open ones fill up the sure ones
//
// Without a sieve, 1 is exact and 4 follows. A query that the sieve cannot judge (values that are
// not finite, ties without end) is scored exactly in 3 as a whole.
//
// A score is one chain of float32 fused multiply-adds over the width, then one over the heads: the
// same bits for any tile, block or number of threads; so is the choice, as long as no key's sieve
// error exceeds ERRORS of its standard deviations.
#include "backend/cpu/cpu_attn.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_index_choose.h"
#include "backend/cpu/cpu_sieve.h"

#define HEAD_BLOCK 64
#define TILE 32 // queries whose scores are kept at a time; more with more workers
#define ERRORS 10
#define AHEAD 32            // keys that are fetched before they are used
#define RUN_BLOCKS 8        // blocks of keys that one worker takes in a row
#define MAX_KEPT_WIDTH 1024 // of keys that pages hold packed: as wide as no model's are
#define MIN_OPEN 1024       // open keys that a query may have; a quarter of a longer context
_Static_assert(LP_CPU_SIEVE_KEYS == LP_CPU_KEY_BLOCK, "stage 1 gives the sieve a block of keys");

struct worker_scratch {
    float *rows;                    // [LP_CPU_KEY_BLOCK, lp_cpu_ld(lp_cpu_sieve_width(width))]
    float *keys_t;                  // [width, LP_CPU_KEY_BLOCK]
    float *dots;                    // [HEAD_BLOCK, LP_CPU_KEY_BLOCK]
    float *sums;                    // [LP_CPU_KEY_BLOCK]
    struct lp_cpu_sieve_block keys; // of a page that has none
};

// What the stages hand on about a query of the tile.
struct verdict {
    bool whole; // all keys are scored exactly
    int64_t n_sure, n_open;
    int32_t *open; // positions, ascending
    float *exact;  // their scores
    size_t first_task;
};

struct shared_scratch {
    float *scores; // [tile, ld_scores]
    struct verdict *verdicts;
    struct lp_cpu_sieve_query *queries;
    float *norm2, *d; // of each block of keys (struct lp_cpu_sieve_block)
    uint8_t *usual;   // of each block of keys
    float *padded;    // of pack_query
};

struct index_job {
    const struct lp_op_index_select *op;
    const struct lp_cpu_lanes *lanes;
    const struct lp_cpu_sieve *sieve;
    char *scratch;
    size_t worker_bytes;
    int64_t first, end; // queries of the tile
    int64_t n_context, ld_scores;
    int64_t run; // blocks of a task of stage 1
    struct shared_scratch s;
    size_t n_tasks;
    atomic_size_t next;
};

static int64_t row_floats(int64_t width) {
    return lp_cpu_ld(lp_cpu_sieve_width(width));
}

static size_t cut_worker(struct worker_scratch *w, char *base, int64_t width) {
    struct lp_cpu_cut cut = {base, 0};
    w->rows = lp_cpu_cut_floats(&cut, LP_CPU_KEY_BLOCK * row_floats(width));
    w->keys_t = lp_cpu_cut_floats(&cut, width * lp_cpu_ld(LP_CPU_KEY_BLOCK));
    w->dots = lp_cpu_cut_floats(&cut, HEAD_BLOCK * lp_cpu_ld(LP_CPU_KEY_BLOCK));
    w->sums = lp_cpu_cut_floats(&cut, LP_CPU_KEY_BLOCK);
    void *keys = lp_cpu_cut(&cut, 1, lp_cpu_sieve_block_bytes(width));
    if (base) w->keys = lp_cpu_sieve_block_at(keys, width);
    return cut.used;
}

static int64_t tile_queries(int64_t n_queries, int n_workers) {
    int64_t tile = n_workers > TILE ? n_workers : TILE;
    return n_queries < tile ? n_queries : tile;
}

static int64_t max_open(int64_t n_context) {
    return n_context / 4 > MIN_OPEN ? n_context / 4 : MIN_OPEN;
}

static size_t cut_shared(struct shared_scratch *s, char *base, int64_t tile, int64_t n_context,
                         int64_t n_heads, int64_t width) {
    struct lp_cpu_cut cut = {base, 0};
    int64_t n_blocks = (n_context + LP_CPU_KEY_BLOCK - 1) / LP_CPU_KEY_BLOCK;
    s->scores = lp_cpu_cut(&cut, tile, (size_t)lp_cpu_ld(n_context) * sizeof(float));
    s->norm2 = lp_cpu_cut_floats(&cut, n_blocks);
    s->d = lp_cpu_cut_floats(&cut, n_blocks);
    s->padded = lp_cpu_cut_floats(&cut, lp_cpu_sieve_width(width));
    s->usual = lp_cpu_cut(&cut, n_blocks, 1);
    s->verdicts = lp_cpu_cut(&cut, tile, sizeof *s->verdicts);
    s->queries = lp_cpu_cut(&cut, tile, sizeof *s->queries);
    for (int64_t i = 0; i < tile; i++) {
        int32_t *open = lp_cpu_cut(&cut, max_open(n_context), sizeof *open);
        float *exact = lp_cpu_cut_floats(&cut, max_open(n_context));
        int8_t *q = lp_cpu_cut(&cut, n_heads, (size_t)lp_cpu_sieve_width(width));
        int32_t *start = lp_cpu_cut(&cut, n_heads, sizeof *start);
        float *weights = lp_cpu_cut_floats(&cut, n_heads);
        if (!base) continue;
        s->verdicts[i] = (struct verdict){.open = open, .exact = exact};
        s->queries[i] = (struct lp_cpu_sieve_query){.q = q, .start = start, .w = weights};
    }
    return cut.used;
}

size_t lp_cpu_index_scratch(const struct lp_reserve *need, const struct lp_cpu_device *dev) {
    struct worker_scratch w;
    struct shared_scratch s;
    struct lp_cpu_cut cut = {0};
    if (need->index_width == 0) return 0;
    lp_cpu_cut(&cut, dev->n_workers, cut_worker(&w, NULL, need->index_width));
    lp_cpu_cut(&cut, 1,
               cut_shared(&s, NULL, tile_queries(need->n_rows, dev->n_workers), need->n_context,
                          need->index_heads, need->index_width));
    return cut.used;
}

// ---- exact scores

// The rows of n keys, positions ids[i] or first + i, to w->rows, zeros behind the width.
static void load_keys(const struct index_job *job, struct worker_scratch *w, const int32_t *ids,
                      int64_t first, int n) {
    const struct lp_op_index_select *op = job->op;
    const int64_t ld = row_floats(op->width), padded = lp_cpu_sieve_width(op->width);
    for (int i = 0; ids && i < n && i < AHEAD; i++) lp_cpu_cache_fetch(op->keys, ids[i]);
    for (int i = 0; i < n; i++) {
        float *row = w->rows + i * ld;
        if (!ids && first + i + AHEAD < op->first_pos + job->end)
            lp_cpu_cache_fetch(op->keys, first + i + AHEAD);
        else if (ids && i + AHEAD < n)
            lp_cpu_cache_fetch(op->keys, ids[i + AHEAD]);
        lp_cpu_cache_load(job->lanes, op->keys,
                          lp_cpu_cache_row(op->keys, ids ? ids[i] : first + i), row);
        memset(row + op->width, 0, (size_t)(padded - op->width) * sizeof *row);
    }
}

// scores[n_keys] of a query with the keys of w->keys_t
static void score_exactly(const struct index_job *job, struct worker_scratch *w, int64_t query,
                          int n_keys, float *scores) {
    const struct lp_op_index_select *op = job->op;
    const int64_t ld = lp_cpu_ld(LP_CPU_KEY_BLOCK);
    memset(scores, 0, (size_t)n_keys * sizeof *scores);
    for (int32_t head = 0; head < op->n_heads; head += HEAD_BLOCK) {
        int n_heads = op->n_heads - head < HEAD_BLOCK ? op->n_heads - head : HEAD_BLOCK;
        job->lanes->mul_nn(n_heads, n_keys, op->width,
                           op->q + query * op->q_stride + (int64_t)head * op->width, op->width,
                           w->keys_t, ld, w->dots, ld, false);
        job->lanes->relu_sum(n_heads, n_keys, w->dots, ld, op->w + query * op->w_stride + head,
                             scores);
    }
    job->lanes->scale(scores, (size_t)n_keys, op->scale);
}

static void turn_keys(const struct index_job *job, struct worker_scratch *w, int n) {
    job->lanes->transpose(n, job->op->width, w->rows, row_floats(job->op->width), w->keys_t,
                          lp_cpu_ld(LP_CPU_KEY_BLOCK));
}

// ---- stage 1

static float *scores_of(const struct index_job *job, int64_t query) {
    return job->s.scores + (query - job->first) * job->ld_scores;
}
static struct verdict *verdict_of(const struct index_job *job, int64_t query) {
    return &job->s.verdicts[query - job->first];
}

// Whether pages hold their keys as the sieve wants them, a block each.
static bool pages_are_packed(const struct lp_cache_view *keys) {
    return keys->extra_offset && keys->slot_offset == 0 && keys->page_tokens == LP_CPU_SIEVE_KEYS;
}

static struct lp_cpu_sieve_block block_of_page(const struct lp_cache_view *keys, int64_t page) {
    char *base = (char *)keys->base + keys->page_bytes * (size_t)keys->pages[page];
    return lp_cpu_sieve_block_at(base + keys->extra_offset, keys->width);
}

// The keys of a block to w->keys, a few at a time, so that their floats stay in the nearest cache.
static void pack_block(const struct index_job *job, struct worker_scratch *w, int64_t block,
                       int n_keys) {
    for (int k = 0; k < LP_CPU_SIEVE_KEYS; k += LP_CPU_SIEVE_PACK) {
        int n = n_keys - k < LP_CPU_SIEVE_PACK ? n_keys - k : LP_CPU_SIEVE_PACK;
        if (n < 0) n = 0;
        load_keys(job, w, NULL, block * LP_CPU_KEY_BLOCK + k, n);
        job->sieve->pack_keys(w->rows, row_floats(job->op->width), k, n, job->op->width, &w->keys);
    }
}

// Notes the largest of a block's keys; false where one of them must be scored exactly.
static bool note_block(const struct index_job *job, const struct lp_cpu_sieve_block *keys,
                       int64_t block, int n_keys) {
    float norm2 = 0, d = 0;
    bool usual = true;
    if (n_keys == LP_CPU_SIEVE_KEYS)
        usual = job->sieve->largest(keys, &norm2, &d);
    else
        for (int k = 0; k < n_keys; k++) {
            usual = usual && keys->norm2[k] >= 0;
            norm2 = keys->norm2[k] > norm2 ? keys->norm2[k] : norm2;
            d = keys->d[k] > d ? keys->d[k] : d;
        }
    job->s.usual[block] = usual;
    job->s.norm2[block] = norm2;
    job->s.d[block] = d;
    return usual;
}

static struct lp_cpu_sieve_block
keys_of_block(const struct index_job *job, struct worker_scratch *w, int64_t block, int n_keys) {
    const struct lp_cache_view *keys = job->op->keys;
    if (!pages_are_packed(keys)) {
        pack_block(job, w, block, n_keys);
        return w->keys;
    }
    struct lp_cpu_sieve_block here = block_of_page(keys, block);
    if ((block + 1) * LP_CPU_KEY_BLOCK < job->op->first_pos + job->end) {
        here.ahead = (const char *)block_of_page(keys, block + 1).bytes;
        here.ahead_end = here.ahead + lp_cpu_sieve_block_bytes(keys->width);
    }
    return here;
}

static void score_block(const struct index_job *job, struct worker_scratch *w, int64_t block) {
    const struct lp_op_index_select *op = job->op;
    const int64_t key = block * LP_CPU_KEY_BLOCK, n_all = op->first_pos + job->end;
    int n_keys = n_all - key < LP_CPU_KEY_BLOCK ? (int)(n_all - key) : LP_CPU_KEY_BLOCK;
    struct lp_cpu_sieve_block keys;
    if (job->sieve) {
        keys = keys_of_block(job, w, block, n_keys);
        if (!note_block(job, &keys, block, n_keys)) return;
    } else {
        load_keys(job, w, NULL, key, n_keys);
        turn_keys(job, w, n_keys);
    }
    for (int64_t query = job->first; query < job->end; query++) {
        if (op->first_pos + query < key || (job->sieve && verdict_of(job, query)->whole)) continue;
        if (job->sieve) {
            job->sieve->score(&job->s.queries[query - job->first], &keys, op->n_heads, op->width,
                              op->scale, w->sums);
            keys.ahead = keys.ahead_end; // once
            memcpy(scores_of(job, query) + key, w->sums, (size_t)n_keys * sizeof(float));
        } else
            score_exactly(job, w, query, n_keys, scores_of(job, query) + key);
    }
}

static void run_scores(void *job_, int worker, int n_workers) {
    (void)n_workers;
    struct index_job *job = job_;
    struct worker_scratch w;
    cut_worker(&w, job->scratch + (size_t)worker * job->worker_bytes, job->op->width);
    int64_t n_blocks = (job->op->first_pos + job->end + LP_CPU_KEY_BLOCK - 1) / LP_CPU_KEY_BLOCK;
    for (size_t task; lp_cpu_next(&job->next, job->n_tasks, &task);)
        for (int64_t block = (int64_t)task * job->run;
             block < n_blocks && block < ((int64_t)task + 1) * job->run; block++)
            score_block(job, &w, block);
}

static void pack_queries(const struct index_job *job) {
    const struct lp_op_index_select *op = job->op;
    for (int64_t query = job->first; query < job->end; query++)
        verdict_of(job, query)->whole = !job->sieve->pack_query(
            op->q + query * op->q_stride, op->w + query * op->w_stride, op->n_heads, op->width,
            job->s.padded, &job->s.queries[query - job->first]);
}

// ---- stage 2

// How far a sieve score of the query may be from the exact one; NaN where a key is unusual.
static float error_bound(const struct index_job *job, int64_t query) {
    const struct lp_op_index_select *op = job->op;
    const struct lp_cpu_sieve_query *q = &job->s.queries[query - job->first];
    double norm2 = 0, d = 0;
    int64_t last = (op->first_pos + query) / LP_CPU_KEY_BLOCK;
    for (int64_t block = 0; block <= last; block++) {
        if (!job->s.usual[block]) return NAN;
        if (job->s.norm2[block] > norm2) norm2 = job->s.norm2[block];
        if (job->s.d[block] > d) d = job->s.d[block];
    }
    // The second part: float32 sums of the products' magnitudes, 12 b |k|^2 at most for each head.
    double rounded = sqrt(q->a * norm2 + q->b * d * d),
           summed = 32 * (double)FLT_EPSILON * sqrt(12 * q->b * norm2 * op->n_heads);
    return (float)(fabs((double)op->scale) * (ERRORS * rounded + summed));
}

static void find_bounds(const struct index_job *job, int64_t query) {
    const struct lp_op_index_select *op = job->op;
    struct verdict *v = verdict_of(job, query);
    const float *scores = scores_of(job, query);
    int64_t n = op->first_pos + query + 1;
    float error = error_bound(job, query), least, most, low, high;
    if (v->whole || !(error < FLT_MAX)) {
        v->whole = true;
        return;
    }
    job->sieve->range(scores, n, &least, &most);
    v->whole =
        !(most - least >= LP_CPU_INDEX_MIN_RANGE && least >= -FLT_MAX / 4 && most <= FLT_MAX / 4);
    if (v->whole) return;
    lp_cpu_index_bounds(scores, n, op->top_k, least, most, &low, &high);
    v->whole =
        !job->sieve->split(scores, n, low - error, high + error, op->ids + query * op->ids_stride,
                           &v->n_sure, op->top_k, v->open, &v->n_open, max_open(job->n_context)) ||
        v->n_sure + v->n_open < op->top_k;
}

static void run_bounds(void *job_, int worker, int n_workers) {
    (void)worker, (void)n_workers;
    struct index_job *job = job_;
    for (size_t task; lp_cpu_next(&job->next, job->n_tasks, &task);)
        find_bounds(job, job->first + (int64_t)task);
}

// ---- stage 3

// Numbers the tasks of all queries of the tile; returns how many there are.
static size_t count_exact_tasks(const struct index_job *job) {
    size_t n = 0;
    for (int64_t query = job->first; query < job->end; query++) {
        struct verdict *v = verdict_of(job, query);
        int64_t n_keys = v->whole ? job->op->first_pos + query + 1 : v->n_open;
        v->first_task = n;
        n += (size_t)((n_keys + LP_CPU_KEY_BLOCK - 1) / LP_CPU_KEY_BLOCK);
    }
    return n;
}

static void run_exact(void *job_, int worker, int n_workers) {
    (void)n_workers;
    struct index_job *job = job_;
    struct worker_scratch w;
    cut_worker(&w, job->scratch + (size_t)worker * job->worker_bytes, job->op->width);
    int64_t query = job->first;
    for (size_t task; lp_cpu_next(&job->next, job->n_tasks, &task);) {
        while (query + 1 < job->end && verdict_of(job, query + 1)->first_task <= task) query++;
        const struct verdict *v = verdict_of(job, query);
        int64_t at = (int64_t)(task - v->first_task) * LP_CPU_KEY_BLOCK;
        int64_t left = (v->whole ? job->op->first_pos + query + 1 : v->n_open) - at;
        int n = left < LP_CPU_KEY_BLOCK ? (int)left : LP_CPU_KEY_BLOCK;
        load_keys(job, &w, v->whole ? NULL : v->open + at, at, n);
        turn_keys(job, &w, n);
        score_exactly(job, &w, query, n, (v->whole ? scores_of(job, query) : v->exact) + at);
    }
}

// ---- stage 4

static void choose(const struct index_job *job, int64_t query) {
    const struct lp_op_index_select *op = job->op;
    struct verdict *v = verdict_of(job, query);
    int32_t *ids = op->ids + query * op->ids_stride;
    op->counts[query] = op->top_k;
    if (!job->sieve || v->whole) {
        lp_cpu_index_best(scores_of(job, query), op->first_pos + query + 1, op->top_k, ids);
        return;
    }
    int64_t wanted = op->top_k - v->n_sure;
    if (wanted < v->n_open) { // the best of the open ones, in place: chosen[i] >= i
        int32_t *chosen = (int32_t *)(void *)scores_of(job, query); // no longer needed
        lp_cpu_index_best(v->exact, v->n_open, wanted, chosen);
        for (int64_t i = 0; i < wanted; i++) v->open[i] = v->open[chosen[i]];
    }
    lp_cpu_index_merge(ids, v->n_sure, v->open, wanted);
}

static void run_choice(void *job_, int worker, int n_workers) {
    (void)worker, (void)n_workers;
    struct index_job *job = job_;
    for (size_t task; lp_cpu_next(&job->next, job->n_tasks, &task);)
        choose(job, job->first + (int64_t)task);
}

// ---- the operation

// Queries that see no more than top_k keys keep them all; returns how many these are.
static int64_t keep_all(const struct lp_op_index_select *op) {
    int64_t query = 0;
    for (; query < op->n_queries && op->first_pos + query + 1 <= op->top_k; query++) {
        int32_t *ids = op->ids + query * op->ids_stride, n = (int32_t)(op->first_pos + query + 1);
        for (int32_t i = 0; i < op->top_k && i < op->ids_stride; i++) ids[i] = i < n ? i : -1;
        op->counts[query] = n;
    }
    return query;
}

static void run_stage(struct lp_cpu_device *dev, struct index_job *job, lp_worker_fn fn,
                      size_t n_tasks, int64_t n_ops) {
    atomic_store(&job->next, 0);
    job->n_tasks = n_tasks;
    lp_cpu_run(dev, n_ops, fn, job);
}

static void run_tile(struct lp_cpu_device *dev, struct index_job *job) {
    const struct lp_op_index_select *op = job->op;
    const int64_t n_queries = job->end - job->first, n_keys = op->first_pos + job->end,
                  key_ops = (int64_t)op->n_heads * op->width;
    const int64_t n_blocks = (n_keys + LP_CPU_KEY_BLOCK - 1) / LP_CPU_KEY_BLOCK;
    job->run = n_blocks / (4 * dev->n_workers);
    job->run = job->run < 1 ? 1 : job->run > RUN_BLOCKS ? RUN_BLOCKS : job->run;
    if (job->sieve) pack_queries(job);
    run_stage(dev, job, run_scores, (size_t)((n_blocks + job->run - 1) / job->run),
              n_queries * n_keys * key_ops);
    if (job->sieve) {
        run_stage(dev, job, run_bounds, (size_t)n_queries, n_queries * n_keys * 4);
        size_t n_exact = count_exact_tasks(job);
        run_stage(dev, job, run_exact, n_exact, (int64_t)n_exact * LP_CPU_KEY_BLOCK * key_ops);
    }
    run_stage(dev, job, run_choice, (size_t)n_queries, n_queries * op->top_k * 8);
}

size_t lp_cpu_index_page_extra(const struct lp_device *device, int32_t width, int32_t page_tokens) {
    const struct lp_cpu_device *dev = (const struct lp_cpu_device *)device;
    const bool fits = width <= MAX_KEPT_WIDTH && page_tokens == LP_CPU_SIEVE_KEYS;
    return dev->sieve && fits ? lp_cpu_sieve_block_bytes(width) : 0;
}

void lp_cpu_index_keep(struct lp_cpu_device *dev, const struct lp_cache_view *keys, int64_t pos) {
    float row[MAX_KEPT_WIDTH];
    const int64_t slot = pos + keys->slot_offset;
    const struct lp_cpu_sieve_block block = block_of_page(keys, slot / keys->page_tokens);
    lp_cpu_cache_load(dev->lanes, keys, lp_cpu_cache_row(keys, pos), row);
    memset(row + keys->width, 0,
           (size_t)(lp_cpu_sieve_width(keys->width) - keys->width) * sizeof *row);
    dev->sieve->pack_key(row, (int)(slot % keys->page_tokens), keys->width, &block);
}

void lp_cpu_index_select(struct lp_device *device, const struct lp_op_index_select *op) {
    struct lp_cpu_device *dev = lp_cpu_device(device);
    struct worker_scratch w;
    struct index_job job = {
        .op = op, .lanes = dev->lanes, .sieve = dev->sieve, .scratch = (char *)dev->attn_scratch};
    int64_t query = keep_all(op);
    if (query == op->n_queries) return;
    job.worker_bytes = cut_worker(&w, NULL, op->width);
    size_t workers_bytes = (size_t)dev->n_workers * job.worker_bytes;
    int64_t tile = tile_queries(op->n_queries - query, dev->n_workers),
            n_context = op->first_pos + op->n_queries;
    job.n_context = n_context;
    job.ld_scores = lp_cpu_ld(n_context);
    size_t shared = cut_shared(&job.s, (char *)dev->attn_scratch + workers_bytes, tile, n_context,
                               op->n_heads, op->width);
    assert(workers_bytes + shared <= dev->attn_scratch_bytes);
    (void)shared;
    for (; query < op->n_queries; query += tile) {
        job.first = query;
        job.end = query + tile < op->n_queries ? query + tile : op->n_queries;
        run_tile(dev, &job);
    }
}
