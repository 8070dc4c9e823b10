// Stage "layers": every operation of real steps, on the fast backend and on ref from the same
// inputs. The first that differs is named with its layer, its weight and the places that are
// wrong.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "doctor/exam.h"
#include "doctor/layer_numbers.h"
#include "doctor/shadow.h"
#include "doctor/thin.h"
#include "doctor/walk.h"

#define CONTEXT 160    // over two borders of pages
#define MAX_ROWS 72    // of a step: over a page, and over two blocks of 32
#define SHORT_TOP_K 72 // that selection takes place within CONTEXT
#define BRIEF_TOP_K 8
#define QUICK_S 1.5 // that ref may take
#define FULL_S 12.0
#define REF_RATE 1e9        // multiply-adds of ref in a second
#define FAST_RATE 4e9       // bytes of weights that a step reads in a second
#define LARGE_WORK 20000000 // multiply-adds: of a larger operation only a part is compared
#define MAX_OPS 16
#define F16_MAX 65504.0

// The steps: tokens of two sequences, and the form of attention. Single tokens, odd counts, both
// sides of 32 and 64, two sequences in both orders; from position 72 on keys are selected.
struct plan {
    int64_t n[2];
    bool second_first;
    enum lp_route_force force;
};
static const struct plan plans[] = {
    {{33, 0}, false, LP_ROUTE_EXPANDED}, {{1, 0}, false, LP_ROUTE_ABSORBED},
    {{7, 31}, false, LP_ROUTE_ABSORBED}, {{2, 1}, true, LP_ROUTE_EXPANDED},
    {{65, 3}, false, LP_ROUTE_AUTO},     {{1, 1}, true, LP_ROUTE_AUTO},
    {{8, 33}, true, LP_ROUTE_EXPANDED},  {{17, 0}, false, LP_ROUTE_ABSORBED}};
// The same in small, where a step takes long: from position 8 on keys are selected.
static const struct plan brief_plans[] = {{{9, 0}, false, LP_ROUTE_EXPANDED},
                                          {{1, 0}, false, LP_ROUTE_ABSORBED},
                                          {{3, 5}, true, LP_ROUTE_ABSORBED},
                                          {{2, 7}, false, LP_ROUTE_EXPANDED}};
#define N_PLANS (sizeof plans / sizeof plans[0])
#define N_BRIEF (sizeof brief_plans / sizeof brief_plans[0])

struct op_record { // all comparisons of one operation
    const char *op;
    int64_t n, n_bad;
    double worst, bound; // of the comparison whose error is the largest part of its bound
    struct lp_shadow_finding first_bad, at_worst;
    char first_place[192], worst_place[192];
    int32_t last_bad_layer;
};

struct layers {
    struct lp_exam *exam;
    struct lp_thin *thin;
    struct lp_model *model; // the thin one; its layers are numbered anew
    const struct plan *plans;
    size_t n_plans;
    struct lp_walk walk;
    struct lp_device *shadow;
    struct op_record ops[MAX_OPS];
    int32_t n_ops;
    double *error;    // [n_layers]: worst over bound of an operation
    double *residual; // [n_layers]: rms of the residual stream
    double *cached;   // [n_layers]: largest value written to the cache
    int64_t n_rows;   // of the step that runs
    struct lp_layer_numbers numbers;
};

// ---- names

// The number of a layer in the whole model; what is behind the last is the head.
static int32_t number_of(const struct layers *c, int32_t layer) {
    return layer >= 0 && layer < c->model->h.n_layers ? c->thin->numbers[layer] : layer;
}

static bool in_layers(const struct layers *c, int32_t layer) {
    return layer >= 0 && layer < c->model->h.n_layers;
}

static const char *norm_name(const struct lp_layer *w, const void *param) {
    const struct {
        const void *param;
        const char *name;
    } names[] = {{w->attn_norm, "attn_norm.weight"},
                 {w->ffn_norm, "ffn_norm.weight"},
                 {w->mla.q_a_norm, "attn_q_a_norm.weight"},
                 {w->mla.kv_a_norm, "attn_kv_a_norm.weight"},
                 {w->mla.index_norm_w, "indexer.k_norm.weight"},
                 {w->gqa.q_norm, "attn_q_norm.weight"},
                 {w->gqa.k_norm, "attn_k_norm.weight"}};
    for (size_t i = 0; param && i < sizeof names / sizeof names[0]; i++)
        if (names[i].param == param) return names[i].name;
    return NULL;
}

static const char *cache_name(const struct layers *c, const struct lp_shadow_finding *f) {
    static const char *const names[LP_KV_N_KINDS] = {"latents", "indexer keys", "keys", "values"};
    if (!in_layers(c, f->layer)) return NULL;
    for (int kind = 0; kind < LP_KV_N_KINDS; kind++)
        if (lp_kv_view(c->walk.kv, f->layer, (enum lp_kv_kind)kind, &c->walk.tables[0]).base ==
            f->param)
            return names[kind];
    return NULL;
}

// What the operation works with: the weight's name, a norm's, a kind of cached state, or "".
static void subject_of(const struct layers *c, const struct lp_shadow_finding *f, char *out,
                       size_t n_bytes) {
    const char *name = NULL;
    bool in_layer = in_layers(c, f->layer);
    snprintf(out, n_bytes, "%.*s", LP_STR_ARGS(f->weight));
    if (f->weight.len) return;
    if (strcmp(f->op, "cache_write") == 0 || strcmp(f->op, "index_select") == 0)
        name = cache_name(c, f);
    else if (in_layer)
        name = norm_name(&c->model->layers[f->layer], f->param);
    else if (f->param && f->param == c->model->output_norm)
        name = "output_norm.weight";
    bool is_tensor = name && in_layer && strchr(name, '.');
    if (is_tensor)
        snprintf(out, n_bytes, "blk.%d.%s", number_of(c, f->layer), name);
    else
        snprintf(out, n_bytes, "%s", name ? name : "");
}

static void place_of(const struct layers *c, const struct lp_shadow_finding *f, char *out,
                     size_t n_bytes) {
    char subject[128];
    subject_of(c, f, subject, sizeof subject);
    if (f->layer < 0)
        snprintf(out, n_bytes, "the embedding");
    else if (f->layer >= c->model->h.n_layers)
        snprintf(out, n_bytes, "the head");
    else
        snprintf(out, n_bytes, "layer %d", number_of(c, f->layer));
    size_t used = strlen(out);
    if (subject[0]) snprintf(out + used, n_bytes - used, ", %s", subject);
}

// ---- what the shadow tells

static struct op_record *record_of(struct layers *c, const char *op) {
    for (int32_t i = 0; i < c->n_ops; i++)
        if (strcmp(c->ops[i].op, op) == 0) return &c->ops[i];
    if (c->n_ops == MAX_OPS) return NULL;
    c->ops[c->n_ops] = (struct op_record){.op = op};
    return &c->ops[c->n_ops++];
}

// Comparisons of one operation have bounds of their own, as kernels for types of cache round.
static bool is_worse(const struct lp_shadow_finding *f, const struct op_record *r) {
    const double error = f->diff.error;
    if (r->n == 1) return true;
    const double part = f->bound > 0 ? error / f->bound
                        : error > 0  ? INFINITY
                                     : 0,
                 before = r->bound > 0   ? r->worst / r->bound
                          : r->worst > 0 ? INFINITY
                                         : 0;
    return part > before || (part == before && error > r->worst);
}

static void on_finding(void *user, const struct lp_shadow_finding *f) {
    struct layers *c = user;
    struct op_record *r = record_of(c, f->op);
    if (!r) return;
    bool in_layer = in_layers(c, f->layer);
    r->n++;
    if (in_layer && f->largest_input > c->cached[f->layer]) c->cached[f->layer] = f->largest_input;
    if (is_worse(f, r)) {
        r->worst = f->diff.error;
        r->bound = f->bound;
        r->at_worst = *f;
        place_of(c, f, r->worst_place, sizeof r->worst_place);
    }
    if (in_layer && f->bound > 0 && !(f->diff.error / f->bound <= c->error[f->layer]))
        c->error[f->layer] = f->diff.error / f->bound;
    if (f->diff.error <= f->bound) return;
    if (r->n_bad++ == 0 || f->layer < r->first_bad.layer) {
        r->first_bad = *f;
        place_of(c, f, r->first_place, sizeof r->first_place);
    }
    if (r->n_bad == 1 || f->layer > r->last_bad_layer) r->last_bad_layer = f->layer;
}

static void on_operation(void *user, int32_t layer, const char *op, const void *args) {
    struct layers *c = user;
    lp_layer_numbers_see(&c->numbers, layer, op, args);
}

static void on_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                     const int32_t *n_selected, int64_t ids_stride) {
    struct layers *c = user;
    (void)selected, (void)n_selected, (void)ids_stride;
    lp_shadow_set_layer(c->shadow, layer + 1);
    lp_layer_numbers_end(&c->numbers, layer);
    int64_t n = c->n_rows * c->model->h.n_embd;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)h[i] * h[i];
    if (layer >= 0) c->residual[layer] = sqrt(sum / (double)n);
}

// ---- running

// Multiply-adds of the products of a layer for one token, from its weights.
static double layer_work(const struct lp_model *m, int32_t l) {
    const struct lp_layer *w = &m->layers[l];
    const struct lp_weight *weights[] = {
        &w->mla.q,       &w->mla.q_a,        &w->mla.q_b,     &w->mla.kv_a,  &w->mla.index_q,
        &w->mla.index_k, &w->mla.index_proj, &w->gqa.q,       &w->gqa.k,     &w->gqa.v,
        &w->attn_output, &w->router,         &w->mla.k_up,    &w->mla.v_up,  &w->dense.gate,
        &w->dense.up,    &w->dense.down,     &w->shared.gate, &w->shared.up, &w->shared.down};
    double work = 0;
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        work += (double)weights[i]->n_in * (double)weights[i]->n_out *
                (double)(weights[i]->n_mats ? weights[i]->n_mats : 1);
    double expert = (double)w->experts.gate.n_in * (double)w->experts.gate.n_out * 3;
    return work + (w->is_moe ? 2 * m->h.n_used * expert : 0); // each is decoded for itself
}

static int64_t n_tokens(const struct layers *c) {
    int64_t n = 0;
    for (size_t i = 0; i < c->n_plans; i++) n += c->plans[i].n[0] + c->plans[i].n[1];
    return n;
}

// What ref may spend on one operation, so that all stays within the time; *expected_s: what that
// comes to, with the steps of the fast backend.
static int64_t work_of_operation(const struct layers *c, double *expected_s) {
    double seconds = c->exam->options->quick ? QUICK_S : FULL_S, whole = 0;
    int32_t n_layers = c->model->h.n_layers;
    for (int32_t l = 0; l < n_layers; l++) whole += layer_work(c->model, l);
    double bytes = (double)lp_gguf_file_bytes(c->model->gguf) * n_layers / c->thin->n_whole;
    whole *= 2 * (double)n_tokens(c); // attention besides, and what is computed twice
    *expected_s = fmin(whole / REF_RATE, seconds) + bytes / FAST_RATE * 1.5 * (double)c->n_plans;
    if (whole / REF_RATE <= seconds) return LARGE_WORK;
    double each = seconds * REF_RATE / (20.0 * (double)c->n_plans * n_layers);
    return each > LARGE_WORK - 1 ? LARGE_WORK - 1 : each > 1e5 ? (int64_t)each : 100000;
}

static lp_status run_plan(struct layers *c, const struct plan *p, const int32_t *prompt,
                          float *logits, struct lp_err *err) {
    struct lp_walk_part parts[2];
    int32_t tokens[MAX_ROWS], n_parts = 0;
    c->n_rows = 0;
    for (int i = 0; i < 2; i++) {
        int sequence = p->second_first ? 1 - i : i;
        int64_t past = c->walk.n_past[sequence], n = p->n[sequence];
        if (past + n > c->walk.max_context) n = c->walk.max_context - past;
        if (n <= 0) continue;
        for (int64_t t = 0; t < n; t++) tokens[c->n_rows + t] = prompt[past + t + 11 * sequence];
        parts[n_parts++] = (struct lp_walk_part){sequence, n};
        c->n_rows += n;
    }
    if (n_parts == 0) return LP_OK;
    struct lp_step_settings settings = {.force = p->force, .watch = on_layer, .watch_user = c};
    c->numbers.walk = &c->walk;
    c->numbers.parts = parts;
    c->numbers.n_parts = n_parts;
    lp_shadow_set_layer(c->shadow, -1);
    return lp_walk_step(&c->walk, parts, n_parts, tokens, &settings, logits, err);
}

static lp_status run_steps(struct layers *c, lp_type kv_type, size_t n_plans, int64_t max_work,
                           struct lp_err *err) {
    const struct lp_hparams *h = &c->model->h;
    struct lp_shadow_config config = {
        .found = on_finding, .sees = on_operation, .user = c, .max_work = max_work};
    int64_t context = CONTEXT < h->n_context ? CONTEXT : h->n_context;
    int32_t *prompt = NULL, top_k = c->thin->brief ? BRIEF_TOP_K : SHORT_TOP_K;
    float *logits = lp_alloc((size_t)h->n_vocab, sizeof *logits);
    lp_status status = logits
                           ? lp_shadow_open(&c->shadow, c->exam->fast, c->exam->ref, &config, err)
                           : lp_err_memory(err, (size_t)h->n_vocab * sizeof *logits, "logits");
    if (!status) {
        struct lp_walk_options options = {.dev = c->shadow,
                                          .kv_type = kv_type,
                                          .max_context = context,
                                          .max_rows = MAX_ROWS,
                                          .top_k = h->top_k > top_k ? top_k : 0};
        status = lp_walk_init(&c->walk, c->model, &options, err);
    }
    if (!status) status = lp_walk_prompt(&prompt, c->exam, CONTEXT + 64, err);
    for (size_t i = 0; i < n_plans && !status; i++)
        status = run_plan(c, &c->plans[i], prompt, logits, err);
    if (!status && lp_shadow_failed(c->shadow))
        status = lp_err_memory(err, 0, "the comparison of operations");
    lp_walk_release(&c->walk);
    if (c->shadow) c->shadow->backend->close(c->shadow);
    c->shadow = NULL;
    lp_free(prompt);
    lp_free(logits);
    return status;
}

// ---- reporting

static void accuse(struct layers *c, const struct op_record *r, const char *check) {
    const struct lp_shadow_finding *f = &r->first_bad;
    char figure[96], kernel[96] = "", also[96] = "";
    if (f->diff.error < 1e3)
        snprintf(figure, sizeof figure, "relative error %.2g, bound %.2g", f->diff.error, f->bound);
    else
        snprintf(figure, sizeof figure, "values, positions or ids that have nothing to do with it");
    if (f->kernel) snprintf(kernel, sizeof kernel, " (kernel %s)", f->kernel);
    if (r->last_bad_layer > f->layer && in_layers(c, r->last_bad_layer))
        snprintf(also, sizeof also, ", and %lld more comparisons up to layer %d",
                 (long long)r->n_bad - 1, number_of(c, r->last_bad_layer));
    lp_report_fault(
        c->exam->report, LP_STAGE_LAYERS, check, f->layer < c->model->h.n_layers ? f->layer : -1,
        r->op,
        "%s%s does not compute what it is defined to: %s, in a step of %lld rows at %s%s%s"
        "%s. The file is not at fault; run with --backend ref or a lower --cpu level, and "
        "report this.",
        r->op, kernel, figure, (long long)f->n_rows, r->first_place, f->where[0] ? "; " : "",
        f->where, also);
}

static void report_ops(struct layers *c) {
    for (int32_t i = 0; i < c->n_ops; i++) {
        const struct op_record *r = &c->ops[i];
        char check[64];
        snprintf(check, sizeof check, "operation %s", r->op);
        if (!lp_report_measure(c->exam->report, LP_STAGE_LAYERS, check, r->worst, r->bound,
                               "%lld comparisons with ref; %s %s%s%s", (long long)r->n,
                               r->n_bad ? "the first bad one is in" : "the largest is in",
                               r->n_bad ? r->first_place : r->worst_place,
                               r->n_bad && r->first_bad.where[0] ? "; " : "",
                               r->n_bad ? r->first_bad.where : ""))
            accuse(c, r, check);
    }
}

// Half precision ends at 65504: what the cache would hold of larger values is infinity.
static void report_range(struct layers *c) {
    int32_t n = c->model->h.n_layers, worst = 0;
    for (int32_t l = 0; l < n; l++)
        if (!(c->cached[l] <= c->cached[worst])) worst = l;
    if (lp_report_measure(
            c->exam->report, LP_STAGE_LAYERS, "range of the f16 cache", c->cached[worst], F16_MAX,
            "largest magnitude that a layer writes to the cache, in layer %d; f16, the "
            "default cache, ends at 65504",
            number_of(c, worst)))
        return;
    for (int32_t l = n; l-- > 0;)
        if (!(c->cached[l] <= F16_MAX)) worst = l;
    lp_report_fault(c->exam->report, LP_STAGE_LAYERS, "range of the f16 cache", number_of(c, worst),
                    "half-precision overflow",
                    "Layer %d writes values up to %.3g to the cache; the default f16 cache ends at "
                    "65504 and holds infinity instead. Run with --kv bf16 or --kv f32; the file's "
                    "weights of that layer are out of scale.",
                    number_of(c, worst), c->cached[worst]);
}

static void report_figures(struct layers *c, const char *name, const char *y_label,
                           const double *values) {
    double *series = lp_thin_spread(c->thin, values);
    if (series)
        lp_report_series(c->exam->report, name, "layer", y_label, true, series,
                         (size_t)c->thin->n_whole);
    else
        c->exam->report->failed = true;
    lp_free(series);
}

static void report_series(struct layers *c) {
    report_figures(c, "operations against ref: worst error over its bound", "error / bound",
                   c->error);
    report_figures(c, "residual stream: root mean square", "rms", c->residual);
}

static void report_numbers(struct layers *c) {
    const struct lp_layer_numbers *n = &c->numbers;
    char figure[48], text[160] = "rotation, scales, epsilons, gating, positions and pages that "
                                 "operations are given";
    int32_t layer = n->layer < c->model->h.n_layers ? number_of(c, n->layer) : -1;
    snprintf(figure, sizeof figure, "%lld operations", (long long)n->n_seen);
    if (n->what) snprintf(text, sizeof text, "wrong in layer %d: %s, of %s", layer, n->what, n->op);
    lp_report_check(c->exam->report,
                    &(struct lp_check_note){.stage = LP_STAGE_LAYERS,
                                            .outcome = n->what ? LP_CHECK_FAULT : LP_CHECK_OK,
                                            .name = "numbers of the layers",
                                            .figure = figure,
                                            .bound = "as in the metadata",
                                            .value = NAN,
                                            .limit = NAN},
                    "%s", text);
    if (n->what)
        lp_report_fault(
            c->exam->report, LP_STAGE_LAYERS, "numbers of the layers", layer, n->what,
            "The engine is at fault: in layer %d %s is not given what the file's metadata "
            "and the tokens say: %s. Report this.",
            layer, n->op, n->what);
}

static bool new_figures(struct layers *c) {
    size_t n = (size_t)c->model->h.n_layers;
    c->error = lp_alloc(n, sizeof *c->error);
    c->residual = lp_alloc(n, sizeof *c->residual);
    c->cached = lp_alloc(n, sizeof *c->cached);
    return c->error && c->residual && c->cached;
}

static void free_figures(struct layers *c) {
    lp_free(c->error);
    lp_free(c->residual);
    lp_free(c->cached);
}

static lp_status run_all(struct layers *c, struct lp_err *err) {
    const struct lp_doctor_options *o = c->exam->options;
    double expected_s;
    int32_t n_layers = c->model->h.n_layers;
    int64_t work = work_of_operation(c, &expected_s);
    bool small = work == LARGE_WORK;
    if (o->on_stage) o->on_stage(o->user, LP_STAGE_LAYERS, expected_s);
    // The f32 cache first: what overflows f16 must not hide what else is wrong.
    lp_status status = run_steps(c, LP_TYPE_F32, c->n_plans, work, err);
    if (!status) status = run_steps(c, LP_TYPE_F16, small && !o->quick ? c->n_plans : 3, work, err);
    static const lp_type others[] = {LP_TYPE_BF16, LP_TYPE_Q8_0, LP_TYPE_F8_E4M3};
    for (int i = 0; i < 3 && !status && !o->quick; i++) {
        status = run_steps(c, others[i], 3, work, err);
        if (status == LP_STATUS_INVALID) status = LP_OK; // rows that are no whole blocks
    }
    if (status) return status;
    report_numbers(c);
    report_ops(c);
    report_range(c);
    report_series(c);
    if (n_layers < c->thin->n_whole || !small)
        lp_report_say(c->exam->report, LP_STAGE_LAYERS, LP_CHECK_NOTE, "share that was compared",
                      "%d of %d layers; %s", n_layers, c->thin->n_whole,
                      small ? "all of each operation but the largest"
                            : "of large operations some tokens, heads and rows of the weight");
    return LP_OK;
}

lp_status lp_check_layers(struct lp_exam *exam, struct lp_err *err) {
    const char *obstacle = lp_walk_obstacle(exam);
    if (obstacle || !exam->fast->backend->host_memory) {
        lp_report_say(exam->report, LP_STAGE_LAYERS, LP_CHECK_SKIPPED, "operations", "%s",
                      obstacle ? obstacle : "this backend's buffers are not in host memory");
        return LP_OK;
    }
    struct layers c = {.exam = exam};
    lp_status status =
        lp_thin_new(&c.thin, lp_lab_model(exam->fast_lab), exam->options->quick, err);
    if (status) return status;
    c.model = &c.thin->model;
    c.plans = c.thin->brief ? brief_plans : plans;
    c.n_plans = c.thin->brief ? N_BRIEF : N_PLANS;
    status =
        new_figures(&c) ? run_all(&c, err) : lp_err_memory(err, 0, "the figures of the layers");
    free_figures(&c);
    lp_thin_free(c.thin);
    return status;
}
