// Opening and closing a trace, and the way of an event into the ring of its thread.
#include "trace/trace.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "trace/trace_json.h"
#include "trace/trace_parts.h"

enum { RING_FACTS, RING_SHARED, FIRST_THREAD_RING };

static _Atomic uint64_t n_traces; // ever opened

static const bool is_fact[] = {
#define FIELD(kind, name)
#define EVENT(level, name, meaning, fields) LP_TRACE_##level == LP_TRACE_FACT,
#include "trace/trace_events.def"
#undef EVENT
#undef FIELD
};

static _Thread_local struct { // what this thread knows of itself
    uint64_t trace;           // the number of the trace that it has written to last; 0: none
    struct lp_trace_ring *ring;
    uint32_t thread;
} here;

uint32_t lp_trace_thread(void) {
    return (uint32_t)syscall(SYS_gettid);
}

// ---- open, close

static void free_trace(struct lp_trace *trace) {
    int n = atomic_load(&trace->n_rings);
    for (int i = 0; i < n; i++) lp_trace_ring_free(trace->rings[i]);
    pthread_mutex_destroy(&trace->mutex);
    lp_free(trace);
}

static bool add_ring(struct lp_trace *trace, uint64_t n_events) { // under mutex, or alone
    int n = atomic_load_explicit(&trace->n_rings, memory_order_relaxed);
    if (n == LP_TRACE_MAX_RINGS || !(trace->rings[n] = lp_trace_ring_new(n_events))) return false;
    atomic_store_explicit(&trace->n_rings, n + 1, memory_order_release);
    return true;
}

lp_status lp_trace_open(struct lp_trace **out, const char *path, struct lp_err *err) {
    struct lp_trace *trace = lp_alloc(1, sizeof *trace);
    if (!trace) return lp_err_memory(err, sizeof *trace, "the trace");
    trace->fd = -1;
    trace->number = atomic_fetch_add(&n_traces, 1) + 1;
    trace->start_ns = lp_clock_ns();
    pthread_mutex_init(&trace->mutex, NULL);
    lp_status status = LP_OK;
    if (!add_ring(trace, LP_TRACE_FACTS) || !add_ring(trace, LP_TRACE_SHARED))
        status = lp_err_memory(err, LP_TRACE_SHARED * sizeof(struct lp_trace_slot), "the trace");
    if (!status && path) status = lp_trace_file_open(trace, path, err);
    if (status) {
        free_trace(trace);
        return status;
    }
    lp_crash_add(trace);
    *out = trace;
    return LP_OK;
}

lp_status lp_trace_close(struct lp_trace *trace, struct lp_err *err) {
    if (!trace) return LP_OK;
    lp_crash_remove(trace);
    lp_status status = trace->fd < 0 ? LP_OK : lp_trace_file_close(trace, err);
    free_trace(trace);
    return status;
}

bool lp_trace_is_full(const struct lp_trace *trace) {
    return trace && trace->fd >= 0;
}

uint64_t lp_trace_start_ns(const struct lp_trace *trace) {
    return trace->start_ns;
}

// ---- an event

static bool has_ended(uint32_t thread) {
    return syscall(SYS_tgkill, getpid(), (int)thread, 0) != 0 && errno == ESRCH;
}

// The ring of the calling thread: its own, that of a thread that has ended, a new one, or the
// shared one. (A thread's number may come again: then what it finds is as good as its own.)
static struct lp_trace_ring *find_ring(struct lp_trace *trace) {
    struct lp_trace_ring *found = NULL;
    pthread_mutex_lock(&trace->mutex);
    int n = atomic_load_explicit(&trace->n_rings, memory_order_relaxed);
    for (int i = FIRST_THREAD_RING; i < n && !found; i++)
        if (atomic_load(&trace->rings[i]->owner) == here.thread) found = trace->rings[i];
    for (int i = FIRST_THREAD_RING; i < n && !found; i++)
        if (has_ended(atomic_load(&trace->rings[i]->owner))) found = trace->rings[i];
    if (!found && add_ring(trace, LP_TRACE_EVENTS)) found = trace->rings[n];
    if (found) atomic_store(&found->owner, here.thread);
    pthread_mutex_unlock(&trace->mutex);
    return found ? found : trace->rings[RING_SHARED];
}

// Where nothing may be lost: room for one more. False: there will be none, the program crashes.
static bool has_room(struct lp_trace *trace, struct lp_trace_ring *ring) {
    while (atomic_load_explicit(&ring->head, memory_order_relaxed) -
               atomic_load_explicit(&ring->tail, memory_order_acquire) >=
           ring->n)
        if (!lp_trace_file_drain(trace)) return false;
    return true;
}

static void write_to(struct lp_trace *trace, struct lp_trace_ring *ring, enum lp_trace_kind kind,
                     const void *event, size_t n_bytes) {
    struct lp_trace_record record;
    record.time_ns = lp_clock_ns();
    record.thread = here.thread;
    record.kind = kind;
    memcpy(record.payload, event, n_bytes);
    if (trace->fd < 0 || has_room(trace, ring)) lp_trace_ring_write(ring, &record, n_bytes);
}

void lp_trace_put(struct lp_trace *trace, enum lp_trace_kind kind, const void *event,
                  size_t n_bytes) {
    if (here.trace != trace->number) {
        here.thread = lp_trace_thread();
        here.ring = find_ring(trace);
        // A thread without a ring of its own asks again: one may have become free.
        here.trace = here.ring == trace->rings[RING_SHARED] ? 0 : trace->number;
    }
    struct lp_trace_ring *ring = is_fact[kind] ? trace->rings[RING_FACTS] : here.ring;
    if (ring == trace->rings[RING_FACTS] || ring == trace->rings[RING_SHARED]) {
        pthread_mutex_lock(&trace->mutex);
        write_to(trace, ring, kind, event, n_bytes);
        pthread_mutex_unlock(&trace->mutex);
    } else
        write_to(trace, ring, kind, event, n_bytes);
}

void lp_trace_copy(char *field, size_t n_bytes, const char *text) {
    size_t n = text ? strnlen(text, n_bytes - 1) : 0;
    memcpy(field, text ? text : "", n);
    memset(field + n, 0, n_bytes - n);
}
