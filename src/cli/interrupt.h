// The signals of a terminal, for a program that goes on: a flag for who computes, a pipe for who
// waits for keys. A handler may run on any thread; the pipe wakes the right one.
//
// Process-wide, as signals are: one conversation at a time.
#ifndef LP_CLI_INTERRUPT_H
#define LP_CLI_INTERRUPT_H

#include <stdbool.h>

// From now on SIGINT sets the flag, and SIGINT, SIGWINCH and SIGCONT each write their number, a
// byte, to the pipe. SIGTERM, SIGHUP and SIGQUIT put the terminal back as it is now (and end
// bracketed paste) before they end the program. False if there are no handles left.
bool lp_interrupt_watch(int terminal_fd);
void lp_interrupt_unwatch(void); // default actions again
int lp_interrupt_pipe(void);     // to poll for reading; -1 unless watched

bool lp_interrupted(void *unused); // SIGINT has come; as a request's is_gone
void lp_interrupt_clear(void);     // and empties the pipe

#endif
