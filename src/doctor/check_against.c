// Stage "against": the dump of another engine. The same tokens run here; the first layer whose
// addition to the residual stream differs is accused and, with probes in the dump, the first
// operation in it. What two right engines may differ by: against_judge.c.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/against.h"
#include "doctor/diff.h"
#include "doctor/exam.h"
#include "model/cost.h"

#define STAGE LP_STAGE_AGAINST
#define QUICK_TOKENS 64
#define REF_RATE 1e9 // multiply-adds of ref in a second
#define QUICK_REF_S 2.0
#define FULL_REF_S 20.0
#define REORDERED 0.1 // of the difference that may be left when the order of pairs explains it

struct against {
    struct lp_exam *exam;
    struct lp_claims claims;
    struct lp_against_bound bound;
    bool *bad;             // [n_tokens] of the claim that was judged last
    double *relatives;     // [n_tokens]
    const char *reordered; // the first array with its rotary pairs in the other order
    int32_t n_reordered;
};

// ---- words ----

// Where to look when an operation is the first that differs.
static const struct {
    enum lp_probe_point point;
    const char *look_at;
} places[] = {
    {LP_PROBE_EMBED, "token_embd.weight, and whether the other engine scales embeddings"},
    {LP_PROBE_ATTN_NORM, "attn_norm.weight and attention.layer_norm_rms_epsilon"},
    {LP_PROBE_ATTN_Q_LATENT, "attn_q_a.weight, attn_q_a_norm.weight and the epsilon"},
    {LP_PROBE_ATTN_Q_PROJ, "attn_q_b.weight (attn_q.weight and its bias)"},
    {LP_PROBE_ATTN_KV_PROJ, "attn_kv_a_mqa.weight"},
    {LP_PROBE_ATTN_K_PROJ, "attn_k.weight and its bias"},
    {LP_PROBE_ATTN_Q, "the rotation: rope.freq_base, rope.scaling.*, the pairing; a norm of q"},
    {LP_PROBE_ATTN_Q_ROPE, "the rotation: rope.freq_base, rope.scaling.*, the pairing"},
    {LP_PROBE_ATTN_KV_LATENT, "attn_kv_a_norm.weight and the epsilon"},
    {LP_PROBE_ATTN_K_ROPE, "the rotation: rope.freq_base, rope.scaling.*, the pairing"},
    {LP_PROBE_INDEX_K_PROJ, "indexer.attn_k.weight"},
    {LP_PROBE_INDEX_K, "indexer.k_norm.weight and bias, and the indexer's rotation"},
    {LP_PROBE_INDEX_Q_PROJ, "indexer.attn_q_b.weight"},
    {LP_PROBE_INDEX_Q, "the indexer's rotation: its pairing may be other than the attention's"},
    {LP_PROBE_INDEX_WEIGHTS, "indexer.proj.weight"},
    {LP_PROBE_INDEX_SCORES, "the indexer's heads and scale"},
    {LP_PROBE_INDEX_TOPK, "attention.indexer.top_k, and which layers have an indexer of their own"},
    {LP_PROBE_ATTN_Q_ABSORBED, "attn_k_b.weight: is it transposed?"},
    {LP_PROBE_ATTN_K, "attn_k_b.weight (attn_k.weight), and the rotation"},
    {LP_PROBE_ATTN_V, "attn_v_b.weight (attn_v.weight and its bias)"},
    {LP_PROBE_ATTN_SCORES, "the softmax scale (YaRN's factor), attn_k_b.weight"},
    {LP_PROBE_ATTN_PROBS, "which keys are seen: the mask, the indexer's selection"},
    {LP_PROBE_ATTN_LATENT_OUT, "which keys are seen, and the softmax"},
    {LP_PROBE_ATTN_OUT, "attn_v_b.weight (attn_v.weight), or the attention kernel"},
    {LP_PROBE_ATTN_PROJ, "attn_output.weight"},
    {LP_PROBE_ATTN_RESIDUAL, "attn_output.weight"},
    {LP_PROBE_FFN_NORM, "ffn_norm.weight (post_attention_norm.weight)"},
    {LP_PROBE_FFN_ROUTER_LOGITS, "ffn_gate_inp.weight"},
    {LP_PROBE_FFN_EXPERT_IDS, "exp_probs_b.bias, expert_gating_func, the expert groups"},
    {LP_PROBE_FFN_EXPERT_WEIGHTS, "expert_gating_func, expert_weights_norm, expert_weights_scale"},
    {LP_PROBE_FFN_EXPERTS_OUT, "ffn_gate_exps, ffn_up_exps and ffn_down_exps, and their order"},
    {LP_PROBE_FFN_SHARED_GATE, "ffn_gate_shexp.weight"},
    {LP_PROBE_FFN_SHARED_UP, "ffn_up_shexp.weight"},
    {LP_PROBE_FFN_SHARED_ACT, "the activation (silu)"},
    {LP_PROBE_FFN_SHARED_OUT, "ffn_down_shexp.weight"},
    {LP_PROBE_FFN_GATE, "ffn_gate.weight"},
    {LP_PROBE_FFN_UP, "ffn_up.weight"},
    {LP_PROBE_FFN_ACT, "the activation (silu)"},
    {LP_PROBE_FFN_OUT, "the FFN's down projection, and the experts"},
    {LP_PROBE_FINAL_NORM, "output_norm.weight"},
    {LP_PROBE_LOGITS, "output.weight (token_embd.weight where they are tied)"},
};

static const char *look_at(enum lp_probe_point point) {
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (places[i].point == point) return places[i].look_at;
    return "this layer's tensors";
}

static double median_of(struct against *a, const struct lp_claim *c) {
    for (int64_t i = 0; i < a->claims.n_tokens; i++)
        a->relatives[i] = lp_claim_relative(c->diff, c->norm, i);
    return lp_claims_median(a->relatives, a->claims.n_tokens);
}

// The median of the positions that are out of bounds.
static double size_of_bad(struct against *a, const struct lp_claim *c) {
    int64_t n = 0;
    for (int64_t i = 0; i < a->claims.n_tokens; i++)
        if (a->bad[i]) a->relatives[n++] = lp_claim_relative(c->diff, c->norm, i);
    return lp_claims_median(a->relatives, n);
}

static double reordered_of(struct against *a, const struct lp_claim *c, int way) {
    for (int64_t i = 0; i < a->claims.n_tokens; i++)
        a->relatives[i] = lp_claim_relative(c->reordered[way], c->norm, i);
    return lp_claims_median(a->relatives, a->claims.n_tokens);
}

// A check with a measured figure; whether it is right was judged position by position.
static void note_figure(struct against *a, const char *name, bool fault, double value,
                        const char *bound, const char *sentence) {
    char figure[32];
    snprintf(figure, sizeof figure, "%.2g", value);
    lp_report_check(a->exam->report,
                    &(struct lp_check_note){.stage = STAGE,
                                            .outcome = fault ? LP_CHECK_FAULT : LP_CHECK_OK,
                                            .name = name,
                                            .figure = figure,
                                            .bound = bound,
                                            .value = value,
                                            .limit = NAN},
                    "%s", sentence);
}

// ---- what explains a difference ----

// The dump keeps rotary pairs in the other order: no fault.
static bool only_reordered(struct against *a, const struct lp_claim *c) {
    int64_t first, width;
    double plain = median_of(a, c);
    if (!lp_claim_rotated(lp_lab_model(a->exam->fast_lab), c, &first, &width)) return false;
    for (int way = 0; way < 2; way++)
        if (reordered_of(a, c, way) < REORDERED * plain) return true;
    return false;
}

// "; it is the dump's times 0.125": for a difference that one factor explains.
static void factor_text(const struct lp_claim *c, char *out, size_t n_bytes) {
    out[0] = 0;
    double similarity = c->both / sqrt(c->ours * c->dump), factor = c->both / c->dump;
    if (!lp_probe_is_int(c->point) && fabs(similarity) > 0.9999 && fabs(factor - 1) > 1e-3)
        snprintf(out, n_bytes, "; it is the dump's times %.4g", factor);
}

// ---- the stream ----

// Is the dump's last hidden state normed (transformers gives it so)? Takes the wrong claim out.
static void settle_last(struct against *a) {
    struct lp_claim *plain = NULL, *normed = NULL;
    for (size_t i = 0; i < a->claims.n; i++) {
        struct lp_claim *c = &a->claims.list[i];
        if (c->doubtful) *(c->point == LP_PROBE_FINAL_NORM ? &normed : &plain) = c;
    }
    if (!plain || !normed) return;
    bool is_normed = median_of(a, normed) < median_of(a, plain);
    if (is_normed)
        lp_report_say(a->exam->report, STAGE, LP_CHECK_NOTE, "last hidden state",
                      "%s of the dump is taken after the final norm, as transformers gives it; it "
                      "is compared there, and the last layer by it",
                      plain->name);
    struct lp_claim *out = is_normed ? plain : normed;
    out->seen = false;
    out->in_stream = false;
}

static const struct lp_claim *stream_before(const struct against *a, const struct lp_claim *c) {
    const struct lp_claim *before = NULL;
    for (const struct lp_claim *at = a->claims.list; at < c; at++)
        if (at->in_stream && at->seen) before = at;
    return before;
}

static void note_series(struct against *a) {
    int32_t n = a->exam->h.n_layers + 1;
    double *values = lp_alloc((size_t)n, sizeof *values);
    if (!values) {
        a->exam->report->failed = true;
        return;
    }
    for (int32_t i = 0; i < n; i++) values[i] = NAN;
    for (size_t i = 0; i < a->claims.n; i++) {
        const struct lp_claim *c = &a->claims.list[i];
        if (c->in_stream && c->seen) values[c->layer + 1] = median_of(a, c);
    }
    lp_report_series(a->exam->report, "against the dump: residual stream",
                     "hidden state (0: embeddings)", "relative difference (median of positions)",
                     true, values, (size_t)n);
    lp_free(values);
}

// ---- verdict ----

// The first claim of layers first ... last that is no stream and out of bounds; NULL: none.
static const struct lp_claim *first_bad_op(struct against *a, int32_t first, int32_t last,
                                           const struct lp_claim *before) {
    for (size_t i = 0; i < a->claims.n; i++) {
        const struct lp_claim *c = &a->claims.list[i];
        if (c->in_stream || !c->seen || c->layer < first || c->layer > last) continue;
        if (!lp_against_judge_op(&a->claims, c, before, a->bound, a->bad)) continue;
        if (!only_reordered(a, c)) return c;
        if (a->n_reordered++ == 0) a->reordered = c->name;
    }
    return NULL;
}

static void note_order(struct against *a) {
    char others[32] = "";
    if (a->n_reordered > 1) snprintf(others, sizeof others, " and %d more", a->n_reordered - 1);
    if (a->n_reordered)
        lp_report_say(a->exam->report, STAGE, LP_CHECK_NOTE, "order of rotary pairs",
                      "%s%s of the dump equal this engine's after reordering the rotary pairs "
                      "(halves against adjacent): a convention, not a fault",
                      a->reordered, others);
}

// What was right just before, for the sentence.
static const struct lp_claim *good_before(const struct against *a, const struct lp_claim *bad) {
    for (const struct lp_claim *c = bad; c-- > a->claims.list;)
        if (c->seen && !c->in_stream && c->layer == bad->layer) return c;
    return NULL;
}

static bool has_ops(const struct against *a, int32_t layer) {
    for (size_t i = 0; i < a->claims.n; i++)
        if (a->claims.list[i].layer == layer && !a->claims.list[i].in_stream &&
            a->claims.list[i].seen)
            return true;
    return false;
}

// Does ref compute what the dump has? Then the fast kernels are at fault.
static const char *blame(struct against *a, const struct lp_claim *accused) {
    struct lp_exam *exam = a->exam;
    const struct lp_model *model = lp_lab_model(exam->fast_lab);
    struct lp_cost_work work = {.n_rows = a->claims.n_tokens, .n_logit_rows = a->claims.n_tokens};
    struct lp_cost cost = {0};
    struct lp_err err;
    double before = size_of_bad(a, accused);
    lp_cost_step(&model->h, &model->binding, &work, LP_TYPE_F32, &cost);
    double seconds = (cost.int_madds + cost.float_madds) / REF_RATE;
    if (!exam->ref_lab || seconds > (exam->options->quick ? QUICK_REF_S : FULL_REF_S))
        return "; whether the kernels or the numbers in the file are at fault was not tried, as "
               "ref is too slow for this model";
    if (lp_claims_measure(&a->claims, exam->ref_lab, &err)) return "";
    return size_of_bad(a, accused) < 0.1 * before
               ? "; ref agrees with the dump, so a kernel of the fast backend is at fault"
               : "; ref computes the same as the fast backend, so the file, its metadata or a "
                 "convention is at fault, not a kernel";
}

// What differs, by how much, where; what is right in front of it; where to look.
static void describe(struct against *a, struct lp_bytes *text, const struct lp_claim *layer,
                     const struct lp_claim *op, const struct lp_claim *before) {
    char where[192], factor[64];
    const struct lp_claim *named = op ? op : layer, *good = op ? good_before(a, op) : NULL;
    lp_diff_pattern(where, sizeof where, a->bad, a->claims.n_tokens, "position", 0);
    factor_text(named, factor, sizeof factor);
    lp_bytes_printf(text, "%s differs from the dump by %.2g of its size%s%s%s", named->name,
                    size_of_bad(a, named), where[0] ? ", " : "", where, factor);
    if (op && layer)
        lp_bytes_printf(text, "; so does %s behind it (%.2g)", layer->name, size_of_bad(a, layer));
    if (good)
        lp_bytes_printf(text, "; %s before it is right (%.2g)", good->name, size_of_bad(a, good));
    else if (before)
        lp_bytes_printf(text, "; %s before it is right (%.2g)", before->name,
                        size_of_bad(a, before));
    lp_bytes_puts(text, blame(a, named));
    if (op || layer->point != LP_PROBE_LAYER_OUT)
        lp_bytes_printf(text, "; look at %s", look_at(named->point));
    else if (has_ops(a, layer->layer))
        lp_bytes_puts(text, "; its operations that are in the dump agree, so look behind them");
    else
        lp_bytes_puts(text, "; probes of this layer in the dump (layerN.attn.q, ...) would name "
                            "the operation");
}

// a->bad: where `op`, or else `layer`, is out of bounds.
static void accuse(struct against *a, const char *check, const struct lp_claim *layer,
                   const struct lp_claim *op, const struct lp_claim *before) {
    const struct lp_claim *named = op ? op : layer;
    struct lp_bytes text = {0};
    describe(a, &text, layer, op, before);
    if (text.failed) a->exam->report->failed = true;
    lp_report_fault(a->exam->report, STAGE, check, named->layer, lp_probe_name(named->point), "%s",
                    text.data ? text.data : "");
    lp_bytes_release(&text);
}

// The residual stream, layer by layer. Whether one was accused.
static bool judge_stream(struct against *a) {
    int32_t n_ties = 0;
    double worst = 0;
    char sentence[256], bound[64];
    const struct lp_claim *accused = NULL, *at_worst = NULL;
    for (size_t i = 0; i < a->claims.n && !accused; i++) {
        const struct lp_claim *c = &a->claims.list[i], *before;
        if (!c->in_stream || !c->seen) continue;
        before = stream_before(a, c);
        bool fault = lp_against_judge_stream(&a->claims, c, before, a->bound, a->bad);
        double median = median_of(a, c);
        for (int64_t p = 0; p < a->claims.n_tokens && !fault; p++) n_ties += a->bad[p];
        if (median >= worst) at_worst = c;
        worst = fmax(worst, median);
        if (fault) accused = c;
    }
    if (!at_worst) return false;
    snprintf(sentence, sizeof sentence, "the largest relative difference is %.2g, at %s%s%s", worst,
             at_worst->name, accused ? "; first out of bounds: " : "",
             accused ? accused->name : "");
    snprintf(bound, sizeof bound, "about %.2g of what a layer adds", a->bound.expected);
    note_figure(a, "residual stream", accused != NULL, worst, bound, sentence);
    if (n_ties)
        lp_report_say(a->exam->report, STAGE, LP_CHECK_NOTE, "single positions",
                      "%d single positions differ more than their layers: near ties (an expert, a "
                      "key) that were decided otherwise",
                      n_ties);
    if (!accused) return false;
    const struct lp_claim *before = stream_before(a, accused);
    const struct lp_claim *op =
        first_bad_op(a, before ? before->layer + 1 : 0, accused->layer, before);
    if (!op) lp_against_judge_stream(&a->claims, accused, before, a->bound, a->bad);
    accuse(a, "residual stream", accused, op, before);
    return true;
}

// Whether what a layer adds was compared, and found right.
static bool is_in_stream(const struct against *a, int32_t layer) {
    bool in = false, out = false;
    for (size_t i = 0; i < a->claims.n; i++) {
        const struct lp_claim *c = &a->claims.list[i];
        in = in || (c->in_stream && c->seen && c->layer == layer - 1);
        out = out || (c->in_stream && c->seen && c->layer == layer);
    }
    return in && out;
}

static const struct lp_claim *stream_into(const struct against *a, int32_t layer) {
    const struct lp_claim *before = NULL;
    for (size_t i = 0; i < a->claims.n; i++) {
        const struct lp_claim *c = &a->claims.list[i];
        if (c->in_stream && c->seen && c->layer < layer) before = c;
    }
    return before;
}

// The operations of layers whose stream is not in the dump; of the others only to note it: what they
// come to is right. Whether one was accused.
static bool judge_ops(struct against *a) {
    int32_t n = 0;
    char sentence[256];
    for (size_t i = 0; i < a->claims.n; i++)
        n += a->claims.list[i].seen && !a->claims.list[i].in_stream && a->claims.list[i].layer >= 0;
    for (int32_t layer = 0; layer < a->exam->h.n_layers && n; layer++) {
        const struct lp_claim *before = stream_into(a, layer),
                              *op = first_bad_op(a, layer, layer, before);
        if (!op) continue;
        if (is_in_stream(a, layer)) {
            lp_report_say(a->exam->report, STAGE, LP_CHECK_NOTE, "operations",
                          "%s differs from the dump by %.2g of its size, but what the layer adds "
                          "is right: a convention, or near ties",
                          op->name, size_of_bad(a, op));
            continue;
        }
        snprintf(sentence, sizeof sentence, "%s is the first that differs", op->name);
        note_figure(a, "operations", true, median_of(a, op), "as the others", sentence);
        accuse(a, "operations", NULL, op, before);
        return true;
    }
    if (n)
        lp_report_say(a->exam->report, STAGE, LP_CHECK_OK, "operations",
                      "%d operations were compared with the dump", n);
    return false;
}

// Behind the layers.
static void judge_head(struct against *a) {
    const struct lp_claim *last = NULL;
    for (size_t i = 0; i < a->claims.n; i++) {
        const struct lp_claim *c = &a->claims.list[i];
        if (c->in_stream && c->seen) last = c;
        if (!c->seen || lp_probe_in_layer(c->point) || c->point == LP_PROBE_EMBED) continue;
        bool fault = lp_against_judge_op(&a->claims, c, last, a->bound, a->bad);
        char sentence[160];
        double median = median_of(a, c);
        snprintf(sentence, sizeof sentence, "%s differs from the dump by %.2g of its size", c->name,
                 median);
        note_figure(a, lp_probe_name(c->point), fault, median, "as the stream before it", sentence);
        if (!fault) continue;
        accuse(a, lp_probe_name(c->point), NULL, c, last);
        return;
    }
}

// ---- the stage ----

// Bits a weight of the coarsest matrix of a layer.
static double weight_bits(const struct lp_gguf *gguf) {
    double bits = 32;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        const struct lp_type_info *type = lp_type_info(t->type);
        if (t->n_dims < 2 || !type) continue;
        bits = fmin(bits, 8.0 * type->block_bytes / type->block_values);
    }
    return bits;
}

static void note_scope(struct against *a) {
    const struct lp_claims *c = &a->claims;
    if (c->n_tokens < c->n_dump_tokens)
        lp_report_say(a->exam->report, STAGE, LP_CHECK_NOTE, "tokens",
                      "the first %lld of the dump's %lld tokens are compared",
                      (long long)c->n_tokens, (long long)c->n_dump_tokens);
    if (c->n_ignored)
        lp_report_say(a->exam->report, STAGE, LP_CHECK_NOTE, "other arrays",
                      "%d arrays of the dump have names that mean nothing here: %s%s", c->n_ignored,
                      c->ignored.data, c->n_ignored > 12 ? ", ..." : "");
    for (size_t i = 0; i < c->n; i++)
        if (!c->list[i].seen && lp_probe_need(c->list[i].point) != LP_PROBE_NEED_ALWAYS)
            lp_report_say(a->exam->report, STAGE, LP_CHECK_NOTE, "not on this route",
                          "%s of the dump was not made here: only %s", c->list[i].name,
                          lp_probe_need_text(lp_probe_need(c->list[i].point)));
}

static lp_status compare(struct against *a, struct lp_err *err) {
    struct lp_exam *exam = a->exam;
    const struct lp_doctor_options *o = exam->options;
    if (o->on_stage) o->on_stage(o->user, STAGE, 0);
    lp_status status = lp_claims_measure(&a->claims, exam->fast_lab, err);
    if (status) return status;
    note_scope(a);
    settle_last(a);
    a->bound = lp_against_bound(&a->claims, weight_bits(exam->gguf));
    note_series(a);
    if (!judge_stream(a) && !judge_ops(a)) judge_head(a);
    note_order(a);
    return LP_OK;
}

lp_status lp_check_against(struct lp_exam *exam, struct lp_err *err) {
    struct lp_dump *dump;
    struct against a = {.exam = exam};
    if (!exam->fast_lab) {
        lp_report_say(exam->report, STAGE, LP_CHECK_SKIPPED, "against",
                      "the model cannot be run, so the dump was not looked at");
        return LP_OK;
    }
    lp_status status = lp_dump_open(&dump, exam->options->against, err);
    if (status) return status;
    int64_t most = lp_lab_max_context(exam->fast_lab);
    if (exam->options->quick && most > QUICK_TOKENS) most = QUICK_TOKENS;
    status = lp_claims_make(&a.claims, dump, lp_lab_model(exam->fast_lab), most, err);
    if (!status && a.claims.refusal[0]) {
        lp_report_say(exam->report, STAGE, LP_CHECK_SKIPPED, "against", "%s", a.claims.refusal);
    } else if (!status) {
        size_t n = (size_t)a.claims.n_tokens;
        a.bad = lp_alloc(n, sizeof *a.bad);
        a.relatives = lp_alloc(n, sizeof *a.relatives);
        status = a.bad && a.relatives ? compare(&a, err)
                                      : lp_err_memory(err, n * 9, "the comparison with a dump");
    }
    lp_free(a.bad);
    lp_free(a.relatives);
    lp_claims_release(&a.claims);
    lp_dump_free(dump);
    return status;
}
