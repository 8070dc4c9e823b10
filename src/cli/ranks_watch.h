// A thread that sees to it that a process ends when its ranks have failed, whatever it is doing: waiting for a
// request, loading a model. And, where hosts are cut off, that its launcher ends too.
#ifndef LP_CLI_RANKS_WATCH_H
#define LP_CLI_RANKS_WATCH_H

#include "limpid.h"

// Of a program that a launcher has started, as soon as it has joined the ranks. Returns 0, or an exit status.
int lp_ranks_watch_begin(const limpid_ranks *ranks);
// Before it leaves them, once. Where they have failed the thread goes on, should leaving take too long.
void lp_ranks_watch_end(void);

#endif
