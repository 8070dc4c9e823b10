#include "trace/view_story.h"

#include <math.h>
#include <string.h>

#include "base/clean.h"
#include "base/grow.h"
#include "trace/view_words.h"

#define SHOWN_TOKENS 12 // of a line; a trace has them all

// ---- events ----

static const char *request_note(const struct lp_view_event *event, char *text, size_t size) {
    int64_t n_prompt = lp_view_int(event, "n_prompt", 0), n = lp_view_int(event, "n_tokens", 0),
            n_computed = lp_view_int(event, "n_computed", 0);
    const char *what = lp_view_text(event, "what");
    if (strcmp(what, "submitted") == 0)
        snprintf(text, size, "submitted: prompt of %lld tokens", (long long)n_prompt);
    else if (strcmp(what, "admitted") == 0)
        snprintf(
            text, size, "admitted: %lld tokens (prompt %lld), %lld of them known, %lld to compute",
            (long long)n, (long long)n_prompt, (long long)n_computed, (long long)(n - n_computed));
    else
        snprintf(text, size, "%.64s: prompt of %lld tokens and %lld behind it, %lld computed", what,
                 (long long)n_prompt, (long long)(n - n_prompt), (long long)n_computed);
    return text;
}

static const char *cache_note(const struct lp_view_event *event, char *text, size_t size) {
    snprintf(text, size, "known from the %.64s: %lld tokens, %lld of them read from disk",
             lp_view_text(event, "source"), (long long)lp_view_int(event, "n_cached", 0),
             (long long)lp_view_int(event, "n_from_disk", 0));
    return text;
}

static const char *failure_note(const struct lp_view_event *event, char *text, size_t size) {
    snprintf(text, size, "it failed: %.400s", lp_view_text(event, "message"));
    return text;
}

static bool add_note(struct lp_view_story *story, struct lp_view_index *index, int64_t time_us,
                     const char *text) {
    char clean[2048];
    const char *word = lp_view_word(index, lp_clean_text(clean, sizeof clean, lp_str_from(text)));
    if (!word || !LP_GROW(story->notes, story->max_notes, story->n_notes + 1)) return false;
    story->notes[story->n_notes++] = (struct lp_view_note){time_us, word};
    return true;
}

bool lp_view_story_take(struct lp_view_story *story, struct lp_view_index *index,
                        const struct lp_view_event *event) {
    char text[2048];
    if (lp_view_is(event, "request"))
        return add_note(story, index, event->time_us, request_note(event, text, sizeof text));
    if (lp_view_is(event, "cache") && lp_view_int(event, "n_cached", 0) > 0)
        return add_note(story, index, event->time_us, cache_note(event, text, sizeof text));
    if (lp_view_is(event, "failure"))
        return add_note(story, index, event->time_us, failure_note(event, text, sizeof text));
    return lp_view_steps_take(&story->steps, index, event);
}

void lp_view_story_release(struct lp_view_story *story) {
    lp_view_steps_release(&story->steps);
    lp_free(story->notes);
    *story = (struct lp_view_story){0};
}

// ---- runs of steps that are alike ----

struct run { // rows[first] ... rows[last]
    const struct lp_view_seq_step *first, *last;
};

// until_us: of the next note, which stands between steps.
static struct run run_from(const struct lp_view_story *s, size_t at, int64_t until_us) {
    struct run run = {&s->steps.rows[at], &s->steps.rows[at]};
    const struct lp_view_seq_step *end = s->steps.rows + s->steps.n;
    for (const struct lp_view_seq_step *next = run.last + 1;
         next < end && next->step == run.last->step + 1 && lp_view_steps_alike(run.first, next) &&
         (next->duration_us < 0) == (run.first->duration_us < 0) && next->time_us < until_us;
         next++)
        run.last = next;
    return run;
}

static int64_t rows_of(const struct lp_view_seq_step *s) {
    return s->n_prompt + s->n_answer + s->n_draft;
}

static void put_what(struct run run, const struct lp_view_seq *seq, FILE *out) {
    const struct lp_view_seq_step *s = run.first;
    int64_t drafts = 0, last = run.last->n_past + rows_of(run.last) - 1;
    int64_t accepted = 0;
    const char *each = run.first == run.last ? "" : " each";
    for (const struct lp_view_seq_step *i = run.first; i <= run.last; i++) {
        lp_view_add(&drafts, i->n_draft);
        lp_view_add(&accepted, i->n_accepted);
    }
    if (!s->has_chunk) {
        fprintf(out, " %lld keys", (long long)run.last->n_kv);
        return;
    }
    if (s->n_prompt > 0) {
        fputc(' ', out);
        lp_view_put_n(s->n_prompt, "prompt token", out);
        fputs(each, out);
    }
    if (s->n_prompt > 0 && s->n_answer > 0) fputs(" and", out);
    if (s->n_answer == 1)
        fprintf(out, " one token%s", each);
    else if (s->n_answer > 0)
        fprintf(out, " %lld tokens%s", (long long)s->n_answer, each);
    if (drafts > 0) {
        fputs(" and ", out);
        lp_view_put_n(drafts, "draft", out);
        fprintf(out, " (%lld came true)", (long long)accepted);
    }
    fprintf(out, " at %lld", (long long)s->n_past);
    if (last > s->n_past) fprintf(out, "-%lld", (long long)last);
    if (s->n_prompt > 0 && seq->n_prompt > 0) fprintf(out, " of %lld", (long long)seq->n_prompt);
}

static void put_others(struct run run, FILE *out) {
    int64_t least = run.first->n_sequences, most = least;
    for (const struct lp_view_seq_step *i = run.first; i <= run.last; i++) {
        if (i->n_sequences < least) least = i->n_sequences;
        if (i->n_sequences > most) most = i->n_sequences;
    }
    if (least < 1) return; // of an unfinished step it is not told
    if (most == 1)
        fputs(", alone", out);
    else if (least == most) {
        fputs(", with ", out);
        lp_view_put_n(most - 1, "other", out);
    } else
        fprintf(out, ", with %lld to %lld others", (long long)least - 1, (long long)most - 1);
}

static void put_duration(struct run run, const struct lp_view_index *index, FILE *out) {
    const struct lp_view_seq_step *slowest = run.first;
    double sum = 0;
    if (run.first->duration_us < 0) {
        fputs(index->signal ? ", did not end: the program crashed" : ", no end of it is here", out);
        return;
    }
    for (const struct lp_view_seq_step *i = run.first; i <= run.last; i++) {
        sum += (double)i->duration_us;
        if (i->duration_us > slowest->duration_us) slowest = i;
    }
    fputs(", ", out);
    lp_view_put_ms(sum / (double)(run.last - run.first + 1), out);
    if (run.first == run.last) return;
    fputs(" each (longest ", out);
    lp_view_put_ms((double)slowest->duration_us, out);
    fprintf(out, " in step %lld)", (long long)slowest->step);
}

// ---- how layers attended ----

// The first run of layers says it for all that attend alike.
static bool is_first(const struct lp_view_seq_step *s, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (s->layers[i].how == s->layers[at].how) return false;
    return true;
}

static void put_layers(const struct lp_view_seq_step *s, FILE *out) {
    for (size_t i = 0; i < s->n_layers; i++) {
        if (!is_first(s, i)) continue;
        const char *separator = "";
        bool many = s->layers[i].first != s->layers[i].last;
        for (size_t j = i + 1; j < s->n_layers && !many; j++)
            many = s->layers[j].how == s->layers[i].how;
        fprintf(out, "%*slayer%s ", LP_VIEW_INDENT, "", many ? "s" : "");
        for (size_t j = i; j < s->n_layers; j++) {
            if (s->layers[j].how != s->layers[i].how) continue;
            fprintf(out, "%s%lld", separator, (long long)s->layers[j].first);
            if (s->layers[j].last > s->layers[j].first)
                fprintf(out, "-%lld", (long long)s->layers[j].last);
            separator = ", ";
        }
        fprintf(out, ": %s\n", s->layers[i].how);
    }
}

static void put_experts(const struct lp_view_seq_step *s, FILE *out) {
    if (s->n_hit > 0)
        fprintf(
            out,
            "%*sexperts: %lld of all layers were hit; most tokens (%lld) went to expert %lld of "
            "layer %lld\n",
            LP_VIEW_INDENT, "", (long long)s->n_hit, (long long)s->n_most,
            (long long)s->most_expert, (long long)s->most_layer);
}

// ---- tokens that were given out ----

static void put_token(const struct lp_view_token *t, FILE *out) {
    if (t->id >= 0)
        fprintf(out, "%lld", (long long)t->id);
    else
        fputc('?', out); // a server hides it
    if (isnan(t->logprob)) return;
    fprintf(out, " (%.2f", t->logprob);
    if (t->rank > 0) fprintf(out, ", rank %lld", (long long)t->rank);
    fputc(')', out);
}

static bool is_told(const struct lp_view_token *t) {
    return t->id >= 0 || !isnan(t->logprob);
}

static bool is_odder(const struct lp_view_token *a, const struct lp_view_token *b) {
    return a->rank != b->rank ? a->rank > b->rank : a->logprob < b->logprob;
}

static void put_tokens(const struct lp_view_steps *steps, struct run run, FILE *out) {
    const struct lp_view_token *oddest = NULL;
    int64_t n = 0, n_shown = 0;
    for (const struct lp_view_seq_step *s = run.first; s <= run.last; s++)
        for (size_t i = 0; i < s->n_given; i++, n++) {
            const struct lp_view_token *t = &steps->tokens[s->first_token + i];
            if (!isnan(t->logprob) && (!oddest || is_odder(t, oddest))) oddest = t;
            if (n_shown == SHOWN_TOKENS || !is_told(t)) continue;
            if (n_shown == 0) fprintf(out, "%*sgave", LP_VIEW_INDENT, "");
            fputs(n_shown++ ? ", " : " ", out);
            put_token(t, out);
        }
    if (n > 0 && n_shown == 0) {
        fprintf(out, "%*sgave ", LP_VIEW_INDENT, "");
        lp_view_put_n(n, "token", out);
    }
    if (n > n_shown && n_shown > 0) fprintf(out, " and %lld more", (long long)(n - n_shown));
    if (n > SHOWN_TOKENS && oddest) {
        fputs("; least expected: ", out);
        put_token(oddest, out);
        fprintf(out, " at %lld", (long long)oddest->position);
    }
    if (n > 0) fputc('\n', out);
}

// ---- the whole ----

static void put_run(const struct lp_view_story *s, const struct lp_view_index *index,
                    struct run run, FILE *out) {
    lp_view_put_time(run.first->time_us, out);
    if (run.first == run.last)
        fprintf(out, "step %lld:", (long long)run.first->step);
    else
        fprintf(out, "steps %lld-%lld:", (long long)run.first->step, (long long)run.last->step);
    put_what(run, s->seq, out);
    put_others(run, out);
    put_duration(run, index, out);
    fputc('\n', out);
    put_layers(run.first, out);
    if (run.first == run.last) put_experts(run.first, out);
    put_tokens(&s->steps, run, out);
}

static void put_head(const struct lp_view_story *s, FILE *out) {
    const struct lp_view_seq *q = s->seq;
    char clean[256];
    if (q->id[0])
        fprintf(out, "request %s, ", lp_clean_text(clean, sizeof clean, lp_str_from(q->id)));
    fprintf(out, "sequence %lld", (long long)q->number);
    if (q->choice >= 0) fprintf(out, ", choice %lld", (long long)q->choice);
    if (!q->what[0]) fputs(": the trace has neither its beginning nor its end", out);
    fputc('\n', out);
}

static void put_end(const struct lp_view_story *s, const struct lp_view_index *index, FILE *out) {
    const struct lp_view_steps *steps = &s->steps;
    double computing_us = 0;
    for (size_t i = 0; i < steps->n; i++)
        if (steps->rows[i].duration_us > 0) computing_us += (double)steps->rows[i].duration_us;
    fputs("in all ", out);
    lp_view_put_n((int64_t)steps->n, "step", out);
    if (steps->n > 0) {
        fputs(" of ", out);
        lp_view_put_ms(computing_us, out);
    }
    fputs("; ", out);
    lp_view_put_n((int64_t)steps->n_tokens, "token", out);
    fputs(" given out", out);
    if (s->seq->n_preempted > 0) {
        fputs("; pre-empted ", out);
        lp_view_put_n(s->seq->n_preempted, "time", out);
    }
    if (!s->seq->ended)
        fputs(index->signal ? "; the program crashed before its end"
                            : "; its end is not in the trace",
              out);
    if (steps->n_stray > 0)
        fprintf(out, "; %lld events stand far from their step and are left out",
                (long long)steps->n_stray);
    fputc('\n', out);
}

void lp_view_story_write(const struct lp_view_story *s, const struct lp_view_index *index,
                         FILE *out) {
    size_t note = 0, n = s->steps.n;
    put_head(s, out);
    for (size_t at = 0; at <= n;) {
        int64_t until = at < n ? s->steps.rows[at].time_us : INT64_MAX;
        for (; note < s->n_notes && s->notes[note].time_us <= until; note++) {
            lp_view_put_time(s->notes[note].time_us, out);
            fprintf(out, "%s\n", s->notes[note].text);
        }
        if (at == n) break;
        struct run run = run_from(s, at, note < s->n_notes ? s->notes[note].time_us : INT64_MAX);
        put_run(s, index, run, out);
        at = (size_t)(run.last - s->steps.rows) + 1;
    }
    put_end(s, index, out);
}
