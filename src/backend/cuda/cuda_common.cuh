// What the kernels share: launches, weights as kernel arguments, sums over a warp or a block.
//
// Sums run in an order that the sizes of one row alone fix: lanes take elements lane, lane + 32, ...
// (or runs of 8 of them), then halves are added to halves. So a row's bits depend on nothing else
// (rule B2). Products are not contracted (-fmad=false); where one rounding is wanted, fmaf says so.
#ifndef LP_BACKEND_CUDA_CUDA_COMMON_CUH
#define LP_BACKEND_CUDA_CUDA_COMMON_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/cuda/cuda_device.h"

#define LP_CUDA_WARP 32
#define LP_CUDA_THREADS 256 // of most blocks
#define LP_CUDA_WARPS (LP_CUDA_THREADS / LP_CUDA_WARP)

// Keeps what went wrong with the launch of the line before.
#define LP_CUDA_LAUNCHED(dev, where) lp_cuda_note(dev, cudaGetLastError(), where)

static inline unsigned lp_cuda_blocks(int64_t n, int64_t each) {
    return (unsigned)((n + each - 1) / each);
}

// early: the kernel waits for its input itself, and may start before the kernel in front of it has ended.
template <class... P, class... A>
static inline void lp_cuda_start_on(cudaStream_t stream, bool early, void (*kernel)(P...),
                                    dim3 blocks, unsigned threads, size_t shared, A... args) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, args...); // its error stays for LP_CUDA_LAUNCHED
}
// Starts a kernel that calls lp_cuda_wait_for_input, if the device knows that, as soon as the one before
// lets it: it can fetch weights while that rounds the activations.
template <class... P, class... A>
static inline void lp_cuda_start_early(struct lp_cuda_device *dev, void (*kernel)(P...),
                                       dim3 blocks, unsigned threads, size_t shared, A... args) {
    lp_cuda_start_on(dev->stream, dev->start_early, kernel, blocks, threads, shared, args...);
}

// The first line of a kernel that lp_cuda_start_early starts and that reads nothing but its input: lets the
// next one start, whose first line is this too or which fetches weights, and waits for those before it.
static __device__ __forceinline__ void lp_cuda_follow(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

struct lp_cuda_weight { // lp_weight as a kernel argument
    const uint8_t *data;
    const float *scales; // or NULL
    int type;
    int64_t n_in, n_out, n_mats;
    size_t row_bytes, mat_bytes;
};

static inline struct lp_cuda_weight lp_cuda_weight_of(const struct lp_weight *w) {
    struct lp_cuda_weight out = {(const uint8_t *)w->data,
                                 w->scales,
                                 (int)w->type,
                                 w->n_in,
                                 w->n_out,
                                 w->n_mats,
                                 w->row_bytes,
                                 w->mat_bytes};
    return out;
}

static __device__ inline const uint8_t *lp_cuda_weight_row(const struct lp_cuda_weight &w,
                                                           int64_t mat, int64_t row) {
    return w.data + (size_t)mat * w.mat_bytes + (size_t)row * w.row_bytes;
}
static __device__ inline float lp_cuda_weight_scale(const struct lp_cuda_weight &w, int64_t mat) {
    return w.scales ? w.scales[mat] : 1.0f;
}

static __device__ inline double lp_cuda_warp_sum(double x) { // in every lane
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// The sum over a block of WARPS warps, in every thread.
template <int WARPS = LP_CUDA_WARPS> static __device__ inline double lp_cuda_block_sum(double x) {
    __shared__ double of_warp[WARPS];
    x = lp_cuda_warp_sum(x);
    __syncthreads(); // of_warp may still be read from the sum before
    if (threadIdx.x % LP_CUDA_WARP == 0) of_warp[threadIdx.x / LP_CUDA_WARP] = x;
    __syncthreads();
    if (WARPS == LP_CUDA_WARP) return lp_cuda_warp_sum(of_warp[threadIdx.x % LP_CUDA_WARP]);
    double sum = 0;
    for (int i = 0; i < WARPS; i++) sum += of_warp[i];
    return sum;
}

// As every backend's silu_mul: silu in double, one rounding.
static __device__ inline float lp_cuda_silu_mul(float gate, float up) {
    double g = gate;
    return (float)(g / (1.0 + exp(-g)) * up);
}

// A position's row in a paged cache.
struct lp_cuda_cache {
    uint8_t *base;
    const int32_t *pages;
    int width, page_tokens, slot_offset;
    int n_blocked; // values before the tail (lp_cache_view.n_tail)
    size_t row_bytes, page_bytes;
};

static inline struct lp_cuda_cache lp_cuda_cache_of(const struct lp_cache_view *v) {
    struct lp_cuda_cache out = {(uint8_t *)v->base, v->pages,       v->width,
                                v->page_tokens,     v->slot_offset, v->width - v->n_tail,
                                v->row_bytes,       v->page_bytes};
    return out;
}

// Where a row's sequence has its pages and stands, if not all are of one (lp_op_batch).
struct lp_cuda_batch {
    const int32_t *positions; // NULL: one sequence
    const int32_t *const *pages;
};

static inline struct lp_cuda_batch lp_cuda_batch_of(const struct lp_op_batch *b) {
    struct lp_cuda_batch out = {};
    if (b) {
        out.positions = b->positions;
        out.pages = b->pages;
    }
    return out;
}
// From row `first` on.
static inline struct lp_cuda_batch lp_cuda_batch_from(struct lp_cuda_batch b, int64_t first) {
    if (b.positions) {
        b.positions += first;
        b.pages += first;
    }
    return b;
}
static __device__ inline int64_t lp_cuda_position(const struct lp_cuda_batch &b, int64_t first_pos,
                                                  int64_t row) {
    return b.positions ? b.positions[row] : first_pos + row;
}
static __device__ inline struct lp_cuda_cache
lp_cuda_cache_for(struct lp_cuda_cache cache, const struct lp_cuda_batch &b, int64_t row) {
    if (b.positions) cache.pages = b.pages[row];
    return cache;
}

static __device__ inline uint8_t *lp_cuda_cache_row(const struct lp_cuda_cache &c, int64_t pos) {
    int64_t slot = pos + c.slot_offset;
    return c.base + (size_t)c.pages[slot / c.page_tokens] * c.page_bytes +
           (size_t)(slot % c.page_tokens) * c.row_bytes;
}

#endif
