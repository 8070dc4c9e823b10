// How times and numbers stand in the texts about a trace.
#ifndef LP_TRACE_VIEW_WORDS_H
#define LP_TRACE_VIEW_WORDS_H

#include <stdint.h>
#include <stdio.h>

#define LP_VIEW_INDENT 17 // width of what lp_view_put_time writes, and two more

void lp_view_put_time(int64_t time_us, FILE *out); // "   1.250000 s  ", since the trace was opened
void lp_view_put_ms(double us, FILE *out);         // "41.2 ms", "3.10 s"
void lp_view_put_n(int64_t n, const char *noun, FILE *out); // "1 token", "3 tokens"

#endif
