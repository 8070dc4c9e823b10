// limpid.h: an engine is made and taken apart. (Its size: memory_plan.c; its steps: loop.c.)
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/follow.h"
#include "engine/sampler.h"

// ---- making

static lp_status open_store(limpid_engine *e, const limpid_engine_options *o,
                            const struct lp_engine_settings *s, struct lp_err *err) {
    if (!o->cache_dir) return LP_OK;
    if (o->no_prefix_cache)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "a cache directory needs the prefix cache; leave --no-prefix-cache out");
    struct lp_store_options options = {.dir = o->cache_dir,
                                       .max_bytes = o->cache_dir_bytes ? o->cache_dir_bytes
                                                                       : LP_DEFAULT_STORE_BYTES,
                                       .page_bytes = lp_kv_page_bytes(e->kv),
                                       .page_tokens = LP_KV_PAGE_TOKENS};
    lp_status status = lp_engine_fingerprint(&options.fingerprint, e->model, o, s, err);
    return status ? status : lp_store_open(&e->store, &options, err);
}

static void take_settings(limpid_engine *e, const limpid_engine_options *o,
                          const struct lp_engine_settings *s) {
    e->n_context = s->n_context;
    e->n_kv_tokens = s->n_kv_tokens * s->n_kv_parts;
    e->chunk = s->chunk;
    e->max_batch_tokens = s->max_batch_tokens;
    e->max_seqs = s->max_seqs;
    e->max_queue = s->max_queue;
    e->no_prefix_cache = o->no_prefix_cache;
    e->settings.force = s->force;
    e->settings.deterministic = o->deterministic;
    lp_speculation_init(&e->speculation, s->speculate);
    lp_stats_init(&e->live);
    e->step_log.began_ns = lp_clock_ns();
}

// On another rank than 0 an engine runs what that one's does, and decides nothing.
static bool follows(const limpid_engine *e) {
    return e->model->weights->ranks && lp_comm_rank(e->model->weights->ranks) > 0;
}

static lp_status take_rank_times(limpid_engine *e, struct lp_err *err) {
    const struct lp_comm *ranks = e->model->weights->ranks;
    if (!ranks) return LP_OK;
    const size_t n = (size_t)lp_comm_size(ranks);
    e->rank_times = lp_alloc(n, sizeof *e->rank_times);
    e->rank_pages_free = lp_alloc(n, sizeof *e->rank_pages_free);
    if (!e->rank_times || !e->rank_pages_free)
        return lp_err_memory(err, n * sizeof *e->rank_times, "the ranks' times");
    for (size_t i = 0; i < n; i++) e->rank_pages_free[i] = lp_kv_part_pages(e->kv);
    return LP_OK;
}

// Cache and buffers.
static lp_status take_memory(limpid_engine *e, const limpid_engine_options *o,
                             struct lp_engine_settings *s, struct lp_err *err) {
    struct lp_model *w = e->model->weights;
    struct lp_kv_layer layers[LP_MAX_LAYERS]; // the MTP layer is one of n_blocks
    lp_status status = lp_engine_settings_make(s, e->model, o, err);
    if (status) return status;
    take_settings(e, o, s);
    bool with_mtp = s->speculate > 0;
    if (e->n_context > w->h.n_context)
        lp_log(LP_LOG_WARN,
               "the context of %lld tokens is longer than the %lld that the model was trained for",
               (long long)e->n_context, (long long)w->h.n_context);
    lp_model_kv_layers(w, with_mtp, layers);
    status = lp_kv_new(&e->kv, e->model->dev, layers, lp_model_kv_count(w, with_mtp), s->kv_type,
                       s->n_kv_tokens, err);
    if (!status)
        status =
            lp_runner_new(&e->runner, w, e->kv, e->max_batch_tokens, e->n_context, with_mtp, err);
    if (!status) status = lp_ranks_init(e->runner, e->rank_number, err);
    if (!status) status = take_rank_times(e, err);
    return status;
}

// Collective where there are ranks: all that may fail on one of them alone comes before.
static lp_status set_up(limpid_engine *e, const limpid_engine_options *o, struct lp_err *err) {
    struct lp_engine_settings s;
    lp_status status = take_memory(e, o, &s, err);
    if (e->model->ranks) {
        status = lp_ranks_agree(e->model->ranks, status, err);
        if (!status) status = lp_ranks_join_caches(e->runner, err);
    }
    // The kernels that a store's fingerprint and the trace name are those of the steps to come.
    if (!status) lp_runner_fix_results(e->runner, o->deterministic);
    if (!status && !follows(e)) status = open_store(e, o, &s, err);
    if (!status) status = lp_prefix_new(&e->prefix, e->kv, e->store, err);
    if (!status) status = lp_sched_init(&e->sched, e->max_seqs, lp_kv_n_parts(e->kv), err);
    if (!status) status = lp_batch_new(&e->batch, e, err);
    if (!status) status = lp_engine_open_trace(e, o->trace_path, err);
    e->live.pages = e->live.pages_free = status ? 0 : lp_kv_n_pages(e->kv);
    e->live.page_tokens = LP_KV_PAGE_TOKENS;
    e->stats = e->live;
    return status;
}

// On several ranks: all make it, or none.
static lp_status set_up_with_ranks(limpid_engine *e, const limpid_engine_options *o,
                                   struct lp_err *err) {
    limpid_ranks *ranks = e->model->ranks;
    if (!ranks) return set_up(e, o, err);
    lp_status status = LP_OK;
    if (!follows(e)) {
        status = lp_ranks_make(ranks, e->model->rank_number, o, &e->rank_number, err);
        if (status) return status;
        e->has_ranks = true;
    }
    status = set_up(e, o, err);
    return lp_ranks_agree(ranks, status, err);
}

limpid_status limpid_engine_new(limpid_engine **out, limpid_model *model,
                                const limpid_engine_options *options, limpid_error *err) {
    limpid_engine_options defaults = limpid_engine_default_options();
    limpid_engine *e = lp_alloc(1, sizeof *e);
    if (!e) return lp_public(lp_err_memory(lp_err_of(err), sizeof *e, "the engine"));
    e->model = model;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    pthread_cond_init(&e->turn, NULL);
    struct lp_err own, *why = err ? lp_err_of(err) : &own;
    lp_status status = set_up_with_ranks(e, options ? options : &defaults, why);
    if (status) {
        limpid_engine_free(e, NULL);
        return lp_public(status);
    }
    *out = e;
    return LIMPID_OK;
}

limpid_status limpid_engine_free(limpid_engine *e, limpid_error *err) {
    if (!e) return LIMPID_OK;
    limpid_engine_stop(e);
    if (e->batch) lp_engine_sweep(e); // requests that were freed and not yet seen
    if (e->has_ranks) lp_ranks_close(e->model->ranks, LP_RANKS_ENGINE, e->rank_number);
    lp_batch_free(e->batch);
    lp_sched_release(&e->sched);
    lp_prefix_free(e->prefix);
    lp_store_close(e->store);
    lp_runner_free(e->runner);
    lp_kv_free(e->kv);
    lp_status status = lp_trace_close(e->trace, lp_err_of(err));
    lp_free(e->logits);
    lp_free(e->rank_times);
    lp_free(e->rank_pages_free);
    pthread_cond_destroy(&e->work);
    pthread_cond_destroy(&e->turn);
    pthread_mutex_destroy(&e->lock);
    lp_free(e);
    return lp_public(status);
}

// ---- for steps

lp_status lp_engine_reserve_logits(limpid_engine *e, int64_t n_rows, struct lp_err *err) {
    if (n_rows <= e->logit_rows) return LP_OK;
    lp_free(e->logits);
    e->logit_rows = 0;
    e->logits = lp_alloc((size_t)n_rows * (size_t)e->model->weights->h.n_vocab, sizeof *e->logits);
    if (!e->logits)
        return lp_err_set(err, LP_STATUS_MEMORY,
                          "out of memory: %lld rows of logits; lower --chunk", (long long)n_rows);
    e->logit_rows = n_rows;
    return LP_OK;
}

int32_t lp_engine_roomiest_part(const limpid_engine *e) {
    int32_t best = 0;
    int64_t most = -1;
    for (int32_t i = 0; i < lp_kv_n_parts(e->kv); i++) {
        const int64_t room = lp_kv_n_free_in(e->kv, i) + lp_kv_n_idle_in(e->kv, i);
        if (room < most) continue;
        best = i;
        most = room;
    }
    return best;
}

lp_status lp_engine_grow(limpid_engine *e, struct lp_page_table *table, int64_t n_tokens,
                         struct lp_err *err) {
    int64_t need = lp_kv_pages_of(n_tokens) - table->n_pages;
    if (need > lp_kv_n_free_in(e->kv, table->part))
        lp_prefix_make_room(e->prefix, table->part, need);
    return lp_page_table_grow(table, e->kv, n_tokens, err);
}

int64_t limpid_engine_context(const limpid_engine *e) {
    return e->n_context;
}
size_t limpid_engine_kv_bytes(const limpid_engine *e) {
    return lp_kv_bytes(e->kv);
}
size_t limpid_engine_scratch_bytes(const limpid_engine *e) {
    return lp_runner_bytes(e->runner);
}
int32_t limpid_argmax(const limpid_model *m, const float *logits) {
    return lp_sampler_argmax(logits, m->never, (int32_t)m->weights->h.n_vocab);
}
