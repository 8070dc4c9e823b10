#include "trace/view_rank.h"

#include <string.h>

#include "base/clean.h"
#include "base/grow.h"

struct reading {
    struct lp_view_rank *rank;
    int64_t given_step, given_us;       // when the scheduler last said what a step takes
    int64_t exchange_step, exchange_ns; // a step of which operations are told
};

static struct lp_view_rank_step *last_of(const struct lp_view_rank *rank) {
    return rank->n > 0 ? &rank->steps[rank->n - 1] : NULL;
}

// What comes behind a step on rank 0 comes behind the reports of all ranks.
static void end_before(struct lp_view_rank *rank, int64_t time_us) {
    struct lp_view_rank_step *last = last_of(rank);
    if (last && last->after_us == INT64_MAX) last->after_us = time_us;
}

typedef bool (*taker)(struct reading *r, const struct lp_view_event *event, int64_t step);

static bool take_given(struct reading *r, const struct lp_view_event *event, int64_t step) {
    r->given_step = step;
    r->given_us = event->time_us;
    end_before(r->rank, event->time_us);
    return true;
}

static bool take_result(struct reading *r, const struct lp_view_event *event, int64_t step) {
    const struct lp_view_rank_step *last = last_of(r->rank);
    if (last && last->step == step) end_before(r->rank, event->time_us);
    return true;
}

// Operations of drafts stand behind their step, and are no part of it.
static bool take_operation(struct reading *r, const struct lp_view_event *event, int64_t step) {
    const int64_t ns = lp_view_int(event, "duration_ns", 0);
    if (r->exchange_step != step) r->exchange_ns = 0;
    r->exchange_step = step;
    if (strcmp(lp_view_text(event, "operation"), "ranks") == 0 && ns > 0)
        lp_view_add(&r->exchange_ns, ns);
    return true;
}

static bool take_step(struct reading *r, const struct lp_view_event *event, int64_t step) {
    struct lp_view_rank *rank = r->rank;
    const struct lp_view_rank_step *last = last_of(rank);
    int64_t took_us = lp_view_int(event, "duration_us", 0);
    if (took_us < 0) took_us = 0;
    if (last && step <= last->step) return true; // each is there once, and they ascend
    struct lp_view_rank_step row = {.step = step,
                                    .n_tokens = lp_view_int(event, "n_tokens", 0),
                                    .start_us = event->time_us - took_us,
                                    .end_us = event->time_us,
                                    .exchange_ns = r->exchange_step == step ? r->exchange_ns : -1,
                                    .before_us = last ? last->end_us : INT64_MIN,
                                    .after_us = INT64_MAX};
    if (r->given_step == step) row.before_us = r->given_us;
    end_before(rank, row.start_us);
    if (!LP_GROW(rank->steps, rank->max, rank->n + 1)) return false;
    rank->steps[rank->n++] = row;
    return true;
}

static const struct {
    const char *name;
    taker take;
} kinds[] = {{"schedule", take_given}, {"chunk", take_given},  {"operation", take_operation},
             {"step", take_step},      {"token", take_result}, {"draft", take_result}};

static bool take(struct reading *r, const struct lp_view_event *event) {
    struct lp_view_rank *rank = r->rank;
    const int64_t step = lp_view_int(event, "step", -1);
    if (rank->notes.n_events == 1 || event->time_us < rank->first_us)
        rank->first_us = event->time_us;
    if (lp_view_is(event, "process")) lp_view_process_take(&rank->process, event);
    if (lp_view_is(event, "crash"))
        lp_clean_text(rank->signal, sizeof rank->signal,
                      lp_str_from(lp_view_text(event, "signal")));
    if (step < 0) return true;
    if (step > rank->begun_step) rank->begun_step = step;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (lp_view_is(event, kinds[i].name)) return kinds[i].take(r, event, step);
    return true;
}

lp_status lp_view_rank_read(struct lp_view_rank *rank, const struct lp_view_file *file,
                            struct lp_err *err) {
    struct lp_view_lines lines;
    struct lp_view_event event;
    struct reading r = {.rank = rank, .given_step = -1, .exchange_step = -1};
    *rank = (struct lp_view_rank){
        .file = file, .process = lp_view_process_untold, .begun_step = -1, .first_us = 0};
    lp_view_lines_init(&lines, file->lines, &rank->notes);
    while (lp_view_lines_next(&lines, &event))
        if (!take(&r, &event)) {
            lp_view_lines_release(&lines);
            return lp_err_memory(err, 0, "the steps of a rank");
        }
    if (rank->process.rank < 0) rank->process.rank = file->rank;
    return LP_OK;
}

void lp_view_rank_release(struct lp_view_rank *rank) {
    lp_free(rank->steps);
    lp_free(rank->pieces);
    rank->steps = NULL;
    rank->pieces = NULL;
}
