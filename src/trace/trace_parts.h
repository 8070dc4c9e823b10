// Inside trace: what stands behind the handle, and who may touch what.
//
//   rings[0]: facts, rings[1]: shared by threads that got no ring; both written under `mutex`.
//   rings[2...]: one a thread. Rings are added under `mutex` and stay until the trace is closed;
//   when their thread has ended another one may take them over.
//   The file is written by one drainer at a time, under `file_mutex`.
#ifndef LP_TRACE_TRACE_PARTS_H
#define LP_TRACE_TRACE_PARTS_H

#include <pthread.h>

#include "trace/trace_ring.h"

#define LP_TRACE_MAX_RINGS 66
#define LP_TRACE_FACTS 128
#define LP_TRACE_SHARED 4096

struct lp_trace {
    uint64_t number, start_ns; // number: of all traces of this process, which addresses may repeat
    struct lp_trace_ring *rings[LP_TRACE_MAX_RINGS];
    _Atomic int n_rings;
    pthread_mutex_t mutex;

    int fd; // -1: no file
    char *path, *buffer;
    pthread_mutex_t file_mutex;
    pthread_cond_t wake; // of the draining thread
    pthread_t thread;
    bool stop;
    int failed;               // the errno of the first write that failed; 0: none did
    _Atomic uint32_t drainer; // the thread that is writing to the file; 0: none
};

// The kernel's number of the calling thread, as in `top -H`. Async-signal-safe.
uint32_t lp_trace_thread(void);

// trace_read.c: events of all rings in order of time. Async-signal-safe.
struct lp_trace_cursor {
    const struct lp_trace_ring *ring;
    uint64_t next, end; // next: behind `record`, if has_record
    struct lp_trace_record record;
    bool has_record;
};
struct lp_trace_reader {
    struct lp_trace_cursor cursors[LP_TRACE_MAX_RINGS];
    struct lp_trace_record out;
    int n;
};
// undrained: only what the file does not have.
void lp_trace_reader_init(struct lp_trace_reader *reader, const struct lp_trace *trace,
                          bool undrained);
// NULL: no more. The record is the reader's, until the next call.
const struct lp_trace_record *lp_trace_reader_next(struct lp_trace_reader *reader);
// Events that were overwritten, without facts.
uint64_t lp_trace_n_overwritten(const struct lp_trace *trace);

// trace_file.c
lp_status lp_trace_file_open(struct lp_trace *trace, const char *path, struct lp_err *err);
// Empties the rings into the file. False: a crash is being written, nothing is done.
bool lp_trace_file_drain(struct lp_trace *trace);
// The last drain; stops the thread. Fails where the file is incomplete.
lp_status lp_trace_file_close(struct lp_trace *trace, struct lp_err *err);
// All of it, or false. Async-signal-safe.
bool lp_trace_write_all(int fd, const char *data, size_t n_bytes);

// crash.c: the traces that a crash writes; at most LP_CRASH_TRACES, the others are left out.
#define LP_CRASH_TRACES 16
#define LP_CRASH_N_SIGNALS 5
extern const int lp_crash_signals[LP_CRASH_N_SIGNALS];
void lp_crash_add(struct lp_trace *trace);
void lp_crash_remove(struct lp_trace *trace); // does not return when a crash is being written
bool lp_crash_is_writing(void);

#endif
