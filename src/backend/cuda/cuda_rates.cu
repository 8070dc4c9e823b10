// What the chip can do, measured (lp_backend.rates): copies of a buffer far larger than the L2 cache, and
// products of 16-bit numbers from shared memory. On random numbers: on zeros chips run faster.
#include "backend/cuda/cuda_mma.cuh"

#define COPY_BYTES ((size_t)1 << 30) // at most
#define N_TIMES 5                    // the best counts
#define PANELS 5                     // one of a, four of b
#define THREADS 256                  // two groups of four warps
#define ROUNDS 2048                  // of four products of 64 x 256 x 16 each

static __global__ void fill_kernel(uint32_t *to, size_t n) { // pairs of values between 0.5 and 1
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
        x ^= x >> 29;
        x *= 0xbf58476d1ce4e5b9u;
        to[i] = ((uint32_t)(x >> 32) & 0x83ff83ffu) | 0x38003800u; // float16, of both signs
    }
}

// out: so that nothing is left out.
static __global__ void __launch_bounds__(THREADS) product_kernel(const uint4 *from, float *out) {
    LP_CUDA_SHARED(shared);
    for (int i = threadIdx.x; i < PANELS * 64 * 8; i += THREADS) ((uint4 *)shared)[i] = from[i];
    __syncthreads();
#if defined(LP_CUDA_HAS_WGMMA)
    const uint32_t a = lp_cuda_shared_at(shared), b = a + 64 * 128;
    float c[128] = {};
    lp_cuda_wgmma_publish();
    __syncthreads();
    for (int round = 0; round < ROUNDS; round++) {
        lp_cuda_wgmma_begin();
#pragma unroll
        for (int k = 0; k < 4; k++)
            lp_cuda_wgmma_256<LP_TYPE_F16>(c, lp_cuda_wgmma_matrix(a + k * 32, 16, 1024),
                                           lp_cuda_wgmma_matrix(b + k * 16 * 128, 64 * 128, 1024));
        lp_cuda_wgmma_commit();
        lp_cuda_wgmma_wait<0>();
    }
    constexpr int N = 128;
#else // a warp 16 x 64 of them, eight times the rounds
    const uint32_t at = lp_cuda_shared_at(shared) + threadIdx.x % 32 * 16;
    uint32_t a[4], b[8][4];
    float c[16][4] = {};
    lp_cuda_load_matrices(a, at);
#pragma unroll
    for (int i = 0; i < 8; i++) lp_cuda_load_matrices(b[i], at + 512 * (i + 1));
    for (int round = 0; round < 8 * ROUNDS; round++)
#pragma unroll
        for (int i = 0; i < 16; i++)
            lp_cuda_mma<LP_TYPE_F16>(c[i], a, b[i / 2][i % 2 * 2], b[i / 2][i % 2 * 2 + 1]);
    constexpr int N = 16;
#endif
    float sum = 0;
    for (int i = 0; i < N; i++) sum += *((const float *)c + i);
    if (sum == 12345.0f) out[0] = sum;
}

struct clock { // of the device
    cudaEvent_t begin, end;
};

static double seconds_since(const struct clock *c, cudaStream_t stream) {
    float ms = 0;
    cudaEventRecord(c->end, stream);
    cudaEventSynchronize(c->end);
    cudaEventElapsedTime(&ms, c->begin, c->end);
    return (double)ms * 1e-3;
}

static double copy_rate(const struct lp_cuda_device *dev, const struct clock *c, uint8_t *block,
                        size_t half) {
    double best = 0;
    for (int i = 0; i < N_TIMES; i++) {
        cudaEventRecord(c->begin, dev->stream);
        cudaMemcpyAsync(block, block + half, half, cudaMemcpyDeviceToDevice, dev->stream);
        const double s = seconds_since(c, dev->stream);
        if (s > 0 && 2.0 * (double)half / s > best) best = 2.0 * (double)half / s;
    }
    return best;
}

static double product_rate(const struct lp_cuda_device *dev, const struct clock *c,
                           const uint8_t *block) {
    const int shared = PANELS * 64 * 128 + LP_CUDA_SHARED_PAD, blocks = 2 * dev->n_multiprocessors;
    const double of_warps = dev->major == 9 ? 2.0 * 4 * 64 * 256 * 16 : 8.0 * 8 * 16 * 16 * 8 * 16;
    double best = 0;
    cudaFuncSetAttribute((const void *)product_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         shared);
    for (int i = 0; i < N_TIMES; i++) {
        cudaEventRecord(c->begin, dev->stream);
        product_kernel<<<blocks, THREADS, shared, dev->stream>>>((const uint4 *)block,
                                                                 (float *)block);
        const double s = seconds_since(c, dev->stream), rate = of_warps * ROUNDS * blocks / s;
        if (s > 0 && rate > best) best = rate;
    }
    return best;
}

bool lp_cuda_rates(struct lp_device *device, struct lp_device_rates *out) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    size_t left = 0, total = 0;
    struct clock c = {};
    uint8_t *block = NULL;
    *out = (struct lp_device_rates){};
    if (dev->error || cudaMemGetInfo(&left, &total) != cudaSuccess) return false;
    const size_t half = (left / 4 < COPY_BYTES ? left / 4 : COPY_BYTES) / 4096 * 4096;
    if (half < (size_t)64 << 20 || cudaMalloc(&block, 2 * half) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    cudaEventCreate(&c.begin);
    cudaEventCreate(&c.end);
    fill_kernel<<<4 * (unsigned)dev->n_multiprocessors, THREADS, 0, dev->stream>>>(
        (uint32_t *)block, 2 * half / 4);
    out->copy_bytes_s = copy_rate(dev, &c, block, half);
    out->madds_s = product_rate(dev, &c, block);
    cudaEventDestroy(c.begin);
    cudaEventDestroy(c.end);
    cudaFree(block);
    return LP_CUDA_LAUNCHED(dev, "measuring") && out->copy_bytes_s > 0 && out->madds_s > 0;
}
