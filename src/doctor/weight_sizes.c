// Healthy models vary smoothly over depth, and their first and last layers differ from the rest:
// only what lies far beyond every sibling is suspected.
#include "doctor/weight_sizes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/weight_read.h"

#define FACTOR_LAYER 8.0  // beyond every sibling
#define FACTOR_END 12.0   // for the first and the last layer, which differ by nature
#define FACTOR_RARE 4.0   // beyond every matrix of the model
#define FACTOR_EXPERT 8.0 // from the stack's middle

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void suspect_scale(struct lp_exam *exam, const struct lp_tensor_stats *s, int32_t expert,
                          double factor, bool certain, const char *of_what) {
    struct lp_suspect x = {.kind = LP_SUSPECT_SCALE,
                           .layer = lp_exam_layer_of(s->tensor),
                           .tensor = s->tensor,
                           .expert = expert,
                           .other_expert = -1,
                           .factor = factor,
                           .score = fabs(log2(factor)),
                           .certain = certain};
    char part[48] = "";
    if (expert >= 0) snprintf(part, sizeof part, ", matrix %d (expert or head)", expert);
    snprintf(
        x.text, sizeof x.text,
        "%.*s%s is %.3g times as large as %s (root mean square): its scale was lost or applied "
        "twice; convert the model again",
        LP_STR_ARGS(s->tensor->name), part, factor, of_what);
    lp_exam_suspect(exam, &x);
}

// Log root mean square; of a stack its middle matrix. NaN: damaged (said elsewhere) or empty; also
// without memory, of which the report then tells.
static double log_size(struct lp_exam *exam, const struct lp_tensor_stats *s) {
    struct lp_damage damage;
    if (s->n_nonfinite || lp_tensor_damage(s, &damage)) return NAN;
    if (s->n_matrices < 4) return lp_tensor_rms(s) > 0 ? log(lp_tensor_rms(s)) : NAN;
    double *logs = lp_alloc(s->n_matrices, sizeof *logs), middle = NAN;
    size_t n = 0;
    exam->report->failed = exam->report->failed || !logs;
    for (uint64_t m = 0; m < s->n_matrices && logs; m++)
        if (s->matrices[m].sum_squares > 0) logs[n++] = log(lp_matrix_rms(&s->matrices[m]));
    if (n) middle = median(logs, n);
    lp_free(logs);
    return middle;
}

// One matrix of a stack against the others: they are many, alike, and trained side by side.
static void check_stack(struct lp_exam *exam, const struct lp_tensor_stats *s) {
    size_t n = 0;
    if (isnan(log_size(exam, s))) return;
    double *logs = lp_alloc(2 * s->n_matrices, sizeof *logs);
    if (!logs) {
        exam->report->failed = true;
        return;
    }
    double *distance = logs + s->n_matrices;
    for (uint64_t m = 0; m < s->n_matrices; m++)
        if (s->matrices[m].sum_squares > 0) logs[n++] = log(lp_matrix_rms(&s->matrices[m]));
    double middle = n ? median(logs, n) : 0;
    for (size_t i = 0; i < n; i++) distance[i] = fabs(logs[i] - middle);
    double spread = n ? median(distance, n) : 0;
    for (uint64_t m = 0; m < s->n_matrices && n >= 4; m++) {
        if (s->matrices[m].sum_squares <= 0) continue;
        double d = log(lp_matrix_rms(&s->matrices[m])) - middle;
        if (fabs(d) < log(FACTOR_EXPERT) || fabs(d) < 8 * spread) continue;
        suspect_scale(exam, s, (int32_t)m, exp(d), fabs(d) > 12 * spread && spread < log(1.5),
                      "the middle one of its stack");
    }
    lp_free(logs);
}

// One slot (a tensor name behind "blk.N.") over the layers.
struct slot {
    struct lp_str name;
    const struct lp_tensor_stats *layers[LP_MAX_LAYERS + 1];
    double log_rms[LP_MAX_LAYERS + 1]; // NaN: no such tensor, or empty
    int32_t n_layers;                  // highest + 1, without the MTP layers
};

struct range {
    double low, high;
};

static void widen(struct range *r, double value) {
    r->low = fmin(r->low, value);
    r->high = fmax(r->high, value);
}

// How far a value lies beyond the range, signed; 0: within.
static double beyond(struct range r, double value) {
    return value > r.high ? value - r.high : value < r.low ? value - r.low : 0;
}

// Of all other layers.
static struct range range_without(const struct slot *slot, int32_t layer) {
    struct range r = {INFINITY, -INFINITY};
    for (int32_t l = 0; l < slot->n_layers; l++)
        if (l != layer && !isnan(slot->log_rms[l])) widen(&r, slot->log_rms[l]);
    return r;
}

// The log of the factor to the layers beside it, signed; 0 for the first and the last.
static double off_trend(const struct slot *slot, int32_t l) {
    if (l == 0 || l + 1 >= slot->n_layers) return 0;
    double a = slot->log_rms[l - 1], b = slot->log_rms[l + 1];
    if (isnan(a) || isnan(b)) return 0;
    return beyond((struct range){fmin(a, b), fmax(a, b)}, slot->log_rms[l]);
}

static void check_slot(struct lp_exam *exam, const struct slot *slot) {
    int32_t n = 0, first = -1, last = -1;
    for (int32_t l = 0; l < slot->n_layers; l++) {
        if (isnan(slot->log_rms[l])) continue;
        if (first < 0) first = l;
        last = l;
        n++;
    }
    for (int32_t l = 0; l < slot->n_layers && n >= 4; l++) {
        if (isnan(slot->log_rms[l])) continue;
        struct range others = range_without(slot, l);
        double d = beyond(others, slot->log_rms[l]), trend = off_trend(slot, l);
        double spread = others.high - others.low;
        double need = l == first || l == last ? FACTOR_END : FACTOR_LAYER;
        bool tight = spread < log(4);
        bool off = fabs(d) >= log(need) || (tight && fabs(d) >= log(4) && fabs(trend) >= log(4));
        if (!off) continue;
        double factor = exp(fabs(trend) > fabs(d) ? trend : d);
        suspect_scale(exam, slot->layers[l], -1, factor, tight && fabs(d) >= log(1.5 * need),
                      "the same tensor in every other layer");
    }
}

static void fill_slot(struct lp_exam *exam, struct slot *slot, const struct lp_weight_stats *stats,
                      int32_t n_layers) {
    slot->n_layers = 0;
    for (int32_t l = 0; l <= LP_MAX_LAYERS; l++) {
        slot->layers[l] = NULL;
        slot->log_rms[l] = NAN;
    }
    for (uint64_t i = 0; i < stats->n; i++) {
        const struct lp_tensor_stats *s = &stats->tensors[i];
        int32_t layer = lp_exam_layer_of(s->tensor);
        if (layer < 0 || layer >= n_layers) continue;
        struct lp_str name = s->tensor->name;
        const char *dot = memchr(name.data + 4, '.', name.len - 4);
        struct lp_str rest = {dot, (size_t)(name.data + name.len - dot)};
        if (!lp_str_equal(rest, slot->name)) continue;
        slot->layers[layer] = s;
        slot->log_rms[layer] = log_size(exam, s);
        if (layer >= slot->n_layers) slot->n_layers = layer + 1;
    }
}

// Whether an earlier tensor has the same slot.
static bool seen_before(const struct lp_weight_stats *stats, uint64_t i, struct lp_str rest) {
    for (uint64_t j = 0; j < i; j++) {
        struct lp_str name = stats->tensors[j].tensor->name;
        if (lp_exam_layer_of(stats->tensors[j].tensor) < 0 || name.len < rest.len) continue;
        struct lp_str end = {name.data + name.len - rest.len, rest.len};
        const char *dot = memchr(name.data + 4, '.', name.len - 4);
        if (dot == end.data && lp_str_equal(end, rest)) return true;
    }
    return false;
}

// A slot that too few layers have, against the matrices of all slots.
static void check_rare(struct lp_exam *exam, const struct slot *slot,
                       const struct lp_weight_stats *stats, int32_t n_layers) {
    int32_t have = 0;
    for (int32_t l = 0; l < slot->n_layers; l++) have += !isnan(slot->log_rms[l]);
    for (int32_t l = 0; l < slot->n_layers && have < 4; l++) {
        struct range all = {INFINITY, -INFINITY};
        double x = slot->log_rms[l];
        if (isnan(x) || lp_weight_is_vector(slot->layers[l]->tensor)) continue;
        for (uint64_t i = 0; i < stats->n; i++) {
            const struct lp_tensor_stats *s = &stats->tensors[i];
            int32_t layer = lp_exam_layer_of(s->tensor);
            if (s == slot->layers[l] || layer < 0 || layer >= n_layers ||
                lp_weight_is_vector(s->tensor))
                continue;
            double size = log_size(exam, s);
            if (!isnan(size)) widen(&all, size);
        }
        double d = beyond(all, x);
        if (isfinite(d) && fabs(d) >= log(FACTOR_RARE))
            suspect_scale(exam, slot->layers[l], -1, exp(d), false, "any other matrix");
    }
}

static void plot_slot(struct lp_exam *exam, const struct slot *slot) {
    static const char *const plotted[] = {
        ".attn_q_a.weight", ".attn_q.weight",        ".attn_k_b.weight",  ".attn_output.weight",
        ".ffn_down.weight", ".ffn_down_exps.weight", ".attn_norm.weight", ".ffn_norm.weight"};
    double values[LP_MAX_LAYERS + 1];
    char name[80];
    for (size_t i = 0; i < sizeof plotted / sizeof plotted[0]; i++) {
        if (!lp_str_is(slot->name, plotted[i])) continue;
        for (int32_t l = 0; l < slot->n_layers; l++) values[l] = exp(slot->log_rms[l]);
        snprintf(name, sizeof name, "weights: size of %s", plotted[i] + 1);
        lp_report_series(exam->report, name, "layer", "root mean square", true, values,
                         (size_t)slot->n_layers);
    }
}

lp_status lp_weight_sizes_check(struct lp_exam *exam, const struct lp_weight_stats *stats,
                                struct lp_err *err) {
    struct slot *slot = lp_alloc(1, sizeof *slot);
    if (!slot) return lp_err_memory(err, sizeof *slot, "the sizes of a tensor in every layer");
    int32_t before = exam->n_suspects;
    int32_t n_layers = exam->has_hparams ? exam->h.n_layers : LP_MAX_LAYERS;
    for (uint64_t i = 0; i < stats->n; i++) {
        const struct lp_tensor_stats *s = &stats->tensors[i];
        int32_t layer = lp_exam_layer_of(s->tensor);
        if (s->n_matrices > 1) check_stack(exam, s);
        if (layer < 0 || layer >= n_layers || lp_weight_name_ends(s->tensor, ".bias")) continue;
        struct lp_str name = s->tensor->name;
        const char *dot = memchr(name.data + 4, '.', name.len - 4);
        slot->name = (struct lp_str){dot, (size_t)(name.data + name.len - dot)};
        if (seen_before(stats, i, slot->name)) continue;
        fill_slot(exam, slot, stats, n_layers);
        check_slot(exam, slot);
        check_rare(exam, slot, stats, n_layers);
        plot_slot(exam, slot);
    }
    lp_free(slot);
    int32_t n = exam->n_suspects - before;
    lp_report_say(
        exam->report, LP_STAGE_WEIGHTS, n ? LP_CHECK_NOTE : LP_CHECK_OK,
        "sizes as in sibling layers",
        n ? "%d tensors are of a size that no other layer or expert has; the output stage "
            "tries them at the usual size."
          : "Every tensor is of the size that it has in other layers, every expert of the "
            "size of the others (%d exceptions).",
        n);
    return LP_OK;
}
