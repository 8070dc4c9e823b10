// Steps through a model that several ranks have together, as all of them make them.
#include "doctor/ranks_exam.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/workers.h"
#include "doctor/shadow.h"
#include "model/runner.h"
#include "model/shard.h"
#include "model/tensor_hash.h"

#define QUICK_S 1.5 // that ref may take
#define FULL_S 12.0
#define REF_RATE 1e9
#define LEAST_WORK 100000 // multiply-adds of an operation on ref
#define MOST_WORK 20000000
#define OPERATIONS 20 // of a layer, about

static const int64_t step_rows[LP_RANKS_EXAM_STEPS] = LP_RANKS_EXAM_ROWS;

int64_t lp_ranks_exam_tokens(const struct lp_hparams *h) {
    return h->n_context < LP_RANKS_EXAM_TOKENS ? h->n_context : LP_RANKS_EXAM_TOKENS;
}

static bool leads(const struct lp_ranks_run *run) {
    return limpid_ranks_rank(run->ranks) == 0;
}

// ---- the model

lp_status lp_ranks_run_open(struct lp_ranks_run *run, struct lp_err *err) {
    const struct lp_doctor_options *o = run->exam->options;
    const struct lp_load load = {.n_threads = o->n_threads,
                                 .check_bytes = LP_LAB_CHECK_BYTES,
                                 .ranks = run->ranks->comm,
                                 .n_stages = o->pipeline,
                                 .shard_experts = o->shard_experts};
    lp_status status = lp_model_load(&run->model, run->exam->gguf, run->exam->fast, &load, err);
    if (!status) {
        const struct lp_hparams *h = &run->model->h;
        const size_t n = (size_t)((h->n_layers + 1) * lp_ranks_exam_tokens(h) * h->n_embd);
        run->streams = lp_alloc(n, sizeof *run->streams);
        run->logits =
            leads(run) ? lp_alloc((size_t)(LP_RANKS_EXAM_STEPS * h->n_vocab), sizeof *run->logits)
                       : NULL;
        if (!run->streams || (leads(run) && !run->logits))
            status = lp_err_memory(err, n * sizeof *run->streams, "residual streams");
    }
    status = lp_ranks_agree(run->ranks, status, err);
    return status ? status : lp_model_join(run->model, err);
}

void lp_ranks_run_release(struct lp_ranks_run *run) {
    lp_model_free(run->model);
    lp_free(run->streams);
    lp_free(run->logits);
}

// ---- what is seen of a step

static void on_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                     const int32_t *n_selected, int64_t ids_stride) {
    struct lp_ranks_run *run = user;
    struct lp_runner *r = run->walk.runner;
    struct lp_device *dev = run->walk.model->dev;
    const int64_t n_embd = run->walk.model->h.n_embd;
    const size_t n_bytes = (size_t)(run->n_rows * n_embd) * sizeof *h;
    const int64_t at = ((layer + 1) * lp_ranks_exam_tokens(&run->walk.model->h) + run->at) * n_embd;
    (void)selected, (void)n_selected, (void)ids_stride;
    if (run->shadow) lp_shadow_set_layer(run->shadow, layer + 1);
    if (run->shadow || layer < -1) return;
    dev->backend->read(dev, run->streams + at, h, n_bytes);
    if (run->forced) dev->backend->write(dev, r->h, run->forced + at, n_bytes);
}

static void place_of(const struct lp_ranks_run *run, const struct lp_shadow_finding *f, char *out,
                     size_t n_bytes) {
    const int32_t n_layers = run->model->h.n_layers;
    char layer[32];
    snprintf(layer, sizeof layer, "layer %d", f->layer);
    snprintf(out, n_bytes, "%s%s%s in %.*s%s%s", f->op, f->kernel ? ", kernel " : "",
             f->kernel ? f->kernel : "", LP_STR_ARGS(f->weight), f->weight.len ? " of " : "",
             f->layer < 0           ? "the embedding"
             : f->layer >= n_layers ? "the head"
                                    : layer);
}

static void on_finding(void *user, const struct lp_shadow_finding *f) {
    struct lp_ranks_run *run = user;
    struct lp_ranks_figures *x = &run->figures;
    const double part = f->bound > 0 ? f->diff.error / f->bound : f->diff.error > 0 ? INFINITY : 0;
    const bool wrong = !(f->diff.error <= f->bound);
    char place[160];
    x->n_operations++;
    if (wrong && x->n_wrong_operations++ == 0) {
        place_of(run, f, place, sizeof place);
        x->wrong_layer = f->layer < run->model->h.n_layers ? f->layer : -1;
        snprintf(x->operation, sizeof x->operation,
                 "%s: relative error %.2g, bound %.2g, in a step of %lld rows%s%.100s", place,
                 f->diff.error, f->bound, (long long)f->n_rows, f->where[0] ? "; " : "", f->where);
    }
    if (x->n_operations > 1 && !(part > x->worst)) return;
    x->worst = part;
    place_of(run, f, x->worst_place, sizeof x->worst_place);
}

// ---- the steps

static void begin_layers(const struct lp_ranks_run *run) {
    if (!run->shadow) return;
    const bool embeds = lp_shard_is_first_stage(run->model);
    lp_shadow_set_layer(run->shadow, embeds ? -1 : (int32_t)lp_shard_layers(run->model).first);
}

// Rank 0: all steps; or those of a model that is here alone.
static lp_status drive(struct lp_ranks_run *run, struct lp_err *err) {
    const int64_t n_tokens = lp_ranks_exam_tokens(&run->walk.model->h);
    struct lp_step_settings settings = {.watch = on_layer, .watch_user = run};
    lp_status status = LP_OK;
    run->at = 0;
    for (int i = 0; i < LP_RANKS_EXAM_STEPS && run->at < n_tokens && !status; i++) {
        const int64_t left = n_tokens - run->at;
        run->n_rows = step_rows[i] < left ? step_rows[i] : left;
        const struct lp_walk_part part = {0, run->n_rows};
        begin_layers(run);
        status = lp_walk_step(&run->walk, &part, 1, run->prompt + run->at, &settings,
                              run->logits + i * run->walk.model->h.n_vocab, err);
        run->at += run->n_rows;
    }
    return status;
}

static void give_end(struct lp_ranks_run *run) {
    struct lp_order end = {.kind = LP_ORDER_WALK_END};
    lp_order_give(run->ranks->comm, &end);
}

// What a step failed by has been told to rank 0.
static lp_status follow(struct lp_ranks_run *run, struct lp_err *err) {
    struct lp_order order = {0};
    struct lp_step_settings settings = {.watch = on_layer, .watch_user = run};
    lp_status status = LP_OK, lost = LP_OK;
    run->at = 0;
    for (int i = 0; !lost; i++) {
        lost = lp_order_take(run->ranks->comm, &order, err);
        if (lost || order.kind == LP_ORDER_WALK_END) break;
        const int64_t left = lp_ranks_exam_tokens(&run->model->h) - run->at;
        run->n_rows =
            step_rows[i % LP_RANKS_EXAM_STEPS] < left ? step_rows[i % LP_RANKS_EXAM_STEPS] : left;
        begin_layers(run);
        status = lp_runner_follow(run->walk.runner, &order, &settings, err);
        run->at += run->n_rows;
        lost = lp_comm_failed(run->ranks->comm, err);
    }
    lp_bytes_release(&order.bytes);
    return lost ? lost : status;
}

// All steps on a device, by all ranks.
static lp_status run_together(struct lp_ranks_run *run, struct lp_device *dev, struct lp_err *err) {
    const int64_t n_tokens = lp_ranks_exam_tokens(&run->model->h);
    const struct lp_walk_options options = {
        .dev = dev, .kv_type = LP_TYPE_F32, .max_context = n_tokens, .max_rows = n_tokens};
    lp_status status = lp_walk_init(&run->walk, run->model, &options, err);
    if (!status) status = lp_ranks_init(run->walk.runner, 0, err);
    status = lp_ranks_agree(run->ranks, status, err);
    if (!status) status = lp_ranks_join_caches(run->walk.runner, err);
    if (!status && leads(run)) {
        status = drive(run, err);
        if (!lp_comm_failed(run->ranks->comm, NULL)) give_end(run);
    } else if (!status)
        status = follow(run, err);
    lp_walk_release(&run->walk);
    return status;
}

// Multiply-adds of one operation on ref, that all of them take some seconds.
static int64_t work_of_operation(const struct lp_ranks_run *run) {
    const double seconds = run->exam->options->quick ? QUICK_S : FULL_S,
                 n = (double)OPERATIONS * LP_RANKS_EXAM_STEPS * run->model->h.n_layers;
    const double each = seconds * REF_RATE / n;
    return each < LEAST_WORK ? LEAST_WORK : each > MOST_WORK ? MOST_WORK : (int64_t)each;
}

// A rank waits while another one compares with ref: that is no step.
lp_status lp_ranks_run_operations(struct lp_ranks_run *run, struct lp_err *err) {
    struct lp_exam *exam = run->exam;
    const struct lp_shadow_config config = {
        .found = on_finding, .user = run, .max_work = work_of_operation(run)};
    lp_status status =
        exam->fast->backend->host_memory
            ? lp_shadow_open(&run->shadow, exam->fast, exam->ref, &config, err)
            : lp_err_set(err, LP_STATUS_UNSUPPORTED, "its buffers are not in host memory");
    status = lp_ranks_agree(run->ranks, status, err);
    lp_comm_set_limit(run->ranks->comm, fmax(exam->options->rank_limit_s, LP_COMM_LIMIT_S));
    if (!status) status = run_together(run, run->shadow, err);
    lp_comm_set_limit(run->ranks->comm, exam->options->rank_limit_s);
    if (!status && lp_shadow_failed(run->shadow))
        status = lp_err_memory(err, 0, "the comparison of operations");
    if (run->shadow) run->shadow->backend->close(run->shadow);
    run->shadow = NULL;
    return status;
}

lp_status lp_ranks_run_streams(struct lp_ranks_run *run, struct lp_err *err) {
    return run_together(run, run->exam->fast, err);
}

lp_status lp_ranks_run_whole(struct lp_ranks_run *run, struct lp_model *whole, struct lp_err *err) {
    const int64_t n_tokens = lp_ranks_exam_tokens(&whole->h);
    const struct lp_walk_options options = {.dev = run->exam->fast,
                                            .kv_type = LP_TYPE_F32,
                                            .max_context = n_tokens,
                                            .max_rows = n_tokens};
    lp_status status = lp_walk_init(&run->walk, whole, &options, err);
    if (!status) status = drive(run, err);
    lp_walk_release(&run->walk);
    return status;
}

// ---- the file

#define QUICK_WHOLE_BYTES ((uint64_t)1 << 20)
#define QUICK_SAMPLES 64

struct hashing {
    const struct lp_gguf *gguf;
    uint64_t whole_bytes;
    uint64_t *out;
};

static void hash_share(void *user, int worker, int n_workers) {
    const struct hashing *h = user;
    for (uint64_t i = (uint64_t)worker; i < lp_gguf_n_tensors(h->gguf); i += (uint64_t)n_workers)
        h->out[i] = lp_tensor_hash(lp_gguf_tensor_at(h->gguf, i), h->whole_bytes, QUICK_SAMPLES);
}

void lp_ranks_hash(const struct lp_exam *exam, uint64_t *out) {
    struct hashing h = {exam->gguf, exam->options->quick ? QUICK_WHOLE_BYTES : UINT64_MAX, out};
    struct lp_workers *workers = NULL;
    struct lp_err err;
    if (lp_workers_new(&workers, exam->options->n_threads, &err)) {
        hash_share(&h, 0, 1);
        return;
    }
    lp_workers_run(workers, hash_share, &h);
    lp_workers_free(workers);
}
