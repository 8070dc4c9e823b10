// A progress bar on standard error, drawn only when that is a terminal.
#ifndef LP_BASE_PROGRESS_H
#define LP_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct lp_progress {
    const char *label; // not owned
    uint64_t total, start_ns, drawn_ns;
    bool on;
};

void lp_progress_init(struct lp_progress *bar, const char *label, uint64_t total_bytes);
void lp_progress_update(struct lp_progress *bar,
                        uint64_t done_bytes);     // draws at most 10 times a second
void lp_progress_finish(struct lp_progress *bar); // clears the line

#endif
