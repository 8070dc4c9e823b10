// Laboratory of the cuda backend's matrix kernels: for each weight type and shape, an operation of the
// backend as a step calls it (rounding of the activations, products), checked against double precision
// on sampled outputs, timed, beside the bandwidth of a device-to-device copy and the rate of a bf16
// matrix product (cuBLASLt, where the build found it) of the same run. Versions of the kernels that the
// backend does not choose are timed beside it.
//
// Times: CUDA graphs of many calls, over copies of the weights that together exceed the L2 cache by far;
// the median of several replays, by events. GB/s count the bytes of the weights alone.
//
//     bench_cuda_matmul [CSV [narrow]]    prints a table; CSV: a file for the same rows; narrow: without the
//                                         kernels for many rows
//
// Random weights of one scale (quant/random_blocks.h), random normal activations.
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(LP_BENCH_CUBLASLT)
#include <cublasLt.h>
#endif

#include "backend/cuda/cuda_q8_launch.cuh"

extern "C" {
#include "base/rng.h"
#include "quant/random_blocks.h"
}

#define ROTATE_BYTES ((size_t)512 << 20) // of all copies of a weight
#define POOL_BYTES ((size_t)1 << 23)     // random blocks, repeated
#define RANDOM_FLOATS ((size_t)1 << 20)  // and these again, an odd number of rows later
#define REPEATS 7

static void must(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "bench_cuda_matmul: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}
#define MUST(call) must(call, #call)

struct lab {
    struct lp_device *device;
    struct lp_cuda_device *cuda;
    struct lp_rng rng;
    uint8_t *pool[LP_TYPE_COUNT]; // host: POOL_BYTES of random blocks of a type
    double copy_gbs, bf16_tflops;
    FILE *csv;
    bool failed;
};

// ---- timing

typedef void (*call_fn)(struct lab *lab, void *user, int i); // the i-th call

static int compare_floats(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// n_calls calls as a graph; NULL where the driver does not take them.
static cudaGraphExec_t graph_of(struct lab *lab, call_fn call, void *user, int n_calls) {
    cudaStream_t stream = lab->cuda->stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)) return NULL;
    for (int i = 0; i < n_calls; i++) call(lab, user, i);
    if (cudaStreamEndCapture(stream, &graph) || cudaGraphInstantiate(&exec, graph, 0)) exec = NULL;
    if (graph) cudaGraphDestroy(graph);
    if (!exec) {
        printf("(no graph: %s)\n", cudaGetErrorString(cudaGetLastError()));
        lab->cuda->error = cudaSuccess;
    }
    return exec;
}

// Seconds of one of n_calls calls.
static double time_calls(struct lab *lab, call_fn call, void *user, int n_calls) {
    cudaStream_t stream = lab->cuda->stream;
    cudaEvent_t begin, end;
    float ms[REPEATS];
    call(lab, user, 0); // sets attributes, which a capture may not
    MUST(cudaStreamSynchronize(stream));
    cudaGraphExec_t exec = graph_of(lab, call, user, n_calls);
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
    for (int r = -2; r < REPEATS; r++) {
        MUST(cudaEventRecord(begin, stream));
        if (exec)
            MUST(cudaGraphLaunch(exec, stream));
        else
            for (int i = 0; i < n_calls; i++) call(lab, user, i);
        MUST(cudaEventRecord(end, stream));
        MUST(cudaEventSynchronize(end));
        if (r >= 0) MUST(cudaEventElapsedTime(&ms[r], begin, end));
    }
    if (exec) cudaGraphExecDestroy(exec);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    if (lab->cuda->error) must(lab->cuda->error, lab->cuda->error_where);
    qsort(ms, REPEATS, sizeof ms[0], compare_floats);
    return ms[REPEATS / 2] * 1e-3 / n_calls;
}

static int calls_for(size_t bytes_each) { // some 0.4 ms at 4 TB/s, 8 at least
    const double n = 1.6e9 / (double)bytes_each;
    return n < 8 ? 8 : n > 200 ? 200 : (int)n;
}

// ---- limits of the machine

struct copy_job {
    uint4 *from, *to;
    size_t n;
};

static __global__ void copy_kernel(const uint4 *from, uint4 *to, size_t n) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 4 * step) {
        uint4 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i + k * step < n) v[k] = from[i + k * step];
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i + k * step < n) to[i + k * step] = v[k];
    }
}

static void copy_call(struct lab *lab, void *user, int) {
    struct copy_job *job = (struct copy_job *)user;
    copy_kernel<<<16 * lab->cuda->n_multiprocessors, 512, 0, lab->cuda->stream>>>(job->from,
                                                                                  job->to, job->n);
}
static void memcpy_call(struct lab *lab, void *user, int) {
    struct copy_job *job = (struct copy_job *)user;
    MUST(cudaMemcpyAsync(job->to, job->from, job->n * sizeof *job->to, cudaMemcpyDeviceToDevice,
                         lab->cuda->stream));
}

// The better of the driver's copy and a kernel's
static void measure_copy(struct lab *lab) {
    const size_t bytes = (size_t)4 << 30;
    struct copy_job job = {NULL, NULL, bytes / sizeof *job.to};
    MUST(cudaMalloc(&job.from, bytes));
    MUST(cudaMalloc(&job.to, bytes));
    MUST(cudaMemset(job.from, 0x5a, bytes));
    const double kernel = 2.0 * (double)bytes / time_calls(lab, copy_call, &job, 4) * 1e-9,
                 driver = 2.0 * (double)bytes / time_calls(lab, memcpy_call, &job, 4) * 1e-9;
    printf("copy: %.0f GB/s by a kernel, %.0f GB/s by the driver\n", kernel, driver);
    lab->copy_gbs = kernel > driver ? kernel : driver;
    cudaFree(job.from);
    cudaFree(job.to);
}

#if defined(LP_BENCH_CUBLASLT)
struct gemm_job {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    void *pa, *pb, *pc, *workspace;
    size_t workspace_bytes;
};
static void gemm_call(struct lab *lab, void *user, int) {
    struct gemm_job *j = (struct gemm_job *)user;
    const float one = 1, zero = 0;
    cublasLtMatmul(j->handle, j->desc, &one, j->pa, j->a, j->pb, j->b, &zero, j->pc, j->c, j->pc,
                   j->c, &j->algo, j->workspace, j->workspace_bytes, lab->cuda->stream);
}

static __global__ void random_bf16_kernel(uint16_t *x, size_t n) { // about normal, never zero
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    const float v = ((float)(z & 0xffff) + (float)(z >> 16 & 0xffff) - 65535.0f) * 0x1p-16f;
    x[i] = (uint16_t)(__float_as_uint(v) >> 16);
}

// y[4096 x n] = x[4096 x k] w^T, as prefill of 4096 tokens; both row-major
static void measure_bf16(struct lab *lab) {
    const uint64_t n = 12288, k = 6144, m = 4096;
    struct gemm_job j = {};
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int n_found = 0;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    j.workspace_bytes = (size_t)64 << 20;
    MUST(cudaMalloc(&j.workspace, j.workspace_bytes));
    MUST(cudaMalloc(&j.pa, n * k * 2));
    MUST(cudaMalloc(&j.pb, m * k * 2));
    MUST(cudaMalloc(&j.pc, m * n * 2));
    random_bf16_kernel<<<lp_cuda_blocks((int64_t)(n * k), 256), 256, 0, lab->cuda->stream>>>(
        (uint16_t *)j.pa, n * k);
    random_bf16_kernel<<<lp_cuda_blocks((int64_t)(m * k), 256), 256, 0, lab->cuda->stream>>>(
        (uint16_t *)j.pb, m * k);
    cublasLtCreate(&j.handle);
    cublasLtMatmulDescCreate(&j.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(j.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                   sizeof transposed);
    cublasLtMatrixLayoutCreate(&j.a, CUDA_R_16BF, k, n, (int64_t)k);
    cublasLtMatrixLayoutCreate(&j.b, CUDA_R_16BF, k, m, (int64_t)k);
    cublasLtMatrixLayoutCreate(&j.c, CUDA_R_16BF, n, m, (int64_t)n);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &j.workspace_bytes, sizeof j.workspace_bytes);
    cublasLtMatmulAlgoGetHeuristic(j.handle, j.desc, j.a, j.b, j.c, j.c, preference, 1, &found,
                                   &n_found);
    if (n_found > 0) {
        j.algo = found.algo;
        lab->bf16_tflops = 2.0 * (double)(m * n * k) / time_calls(lab, gemm_call, &j, 10) * 1e-12;
    }
    cublasLtDestroy(j.handle);
    cudaFree(j.workspace), cudaFree(j.pa), cudaFree(j.pb), cudaFree(j.pc);
}
#else
static void measure_bf16(struct lab *lab) {
    (void)lab;
}
#endif

// ---- weights

static const uint8_t *pool_of(struct lab *lab, lp_type type) {
    if (!lab->pool[type]) {
        const struct lp_type_info *info = lp_type_info((uint32_t)type);
        lab->pool[type] = (uint8_t *)malloc(POOL_BYTES);
        lp_random_blocks(type, 0.02f, &lab->rng, lab->pool[type],
                         POOL_BYTES / info->block_bytes * info->block_values);
    }
    return lab->pool[type];
}

// The pool over and over, in whole blocks.
static void fill(struct lab *lab, lp_type type, uint8_t *to, size_t bytes) {
    const struct lp_type_info *info = lp_type_info((uint32_t)type);
    size_t unit = POOL_BYTES / info->block_bytes * info->block_bytes, done = unit;
    if (done > bytes) done = bytes;
    MUST(cudaMemcpy(to, pool_of(lab, type), done, cudaMemcpyHostToDevice));
    while (done < bytes) {
        const size_t part = bytes - done < done ? bytes - done : done;
        MUST(cudaMemcpy(to + done, to, part, cudaMemcpyDeviceToDevice));
        done += part;
    }
}

static struct lp_weight weight_of(lp_type type, int64_t n_in, int64_t n_out, int64_t n_mats,
                                  const void *data) {
    const struct lp_type_info *info = lp_type_info((uint32_t)type);
    struct lp_weight w = {};
    w.data = data;
    w.type = type;
    w.n_in = n_in;
    w.n_out = n_out;
    w.n_mats = n_mats;
    w.row_bytes = (size_t)n_in / info->block_values * info->block_bytes;
    w.mat_bytes = w.row_bytes * (size_t)n_out;
    return w;
}

// ---- rows of the table

static void row(struct lab *lab, const char *op, const char *version, lp_type type,
                const char *shape, int64_t rows, double seconds, double bytes, double flop,
                const char *check) {
    const double gbs = bytes / seconds * 1e-9, tflops = flop / seconds * 1e-12;
    printf("%-8s %-24s %-6s %-22s %5lld %9.2f us %7.0f GB/s %5.1f%% of copy %7.2f TFLOP/s", op,
           version, lp_type_info((uint32_t)type)->name, shape, (long long)rows, seconds * 1e6, gbs,
           100 * gbs / lab->copy_gbs, tflops);
    if (lab->bf16_tflops > 0) printf(" %5.1f%% of bf16", 100 * tflops / lab->bf16_tflops);
    printf("  %s\n", check);
    if (lab->csv)
        fprintf(lab->csv, "%s,%s,%s,%s,%lld,%.3f,%.1f,%.4f,%.3f,%.4f,%s\n", op, version,
                lp_type_info((uint32_t)type)->name, shape, (long long)rows, seconds * 1e6, gbs,
                gbs / lab->copy_gbs, tflops, lab->bf16_tflops > 0 ? tflops / lab->bf16_tflops : 0.0,
                check);
}

// ---- matmul

struct matmul {
    lp_type type;
    int64_t n_in, n_out, n_rows;
    int n_copies;
    uint8_t *weights;
    size_t mat_bytes;
    float *x, *y, *x_host;
    // A version of the products alone: `act` are rounded rows
    void (*start)(struct lab *lab, const struct lp_cuda_q8_job *job);
    uint8_t *act, *zero;
};

static struct matmul matmul_open(struct lab *lab, lp_type type, int64_t n_in, int64_t n_out,
                                 int64_t most_rows) {
    struct matmul m = {};
    m.type = type;
    m.n_in = n_in;
    m.n_out = n_out;
    m.mat_bytes = weight_of(type, n_in, n_out, 1, NULL).mat_bytes;
    m.n_copies = (int)((ROTATE_BYTES + m.mat_bytes - 1) / m.mat_bytes);
    MUST(cudaMalloc(&m.weights, m.mat_bytes * (size_t)m.n_copies));
    fill(lab, type, m.weights, m.mat_bytes * (size_t)m.n_copies);
    const size_t n = (size_t)(most_rows * n_in);
    m.x_host = (float *)malloc(n * sizeof(float));
    const size_t fresh = n < RANDOM_FLOATS ? n : RANDOM_FLOATS;
    for (size_t i = 0; i < fresh; i++) m.x_host[i] = lp_rng_normal(&lab->rng);
    for (size_t i = fresh; i < n; i++) m.x_host[i] = m.x_host[i - fresh];
    MUST(cudaMalloc(&m.x, n * sizeof(float)));
    MUST(cudaMemcpy(m.x, m.x_host, n * sizeof(float), cudaMemcpyHostToDevice));
    MUST(cudaMalloc(&m.y, (size_t)(most_rows * n_out) * sizeof(float)));
    const size_t row = lp_cuda_act_bytes(n_in, LP_CUDA_ACT_ROUNDS);
    MUST(cudaMalloc(&m.act, row * (size_t)most_rows));
    MUST(cudaMalloc(&m.zero, row));
    MUST(cudaMemset(m.zero, 0, row));
    return m;
}

static void matmul_close(struct matmul *m) {
    cudaFree(m->weights), cudaFree(m->x), cudaFree(m->y), cudaFree(m->act), cudaFree(m->zero);
    free(m->x_host);
}

static void matmul_call(struct lab *lab, void *user, int i) {
    struct matmul *m = (struct matmul *)user;
    struct lp_weight w = weight_of(m->type, m->n_in, m->n_out, 1,
                                   m->weights + (size_t)(i % m->n_copies) * m->mat_bytes);
    struct lp_op_matmul op = {};
    op.w = &w;
    op.x = m->x;
    op.x_stride = m->n_in;
    op.y = m->y;
    op.y_stride = m->n_out;
    op.n_rows = m->n_rows;
    lab->device->backend->matmul(lab->device, &op);
}

static void version_call(struct lab *lab, void *user, int i) {
    struct matmul *m = (struct matmul *)user;
    struct lp_weight w = weight_of(m->type, m->n_in, m->n_out, 1,
                                   m->weights + (size_t)(i % m->n_copies) * m->mat_bytes);
    struct lp_cuda_q8_job job = {};
    job.w = &w;
    job.mode = LP_CUDA_Q8_MATMUL;
    job.x = m->act;
    job.zero = m->zero;
    job.x_row = 1;
    job.y = m->y;
    job.y_row = m->n_out;
    job.n_rows = m->n_rows;
    m->start(lab, &job);
}

static float rounded(const float *x, int64_t i, int64_t n) {
    const int64_t g = i / 32 * 32;
    float amax = 0;
    for (int64_t k = g; k < g + 32 && k < n; k++) amax = fmaxf(amax, fabsf(x[k]));
    return amax > 0 ? amax / 127.0f * nearbyintf(x[i] * (127.0f / amax)) : 0;
}

// Sampled outputs of what y holds, from copy 0 of the weights: the largest error, relative to
// sum |w x|, against double with activations as rounded.
static void matmul_check(struct lab *lab, const struct matmul *m, bool rounds, double bound,
                         char *text, size_t text_bytes) {
    const struct lp_type_info *info = lp_type_info((uint32_t)m->type);
    struct lp_weight w = weight_of(m->type, m->n_in, m->n_out, 1, m->weights);
    uint8_t *row = (uint8_t *)malloc(w.row_bytes);
    float *values = (float *)malloc((size_t)m->n_in * sizeof(float)), got;
    double worst = 0;
    for (int s = 0; s < 24; s++) {
        const int64_t r = s == 0   ? 0
                          : s == 1 ? m->n_out - 1
                                   : (int64_t)(lp_rng_u64(&lab->rng) % (uint64_t)m->n_out);
        const int64_t t = s % m->n_rows;
        MUST(cudaMemcpy(row, (const uint8_t *)w.data + (size_t)r * w.row_bytes, w.row_bytes,
                        cudaMemcpyDeviceToHost));
        MUST(cudaMemcpy(&got, m->y + t * m->n_out + r, sizeof got, cudaMemcpyDeviceToHost));
        info->dequant(row, values, (size_t)m->n_in);
        const float *x = m->x_host + t * m->n_in;
        double sum = 0, size = 0;
        for (int64_t i = 0; i < m->n_in; i++) {
            const double product = (double)values[i] * (rounds ? rounded(x, i, m->n_in) : x[i]);
            sum += product;
            size += fabs(product);
        }
        const double error = fabs(got - sum) / size;
        if (!(error <= worst)) worst = error;
    }
    free(row);
    free(values);
    const bool ok = worst <= bound;
    if (!ok) lab->failed = true;
    snprintf(text, text_bytes, "%s %.1e", ok ? "ok" : "WRONG", worst);
}

static void poison(struct lab *lab, const struct matmul *m) {
    MUST(cudaMemsetAsync(m->y, 0xff, (size_t)(m->n_rows * m->n_out) * sizeof(float),
                         lab->cuda->stream));
}

static bool rounds_rows(struct lab *lab, lp_type type) {
    return lab->cuda->matmul[type]->impl != NULL;
}

static void bench_op(struct lab *lab, struct matmul *m, int64_t n_rows) {
    char shape[64], check[64];
    m->n_rows = n_rows;
    poison(lab, m);
    matmul_call(lab, m, 0);
    MUST(cudaStreamSynchronize(lab->cuda->stream));
    const bool wide = lab->cuda->may_vary && n_rows >= lab->cuda->wide_rows;
    matmul_check(lab, m, rounds_rows(lab, m->type) && !wide, wide ? 1e-3 : 1e-5, check,
                 sizeof check);
    snprintf(shape, sizeof shape, "%lldx%lld", (long long)m->n_in, (long long)m->n_out);
    const double s = time_calls(lab, matmul_call, m, n_rows > 32 ? 6 : calls_for(m->mat_bytes));
    row(lab, lab->cuda->start_early ? "matmul" : "matmul late",
        (wide ? lab->cuda->wide : lab->cuda->matmul)[m->type]->name, m->type, shape, n_rows, s,
        (double)m->mat_bytes, 2.0 * (double)(n_rows * m->n_in * m->n_out), check);
}

static void bench_version(struct lab *lab, struct matmul *m, const char *name, int64_t n_rows,
                          enum lp_cuda_act_layout layout,
                          void (*start)(struct lab *, const struct lp_cuda_q8_job *)) {
    char shape[64], check[64];
    struct lp_cuda_quantize q = {};
    m->n_rows = n_rows;
    m->start = start;
    q.x = m->x;
    q.x_row = m->n_in;
    q.n_rows = n_rows;
    q.n_heads = 1;
    q.n_in = m->n_in;
    q.layout = layout;
    q.out = m->act;
    lp_cuda_quantize_act(lab->cuda, &q);
    poison(lab, m);
    version_call(lab, m, 0);
    MUST(cudaStreamSynchronize(lab->cuda->stream));
    matmul_check(lab, m, true, 1e-5, check, sizeof check);
    snprintf(shape, sizeof shape, "%lldx%lld", (long long)m->n_in, (long long)m->n_out);
    const double s = time_calls(lab, version_call, m, n_rows > 32 ? 6 : calls_for(m->mat_bytes));
    row(lab, "version", name, m->type, shape, n_rows, s, (double)m->mat_bytes,
        2.0 * (double)(n_rows * m->n_in * m->n_out), check);
}

// ---- versions: warps, stages, blocks of a multiprocessor; 0 or the most blocks of the grid

template <class F, int N, int WARPS, int STAGES, bool SPLIT, int BLOCKS, int GRID>
static void vec_version(struct lab *lab, const struct lp_cuda_q8_job *job) {
    const struct lp_cuda_vec_work k = lp_cuda_vec_work_of(job);
    lp_cuda_vec_start<F, N, WARPS, STAGES, SPLIT, LP_CUDA_Q8_MATMUL, BLOCKS>(
        lab->cuda, &k, (unsigned)(GRID * lab->cuda->n_multiprocessors));
}
template <class F, int M, int NT, int STAGES, int BLOCKS>
static void tile_version(struct lab *lab, const struct lp_cuda_q8_job *job) {
    lp_cuda_tile_start<F, M, NT, STAGES, F::BYTES % 16 == 0, LP_CUDA_Q8_MATMUL, BLOCKS>(lab->cuda,
                                                                                        job);
}

#define MOST_SHARED (227 << 10) // of a block, with the few KB that SPLIT has besides

#define VEC(F, N, W, S, SPLIT, B, GRID)                                                            \
    if constexpr (W * S * lp_cuda_vec_sizes<F>::STAGE + 4096 <= MOST_SHARED)                       \
    bench_version(lab, m, "vec w" #W " s" #S " split" #SPLIT " b" #B " grid" #GRID, N,             \
                  LP_CUDA_ACT_ROUNDS, vec_version<F, N, W, S, SPLIT, B, GRID>)
#define TILE(F, M, NT, S, B, ROWS)                                                                 \
    if constexpr (8 * S * 16 * M * lp_cuda_tile_sizes<F, F::BYTES % 16 == 0>::ROW + 40000 <=       \
                  MOST_SHARED)                                                                     \
    bench_version(lab, m, "tile m" #M " n" #NT " s" #S " b" #B, ROWS, LP_CUDA_ACT_SUPERBLOCKS,     \
                  tile_version<F, M, NT, S, B>)

template <class F> static void vec_versions(struct lab *lab, struct matmul *m) {
    VEC(F, 1, 4, 2, 0, 4, 4);
    VEC(F, 1, 4, 2, 0, 4, 3);
    VEC(F, 1, 4, 3, 0, 4, 4);
    VEC(F, 1, 4, 3, 0, 4, 3);
    VEC(F, 1, 4, 4, 0, 3, 3);
    VEC(F, 1, 6, 3, 0, 2, 2);
    VEC(F, 1, 8, 3, 0, 2, 2);
    VEC(F, 1, 12, 2, 1, 1, 0);
    VEC(F, 2, 4, 3, 0, 4, 4);
    VEC(F, 2, 4, 2, 0, 4, 3);
}

template <class F> static void tile_versions(struct lab *lab, struct matmul *m) {
    TILE(F, 1, 1, 2, 2, 8);
    TILE(F, 1, 1, 2, 3, 8);
    TILE(F, 2, 1, 2, 1, 8);
    TILE(F, 2, 2, 2, 1, 16);
    TILE(F, 2, 4, 2, 1, 32);
}

// ---- experts: 256 of them, 8 chosen, GLM-5's sizes

struct experts {
    struct lp_weight gate, up, down;
    int64_t n_rows;
    int32_t *ids[8]; // device: choices of calls
    float *weights, *x, *y;
};

static void experts_call(struct lab *lab, void *user, int i) {
    struct experts *e = (struct experts *)user;
    struct lp_op_experts op = {};
    op.gate = &e->gate;
    op.up = &e->up;
    op.down = &e->down;
    op.x = e->x;
    op.x_stride = e->gate.n_in;
    op.n_rows = e->n_rows;
    op.ids = e->ids[i % 8];
    op.weights = e->weights;
    op.n_used = 8;
    op.y = e->y;
    op.y_stride = e->gate.n_in;
    lab->device->backend->experts(lab->device, &op);
}

// Counts of rows from first_wide on: with the kernels for many rows.
static void bench_experts(struct lab *lab, lp_type up_type, lp_type down_type,
                          const int64_t *row_counts, int n_counts, int first_wide) {
    enum { N_EXPERTS = 256, N_USED = 8, N_EMBD = 6144, WIDTH = 2048 };
    const int64_t most = row_counts[n_counts - 1]; // ids of the first rows serve the fewer
    struct experts e = {};
    e.gate = weight_of(up_type, N_EMBD, WIDTH, N_EXPERTS, NULL);
    e.up = e.gate;
    e.down = weight_of(down_type, WIDTH, N_EMBD, N_EXPERTS, NULL);
    struct lp_weight *all[] = {&e.gate, &e.up, &e.down};
    for (int i = 0; i < 3; i++) {
        uint8_t *data;
        MUST(cudaMalloc(&data, all[i]->mat_bytes * N_EXPERTS));
        fill(lab, all[i]->type, data, all[i]->mat_bytes * N_EXPERTS);
        all[i]->data = data;
    }
    float *host = (float *)malloc((size_t)(most * N_EMBD) * sizeof(float));
    for (int64_t i = 0; i < most * N_EMBD; i++) host[i] = lp_rng_normal(&lab->rng);
    MUST(cudaMalloc(&e.x, (size_t)(most * N_EMBD) * sizeof(float)));
    MUST(cudaMalloc(&e.y, (size_t)(most * N_EMBD) * sizeof(float)));
    MUST(cudaMalloc(&e.weights, (size_t)(most * N_USED) * sizeof(float)));
    MUST(cudaMemcpy(e.x, host, (size_t)(most * N_EMBD) * sizeof(float), cudaMemcpyHostToDevice));
    MUST(cudaMemset(e.y, 0, (size_t)(most * N_EMBD) * sizeof(float)));
    for (int64_t i = 0; i < most * N_USED; i++) host[i] = 0.125f;
    MUST(cudaMemcpy(e.weights, host, (size_t)(most * N_USED) * sizeof(float),
                    cudaMemcpyHostToDevice));
    int32_t *ids = (int32_t *)malloc((size_t)(most * N_USED) * sizeof(int32_t));
    int32_t *of_call[8];
    for (int c = 0; c < 8; c++) {
        of_call[c] = (int32_t *)malloc((size_t)(most * N_USED) * sizeof(int32_t));
        for (int64_t t = 0; t < most; t++) { // distinct within a row
            for (int j = 0; j < N_USED; j++) {
                bool again = true;
                while (again) {
                    ids[j] = (int32_t)(lp_rng_u64(&lab->rng) % N_EXPERTS);
                    again = false;
                    for (int k = 0; k < j; k++) again |= ids[k] == ids[j];
                }
                of_call[c][t * N_USED + j] = ids[j];
            }
        }
        MUST(cudaMalloc(&e.ids[c], (size_t)(most * N_USED) * sizeof(int32_t)));
        MUST(cudaMemcpy(e.ids[c], of_call[c], (size_t)(most * N_USED) * sizeof(int32_t),
                        cudaMemcpyHostToDevice));
    }
    for (int i = 0; i < n_counts; i++) {
        char text[64];
        e.n_rows = row_counts[i];
        double met = 0; // experts of a call, each of which must be read once
        for (int c = 0; c < 8; c++) {
            bool seen[N_EXPERTS] = {};
            for (int64_t k = 0; k < e.n_rows * N_USED; k++) {
                met += !seen[of_call[c][k]];
                seen[of_call[c][k]] = true;
            }
        }
        met /= 8;
        const double bytes = met * (double)(e.gate.mat_bytes + e.up.mat_bytes + e.down.mat_bytes);
        lab->cuda->may_vary = i >= first_wide;
        lab->cuda->wide_pairs = 0;
        const double s = time_calls(lab, experts_call, &e, e.n_rows > 256 ? 4 : 16);
        snprintf(text, sizeof text, "256/8 %s", lp_type_info((uint32_t)down_type)->name);
        row(lab, "experts", (i >= first_wide ? lab->cuda->wide : lab->cuda->matmul)[up_type]->name,
            up_type, text, e.n_rows, s, bytes,
            2.0 * 3 * (double)(e.n_rows * N_USED) * N_EMBD * WIDTH, "unchecked");
    }
    lab->cuda->may_vary = false;
    for (int i = 0; i < 3; i++) cudaFree((void *)all[i]->data);
    for (int c = 0; c < 8; c++) cudaFree(e.ids[c]), free(of_call[c]);
    cudaFree(e.x), cudaFree(e.y), cudaFree(e.weights);
    free(host), free(ids);
}

// ---- all of it

static void bench_shapes(struct lab *lab) {
    static const struct {
        int64_t n_in, n_out;
    } shapes[] = {{6144, 2048}, {2048, 16384}, {16384, 6144}, {6144, 12288}, {6144, 154880}};
    static const lp_type types[] = {LP_TYPE_Q4_K, LP_TYPE_Q5_K, LP_TYPE_Q6_K, LP_TYPE_Q8_0};
    static const int64_t rows[] = {1, 2, 4, 8, 16, 32};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            struct matmul m =
                matmul_open(lab, types[t], shapes[s].n_in, shapes[s].n_out, s == 3 ? 512 : 32);
            for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
                if (s != 0 || r < 3) bench_op(lab, &m, rows[r]);
            const bool early = lab->cuda->start_early; // what that is worth
            lab->cuda->start_early = false;
            for (int r = 0; early && r < 4; r += 3) bench_op(lab, &m, rows[r]);
            lab->cuda->start_early = early;
            if (s == 3) bench_op(lab, &m, 512);
            matmul_close(&m);
        }
}

// Many rows: both ways, where they may meet
static void bench_wide(struct lab *lab) {
    static const lp_type types[] = {LP_TYPE_Q4_K, LP_TYPE_Q5_K, LP_TYPE_Q6_K, LP_TYPE_Q8_0};
    static const int64_t rows[] = {32, 64, 128, 512, 4096};
    lab->cuda->wide_rows = 0;
    for (int t = 0; t < 4; t++) {
        struct matmul m = matmul_open(lab, types[t], 6144, 12288, 4096);
        for (int r = 0; r < 5; r++)
            for (int wide = 0; wide < 2; wide++) {
                lab->cuda->may_vary = wide;
                bench_op(lab, &m, rows[r]);
            }
        matmul_close(&m);
    }
    lab->cuda->may_vary = false;
}

template <class F> static void bench_versions(struct lab *lab, lp_type type) {
    static const int64_t n_outs[] = {2048, 12288};
    for (int i = 0; i < 2; i++) {
        struct matmul m = matmul_open(lab, type, 6144, n_outs[i], 512);
        vec_versions<F>(lab, &m);
        if (i == 1) tile_versions<F>(lab, &m);
        matmul_close(&m);
    }
}

static void open_lab(struct lab *lab, const char *csv_path) {
    struct lp_err err = {};
    struct lp_reserve need = {};
    lp_rng_init(&lab->rng, 11);
    if (lp_backend_cuda.open(&lab->device, NULL, &err)) {
        fprintf(stderr, "bench_cuda_matmul: %s\n", err.text);
        exit(77);
    }
    need.n_rows = 4096;
    need.max_width = 16384;
    need.n_experts = 256;
    need.n_used = 8;
    need.expert_width = 2048;
    need.n_embd = 6144;
    if (lp_backend_cuda.reserve(lab->device, &need, &err)) {
        fprintf(stderr, "bench_cuda_matmul: %s\n", err.text);
        exit(1);
    }
    lab->cuda = lp_cuda_of(lab->device);
    if (csv_path && !(lab->csv = fopen(csv_path, "w"))) {
        fprintf(stderr, "bench_cuda_matmul: cannot write %s\n", csv_path);
        exit(1);
    }
    if (lab->csv)
        fprintf(lab->csv, "op,version,type,shape,rows,us,gb_s,of_copy,tflop_s,of_bf16,check\n");
}

int main(int argc, char **argv) {
    static const int64_t counts[] = {1, 2, 4, 8, 16, 64, 512, 64, 256, 512, 1024, 4096};
    static struct lab lab;
    open_lab(&lab, argc > 1 ? argv[1] : NULL);
    measure_copy(&lab);
    measure_bf16(&lab);
    printf("%s, %d multiprocessors: copy %.0f GB/s, bf16 %.0f TFLOP/s\n", lab.cuda->name,
           lab.cuda->n_multiprocessors, lab.copy_gbs, lab.bf16_tflops);
    if (lab.csv)
        fprintf(lab.csv, "limits,copy,,,,,%.1f,,,,\nlimits,bf16,,,,,,,%.1f,,\n", lab.copy_gbs,
                lab.bf16_tflops);
    bench_versions<lp_cuda_q4_k>(&lab, LP_TYPE_Q4_K);
    bench_versions<lp_cuda_q6_k>(&lab, LP_TYPE_Q6_K);
    bench_versions<lp_cuda_q8_0>(&lab, LP_TYPE_Q8_0);
    const bool narrow = argc > 2 && strcmp(argv[2], "narrow") == 0;
    bench_shapes(&lab);
    bench_experts(&lab, LP_TYPE_Q8_0, LP_TYPE_Q8_0, counts, 7, 7);
    bench_experts(&lab, LP_TYPE_Q4_K, LP_TYPE_Q6_K, counts, narrow ? 7 : 12, 7);
    if (!narrow) bench_wide(&lab);
    if (lab.csv) fclose(lab.csv);
    return lab.failed ? 1 : 0;
}
