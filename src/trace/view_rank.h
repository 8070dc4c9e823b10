// The steps of one rank, read from its trace. Every rank runs the same steps under the same numbers;
// what differs is when, how long, and how much of it in exchanges with the others.
#ifndef LP_TRACE_VIEW_RANK_H
#define LP_TRACE_VIEW_RANK_H

#include "trace/view_process.h"

struct lp_view_rank_step { // times by the clock of its rank
    int64_t step, n_tokens, start_us, end_us;
    int64_t exchange_ns; // of that, in exchanges with other ranks; -1: not told
    // No rank began the step before the one, and all had done it by the other; INT64_MIN, INT64_MAX:
    // not known.
    int64_t before_us, after_us;
};

enum lp_view_clock {      // how the times of a rank come onto the common clock
    LP_VIEW_CLOCK_COMMON, // they are on it
    LP_VIEW_CLOCK_HOST,   // one host, one monotonic clock
    LP_VIEW_CLOCK_STEPS,  // by common steps, within error_us
    LP_VIEW_CLOCK_WALL,   // by the hosts' wall clocks
    LP_VIEW_CLOCK_NONE,   // not at all
};

struct lp_view_clock_piece {   // from a time on, by the clock of the rank
    int64_t from_us, ahead_us; // how far it is ahead of the common clock
};

struct lp_view_rank {
    const struct lp_view_file *file;
    struct lp_view_process process; // its rank is known
    struct lp_view_notes notes;
    struct lp_view_rank_step *steps; // by their numbers, which ascend
    size_t n, max;
    int64_t begun_step; // the last that something is told of; -1: none
    int64_t first_us;   // of its events
    char signal[32];    // that ended the process; "": none

    // view_clock.c
    enum lp_view_clock clock;
    struct lp_view_clock_piece
        *pieces; // [n_pieces], in order of time; none: it is the common clock
    size_t n_pieces, max_pieces;
    int64_t error_us; // of the pieces, where steps tell
    int64_t
        apart_us;    // steps contradict each other, or the host's clock, by so much; 0: they do not
    size_t n_common; // steps
};

// rank: that of the file, where the trace does not say. MEMORY; release it either way.
lp_status lp_view_rank_read(struct lp_view_rank *rank, const struct lp_view_file *file,
                            struct lp_err *err);
void lp_view_rank_release(struct lp_view_rank *rank);

#endif
