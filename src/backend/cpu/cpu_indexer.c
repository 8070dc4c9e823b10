// The lightning indexer on the CPU: scores of a tile of queries against all keys, then the top-k of
// each. Scores: a task is a block of keys, converted to float32 and transposed once, taken by all
// heads of all queries of the tile. Selection: a task is a query; the k-th largest score is found
// by three passes of histograms over the scores' bits, so the keys are never sorted.
//
// A score is one chain of float32 fused multiply-adds over the width, then one over the heads: the
// same bits for any tile, block or number of threads.
#include "backend/cpu/cpu_attn.h"

#include <math.h>
#include <string.h>

#define HEAD_BLOCK 64
#define TILE 16 // queries whose scores are kept at a time; more with more workers

struct worker_scratch {
    float *rows;   // [LP_CPU_KEY_BLOCK, width]
    float *keys_t; // [width, LP_CPU_KEY_BLOCK]
    float *dots;   // [HEAD_BLOCK, LP_CPU_KEY_BLOCK]
};

struct index_job {
    const struct lp_op_index_select *op;
    const struct lp_cpu_lanes *lanes;
    char *scratch;
    size_t worker_bytes;
    int64_t first, end; // queries of the tile
    float *scores;      // [end - first, ld_scores]
    int64_t ld_scores;
    size_t n_tasks;
    atomic_size_t next;
};

static size_t cut_worker(struct worker_scratch *w, char *base, int64_t width) {
    struct lp_cpu_cut cut = {base, 0};
    w->rows = lp_cpu_cut_floats(&cut, LP_CPU_KEY_BLOCK * lp_cpu_ld(width));
    w->keys_t = lp_cpu_cut_floats(&cut, width * lp_cpu_ld(LP_CPU_KEY_BLOCK));
    w->dots = lp_cpu_cut_floats(&cut, HEAD_BLOCK * lp_cpu_ld(LP_CPU_KEY_BLOCK));
    return cut.used;
}

static int64_t tile_queries(int64_t n_queries, int n_workers) {
    int64_t tile = n_workers > TILE ? n_workers : TILE;
    return n_queries < tile ? n_queries : tile;
}

size_t lp_cpu_index_scratch(const struct lp_reserve *need, int n_workers) {
    struct worker_scratch w;
    struct lp_cpu_cut cut = {0};
    if (need->index_width == 0) return 0;
    lp_cpu_cut(&cut, n_workers, cut_worker(&w, NULL, need->index_width));
    lp_cpu_cut(&cut, tile_queries(need->n_rows, n_workers),
               (size_t)lp_cpu_ld(need->n_context) * sizeof(float));
    return cut.used;
}

static void score_block(const struct index_job *job, struct worker_scratch *w, int64_t key) {
    const struct lp_op_index_select *op = job->op;
    const struct lp_cpu_lanes *lanes = job->lanes;
    int64_t n_all = op->first_pos + job->end, ld = lp_cpu_ld(op->width),
            ld_keys = lp_cpu_ld(LP_CPU_KEY_BLOCK);
    int n_keys = n_all - key < LP_CPU_KEY_BLOCK ? (int)(n_all - key) : LP_CPU_KEY_BLOCK;
    for (int i = 0; i < n_keys; i++)
        lanes->load(op->keys->type, lp_cpu_cache_row(op->keys, key + i), w->rows + i * ld,
                    (size_t)op->width);
    lanes->transpose(n_keys, op->width, w->rows, ld, w->keys_t, ld_keys);
    for (int64_t query = job->first; query < job->end; query++) {
        if (op->first_pos + query < key) continue;
        float *scores = job->scores + (query - job->first) * job->ld_scores + key;
        memset(scores, 0, (size_t)n_keys * sizeof *scores);
        for (int32_t head = 0; head < op->n_heads; head += HEAD_BLOCK) {
            int n_heads = op->n_heads - head < HEAD_BLOCK ? op->n_heads - head : HEAD_BLOCK;
            lanes->mul_nn(n_heads, n_keys, op->width,
                          op->q + query * op->q_stride + (int64_t)head * op->width, op->width,
                          w->keys_t, ld_keys, w->dots, ld_keys, false);
            lanes->relu_sum(n_heads, n_keys, w->dots, ld_keys, op->w + query * op->w_stride + head,
                            scores);
        }
        lanes->scale(scores, (size_t)n_keys, op->scale);
    }
}

static void run_scores(void *job_, int worker, int n_workers) {
    (void)n_workers;
    struct index_job *job = job_;
    struct worker_scratch w;
    cut_worker(&w, job->scratch + (size_t)worker * job->worker_bytes, job->op->width);
    for (size_t task; lp_cpu_next(&job->next, job->n_tasks, &task);)
        score_block(job, &w, (int64_t)task * LP_CPU_KEY_BLOCK);
}

// A score as an integer of the same order: -inf .. -0 = 0 .. +inf, then NaN.
static uint32_t rank_of(float score) {
    uint32_t bits;
    if (isnan(score)) return UINT32_MAX;
    score += 0.0f; // -0 becomes 0: they are equal
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The k-th largest rank of n > k scores; *n_equal = how many of that rank are among the k.
static uint32_t find_threshold(const float *scores, int64_t n, int64_t k, int64_t *n_equal) {
    static const int shifts[] = {21, 10, 0}, widths[] = {11, 11, 10};
    uint32_t known = 0, known_mask = 0;
    int64_t left = k;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t counts[2048] = {0}, digit_mask = (1u << widths[pass]) - 1, digit = digit_mask;
        for (int64_t i = 0; i < n; i++) {
            uint32_t rank = rank_of(scores[i]);
            if ((rank & known_mask) == known) counts[(rank >> shifts[pass]) & digit_mask]++;
        }
        for (; counts[digit] < left; digit--) left -= counts[digit];
        known |= digit << shifts[pass];
        known_mask |= digit_mask << shifts[pass];
    }
    *n_equal = left;
    return known;
}

static void select_best(const float *scores, int64_t n, int64_t k, int32_t *ids) {
    int64_t n_equal, n_ids = 0;
    uint32_t threshold = find_threshold(scores, n, k, &n_equal);
    for (int64_t i = 0; i < n && n_ids < k; i++) {
        uint32_t rank = rank_of(scores[i]);
        if (rank > threshold || (rank == threshold && n_equal-- > 0)) ids[n_ids++] = (int32_t)i;
    }
}

static void run_selection(void *job_, int worker, int n_workers) {
    (void)worker, (void)n_workers;
    struct index_job *job = job_;
    const struct lp_op_index_select *op = job->op;
    for (size_t task; lp_cpu_next(&job->next, job->n_tasks, &task);) {
        int64_t query = job->first + (int64_t)task, n = op->first_pos + query + 1;
        select_best(job->scores + (int64_t)task * job->ld_scores, n, op->top_k,
                    op->ids + query * op->ids_stride);
        op->counts[query] = op->top_k;
    }
}

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

void lp_cpu_index_select(struct lp_device *device, const struct lp_op_index_select *op) {
    struct lp_cpu_device *dev = lp_cpu_device(device);
    struct worker_scratch w;
    struct index_job job = {.op = op, .lanes = dev->lanes, .scratch = (char *)dev->attn_scratch};
    int64_t query = keep_all(op);
    if (query == op->n_queries) return;
    job.worker_bytes = cut_worker(&w, NULL, op->width);
    size_t workers_bytes = (size_t)dev->n_workers * job.worker_bytes;
    int64_t tile = tile_queries(op->n_queries - query, dev->n_workers);
    job.ld_scores = lp_cpu_ld(op->first_pos + op->n_queries);
    job.scores = (float *)(void *)(dev->attn_scratch + workers_bytes);
    assert(workers_bytes + (size_t)(tile * job.ld_scores) * sizeof(float) <=
           dev->attn_scratch_bytes);
    for (; query < op->n_queries; query += tile) {
        job.first = query;
        job.end = query + tile < op->n_queries ? query + tile : op->n_queries;
        atomic_store(&job.next, 0);
        job.n_tasks = (size_t)((op->first_pos + job.end + LP_CPU_KEY_BLOCK - 1) / LP_CPU_KEY_BLOCK);
        int64_t n_keys = op->first_pos + job.end, n_queries = job.end - job.first;
        lp_cpu_run(dev, n_queries * n_keys * op->n_heads * op->width, run_scores, &job);
        atomic_store(&job.next, 0);
        job.n_tasks = (size_t)n_queries;
        lp_cpu_run(dev, n_queries * n_keys * 8, run_selection, &job);
    }
}
