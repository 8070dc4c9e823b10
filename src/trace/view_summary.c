#include "trace/view_summary.h"

#include <string.h>

#include "base/clean.h"
#include "trace/view_words.h"

#define MOST_ROWS 24 // of a list of routes, kernels or other events

static const char *clean(char *to, size_t size, const char *text) {
    return lp_clean_text(to, size, lp_str_from(text ? text : "?"));
}

// ---- what ran ----

static void put_process(const struct lp_view_index *x, FILE *out) {
    char name[128];
    if (x->process.n_ranks <= 1) return;
    lp_view_process_name(&x->process, name, sizeof name);
    fprintf(out, "process    %s, of %lld ranks, process %lld\n", name,
            (long long)x->process.n_ranks, (long long)x->process.pid);
}

static void put_model(const struct lp_view_index *x, FILE *out) {
    char path[512], architecture[64], backend[64];
    if (!x->path && !x->architecture) return;
    fprintf(out, "model      %s: %s, %lld layers, backend %s, %lld threads\n",
            clean(path, sizeof path, x->path),
            clean(architecture, sizeof architecture, x->architecture), (long long)x->n_layers,
            clean(backend, sizeof backend, x->backend), (long long)x->n_threads);
}

static void put_steps(const struct lp_view_index *x, FILE *out) {
    fprintf(out, "steps      %lld", (long long)x->n_steps);
    if (x->n_steps > 0) {
        fputs(" that took ", out);
        lp_view_put_ms((double)x->step_us, out);
        fprintf(out, ", %.1f tokens and ", (double)x->n_step_tokens / (double)x->n_steps);
        lp_view_put_ms((double)x->step_us / (double)x->n_steps, out);
        fputs(" each on average", out);
    }
    if (x->most_running > 0)
        fprintf(out, "; at most %lld ran together and %lld waited", (long long)x->most_running,
                (long long)x->most_waiting);
    fputc('\n', out);
    for (size_t i = 0; i < LP_VIEW_SLOW_STEPS && x->slow[i].duration_us > 0; i++) {
        fprintf(out, "%s step %lld: ", i == 0 ? "slowest   " : "          ",
                (long long)x->slow[i].step);
        lp_view_put_ms((double)x->slow[i].duration_us, out);
        fputs(" (", out);
        lp_view_put_n(x->slow[i].n_tokens, "token", out);
        fputs(" of ", out);
        lp_view_put_n(x->slow[i].n_sequences, "sequence", out);
        fputs(")\n", out);
    }
}

static void put_count(int64_t n, const char *what, FILE *out) {
    if (n > 0) fprintf(out, ", %lld %s", (long long)n, what);
}

static void put_requests(const struct lp_view_index *x, FILE *out) {
    int64_t n[LP_VIEW_N_ENDS] = {0}, open = 0, preempted = 0;
    for (size_t i = 0; i < x->n_seqs; i++) {
        const struct lp_view_seq *q = x->seqs[i];
        open += !q->ended;
        preempted += q->n_preempted;
        for (size_t e = 0; e < LP_VIEW_N_ENDS; e++)
            n[e] += q->ended && strcmp(q->what, lp_view_ends[e]) == 0;
    }
    fprintf(out, "sequences  %zu", x->n_seqs);
    for (size_t e = 0; e < LP_VIEW_N_ENDS; e++) put_count(n[e], lp_view_ends[e], out);
    put_count(open, "without an end in the trace", out);
    put_count((int64_t)x->n_refusals, x->n_refusals == 1 ? "request rejected" : "requests rejected",
              out);
    put_count(preempted, preempted == 1 ? "pre-emption" : "pre-emptions", out);
    fputc('\n', out);
}

static int64_t known(int64_t value) {
    return value > 0 ? value : 0;
}

static void put_tokens(const struct lp_view_index *x, FILE *out) {
    int64_t prompt = 0, cached = 0, disk = 0, given = 0, drafted = 0, accepted = 0;
    for (size_t i = 0; i < x->n_seqs; i++) {
        const struct lp_view_seq *q = x->seqs[i];
        lp_view_add(&prompt, known(q->n_prompt));
        lp_view_add(&cached, known(q->n_cached));
        lp_view_add(&disk, known(q->n_from_disk));
        lp_view_add(&given, q->n_given);
        lp_view_add(&drafted, q->n_drafted);
        lp_view_add(&accepted, q->n_accepted);
    }
    fprintf(out, "tokens     %lld of prompts, %lld of them cached (%lld from disk); %lld given out",
            (long long)prompt, (long long)cached, (long long)disk, (long long)given);
    if (drafted > 0)
        fprintf(out, "; %lld drafted, %lld came true", (long long)drafted, (long long)accepted);
    fputc('\n', out);
    if (x->most_load > 0)
        fprintf(out, "experts    at most %lld tokens of a step went to one expert of a layer\n",
                (long long)x->most_load);
}

// ---- tallies ----

static const struct lp_view_tally *next_most(const struct lp_view_tallies *t, bool *given) {
    const struct lp_view_tally *best = NULL;
    for (size_t i = 0; i < t->n; i++)
        if (!given[i] && (!best || t->rows[i].n > best->n)) best = &t->rows[i];
    if (best) given[best - t->rows] = true;
    return best;
}

static void put_tally(const struct lp_view_tally *row, FILE *out) {
    char what[128], with[128], why[512];
    fprintf(out, "%lld x %s", (long long)row->n, clean(what, sizeof what, row->what));
    if (row->with[0]) fprintf(out, ", %s", clean(with, sizeof with, row->with));
    if (row->why[0]) fprintf(out, " (%s)", clean(why, sizeof why, row->why));
    fputc('\n', out);
}

static void put_tallies(const char *head, const struct lp_view_tallies *t, FILE *out) {
    bool given[LP_VIEW_MOST_TALLIES] = {false};
    const struct lp_view_tally *row;
    for (size_t i = 0; i < MOST_ROWS && (row = next_most(t, given)); i++) {
        fprintf(out, "%-10s ", i == 0 ? head : "");
        put_tally(row, out);
    }
    if (t->n > MOST_ROWS || t->n_others > 0) fprintf(out, "%-10s and more kinds, seldom met\n", "");
}

// Where the steps' time went; the kinds of a step add up to it.
static void put_operations(const struct lp_view_tallies *t, FILE *out) {
    bool given[LP_VIEW_MOST_TALLIES] = {false};
    const struct lp_view_tally *row;
    char what[128];
    double all = 0;
    for (size_t i = 0; i < t->n; i++) all += (double)t->rows[i].n;
    for (size_t i = 0; i < MOST_ROWS && (row = next_most(t, given)); i++) {
        fprintf(out, "%-10s %5.1f %% ", i == 0 ? "operations" : "",
                all > 0 ? 100 * (double)row->n / all : 0.0);
        fprintf(out, "%s, ", clean(what, sizeof what, row->what));
        lp_view_put_ms((double)row->n * 1e-3, out);
        fputc('\n', out);
    }
}

void lp_view_summary_kernels(const struct lp_view_index *x, FILE *out) {
    char operation[64], type[64], kernel[128];
    for (size_t i = 0; i < x->kernels.n && i < MOST_ROWS; i++) {
        const struct lp_view_tally *row = &x->kernels.rows[i];
        fprintf(out, "%-10s %s%s%s: %s\n", i == 0 ? "kernels" : "",
                clean(operation, sizeof operation, row->what), row->why[0] ? " " : "",
                clean(type, sizeof type, row->why), clean(kernel, sizeof kernel, row->with));
    }
}

// ---- sequences ----

static void put_known(int64_t value, int width, FILE *out) {
    if (value >= 0)
        fprintf(out, " %*lld", width, (long long)value);
    else
        fprintf(out, " %*s", width, "?");
}

static void put_seq(const struct lp_view_seq *q, FILE *out) {
    char id[256], what[64], why[256];
    int64_t n_steps = 0;
    for (size_t i = 0; i < q->n_ranges; i++)
        lp_view_add(&n_steps, q->steps[i].last - q->steps[i].first + 1);
    fprintf(out, "%8lld %10.3f %9.3f %9.3f", (long long)q->number, (double)q->first_us * 1e-6,
            (double)((q->admitted_us < 0 ? q->last_us : q->admitted_us) - q->first_us) * 1e-6,
            (double)(q->last_us - q->first_us) * 1e-6);
    put_known(q->n_prompt, 7, out);
    put_known(q->n_cached, 7, out);
    fprintf(out, " %7lld %7lld %10lld  %-9s %s", (long long)q->n_given, (long long)n_steps,
            (long long)q->n_preempted, q->ended ? clean(what, sizeof what, q->what) : "open",
            q->id[0] ? clean(id, sizeof id, q->id) : "-");
    if (q->choice > 0) fprintf(out, " choice %lld", (long long)q->choice);
    if (q->why[0]) fprintf(out, ": %s", clean(why, sizeof why, q->why));
    fputc('\n', out);
}

static void put_crash(const struct lp_view_index *x, FILE *out) {
    char signal[64], address[96];
    if (!x->signal) return;
    fprintf(out, "crash      %s", clean(signal, sizeof signal, x->signal));
    if (x->address) fprintf(out, " at %s", clean(address, sizeof address, x->address));
    if (x->begun_step > x->ended_step)
        fprintf(out, " in step %lld", (long long)x->begun_step);
    else if (x->ended_step >= 0)
        fprintf(out, " behind step %lld", (long long)x->ended_step);
    fputs(" ended the program; sequences that are open were running or waiting", out);
    if (x->n_overwritten > 0)
        fprintf(out, "; %lld older events had been overwritten", (long long)x->n_overwritten);
    fputc('\n', out);
}

// Of a trace that was taken while a step ran, or hung.
static void put_unfinished(const struct lp_view_index *x, FILE *out) {
    if (!x->signal && x->begun_step > x->ended_step)
        fprintf(out, "unfinished step %lld had begun, and its end is not here\n",
                (long long)x->begun_step);
}

void lp_view_summary_write(const struct lp_view_index *x, const struct lp_view_notes *notes,
                           FILE *out) {
    fprintf(out, "trace      %lld events in %.3f s\n", (long long)notes->n_events,
            (double)(x->last_us - (x->first_us > 0 ? x->first_us : 0)) * 1e-6);
    put_process(x, out);
    put_model(x, out);
    put_crash(x, out);
    put_steps(x, out);
    put_unfinished(x, out);
    put_requests(x, out);
    put_tokens(x, out);
    put_tallies("attention", &x->routes, out);
    put_operations(&x->operations, out);
    lp_view_summary_kernels(x, out);
    put_tallies("others", &x->events, out);
    if (x->n_seqs == 0) return;
    fprintf(out, "\n%8s %10s %9s %9s %7s %7s %7s %7s %10s  %-9s %s\n", "sequence", "from s",
            "waited s", "took s", "prompt", "cached", "answer", "steps", "pre-empted", "end",
            "request");
    for (size_t i = 0; i < x->n_seqs; i++) put_seq(x->seqs[i], out);
}
