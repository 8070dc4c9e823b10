// The stage "output": is what the model says the speech of a healthy model, and if not, which single
// change would make it so?
//
// A model with random weights has nothing to say: it is only looked at for numbers that are no
// numbers. Where remedies repair nothing, what the weights stage was certain of is accused, and
// where the texts show that something is wrong without saying what, that is said.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/locate.h"
#include "doctor/output_figures.h"
#include "doctor/output_verdict.h"

#define QUICK_READ_S 4.0    // the quick run reads no more than fits this time
#define QUICK_REMEDY_S 1.5  // and looks for remedies as long as this,
#define QUICK_SEARCH_S 15.0 // or this, where the model is ill
#define FULL_READ_S 60.0
#define FULL_REMEDY_S 45.0
#define FULL_SEARCH_S 150.0
#define SETTLED_GAIN 4.0 // surprise falls to a fiftieth
#define SETTLED_Z 6.0
#define FEW_EXPERTS 16
#define ILL_SKILL 0.9 // below: worth a longer search, and a repair must show; no verdict by itself

// Why the output cannot be judged at all, or NULL.
static const char *why_not(const struct lp_exam *exam) {
    if (!exam->fast_lab) return "the model could not be loaded, so it says nothing";
    if (!exam->tokenizer) return "without a tokenizer no text can be read";
    if (exam->weights_random)
        return "the weights show no structure of training: what a random model says cannot be "
               "judged";
    return NULL;
}

// Whether a change explains so much that no other need be looked for. Lesser ones may be substitutes:
// next to a negated matrix of one layer, leaving it out in effect by exchanging layers helps too.
static bool settled(struct lp_trial *t) {
    struct lp_remedy *rival, *best = lp_trial_best(t, &rival);
    return best && best->full.mean > SETTLED_GAIN && best->full.z > SETTLED_Z &&
           !(best->layer < 0 && best->per_layer);
}

// One layer after the other: first those whose half the model misses least.
static lp_status seek_in_layers(struct lp_trial *t, struct lp_err *err) {
    int32_t n_layers = t->model->h.n_layers;
    struct lp_location *where = lp_alloc(2 * (size_t)n_layers, sizeof *where);
    bool *listed = lp_alloc((size_t)n_layers, sizeof *listed);
    lp_status status = where && listed ? lp_locate_by_skipping(t, where, err)
                                       : lp_err_memory(err, (size_t)n_layers, "layers");
    for (int32_t i = 0; i < 2 * n_layers && !status && t->n_left == 0 && !settled(t); i++) {
        size_t first = t->n;
        if (listed[where[i].layer]) continue;
        listed[where[i].layer] = true;
        lp_remedies_of_layer(t, where[i].layer);
        t->n_left = lp_trial_try(t, first, err, &status);
    }
    lp_free(where);
    lp_free(listed);
    return status;
}

// Any two of a few experts; of many only those that the weights stage suspects. Late layers first,
// which take the least time.
static lp_status seek_in_experts(struct lp_trial *t, struct lp_err *err) {
    lp_status status = LP_OK;
    if (t->model->h.n_experts > FEW_EXPERTS) return LP_OK;
    for (int32_t l = t->model->h.n_layers - 1; l >= 0 && !status && t->n_left == 0; l--) {
        size_t first = t->n;
        if (settled(t)) break;
        lp_remedies_of_experts(t, l);
        t->n_left = lp_trial_try(t, first, err, &status);
    }
    return status;
}

// Remedies in the order of their likelihood.
static lp_status seek_remedies(struct lp_trial *t, double limit_s, struct lp_err *err) {
    lp_status status = LP_OK;
    lp_trial_set_time(t, limit_s);
    lp_remedies_of_suspects(t);
    if (t->exam->blind) lp_remedies_of_layer(t, t->exam->blind_layer); // it may be its attention
    lp_remedies_of_tokens(t);
    lp_remedies_of_settings(t);
    lp_remedies_of_router(t);
    lp_remedies_of_layer(t, -1);
    lp_remedies_of_sequence(t);
    t->n_left = lp_trial_try(t, 0, err, &status);
    if (!status && t->n_left == 0) status = lp_trial_try_encodings(t, err);
    if (!status && t->n_left == 0 && !settled(t)) status = seek_in_layers(t, err);
    if (!status && t->n_left == 0) status = seek_in_experts(t, err);
    return status;
}

static lp_status judge(struct lp_exam *exam, struct lp_trial *t, struct lp_err *err) {
    bool quick = exam->options->quick;
    const struct lp_read_set *all = t->full.reading ? &t->full : &t->quick;
    struct lp_health health;
    lp_health_measure(&all->passages, &all->base, lp_reading_floor(t->model), exam->h.n_vocab,
                      &health);
    lp_status status = lp_output_figures(exam, t, &health, err);
    if (status || lp_report_explained(exam->report, LP_STAGE_OUTPUT)) {
        lp_output_unjudged(exam, "an earlier stage has found what is wrong");
        return status;
    }
    t->ill = health.skill < ILL_SKILL;
    t->base_logprob = health.mean_logprob;
    bool ill = exam->blind || t->ill;
    double limit =
        quick ? (ill ? QUICK_SEARCH_S : QUICK_REMEDY_S) : (ill ? FULL_SEARCH_S : FULL_REMEDY_S);
    status = seek_remedies(t, limit, err);
    return status ? status : lp_output_verdict(exam, t, &health, err);
}

lp_status lp_check_output(struct lp_exam *exam, struct lp_err *err) {
    const struct lp_doctor_options *o = exam->options;
    const char *why = why_not(exam);
    double token_s = 0, read_s = o->quick ? QUICK_READ_S : FULL_READ_S;
    struct lp_trial trial = {0};
    struct lp_err cause = {0};
    if (why) {
        lp_report_say(exam->report, LP_STAGE_OUTPUT, LP_CHECK_SKIPPED, "known texts", "%s", why);
        lp_output_unjudged(exam, why);
        return LP_OK;
    }
    lp_status status = lp_reading_time_token(lp_lab_model(exam->fast_lab), exam->tokenizer,
                                             exam->gguf, &token_s, &cause);
    if (!status && o->on_stage)
        o->on_stage(o->user, LP_STAGE_OUTPUT, o->quick ? QUICK_REMEDY_S : FULL_REMEDY_S);
    int64_t max_all = token_s > 0 ? (int64_t)(read_s / token_s) + 1 : 0;
    if (!status) status = lp_trial_init(&trial, exam, !o->quick, max_all, &cause);
    if (!status) status = judge(exam, &trial, &cause);
    lp_trial_release(&trial);
    if (status == LP_STATUS_INVALID) {
        lp_report_say(exam->report, LP_STAGE_OUTPUT, LP_CHECK_SKIPPED, "known texts",
                      "the known texts cannot be read: %s", cause.text);
        lp_output_unjudged(exam, "no text could be read");
        return LP_OK;
    }
    return status ? lp_err_set(err, status, "%s", cause.text) : LP_OK;
}
