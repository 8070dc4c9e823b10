// Who makes steps: the engine's thread, or a caller; and what a step does beside running a batch.
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/request.h"
#include "model/expert_cache.h"
#include "trace/crash.h"

// ---- the turn

void lp_engine_take_turn(limpid_engine *e) {
    pthread_mutex_lock(&e->lock);
    uint64_t mine = e->next_turn++;
    while (e->turn_now != mine) pthread_cond_wait(&e->turn, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

void lp_engine_give_turn(limpid_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->turn_now++;
    pthread_cond_broadcast(&e->turn);
    pthread_mutex_unlock(&e->lock);
}

// ---- requests come and go

static void end_seq(limpid_engine *e, struct lp_seq *seq, const char *what) {
    if (seq->state == LP_SEQ_ENDED) return;
    lp_engine_trace_seq(e, seq, what);
    lp_sched_remove(e, seq);
    e->n_active--;
}

// The scheduler has done with a request: nobody or its owner frees it.
static void let_go(limpid_engine *e, limpid_request *r) {
    pthread_mutex_lock(&e->lock);
    r->in_engine = false;
    bool freed = r->freed;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&e->lock);
    if (freed) lp_request_destroy(r);
}

void lp_engine_end_seq(limpid_engine *e, struct lp_seq *seq) {
    limpid_request *r = seq->request;
    bool is_length = strcmp(lp_output_finish_reason(seq->output), "length") == 0;
    *(is_length ? &e->live.finished_length : &e->live.finished_stop) += 1;
    end_seq(e, seq, "ended");
    if (++r->n_ended == r->n) let_go(e, r);
}

void lp_engine_end_request(limpid_engine *e, limpid_request *r, const struct lp_err *err) {
    if (r->n_ended == r->n) return;
    if (err) lp_request_fail(r, err);
    // Whoever was told of a failure may have freed it since, which cancels too.
    bool cancelled = r->failed ? r->failure.status == LP_STATUS_CANCELLED : r->cancelled;
    const char *what = cancelled ? "cancelled" : "failed";
    for (int32_t i = 0; i < r->n; i++) {
        if (!cancelled && r->seqs[i].state != LP_SEQ_ENDED)
            lp_engine_trace_failure(e, &r->seqs[i], &r->failure);
        end_seq(e, &r->seqs[i], what);
    }
    r->n_ended = r->n;
    *(cancelled ? &e->live.cancelled : &e->live.failed) += 1;
    let_go(e, r);
}

// Whether a request must end now. Under lock: its owner may not free what is_gone looks at.
static bool is_over(limpid_request *r, uint64_t now, struct lp_err *err) {
    if (!r->freed && !r->cancelled && r->options.is_gone && r->options.is_gone(r->options.user))
        r->cancelled = true;
    if (r->cancelled || r->freed) {
        lp_err_set(err, LP_STATUS_CANCELLED, "the request was cancelled");
        return true;
    }
    if (!r->deadline_ns || now < r->deadline_ns) return false;
    lp_err_set(err, LP_STATUS_TIMEOUT, "the request took longer than its limit of %lld ms",
               (long long)r->options.timeout_ms);
    return true;
}

static void take_incoming(limpid_engine *e) {
    pthread_mutex_lock(&e->lock);
    limpid_request *list = e->incoming, *next;
    e->incoming = NULL;
    pthread_mutex_unlock(&e->lock);
    for (; list; list = next) {
        next = list->next;
        for (int32_t i = 0; i < list->n; i++) lp_sched_enqueue(&e->sched, &list->seqs[i]);
    }
}

// One request that is over, or NULL. Only one at a time, since ending it changes the lists.
static limpid_request *find_over(limpid_engine *e, uint64_t now, struct lp_err *err) {
    limpid_request *over = NULL;
    pthread_mutex_lock(&e->lock);
    for (int32_t i = 0; i < e->sched.n_running && !over; i++)
        if (is_over(e->sched.running[i]->request, now, err)) over = e->sched.running[i]->request;
    for (struct lp_seq *s = e->sched.waiting; s && !over; s = s->next)
        if (is_over(s->request, now, err)) over = s->request;
    pthread_mutex_unlock(&e->lock);
    return over;
}

void lp_engine_sweep(limpid_engine *e) {
    struct lp_err err;
    limpid_request *over;
    uint64_t now = lp_clock_ns();
    e->any_cancelled = false;
    take_incoming(e);
    while ((over = find_over(e, now, &err)) != NULL) lp_engine_end_request(e, over, &err);
    e->n_slots_used = e->sched.n_running;
}

// ---- a step

// Of several ranks together.
static void add_expert_stats(const struct lp_rank_times *times, int32_t n, limpid_engine_stats *s) {
    s->expert_slots = s->expert_hits = s->expert_ahead = s->expert_misses = s->expert_reads =
        s->expert_read_bytes = 0;
    s->expert_wait_s = 0;
    for (int32_t i = 0; i < n; i++) {
        s->expert_slots += times[i].expert_slots;
        s->expert_hits += times[i].expert_hits;
        s->expert_ahead += times[i].expert_ahead;
        s->expert_misses += times[i].expert_misses;
        s->expert_reads += times[i].expert_reads;
        s->expert_read_bytes += times[i].expert_read_bytes;
        s->expert_wait_s += (double)times[i].expert_wait_ns * 1e-9;
    }
}

static void put_expert_stats(const limpid_engine *e, limpid_engine_stats *s) {
    struct lp_expert_cache *cache = e->model->weights->expert_cache;
    if (e->rank_times) {
        const int32_t n = lp_comm_size(e->model->weights->ranks);
        add_expert_stats(lp_ranks_times(e->runner), n, s);
        return;
    }
    if (!cache) return;
    struct lp_expert_stats experts = lp_expert_cache_get_stats(cache);
    s->expert_slots = (uint64_t)experts.n_slots;
    s->expert_hits = experts.n_hits;
    s->expert_ahead = experts.n_ahead;
    s->expert_misses = experts.n_misses;
    s->expert_reads = experts.n_reads;
    s->expert_read_bytes = experts.read_bytes;
    s->expert_wait_s = (double)experts.wait_ns * 1e-9;
}

// Under lock.
static void publish_ranks(limpid_engine *e) {
    const int32_t n = lp_comm_size(e->model->weights->ranks);
    memcpy(e->rank_times, lp_ranks_times(e->runner), (size_t)n * sizeof *e->rank_times);
    for (int32_t i = 0; i < n; i++) {
        const int32_t part =
            i < lp_kv_n_parts(e->kv) ? i : 0; // of one part each has the same pages
        e->rank_pages_free[i] = lp_kv_n_free_in(e->kv, part);
    }
}

static void publish(limpid_engine *e) {
    limpid_engine_stats *s = &e->live;
    struct lp_route_counts routes = lp_runner_route_counts(e->runner);
    struct lp_store_stats disk = {0};
    if (e->store) disk = lp_store_get_stats(e->store);
    s->n_waiting = e->sched.n_waiting;
    s->n_running = e->sched.n_running;
    s->pages = lp_kv_n_pages(e->kv);
    s->pages_free = lp_kv_n_free(e->kv);
    s->pages_cached = lp_prefix_n_idle(e->prefix);
    s->page_tokens = LP_KV_PAGE_TOKENS;
    s->preemptions = e->sched.n_preempted;
    s->draft_switches = e->speculation.n_switches;
    s->drafting = e->speculation.on;
    s->route_expanded = routes.expanded;
    s->route_absorbed = routes.absorbed;
    s->route_sparse = routes.sparse;
    s->route_dense = routes.dense;
    s->route_gqa = routes.gqa;
    s->disk_pages = disk.pages;
    s->disk_bytes = disk.bytes;
    s->disk_reads = disk.reads;
    s->disk_writes = disk.writes;
    s->disk_damaged = disk.damaged;
    s->disk_dropped = disk.dropped + disk.failed;
    put_expert_stats(e, s);
    pthread_mutex_lock(&e->lock);
    s->requests = e->n_arrivals;
    s->rejected = e->n_rejected;
    e->stats = *s;
    if (e->rank_times) publish_ranks(e);
    pthread_mutex_unlock(&e->lock);
    e->n_slots_used = e->sched.n_running;
    e->beat_ns = lp_clock_ns();
}

// What is seen during the step: a prompt that takes long runs, it does not wait.
static void publish_queues(limpid_engine *e) {
    e->n_slots_used = e->sched.n_running; // what it admitted waits no more
    pthread_mutex_lock(&e->lock);
    e->stats.n_waiting = e->sched.n_waiting;
    e->stats.n_running = e->sched.n_running;
    pthread_mutex_unlock(&e->lock);
}

void lp_engine_make_step(limpid_engine *e) {
    struct lp_err why;
    struct lp_seq *refused;
    bool calibrate = false;
    lp_engine_sweep(e);
    bool drafts =
        lp_sched_has_answers(&e->sched) && lp_speculation_wants(&e->speculation, &calibrate);
    int64_t n_rows = lp_sched_plan(e, drafts, &refused, &why);
    publish_queues(e);
    if (refused) lp_engine_end_request(e, refused->request, &why);
    if (n_rows > 0) {
        struct lp_route_counts routes = lp_runner_route_counts(e->runner);
        lp_batch_run(e, drafts || calibrate, drafts);
        e->live.steps++;
        lp_step_log_add(e, &routes);
    }
    publish(e);
}

limpid_status limpid_engine_step(limpid_engine *e, int64_t *n_active, limpid_error *err) {
    pthread_mutex_lock(&e->lock);
    bool has_thread = e->has_thread;
    pthread_mutex_unlock(&e->lock);
    if (has_thread)
        return lp_public(lp_err_set(lp_err_of(err), LP_STATUS_INVALID,
                                    "the engine has a thread that makes its steps"));
    lp_engine_take_turn(e);
    lp_engine_make_step(e);
    lp_engine_give_turn(e);
    if (n_active) *n_active = e->n_active;
    return LIMPID_OK;
}

// ---- the engine's thread

static void *run(void *user) {
    limpid_engine *e = user;
    struct lp_crash_stack stack;
    lp_crash_stack_set(&stack);
    for (;;) {
        pthread_mutex_lock(&e->lock);
        while (!e->stop_thread && e->n_active == 0 && !e->any_cancelled)
            pthread_cond_wait(&e->work, &e->lock);
        bool stop = e->stop_thread;
        pthread_mutex_unlock(&e->lock);
        if (stop) break;
        lp_engine_take_turn(e);
        lp_engine_make_step(e);
        lp_engine_give_turn(e);
    }
    lp_crash_stack_release(&stack);
    return NULL;
}

limpid_status limpid_engine_start(limpid_engine *e, limpid_error *err) {
    pthread_mutex_lock(&e->lock);
    int failed = 0;
    bool had = e->has_thread;
    if (!had) {
        e->stop_thread = false;
        failed = pthread_create(&e->thread, NULL, run, e);
        e->has_thread = !failed;
    }
    pthread_mutex_unlock(&e->lock);
    if (had)
        return lp_public(
            lp_err_set(lp_err_of(err), LP_STATUS_INVALID, "the engine's thread runs already"));
    return failed ? lp_public(lp_err_set(lp_err_of(err), LP_STATUS_MEMORY,
                                         "cannot start the engine's thread: %s", strerror(failed)))
                  : LIMPID_OK;
}

void limpid_engine_stop(limpid_engine *e) {
    pthread_mutex_lock(&e->lock);
    bool had = e->has_thread;
    e->stop_thread = true;
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
    if (!had) return;
    pthread_join(e->thread, NULL);
    pthread_mutex_lock(&e->lock);
    e->has_thread = false;
    pthread_mutex_unlock(&e->lock);
}

// ---- what can be seen

size_t limpid_engine_get_ranks(const limpid_engine *engine, limpid_rank_info *out, size_t max) {
    limpid_engine *e = (limpid_engine *)engine; // its lock
    const struct lp_comm *ranks = e->model->weights->ranks;
    if (!ranks) return 0;
    const size_t n = (size_t)lp_comm_size(ranks);
    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; i < n && i < max; i++) {
        const struct lp_rank_times *t = &e->rank_times[i];
        out[i] = (limpid_rank_info){.host = lp_comm_host(ranks, (int32_t)i),
                                    .step_s = (double)t->step_ns * 1e-9,
                                    .wait_s = (double)t->wait_ns * 1e-9,
                                    .memory_bytes = t->memory_bytes,
                                    .kv_pages = lp_kv_part_pages(e->kv),
                                    .kv_pages_free = e->rank_pages_free[i],
                                    .expert_slots = t->expert_slots,
                                    .expert_hits = t->expert_hits,
                                    .expert_ahead = t->expert_ahead,
                                    .expert_misses = t->expert_misses,
                                    .expert_reads = t->expert_reads,
                                    .expert_read_bytes = t->expert_read_bytes,
                                    .expert_wait_s = (double)t->expert_wait_ns * 1e-9};
    }
    pthread_mutex_unlock(&e->lock);
    return n;
}

limpid_engine_stats limpid_engine_get_stats(const limpid_engine *engine) {
    limpid_engine *e = (limpid_engine *)engine; // the lock changes, nothing that can be seen
    pthread_mutex_lock(&e->lock);
    limpid_engine_stats stats = e->stats;
    pthread_mutex_unlock(&e->lock);
    uint64_t now = lp_clock_ns(), beat = e->beat_ns;
    stats.device_failed |= limpid_ranks_check(e->model->ranks, NULL) != LIMPID_OK;
    stats.last_step_age_s = e->n_active > 0 && now > beat ? (double)(now - beat) * 1e-9 : 0;
    return stats;
}
