#include "trace/view_ranks.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clean.h"
#include "trace/view_clock.h"
#include "trace/view_words.h"

#define SLOW_STEPS 5
#define NOBODY SIZE_MAX

struct totals { // of a rank
    int64_t took_us, exchange_us;
    size_t n_told, n_slowest, n_waited_for; // n_told: steps whose exchanges are known
};

struct walk { // over the steps of all ranks, by their numbers
    const struct lp_view_rank *ranks;
    size_t n;
    size_t *at;                            // [n]
    const struct lp_view_rank_step **step; // [n] the current one; NULL: the rank does not have it
    struct totals *totals;                 // [n]
    int64_t slow[SLOW_STEPS], slow_us[SLOW_STEPS]; // the slowest, slowest first
    int64_t number, took_us;                       // took_us: of the rank that took longest
    size_t slowest, waited_for;                    // or NOBODY
};

// ---- one step after another ----

static int64_t took_us(const struct lp_view_rank_step *s) {
    return s->end_us - s->start_us;
}

static int64_t own_us(const struct lp_view_rank_step *s) {
    return took_us(s) - (s->exchange_ns > 0 ? s->exchange_ns / 1000 : 0);
}

static int64_t start_us(const struct walk *w, size_t i) { // on the common clock
    return lp_view_clock_common(&w->ranks[i], w->step[i]->start_us);
}

static bool is_aligned(const struct lp_view_rank *rank) {
    return rank->clock != LP_VIEW_CLOCK_WALL && rank->clock != LP_VIEW_CLOCK_NONE;
}

static void judge(struct walk *w) {
    size_t n_there = 0, n_comparable = 0;
    w->slowest = w->waited_for = NOBODY;
    w->took_us = 0;
    for (size_t i = 0; i < w->n; i++) {
        const struct lp_view_rank_step *s = w->step[i];
        if (!s) continue;
        n_there++;
        n_comparable += s->exchange_ns >= 0 && is_aligned(&w->ranks[i]);
        if (took_us(s) > w->took_us) w->took_us = took_us(s);
        if (w->slowest == NOBODY || own_us(s) > own_us(w->step[w->slowest])) w->slowest = i;
        if (w->waited_for == NOBODY ||
            start_us(w, i) + own_us(s) >
                start_us(w, w->waited_for) + own_us(w->step[w->waited_for]))
            w->waited_for = i;
    }
    if (n_there < 2) w->slowest = NOBODY;
    if (n_there < 2 || n_comparable < n_there) w->waited_for = NOBODY;
}

static bool next_step(struct walk *w) {
    bool any = false;
    for (size_t i = 0; i < w->n; i++) {
        if (w->at[i] == w->ranks[i].n) continue;
        const int64_t number = w->ranks[i].steps[w->at[i]].step;
        if (!any || number < w->number) w->number = number;
        any = true;
    }
    for (size_t i = 0; any && i < w->n; i++) {
        const struct lp_view_rank *rank = &w->ranks[i];
        const bool has = w->at[i] < rank->n && rank->steps[w->at[i]].step == w->number;
        w->step[i] = has ? &rank->steps[w->at[i]++] : NULL;
    }
    if (any) judge(w);
    return any;
}

static void add_up(struct walk *w) {
    for (size_t i = 0; i < w->n; i++) {
        struct totals *t = &w->totals[i];
        if (!w->step[i]) continue;
        lp_view_add(&t->took_us, took_us(w->step[i]));
        if (w->step[i]->exchange_ns < 0) continue;
        lp_view_add(&t->exchange_us, w->step[i]->exchange_ns / 1000);
        t->n_told++;
    }
    if (w->slowest != NOBODY) w->totals[w->slowest].n_slowest++;
    if (w->waited_for != NOBODY) w->totals[w->waited_for].n_waited_for++;
    int64_t number = w->number, us = w->took_us;
    for (size_t i = 0; i < SLOW_STEPS; i++)
        if (us > w->slow_us[i]) {
            const int64_t slower = w->slow[i], slower_us = w->slow_us[i];
            w->slow[i] = number, w->slow_us[i] = us;
            number = slower, us = slower_us;
        }
}

static bool is_slow(const struct walk *w) {
    for (size_t i = 0; i < SLOW_STEPS; i++)
        if (w->slow_us[i] > 0 && w->slow[i] == w->number) return true;
    return false;
}

// ---- steps ----

static void put_who(const struct walk *w, size_t who, FILE *out) {
    if (who == NOBODY)
        fprintf(out, " %10s", "-");
    else
        fprintf(out, " %10lld", (long long)w->ranks[who].process.rank);
}

static void put_head(const struct walk *w, bool all, FILE *out) {
    fprintf(out, "%s%8s %10s %10s %10s %10s  own + exchanges, ms, of rank",
            all ? "" : "the slowest steps\n", "step", "from s", "took ms", "slowest", "waited for");
    for (size_t i = 0; i < w->n; i++)
        fprintf(out, "%s %lld", i ? "," : "", (long long)w->ranks[i].process.rank);
    fputc('\n', out);
}

static void put_step(const struct walk *w, FILE *out) {
    int64_t from_us = INT64_MAX;
    for (size_t i = 0; i < w->n; i++)
        if (w->step[i] && start_us(w, i) < from_us) from_us = start_us(w, i);
    fprintf(out, "%8lld %10.6f %10.2f", (long long)w->number, (double)from_us * 1e-6,
            (double)w->took_us * 1e-3);
    put_who(w, w->slowest, out);
    put_who(w, w->waited_for, out);
    for (size_t i = 0; i < w->n; i++) {
        const struct lp_view_rank_step *s = w->step[i];
        fputs(i ? ", " : "  ", out);
        if (!s)
            fputs("none", out);
        else if (s->exchange_ns < 0)
            fprintf(out, "%.2f in all", (double)took_us(s) * 1e-3);
        else
            fprintf(out, "%.2f + %.2f", (double)own_us(s) * 1e-3, (double)s->exchange_ns * 1e-6);
    }
    fputc('\n', out);
}

// ---- ranks ----

static void put_clock(const struct lp_view_rank *rank, FILE *out) {
    switch (rank->clock) {
    case LP_VIEW_CLOCK_COMMON:
        fputs("the common clock", out);
        break;
    case LP_VIEW_CLOCK_HOST:
        fputs("the same host's clock", out);
        break;
    case LP_VIEW_CLOCK_STEPS:
        fputs("by ", out);
        lp_view_put_n((int64_t)rank->n_common, "common step", out);
        fprintf(out, ", +- %.3f ms", (double)rank->error_us * 1e-3);
        if (rank->n_pieces > 1)
            fprintf(out, "; it gained %.3f ms",
                    (double)(rank->pieces[rank->n_pieces - 1].ahead_us - rank->pieces[0].ahead_us) *
                        1e-3);
        break;
    case LP_VIEW_CLOCK_WALL:
        fputs("by the hosts' wall clocks, as they are set", out);
        break;
    case LP_VIEW_CLOCK_NONE:
        fputs("not aligned: its own start is taken for the common one", out);
        break;
    }
}

static void put_ms(int64_t us, bool known, FILE *out) {
    if (known)
        fprintf(out, " %10.2f", (double)us * 1e-3);
    else
        fprintf(out, " %10s", "?");
}

static void put_rank(const struct lp_view_rank *rank, const struct totals *t, FILE *out) {
    const bool told = rank->n > 0 && t->n_told == rank->n;
    fprintf(out, "%8lld %8zu", (long long)rank->process.rank, rank->n);
    put_ms(t->took_us, rank->n > 0, out);
    put_ms(t->took_us - t->exchange_us, told, out);
    put_ms(t->exchange_us, told, out);
    fprintf(out, " %8zu %10zu  %s, ", t->n_slowest, t->n_waited_for,
            rank->process.host[0] ? rank->process.host : "host not told");
    put_clock(rank, out);
    fputc('\n', out);
}

// ---- what is missing ----

static int64_t last_step(const struct lp_view_rank *rank) {
    return rank->n > 0 ? rank->steps[rank->n - 1].step : -1;
}

// last: the last step that has ended on any rank; begun: that has begun.
static void put_end(const struct lp_view_rank *rank, int64_t last, int64_t begun, FILE *out) {
    const int64_t own = last_step(rank);
    const char *separator = ": ";
    fprintf(out, "not whole  rank %lld", (long long)rank->process.rank);
    if (rank->signal[0]) fprintf(out, "%s%s ended the process", separator, rank->signal);
    if (rank->signal[0]) separator = "; ";
    if (own < last || own < 0) {
        if (own < 0)
            fprintf(out, "%sno step has ended", separator);
        else
            fprintf(out, "%sits last step is %lld, that of others %lld", separator, (long long)own,
                    (long long)last);
        separator = "; ";
    } else if (rank->begun_step <= own && own < begun) {
        fprintf(out, "%sits last step is %lld, others had begun step %lld", separator,
                (long long)own, (long long)begun);
        separator = "; ";
    }
    if (rank->begun_step > own) {
        fprintf(out, "%sstep %lld had begun", separator, (long long)rank->begun_step);
        separator = "; ";
    }
    if (rank->notes.cut) fprintf(out, "%sits last line ends in its middle", separator);
    fputc('\n', out);
}

static void put_faults(const struct lp_view_rank *rank, int64_t last, int64_t begun, FILE *out) {
    char path[512], why[512];
    const long long number = (long long)rank->process.rank;
    lp_clean_text(path, sizeof path, lp_str_from(rank->file->path));
    if (rank->file->why) {
        fprintf(out, "missing    rank %lld: %s\n", number,
                lp_clean_text(why, sizeof why, lp_str_from(rank->file->why)));
        return;
    }
    if (rank->notes.n_events == 0) {
        fprintf(out, "missing    rank %lld: %s holds no event\n", number, path);
        return;
    }
    if (rank->signal[0] || rank->notes.cut || last_step(rank) < begun)
        put_end(rank, last, begun, out);
    if (rank->apart_us == 0) return;
    fprintf(out, "doubtful   rank %lld: its steps contradict the common clock by ", number);
    lp_view_put_ms((double)rank->apart_us, out);
    fprintf(out,
            "; its clock has another speed, another host has the same name, or %s is of another "
            "run\n",
            path);
}

static void put_ranks(const struct walk *w, size_t n, FILE *out) {
    int64_t last = -1, begun = -1, n_all = (int64_t)n;
    for (size_t i = 0; i < w->n; i++) {
        if (w->ranks[i].process.n_ranks > n_all) n_all = w->ranks[i].process.n_ranks;
        if (last_step(&w->ranks[i]) > last) last = last_step(&w->ranks[i]);
        if (w->ranks[i].begun_step > begun) begun = w->ranks[i].begun_step;
    }
    if (last > begun) begun = last;
    fprintf(out, "ranks      traces of %zu of %lld\n", w->n, (long long)n_all);
    fprintf(out, "%8s %8s %10s %10s %10s %8s %10s  host, clock\n", "rank", "steps", "took ms",
            "own ms", "exchanges", "slowest", "waited for");
    for (size_t i = 0; i < w->n; i++) put_rank(&w->ranks[i], &w->totals[i], out);
    for (size_t i = 0; i < n; i++) put_faults(&w->ranks[i], last, begun, out);
}

// ---- the whole ----

static void write_all(struct walk *w, size_t n, bool all, FILE *out) {
    while (next_step(w)) add_up(w);
    if (n > 1 || w->ranks[0].process.n_ranks > 1) put_ranks(w, n, out);
    memset(w->at, 0, w->n * sizeof *w->at);
    bool any = false;
    while (next_step(w)) {
        if (!all && !is_slow(w)) continue;
        if (!any) put_head(w, all, out);
        any = true;
        put_step(w, out);
    }
}

lp_status lp_view_ranks_write(const struct lp_view_rank *ranks, size_t n, size_t n_there, bool all,
                              FILE *out, struct lp_err *err) {
    struct walk w = {.ranks = ranks,
                     .n = n_there,
                     .at = lp_alloc(n_there, sizeof *w.at),
                     .step = lp_alloc(n_there, sizeof *w.step),
                     .totals = lp_alloc(n_there, sizeof *w.totals)};
    const bool ok = w.at && w.step && w.totals;
    if (ok) write_all(&w, n, all, out);
    lp_free(w.at);
    lp_free(w.step);
    lp_free(w.totals);
    return ok ? LP_OK : lp_err_memory(err, n_there * sizeof *w.totals, "the steps of ranks");
}
