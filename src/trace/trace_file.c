// The trace file: a thread empties the rings into it a few times a second; a writer whose ring is
// full does it itself. Lines are gathered in a buffer and go out whole, then the rings' tails move:
// what the file has and what a crash must still write never overlap, but for a crash in between.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "trace/trace_json.h"
#include "trace/trace_parts.h"

#define BUFFER_BYTES ((size_t)256 << 10)
#define PERIOD_NS 20000000 // between two visits of the thread; a full ring lasts longer

bool lp_trace_write_all(int fd, const char *data, size_t n_bytes) {
    while (n_bytes > 0) {
        ssize_t n = write(fd, data, n_bytes);
        if (n < 0 && errno == EAGAIN) poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 1000);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return false; // errno says why
        data += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

// Writes the buffer; what it held is now the file's. A file that cannot be written takes nothing
// more, and says so at its end; writers go on.
static void flush(struct lp_trace *trace, size_t *used, const struct lp_trace_reader *reader) {
    if (!trace->failed && !lp_trace_write_all(trace->fd, trace->buffer, *used))
        trace->failed = errno ? errno : EIO;
    *used = 0;
    for (int i = 0; i < reader->n; i++) {
        const struct lp_trace_cursor *c = &reader->cursors[i];
        atomic_store_explicit(&trace->rings[i]->tail, c->has_record ? c->next - 1 : c->next,
                              memory_order_release);
    }
}

static void drain(struct lp_trace *trace) { // under file_mutex
    const struct lp_trace_record *record;
    struct lp_trace_reader reader;
    size_t used = 0;
    lp_trace_reader_init(&reader, trace, true);
    while ((record = lp_trace_reader_next(&reader)) != NULL) {
        used += lp_trace_json(record, trace->start_ns, trace->buffer + used);
        if (BUFFER_BYTES - used < LP_TRACE_JSON_BYTES) flush(trace, &used, &reader);
    }
    flush(trace, &used, &reader);
}

// A crash looks at drainer after it has said that it writes, a drain says that it drains before it
// looks whether a crash writes: one of them sees the other.
static bool drain_unless_crashing(struct lp_trace *trace) {
    atomic_store(&trace->drainer, lp_trace_thread());
    bool may = !lp_crash_is_writing();
    if (may) drain(trace);
    atomic_store(&trace->drainer, 0);
    return may;
}

bool lp_trace_file_drain(struct lp_trace *trace) {
    pthread_mutex_lock(&trace->file_mutex);
    bool drained = drain_unless_crashing(trace);
    pthread_mutex_unlock(&trace->file_mutex);
    return drained;
}

static void *run(void *user) {
    struct lp_trace *trace = user;
    pthread_mutex_lock(&trace->file_mutex);
    while (!trace->stop && drain_unless_crashing(trace)) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += PERIOD_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&trace->wake, &trace->file_mutex, &until);
    }
    pthread_mutex_unlock(&trace->file_mutex);
    return NULL;
}

// Signals are for the program's threads, but those of a fault are for who has made it.
static int start_thread(struct lp_trace *trace) {
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < LP_CRASH_N_SIGNALS; i++) sigdelset(&all, lp_crash_signals[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&trace->thread, NULL, run, trace);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static void release(struct lp_trace *trace) {
    if (trace->fd >= 0) close(trace->fd);
    pthread_cond_destroy(&trace->wake);
    pthread_mutex_destroy(&trace->file_mutex);
    lp_free(trace->path);
    lp_free(trace->buffer);
}

lp_status lp_trace_file_open(struct lp_trace *trace, const char *path, struct lp_err *err) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&trace->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&trace->file_mutex, NULL);
    lp_status status = LP_OK;
    trace->path = lp_strdup(path);
    trace->buffer = lp_alloc(BUFFER_BYTES, 1);
    if (!trace->path || !trace->buffer)
        status = lp_err_memory(err, BUFFER_BYTES, "the trace's buffer");
    if (!status) {
        trace->fd = strcmp(path, "-") == 0
                        ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)
                        : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (trace->fd < 0)
            status = lp_err_set(err, LP_STATUS_IO, "cannot write the trace to %s: %s", path,
                                strerror(errno));
    }
    int failed = status ? 0 : start_thread(trace);
    if (failed)
        status = lp_err_set(err, LP_STATUS_MEMORY, "cannot start the trace's thread: %s",
                            strerror(failed));
    if (status) release(trace);
    return status;
}

lp_status lp_trace_file_close(struct lp_trace *trace, struct lp_err *err) {
    pthread_mutex_lock(&trace->file_mutex);
    trace->stop = true;
    pthread_cond_signal(&trace->wake);
    pthread_mutex_unlock(&trace->file_mutex);
    pthread_join(trace->thread, NULL);
    lp_trace_file_drain(trace);
    if (close(trace->fd) != 0 && !trace->failed) trace->failed = errno;
    trace->fd = -1; // it is closed either way
    lp_status status = LP_OK;
    if (trace->failed)
        status = lp_err_set(err, LP_STATUS_IO, "the trace %s is incomplete: writing it failed: %s",
                            trace->path, strerror(trace->failed));
    release(trace);
    return status;
}
