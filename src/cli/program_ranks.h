// The ranks of a program that was started as one of several processes.
#ifndef LP_CLI_PROGRAM_RANKS_H
#define LP_CLI_PROGRAM_RANKS_H

#include "limpid.h"

extern limpid_ranks *lp_program_ranks; // NULL: alone

// At the start. With --ranks N among the arguments, and not yet started by a launcher, the program becomes
// mpirun, which starts it N times. Of several processes all but rank 0 work here until that one ends.
// Returns -1 where the command is to be run, else the exit status.
int lp_program_ranks_begin(int argc, char **argv);
// The end of work with the others: rank 0 tells them so. Returns the exit status.
int lp_program_ranks_end(int status);

#endif
