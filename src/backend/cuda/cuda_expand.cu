// Keys and values of the expanded form for its fast kernels: k[h][s] = W_UK[h] c[s], v[h][s] = W_UV[h] c[s],
// in the cache's 16-bit type, by mma.sync.
//
//   1. weights   a block: eight rows of a head's matrix, dequantised and rounded to the type; F16 rows times
//                a power of two, so that small weights keep their digits
//   2. products  a block: 128 keys, read where they lie in the cache, times 128 or 192 rows of weights, in
//                steps of 64 latent values; two stages, two blocks on a multiprocessor
//
// Products are exact, sums float32 in the order of the latent values, whatever the number of keys.
#include "backend/cuda/cuda_dequant.cuh"
#include "backend/cuda/cuda_mma.cuh"
#include "backend/cuda/cuda_prefill.h"

#define KEYS 128 // of a block
#define ROWS 8   // of weights, of a block
#define THREADS 256

struct expansion { // of a group of heads
    struct lp_cuda_cache cache;
    bool whole_chunks;    // rows lie at multiples of 16 bytes
    const uint16_t *w;    // [n_heads, n_out, latent]
    const float *unscale; // [n_heads, n_out]
    uint16_t *out;        // [n_heads, n_keys, n_out]
    int n_keys, n_out, latent;
};

// ---- weights

// w: the matrices from the group's first on, [n_out][latent], or [latent][n_out] if `transposed`.
template <int TYPE>
static __global__ void __launch_bounds__(THREADS)
    weights_kernel(struct lp_cuda_weight w, bool transposed, int n_out, int latent,
                   const struct lp_cuda_tables *tables, uint32_t *out, float *unscale) {
    extern __shared__ float values[]; // [ROWS][latent]
    const int first = (int)blockIdx.x * ROWS, h = (int)blockIdx.y;
    const float scale = lp_cuda_weight_scale(w, h);
    float x[8];
    for (int i = threadIdx.x; i < latent * ROWS / 8; i += THREADS)
        if (transposed) {
            lp_cuda_dequant8(w.type, lp_cuda_weight_row(w, h, i), first, min(8, n_out - first),
                             tables, x);
#pragma unroll
            for (int j = 0; j < 8; j++) values[j * latent + i] = x[j];
        } else {
            const int row = i / (latent / 8), at = i % (latent / 8) * 8;
            lp_cuda_dequant8(w.type, lp_cuda_weight_row(w, h, min(first + row, n_out - 1)), at, 8,
                             tables, x);
#pragma unroll
            for (int j = 0; j < 8; j++) values[row * latent + at + j] = x[j];
        }
    __syncthreads();
    const int row = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    if (first + row >= n_out) return;
    const float *from = values + row * latent;
    float power = 1.0f, largest = 0;
    if (TYPE == LP_TYPE_F16) {
        for (int i = lane; i < latent; i += LP_CUDA_WARP)
            largest = fmaxf(largest, fabsf(from[i] * scale));
        for (int step = 16; step > 0; step /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
        // To 1 ... 2 and not to the top of the range: sums over a row must fit nowhere but in float32.
        power = lp_cuda_power_to_range(largest) * 0x1p-13f;
    }
    const int64_t to = (int64_t)h * n_out + first + row;
    for (int i = lane; i < latent / 2; i += LP_CUDA_WARP)
        out[to * (latent / 2) + i] =
            lp_cuda_pack2<TYPE>(from[2 * i] * scale * power, from[2 * i + 1] * scale * power);
    if (lane == 0) unscale[to] = 1.0f / power;
}

// ---- products

template <int OUTS> struct stage_of { static constexpr int bytes = (KEYS + OUTS) * 128; };

// The panel of values 64 step ... + 63: this thread's chunk of rows mine, mine + 32, ...
template <int OUTS>
static __device__ __forceinline__ void
copy_step(const struct expansion &e, const uint8_t *const (&rows)[KEYS / 32],
          const uint16_t *weights, int n_weights, int step, uint32_t stage) {
    const int mine = threadIdx.x / 8, chunk = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < KEYS / 32; i++) {
        const uint8_t *from = rows[i] ? rows[i] + step * 128 + chunk * 16 : e.cache.base;
        const uint32_t to = stage + lp_cuda_tile_at(mine + 32 * i, chunk);
        if (e.whole_chunks)
            lp_cuda_copy16(to, from, rows[i] ? 16 : 0);
        else
            lp_cuda_copy16_of_4(to, from, rows[i] ? 16 : 0);
    }
#pragma unroll
    for (int i = 0; i < OUTS / 32; i++) {
        const int row = mine + 32 * i;
        lp_cuda_copy16(
            stage + KEYS * 128 + lp_cuda_tile_at(row, chunk),
            weights + (int64_t)min(row, n_weights - 1) * e.latent + step * 64 + chunk * 8, 16);
    }
}

// c[2][OUTS / 16]: a warp's 32 keys times half of the rows of weights.
template <int TYPE, int OUTS>
static __device__ __forceinline__ void multiply_step(float (&c)[2][OUTS / 16][4], uint32_t stage) {
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    const uint32_t keys = stage, weights = stage + KEYS * 128;
#pragma unroll
    for (int k = 0; k < 4; k++) { // 16 latent values each
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
            lp_cuda_load_matrices(a[m], keys + lp_cuda_tile_at(warp / 2 * 32 + 16 * m + lane % 16,
                                                               2 * k + lane / 16));
#pragma unroll
        for (int n = 0; n < OUTS / 32; n++) { // 16 rows of weights each
            uint32_t b[4];
            lp_cuda_load_matrices(b, weights + lp_cuda_tile_at(warp % 2 * (OUTS / 2) + 16 * n +
                                                                   lane / 16 * 8 + lane % 8,
                                                               2 * k + lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < 2; m++) {
                lp_cuda_mma<TYPE>(c[m][2 * n], a[m], b[0], b[1]);
                lp_cuda_mma<TYPE>(c[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// Grid: keys along x, rows of weights along y, heads along z.
template <int TYPE, int OUTS>
static __global__ void __launch_bounds__(THREADS, 2)
    expand_kernel(const __grid_constant__ struct expansion e) {
    LP_CUDA_SHARED(shared);
    const int first_key = (int)blockIdx.x * KEYS, first_out = (int)blockIdx.y * OUTS,
              h = (int)blockIdx.z, warp = threadIdx.x / LP_CUDA_WARP,
              lane = threadIdx.x % LP_CUDA_WARP, n_steps = e.latent / 64;
    const uint16_t *weights = e.w + ((int64_t)h * e.n_out + first_out) * e.latent;
    const uint8_t *rows[KEYS / 32];
#pragma unroll
    for (int i = 0; i < KEYS / 32; i++) {
        const int key = first_key + (int)threadIdx.x / 8 + 32 * i;
        rows[i] = key < e.n_keys ? lp_cuda_cache_row(e.cache, key) : NULL;
    }
    const uint32_t stages = lp_cuda_shared_at(shared);
    float c[2][OUTS / 16][4] = {};
    copy_step<OUTS>(e, rows, weights, e.n_out - first_out, 0, stages);
    lp_cuda_copy_commit();
    for (int step = 0; step < n_steps; step++) {
        if (step + 1 < n_steps)
            copy_step<OUTS>(e, rows, weights, e.n_out - first_out, step + 1,
                            stages + (step + 1) % 2 * stage_of<OUTS>::bytes);
        lp_cuda_copy_commit();
        lp_cuda_copy_wait<1>();
        __syncthreads();
        multiply_step<TYPE, OUTS>(c, stages + step % 2 * stage_of<OUTS>::bytes);
        __syncthreads(); // the stage is written again
    }
#pragma unroll
    for (int n = 0; n < OUTS / 16; n++) {
        const int out = first_out + warp % 2 * (OUTS / 2) + 8 * n + lane % 4 * 2;
        if (out >= e.n_out) continue;
        const float2 unscale = *(const float2 *)(e.unscale + (int64_t)h * e.n_out + out);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = first_key + warp / 2 * 32 + 8 * i + lane / 4;
            const float *sums = c[i / 2][n] + i % 2 * 2;
            if (key < e.n_keys)
                *(uint32_t *)(e.out + ((int64_t)h * e.n_keys + key) * e.n_out + out) =
                    lp_cuda_pack2<TYPE>(sums[0] * unscale.x, sums[1] * unscale.y);
        }
    }
}

template <int TYPE, int OUTS>
static cudaError_t start_products(const struct expansion *e, int64_t n_heads, cudaStream_t stream) {
    const int shared = 2 * stage_of<OUTS>::bytes + LP_CUDA_SHARED_PAD;
    const cudaError_t error = cudaFuncSetAttribute(
        expand_kernel<TYPE, OUTS>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (error) return error;
    const dim3 blocks(lp_cuda_blocks(e->n_keys, KEYS), lp_cuda_blocks(e->n_out, OUTS),
                      (unsigned)n_heads);
    expand_kernel<TYPE, OUTS><<<blocks, THREADS, shared, stream>>>(*e);
    return cudaGetLastError();
}

template <int TYPE>
static cudaError_t expand(struct lp_cuda_device *dev, const struct lp_op_mla_expanded *op,
                          const struct lp_weight *w, bool transposed, int64_t first,
                          int64_t n_heads, int n_out, uint16_t *out) {
    const struct lp_cache_view *view = op->cache;
    const struct lp_weight part = lp_weight_part(w, first, n_heads, 0, w->n_out);
    struct expansion e = {};
    e.cache = lp_cuda_cache_of(view);
    e.whole_chunks = ((uintptr_t)view->base | view->row_bytes | view->page_bytes) % 16 == 0;
    e.w = dev->scratch.up_16;
    e.unscale = dev->scratch.up_unscale;
    e.out = out;
    e.n_keys = (int)(op->visible.first_pos + op->visible.n_queries);
    e.n_out = n_out;
    e.latent = op->latent;
    const dim3 blocks(lp_cuda_blocks(n_out, ROWS), (unsigned)n_heads);
    weights_kernel<TYPE>
        <<<blocks, THREADS, (size_t)ROWS * op->latent * sizeof(float), dev->stream>>>(
            lp_cuda_weight_of(&part), transposed, n_out, op->latent, dev->tables,
            (uint32_t *)dev->scratch.up_16, dev->scratch.up_unscale);
    const cudaError_t error = cudaGetLastError();
    if (error) return error;
    return n_out % 192 == 0 ? start_products<TYPE, 192>(&e, n_heads, dev->stream)
                            : start_products<TYPE, 128>(&e, n_heads, dev->stream);
}

cudaError_t lp_cuda_expand_heads(struct lp_cuda_device *dev, const struct lp_op_mla_expanded *op,
                                 int64_t first, int64_t n_heads) {
    uint16_t *keys = dev->scratch.keys_16, *values = dev->scratch.values_16;
    cudaError_t error;
    if (op->cache->type == LP_TYPE_F16) {
        error = expand<LP_TYPE_F16>(dev, op, op->k_up, op->k_transposed, first, n_heads, op->nope,
                                    keys);
        return error ? error
                     : expand<LP_TYPE_F16>(dev, op, op->v_up, false, first, n_heads, op->v_dim,
                                           values);
    }
    error =
        expand<LP_TYPE_BF16>(dev, op, op->k_up, op->k_transposed, first, n_heads, op->nope, keys);
    return error
               ? error
               : expand<LP_TYPE_BF16>(dev, op, op->v_up, false, first, n_heads, op->v_dim, values);
}
