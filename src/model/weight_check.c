// The check at load: no NaN and no infinity in any float tensor or block scale. 8-bit rounding of
// activations can hide a NaN weight behind finite but wrong logits, so a file with one is refused
// here. Only scale fields of quantised blocks are read. Of a file above a given size only tensors
// of up to LARGE_BYTES are read whole, and of the others the first and the last row, so that
// opening it does not read hundreds of gigabytes; the log says so.
#include "model/model.h"

#include <stdatomic.h>

#include "base/log.h"
#include "base/progress.h"
#include "base/workers.h"

#define LARGE_BYTES ((uint64_t)8 << 20)
#define PIECE_BYTES ((uint64_t)4 << 20) // of one call of the scan

struct check_job {
    const struct lp_gguf *gguf;
    bool sample;
    _Atomic uint64_t next; // tensor to look at
    _Atomic uint64_t bad;  // lowest index of a bad tensor + 1; 0 = none
    _Atomic uint64_t done_bytes;
    struct lp_progress bar; // drawn by worker 0, the calling thread
};

static void report_bad(struct check_job *job, uint64_t tensor) {
    uint64_t old = atomic_load(&job->bad);
    while ((old == 0 || tensor + 1 < old) &&
           !atomic_compare_exchange_weak(&job->bad, &old, tensor + 1)) {
    }
}

// The number of the first value, in rows [first, first + n), that is NaN or infinite or whose
// block's scale is; -1: none found.
static int64_t scan_rows(const struct lp_gguf_tensor *t, uint64_t first, uint64_t n) {
    uint64_t row_bytes = 0, in_mat;
    if (!lp_type_row_bytes(t->type, t->ne[0], &row_bytes)) return -1; // checked by the reader
    uint64_t piece_rows = PIECE_BYTES / row_bytes ? PIECE_BYTES / row_bytes : 1;
    for (uint64_t r = first, take; r < first + n; r += take) {
        in_mat = r % t->ne[1];
        take = t->ne[1] - in_mat < piece_rows ? t->ne[1] - in_mat : piece_rows;
        if (take > first + n - r) take = first + n - r;
        const uint8_t *rows = lp_gguf_tensor_mat(t, r / t->ne[1]) + in_mat * row_bytes;
        int64_t at = lp_type_find_nonfinite(t->type, rows, (size_t)(take * t->ne[0]));
        uint64_t block_values = lp_type_info(t->type)->block_values;
        if (at >= 0) return (int64_t)(r * t->ne[0] + (uint64_t)at * block_values);
    }
    return -1;
}

static int64_t find_bad(const struct check_job *job, const struct lp_gguf_tensor *t) {
    uint64_t n_rows = t->ne[1] * t->ne[2] * t->ne[3];
    if (!lp_type_info(t->type)->is_weight) return -1;
    if (!job->sample || t->n_bytes <= LARGE_BYTES) return scan_rows(t, 0, n_rows);
    int64_t at = scan_rows(t, 0, 1);
    return at >= 0 ? at : scan_rows(t, n_rows - 1, 1);
}

static void check_worker(void *job_, int worker, int n_workers) {
    (void)n_workers;
    struct check_job *job = job_;
    uint64_t n = lp_gguf_n_tensors(job->gguf);
    for (uint64_t i; (i = atomic_fetch_add(&job->next, 1)) < n;) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(job->gguf, i);
        if (find_bad(job, t) >= 0) report_bad(job, i);
        uint64_t done = atomic_fetch_add(&job->done_bytes, t->n_bytes) + t->n_bytes;
        if (worker == 0) lp_progress_update(&job->bar, done);
    }
}

lp_status lp_model_check_weights(const struct lp_gguf *gguf, uint64_t whole_bytes, int n_threads,
                                 struct lp_err *err) {
    struct check_job job = {.gguf = gguf, .sample = lp_gguf_file_bytes(gguf) > whole_bytes};
    struct lp_workers *workers;
    lp_status status = lp_workers_new(&workers, n_threads, err);
    if (status) return status;
    lp_progress_init(&job.bar, "loading", lp_gguf_file_bytes(gguf));
    lp_workers_run(workers, check_worker, &job);
    lp_progress_finish(&job.bar);
    lp_workers_free(workers);
    if (job.sample)
        lp_log(LP_LOG_INFO,
               "weights: looked for NaN and infinity in tensors of up to %d MB, and in "
               "the first and last row of the larger ones",
               (int)(LARGE_BYTES >> 20));
    uint64_t bad = atomic_load(&job.bad);
    if (bad == 0) return LP_OK;
    const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, bad - 1);
    uint64_t value = (uint64_t)find_bad(&job, t); // found again, to name it
    return lp_err_set(
        err, LP_STATUS_FORMAT,
        "tensor %.*s holds NaN or infinity (%s near row %llu, column %llu); the file is damaged",
        LP_STR_ARGS(t->name), lp_type_info(t->type)->block_values > 1 ? "a block scale" : "a value",
        (unsigned long long)(value / t->ne[0]), (unsigned long long)(value % t->ne[0]));
}
