// A loaded model, a cache for one sequence and a runner, without the scheduler.
#include "doctor/lab.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

struct lp_lab {
    struct lp_model *model;
    struct lp_kv *kv;
    struct lp_runner *runner;
    int64_t max_context, max_rows;
};

static lp_status open_parts(struct lp_lab *lab, const struct lp_gguf *gguf, struct lp_device *dev,
                            int n_threads, lp_type kv_type, struct lp_err *err) {
    lp_status status = lp_model_load(
        &lab->model, gguf, dev,
        &(struct lp_load){.n_threads = n_threads, .check_bytes = LP_LAB_CHECK_BYTES}, err);
    if (status) return status;
    int32_t n = lp_model_kv_count(lab->model, false);
    struct lp_kv_layer *layers = lp_alloc((size_t)n, sizeof *layers);
    if (!layers) return lp_err_memory(err, (size_t)n * sizeof *layers, "the layers of the cache");
    lp_model_kv_layers(lab->model, false, layers);
    status = lp_kv_new(&lab->kv, dev, layers, n, kv_type, lab->max_context, err);
    lp_free(layers);
    return status ? status
                  : lp_runner_new(&lab->runner, lab->model, lab->kv, lab->max_rows,
                                  lab->max_context, false, err);
}

lp_status lp_lab_new(struct lp_lab **out, const struct lp_gguf *gguf, struct lp_device *dev,
                     int n_threads, int64_t max_context, int64_t max_rows, lp_type kv_type,
                     struct lp_err *err) {
    struct lp_lab *lab = lp_alloc(1, sizeof *lab);
    if (!lab) return lp_err_memory(err, sizeof *lab, "the examination of the model");
    lab->max_context = max_context;
    lab->max_rows = max_rows < max_context ? max_rows : max_context;
    lp_status status = open_parts(lab, gguf, dev, n_threads, kv_type, err);
    if (status) {
        lp_lab_free(lab);
        return status;
    }
    *out = lab;
    return LP_OK;
}

void lp_lab_free(struct lp_lab *lab) {
    if (!lab) return;
    lp_runner_free(lab->runner);
    lp_kv_free(lab->kv);
    lp_model_free(lab->model);
    lp_free(lab);
}

struct lp_model *lp_lab_model(struct lp_lab *lab) {
    return lab->model;
}

struct lp_runner *lp_lab_runner(struct lp_lab *lab) {
    return lab->runner;
}

struct lp_kv *lp_lab_kv(struct lp_lab *lab) {
    return lab->kv;
}

int64_t lp_lab_max_context(const struct lp_lab *lab) {
    return lab->max_context;
}

struct passage { // one run under way
    struct lp_lab *lab;
    const struct lp_lab_run *run;
    int64_t at, n; // the tokens of this step
    int32_t *rows; // [max_rows] 0, 1, 2 ...
    bool *bad;     // [max_rows]
};

static void on_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                     const int32_t *n_selected, int64_t ids_stride) {
    const struct passage *p = user;
    const struct lp_lab_run *run = p->run;
    struct lp_device *dev = p->lab->model->dev;
    int64_t n_embd = p->lab->model->h.n_embd;
    if (run->hidden)
        dev->backend->read(dev, run->hidden + ((layer + 1) * run->n_tokens + p->at) * n_embd, h,
                           (size_t)(p->n * n_embd) * sizeof *h);
    if (run->watch) run->watch(run->watch_user, layer, h, selected, n_selected, ids_stride);
}

static lp_status run_step(struct passage *p, const struct lp_page_table *table,
                          struct lp_err *err) {
    const struct lp_lab_run *run = p->run;
    int64_t n_vocab = p->lab->model->h.n_vocab;
    bool is_last = p->at + p->n == run->n_tokens;
    struct lp_span span = {.pages = table, .n_past = p->at, .n_rows = p->n};
    struct lp_step step = {
        .tokens = run->tokens + p->at, .spans = &span, .n_spans = 1, .n_rows = p->n, .bad = p->bad};
    struct lp_step_settings settings = {.force = run->force,
                                        .deterministic = run->deterministic,
                                        .watch = run->hidden || run->watch ? on_layer : NULL,
                                        .watch_user = p};
    if (run->logits) {
        step.logit_rows = p->rows;
        step.n_logit_rows = p->n;
        step.logits = run->logits + p->at * n_vocab;
    } else if (run->last && is_last) {
        step.logit_rows = p->rows + p->n - 1;
        step.n_logit_rows = 1;
        step.logits = run->last;
    }
    lp_status status = lp_runner_step(p->lab->runner, &step, &settings, err);
    if (!status && run->logits && run->last && is_last)
        memcpy(run->last, run->logits + (run->n_tokens - 1) * n_vocab,
               (size_t)n_vocab * sizeof(float));
    return status;
}

lp_status lp_lab_run(struct lp_lab *lab, const struct lp_lab_run *run, struct lp_err *err) {
    struct passage p = {.lab = lab, .run = run};
    struct lp_page_table table = {0};
    p.rows = lp_alloc((size_t)lab->max_rows, sizeof *p.rows);
    p.bad = lp_alloc((size_t)lab->max_rows, sizeof *p.bad);
    lp_status status = p.rows && p.bad
                           ? lp_page_table_grow(&table, lab->kv, run->n_tokens, err)
                           : lp_err_memory(err, (size_t)lab->max_rows * 5, "the rows of a step");
    for (int64_t i = 0; p.rows && i < lab->max_rows; i++) p.rows[i] = (int32_t)i;
    int64_t chunk = run->chunk && run->chunk < lab->max_rows ? run->chunk : lab->max_rows;
    for (; p.at < run->n_tokens && !status; p.at += p.n) {
        p.n = run->n_tokens - p.at < chunk ? run->n_tokens - p.at : chunk;
        status = run_step(&p, &table, err);
    }
    lp_page_table_release(&table, lab->kv);
    lp_free(p.rows);
    lp_free(p.bad);
    return status;
}

double lp_lab_difference(const float *a, const float *b, int64_t n) {
    double sum = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - b[i];
        sum += d * d;
        all += (double)b[i] * b[i];
    }
    double r = all > 0 ? sqrt(sum / all) : sqrt(sum);
    return isfinite(r) ? r : NAN;
}
