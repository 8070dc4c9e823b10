// The loops are the simplest that reach the limit; each is taken as the best of a few short passes,
// since a pass that was interrupted says nothing of the machine. The integer peaks count products
// of 8-bit and of 16-bit values with the accumulation that the instruction set offers (maddubs +
// add of 16-bit sums, or dpbusd; madd + add, or dpwssd), without widening: no kernel that has to
// widen and scale can be faster with these instructions. AMX and ARM have no loop of their own yet:
// their peak is that of dpbusd, or of what the compiler makes of plain C, and a kernel may pass it.
#include "cli/limits.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/cpu_features.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/workers.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BUFFER_BYTES ((size_t)256 << 20)
#define N_READ_PASSES 3
#define N_PEAK_PASSES 8
#define N_ROUNDS 50000 // of a pass of the peak loops: some 0.2 ms, so that most run undisturbed

typedef void (*peak_fn)(int64_t n_rounds, int64_t *sink);

struct lp_limits {
    struct lp_workers *workers;
    uint64_t *buffer;
    int64_t *sinks; // one cache line per worker: what was read and computed goes there
    struct peak {
        peak_fn run;  // NULL: the CPU has no such instruction
        double madds; // of a round
    } int8, int16, f32, bf16;
};

#define SINK_STRIDE 8
#define MAX_THREADS 1024 // lp_workers_new takes no more

static double seconds_since(uint64_t start_ns) {
    return (double)(lp_clock_ns() - start_ns) * 1e-9;
}

// ---- reading

static void read_part(void *job, int worker, int n_workers) {
    struct lp_limits *l = job;
    size_t begin, end;
    lp_worker_range(BUFFER_BYTES / 8, 512, worker, n_workers, &begin, &end);
    uint64_t sum[16] = {0};
    for (size_t i = begin; i + 16 <= end; i += 16) {
        __builtin_prefetch(l->buffer + i + 256); // 2 KiB ahead: hardware prefetch stops at pages
        __builtin_prefetch(l->buffer + i + 264);
        for (int k = 0; k < 16; k++) sum[k] += l->buffer[i + (size_t)k];
    }
    for (int k = 1; k < 16; k++) sum[0] += sum[k];
    *(volatile int64_t *)&l->sinks[worker * SINK_STRIDE] = (int64_t)sum[0];
}

static void fill_part(void *job, int worker, int n_workers) {
    struct lp_limits *l = job;
    size_t begin, end;
    lp_worker_range(BUFFER_BYTES / 8, 512, worker, n_workers, &begin, &end);
    for (size_t i = begin; i < end; i++) l->buffer[i] = i * 0x9e3779b97f4a7c15u;
}

// ---- multiply-add peaks: 10 independent sums hide the latency

static void int_plain(int64_t n_rounds, int64_t *sink) {
    uint16_t sum[64]; // the compiler's vectors multiply 16-bit values, not 8-bit ones
    for (int k = 0; k < 64; k++) sum[k] = (uint16_t)k;
    for (int64_t i = 0; i < n_rounds; i++)
        for (int k = 0; k < 64; k++) sum[k] = (uint16_t)(sum[k] * 5u + 3u);
    for (int k = 0; k < 64; k++) *sink += sum[k];
}

static void float_plain(int64_t n_rounds, int64_t *sink) {
    float sum[64];
    for (int k = 0; k < 64; k++) sum[k] = (float)k;
    for (int64_t i = 0; i < n_rounds; i++)
        for (int k = 0; k < 64; k++) sum[k] = sum[k] * 0.999f + 0.5f;
    for (int k = 0; k < 64; k++) *sink += (int64_t)sum[k];
}

#if defined(__x86_64__)
#define N_SUMS 10
#define EACH_SUM _Pragma("GCC unroll 10") for (int k = 0; k < N_SUMS; k++)

__attribute__((target("avx2"))) static void int_avx2(int64_t n_rounds, int64_t *sink) {
    __m256i sum[N_SUMS], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-5);
    EACH_SUM sum[k] = _mm256_set1_epi16((short)k);
    for (int64_t i = 0; i < n_rounds; i++) {
        EACH_SUM sum[k] =
            _mm256_add_epi16(a, _mm256_maddubs_epi16(sum[k], b)); // the sum is the next factor
    }
    EACH_SUM *sink += _mm256_extract_epi32(sum[k], 0);
}

__attribute__((target("avx2"))) static void int16_avx2(int64_t n_rounds, int64_t *sink) {
    __m256i sum[N_SUMS], a = _mm256_set1_epi16(3), b = _mm256_set1_epi16(-5);
    EACH_SUM sum[k] = _mm256_set1_epi32(k);
    for (int64_t i = 0; i < n_rounds; i++) {
        EACH_SUM sum[k] = _mm256_add_epi32(a, _mm256_madd_epi16(sum[k], b));
    }
    EACH_SUM *sink += _mm256_extract_epi32(sum[k], 0);
}

__attribute__((target("avx2,fma"))) static void float_fma(int64_t n_rounds, int64_t *sink) {
    __m256 sum[N_SUMS], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.5f);
    EACH_SUM sum[k] = _mm256_set1_ps((float)k);
    for (int64_t i = 0; i < n_rounds; i++) {
        EACH_SUM sum[k] = _mm256_fmadd_ps(sum[k], a, b);
        __asm__ volatile("" : "+x"(a));
    }
    EACH_SUM *sink += (int64_t)_mm256_cvtss_f32(sum[k]);
}

__attribute__((target("avx512f,avx512bw"))) static void int_avx512(int64_t n_rounds,
                                                                   int64_t *sink) {
    __m512i sum[N_SUMS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
    EACH_SUM sum[k] = _mm512_set1_epi16((short)k);
    for (int64_t i = 0; i < n_rounds; i++) {
        EACH_SUM sum[k] = _mm512_add_epi16(a, _mm512_maddubs_epi16(sum[k], b));
    }
    EACH_SUM *sink += _mm_cvtsi128_si64(_mm512_castsi512_si128(sum[k]));
}

__attribute__((target("avx512f,avx512bw"))) static void int16_avx512(int64_t n_rounds,
                                                                     int64_t *sink) {
    __m512i sum[N_SUMS], a = _mm512_set1_epi16(3), b = _mm512_set1_epi16(-5);
    EACH_SUM sum[k] = _mm512_set1_epi32(k);
    for (int64_t i = 0; i < n_rounds; i++) {
        EACH_SUM sum[k] = _mm512_add_epi32(a, _mm512_madd_epi16(sum[k], b));
    }
    EACH_SUM *sink += _mm_cvtsi128_si64(_mm512_castsi512_si128(sum[k]));
}

__attribute__((target("avx512f"))) static void float_avx512(int64_t n_rounds, int64_t *sink) {
    __m512 sum[N_SUMS], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.5f);
    EACH_SUM sum[k] = _mm512_set1_ps((float)k);
    for (int64_t i = 0; i < n_rounds; i++) {
        EACH_SUM sum[k] = _mm512_fmadd_ps(sum[k], a, b);
        __asm__ volatile("" : "+v"(a));
    }
    EACH_SUM *sink += (int64_t)_mm512_cvtss_f32(sum[k]);
}

__attribute__((target("avx512f,avx512vnni"))) static void int_vnni(int64_t n_rounds,
                                                                   int64_t *sink) {
    __m512i sum[N_SUMS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
    EACH_SUM sum[k] = _mm512_set1_epi32(k);
    for (int64_t i = 0; i < n_rounds; i++) {
        EACH_SUM sum[k] = _mm512_dpbusd_epi32(sum[k], a, b);
        __asm__ volatile("" : "+v"(a));
    }
    EACH_SUM *sink += _mm_cvtsi128_si64(_mm512_castsi512_si128(sum[k]));
}

__attribute__((target("avx512f,avx512vnni"))) static void int16_vnni(int64_t n_rounds,
                                                                     int64_t *sink) {
    __m512i sum[N_SUMS], a = _mm512_set1_epi16(3), b = _mm512_set1_epi16(-5);
    EACH_SUM sum[k] = _mm512_set1_epi32(k);
    for (int64_t i = 0; i < n_rounds; i++) {
        EACH_SUM sum[k] = _mm512_dpwssd_epi32(sum[k], a, b);
        __asm__ volatile("" : "+v"(a));
    }
    EACH_SUM *sink += _mm_cvtsi128_si64(_mm512_castsi512_si128(sum[k]));
}

__attribute__((target("avx512f,avx512bf16"))) static void bf16_avx512(int64_t n_rounds,
                                                                      int64_t *sink) {
    __m512 sum[N_SUMS];
    __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f00), b = (__m512bh)_mm512_set1_epi16(0x3e80);
    EACH_SUM sum[k] = _mm512_set1_ps((float)k);
    for (int64_t i = 0; i < n_rounds; i++) {
        EACH_SUM sum[k] = _mm512_dpbf16_ps(sum[k], a, b);
        __asm__ volatile("" : "+v"(a));
    }
    EACH_SUM *sink += (int64_t)_mm512_cvtss_f32(sum[k]);
}
#endif

static void choose_peaks(struct lp_limits *l, uint32_t bits) {
    (void)bits;
    l->int8 = l->int16 = (struct peak){int_plain, 64};
    l->f32 = (struct peak){float_plain, 64};
#if defined(__x86_64__)
    if ((bits & LP_CPU_LEVEL_AVX2) == LP_CPU_LEVEL_AVX2) {
        l->int8 = (struct peak){int_avx2, 32 * N_SUMS};
        l->int16 = (struct peak){int16_avx2, 16 * N_SUMS};
        l->f32 = (struct peak){float_fma, 8 * N_SUMS};
    }
    if ((bits & LP_CPU_LEVEL_AVX512) == LP_CPU_LEVEL_AVX512) {
        bool vnni = bits & LP_CPU_AVX512VNNI;
        l->int8 = (struct peak){vnni ? int_vnni : int_avx512, 64 * N_SUMS};
        l->int16 = (struct peak){vnni ? int16_vnni : int16_avx512, 32 * N_SUMS};
        l->f32 = (struct peak){float_avx512, 16 * N_SUMS};
        if (__builtin_cpu_supports("avx512bf16")) l->bf16 = (struct peak){bf16_avx512, 32 * N_SUMS};
    }
#endif
}

struct peak_job {
    struct lp_limits *limits;
    struct peak peak;
    double best[MAX_THREADS]; // multiply-adds a second of each worker
};

static void peak_part(void *job_, int worker, int n_workers) {
    (void)n_workers;
    struct peak_job *job = job_;
    int64_t sink = 0;
    for (int pass = 0; pass < N_PEAK_PASSES; pass++) {
        uint64_t start_ns = lp_clock_ns();
        job->peak.run(N_ROUNDS, &sink);
        double rate = job->peak.madds * N_ROUNDS / seconds_since(start_ns);
        if (rate > job->best[worker]) job->best[worker] = rate;
    }
    *(volatile int64_t *)&job->limits->sinks[worker * SINK_STRIDE] = sink;
}

static double measure_peak(struct lp_limits *l, struct peak peak) {
    struct peak_job job = {.limits = l, .peak = peak};
    double sum = 0;
    if (!peak.run) return 0;
    lp_workers_run(l->workers, peak_part, &job);
    for (int i = 0; i < lp_workers_count(l->workers); i++) sum += job.best[i];
    return sum;
}

struct lp_limits_figures lp_limits_measure(struct lp_limits *l) {
    struct lp_limits_figures f = {0};
    for (int pass = 0; pass < N_READ_PASSES; pass++) {
        uint64_t start_ns = lp_clock_ns();
        lp_workers_run(l->workers, read_part, l);
        double rate = (double)BUFFER_BYTES / seconds_since(start_ns);
        if (rate > f.read_bytes_s) f.read_bytes_s = rate;
    }
    f.int_madds_s = measure_peak(l, l->int8);
    f.int16_madds_s = measure_peak(l, l->int16);
    f.float_madds_s = measure_peak(l, l->f32);
    f.bf16_madds_s = measure_peak(l, l->bf16);
    return f;
}

lp_status lp_limits_new(struct lp_limits **out, int n_threads, const char *cpu_level,
                        struct lp_err *err) {
    uint32_t bits;
    const char *name;
    lp_status status =
        lp_cpu_features_choose(lp_cpu_features_detect(), cpu_level, &bits, &name, err);
    if (status) return status;
    struct lp_limits *l = lp_alloc(1, sizeof *l);
    if (!l) return lp_err_memory(err, sizeof *l, "the limits");
    choose_peaks(l, bits);
    status = lp_workers_new(&l->workers, n_threads, err);
    if (!status) {
        l->buffer = lp_alloc_aligned(BUFFER_BYTES, 1);
        l->sinks = lp_alloc((size_t)lp_workers_count(l->workers) * SINK_STRIDE, sizeof *l->sinks);
        if (!l->buffer || !l->sinks)
            status = lp_err_memory(err, BUFFER_BYTES, "the buffer that measures memory bandwidth");
    }
    if (status) {
        lp_limits_free(l);
        return status;
    }
    lp_workers_run(l->workers, fill_part, l);
    *out = l;
    return LP_OK;
}

void lp_limits_free(struct lp_limits *l) {
    if (!l) return;
    lp_workers_free(l->workers);
    lp_free(l->buffer);
    lp_free(l->sinks);
    lp_free(l);
}

size_t lp_limits_buffer_bytes(const struct lp_limits *l) {
    return l->buffer ? BUFFER_BYTES : 0;
}
