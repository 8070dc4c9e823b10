// limpid.h: the memory that a model and an engine take. One sum for both moments: of a model that
// is open, and of one that is only described (limpid_plan), before its weights are read.
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/system_memory.h"
#include "engine/engine.h"
#include "engine/follow.h"
#include "engine/open_options.h"
#include "gguf/gguf_prefetch.h"
#include "model/cost.h"
#include "model/expert_cache.h"
#include "model/expert_layout.h"
#include "model/plan.h"
#include "model/rank_plan.h"

#define SAMPLER_BYTES 12 // per id of the vocabulary, where a request samples (sampler.c)

// Beside what the runner takes: a step's logits, and for each sequence its sampler.
static uint64_t host_bytes(const struct lp_engine_settings *s, const struct lp_hparams *h) {
    uint64_t rows = (uint64_t)s->max_seqs * (1 + (uint64_t)s->speculate);
    if (rows > (uint64_t)s->max_batch_tokens) rows = (uint64_t)s->max_batch_tokens;
    return (uint64_t)h->n_vocab * (rows * sizeof(float) + (uint64_t)s->max_seqs * SAMPLER_BYTES);
}

// Of weights that are used where they lie.
static lp_status plan_plain(limpid_memory_plan *out, const struct lp_hparams *h,
                            const struct lp_binding *binding, struct lp_device *dev,
                            const struct lp_engine_settings *s, uint64_t max_context_bytes,
                            struct lp_err *err) {
    struct lp_plan plan;
    const struct lp_plan_request request = {.kv_type = s->kv_type,
                                            .context = s->n_context,
                                            .n_kv_tokens = s->n_kv_tokens,
                                            .chunk = s->max_batch_tokens,
                                            .with_mtp = s->speculate > 0,
                                            .max_context_bytes = max_context_bytes};
    lp_status status = lp_plan_make(&plan, h, binding, dev, &request, err);
    if (status) return status;
    *out = (limpid_memory_plan){.mapped_weights = plan.mapped_bytes,
                                .copied_weights = plan.memory_bytes + plan.float32_bytes,
                                .kv_cache = plan.kv_bytes,
                                .step_buffers = plan.step_bytes + host_bytes(s, h),
                                .available = lp_memory_available(),
                                .n_context = s->n_context,
                                .n_kv_tokens = s->n_kv_tokens * s->n_kv_parts,
                                .max_batch_tokens = s->max_batch_tokens,
                                .n_kv_ranks = s->n_kv_parts};
    return LP_OK;
}

// Copies in the kernels' order stand in for what they are copied from. With the MTP layer, which the
// plan counts only where it drafts.
static void add_packed(limpid_memory_plan *plan, const struct lp_hparams *h,
                       const struct lp_binding *binding, const struct lp_device *dev, bool with_mtp,
                       uint64_t packed_bytes) {
    const uint64_t from = lp_cost_packed_bytes(h, binding, dev, with_mtp);
    plan->mapped_weights -= from < plan->mapped_weights ? from : plan->mapped_weights;
    plan->copied_weights += packed_bytes;
}

// Of a device with memory of its own, all but the experts that may stay in the host's lies there; how many of these do
// is up to what is left. budget: of its memory; 0: none. taken: the weights are there already.
static void plan_device(limpid_memory_plan *plan, struct lp_device *dev, uint64_t host_experts,
                        uint64_t budget, bool taken) {
    size_t total = 0;
    if (dev->backend->host_memory) return;
    // Experts of a folder are copied.
    const uint64_t all = plan->mapped_weights + plan->copied_weights;
    plan->mapped_weights = host_experts < all ? host_experts : all;
    plan->copied_weights = all - plan->mapped_weights;
    plan->available = dev->backend->memory ? dev->backend->memory(dev, &total) : 0;
    if (taken && plan->available) plan->available += plan->copied_weights;
    if (budget && plan->available > budget) plan->available = budget;
    plan->on_device = 1;
}

// ---- of a model that is open

// Larger than its memory budget: what stays in memory, and the cache, whose slots take memory as
// they are first filled.
static void plan_experts(limpid_memory_plan *plan, struct lp_expert_cache *cache) {
    struct lp_expert_stats s = lp_expert_cache_get_stats(cache);
    uint64_t n_slots = (uint64_t)s.n_slots, n_empty = s.n_reads < n_slots ? n_slots - s.n_reads : 0;
    uint64_t empty = s.cache_bytes / n_slots * n_empty;
    plan->mapped_weights = s.dense_bytes;
    plan->copied_weights += s.cache_bytes;
    if (plan->available) plan->available = plan->available > empty ? plan->available - empty : 1;
}

limpid_status limpid_engine_plan(limpid_memory_plan *out, const limpid_model *m,
                                 const limpid_engine_options *options, limpid_error *err) {
    limpid_engine_options defaults = limpid_engine_default_options();
    struct lp_engine_settings s;
    lp_status status =
        lp_engine_settings_make(&s, m, options ? options : &defaults, lp_err_of(err));
    if (status) return lp_public(status);
    const struct lp_model *w = m->weights;
    status = plan_plain(out, &w->h, &w->binding, m->dev, &s, 0, lp_err_of(err));
    if (status) return lp_public(status);
    if (w->expert_cache) plan_experts(out, w->expert_cache);
    if (w->packed) add_packed(out, &w->h, &w->binding, m->dev, s.speculate > 0, w->packed_bytes);
    const uint64_t all = out->mapped_weights + out->copied_weights;
    const bool some_left = w->n_host_layers > 0 && w->uploaded_bytes < all;
    plan_device(out, m->dev, some_left ? all - w->uploaded_bytes : 0, 0, true);
    return LIMPID_OK;
}

// ---- of one that is not

struct outline { // a model without its weights
    struct lp_model_file file;
    struct lp_hparams h;
    struct lp_binding binding;
    struct lp_device *dev;
    struct lp_open_options open;
};

static lp_status describe(struct outline *x, const char *path, const limpid_model_options *o,
                          struct lp_err *err) {
    lp_status status = lp_model_file_describe(&x->file, path, err);
    if (!status) status = lp_open_options_read(&x->open, o, x->file.plan != NULL, err);
    if (!status) status = lp_open_options_device(&x->open, o, &x->dev, err);
    if (!status) status = lp_hparams_read(&x->h, x->file.gguf, err);
    if (!status)
        status = lp_binding_make(&x->binding, &x->h, x->file.gguf, x->dev->backend->supports,
                                 x->dev, err);
    return status;
}

static void outline_free(struct outline *x) {
    lp_binding_release(&x->binding);
    if (x->dev) x->dev->backend->close(x->dev);
    lp_model_file_close(&x->file);
    lp_free(x);
}

static lp_status add_prefetch(limpid_memory_plan *plan, const struct outline *x,
                              struct lp_err *err) {
    uint64_t bytes = 0;
    lp_status status = lp_gguf_prefetch_bytes(x->file.gguf, &bytes, err);
    plan->mapped_weights = 0;
    plan->copied_weights += bytes;
    return status;
}

// What of the weights a budget leaves in memory.
static lp_status add_budget(limpid_memory_plan *plan, const struct outline *x, uint64_t budget,
                            struct lp_err *err) {
    struct lp_expert_layout layout = {0};
    int32_t n_slots = 0;
    lp_status status = lp_expert_layout_make(&layout, &x->h, &x->binding, x->file.gguf, err);
    if (!status) status = lp_expert_layout_slots(&layout, budget, &n_slots, err);
    if (!status && n_slots < layout.n_items) {
        plan->mapped_weights = layout.dense_bytes;
        plan->copied_weights += (uint64_t)n_slots * layout.slot_bytes;
    }
    lp_expert_layout_release(&layout);
    return status;
}

static void add_repacking(limpid_memory_plan *plan, const struct outline *x,
                          const limpid_model_options *o, bool with_mtp) {
    const uint64_t packed = lp_cost_repacked_bytes(&x->h, &x->binding, x->dev, true);
    const bool copies =
        o->memory_budget_bytes || o->prefetch || lp_cost_memory_bytes(&x->h, &x->binding, true) > 0;
    const uint64_t small = plan->copied_weights,
                   left = plan->available > small ? plan->available - small : 0;
    if (lp_repack_pays(x->open.repack, copies, packed, left, plan->kv_cache + plan->step_buffers))
        add_packed(plan, &x->h, &x->binding, x->dev, with_mtp, packed);
}

// What this host's ranks take together, and the largest part of the cache that a rank has.
struct shares {
    uint64_t weight_bytes, kv_token_bytes;
    uint64_t dense_bytes,
        slot_bytes; // with a memory budget: mapped; the largest cache of experts that a rank has
};

static struct shares shares_of(const struct lp_rank_plan *plans, const struct lp_comm *ranks) {
    const char *here = lp_comm_host(ranks, lp_comm_rank(ranks));
    struct shares sum = {0};
    for (int32_t i = 0; i < lp_comm_size(ranks); i++) {
        const struct lp_rank_plan *p = &plans[i];
        if (p->kv_token_bytes > sum.kv_token_bytes) sum.kv_token_bytes = p->kv_token_bytes;
        if (strcmp(lp_comm_host(ranks, i), here) != 0) continue;
        const bool all_fits = p->n_slots == p->disk.n_items;
        const uint64_t slots = all_fits ? 0 : (uint64_t)p->n_slots * p->disk.slot_bytes;
        sum.weight_bytes += p->weight_bytes;
        sum.dense_bytes += p->disk.dense_bytes + (all_fits ? p->disk.expert_bytes : 0);
        if (slots > sum.slot_bytes) sum.slot_bytes = slots;
    }
    return sum;
}

static void divide_weights(limpid_memory_plan *plan, const limpid_model_options *model,
                           const struct shares *shares, const struct lp_rank_plan *whole) {
    const uint64_t n_here = (uint64_t)lp_comm_local_size(model->ranks->comm);
    const bool all = shares->weight_bytes >= whole->weight_bytes;
    const double weights = all ? 1 : (double)shares->weight_bytes / (double)whole->weight_bytes;
    plan->mapped_weights = (uint64_t)((double)plan->mapped_weights * weights) / n_here;
    if (model->prefetch) { // what stays mapped is not known here
        plan->copied_weights += plan->mapped_weights;
        plan->mapped_weights = 0;
    }
    if (!model->memory_budget_bytes) return;
    plan->mapped_weights = shares->dense_bytes / n_here;
    plan->copied_weights += shares->slot_bytes;
}

// A rank's part of what its host has: the ranks of a host share the pages of the file.
static lp_status divide_by_ranks(limpid_memory_plan *plan, const struct outline *x,
                                 const limpid_model_options *model, lp_type kv_type,
                                 struct lp_err *err) {
    const struct lp_comm *ranks = model->ranks->comm;
    const struct lp_rank_plan_request request = {.n_ranks = lp_comm_size(ranks),
                                                 .n_stages = model->pipeline,
                                                 .experts = x->open.shard_experts,
                                                 .attention = x->open.attention,
                                                 .kv_type = kv_type,
                                                 .budget_bytes = model->memory_budget_bytes},
                                      one = {.n_ranks = 1, .kv_type = kv_type};
    const size_t size = (size_t)request.n_ranks;
    struct lp_rank_plan whole, *plans = lp_alloc(size, sizeof *plans);
    if (!plans) return lp_err_memory(err, size * sizeof *plans, "a plan of the ranks");
    lp_status status =
        lp_rank_plan_make(plans, &request, &x->h, &x->binding, x->file.gguf, x->dev, err);
    if (!status)
        status = lp_rank_plan_make(&whole, &one, &x->h, &x->binding, x->file.gguf, x->dev, err);
    if (!status) {
        const struct shares shares = shares_of(plans, ranks);
        const double kv = (double)shares.kv_token_bytes / (double)whole.kv_token_bytes;
        divide_weights(plan, model, &shares, &whole);
        plan->kv_cache = (uint64_t)((double)plan->kv_cache * kv);
        plan->available /= (uint64_t)lp_comm_local_size(ranks);
    }
    lp_free(plans);
    return status;
}

static lp_status plan_outline(limpid_memory_plan *out, const struct outline *x,
                              const limpid_model_options *model,
                              const limpid_engine_options *engine, struct lp_err *err) {
    struct lp_engine_settings s;
    const bool data = model->ranks && x->open.attention == LP_ATTENTION_PARALLEL_DATA;
    const int32_t n_parts = data ? lp_comm_size(model->ranks->comm) : 1;
    lp_status status =
        lp_engine_settings_of(&s, &x->h, x->binding.has_mtp, x->dev, n_parts, engine, err);
    const uint64_t most = x->dev->backend->host_memory ? lp_memory_available() : 0;
    if (!status) status = plan_plain(out, &x->h, &x->binding, x->dev, &s, most, err);
    if (!status && model->prefetch && !model->ranks) status = add_prefetch(out, x, err);
    if (!status && model->memory_budget_bytes && !model->ranks)
        status = add_budget(out, x, model->memory_budget_bytes, err);
    if (!status && model->ranks) status = divide_by_ranks(out, x, model, s.kv_type, err);
    if (status) return status;
    if (!model->ranks) add_repacking(out, x, model, s.speculate > 0);
    plan_device(out, x->dev, x->open.divides ? lp_cost_expert_bytes(&x->h, &x->binding) : 0,
                x->open.vram_bytes, false);
    return LP_OK;
}

limpid_status limpid_plan(limpid_memory_plan *out, const char *path,
                          const limpid_model_options *model, const limpid_engine_options *engine,
                          limpid_error *err) {
    limpid_model_options model_defaults = limpid_model_default_options();
    limpid_engine_options engine_defaults = limpid_engine_default_options();
    if (!model) model = &model_defaults;
    if (!engine) engine = &engine_defaults;
    struct outline *x = lp_alloc(1, sizeof *x);
    if (!x) return lp_public(lp_err_memory(lp_err_of(err), sizeof *x, "the memory plan"));
    lp_log_mute(true); // whoever opens the model hears it
    lp_status status = describe(x, path, model, lp_err_of(err));
    if (!status) status = plan_outline(out, x, model, engine, lp_err_of(err));
    outline_free(x);
    lp_log_mute(false);
    return lp_public(status);
}
