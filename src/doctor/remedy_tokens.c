// Remedies between text and model: ids shifted by one, another pre-tokenizer, another prefix.
//
// Another pre-tokenizer or prefix makes other tokens, so these are not read beside the others but by
// readings of their own, and compared text by text.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/remedies.h"
#include "text/tokenizer_parts.h"

// Other tokens are compared text by text, not one by one, and a model may have seen both.
#define NEEDED 0.5

// ---- ids ----------------------------------------------------------------------------------------

static void shift_ids(struct lp_trial *t, const struct lp_remedy *r) {
    t->run.input_shift = r->a;
    t->run.target_shift = r->b;
}

void lp_remedies_of_tokens(struct lp_trial *t) {
    static const struct {
        const char *what, *cause;
        int32_t input, target;
    } shifts[] = {
        {"tokenizer.ggml.tokens", "the token ids are not those of the weights' rows", 1, 1},
        {"token_embd.weight", "the rows of token_embd.weight are not those of the token ids", 1, 0},
        {"output.weight", "the rows of output.weight are not those of the token ids", 0, 1},
    };
    for (size_t i = 0; i < sizeof shifts / sizeof shifts[0]; i++)
        for (int32_t by = -1; by <= 1; by += 2) {
            struct lp_remedy *r = lp_trial_add(t, shift_ids);
            r->a = by * shifts[i].input;
            r->b = by * shifts[i].target;
            if (!r->a) r->from_layer = t->model->h.n_layers;
            snprintf(r->what, sizeof r->what, "%s", shifts[i].what);
            snprintf(r->cause, sizeof r->cause, "%s", shifts[i].cause);
            snprintf(r->change, sizeof r->change, "with ids one %s", by > 0 ? "higher" : "lower");
            snprintf(r->repair, sizeof r->repair,
                     "vocabulary and weights are of different releases, or one was cut or padded "
                     "at its beginning: convert both from one source");
        }
}

// ---- other tokens -------------------------------------------------------------------------------

// In a list of remedies these stand with their results; they are not tried again.
static void never(struct lp_trial *t, const struct lp_remedy *r) {
    (void)r;
    t->patch.failed = true;
}

static bool same_tokens(const struct lp_passages *a, const struct lp_passages *b) {
    if (a->n != b->n || a->n_tokens != b->n_tokens) return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->list[i].n_tokens != b->list[i].n_tokens ||
            memcmp(a->list[i].tokens, b->list[i].tokens,
                   (size_t)a->list[i].n_tokens * sizeof *a->list[i].tokens) != 0)
            return false;
    return true;
}

// Gain per token of the usual encoding, and its z over the texts whose tokens differ. Tokens cannot be
// compared one by one: what counts of a text is its probability per token of the usual encoding.
static void compare_texts(const struct lp_read_set *usual, const struct lp_passages *other,
                          const struct lp_scores *scores, struct lp_gain *gain) {
    int64_t at = 0, other_at = 0, n_tokens = 0;
    double sum = 0, mean_sum = 0, square = 0, n = 0;
    for (size_t i = 0; i < other->n; i++) {
        int32_t k = usual->passages.list[i].n_tokens - usual->passages.list[i].first_scored;
        int32_t other_k = other->list[i].n_tokens - other->list[i].first_scored;
        double before = 0, after = 0;
        for (int32_t j = 0; j < k; j++) before += usual->base.logprob[at + j];
        for (int32_t j = 0; j < other_k; j++) after += scores->logprob[other_at + j];
        at += k;
        other_at += other_k;
        n_tokens += k;
        if (before == after || k == 0) continue;
        double d = lp_health_doubt(before / k) - lp_health_doubt(after / k);
        sum += d * k;
        mean_sum += d;
        square += d * d;
        n++;
    }
    gain->mean = n_tokens ? sum / (double)n_tokens : 0;
    double variance = n > 1 ? (square - mean_sum * mean_sum / n) / (n - 1) : 0;
    gain->z = variance > 0 ? mean_sum / n / sqrt(variance / n) : 0;
}

// Reads the texts as `choice` and the tokenizer now encode them; the result is remedy's full gain.
static lp_status read_otherwise(struct lp_trial *t, const struct lp_texts_choice *choice,
                                struct lp_remedy *remedy, struct lp_err *err) {
    struct lp_read_set *usual = t->full.reading ? &t->full : &t->quick;
    struct lp_passages other = {0};
    struct lp_reading *reading = NULL;
    struct lp_scores scores = {0};
    lp_status status = lp_texts_encode(&other, t->exam->tokenizer, t->exam->gguf, choice, err);
    bool differs =
        !status && other.n == usual->passages.n && !same_tokens(&other, &usual->passages);
    if (differs) status = lp_reading_new(&reading, t->model, &other, 0, err);
    if (differs && !status) status = lp_scores_new(&scores, other.n_scored, err);
    if (differs && !status)
        status = lp_reading_run(reading, &(struct lp_reading_run){.keep = true}, &scores, err);
    if (differs && !status) {
        compare_texts(usual, &other, &scores, &remedy->full);
        remedy->tried = remedy->tried_fully = true;
        double sum = 0;
        for (int64_t i = 0; i < scores.n; i++) sum += scores.logprob[i];
        remedy->after = sum / (double)scores.n;
    }
    lp_reading_free(reading);
    lp_scores_release(&scores);
    lp_passages_release(&other);
    return status;
}

static struct lp_texts_choice usual_choice(const struct lp_trial *t) {
    return (struct lp_texts_choice){.quick = !t->full.reading,
                                    .plain = true,
                                    .chat = true,
                                    .max_tokens = t->max_text_tokens,
                                    .max_all = t->max_all};
}

static lp_status try_pretok(struct lp_trial *t, const struct lp_pretok_row *row,
                            struct lp_err *err) {
    struct lp_tokenizer *tok = t->exam->tokenizer;
    struct lp_texts_choice choice = usual_choice(t);
    struct lp_pretok *pretok = NULL, *own = tok->pretok;
    bool own_ignore = tok->ignore_merges;
    lp_status status = lp_pretok_new(&pretok, row, err);
    if (status) return status == LP_STATUS_MEMORY ? status : LP_OK;
    struct lp_remedy *r = lp_trial_add(t, never);
    r->needed = NEEDED;
    snprintf(r->what, sizeof r->what, "tokenizer.ggml.pre");
    snprintf(r->cause, sizeof r->cause, "texts are not split into tokens as in the training");
    snprintf(r->change, sizeof r->change, "split by the rule \"%.*s\"",
             (int)strcspn(row->names, " "), row->names);
    snprintf(r->repair, sizeof r->repair, "set tokenizer.ggml.pre to that");
    tok->pretok = pretok;
    tok->ignore_merges = row->ignore_merges;
    status = read_otherwise(t, &choice, r, err);
    tok->pretok = own;
    tok->ignore_merges = own_ignore;
    lp_pretok_free(pretok);
    return status;
}

static lp_status try_prefix(struct lp_trial *t, enum lp_text_prefix prefix, struct lp_err *err) {
    struct lp_texts_choice choice = usual_choice(t);
    choice.prefix = prefix;
    if (!lp_texts_prefix_differs(t->exam->tokenizer, prefix)) return LP_OK;
    struct lp_remedy *r = lp_trial_add(t, never);
    r->needed = NEEDED;
    snprintf(r->what, sizeof r->what, "tokenizer.ggml.add_bos_token");
    snprintf(r->cause, sizeof r->cause, "texts begin %s",
             prefix == LP_PREFIX_NONE ? "with a token that the training did not put there"
                                      : "without BOS, which the training put there");
    snprintf(r->change, sizeof r->change, "%s",
             prefix == LP_PREFIX_NONE ? "without it" : "with it");
    snprintf(r->repair, sizeof r->repair, "set tokenizer.ggml.add_bos_token to %s",
             prefix == LP_PREFIX_NONE ? "false" : "true");
    return read_otherwise(t, &choice, r, err);
}

lp_status lp_trial_try_encodings(struct lp_trial *t, struct lp_err *err) {
    size_t n = 0;
    const struct lp_pretok_row *rows = lp_pretok_rows(&n);
    lp_status status = try_prefix(t, LP_PREFIX_NONE, err);
    if (!status) status = try_prefix(t, LP_PREFIX_BOS, err);
    for (size_t i = 0; i < n && !status && t->exam->tokenizer->pretok; i++) {
        if (lp_trial_time_is_up(t)) break;
        status = try_pretok(t, &rows[i], err);
    }
    return status;
}
