// The figures, from the scores of a reading.
#include "doctor/health.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

#define LEAST_SURPRISE 1e-6

static int downwards(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

void lp_health_skills(const struct lp_passages *p, const struct lp_scores *s, double floor,
                      double *skills) {
    int64_t at = 0;
    for (size_t i = 0; i < p->n; i++) {
        int32_t n = p->list[i].n_tokens - p->list[i].first_scored;
        double sum = 0;
        for (int32_t k = 0; k < n; k++) sum += s->logprob[at + k];
        skills[i] = n ? 1 - sum / n / floor : 0;
        at += n;
    }
}

static void measure_skill(const struct lp_passages *p, const struct lp_scores *s, double floor,
                          struct lp_health *out) {
    size_t best = p->n < LP_BEST_TEXTS ? p->n : LP_BEST_TEXTS;
    double *skills = lp_alloc(p->n, sizeof *skills);
    if (!skills || p->n == 0) {
        lp_free(skills);
        out->skill = out->median_skill = NAN;
        return;
    }
    lp_health_skills(p, s, floor, skills);
    qsort(skills, p->n, sizeof *skills, downwards);
    for (size_t i = 0; i < best; i++) out->skill += skills[i] / (double)best;
    out->median_skill = (skills[(p->n - 1) / 2] + skills[p->n / 2]) / 2;
    lp_free(skills);
}

void lp_health_measure(const struct lp_passages *p, const struct lp_scores *s, double floor,
                       int64_t n_vocab, struct lp_health *out) {
    double n = s->n ? (double)s->n : 1, entropy = 0;
    int64_t n_entropy = 0;
    *out = (struct lp_health){.logit_std = s->logit_std,
                              .max_logit = s->max_logit,
                              .bad = (double)s->n_bad / n,
                              .n_texts = (int32_t)p->n};
    for (int64_t i = 0; i < s->n; i++) {
        out->mean_logprob += s->logprob[i] / n;
        out->first += (s->rank[i] == 0) / n;
        out->ten += (s->rank[i] < 10) / n;
        if (!isfinite(s->entropy[i])) continue;
        entropy += s->entropy[i];
        n_entropy++;
    }
    out->entropy = n_entropy ? entropy / (double)n_entropy / log((double)n_vocab) : NAN;
    measure_skill(p, s, floor, out);
}

double lp_health_doubt(double logprob) {
    return log(fmax(-logprob, LEAST_SURPRISE));
}

struct lp_gain lp_health_gain(const struct lp_passages *p, const float *before,
                              const float *after) {
    struct lp_gain gain = {0};
    double all = 0, sum = 0, square = 0, n_texts = 0;
    int64_t at = 0;
    for (size_t i = 0; i < p->n; i++) {
        int32_t n = p->list[i].n_tokens - p->list[i].first_scored;
        double text = 0;
        for (int32_t k = 0; k < n; k++, at++)
            text += lp_health_doubt(before[at]) - lp_health_doubt(after[at]);
        if (n == 0) continue;
        all += text;
        sum += text / n;
        square += text / n * (text / n);
        n_texts++;
    }
    if (at == 0) return gain;
    gain.mean = all / (double)at;
    double variance = n_texts > 1 ? (square - sum * sum / n_texts) / (n_texts - 1) : 0;
    if (variance > 0) gain.z = sum / n_texts / sqrt(variance / n_texts);
    return gain;
}

struct lp_circles lp_health_circles(const int32_t *tokens, int32_t n) {
    struct lp_circles c = {0};
    for (int32_t i = 0; i < n; i++) {
        int32_t k = 0;
        while (k < i && tokens[k] != tokens[i]) k++;
        c.distinct += k == i;
    }
    for (int32_t period = 1; 2 * period <= n; period++) {
        int32_t same = period; // how far the end repeats with this period
        while (same < n && tokens[n - 1 - same] == tokens[n - 1 - same + period]) same++;
        if (same < 2 * period || same <= c.repeated) continue;
        c.period = period;
        c.repeated = same;
    }
    return c;
}
