// The ranks of a run as a text for people: what each did and waited, step by step if asked for, and what
// of their traces is missing.
//
//   own         of a step: what a rank did itself, all but its exchanges with others
//   slowest     the rank with the most of it
//   waited for  the rank with the most of it and of its delay behind the rank that began first
#ifndef LP_TRACE_VIEW_RANKS_H
#define LP_TRACE_VIEW_RANKS_H

#include "trace/view_rank.h"

// [n]: first those that have a trace, n_there, by their numbers and aligned. all: every step, else the
// slowest. MEMORY.
lp_status lp_view_ranks_write(const struct lp_view_rank *ranks, size_t n, size_t n_there, bool all,
                              FILE *out, struct lp_err *err);

#endif
