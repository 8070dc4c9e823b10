#include "files/compare_run.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/engine.h"
#include "files/compare.h"

// What model A computed: kept whole, so that B's can be compared as it comes.
struct kept {
    int64_t n_tokens;
    int32_t n_layers, n_embd, n_vocab;
    float *hidden; // [n_layers + 1, n_tokens, n_embd]; NULL where the streams cannot be compared
    float *logits; // [n_tokens, n_vocab]
    struct sums {
        double error, a, b, product, worst_cosine;
    } * layers; // [n_layers + 1]
    struct lp_compare_run *run;
};

static void keep_hidden(void *user, int32_t layer, int64_t first, int64_t n, const float *hidden) {
    struct kept *k = user;
    memcpy(k->hidden + ((layer + 1) * k->n_tokens + first) * k->n_embd, hidden,
           (size_t)(n * k->n_embd) * sizeof *hidden);
}

static void keep_logits(void *user, int64_t first, int64_t n, const float *logits) {
    struct kept *k = user;
    memcpy(k->logits + first * k->n_vocab, logits, (size_t)(n * k->n_vocab) * sizeof *logits);
}

static void compare_hidden(void *user, int32_t layer, int64_t first, int64_t n,
                           const float *hidden) {
    struct kept *k = user;
    struct sums *s = &k->layers[layer + 1];
    for (int64_t t = 0; t < n; t++) {
        const float *x = k->hidden + ((layer + 1) * k->n_tokens + first + t) * k->n_embd;
        const float *y = hidden + t * k->n_embd;
        double error = 0, a = 0, b = 0, product = 0;
        for (int32_t i = 0; i < k->n_embd; i++) {
            double d = (double)x[i] - y[i];
            error += d * d;
            a += (double)x[i] * x[i];
            b += (double)y[i] * y[i];
            product += (double)x[i] * y[i];
        }
        double cosine = lp_compare_cosine(product, a, b);
        if (cosine < s->worst_cosine || cosine != cosine) s->worst_cosine = cosine;
        s->error += error;
        s->a += a;
        s->b += b;
        s->product += product;
    }
}

// log sum exp of n logits, and the index of the largest.
static double log_sum(const float *x, int32_t n, int32_t *top) {
    double sum = 0;
    *top = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[*top]) *top = i;
    for (int32_t i = 0; i < n; i++) sum += exp((double)x[i] - x[*top]);
    return x[*top] + log(sum);
}

static void compare_logits(void *user, int64_t first, int64_t n, const float *logits) {
    struct kept *k = user;
    for (int64_t t = 0; t < n; t++) {
        const float *a = k->logits + (first + t) * k->n_vocab, *b = logits + t * k->n_vocab;
        int32_t top_a, top_b;
        double sum_a = log_sum(a, k->n_vocab, &top_a), sum_b = log_sum(b, k->n_vocab, &top_b);
        double kl = 0;
        for (int32_t i = 0; i < k->n_vocab; i++) {
            double log_p = a[i] - sum_a;
            kl += exp(log_p) * (log_p - (b[i] - sum_b));
        }
        k->run->kl += kl / (double)k->n_tokens;
        if (kl > k->run->max_kl) k->run->max_kl = kl;
        k->run->same_top += (top_a == top_b) / (double)k->n_tokens;
    }
}

static limpid_status run_model(limpid_model *model, const int32_t *ids, const limpid_watch *watch,
                               int64_t n, limpid_error *err) {
    limpid_engine_options options = limpid_engine_default_options();
    limpid_engine *engine = NULL;
    limpid_sequence *sequence = NULL;
    options.kv_type = "f32";
    options.n_context = n + 1;
    limpid_status status = limpid_engine_new(&engine, model, &options, err);
    if (!status) status = limpid_sequence_new(&sequence, engine, err);
    if (!status) status = limpid_sequence_append(sequence, ids, (size_t)n, watch, NULL, err);
    limpid_sequence_free(sequence);
    if (engine) limpid_engine_free(engine, NULL); // it has no requests
    return status;
}

// The prompt's ids, the same by both tokenizers.
static limpid_status tokenize(limpid_model *a, limpid_model *b, const char *prompt, int32_t **ids,
                              size_t *n, limpid_error *err) {
    int32_t *other = NULL;
    size_t n_other = 0;
    unsigned flags = LIMPID_SPECIAL | LIMPID_BOS;
    limpid_status status = limpid_tokenize(a, prompt, strlen(prompt), flags, ids, n, err);
    if (!status) status = limpid_tokenize(b, prompt, strlen(prompt), flags, &other, &n_other, err);
    if (!status && (*n != n_other || memcmp(*ids, other, *n * sizeof **ids) != 0))
        status = lp_public(lp_err_set(lp_err_of(err), LP_STATUS_INVALID,
                                      "the two tokenizers cut the prompt differently, into "
                                      "%zu and %zu tokens; nothing can be compared",
                                      *n, n_other));
    if (!status && (*n == 0 || *n > LP_COMPARE_RUN_MAX_TOKENS))
        status = lp_public(lp_err_set(lp_err_of(err), LP_STATUS_LIMIT,
                                      "the prompt has %zu tokens, expected 1 to %d", *n,
                                      LP_COMPARE_RUN_MAX_TOKENS));
    limpid_free(other);
    return status;
}

static limpid_status reserve(struct kept *k, bool streams, limpid_error *err) {
    size_t n = (size_t)k->n_tokens, n_rows = ((size_t)k->n_layers + 1) * n;
    k->logits = lp_alloc(n * (size_t)k->n_vocab, sizeof *k->logits);
    if (streams) {
        k->hidden = lp_alloc(n_rows * (size_t)k->n_embd, sizeof *k->hidden);
        k->layers = lp_alloc((size_t)k->n_layers + 1, sizeof *k->layers);
    }
    if (!k->logits || (streams && (!k->hidden || !k->layers)))
        return lp_public(lp_err_memory(
            lp_err_of(err), (n_rows * (size_t)k->n_embd + n * (size_t)k->n_vocab) * sizeof(float),
            "what the first model computes"));
    for (int32_t l = 0; streams && l <= k->n_layers; l++) k->layers[l].worst_cosine = 1;
    return LIMPID_OK;
}

// The step at which the error is multiplied most. What is below a twentieth of the largest error
// counts as that much: the first layer that differs at all is not yet the one at fault.
static void find_jump(struct lp_compare_run *run) {
    double largest = 0;
    run->jump_layer = -1;
    for (int32_t i = 0; i < run->n_layers; i++) largest = fmax(largest, run->layers[i].rms);
    for (int32_t i = 1; i < run->n_layers && largest > 0; i++) {
        double before = fmax(run->layers[i - 1].rms, largest / 20);
        double growth = run->layers[i].rms / before;
        if (!(growth > run->jump)) continue;
        run->jump = growth;
        run->jump_layer = run->layers[i].layer;
    }
}

static limpid_status finish(struct lp_compare_run *run, const struct kept *k, limpid_error *err) {
    run->n_tokens = k->n_tokens;
    run->jump_layer = -1;
    if (!k->layers) return LIMPID_OK;
    run->n_layers = k->n_layers + 1;
    run->layers = lp_alloc((size_t)run->n_layers, sizeof *run->layers);
    if (!run->layers) return lp_public(lp_err_memory(lp_err_of(err), 0, "the layers"));
    for (int32_t i = 0; i < run->n_layers; i++) {
        const struct sums *s = &k->layers[i];
        run->layers[i] = (struct lp_compare_layer){
            .layer = i - 1,
            .rms = lp_compare_rms(s->error, s->a),
            .cosine = lp_compare_cosine(s->product, s->a, s->b),
            .worst_cosine = s->worst_cosine,
        };
    }
    find_jump(run);
    return LIMPID_OK;
}

static limpid_status run_both(struct kept *k, limpid_model *a, limpid_model *b, const int32_t *ids,
                              bool streams, limpid_error *err) {
    limpid_watch keep = {.user = k, .logits = keep_logits, .hidden = streams ? keep_hidden : NULL};
    limpid_watch compare = {
        .user = k, .logits = compare_logits, .hidden = streams ? compare_hidden : NULL};
    limpid_status status = reserve(k, streams, err);
    if (!status) status = run_model(a, ids, &keep, k->n_tokens, err);
    if (!status) status = run_model(b, ids, &compare, k->n_tokens, err);
    return status ? status : finish(k->run, k, err);
}

limpid_status lp_compare_run(struct lp_compare_run *out, limpid_model *a, limpid_model *b,
                             const char *prompt, limpid_error *err) {
    limpid_model_info ia = limpid_model_get_info(a), ib = limpid_model_get_info(b);
    int32_t *ids = NULL;
    size_t n = 0;
    *out = (struct lp_compare_run){0};
    if (ia.n_vocab != ib.n_vocab)
        return lp_public(lp_err_set(lp_err_of(err), LP_STATUS_INVALID,
                                    "the vocabularies have %d and %d tokens; nothing can be "
                                    "compared",
                                    ia.n_vocab, ib.n_vocab));
    limpid_status status = tokenize(a, b, prompt, &ids, &n, err);
    struct kept k = {.n_tokens = (int64_t)n,
                     .n_layers = ia.n_layers,
                     .n_embd = ia.n_embd,
                     .n_vocab = ia.n_vocab,
                     .run = out};
    bool streams = ia.n_layers == ib.n_layers && ia.n_embd == ib.n_embd;
    if (!status) status = run_both(&k, a, b, ids, streams, err);
    limpid_free(ids);
    lp_free(k.hidden);
    lp_free(k.logits);
    lp_free(k.layers);
    if (status) lp_compare_run_release(out);
    return status;
}

void lp_compare_run_release(struct lp_compare_run *run) {
    lp_free(run->layers);
    *run = (struct lp_compare_run){0};
}
