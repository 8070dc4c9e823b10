#include "files/quantize_file.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/progress.h"
#include "base/workers.h"
#include "files/finite.h"
#include "files/new_file.h"

#define FORGET_PIECES 16 // of a tensor

struct piece {
    uint64_t item, first, n, number; // rows of an item; number: of all pieces
};

struct buffers {
    float *values, *importance;
    uint8_t *stored, *blocks;
};

struct sizes { // of one thread's buffers, in bytes
    uint64_t values, importance, stored, blocks;
};

struct job {
    const struct lp_quant_plan *plan;
    struct lp_new_file *file;
    struct buffers *buffers; // one for each worker
    struct lp_progress bar;
    pthread_mutex_t lock;
    struct piece next;    // under lock, all of these
    uint64_t n_done;      // bytes of the source
    uint64_t failed;      // number of the first piece that failed, or UINT64_MAX
    struct lp_err *error; // what is wrong with it
};

static uint64_t piece_rows(const struct lp_quant_item *item) {
    uint64_t rows = LP_QUANTIZE_PIECE_VALUES / item->tensor->ne[0];
    if (rows > item->tensor->n_rows) rows = item->tensor->n_rows;
    return rows ? rows : 1;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static struct sizes sizes_of(const struct lp_quant_plan *plan) {
    struct sizes s = {0};
    for (uint64_t i = 0; i < plan->n_items; i++) {
        const struct lp_quant_item *item = &plan->items[i];
        const struct lp_source_tensor *t = item->tensor;
        uint64_t rows = piece_rows(item);
        s.stored = larger(s.stored, rows * t->row_bytes);
        if (item->copied) continue;
        s.values = larger(s.values, rows * t->ne[0] * sizeof(float));
        s.importance = larger(s.importance, t->ne[0] * sizeof(float));
        s.blocks = larger(s.blocks, rows * (item->n_bytes / t->n_rows));
    }
    return s;
}

uint64_t lp_quantize_buffer_bytes(const struct lp_quant_plan *plan, int n_threads) {
    struct sizes s = sizes_of(plan);
    uint64_t n = (uint64_t)(n_threads ? n_threads : lp_cpu_count());
    return n * (s.values + s.importance + s.stored + s.blocks);
}

// ---- one piece

// Rows of one matrix share its importances.
static bool quantize(const struct lp_quant_item *item, const struct piece *p,
                     const struct buffers *b) {
    const struct lp_source_tensor *t = item->tensor;
    uint64_t n_in = t->ne[0], n_mats = t->ne[2] * t->ne[3], row_bytes = item->n_bytes / t->n_rows;
    for (uint64_t r = 0, n; r < p->n; r += n) {
        uint64_t mat = (p->first + r) / t->ne[1];
        n = (mat + 1) * t->ne[1] - (p->first + r);
        if (n > p->n - r) n = p->n - r;
        bool known = item->importance &&
                     lp_imatrix_means(item->importance, n_in, n_mats, mat, b->importance);
        if (!lp_quantize_rows(item->to, b->values + r * n_in, b->blocks + r * row_bytes, (int64_t)n,
                              (int64_t)n_in, known ? b->importance : NULL))
            return false;
    }
    return true;
}

static lp_status copy_piece(const struct job *job, const struct piece *p, const struct buffers *b,
                            uint64_t offset, struct lp_err *err) {
    const struct lp_quant_item *item = &job->plan->items[p->item];
    const struct lp_source_tensor *t = item->tensor;
    lp_status status = lp_source_pack(&job->plan->source, t, p->first, p->n, b->stored, err);
    if (status) return status;
    status = lp_finite_check_stored(t->name, t->type, b->stored, p->first, p->n, t->ne[0], err);
    if (status) return status;
    return lp_new_file_write(job->file, offset, b->stored, p->n * t->row_bytes, err);
}

// Of finite values: what is too large for F16, or makes a scale that is.
static lp_status check_blocks(const struct lp_quant_item *item, const struct piece *p,
                              const uint8_t *blocks, struct lp_err *err) {
    const struct lp_source_tensor *t = item->tensor;
    const struct lp_type_info *to = lp_type_info((uint32_t)item->to);
    int64_t bad = lp_type_find_nonfinite(item->to, blocks, (size_t)(p->n * t->ne[0]));
    if (bad < 0) return LP_OK;
    uint64_t at = (uint64_t)bad * to->block_values;
    return lp_err_set(err, LP_STATUS_NUMERIC,
                      "tensor %.*s holds values that are too large for %s, in row %llu from column "
                      "%llu; give it BF16 or F32 with --rules",
                      LP_STR_ARGS(t->name), to->name,
                      (unsigned long long)(p->first + at / t->ne[0]),
                      (unsigned long long)(at % t->ne[0]));
}

static lp_status quantize_piece(const struct job *job, const struct piece *p,
                                const struct buffers *b, struct lp_err *err) {
    const struct lp_quant_item *item = &job->plan->items[p->item];
    const struct lp_source_tensor *t = item->tensor;
    uint64_t row_bytes = item->n_bytes / t->n_rows;
    uint64_t offset =
        lp_gguf_writer_offset(job->plan->source.writer, p->item) + p->first * row_bytes;
    if (item->copied) return copy_piece(job, p, b, offset, err);
    lp_status status =
        lp_source_rows(&job->plan->source, t, p->first, p->n, b->values, b->stored, err);
    if (!status) status = lp_finite_check_rows(t->name, b->values, p->first, p->n, t->ne[0], err);
    if (status) return status;
    if (!quantize(item, p, b))
        return lp_err_set(err, LP_STATUS_UNSUPPORTED, "%s cannot be written",
                          lp_type_info((uint32_t)item->to)->name);
    status = check_blocks(item, p, b->blocks, err);
    if (status) return status;
    return lp_new_file_write(job->file, offset, b->blocks, p->n * row_bytes, err);
}

// ---- all of them

// Pieces are taken in the order of the file; none after one that failed.
static bool take(struct job *job, struct piece *p) {
    pthread_mutex_lock(&job->lock);
    bool more = job->next.item < job->plan->n_items && job->failed == UINT64_MAX;
    if (more) {
        const struct lp_quant_item *item = &job->plan->items[job->next.item];
        uint64_t rows = piece_rows(item), left = item->tensor->n_rows - job->next.first;
        job->next.n = rows < left ? rows : left;
        *p = job->next;
        job->next.number++;
        job->next.first += p->n;
        if (job->next.first == item->tensor->n_rows) {
            job->next.item++;
            job->next.first = 0;
        }
    }
    pthread_mutex_unlock(&job->lock);
    return more;
}

// The first piece in the file that is at fault is told of, whichever thread met it.
static void done(struct job *job, const struct piece *p, lp_status status, const struct lp_err *err,
                 bool draws) {
    pthread_mutex_lock(&job->lock);
    job->n_done += p->n * job->plan->items[p->item].tensor->row_bytes;
    if (status && p->number < job->failed) {
        job->failed = p->number;
        *job->error = *err;
    }
    uint64_t n_done = job->n_done;
    pthread_mutex_unlock(&job->lock);
    if (draws) lp_progress_update(&job->bar, n_done);
}

// A stack of experts may be larger than memory: its pages are dropped now and then, too.
static bool is_time_to_forget(const struct job *job, const struct piece *p) {
    bool is_last = p->first + p->n == job->plan->items[p->item].tensor->n_rows;
    return is_last || p->first / p->n % FORGET_PIECES == FORGET_PIECES - 1;
}

static void work(void *user, int worker, int n_workers) {
    struct job *job = user;
    struct piece p;
    (void)n_workers;
    while (take(job, &p)) {
        struct lp_err err = {0};
        lp_status status = quantize_piece(job, &p, &job->buffers[worker], &err);
        if (is_time_to_forget(job, &p))
            lp_source_forget(&job->plan->source, job->plan->items[p.item].tensor);
        done(job, &p, status, &err, worker == 0);
    }
}

static lp_status new_buffers(struct job *job, int n, struct lp_err *err) {
    struct sizes s = sizes_of(job->plan);
    job->buffers = lp_alloc((size_t)n, sizeof *job->buffers);
    bool ok = job->buffers != NULL;
    for (int i = 0; i < n && ok; i++) {
        struct buffers *b = &job->buffers[i];
        b->values = lp_alloc_aligned(s.values, 1);
        b->importance = lp_alloc_aligned(s.importance, 1);
        b->stored = lp_alloc_aligned(s.stored, 1);
        b->blocks = lp_alloc_aligned(s.blocks, 1);
        ok = b->values && b->importance && b->stored && b->blocks;
    }
    return ok ? LP_OK
              : lp_err_memory(err, lp_quantize_buffer_bytes(job->plan, n),
                              "the threads' buffers; --threads takes fewer");
}

static void free_buffers(struct job *job, int n) {
    for (int i = 0; i < n && job->buffers; i++) {
        lp_free(job->buffers[i].values);
        lp_free(job->buffers[i].importance);
        lp_free(job->buffers[i].stored);
        lp_free(job->buffers[i].blocks);
    }
    lp_free(job->buffers);
}

// The header, and zeros behind each tensor.
static lp_status write_frame(const struct job *job, struct lp_err *err) {
    static const uint8_t zeros[4096];
    const struct lp_gguf_writer *w = job->plan->source.writer;
    struct lp_str header = lp_gguf_writer_header(w);
    lp_status status = lp_new_file_write(job->file, 0, header.data, header.len, err);
    uint64_t n = lp_gguf_writer_n_tensors(w);
    for (uint64_t i = 0; i < n && !status; i++) {
        uint64_t at = lp_gguf_writer_offset(w, i) + lp_gguf_writer_bytes(w, i);
        uint64_t end = i + 1 < n ? lp_gguf_writer_offset(w, i + 1) : lp_gguf_writer_total(w);
        for (uint64_t part; at < end && !status; at += part) {
            part = end - at < sizeof zeros ? end - at : sizeof zeros;
            status = lp_new_file_write(job->file, at, zeros, part, err);
        }
    }
    return status;
}

static lp_status run(struct job *job, struct lp_workers *workers, struct lp_err *err) {
    int n = lp_workers_count(workers);
    lp_status status = new_buffers(job, n, err);
    if (!status) status = write_frame(job, err);
    if (!status) {
        struct lp_err error = {0};
        job->error = &error;
        job->failed = UINT64_MAX;
        lp_progress_init(&job->bar, "quantising", job->plan->source.n_bytes);
        pthread_mutex_init(&job->lock, NULL);
        lp_workers_run(workers, work, job);
        pthread_mutex_destroy(&job->lock);
        lp_progress_finish(&job->bar);
        if (error.status) status = lp_err_set(err, error.status, "%s", error.text);
    }
    free_buffers(job, n);
    return status;
}

lp_status lp_quantize_file(const struct lp_quant_plan *plan, const char *path, int n_threads,
                           bool overwrite, struct lp_err *err) {
    struct job job = {.plan = plan};
    struct lp_workers *workers = NULL;
    lp_status status = lp_new_file_open(
        &job.file,
        &(struct lp_new_file_options){.path = path,
                                      .n_bytes = lp_gguf_writer_total(plan->source.writer),
                                      .inputs = plan->source.inputs,
                                      .n_inputs = plan->source.n_inputs,
                                      .overwrite = overwrite},
        NULL, err);
    if (status) return status;
    status = lp_workers_new(&workers, n_threads, err);
    if (!status) status = run(&job, workers, err);
    if (!status) status = lp_new_file_finish(job.file, err);
    lp_workers_free(workers);
    lp_new_file_close(job.file);
    return status;
}
