// The steps of a reading.
//
// Passages are cut into groups that fit a step. Hidden states before every `stride`th layer are
// kept from the last whole run, [n_tokens, n_embd] each; a run from a layer begins at the nearest
// one. The cache then still holds the earlier layers' state of that whole run, since every layer
// writes its own alone.
#include "doctor/reading.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "doctor/tap.h"
#include "model/runner.h"

#define MAX_ROWS 256
#define FLOOR_SHARE 0.5 // of chance

struct group { // rows of one step
    struct lp_span *spans;
    int32_t n_spans;
    int64_t first, n_rows; // among all tokens
};

struct lp_reading {
    struct lp_model *model;
    const struct lp_passages *passages;
    struct lp_kv *kv;
    struct lp_runner *runner;
    struct lp_page_table *tables; // [n passages]
    int64_t max_rows;
    int32_t *tokens;  // [n_tokens] all passages
    int32_t *shifted; // [max_rows]
    int32_t *targets; // [n_tokens]: the token that a row must predict, or -1
    struct group *groups;
    int32_t n_groups;
    float *kept; // [n_kept, n_tokens, n_embd]
    int32_t stride, n_kept;
    float *logits;  // [logit_rows, n_vocab]
    int32_t *rows;  // [max_rows] scored rows of a group
    double seconds; // of the last whole run
};

// ---- scores -------------------------------------------------------------------------------------

lp_status lp_scores_new(struct lp_scores *out, int64_t n, struct lp_err *err) {
    *out = (struct lp_scores){.n = n,
                              .logprob = lp_alloc((size_t)n, sizeof(float)),
                              .rank = lp_alloc((size_t)n, sizeof(int32_t)),
                              .entropy = lp_alloc((size_t)n, sizeof(float))};
    if (out->logprob && out->rank && out->entropy) return LP_OK;
    lp_scores_release(out);
    return lp_err_memory(err, (size_t)n * 12, "the scores of texts");
}

void lp_scores_release(struct lp_scores *s) {
    lp_free(s->logprob);
    lp_free(s->rank);
    lp_free(s->entropy);
    *s = (struct lp_scores){0};
}

double lp_reading_floor(const struct lp_model *model) {
    return -FLOOR_SHARE * log((double)model->h.n_vocab);
}

// One row of logits against its target, as token `i` of the scores.
static void score_row(const struct lp_reading *r, const float *z, int32_t target,
                      struct lp_scores *out, int64_t i) {
    int64_t n = r->model->h.n_vocab;
    double max = -INFINITY, sum = 0, weighted = 0, mean = 0, square = 0;
    bool bad = false;
    for (int64_t v = 0; v < n; v++) {
        bad = bad || !isfinite(z[v]);
        if (z[v] > max) max = z[v];
    }
    out->logprob[i] = (float)lp_reading_floor(r->model);
    out->rank[i] = (int32_t)n;
    out->entropy[i] = NAN;
    out->n_bad += bad;
    if (bad || target < 0 || target >= n) return;
    out->rank[i] = 0;
    for (int64_t v = 0; v < n; v++) {
        double e = exp((double)z[v] - max);
        sum += e;
        weighted += e * ((double)z[v] - max);
        mean += z[v];
        square += (double)z[v] * z[v];
        out->max_logit = fmax(out->max_logit, fabs((double)z[v]));
        out->rank[i] += z[v] > z[target];
    }
    double log_sum = log(sum);
    out->logprob[i] = (float)fmax(out->logprob[i], (double)z[target] - max - log_sum);
    out->entropy[i] = (float)(log_sum - weighted / sum);
    mean /= (double)n;
    out->logit_std += sqrt(fmax(0, square / (double)n - mean * mean)) / (double)out->n;
}

// ---- making -------------------------------------------------------------------------------------

static void fill_tokens(struct lp_reading *r) {
    int64_t at = 0;
    for (size_t p = 0; p < r->passages->n; p++) {
        const struct lp_passage *x = &r->passages->list[p];
        memcpy(r->tokens + at, x->tokens, (size_t)x->n_tokens * sizeof *x->tokens);
        for (int32_t i = 0; i < x->n_tokens; i++)
            r->targets[at + i] =
                i + 1 >= x->first_scored && i + 1 < x->n_tokens ? x->tokens[i + 1] : -1;
        at += x->n_tokens;
    }
}

// Cuts the tokens into steps; a passage may lie in several.
static lp_status make_groups(struct lp_reading *r, struct lp_err *err) {
    int64_t total = r->passages->n_tokens, max = r->max_rows;
    size_t n_groups = (size_t)((total + max - 1) / max), at_passage = 0;
    int64_t done = 0; // tokens of the passage that lie in earlier groups
    r->groups = lp_alloc(n_groups, sizeof *r->groups);
    if (!r->groups) return lp_err_memory(err, n_groups * sizeof *r->groups, "steps");
    for (; (size_t)r->n_groups < n_groups; r->n_groups++) {
        struct group *g = &r->groups[r->n_groups];
        g->first = r->n_groups * max;
        g->spans = lp_alloc(r->passages->n, sizeof *g->spans);
        if (!g->spans) return lp_err_memory(err, r->passages->n * sizeof *g->spans, "steps");
        while (at_passage < r->passages->n && g->n_rows < max) {
            int64_t left = r->passages->list[at_passage].n_tokens - done, room = max - g->n_rows;
            int64_t n = left < room ? left : room;
            g->spans[g->n_spans++] = (struct lp_span){.sequence = at_passage,
                                                      .pages = &r->tables[at_passage],
                                                      .n_past = done,
                                                      .first_row = g->n_rows,
                                                      .n_rows = n};
            g->n_rows += n;
            done = n < left ? done + n : 0;
            at_passage += n == left;
        }
    }
    return LP_OK;
}

static lp_status make_cache(struct lp_reading *r, struct lp_err *err) {
    int32_t n = lp_model_kv_count(r->model, false);
    int64_t pages = 0;
    struct lp_kv_layer *layers = lp_alloc((size_t)n, sizeof *layers);
    if (!layers) return lp_err_memory(err, (size_t)n * sizeof *layers, "the layers of the cache");
    lp_model_kv_layers(r->model, false, layers);
    for (size_t i = 0; i < r->passages->n; i++)
        pages += lp_kv_pages_of(r->passages->list[i].n_tokens);
    lp_status status =
        lp_kv_new(&r->kv, r->model->dev, layers, n, LP_TYPE_F32, pages * LP_KV_PAGE_TOKENS, err);
    lp_free(layers);
    for (size_t i = 0; i < r->passages->n && !status; i++)
        status = lp_page_table_grow(&r->tables[i], r->kv, r->passages->list[i].n_tokens, err);
    return status;
}

// The runner's buffers are sized for experiments that use more experts than the model does.
static lp_status make_runner(struct lp_reading *r, struct lp_err *err) {
    int32_t n_used = r->model->h.n_used;
    if (r->model->h.n_experts) r->model->h.n_used = r->model->h.n_experts;
    lp_status status =
        lp_runner_new(&r->runner, r->model, r->kv, r->max_rows, r->passages->longest, false, err);
    r->model->h.n_used = n_used;
    return status;
}

static lp_status make_kept(struct lp_reading *r, size_t keep_bytes, struct lp_err *err) {
    size_t one = (size_t)r->passages->n_tokens * (size_t)r->model->h.n_embd * sizeof(float);
    int32_t n = r->model->h.n_layers;
    if (one > keep_bytes) return LP_OK; // every run is a whole one
    size_t room =
        keep_bytes / one; // states before layers 0, stride, 2 stride ... and after the last
    for (r->stride = 1; (size_t)(n / r->stride + 1) > room && r->stride <= n;) r->stride++;
    r->n_kept = n / r->stride + 1;
    r->kept = lp_alloc((size_t)r->n_kept, one);
    return r->kept ? LP_OK : lp_err_memory(err, one * (size_t)r->n_kept, "hidden states");
}

static lp_status make_parts(struct lp_reading *r, size_t keep_bytes, struct lp_err *err) {
    size_t n = (size_t)r->passages->n_tokens;
    r->tokens = lp_alloc(n, sizeof *r->tokens);
    r->targets = lp_alloc(n, sizeof *r->targets);
    r->tables = lp_alloc(r->passages->n, sizeof *r->tables);
    r->shifted = lp_alloc((size_t)r->max_rows, sizeof *r->shifted);
    r->rows = lp_alloc((size_t)r->max_rows, sizeof *r->rows);
    if (!r->tokens || !r->targets || !r->tables || !r->shifted || !r->rows)
        return lp_err_memory(err, n * 16, "texts");
    fill_tokens(r);
    lp_status status = make_groups(r, err);
    if (!status) status = make_cache(r, err);
    if (!status) status = make_runner(r, err);
    if (!status) status = make_kept(r, keep_bytes, err);
    if (status) return status;
    size_t n_logits = (size_t)r->runner->logit_rows * (size_t)r->model->h.n_vocab;
    if (n_logits < (size_t)r->model->h.n_embd) n_logits = (size_t)r->model->h.n_embd;
    r->logits = lp_alloc(n_logits, sizeof *r->logits);
    return r->logits ? LP_OK : lp_err_memory(err, n_logits * sizeof *r->logits, "logits");
}

static lp_status check_ids(const struct lp_model *model, const struct lp_passages *p,
                           struct lp_err *err) {
    for (size_t i = 0; i < p->n; i++)
        for (int32_t k = 0; k < p->list[i].n_tokens; k++)
            if (p->list[i].tokens[k] < 0 || p->list[i].tokens[k] >= model->h.n_vocab)
                return lp_err_set(err, LP_STATUS_INVALID,
                                  "the text \"%s\" has token id %d, the model has %lld tokens",
                                  p->list[i].name, p->list[i].tokens[k],
                                  (long long)model->h.n_vocab);
    return LP_OK;
}

lp_status lp_reading_new(struct lp_reading **out, struct lp_model *model,
                         const struct lp_passages *passages, size_t keep_bytes,
                         struct lp_err *err) {
    if (passages->n == 0) return lp_err_set(err, LP_STATUS_INVALID, "there are no texts to read");
    lp_status status = check_ids(model, passages, err);
    if (status) return status;
    struct lp_reading *r = lp_alloc(1, sizeof *r);
    if (!r) return lp_err_memory(err, sizeof *r, "a reading");
    r->model = model;
    r->passages = passages;
    r->max_rows = passages->n_tokens < MAX_ROWS ? passages->n_tokens : MAX_ROWS;
    status = make_parts(r, keep_bytes, err);
    if (status)
        lp_reading_free(r);
    else
        *out = r;
    return status;
}

void lp_reading_free(struct lp_reading *r) {
    if (!r) return;
    for (size_t i = 0; r->tables && r->kv && i < r->passages->n; i++)
        lp_page_table_release(&r->tables[i], r->kv);
    for (int32_t i = 0; r->groups && i < r->n_groups; i++) lp_free(r->groups[i].spans);
    lp_runner_free(r->runner);
    lp_kv_free(r->kv);
    lp_free(r->groups);
    lp_free(r->tables);
    lp_free(r->tokens);
    lp_free(r->targets);
    lp_free(r->shifted);
    lp_free(r->rows);
    lp_free(r->kept);
    lp_free(r->logits);
    lp_free(r);
}

// ---- running ------------------------------------------------------------------------------------

struct skip { // a part of a layer that adds nothing
    const struct lp_layer *layer;
    enum lp_part part;
};

static bool skips_matmul(void *user, const struct lp_op_matmul *op) {
    const struct skip *s = user;
    if (s->part == LP_PART_ATTENTION) return op->w == &s->layer->attn_output;
    return op->w == &s->layer->dense.down || op->w == &s->layer->shared.down;
}

static bool skips_experts(void *user, const struct lp_op_experts *op) {
    const struct skip *s = user;
    return s->part == LP_PART_FFN && op->down == &s->layer->experts.down;
}

struct pass { // a run under way
    struct lp_reading *r;
    const struct lp_reading_run *run;
    struct lp_scores *out;
    int64_t scored;       // tokens whose scores are written
    int64_t depth_scored; // rows of this group that by_depth counts
};

static void note_largest(struct pass *p, int32_t slot, int64_t n_rows) {
    const struct lp_reading *r = p->r;
    int64_t width = r->model->h.n_embd;
    if (!p->run->largest) return;
    for (int64_t at = 0; at < n_rows; at++) { // row by row through the buffer for logits
        float *row = r->logits;
        r->model->dev->backend->read(r->model->dev, row, r->runner->h + at * width,
                                     (size_t)width * sizeof *row);
        for (int64_t i = 0; i < width; i++) {
            double a = fabs((double)row[i]);
            if (!(a <= p->run->largest[slot])) p->run->largest[slot] = a;
        }
    }
}

// Scored rows of a group, ascending.
static int64_t scored_rows(struct lp_reading *r, const struct group *g) {
    int64_t n = 0;
    for (int64_t i = 0; i < g->n_rows; i++)
        if (r->targets[g->first + i] >= 0) r->rows[n++] = (int32_t)i;
    return n;
}

// Norm, head and scores of n scored rows from `from` on; out's tokens begin at `at`.
static void score_block(struct pass *p, const struct group *g, int64_t from, int64_t n,
                        struct lp_scores *out, int64_t at) {
    struct lp_reading *r = p->r;
    const struct lp_hparams *h = &r->model->h;
    struct lp_device *dev = r->model->dev;
    for (int64_t i = 0; i < n; i++)
        lp_runner_norm(r->runner, r->runner->h + r->rows[from + i] * h->n_embd, h->n_embd,
                       r->model->output_norm, r->runner->logit_x + i * h->n_embd, h->n_embd, 1);
    lp_runner_head(r->runner, &r->model->output, r->runner->logit_x, n);
    dev->backend->read(dev, r->logits, r->runner->logits,
                       (size_t)n * (size_t)h->n_vocab * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        score_row(r, r->logits + i * h->n_vocab,
                  r->targets[g->first + r->rows[from + i]] + p->run->target_shift, out, at + i);
}

static void score_group(struct pass *p, const struct group *g) {
    struct lp_reading *r = p->r;
    int64_t n = scored_rows(r, g), block = r->runner->logit_rows;
    for (int64_t i = 0; i < n; i += block) {
        int64_t count = n - i < block ? n - i : block;
        score_block(p, g, i, count, p->out, p->scored);
        p->scored += count;
    }
}

// The mean of what the head says about this group's first scored rows at this depth.
static void score_depth(struct pass *p, const struct group *g, int32_t slot, struct lp_scores *s) {
    if (!p->run->by_depth || g->first) return;
    int64_t n = scored_rows(p->r, g), sum_n = n < s->n ? n : s->n;
    double sum = 0;
    score_block(p, g, 0, sum_n, s, 0);
    for (int64_t i = 0; i < sum_n; i++) sum += s->logprob[i];
    p->run->by_depth[slot] = sum_n ? sum / (double)sum_n : NAN;
}

static void keep_or_take(struct pass *p, const struct group *g, int32_t layer, bool keep) {
    struct lp_reading *r = p->r;
    struct lp_device *dev = r->model->dev;
    int64_t width = r->model->h.n_embd;
    if (!r->stride || layer % r->stride) return;
    float *rows = r->kept + ((layer / r->stride) * r->passages->n_tokens + g->first) * width;
    size_t bytes = (size_t)(g->n_rows * width) * sizeof *rows;
    if (keep)
        dev->backend->read(dev, rows, r->runner->h, bytes);
    else
        dev->backend->write(dev, r->runner->h, rows, bytes);
}

static void begin(struct pass *p, const struct group *g, int32_t first_layer) {
    struct lp_reading *r = p->r;
    struct lp_device *dev = r->model->dev;
    int64_t n_vocab = r->model->h.n_vocab;
    for (int64_t i = 0; i < g->n_rows; i++) {
        int64_t id = r->tokens[g->first + i] + p->run->input_shift;
        r->shifted[i] = (int32_t)(id < 0 ? 0 : id >= n_vocab ? n_vocab - 1 : id);
    }
    lp_runner_upload(r->runner, r->shifted, g->spans, g->n_spans, g->n_rows);
    if (first_layer > 0) {
        keep_or_take(p, g, first_layer, false);
        return;
    }
    dev->backend->embed(dev, &(struct lp_op_embed){.table = &r->model->token_embd,
                                                   .ids = r->runner->tokens,
                                                   .out = r->runner->h,
                                                   .out_stride = r->model->h.n_embd,
                                                   .n_rows = g->n_rows});
}

static void run_group(struct pass *p, const struct group *g, int32_t first_layer,
                      struct lp_scores *depth) {
    struct lp_reading *r = p->r;
    struct lp_step_settings settings = {.force = p->run->force};
    struct lp_attn_step attn =
        lp_runner_attention(r->runner, g->spans, g->n_spans, g->n_rows, &settings);
    begin(p, g, first_layer);
    note_largest(p, 0, g->n_rows);
    score_depth(p, g, 0, depth);
    for (int32_t l = first_layer; l < r->model->h.n_layers; l++) {
        if (p->run->keep) keep_or_take(p, g, l, true);
        lp_runner_layer(r->runner, l, &attn, &settings);
        note_largest(p, l + 1, g->n_rows);
        score_depth(p, g, l + 1, depth);
    }
    if (p->run->keep) keep_or_take(p, g, r->model->h.n_layers, true);
    score_group(p, g);
}

// Whether the indexer leaves keys out in any passage: then the selection of an earlier layer counts.
static bool selects(const struct lp_reading *r) {
    int32_t top_k = 0;
    for (int32_t l = 0; l < r->model->h.n_layers && r->model->h.top_k; l++)
        if (top_k == 0 || r->model->layers[l].mla.top_k < top_k)
            top_k = r->model->layers[l].mla.top_k;
    return top_k && r->passages->longest > top_k;
}

lp_status lp_reading_run(struct lp_reading *r, const struct lp_reading_run *run,
                         struct lp_scores *out, struct lp_err *err) {
    struct pass p = {.r = r, .run = run, .out = out};
    struct lp_scores depth = {0};
    struct skip skip = {&r->model->layers[run->skip_layer], run->skip};
    struct lp_tap tap = {
        .user = &skip, .skips_matmul = skips_matmul, .skips_experts = skips_experts};
    int32_t first = r->stride && !run->keep && !selects(r) ? run->from_layer : 0;
    uint64_t start = lp_clock_ns();
    if (first) first -= first % r->stride;
    out->logit_std = out->max_logit = 0;
    out->n_bad = 0;
    for (int32_t i = 0; run->largest && i <= r->model->h.n_layers; i++) run->largest[i] = 0;
    if (run->by_depth) {
        lp_status status = lp_scores_new(&depth, r->runner->logit_rows, err);
        if (status) return status;
    }
    if (run->skip) lp_tap_open(&tap, r->model->dev);
    for (int32_t i = 0; i < r->n_groups; i++) run_group(&p, &r->groups[i], first, &depth);
    if (run->skip) lp_tap_close(&tap);
    lp_scores_release(&depth);
    if (!first) r->seconds = (double)(lp_clock_ns() - start) * 1e-9;
    return LP_OK;
}

lp_status lp_reading_time_token(struct lp_model *model, const struct lp_tokenizer *tokenizer,
                                const struct lp_gguf *gguf, double *seconds, struct lp_err *err) {
    struct lp_texts_choice choice = {
        .quick = true, .plain = true, .max_tokens = model->h.n_context, .max_all = 1};
    struct lp_passages passages = {0};
    struct lp_reading *reading = NULL;
    struct lp_scores scores = {0};
    lp_status status = lp_texts_encode(&passages, tokenizer, gguf, &choice, err);
    if (!status) status = lp_reading_new(&reading, model, &passages, 0, err);
    if (!status) status = lp_scores_new(&scores, passages.n_scored, err);
    if (!status)
        status = lp_reading_run(reading, &(struct lp_reading_run){.keep = true}, &scores, err);
    if (!status) *seconds = reading->seconds / (double)passages.n_tokens;
    lp_reading_free(reading);
    lp_scores_release(&scores);
    lp_passages_release(&passages);
    return status;
}
