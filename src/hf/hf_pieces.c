#include "hf/hf_pieces.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/workers.h"

#define PIECE_VALUES (1 << 20)

static int64_t piece_rows(const struct lp_hf_tensor *t) {
    int64_t unit = t->make == LP_HF_MAKE_K_B ? (int64_t)t->ne[1] : 1; // whole heads
    int64_t rows = PIECE_VALUES / (int64_t)t->ne[0] / unit * unit;
    return rows > unit ? rows : unit;
}

static uint64_t count(const struct lp_hf_tensor *t) {
    int64_t rows = piece_rows(t);
    return (uint64_t)((lp_hf_n_rows(t) + rows - 1) / rows);
}

lp_status lp_hf_pieces_make(struct lp_hf_piece **out, uint64_t *n, uint64_t *max_values,
                            const struct lp_hf_plan *plan, const bool *chosen, struct lp_err *err) {
    uint64_t total = 0;
    *n = *max_values = 0;
    for (uint64_t i = 0; i < plan->n_tensors; i++)
        if (!chosen || chosen[i]) total += count(&plan->tensors[i]);
    if (!(*out = lp_alloc((size_t)total, sizeof **out)))
        return lp_err_memory(err, (size_t)total * sizeof **out, "the pieces of tensors");
    for (uint64_t i = 0; i < plan->n_tensors; i++) {
        const struct lp_hf_tensor *t = &plan->tensors[i];
        int64_t rows = piece_rows(t), n_rows = lp_hf_n_rows(t);
        if (chosen && !chosen[i]) continue;
        for (int64_t first = 0; first < n_rows; first += rows) {
            int64_t left = n_rows - first;
            struct lp_hf_piece piece = {i, first, left < rows ? left : rows, left <= rows};
            uint64_t values = (uint64_t)piece.n * t->ne[0];
            if (values > *max_values) *max_values = values;
            (*out)[(*n)++] = piece;
        }
    }
    return LP_OK;
}

// ---- running

struct run {
    const struct lp_hf_work *work;
    const struct lp_hf_piece *pieces;
    uint64_t n;
    atomic_ullong next;
    atomic_bool over;
    struct lp_err *errors; // [workers], status OK where none failed
};

static void work_on(void *job, int worker, int n_workers) {
    struct run *run = job;
    (void)n_workers;
    while (!atomic_load(&run->over)) {
        unsigned long long at = atomic_fetch_add(&run->next, 1);
        if (at >= run->n) return;
        if (run->work->fn(run->work->data, worker, &run->pieces[at], &run->errors[worker]))
            atomic_store(&run->over, true);
    }
}

int lp_hf_n_threads(int n_threads) {
    return n_threads > 0 ? n_threads : lp_cpu_count();
}

lp_status lp_hf_pieces_run(const struct lp_hf_work *work, const struct lp_hf_piece *pieces,
                           uint64_t n, struct lp_err *err) {
    struct lp_workers *workers = NULL;
    lp_status status = lp_workers_new(&workers, lp_hf_n_threads(work->n_threads), err);
    if (status) return status;
    int n_workers = lp_workers_count(workers);
    struct run run = {.work = work, .pieces = pieces, .n = n};
    run.errors = lp_alloc((size_t)n_workers, sizeof *run.errors);
    if (run.errors)
        lp_workers_run(workers, work_on, &run);
    else
        status = lp_err_memory(err, (size_t)n_workers * sizeof *run.errors, "threads");
    for (int i = 0; i < n_workers && !status; i++)
        if (run.errors[i].status)
            status = lp_err_set(err, run.errors[i].status, "%s", run.errors[i].text);
    lp_free(run.errors);
    lp_workers_free(workers);
    return status;
}
