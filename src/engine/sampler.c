#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

lp_status lp_sampler_init(struct lp_sampler *s, float temperature, float top_p, int32_t top_k,
                          uint64_t seed, const bool *never, int32_t n_vocab, struct lp_err *err) {
    *s = (struct lp_sampler){.temperature = temperature,
                             .top_p = top_p,
                             .top_k = top_k,
                             .never = never,
                             .n_vocab = n_vocab};
    if (!(temperature >= 0 && temperature <= 100))
        return lp_err_set(err, LP_STATUS_INVALID, "temperature is %g, expected 0 to 100",
                          (double)temperature);
    if (!(top_p > 0 && top_p <= 1))
        return lp_err_set(err, LP_STATUS_INVALID, "top_p is %g, expected more than 0 and at most 1",
                          (double)top_p);
    if (top_k < 0)
        return lp_err_set(err, LP_STATUS_INVALID, "top_k is %d, expected 0 (off) or more", top_k);
    s->candidates = lp_alloc((size_t)n_vocab, sizeof *s->candidates);
    if (!s->candidates)
        return lp_err_memory(err, (size_t)n_vocab * sizeof *s->candidates, "the sampler");
    lp_rng_init(&s->rng, seed);
    return LP_OK;
}

void lp_sampler_release(struct lp_sampler *s) {
    lp_free(s->candidates);
    s->candidates = NULL;
}

int32_t lp_sampler_argmax(const float *logits, const bool *never, int32_t n_vocab) {
    int32_t best = -1;
    for (int32_t i = 0; i < n_vocab; i++)
        if (!never[i] && (best < 0 || logits[i] > logits[best])) best = i;
    return best;
}

double lp_sampler_log_sum(const float *logits, const bool *never, int32_t n_vocab) {
    double max = logits[lp_sampler_argmax(logits, never, n_vocab)], sum = 0;
    for (int32_t i = 0; i < n_vocab; i++)
        if (!never[i]) sum += exp(logits[i] - max);
    return max + log(sum);
}

int32_t lp_sampler_top(const float *logits, const bool *never, int32_t n_vocab, int32_t n,
                       int32_t *ids) {
    int32_t count = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        if (never[i] || (count == n && (n == 0 || logits[i] <= logits[ids[count - 1]]))) continue;
        int32_t at = count < n ? count++ : count - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
    return count;
}

static int by_logit(const void *a_, const void *b_) {
    const struct lp_candidate *a = a_, *b = b_;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

// top_k, then temperature, then top_p over the tempered probabilities: vLLM's order.
int32_t lp_sampler_pick(struct lp_sampler *s, const float *logits) {
    if (s->temperature == 0) return lp_sampler_argmax(logits, s->never, s->n_vocab);
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (!s->never[i]) s->candidates[n++] = (struct lp_candidate){i, logits[i]};
    qsort(s->candidates, (size_t)n, sizeof *s->candidates, by_logit);
    if (s->top_k > 0 && n > s->top_k) n = s->top_k;
    double max = s->candidates[0].logit, sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += exp((s->candidates[i].logit - max) / (double)s->temperature);
    double kept = 0, limit = s->top_p * sum;
    int32_t n_kept = 0;
    while (n_kept < n && (n_kept == 0 || kept < limit))
        kept += exp((s->candidates[n_kept++].logit - max) / (double)s->temperature);
    double target = lp_rng_unit(&s->rng) * kept, so_far = 0;
    for (int32_t i = 0; i < n_kept; i++) {
        so_far += exp((s->candidates[i].logit - max) / (double)s->temperature);
        if (target < so_far) return s->candidates[i].id;
    }
    return s->candidates[n_kept - 1].id;
}
