// The stage "sparse": does the indexer of each layer find the keys that its attention wants, and if
// not, which single change to the indexer would find them?
//
// Below top_k keys nothing is left out and nothing can go wrong; so that a short text suffices, the
// measurement selects far fewer keys than the model does. An indexer that was trained to rank keys
// ranks the first few well too.
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "doctor/exam.h"
#include "doctor/recall.h"
#include "doctor/sparse_remedies.h"
#include "doctor/remedies.h"
#include "doctor/texts.h"

#define QUICK_TOKENS 160
#define FULL_TOKENS 384
#define LEAST_TOKENS 32 // of a text that says anything
#define QUERIES 32
#define ATTENTION_OPS 1.5e9 // multiply-adds that the definition may take; it is plain C
#define QUICK_S 4.0
#define FULL_S 30.0
#define ATTENTION_S 10.0
// Of a healthy indexer: skill 0 = as good as random keys, 1 = the best keys.
#define HEALTHY_SKILL 0.8
#define POOR_SKILL 0.2 // accused even where no change helps
#define SURE_SPAN 0.1  // best - random: below, attention is too even for a verdict

static lp_status text_tokens(struct lp_exam *exam, int64_t max, int32_t *out, int64_t *n,
                             struct lp_err *err) {
    struct lp_texts_choice choice = {.plain = true, .chat = true, .max_tokens = max};
    struct lp_passages p = {0};
    lp_status status = lp_texts_encode(&p, exam->tokenizer, exam->gguf, &choice, err);
    *n = 0;
    for (size_t i = 0; i < p.n && !status; i++)
        for (int32_t k = 0; k < p.list[i].n_tokens && *n < max; k++)
            if (p.list[i].tokens[k] < exam->h.n_vocab) out[(*n)++] = p.list[i].tokens[k];
    lp_passages_release(&p);
    return status;
}

// Why the indexer cannot be judged, or NULL.
static const char *why_not(const struct lp_exam *exam) {
    if (!exam->fast_lab) return "the model could not be loaded";
    if (!exam->tokenizer) return "without a tokenizer no text can be read";
    if (exam->weights_random)
        return "the weights show no structure of training: a random indexer finds keys by chance";
    if (!lp_lab_model(exam->fast_lab)->dev->backend->host_memory)
        return "attention can be looked at on host backends alone";
    return NULL;
}

static void say_series(struct lp_exam *exam, const struct lp_recall_layer *layers) {
    int32_t n = exam->h.n_layers;
    double *values = lp_alloc((size_t)n, sizeof *values);
    static const char *const names[] = {"attention on the selected keys",
                                        "attention on the best keys", "attention on recent keys",
                                        "attention on random keys"};
    for (int i = 0; i < 4 && values; i++) {
        for (int32_t l = 0; l < n; l++)
            values[l] = i == 0   ? layers[l].selected
                        : i == 1 ? layers[l].best
                        : i == 2 ? layers[l].recent
                                 : layers[l].random;
        lp_report_series(exam->report, names[i], "layer", "share of all heads' attention", false,
                         values, (size_t)n);
    }
    lp_free(values);
}

static bool judged(const struct lp_recall_layer *l) {
    return l->best - l->random > SURE_SPAN;
}

// The check itself. Returns the worst layer, or -1 where none can be judged; *out: its skill.
static int32_t say_recall(struct lp_exam *exam, const struct lp_recall_layer *layers,
                          int64_t n_tokens, int32_t top_k, double *out) {
    int32_t worst = -1;
    double least = INFINITY, sum = 0, n = 0;
    *out = 1;
    for (int32_t l = 0; l < exam->h.n_layers; l++) {
        if (!judged(&layers[l])) continue;
        double skill = lp_recall_skill(&layers[l], layers[l].selected);
        sum += skill;
        n++;
        if (skill < least) least = skill;
        if (skill == least) worst = l;
    }
    if (worst < 0) {
        lp_report_say(exam->report, LP_STAGE_SPARSE, LP_CHECK_SKIPPED, "indexer recall",
                      "attention is even in every layer: no selection is better than another");
        return -1;
    }
    const struct lp_recall_layer *w = &layers[worst];
    char figure[64], bound[32];
    snprintf(figure, sizeof figure, "%.2f in layer %d", least, worst);
    snprintf(bound, sizeof bound, "at least %.1f", HEALTHY_SKILL);
    lp_report_check(exam->report,
                    &(struct lp_check_note){.stage = LP_STAGE_SPARSE,
                                            .outcome = least < POOR_SKILL      ? LP_CHECK_FAULT
                                                       : least < HEALTHY_SKILL ? LP_CHECK_NOTE
                                                                               : LP_CHECK_OK,
                                            .name = "indexer recall",
                                            .figure = figure,
                                            .bound = bound,
                                            .value = least,
                                            .limit = HEALTHY_SKILL},
                    "%d of up to %lld keys selected: 1 = the keys with the most attention, 0 = "
                    "random ones; mean %.2f over the layers; in the worst one the selection holds "
                    "%.0f%% of the attention, the best keys %.0f%%, the latest %.0f%%, random ones "
                    "%.0f%%",
                    top_k, (long long)n_tokens, sum / n, 100 * w->selected, 100 * w->best,
                    100 * w->recent, 100 * w->random);
    *out = least;
    return worst;
}

static void accuse(struct lp_exam *exam, const struct lp_sparse_remedy *r) {
    char where[64];
    if (r->layer >= 0)
        snprintf(where, sizeof where, "layer %d", r->layer);
    else
        snprintf(where, sizeof where, "%d layers", r->n_layers);
    lp_report_fault(exam->report, LP_STAGE_SPARSE, "indexer remedies", r->layer, r->what,
                    "The indexer of %s does not find the keys that matter, but %s it does: the "
                    "selection then holds %.0f%% of the attention instead of %.0f%%. %s",
                    where, r->change, 100 * r->after, 100 * r->before, r->repair);
}

void lp_sparse_accuse(struct lp_exam *exam) {
    if (!exam->blind) return;
    if (lp_report_healthy(exam->report))
        lp_report_fault(exam->report, LP_STAGE_SPARSE, "indexer recall", exam->blind_layer,
                        "indexer",
                        "The indexer of layer %d finds keys hardly better than chance, and no "
                        "change of its settings helps: its weights are not this layer's, or are "
                        "damaged. Convert the model again; --route dense runs it without indexer.",
                        exam->blind_layer);
    else
        lp_report_follow(exam->report, "indexer recall");
}

// Whether it is the attention of this layer (-1: of all) that is at fault, and not the indexer that is
// measured by it: then short texts, in which no key is left out, get better by another change. The
// output stage will find it.
static lp_status attention_is_ill(struct lp_exam *exam, int32_t layer, bool *out,
                                  struct lp_err *err) {
    struct lp_trial trial = {0};
    struct lp_remedy *best, *rival;
    *out = false;
    lp_status status = lp_trial_init(&trial, exam, false, 0, err);
    if (!status) {
        lp_trial_set_time(&trial, ATTENTION_S);
        lp_remedies_of_suspects(&trial);
        lp_remedies_of_layer(&trial, layer);
        if (layer < 0) lp_remedies_of_settings(&trial);
        lp_trial_try(&trial, 0, err, &status);
        best = lp_trial_best(&trial, &rival);
        *out = best && lp_trial_convinces(&trial, best);
    }
    lp_trial_release(&trial);
    return status;
}

static void say_remedies(struct lp_exam *exam, const struct lp_sparse_remedy *best, bool accused,
                         size_t n_tried) {
    char figure[32];
    snprintf(figure, sizeof figure, "%+.2f", best->gain);
    lp_report_check(exam->report,
                    &(struct lp_check_note){.stage = LP_STAGE_SPARSE,
                                            .outcome = accused           ? LP_CHECK_FAULT
                                                       : best->convinces ? LP_CHECK_NOTE
                                                                         : LP_CHECK_OK,
                                            .name = "indexer remedies",
                                            .figure = figure,
                                            .bound = "below " LP_SPARSE_GAIN_TEXT,
                                            .value = best->gain,
                                            .limit = LP_SPARSE_GAIN},
                    "%zu changes to the indexers were tried; %s", n_tried,
                    accused           ? "one makes them find the keys that matter"
                    : best->convinces ? "one makes them find what this attention wants, but the "
                                        "attention itself is at fault"
                                      : "none finds better keys, as it should be");
}

static lp_status examine(struct lp_exam *exam, struct lp_recall *recall, int64_t n, int32_t top_k,
                         struct lp_err *err) {
    struct lp_recall_layer *layers = lp_alloc((size_t)exam->h.n_layers, sizeof *layers);
    struct lp_sparse_remedy best = {0};
    if (!layers) return lp_err_memory(err, (size_t)exam->h.n_layers * sizeof *layers, "layers");
    lp_status status = lp_recall_run(recall, layers, err);
    int32_t poor = -1;
    size_t n_tried = 0;
    double skill = 1;
    if (!status) {
        say_series(exam, layers);
        poor = say_recall(exam, layers, n, top_k, &skill);
    }
    bool search = poor >= 0 && (!exam->options->quick || skill < HEALTHY_SKILL);
    if (!status && search)
        status = lp_sparse_remedies(exam, recall, layers, exam->options->quick ? QUICK_S : FULL_S,
                                    &best, &n_tried, err);
    bool ill = false;
    if (!status && best.convinces) status = attention_is_ill(exam, best.layer, &ill, err);
    if (!status && search) say_remedies(exam, &best, best.convinces && !ill, n_tried);
    if (!status && best.convinces && !ill)
        accuse(exam, &best);
    else if (!status && (ill || (poor >= 0 && skill < POOR_SKILL))) {
        exam->blind = true;
        exam->blind_layer = poor;
    }
    lp_free(layers);
    return status;
}

// A vocabulary in which no text can be read hinders this stage, not the examination.
static lp_status say_unread(struct lp_exam *exam, lp_status status, struct lp_err *err) {
    if (status == LP_STATUS_MEMORY) return status;
    lp_report_say(exam->report, LP_STAGE_SPARSE, LP_CHECK_SKIPPED, "indexer recall",
                  "the known texts cannot be read: %s", err->text);
    return LP_OK;
}

lp_status lp_check_sparse(struct lp_exam *exam, struct lp_err *err) {
    const struct lp_hparams *h = &exam->h;
    const char *why = why_not(exam);
    if (!exam->has_hparams || h->top_k == 0) return LP_OK; // no indexer: nothing to say
    if (why) {
        lp_report_say(exam->report, LP_STAGE_SPARSE, LP_CHECK_SKIPPED, "indexer recall", "%s", why);
        return LP_OK;
    }
    bool quick = exam->options->quick;
    double token_s = 0;
    lp_status status = lp_reading_time_token(lp_lab_model(exam->fast_lab), exam->tokenizer,
                                             exam->gguf, &token_s, err);
    if (status) return say_unread(exam, status, err);
    int64_t max = quick ? QUICK_TOKENS : FULL_TOKENS, n = 0;
    if (h->n_context < max) max = h->n_context;
    double time_s = quick ? QUICK_S : FULL_S;
    if (token_s * (double)max > time_s) max = (int64_t)(time_s / token_s);
    if (max < LEAST_TOKENS) max = LEAST_TOKENS;
    if (exam->options->on_stage)
        exam->options->on_stage(exam->options->user, LP_STAGE_SPARSE,
                                token_s * (double)max * (quick ? 1 : 16));
    double ops = (double)h->n_layers * h->n_heads * (double)max * (h->latent + h->rope_dim);
    int32_t n_queries = (int32_t)fmin(QUERIES, fmax(2, ATTENTION_OPS / ops));
    struct lp_recall *recall = NULL;
    int32_t *tokens = lp_alloc((size_t)max, sizeof *tokens);
    status = tokens ? text_tokens(exam, max, tokens, &n, err)
                    : lp_err_memory(err, (size_t)max * sizeof *tokens, "a text");
    int32_t top_k = (int32_t)(n / 8) < h->top_k ? (int32_t)(n / 8) : h->top_k;
    if (!status && top_k >= 2) {
        status =
            lp_recall_new(&recall, lp_lab_model(exam->fast_lab), tokens, n, top_k, n_queries, err);
        if (!status) status = examine(exam, recall, n, top_k, err);
    } else if (!status)
        lp_report_say(exam->report, LP_STAGE_SPARSE, LP_CHECK_SKIPPED, "indexer recall",
                      "the known texts have too few tokens in this vocabulary");
    lp_recall_free(recall);
    lp_free(tokens);
    return status;
}
