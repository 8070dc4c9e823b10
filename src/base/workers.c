// Workers wait for `generation` to change, run the job, count down `running`. Spin first (jobs come
// in bursts), then sleep on a futex-backed condition; the caller wakes sleepers only if there are
// any.
#include "base/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "base/alloc.h"

#define MAX_WORKERS 1024
#define SPIN_ROUNDS 2000 // 40 to 100 us: longer than the gaps between the operations of a step

struct worker_arg {
    struct lp_workers *workers;
    int index;
};

struct lp_workers {
    int n_workers;
    lp_worker_fn fn;
    void *job;
    _Alignas(64) _Atomic uint32_t generation;
    _Alignas(64) _Atomic int running;
    _Alignas(64) _Atomic int n_sleeping;
    _Atomic bool stop;
    _Alignas(64) _Atomic int barrier_arrived;
    _Alignas(64) _Atomic uint32_t barrier_generation;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    pthread_t *threads;
    struct worker_arg *args;
    int n_started;
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

// Spins a while and then gives the CPU away between looks: right on a machine with fewer free
// CPUs than workers too.
#define SPIN_UNTIL(condition)                                                                      \
    for (int round_ = 0; !(condition); round_++) {                                                 \
        if (round_ < SPIN_ROUNDS)                                                                  \
            relax();                                                                               \
        else                                                                                       \
            sched_yield();                                                                         \
    }

static void wait_for_job(struct lp_workers *w, uint32_t seen) {
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(&w->generation, memory_order_acquire) != seen) return;
        relax();
    }
    pthread_mutex_lock(&w->mutex);
    atomic_fetch_add(&w->n_sleeping, 1);
    while (atomic_load(&w->generation) == seen) pthread_cond_wait(&w->wake, &w->mutex);
    atomic_fetch_sub(&w->n_sleeping, 1);
    pthread_mutex_unlock(&w->mutex);
}

static void *worker_main(void *arg_) {
    struct worker_arg *arg = arg_;
    struct lp_workers *w = arg->workers;
    uint32_t seen = 0;
    for (;;) {
        wait_for_job(w, seen);
        seen = atomic_load_explicit(&w->generation, memory_order_acquire);
        if (atomic_load(&w->stop)) return NULL;
        w->fn(w->job, arg->index, w->n_workers);
        atomic_fetch_sub_explicit(&w->running, 1, memory_order_release);
    }
}

static void start_generation(struct lp_workers *w) {
    atomic_fetch_add(&w->generation, 1);
    if (atomic_load(&w->n_sleeping) > 0) {
        pthread_mutex_lock(&w->mutex);
        pthread_cond_broadcast(&w->wake);
        pthread_mutex_unlock(&w->mutex);
    }
}

int lp_cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); // a machine with more CPUs than cpu_set_t has bits
    return n < 1 ? 1 : n > MAX_WORKERS ? MAX_WORKERS : (int)n;
}

lp_status lp_workers_new(struct lp_workers **out, int n_threads, struct lp_err *err) {
    if (n_threads < 0 || n_threads > MAX_WORKERS)
        return lp_err_set(err, LP_STATUS_INVALID, "threads is %d, expected 1 to %d (0 = all CPUs)",
                          n_threads, MAX_WORKERS);
    if (n_threads == 0) n_threads = lp_cpu_count();
    struct lp_workers *w = lp_alloc_aligned(1, sizeof *w);
    if (!w) return lp_err_memory(err, sizeof *w, "the worker pool");
    *w = (struct lp_workers){.n_workers = n_threads};
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->threads = lp_alloc((size_t)n_threads, sizeof *w->threads);
    w->args = lp_alloc((size_t)n_threads, sizeof *w->args);
    if (!w->threads || !w->args) {
        lp_workers_free(w);
        return lp_err_memory(err, (size_t)n_threads * sizeof *w->threads, "the worker pool");
    }
    for (int i = 1; i < n_threads; i++) {
        w->args[i] = (struct worker_arg){w, i};
        if (pthread_create(&w->threads[i], NULL, worker_main, &w->args[i]) != 0) {
            lp_workers_free(w);
            return lp_err_set(err, LP_STATUS_LIMIT, "cannot start worker thread %d of %d", i,
                              n_threads);
        }
        w->n_started = i;
    }
    *out = w;
    return LP_OK;
}

void lp_workers_free(struct lp_workers *w) {
    if (!w) return;
    atomic_store(&w->stop, true);
    start_generation(w);
    for (int i = 1; i <= w->n_started; i++) pthread_join(w->threads[i], NULL);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->wake);
    lp_free(w->threads);
    lp_free(w->args);
    lp_free(w);
}

int lp_workers_count(const struct lp_workers *w) {
    return w->n_workers;
}

void lp_workers_run(struct lp_workers *w, lp_worker_fn fn, void *job) {
    if (w->n_workers == 1) {
        fn(job, 0, 1);
        return;
    }
    w->fn = fn;
    w->job = job;
    atomic_store_explicit(&w->running, w->n_workers - 1, memory_order_relaxed);
    start_generation(w);
    fn(job, 0, w->n_workers);
    SPIN_UNTIL(atomic_load_explicit(&w->running, memory_order_acquire) == 0);
}

void lp_workers_barrier(struct lp_workers *w) {
    if (w->n_workers == 1) return;
    uint32_t generation = atomic_load_explicit(&w->barrier_generation, memory_order_acquire);
    if (atomic_fetch_add(&w->barrier_arrived, 1) == w->n_workers - 1) {
        atomic_store_explicit(&w->barrier_arrived, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&w->barrier_generation, 1, memory_order_release);
        return;
    }
    SPIN_UNTIL(atomic_load_explicit(&w->barrier_generation, memory_order_acquire) != generation);
}
