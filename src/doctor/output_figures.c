// Figures first for people: what is measured, what a healthy model shows.
#include "doctor/output_figures.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"

#define GREEDY_TOKENS 48
#define GREEDY_S 5.0        // no longer; then fewer tokens
#define HALF_MAX 65504.0    // largest number of half precision
#define HEALTHY_ENTROPY 0.6 // share of log(n_vocab), over the obvious tokens

static void say_health(struct lp_report *r, const struct lp_health *h, double n_vocab) {
    char figure[64], bound[64], entropy[32], spread[32];
    bool known = h->skill >= LP_HEALTHY_SKILL;
    snprintf(figure, sizeof figure, "%.2f", h->skill);
    snprintf(bound, sizeof bound, "at least %.2f", LP_HEALTHY_SKILL);
    snprintf(entropy, sizeof entropy, "%.2f", h->entropy);
    snprintf(spread, sizeof spread, "%.2f", h->logit_std);
    lp_report_check(r,
                    &(struct lp_check_note){.stage = LP_STAGE_OUTPUT,
                                            .outcome = known ? LP_CHECK_OK : LP_CHECK_FAULT,
                                            .name = "known texts",
                                            .figure = figure,
                                            .bound = bound,
                                            .value = h->skill,
                                            .limit = LP_HEALTHY_SKILL},
                    "skill at the best three of %d known texts (1 = certain of every obvious "
                    "token, 0 = near chance; median %.2f); mean log-probability of what is obvious "
                    "%.2f (chance %.1f), the first choice for %.0f%%, among ten for %.0f%%",
                    h->n_texts, h->median_skill, h->mean_logprob, -log(n_vocab), 100 * h->first,
                    100 * h->ten);
    lp_report_check(r,
                    &(struct lp_check_note){.stage = LP_STAGE_OUTPUT,
                                            .outcome = h->entropy < HEALTHY_ENTROPY ? LP_CHECK_OK
                                                                                    : LP_CHECK_NOTE,
                                            .name = "entropy",
                                            .figure = entropy,
                                            .bound = "below 0.6",
                                            .value = h->entropy,
                                            .limit = HEALTHY_ENTROPY},
                    "entropy before obvious tokens is %.2f of its maximum; a healthy model is sure "
                    "there: below %.1f",
                    h->entropy, HEALTHY_ENTROPY);
    lp_report_check(
        r,
        &(struct lp_check_note){.stage = LP_STAGE_OUTPUT,
                                .outcome = h->logit_std > 0.3 ? LP_CHECK_OK : LP_CHECK_NOTE,
                                .name = "logit spread",
                                .figure = spread,
                                .bound = "1 to 10",
                                .value = h->logit_std,
                                .limit = NAN},
        "logits spread by %.2f around their mean, the largest is %.1f; healthy models "
        "spread by 1 to 10, and flat logits mean that the head hears nothing",
        h->logit_std, h->max_logit);
    lp_report_measure(r, LP_STAGE_OUTPUT, "logits finite", h->bad, 0,
                      "%.1f%% of the rows of logits hold NaN or infinity; a healthy model has none",
                      100 * h->bad);
}

// Depth by depth: log-probability of the quick texts when the head reads the residual stream, and
// the largest number in it.
static lp_status say_depth(struct lp_exam *exam, struct lp_trial *t, struct lp_err *err) {
    size_t n = (size_t)t->model->h.n_layers + 1, peak = 0;
    double *depth = lp_alloc(n, sizeof *depth), *largest = lp_alloc(n, sizeof *largest);
    lp_status status = depth && largest ? LP_OK : lp_err_memory(err, n * 16, "layers");
    struct lp_reading_run run = {.keep = true, .by_depth = depth, .largest = largest};
    if (!status) status = lp_reading_run(t->quick.reading, &run, &t->quick.now, err);
    for (size_t i = 0; i < n && !status; i++)
        if (!(largest[i] <= largest[peak])) peak = i;
    if (!status) {
        lp_report_series(exam->report, "log-probability by depth", "layers",
                         "nats per obvious token", false, depth, n);
        lp_report_series(exam->report, "largest value of the residual stream", "layers", "|h|",
                         true, largest, n);
        bool fits = largest[peak] < HALF_MAX;
        char figure[32];
        snprintf(figure, sizeof figure, "%.3g", largest[peak]);
        lp_report_check(exam->report,
                        &(struct lp_check_note){.stage = LP_STAGE_OUTPUT,
                                                .outcome = fits ? LP_CHECK_OK : LP_CHECK_NOTE,
                                                .name = "largest activation",
                                                .figure = figure,
                                                .bound = "at most 65504 for half precision",
                                                .value = largest[peak],
                                                .limit = HALF_MAX},
                        "largest value of the residual stream, after %zu of %zu layers%s", peak,
                        n - 1,
                        fits ? "" : "; an engine that computes in half precision overflows here");
    }
    lp_free(depth);
    lp_free(largest);
    return status;
}

static int32_t most_probable(const float *logits, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

// Greedy continuation of a text, a token a step. *n_out: how many were made within the time.
static lp_status continue_text(struct lp_lab *lab, const struct lp_passage *text, int32_t *out,
                               int32_t *n_out, struct lp_err *err) {
    struct lp_runner *runner = lp_lab_runner(lab);
    struct lp_kv *kv = lp_lab_kv(lab);
    struct lp_page_table table = {0};
    int64_t n_vocab = lp_lab_model(lab)->h.n_vocab, n_past = 0;
    float *logits = lp_alloc((size_t)n_vocab, sizeof *logits);
    bool bad = false;
    lp_status status = logits ? LP_OK : lp_err_memory(err, (size_t)n_vocab * 4, "logits");
    uint64_t end = lp_clock_ns() + (uint64_t)(GREEDY_S * 1e9);
    for (*n_out = 0; *n_out < GREEDY_TOKENS && !status && lp_clock_ns() < end;) {
        bool first = n_past == 0;
        const int32_t *tokens = first ? text->tokens : &out[*n_out - 1];
        int64_t n = first ? text->n_tokens : 1;
        int32_t row = (int32_t)n - 1;
        if (n_past + n > lp_lab_max_context(lab)) break;
        status = lp_page_table_grow(&table, kv, n_past + n, err);
        if (status) break;
        struct lp_span span = {.pages = &table, .n_past = n_past, .n_rows = n};
        struct lp_step step = {.tokens = tokens,
                               .spans = &span,
                               .n_spans = 1,
                               .n_rows = n,
                               .logit_rows = &row,
                               .n_logit_rows = 1,
                               .logits = logits,
                               .bad = &bad};
        status = lp_runner_step(runner, &step, &(struct lp_step_settings){0}, err);
        n_past += n;
        if (!status) out[(*n_out)++] = most_probable(logits, n_vocab);
    }
    lp_page_table_release(&table, kv);
    lp_free(logits);
    return status;
}

static lp_status say_repetition(struct lp_exam *exam, struct lp_trial *t, struct lp_err *err) {
    int32_t tokens[GREEDY_TOKENS], n = 0;
    const struct lp_passages *p = &t->quick.passages;
    const struct lp_passage *text = &p->list[0];
    for (size_t i = 0; i < p->n; i++) // the story: the one that has no end
        if (p->list[i].kind == LP_TEXT_PLAIN && p->list[i].name[0] == 's') text = &p->list[i];
    if (text->n_tokens > 128) return LP_OK; // a vocabulary of bytes
    lp_status status = continue_text(exam->fast_lab, text, tokens, &n, err);
    if (status) return status;
    struct lp_circles c = lp_health_circles(tokens, n);
    bool stuck = n >= 8 && c.period > 0 && c.period <= 2 && c.repeated > n / 2;
    char figure[48];
    snprintf(figure, sizeof figure, "%d of %d different", c.distinct, n);
    lp_report_check(exam->report,
                    &(struct lp_check_note){.stage = LP_STAGE_OUTPUT,
                                            .outcome = stuck ? LP_CHECK_NOTE : LP_CHECK_OK,
                                            .name = "repetition",
                                            .figure = figure,
                                            .bound = "no circle of one or two tokens",
                                            .value = n ? (double)c.distinct / n : NAN,
                                            .limit = NAN},
                    "greedy continuation of \"%s\": %d tokens, %d different%s; small models may "
                    "repeat sentences, a healthy one does not repeat a token or two without end",
                    text->name, n, c.distinct,
                    stuck            ? ", the end goes round in a circle of one or two tokens"
                    : c.repeated > 0 ? ", the end repeats itself"
                                     : "");
    return LP_OK;
}

static void say_by_text(struct lp_exam *exam, struct lp_trial *t) {
    const struct lp_read_set *all = t->full.reading ? &t->full : &t->quick;
    double *skills = lp_alloc(all->passages.n, sizeof *skills);
    if (!skills) return;
    lp_health_skills(&all->passages, &all->base, lp_reading_floor(t->model), skills);
    lp_report_series(exam->report, "skill by text", "text", "skill", false, skills,
                     all->passages.n);
    lp_free(skills);
    double *entropy = lp_alloc((size_t)all->base.n, sizeof *entropy);
    if (!entropy) return;
    for (int64_t i = 0; i < all->base.n; i++) entropy[i] = all->base.entropy[i];
    lp_report_series(exam->report, "entropy by position", "obvious token", "nats", false, entropy,
                     (size_t)all->base.n);
    lp_free(entropy);
}

lp_status lp_output_figures(struct lp_exam *exam, struct lp_trial *t,
                            const struct lp_health *health, struct lp_err *err) {
    say_health(exam->report, health, (double)exam->h.n_vocab);
    say_by_text(exam, t);
    lp_status status = say_depth(exam, t, err);
    return status ? status : say_repetition(exam, t, err);
}
