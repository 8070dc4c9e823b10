// What an engine that hangs did last, written to a file once: limpid-stall-PID.jsonl in the working
// directory, as a crash's (trace/crash.h), by a thread of its own, so that who asks for the server's
// health never waits for a disk.
#ifndef LP_SERVE_STALL_H
#define LP_SERVE_STALL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "limpid.h"

struct lp_stall_dump { // zero-initialise
    atomic_bool begun;
    bool has_thread;
    pthread_t thread;
    const limpid_engine *engine;
};

// Writes it, the first time. From any thread; does not wait.
void lp_stall_dump_begin(struct lp_stall_dump *dump, const limpid_engine *engine);
void lp_stall_dump_end(struct lp_stall_dump *dump); // waits until it is written; nobody begins now

#endif
