// How far a long job is, on standard error: share, rate, time left. On a terminal a bar, drawn over
// itself; elsewhere (a log, nohup) a line after the first 30 seconds and every 30 from then on, so
// that a short job says nothing and a long one shows that it lives.
#ifndef LP_BASE_PROGRESS_H
#define LP_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct lp_progress {
    const char *label; // not owned
    uint64_t total, start_ns, drawn_ns;
    uint64_t before;            // bytes that were done at the start: in the share, not in the rate
    bool on, terminal;          // terminal: a bar
    FILE *out;                  // standard error
    uint64_t (*clock_ns)(void); // lp_clock_ns; a test may set another
};

void lp_progress_init(struct lp_progress *bar, const char *label, uint64_t total_bytes);
void lp_progress_resume(struct lp_progress *bar, uint64_t done_bytes); // right after init, or never
void lp_progress_update(struct lp_progress *bar,
                        uint64_t done_bytes);     // draws at most 10 times a second
void lp_progress_finish(struct lp_progress *bar); // clears the line

#endif
