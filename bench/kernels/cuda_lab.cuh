// What the laboratory of the CUDA kernels shares: random data on the device, timing by events, the
// limits of the chip, a line of the table.
#ifndef BENCH_CUDA_LAB_CUH
#define BENCH_CUDA_LAB_CUH

#include <algorithm>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "backend/cuda/cuda_mma.cuh"

#define PAGE 64 // tokens
#define CHECK(call)                                                                                \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_));                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static cudaStream_t stream;
static FILE *csv;
static const char *only = "", *only_kernel = NULL;
static double copy_rate, matrix_rate; // bytes and operations a second
static int n_multiprocessors;
static bool failed;

// ---- random data: values of unit variance, from a counter

static __host__ __device__ inline uint32_t mix(uint64_t x) {
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(x >> 32);
}
static __host__ __device__ inline float value_at(uint64_t i) {
    return ((float)(mix(i) & 0xffff) - 32767.5f) * (3.4641f / 65536.0f);
}
static __global__ void fill_16(uint32_t *to, size_t n_pairs, int type, uint64_t seed) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n_pairs; i += step) {
        const float a = value_at(seed + 2 * i), b = value_at(seed + 2 * i + 1);
        to[i] = type == LP_TYPE_F16 ? lp_cuda_pack2<LP_TYPE_F16>(a, b)
                                    : lp_cuda_pack2<LP_TYPE_BF16>(a, b);
    }
}
static __global__ void fill_32(float *to, size_t n, uint64_t seed) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = value_at(seed + i);
}
static void *take(size_t bytes) {
    void *block = NULL;
    CHECK(cudaMalloc(&block, bytes));
    return block;
}
static void fill_values(void *to, size_t bytes, int type) {
    if (type == LP_TYPE_F32)
        fill_32<<<1024, 256, 0, stream>>>((float *)to, bytes / 4, 77);
    else
        fill_16<<<4096, 256, 0, stream>>>((uint32_t *)to, bytes / 4, type, 1234567);
    CHECK(cudaGetLastError());
}
template <class T> static T *upload(const std::vector<T> &host) {
    T *block = (T *)take(host.size() * sizeof(T));
    CHECK(cudaMemcpy(block, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return block;
}

// ---- timing: the median of at most n runs and some 40 ms, after two that are not counted

template <class Run> static double median_seconds(int n, const Run &run) {
    cudaEvent_t begin, end;
    std::vector<double> times;
    double total = 0;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int i = -2; i < n && (i < 5 || total < 0.04); i++) {
        float ms;
        CHECK(cudaEventRecord(begin, stream));
        run(i + 2);
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        total += ms * 1e-3;
        if (i >= 0) times.push_back(ms * 1e-3);
    }
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

// The time of one run among several that follow each other in a graph, so that what the host does for a
// launch is not counted; some 1 ms a graph.
template <class Run> static double median_in_graph(const Run &run) {
    cudaGraph_t graph;
    cudaGraphExec_t program;
    const double once = median_seconds(5, run);
    const int n = std::max(1, std::min(40, (int)(1e-3 / once)));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < n; i++) run(i);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&program, graph, 0));
    const double seconds =
        median_seconds(30, [&](int) { CHECK(cudaGraphLaunch(program, stream)); });
    CHECK(cudaGraphExecDestroy(program));
    CHECK(cudaGraphDestroy(graph));
    return seconds / n;
}

static void report(const char *name, const char *kernel, const char *setting, double seconds,
                   double bytes, double flops, double error, double bound) {
    const bool good = error <= bound; // NaN is not
    failed |= !good;
    printf("%-30s %-12s %-10s %9.1f us %6.2f TB/s %3.0f%% %6.0f TF/s %3.0f%%  %.1e%s\n", name,
           kernel, setting, seconds * 1e6, bytes / seconds * 1e-12,
           100 * bytes / seconds / copy_rate, flops / seconds * 1e-12,
           100 * flops / seconds / matrix_rate, error, good ? "" : "  WRONG");
    fflush(stdout);
    if (csv)
        fprintf(csv, "%s,%s,%s,%.2f,%.3f,%.1f,%.3f,%.3f,%.2e,%.1e\n", name, kernel, setting,
                seconds * 1e6, bytes / seconds * 1e-12, flops / seconds * 1e-12,
                bytes / seconds / copy_rate, flops / seconds / matrix_rate, error, bound);
}

// Of n rows, each judged by 256 threads (result: largest difference, largest value): the largest
// difference relative to its row's largest value. Waits for the kernel that wrote it.
static double worst_of_rows(const double *result, int n) {
    std::vector<double> host((size_t)n * 512);
    double error = 0;
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(host.data(), result, host.size() * 8, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        double worst = 0, largest = 0;
        for (int t = 0; t < 256; t++) {
            const double off = host[(size_t)(i * 256 + t) * 2];
            worst = off > worst || isnan(off) ? off : worst;
            largest = std::max(largest, host[(size_t)(i * 256 + t) * 2 + 1]);
        }
        if (!(worst / largest <= error)) error = worst / largest;
    }
    return error;
}

// ---- the limits

static __global__ void __launch_bounds__(256, 1) matrix_loop(int n, float *out) {
#if defined(LP_CUDA_HAS_WGMMA)
    LP_CUDA_SHARED(shared);
    float c[128] = {};
    for (int i = threadIdx.x; i < 40960 / 4; i += 256) // 64 x 64 and 64 x 256, random values
        ((uint32_t *)shared)[i] = lp_cuda_pack2<LP_TYPE_BF16>(value_at(2 * i), value_at(2 * i + 1));
    lp_cuda_wgmma_publish();
    __syncthreads();
    const uint32_t at = lp_cuda_shared_at(shared);
    for (int i = 0; i < n; i++) {
        lp_cuda_wgmma_begin();
#pragma unroll
        for (int k = 0; k < 4; k++)
            lp_cuda_wgmma_256<LP_TYPE_BF16>(c, lp_cuda_wgmma_matrix(at + k * 32, 16, 1024),
                                            lp_cuda_wgmma_matrix(at + 8192 + k * 2048, 8192, 1024));
        lp_cuda_wgmma_commit();
        lp_cuda_wgmma_wait<0>();
    }
    float sum = 0;
    for (int i = 0; i < 128; i++) sum += c[i];
    out[blockIdx.x * 256 + threadIdx.x] = sum;
#endif
}

// A matrix product of cuBLAS, 8192 x 8192 x 8192; 0 where it is not installed.
static double cublas_rate(void *a, void *b, void *c) {
    void *library = dlopen("libcublas.so.13", RTLD_NOW), *handle = NULL;
    if (!library) library = dlopen("libcublas.so", RTLD_NOW);
    if (!library) return 0;
    int (*create)(void **) = (int (*)(void **))dlsym(library, "cublasCreate_v2");
    int (*set_stream)(void *, cudaStream_t) =
        (int (*)(void *, cudaStream_t))dlsym(library, "cublasSetStream_v2");
    int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *,
                int, int, const void *, void *, int, int, int, int) =
        (int (*)(void *, int, int, int, int, int, const void *, const void *, int, int,
                 const void *, int, int, const void *, void *, int, int, int,
                 int))dlsym(library, "cublasGemmEx");
    if (!create || !set_stream || !gemm || create(&handle) || set_stream(handle, stream)) return 0;
    const int n = 8192, bf16 = 14, float32 = 68; // CUDA_R_16BF, CUBLAS_COMPUTE_32F
    const float one = 1, zero = 0;
    int status = 0;
    const double seconds = median_seconds(20, [&](int) {
        status |= gemm(handle, 1, 0, n, n, n, &one, a, bf16, n, b, bf16, n, &zero, c, bf16, n,
                       float32, -1);
    });
    return status ? 0 : 2.0 * n * n * n / seconds;
}

static void measure_limits(int n_sms) {
    const size_t bytes = (size_t)2 << 30;
    void *a = take(bytes), *b = take(bytes);
    fill_values(a, bytes, LP_TYPE_BF16);
    copy_rate = 2.0 * bytes / median_seconds(20, [&](int) {
                    CHECK(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, stream));
                });
    const int n = 2000, shared = 40960 + LP_CUDA_SHARED_PAD;
    CHECK(cudaFuncSetAttribute(matrix_loop, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    const double seconds = median_seconds(20, [&](int) {
        matrix_loop<<<n_sms, 256, shared, stream>>>(n, (float *)a);
        CHECK(cudaGetLastError());
    });
    matrix_rate = 2.0 * 64 * 256 * 64 * 2 * n * n_sms / seconds;
    fill_values(b, bytes, LP_TYPE_BF16);
    const double loop_rate = matrix_rate, rate = cublas_rate(a, b, (uint8_t *)a + (bytes >> 1));
    if (rate > 0) matrix_rate = rate;
    printf("copy %.2f TB/s (read + write); bf16 products %.0f TFLOP/s of a loop of wgmma, %.0f of "
           "cuBLAS (8192^3, random values): percentages are of the %s\n\n",
           copy_rate * 1e-12, loop_rate * 1e-12, rate * 1e-12, rate > 0 ? "latter" : "former");
    if (csv)
        fprintf(csv, "copy,,,,%.3f,,,,,\nbf16 loop,,,,,%.1f,,,,\nbf16 cuBLAS,,,,,%.1f,,,,\n",
                copy_rate * 1e-12, loop_rate * 1e-12, rate * 1e-12);
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
}

#endif
