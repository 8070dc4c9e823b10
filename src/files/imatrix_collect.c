#include "files/imatrix_collect.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/progress.h"
#include "engine/engine.h"
#include "engine/model_file.h"
#include "files/imatrix_watch.h"
#include "files/new_file.h"

#define MAX_TEXT_BYTES ((uint64_t)1 << 30)
#define CHECK_WHOLE_BYTES ((uint64_t)64 << 20)

struct run {
    const struct lp_imatrix_options *o;
    struct lp_model_file file;
    const struct lp_gguf *gguf; // the file's
    struct lp_device *dev;
    struct lp_model *model;
    struct lp_kv *kv;
    struct lp_runner *runner;
    struct lp_imatrix_watch *watch;
    int32_t *tokens, *kept; // tokens: the chunks, one behind the other
    int64_t n_chunks;       // of the text
    bool *drafting;
    float *logits; // or NULL
    int32_t *rows; // 0, 1, 2 ...
};

// ---- text

static lp_status encode(struct run *r, struct lp_err *err) {
    const struct lp_imatrix_options *o = r->o;
    struct lp_tokenizer *tok = NULL;
    char *text = NULL;
    size_t len, n = 0, capacity = 0;
    lp_status status = lp_file_read(o->text, MAX_TEXT_BYTES, &text, &len, err);
    if (!status) status = lp_vocab_load(&tok, r->gguf, err);
    if (!status)
        status = lp_tokenizer_encode(tok, (struct lp_str){text, len},
                                     LP_ENCODE_SPECIAL | LP_ENCODE_BOS_EOS, &r->tokens, &n,
                                     &capacity, err);
    r->n_chunks = (int64_t)n / o->chunk;
    for (int64_t c = 1; !status && lp_tokenizer_adds_bos(tok) && c < r->n_chunks; c++)
        r->tokens[c * o->chunk] = lp_tokenizer_bos(tok);
    if (!status && r->n_chunks == 0)
        status = lp_err_set(err, LP_STATUS_INVALID,
                            "%s has %zu tokens, less than one chunk of %lld; take a longer text or "
                            "a smaller --chunk",
                            o->text, n, (long long)o->chunk);
    lp_tokenizer_free(tok);
    lp_free(text);
    return status;
}

// ---- the model

static lp_status open_weights(struct run *r, struct lp_err *err) {
    lp_status status = lp_model_file_open(&r->file, r->o->model, r->o->n_threads, err);
    r->gguf = r->file.gguf;
    return status;
}

// Hours of work go into a file: what would keep it from being written is said before them.
static lp_status check_output(const struct run *r, const char *path, struct lp_err *err) {
    uint64_t done;
    if (!path) return LP_OK;
    for (uint32_t i = 0; i < lp_gguf_n_shards(r->gguf); i++)
        if (lp_file_is_same(lp_gguf_shard_path(r->gguf, i), path))
            return lp_err_set(err, LP_STATUS_INVALID,
                              "%s is a part of the model, and would be written over; name another "
                              "file",
                              path);
    return lp_new_file_check(
        &(struct lp_new_file_options){.path = path, .overwrite = r->o->overwrite}, &done, err);
}

static lp_status open_device(struct run *r, struct lp_err *err) {
    const struct lp_backend *backend;
    lp_status status = lp_backend_choose(&backend, r->o->backend, err);
    if (status) return status;
    return backend->open(
        &r->dev, &(struct lp_device_options){.n_threads = r->o->n_threads, .cpu_level = "auto"},
        err);
}

static lp_status open_cache(struct run *r, struct lp_err *err) {
    bool mtp = r->model->has_mtp;
    int32_t n = lp_model_kv_count(r->model, mtp);
    struct lp_kv_layer *layers = lp_alloc((size_t)n, sizeof *layers);
    if (!layers) return lp_err_memory(err, (size_t)n * sizeof *layers, "the layers of the cache");
    lp_model_kv_layers(r->model, mtp, layers);
    lp_status status = lp_kv_new(&r->kv, r->dev, layers, n, LP_TYPE_F32, r->o->chunk + 1, err);
    lp_free(layers);
    return status
               ? status
               : lp_runner_new(&r->runner, r->model, r->kv, r->o->chunk, r->o->chunk + 1, mtp, err);
}

static lp_status open_buffers(struct run *r, struct lp_err *err) {
    size_t n = (size_t)r->o->chunk;
    r->kept = lp_alloc(1, sizeof *r->kept);
    r->drafting = lp_alloc(1, sizeof *r->drafting);
    if (r->o->with_output) {
        r->logits = lp_alloc(n, (size_t)r->model->h.n_vocab * sizeof *r->logits);
        r->rows = lp_alloc(n, sizeof *r->rows);
        for (size_t i = 0; r->rows && i < n; i++) r->rows[i] = (int32_t)i;
    }
    bool ok = r->kept && r->drafting && (!r->o->with_output || (r->logits && r->rows));
    return ok ? LP_OK : lp_err_memory(err, n * sizeof *r->rows, "the rows of a chunk");
}

static lp_status open_model(struct run *r, struct lp_err *err) {
    lp_status status = open_device(r, err);
    if (!status)
        status = lp_model_load(
            &r->model, r->gguf, r->dev,
            &(struct lp_load){.n_threads = r->o->n_threads, .check_bytes = CHECK_WHOLE_BYTES}, err);
    if (!status) status = open_cache(r, err);
    if (!status) status = open_buffers(r, err);
    return status ? status
                  : lp_imatrix_watch_new(&r->watch, r->model, r->o->chunk, r->o->with_output, err);
}

static void release(struct run *r) {
    lp_imatrix_watch_free(r->watch);
    lp_runner_free(r->runner);
    lp_kv_free(r->kv);
    lp_model_free(r->model);
    if (r->dev) r->dev->backend->close(r->dev);
    lp_model_file_close(&r->file);
    lp_free(r->tokens);
    lp_free(r->kept);
    lp_free(r->drafting);
    lp_free(r->logits);
    lp_free(r->rows);
}

// ---- chunks

// The MTP layer over the rows of the step, each with the token behind it.
static lp_status run_mtp(struct run *r, const struct lp_step *step,
                         const struct lp_step_settings *settings, struct lp_err *err) {
    int64_t n = step->n_rows;
    int32_t *next = lp_alloc((size_t)n, sizeof *next);
    if (!next) return lp_err_memory(err, (size_t)n * sizeof *next, "the tokens of a chunk");
    memcpy(next, step->tokens + 1, (size_t)(n - 1) * sizeof *next);
    next[n - 1] = -1;
    r->kept[0] = (int32_t)n;
    lp_status status = lp_runner_draft(
        r->runner,
        &(struct lp_draft){
            .step = step, .kept = r->kept, .next_tokens = next, .drafting = r->drafting},
        settings, err);
    lp_free(next);
    return status;
}

static lp_status run_chunk(struct run *r, int64_t chunk, struct lp_err *err) {
    struct lp_page_table table = {0};
    int64_t n = r->o->chunk;
    struct lp_step_settings settings = {.force = LP_ROUTE_ABSORBED};
    lp_status status = lp_page_table_grow(&table, r->kv, n + 1, err);
    struct lp_span span = {.pages = &table, .n_rows = n};
    struct lp_step step = {.tokens = r->tokens + chunk * n,
                           .spans = &span,
                           .n_spans = 1,
                           .n_rows = n,
                           .logit_rows = r->rows,
                           .n_logit_rows = r->logits ? n : 0,
                           .logits = r->logits};
    if (!status) status = lp_runner_step(r->runner, &step, &settings, err);
    if (!status && r->model->has_mtp) status = run_mtp(r, &step, &settings, err);
    if (!status) status = lp_imatrix_watch_check(r->watch, err);
    lp_page_table_release(&table, r->kv);
    return status ? lp_err_context(err, "chunk %lld", (long long)chunk) : LP_OK;
}

static lp_status run_chunks(struct run *r, struct lp_imatrix_result *result, struct lp_err *err) {
    const struct lp_imatrix_options *o = r->o;
    int64_t n = o->max_chunks && o->max_chunks < r->n_chunks ? o->max_chunks : r->n_chunks;
    struct lp_progress bar;
    lp_status status = LP_OK;
    uint64_t chunk_bytes = lp_gguf_file_bytes(r->gguf); // that a chunk reads
    lp_progress_init(&bar, "weights", (uint64_t)n * chunk_bytes);
    for (int64_t c = 0; c < n && !status; c++) {
        result->stopped = o->stop && o->stop(o->stop_user);
        if (result->stopped) break;
        status = run_chunk(r, c, err);
        if (!status) result->n_chunks++;
        lp_progress_update(&bar, (uint64_t)(c + 1) * chunk_bytes);
    }
    lp_progress_finish(&bar);
    if (!status && result->n_chunks == 0)
        status = lp_err_set(err, LP_STATUS_CANCELLED, "stopped before the first chunk was done");
    return status;
}

static lp_status write_files(const struct run *r, struct lp_imatrix_result *result,
                             struct lp_err *err) {
    const struct lp_imatrix_options *o = r->o;
    struct lp_imatrix_about about = {.dataset = o->text,
                                     .n_chunks = (uint32_t)result->n_chunks,
                                     .chunk_tokens = (uint32_t)o->chunk};
    struct lp_imatrix_sums *sums;
    size_t n;
    lp_status status = lp_imatrix_watch_sums(r->watch, &sums, &n, err);
    if (status) return status;
    result->n_entries = (int64_t)n;
    result->n_tokens = result->n_chunks * o->chunk;
    result->n_chunks_of_text = r->n_chunks;
    lp_imatrix_watch_experts(r->watch, &result->n_unmet, &result->n_experts);
    if (o->output) status = lp_imatrix_write(o->output, false, o->overwrite, sums, n, &about, err);
    if (!status && o->older && lp_file_is_same(o->output, o->older))
        status = lp_err_set(err, LP_STATUS_INVALID,
                            "%s is written; the older form would take its place, and is not. Name "
                            "another file for it",
                            o->output);
    if (!status && o->older)
        status = lp_imatrix_write(o->older, true, o->overwrite, sums, n, &about, err);
    lp_free(sums);
    return status;
}

lp_status lp_imatrix_collect(const struct lp_imatrix_options *o, struct lp_imatrix_result *result,
                             struct lp_err *err) {
    struct run r = {.o = o};
    uint64_t start = lp_clock_ns();
    *result = (struct lp_imatrix_result){0};
    lp_status status = open_weights(&r, err);
    if (!status) status = check_output(&r, o->output, err);
    if (!status) status = check_output(&r, o->older, err);
    if (!status) status = encode(&r, err);
    if (!status) status = open_model(&r, err);
    if (!status) status = run_chunks(&r, result, err);
    result->seconds = (double)(lp_clock_ns() - start) * 1e-9;
    if (!status) status = write_files(&r, result, err);
    release(&r);
    return status;
}
