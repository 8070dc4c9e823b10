// The signals of a thread that belongs to a pool or a reader: those of the program are for its own
// threads. Those of a fault stay open: the kernel gives them to the thread that made it, and where
// that blocks them the program is killed without its handler (trace/crash.h).
#ifndef LP_BASE_THREAD_SIGNALS_H
#define LP_BASE_THREAD_SIGNALS_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

// For the caller, until it sets *before again (pthread_sigmask): a thread that is started meanwhile
// keeps the mask.
static inline void lp_thread_signals_block(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}

#endif
