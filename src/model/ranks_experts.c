#include "model/ranks_experts.h"

#include <string.h>

#include "base/alloc.h"
#include "model/runner.h"
#include "model/shard.h"

static int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void note_ranks(const struct lp_model *m, int32_t *rank_of) {
    for (int32_t rank = 0; rank < m->part.n_tensor; rank++) {
        const struct lp_range range = lp_shard_experts_of(m, rank);
        for (int64_t e = range.first; e < range.first + range.n; e++) rank_of[e] = rank;
    }
}

lp_status lp_ranks_experts_init(struct lp_runner *r, struct lp_err *err) {
    struct lp_ranks_experts *e = &r->ranks.experts;
    const struct lp_model *m = r->model;
    if (!m->part.sends_rows) return LP_OK;
    const int64_t most = min_i64(m->part.n_tensor, m->h.n_used);
    const size_t rows = (size_t)r->max_rows, n_embd = (size_t)m->h.n_embd,
                 n_used = (size_t)m->h.n_used, size = (size_t)m->part.n_tensor;
    e->rank_of = lp_alloc((size_t)m->h.n_experts, sizeof *e->rank_of);
    e->choices = lp_alloc(rows * 2 * n_used, sizeof *e->choices);
    e->away = lp_alloc(rows * (size_t)most * n_embd, sizeof *e->away);
    e->x = lp_alloc(rows * n_embd, sizeof *e->x);
    e->y = lp_alloc(rows * n_embd, sizeof *e->y);
    e->ids = lp_alloc(rows * n_used, sizeof *e->ids);
    e->weights = lp_alloc(rows * n_used, sizeof *e->weights);
    e->n_out = lp_alloc(size, sizeof *e->n_out);
    e->n_in = lp_alloc(size, sizeof *e->n_in);
    if (!e->rank_of || !e->choices || !e->away || !e->x || !e->y || !e->ids || !e->weights ||
        !e->n_out || !e->n_in)
        return lp_err_memory(err, rows * (size_t)(most + 2) * n_embd * sizeof(float),
                             "the rows that go to the ranks of their experts");
    note_ranks(m, e->rank_of);
    return LP_OK;
}

void lp_ranks_experts_release(struct lp_ranks_experts *e) {
    lp_free(e->rank_of);
    lp_free(e->choices);
    lp_free(e->away);
    lp_free(e->x);
    lp_free(e->y);
    lp_free(e->ids);
    lp_free(e->weights);
    lp_free(e->n_out);
    lp_free(e->n_in);
}

// ---- choices

static const int32_t *choice(const struct lp_runner *r, int64_t row) {
    return r->ranks.experts.choices + row * 2 * r->model->h.n_used;
}

// Whether a row of the step has an expert on a rank.
static bool goes_to(const struct lp_runner *r, int64_t row, int32_t rank) {
    const int32_t *ids = choice(r, row);
    for (int32_t j = 0; j < r->model->h.n_used; j++)
        if (r->ranks.experts.rank_of[ids[j]] == rank) return true;
    return false;
}

static int64_t rows_of(const struct lp_runner *r, int32_t rank) {
    return (int64_t)r->ranks.gathered[rank] / r->model->h.n_embd;
}

// The own rows' to all. How many rows there are; -1: a choice names no expert, and the ranks have failed.
static int64_t share_choices(struct lp_runner *r, int64_t n_own) {
    struct lp_ranks_experts *e = &r->ranks.experts;
    const struct lp_hparams *h = &r->model->h;
    const size_t n_used = (size_t)h->n_used, n_bytes = n_used * sizeof(int32_t);
    int32_t *own = e->choices + r->ranks.own_rows.first * 2 * h->n_used;
    int64_t n_rows = 0;
    for (int64_t t = 0; t < n_own; t++, own += 2 * n_used) {
        memcpy(own, r->expert_ids + t * h->n_used, n_bytes);
        memcpy(own + n_used, r->expert_weights + t * h->n_used, n_bytes);
    }
    for (int32_t i = 0; i < r->model->part.n_tensor; i++) {
        e->n_in[i] = (size_t)rows_of(r, i) * 2 * n_used;
        n_rows += rows_of(r, i);
    }
    lp_comm_gather(r->model->neighbours, (float *)(void *)e->choices, e->n_in);
    if (lp_comm_failed(r->model->ranks, NULL)) return -1;
    for (int64_t t = 0; t < n_rows; t++) {
        const int32_t *ids = choice(r, t);
        for (int32_t j = 0; j < h->n_used; j++) {
            if (ids[j] >= 0 && ids[j] < h->n_experts) continue;
            struct lp_err err;
            lp_err_set(&err, LP_STATUS_IO,
                       "row %lld of a step has expert %d in its choice, the model has %d: a rank "
                       "computes wrong, or its memory is at fault",
                       (long long)t, ids[j], h->n_experts);
            lp_comm_fail(r->model->ranks, &err);
            return -1;
        }
        memcpy(r->expert_ids + t * h->n_used, ids, n_bytes);
    }
    return n_rows;
}

// ---- rows

// The own rows for each rank, one rank's behind the other's.
static void pack_rows(struct lp_runner *r, int64_t n_own) {
    struct lp_ranks_experts *e = &r->ranks.experts;
    const int64_t n_embd = r->model->h.n_embd, first = r->ranks.own_rows.first;
    float *to = e->away;
    for (int32_t rank = 0; rank < r->model->part.n_tensor; rank++) {
        const float *begin = to;
        for (int64_t t = 0; t < n_own; t++) {
            if (!goes_to(r, first + t, rank)) continue;
            memcpy(to, r->x + t * n_embd, (size_t)n_embd * sizeof *to);
            to += n_embd;
        }
        e->n_out[rank] = (size_t)(to - begin);
        if (rank != r->model->part.tensor) r->ranks.rows_sent += e->n_out[rank] / (size_t)n_embd;
    }
}

// The choices of the rows that come, in their order: by rank, then by row.
static void expect_rows(struct lp_runner *r) {
    struct lp_ranks_experts *e = &r->ranks.experts;
    const int32_t n_used = r->model->h.n_used;
    const size_t n_bytes = (size_t)n_used * sizeof(int32_t);
    int64_t row = 0;
    e->n_here = 0;
    for (int32_t rank = 0; rank < r->model->part.n_tensor; rank++) {
        const int64_t before = e->n_here, end = row + rows_of(r, rank);
        for (; row < end; row++) {
            if (!goes_to(r, row, r->model->part.tensor)) continue;
            memcpy(e->ids + e->n_here * n_used, choice(r, row), n_bytes);
            memcpy(e->weights + e->n_here * n_used, choice(r, row) + n_used, n_bytes);
            e->n_here++;
        }
        e->n_in[rank] = (size_t)((e->n_here - before) * r->model->h.n_embd);
    }
}

struct lp_expert_rows lp_ranks_send_rows(struct lp_runner *r, int64_t n_own, int64_t *n_rows,
                                         struct lp_step_clock *clock) {
    struct lp_ranks_experts *e = &r->ranks.experts;
    e->n_here = 0;
    *n_rows = share_choices(r, n_own);
    if (*n_rows < 0) return (struct lp_expert_rows){.n_rows = 0};
    pack_rows(r, n_own);
    expect_rows(r);
    lp_comm_exchange(r->model->neighbours, e->away, e->n_out, e->x, e->n_in);
    if (lp_comm_failed(r->model->ranks, NULL)) { // what came means nothing
        *n_rows = -1;
        return (struct lp_expert_rows){.n_rows = 0};
    }
    memset(e->y, 0, (size_t)(e->n_here * r->model->h.n_embd) * sizeof *e->y);
    lp_step_lap(clock, LP_STEP_PART_RANKS);
    return (struct lp_expert_rows){
        .x = e->x, .ids = e->ids, .weights = e->weights, .y = e->y, .n_rows = e->n_here};
}

void lp_ranks_add_sums(struct lp_runner *r, int64_t n_own, struct lp_step_clock *clock) {
    struct lp_ranks_experts *e = &r->ranks.experts;
    const int64_t n_embd = r->model->h.n_embd, first = r->ranks.own_rows.first;
    lp_comm_exchange(r->model->neighbours, e->y, e->n_in, e->away, e->n_out);
    if (lp_comm_failed(r->model->ranks, NULL)) return; // what came means nothing
    const float *sum = e->away;
    for (int32_t rank = 0; rank < r->model->part.n_tensor; rank++)
        for (int64_t t = 0; t < n_own; t++) {
            if (!goes_to(r, first + t, rank)) continue;
            float *h = r->h + t * n_embd;
            for (int64_t i = 0; i < n_embd; i++) h[i] += sum[i];
            sum += n_embd;
        }
    lp_step_lap(clock, LP_STEP_PART_RANKS);
}
