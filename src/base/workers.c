// Workers wait at gates: one that opens with each job, one where they meet inside a job, one where
// the caller waits for the last of them. Whoever waits looks at the gate for a while, since the
// operations of a step follow within microseconds, and then sleeps in the kernel.
//
// On a machine that is shared two things go wrong, and docs/performance.md has the figures:
// 1. A worker waits for another whose CPU runs somebody else's program. Asleep it leaves its own CPU
//    idle, and an idle CPU takes over a thread that waits for one. Giving the CPU away with
//    sched_yield does not do that: the CPU is never idle, and the other waits for its turn, some
//    milliseconds each time.
// 2. Two workers come to lie on one CPU, since the system wakes a thread near the one that woke it.
//    To look at the gate then keeps the very worker from running that is waited for. Each notes its
//    CPU in its place; who finds another there gives the CPU away between looks.
#include "base/workers.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread_signals.h"
#include "base/topology.h"

#define MAX_WORKERS 1024
// Longer than nearly all gaps between the operations of a step (50 us made decode 3% slower, since a
// thread takes that long to wake; 500 us no faster), shorter than a turn of the scheduler, which is
// some milliseconds.
#define SPIN_NS 200000
#define LOOKS_PER_CLOCK 16

// A counter that goes up when the gate opens. All of it that is written often has a cache line of
// its own.
struct gate {
    _Alignas(64) _Atomic uint32_t count;
    _Atomic int n_sleeping;
};

struct worker_arg {
    struct lp_workers *workers;
    int index, cpu; // cpu: to be bound to, or -1
};

struct place {
    _Alignas(64) _Atomic int cpu; // where the worker was last seen; a hint
};

struct lp_workers {
    int n_workers;
    uint64_t spin_ns; // 0: more workers than CPUs, whoever waits stands in the way of another
    lp_worker_fn fn;
    void *job;
    struct gate start, meet, finish;
    _Alignas(64) _Atomic int n_running; // workers that have not finished the job
    _Alignas(64) _Atomic int n_arrived; // workers at the barrier
    _Atomic bool stop;
    struct place *places; // [n_workers]
    pthread_t *threads;
    struct worker_arg *args;
    int n_started;
};

// ---- gates

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static inline uint32_t gate_count(struct gate *g) {
    return atomic_load_explicit(&g->count, memory_order_acquire);
}

// A sleeper counts itself before the kernel compares the count; the opener raises the count before
// it looks for sleepers: one of them sees the other.
static void gate_sleep(struct gate *g, uint32_t seen) {
    atomic_fetch_add(&g->n_sleeping, 1);
    while (gate_count(g) == seen)
        syscall(SYS_futex, &g->count, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&g->n_sleeping, 1);
}

// The index of this thread in the pool whose job it is in.
static _Thread_local int own_index;

// Notes where this thread is, and tells whether another worker was last seen there. Written only
// when it changes, so that reading the places of all stays cheap.
static bool shares_cpu(struct lp_workers *w) {
    _Atomic int *own = &w->places[own_index].cpu;
    int here = sched_getcpu(), n = 0;
    if (atomic_load_explicit(own, memory_order_relaxed) != here)
        atomic_store_explicit(own, here, memory_order_relaxed);
    for (int i = 0; i < w->n_workers; i++)
        n += atomic_load_explicit(&w->places[i].cpu, memory_order_relaxed) == here;
    return n > 1;
}

static void gate_wait(struct lp_workers *w, struct gate *g, uint32_t seen) {
    uint64_t begin = 0;
    bool shared = false;
    for (unsigned look = 1; w->spin_ns; look++) {
        if (gate_count(g) != seen) return;
        if (shared)
            sched_yield();
        else
            relax();
        if (!shared && look % LOOKS_PER_CLOCK) continue;
        uint64_t now = lp_clock_ns();
        if (!begin) {
            begin = now;
            shared = shares_cpu(w);
        } else if (now - begin > w->spin_ns) {
            break;
        }
    }
    if (gate_count(g) == seen) gate_sleep(g, seen);
}

static void gate_open(struct gate *g) {
    atomic_fetch_add(&g->count, 1);
    if (atomic_load(&g->n_sleeping) > 0)
        syscall(SYS_futex, &g->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

// ---- threads

static void *worker_main(void *arg_) {
    struct worker_arg *arg = arg_;
    struct lp_workers *w = arg->workers;
    own_index = arg->index;
    if (arg->cpu >= 0 && !lp_topology_bind_thread(arg->cpu))
        lp_log(LP_LOG_WARN, "worker thread %d cannot be bound to CPU %d; it runs unbound",
               arg->index, arg->cpu);
    for (uint32_t seen = 0;; seen++) {
        gate_wait(w, &w->start, seen);
        if (atomic_load(&w->stop)) return NULL;
        shares_cpu(w);
        w->fn(w->job, arg->index, w->n_workers);
        if (atomic_fetch_sub(&w->n_running, 1) == 1) gate_open(&w->finish);
    }
}

static lp_status start_threads(struct lp_workers *w, const int *cpus, struct lp_err *err) {
    sigset_t before;
    int failed = 0;
    lp_thread_signals_block(&before);
    for (int i = 1; i < w->n_workers && !failed; i++) {
        w->args[i] = (struct worker_arg){w, i, cpus ? cpus[i] : -1};
        failed = pthread_create(&w->threads[i], NULL, worker_main, &w->args[i]) ? i : 0;
        if (!failed) w->n_started = i;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return LP_OK;
    return lp_err_set(err, LP_STATUS_LIMIT, "cannot start worker thread %d of %d", failed,
                      w->n_workers);
}

int lp_cpu_count(void) {
    int n = lp_topology_threads(lp_topology_machine());
    return n > MAX_WORKERS ? MAX_WORKERS : n;
}

lp_status lp_workers_new_bound(struct lp_workers **out, int n_threads, const int *cpus,
                               struct lp_err *err) {
    if (n_threads < 0 || n_threads > MAX_WORKERS)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "threads is %d, expected 1 to %d (0 = a physical core each)", n_threads,
                          MAX_WORKERS);
    if (n_threads == 0) n_threads = lp_cpu_count();
    struct lp_workers *w = lp_alloc_aligned(1, sizeof *w);
    if (!w) return lp_err_memory(err, sizeof *w, "the worker pool");
    *w = (struct lp_workers){.n_workers = n_threads};
    w->spin_ns = n_threads <= lp_topology_machine()->n_cpus ? SPIN_NS : 0;
    w->threads = lp_alloc((size_t)n_threads, sizeof *w->threads);
    w->args = lp_alloc((size_t)n_threads, sizeof *w->args);
    w->places = lp_alloc_aligned((size_t)n_threads, sizeof *w->places);
    lp_status status = LP_OK;
    if (!w->threads || !w->args || !w->places)
        status = lp_err_memory(err, (size_t)n_threads * sizeof *w->places, "the worker pool");
    for (int i = 0; i < n_threads && !status; i++) atomic_init(&w->places[i].cpu, -1);
    if (!status) status = start_threads(w, cpus, err);
    if (status)
        lp_workers_free(w);
    else
        *out = w;
    return status;
}

lp_status lp_workers_new(struct lp_workers **out, int n_threads, struct lp_err *err) {
    return lp_workers_new_bound(out, n_threads, NULL, err);
}

void lp_workers_free(struct lp_workers *w) {
    if (!w) return;
    atomic_store(&w->stop, true);
    gate_open(&w->start);
    for (int i = 1; i <= w->n_started; i++) pthread_join(w->threads[i], NULL);
    lp_free(w->threads);
    lp_free(w->args);
    lp_free(w->places);
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
    int before = own_index; // the caller may be a worker of another pool
    own_index = 0;
    w->fn = fn;
    w->job = job;
    uint32_t seen = gate_count(&w->finish);
    atomic_store_explicit(&w->n_running, w->n_workers - 1, memory_order_relaxed);
    gate_open(&w->start);
    fn(job, 0, w->n_workers);
    gate_wait(w, &w->finish, seen);
    own_index = before;
}

// The last to arrive sets the count back before it lets the others go on.
void lp_workers_barrier(struct lp_workers *w) {
    if (w->n_workers == 1) return;
    uint32_t seen = gate_count(&w->meet);
    if (atomic_fetch_add(&w->n_arrived, 1) < w->n_workers - 1) {
        gate_wait(w, &w->meet, seen);
        return;
    }
    atomic_store_explicit(&w->n_arrived, 0, memory_order_relaxed);
    gate_open(&w->meet);
}
