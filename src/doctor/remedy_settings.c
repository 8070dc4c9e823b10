// Remedies that change a number of the mathematics in every layer: rotary embedding, softmax scale,
// eps, router.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/remedies.h"

#define KEY_REPAIR "correct the key in the file (or convert the model again from its config.json)"

static bool is_mla(const struct lp_trial *t) {
    return t->model->h.arch->attention == LP_ATTENTION_MLA;
}

// The rope spec of a layer's main attention or of its indexer.
static struct lp_rope_spec *rope_of(struct lp_trial *t, int32_t l, bool indexer) {
    struct lp_layer *layer = &t->model->layers[l];
    if (indexer) return &layer->mla.index_rope;
    return is_mla(t) ? &layer->mla.rope : &layer->gqa.rope;
}

// A remedy that accuses a metadata key of this architecture.
static struct lp_remedy *add_key(struct lp_trial *t,
                                 void (*apply)(struct lp_trial *, const struct lp_remedy *),
                                 const char *key, double x, const char *now_format, double now) {
    struct lp_remedy *r = lp_trial_add(t, apply);
    char value[64];
    snprintf(value, sizeof value, now_format, now);
    r->x = x;
    r->needed = LP_NEEDED_NUMBER;
    snprintf(r->what, sizeof r->what, "%s.%s", t->model->h.arch->name, key);
    snprintf(r->cause, sizeof r->cause, "%s.%s is %s, which the weights contradict",
             t->model->h.arch->name, key, value);
    snprintf(r->repair, sizeof r->repair, KEY_REPAIR);
    return r;
}

// ---- rotary embedding ---------------------------------------------------------------------------

static void flip_pairing(struct lp_trial *t, const struct lp_remedy *r) {
    for (int32_t l = 0; l < t->model->h.n_layers; l++) {
        struct lp_rope_spec *rope = rope_of(t, l, r->a);
        enum lp_rope_pairing other =
            rope->pairing == LP_ROPE_ADJACENT ? LP_ROPE_HALF : LP_ROPE_ADJACENT;
        lp_patch_set(&t->patch, &rope->pairing, &other, sizeof other);
    }
}

static void list_pairing(struct lp_trial *t) {
    struct lp_remedy *r = lp_trial_add(t, flip_pairing);
    bool adjacent = rope_of(t, 0, false)->pairing == LP_ROPE_ADJACENT;
    snprintf(r->what, sizeof r->what, "rope");
    snprintf(r->cause, sizeof r->cause,
             "queries and keys of all layers are rotated in %s, but lie in the file for %s",
             adjacent ? "adjacent pairs" : "split halves",
             adjacent ? "split halves" : "adjacent pairs");
    snprintf(r->change, sizeof r->change, "rotated the other way");
    snprintf(
        r->repair, sizeof r->repair,
        "convert the model again with a converter that orders the rows of queries and keys for "
        "the architecture %s",
        t->model->h.arch->name);
}

// New frequencies for all layers, made from the hyperparameters as they now are.
static void use_frequencies(struct lp_trial *t) {
    size_t half = (size_t)t->model->h.rope_width / 2;
    const struct lp_gguf_tensor *file = t->model->binding.model.tensor[LP_SLOT_ROPE_FREQS];
    float *host = lp_alloc(half, sizeof *host), *divisors = lp_alloc(half, sizeof *divisors);
    float *device = lp_patch_block(&t->patch, half * sizeof *host);
    if (!host || !divisors || !device) {
        t->patch.failed = true;
        lp_free(host);
        lp_free(divisors);
        return;
    }
    if (file) lp_type_info(file->type)->dequant(lp_gguf_tensor_mat(file, 0), divisors, half);
    lp_hparams_inv_freq(&t->model->h, file ? divisors : NULL, host);
    t->model->dev->backend->write(t->model->dev, device, host, half * sizeof *host);
    lp_free(host);
    lp_free(divisors);
    const float *value = device;
    for (int32_t l = 0; l < t->model->h.n_layers; l++)
        for (int indexer = 0; indexer < (is_mla(t) ? 2 : 1); indexer++)
            lp_patch_set(&t->patch, &rope_of(t, l, indexer)->inv_freq, &value, sizeof value);
}

static void set_base(struct lp_trial *t, const struct lp_remedy *r) {
    float base = (float)r->x;
    lp_patch_set(&t->patch, &t->model->h.rope_base, &base, sizeof base);
    use_frequencies(t);
}

static void list_bases(struct lp_trial *t) {
    static const double published[] = {1e4, 5e4, 1e5, 1.5e5, 5e5, 1e6, 5e6, 8e6, 1e7};
    double now = t->model->h.rope_base;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        if (fabs(published[i] / now - 1) < 1e-3) continue;
        struct lp_remedy *r = add_key(t, set_base, "rope.freq_base", published[i], "%g", now);
        r->needed = LP_NEEDED_BASE;
        snprintf(r->change, sizeof r->change, "with %g", published[i]);
    }
}

static void set_scale(struct lp_trial *t, float scale) {
    for (int32_t l = 0; l < t->model->h.n_layers; l++) {
        struct lp_layer *layer = &t->model->layers[l];
        float *at = is_mla(t) ? &layer->mla.scale : &layer->gqa.scale;
        lp_patch_set(&t->patch, at, &scale, sizeof scale);
    }
}

// a: yarn on or off; x: its factor; b: percent of ln(factor) in the softmax scale
static void set_yarn(struct lp_trial *t, const struct lp_remedy *r) {
    struct lp_hparams *h = &t->model->h;
    bool on = r->a != 0;
    float factor = (float)r->x, slow = 1, fast = 32;
    int64_t context = h->yarn ? h->yarn_context : 4096;
    lp_patch_set(&t->patch, &h->yarn, &on, sizeof on);
    if (on && !h->yarn_beta_fast) {
        lp_patch_set(&t->patch, &h->yarn_beta_fast, &fast, sizeof fast);
        lp_patch_set(&t->patch, &h->yarn_beta_slow, &slow, sizeof slow);
    }
    lp_patch_set(&t->patch, &h->yarn_factor, &factor, sizeof factor);
    lp_patch_set(&t->patch, &h->yarn_context, &context, sizeof context);
    use_frequencies(t);
    double width = is_mla(t) ? h->nope + h->rope_dim : h->head_dim;
    double m = on && is_mla(t) ? 1 + r->b / 100.0 * log(r->x) : 1;
    set_scale(t, (float)(m * m / sqrt(width)));
    float magnitude = on && !is_mla(t) ? (float)(1 + 0.1 * log(r->x)) : 1;
    for (int32_t l = 0; l < h->n_layers; l++) {
        struct lp_rope_spec *rope = rope_of(t, l, false);
        lp_patch_set(&t->patch, &rope->magnitude, &magnitude, sizeof magnitude);
    }
}

static void list_yarn(struct lp_trial *t) {
    static const struct {
        double factor;
        int32_t percent;
    } published[] = {{4, 10}, {32, 10}, {40, 10}, {64, 10}, {40, 0}};
    const struct lp_hparams *h = &t->model->h;
    if (h->yarn) {
        struct lp_remedy *r =
            add_key(t, set_yarn, "rope.scaling.type", 1, "yarn with factor %g", h->yarn_factor);
        snprintf(r->change, sizeof r->change, "without YaRN");
    }
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        if (!h->yarn && published[i].percent == 0) continue;
        struct lp_remedy *r = add_key(t, set_yarn, "rope.scaling.type", published[i].factor,
                                      h->yarn ? "yarn with factor %g" : "none", h->yarn_factor);
        r->a = 1;
        r->b = published[i].percent;
        snprintf(r->change, sizeof r->change, "with YaRN of factor %g and multiplier %g",
                 published[i].factor, r->b / 100.0);
        if (h->yarn) snprintf(r->what, sizeof r->what, "%s.rope.scaling.factor", h->arch->name);
    }
}

static void scale_softmax(struct lp_trial *t, const struct lp_remedy *r) {
    set_scale(t, (float)r->x);
}

static void list_softmax_scale(struct lp_trial *t) {
    const struct lp_hparams *h = &t->model->h;
    double now = h->attn_scale, m = h->yarn ? 1 + 0.1 * log((double)h->yarn_factor) : 1;
    double head = is_mla(t) ? h->nope + h->rope_dim : h->head_dim;
    const struct {
        double value;
        const char *formula;
    } candidates[] = {
        {1 / sqrt(head), "1/sqrt(key width)"},
        {m * m / sqrt(head), "1/sqrt(key width) times YaRN's factor squared"},
        {m / sqrt(head), "1/sqrt(key width) times YaRN's factor"},
        {is_mla(t) ? 1 / sqrt((double)h->latent + h->rope_dim) : now, "1/sqrt(latent + rope)"},
        {is_mla(t) ? 1 / sqrt((double)h->nope) : now, "1/sqrt(key width without rope)"},
        {1 / sqrt((double)h->v_dim), "1/sqrt(value width)"},
    };
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        if (fabs(candidates[i].value / now - 1) < 1e-3) continue;
        struct lp_remedy *r = lp_trial_add(t, scale_softmax);
        r->x = candidates[i].value;
        r->needed = LP_NEEDED_NUMBER;
        snprintf(r->what, sizeof r->what, "softmax scale");
        snprintf(r->cause, sizeof r->cause, "the softmax scale of attention is %.5g", now);
        snprintf(r->change, sizeof r->change, "with %.5g = %s", r->x, candidates[i].formula);
        snprintf(r->repair, sizeof r->repair,
                 "check %s.attention.key_length(_mla) and the keys of rope.scaling", h->arch->name);
    }
}

// ---- norms --------------------------------------------------------------------------------------

static void set_eps(struct lp_trial *t, const struct lp_remedy *r) {
    float eps = (float)r->x;
    lp_patch_set(&t->patch, &t->model->h.eps, &eps, sizeof eps);
    for (int32_t l = 0; l < t->model->h.n_layers; l++) {
        struct lp_layer *layer = &t->model->layers[l];
        float *at = is_mla(t) ? &layer->mla.eps : &layer->gqa.eps;
        lp_patch_set(&t->patch, at, &eps, sizeof eps);
    }
}

static void list_eps(struct lp_trial *t) {
    static const double published[] = {1e-5, 1e-6};
    for (int i = 0; i < 2; i++) {
        if (fabs(published[i] / t->model->h.eps - 1) < 1e-3) continue;
        struct lp_remedy *r = add_key(t, set_eps, "attention.layer_norm_rms_epsilon", published[i],
                                      "%g", t->model->h.eps);
        snprintf(r->change, sizeof r->change, "with %g", published[i]);
    }
}

static void add_to_norms(struct lp_trial *t, const struct lp_remedy *r) {
    size_t n = (size_t)t->model->h.n_embd;
    lp_patch_vector(&t->patch, &t->model->output_norm, n, 1, (float)r->x);
    for (int32_t l = 0; l < t->model->h.n_layers; l++) {
        lp_patch_vector(&t->patch, &t->model->layers[l].attn_norm, n, 1, (float)r->x);
        lp_patch_vector(&t->patch, &t->model->layers[l].ffn_norm, n, 1, (float)r->x);
    }
}

static void list_norms(struct lp_trial *t) {
    for (int x = -1; x <= 1; x += 2) {
        struct lp_remedy *r = lp_trial_add(t, add_to_norms);
        r->x = x;
        snprintf(r->what, sizeof r->what, "attn_norm, ffn_norm, output_norm");
        snprintf(r->cause, sizeof r->cause, "the weights of all norms look stored %s by 1",
                 x > 0 ? "too small" : "too large");
        snprintf(r->change, sizeof r->change, "with 1 %s", x > 0 ? "added" : "taken away");
        snprintf(r->repair, sizeof r->repair,
                 "convert again; some families store norm weights minus one");
    }
}

// ---- the head -----------------------------------------------------------------------------------

static void tie_head(struct lp_trial *t, const struct lp_remedy *r) {
    (void)r;
    lp_patch_set(&t->patch, &t->model->output, &t->model->token_embd, sizeof t->model->output);
}

static void list_head(struct lp_trial *t) {
    const struct lp_model *m = t->model;
    if (m->output.data == m->token_embd.data) return;
    struct lp_remedy *r = lp_trial_add(t, tie_head);
    r->from_layer = m->h.n_layers;
    snprintf(r->what, sizeof r->what, "output.weight");
    snprintf(r->cause, sizeof r->cause, "output.weight is not this model's head");
    snprintf(r->change, sizeof r->change, "with token_embd.weight as the head");
    snprintf(r->repair, sizeof r->repair,
             "leave output.weight out of the file if the model's config ties its embeddings, else "
             "convert it again");
}

void lp_remedies_of_settings(struct lp_trial *t) {
    list_pairing(t);
    list_bases(t);
    list_yarn(t);
    list_softmax_scale(t);
    list_eps(t);
    list_norms(t);
    list_head(t);
}
