// Speed of the cpu backend's matmul per weight type: decode (one row) in GB/s of weight bytes
// beside the read bandwidth measured in the same run, prefill in 10^9 multiply-adds a second beside
// the rate of the F32 kernel. Usage: bench_matmul [threads [type or all [level]]]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/workers.h"

#define N_IN 4096
#define DATA_BYTES (192u << 20) // far more than the caches hold
#define WINDOW_BYTES                                                                               \
    (8u << 20) // timed piece; the best of all pieces counts, so that a moment in which            \
               // the CPUs do other work does not
#define PREFILL_OUT 1024
#define PREFILL_ROWS 128

static double seconds(void) {
    return (double)lp_clock_ns() * 1e-9;
}

// ---- the machine's limit: all threads add up 64-bit words

struct read_job {
    const uint64_t *words;
    size_t n;
    uint64_t sums[1024 * 8];
};

static void read_worker(void *job_, int worker, int n_workers) {
    struct read_job *job = job_;
    size_t begin, end;
    lp_worker_range(job->n, 64, worker, n_workers, &begin, &end);
    uint64_t sum[8] = {0};
    for (size_t i = begin; i + 8 <= end; i += 8) {
        __builtin_prefetch(job->words + i +
                           512); // 4 KiB ahead: past the page the hardware stops at
        for (int k = 0; k < 8; k++) sum[k] += job->words[i + (size_t)k];
    }
    for (int k = 1; k < 8; k++) sum[0] += sum[k];
    job->sums[worker * 8] = sum[0];
}

static double read_bandwidth(int n_threads, const void *data, size_t n_bytes) {
    static struct read_job job;
    struct lp_workers *workers;
    struct lp_err err;
    if (lp_workers_new(&workers, n_threads, &err) != LP_OK) return 0;
    double best = 0;
    for (size_t at = 0; at + WINDOW_BYTES <= n_bytes; at += WINDOW_BYTES) {
        job.words = (const uint64_t *)data + at / 8;
        job.n = WINDOW_BYTES / 8;
        double start = seconds();
        lp_workers_run(workers, read_worker, &job);
        double rate = (double)WINDOW_BYTES / (seconds() - start) * 1e-9;
        if (rate > best) best = rate;
    }
    lp_workers_free(workers);
    return best;
}

// ---- one type

// Random blocks whose scales are finite: the bytes of one such row, repeated.
static void fill_weights(const struct lp_type_info *type, uint8_t *data, size_t n_bytes) {
    struct lp_rng rng;
    lp_rng_init(&rng, 7);
    size_t unit = type->block_bytes * (256 / type->block_values);
    do
        for (size_t i = 0; i < unit; i++) data[i] = (uint8_t)(lp_rng_u64(&rng) & 0x7b);
    while (lp_type_find_nonfinite(type->id, data, 256) >= 0);
    for (size_t i = unit; i < n_bytes; i++) data[i] = data[i - unit];
}

static double time_matmul(struct lp_device *dev, const struct lp_op_matmul *op, int repeats) {
    double best = 1e9;
    for (int i = 0; i < repeats; i++) {
        double start = seconds();
        dev->backend->matmul(dev, op);
        double took = seconds() - start;
        if (took < best) best = took;
    }
    return best;
}

static void bench_type(struct lp_device *dev, const struct lp_type_info *type, uint8_t *data,
                       const float *x, float *y, double limit) {
    uint64_t row_bytes;
    lp_type_row_bytes(type->id, N_IN, &row_bytes);
    fill_weights(type, data, DATA_BYTES);
    struct lp_weight w = {
        .data = data, .type = type->id, .n_in = N_IN, .n_mats = 1, .row_bytes = row_bytes};
    w.n_out = (int64_t)(WINDOW_BYTES / row_bytes);
    struct lp_op_matmul op = {
        .w = &w, .x = x, .x_stride = N_IN, .y = y, .y_stride = w.n_out, .n_rows = 1};
    double best = 1e9;
    for (size_t at = 0; at + WINDOW_BYTES <= DATA_BYTES; at += WINDOW_BYTES) {
        w.data = data + at / row_bytes * row_bytes;
        double took = time_matmul(dev, &op, 1);
        if (took < best) best = took;
    }
    double decode = (double)w.n_out * (double)row_bytes / best * 1e-9;
    w.data = data;
    w.n_out = PREFILL_OUT;
    op.y_stride = PREFILL_OUT;
    op.n_rows = PREFILL_ROWS;
    double macs = (double)N_IN * PREFILL_OUT * PREFILL_ROWS;
    double prefill = macs / time_matmul(dev, &op, 3) * 1e-9;
    op.n_rows = 4;
    double four = (double)N_IN * PREFILL_OUT * 4 / time_matmul(dev, &op, 5) * 1e-9;
    printf("%-8s %-16s decode %6.2f GB/s (%3.0f %% of read)   4 rows %6.2f GMAC/s   prefill %6.2f "
           "GMAC/s\n",
           type->name, dev->backend->matmul_kernel(dev, type->id), decode, 100 * decode / limit,
           four, prefill);
}

int main(int argc, char **argv) {
    int n_threads = argc > 1 ? atoi(argv[1]) : 1;
    struct lp_device_options options = {.n_threads = n_threads,
                                        .cpu_level = argc > 3 ? argv[3] : "auto"};
    struct lp_reserve need = {.n_rows = PREFILL_ROWS, .max_width = N_IN};
    struct lp_device *dev = NULL;
    struct lp_err err = {0};
    if (lp_backend_cpu.open(&dev, &options, &err) != LP_OK ||
        lp_backend_cpu.reserve(dev, &need, &err) != LP_OK) {
        fprintf(stderr, "bench_matmul: %s\n", err.text);
        return 1;
    }
    uint8_t *data = lp_alloc_aligned(DATA_BYTES + 4096, 1);
    float *x = lp_alloc(PREFILL_ROWS * N_IN, sizeof *x), *y = lp_alloc(4 << 20, sizeof *y);
    if (!data || !x || !y) return 1;
    struct lp_rng rng;
    lp_rng_init(&rng, 1);
    for (size_t i = 0; i < PREFILL_ROWS * N_IN; i++) x[i] = lp_rng_normal(&rng);
    memset(data, 1, DATA_BYTES);
    double limit = read_bandwidth(n_threads, data, DATA_BYTES);
    printf("%d thread(s), n_in %d; read bandwidth %.2f GB/s\n", n_threads, N_IN, limit);
    for (uint32_t id = 0; id < LP_TYPE_COUNT; id++) {
        const struct lp_type_info *type = lp_type_info(id);
        if (!type || !type->is_weight) continue;
        if (argc > 2 && strcmp(argv[2], "all") != 0 && strcmp(argv[2], type->name) != 0) continue;
        bench_type(dev, type, data, x, y, limit);
    }
    lp_backend_cpu.close(dev);
    return 0;
}
