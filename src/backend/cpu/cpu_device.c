// The CPU device: opening (threads, instruction sets, kernel choice), memory, scratch, the table of
// operations.
#include "backend/cpu/cpu_device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/cpu_matmul.h"
#include "backend/cpu/cpu_wide.h"
#include "base/alloc.h"
#include "base/huge_pages.h"
#include "base/log.h"
#include "base/topology.h"

static void cpu_close(struct lp_device *base) {
    if (!base) return;
    struct lp_cpu_device *dev = lp_cpu_device(base);
    lp_cpu_mat_release(dev);
    lp_free(dev->attn_scratch);
    lp_workers_free(dev->workers);
    lp_free(dev);
}

// Says what was decided, and why not what was asked for.
static void tell_threads(const struct lp_topology *t, int n, enum lp_pin pin, bool bound) {
    char quota[64] = "";
    if (t->quota > 0) snprintf(quota, sizeof quota, ", CPU time for %.4g", t->quota);
    lp_log(LP_LOG_INFO,
           "threads: %d, %s to cores; the process may use %d CPUs, %d cores, %d NUMA nodes%s", n,
           bound ? "bound" : "not bound", t->n_cpus, t->n_cores, t->n_nodes, quota);
    if (n > t->n_cpus)
        lp_log(
            LP_LOG_WARN,
            "%d threads on %d CPUs wait for one another; leave --threads out, or give at most %d",
            n, t->n_cpus, t->n_cpus);
    if (pin == LP_PIN_CORES && !bound && n > 1)
        lp_log(LP_LOG_WARN, "%d threads cannot be bound, there are %d cores; they run unbound", n,
               t->n_cores);
}

static lp_status start_workers(struct lp_cpu_device *dev, const struct lp_device_options *options,
                               struct lp_err *err) {
    const struct lp_topology *t = lp_topology_machine();
    int n = options->n_threads ? options->n_threads : lp_cpu_count();
    bool bound = n > 1 && lp_topology_binds(t, options->pin, n);
    int *cpus = bound ? lp_alloc((size_t)n, sizeof *cpus) : NULL;
    if (bound && !cpus) return lp_err_memory(err, (size_t)n * sizeof *cpus, "the worker pool");
    if (bound) lp_topology_spread(t, n, cpus);
    lp_status status = lp_workers_new_bound(&dev->workers, n, cpus, err);
    lp_free(cpus);
    if (!status) tell_threads(t, n, options->pin, bound);
    return status;
}

static lp_status cpu_open(struct lp_device **out, const struct lp_device_options *options,
                          struct lp_err *err) {
    static const struct lp_device_options defaults = {0};
    if (!options) options = &defaults;
    struct lp_cpu_device *dev = lp_alloc(1, sizeof *dev);
    if (!dev) return lp_err_memory(err, sizeof *dev, "the CPU device");
    dev->base.backend = &lp_backend_cpu;
    dev->huge_pages = !options->no_huge_pages;
    lp_status status = lp_cpu_features_choose(lp_cpu_features_detect(), options->cpu_level,
                                              &dev->features, &dev->level, err);
    if (status == LP_OK) status = start_workers(dev, options, err);
    if (status != LP_OK) {
        cpu_close(&dev->base);
        return status;
    }
    dev->n_workers = lp_workers_count(dev->workers);
    status = lp_cpu_mat_reserve(dev, &dev->reserved, err); // panels; the rest comes with reserve
    if (status != LP_OK) {
        cpu_close(&dev->base);
        return status;
    }
#if defined(_SC_LEVEL3_CACHE_SIZE)
    long last_cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (last_cache > 0) dev->last_cache_bytes = (size_t)last_cache;
#endif
    lp_cpu_mat_choose(dev);
    lp_cpu_wide_choose(dev);
    lp_cpu_lanes_choose(dev);
    lp_cpu_sieve_choose(dev);
    *out = &dev->base;
    return LP_OK;
}

// ---- scratch

static lp_status cpu_reserve(struct lp_device *base, const struct lp_reserve *need,
                             struct lp_err *err) {
    struct lp_cpu_device *dev = lp_cpu_device(base);
    struct lp_reserve all = lp_reserve_merge(dev->reserved, need);
    size_t attn_bytes = lp_cpu_attn_scratch_bytes(dev, &all);
    unsigned char *attn = dev->attn_scratch;
    if (attn_bytes > dev->attn_scratch_bytes) {
        attn = lp_huge_alloc(attn_bytes, 1, dev->huge_pages);
        if (!attn) return lp_err_memory(err, attn_bytes, "attention scratch");
    }
    lp_status status = lp_cpu_mat_reserve(dev, &all, err);
    if (status != LP_OK) {
        if (attn != dev->attn_scratch) lp_free(attn);
        return status;
    }
    if (attn != dev->attn_scratch) {
        lp_free(dev->attn_scratch);
        dev->attn_scratch = attn;
        dev->attn_scratch_bytes = attn_bytes;
    }
    dev->reserved = all;
    return LP_OK;
}

static size_t cpu_scratch_bytes(const struct lp_device *base) {
    const struct lp_cpu_device *dev = (const struct lp_cpu_device *)base;
    return dev->attn_scratch_bytes + (dev->mat_scratch ? dev->mat_scratch->bytes : 0);
}

// ---- memory

static void *cpu_alloc(struct lp_device *dev, size_t n_bytes) {
    return lp_huge_alloc(n_bytes, 1, lp_cpu_device(dev)->huge_pages);
}
static void cpu_free(struct lp_device *dev, void *block) {
    (void)dev;
    lp_free(block);
}
static void copy(void *to, const void *from, size_t n_bytes) {
    if (n_bytes) memcpy(to, from, n_bytes);
}
static void cpu_write(struct lp_device *dev, void *to, const void *from_host, size_t n_bytes) {
    (void)dev;
    copy(to, from_host, n_bytes);
}
static void cpu_read(struct lp_device *dev, void *to_host, const void *from, size_t n_bytes) {
    (void)dev;
    copy(to_host, from, n_bytes);
}

// ---- what runs

static bool cpu_supports(const struct lp_device *base, lp_type type) {
    const struct lp_cpu_device *dev = (const struct lp_cpu_device *)base;
    return (unsigned)type < LP_TYPE_COUNT && dev->mat_kernels[type];
}
static void cpu_fix_results(struct lp_device *base, bool fixed) {
    lp_cpu_device(base)->may_vary = !fixed;
}
static const char *cpu_matmul_kernel(const struct lp_device *base, lp_type type) {
    const struct lp_cpu_device *dev = (const struct lp_cpu_device *)base;
    return cpu_supports(base, type) ? dev->mat_kernels[type]->name : NULL;
}
static struct lp_attention_kernel cpu_kernel(const struct lp_device *base, const char *op,
                                             lp_type cache, lp_type weights) {
    return lp_cpu_attn_kernel((const struct lp_cpu_device *)base, op, cache, weights);
}

const struct lp_backend lp_backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .reserve = cpu_reserve,
    .scratch_bytes = cpu_scratch_bytes,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .write = cpu_write,
    .read = cpu_read,
    .copy = cpu_read,
    .host_memory = true,
    .expert_range = true,
    .packed_bytes = lp_cpu_packed_bytes,
    .pack = lp_cpu_pack,
    .index_page_extra = lp_cpu_index_page_extra,
    .supports = cpu_supports,
    .fix_results = cpu_fix_results,
    .matmul_kernel = cpu_matmul_kernel,
    .kernel = cpu_kernel,
    .embed = lp_cpu_embed,
    .rms_norm = lp_cpu_rms_norm,
    .layer_norm = lp_cpu_layer_norm,
    .rope = lp_cpu_rope,
    .matmul = lp_cpu_matmul,
    .head_matmul = lp_cpu_head_matmul,
    .add = lp_cpu_add,
    .silu_mul = lp_cpu_silu_mul,
    .cache_write = lp_cpu_cache_write,
    .gqa = lp_cpu_gqa,
    .mla_absorbed = lp_cpu_mla_absorbed,
    .mla_expanded = lp_cpu_mla_expanded,
    .index_select = lp_cpu_index_select,
    .router = lp_cpu_router,
    .experts = lp_cpu_experts,
};
