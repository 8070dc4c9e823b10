#include "base/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

void lp_progress_init(struct lp_progress *bar, const char *label, uint64_t total_bytes) {
    *bar = (struct lp_progress){
        .label = label, .total = total_bytes, .start_ns = lp_clock_ns(), .on = isatty(2) == 1};
}

void lp_progress_update(struct lp_progress *bar, uint64_t done_bytes) {
    if (!bar->on || bar->total == 0) return;
    uint64_t now = lp_clock_ns();
    if (bar->drawn_ns && now - bar->drawn_ns < 100000000u) return;
    bar->drawn_ns = now;
    double share = (double)done_bytes / (double)bar->total;
    double seconds = (double)(now - bar->start_ns) * 1e-9;
    char cells[31];
    for (int i = 0; i < 30; i++) cells[i] = i < (int)(share * 30) ? '#' : '.';
    cells[30] = 0;
    fprintf(stderr, "\r%s [%s] %3.0f%% %.2f GB/s ", bar->label, cells, share * 100,
            seconds > 0 ? (double)done_bytes * 1e-9 / seconds : 0.0);
    fflush(stderr);
}

void lp_progress_finish(struct lp_progress *bar) {
    if (bar->on && bar->drawn_ns) fprintf(stderr, "\r\033[K");
    bar->on = false;
}
