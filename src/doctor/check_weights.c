// Stage "weights": are the values of every tensor sane? One pass over them all (weight_stats.c),
// and then what the figures say: no numbers, empty or constant parts, damaged blocks, what is
// stored twice (weight_twins.c); sizes that fall out of the row of the sibling layers
// (weight_sizes.c); what does not fit together (weight_shape.c, weight_pairs.c).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/exam.h"
#include "doctor/weight_read.h"
#include "doctor/weight_shape.h"
#include "doctor/weight_sizes.h"
#include "doctor/weight_stats.h"
#include "doctor/weight_twins.h"

#define QUICK_BYTES ((uint64_t)384 << 20)
#define MAX_NAMED 8 // faults of one check that are named one by one
#define MIN_RUN 16  // constant or equal rows in a row

static bool has_rows_by_token(const struct lp_gguf_tensor *t) {
    return lp_str_is(t->name, "token_embd.weight") || lp_str_is(t->name, "output.weight") ||
           lp_weight_name_ends(t, "nextn.embed_tokens.weight") ||
           lp_weight_name_ends(t, "nextn.shared_head_head.weight");
}

static bool is_norm(const struct lp_gguf_tensor *t) {
    return lp_weight_is_vector(t) && lp_weight_name_ends(t, "norm.weight");
}

// "blk.3.ffn_down_exps.weight, matrix 5 (expert or head)"
static const char *part_name(const struct lp_tensor_stats *s, uint64_t matrix, char *buffer,
                             size_t n_bytes) {
    if (s->n_matrices > 1)
        snprintf(buffer, n_bytes, "%.*s, matrix %llu (expert or head)",
                 LP_STR_ARGS(s->tensor->name), (unsigned long long)matrix);
    else
        snprintf(buffer, n_bytes, "%.*s", LP_STR_ARGS(s->tensor->name));
    return buffer;
}

static void accuse(struct lp_exam *exam, const char *check, const struct lp_tensor_stats *s,
                   uint64_t *n, const char *advice) {
    char what[300];
    if ((*n)++ >= MAX_NAMED) return;
    snprintf(what, sizeof what, "%.*s", LP_STR_ARGS(s->tensor->name));
    lp_report_fault(exam->report, LP_STAGE_WEIGHTS, check, lp_exam_layer_of(s->tensor), what, "%s",
                    advice);
}

// The line of a check that counts tensors at fault.
static void count(struct lp_exam *exam, const char *name, uint64_t n, const char *text) {
    char figure[32];
    snprintf(figure, sizeof figure, "%llu tensors", (unsigned long long)n);
    struct lp_check_note note = {.stage = LP_STAGE_WEIGHTS,
                                 .outcome = n ? LP_CHECK_FAULT : LP_CHECK_OK,
                                 .name = name,
                                 .figure = figure,
                                 .bound = "none",
                                 .value = (double)n,
                                 .limit = 0};
    lp_report_check(exam->report, &note, "%s", text);
}

// ---- what was looked at

static void say_sample(struct lp_exam *exam, const struct lp_weight_stats *stats) {
    double gb = (double)stats->seen_bytes / 1e9, all = (double)stats->total_bytes / 1e9;
    if (stats->row_step == 1)
        lp_report_say(exam->report, LP_STAGE_WEIGHTS, LP_CHECK_OK, "weights read",
                      "Every value of %llu tensors was read (%.2f GB).",
                      (unsigned long long)stats->n, gb);
    else
        lp_report_say(
            exam->report, LP_STAGE_WEIGHTS, LP_CHECK_NOTE, "weights read",
            "A sample: every vector, and 1 of %llu rows of each matrix (%.2f of %.2f GB); "
            "damage in the rows between is not seen. The full run reads all.",
            (unsigned long long)stats->row_step, gb, all);
}

// ---- single tensors

static void check_finite(struct lp_exam *exam, const struct lp_weight_stats *stats) {
    static const char check[] = "values finite";
    uint64_t n = 0;
    for (uint64_t i = 0; i < stats->n; i++) {
        const struct lp_tensor_stats *s = &stats->tensors[i];
        if (s->n_nonfinite == 0) continue;
        char part[360], advice[640];
        bool block = lp_type_info(s->tensor->type)->block_values > 1;
        snprintf(advice, sizeof advice,
                 "%s holds NaN or infinity (%s at row %llu, column %llu; %llu places); the file is "
                 "damaged: compare its checksum and download it again",
                 part_name(s, s->nonfinite.matrix, part, sizeof part),
                 block ? "a block scale" : "a value", (unsigned long long)s->nonfinite.row,
                 (unsigned long long)s->nonfinite.column, (unsigned long long)s->n_nonfinite);
        accuse(exam, check, s, &n, advice);
    }
    if (n) exam->weights_bad = true;
    count(exam, check, n, "NaN and infinity, in values and in block scales.");
}

// Whether a matrix of which only a sample was seen is zero throughout.
static bool is_zero(const struct lp_tensor_stats *s, uint64_t matrix) {
    float values[1024];
    uint64_t n = s->n_rows * s->tensor->ne[0], first = matrix * n;
    for (uint64_t i = 0; i < n; i += 1024) {
        size_t take = n - i < 1024 ? (size_t)(n - i) : 1024;
        lp_weight_read(s->tensor, first + i, take, values);
        for (size_t j = 0; j < take; j++)
            if (values[j] != 0) return false;
    }
    return true;
}

// A stack or tensor of zeros. Biases may be zero, and rows of tokens that never occur.
static void check_zero(struct lp_exam *exam, const struct lp_weight_stats *stats) {
    static const char check[] = "no matrix empty";
    uint64_t n = 0;
    for (uint64_t i = 0; i < stats->n; i++) {
        const struct lp_tensor_stats *s = &stats->tensors[i];
        uint64_t first = 0, empty = 0;
        for (uint64_t m = s->n_matrices; m-- > 0;)
            if (s->matrices[m].n_values && s->matrices[m].n_nonzero == 0 && is_zero(s, m)) {
                first = m;
                empty++;
            }
        if (empty == 0 || lp_weight_name_ends(s->tensor, ".bias")) continue;
        char part[360], advice[640];
        if (empty == s->n_matrices)
            snprintf(advice, sizeof advice, "%.*s is all zero: it was not written",
                     LP_STR_ARGS(s->tensor->name));
        else
            snprintf(advice, sizeof advice, "%s is all zero (%llu of %llu are): it was not written",
                     part_name(s, first, part, sizeof part), (unsigned long long)empty,
                     (unsigned long long)s->n_matrices);
        strncat(advice, "; convert or download the model again",
                sizeof advice - strlen(advice) - 1);
        accuse(exam, check, s, &n, advice);
    }
    count(exam, check, n, "Tensors, experts and heads that are zero throughout.");
}

// Zero rows at the end pad a width to whole blocks: no fault.
static bool is_padding(const struct lp_tensor_stats *s, uint64_t step) {
    const struct lp_matrix_stats *m = &s->matrices[s->run_start.matrix];
    return m->n_values && s->run_start.row + s->run_rows * step >= s->n_rows &&
           m->n_values - m->n_nonzero >= s->run_rows * s->tensor->ne[0];
}

static void check_rows(struct lp_exam *exam, const struct lp_weight_stats *stats) {
    static const char check[] = "rows differ";
    uint64_t n = 0, of_tokens = 0;
    for (uint64_t i = 0; i < stats->n; i++) {
        const struct lp_tensor_stats *s = &stats->tensors[i];
        const struct lp_matrix_stats *m = &s->matrices[s->run_start.matrix];
        if (has_rows_by_token(s->tensor)) of_tokens += s->n_constant_rows + s->n_equal_rows;
        if (lp_weight_is_vector(s->tensor) || has_rows_by_token(s->tensor) ||
            s->run_rows < MIN_RUN || m->n_nonzero == 0 || is_padding(s, stats->row_step))
            continue;
        char part[360], advice[640];
        snprintf(
            advice, sizeof advice,
            "%s has %llu rows in a row, from row %llu, that hold one value or repeat the row "
            "before: that part of the file was overwritten or never written; download it again",
            part_name(s, s->run_start.matrix, part, sizeof part), (unsigned long long)s->run_rows,
            (unsigned long long)s->run_start.row);
        accuse(exam, check, s, &n, advice);
    }
    char text[160];
    snprintf(text, sizeof text,
             "Runs of %d and more rows of one value or equal to the row before%s.", MIN_RUN,
             of_tokens ? "; rows of unused tokens in embedding and head are not counted" : "");
    count(exam, check, n, text);
}

// Damaged bytes read as scales or floats give any exponent: groups far larger than all others.
static void check_damage(struct lp_exam *exam, const struct lp_weight_stats *stats) {
    static const char check[] = "block sizes plausible";
    uint64_t n = 0;
    for (uint64_t i = 0; i < stats->n; i++) {
        const struct lp_tensor_stats *s = &stats->tensors[i];
        char part[360], advice[700];
        if (lp_weight_is_vector(s->tensor) || s->n_nonfinite) continue;
        struct lp_damage d;
        bool large = lp_tensor_damage(s, &d);
        bool odd = s->n_odd_scales >= 2 && s->n_odd_scales * 20 < s->n_blocks;
        bool hole = s->hole_groups > 0 && s->exponents[0] * 10 < s->n_groups;
        if (large)
            snprintf(advice, sizeof advice,
                     "%s holds values of up to %.1e at row %llu, column %llu, %.0e times the usual "
                     "size of this tensor (%llu groups of %d are out of range)",
                     part_name(s, s->largest.matrix, part, sizeof part),
                     ldexp(1, (int)(s->largest_bits >> 23) - 127),
                     (unsigned long long)s->largest.row, (unsigned long long)s->largest.column,
                     ldexp(1, d.exponents), (unsigned long long)d.n_groups, LP_GROUP_VALUES);
        else if (odd)
            snprintf(
                advice, sizeof advice,
                "%s has %llu blocks whose scale has a sign that no quantiser writes, the first "
                "at row %llu, column %llu",
                part_name(s, s->odd_scale.matrix, part, sizeof part),
                (unsigned long long)s->n_odd_scales, (unsigned long long)s->odd_scale.row,
                (unsigned long long)s->odd_scale.column);
        else if (hole)
            snprintf(advice, sizeof advice,
                     "%s is zero for %llu values on end, from row %llu, column %llu, though the "
                     "hole is no whole row",
                     part_name(s, s->hole.matrix, part, sizeof part),
                     (unsigned long long)s->hole_groups * LP_GROUP_VALUES,
                     (unsigned long long)s->hole.row, (unsigned long long)s->hole.column);
        else
            continue;
        strncat(advice,
                ": bytes of the file are damaged there; compare its checksum and download "
                "it again",
                sizeof advice - strlen(advice) - 1);
        accuse(exam, check, s, &n, advice);
    }
    count(
        exam, check, n,
        "Groups of 32 values 1000 times larger than the tensor's middle one, scales of a sign that "
        "their type never has, and holes of zeros.");
}

// ---- norms

static void suspect_sign(struct lp_exam *exam, const struct lp_tensor_stats *s, double share) {
    struct lp_suspect x = {.kind = LP_SUSPECT_SIGN,
                           .layer = lp_exam_layer_of(s->tensor),
                           .tensor = s->tensor,
                           .expert = -1,
                           .other_expert = -1,
                           .factor = -1,
                           .score = share,
                           .certain = share > 0.9};
    snprintf(x.text, sizeof x.text,
             "%.*s is negative in %.0f%% of its values, where a norm starts at 1 and stays mostly "
             "positive: its sign was turned; convert the model again",
             LP_STR_ARGS(s->tensor->name), 100 * share);
    lp_exam_suspect(exam, &x);
}

#define NORM_MAX 1e5

static void check_norms(struct lp_exam *exam, const struct lp_weight_stats *stats) {
    static const char check[] = "norm weights plausible";
    uint64_t n = 0, n_norms = 0;
    for (uint64_t i = 0; i < stats->n; i++) {
        const struct lp_tensor_stats *s = &stats->tensors[i];
        const struct lp_gguf_tensor *t = s->tensor;
        if (!is_norm(t) || !lp_weight_count(t) || s->n_nonfinite || t->ne[0] > 1 << 20) continue;
        float *w = lp_alloc((size_t)t->ne[0], sizeof *w);
        if (!w) {
            exam->report->failed = true;
            return;
        }
        uint64_t negative = 0;
        float largest = 0;
        lp_weight_read(t, 0, (size_t)t->ne[0], w);
        for (uint64_t j = 0; j < t->ne[0]; j++) {
            negative += w[j] < 0;
            largest = fmaxf(largest, fabsf(w[j]));
        }
        lp_free(w);
        n_norms++;
        double share = (double)negative / (double)t->ne[0];
        if (share > 0.6 && t->ne[0] >= 16) suspect_sign(exam, s, share);
        if (largest <= NORM_MAX) continue;
        char advice[512];
        snprintf(advice, sizeof advice,
                 "%.*s holds values of up to %.1e, expected below %.0e: the tensor is damaged or "
                 "read in the wrong type; convert or download the model again",
                 LP_STR_ARGS(t->name), largest, NORM_MAX);
        accuse(exam, check, s, &n, advice);
    }
    char text[96];
    snprintf(text, sizeof text, "Size and sign of %llu norm vectors.", (unsigned long long)n_norms);
    count(exam, check, n, text);
}

// ---- how coarse

static double bits_per_weight(const struct lp_gguf_tensor *t) {
    const struct lp_type_info *type = lp_type_info(t->type);
    return 8.0 * type->block_bytes / type->block_values;
}

// What suffers most from few bits: small tensors that decide, and the draft layer.
static void check_types(struct lp_exam *exam, const struct lp_weight_stats *stats) {
    const struct lp_gguf_tensor *router = NULL, *index = NULL, *draft = NULL, *attention = NULL;
    int32_t n_layers = exam->has_hparams ? exam->h.n_layers : LP_MAX_LAYERS;
    for (uint64_t i = 0; i < stats->n; i++) {
        const struct lp_gguf_tensor *t = stats->tensors[i].tensor;
        double bits = bits_per_weight(t);
        if (lp_weight_is_vector(t) || !lp_weight_count(t)) continue;
        bool mtp = lp_exam_layer_of(t) >= n_layers;
        if (lp_weight_name_ends(t, "ffn_gate_inp.weight") && bits < 16) router = t;
        if (lp_weight_name_ends(t, "indexer.proj.weight") && bits < 16) index = t;
        if (mtp && bits < 6) draft = t;
        bool latent = lp_weight_name_ends(t, "attn_k_b.weight") ||
                      lp_weight_name_ends(t, "attn_v_b.weight") ||
                      lp_weight_name_ends(t, "attn_kv_a_mqa.weight");
        if (latent && bits < 4) attention = t;
    }
    const struct {
        const struct lp_gguf_tensor *t;
        const char *text;
    } notes[] = {
        {router, "the router chooses experts by small differences; keep it in F32"},
        {index, "the indexer's head weights decide which keys are seen; keep them in F32"},
        {draft, "drafts of a layer below 6 bits are rarely accepted"},
        {attention, "every token passes through the latent projections; keep 4 bits or more"}};
    bool any = false;
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        if (!notes[i].t) continue;
        any = true;
        lp_report_say(exam->report, LP_STAGE_WEIGHTS, LP_CHECK_NOTE, "types fit for their use",
                      "%.*s is stored as %s (%.2f bits): %s.", LP_STR_ARGS(notes[i].t->name),
                      lp_type_info(notes[i].t->type)->name, bits_per_weight(notes[i].t),
                      notes[i].text);
    }
    if (!any)
        lp_report_say(exam->report, LP_STAGE_WEIGHTS, LP_CHECK_OK, "types fit for their use",
                      "Router, indexer weights, latent projections and draft layer have enough "
                      "bits.");
}

lp_status lp_check_weights(struct lp_exam *exam, struct lp_err *err) {
    struct lp_weight_stats stats;
    const struct lp_doctor_options *o = exam->options;
    lp_status status =
        lp_weight_stats_make(&stats, exam->gguf, o->quick ? QUICK_BYTES : 0, o->n_threads, err);
    if (status) return status;
    say_sample(exam, &stats);
    check_finite(exam, &stats);
    check_zero(exam, &stats);
    check_rows(exam, &stats);
    check_damage(exam, &stats);
    check_norms(exam, &stats);
    check_types(exam, &stats);
    status = lp_weight_twins_check(exam, &stats, err);
    if (!status) status = lp_weight_sizes_check(exam, &stats, err);
    lp_weight_stats_release(&stats);
    return status ? status : lp_weight_shape_check(exam, err);
}
