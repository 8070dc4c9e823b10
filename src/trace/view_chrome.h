// A trace in the JSON format of Chrome's tracing, which Perfetto (ui.perfetto.dev) opens. Process 1
// is the engine, a track for each of its threads: steps, counters, what concerns nobody alone.
// Process 2 has a track for each sequence: its life, its chunks, what was decided for it. The
// events' own fields are the args.
//
// Of a run of several ranks each is a process of its number, and sequences are the process behind the
// last: those of the first rank that is shown. What other ranks tell of a sequence is on their own tracks.
#ifndef LP_TRACE_VIEW_CHROME_H
#define LP_TRACE_VIEW_CHROME_H

#include "trace/view_index.h"
#include "trace/view_rank.h"

struct lp_view_chrome_part { // the trace of a rank
    struct lp_view_process process;
    struct lp_str trace;
    const struct lp_view_rank *rank; // on a common clock; NULL: alone
    int64_t later_us;                // times in the export are so much later
};

// index: of the first of the parts, [n]. selection: only what index->selected marks; else everything.
// MEMORY.
lp_status lp_view_chrome_write(const struct lp_view_index *index,
                               const struct lp_view_chrome_part *parts, size_t n, bool selection,
                               FILE *out, struct lp_err *err);

#endif
