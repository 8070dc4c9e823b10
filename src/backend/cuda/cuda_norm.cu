// Norms and the rotary embedding, and what is made of a row behind a product in one kernel. Formulas,
// precision and order of roundings are those of ref/ref_norm_rope.c.
#include "backend/cuda/cuda_ptx.cuh"
#include "backend/cuda/cuda_round.cuh"

// ---- norms: a block a row, sums in double

// A thread keeps its values, and fetches their weights while the kernel in front still runs: a step of one
// row is nothing but the time to fetch.
#define NORM_EACH 8

struct rounded_rows { // the norm's rows once more, as a product takes them
    uint8_t *out;     // NULL: not wanted
    size_t row_bytes;
    int padded; // values of a row, with the zeros behind it
    enum lp_cuda_act_layout layout;
};

template <int THREADS>
static __global__ void __launch_bounds__(THREADS)
    rms_norm_kernel(const float *x, int64_t x_stride, const float *w, float eps, float *y,
                    int64_t y_stride, int width, struct rounded_rows rounded) {
    float mine[NORM_EACH], factor[NORM_EACH];
    lp_cuda_let_next_start();
#pragma unroll
    for (int k = 0; k < NORM_EACH; k++) {
        const int i = threadIdx.x + k * THREADS;
        factor[k] = w && i < width ? w[i] : 1.0f;
    }
    lp_cuda_wait_for_input();
    x += blockIdx.x * x_stride;
    y += blockIdx.x * y_stride;
    uint8_t *row = rounded.out ? rounded.out + blockIdx.x * rounded.row_bytes : NULL;
    double sum = 0;
#pragma unroll
    for (int k = 0; k < NORM_EACH; k++) {
        const int i = threadIdx.x + k * THREADS;
        mine[k] = i < width ? x[i] : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < NORM_EACH; k++) sum += (double)mine[k] * mine[k];
    for (int i = threadIdx.x + NORM_EACH * THREADS; i < width; i += THREADS)
        sum += (double)x[i] * x[i];
    sum = lp_cuda_block_sum<THREADS / LP_CUDA_WARP>(sum);
    __shared__ double inverse;
    if (threadIdx.x == 0)
        inverse = 1.0 / sqrt(sum / width + eps); // all at once would take turns at it
    __syncthreads();
#pragma unroll
    for (int k = 0; k < NORM_EACH; k++) {
        const int i = threadIdx.x + k * THREADS;
        const float value = i < width ? (float)(mine[k] * inverse * factor[k]) : 0.0f;
        if (i < width) y[i] = value;
        if (row && i < rounded.padded) lp_cuda_round_group(value, row, i / 32, rounded.layout);
    }
    const int all = row ? rounded.padded : width; // of a rounded row the same for a whole warp
    for (int i = threadIdx.x + NORM_EACH * THREADS; i < all; i += THREADS) {
        const float value = i < width ? (float)(x[i] * inverse * (w ? w[i] : 1.0f)) : 0.0f;
        if (i < width) y[i] = value;
        if (row) lp_cuda_round_group(value, row, i / 32, rounded.layout);
    }
}

// The rounded rows that the products behind a norm take, if they take any.
static struct rounded_rows rounded_for(struct lp_cuda_device *dev,
                                       const struct lp_op_rms_norm *op) {
    struct rounded_rows rounded = {};
    struct lp_cuda_act act = {};
    int layout;
    dev->act.x = NULL; // y may be the rows that lie there
    if (!op->next || op->next->n_in != op->width) return rounded;
    if (op->next_used > 0
            ? !lp_cuda_experts_round(dev, op->next, op->next_used, op->n_rows, &layout)
            : !lp_cuda_matmul_rounds(dev, op->next, op->n_rows, &layout))
        return rounded;
    rounded.layout = (enum lp_cuda_act_layout)layout;
    rounded.row_bytes = lp_cuda_act_bytes(op->width, rounded.layout);
    if (rounded.row_bytes * (size_t)op->n_rows > dev->scratch.act_bytes) return rounded;
    rounded.out = dev->scratch.act;
    rounded.padded = (int)(rounded.row_bytes / LP_CUDA_ACT_BYTES) * LP_CUDA_SUPERBLOCK;
    act.x = op->y;
    act.x_row = op->y_stride;
    act.n_rows = op->n_rows;
    act.n_heads = 1;
    act.n_in = op->width;
    act.layout = layout;
    lp_cuda_act_is_there(dev, &act, false);
    return rounded;
}

void lp_cuda_rms_norm(struct lp_device *device, const struct lp_op_rms_norm *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->error || op->n_rows == 0) return;
    const struct rounded_rows rounded = rounded_for(dev, op);
    const bool wide = op->width > 2 * LP_CUDA_THREADS; // of the row alone: rule B2
    lp_cuda_start_early(dev, wide ? rms_norm_kernel<1024> : rms_norm_kernel<LP_CUDA_THREADS>,
                        (unsigned)op->n_rows, wide ? 1024 : LP_CUDA_THREADS, 0, op->x, op->x_stride,
                        op->w, op->eps, op->y, op->y_stride, op->width, rounded);
    LP_CUDA_LAUNCHED(dev, "rms_norm");
}

static __global__ void layer_norm_kernel(const float *x, int64_t x_stride, const float *w,
                                         const float *b, float eps, float *y, int64_t y_stride,
                                         int width) {
    lp_cuda_follow();
    x += blockIdx.x * x_stride;
    y += blockIdx.x * y_stride;
    double sum = 0, square = 0;
    for (int i = threadIdx.x; i < width; i += LP_CUDA_THREADS) sum += x[i];
    double mean = lp_cuda_block_sum(sum) / width;
    for (int i = threadIdx.x; i < width; i += LP_CUDA_THREADS)
        square += (x[i] - mean) * (x[i] - mean);
    double inverse = 1.0 / sqrt(lp_cuda_block_sum(square) / width + eps);
    for (int i = threadIdx.x; i < width; i += LP_CUDA_THREADS)
        y[i] = (float)((x[i] - mean) * inverse * w[i] + b[i]);
}

void lp_cuda_layer_norm(struct lp_device *device, const struct lp_op_layer_norm *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->error || op->n_rows == 0) return;
    lp_cuda_start_early(dev, layer_norm_kernel, (unsigned)op->n_rows, LP_CUDA_THREADS, 0, op->x,
                        op->x_stride, op->w, op->b, op->eps, op->y, op->y_stride, op->width);
    LP_CUDA_LAUNCHED(dev, "layer_norm");
}

// ---- rope: a thread a pair

// Pair p of the values from x on, `half` of them.
static __device__ __forceinline__ void rotate(float *x, int64_t p, int64_t half,
                                              enum lp_rope_pairing pairing, int32_t position,
                                              float inv_freq, float magnitude) {
    const float angle = __fmul_rn((float)position, inv_freq);
    double s, c;
    sincos((double)angle, &s, &c);
    s *= magnitude;
    c *= magnitude;
    float *a = pairing == LP_ROPE_ADJACENT ? x + 2 * p : x + p;
    float *b = pairing == LP_ROPE_ADJACENT ? x + 2 * p + 1 : x + p + half;
    const double a0 = *a, b0 = *b;
    *a = (float)(a0 * c - b0 * s);
    *b = (float)(a0 * s + b0 * c);
}

static __device__ __forceinline__ void rotate_pair(const struct lp_op_rope &op, int64_t i) {
    const int64_t half = op.width / 2, p = i % half, h = i / half % op.n_heads,
                  t = i / half / op.n_heads;
    if (t >= op.n_tokens) return;
    rotate(op.x + t * op.token_stride + h * op.head_stride, p, half, op.pairing, op.positions[t],
           op.inv_freq[p], op.magnitude);
}

static __global__ void rope_kernel(struct lp_op_rope op) {
    lp_cuda_follow();
    rotate_pair(op, (int64_t)blockIdx.x * blockDim.x + threadIdx.x);
}

static int64_t pairs_of(const struct lp_op_rope *op) {
    return (int64_t)(op->width / 2) * op->n_heads * op->n_tokens;
}

void lp_cuda_rope(struct lp_device *device, const struct lp_op_rope *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    const int64_t n = pairs_of(op);
    if (dev->error || n == 0) return;
    lp_cuda_start_early(dev, rope_kernel, lp_cuda_blocks(n, LP_CUDA_THREADS), LP_CUDA_THREADS, 0,
                        *op);
    LP_CUDA_LAUNCHED(dev, "rope");
}

// ---- ready_rows: blocks of every part side by side. A row that goes into a cache is a block, which norms it,
// rotates it in shared memory, and writes it; else a thread a pair.

#define MOST_WIDTH (4 * LP_CUDA_THREADS) // of a row that goes into a cache

struct row_part {
    struct lp_op_ready_part part;
    struct lp_cuda_cache cache;
    int cache_type;
    unsigned first_block;
};
struct row_parts {
    struct row_part parts[LP_READY_PARTS];
    int n_parts;
    struct lp_cuda_batch batch;
};

// As rms_norm_kernel<LP_CUDA_THREADS> and layer_norm_kernel do it, bit for bit.
static __device__ inline void norm_row(const struct lp_op_ready_part &p, float *row) {
    double sum = 0, square = 0;
    for (int i = threadIdx.x; i < p.norm_width; i += LP_CUDA_THREADS)
        sum += p.norm_b ? (double)row[i] : (double)row[i] * row[i];
    sum = lp_cuda_block_sum(sum);
    if (!p.norm_b) {
        const double inverse = 1.0 / sqrt(sum / p.norm_width + p.eps);
        for (int i = threadIdx.x; i < p.norm_width; i += LP_CUDA_THREADS)
            row[i] = (float)(row[i] * inverse * p.norm_w[i]);
        return;
    }
    const double mean = sum / p.norm_width;
    for (int i = threadIdx.x; i < p.norm_width; i += LP_CUDA_THREADS)
        square += (row[i] - mean) * (row[i] - mean);
    const double inverse = 1.0 / sqrt(lp_cuda_block_sum(square) / p.norm_width + p.eps);
    for (int i = threadIdx.x; i < p.norm_width; i += LP_CUDA_THREADS)
        row[i] = (float)((row[i] - mean) * inverse * p.norm_w[i] + p.norm_b[i]);
}

static __device__ inline void ready_row(const struct row_parts &a, const struct row_part &k,
                                        int64_t t) {
    __shared__ float row[MOST_WIDTH];
    const struct lp_op_ready_part &p = k.part;
    float *x = p.rope.x - p.rope_first + t * p.rope.token_stride;
    const int width = k.cache.width, half = p.rope.width / 2;
    for (int i = threadIdx.x; i < width; i += LP_CUDA_THREADS) row[i] = x[i];
    __syncthreads();
    norm_row(p, row);
    __syncthreads();
    for (int i = threadIdx.x; i < half; i += LP_CUDA_THREADS)
        rotate(row + p.rope_first, i, half, p.rope.pairing, p.rope.positions[t], p.rope.inv_freq[i],
               p.rope.magnitude);
    __syncthreads();
    uint8_t *to =
        lp_cuda_cache_row(lp_cuda_cache_for(k.cache, a.batch, t), lp_cuda_position(a.batch, 0, t));
    for (int i = threadIdx.x; i < width; i += LP_CUDA_THREADS) {
        x[i] = row[i];
        if (k.cache_type == LP_TYPE_F32)
            ((float *)to)[i] = row[i];
        else
            ((uint16_t *)to)[i] =
                k.cache_type == LP_TYPE_F16 ? lp_cuda_to_f16(row[i]) : lp_cuda_to_bf16(row[i]);
    }
}

static __global__ void __launch_bounds__(LP_CUDA_THREADS)
    ready_rows_kernel(const __grid_constant__ struct row_parts a) {
    lp_cuda_follow();
    int i = 0;
    while (i + 1 < a.n_parts && blockIdx.x >= a.parts[i + 1].first_block) i++;
    const unsigned block = blockIdx.x - a.parts[i].first_block;
    if (a.parts[i].cache.base)
        ready_row(a, a.parts[i], block);
    else
        rotate_pair(a.parts[i].part.rope, (int64_t)block * LP_CUDA_THREADS + threadIdx.x);
}

// Of the part alone, not of the rows: rule B2.
static bool fits(const struct lp_op_ready_part *p) {
    const struct lp_cache_view *c = p->cache;
    if (!c) return !p->norm_w;
    return (c->type == LP_TYPE_F32 || c->type == LP_TYPE_F16 || c->type == LP_TYPE_BF16) &&
           c->width <= MOST_WIDTH && p->norm_w && p->norm_width <= 2 * LP_CUDA_THREADS;
}

bool lp_cuda_ready_rows(struct lp_device *device, const struct lp_op_ready_rows *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    struct row_parts a = {};
    unsigned blocks = 0;
    if (op->n_parts > LP_READY_PARTS) return false;
    for (int i = 0; i < op->n_parts; i++)
        if (!fits(&op->parts[i])) return false;
    if (dev->error || op->n_rows == 0) return true;
    a.n_parts = op->n_parts;
    a.batch = lp_cuda_batch_of(op->batch);
    for (int i = 0; i < op->n_parts; i++) {
        struct row_part *part = &a.parts[i];
        part->part = op->parts[i];
        part->first_block = blocks;
        if (part->part.cache) {
            part->cache = lp_cuda_cache_of(part->part.cache);
            part->cache_type = (int)part->part.cache->type;
            blocks += (unsigned)op->n_rows;
        } else
            blocks += lp_cuda_blocks(pairs_of(&part->part.rope), LP_CUDA_THREADS);
    }
    if (blocks == 0) return true;
    lp_cuda_start_early(dev, ready_rows_kernel, blocks, LP_CUDA_THREADS, 0, a);
    LP_CUDA_LAUNCHED(dev, "ready_rows");
    return true;
}
