// Embedding rows, the elementwise operations, and rows into the cache. Formulas, precision and order of
// roundings are those of ref/ref_norm_rope.c.
#include "backend/cuda/cuda_dequant.cuh"
#include "backend/cuda/cuda_round.cuh"

// ---- embed: a thread an octet

static __global__ void embed_kernel(struct lp_cuda_weight table,
                                    const struct lp_cuda_tables *tables, const int32_t *ids,
                                    float *out, int64_t out_stride, int64_t n_rows) {
    lp_cuda_follow();
    int64_t octets = (table.n_in + 7) / 8, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= octets * n_rows) return;
    int64_t t = i / octets, at = i % octets * 8;
    int left = table.n_in - at < 8 ? (int)(table.n_in - at) : 8;
    float values[8], factor = lp_cuda_weight_scale(table, 0);
    lp_cuda_dequant8(table.type, lp_cuda_weight_row(table, 0, ids[t]), at, left, tables, values);
    for (int j = 0; j < left; j++) out[t * out_stride + at + j] = values[j] * factor;
}

cudaError_t lp_cuda_probe_kernels(int *architecture) {
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, (const void *)embed_kernel);
    cudaGetLastError();
    *architecture = error ? 0 : attributes.ptxVersion;
    return error;
}

void lp_cuda_embed(struct lp_device *device, const struct lp_op_embed *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->error || op->n_rows == 0) return;
    int64_t n = (op->table->n_in + 7) / 8 * op->n_rows;
    lp_cuda_start_early(dev, embed_kernel, lp_cuda_blocks(n, LP_CUDA_THREADS), LP_CUDA_THREADS, 0,
                        lp_cuda_weight_of(op->table), dev->tables, op->ids, op->out, op->out_stride,
                        op->n_rows);
    LP_CUDA_LAUNCHED(dev, "embed");
}

// ---- add_parts: a thread a value

static __global__ void add_parts_kernel(float *x, const float *parts, size_t n, int32_t n_parts) {
    lp_cuda_follow();
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = parts[i];
    for (int32_t r = 1; r < n_parts; r++) sum += parts[(size_t)r * n + i];
    x[i] = sum;
}

void lp_cuda_add_parts(struct lp_cuda_device *dev, float *x, const float *parts, size_t n,
                       int32_t n_parts) {
    if (dev->error || n == 0) return;
    lp_cuda_start_early(dev, add_parts_kernel, lp_cuda_blocks((int64_t)n, LP_CUDA_THREADS),
                        LP_CUDA_THREADS, 0, x, parts, n, n_parts);
    LP_CUDA_LAUNCHED(dev, "a sum over ranks");
}

// ---- scan_rows: a block a piece of a row, then a warp a row for its pieces

#define SCAN_PIECE 8192

// Larger values have larger numbers, and of equal ones the first has; 0: none. Bit 0 of the second word:
// a value is not finite.
static __device__ inline uint64_t scan_rank(float x, int64_t i) {
    const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x),
                   order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)order << 32 | (uint32_t) ~(uint32_t)i;
}
static __device__ inline uint64_t warp_most(uint64_t x) {
    for (int step = 16; step > 0; step /= 2) {
        const uint64_t other = __shfl_xor_sync(0xffffffffu, x, step);
        x = other > x ? other : x;
    }
    return x;
}

static __global__ void __launch_bounds__(LP_CUDA_THREADS)
    scan_pieces_kernel(struct lp_op_scan_rows op, uint64_t *found) {
    __shared__ uint64_t of_warp[LP_CUDA_WARPS];
    lp_cuda_follow();
    const int64_t begin = (int64_t)blockIdx.x * SCAN_PIECE,
                  end = begin + SCAN_PIECE < op.width ? begin + SCAN_PIECE : op.width;
    const float *x = op.x + blockIdx.y * op.x_stride;
    uint64_t most = 0;
    int bad = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += LP_CUDA_THREADS) {
        const float value = x[i];
        const uint64_t rank = scan_rank(value, i);
        bad |= !isfinite(value);
        if (rank > most && !(op.skip && op.skip[i])) most = rank;
    }
    bad = __syncthreads_or(bad);
    most = warp_most(most);
    if (threadIdx.x % LP_CUDA_WARP == 0) of_warp[threadIdx.x / LP_CUDA_WARP] = most;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < LP_CUDA_WARPS; i++) most = of_warp[i] > most ? of_warp[i] : most;
    uint64_t *to = found + 2 * ((uint64_t)blockIdx.y * gridDim.x + blockIdx.x);
    to[0] = most;
    to[1] = bad != 0;
}

static __global__ void scan_rows_kernel(struct lp_op_scan_rows op, const uint64_t *found,
                                        int n_pieces) {
    lp_cuda_follow();
    uint64_t most = 0, bad = 0;
    found += 2 * (uint64_t)blockIdx.x * n_pieces;
    for (int i = threadIdx.x; i < n_pieces; i += LP_CUDA_WARP) {
        most = found[2 * i] > most ? found[2 * i] : most;
        bad |= found[2 * i + 1];
    }
    most = warp_most(most);
    bad = warp_most(bad);
    if (threadIdx.x != 0) return;
    op.bad[blockIdx.x] = (int32_t)bad;
    if (op.largest) op.largest[blockIdx.x] = most ? (int32_t) ~(uint32_t)most : -1;
}

void lp_cuda_scan_rows(struct lp_device *device, const struct lp_op_scan_rows *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    const unsigned n_pieces = lp_cuda_blocks(op->width, SCAN_PIECE);
    const int64_t most = n_pieces ? LP_CUDA_SCAN_PIECES / n_pieces : 0;
    for (int64_t first = 0; first < op->n_rows && most > 0 && !dev->error; first += most) {
        struct lp_op_scan_rows part = *op;
        part.n_rows = op->n_rows - first < most ? op->n_rows - first : most;
        part.x += first * op->x_stride;
        part.bad += first;
        if (part.largest) part.largest += first;
        lp_cuda_start_early(dev, scan_pieces_kernel, dim3(n_pieces, (unsigned)part.n_rows),
                            LP_CUDA_THREADS, 0, part, dev->found);
        lp_cuda_start_early(dev, scan_rows_kernel, (unsigned)part.n_rows, LP_CUDA_WARP, 0, part,
                            (const uint64_t *)dev->found, (int)n_pieces);
        LP_CUDA_LAUNCHED(dev, "scan_rows");
    }
}

// ---- add, silu_mul: a thread a value

static __global__ void add_kernel(struct lp_op_add op) {
    lp_cuda_follow();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= op.n_rows * op.width) return;
    int64_t t = i / op.width, k = i % op.width;
    op.y[t * op.y_stride + k] += op.x[t * op.x_stride + k];
}

void lp_cuda_add(struct lp_device *device, const struct lp_op_add *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    int64_t n = op->n_rows * op->width;
    if (dev->error || n == 0) return;
    lp_cuda_start_early(dev, add_kernel, lp_cuda_blocks(n, LP_CUDA_THREADS), LP_CUDA_THREADS, 0,
                        *op);
    LP_CUDA_LAUNCHED(dev, "add");
}

static __global__ void silu_mul_kernel(struct lp_op_silu_mul op) {
    lp_cuda_follow();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= op.n_rows * op.width) return;
    int64_t at = i / op.width * op.stride + i % op.width;
    op.y[at] = lp_cuda_silu_mul(op.gate[at], op.up[at]);
}

void lp_cuda_silu_mul(struct lp_device *device, const struct lp_op_silu_mul *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    int64_t n = op->n_rows * op->width;
    if (dev->error || n == 0) return;
    lp_cuda_start_early(dev, silu_mul_kernel, lp_cuda_blocks(n, LP_CUDA_THREADS), LP_CUDA_THREADS,
                        0, *op);
    LP_CUDA_LAUNCHED(dev, "silu_mul");
}

// ---- cache_write: a thread a value, or a block of 32 of Q8_0; the bytes of quant/quantize.c

static __device__ void to_q8_0(const float *x, struct lp_block_q8_0 *b) { // as lp_quantize_q8_0
    float largest = 0.0f;
    bool finite = true;
    for (int j = 0; j < 32; j++) {
        finite &= isfinite(x[j]) != 0;
        largest = fabsf(x[j]) > largest ? fabsf(x[j]) : largest;
    }
    float d = largest / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    if (!finite || isinf(inverse)) inverse = 0.0f;
    for (int j = 0; j < 32; j++) {
        float v = x[j] * inverse;
        b->qs[j] = finite ? (int8_t)(int)((double)v + (v < 0 ? -0.5 : 0.5)) : 0;
    }
    b->d = lp_cuda_to_f16(finite ? d : nanf(""));
}

static __global__ void cache_write_kernel(struct lp_cuda_cache cache, int type, const float *x,
                                          int64_t x_stride, int64_t first_pos, int64_t n_rows,
                                          struct lp_cuda_batch batch) {
    lp_cuda_follow();
    int64_t pieces = type == LP_TYPE_Q8_0 ? cache.width / 32 : cache.width,
            i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pieces * n_rows) return;
    int64_t t = i / pieces, k = i % pieces;
    uint8_t *row = lp_cuda_cache_row(lp_cuda_cache_for(cache, batch, t),
                                     lp_cuda_position(batch, first_pos, t));
    const float *from = x + t * x_stride;
    if (type == LP_TYPE_Q8_0)
        to_q8_0(from + 32 * k, (struct lp_block_q8_0 *)row + k);
    else if (type == LP_TYPE_F32)
        ((float *)row)[k] = from[k];
    else
        ((uint16_t *)row)[k] =
            type == LP_TYPE_F16 ? lp_cuda_to_f16(from[k]) : lp_cuda_to_bf16(from[k]);
}

// A row of an FP8 cache: a warp a block of 128, or 32 values of the tail; bytes at any address.
static __global__ void cache_write_f8_kernel(struct lp_cuda_cache cache, int n_pieces,
                                             const float *x, int64_t x_stride, int64_t first_pos,
                                             int64_t n_rows, struct lp_cuda_batch batch) {
    lp_cuda_follow();
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LP_CUDA_WARP;
    if (i >= n_pieces * n_rows) return; // the whole warp
    const int64_t t = i / n_pieces;
    const int piece = (int)(i % n_pieces), lane = threadIdx.x % LP_CUDA_WARP,
              n_blocks = cache.n_blocked / 128;
    uint8_t *row = lp_cuda_cache_row(lp_cuda_cache_for(cache, batch, t),
                                     lp_cuda_position(batch, first_pos, t));
    const float *from = x + t * x_stride;
    if (piece >= n_blocks) {
        const int at = (piece - n_blocks) * LP_CUDA_WARP + lane, k = cache.n_blocked + at;
        if (k >= cache.width) return;
        uint8_t *to = row + n_blocks * sizeof(struct lp_block_f8_e4m3) + 2 * at;
        const uint16_t bits = lp_cuda_to_bf16(from[k]);
        to[0] = (uint8_t)bits;
        to[1] = (uint8_t)(bits >> 8);
        return;
    }
    float values[4], largest = 0.0f; // as lp_quantize_f8_e4m3
    bool finite = true;
    for (int j = 0; j < 4; j++) {
        values[j] = from[piece * 128 + 4 * lane + j];
        finite &= isfinite(values[j]) != 0;
        largest = fmaxf(largest, fabsf(values[j]));
    }
    for (int step = 16; step > 0; step /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    finite = __all_sync(0xffffffffu, finite);
    struct lp_block_f8_e4m3 *b = (struct lp_block_f8_e4m3 *)row + piece;
    const float d = largest / 448.0f;
    if (lane == 0) b->d = finite ? d : nanf("");
    for (int j = 0; j < 4; j++)
        b->q[4 * lane + j] = finite && d != 0 ? lp_cuda_to_e4m3(values[j] / d) : 0;
}

static void write_f8(struct lp_cuda_device *dev, const struct lp_op_cache_write *op) {
    const struct lp_cache_view *c = op->cache;
    const int n_pieces =
        (c->width - c->n_tail) / 128 + (c->n_tail + LP_CUDA_WARP - 1) / LP_CUDA_WARP;
    const int64_t n = op->n_rows * n_pieces * LP_CUDA_WARP;
    if (dev->error || n == 0) return;
    lp_cuda_start_early(dev, cache_write_f8_kernel, lp_cuda_blocks(n, LP_CUDA_THREADS),
                        LP_CUDA_THREADS, 0, lp_cuda_cache_of(c), n_pieces, op->x, op->x_stride,
                        op->first_pos, op->n_rows, lp_cuda_batch_of(op->batch));
    LP_CUDA_LAUNCHED(dev, "cache_write");
}

void lp_cuda_cache_write(struct lp_device *device, const struct lp_op_cache_write *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    const struct lp_cache_view *c = op->cache;
    if (c->type == LP_TYPE_F8_E4M3) {
        write_f8(dev, op);
        return;
    }
    int64_t n = op->n_rows * (c->type == LP_TYPE_Q8_0 ? c->width / 32 : c->width);
    if (dev->error || n == 0) return;
    lp_cuda_start_early(dev, cache_write_kernel, lp_cuda_blocks(n, LP_CUDA_THREADS),
                        LP_CUDA_THREADS, 0, lp_cuda_cache_of(c), (int)c->type, op->x, op->x_stride,
                        op->first_pos, op->n_rows, lp_cuda_batch_of(op->batch));
    LP_CUDA_LAUNCHED(dev, "cache_write");
}
