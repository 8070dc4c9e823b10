// A crash of the program: before SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT takes its course, what
// the rings of all open traces hold and their files do not have yet is written, and one sentence on
// standard error says where. In the handler nothing is allocated, locked or printed by stdio.
//
// A trace with a file is completed in that file; the others go to limpid-crash-PID.jsonl in a
// directory that was opened before. The last line of each is a `crash` event. Other threads run on
// meanwhile; what they record then is read or not, slot by slot.
#ifndef LP_TRACE_CRASH_H
#define LP_TRACE_CRASH_H

#include "base/status.h"

// Installs the handlers, for the whole process, and an alternate stack for the calling thread.
// dir: NULL or "" = the current directory. A second call only changes the directory. Errors: IO
// (names the directory).
lp_status lp_crash_install(const char *dir, struct lp_err *err);

// For a thread that may run out of its stack: another one for the handler. It does nothing where
// no handlers are installed or the thread has one. Without memory there is none.
struct lp_crash_stack {
    void *block;
};
void lp_crash_stack_set(struct lp_crash_stack *stack);
void lp_crash_stack_release(struct lp_crash_stack *stack); // by the same thread

#endif
