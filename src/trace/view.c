#include "trace/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/view_chrome.h"
#include "trace/view_clock.h"
#include "trace/view_ranks.h"
#include "trace/view_story.h"
#include "trace/view_summary.h"
#include "trace/view_words.h"

bool lp_view_format_parse(const char *name, enum lp_view_format *out) {
    static const char *const names[LP_VIEW_N_FORMATS] = {"text", "json", "chrome"};
    for (int i = 0; i < LP_VIEW_N_FORMATS; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum lp_view_format)i;
            return true;
        }
    return false;
}

// Calls once for every event of the selection (selection false: of all).
static bool each_event(const struct lp_view_index *index, struct lp_str trace, bool selection,
                       bool (*take)(void *user, const struct lp_view_event *event), void *user) {
    struct lp_view_lines lines;
    struct lp_view_notes again;
    struct lp_view_event event;
    lp_view_lines_init(&lines, trace, &again);
    while (lp_view_lines_next(&lines, &event)) {
        if (selection && !lp_view_index_wants(index, &event)) continue;
        if (take(user, &event)) continue;
        lp_view_lines_release(&lines);
        return false;
    }
    return true;
}

static bool put_line(void *user, const struct lp_view_event *event) {
    FILE *out = user;
    fwrite(event->line.data, 1, event->line.len, out);
    fputc('\n', out);
    return true;
}

// ---- the stories of a selection ----

struct stories {
    struct lp_view_index *index;
    struct lp_view_story *of; // [index->n_selected]
};

static bool tell(void *user, const struct lp_view_event *event) {
    struct stories *s = user;
    const struct lp_view_seq *seq = lp_view_index_seq(s->index, event);
    int64_t step = lp_view_int(event, "step", -1);
    if (seq) return lp_view_story_take(&s->of[seq->selected - 1], s->index, event);
    for (size_t i = 0; i < s->index->n_selected && step >= 0; i++)
        if (lp_view_seq_has_step(s->index->selected[i], step) &&
            !lp_view_story_take(&s->of[i], s->index, event))
            return false;
    return true;
}

static void write_refusals(const struct lp_view_index *index, FILE *out) {
    for (size_t i = 0; i < index->n_refusals; i++)
        if (index->refusals[i].selected) {
            lp_view_put_time(index->refusals[i].time_us, out);
            fprintf(out, "rejected: prompt of %lld tokens\n",
                    (long long)index->refusals[i].n_prompt);
        }
}

static lp_status write_stories(struct lp_view_index *index, struct lp_str trace, FILE *out,
                               struct lp_err *err) {
    struct stories s = {index, lp_alloc(index->n_selected, sizeof *s.of)};
    if (!s.of) return lp_err_memory(err, 0, "the steps of a request");
    for (size_t i = 0; i < index->n_selected; i++) s.of[i].seq = index->selected[i];
    bool ok = each_event(index, trace, true, tell, &s);
    for (size_t i = 0; ok && i < index->n_selected; i++) {
        if (i > 0) fputc('\n', out);
        lp_view_story_write(&s.of[i], index, out);
    }
    if (ok) write_refusals(index, out);
    if (ok) lp_view_summary_kernels(index, out);
    for (size_t i = 0; i < index->n_selected; i++) lp_view_story_release(&s.of[i]);
    lp_free(s.of);
    return ok ? LP_OK : lp_err_memory(err, 0, "the steps of a request");
}

// ---- the whole ----

static lp_status write_as(struct lp_view_index *index, struct lp_str trace, bool selection,
                          enum lp_view_format format, FILE *out, const struct lp_view_notes *notes,
                          struct lp_err *err) {
    switch (format) {
    case LP_VIEW_JSON:
        each_event(index, trace, selection, put_line, out);
        return LP_OK;
    case LP_VIEW_CHROME:
        return lp_view_chrome_write(index,
                                    &(struct lp_view_chrome_part){index->process, trace, NULL, 0},
                                    1, selection, out, err);
    default:
        if (selection) return write_stories(index, trace, out, err);
        lp_view_summary_write(index, notes, out);
        return LP_OK;
    }
}

static lp_status flush(FILE *out, struct lp_err *err) {
    if (fflush(out) == 0 && !ferror(out)) return LP_OK;
    return lp_err_set(err, LP_STATUS_IO, "cannot write what the trace tells: %s",
                      strerror(errno ? errno : EIO));
}

static lp_status no_event(struct lp_err *err) {
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "holds no event of a trace: expected lines of JSON such as "
                      "{\"event\":\"step\",...}");
}

// The index of a trace, and what of it is asked for.
static lp_status look_up(struct lp_view_index *index, struct lp_str trace, const char *request,
                         struct lp_view_notes *notes, struct lp_err *err) {
    *notes = (struct lp_view_notes){0};
    lp_status status = lp_view_index_build(index, trace, notes, err);
    if (!status && notes->n_events == 0) status = no_event(err);
    notes->found = !status;
    if (!status && request) status = lp_view_index_select(index, request, &notes->found, err);
    return status;
}

lp_status lp_view_write(struct lp_str trace, const char *request, enum lp_view_format format,
                        FILE *out, struct lp_view_notes *notes, struct lp_err *err) {
    struct lp_view_index index;
    lp_status status = look_up(&index, trace, request, notes, err);
    if (!status && notes->found) {
        errno = 0;
        status = write_as(&index, trace, request != NULL, format, out, notes, err);
        if (!status) status = flush(out, err);
    }
    lp_view_index_release(&index);
    return status;
}

// ---- several ranks ----

static int by_rank(const void *a, const void *b) {
    const struct lp_view_rank *x = a, *y = b;
    return (x->process.rank > y->process.rank) - (x->process.rank < y->process.rank);
}

static bool is_there(const struct lp_view_rank *rank) {
    return rank->notes.n_events > 0;
}

// By their ranks, those that have a trace first.
static int there_first(const void *a, const void *b) {
    const bool x = is_there(a), y = is_there(b);
    return x != y ? y - x : by_rank(a, b);
}

static lp_status check_ranks(const struct lp_view_rank *ranks, size_t n, struct lp_err *err) {
    for (size_t i = 1; i < n; i++)
        if (ranks[i - 1].process.rank == ranks[i].process.rank)
            return lp_err_set(err, LP_STATUS_INVALID, "%s and %s are both of rank %lld",
                              ranks[i - 1].file->path, ranks[i].file->path,
                              (long long)ranks[i].process.rank);
    return LP_OK;
}

// Nothing in the export is before its beginning.
static lp_status write_chrome(const struct lp_view_index *index, const struct lp_view_rank *ranks,
                              size_t n, bool selection, FILE *out, struct lp_err *err) {
    struct lp_view_chrome_part *parts = lp_alloc(n, sizeof *parts);
    int64_t first_us = 0;
    if (!parts) return lp_err_memory(err, n * sizeof *parts, "the traces of ranks");
    for (size_t i = 0; i < n; i++) {
        const int64_t us = lp_view_clock_common(&ranks[i], ranks[i].first_us);
        if (us < first_us) first_us = us;
    }
    for (size_t i = 0; i < n; i++)
        parts[i] = (struct lp_view_chrome_part){ranks[i].process, ranks[i].file->lines, &ranks[i],
                                                -first_us};
    lp_status status = lp_view_chrome_write(index, parts, n, selection, out, err);
    lp_free(parts);
    return status;
}

// ranks: [n], by their numbers, of which the first n_there have a trace.
static lp_status write_ranks(struct lp_view_rank *ranks, size_t n, size_t n_there,
                             const struct lp_view_asked *asked, FILE *out,
                             struct lp_view_notes *notes, struct lp_err *err) {
    const bool is_text = asked->format == LP_VIEW_TEXT, selection = asked->request != NULL;
    const struct lp_str trace = ranks[0].file->lines;
    struct lp_view_index index;
    lp_status status = look_up(&index, trace, asked->request, notes, err);
    if (!status && notes->found) {
        errno = 0;
        if (is_text && !selection) {
            status = lp_view_ranks_write(ranks, n, n_there, asked->steps, out, err);
            if (!asked->steps) fputc('\n', out);
        }
        if (!status && asked->format == LP_VIEW_CHROME)
            status = write_chrome(&index, ranks, n_there, selection, out, err);
        else if (!status && !asked->steps)
            status = write_as(&index, trace, selection, asked->format, out, notes, err);
        if (!status) status = flush(out, err);
    }
    lp_view_index_release(&index);
    return status;
}

lp_status lp_view_write_ranks(const struct lp_view_file *files, size_t n,
                              const struct lp_view_asked *asked, FILE *out, size_t *shown,
                              struct lp_view_notes *notes, struct lp_err *err) {
    struct lp_view_rank *ranks = lp_alloc(n, sizeof *ranks);
    size_t n_there = 0;
    lp_status status = ranks ? LP_OK : lp_err_memory(err, n * sizeof *ranks, "the traces of ranks");
    for (size_t i = 0; i < n && !status; i++) {
        status = lp_view_rank_read(&ranks[i], &files[i], err);
        n_there += is_there(&ranks[i]);
    }
    *shown = 0;
    if (!status) {
        qsort(ranks, n, sizeof *ranks, by_rank);
        status = check_ranks(ranks, n, err);
    }
    if (!status && n_there == 0) status = no_event(err);
    if (!status) {
        qsort(ranks, n, sizeof *ranks, there_first);
        status = lp_view_clock_align(ranks, n_there, err);
        *shown = (size_t)(ranks[0].file - files);
    }
    if (!status) status = write_ranks(ranks, n, n_there, asked, out, notes, err);
    for (size_t i = 0; ranks && i < n; i++) lp_view_rank_release(&ranks[i]);
    lp_free(ranks);
    return status;
}
