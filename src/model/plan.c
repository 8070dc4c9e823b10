// A device that hands out no memory stands in for the real one while the cache and the runner are
// made; what they then say of their size is exact, and nothing is estimated twice.
#include "model/plan.h"

#include "base/alloc.h"
#include "model/cost.h"
#include "model/model.h"

struct hollow { // a device whose buffers are never written
    struct lp_device base;
    struct lp_backend backend;
    struct lp_device *real;
};

static struct lp_device *real_of(const struct lp_device *dev) {
    return ((const struct hollow *)dev)->real;
}

static void *hollow_alloc(struct lp_device *dev, size_t n_bytes) {
    (void)n_bytes;
    return dev; // any address but NULL
}
static void hollow_free(struct lp_device *dev, void *block) {
    (void)dev, (void)block;
}
static void hollow_write(struct lp_device *dev, void *to, const void *from, size_t n_bytes) {
    (void)dev, (void)to, (void)from, (void)n_bytes;
}
static void hollow_read(struct lp_device *dev, void *to, const void *from, size_t n_bytes) {
    (void)dev, (void)to, (void)from, (void)n_bytes;
}
static lp_status hollow_reserve(struct lp_device *dev, const struct lp_reserve *need,
                                struct lp_err *err) {
    struct lp_device *real = real_of(dev);
    return real->backend->reserve(real, need, err);
}
static size_t hollow_scratch_bytes(const struct lp_device *dev) {
    const struct lp_device *real = real_of(dev);
    return real->backend->scratch_bytes(real);
}

static size_t hollow_index_page_extra(const struct lp_device *dev, int32_t width,
                                      int32_t page_tokens) {
    const struct lp_device *real = real_of(dev);
    const struct lp_backend *backend = real->backend;
    return backend->index_page_extra ? backend->index_page_extra(real, width, page_tokens) : 0;
}

static void hollow_init(struct hollow *d, struct lp_device *real) {
    *d = (struct hollow){.backend = *real->backend, .real = real};
    d->base.backend = &d->backend;
    d->backend.alloc = hollow_alloc;
    d->backend.free = hollow_free;
    d->backend.write = hollow_write;
    d->backend.read = hollow_read;
    d->backend.copy = hollow_read;
    d->backend.reserve = hollow_reserve;
    d->backend.scratch_bytes = hollow_scratch_bytes;
    d->backend.index_page_extra = hollow_index_page_extra;
    d->backend.replay = NULL;
    d->backend.replay_end = NULL;
    d->backend.replay_forget = NULL;
}

static lp_status check_context(const struct lp_kv *kv, const struct lp_plan_request *ask,
                               struct lp_err *err) {
    const uint64_t token_bytes = lp_kv_token_bytes(kv);
    if (!ask->max_context_bytes || (uint64_t)ask->context <= ask->max_context_bytes / token_bytes)
        return LP_OK;
    return lp_err_set(err, LP_STATUS_MEMORY,
                      "the KV cache of a context of %lld tokens takes %llu bytes a token, which is "
                      "more than the %llu MB of memory that are available",
                      (long long)ask->context, (unsigned long long)token_bytes,
                      (unsigned long long)(ask->max_context_bytes / 1000000));
}

static lp_status measure(struct lp_plan *out, struct lp_model *model,
                         const struct lp_plan_request *ask, struct lp_err *err) {
    struct lp_kv_layer layers[LP_MAX_LAYERS]; // n_layers and the MTP layer: n_blocks at most
    struct lp_kv *kv = NULL;
    struct lp_runner *runner = NULL;
    bool with_mtp = ask->with_mtp && model->has_mtp; // the runner refuses it otherwise
    lp_model_kv_layers(model, with_mtp, layers);
    lp_status status = lp_kv_new(&kv, model->dev, layers, lp_model_kv_count(model, with_mtp),
                                 ask->kv_type, ask->n_kv_tokens, err);
    if (!status) status = check_context(kv, ask, err);
    if (!status)
        status = lp_runner_new(&runner, model, kv, ask->chunk, ask->context, ask->with_mtp, err);
    if (!status) {
        out->kv_token_bytes = lp_kv_token_bytes(kv);
        out->kv_bytes = lp_kv_bytes(kv);
        out->step_bytes = lp_runner_bytes(runner);
    }
    lp_runner_free(runner);
    lp_kv_free(kv);
    return status;
}

lp_status lp_plan_make(struct lp_plan *out, const struct lp_hparams *h,
                       const struct lp_binding *binding, struct lp_device *dev,
                       const struct lp_plan_request *ask, struct lp_err *err) {
    struct hollow hollow;
    hollow_init(&hollow, dev);
    struct lp_model *model = lp_alloc(1, sizeof *model);
    if (!model) return lp_err_memory(err, sizeof *model, "the memory plan");
    model->h = *h;
    model->dev = &hollow.base;
    model->binding = *binding; // borrowed
    model->has_mtp = binding->has_mtp;
    *out = (struct lp_plan){.context = ask->context,
                            .n_kv_tokens = ask->n_kv_tokens,
                            .chunk = ask->chunk,
                            .mapped_bytes = lp_cost_mapped_bytes(h, binding, ask->with_mtp),
                            .memory_bytes = lp_cost_memory_bytes(h, binding, ask->with_mtp),
                            .float32_bytes = lp_cost_float32_bytes(h, binding)};
    lp_status status = measure(out, model, ask, err);
    lp_free(model);
    return status;
}
