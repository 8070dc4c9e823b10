// Trying: screening on the short texts, confirmation on all.
#include "doctor/remedies.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/grow.h"
#include "base/workers.h"

#define KEEP_BYTES ((size_t)192 << 20)
#define MAX_TEXT_TOKENS 200
// What the screening must show before all texts are read: half of what a finding needs.
#define SCREEN_GAIN 0.05

static lp_status open_set(struct lp_read_set *set, struct lp_trial *t, bool quick,
                          struct lp_err *err) {
    struct lp_texts_choice choice = {.quick = quick,
                                     .plain = true,
                                     .chat = true,
                                     .max_tokens = t->max_text_tokens,
                                     .max_all = t->max_all};
    lp_status status =
        lp_texts_encode(&set->passages, t->exam->tokenizer, t->exam->gguf, &choice, err);
    if (!status) status = lp_reading_new(&set->reading, t->model, &set->passages, KEEP_BYTES, err);
    if (!status) status = lp_scores_new(&set->base, set->passages.n_scored, err);
    if (!status) status = lp_scores_new(&set->now, set->passages.n_scored, err);
    return status ? status
                  : lp_reading_run(set->reading, &(struct lp_reading_run){.keep = true}, &set->base,
                                   err);
}

static void close_set(struct lp_read_set *set) {
    lp_reading_free(set->reading);
    lp_scores_release(&set->base);
    lp_scores_release(&set->now);
    lp_passages_release(&set->passages);
}

lp_status lp_trial_init(struct lp_trial *t, struct lp_exam *exam, bool full, int64_t max_all,
                        struct lp_err *err) {
    *t = (struct lp_trial){.exam = exam, .model = lp_lab_model(exam->fast_lab)};
    t->patch.dev = t->model->dev;
    t->max_all = max_all;
    t->max_text_tokens = MAX_TEXT_TOKENS;
    if (t->model->h.n_context < MAX_TEXT_TOKENS) t->max_text_tokens = t->model->h.n_context;
    lp_status status = open_set(&t->quick, t, true, err);
    if (!status && full) status = open_set(&t->full, t, false, err);
    return status;
}

void lp_trial_release(struct lp_trial *t) {
    lp_patch_undo(&t->patch);
    close_set(&t->quick);
    close_set(&t->full);
    lp_free(t->list);
}

struct lp_remedy *lp_trial_add(struct lp_trial *t,
                               void (*apply)(struct lp_trial *, const struct lp_remedy *)) {
    static _Thread_local struct lp_remedy nowhere;
    if (!LP_GROW(t->list, t->capacity, t->n + 1)) {
        t->failed = true;
        return &nowhere;
    }
    t->list[t->n] = (struct lp_remedy){
        .apply = apply, .layer = -1, .suspect = -1, .needed = LP_NEEDED_STRUCTURE};
    return &t->list[t->n++];
}

#define WALL_FACTOR 5
// Of two changes that come to the same, as rotating otherwise and reordering what is rotated, the one
// that is listed first explains: it must be beaten by this factor.
#define CLEARLY 1.03
#define LEAST_Z 3.0

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void lp_trial_set_time(struct lp_trial *t, double limit_s) {
    int n = t->exam->options->n_threads > 0 ? t->exam->options->n_threads : lp_cpu_count();
    t->end_ns = lp_clock_ns() + (uint64_t)(WALL_FACTOR * limit_s * 1e9);
    t->end_cpu_ns = cpu_ns() + (uint64_t)(n * limit_s * 1e9);
}

bool lp_trial_time_is_up(const struct lp_trial *t) {
    return lp_clock_ns() > t->end_ns || cpu_ns() > t->end_cpu_ns;
}

static lp_status read_with(struct lp_trial *t, struct lp_read_set *set, struct lp_remedy *remedy,
                           struct lp_gain *gain, struct lp_err *err) {
    t->run = (struct lp_reading_run){.from_layer = remedy->from_layer};
    remedy->apply(t, remedy);
    lp_status status = LP_OK;
    if (!t->patch.failed) status = lp_reading_run(set->reading, &t->run, &set->now, err);
    bool done = !t->patch.failed && !status;
    lp_patch_undo(&t->patch);
    if (done) *gain = lp_health_gain(&set->passages, set->base.logprob, set->now.logprob);
    return done || status ? status : LP_STATUS_LIMIT; // LIMIT: could not be tried
}

static double mean(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return n ? sum / (double)n : NAN;
}

static lp_status try_one(struct lp_trial *t, struct lp_remedy *remedy, struct lp_err *err) {
    struct lp_read_set *all = t->full.reading ? &t->full : &t->quick;
    lp_status status = read_with(t, &t->quick, remedy, &remedy->quick, err);
    if (status) return status == LP_STATUS_LIMIT ? LP_OK : status;
    remedy->tried = true;
    if (remedy->quick.mean < SCREEN_GAIN) return LP_OK;
    if (all == &t->full) {
        status = read_with(t, all, remedy, &remedy->full, err);
        if (status) return status == LP_STATUS_LIMIT ? LP_OK : status;
    } else
        remedy->full = remedy->quick;
    remedy->tried_fully = true;
    remedy->after = mean(all->now.logprob, all->now.n);
    return LP_OK;
}

size_t lp_trial_try(struct lp_trial *t, size_t first, struct lp_err *err, lp_status *status) {
    size_t i = first;
    *status = t->failed ? lp_err_memory(err, t->n * sizeof *t->list, "remedies") : LP_OK;
    for (; i < t->n && !*status; i++) {
        if (lp_trial_time_is_up(t)) break;
        if (!t->list[i].tried) *status = try_one(t, &t->list[i], err);
    }
    return t->n - i;
}

double lp_trial_needed(const struct lp_trial *t, const struct lp_remedy *r) {
    return t->speaks_badly ? LP_NEEDED_ILL : r->needed;
}

bool lp_trial_convinces(const struct lp_trial *t, const struct lp_remedy *r) {
    if (t->ill && r->after - t->base_logprob < -LP_NEEDED_SHARE * t->base_logprob) return false;
    return r->tried_fully && r->full.mean >= lp_trial_needed(t, r) && r->full.z >= LEAST_Z;
}

static bool is_better(const struct lp_trial *t, const struct lp_remedy *r,
                      const struct lp_remedy *than) {
    if (!than || lp_trial_convinces(t, r) != lp_trial_convinces(t, than))
        return !than || lp_trial_convinces(t, r);
    return r->full.mean > CLEARLY * than->full.mean;
}

struct lp_remedy *lp_trial_best(struct lp_trial *t, struct lp_remedy **rival) {
    struct lp_remedy *best = NULL;
    *rival = NULL;
    for (size_t i = 0; i < t->n; i++)
        if (t->list[i].tried_fully && is_better(t, &t->list[i], best)) best = &t->list[i];
    for (size_t i = 0; i < t->n && best; i++) {
        struct lp_remedy *r = &t->list[i];
        bool other = r->layer != best->layer || strcmp(r->what, best->what) != 0;
        if (r->tried_fully && other && is_better(t, r, *rival)) *rival = r;
    }
    return best;
}
