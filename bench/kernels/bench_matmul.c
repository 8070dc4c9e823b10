// Speed of the cpu backend's matmul per weight type and number of activation rows, in GB/s of
// weight bytes and 10^9 multiply-adds a second, beside the read bandwidth measured in the same run.
// All products read weights that no cache holds. One thread is timed by the CPU time it got, so that
// a machine that does other work beside gives the same figures. Usage: bench_matmul [threads [type or
// all [level [rows or 0 [free]]]]]; free: results may depend on the number of rows
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/workers.h"

#define N_IN 4096
#define DATA_BYTES (192u << 20) // far more than the caches hold
// The timed piece; the best of all pieces counts, so that a moment in which the CPUs do other work
// does not.
#define WINDOW_BYTES (8u << 20)
#define MAX_ROWS 256

static bool by_cpu_time;

static double seconds(void) {
    struct timespec t;
    if (!by_cpu_time || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0)
        return (double)lp_clock_ns() * 1e-9;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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

static double time_once(struct lp_device *dev, const struct lp_op_matmul *op) {
    double start = seconds();
    dev->backend->matmul(dev, op);
    return seconds() - start;
}

static void bench_type(struct lp_device *dev, const struct lp_type_info *type, uint8_t *data,
                       const float *x, float *y, int only_rows) {
    static const int counts[] = {1, 2, 4, 8, 16, 32, 64, 256};
    uint64_t row_bytes;
    lp_type_row_bytes(type->id, N_IN, &row_bytes);
    fill_weights(type, data, DATA_BYTES);
    struct lp_weight w = {
        .data = data, .type = type->id, .n_in = N_IN, .n_mats = 1, .row_bytes = row_bytes};
    printf("%-8s %-16s", type->name, dev->backend->matmul_kernel(dev, type->id));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (only_rows > 0 && only_rows != counts[i]) continue;
        // Larger calls take a smaller piece, still beyond the cache of one core.
        w.n_out = (int64_t)(WINDOW_BYTES / (counts[i] > 16 ? 2 : 1) / row_bytes);
        struct lp_op_matmul op = {
            .w = &w, .x = x, .x_stride = N_IN, .y = y, .y_stride = w.n_out, .n_rows = counts[i]};
        double best = 1e9;
        size_t window = (size_t)w.n_out * row_bytes, pieces = counts[i] > 16 ? 6 : 20;
        for (size_t at = 0; at < pieces; at++) {
            w.data = data + at * window;
            double took = time_once(dev, &op);
            if (took < best) best = took;
        }
        printf("  %d: %.1f GB/s %.0f", counts[i], (double)window / best * 1e-9,
               (double)(N_IN * w.n_out * counts[i]) / best * 1e-9);
    }
    printf(" GMAC/s\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    int n_threads = argc > 1 ? atoi(argv[1]) : 1;
    by_cpu_time = n_threads == 1;
    struct lp_device_options options = {.n_threads = n_threads,
                                        .cpu_level = argc > 3 ? argv[3] : "auto"};
    struct lp_reserve need = {.n_rows = MAX_ROWS, .max_width = N_IN};
    struct lp_device *dev = NULL;
    struct lp_err err = {0};
    if (lp_backend_cpu.open(&dev, &options, &err) != LP_OK ||
        lp_backend_cpu.reserve(dev, &need, &err) != LP_OK) {
        fprintf(stderr, "bench_matmul: %s\n", err.text);
        return 1;
    }
    if (argc > 5) lp_backend_cpu.fix_results(dev, false);
    uint8_t *data = lp_alloc_aligned(DATA_BYTES + 4096, 1);
    float *x = lp_alloc(MAX_ROWS * N_IN, sizeof *x),
          *y = lp_alloc(MAX_ROWS * (WINDOW_BYTES / 256), sizeof *y);
    if (!data || !x || !y) return 1;
    struct lp_rng rng;
    lp_rng_init(&rng, 1);
    for (size_t i = 0; i < MAX_ROWS * N_IN; i++) x[i] = lp_rng_normal(&rng);
    memset(data, 1, DATA_BYTES);
    double limit = read_bandwidth(n_threads, data, DATA_BYTES);
    printf("%d thread(s), n_in %d; read bandwidth %.2f GB/s\n", n_threads, N_IN, limit);
    for (uint32_t id = 0; id < LP_TYPE_COUNT; id++) {
        const struct lp_type_info *type = lp_type_info(id);
        if (!type || !type->is_weight) continue;
        if (argc > 2 && strcmp(argv[2], "all") != 0 && strcmp(argv[2], type->name) != 0) continue;
        bench_type(dev, type, data, x, y, argc > 4 ? atoi(argv[4]) : 0);
    }
    lp_backend_cpu.close(dev);
    return 0;
}
