// In which order the rotated rows lie. A rotation mixes the two rows of a pair, so training gives
// them nearly the same norm, and norms change smoothly from one frequency to the next. Rows half
// the width apart are therefore more alike than rows taken at random where pairs are (i, i + n/2),
// and less alike where pairs are (2i, 2i + 1): those rows are of frequencies far apart.
// The figure is
//   log( mean |difference of log norms| half the width apart / the same over all pairs of rows )
// above 0 for adjacent pairs, below 0 for half-split ones.
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "doctor/weight_read.h"
#include "doctor/weight_shape.h"

#define CHECK "rotated rows in pairs"
#define VECTORS 256 // columns whose values make a row's norm
#define MAX_SUSPECTS 8
#define CLEAR 0.15     // a figure that says something, in one layer
#define CLEAR_LAYERS 3 // standard errors, over all layers

struct rotated { // rows of a tensor that are rotated
    const char *name;
    uint64_t first, step, n_heads;
    uint32_t width;
    enum lp_rope_pairing pairing;
};

struct figure {
    const struct lp_gguf_tensor *tensor;
    int32_t layer;
    double value, error; // standard error of value
};

// ---- the figure

static void log_norms(const struct lp_gguf_tensor *t, uint64_t row, uint32_t n, float *values,
                      double *out) {
    uint64_t columns = t->ne[0] < VECTORS ? t->ne[0] : VECTORS;
    for (uint32_t i = 0; i < n; i++) {
        double sum = 1e-30;
        lp_weight_read(t, (row + i) * t->ne[0], (size_t)columns, values);
        for (uint64_t j = 0; j < columns; j++) sum += (double)values[j] * values[j];
        out[i] = 0.5 * log(sum);
    }
}

// Adds up |differences| of one head: half the width apart, and of all pairs.
struct sums {
    double half, half_squares, all;
    uint64_t n_half, n_all;
};

static void add_head(struct sums *s, const double *norms, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n; j++) {
            double d = fabs(norms[i] - norms[j]);
            s->all += d;
            s->n_all++;
            if (j != i + n / 2) continue;
            s->half += d;
            s->half_squares += d * d;
            s->n_half++;
        }
}

// False: no figure. *failed is set without memory.
static bool measure(struct figure *f, const struct rotated *r, bool *failed) {
    struct sums s = {0};
    float *values = lp_alloc(VECTORS, sizeof *values);
    double *norms = lp_alloc(r->width, sizeof *norms);
    *failed = *failed || !values || !norms;
    if (values && norms)
        for (uint64_t h = 0; h < r->n_heads; h++) {
            log_norms(f->tensor, r->first + h * r->step, r->width, values, norms);
            add_head(&s, norms, r->width);
        }
    lp_free(values);
    lp_free(norms);
    if (s.n_half == 0 || s.half <= 0 || s.all <= 0) return false;
    double mean = s.half / (double)s.n_half, n = (double)s.n_half;
    double variance = s.half_squares / n - mean * mean;
    f->value = log(mean / (s.all / (double)s.n_all));
    f->error = sqrt(fmax(variance, 0) / n) / mean + 1e-3;
    return isfinite(f->value);
}

// ---- the rows

#define MAX_ROTATED 4

static int32_t list_rotated(const struct lp_hparams *h, struct rotated out[MAX_ROTATED]) {
    const struct lp_arch *a = h->arch;
    uint64_t heads = (uint64_t)h->n_heads, index_heads = (uint64_t)h->index_heads;
    uint32_t width = (uint32_t)h->rope_width;
    int32_t n = 0;
    if (a->attention == LP_ATTENTION_MLA) {
        uint64_t nope = (uint64_t)h->nope, step = nope + (uint64_t)h->rope_dim;
        width = (uint32_t)h->rope_dim;
        out[n++] = (struct rotated){
            h->q_rank ? "attn_q_b" : "attn_q", nope, step, heads, width, a->rope_pairing};
        out[n++] =
            (struct rotated){"attn_kv_a_mqa", (uint64_t)h->latent, 0, 1, width, a->rope_pairing};
    } else {
        uint64_t step = (uint64_t)h->head_dim, kv = (uint64_t)h->n_kv_heads;
        out[n++] = (struct rotated){"attn_q", 0, step, heads, width, a->rope_pairing};
        out[n++] = (struct rotated){"attn_k", 0, step, kv, width, a->rope_pairing};
    }
    if (index_heads == 0) return n;
    uint64_t step = (uint64_t)h->index_width;
    out[n++] =
        (struct rotated){"indexer.attn_q_b", 0, step, index_heads, width, a->index_rope_pairing};
    out[n++] = (struct rotated){"indexer.attn_k", 0, 0, 1, width, a->index_rope_pairing};
    return n;
}

static bool is_inside(const struct lp_gguf_tensor *t, const struct rotated *r) {
    return r->width >= 8 && r->n_heads > 0 &&
           r->first + (r->n_heads - 1) * r->step + r->width <= t->ne[1];
}

static int32_t measure_layers(const struct lp_exam *exam, const struct rotated *r,
                              struct figure *out) {
    int32_t n = 0;
    for (int32_t l = 0; l < exam->h.n_layers; l++) {
        const struct lp_gguf_tensor *t = lp_weight_find(exam->gguf, l, r->name);
        // A norm of its own per head would take the rows' sizes over.
        bool normed = lp_weight_find(exam->gguf, l, "attn_q_norm") != NULL;
        if (!t || !is_inside(t, r) || normed) continue;
        out[n] = (struct figure){.tensor = t, .layer = l};
        n += measure(&out[n], r, &exam->report->failed);
    }
    return n;
}

// ---- judging

// The figure with its sign turned so that the declared order is above 0.
static double declared(const struct figure *f, const struct rotated *r) {
    return r->pairing == LP_ROPE_ADJACENT ? f->value : -f->value;
}

static void suspect(struct lp_exam *exam, const struct figure *f, const struct rotated *r,
                    double usual, bool all, bool certain) {
    struct lp_suspect s = {.kind = LP_SUSPECT_PERMUTED,
                           .layer = f->layer,
                           .tensor = f->tensor,
                           .expert = -1,
                           .other_expert = -1,
                           .score = -declared(f, r) / f->error,
                           .certain = certain};
    bool adjacent = r->pairing == LP_ROPE_ADJACENT;
    snprintf(s.text, sizeof s.text,
             "%.*s: its rotated rows lie in %s pairs%s, and this architecture's files have %s ones "
             "(figure %.2f, %s %.2f); convert the model again without permuting them",
             LP_STR_ARGS(f->tensor->name), adjacent ? "half-split" : "adjacent",
             all ? ", as in the other layers" : "", adjacent ? "adjacent" : "half-split",
             declared(f, r), all ? "all layers" : "other layers", usual);
    lp_exam_suspect(exam, &s);
}

// Sum of the figures in standard errors, over the layers but one (-1: over all).
static double together(const struct figure *f, int32_t n, int32_t but, const struct rotated *r,
                       double *mean) {
    double sum = 0, errors = 0;
    int32_t used = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i == but) continue;
        sum += declared(&f[i], r);
        errors += f[i].error * f[i].error;
        used++;
    }
    *mean = used ? sum / used : 0;
    return errors > 0 ? sum / sqrt(errors) : 0;
}

static int32_t judge(struct lp_exam *exam, const struct figure *f, int32_t n,
                     const struct rotated *r) {
    double mean, total = together(f, n, -1, r, &mean);
    int32_t found = 0;
    bool all = total < -CLEAR_LAYERS && mean < -0.1;
    for (int32_t i = 0; i < n && found < MAX_SUSPECTS; i++) {
        double own = declared(&f[i], r), usual, others = together(f, n, i, r, &usual);
        bool single = own < -CLEAR && ((others > CLEAR_LAYERS && own < -1.5 * f[i].error) ||
                                       (usual > 0 && own < -CLEAR_LAYERS * f[i].error));
        if (!single && !all) continue;
        suspect(exam, &f[i], r, all ? mean : usual, all, all && total < -2 * CLEAR_LAYERS);
        found++;
    }
    return found;
}

lp_status lp_weight_pairs_check(struct lp_exam *exam, struct lp_err *err) {
    struct rotated rotated[MAX_ROTATED];
    if (exam->weights_random) return LP_OK; // says it all
    int32_t n = list_rotated(&exam->h, rotated), found = 0, measured = 0;
    struct figure *figures = lp_alloc((size_t)exam->h.n_layers + 1, sizeof *figures);
    if (!figures) return lp_err_memory(err, 0, "the rows of a pair");
    for (int32_t i = 0; i < n; i++) {
        int32_t layers = measure_layers(exam, &rotated[i], figures);
        measured += layers;
        found += judge(exam, figures, layers, &rotated[i]);
    }
    lp_free(figures);
    lp_report_say(exam->report, LP_STAGE_WEIGHTS, found ? LP_CHECK_NOTE : LP_CHECK_OK, CHECK,
                  found
                      ? "In %d of %d tensors the rotated rows seem to lie in the other order; the "
                        "output stage tries it."
                      : "The rotated rows lie in the order of the architecture (%d exceptions in "
                        "%d tensors).",
                  found, measured);
    return LP_OK;
}
