// Embedding rows, norms, rotary embedding, the elementwise operations, and rows into the cache.
// Formulas, precision and order of roundings are those of ref/ref_norm_rope.c.
#include "backend/cuda/cuda_dequant.cuh"

// ---- embed: a thread an octet

static __global__ void embed_kernel(struct lp_cuda_weight table,
                                    const struct lp_cuda_tables *tables, const int32_t *ids,
                                    float *out, int64_t out_stride, int64_t n_rows) {
    int64_t octets = (table.n_in + 7) / 8, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= octets * n_rows) return;
    int64_t t = i / octets, at = i % octets * 8;
    int left = table.n_in - at < 8 ? (int)(table.n_in - at) : 8;
    float values[8], factor = lp_cuda_weight_scale(table, 0);
    lp_cuda_dequant8(table.type, lp_cuda_weight_row(table, 0, ids[t]), at, left, tables, values);
    for (int j = 0; j < left; j++) out[t * out_stride + at + j] = values[j] * factor;
}

cudaError_t lp_cuda_probe_kernels(void) {
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, (const void *)embed_kernel);
    cudaGetLastError();
    return error;
}

void lp_cuda_embed(struct lp_device *device, const struct lp_op_embed *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->error || op->n_rows == 0) return;
    int64_t n = (op->table->n_in + 7) / 8 * op->n_rows;
    embed_kernel<<<lp_cuda_blocks(n, LP_CUDA_THREADS), LP_CUDA_THREADS, 0, dev->stream>>>(
        lp_cuda_weight_of(op->table), dev->tables, op->ids, op->out, op->out_stride, op->n_rows);
    LP_CUDA_LAUNCHED(dev, "embed");
}

// ---- norms: a block a row, sums in double

static __global__ void rms_norm_kernel(const float *x, int64_t x_stride, const float *w, float eps,
                                       float *y, int64_t y_stride, int width) {
    x += blockIdx.x * x_stride;
    y += blockIdx.x * y_stride;
    double sum = 0;
    for (int i = threadIdx.x; i < width; i += LP_CUDA_THREADS) sum += (double)x[i] * x[i];
    sum = lp_cuda_block_sum(sum);
    double inverse = 1.0 / sqrt(sum / width + eps);
    for (int i = threadIdx.x; i < width; i += LP_CUDA_THREADS)
        y[i] = (float)(x[i] * inverse * (w ? w[i] : 1.0f));
}

void lp_cuda_rms_norm(struct lp_device *device, const struct lp_op_rms_norm *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->error || op->n_rows == 0) return;
    rms_norm_kernel<<<(unsigned)op->n_rows, LP_CUDA_THREADS, 0, dev->stream>>>(
        op->x, op->x_stride, op->w, op->eps, op->y, op->y_stride, op->width);
    LP_CUDA_LAUNCHED(dev, "rms_norm");
}

static __global__ void layer_norm_kernel(const float *x, int64_t x_stride, const float *w,
                                         const float *b, float eps, float *y, int64_t y_stride,
                                         int width) {
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
    layer_norm_kernel<<<(unsigned)op->n_rows, LP_CUDA_THREADS, 0, dev->stream>>>(
        op->x, op->x_stride, op->w, op->b, op->eps, op->y, op->y_stride, op->width);
    LP_CUDA_LAUNCHED(dev, "layer_norm");
}

// ---- rope: a thread a pair

static __global__ void rope_kernel(struct lp_op_rope op) {
    int64_t half = op.width / 2, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= half * op.n_heads * op.n_tokens) return;
    int64_t p = i % half, h = i / half % op.n_heads, t = i / half / op.n_heads;
    float angle = __fmul_rn((float)op.positions[t], op.inv_freq[p]);
    double c = cos((double)angle) * op.magnitude, s = sin((double)angle) * op.magnitude;
    float *x = op.x + t * op.token_stride + h * op.head_stride;
    float *a = op.pairing == LP_ROPE_ADJACENT ? x + 2 * p : x + p;
    float *b = op.pairing == LP_ROPE_ADJACENT ? x + 2 * p + 1 : x + p + half;
    double a0 = *a, b0 = *b;
    *a = (float)(a0 * c - b0 * s);
    *b = (float)(a0 * s + b0 * c);
}

void lp_cuda_rope(struct lp_device *device, const struct lp_op_rope *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    int64_t n = (int64_t)(op->width / 2) * op->n_heads * op->n_tokens;
    if (dev->error || n == 0) return;
    rope_kernel<<<lp_cuda_blocks(n, LP_CUDA_THREADS), LP_CUDA_THREADS, 0, dev->stream>>>(*op);
    LP_CUDA_LAUNCHED(dev, "rope");
}

// ---- add, silu_mul: a thread a value

static __global__ void add_kernel(struct lp_op_add op) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= op.n_rows * op.width) return;
    int64_t t = i / op.width, k = i % op.width;
    op.y[t * op.y_stride + k] += op.x[t * op.x_stride + k];
}

void lp_cuda_add(struct lp_device *device, const struct lp_op_add *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    int64_t n = op->n_rows * op->width;
    if (dev->error || n == 0) return;
    add_kernel<<<lp_cuda_blocks(n, LP_CUDA_THREADS), LP_CUDA_THREADS, 0, dev->stream>>>(*op);
    LP_CUDA_LAUNCHED(dev, "add");
}

static __global__ void silu_mul_kernel(struct lp_op_silu_mul op) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= op.n_rows * op.width) return;
    int64_t at = i / op.width * op.stride + i % op.width;
    op.y[at] = lp_cuda_silu_mul(op.gate[at], op.up[at]);
}

void lp_cuda_silu_mul(struct lp_device *device, const struct lp_op_silu_mul *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    int64_t n = op->n_rows * op->width;
    if (dev->error || n == 0) return;
    silu_mul_kernel<<<lp_cuda_blocks(n, LP_CUDA_THREADS), LP_CUDA_THREADS, 0, dev->stream>>>(*op);
    LP_CUDA_LAUNCHED(dev, "silu_mul");
}

// ---- cache_write: a thread a value, or a block of 32 of Q8_0; the bytes of quant/quantize.c

static __device__ uint16_t to_f16(float value) { // as lp_f32_to_f16
    uint32_t u = __float_as_uint(value), a = u & 0x7fffffff;
    uint32_t sign = u >> 16 & 0x8000;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);
    if (a >= 0x38800000u) {
        a -= 0x38000000u;
        return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1)) >> 13);
    }
    if (a < 0x33000000u) return (uint16_t)sign;
    uint32_t shift = 126 - (a >> 23), mantissa = (a & 0x7fffff) | 0x800000;
    uint32_t half = (1u << (shift - 1)) - 1 + (mantissa >> shift & 1);
    return (uint16_t)(sign | (mantissa + half) >> shift);
}

static __device__ uint16_t to_bf16(float value) { // as lp_f32_to_bf16
    uint32_t u = __float_as_uint(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

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
    b->d = to_f16(finite ? d : nanf(""));
}

static __global__ void cache_write_kernel(struct lp_cuda_cache cache, int type, const float *x,
                                          int64_t x_stride, int64_t first_pos, int64_t n_rows) {
    int64_t pieces = type == LP_TYPE_Q8_0 ? cache.width / 32 : cache.width,
            i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pieces * n_rows) return;
    int64_t t = i / pieces, k = i % pieces;
    uint8_t *row = lp_cuda_cache_row(cache, first_pos + t);
    const float *from = x + t * x_stride;
    if (type == LP_TYPE_Q8_0)
        to_q8_0(from + 32 * k, (struct lp_block_q8_0 *)row + k);
    else if (type == LP_TYPE_F32)
        ((float *)row)[k] = from[k];
    else
        ((uint16_t *)row)[k] = type == LP_TYPE_F16 ? to_f16(from[k]) : to_bf16(from[k]);
}

void lp_cuda_cache_write(struct lp_device *device, const struct lp_op_cache_write *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    const struct lp_cache_view *c = op->cache;
    int64_t n = op->n_rows * (c->type == LP_TYPE_Q8_0 ? c->width / 32 : c->width);
    if (dev->error || n == 0) return;
    cache_write_kernel<<<lp_cuda_blocks(n, LP_CUDA_THREADS), LP_CUDA_THREADS, 0, dev->stream>>>(
        lp_cuda_cache_of(c), (int)c->type, op->x, op->x_stride, op->first_pos, op->n_rows);
    LP_CUDA_LAUNCHED(dev, "cache_write");
}
