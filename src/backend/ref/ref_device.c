// The ref device: host memory, scratch, the table of operations.
#include "backend/ref/ref.h"

#include <string.h>

#include "base/alloc.h"

static int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static lp_status ref_open(struct lp_device **out, const struct lp_device_options *options,
                          struct lp_err *err) {
    (void)options; // one thread, no ISA: nothing to choose
    struct lp_ref_device *dev = lp_alloc(1, sizeof *dev);
    if (!dev) return lp_err_memory(err, sizeof *dev, "the ref device");
    dev->base.backend = &lp_backend_ref;
    *out = &dev->base;
    return LP_OK;
}

static void release_scratch(struct lp_ref_device *dev) {
    void *blocks[] = {dev->row,    dev->row2,   dev->scores,     dev->sum,      dev->keys,
                      dev->values, dev->hidden, dev->expert_out, dev->cache_row};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) lp_free(blocks[i]);
    dev->row = dev->row2 = dev->keys = dev->values = dev->hidden = dev->expert_out =
        dev->cache_row = NULL;
    dev->scores = dev->sum = NULL;
    dev->bytes = 0;
}

static void ref_close(struct lp_device *device) {
    if (!device) return;
    struct lp_ref_device *dev = (struct lp_ref_device *)device;
    release_scratch(dev);
    lp_free(dev);
}

static void *take(struct lp_ref_device *dev, int64_t n, int64_t m, size_t size, bool *ok) {
    size_t count;
    if (__builtin_mul_overflow((size_t)n, (size_t)m, &count)) {
        *ok = false;
        return NULL;
    }
    void *block = lp_alloc(count, size);
    if (block)
        dev->bytes += count * size;
    else
        *ok = false;
    return block;
}

static bool take_scratch(struct lp_ref_device *dev, const struct lp_reserve *need) {
    int64_t head_width = max_i64(need->latent + need->rope, need->index_width);
    int64_t width = max_i64(need->max_width, max_i64(head_width, need->expert_width));
    bool ok = true;
    dev->sizes = *need;
    dev->row = take(dev, 1, width, sizeof(float), &ok);
    dev->row2 = take(dev, 1, width, sizeof(float), &ok);
    dev->scores = take(dev, 1, need->n_context, sizeof(double), &ok);
    dev->sum = take(dev, 1, width, sizeof(double), &ok);
    dev->keys = take(dev, need->n_context, need->nope, sizeof(float), &ok);
    dev->values = take(dev, need->n_context, need->v_dim, sizeof(float), &ok);
    dev->hidden = take(dev, need->n_rows, need->expert_width, sizeof(float), &ok);
    dev->expert_out =
        take(dev, need->n_rows * need->n_used, need->n_used ? need->n_embd : 0, sizeof(float), &ok);
    dev->cache_row = take(dev, 1, width, sizeof(float), &ok);
    return ok;
}

static lp_status ref_reserve(struct lp_device *device, const struct lp_reserve *given,
                             struct lp_err *err) {
    struct lp_ref_device *dev = (struct lp_ref_device *)device;
    struct lp_ref_device grown = {.base = dev->base}, old = *dev;
    struct lp_reserve need = *given;
    if (!need.n_embd) need.n_embd = need.max_width;
    need = lp_reserve_merge(dev->sizes, &need); // another engine may still use what it asked for
    bool ok = take_scratch(&grown, &need);
    if (ok) *dev = grown;
    release_scratch(ok ? &old : &grown);
    if (ok) return LP_OK;
    return lp_err_set(err, LP_STATUS_MEMORY,
                      "out of memory: scratch of the ref backend for %lld rows and "
                      "%lld positions",
                      (long long)need.n_rows, (long long)need.n_context);
}

static size_t ref_scratch_bytes(const struct lp_device *device) {
    return ((const struct lp_ref_device *)device)->bytes;
}

static void *ref_alloc(struct lp_device *device, size_t n_bytes) {
    (void)device;
    return lp_alloc_aligned(n_bytes, 1);
}
static void ref_free(struct lp_device *device, void *block) {
    (void)device;
    lp_free(block);
}
static void ref_copy(struct lp_device *device, void *to, const void *from, size_t n_bytes) {
    (void)device;
    if (n_bytes) memcpy(to, from, n_bytes);
}

static bool ref_supports(const struct lp_device *device, lp_type type) {
    (void)device;
    const struct lp_type_info *info = lp_type_info(type);
    return info && info->is_weight && info->dequant;
}
static const char *ref_matmul_kernel(const struct lp_device *device, lp_type type) {
    (void)device;
    (void)type;
    return "ref_matmul";
}
static struct lp_attention_kernel ref_kernel(const struct lp_device *device, const char *op,
                                             lp_type cache, lp_type weights) {
    (void)device, (void)cache, (void)weights;
    static const char *const names[][2] = {{"gqa", "ref_gqa"},
                                           {"mla_absorbed", "ref_mla_absorbed"},
                                           {"mla_expanded", "ref_mla_expanded"},
                                           {"index_select", "ref_index_select"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], op) == 0) return (struct lp_attention_kernel){names[i][1], 0};
    return (struct lp_attention_kernel){NULL, 0};
}

const struct lp_backend lp_backend_ref = {
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .reserve = ref_reserve,
    .scratch_bytes = ref_scratch_bytes,
    .alloc = ref_alloc,
    .free = ref_free,
    .write = ref_copy,
    .read = ref_copy,
    .copy = ref_copy,
    .host_memory = true,
    .supports = ref_supports,
    .matmul_kernel = ref_matmul_kernel,
    .kernel = ref_kernel,
    .batches = true,
    .expert_range = true,
    .embed = lp_ref_embed,
    .rms_norm = lp_ref_rms_norm,
    .layer_norm = lp_ref_layer_norm,
    .rope = lp_ref_rope,
    .matmul = lp_ref_matmul,
    .head_matmul = lp_ref_head_matmul,
    .scan_rows = lp_ref_scan_rows,
    .top_rows = lp_ref_top_rows,
    .add = lp_ref_add,
    .silu_mul = lp_ref_silu_mul,
    .cache_write = lp_ref_cache_write,
    .gqa = lp_ref_gqa,
    .mla_absorbed = lp_ref_mla_absorbed,
    .mla_expanded = lp_ref_mla_expanded,
    .index_select = lp_ref_index_select,
    .router = lp_ref_router,
    .experts = lp_ref_experts,
};
