// The fits of all layers are measured side by side; what is judged afterwards is small.
#include "doctor/weight_shape.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/workers.h"
#include "doctor/weight_read.h"

#define CHECK "matrices fit together"
#define QUICK_LAYERS 12
#define QUICK_PARTS 16
// A fit that is clearly one, by kind (OVERLAP, UNITS): trained models lie above, chance below.
static const double clear_fit[] = {0.35, 0.25};
#define BROKEN 0.3 // of what it would be
static const struct lp_link_sample full_sample = {1, 96, 256}, quick_sample = {1, 64, 256};

// ---- measuring

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// The value that 7 of 10 do not exceed: what is usual, even where some of few are broken. Sorts.
static double usual_of(double *values, int64_t n) {
    if (n == 0) return NAN;
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[(n * 7 + 9) / 10 - 1];
}

static double mean_fit(const struct lp_link *link, const struct lp_link_values *a,
                       const struct lp_link_values *b) {
    double sum = 0;
    for (uint32_t p = 0; p < a->n_parts; p++) sum += lp_link_fit(link, a, p, b, p);
    return a->n_parts ? sum / a->n_parts : 0;
}

// The parts whose own place fits far worse than usual, and where they fit.
static void find_strays(struct lp_fit *fit, const struct lp_link_values *a,
                        const struct lp_link_values *b, const double *own, uint32_t part_step) {
    for (uint32_t p = 0; p < a->n_parts && fit->n_strays < LP_MAX_STRAYS; p++) {
        if (own[p] > BROKEN * fit->usual) continue;
        struct lp_stray m = {p * part_step, p * part_step, own[p], -INFINITY};
        for (uint32_t q = 0; q < b->n_parts; q++) {
            double there = lp_link_fit(&fit->link, a, p, b, q);
            if (q == p || there <= m.there) continue;
            m.there = there;
            m.better = q * part_step;
        }
        if (m.there >= 0.6 * fit->usual) fit->strays[fit->n_strays++] = m;
    }
}

static bool measure_parts(struct lp_fit *fit, const struct lp_link_values *a,
                          const struct lp_link_values *b, uint32_t part_step) {
    uint32_t n = a->n_parts;
    double *own = lp_alloc(2 * (size_t)n, sizeof *own);
    if (!own) return false;
    for (uint32_t p = 0; p < n; p++) fit->stored += own[p] = lp_link_fit(&fit->link, a, p, b, p);
    fit->stored /= n;
    memcpy(own + n, own, n * sizeof *own);
    fit->usual = usual_of(own + n, n);
    bool places = n >= 3 && (fit->link.b.step || fit->link.b.by_matrix);
    if (places && fit->usual >= clear_fit[fit->link.kind]) find_strays(fit, a, b, own, part_step);
    lp_free(own);
    return true;
}

static bool measure(struct lp_fit *fit, const struct lp_link_sample *sample) {
    const struct lp_link *k = &fit->link;
    struct lp_link_values a = {0}, b = {0}, turned = {0};
    bool ok = lp_link_read(k, &k->a, false, sample, &a) &&
              lp_link_read(k, &k->b, false, sample, &b) &&
              measure_parts(fit, &a, &b, sample->part_step);
    bool doubt = fit->stored < clear_fit[k->kind];
    if (ok && doubt && (ok = lp_link_read(k, &k->a, true, sample, &turned))) {
        fit->turned[0] = mean_fit(k, &turned, &b);
        lp_link_release(&turned);
    }
    if (ok && doubt && (ok = lp_link_read(k, &k->b, true, sample, &turned))) {
        fit->turned[1] = mean_fit(k, &a, &turned);
        lp_link_release(&turned);
    }
    lp_link_release(&a);
    lp_link_release(&b);
    return ok;
}

void lp_layer_fits_measure(struct lp_layer_fits *out, const struct lp_gguf *gguf,
                           const struct lp_hparams *h, int32_t layer,
                           const struct lp_link_sample *sample) {
    struct lp_link links[LP_MAX_LINKS];
    *out = (struct lp_layer_fits){.layer = layer};
    out->n = lp_weight_links(gguf, h, layer, links);
    for (int32_t i = 0; i < out->n && !out->failed; i++) {
        out->fits[i].link = links[i];
        struct lp_link_sample s = *sample;
        if (links[i].n_parts < s.part_step * 4) s.part_step = (links[i].n_parts + 3) / 4;
        out->failed = !measure(&out->fits[i], &s);
    }
}

struct job {
    struct lp_exam *exam;
    struct lp_layer_fits *layers; // [n]; .layer is set
    int32_t n;
    struct lp_link_sample sample;
    _Atomic int32_t next;
};

static void measure_worker(void *job_, int worker, int n_workers) {
    (void)worker, (void)n_workers;
    struct job *job = job_;
    for (int32_t i; (i = atomic_fetch_add(&job->next, 1)) < job->n;)
        lp_layer_fits_measure(&job->layers[i], job->exam->gguf, &job->exam->h, job->layers[i].layer,
                              &job->sample);
}

// ---- judging

struct review {
    struct lp_exam *exam;
    struct lp_layer_fits *layers;
    int32_t n, n_main; // n_main: without the MTP layers
    int32_t n_found;
};

// What is usual of one link over the layers, each as it fits best; NaN: no layer has it.
static double usual_fit(const struct review *r, int32_t id) {
    double values[LP_MAX_LAYERS];
    int32_t n = 0;
    for (int32_t l = 0; l < r->n_main; l++)
        for (int32_t i = 0; i < r->layers[l].n; i++) {
            const struct lp_fit *f = &r->layers[l].fits[i];
            if (f->link.id == id) values[n++] = fmax(f->stored, fmax(f->turned[0], f->turned[1]));
        }
    return usual_of(values, n);
}

static void suspect(struct review *r, struct lp_suspect *s) {
    r->n_found++;
    lp_exam_suspect(r->exam, s);
}

struct evidence {
    int32_t n_for, n_against, space; // space: the link that speaks loudest
    double stored, turned;           // of that link
};

static void weigh(struct evidence *e, const struct lp_fit *f, const struct lp_gguf_tensor *t) {
    int side = f->link.a.tensor == t ? 0 : f->link.b.tensor == t ? 1 : -1;
    if (side < 0) return;
    double turned = f->turned[side], clear = clear_fit[f->link.kind];
    if (turned >= clear && f->stored <= BROKEN * turned && f->turned[!side] <= 0.6 * turned) {
        e->n_for++;
        if (turned > e->turned) {
            e->turned = turned;
            e->stored = f->stored;
            e->space = f->link.id;
        }
    } else if (f->stored >= 0.7 * clear && f->stored > 2 * turned) {
        e->n_against++;
    }
}

static void judge_tensor(struct review *r, const struct lp_layer_fits *layer,
                         const struct lp_gguf_tensor *t) {
    struct evidence e = {0};
    for (int32_t i = 0; i < layer->n; i++) weigh(&e, &layer->fits[i], t);
    if (e.n_for == 0 || e.n_against >= e.n_for) return;
    double usual = usual_fit(r, e.space);
    struct lp_suspect s = {.kind = LP_SUSPECT_TRANSPOSED,
                           .layer = layer->layer,
                           .tensor = t,
                           .expert = -1,
                           .other_expert = -1,
                           .score = e.turned - e.stored};
    s.certain =
        e.n_against == 0 && (e.n_for >= 2 || e.turned >= 0.5 * usual) && e.stored <= 0.2 * e.turned;
    snprintf(s.text, sizeof s.text,
             "%.*s looks stored transposed: in %s it fits its neighbours by %.2f as it is and by "
             "%.2f turned (usual: %.2f, chance: 0); convert the model again with this matrix "
             "turned",
             LP_STR_ARGS(t->name), lp_link_space(e.space), e.stored, e.turned, usual);
    suspect(r, &s);
}

static bool unit_link(const struct lp_layer_fits *layer, const struct lp_gguf_tensor *t,
                      const struct lp_gguf_tensor *u) {
    for (int32_t i = 0; i < layer->n; i++) {
        const struct lp_link *k = &layer->fits[i].link;
        if (k->kind == LP_FIT_UNITS &&
            ((k->a.tensor == t && k->b.tensor == u) || (k->a.tensor == u && k->b.tensor == t)))
            return true;
    }
    return false;
}

// The place of the only suspect from `first` on that has a link of units with s; -1: none or
// several.
static int32_t partner_of(const struct lp_exam *exam, const struct lp_layer_fits *layer,
                          int32_t first, const struct lp_suspect *s) {
    int32_t found = -1;
    for (int32_t i = first; i < exam->n_suspects; i++) {
        if (!unit_link(layer, s->tensor, exam->suspects[i].tensor)) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

// Of an FFN with as many units as inputs, gate (or up) and down in each other's place look both
// transposed.
static void merge_exchanged(struct review *r, const struct lp_layer_fits *layer, int32_t first) {
    struct lp_exam *exam = r->exam;
    for (int32_t i = first; i < exam->n_suspects; i++) {
        struct lp_suspect *s = &exam->suspects[i];
        int32_t j = partner_of(exam, layer, first, s);
        if (j <= i ||
            memcmp(s->tensor->ne, exam->suspects[j].tensor->ne, sizeof s->tensor->ne) != 0)
            continue;
        s->kind = LP_SUSPECT_SWAPPED;
        s->other = exam->suspects[j].tensor;
        s->certain &= exam->suspects[j].certain;
        snprintf(s->text, sizeof s->text,
                 "%.*s and %.*s have changed places: each fits the FFN's units only when it is "
                 "read as the other (%.2f); convert the model again with the two exchanged",
                 LP_STR_ARGS(s->tensor->name), LP_STR_ARGS(s->other->name), s->score);
        exam->n_suspects--;
        memmove(&exam->suspects[j], &exam->suspects[j + 1],
                (size_t)(exam->n_suspects - j) * sizeof *s);
        r->n_found--;
    }
}

// Calls judge_tensor for each tensor of the layer once.
static void judge_turns(struct review *r, const struct lp_layer_fits *layer) {
    int32_t first = r->exam->n_suspects;
    for (int32_t i = 0; i < 2 * layer->n; i++) {
        const struct lp_link *k = &layer->fits[i / 2].link;
        const struct lp_gguf_tensor *t = i % 2 ? k->b.tensor : k->a.tensor;
        bool before = false;
        for (int32_t j = 0; j < i && !before; j++) {
            const struct lp_link *p = &layer->fits[j / 2].link;
            before = (j % 2 ? p->b.tensor : p->a.tensor) == t;
        }
        if (!before) judge_tensor(r, layer, t);
    }
    merge_exchanged(r, layer, first);
}

// ---- heads and experts in each other's place

static bool is_stray(const struct lp_layer_fits *layer, const struct lp_gguf_tensor *t,
                     const struct lp_fit * not, uint32_t part) {
    for (int32_t i = 0; i < layer->n; i++) {
        const struct lp_fit *f = &layer->fits[i];
        if (f == not || (f->link.a.tensor != t && f->link.b.tensor != t)) continue;
        for (int32_t m = 0; m < f->n_strays; m++)
            if (f->strays[m].part == part) return true;
    }
    return false;
}

static void accuse_swap(struct review *r, const struct lp_layer_fits *layer, const struct lp_fit *f,
                        const struct lp_gguf_tensor *t, const struct lp_stray *m) {
    // Said from the other end, or by another link?
    for (int32_t i = 0; i < r->exam->n_suspects; i++) {
        const struct lp_suspect *s = &r->exam->suspects[i];
        if (s->kind == LP_SUSPECT_SWAPPED && s->tensor == t &&
            (s->expert == (int32_t)m->part || s->other_expert == (int32_t)m->part))
            return;
    }
    struct lp_suspect s = {.kind = LP_SUSPECT_SWAPPED,
                           .layer = layer->layer,
                           .tensor = t,
                           .other = t,
                           .expert = (int32_t)m->part,
                           .other_expert = (int32_t)m->better,
                           .score = m->there - m->own,
                           .certain = m->own < 0.2 * m->there};
    snprintf(s.text, sizeof s.text,
             "%.*s: matrices %u and %u have changed places: in %s matrix %u fits its own place by "
             "%.2f and that of %u by %.2f (usual: %.2f); convert the model again with the two "
             "exchanged",
             LP_STR_ARGS(t->name), m->part, m->better, lp_link_space(f->link.id), m->part, m->own,
             m->better, m->there, f->usual);
    suspect(r, &s);
}

// Of the two tensors of a link the one is meant whose parts fit nowhere else either; for heads, the
// stack.
static void judge_places(struct review *r, const struct lp_layer_fits *layer) {
    for (int32_t i = 0; i < layer->n; i++) {
        const struct lp_fit *f = &layer->fits[i];
        for (int32_t m = 0; m < f->n_strays; m++) {
            const struct lp_gguf_tensor *t = f->link.a.tensor;
            bool of_b = is_stray(layer, f->link.b.tensor, f, f->strays[m].part);
            bool of_a = is_stray(layer, t, f, f->strays[m].part);
            if (f->link.kind == LP_FIT_UNITS) {
                if (of_a == of_b) continue;
                if (of_b) t = f->link.b.tensor;
            } else if (!f->link.a.by_matrix) {
                continue;
            }
            accuse_swap(r, layer, f, t, &f->strays[m]);
        }
    }
}

// ---- tensors in each other's place

static bool is_broken(const struct review *r, const struct lp_fit *f) {
    double usual = usual_fit(r, f->link.id);
    double best = fmax(f->stored, fmax(f->turned[0], f->turned[1]));
    return usual >= clear_fit[f->link.kind] && best <= BROKEN * usual;
}

// Whether t's links to others are all broken; *n: how many there are.
static bool all_broken(const struct review *r, const struct lp_layer_fits *layer,
                       const struct lp_gguf_tensor *t, int32_t *n) {
    *n = 0;
    for (int32_t i = 0; i < layer->n; i++) {
        const struct lp_fit *f = &layer->fits[i];
        if (f->link.a.tensor != t && f->link.b.tensor != t) continue;
        if (usual_fit(r, f->link.id) < clear_fit[f->link.kind]) continue;
        if (!is_broken(r, f)) return false;
        ++*n;
    }
    return *n > 0;
}

// How well `other` would fit in t's place, and t in other's where both belong to the layer: the
// least over t's links, in parts of the usual; 0 where one of them stays below what is clear.
static double fit_in_place(const struct review *r, const struct lp_layer_fits *layer,
                           const struct lp_gguf_tensor *t, const struct lp_gguf_tensor *other) {
    double least = INFINITY;
    for (int32_t i = 0; i < layer->n && least > 0; i++) {
        struct lp_link k = layer->fits[i].link;
        double usual = usual_fit(r, k.id), fit = 0;
        if ((k.a.tensor != t && k.b.tensor != t) || usual < clear_fit[k.kind]) continue;
        k.a.tensor = k.a.tensor == t ? other : k.a.tensor == other ? t : k.a.tensor;
        k.b.tensor = k.b.tensor == t ? other : k.b.tensor == other ? t : k.b.tensor;
        struct lp_link_values a = {0}, b = {0};
        struct lp_link_sample s = full_sample;
        s.part_step = k.n_parts > QUICK_PARTS ? k.n_parts / QUICK_PARTS : 1;
        if (lp_link_read(&k, &k.a, false, &s, &a) && lp_link_read(&k, &k.b, false, &s, &b))
            fit = mean_fit(&k, &a, &b);
        else
            r->exam->report->failed = true; // out of memory
        lp_link_release(&a);
        lp_link_release(&b);
        least = fit < 0.7 * clear_fit[k.kind] ? 0 : fmin(least, fit / usual);
    }
    return isfinite(least) ? least : 0;
}

static bool same_shape(const struct lp_gguf_tensor *a, const struct lp_gguf_tensor *b) {
    return memcmp(a->ne, b->ne, sizeof a->ne) == 0;
}

static bool have_accused(const struct review *r, const struct lp_gguf_tensor *t) {
    for (int32_t i = 0; i < r->exam->n_suspects; i++)
        if (r->exam->suspects[i].tensor == t || r->exam->suspects[i].other == t) return true;
    return false;
}

static void seek_place(struct review *r, const struct lp_layer_fits *layer,
                       const struct lp_gguf_tensor *t, int32_t n_links) {
    const struct lp_gguf_tensor *found = NULL;
    double best = 0.4;
    for (int32_t l = 0; l < r->n; l++)
        for (int32_t i = 0; i < 2 * r->layers[l].n; i++) {
            const struct lp_link *k = &r->layers[l].fits[i / 2].link;
            const struct lp_gguf_tensor *u = i % 2 ? k->b.tensor : k->a.tensor;
            int32_t n;
            if (u == t || u == found || !same_shape(u, t) || !all_broken(r, &r->layers[l], u, &n))
                continue;
            double fit = fit_in_place(r, layer, t, u);
            fit = fit > best ? fmin(fit, fit_in_place(r, &r->layers[l], u, t)) : 0;
            if (fit <= best) continue;
            best = fit;
            found = u;
        }
    if (!found || have_accused(r, found)) return;
    struct lp_suspect s = {.kind = LP_SUSPECT_SWAPPED,
                           .layer = layer->layer,
                           .tensor = t,
                           .other = found,
                           .expert = -1,
                           .other_expert = -1,
                           .score = best,
                           .certain = best > 0.6 && n_links >= 2};
    snprintf(s.text, sizeof s.text,
             "%.*s and %.*s have changed places: neither fits its neighbours, and exchanged they "
             "fit by %.0f%% of the usual; convert the model again with the two exchanged",
             LP_STR_ARGS(t->name), LP_STR_ARGS(found->name), 100 * best);
    suspect(r, &s);
}

static void judge_tensors(struct review *r, const struct lp_layer_fits *layer) {
    for (int32_t i = 0; i < 2 * layer->n; i++) {
        const struct lp_link *k = &layer->fits[i / 2].link;
        const struct lp_gguf_tensor *t = i % 2 ? k->b.tensor : k->a.tensor;
        int32_t n;
        if (!have_accused(r, t) && all_broken(r, layer, t, &n)) seek_place(r, layer, t, n);
    }
}

// ---- random weights

// How far above chance the links fit: the mean of what is usual of each.
static double structure(const struct review *r, int32_t *n_links) {
    double sum = 0;
    *n_links = 0;
    for (int32_t id = 0; id < LP_MAX_LINKS; id++) {
        double usual = usual_fit(r, id);
        if (isnan(usual)) continue;
        sum += usual / clear_fit[0];
        ++*n_links;
    }
    return *n_links ? sum / *n_links : 0;
}

#define RANDOM_BELOW 0.5 // trained models: 0.7 to 5; random weights: 0 to 0.25

static void note(struct review *r, double strength, int32_t n_sampled, int32_t n_layers) {
    char figure[32], sample[64] = "";
    snprintf(figure, sizeof figure, "%d suspects", r->n_found);
    if (n_sampled < n_layers)
        snprintf(sample, sizeof sample, " (%d of %d layers)", n_sampled, n_layers);
    struct lp_check_note n = {.stage = LP_STAGE_WEIGHTS,
                              .outcome = r->n_found ? LP_CHECK_NOTE : LP_CHECK_OK,
                              .name = CHECK,
                              .figure = figure,
                              .bound = "none",
                              .value = r->n_found,
                              .limit = 0};
    if (r->exam->weights_random) {
        n.outcome = LP_CHECK_NOTE;
        lp_report_check(r->exam->report, &n,
                        "The weights show no trace of training (strength %.2f, trained models: "
                        "above %.1f): random weights, whose output cannot be judged%s.",
                        strength, RANDOM_BELOW, sample);
        return;
    }
    lp_report_check(r->exam->report, &n,
                    "Matrices that meet in one space have directions in common (strength %.2f, "
                    "random weights: 0)%s%s.",
                    strength, r->n_found ? "; what does not fit is tried in the output stage" : "",
                    sample);
}

static void judge(struct review *r, int32_t n_blocks) {
    int32_t n_links;
    double strength = structure(r, &n_links);
    r->exam->weights_random = n_links > 0 && strength < RANDOM_BELOW;
    for (int32_t l = 0; l < r->n && !r->exam->weights_random; l++) {
        judge_turns(r, &r->layers[l]);
        judge_places(r, &r->layers[l]);
    }
    for (int32_t l = 0; l < r->n && !r->exam->weights_random; l++) judge_tensors(r, &r->layers[l]);
    note(r, strength, r->n, n_blocks);
}

// So that some dozen heads and experts are looked at.
static uint32_t quick_step(const struct lp_hparams *h) {
    int32_t most = h->n_experts > h->n_heads ? h->n_experts : h->n_heads;
    return most > QUICK_PARTS ? (uint32_t)most / QUICK_PARTS : 1;
}

lp_status lp_weight_shape_check(struct lp_exam *exam, struct lp_err *err) {
    if (!exam->has_hparams || exam->weights_bad) {
        lp_report_say(exam->report, LP_STAGE_WEIGHTS, LP_CHECK_SKIPPED, CHECK,
                      exam->weights_bad ? "Values that are no numbers come first."
                                        : "The sizes of heads and experts are not known.");
        return LP_OK;
    }
    int32_t n_blocks = exam->h.n_blocks;
    bool quick = exam->options->quick;
    int32_t n = quick && n_blocks > QUICK_LAYERS ? QUICK_LAYERS : n_blocks;
    struct job job = {.exam = exam, .n = n, .sample = quick ? quick_sample : full_sample};
    if (quick) job.sample.part_step = quick_step(&exam->h);
    job.layers = lp_alloc((size_t)n, sizeof *job.layers);
    if (!job.layers) return lp_err_memory(err, (size_t)n * sizeof *job.layers, "the fits");
    struct review r = {.exam = exam, .layers = job.layers, .n = n};
    for (int32_t i = 0; i < n; i++) {
        job.layers[i].layer = n > 1 ? (int32_t)((int64_t)i * (n_blocks - 1) / (n - 1)) : 0;
        r.n_main += job.layers[i].layer < exam->h.n_layers;
    }
    struct lp_workers *workers;
    lp_status status = lp_workers_new(&workers, exam->options->n_threads, err);
    if (!status) {
        lp_workers_run(workers, measure_worker, &job);
        lp_workers_free(workers);
        for (int32_t i = 0; i < n; i++)
            if (job.layers[i].failed && !status) status = lp_err_memory(err, 0, "a layer's fits");
    }
    if (!status) judge(&r, n_blocks);
    lp_free(job.layers);
    return status ? status : lp_weight_pairs_check(exam, err);
}
