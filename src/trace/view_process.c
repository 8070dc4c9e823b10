#include "trace/view_process.h"

#include "base/clean.h"

#define MOST_LOOKS 64 // events that may stand before it

const struct lp_view_process lp_view_process_untold = {-1, -1, -1, -1, -1, ""};

void lp_view_process_take(struct lp_view_process *process, const struct lp_view_event *event) {
    process->rank = lp_view_int(event, "rank", -1);
    process->n_ranks = lp_view_int(event, "n_ranks", -1);
    process->pid = lp_view_int(event, "pid", -1);
    process->monotonic_us = lp_view_int(event, "monotonic_us", -1);
    process->wall_us = lp_view_int(event, "wall_us", -1);
    lp_clean_text(process->host, sizeof process->host, lp_str_from(lp_view_text(event, "host")));
}

void lp_view_process_find(struct lp_view_process *process, struct lp_str trace) {
    struct lp_view_lines lines;
    struct lp_view_notes notes;
    struct lp_view_event event;
    *process = lp_view_process_untold;
    lp_view_lines_init(&lines, trace, &notes);
    for (int i = 0; i < MOST_LOOKS; i++) {
        if (!lp_view_lines_next(&lines, &event)) return;
        if (!lp_view_is(&event, "process")) continue;
        lp_view_process_take(process, &event);
        break;
    }
    lp_view_lines_release(&lines);
}

void lp_view_process_name(const struct lp_view_process *process, char *out, size_t size) {
    const char *on = process->host[0] ? " on " : "";
    snprintf(out, size, "rank %lld%s%s", (long long)process->rank, on, process->host);
}
