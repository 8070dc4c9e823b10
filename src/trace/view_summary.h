// A whole trace as a text for people: what ran, how many steps and requests, which routes and
// kernels, what was slow, what ended it; then its sequences, a line each.
#ifndef LP_TRACE_VIEW_SUMMARY_H
#define LP_TRACE_VIEW_SUMMARY_H

#include "trace/view_index.h"

void lp_view_summary_write(const struct lp_view_index *index, const struct lp_view_notes *notes,
                           FILE *out);
// The kernels of weights alone, a line each.
void lp_view_summary_kernels(const struct lp_view_index *index, FILE *out);

#endif
