// The one line that a merge or a split ends with.
#ifndef LP_CLI_COPY_REPORT_H
#define LP_CLI_COPY_REPORT_H

#include "files/merge.h"

// "wrote WHAT: 1234 tensors, ...": bytes, seconds, rate of this run.
void lp_copy_report_print(const char *what, const struct lp_copy_report *report);

#endif
