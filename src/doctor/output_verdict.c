// From results to accusations.
//
// The bounds (remedies.h) are set by healthy models, on which nothing may be accused: docs/doctor.md.
#include "doctor/output_verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SENSITIVE 0.05 // a remedy that moves doubt by less neither confirms nor clears

static void accuse(struct lp_exam *exam, const struct lp_trial *t, const struct lp_remedy *r,
                   const struct lp_remedy *rival, const struct lp_health *h) {
    char other[256] = "";
    if (rival && lp_trial_convinces(t, rival) && rival->full.mean > 0.85 * r->full.mean)
        snprintf(other, sizeof other, " It comes to the same or nearly: %.90s, %.90s.", rival->what,
                 rival->change);
    lp_report_fault(exam->report, LP_STAGE_OUTPUT, "remedies", r->layer, r->what,
                    "%s: %s the surprise at what is obvious falls by %.0f%%, its mean "
                    "log-probability goes from %.2f to %.2f. To repair: %s.%s",
                    r->cause, r->change, 100 * (1 - exp(-r->full.mean)), h->mean_logprob, r->after,
                    r->repair, other);
}

static void say_remedies(struct lp_exam *exam, const struct lp_trial *t,
                         const struct lp_remedy *best, bool found) {
    size_t n_tried = 0;
    char figure[64] = "none helps", bound[64];
    for (size_t i = 0; i < t->n; i++) n_tried += t->list[i].tried;
    if (best) snprintf(figure, sizeof figure, "%+.3f", best->full.mean);
    double needed = best ? lp_trial_needed(t, best) : LP_NEEDED_STRUCTURE;
    snprintf(bound, sizeof bound, "below %.2f", needed);
    lp_report_check(exam->report,
                    &(struct lp_check_note){.stage = LP_STAGE_OUTPUT,
                                            .outcome = found ? LP_CHECK_FAULT : LP_CHECK_OK,
                                            .name = "remedies",
                                            .figure = figure,
                                            .bound = bound,
                                            .value = best ? best->full.mean : 0,
                                            .limit = needed},
                    "%zu single changes were tried%s; %s", n_tried,
                    t->n_left ? " (time was up before all were)" : "",
                    found ? "one of them repairs the model"
                          : "none makes the model surer of what is obvious, as it should be");
    if (best && !found && best->full.mean > SENSITIVE)
        lp_report_say(exam->report, LP_STAGE_OUTPUT, LP_CHECK_NOTE, "best change",
                      "the best was %s, %s: doubt falls by %.3f per token (z %.1f), which may be "
                      "chance",
                      best->what, best->change, best->full.mean, best->full.z);
}

// A suspect about the tensor that the remedy accuses.
static bool concerns(const struct lp_suspect *s, const struct lp_remedy *r) {
    return r->layer == s->layer && strlen(r->what) == s->tensor->name.len &&
           memcmp(r->what, s->tensor->name.data, s->tensor->name.len) == 0;
}

static const struct lp_remedy *remedy_of(const struct lp_trial *t, int32_t suspect) {
    const struct lp_suspect *s = &t->exam->suspects[suspect];
    const struct lp_remedy *best = NULL;
    for (size_t i = 0; i < t->n; i++) {
        const struct lp_remedy *r = &t->list[i];
        bool its = r->suspect == suspect ||
                   (r->suspect < 0 && s->kind == LP_SUSPECT_PERMUTED && concerns(s, r));
        if (its && r->tried && (!best || r->quick.mean > best->quick.mean)) best = r;
    }
    return best;
}

// The sparse stage has measured what the indexers find; these names are its affair.
static bool is_of_indexer(const struct lp_suspect *s) {
    return memmem(s->tensor->name.data, s->tensor->name.len, ".indexer.", 9) != NULL;
}

static bool indexers_are_well(const struct lp_report *report) {
    for (size_t i = 0; i < report->n_checks; i++)
        if (report->checks[i].stage == LP_STAGE_SPARSE &&
            strcmp(report->checks[i].name, "indexer recall") == 0)
            return report->checks[i].outcome == LP_CHECK_OK;
    return false;
}

static bool is_accused(const struct lp_report *report, const char *what) {
    for (size_t i = 0; i < report->n_faults; i++)
        if (strcmp(report->faults[i].what, what) == 0) return true;
    return false;
}

static void accuse_suspect(struct lp_exam *exam, const struct lp_suspect *s) {
    char name[96];
    snprintf(name, sizeof name, "%.*s", LP_STR_ARGS(s->tensor->name));
    if (is_accused(exam->report, name)) return;
    lp_report_fault(exam->report, LP_STAGE_WEIGHTS, "suspicions", s->layer, name, "%s", s->text);
}

// What the experiments say about each suspect that the best remedy does not confirm.
static void resolve_suspects(struct lp_exam *exam, const struct lp_trial *t,
                             const struct lp_remedy *accused) {
    for (int32_t i = 0; i < exam->n_suspects; i++) {
        const struct lp_suspect *s = &exam->suspects[i];
        const struct lp_remedy *r = remedy_of(t, i);
        if (accused && (accused->suspect == i || concerns(s, accused))) continue;
        bool cleared =
            is_of_indexer(s) ? indexers_are_well(exam->report) : r && r->quick.mean < -SENSITIVE;
        if (s->certain && !cleared && !accused)
            accuse_suspect(exam, s);
        else
            lp_report_say(
                exam->report, LP_STAGE_WEIGHTS, LP_CHECK_NOTE, "suspicions", "%s (%s)", s->text,
                cleared   ? is_of_indexer(s) ? "cleared: its indexer finds the keys that matter"
                                             : "cleared: with that undone the model gets worse"
                : accused ? "another change explains what is wrong"
                          : "with that undone the texts show no difference");
    }
}

void lp_output_unjudged(struct lp_exam *exam, const char *why) {
    for (int32_t i = 0; i < exam->n_suspects; i++) {
        const struct lp_suspect *s = &exam->suspects[i];
        bool cleared = is_of_indexer(s) && indexers_are_well(exam->report);
        if (s->certain && !cleared)
            accuse_suspect(exam, s);
        else
            lp_report_say(exam->report, LP_STAGE_WEIGHTS, LP_CHECK_NOTE, "suspicions",
                          "%s (not tried: %s)", s->text, why);
    }
}

lp_status lp_output_verdict(struct lp_exam *exam, struct lp_trial *t, const struct lp_health *h,
                            struct lp_err *err) {
    struct lp_remedy *rival, *best = lp_trial_best(t, &rival);
    bool found = best && lp_trial_convinces(t, best);
    (void)err;
    say_remedies(exam, t, best, found);
    if (found) accuse(exam, t, best, rival, h);
    resolve_suspects(exam, t, found ? best : NULL);
    if (!found && h->skill < LP_HEALTHY_SKILL && lp_report_healthy(exam->report))
        lp_report_fault(exam->report, LP_STAGE_OUTPUT, "known texts", -1, "output",
                        "The model does not know what any language model knows (skill %.2f at its "
                        "best texts), and no single change repairs it: several things are wrong at "
                        "once, or the weights are damaged. Take the file from another source, or "
                        "compare with a dump of the original model (--against).",
                        h->skill);
    return LP_OK;
}
