// Stage "ranks": each of several processes on its own (its file, its kernels, its part of every operation),
// and all of them together: the same residual stream, bit for bit, on the ranks of a stage, and layer for
// layer what one process makes of the same input.
#include "doctor/ranks_exam.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/accuse.h"
#include "model/shard.h"

// Of what a layer adds to the stream, relative, in the middle row of a step: sums run in another order, and
// an activation at the edge of two steps of 8 bits may take the other.
#define LAYER_BOUND 2e-2
#define LOGITS_BOUND 1e-3 // from the same stream

struct ranks {
    struct lp_exam *exam;
    limpid_ranks *all;
    int32_t size;
    struct lp_ranks_run run, whole;
    struct lp_ranks_figures *figures; // [size]
    bool operations_skipped;
};

static const char *host_of(const struct ranks *c, int32_t rank) {
    return lp_comm_host(c->all->comm, rank);
}

// A check that is right or wrong, without a number.
static void note(struct ranks *c, bool right, const char *name, const char *figure,
                 const char *bound, const char *text) {
    lp_report_check(c->exam->report,
                    &(struct lp_check_note){.stage = LP_STAGE_RANKS,
                                            .outcome = right ? LP_CHECK_OK : LP_CHECK_FAULT,
                                            .name = name,
                                            .figure = figure,
                                            .bound = bound,
                                            .value = NAN,
                                            .limit = NAN},
                    "%s", text);
}

// ---- the request

static lp_status give_request(const struct ranks *c, struct lp_err *err) {
    const struct lp_doctor_options *o = c->exam->options;
    struct lp_ranks_request q = {.n_threads = o->rank_threads,
                                 .pipeline = o->pipeline,
                                 .shard_experts = (int32_t)o->shard_experts,
                                 .quick = o->quick,
                                 .limit_s = o->rank_limit_s};
    struct lp_order order = {.kind = LP_ORDER_EXAM};
    if (strlen(o->path) >= sizeof q.path)
        return lp_err_set(err, LP_STATUS_LIMIT, "the model's path is too long for other ranks");
    snprintf(q.path, sizeof q.path, "%s", o->path);
    snprintf(q.backend, sizeof q.backend, "%s", o->backend ? o->backend : "");
    snprintf(q.cpu_level, sizeof q.cpu_level, "%s", o->cpu_level ? o->cpu_level : "");
    lp_comm_set_limit(c->all->comm, q.limit_s);
    const bool put = lp_order_put(&order, &q, sizeof q);
    if (put) lp_order_give(c->all->comm, &order);
    lp_bytes_release(&order.bytes);
    return put ? lp_comm_failed(c->all->comm, err) : lp_err_memory(err, sizeof q, "an order");
}

// ---- the files

// Tensors that a rank has otherwise; the first of them in *first.
static uint64_t count_other(const uint64_t *own, const uint64_t *theirs, uint64_t n,
                            uint64_t *first) {
    uint64_t n_other = 0;
    for (uint64_t i = 0; i < n; i++)
        if (own[i] != theirs[i] && n_other++ == 0) *first = i;
    return n_other;
}

static void accuse_file(struct ranks *c, int32_t rank, const uint64_t *all, uint64_t n) {
    uint64_t first = 0;
    const uint64_t n_other = count_other(all, all + (uint64_t)rank * n, n, &first);
    const struct lp_gguf_tensor *t = lp_gguf_tensor_at(c->exam->gguf, first);
    char name[128];
    snprintf(name, sizeof name, "%.*s", LP_STR_ARGS(t->name));
    lp_report_fault(
        c->exam->report, LP_STAGE_RANKS, "files of the ranks", lp_exam_layer_of(t), name,
        "Rank %d on %s has another file at %s than rank 0: %llu of %llu tensors differ, "
        "the first is %s. Copy the file there again, or use one on shared storage.",
        rank, host_of(c, rank), c->exam->options->path, (unsigned long long)n_other,
        (unsigned long long)n, name);
}

// The first rank whose file differs, or -1.
static int32_t find_other_file(const struct ranks *c, const uint64_t *all, uint64_t n) {
    for (int32_t i = 1; i < c->size; i++)
        if (memcmp(all, all + (uint64_t)i * n, n * sizeof *all) != 0) return i;
    return -1;
}

static lp_status note_files(struct ranks *c, const uint64_t *all, uint64_t n, struct lp_err *err) {
    const int32_t other = find_other_file(c, all, n);
    char figure[64];
    snprintf(figure, sizeof figure, "%s tensors on %d ranks", lp_accuse_number(n).text, c->size);
    note(c, other < 0, "files of the ranks", figure, "the same bytes",
         c->exam->options->quick ? "all of small tensors, samples of large ones"
                                 : "all bytes of every tensor");
    if (other < 0) return LP_OK;
    accuse_file(c, other, all, n);
    return lp_err_set(err, LP_STATUS_INVALID, "the ranks have different files");
}

// Whether all have as many tensors.
static lp_status compare_counts(struct ranks *c, uint64_t n, struct lp_err *err) {
    uint64_t counts[LP_COMM_MAX_SIZE];
    lp_comm_collect(c->all->comm, &n, sizeof n, counts);
    lp_status status = lp_comm_failed(c->all->comm, err);
    for (int32_t i = 1; i < c->size && !status; i++) {
        if (counts[i] == n) continue;
        status = lp_err_set(err, LP_STATUS_INVALID,
                            "rank %d on %s has another file at that path: %llu tensors, and rank 0 "
                            "has %llu",
                            i, host_of(c, i), (unsigned long long)counts[i], (unsigned long long)n);
    }
    return lp_ranks_agree(c->all, status, err);
}

static lp_status check_files(struct ranks *c, struct lp_err *err) {
    const uint64_t n = lp_gguf_n_tensors(c->exam->gguf);
    uint64_t *own = lp_alloc(n, sizeof *own), *all = lp_alloc(n * (uint64_t)c->size, sizeof *all);
    lp_status status =
        own && all ? LP_OK : lp_err_memory(err, n * sizeof *own, "hashes of tensors");
    if (!status) lp_ranks_hash(c->exam, own);
    status = lp_ranks_agree(c->all, status, err);
    if (!status) status = compare_counts(c, n, err);
    if (!status) {
        lp_comm_collect(c->all->comm, own, n * sizeof *own, all);
        status = lp_comm_failed(c->all->comm, err);
        if (!status) status = note_files(c, all, n, err);
        status = lp_ranks_agree(c->all, status, err);
    }
    lp_free(own);
    lp_free(all);
    return status;
}

// ---- each rank

static lp_status collect_figures(struct ranks *c, struct lp_err *err) {
    lp_comm_collect(c->all->comm, &c->run.figures, sizeof c->run.figures, c->figures);
    return lp_comm_failed(c->all->comm, err);
}

static void report_kernels(struct ranks *c) {
    for (int32_t i = 1; i < c->size; i++) {
        const struct lp_ranks_figures *x = &c->figures[i];
        const bool right = x->n_wrong_kernels == 0;
        char name[48], figure[48], text[320];
        if (x->n_kernels == 0) continue; // of a GPU: not looked at
        snprintf(name, sizeof name, "kernels of rank %d", i);
        snprintf(figure, sizeof figure, "%lld of %lld right",
                 (long long)(x->n_kernels - x->n_wrong_kernels), (long long)x->n_kernels);
        snprintf(text, sizeof text,
                 "on %.200s, with the file's weights against plainly decoded ones", host_of(c, i));
        note(c, right, name, figure, "all", text);
        if (right) continue;
        lp_report_fault(c->exam->report, LP_STAGE_RANKS, name, -1, "kernels", "Rank %d on %s: %s",
                        i, host_of(c, i), x->kernel);
    }
}

static void report_operations(struct ranks *c) {
    for (int32_t i = 0; i < c->size; i++) {
        const struct lp_ranks_figures *x = &c->figures[i];
        char name[48];
        snprintf(name, sizeof name, "operations of rank %d", i);
        if (lp_report_measure(c->exam->report, LP_STAGE_RANKS, name, x->worst, 1,
                              "%lld comparisons with ref on %s, error over its bound; the largest: "
                              "%s",
                              (long long)x->n_operations, host_of(c, i), x->worst_place))
            continue;
        lp_report_fault(
            c->exam->report, LP_STAGE_RANKS, name, x->wrong_layer, "operations",
            "Rank %d on %s does not compute what is defined, in %lld of %lld "
            "comparisons: %s. The file is not at fault where it is right on rank 0; use "
            "a lower --cpu level, look at that host's memory, and report this.",
            i, host_of(c, i), (long long)x->n_wrong_operations, (long long)x->n_operations,
            x->operation);
    }
}

// ---- all ranks together

struct stream_rows { // of a layer on all ranks: [size, n_tokens, n_embd]
    float *rows;
    size_t n;
    int32_t other_layer, other_rank; // the first that differs; -1
};

// The ranks that have a layer's output: those of its stage.
static struct lp_range owners_of(const struct ranks *c, int32_t layer) {
    const struct lp_model *m = c->run.model;
    struct lp_model of = *m;
    for (int32_t stage = 0; m->part.n_stages > 1 && stage < m->part.n_stages; stage++) {
        const int32_t rank = stage * m->part.n_tensor;
        struct lp_err err;
        if (lp_shard_divide(&of, rank, c->size, c->exam->options->pipeline,
                            c->exam->options->shard_experts, LP_ATTENTION_PARALLEL_HEADS, &err))
            break;
        const struct lp_range layers = lp_shard_layers(&of);
        const bool has =
            layer < 0 ? stage == 0 : layer >= layers.first && layer < layers.first + layers.n;
        if (has) return (struct lp_range){rank, m->part.n_tensor};
    }
    return (struct lp_range){0, m->part.n_stages > 1 ? 1 : c->size};
}

static void take_layer(struct ranks *c, struct stream_rows *s, int32_t layer) {
    const struct lp_range owners = owners_of(c, layer);
    float *own = c->run.streams + (size_t)(layer + 1) * s->n;
    const float *first = s->rows + (size_t)owners.first * s->n;
    lp_comm_collect(c->all->comm, own, s->n * sizeof *own, s->rows);
    memcpy(own, first, s->n * sizeof *own);
    for (int64_t i = 1; i < owners.n && s->other_rank < 0; i++)
        if (memcmp(first, first + (size_t)i * s->n, s->n * sizeof *own) != 0) {
            s->other_layer = layer;
            s->other_rank = (int32_t)(owners.first + i);
        }
}

static void report_same(struct ranks *c, const struct stream_rows *s) {
    const bool same = s->other_rank < 0;
    char figure[48] = "the same bits";
    if (!same) snprintf(figure, sizeof figure, "other bits on rank %d", s->other_rank);
    note(c, same, "residual streams of the ranks", figure, "the same bits",
         "behind each layer, on all ranks of a stage");
    if (same) return;
    lp_report_fault(
        c->exam->report, LP_STAGE_RANKS, "residual streams of the ranks", s->other_layer,
        "sum over ranks",
        "Rank %d on %s has another residual stream than its neighbours from layer %d on. "
        "All of them add the same parts, so %s. Report this.",
        s->other_rank, host_of(c, s->other_rank), s->other_layer,
        s->other_layer < 0 ? "its embedding is at fault"
                           : "the exchange between ranks, or that rank's memory, is at "
                             "fault");
}

static lp_status collect_streams(struct ranks *c, struct lp_err *err) {
    const struct lp_hparams *h = &c->run.model->h;
    struct stream_rows s = {
        .n = (size_t)(lp_ranks_exam_tokens(h) * h->n_embd), .other_layer = -1, .other_rank = -1};
    s.rows = lp_alloc(s.n * (size_t)c->size, sizeof *s.rows);
    if (!s.rows) { // the others are in the collecting already
        lp_err_memory(err, s.n * (size_t)c->size * sizeof *s.rows, "the ranks' residual streams");
        lp_comm_fail(c->all->comm, err);
        return LP_STATUS_MEMORY;
    }
    for (int32_t l = -1; l < h->n_layers; l++) take_layer(c, &s, l);
    lp_free(s.rows);
    const lp_status lost = lp_comm_failed(c->all->comm, err);
    if (!lost) report_same(c, &s);
    return lost;
}

// ---- against one process

static int downwards(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return isnan(x) || isnan(y) ? isnan(y) - isnan(x) : (x < y) - (x > y);
}

// Of the middle row: what the layer adds in the ranks against what it adds in one process.
static double step_error(const struct ranks *c, int32_t layer, int64_t first, int64_t n) {
    const int64_t n_embd = c->run.model->h.n_embd,
                  n_tokens = lp_ranks_exam_tokens(&c->run.model->h);
    double errors[LP_RANKS_EXAM_TOKENS];
    for (int64_t t = 0; t < n; t++) {
        const int64_t at = ((layer + 1) * n_tokens + first + t) * n_embd;
        const float *got = c->run.streams + at, *want = c->whole.streams + at,
                    *before = got - n_tokens * n_embd;
        double sum = 0, all = 0;
        for (int64_t i = 0; i < n_embd; i++) {
            const double d = (double)got[i] - want[i], added = (double)want[i] - before[i];
            sum += d * d;
            all += added * added;
        }
        errors[t] = sqrt(sum / fmax(all, 1e-30));
        if (!isfinite(errors[t])) errors[t] = NAN;
    }
    qsort(errors, (size_t)n, sizeof *errors, downwards);
    return errors[n / 2];
}

static double layer_error(const struct ranks *c, int32_t layer) {
    static const int64_t rows[LP_RANKS_EXAM_STEPS] = LP_RANKS_EXAM_ROWS;
    const int64_t n_tokens = lp_ranks_exam_tokens(&c->run.model->h);
    double worst = 0;
    int64_t first = 0;
    for (int i = 0; i < LP_RANKS_EXAM_STEPS && first < n_tokens; i++) {
        const int64_t n = rows[i] < n_tokens - first ? rows[i] : n_tokens - first;
        const double error = step_error(c, layer, first, n);
        if (!(error <= worst)) worst = error;
        first += n;
    }
    return worst;
}

static void report_layers(struct ranks *c) {
    const int32_t n_layers = c->run.model->h.n_layers;
    double *errors = lp_alloc((size_t)n_layers, sizeof *errors);
    int32_t at = 0;
    if (!errors) {
        c->exam->report->failed = true;
        return;
    }
    for (int32_t l = 0; l < n_layers; l++) {
        errors[l] = layer_error(c, l);
        if (errors[at] <= LAYER_BOUND && !(errors[l] <= errors[at]))
            at = l; // the first bad one stays
    }
    lp_report_series(c->exam->report, "ranks: what a layer adds, against one process", "layer",
                     "relative difference", true, errors, (size_t)n_layers);
    if (!lp_report_measure(c->exam->report, LP_STAGE_RANKS, "layers of the ranks", errors[at],
                           LAYER_BOUND,
                           "what a layer adds to the same stream, against one process; the %s in "
                           "layer %d",
                           errors[at] <= LAYER_BOUND ? "largest" : "first that differs", at)) {
        const struct lp_range owners = owners_of(c, at);
        lp_report_fault(
            c->exam->report, LP_STAGE_RANKS, "layers of the ranks", at, "division of the layer",
            "Layer %d, divided over ranks %lld to %lld, does not add to the stream what "
            "it adds in one process: %.2g, relative (bound %.2g). Where each rank's "
            "operations are right, the division of its weights or the sum is at fault; "
            "run it in one process or with --pipeline meanwhile, and report this.",
            at, (long long)owners.first, (long long)(owners.first + owners.n - 1), errors[at],
            LAYER_BOUND);
    }
    lp_free(errors);
}

static void report_logits(struct ranks *c) {
    const int64_t n_vocab = c->run.model->h.n_vocab;
    const int n =
        lp_ranks_exam_tokens(&c->run.model->h) < LP_RANKS_EXAM_TOKENS ? 1 : LP_RANKS_EXAM_STEPS;
    double worst = 0;
    for (int i = 0; i < n; i++) {
        const double d =
            lp_lab_difference(c->run.logits + i * n_vocab, c->whole.logits + i * n_vocab, n_vocab);
        if (!(d <= worst)) worst = d;
    }
    if (!lp_report_measure(c->exam->report, LP_STAGE_RANKS, "logits of the ranks", worst,
                           LOGITS_BOUND, "from the same stream, against one process"))
        lp_report_fault(
            c->exam->report, LP_STAGE_RANKS, "logits of the ranks", -1, "division of the output",
            "The logits that ranks make together differ from those of one process by "
            "%.2g, relative (bound %.2g), from the same residual stream: the division "
            "of the output matrix or the exchange of its parts is at fault. Report this.",
            worst, LOGITS_BOUND);
}

static lp_status compare_with_whole(struct ranks *c, struct lp_err *err) {
    const struct lp_hparams *h = &c->run.model->h;
    const size_t n = (size_t)((h->n_layers + 1) * lp_ranks_exam_tokens(h) * h->n_embd);
    c->whole = (struct lp_ranks_run){
        .exam = c->exam,
        .ranks = c->all,
        .prompt = c->run.prompt,
        .forced = c->run.streams,
        .streams = lp_alloc(n, sizeof(float)),
        .logits = lp_alloc((size_t)(LP_RANKS_EXAM_STEPS * h->n_vocab), sizeof(float))};
    lp_status status = c->whole.streams && c->whole.logits
                           ? lp_ranks_run_whole(&c->whole, lp_lab_model(c->exam->fast_lab), err)
                           : lp_err_memory(err, n * sizeof(float), "residual streams");
    if (status) return status;
    report_layers(c);
    report_logits(c);
    return LP_OK;
}

// ---- the stage

static lp_status examine_each(struct ranks *c, struct lp_err *err) {
    lp_status status = lp_ranks_agree(c->all, LP_OK, err); // all have the file
    if (!status) status = check_files(c, err);
    if (!status) status = lp_ranks_agree(c->all, LP_OK, err); // the kernels of the others
    if (!status) status = collect_figures(c, err);
    if (!status) report_kernels(c);
    return status;
}

static lp_status examine_together(struct ranks *c, struct lp_err *err) {
    lp_status status = lp_ranks_run_open(&c->run, err);
    if (status) return status; // on all
    status = lp_ranks_run_operations(&c->run, err);
    c->operations_skipped = status == LP_STATUS_UNSUPPORTED;
    status = lp_ranks_agree(c->all, c->operations_skipped ? LP_OK : status, err);
    if (!status) status = collect_figures(c, err);
    if (status) return status;
    if (!c->operations_skipped) report_operations(c);
    status = lp_ranks_agree(c->all, lp_ranks_run_streams(&c->run, err), err);
    if (!status) status = collect_streams(c, err);
    return status ? status : compare_with_whole(c, err);
}

// What a rank cannot do is a fault of the deployment, not of the examination.
static void report_failed(struct ranks *c, const struct lp_err *why) {
    struct lp_report *r = c->exam->report;
    lp_report_say(r, LP_STAGE_RANKS, LP_CHECK_FAULT, "ranks", "%s", why->text);
    for (size_t i = 0; i < r->n_faults; i++)
        if (r->faults[i].stage == LP_STAGE_RANKS) return; // it has been said
    lp_report_fault(r, LP_STAGE_RANKS, "ranks", -1, "ranks", "%s.", why->text);
}

static void report_plan(struct ranks *c) {
    const struct lp_sharding *part = &c->run.model->part;
    lp_report_say(
        c->exam->report, LP_STAGE_RANKS, LP_CHECK_NOTE, "division",
        "%d ranks: %d stage%s of %d, experts %s%s", c->size, part->n_stages,
        part->n_stages == 1 ? "" : "s", part->n_tensor, part->whole_experts ? "whole" : "split",
        c->operations_skipped ? "; operations are not compared one by one on this backend" : "");
}

lp_status lp_check_ranks(struct lp_exam *exam, struct lp_err *err) {
    const struct lp_doctor_options *o = exam->options;
    const char *obstacle = lp_walk_obstacle(exam);
    struct lp_err why = {0};
    struct ranks c = {.exam = exam, .all = o->ranks, .size = limpid_ranks_size(o->ranks)};
    int32_t *prompt = NULL;
    if (obstacle) {
        lp_report_say(exam->report, LP_STAGE_RANKS, LP_CHECK_SKIPPED, "ranks", "%s", obstacle);
        return LP_OK;
    }
    c.figures = lp_alloc((size_t)c.size, sizeof *c.figures);
    lp_status status = c.figures ? lp_walk_prompt(&prompt, exam, LP_RANKS_EXAM_TOKENS, err)
                                 : lp_err_memory(err, 0, "the ranks' figures");
    if (o->on_stage) o->on_stage(o->user, LP_STAGE_RANKS, 0);
    if (!status) status = give_request(&c, err);
    if (status) {
        lp_free(prompt);
        lp_free(c.figures);
        return status;
    }
    c.run = (struct lp_ranks_run){.exam = exam, .ranks = o->ranks, .prompt = prompt};
    status = examine_each(&c, &why);
    if (!status) status = examine_together(&c, &why);
    if (status)
        report_failed(&c, &why);
    else
        report_plan(&c);
    lp_ranks_run_release(&c.run);
    lp_free(c.whole.streams);
    lp_free(c.whole.logits);
    lp_free(prompt);
    lp_free(c.figures);
    return LP_OK;
}
