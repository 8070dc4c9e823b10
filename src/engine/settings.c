// The options of an engine: defaults, ranges, and what a stored prefix must have been made with.
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "engine/engine.h"
#include "kv/kv_types.h"
#include "model/shard.h"
#include "model/tensor_hash.h"

// Raised whenever the state of a token changes its meaning: kernels' rounding, layout of a page.
#define STATE_VERSION 5

limpid_engine_options limpid_engine_default_options(void) {
    return (limpid_engine_options){.kv_type = "f16", .route = "auto"};
}

static lp_status kv_type(const char *name, lp_type *out, struct lp_err *err) {
    if (lp_kv_type_parse(name, out)) return LP_OK;
    return lp_err_set(err, LP_STATUS_INVALID, "KV type is '%s', expected " LP_KV_TYPE_NAMES, name);
}

// Whole rows: lp_kv_new.
static lp_status check_heads(const struct lp_hparams *h, lp_type type, struct lp_err *err) {
    if (h->arch->attention == LP_ATTENTION_MLA) return LP_OK;
    return lp_kv_heads_check(type, h->head_dim, h->v_dim, err);
}

static lp_status check_range(const char *name, int64_t value, int64_t max, struct lp_err *err) {
    if (value >= 0 && value <= max) return LP_OK;
    return lp_err_set(err, LP_STATUS_INVALID, "%s is %lld, expected 0 (the default) to %lld", name,
                      (long long)value, (long long)max);
}

static int64_t or_default(int64_t value, int64_t otherwise) {
    return value ? value : otherwise;
}

int64_t lp_engine_default_chunk(const struct lp_device *dev) {
    return or_default(dev->backend->chunk, LP_DEFAULT_CHUNK);
}

int64_t lp_engine_kv_share(int64_t n_kv_tokens, int64_t n_context, int32_t n_parts) {
    const int64_t share = lp_kv_pages_of((n_kv_tokens + n_parts - 1) / n_parts) * LP_KV_PAGE_TOKENS;
    if (n_parts == 1) return n_kv_tokens;
    return share > n_context ? share : n_context;
}

static lp_status fill(struct lp_engine_settings *s, const struct lp_hparams *h,
                      const struct lp_device *dev, const limpid_engine_options *o,
                      struct lp_err *err) {
    int64_t context = h->n_context < LP_DEFAULT_CONTEXT ? h->n_context : LP_DEFAULT_CONTEXT;
    s->n_context = or_default(o->n_context, context);
    s->chunk = or_default(o->chunk, lp_engine_default_chunk(dev));
    if (s->chunk > s->n_context) s->chunk = s->n_context;
    s->max_seqs = (int32_t)or_default(o->max_seqs, LP_DEFAULT_SEQS);
    int64_t batch = s->chunk > s->max_seqs ? s->chunk : s->max_seqs;
    s->max_batch_tokens = or_default(o->max_batch_tokens, batch);
    if (s->chunk > s->max_batch_tokens) s->chunk = s->max_batch_tokens;
    s->max_queue = o->max_queue;
    s->speculate = o->speculate;
    s->n_kv_tokens = or_default(o->n_kv_tokens, s->n_context);
    if (s->max_batch_tokens < s->max_seqs)
        return lp_err_set(
            err, LP_STATUS_INVALID,
            "max_batch_tokens is %lld, but each of max_seqs = %d sequences may need a "
            "token in a step; raise --max-batch-tokens or lower --max-seqs",
            (long long)s->max_batch_tokens, s->max_seqs);
    if (s->n_kv_tokens < s->n_context)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "the KV cache of %lld tokens is smaller than the context of %lld; raise "
                          "--kv-tokens or lower --ctx",
                          (long long)s->n_kv_tokens, (long long)s->n_context);
    s->n_kv_tokens = lp_engine_kv_share(s->n_kv_tokens, s->n_context, s->n_kv_parts);
    // One page for the copy of a shared one; and what drafts reach ahead.
    s->n_kv_tokens += LP_KV_PAGE_TOKENS;
    if (s->speculate) s->n_kv_tokens += LP_KV_PAGE_TOKENS;
    return LP_OK;
}

lp_status lp_engine_settings_of(struct lp_engine_settings *out, const struct lp_hparams *h,
                                bool has_mtp, const struct lp_device *dev, int32_t n_kv_parts,
                                const limpid_engine_options *o, struct lp_err *err) {
    *out = (struct lp_engine_settings){.kv_type = LP_TYPE_F16, .n_kv_parts = n_kv_parts};
    const struct {
        const char *name;
        int64_t value, max;
    } ranges[] = {{"context", o->n_context, INT32_MAX / 2},
                  {"KV cache", o->n_kv_tokens, INT32_MAX / 2},
                  {"chunk", o->chunk, LP_MAX_CHUNK},
                  {"max_batch_tokens", o->max_batch_tokens, LP_MAX_CHUNK},
                  {"max_seqs", o->max_seqs, LP_MAX_SEQS},
                  {"max_queue", o->max_queue, INT32_MAX},
                  {"speculate", o->speculate, LP_MAX_DRAFT}};
    lp_status status = LP_OK;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0] && !status; i++)
        status = check_range(ranges[i].name, ranges[i].value, ranges[i].max, err);
    if (!status && !lp_route_force_parse(o->route ? o->route : "auto", &out->force))
        status = lp_err_set(err, LP_STATUS_INVALID,
                            "route is '%s', expected auto, expanded, absorbed or dense", o->route);
    if (!status) status = kv_type(o->kv_type ? o->kv_type : "f16", &out->kv_type, err);
    if (!status && o->speculate && !has_mtp)
        status = lp_err_set(err, LP_STATUS_UNSUPPORTED,
                            "this file has no usable MTP layer to speculate with (limpid inspect "
                            "says what it lacks); leave --speculate out");
    if (!status) status = check_heads(h, out->kv_type, err);
    return status ? status : fill(out, h, dev, o, err);
}

lp_status lp_engine_settings_make(struct lp_engine_settings *out, const limpid_model *m,
                                  const limpid_engine_options *o, struct lp_err *err) {
    if (m->weights)
        return lp_engine_settings_of(out, &m->weights->h, m->weights->has_mtp, m->dev,
                                     lp_shard_cache_parts(m->weights), o, err);
    return lp_err_set(err, LP_STATUS_INVALID,
                      "the model was opened with vocab_only; it cannot run");
}

// ---- the fingerprint

static void add(XXH3_state_t *hash, const void *data, size_t n_bytes) {
    XXH3_128bits_update(hash, data, n_bytes);
}

// All bytes count of a tensor of at most WHOLE_BYTES, which takes in whole small models, and of one in
// float32 of at most WHOLE_F32_BYTES: norms, biases, routers (GLM-5's have 6.3 MB), which loading has
// read anyway.
#define WHOLE_BYTES ((uint64_t)1 << 20)
#define WHOLE_F32_BYTES ((uint64_t)16 << 20)
#define N_SAMPLES 32 // of a larger one

static void add_tensor(XXH3_state_t *hash, const struct lp_gguf_tensor *t) {
    const uint64_t whole = t->type == LP_TYPE_F32 ? WHOLE_F32_BYTES : WHOLE_BYTES,
                   tensor = lp_tensor_hash(t, whole, N_SAMPLES);
    add(hash, &tensor, sizeof tensor);
}

lp_status lp_engine_fingerprint(struct lp_page_key *out, const limpid_model *m,
                                const limpid_engine_options *o, const struct lp_engine_settings *s,
                                struct lp_err *err) {
    XXH3_state_t *hash = XXH3_createState();
    if (!hash) return lp_err_memory(err, sizeof(XXH128_hash_t), "the model's fingerprint");
    XXH3_128bits_reset(hash);
    uint64_t numbers[] = {STATE_VERSION,
                          LP_KV_PAGE_TOKENS,
                          (uint64_t)s->kv_type,
                          (uint64_t)s->force,
                          o->deterministic,
                          s->speculate > 0,
                          (uint64_t)m->weights->h.n_layers,
                          (uint64_t)m->weights->part.n_tensor | // who has what of a page
                              (uint64_t)m->weights->part.data_attention << 32,
                          (uint64_t)m->weights->part.n_stages,
                          lp_gguf_file_bytes(m->gguf)};
    add(hash, numbers, sizeof numbers);
    // Kernels round differently, so their names belong to what a state is.
    const lp_type up = m->weights->layers[lp_shard_layers(m->weights).first].mla.k_up.type;
    const struct lp_backend *backend = m->dev->backend;
    const char *names[] = {backend->name,
                           backend->kernel(m->dev, "index_select", s->kv_type, s->kv_type).name,
                           backend->matmul_kernel(m->dev, m->weights->output.type),
                           backend->kernel(m->dev, "mla_absorbed", s->kv_type, s->kv_type).name,
                           backend->kernel(m->dev, "mla_expanded", s->kv_type, up).name};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i]) add(hash, names[i], strlen(names[i]));
    for (uint64_t i = 0; i < lp_gguf_n_tensors(m->gguf); i++) {
        const char *kernel = backend->matmul_kernel(m->dev, lp_gguf_tensor_at(m->gguf, i)->type);
        if (kernel) add(hash, kernel, strlen(kernel));
    }
    // The mathematics, as read from the metadata.
    for (int32_t i = 0; i < m->weights->h.n_facts; i++)
        add(hash, m->weights->h.facts[i].value, strlen(m->weights->h.facts[i].value));
    for (uint64_t i = 0; i < lp_gguf_n_tensors(m->gguf); i++)
        add_tensor(hash, lp_gguf_tensor_at(m->gguf, i));
    XXH128_hash_t digest = XXH3_128bits_digest(hash);
    XXH3_freeState(hash);
    *out = (struct lp_page_key){digest.low64, digest.high64};
    return LP_OK;
}
