// A trace in the JSON format of Chrome's tracing, which Perfetto (ui.perfetto.dev) opens. Process 1
// is the engine, a track for each of its threads: steps, counters, what concerns nobody alone.
// Process 2 has a track for each sequence: its life, its chunks, what was decided for it. The
// events' own fields are the args.
#ifndef LP_TRACE_VIEW_CHROME_H
#define LP_TRACE_VIEW_CHROME_H

#include "trace/view_index.h"

// selection: only what index->selected marks; else everything. MEMORY.
lp_status lp_view_chrome_write(const struct lp_view_index *index, struct lp_str trace,
                               bool selection, FILE *out, struct lp_err *err);

#endif
