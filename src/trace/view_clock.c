#include "trace/view_clock.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

#define WHOLE_US 1      // times are cut to whole microseconds
#define MOST_DRIFT 2000 // a clock gains less than 1 part in so many: NTP turns none further

struct claim { // of a step, of how far the clock of a rank is ahead; INT64_MIN, INT64_MAX: nothing
    int64_t time_us, least_us, most_us; // by that clock
};

struct claims {
    struct claim *rows; // in order of time
    size_t n, max;
};

// ---- what steps claim ----

static bool share_host(const struct lp_view_rank *a, const struct lp_view_rank *b) {
    return a->process.host[0] && strcmp(a->process.host, b->process.host) == 0 &&
           a->process.monotonic_us >= 0 && b->process.monotonic_us >= 0;
}

// How much later than a, on their host's clock, b began.
static int64_t later_us(const struct lp_view_rank *a, const struct lp_view_rank *b) {
    return b->process.monotonic_us - a->process.monotonic_us;
}

// C1 and C2 of the steps that both have, as claims about a clock that shows `more` than the rank's.
static bool add_claims(struct claims *c, const struct lp_view_rank *common,
                       const struct lp_view_rank *rank, int64_t more_us) {
    for (size_t i = 0, j = 0; i < common->n && j < rank->n;) {
        const struct lp_view_rank_step *x = &common->steps[i], *y = &rank->steps[j];
        i += x->step <= y->step;
        j += y->step <= x->step;
        if (x->step != y->step) continue;
        struct claim claim = {y->start_us + more_us, INT64_MIN, INT64_MAX};
        if (x->before_us != INT64_MIN)
            claim.most_us = y->start_us - x->before_us + more_us + WHOLE_US; // C1
        if (x->after_us != INT64_MAX)
            claim.least_us = y->end_us - x->after_us + more_us - WHOLE_US; // C2
        if (!LP_GROW(c->rows, c->max, c->n + 1)) return false;
        c->rows[c->n++] = claim;
    }
    return true;
}

static int by_time(const void *a, const void *b) {
    const struct claim *x = a, *y = b;
    return (x->time_us > y->time_us) - (x->time_us < y->time_us);
}

static struct claim bounds_of(const struct claim *claims, size_t n) {
    struct claim all = {0, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < n; i++) {
        if (claims[i].least_us > all.least_us) all.least_us = claims[i].least_us;
        if (claims[i].most_us < all.most_us) all.most_us = claims[i].most_us;
    }
    return all;
}

// ---- pieces ----

static bool add_piece(struct lp_view_rank *rank, int64_t from_us, int64_t ahead_us) {
    if (!LP_GROW(rank->pieces, rank->max_pieces, rank->n_pieces + 1)) return false;
    rank->pieces[rank->n_pieces++] = (struct lp_view_clock_piece){from_us, ahead_us};
    return true;
}

static bool divide(struct lp_view_rank *rank, const struct claim *claims, size_t n) {
    const struct claim b = bounds_of(claims, n);
    if (b.least_us == INT64_MIN || b.most_us == INT64_MAX) return true;
    const int64_t apart_us = b.least_us > b.most_us ? b.least_us - b.most_us : 0,
                  error_us = apart_us ? apart_us : (b.most_us - b.least_us + 1) / 2;
    if (apart_us > 0 && apart_us <= (claims[n - 1].time_us - claims[0].time_us) / MOST_DRIFT)
        return divide(rank, claims, n / 2) && divide(rank, claims + n / 2, n - n / 2);
    if (apart_us > rank->apart_us) rank->apart_us = apart_us;
    if (error_us > rank->error_us) rank->error_us = error_us;
    return add_piece(rank, claims[0].time_us, b.least_us + (b.most_us - b.least_us) / 2);
}

// Within a piece the clock gains as much as from one to the next.
static int64_t most_gain_us(const struct lp_view_rank *rank) {
    int64_t most = 0;
    for (size_t i = 1; i < rank->n_pieces; i++) {
        const int64_t gain = rank->pieces[i].ahead_us - rank->pieces[i - 1].ahead_us;
        if (llabs(gain) > most) most = llabs(gain);
    }
    return most;
}

static void forget(struct lp_view_rank *rank) {
    rank->n_pieces = 0;
    rank->apart_us = rank->error_us = 0;
}

int64_t lp_view_clock_common(const struct lp_view_rank *rank, int64_t time_us) {
    size_t low = 0, high = rank->n_pieces; // the last piece that begins by then, or the first
    if (high == 0) return time_us;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (rank->pieces[middle].from_us <= time_us)
            low = middle;
        else
            high = middle;
    }
    return time_us - rank->pieces[low].ahead_us;
}

// ---- one rank after another ----

// Machines may bear one name; then steps do not agree.
static bool take_host(const struct lp_view_rank *common, struct lp_view_rank *rank,
                      const struct claims *own) {
    const struct claim b = bounds_of(own->rows, own->n);
    const int64_t ahead_us = later_us(rank, common);
    rank->n_common = own->n;
    if (!share_host(common, rank) || ahead_us + WHOLE_US < b.least_us ||
        ahead_us - WHOLE_US > b.most_us)
        return true;
    rank->clock = LP_VIEW_CLOCK_HOST;
    return add_piece(rank, 0, ahead_us);
}

// The same clock as the rank's, which began at another time.
static bool share_pieces(const struct lp_view_rank *rank, struct lp_view_rank *other) {
    const int64_t later = later_us(rank, other);
    other->clock = rank->clock;
    other->error_us = rank->error_us;
    for (size_t i = 0; i < rank->n_pieces; i++)
        if (!add_piece(other, rank->pieces[i].from_us - later, rank->pieces[i].ahead_us - later))
            return false;
    return true;
}

static bool is_open_neighbour(const struct lp_view_rank *rank, const struct lp_view_rank *other) {
    return other->clock == LP_VIEW_CLOCK_NONE && other->n_common > 0 && share_host(rank, other);
}

// Together with the ranks behind it that are on its host: each tells of the same clock.
static bool take_steps(struct lp_view_rank *ranks, size_t n, size_t at, struct claims *claims) {
    struct lp_view_rank *rank = &ranks[at];
    bool ok = add_claims(claims, &ranks[0], rank, 0);
    for (size_t i = at + 1; i < n && ok; i++)
        if (is_open_neighbour(rank, &ranks[i]))
            ok = add_claims(claims, &ranks[0], &ranks[i], later_us(rank, &ranks[i]));
    if (ok && claims->n > 0) qsort(claims->rows, claims->n, sizeof *claims->rows, by_time);
    ok = ok && divide(rank, claims->rows, claims->n);
    const bool together = rank->apart_us == 0;
    if (ok && !together) { // they are not of one host
        forget(rank);
        claims->n = 0;
        ok = add_claims(claims, &ranks[0], rank, 0) && divide(rank, claims->rows, claims->n);
    }
    if (!ok || rank->n_pieces == 0) return ok;
    rank->clock = LP_VIEW_CLOCK_STEPS;
    rank->error_us += most_gain_us(rank);
    for (size_t i = at + 1; i < n && ok && together; i++)
        if (is_open_neighbour(rank, &ranks[i])) ok = share_pieces(rank, &ranks[i]);
    return ok;
}

static bool take_wall(const struct lp_view_rank *common, struct lp_view_rank *rank) {
    if (common->process.wall_us < 0 || rank->process.wall_us < 0) return true;
    rank->clock = LP_VIEW_CLOCK_WALL;
    return add_piece(rank, 0, common->process.wall_us - rank->process.wall_us);
}

// That a host's clock was not believed.
static void note_doubt(const struct lp_view_rank *common, struct lp_view_rank *rank) {
    if (!share_host(common, rank) || rank->clock != LP_VIEW_CLOCK_STEPS) return;
    rank->apart_us = llabs(later_us(rank, common) - rank->pieces[0].ahead_us);
}

lp_status lp_view_clock_align(struct lp_view_rank *ranks, size_t n, struct lp_err *err) {
    struct claims claims = {0};
    bool ok = true;
    for (size_t i = 1; i < n && ok; i++) {
        forget(&ranks[i]);
        ranks[i].clock = LP_VIEW_CLOCK_NONE;
        claims.n = 0;
        ok = add_claims(&claims, &ranks[0], &ranks[i], 0) &&
             take_host(&ranks[0], &ranks[i], &claims);
    }
    for (size_t i = 1; i < n && ok; i++) {
        claims.n = 0;
        if (ranks[i].clock == LP_VIEW_CLOCK_NONE) ok = take_steps(ranks, n, i, &claims);
        if (ranks[i].clock == LP_VIEW_CLOCK_NONE && ok) ok = take_wall(&ranks[0], &ranks[i]);
        note_doubt(&ranks[0], &ranks[i]);
    }
    lp_free(claims.rows);
    return ok ? LP_OK : lp_err_memory(err, claims.n * sizeof *claims.rows, "the clocks of ranks");
}
