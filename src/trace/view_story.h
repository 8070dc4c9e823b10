// One sequence as a text for people: admitted when, what each step did of it and why, what it gave
// out, how it ended. Steps that are alike are one line.
#ifndef LP_TRACE_VIEW_STORY_H
#define LP_TRACE_VIEW_STORY_H

#include "trace/view_steps.h"

struct lp_view_note { // what happened between steps
    int64_t time_us;
    const char *text;
};

struct lp_view_story {
    const struct lp_view_seq *seq;
    struct lp_view_steps steps;
    struct lp_view_note *notes;
    size_t n_notes, max_notes;
};

// Takes up an event of the sequence, or of nobody and of a step it took part in. False without
// memory.
bool lp_view_story_take(struct lp_view_story *story, struct lp_view_index *index,
                        const struct lp_view_event *event);
void lp_view_story_write(const struct lp_view_story *story, const struct lp_view_index *index,
                         FILE *out);
void lp_view_story_release(struct lp_view_story *story);

#endif
