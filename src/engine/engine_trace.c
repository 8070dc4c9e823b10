// What the trace tells of an engine: its facts when it is made, and what becomes of sequences.
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "engine/request.h"
#include "model/shard.h"
#include "trace/crash.h"

// ---- facts

// Ranks of one host have one monotonic clock; wall clocks bring hosts together roughly.
static void trace_process(const limpid_engine *e) {
    const struct lp_comm *ranks = e->model->weights->ranks;
    const int32_t rank = ranks ? lp_comm_rank(ranks) : 0;
    const uint64_t start_ns = lp_trace_start_ns(e->trace), passed_ns = lp_clock_ns() - start_ns;
    struct lp_trace_process event = {.rank = rank,
                                     .n_ranks = ranks ? lp_comm_size(ranks) : 1,
                                     .pid = getpid(),
                                     .monotonic_us = (int64_t)(start_ns / 1000),
                                     .wall_us = (int64_t)((lp_clock_wall_ns() - passed_ns) / 1000)};
    lp_trace_copy(event.host, sizeof event.host, ranks ? lp_comm_host(ranks, rank) : NULL);
    lp_trace_emit_process(e->trace, &event);
}

static void trace_model(const limpid_engine *e) {
    const struct lp_model *w = e->model->weights;
    lp_trace_emit_model(e->trace,
                        &(struct lp_trace_model){.architecture = w->h.arch->name,
                                                 .path = lp_gguf_shard_path(e->model->gguf, 0),
                                                 .backend = e->model->dev->backend->name,
                                                 .version = limpid_version(),
                                                 .n_layers = w->h.n_layers,
                                                 .n_threads = e->model->n_threads,
                                                 .n_context = e->n_context,
                                                 .n_kv_tokens = e->n_kv_tokens,
                                                 .chunk = e->chunk,
                                                 .max_batch_tokens = e->max_batch_tokens,
                                                 .max_seqs = e->max_seqs,
                                                 .speculate = e->speculation.n_draft,
                                                 .exchange = lp_sharding_exchange(&w->part)});
}

static void trace_kernel(const limpid_engine *e, const char *operation, const char *type,
                         const char *kernel) {
    lp_trace_emit_kernel(e->trace, &(struct lp_trace_kernel){
                                       .operation = operation, .type = type, .kernel = kernel});
}

static void note_types(const struct lp_bound *bound, bool seen[LP_TYPE_COUNT]) {
    for (int s = 0; s < LP_N_SLOTS; s++)
        if (bound->tensor[s] && bound->tensor[s]->n_dims > 1) seen[bound->tensor[s]->type] = true;
}

static void trace_kernels(const limpid_engine *e) {
    static const char *const mla_ops[] = {"mla_absorbed", "mla_expanded", "index_select"};
    const struct lp_model *w = e->model->weights;
    struct lp_device *dev = e->model->dev;
    bool seen[LP_TYPE_COUNT] = {false};
    const lp_type cache = lp_kv_type(e->kv);
    note_types(&w->binding.model, seen);
    for (int32_t l = 0; l < w->h.n_layers; l++) note_types(&w->binding.blocks[l], seen);
    for (int type = 0; type < LP_TYPE_COUNT; type++)
        if (seen[type])
            trace_kernel(e, "matmul", lp_type_info((lp_type)type)->name,
                         dev->backend->matmul_kernel(dev, (lp_type)type));
    if (w->h.arch->attention != LP_ATTENTION_MLA) {
        trace_kernel(e, "gqa", "", dev->backend->kernel(dev, "gqa", cache, cache).name);
        return;
    }
    for (int i = 0; i < (w->h.top_k ? 3 : 2); i++)
        trace_kernel(
            e, mla_ops[i], "",
            dev->backend
                ->kernel(dev, mla_ops[i], cache, w->layers[lp_shard_layers(w).first].mla.k_up.type)
                .name);
}

// Opening the trace empties its file, so that must not be the model.
static lp_status check_path(const limpid_engine *e, const char *path, struct lp_err *err) {
    for (uint32_t i = 0; path && i < lp_gguf_n_shards(e->model->gguf); i++)
        if (lp_model_file_holds(lp_gguf_shard_path(e->model->gguf, i), path))
            return lp_err_set(err, LP_STATUS_INVALID,
                              "the trace would be written over the model: '%s' is part of it",
                              path);
    return LP_OK;
}

lp_status lp_engine_open_trace(limpid_engine *e, const char *path, struct lp_err *err) {
    if (check_path(e, path, err)) return LP_STATUS_INVALID;
    lp_status status = lp_trace_open(&e->trace, path, err);
    if (status) return status;
    e->settings.trace = e->trace;
    if (lp_trace_is_full(e->trace)) e->settings.clock = &e->step_clock;
    trace_process(e);
    trace_model(e);
    trace_kernels(e);
    return LP_OK;
}

// ---- sequences

void lp_engine_trace_seq(const limpid_engine *e, const struct lp_seq *seq, const char *what) {
    struct lp_trace_request event = {.sequence = (int64_t)seq->number,
                                     .what = what,
                                     .choice = seq->choice,
                                     .n_prompt = (int32_t)seq->n_prompt,
                                     .n_tokens = (int32_t)seq->n_tokens,
                                     .n_computed = (int32_t)seq->n_computed,
                                     .n_cached = (int32_t)seq->n_cached};
    memcpy(event.id, seq->request->id, sizeof event.id);
    lp_trace_emit_request(e->trace, &event);
}

void lp_engine_trace_rejected(const limpid_engine *e, const char *id, size_t n_prompt) {
    struct lp_trace_request event = {.sequence = -1, .what = "rejected", .choice = -1};
    event.n_prompt = event.n_tokens = n_prompt < INT32_MAX ? (int32_t)n_prompt : INT32_MAX;
    lp_trace_copy(event.id, sizeof event.id, id);
    lp_trace_emit_request(e->trace, &event);
}

void lp_engine_trace_failure(const limpid_engine *e, const struct lp_seq *seq,
                             const struct lp_err *err) {
    struct lp_trace_failure event = {.sequence = (int64_t)seq->number};
    lp_trace_copy(event.message, sizeof event.message, err->text);
    lp_trace_emit_failure(e->trace, &event);
}

void lp_engine_trace_cache(const limpid_engine *e, const struct lp_seq *seq, const char *source) {
    lp_trace_emit_cache(e->trace,
                        &(struct lp_trace_cache){.sequence = (int64_t)seq->number,
                                                 .n_prompt = (int32_t)seq->n_prompt,
                                                 .n_cached = (int32_t)seq->n_computed,
                                                 .n_from_disk = (int32_t)seq->n_cached_disk,
                                                 .source = source,
                                                 .rank = seq->pages.part});
}

// Behind a pre-emption tokens of the answer are computed again, many at a time.
void lp_engine_trace_chunk(const limpid_engine *e, const struct lp_seq *seq) {
    int64_t n = seq->n_scheduled - seq->n_draft, of_prompt = seq->n_prompt - seq->n_computed;
    if (of_prompt < 0) of_prompt = 0;
    if (of_prompt > n) of_prompt = n;
    struct lp_trace_chunk event = {.step = (int64_t)lp_runner_next_step(e->runner),
                                   .sequence = (int64_t)seq->number,
                                   .n_past = (int32_t)seq->n_computed,
                                   .n_prompt = (int32_t)of_prompt,
                                   .n_answer = (int32_t)(n - of_prompt),
                                   .n_draft = seq->n_draft};
    memcpy(event.id, seq->request->id, sizeof event.id);
    lp_trace_emit_chunk(e->trace, &event);
}

void lp_engine_trace_token(const limpid_engine *e, const struct lp_seq *seq, const float *logits,
                           bool drafted) {
    const limpid_model *m = e->model;
    int32_t n_vocab = (int32_t)m->weights->h.n_vocab, id = seq->tokens[seq->n_tokens - 1];
    struct lp_trace_token event = {.step = (int64_t)lp_runner_next_step(e->runner) - 1,
                                   .sequence = (int64_t)seq->number,
                                   .position = (int32_t)seq->n_tokens - 1,
                                   .token = id,
                                   .logprob = NAN,
                                   .rank = -1,
                                   .drafted = drafted};
    if (lp_trace_is_full(e->trace)) { // a look at the whole vocabulary
        event.rank = 0;
        for (int32_t i = 0; i < n_vocab; i++) event.rank += !m->never[i] && logits[i] > logits[id];
        event.logprob = logits[id] - lp_sampler_log_sum(logits, m->never, n_vocab);
    }
    lp_trace_emit_token(e->trace, &event);
}

void lp_engine_trace_draft(const limpid_engine *e, const struct lp_seq *seq, int32_t n_draft,
                           int32_t n_accepted) {
    lp_trace_emit_draft(
        e->trace, &(struct lp_trace_draft){.step = (int64_t)lp_runner_next_step(e->runner) - 1,
                                           .sequence = (int64_t)seq->number,
                                           .n_draft = n_draft,
                                           .n_accepted = n_accepted});
}

// ---- limpid.h

limpid_status limpid_engine_trace(const limpid_engine *e, const char *request_id, char **text,
                                  size_t *n_bytes, limpid_error *err) {
    struct lp_bytes out = {0};
    lp_status status = lp_trace_text(e->trace, request_id, &out, lp_err_of(err));
    if (status) {
        lp_bytes_release(&out);
        return lp_public(status);
    }
    *text = out.data;
    *n_bytes = out.len;
    return LIMPID_OK;
}

limpid_status limpid_dump_on_crash(const char *dir, limpid_error *err) {
    return lp_public(lp_crash_install(dir, lp_err_of(err)));
}
