// One clock for the traces of several ranks.
//
// A trace counts from the making of its engine, by the monotonic clock of its host. Ranks of one host
// share that clock, and their `process` events say where on it they began. Between hosts, steps tell:
//
//     rank 0   plans step s ........ gives it out ... runs it ... has all reports, gives tokens
//                     before_us                                              after_us
//     rank r                           start_us ....... end_us
//
//   C1. No rank starts a step before rank 0 has planned it: start >= before.
//   C2. No rank ends it behind what rank 0 does with its result: end <= after.
// How far r's clock is ahead is therefore at most every (start - before) and at least every
// (end - after). The middle is taken, half of the distance is its error. Where rank 0's trace is not
// there, the step before and the one behind stand for its plan and its result, on any rank.
//
// Clocks of hosts differ in speed, too: by some millionths where NTP keeps them, which an hour makes
// milliseconds. Where the steps of a time contradict each other by no more than that may be, its halves are
// looked at by themselves. What contradicts itself more is of another run.
#ifndef LP_TRACE_VIEW_CLOCK_H
#define LP_TRACE_VIEW_CLOCK_H

#include "trace/view_rank.h"

// Of all [n], what lp_view_rank has for it. The first one's clock is the common one. MEMORY.
lp_status lp_view_clock_align(struct lp_view_rank *ranks, size_t n, struct lp_err *err);
// A time by the clock of a rank, by the common one.
int64_t lp_view_clock_common(const struct lp_view_rank *rank, int64_t time_us);

#endif
