// Which process wrote a trace: its `process` event, which stands among the first.
#ifndef LP_TRACE_VIEW_PROCESS_H
#define LP_TRACE_VIEW_PROCESS_H

#include "trace/view_lines.h"

struct lp_view_process {
    int64_t rank, n_ranks, pid;    // -1: not told, as in traces of before
    int64_t monotonic_us, wall_us; // of the host, when the trace's time was 0; -1: not told
    char host[64];                 // "": not told
};

extern const struct lp_view_process lp_view_process_untold;

void lp_view_process_take(struct lp_view_process *process, const struct lp_view_event *event);
// From the trace's beginning.
void lp_view_process_find(struct lp_view_process *process, struct lp_str trace);
// "rank 1 on b", or without a known host "rank 1". Cut to size.
void lp_view_process_name(const struct lp_view_process *process, char *out, size_t size);

#endif
