// The cuda device: opening it, its memory, copies between it and the host, its errors, the table of
// operations.
#include "backend/cuda/cuda_device.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_q8.h"
#include "base/alloc.h"
#include "quant/codebooks.h"

#define STAGING_BYTES ((size_t)16 << 20)
#define SMALL_COPY_BYTES ((size_t)64 << 10)  // the driver stages these itself
#define HEAD_GROUP_BYTES ((size_t)256 << 20) // keys and values of the expanded form
#define SCORE_BYTES ((size_t)64 << 20)       // of the indexer
#define ACT_BYTES ((size_t)128 << 20)        // of rounded activations

bool lp_cuda_note(struct lp_cuda_device *dev, cudaError_t error, const char *where) {
    dev->n_noted++;
    if (error != cudaSuccess && dev->error == cudaSuccess) {
        dev->error = error;
        dev->error_where = where;
    }
    return dev->error == cudaSuccess;
}

// ---- opening

static lp_status explain_no_device(cudaError_t error, struct lp_err *err) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver && driver == 0)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "no NVIDIA driver is installed or reachable here; install one, or use "
                          "--backend cpu");
    if (error == cudaErrorInsufficientDriver)
        return lp_err_set(
            err, LP_STATUS_UNSUPPORTED,
            "the NVIDIA driver supports CUDA %d.%d, this build needs %d.%d; update the "
            "driver, or use --backend cpu",
            driver / 1000, driver / 10 % 100, runtime / 1000, runtime / 10 % 100);
    if (error == cudaErrorNoDevice)
        return lp_err_set(
            err, LP_STATUS_UNSUPPORTED,
            "no NVIDIA GPU was found (CUDA_VISIBLE_DEVICES may hide it); use --backend "
            "cpu");
    return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                      "the NVIDIA GPU cannot be used: %s; see nvidia-smi, or use --backend cpu",
                      cudaGetErrorString(error));
}

static lp_status explain_kernels(const struct lp_cuda_device *dev, cudaError_t error,
                                 struct lp_err *err) {
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
        error == cudaErrorUnsupportedPtxVersion)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "this build has no kernels for %s (sm_%d%d), only for architectures %s; "
                          "build with -DCMAKE_CUDA_ARCHITECTURES=%d%d%s, or use --backend cpu",
                          dev->name, dev->major, dev->minor, LP_CUDA_ARCHITECTURES, dev->major,
                          dev->minor, dev->major == 9 && dev->minor == 0 ? "a" : "");
    return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                      "kernels cannot be started on %s: %s; see nvidia-smi, or use --backend cpu",
                      dev->name, cudaGetErrorString(error));
}

static cudaError_t make_tables(struct lp_cuda_device *dev) {
    struct lp_cuda_tables *host = dev->staging[0]; // pinned memory that nothing uses yet
    memcpy(host->iq2xxs, lp_codebooks_iq2xxs, sizeof host->iq2xxs);
    memcpy(host->iq2xs, lp_codebooks_iq2xs, sizeof host->iq2xs);
    memcpy(host->iq2s, lp_codebooks_iq2s, sizeof host->iq2s);
    memcpy(host->iq1s, lp_codebooks_iq1s, sizeof host->iq1s);
    memcpy(host->iq3xxs, lp_codebooks_iq3xxs, sizeof host->iq3xxs);
    memcpy(host->iq3s, lp_codebooks_iq3s, sizeof host->iq3s);
    memcpy(host->signs, lp_codebooks_signs, sizeof host->signs);
    memcpy(host->iq4_nl, lp_codebooks_iq4_nl, sizeof host->iq4_nl);
    memcpy(host->fp4, lp_codebooks_fp4, sizeof host->fp4);
    void *tables = NULL;
    cudaError_t error = cudaMalloc(&tables, sizeof *host);
    dev->tables = tables;
    return error ? error : cudaMemcpy(tables, host, sizeof *host, cudaMemcpyHostToDevice);
}

static cudaError_t make_resources(struct lp_cuda_device *dev) {
    cudaError_t error = cudaStreamCreateWithFlags(&dev->stream, cudaStreamNonBlocking);
    for (int i = 0; i < 2 && !error; i++) {
        error = cudaMallocHost(&dev->staging[i], STAGING_BYTES);
        if (!error) error = cudaEventCreateWithFlags(&dev->staged[i], cudaEventDisableTiming);
    }
    if (!error)
        error = cudaMalloc((void **)&dev->found, LP_CUDA_SCAN_PIECES * 2 * sizeof *dev->found);
    return error ? error : make_tables(dev);
}

static void cuda_close(struct lp_device *device);

static lp_status cuda_open(struct lp_device **out, const struct lp_device_options *options,
                           struct lp_err *err) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (!error && count == 0) error = cudaErrorNoDevice;
    if (error) return explain_no_device(error, err);
    struct lp_cuda_device *dev = lp_alloc(1, sizeof *dev);
    if (!dev) return lp_err_memory(err, sizeof *dev, "the cuda device");
    dev->base.backend = &lp_backend_cuda;
    struct cudaDeviceProp prop;
    dev->number = options ? options->number % count : 0;
    error = cudaGetDeviceProperties(&prop, dev->number);
    if (!error) error = cudaSetDevice(dev->number);
    lp_status status = error ? explain_no_device(error, err) : LP_OK;
    if (!status) {
        snprintf(dev->name, sizeof dev->name, "%.*s", (int)sizeof dev->name - 1, prop.name);
        for (size_t i = 0; i < sizeof prop.uuid.bytes; i++)
            snprintf(dev->uuid + 2 * i, 3, "%02x", (unsigned char)prop.uuid.bytes[i]);
        dev->major = prop.major;
        dev->minor = prop.minor;
        dev->n_multiprocessors = prop.multiProcessorCount;
        dev->shared_bytes = prop.sharedMemPerBlockOptin;
        error = lp_cuda_probe_kernels(&dev->code);
        dev->start_early = prop.major >= 9 && dev->code >= 90; // code for less waits for nothing
        if (error)
            status = explain_kernels(dev, error, err);
        else
            lp_cuda_choose_kernels(dev);
    }
    if (!status && (error = make_resources(dev)))
        status = lp_err_set(err, LP_STATUS_MEMORY,
                            "%s has no room for the backend's own buffers: %s; other programs may "
                            "use its memory (nvidia-smi)",
                            dev->name, cudaGetErrorString(error));
    if (status) {
        cuda_close(&dev->base);
        return status;
    }
    *out = &dev->base;
    return LP_OK;
}

static void release_scratch(struct lp_cuda_scratch *s) {
    void *blocks[] = {s->up_16,       s->up_unscale,  s->latents,    s->keys,         s->values,
                      s->keys_16,     s->values_16,   s->scores,     s->candidates,   s->index_bins,
                      s->index_state, s->index_above, s->partial,    s->partial_sums, s->hidden,
                      s->expert_out,  s->pairs,       s->pair_begin, s->tiles,        s->hidden_act,
                      s->act,         s->zero};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) cudaFree(blocks[i]);
    *s = (struct lp_cuda_scratch){0};
}

static void cuda_close(struct lp_device *device) {
    if (!device) return;
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->stream) cudaStreamSynchronize(dev->stream);
    lp_cuda_drop_graphs(dev);
    release_scratch(&dev->scratch);
    cudaFree((void *)(uintptr_t)dev->tables);
    cudaFree(dev->found);
    for (int i = 0; i < 2; i++) {
        if (dev->staging[i]) cudaFreeHost(dev->staging[i]);
        if (dev->staged[i]) cudaEventDestroy(dev->staged[i]);
    }
    if (dev->stream) cudaStreamDestroy(dev->stream);
    lp_free(dev);
}

// ---- memory

static void *take(struct lp_cuda_scratch *s, int64_t n, int64_t m, bool *ok) {
    size_t bytes;
    void *block = NULL;
    if (n == 0 || m == 0) return NULL;
    if (__builtin_mul_overflow((size_t)n, (size_t)m * sizeof(float), &bytes) ||
        cudaMalloc(&block, bytes) != cudaSuccess) {
        cudaGetLastError(); // the caller says it; no error of a later launch
        *ok = false;
        return NULL;
    }
    s->bytes += bytes;
    return block;
}

// How many of `most` pieces of n_floats fit in n_bytes; at least one.
static int64_t pieces(size_t n_bytes, int64_t n_floats, int64_t most) {
    int64_t fit = n_floats > 0 ? (int64_t)(n_bytes / sizeof(float)) / n_floats : most;
    fit = fit < most ? fit : most;
    return fit < 1 ? 1 : fit;
}

static void take_index_scratch(struct lp_cuda_scratch *s, int64_t n, bool *ok) {
    const int64_t rows = s->score_rows;
    s->scores = take(s, rows, n, ok);
    s->candidates = take(s, rows, n, ok);
    s->index_state = take(s, rows, 4, ok);
    s->index_above = take(s, rows, (n + LP_CUDA_INDEX_CHUNK - 1) / LP_CUDA_INDEX_CHUNK, ok);
    s->index_bins = take(s, rows, LP_CUDA_INDEX_BINS, ok);
    if (s->index_bins && cudaMemset(s->index_bins, 0, (size_t)rows * LP_CUDA_INDEX_BINS * 4))
        *ok = false;
}

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

// A row of n values in any of the kernels' forms
static size_t act_row_bytes(int64_t n) {
    const size_t halves = (size_t)(n + 1) / 2 * sizeof(float); // float16
    return max_size(lp_cuda_act_bytes(n, LP_CUDA_ACT_ROUNDS), halves);
}

// Rounded activations: the rows of a call, as many as fit in ACT_BYTES (one at least: longer calls are
// cut), of the widest matrix or of all heads; of experts all rows.
static void take_act(struct lp_cuda_scratch *s, const struct lp_reserve *need, bool *ok) {
    const int32_t of_head = need->latent > need->nope ? need->latent : need->nope;
    const int64_t head_width = of_head > need->v_dim ? of_head : need->v_dim;
    const size_t rows = (size_t)need->n_rows, row = act_row_bytes(need->max_width),
                 heads = (size_t)need->n_heads * act_row_bytes(head_width),
                 one = max_size(row, heads), all = rows * one;
    s->act_bytes = max_size(all < ACT_BYTES ? all : ACT_BYTES, one);
    if (need->n_experts) s->act_bytes = max_size(s->act_bytes, rows * act_row_bytes(need->n_embd));
    const int64_t each = need->n_used > need->n_heads ? need->n_used : need->n_heads;
    s->unscale = take(s, need->n_rows, each > 1 ? each : 1, ok);
    s->act = take(s, (int64_t)(s->act_bytes / sizeof(float)), 1, ok);
    s->zero = take(s, (int64_t)(row / sizeof(float)), 1, ok);
    if (s->zero) cudaMemset(s->zero, 0, row);
}

static bool take_scratch(struct lp_cuda_scratch *s, const struct lp_reserve *need) {
    bool ok = true;
    const int64_t n = need->n_context, pairs = need->n_rows * need->n_used;
    s->head_group = pieces(HEAD_GROUP_BYTES, n * (need->nope + need->v_dim), need->n_heads);
    s->head_group_16 = pieces(HEAD_GROUP_BYTES, n * (need->nope + need->v_dim) / 2, need->n_heads);
    s->score_rows = pieces(SCORE_BYTES, n, need->n_rows);
    if (need->nope) { // latent attention
        s->latents = take(s, n, need->latent + need->rope, &ok);
        s->keys = take(s, s->head_group * n, need->nope, &ok);
        s->values = take(s, s->head_group * n, need->v_dim, &ok);
        const int64_t widest = need->nope > need->v_dim ? need->nope : need->v_dim;
        s->keys_16 = take(s, s->head_group_16 * n, (need->nope + 1) / 2, &ok);
        s->values_16 = take(s, s->head_group_16 * n, (need->v_dim + 1) / 2, &ok);
        s->up_16 = take(s, s->head_group_16 * widest, (need->latent + 1) / 2, &ok);
        s->up_unscale = take(s, s->head_group_16, widest, &ok);
    }
    s->partial_slots = lp_cuda_partial_slots(need);
    s->partial = take(s, s->partial_slots, 64 * 512, &ok);
    s->partial_sums = take(s, s->partial_slots, 64 * 2, &ok);
    if (need->index_heads) take_index_scratch(s, n, &ok);
    if (need->n_experts && need->n_used) {
        s->hidden = take(s, pairs + 1, need->expert_width, &ok);
        s->expert_out = take(s, pairs + 1, need->n_embd, &ok);
        s->pairs = take(s, pairs, 1, &ok);
        s->pair_begin = take(s, need->n_experts + 1, 1, &ok);
        // Tiles are of 8 pairs at least, and one for each expert may be smaller.
        s->max_tiles = pairs / 8 + (pairs < need->n_experts ? pairs : need->n_experts);
        s->tiles = take(s, 1 + 2 * s->max_tiles, 1, &ok);
        s->hidden_act =
            take(s, pairs + 1, (int64_t)(act_row_bytes(need->expert_width) / sizeof(float)), &ok);
    }
    take_act(s, need, &ok);
    return ok;
}

static lp_status cuda_reserve(struct lp_device *device, const struct lp_reserve *given,
                              struct lp_err *err) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    struct lp_cuda_scratch grown = {0};
    struct lp_reserve need = *given;
    if (!need.n_embd) need.n_embd = need.max_width;
    need = lp_reserve_merge(dev->sizes, &need); // another engine may still use what it asked for
    cudaStreamSynchronize(dev->stream);
    if (!take_scratch(&grown, &need)) {
        release_scratch(&grown);
        return lp_err_set(err, LP_STATUS_MEMORY,
                          "out of memory on %s: scratch for %lld rows and %lld positions; lower "
                          "--chunk or --ctx",
                          dev->name, (long long)need.n_rows, (long long)need.n_context);
    }
    lp_cuda_drop_graphs(dev); // they have the addresses of what goes now
    release_scratch(&dev->scratch);
    dev->scratch = grown;
    dev->act.x = NULL;
    dev->sizes = need;
    return LP_OK;
}

static size_t cuda_scratch_bytes(const struct lp_device *device) {
    return ((const struct lp_cuda_device *)device)->scratch.bytes;
}

static void *cuda_alloc(struct lp_device *device, size_t n_bytes) {
    (void)device;
    void *block = NULL;
    if (cudaMalloc(&block, n_bytes ? n_bytes : 1) == cudaSuccess) return block;
    cudaGetLastError();
    return NULL;
}

static void cuda_free(struct lp_device *device, void *block) {
    (void)device;
    cudaFree(block); // waits for the kernels that use it
}

static size_t cuda_memory(struct lp_device *device, size_t *total) {
    size_t left = 0;
    (void)device;
    if (cudaMemGetInfo(&left, total) != cudaSuccess) left = *total = 0;
    return left;
}

// ---- copies

#if !defined(LP_CUDA_NCCL)
bool lp_cuda_wait(struct lp_cuda_device *dev, const char *where) {
    return lp_cuda_note(dev, cudaStreamSynchronize(dev->stream), where);
}
#endif

// Through the pinned buffers, one being filled while the other is read.
static void write_staged(struct lp_cuda_device *dev, char *to, const char *from, size_t n_bytes) {
    if (dev->groups && !lp_cuda_wait(dev, "a copy to the device")) return;
    for (int i = 0; n_bytes > 0; i ^= 1) {
        size_t part = n_bytes < STAGING_BYTES ? n_bytes : STAGING_BYTES;
        if (!lp_cuda_note(dev, cudaEventSynchronize(dev->staged[i]), "a copy to the device"))
            return;
        memcpy(dev->staging[i], from, part);
        lp_cuda_note(
            dev, cudaMemcpyAsync(to, dev->staging[i], part, cudaMemcpyHostToDevice, dev->stream),
            "a copy to the device");
        lp_cuda_note(dev, cudaEventRecord(dev->staged[i], dev->stream), "a copy to the device");
        to += part;
        from += part;
        n_bytes -= part;
    }
}

static void cuda_write(struct lp_device *device, void *to, const void *from, size_t n_bytes) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (n_bytes == 0 || dev->error) return;
    if (n_bytes > SMALL_COPY_BYTES)
        write_staged(dev, to, from, n_bytes);
    else
        lp_cuda_note(dev, cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyHostToDevice, dev->stream),
                     "a copy to the device");
}

// The same the other way: a part is taken out while the next one arrives.
static void read_staged(struct lp_cuda_device *dev, char *to, const char *from, size_t n_bytes) {
    size_t known[2] = {0, 0}; // bytes that lie, or will, in each buffer
    if (dev->groups && !lp_cuda_wait(dev, "the operations of a step")) return;
    for (int i = 0; n_bytes > 0 || known[0] || known[1]; i ^= 1) {
        const size_t part = n_bytes < STAGING_BYTES ? n_bytes : STAGING_BYTES;
        if (known[i]) {
            if (!lp_cuda_note(dev, cudaEventSynchronize(dev->staged[i]),
                              "the operations of a step"))
                return;
            memcpy(to, dev->staging[i], known[i]);
            to += known[i];
        }
        known[i] = part;
        if (!part) continue;
        lp_cuda_note(
            dev, cudaMemcpyAsync(dev->staging[i], from, part, cudaMemcpyDeviceToHost, dev->stream),
            "a copy from the device");
        lp_cuda_note(dev, cudaEventRecord(dev->staged[i], dev->stream), "a copy from the device");
        from += part;
        n_bytes -= part;
    }
}

static void cuda_read(struct lp_device *device, void *to, const void *from, size_t n_bytes) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (n_bytes == 0) return;
    if (!dev->error && n_bytes > SMALL_COPY_BYTES) {
        read_staged(dev, to, from, n_bytes);
        if (!dev->error) return;
    }
    if (!dev->error)
        lp_cuda_note(dev, cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToHost, dev->stream),
                     "a copy from the device");
    if (!dev->error) lp_cuda_wait(dev, "the operations of a step");
    if (dev->error) memset(to, 0xff, n_bytes); // NaN; -1
}

static void cuda_copy(struct lp_device *device, void *to, const void *from, size_t n_bytes) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (n_bytes == 0 || dev->error) return;
    lp_cuda_note(dev, cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToDevice, dev->stream),
                 "a copy on the device");
}

static void cuda_clear(struct lp_device *device, void *block, size_t n_bytes) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (n_bytes == 0 || dev->error) return;
    lp_cuda_note(dev, cudaMemsetAsync(block, 0, n_bytes, dev->stream), "clearing on the device");
}

static void cuda_device_name(const struct lp_device *device, char out[LP_DEVICE_NAME_BYTES]) {
    memcpy(out, ((const struct lp_cuda_device *)device)->uuid, LP_DEVICE_NAME_BYTES);
}

static lp_status cuda_failed(struct lp_device *device, struct lp_err *err) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (!dev->error) lp_cuda_wait(dev, "the operations of a step");
    if (!dev->error) return LP_OK;
    return lp_err_set(err, LP_STATUS_IO,
                      "%s failed in %s: %s (%s); restart limpid, and see nvidia-smi and the "
                      "kernel's log if it happens again",
                      dev->name, dev->error_where, cudaGetErrorString(dev->error),
                      cudaGetErrorName(dev->error));
}

// ---- what there is

static bool cuda_supports(const struct lp_device *device, lp_type type) {
    (void)device;
    const struct lp_type_info *info = lp_type_info(type);
    return info && info->is_weight && info->dequant;
}
static const char *cuda_matmul_kernel(const struct lp_device *device, lp_type type) {
    return ((const struct lp_cuda_device *)device)->matmul[type]->name;
}
static void cuda_fix_results(struct lp_device *device, bool fixed) {
    lp_cuda_of(device)->may_vary = !fixed;
}

const struct lp_backend lp_backend_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .reserve = cuda_reserve,
    .scratch_bytes = cuda_scratch_bytes,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .write = cuda_write,
    .read = cuda_read,
    .copy = cuda_copy,
    .memory = cuda_memory,
    .failed = cuda_failed,
    .batches = true,
    .expert_range = true,
    .chunk = 2048,
    .selects_latents = true,
    .device_name = cuda_device_name,
    .clear = cuda_clear,
#if defined(LP_CUDA_NCCL)
    .group_id = lp_cuda_group_id,
    .group_join = lp_cuda_group_join,
    .group_leave = lp_cuda_group_leave,
    .group_sum = lp_cuda_group_sum,
    .group_gather = lp_cuda_group_gather,
    .group_sum_parts = lp_cuda_group_sum_parts,
    .group_send = lp_cuda_group_send,
    .group_take = lp_cuda_group_take,
#endif
    .rates = lp_cuda_rates,
    .replay = lp_cuda_replay,
    .replay_end = lp_cuda_replay_end,
    .replay_forget = lp_cuda_replay_forget,
    .supports = cuda_supports,
    .fix_results = cuda_fix_results,
    .matmul_kernel = cuda_matmul_kernel,
    .kernel = lp_cuda_attention_kernel,
    .embed = lp_cuda_embed,
    .rms_norm = lp_cuda_rms_norm,
    .layer_norm = lp_cuda_layer_norm,
    .rope = lp_cuda_rope,
    .matmul = lp_cuda_matmul,
    .head_matmul = lp_cuda_head_matmul,
    .scan_rows = lp_cuda_scan_rows,
    .top_rows = lp_cuda_top_rows,
    .add = lp_cuda_add,
    .silu_mul = lp_cuda_silu_mul,
    .gate_up = lp_cuda_gate_up,
    .experts_and_shared = lp_cuda_experts_and_shared,
    .ready_rows = lp_cuda_ready_rows,
    .cache_write = lp_cuda_cache_write,
    .gqa = lp_cuda_gqa,
    .mla_absorbed = lp_cuda_mla_absorbed,
    .mla_expanded = lp_cuda_mla_expanded,
    .index_select = lp_cuda_index_select,
    .router = lp_cuda_router,
    .experts = lp_cuda_experts,
};
