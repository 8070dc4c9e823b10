// A persistent pool of threads for the steps of one device. A job is a function called once per
// worker with its index; lp_workers_run returns when all have finished. Workers spin a short while
// for the next job before they sleep, since the operations of a step follow within microseconds;
// a pool without jobs takes no time of any CPU. One caller at a time; worker 0 is the calling thread.
#ifndef LP_BASE_WORKERS_H
#define LP_BASE_WORKERS_H

#include <stddef.h>

#include "base/status.h"

struct lp_workers;

typedef void (*lp_worker_fn)(void *job, int worker, int n_workers);

// n_threads 0 = lp_cpu_count(). Free with lp_workers_free. Errors: INVALID, MEMORY, LIMIT (a thread
// cannot be started).
lp_status lp_workers_new(struct lp_workers **out, int n_threads, struct lp_err *err);
// The same with worker i bound to CPU cpus[i] (-1: unbound); cpus NULL: none is. Worker 0 is never
// bound: it is whatever thread calls, whose later threads would be bound with it.
lp_status lp_workers_new_bound(struct lp_workers **out, int n_threads, const int *cpus,
                               struct lp_err *err);
void lp_workers_free(struct lp_workers *workers); // NULL is allowed
int lp_workers_count(const struct lp_workers *workers);
void lp_workers_run(struct lp_workers *workers, lp_worker_fn fn, void *job);

// Inside a job: all workers wait until each has arrived.
void lp_workers_barrier(struct lp_workers *workers);

// Splits 0..n-1 into n_workers ranges of multiples of `grain` (the last may be shorter).
static inline void lp_worker_range(size_t n, size_t grain, int worker, int n_workers, size_t *begin,
                                   size_t *end) {
    size_t n_grains = (n + grain - 1) / grain;
    size_t b = n_grains * (size_t)worker / (size_t)n_workers * grain;
    size_t e = n_grains * ((size_t)worker + 1) / (size_t)n_workers * grain;
    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}

// Threads to compute with where nobody said how many: the physical cores that this process may use,
// at most its share of CPU time (topology.h).
int lp_cpu_count(void);

#endif
