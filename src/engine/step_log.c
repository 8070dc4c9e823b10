// What the last steps did, for whoever watches the engine work.
#include "base/clock.h"
#include "engine/engine.h"

void lp_step_log_add(limpid_engine *e, const struct lp_route_counts *before) {
    struct lp_step_log *log = &e->step_log;
    struct lp_route_counts now = lp_runner_route_counts(e->runner);
    limpid_step_info *info = &log->next;
    info->step = e->live.steps;
    info->end_s = (double)(lp_clock_ns() - log->began_ns) * 1e-9;
    info->n_waiting = e->sched.n_waiting;
    info->n_running = e->sched.n_running;
    info->pages_free = lp_kv_n_free(e->kv);
    info->route_expanded = (int32_t)(now.expanded - before->expanded);
    info->route_absorbed = (int32_t)(now.absorbed - before->absorbed);
    info->route_sparse = (int32_t)(now.sparse - before->sparse);
    info->route_dense = (int32_t)(now.dense - before->dense);
    info->route_gqa = (int32_t)(now.gqa - before->gqa);
    pthread_mutex_lock(&e->lock);
    log->steps[log->n_steps++ % LIMPID_STEP_LOG] = *info;
    pthread_mutex_unlock(&e->lock);
}

size_t limpid_engine_get_steps(const limpid_engine *engine, uint64_t since, limpid_step_info *out,
                               size_t max, double *now_s) {
    limpid_engine *e = (limpid_engine *)engine; // the lock changes, nothing that can be seen
    const struct lp_step_log *log = &e->step_log;
    size_t n = 0;
    pthread_mutex_lock(&e->lock);
    uint64_t kept = log->n_steps < LIMPID_STEP_LOG ? log->n_steps : LIMPID_STEP_LOG;
    uint64_t first = log->n_steps - kept;
    while (first < log->n_steps && log->steps[first % LIMPID_STEP_LOG].step <= since) first++;
    if (log->n_steps - first > max) first = log->n_steps - max;
    for (; first < log->n_steps; first++) out[n++] = log->steps[first % LIMPID_STEP_LOG];
    pthread_mutex_unlock(&e->lock);
    if (now_s) *now_s = (double)(lp_clock_ns() - log->began_ns) * 1e-9;
    return n;
}
