// One step: tokens in, logits out. The layer reads like the paper:
//
//   h = embedding;  for each layer:  h += W_o attention(norm(h));  h += ffn(norm(h));
//   logits = W_out norm(h)
#include <assert.h>
#include <math.h>
#include <string.h>

#include "attention/attn_probe.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fault.h"
#include "model/expert_cache.h"
#include "model/runner.h"
#include "model/shard.h"

static int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// n_rows * width values of 4 bytes on the device. After a failure *status stays set.
static void *take(struct lp_runner *r, int64_t n_rows, int64_t width, lp_status *status,
                  struct lp_err *err) {
    struct lp_device *dev = r->model->dev;
    size_t bytes;
    if (*status || width == 0 || n_rows == 0) return NULL;
    assert((size_t)r->n_blocks < sizeof r->blocks / sizeof r->blocks[0]);
    if (!lp_mul_size((size_t)n_rows, (size_t)width, &bytes) || !lp_mul_size(bytes, 4, &bytes) ||
        !(r->blocks[r->n_blocks] = dev->backend->alloc(dev, bytes))) {
        *status = lp_err_set(err, LP_STATUS_MEMORY,
                             "out of memory: step buffers of %lld rows x %lld values; lower "
                             "--chunk",
                             (long long)n_rows, (long long)width);
        return NULL;
    }
    r->bytes += bytes;
    return r->blocks[r->n_blocks++];
}

static void take_attention(struct lp_runner *r, int64_t n, lp_status *status, struct lp_err *err) {
    const struct lp_hparams *h = &r->model->h;
    int64_t heads = h->n_heads;
    if (h->arch->attention == LP_ATTENTION_GQA) {
        r->gqa.q = take(r, n, heads * h->head_dim, status, err);
        r->gqa.k = take(r, n, (int64_t)h->n_kv_heads * h->head_dim, status, err);
        r->gqa.v = take(r, n, (int64_t)h->n_kv_heads * h->v_dim, status, err);
        r->attn_out = r->gqa.out = take(r, n, heads * h->v_dim, status, err);
        return;
    }
    r->mla.q_low = take(r, n, h->q_rank, status, err);
    r->mla.q = take(r, n, heads * (h->nope + h->rope_dim), status, err);
    r->mla.kv = take(r, n, h->latent + h->rope_dim, status, err);
    r->mla.q_latent = take(r, n, heads * h->latent, status, err);
    r->mla.z = take(r, n, heads * h->latent, status, err);
    r->attn_out = r->mla.out = take(r, n, heads * h->v_dim, status, err);
    if (!h->top_k) return;
    r->mla.index_q = take(r, n, (int64_t)h->index_heads * h->index_width, status, err);
    r->mla.index_k = take(r, n, h->index_width, status, err);
    r->mla.index_w = take(r, n, h->index_heads, status, err);
    r->mla.ids_stride = h->top_k < r->max_context ? h->top_k : r->max_context;
    r->mla.selected = take(r, n, r->mla.ids_stride, status, err);
    r->mla.n_selected = take(r, n, 1, status, err);
}

static int64_t widest_ffn(const struct lp_hparams *h, bool with_mtp) {
    int64_t width = h->shared_ff;
    for (int32_t l = 0; l < h->n_layers + with_mtp; l++)
        if (h->n_experts == 0 || l < h->n_dense) width = max_i64(width, h->n_ff[l]);
    return width;
}

static lp_status reserve_device(struct lp_runner *r, struct lp_err *err) {
    const struct lp_hparams *h = &r->model->h;
    bool mla = h->arch->attention == LP_ATTENTION_MLA;
    int64_t head = mla ? h->nope + h->rope_dim : h->head_dim;
    int64_t width = max_i64(max_i64(r->pair ? 2 * h->n_embd : h->n_embd, r->ffn_width),
                            max_i64(h->n_heads * head, (int64_t)h->n_heads * h->v_dim));
    width = max_i64(width, max_i64(h->n_vocab, max_i64(h->expert_ff, h->n_experts)));
    width = max_i64(width, max_i64(h->q_rank, (int64_t)h->index_heads * h->index_width));
    struct lp_reserve need = {.n_rows = r->max_rows,
                              .n_context = r->max_context,
                              .max_width = width,
                              .n_experts = h->n_experts,
                              .n_used = h->n_used,
                              .expert_width = h->expert_ff,
                              .n_embd = h->n_embd,
                              .n_heads = h->n_heads,
                              .latent = mla ? h->latent : 0,
                              .rope = mla ? h->rope_dim : 0,
                              .nope = mla ? h->nope : 0,
                              .v_dim = h->v_dim,
                              .index_heads = h->index_heads,
                              .index_width = h->index_width};
    struct lp_device *dev = r->model->dev;
    return dev->backend->reserve(dev, &need, err);
}

static void take_drafts(struct lp_runner *r, int64_t n, lp_status *status, struct lp_err *err) {
    const struct lp_hparams *h = &r->model->h;
    if (lp_shard_is_last_stage(r->model)) r->pair = take(r, n, 2 * h->n_embd, status, err);
    r->mtp_tokens = lp_alloc((size_t)n, sizeof *r->mtp_tokens);
    r->mtp_spans = lp_alloc((size_t)n, sizeof *r->mtp_spans);
    r->mtp_owner = lp_alloc((size_t)n, sizeof *r->mtp_owner);
    r->mtp_logits = lp_alloc((size_t)h->n_vocab, sizeof *r->mtp_logits);
    if (*status || (r->mtp_tokens && r->mtp_spans && r->mtp_owner && r->mtp_logits)) return;
    *status = lp_err_memory(err, (size_t)n * sizeof *r->mtp_spans, "the rows of the MTP layer");
}

static void take_guesses(struct lp_runner *r, lp_status *status, struct lp_err *err) {
    const struct lp_hparams *h = &r->model->h;
    r->guess_x = take(r, LP_RUNNER_GUESS_ROWS, h->n_embd, status, err);
    r->guess_logits = take(r, LP_RUNNER_GUESS_ROWS, h->n_experts, status, err);
    r->guess_ids = take(r, LP_RUNNER_GUESS_ROWS, h->n_used, status, err);
    r->guess_weights = take(r, LP_RUNNER_GUESS_ROWS, h->n_used, status, err);
}

static lp_status check_mtp(const struct lp_model *model, struct lp_err *err) {
    if (model->has_mtp) return LP_OK;
    const char *why = model->binding.mtp_reason;
    return lp_err_set(err, LP_STATUS_INVALID,
                      "this model cannot draft: it has no MTP layer that can be used%s%s",
                      why ? "; " : "", why ? why : "");
}

static void take_tops(struct lp_runner *r, lp_status *status, struct lp_err *err) {
    const size_t n = (size_t)r->logit_rows;
    r->tops = take(r, r->logit_rows, sizeof *r->tops / 4, status, err);
    r->scales = take(r, r->logit_rows, sizeof *r->scales / 4, status, err);
    r->host_tops = lp_alloc(n, sizeof *r->host_tops);
    r->host_scales = lp_alloc(n, sizeof *r->host_scales);
    if (!*status && (!r->host_tops || !r->host_scales))
        *status = lp_err_memory(err, n * sizeof *r->host_tops, "the largest logits of rows");
}

lp_status lp_runner_new(struct lp_runner **out, struct lp_model *model, struct lp_kv *kv,
                        int64_t max_rows, int64_t max_context, bool with_mtp, struct lp_err *err) {
    const struct lp_hparams *h = &model->h;
    lp_status status = with_mtp ? check_mtp(model, err) : LP_OK;
    if (status) return status;
    struct lp_runner *r = lp_alloc(1, sizeof *r);
    if (!r) return lp_err_memory(err, sizeof *r, "the runner");
    *r = (struct lp_runner){.model = model,
                            .kv = kv,
                            .max_rows = max_rows,
                            .max_context = max_context,
                            .ffn_width = widest_ffn(h, with_mtp),
                            .logit_rows =
                                max_rows < LP_RUNNER_LOGIT_ROWS ? max_rows : LP_RUNNER_LOGIT_ROWS};
    r->host_positions = lp_alloc((size_t)max_rows, sizeof *r->host_positions);
    r->host_pages = lp_alloc((size_t)max_rows, sizeof *r->host_pages);
    r->host_rows = lp_alloc((size_t)LP_RUNNER_LOGIT_ROWS * (size_t)h->n_embd, sizeof *r->host_rows);
    if (!r->host_positions || !r->host_pages || !r->host_rows)
        status = lp_err_memory(err, (size_t)(max_rows * 3 + LP_RUNNER_LOGIT_ROWS * h->n_embd) * 4,
                               "positions and rows");
    r->tokens = take(r, max_rows, 1, &status, err);
    r->positions = take(r, max_rows, 1, &status, err);
    if (model->dev->backend->batches)
        r->row_pages = take(r, max_rows, sizeof *r->row_pages / 4, &status, err);
    r->h = take(r, max_rows, h->n_embd, &status, err);
    r->x = take(r, max_rows, h->n_embd, &status, err);
    take_attention(r, max_rows, &status, err);
    r->gate = take(r, max_rows, r->ffn_width, &status, err);
    r->up = take(r, max_rows, r->ffn_width, &status, err);
    r->router_logits = take(r, max_rows, h->n_experts, &status, err);
    r->expert_ids = take(r, max_rows, h->n_used, &status, err);
    r->expert_weights = take(r, max_rows, h->n_used, &status, err);
    if (model->expert_cache) take_guesses(r, &status, err);
    float *sum = model->n_host_layers ? take(r, max_rows, h->n_embd, &status, err) : NULL;
    r->logit_x = take(r, r->logit_rows, h->n_embd, &status, err);
    r->logits = take(r, r->logit_rows, h->n_vocab, &status, err);
    if (model->dev->backend->scan_rows) {
        r->found = take(r, max_rows, LP_RUNNER_FOUND, &status, err);
        r->skip = take(r, (h->n_vocab + 3) / 4, 1, &status, err);
        r->host_found = lp_alloc((size_t)max_rows * LP_RUNNER_FOUND, sizeof *r->host_found);
        if (!r->host_found) status = lp_err_memory(err, (size_t)max_rows * 12, "scanned rows");
    }
    if (model->dev->backend->top_rows && model->dev->backend->scan_rows) take_tops(r, &status, err);
    if (with_mtp) take_drafts(r, max_rows, &status, err);
    if (!status) status = lp_step_trace_init(&r->tracing, max_rows, h->n_used, h->n_experts, err);
    if (!status) status = reserve_device(r, err);
    if (!status) status = lp_host_experts_init(&r->host_experts, model, max_rows, sum, err);
    if (status) {
        lp_runner_free(r);
        return status;
    }
    *out = r;
    return LP_OK;
}

void lp_runner_free(struct lp_runner *r) {
    if (!r) return;
    if (r->model->dev->backend->replay_forget)
        r->model->dev->backend->replay_forget(r->model->dev, r);
    for (int i = 0; i < r->n_blocks; i++) r->model->dev->backend->free(r->model->dev, r->blocks[i]);
    lp_free(r->host_positions);
    lp_free(r->host_pages);
    lp_free(r->host_rows);
    lp_free(r->host_found);
    lp_free(r->host_tops);
    lp_free(r->host_scales);
    lp_step_trace_release(&r->tracing);
    lp_host_experts_release(&r->host_experts);
    lp_ranks_release(r);
    lp_free(r->mtp_tokens);
    lp_free(r->mtp_spans);
    lp_free(r->mtp_owner);
    lp_free(r->mtp_logits);
    lp_free(r);
}

size_t lp_runner_bytes(const struct lp_runner *r) {
    return r->bytes + r->model->dev->backend->scratch_bytes(r->model->dev);
}

struct lp_route_counts lp_runner_route_counts(const struct lp_runner *r) {
    return r->routes;
}

uint64_t lp_runner_next_step(const struct lp_runner *r) {
    return r->n_steps;
}

void lp_runner_set_counts(struct lp_runner *r, uint64_t next_step, struct lp_route_counts routes) {
    r->n_steps = next_step;
    r->routes = routes;
}

static struct lp_op_rms_norm norm_of(const struct lp_runner *r, const float *x, int64_t x_stride,
                                     const float *w, float *y, int64_t y_stride, int64_t n_rows) {
    return (struct lp_op_rms_norm){.x = x,
                                   .x_stride = x_stride,
                                   .w = w,
                                   .eps = r->model->h.eps,
                                   .y = y,
                                   .y_stride = y_stride,
                                   .n_rows = n_rows,
                                   .width = (int32_t)r->model->h.n_embd};
}

void lp_runner_norm(struct lp_runner *r, const float *x, int64_t x_stride, const float *w, float *y,
                    int64_t y_stride, int64_t n_rows) {
    const struct lp_op_rms_norm op = norm_of(r, x, x_stride, w, y, y_stride, n_rows);
    r->model->dev->backend->rms_norm(r->model->dev, &op);
}

// h, normed, to x; next: the first weight that is multiplied with it (lp_op_rms_norm).
static void norm(struct lp_runner *r, const float *w, int64_t n_rows, const struct lp_weight *next,
                 int32_t next_used) {
    const int64_t n_embd = r->model->h.n_embd;
    struct lp_op_rms_norm op = norm_of(r, r->h, n_embd, w, r->x, n_embd, n_rows);
    op.next = next;
    op.next_used = next_used;
    r->model->dev->backend->rms_norm(r->model->dev, &op);
}

static const struct lp_weight *first_of_attention(const struct lp_runner *r, int32_t l) {
    const struct lp_layer *w = &r->model->layers[l];
    if (r->model->h.arch->attention != LP_ATTENTION_MLA) return &w->gqa.q;
    return w->mla.has_q_rank ? &w->mla.q_a : w->mla.n_heads > 0 ? &w->mla.q : &w->mla.kv_a;
}

void lp_runner_fix_results(struct lp_runner *r, bool fixed) {
    struct lp_device *devices[] = {r->model->dev, r->model->expert_dev};
    for (int i = 0; i < 2; i++)
        if (devices[i] && devices[i]->backend->fix_results)
            devices[i]->backend->fix_results(devices[i], fixed);
}

struct lp_attn_step lp_runner_attention(struct lp_runner *r, const struct lp_span *spans,
                                        int32_t n_spans, int64_t n_rows,
                                        const struct lp_step_settings *settings) {
    struct lp_device *dev = r->model->dev;
    lp_runner_fix_results(r, settings->deterministic);
    lp_ranks_divide_rows(r, spans, n_spans);
    return (struct lp_attn_step){.dev = dev,
                                 .kv = r->kv,
                                 .trace = settings->trace,
                                 .step = r->step,
                                 .spans = spans,
                                 .n_spans = n_spans,
                                 .n_rows = n_rows,
                                 .positions = r->positions,
                                 .row_pages = (const int32_t *const *)r->row_pages,
                                 .max_context = r->max_context,
                                 .force = settings->force,
                                 .deterministic = settings->deterministic,
                                 .probe = settings->probe,
                                 .routes = &r->routes,
                                 .clock = settings->clock};
}

// h += W_o attn_out
static void project_attention(struct lp_runner *r, int32_t l, const struct lp_attn_step *attn,
                              const struct lp_step_settings *settings) {
    (void)settings;
    const struct lp_weight *w = &r->model->layers[l].attn_output;
    struct lp_device *dev = r->model->dev;
    if (w->n_in == 0) return; // no head is on this rank
    dev->backend->matmul(dev, &(struct lp_op_matmul){.w = w,
                                                     .x = r->attn_out,
                                                     .x_stride = w->n_in,
                                                     .y = r->h,
                                                     .y_stride = r->model->h.n_embd,
                                                     .n_rows = attn->n_rows,
                                                     .accumulate = true});
}

// The weights that a layer reads between its attention and its routed experts.
#define MAX_AHEAD 5
#define AHEAD_ROWS 4 // rows up to which a step waits for memory, not for arithmetic
static int32_t weights_ahead(const struct lp_layer *w, const struct lp_weight **list) {
    const struct lp_ffn *ffn = w->is_moe ? &w->shared : &w->dense;
    const struct lp_weight *all[MAX_AHEAD] = {&w->mla.v_up, &w->attn_output, &ffn->gate, &ffn->up,
                                              &ffn->down};
    const int32_t n = w->is_moe && !w->has_shared ? 2 : MAX_AHEAD;
    memcpy(list, all, (size_t)n * sizeof *list);
    return n;
}

static void attend(struct lp_runner *r, int32_t l, const struct lp_attn_step *attn) {
    const struct lp_layer *w = &r->model->layers[l];
    const struct lp_weight *ahead[MAX_AHEAD];
    struct lp_attn_step step = *attn;
    step.n_ahead = weights_ahead(w, ahead);
    if (attn->n_rows <= AHEAD_ROWS) step.ahead = ahead;
    if (r->model->h.arch->attention == LP_ATTENTION_MLA)
        lp_mla_attend(&step, l, &w->mla, &r->mla, r->x, r->model->h.n_embd);
    else if (w->gqa.n_heads > 0)
        lp_gqa_attend(&step, l, &w->gqa, &r->gqa, r->x, r->model->h.n_embd);
}

// h += W_o attention(norm(h)) of the rows in r->h
static void add_attention(struct lp_runner *r, int32_t l, const struct lp_attn_step *attn,
                          const struct lp_step_settings *settings) {
    const struct lp_layer *w = &r->model->layers[l];
    norm(r, w->attn_norm, attn->n_rows, first_of_attention(r, l), 0);
    lp_step_lap(attn->clock, LP_STEP_PART_OTHER);
    lp_attn_probe(attn, LP_PROBE_ATTN_NORM, l, r->x, r->model->h.n_embd);
    attend(r, l, attn);
    lp_runner_probe_added(r, LP_PROBE_ATTN_PROJ, l, attn, project_attention);
    lp_ranks_begin_attention(r, attn->n_rows);
    project_attention(r, l, attn, settings);
    lp_step_lap(attn->clock, LP_STEP_PART_PROJECT);
}

// The routes of a layer's spans, where it ran without counting them.
static void take_layer_routes(struct lp_runner *r, int32_t l, const struct lp_attn_step *attn) {
    if (r->model->h.arch->attention == LP_ATTENTION_MLA)
        lp_mla_take_routes(attn, l, &r->model->layers[l].mla);
    else
        lp_gqa_take_routes(attn, l);
}

void lp_runner_layer(struct lp_runner *r, int32_t l, const struct lp_attn_step *attn,
                     const struct lp_step_settings *settings) {
    const struct lp_layer *w = &r->model->layers[l];
    int64_t n_embd = r->model->h.n_embd, n_rows = attn->n_rows, first_row;
    struct lp_attn_step own = lp_ranks_own_part(r, attn, &first_row);
    float *stream = r->h;
    r->h = stream + first_row * n_embd;
    if (own.n_rows > 0) add_attention(r, l, &own, settings);
    r->h = stream;
    if (r->model->part.data_attention) take_layer_routes(r, l, attn); // of all ranks' sequences
    if (w->is_moe && r->model->part.sends_rows) {
        r->h = stream + first_row * n_embd;
        if (own.n_rows > 0) norm(r, w->ffn_norm, own.n_rows, NULL, 0);
        lp_ffn_run(r, l, &own, settings);
        r->h = stream;
        return;
    }
    lp_ranks_end_attention(r, n_rows, attn->clock);
    lp_ranks_gather_stream(r, n_rows, attn->clock);
    lp_attn_probe(attn, LP_PROBE_ATTN_RESIDUAL, l, r->h, n_embd);
    lp_ffn_look_ahead(r, l, n_rows);
    int32_t n_used;
    const struct lp_weight *next = lp_ffn_first(r, l, &n_used);
    norm(r, w->ffn_norm, n_rows, next, n_used);
    lp_step_lap(attn->clock, LP_STEP_PART_OTHER);
    lp_attn_probe(attn, LP_PROBE_FFN_NORM, l, r->x, n_embd);
    lp_runner_probe_added(r, LP_PROBE_FFN_OUT, l, attn, lp_ffn_run);
    lp_ranks_begin_sum(r, n_rows);
    lp_ffn_run(r, l, attn, settings);
    lp_ranks_end_sum(r, n_rows, attn->clock);
    lp_attn_probe(&own, LP_PROBE_LAYER_OUT, l, r->h + first_row * n_embd, n_embd);
}

// Do these spans select keys? (then `selected` holds the last full layer's choice)
static bool spans_select(const struct lp_runner *r, const struct lp_attn_step *attn,
                         const struct lp_span *spans, int32_t n_spans) {
    const struct lp_hparams *h = &r->model->h;
    for (int32_t i = 0; i < n_spans && h->top_k && attn->force != LP_ROUTE_DENSE; i++)
        if (spans[i].n_past + spans[i].n_rows > h->top_k) return true;
    return false;
}

static bool selects(const struct lp_runner *r, const struct lp_attn_step *attn) {
    return spans_select(r, attn, attn->spans, attn->n_spans);
}

bool lp_runner_lacks_experts(const struct lp_runner *r) {
    return r->model->expert_cache && !r->model->ranks &&
           lp_expert_cache_has_failed(r->model->expert_cache);
}

lp_status lp_runner_lack(struct lp_runner *r, struct lp_err *err) {
    const lp_status status =
        r->model->expert_cache ? lp_expert_cache_failure(r->model->expert_cache, err) : LP_OK;
    r->ranks.lacked = status != LP_OK;
    return status;
}

lp_status lp_runner_device_failure(struct lp_runner *r, struct lp_err *err) {
    struct lp_device *dev = r->model->dev;
    return dev->backend->failed ? dev->backend->failed(dev, err) : LP_OK;
}

bool lp_runner_has_failed(const struct lp_runner *r) {
    const struct lp_backend *backend = r->model->dev->backend;
    return (backend->failed && backend->failed(r->model->dev, NULL)) ||
           (r->model->ranks && lp_comm_failed(r->model->ranks, NULL));
}

static lp_status check_step(const struct lp_runner *r, const struct lp_step *step,
                            struct lp_err *err) {
    if (step->n_rows < 1 || step->n_rows > r->max_rows)
        return lp_err_set(err, LP_STATUS_INVALID, "a step has %lld tokens, at most %lld fit",
                          (long long)step->n_rows, (long long)r->max_rows);
    for (int64_t t = 0; t < step->n_rows; t++)
        if (step->tokens[t] < 0 || step->tokens[t] >= r->model->h.n_vocab)
            return lp_err_set(err, LP_STATUS_INVALID,
                              "token id %d is out of range, the model has %lld tokens",
                              step->tokens[t], (long long)r->model->h.n_vocab);
    for (int32_t i = 0; i < step->n_spans; i++)
        if (step->spans[i].n_past + step->spans[i].n_rows > r->max_context)
            return lp_err_set(err, LP_STATUS_LIMIT,
                              "the sequence would have %lld tokens, the context is %lld",
                              (long long)(step->spans[i].n_past + step->spans[i].n_rows),
                              (long long)r->max_context);
    return LP_OK;
}

void lp_runner_place_rows(struct lp_runner *r, const struct lp_span *spans, int32_t n_spans) {
    for (int32_t i = 0; i < n_spans; i++)
        for (int64_t t = 0; t < spans[i].n_rows; t++) {
            r->host_positions[spans[i].first_row + t] =
                (int32_t)(spans[i].n_past + t + (LP_FAULT("chunk-position") && spans[i].n_past));
            r->host_pages[spans[i].first_row + t] = spans[i].pages->device_pages;
        }
}

void lp_runner_upload(struct lp_runner *r, const int32_t *tokens, const struct lp_span *spans,
                      int32_t n_spans, int64_t n_rows) {
    struct lp_device *dev = r->model->dev;
    lp_runner_place_rows(r, spans, n_spans);
    size_t bytes = (size_t)n_rows * sizeof(int32_t);
    dev->backend->write(dev, r->tokens, tokens, bytes);
    dev->backend->write(dev, r->positions, r->host_positions, bytes);
    if (r->row_pages)
        dev->backend->write(dev, r->row_pages, r->host_pages,
                            (size_t)n_rows * sizeof *r->host_pages);
}

// Of the fault "nan-in-layer": one value of the residual stream at this position.
static inline void plant_nan(struct lp_runner *r, int64_t n_rows, int32_t position) {
    struct lp_device *dev = r->model->dev;
    const float bad = NAN;
    for (int64_t t = 0; t < n_rows; t++)
        if (r->host_positions[t] == position)
            dev->backend->write(dev, r->h + t * r->model->h.n_embd + 3, &bad, sizeof bad);
}

static void call_layers(struct lp_runner *r, const struct lp_attn_step *attn,
                        const struct lp_step_settings *settings) {
    bool selected = selects(r, attn);
    const struct lp_range layers = lp_shard_layers(r->model);
    const int32_t end = (int32_t)(layers.first + layers.n);
    for (int32_t l = (int32_t)layers.first; l < end && !lp_runner_lacks_experts(r); l++) {
        if (r->model->ranks && lp_comm_failed(r->model->ranks, NULL)) return; // R1
        lp_runner_layer(r, l, attn, settings);
        if (LP_FAULT("nan-in-layer") && l == 2) plant_nan(r, attn->n_rows, 200);
        if (l + 1 == end || settings->watch || r->ranks.watched)
            lp_ranks_gather_stream(r, attn->n_rows, attn->clock);
        lp_ranks_show_layer(r, attn->n_rows, selected);
        lp_ranks_probe_layer(r);
        if (selected) lp_ranks_show_selection(r, settings->watch && !lp_ranks_follows(r));
        if (settings->watch)
            settings->watch(settings->watch_user, l, r->h, selected ? r->mla.selected : NULL,
                            r->mla.n_selected, r->mla.ids_stride);
    }
}

// The routes of layers that run from a recording.
static void take_routes(struct lp_runner *r, const struct lp_attn_step *attn) {
    const struct lp_range layers = lp_shard_layers(r->model);
    for (int64_t l = layers.first; l < layers.first + layers.n; l++)
        take_layer_routes(r, (int32_t)l, attn);
}

// Whether attention of these spans depends on nothing but *keys: every row goes through lp_op_batch, in the absorbed
// form.
static bool go_together(const struct lp_runner *r, const struct lp_attn_step *attn,
                        const struct lp_span *spans, int32_t n_spans, int64_t *keys) {
    const struct lp_layer *first = &r->model->layers[lp_shard_layers(r->model).first];
    const bool is_mla = r->model->h.arch->attention == LP_ATTENTION_MLA;
    const struct lp_together t = lp_attn_together(attn, spans, n_spans);
    if (t.n_spans < n_spans) return false;
    for (int32_t i = 0; is_mla && i < n_spans; i++)
        if (lp_mla_route(attn, &first->mla, &spans[i]).expanded) return false;
    *keys = t.batch.most_keys;
    return true;
}

// The same of each rank's sequences. All ranks come to the same key, with what every one of them depends on: exchanges
// of devices must be recorded by all of a group or by none.
static bool parts_go_together(struct lp_runner *r, const struct lp_attn_step *attn,
                              struct lp_replay_key *key) {
    const int32_t size = r->model->part.n_tensor;
    size_t *part = r->ranks.spans_of;
    for (int32_t rank = 0, at = 0, n; rank < size; rank++, at += n) {
        const struct lp_span *spans = attn->spans + at;
        int64_t keys;
        for (n = 0; at + n < attn->n_spans && spans[n].pages->part == rank;) n++;
        if (!go_together(r, attn, spans, n, &keys)) return false;
        part[2 * rank] = r->ranks.gathered[rank];
        part[2 * rank + 1] = (size_t)keys << 1 | spans_select(r, attn, spans, n);
    }
    key->parts = part;
    key->n_parts = 2 * size;
    return true;
}

// Whether the layers' operations depend on nothing but the key, and nobody looks at what they make.
static bool may_replay(struct lp_runner *r, const struct lp_attn_step *attn,
                       const struct lp_step_settings *settings, struct lp_replay_key *key) {
    const struct lp_model *m = r->model;
    const bool on_hosts = (lp_shard_is_cut(m) && !m->device_group) || r->ranks.window_rows > 0,
               watched = settings->watch || settings->probe || r->ranks.watched ||
                         lp_trace_is_full(settings->trace);
    if (!attn->dev->backend->replay || on_hosts || watched || m->expert_cache || m->n_host_layers)
        return false;
    *key = (struct lp_replay_key){.owner = r,
                                  .n_rows = attn->n_rows,
                                  .settings = attn->deterministic | selects(r, attn) << 1 |
                                              (int64_t)attn->force << 2};
    return m->part.data_attention
               ? parts_go_together(r, attn, key)
               : go_together(r, attn, attn->spans, attn->n_spans, &key->most_keys);
}

static void run_layers(struct lp_runner *r, const struct lp_attn_step *attn,
                       const struct lp_step_settings *settings) {
    struct lp_device *dev = attn->dev;
    struct lp_replay_key key;
    enum lp_replay what = LP_REPLAY_CALL;
    if (may_replay(r, attn, settings, &key)) what = dev->backend->replay(dev, &key);
    if (what == LP_REPLAY_DONE) {
        lp_ranks_count_recorded(r);
        take_routes(r, attn);
        return;
    }
    const uint64_t rows_sent = r->ranks.rows_sent;
    struct lp_attn_step silent = *attn;
    if (what == LP_REPLAY_RECORD) silent.routes = NULL; // they may have to be called again
    call_layers(r, what == LP_REPLAY_RECORD ? &silent : attn, settings);
    if (what != LP_REPLAY_RECORD) return;
    if (dev->backend->replay_end(dev)) {
        take_routes(r, attn);
        return;
    }
    r->ranks.rows_sent = rows_sent;
    call_layers(r, attn, settings);
}

// Whether a layer that stands first in a stage keeps to the selection of one before it.
static bool shares_selection(const struct lp_runner *r, int64_t layer,
                             const struct lp_attn_step *attn) {
    const struct lp_hparams *h = &r->model->h;
    return layer < h->n_layers && h->index_role[layer] == LP_INDEXER_SHARED && selects(r, attn);
}

static void embed(struct lp_runner *r, const struct lp_step *step) {
    const struct lp_hparams *h = &r->model->h;
    struct lp_device *dev = r->model->dev;
    dev->backend->embed(dev, &(struct lp_op_embed){.table = &r->model->token_embd,
                                                   .ids = r->tokens,
                                                   .out = r->h,
                                                   .out_stride = h->n_embd,
                                                   .n_rows = step->n_rows});
}

void lp_runner_run_rows(struct lp_runner *r, const struct lp_step *step,
                        const struct lp_step_settings *settings) {
    const struct lp_hparams *h = &r->model->h;
    const struct lp_range layers = lp_shard_layers(r->model);
    const int64_t end = layers.first + layers.n;
    lp_runner_upload(r, step->tokens, step->spans, step->n_spans, step->n_rows);
    struct lp_attn_step attn =
        lp_runner_attention(r, step->spans, step->n_spans, step->n_rows, settings);
    lp_step_trace_begin(r, &attn, (int32_t)layers.first, (int32_t)layers.n);
    if (lp_shard_is_first_stage(r->model))
        embed(r, step);
    else
        lp_ranks_take_stream(r, step->n_rows, shares_selection(r, layers.first, &attn),
                             settings->clock);
    if (settings->watch) settings->watch(settings->watch_user, -1, r->h, NULL, NULL, 0);
    if (settings->probe) {
        settings->probe->failed = false;
        lp_attn_probe(&attn, LP_PROBE_EMBED, -1, r->h, h->n_embd);
    }
    lp_ranks_show_begin(r);
    run_layers(r, &attn, settings);
    lp_ranks_give_stream(r, step->n_rows, shares_selection(r, end, &attn), settings->clock);
    lp_ranks_watch_others(r, step->n_rows, selects(r, &attn), settings);
}

static lp_status run_step(struct lp_runner *r, const struct lp_step *step,
                          const struct lp_step_settings *settings, struct lp_err *err) {
    uint64_t start_ns = lp_clock_ns();
    lp_step_clock_start(settings->clock);
    r->step = r->n_steps;
    lp_ranks_begin_count(r);
    if (r->ranks.window_rows > 0)
        lp_ranks_run_windows(r, step, settings);
    else
        lp_runner_run_rows(r, step, settings);
    lp_status status = lp_runner_lack(r, err);
    if (!status || r->model->ranks) { // which all have their part in it
        const uint64_t waited_ns = lp_ranks_wait_ns(r);
        lp_step_lap(settings->clock, LP_STEP_PART_OTHER);
        lp_runner_give_logits(r, step, settings->probe);
        lp_step_lap(settings->clock, LP_STEP_PART_HEAD);
        lp_step_clock_move(settings->clock, LP_STEP_PART_HEAD, LP_STEP_PART_RANKS,
                           lp_ranks_wait_ns(r) - waited_ns);
    }
    if (!status) status = lp_runner_device_failure(r, err);
    if (!status) status = lp_runner_check_logits(r, step, err);
    if (settings->probe && settings->probe->failed && !status)
        status = lp_err_memory(err, 0, "what a probe asked for");
    lp_step_lap(settings->clock, LP_STEP_PART_OTHER);
    lp_step_trace_end(r, step, settings, start_ns);
    r->n_steps++;
    return status;
}

lp_status lp_runner_step(struct lp_runner *r, const struct lp_step *step,
                         const struct lp_step_settings *settings, struct lp_err *err) {
    lp_status status = check_step(r, step, err);
    if (!status) status = lp_ranks_give_step(r, step, settings, err);
    if (status) return status;
    struct lp_step_settings shown = *settings;
    shown.probe = lp_ranks_probe_of(r, settings->probe);
    status = run_step(r, step, &shown, err);
    return lp_ranks_end_step(r, status, err);
}
