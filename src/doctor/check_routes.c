// Stage "routes": the forms of attention. On the fast backend each form, on every layer, against
// the formula (sampled heads and positions): one sequence and several in a step, first tokens and
// later ones, with a selection and without. On ref the forms against each other, whose residual
// streams must agree on every layer.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/exam.h"
#include "doctor/formula.h"
#include "doctor/thin.h"
#include "doctor/walk.h"
#include "model/runner.h"

#define CONTEXT 144
#define MAX_ROWS 80
#define SHORT_TOP_K 48
#define BRIEF_TOP_K 6
#define CELLS_OF_SPAN 4 // positions of a span that are looked at
#define QUICK_HEADS 2   // heads of each
#define FULL_HEADS 8
#define EXACT_BOUND 1e-3  // relative, of a head's output: float32 against double
#define ROUNDED_BOUND 0.1 // with 8-bit activations on both sides of the latents
#define STREAM_BOUND 1e-2 // relative, of the residual stream between two forms on ref
#define REF_QUICK_S 1.0
#define REF_FULL_S 5.0
#define REF_RATE 1.5e9
#define MIN_REF_TOKENS 8
#define MAX_REF_TOKENS 40

// The steps of one walk: tokens of each sequence.
static const int64_t steps[][LP_WALK_SEQUENCES] = {{33, 0, 0}, {1, 7, 0},   {1, 1, 3},
                                                   {8, 33, 1}, {30, 1, 16}, {1, 0, 1}};
#define N_STEPS (sizeof steps / sizeof steps[0])
// In small, where a step takes long.
static const int64_t brief_steps[][LP_WALK_SEQUENCES] = {
    {9, 0, 0}, {1, 3, 0}, {1, 1, 2}, {2, 7, 1}};
#define N_BRIEF (sizeof brief_steps / sizeof brief_steps[0])

struct worst { // of one form of attention
    const char *op;
    double error, bound;
    int64_t n, n_bad, n_alone, n_bad_alone; // alone: in steps of one sequence
    int32_t layer, head, sequence;
    int64_t position, n_rows;
    int32_t n_spans;
    bool selected;
};

struct routes {
    struct lp_exam *exam;
    struct lp_thin *thin;
    struct lp_model *model; // the thin one
    struct lp_walk walk;
    enum lp_route_force force;
    struct lp_walk_part parts[LP_WALK_SEQUENCES]; // of the step that runs
    int32_t n_parts;
    struct worst forms[3]; // expanded, absorbed, gqa
    double *out;           // [v_dim]
    bool no_memory;
};

// ---- against the formula

// Which form the step takes for a span: as route.c decides it.
static bool is_expanded(const struct routes *c, int32_t layer, int64_t n_past, int64_t n_rows) {
    const struct lp_mla_layer *w = &c->model->layers[layer].mla;
    struct lp_route_work work = {.n_query = n_rows,
                                 .n_kv = n_past + n_rows,
                                 .top_k = w->indexer == LP_INDEXER_NONE ? 0 : w->top_k,
                                 .nope = w->nope,
                                 .rope = w->rope_dim,
                                 .latent = w->latent,
                                 .v_dim = w->v_dim,
                                 .force = c->force};
    return lp_route_choose(&work).expanded;
}

static struct lp_formula_keys keys_of(const struct routes *c, int32_t layer, int32_t sequence) {
    const struct lp_page_table *table = &c->walk.tables[sequence];
    struct lp_formula_keys keys = {.latents = lp_kv_view(c->walk.kv, layer, LP_KV_LATENT, table),
                                   .keys = lp_kv_view(c->walk.kv, layer, LP_KV_KEY, table),
                                   .values = lp_kv_view(c->walk.kv, layer, LP_KV_VALUE, table)};
    keys.latents.pages = keys.keys.pages = keys.values.pages = table->pages;
    return keys;
}

struct cell { // one query of one head
    int32_t layer, sequence, head;
    int64_t row, position, n_past, n_rows;
};

static double cell_error(struct routes *c, const struct cell *cell,
                         const struct lp_formula_keys *keys) {
    const struct lp_hparams *h = &c->model->h;
    const struct lp_layer *w = &c->model->layers[cell->layer];
    const struct lp_runner *r = c->walk.runner;
    bool mla = h->arch->attention == LP_ATTENTION_MLA, ok;
    int64_t v_dim = mla ? w->mla.v_dim : w->gqa.v_dim;
    if (mla) {
        int64_t head = w->mla.nope + w->mla.rope_dim;
        const float *q = r->mla.q + (cell->row * w->mla.n_heads + cell->head) * head;
        ok = lp_formula_mla(c->out, &w->mla, cell->head, q, keys, h->attn_scale);
    } else {
        const float *q =
            r->gqa.q + (cell->row * w->gqa.n_heads + cell->head) * (int64_t)w->gqa.head_dim;
        ok = lp_formula_gqa(c->out, &w->gqa, cell->head, q, keys, h->attn_scale);
    }
    if (!ok) c->no_memory = true;
    const float *got = r->attn_out + (cell->row * h->n_heads + cell->head) * v_dim;
    double sum = 0, all = 0;
    for (int64_t d = 0; d < v_dim && ok; d++) {
        sum += (got[d] - c->out[d]) * (got[d] - c->out[d]);
        all += c->out[d] * c->out[d];
    }
    if (!ok || !isfinite(all)) return 0; // what it is made of is not finite already
    return sqrt(sum / fmax(all, 1e-30));
}

static struct worst *form_of(struct routes *c, const struct cell *cell) {
    if (c->model->h.arch->attention != LP_ATTENTION_MLA) return &c->forms[2];
    return &c->forms[is_expanded(c, cell->layer, cell->n_past, cell->n_rows) ? 0 : 1];
}

static void note_cell(struct routes *c, const struct cell *cell, double error, bool selected) {
    struct worst *f = form_of(c, cell);
    f->n++;
    bool is_bad = !(error <= f->bound), first = is_bad && f->n_bad == 0;
    f->n_bad += is_bad;
    f->n_alone += c->n_parts == 1;
    f->n_bad_alone += is_bad && c->n_parts == 1;
    if (!first && (f->n_bad > 0 || error <= f->error)) return; // the first bad one stays
    f->error = error;
    f->layer = c->thin->numbers[cell->layer];
    f->head = cell->head;
    f->sequence = cell->sequence;
    f->position = cell->position;
    f->n_rows = cell->n_rows;
    f->n_spans = c->n_parts;
    f->selected = selected;
}

struct selection { // of the step, on the host
    const int32_t *ids, *counts;
    int64_t stride;
};

static void check_row(struct routes *c, int32_t layer, struct cell *cell,
                      const struct selection *selection) {
    const struct lp_mla_layer *w = &c->model->layers[layer].mla;
    struct lp_formula_keys keys = keys_of(c, layer, cell->sequence);
    int32_t n_heads = c->model->h.n_heads;
    int32_t n = c->exam->options->quick ? QUICK_HEADS : FULL_HEADS;
    bool selects = selection->ids && w->indexer != LP_INDEXER_NONE && c->force != LP_ROUTE_DENSE &&
                   cell->n_past + cell->n_rows > w->top_k;
    keys.n = cell->position + 1;
    if (selects) {
        keys.ids = selection->ids + cell->row * selection->stride;
        keys.n = selection->counts[cell->row];
    }
    if (n > n_heads) n = n_heads;
    for (int32_t i = 0; i < n; i++) {
        cell->head = (int32_t)((layer * 3 + cell->position + i * (n_heads / n)) % n_heads);
        note_cell(c, cell, cell_error(c, cell, &keys), selects);
    }
}

static void on_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                     const int32_t *n_selected, int64_t ids_stride) {
    struct routes *c = user;
    struct selection selection = {selected, n_selected, ids_stride};
    int64_t first_row = 0;
    (void)h;
    for (int32_t i = 0; layer >= 0 && i < c->n_parts; i++) {
        int64_t n = c->parts[i].n, n_past = c->walk.n_past[c->parts[i].sequence];
        for (int k = 0; k < CELLS_OF_SPAN && k < n; k++) {
            int64_t at = n <= CELLS_OF_SPAN ? k : k * (n - 1) / (CELLS_OF_SPAN - 1);
            struct cell cell = {.layer = layer,
                                .sequence = c->parts[i].sequence,
                                .row = first_row + at,
                                .position = n_past + at,
                                .n_past = n_past,
                                .n_rows = n};
            check_row(c, layer, &cell, &selection);
        }
        first_row += n;
    }
}

static lp_status walk_once(struct routes *c, const int32_t *prompt, enum lp_route_force force,
                           struct lp_err *err) {
    lp_status status = LP_OK;
    c->force = force;
    lp_walk_restart(&c->walk);
    size_t n_steps = c->thin->brief ? N_BRIEF : N_STEPS;
    for (size_t i = 0; i < n_steps && !status; i++) {
        int32_t tokens[MAX_ROWS];
        int64_t n_rows = 0;
        c->n_parts = 0;
        for (int32_t s = 0; s < LP_WALK_SEQUENCES; s++) {
            int32_t sequence = (int32_t)((s + i) % LP_WALK_SEQUENCES); // in changing order
            int64_t n = (c->thin->brief ? brief_steps : steps)[i][sequence],
                    past = c->walk.n_past[sequence];
            if (past + n > c->walk.max_context) n = c->walk.max_context - past;
            for (int64_t t = 0; t < n; t++) tokens[n_rows + t] = prompt[past + t + 7 * sequence];
            if (n > 0) c->parts[c->n_parts++] = (struct lp_walk_part){sequence, n};
            n_rows += n > 0 ? n : 0;
        }
        struct lp_step_settings settings = {.force = force, .watch = on_layer, .watch_user = c};
        if (c->n_parts)
            status = lp_walk_step(&c->walk, c->parts, c->n_parts, tokens, &settings, NULL, err);
    }
    return status;
}

static lp_status check_formula(struct routes *c, struct lp_err *err) {
    const struct lp_hparams *h = &c->model->h;
    bool mla = h->arch->attention == LP_ATTENTION_MLA;
    int32_t top_k = c->thin->brief ? BRIEF_TOP_K : SHORT_TOP_K;
    struct lp_walk_options options = {.dev = c->exam->fast,
                                      .kv_type = LP_TYPE_F32,
                                      .max_context =
                                          CONTEXT < h->n_context ? CONTEXT : h->n_context,
                                      .max_rows = MAX_ROWS,
                                      .top_k = h->top_k > top_k ? top_k : 0};
    int32_t *prompt = NULL;
    lp_status status = lp_walk_init(&c->walk, c->model, &options, err);
    if (!status) status = lp_walk_prompt(&prompt, c->exam, CONTEXT + 64, err);
    if (!status) status = walk_once(c, prompt, mla ? LP_ROUTE_EXPANDED : LP_ROUTE_AUTO, err);
    if (!status && mla) status = walk_once(c, prompt, LP_ROUTE_ABSORBED, err);
    if (!status && mla && !c->exam->options->quick)
        status = walk_once(c, prompt, LP_ROUTE_AUTO, err);
    if (!status && h->top_k && !c->exam->options->quick)
        status = walk_once(c, prompt, LP_ROUTE_DENSE, err);
    if (!status && c->no_memory) status = lp_err_memory(err, 0, "attention by its formula");
    lp_walk_release(&c->walk);
    lp_free(prompt);
    return status;
}

static void accuse(struct routes *c, const struct worst *f, const char *check) {
    bool together = f->n_alone > 0 && f->n_bad_alone == 0; // one sequence in a step is right
    lp_report_fault(
        c->exam->report, LP_STAGE_ROUTES, check, f->layer, together ? "batching" : f->op,
        "Attention (%s) is wrong from layer %d on%s: head %d at position %lld of sequence "
        "%d differs from the formula by %.2g, relative (bound %.2g), in a step of %d "
        "sequence%s%s. The file is not at fault; report this%s.",
        f->op, f->layer, together ? ", where several sequences share a step" : "", f->head,
        (long long)f->position, f->sequence, f->error, f->bound, f->n_spans,
        f->n_spans == 1 ? "" : "s", f->selected ? " with selected keys" : "",
        f == &c->forms[0]   ? ", and run with --route absorbed meanwhile"
        : f == &c->forms[1] ? ", and run with --route expanded meanwhile"
                            : "");
}

static void report_formula(struct routes *c) {
    for (size_t i = 0; i < 3; i++) {
        const struct worst *f = &c->forms[i];
        char check[64];
        if (f->n == 0) continue;
        snprintf(check, sizeof check, "%s by its formula", f->op);
        if (!lp_report_measure(c->exam->report, LP_STAGE_ROUTES, check, f->error, f->bound,
                               "%lld outputs of heads on %d layers; %s in layer %d, head %d, "
                               "position %lld",
                               (long long)f->n, c->model->h.n_layers,
                               f->n_bad ? "the first bad one" : "the largest", f->layer, f->head,
                               (long long)f->position))
            accuse(c, f, check);
    }
}

// ---- the forms against each other, on ref

struct streams { // residual streams of two runs, [n_layers + 1, n, n_embd]
    float *a, *b;
    double *error; // [n_layers]
    int64_t n;
};

static double ref_work_of_token(const struct lp_model *m) {
    double work = 0;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(m->gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(m->gguf, i);
        double n = (double)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
        bool routed = t->n_dims == 3 && m->h.n_experts && t->ne[2] == (uint64_t)m->h.n_experts;
        work += routed ? n * m->h.n_used / m->h.n_experts : n;
    }
    return 2 * work; // decoded besides
}

static void compare_streams(const struct routes *c, struct streams *s, int64_t n_rows,
                            double *worst, int32_t *layer) {
    int64_t n_embd = c->model->h.n_embd;
    *worst = 0;
    *layer = -1;
    for (int32_t l = 0; l < c->thin->n_whole; l++) {
        const float *a = s->a + (l + 1) * s->n * n_embd, *b = s->b + (l + 1) * s->n * n_embd;
        s->error[l] = lp_lab_difference(a, b, n_rows * n_embd);
        bool bad_before = *worst > STREAM_BOUND;
        if (bad_before || s->error[l] <= *worst) continue; // the first bad layer stays
        *worst = s->error[l];
        *layer = l;
    }
}

static lp_status stream_of(const struct routes *c, const int32_t *prompt, int64_t n,
                           enum lp_route_force force, float *out, struct lp_err *err) {
    struct lp_lab_run run = {.tokens = prompt, .n_tokens = n, .force = force, .hidden = out};
    return lp_lab_run(c->exam->ref_lab, &run, err);
}

static void report_pair(struct routes *c, const char *check, const char *what, double worst,
                        int32_t layer, const char *advice) {
    if (lp_report_measure(c->exam->report, LP_STAGE_ROUTES, check, worst, STREAM_BOUND,
                          "residual streams on ref; the largest difference behind layer %d", layer))
        return;
    if (lp_report_explained(c->exam->report, LP_STAGE_ROUTES)) return;
    for (size_t i = 0; i < 3; i++)
        if (c->forms[i].n_bad) return; // the formula has told which form it is
    lp_report_fault(
        c->exam->report, LP_STAGE_ROUTES, check, layer, what,
        "The residual streams differ from layer %d on by %.2g, relative (bound %.2g). %s "
        "The file is not at fault; report this.",
        layer, worst, STREAM_BOUND, advice);
}

// A selection that keeps all but one of the keys of the last token keeps all of those before: their
// rows must be those without a selection.
static lp_status check_full_selection(struct routes *c, struct streams *s, const int32_t *prompt,
                                      struct lp_err *err) {
    struct lp_model *m = lp_lab_model(c->exam->ref_lab);
    struct lp_walk_top_k old;
    int32_t layer;
    double worst;
    if (m->h.top_k < s->n) return LP_OK; // buffers of a selection are sized for top-k
    lp_walk_set_top_k(&old, m, (int32_t)s->n - 1);
    lp_status status = stream_of(c, prompt, s->n, LP_ROUTE_ABSORBED, s->b, err);
    lp_walk_restore_top_k(&old);
    if (status) return status;
    compare_streams(c, s, s->n - 1, &worst, &layer);
    report_pair(c, "selection of all keys against none", "index_select", worst, layer,
                "A selection that keeps every key must change nothing.");
    return LP_OK;
}

static lp_status check_streams(struct routes *c, struct lp_err *err) {
    const struct lp_hparams *h = &lp_lab_model(c->exam->ref_lab)->h;
    double seconds = c->exam->options->quick ? REF_QUICK_S : REF_FULL_S, worst;
    double fit = seconds * REF_RATE / (3 * ref_work_of_token(c->model));
    int64_t n = fit < MAX_REF_TOKENS ? (int64_t)fit : MAX_REF_TOKENS;
    int32_t layer, *prompt = NULL;
    if (h->arch->attention != LP_ATTENTION_MLA) return LP_OK;
    if (n > h->n_context) n = h->n_context;
    if (n < MIN_REF_TOKENS) {
        lp_report_say(c->exam->report, LP_STAGE_ROUTES, LP_CHECK_SKIPPED,
                      "expanded against absorbed",
                      "a run of ref takes too long on this size; each form was held against the "
                      "formula");
        return LP_OK;
    }
    struct streams s = {.n = n};
    size_t floats = (size_t)((h->n_layers + 1) * n * h->n_embd);
    s.a = lp_alloc(floats, sizeof *s.a);
    s.b = lp_alloc(floats, sizeof *s.b);
    s.error = lp_alloc((size_t)h->n_layers, sizeof *s.error);
    lp_status status = s.a && s.b && s.error ? lp_walk_prompt(&prompt, c->exam, n, err)
                                             : lp_err_memory(err, 8 * floats, "residual streams");
    if (!status) status = stream_of(c, prompt, n, LP_ROUTE_EXPANDED, s.b, err);
    if (!status) status = stream_of(c, prompt, n, LP_ROUTE_ABSORBED, s.a, err);
    if (!status) {
        compare_streams(c, &s, n, &worst, &layer);
        lp_report_series(c->exam->report, "routes: expanded against absorbed, residual stream",
                         "layer", "relative difference", true, s.error, (size_t)h->n_layers);
        report_pair(c, "expanded against absorbed", "attention", worst, layer,
                    "Expanded and absorbed attention must come to the same.");
        status = check_full_selection(c, &s, prompt, err);
    }
    lp_free(s.a);
    lp_free(s.b);
    lp_free(s.error);
    lp_free(prompt);
    return status;
}

static lp_status run_all(struct routes *c, struct lp_err *err) {
    const struct lp_doctor_options *o = c->exam->options;
    const struct lp_model *m = c->model;
    // The absorbed form of block formats rounds its inputs to 8 bits.
    bool rounds =
        m->layers[0].mla.k_up.n_mats > 0 && lp_weight_may_round(m->layers[0].mla.k_up.type);
    c->forms[0] = (struct worst){.op = "mla_expanded", .bound = EXACT_BOUND};
    c->forms[1] =
        (struct worst){.op = "mla_absorbed", .bound = rounds ? ROUNDED_BOUND : EXACT_BOUND};
    c->forms[2] = (struct worst){.op = "gqa", .bound = EXACT_BOUND};
    if (o->on_stage) o->on_stage(o->user, LP_STAGE_ROUTES, 0);
    lp_status status = check_formula(c, err);
    if (status) return status;
    report_formula(c);
    return check_streams(c, err);
}

lp_status lp_check_routes(struct lp_exam *exam, struct lp_err *err) {
    const char *obstacle = lp_walk_obstacle(exam);
    if (obstacle || !exam->fast->backend->host_memory) {
        lp_report_say(exam->report, LP_STAGE_ROUTES, LP_CHECK_SKIPPED, "forms of attention", "%s",
                      obstacle ? obstacle : "this backend's buffers are not in host memory");
        return LP_OK;
    }
    struct routes c = {.exam = exam};
    lp_status status =
        lp_thin_new(&c.thin, lp_lab_model(exam->fast_lab), exam->options->quick, err);
    if (status) return status;
    c.model = &c.thin->model;
    c.out = lp_alloc((size_t)c.model->h.v_dim, sizeof *c.out);
    status = c.out ? run_all(&c, err) : lp_err_memory(err, 0, "attention by its formula");
    lp_free(c.out);
    lp_thin_free(c.thin);
    return status;
}
