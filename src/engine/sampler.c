#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "engine/dry.h"
#include "engine/exp_block.h"
#include "engine/filters.h"

struct lp_sampler {
    struct lp_sampler_params params; // bias and ends are ours
    const bool *never;
    int32_t n_vocab;
    struct lp_rng rng;
    struct lp_dry dry;
    struct lp_candidates candidates; // its logits also hold the changed row
    int32_t *scratch;                // [n_vocab] zeros, for penalties and DRY
};

// ---- making one --------------------------------------------------------------------------------

static lp_status check_ranges(const struct lp_sampler_params *p, struct lp_err *err) {
    const struct {
        const char *name;
        double value, low, high;
        bool above_low;
    } rows[] = {
        {"temperature", p->temperature, 0, 100, false},
        {"top_p", p->top_p, 0, 1, true},
        {"typical_p", p->typical_p, 0, 1, true},
        {"min_p", p->min_p, 0, 1, false},
        {"repetition_penalty", p->repetition_penalty, 0, 10, true},
        {"presence_penalty", p->presence_penalty, -2, 2, false},
        {"frequency_penalty", p->frequency_penalty, -2, 2, false},
        {"dry_multiplier", p->dry_multiplier, 0, 100, false},
        {"dry_base", p->dry_multiplier == 0 ? 1 : p->dry_base, 1, 100, false},
        {"dry_allowed_length", p->dry_multiplier == 0 ? 1 : p->dry_allowed_length, 1,
         LP_DRY_MAX_MATCH, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double value = rows[i].value, low = rows[i].low; // a NaN is in no range
        if (value <= rows[i].high && (rows[i].above_low ? value > low : value >= low)) continue;
        return lp_err_set(err, LP_STATUS_INVALID, "%s is %g, expected %s %g and at most %g",
                          rows[i].name, value, rows[i].above_low ? "more than" : "at least", low,
                          rows[i].high);
    }
    if (p->top_k < 0)
        return lp_err_set(err, LP_STATUS_INVALID, "top_k is %d, expected 0 (off) or more",
                          p->top_k);
    if (p->min_tokens < 0)
        return lp_err_set(err, LP_STATUS_INVALID, "min_tokens is %lld, expected 0 (off) or more",
                          (long long)p->min_tokens);
    return LP_OK;
}

static lp_status check_id(const char *what, int32_t id, int32_t n_vocab, struct lp_err *err) {
    if (id >= 0 && id < n_vocab) return LP_OK;
    return lp_err_set(err, LP_STATUS_INVALID, "%s has token %d, expected 0 to %d", what, id,
                      n_vocab - 1);
}

static lp_status check_ids(const struct lp_sampler_params *p, const bool *never, int32_t n_vocab,
                           struct lp_err *err) {
    lp_status status = LP_OK;
    for (size_t i = 0; i < p->n_bias; i++) {
        const struct lp_bias *b = &p->bias[i];
        if ((status = check_id("logit_bias", b->id, n_vocab, err))) return status;
        if (never[b->id])
            return lp_err_set(err, LP_STATUS_INVALID,
                              "logit_bias has token %d, which is never generated; leave it out",
                              b->id);
        if (!(b->add >= -100 && b->add <= 100))
            return lp_err_set(err, LP_STATUS_INVALID,
                              "logit_bias of token %d is %g, expected -100 to 100", b->id,
                              (double)b->add);
    }
    for (size_t i = 0; i < p->n_ends; i++)
        if ((status = check_id("the list of end tokens", p->ends[i], n_vocab, err))) return status;
    for (size_t i = 0; i < p->n_dry_breakers; i++)
        if ((status = check_id("dry_breakers", p->dry_breakers[i], n_vocab, err))) return status;
    return LP_OK;
}

static bool is_penalised(const struct lp_sampler_params *p) {
    return p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

// Is anything done to logits before they are filtered?
static bool is_changed(const struct lp_sampler_params *p) {
    return p->may_be_masked || p->n_bias > 0 || is_penalised(p) || p->dry_multiplier != 0 ||
           (p->min_tokens > 0 && p->n_ends > 0);
}

static lp_status fill(struct lp_sampler *s, const struct lp_sampler_params *p, struct lp_err *err) {
    size_t n_vocab = (size_t)s->n_vocab;
    struct lp_bias *bias = lp_alloc(p->n_bias, sizeof *bias);
    int32_t *ends = lp_alloc(p->n_ends, sizeof *ends);
    s->params.bias = bias;
    s->params.ends = ends;
    if (!bias || !ends)
        return lp_err_memory(err, p->n_bias * sizeof *bias + p->n_ends * sizeof *ends,
                             "logit_bias and end tokens");
    if (p->n_bias > 0) memcpy(bias, p->bias, p->n_bias * sizeof *bias);
    if (p->n_ends > 0) memcpy(ends, p->ends, p->n_ends * sizeof *ends);
    if (is_penalised(p) || p->dry_multiplier != 0) {
        s->scratch = lp_alloc(n_vocab, sizeof *s->scratch);
        if (!s->scratch) return lp_err_memory(err, n_vocab * sizeof *s->scratch, "penalties");
    }
    lp_status status = LP_OK;
    if (p->dry_multiplier != 0)
        status = lp_dry_init(&s->dry, p->dry_multiplier, p->dry_base, p->dry_allowed_length,
                             p->dry_breakers, p->n_dry_breakers, s->n_vocab, err);
    if (!status && (p->temperature > 0 || is_changed(p)))
        status = lp_candidates_init(&s->candidates, s->n_vocab, err);
    return status;
}

lp_status lp_sampler_new(struct lp_sampler **out, const struct lp_sampler_params *params,
                         const bool *never, int32_t n_vocab, struct lp_err *err) {
    *out = NULL;
    lp_status status = check_ranges(params, err);
    if (!status) status = check_ids(params, never, n_vocab, err);
    if (status) return status;
    struct lp_sampler *s = lp_alloc(1, sizeof *s);
    if (!s) return lp_err_memory(err, sizeof *s, "the sampler");
    *s = (struct lp_sampler){.params = *params, .never = never, .n_vocab = n_vocab};
    lp_rng_init(&s->rng, params->seed);
    if ((status = fill(s, params, err))) {
        lp_sampler_free(s);
        return status;
    }
    *out = s;
    return LP_OK;
}

void lp_sampler_free(struct lp_sampler *s) {
    if (!s) return;
    lp_free((void *)s->params.bias);
    lp_free((void *)s->params.ends);
    lp_free(s->scratch);
    lp_dry_release(&s->dry);
    lp_candidates_release(&s->candidates);
    lp_free(s);
}

// ---- one token ---------------------------------------------------------------------------------

// Step 0: the row without what is not allowed.
static void copy_allowed(float *row, const float *logits, int32_t n_vocab,
                         const uint32_t *allowed) {
    for (int32_t first = 0; first < n_vocab; first += 32) {
        uint32_t bits = allowed ? allowed[first / 32] : UINT32_MAX;
        int32_t n = n_vocab - first < 32 ? n_vocab - first : 32;
        if (bits == UINT32_MAX)
            memcpy(row + first, logits + first, (size_t)n * sizeof *row);
        else
            for (int32_t i = 0; i < n; i++)
                row[first + i] = bits >> i & 1 ? logits[first + i] : -INFINITY;
    }
}

// Steps 0 to 5: the row that the filters see. Excluded ids have -infinity.
static const float *changed_row(struct lp_sampler *s, const float *logits,
                                const struct lp_history *history, const uint32_t *allowed) {
    const struct lp_sampler_params *p = &s->params;
    if (!is_changed(p)) return logits;
    float *row = s->candidates.logit;
    int64_t n_answer = history->n_tokens - history->n_prompt;
    copy_allowed(row, logits, s->n_vocab, allowed);
    lp_penalties_bias(row, p->bias, p->n_bias);
    if (p->repetition_penalty != 1)
        lp_penalties_repetition(row, s->scratch, history->tokens, history->n_tokens,
                                p->repetition_penalty);
    if (p->presence_penalty != 0 || p->frequency_penalty != 0)
        lp_penalties_count(row, s->scratch, history->tokens + history->n_prompt, n_answer,
                           p->presence_penalty, p->frequency_penalty);
    if (p->dry_multiplier != 0)
        lp_dry_apply(&s->dry, row, s->scratch, history->tokens, history->n_tokens);
    if (n_answer < p->min_tokens)
        for (size_t i = 0; i < p->n_ends; i++) row[p->ends[i]] = -INFINITY;
    return row;
}

// By the plain logits, when everything that is allowed was excluded.
static int32_t most_probable(struct lp_sampler *s, const float *logits, const uint32_t *allowed) {
    if (!allowed) return lp_sampler_argmax(logits, s->never, s->n_vocab);
    copy_allowed(s->candidates.logit, logits, s->n_vocab, allowed);
    return lp_sampler_argmax(s->candidates.logit, s->never, s->n_vocab);
}

static struct lp_filters filters_of(const struct lp_sampler_params *p) {
    return (struct lp_filters){.temperature = p->temperature,
                               .min_p = p->min_p,
                               .top_k = p->top_k,
                               .typical_p = p->typical_p,
                               .top_p = p->top_p};
}

int32_t lp_sampler_pick(struct lp_sampler *s, const float *logits, const struct lp_history *history,
                        const uint32_t *allowed) {
    const struct lp_sampler_params *p = &s->params;
    double unit = lp_rng_unit(&s->rng);
    const float *row = changed_row(s, logits, history, allowed);
    int32_t best = lp_sampler_argmax(row, s->never, s->n_vocab);
    if (row[best] == -INFINITY) return most_probable(s, logits, allowed);
    if (p->temperature == 0) return best;
    const struct lp_filters filters = filters_of(p);
    lp_filters_apply(&s->candidates, &filters, row, s->never, s->n_vocab, row[best]);
    return lp_filters_draw(&s->candidates, unit);
}

bool lp_sampler_is_plain_greedy(const struct lp_sampler *s) {
    return s->params.temperature == 0 && !is_changed(&s->params);
}

double lp_sampler_top_scale(const struct lp_sampler *s) {
    const struct lp_sampler_params *p = &s->params;
    const bool few = p->top_k > 0 || p->top_p < 1 || p->min_p > 0;
    if (p->temperature == 0 || p->typical_p < 1 || is_changed(p)) return 0;
    if (!few || p->top_k > LP_TOP_VALUES) return 0;
    return 1 / (double)p->temperature;
}

bool lp_sampler_top_is_enough(const void *sampler, const struct lp_top_row *top) {
    const struct lp_filters filters = filters_of(&((const struct lp_sampler *)sampler)->params);
    return lp_filters_need_no_more(&filters, top);
}

int32_t lp_sampler_pick_top(struct lp_sampler *s, const struct lp_top_row *top) {
    const struct lp_filters filters = filters_of(&s->params);
    const double unit = lp_rng_unit(&s->rng);
    lp_filters_apply_top(&s->candidates, &filters, top);
    return lp_filters_draw(&s->candidates, unit);
}

// ---- of the model's own probabilities ----------------------------------------------------------

int32_t lp_sampler_argmax(const float *logits, const bool *never, int32_t n_vocab) {
    int32_t best = -1;
    for (int32_t i = 0; i < n_vocab; i++)
        if (!never[i] && (best < 0 || logits[i] > logits[best])) best = i;
    return best;
}

double lp_sampler_log_sum(const float *logits, const bool *never, int32_t n_vocab) {
    double largest = logits[lp_sampler_argmax(logits, never, n_vocab)], sum = 0;
    double block[LP_EXP_BLOCK];
    for (int32_t start = 0; start < n_vocab; start += LP_EXP_BLOCK) {
        int32_t end = n_vocab - start < LP_EXP_BLOCK ? n_vocab : start + LP_EXP_BLOCK, n = 0;
        for (int32_t i = start; i < end; i++)
            if (!never[i]) block[n++] = logits[i] - largest;
        sum += lp_exp_block(block, n);
    }
    return largest + log(sum);
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
