#include "base/progress.h"

#include <unistd.h>

#include "base/clock.h"

#define SECOND UINT64_C(1000000000)
#define DRAW_NS (SECOND / 10)
#define LINE_NS (30 * SECOND)
#define CELLS 24

void lp_progress_init(struct lp_progress *bar, const char *label, uint64_t total_bytes) {
    *bar = (struct lp_progress){.label = label,
                                .total = total_bytes,
                                .start_ns = lp_clock_ns(),
                                .on = true,
                                .terminal = isatty(2) == 1,
                                .out = stderr,
                                .clock_ns = lp_clock_ns};
}

void lp_progress_resume(struct lp_progress *bar, uint64_t done_bytes) {
    bar->before = done_bytes;
}

// "1:02:03 left", or nothing while there is no telling.
static void print_left(char *out, size_t n, double rate, uint64_t bytes) {
    double seconds = rate > 0 ? (double)bytes / rate : -1;
    out[0] = 0;
    if (seconds < 0 || seconds > 3600 * 1000) return;
    unsigned s = (unsigned)(seconds + 0.5);
    if (s >= 3600)
        snprintf(out, n, ", %u:%02u:%02u left", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, n, ", %u:%02u left", s / 60, s % 60);
}

static void print_size(char *out, size_t n, uint64_t bytes) {
    if (bytes < SECOND)
        snprintf(out, n, "%.1f MB", (double)bytes * 1e-6);
    else
        snprintf(out, n, "%.1f GB", (double)bytes * 1e-9);
}

static void draw(const struct lp_progress *bar, uint64_t done, uint64_t now) {
    if (done > bar->total) done = bar->total;
    double share = (double)done / (double)bar->total;
    double seconds = (double)(now - bar->start_ns) * 1e-9;
    uint64_t new_bytes = done > bar->before ? done - bar->before : 0;
    double rate = seconds > 0 ? (double)new_bytes / seconds : 0;
    char left[48], size[32], cells[CELLS + 1];
    print_left(left, sizeof left, rate, bar->total - done);
    print_size(size, sizeof size, bar->total);
    for (int i = 0; i < CELLS; i++) cells[i] = i < (int)(share * CELLS) ? '#' : '.';
    cells[CELLS] = 0;
    if (bar->terminal)
        fprintf(bar->out, "\r%s [%s] %3d%% of %s, %.2f GB/s%s\033[K", bar->label, cells,
                (int)(share * 100), size, rate * 1e-9, left);
    else
        fprintf(bar->out, "limpid: %s: %d%% of %s, %.2f GB/s%s\n", bar->label, (int)(share * 100),
                size, rate * 1e-9, left);
    fflush(bar->out);
}

void lp_progress_update(struct lp_progress *bar, uint64_t done_bytes) {
    if (!bar->on || bar->total == 0) return;
    uint64_t now = bar->clock_ns();
    uint64_t last = bar->drawn_ns ? bar->drawn_ns : bar->start_ns;
    bool first_bar = bar->terminal && !bar->drawn_ns;
    if (!first_bar && now - last < (bar->terminal ? DRAW_NS : LINE_NS)) return;
    bar->drawn_ns = now;
    draw(bar, done_bytes, now);
}

void lp_progress_finish(struct lp_progress *bar) {
    if (bar->on && bar->terminal && bar->drawn_ns) {
        fprintf(bar->out, "\r\033[K");
        fflush(bar->out);
    }
    bar->on = false;
}
