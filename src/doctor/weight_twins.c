// Equal digests are candidates; the bytes decide. Matrices of one value (norms that were never
// trained, routing biases of zero) are left out.
#include "doctor/weight_twins.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/weight_read.h"

#define CHECK "no weights stored twice"
#define MIN_BYTES 256
#define MAX_NAMED 8
#define KV_CHECK "k_b and v_b against kv_b"
#define KV_LIMIT 0.2 // two quantisations of 4 bits differ by 0.1; other weights by 1.4

struct entry { // one matrix
    uint64_t digest;
    const struct lp_tensor_stats *stats;
    uint64_t matrix, n_bytes;
};

static int compare(const void *a_, const void *b_) {
    const struct entry *a = a_, *b = b_;
    if (a->digest != b->digest) return a->digest < b->digest ? -1 : 1;
    if (a->stats != b->stats) return a->stats < b->stats ? -1 : 1;
    return a->matrix < b->matrix ? -1 : a->matrix > b->matrix;
}

static const uint8_t *bytes_of(const struct entry *e) {
    return lp_gguf_tensor_mat(e->stats->tensor, e->matrix);
}

static bool equal(const struct entry *a, const struct entry *b) {
    const struct lp_gguf_tensor *s = a->stats->tensor, *t = b->stats->tensor;
    return a->digest == b->digest && s->type == t->type && s->ne[0] == t->ne[0] &&
           a->n_bytes == b->n_bytes && memcmp(bytes_of(a), bytes_of(b), a->n_bytes) == 0;
}

// ---- what a pair means

struct tally {
    struct lp_exam *exam;
    uint64_t *of_layer; // [LP_MAX_LAYERS + 1]: tensors of the layer that are another layer's
    int32_t *source;    // [LP_MAX_LAYERS + 1]: that layer
    uint64_t n_pairs, n_named;
    bool tied;
};

// Whether all matrices of two tensors have equal digests.
static bool whole_equal(const struct lp_tensor_stats *a, const struct lp_tensor_stats *b) {
    if (a->n_matrices != b->n_matrices) return false;
    for (uint64_t m = 0; m < a->n_matrices; m++)
        if (a->matrices[m].digest != b->matrices[m].digest) return false;
    return true;
}

static bool name_has(const struct lp_gguf_tensor *t, const char *part) {
    return memmem(t->name.data, t->name.len, part, strlen(part)) != NULL;
}

// Layers that reuse another layer's selection may carry copies of its indexer.
static bool is_shared_index(const struct lp_exam *exam, const struct lp_gguf_tensor *t) {
    int32_t layer = lp_exam_layer_of(t);
    return name_has(t, ".indexer.") && (!exam->has_hparams || layer < 0 || layer >= LP_MAX_LAYERS ||
                                        exam->h.index_role[layer] != LP_INDEXER_FULL);
}

static bool same_slot(const struct lp_gguf_tensor *a, const struct lp_gguf_tensor *b) {
    const char *p = memchr(a->name.data + 4, '.', a->name.len > 4 ? a->name.len - 4 : 0);
    const char *q = memchr(b->name.data + 4, '.', b->name.len > 4 ? b->name.len - 4 : 0);
    if (!p || !q) return false;
    struct lp_str x = {p, (size_t)(a->name.data + a->name.len - p)};
    struct lp_str y = {q, (size_t)(b->name.data + b->name.len - q)};
    return lp_str_equal(x, y);
}

static void name_pair(struct tally *t, const struct entry *a, const struct entry *b) {
    const struct lp_gguf_tensor *s = a->stats->tensor, *u = b->stats->tensor;
    char what[300], other[300];
    if (t->n_named++ >= MAX_NAMED) return;
    snprintf(what, sizeof what, "%.*s", LP_STR_ARGS(u->name));
    bool whole = a->stats != b->stats && whole_equal(a->stats, b->stats);
    if (a->stats->n_matrices > 1 && !whole)
        snprintf(other, sizeof other, "matrix %llu of %.*s", (unsigned long long)a->matrix,
                 LP_STR_ARGS(s->name));
    else
        snprintf(other, sizeof other, "%.*s", LP_STR_ARGS(s->name));
    char which[48] = "it";
    if (b->stats->n_matrices > 1 && !whole)
        snprintf(which, sizeof which, "its matrix %llu (expert or head)",
                 (unsigned long long)b->matrix);
    lp_report_fault(t->exam->report, LP_STAGE_WEIGHTS, CHECK, lp_exam_layer_of(u), what,
                    "%s: %s holds the same bytes as %s; one of the two was written in the "
                    "other's place, convert or download the model again",
                    what, which, other);
}

static void note_pair(struct tally *t, const struct entry *a, const struct entry *b) {
    const struct lp_gguf_tensor *s = a->stats->tensor, *u = b->stats->tensor;
    int32_t from = lp_exam_layer_of(s), to = lp_exam_layer_of(u);
    if (is_shared_index(t->exam, s) || is_shared_index(t->exam, u)) return;
    if (name_has(s, "nextn.") || name_has(u, "nextn.")) return; // its own copy of head or embedding
    if (from < 0 && to < 0) {
        t->tied = true;
        return;
    }
    t->n_pairs++;
    if (from >= 0 && to >= 0 && from != to && same_slot(s, u) && whole_equal(a->stats, b->stats)) {
        if (b->matrix == 0) t->of_layer[to]++;
        t->source[to] = from;
    } else {
        name_pair(t, a, b);
    }
}

// ---- layers

static uint64_t n_matrices_of_layer(const struct lp_weight_stats *stats, int32_t layer) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < stats->n; i++)
        n += lp_exam_layer_of(stats->tensors[i].tensor) == layer &&
             !lp_weight_is_vector(stats->tensors[i].tensor);
    return n;
}

// Copies of whole layers, and single tensors of another layer. Returns the number of copied layers.
static int32_t copied_layers(struct tally *t, const struct lp_weight_stats *stats) {
    int32_t n = 0;
    for (int32_t l = 0; l <= LP_MAX_LAYERS; l++)
        n += t->of_layer[l] > 0 && t->of_layer[l] * 2 > n_matrices_of_layer(stats, l);
    return n;
}

static void name_layers(struct tally *t, const struct lp_weight_stats *stats) {
    for (int32_t l = 0; l <= LP_MAX_LAYERS; l++) {
        if (!t->of_layer[l] || t->of_layer[l] * 2 <= n_matrices_of_layer(stats, l)) continue;
        char what[24];
        snprintf(what, sizeof what, "blk.%d", l);
        if (t->n_named++ < MAX_NAMED)
            lp_report_fault(t->exam->report, LP_STAGE_WEIGHTS, CHECK, l, what,
                            "layer %d holds the same bytes as layer %d: one of them was written "
                            "in the other's place; convert or download the model again",
                            l, t->source[l]);
    }
}

static void name_tensors(struct tally *t, const struct entry *e, uint64_t n,
                         const struct lp_weight_stats *stats) {
    for (uint64_t i = 1; i < n; i++) {
        int32_t to = lp_exam_layer_of(e[i].stats->tensor);
        if (!equal(&e[i - 1], &e[i]) || to < 0 || !t->of_layer[to]) continue;
        if (t->of_layer[to] * 2 > n_matrices_of_layer(stats, to)) continue;
        if (e[i].matrix == 0 && same_slot(e[i - 1].stats->tensor, e[i].stats->tensor) &&
            whole_equal(e[i - 1].stats, e[i].stats))
            name_pair(t, &e[i - 1], &e[i]);
    }
}

// ---- the check

static uint64_t list(const struct lp_weight_stats *stats, struct entry *entries) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < stats->n; i++) {
        const struct lp_tensor_stats *s = &stats->tensors[i];
        if (lp_weight_is_vector(s->tensor)) continue;
        uint64_t n_bytes = s->n_matrices ? s->tensor->n_bytes / s->n_matrices : 0;
        if (n_bytes < MIN_BYTES) continue;
        for (uint64_t m = 0; m < s->n_matrices; m++) {
            if (!s->matrices[m].n_values || !s->matrices[m].has_spread) continue;
            if (entries) entries[n] = (struct entry){s->matrices[m].digest, s, m, n_bytes};
            n++;
        }
    }
    return n;
}

static void report(struct tally *t, const struct entry *e, uint64_t n,
                   const struct lp_weight_stats *stats) {
    struct lp_report *r = t->exam->report;
    int32_t n_layers = t->exam->has_hparams ? t->exam->h.n_layers : LP_MAX_LAYERS;
    int32_t copies = copied_layers(t, stats);
    if (copies >= 4 && copies * 4 >= n_layers) { // a model made longer by repeating its layers
        lp_report_say(r, LP_STAGE_WEIGHTS, LP_CHECK_NOTE, CHECK,
                      "%d layers are copies of other layers: a model merged from repeated layers, "
                      "or not a trained one",
                      copies);
        return;
    }
    name_layers(t, stats);
    name_tensors(t, e, n, stats);
    char figure[32];
    snprintf(figure, sizeof figure, "%llu pairs", (unsigned long long)t->n_pairs);
    struct lp_check_note note = {.stage = LP_STAGE_WEIGHTS,
                                 .outcome = t->n_pairs ? LP_CHECK_FAULT
                                            : t->tied  ? LP_CHECK_NOTE
                                                       : LP_CHECK_OK,
                                 .name = CHECK,
                                 .figure = figure,
                                 .bound = "none",
                                 .value = (double)t->n_pairs,
                                 .limit = 0};
    lp_report_check(r, &note, "Of %llu matrices %s equal, byte for byte.%s", (unsigned long long)n,
                    t->n_pairs ? "some are" : "no two are",
                    t->tied ? " The output matrix is the embedding, stored twice." : "");
}

// ---- k_b and v_b against kv_b

static bool fits(const struct lp_gguf_tensor *k, const struct lp_gguf_tensor *v,
                 const struct lp_gguf_tensor *kv, uint64_t head) {
    return head < k->ne[2] && k->ne[2] == v->ne[2] && k->ne[1] == v->ne[0] &&
           v->ne[0] == kv->ne[0] && k->ne[3] == 1 && v->ne[3] == 1 && kv->ne[2] * kv->ne[3] == 1 &&
           kv->ne[1] / k->ne[2] == k->ne[0] + v->ne[1] && kv->ne[1] % k->ne[2] == 0;
}

double lp_weight_twins_kv_difference(const struct lp_gguf_tensor *k, const struct lp_gguf_tensor *v,
                                     const struct lp_gguf_tensor *kv, uint64_t head) {
    if (!fits(k, v, kv, head)) return -1;
    uint64_t nope = k->ne[0], latent = k->ne[1], width = nope + v->ne[1];
    double diff = 0, sum = 0;
    for (uint64_t d = 0; d < width; d += 13) // a prime: all positions within the blocks
        for (uint64_t j = d % 7; j < latent; j += 7) {
            float own, fused;
            lp_weight_read(kv, (head * width + d) * latent + j, 1, &fused);
            if (d < nope)
                lp_weight_read(k, (head * latent + j) * nope + d, 1, &own);
            else
                lp_weight_read(v, (head * v->ne[1] + d - nope) * latent + j, 1, &own);
            diff += ((double)own - fused) * ((double)own - fused);
            sum += (double)fused * fused;
        }
    return sum > 0 ? sqrt(diff / sum) : sqrt(diff);
}

static void check_kv(struct lp_exam *exam, const struct lp_weight_stats *stats) {
    double worst = 0;
    int32_t n = 0;
    for (uint64_t i = 0; i < stats->n; i++) {
        const struct lp_gguf_tensor *kv = stats->tensors[i].tensor;
        int32_t layer = lp_exam_layer_of(kv);
        if (layer < 0 || lp_weight_find(exam->gguf, layer, "attn_kv_b") != kv) continue;
        const struct lp_gguf_tensor *k = lp_weight_find(exam->gguf, layer, "attn_k_b");
        const struct lp_gguf_tensor *v = lp_weight_find(exam->gguf, layer, "attn_v_b");
        if (!k || !v) continue;
        double difference = 0;
        for (uint64_t head = 0; head < k->ne[2] && difference >= 0; head++)
            difference = fmax(difference, lp_weight_twins_kv_difference(k, v, kv, head));
        if (!fits(k, v, kv, 0)) continue; // the file stage says so
        n++;
        worst = fmax(worst, difference);
        if (difference > KV_LIMIT)
            lp_report_fault(exam->report, LP_STAGE_WEIGHTS, KV_CHECK, layer, "attn_k_b, attn_v_b",
                            "blk.%d.attn_k_b and attn_v_b are not the parts of blk.%d.attn_kv_b "
                            "(relative difference %.2f, expected below %.1f): they come from "
                            "another layer or are stored transposed; convert the model again",
                            layer, layer, difference, KV_LIMIT);
    }
    if (n)
        lp_report_measure(exam->report, LP_STAGE_WEIGHTS, KV_CHECK, worst, KV_LIMIT,
                          "Largest relative difference in the %d layers that have both forms.", n);
}

lp_status lp_weight_twins_check(struct lp_exam *exam, const struct lp_weight_stats *stats,
                                struct lp_err *err) {
    uint64_t n = list(stats, NULL);
    struct entry *entries = lp_alloc(n, sizeof *entries);
    struct tally t = {.exam = exam};
    t.of_layer = lp_alloc(LP_MAX_LAYERS + 1, sizeof *t.of_layer);
    t.source = lp_alloc(LP_MAX_LAYERS + 1, sizeof *t.source);
    lp_status status = LP_OK;
    if (entries && t.of_layer && t.source) {
        list(stats, entries);
        qsort(entries, n, sizeof *entries, compare);
        for (uint64_t i = 1; i < n; i++)
            if (equal(&entries[i - 1], &entries[i])) note_pair(&t, &entries[i - 1], &entries[i]);
        report(&t, entries, n, stats);
        check_kv(exam, stats);
    } else {
        status = lp_err_memory(err, n * sizeof *entries, "the list of matrices");
    }
    lp_free(entries);
    lp_free(t.of_layer);
    lp_free(t.source);
    return status;
}
