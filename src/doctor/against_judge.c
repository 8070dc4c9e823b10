// How far two right engines may be apart, and what is further.
//
// Engines round differently: float32 sums in another order differ by 1e-6 of what a layer adds,
// bfloat16 activations by a percent, a file of 4 bits a weight from its original by ten. A dump does
// not say which it is, but its layers do: most of them are right, so the layer that agrees best
// shows the precision, and a wrong one stands out from it by a factor. Nothing is believed beyond
// what the file's own weights could explain (`most`), so that a fault in every layer is one.
//
// A layer is judged by what it adds to the residual stream: the error that came in is subtracted,
// and what it may grow by is allowed for. Near ties fall differently (an expert, a selected key):
// single positions out of bounds are no fault. In coarse arithmetic there are many of them.
#include <math.h>
#include <stdlib.h>

#include "doctor/against.h"

#define ABOVE_BEST 30.0  // that an average layer may be worse than the best one
#define LEAST 3e-4       // no dump is expected to agree better
#define GROWTH 8.0       // that a layer may make of the error that comes in
#define STREAM_SHARE 0.2 // of the bound, for the rounding of the stream itself, at most
#define STREAM_MOST 1e-2
#define PRECISE 1e-2 // to which bound near ties are rare
#define OP_LEAST 1e-3
#define SET_BOUND 0.45 // root of the share of a list's entries: 20%
#define MIN_SUFFIX 4   // positions

static double most_by_bits(double bits) {
    return bits >= 8 ? 5e-2 : bits >= 6 ? 8e-2 : bits >= 4 ? 0.2 : 0.5;
}

double lp_claim_relative(const double *diff, const double *norm, int64_t at) {
    if (!isfinite(diff[at])) return INFINITY;
    if (diff[at] == 0) return 0;
    return norm[at] > 0 ? sqrt(diff[at] / norm[at]) : INFINITY;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double lp_claims_median(double *values, int64_t n) {
    if (n == 0) return NAN;
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

// The median without memory of its own: the value below which half of the positions are, found by
// counting. Positions are few (a context at most).
static double median_relative(const double *diff, const double *norm, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double value = lp_claim_relative(diff, norm, i);
        int64_t below = 0, equal = 0;
        for (int64_t j = 0; j < n; j++) {
            double other = lp_claim_relative(diff, norm, j);
            below += other < value;
            equal += other == value;
        }
        if (below <= n / 2 && n / 2 < below + equal) return value;
    }
    return NAN;
}

struct lp_against_bound lp_against_bound(const struct lp_claims *claims, double weight_bits) {
    struct lp_against_bound out = {.most = most_by_bits(weight_bits)};
    double best = INFINITY;
    bool stream = false;
    for (size_t i = 0; i < claims->n; i++)
        stream = stream || (claims->list[i].in_stream && claims->list[i].layer >= 0);
    for (size_t i = 0; i < claims->n; i++) {
        const struct lp_claim *c = &claims->list[i];
        if (!c->seen || c->layer < 0 || lp_probe_is_int(c->point) || stream != c->in_stream)
            continue;
        double median = stream ? median_relative(c->added_diff, c->added_norm, claims->n_tokens)
                               : median_relative(c->diff, c->norm, claims->n_tokens);
        best = fmin(best, median);
    }
    out.expected = isfinite(best) ? fmin(fmax(ABOVE_BEST * best, LEAST), out.most) : out.most;
    out.share = out.expected <= PRECISE ? 0.25 : 0.5;
    return out;
}

bool lp_against_is_fault(const bool *bad, int64_t n, double share) {
    int64_t n_bad = 0, behind = 0;
    for (int64_t i = 0; i < n; i++) n_bad += bad[i];
    if (n_bad == 0) return false;
    if ((double)n_bad >= share * (double)n) return true;
    for (int64_t i = n - 1; i >= 0; i--) { // nearly all from i on, hardly any before
        behind += bad[i];
        if (n - i >= MIN_SUFFIX && 10 * behind >= 9 * (n - i) && 10 * (n_bad - behind) <= i)
            return true;
    }
    return false;
}

bool lp_against_judge_stream(const struct lp_claims *claims, const struct lp_claim *c,
                             const struct lp_claim *before, struct lp_against_bound bound,
                             bool *bad) {
    for (int64_t p = 0; p < claims->n_tokens; p++) {
        double stream = sqrt(c->norm[p]), added = sqrt(c->added_norm[p]);
        double allowed =
            bound.expected * added + fmin(STREAM_SHARE * bound.expected, STREAM_MOST) * stream;
        if (before) {
            double came_in = sqrt(before->norm[p]), share = came_in > 0 ? added / came_in : 1;
            allowed += GROWTH * sqrt(before->diff[p]) * fmax(1, share);
        } else {
            allowed = bound.most * stream; // the first one has nothing to stand out from
        }
        bad[p] = !(sqrt(c->added_diff[p]) <= allowed) && !isinf(allowed);
    }
    return lp_against_is_fault(bad, claims->n_tokens, bound.share);
}

bool lp_against_judge_op(const struct lp_claims *claims, const struct lp_claim *c,
                         const struct lp_claim *before, struct lp_against_bound bound, bool *bad) {
    for (int64_t p = 0; p < claims->n_tokens; p++) {
        double came_in = before ? lp_claim_relative(before->diff, before->norm, p) : 0;
        double allowed = fmax(bound.expected, OP_LEAST) + GROWTH * came_in;
        if (lp_probe_is_int(c->point)) allowed = SET_BOUND;
        bad[p] = !(lp_claim_relative(c->diff, c->norm, p) <= allowed);
    }
    return lp_against_is_fault(bad, claims->n_tokens, bound.share);
}
