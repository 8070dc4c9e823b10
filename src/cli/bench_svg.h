// The rows of a benchmark as a drawing: tokens per second over the depth beside their limits, and
// what the operations took of the time at each depth. One SVG file without outside parts, with a
// title and a description that tells every row in words.
#ifndef LP_CLI_BENCH_SVG_H
#define LP_CLI_BENCH_SVG_H

#include "base/bytes.h"
#include "cli/bench_report.h"

// Rows in any order. Appends the document; false without memory.
bool lp_bench_svg(struct lp_bytes *out, const struct lp_bench_machine *m,
                  const struct lp_bench_row *rows, int n);

#endif
