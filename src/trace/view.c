#include "trace/view.h"

#include <errno.h>
#include <string.h>

#include "trace/view_chrome.h"
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
        return lp_view_chrome_write(index, trace, selection, out, err);
    default:
        if (selection) return write_stories(index, trace, out, err);
        lp_view_summary_write(index, notes, out);
        return LP_OK;
    }
}

lp_status lp_view_write(struct lp_str trace, const char *request, enum lp_view_format format,
                        FILE *out, struct lp_view_notes *notes, struct lp_err *err) {
    struct lp_view_index index;
    *notes = (struct lp_view_notes){0};
    lp_status status = lp_view_index_build(&index, trace, notes, err);
    if (!status && notes->n_events == 0)
        status = lp_err_set(err, LP_STATUS_FORMAT,
                            "holds no event of a trace: expected lines of JSON such as "
                            "{\"event\":\"step\",...}");
    notes->found = !status;
    if (!status && request) status = lp_view_index_select(&index, request, &notes->found, err);
    if (!status && notes->found) {
        errno = 0;
        status = write_as(&index, trace, request != NULL, format, out, notes, err);
        if (!status && (fflush(out) != 0 || ferror(out)))
            status = lp_err_set(err, LP_STATUS_IO, "cannot write what the trace tells: %s",
                                strerror(errno ? errno : EIO));
    }
    lp_view_index_release(&index);
    return status;
}
