// The end of a step: logits, what the host wants to know of the rows, and its copies.
//
// On a device with memory of its own a row of logits is hundreds of kilobytes. There the device looks for
// numbers that are not finite and for the largest logits, and rows of which no more is wanted stay there.
#include <math.h>

#include "attention/attn_probe.h"
#include "model/runner.h"
#include "model/shard.h"

void lp_runner_head(struct lp_runner *r, const struct lp_weight *w, const float *x,
                    int64_t n_rows) {
    struct lp_device *dev = r->model->dev;
    if (r->model->ranks) {
        lp_ranks_head(r, w, x, n_rows);
        return;
    }
    dev->backend->matmul(dev, &(struct lp_op_matmul){.w = w,
                                                     .x = x,
                                                     .x_stride = w->n_in,
                                                     .y = r->logits,
                                                     .y_stride = w->n_out,
                                                     .n_rows = n_rows});
}

// Adjacent logit rows from rows[0] on, of n.
static int64_t adjacent(const int32_t *rows, int64_t n) {
    int64_t run = 1;
    while (run < n && rows[run] == rows[0] + run) run++;
    return run;
}

// Rows [first, first + n) of those that want logits lie one behind the other at `data`.
static void probe_logit_rows(struct lp_probe *probe, const struct lp_step *step, int64_t first,
                             int64_t n, enum lp_probe_point point, const float *data,
                             int64_t width) {
    const int32_t *rows = step->logit_rows + first;
    for (int64_t i = 0, run; probe && i < n; i += run) {
        run = adjacent(rows + i, n - i);
        lp_probe_show(probe, step->spans, step->n_spans, point, -1,
                      &(struct lp_probe_rows){.data = data + i * width,
                                              .first_row = rows[i],
                                              .n_rows = run,
                                              .row_stride = width,
                                              .width = width});
    }
}

// Norm and head for rows [first, first + n) of those that want logits; adjacent rows go together.
static void make_block(struct lp_runner *r, const struct lp_step *step, struct lp_probe *probe,
                       int64_t first, int64_t n) {
    const struct lp_hparams *h = &r->model->h;
    const int32_t *rows = step->logit_rows + first;
    for (int64_t i = 0, run; i < n && lp_shard_is_last_stage(r->model); i += run) {
        run = adjacent(rows + i, n - i);
        lp_runner_norm(r, r->h + rows[i] * h->n_embd, h->n_embd, r->model->output_norm,
                       r->logit_x + i * h->n_embd, h->n_embd, run);
    }
    lp_ranks_probe_final_norm(r, n);
    probe_logit_rows(probe, step, first, n, LP_PROBE_FINAL_NORM, r->logit_x, h->n_embd);
    lp_runner_head(r, &r->model->output, r->logit_x, n);
    probe_logit_rows(probe, step, first, n, LP_PROBE_LOGITS, r->logits, h->n_vocab);
}

static bool scans(const struct lp_runner *r) {
    return r->found != NULL;
}

static bool is_greedy(const struct lp_runner *r, const struct lp_step *step, int64_t i) {
    return scans(r) && step->greedy && step->greedy[i];
}

// Rows [0, n), the first block: rows that are drawn from are looked for there alone, which is all that a step
// of answers has.
static void find_tops(struct lp_runner *r, const struct lp_step *step, int64_t n) {
    struct lp_device *dev = r->model->dev;
    bool any = false;
    for (int64_t i = 0; i < n; i++) {
        r->host_scales[i] = step->draws[i].scale;
        any |= r->host_scales[i] > 0;
    }
    if (!any) return;
    dev->backend->write(dev, r->scales, r->host_scales, (size_t)n * sizeof *r->scales);
    dev->backend->top_rows(dev, &(struct lp_op_top_rows){.x = r->logits,
                                                         .x_stride = r->model->h.n_vocab,
                                                         .n_rows = n,
                                                         .width = r->model->h.n_vocab,
                                                         .skip = step->never ? r->skip : NULL,
                                                         .scales = r->scales,
                                                         .rows = r->tops});
    dev->backend->read(dev, r->host_tops, r->tops, (size_t)n * sizeof *r->tops);
    for (int64_t i = 0; i < n; i++)
        if (r->host_scales[i] > 0 && step->draws[i].enough(step->draws[i].who, &r->host_tops[i]))
            step->tops[i] = &r->host_tops[i];
}

static bool stays(const struct lp_runner *r, const struct lp_step *step, int64_t i) {
    return is_greedy(r, step, i) || (step->draws && step->tops[i]);
}

// Rows of the block whose logits are wanted; neighbours in one copy.
static void read_block(struct lp_runner *r, const struct lp_step *step, int64_t first, int64_t n) {
    struct lp_device *dev = r->model->dev;
    const int64_t n_vocab = r->model->h.n_vocab;
    for (int64_t i = 0, run; i < n; i += run) {
        run = 1;
        if (stays(r, step, first + i)) continue;
        while (i + run < n && !stays(r, step, first + i + run)) run++;
        dev->backend->read(dev, step->logits + (first + i) * n_vocab, r->logits + i * n_vocab,
                           (size_t)(run * n_vocab) * sizeof(float));
    }
}

static int32_t *found(const struct lp_runner *r, int32_t *base, int which) {
    return base + which * r->max_rows;
}
enum { LARGEST, BAD_LOGITS, BAD_ROWS };

static void scan(struct lp_runner *r, const float *x, int64_t n_rows, int64_t width,
                 const uint8_t *skip, int32_t *largest, int32_t *bad) {
    struct lp_device *dev = r->model->dev;
    dev->backend->scan_rows(dev, &(struct lp_op_scan_rows){.x = x,
                                                           .x_stride = width,
                                                           .n_rows = n_rows,
                                                           .width = width,
                                                           .skip = skip,
                                                           .largest = largest,
                                                           .bad = bad});
}

static void scan_block(struct lp_runner *r, const struct lp_step *step, int64_t first, int64_t n) {
    struct lp_device *dev = r->model->dev;
    const int64_t n_vocab = r->model->h.n_vocab;
    if (step->never && step->never != r->skip_from) {
        dev->backend->write(dev, r->skip, step->never, (size_t)n_vocab);
        r->skip_from = step->never;
    }
    scan(r, r->logits, n, n_vocab, step->never ? r->skip : NULL,
         step->largest ? found(r, r->found, LARGEST) + first : NULL,
         found(r, r->found, BAD_LOGITS) + first);
}

// One copy of what was found, behind all of it.
static void take_found(struct lp_runner *r, const struct lp_step *step) {
    struct lp_device *dev = r->model->dev;
    const int32_t *host = r->host_found;
    if (step->bad_rows)
        scan(r, r->h, step->n_rows, r->model->h.n_embd, NULL, NULL, found(r, r->found, BAD_ROWS));
    if (!step->bad_rows && !step->n_logit_rows) return;
    dev->backend->read(dev, r->host_found, r->found,
                       (size_t)(LP_RUNNER_FOUND * r->max_rows) * sizeof *r->found);
    for (int64_t i = 0; step->bad_rows && i < step->n_rows; i++)
        step->bad_rows[i] = host[BAD_ROWS * r->max_rows + i] != 0;
    for (int64_t i = 0; step->largest && i < step->n_logit_rows; i++)
        step->largest[i] = is_greedy(r, step, i) ? host[LARGEST * r->max_rows + i] : -1;
}

int64_t lp_runner_find_nonfinite(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return i;
    return -1;
}

// A row without logits may go bad too, and its state would be taken for good.
static void check_rows(struct lp_runner *r, const struct lp_step *step) {
    struct lp_device *dev = r->model->dev;
    const int64_t n_embd = r->model->h.n_embd;
    for (int64_t first = 0, n; first < step->n_rows; first += n) {
        int64_t left = step->n_rows - first;
        n = left < LP_RUNNER_LOGIT_ROWS ? left : LP_RUNNER_LOGIT_ROWS;
        dev->backend->read(dev, r->host_rows, r->h + first * n_embd,
                           (size_t)(n * n_embd) * sizeof *r->host_rows);
        for (int64_t t = 0; t < n; t++)
            step->bad_rows[first + t] =
                lp_runner_find_nonfinite(r->host_rows + t * n_embd, n_embd) >= 0;
    }
}

// Of stages the last one knows which rows are bad.
static void take_bad_rows(struct lp_runner *r, struct lp_step *step) {
    if (r->model->part.n_stages <= 1) return;
    lp_ranks_bad_rows(r, step->n_rows, step->bad_rows);
    step->bad_rows = NULL;
}

void lp_runner_give_logits(struct lp_runner *r, const struct lp_step *whole,
                           struct lp_probe *probe) {
    struct lp_step copy = *whole, *step = &copy;
    for (int64_t i = 0; step->draws && i < step->n_logit_rows; i++) step->tops[i] = NULL;
    for (int64_t i = 0, n; i < step->n_logit_rows; i += n) {
        n = step->n_logit_rows - i;
        if (n > r->logit_rows) n = r->logit_rows;
        make_block(r, step, probe, i, n);
        if (lp_ranks_follows(r)) continue;
        if (scans(r)) scan_block(r, step, i, n);
        if (i == 0 && r->tops && step->draws) find_tops(r, step, n);
        read_block(r, step, i, n);
    }
    take_bad_rows(r, step);
    if (lp_ranks_follows(r)) return;
    if (scans(r)) {
        take_found(r, step);
        return;
    }
    if (step->bad_rows) check_rows(r, step);
    for (int64_t i = 0; step->largest && i < step->n_logit_rows; i++) step->largest[i] = -1;
}

lp_status lp_runner_check_logits(struct lp_runner *r, const struct lp_step *step,
                                 struct lp_err *err) {
    const int64_t n_vocab = r->model->h.n_vocab;
    for (int64_t i = 0; i < step->n_logit_rows && !lp_ranks_follows(r); i++) {
        const float *row = step->logits + i * n_vocab;
        bool bad = scans(r) ? r->host_found[BAD_LOGITS * r->max_rows + i] != 0
                            : lp_runner_find_nonfinite(row, n_vocab) >= 0;
        if (step->bad) step->bad[i] = bad;
        if (step->bad || !bad) continue;
        int64_t v = lp_runner_find_nonfinite(row, n_vocab);
        return lp_err_set(
            err, LP_STATUS_NUMERIC,
            "non-finite logits in step %llu at position %d (token id %lld is %g); the weights "
            "or a kernel are at fault: try --backend ref",
            (unsigned long long)r->step, r->host_positions[step->logit_rows[i]], (long long)v,
            (double)row[v < 0 ? 0 : v]);
    }
    return LP_OK;
}
