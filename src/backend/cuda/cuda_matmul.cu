// matmul and head_matmul: the registry's kernel for the weight's type (cuda_q8.h), that of float types
// (cuda_float.cu), or the plain one for all others: a warp takes one row of a matrix and up to LP_CUDA_DOT_ROWS activation rows. The
// transposed direction gives a thread eight neighbouring outputs.
#include "backend/cuda/cuda_dot.cuh"
#include "backend/cuda/cuda_float.cuh"
#include "backend/cuda/cuda_q8.h"
#include "backend/cuda/cuda_wide.h"

// Blocks along x: pieces of the outputs, then of the rows. Along y: heads (matrices).
template <int N>
static __global__ void product_kernel(struct lp_cuda_product p, const struct lp_cuda_tables *tables,
                                      unsigned pieces) {
    lp_cuda_follow();
    int64_t r = (int64_t)(blockIdx.x % pieces) * LP_CUDA_WARPS + threadIdx.x / LP_CUDA_WARP;
    int64_t first = (int64_t)(blockIdx.x / pieces) * N, h = blockIdx.y;
    if (r >= p.w.n_out) return;
    const int n = p.n_rows - first < N ? (int)(p.n_rows - first) : N;
    const float *x[N];
    double total[N];
#pragma unroll
    for (int t = 0; t < N; t++) x[t] = p.x + h * p.x_head + (first + t) * p.x_row;
    lp_cuda_dot<N>(p.w.type, lp_cuda_weight_row(p.w, h, r), p.w.n_in, tables, x, n, total);
    const double scale = lp_cuda_weight_scale(p.w, h), bias = p.bias ? p.bias[r] : 0.0;
#pragma unroll
    for (int t = 0; t < N; t++) {
        if (t >= n || threadIdx.x % LP_CUDA_WARP != t) continue;
        float *y = p.y + h * p.y_head + (first + t) * p.y_row + r;
        const double sum = total[t] * scale + bias;
        *y = (float)(p.accumulate ? *y + sum : sum);
    }
}

static void multiply_plain(struct lp_cuda_device *dev, const struct lp_cuda_product *p,
                           const char *where) {
    const unsigned pieces = lp_cuda_blocks(p->w.n_out, LP_CUDA_WARPS);
    const dim3 blocks(pieces * lp_cuda_blocks(p->n_rows, p->n_rows == 1 ? 1 : LP_CUDA_DOT_ROWS),
                      (unsigned)p->w.n_mats);
    if (lp_cuda_float_takes(&p->w))
        lp_cuda_float_start(dev, p, !p->accumulate && lp_cuda_may_go_beside(dev, p->same_x));
    else if (p->n_rows == 1)
        lp_cuda_start_early(dev, product_kernel<1>, blocks, LP_CUDA_THREADS, 0, *p, dev->tables,
                            pieces);
    else
        lp_cuda_start_early(dev, product_kernel<LP_CUDA_DOT_ROWS>, blocks, LP_CUDA_THREADS, 0, *p,
                            dev->tables, pieces);
    LP_CUDA_LAUNCHED(dev, where);
}

// ---- with activations of 8 bits

// Whether the rows lie in scratch as the kernels of this layout take them.
static bool is_there(struct lp_cuda_device *dev, const struct lp_cuda_product *p, int64_t n_heads,
                     int64_t n_in, int layout) {
    struct lp_cuda_act act = {};
    act.x = p->x;
    act.x_row = p->x_row;
    act.x_head = p->x_head;
    act.n_rows = p->n_rows;
    act.n_heads = n_heads;
    act.n_in = n_in;
    act.layout = layout;
    return lp_cuda_act_is_there(dev, &act, p->same_x);
}

// The call for rows that lie rounded in the scratch.
static struct lp_cuda_q8_job job_of(const struct lp_cuda_device *dev, const struct lp_weight *w,
                                    const struct lp_cuda_product *p) {
    struct lp_cuda_q8_job job = {};
    job.w = w;
    job.mode = LP_CUDA_Q8_MATMUL;
    job.x = dev->scratch.act;
    job.zero = dev->scratch.zero;
    job.x_row = p->x_head ? w->n_mats : 1;
    job.x_head = p->x_head ? 1 : 0;
    job.bias = p->bias;
    job.y = p->y;
    job.y_row = p->y_row;
    job.y_head = p->y_head;
    job.accumulate = p->accumulate;
    job.beside = !p->accumulate && lp_cuda_may_go_beside(dev, p->same_x);
    job.n_rows = p->n_rows;
    return job;
}

// Whether few rows take the kernel for few; else tiles.
static bool takes_vec(const struct lp_cuda_device *dev, const struct lp_cuda_q8_kernel *kernel,
                      const struct lp_weight *w, int64_t n_rows, int64_t x_heads) {
    return n_rows <= LP_CUDA_VEC_ROWS && (kernel->vec_any_alignment || lp_cuda_q8_aligned(w)) &&
           (size_t)(n_rows * x_heads) * lp_cuda_act_bytes(w->n_in, LP_CUDA_ACT_ROUNDS) <=
               dev->scratch.act_bytes;
}

// Into the scratch, if they do not lie there yet.
static void round_rows(struct lp_cuda_device *dev, const struct lp_cuda_product *p, int64_t n_heads,
                       int64_t n_in, enum lp_cuda_act_layout layout) {
    struct lp_cuda_quantize q = {};
    q.x = p->x;
    q.x_row = p->x_row;
    q.x_head = p->x_head;
    q.n_rows = p->n_rows;
    q.n_heads = n_heads;
    q.n_in = n_in;
    q.layout = layout;
    q.out = dev->scratch.act;
    if (!is_there(dev, p, n_heads, n_in, layout)) lp_cuda_quantize_act(dev, &q);
}

// n_rows rows that fit in the scratch.
static void multiply_slice(struct lp_cuda_device *dev, const struct lp_cuda_q8_kernel *kernel,
                           const struct lp_weight *w, const struct lp_cuda_product *p) {
    const int64_t x_heads = p->x_head ? w->n_mats : 1;
    const bool vec = takes_vec(dev, kernel, w, p->n_rows, x_heads);
    round_rows(dev, p, x_heads, w->n_in, vec ? LP_CUDA_ACT_ROUNDS : LP_CUDA_ACT_SUPERBLOCKS);
    const struct lp_cuda_q8_job job = job_of(dev, w, p);
    if (vec)
        kernel->vec(dev, &job);
    else
        kernel->tile(dev, &job, p->n_rows <= 8 ? 8 : p->n_rows <= 16 ? 16 : 32);
}

// ---- with activations in float16

static const struct lp_cuda_wide_kernel *wide_kernel(const struct lp_cuda_device *dev,
                                                     const struct lp_weight *w, int64_t n_rows) {
    const struct lp_kernel *kernel = dev->wide[w->type];
    const int64_t blocks = (int64_t)lp_cuda_blocks(n_rows, LP_CUDA_WIDE_TILE) *
                           lp_cuda_blocks(w->n_out, LP_CUDA_WIDE_TILE) * w->n_mats;
    const int64_t fewest = lp_cuda_is_half(w) ? LP_CUDA_HALF_WIDE : dev->wide_rows;
    if (!kernel || !dev->may_vary || n_rows < fewest || !lp_cuda_wide_fits(w)) return NULL;
    if (blocks < dev->wide_blocks) return NULL;
    return (const struct lp_cuda_wide_kernel *)kernel->impl;
}

static void multiply_wide(struct lp_cuda_device *dev, const struct lp_cuda_wide_kernel *kernel,
                          const struct lp_weight *w, const struct lp_cuda_product *p) {
    const int64_t x_heads = p->x_head ? w->n_mats : 1;
    struct lp_cuda_halve h = {};
    h.x = p->x;
    h.x_row = p->x_row;
    h.x_head = p->x_head;
    h.n_rows = p->n_rows;
    h.n_heads = x_heads;
    h.n_in = w->n_in;
    h.out = (uint16_t *)dev->scratch.act;
    h.unscale = dev->scratch.unscale;
    if (!is_there(dev, p, x_heads, w->n_in, LP_CUDA_ACT_HALF)) lp_cuda_halve_act(dev, &h);
    struct lp_cuda_wide_job wide = {};
    wide.unscale = h.unscale;
    wide.job = job_of(dev, w, p);
    kernel->start(dev, &wide);
}

static void multiply(struct lp_cuda_device *dev, const struct lp_weight *w,
                     const struct lp_cuda_product *p, const char *where) {
    if (dev->error || p->n_rows == 0 || p->w.n_out == 0) return;
    const struct lp_cuda_wide_kernel *wide = wide_kernel(dev, w, p->n_rows);
    const struct lp_cuda_q8_kernel *kernel =
        (const struct lp_cuda_q8_kernel *)dev->matmul[w->type]->impl;
    struct lp_weight used = *w;
    used.n_mats = p->w.n_mats;
    const size_t row_bytes = wide ? (size_t)w->n_in * sizeof(uint16_t)
                                  : lp_cuda_act_bytes(w->n_in, LP_CUDA_ACT_SUPERBLOCKS);
    const int64_t fit =
                      (int64_t)(dev->scratch.act_bytes / row_bytes) / (p->x_head ? used.n_mats : 1),
                  most = wide && fit > dev->sizes.n_rows ? dev->sizes.n_rows : fit;
    if ((!kernel && !wide) || most == 0) {
        multiply_plain(dev, p, where);
        return;
    }
    struct lp_cuda_product part = *p;
    for (int64_t first = 0; first < p->n_rows; first += most) {
        part.n_rows = p->n_rows - first < most ? p->n_rows - first : most;
        part.x = p->x + first * p->x_row;
        part.y = p->y + first * p->y_row;
        if (wide)
            multiply_wide(dev, wide, &used, &part);
        else
            multiply_slice(dev, kernel, &used, &part);
    }
}

bool lp_cuda_matmul_rounds(const struct lp_cuda_device *dev, const struct lp_weight *w,
                           int64_t n_rows, int *layout) {
    const struct lp_cuda_q8_kernel *kernel =
        (const struct lp_cuda_q8_kernel *)dev->matmul[w->type]->impl;
    struct lp_weight one = *w;
    one.n_mats = 1;
    if (!kernel || wide_kernel(dev, &one, n_rows)) return false;
    *layout = takes_vec(dev, kernel, w, n_rows, 1) ? LP_CUDA_ACT_ROUNDS : LP_CUDA_ACT_SUPERBLOCKS;
    return true;
}

// One row alone: with more the kernel would read the weights again for each.
bool lp_cuda_gate_up(struct lp_device *device, const struct lp_op_gate_up *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    const struct lp_cuda_q8_kernel *kernel =
        (const struct lp_cuda_q8_kernel *)dev->matmul[op->gate->type]->impl;
    if (op->n_rows != 1 || !kernel || op->gate->type != op->up->type ||
        !takes_vec(dev, kernel, op->gate, 1, 1) || !takes_vec(dev, kernel, op->up, 1, 1))
        return false;
    if (dev->error) return true;
    struct lp_cuda_product p = {};
    p.x = op->x;
    p.x_row = op->x_stride;
    p.y = op->y;
    p.n_rows = 1;
    p.same_x = op->same_x;
    if (!op->same_x) dev->act.x = NULL;
    round_rows(dev, &p, 1, op->gate->n_in, LP_CUDA_ACT_ROUNDS);
    struct lp_weight gate = *op->gate, up = *op->up;
    gate.n_mats = up.n_mats = 1;
    struct lp_cuda_q8_job job = job_of(dev, &gate, &p);
    job.up = &up;
    job.mode = LP_CUDA_Q8_GATE_UP;
    job.n_used = 1;
    job.ids = (const int32_t *)dev->scratch.zero; // the first of one matrix
    kernel->vec(dev, &job);
    return true;
}

void lp_cuda_matmul(struct lp_device *device, const struct lp_op_matmul *op) {
    struct lp_cuda_product p = {};
    p.w = lp_cuda_weight_of(op->w);
    p.w.n_mats = 1;
    p.x = op->x;
    p.x_row = op->x_stride;
    p.bias = op->bias;
    p.y = op->y;
    p.y_row = op->y_stride;
    p.n_rows = op->n_rows;
    p.accumulate = op->accumulate;
    p.same_x = op->same_x;
    if (!op->same_x) lp_cuda_of(device)->act.x = NULL;
    multiply(lp_cuda_of(device), op->w, &p, "matmul");
}

// ---- y[j] = sum_d W[h][d][j] x[d]: eight j a thread, summed over d as lp_cuda_dot sums its octets

static __global__ void transposed_kernel(struct lp_cuda_product p,
                                         const struct lp_cuda_tables *tables, unsigned pieces) {
    lp_cuda_follow();
    int64_t at = ((int64_t)(blockIdx.x % pieces) * blockDim.x + threadIdx.x) * 8;
    int64_t t = blockIdx.x / pieces, h = blockIdx.y;
    if (at >= p.w.n_in) return;
    const int left = p.w.n_in - at < 8 ? (int)(p.w.n_in - at) : 8;
    const float *x = p.x + t * p.x_row + h * p.x_head;
    const double scale = lp_cuda_weight_scale(p.w, h);
    float part[8] = {0}, w[8];
    double total[8] = {0};
    for (int64_t d = 0; d < p.w.n_out; d++) {
        lp_cuda_dequant8(p.w.type, lp_cuda_weight_row(p.w, h, d), at, left, tables, w);
#pragma unroll
        for (int j = 0; j < 8; j++) part[j] = fmaf(w[j], x[d], part[j]);
        if (d % 32 != 31) continue;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            total[j] += part[j];
            part[j] = 0;
        }
    }
    float *y = p.y + t * p.y_row + h * p.y_head + at;
#pragma unroll
    for (int j = 0; j < 8; j++)
        if (j < left) y[j] = (float)((total[j] + part[j]) * scale);
}

static void head_product(struct lp_cuda_device *dev, const struct lp_op_head_matmul *op,
                         bool plain) {
    struct lp_cuda_product p = {};
    p.w = lp_cuda_weight_of(op->w);
    p.x = op->x;
    p.x_row = op->x_row_stride;
    p.x_head = op->x_head_stride;
    p.y = op->y;
    p.y_row = op->y_row_stride;
    p.y_head = op->y_head_stride;
    p.n_rows = op->n_rows;
    dev->act.x = NULL;
    if (!op->transposed && !plain) {
        multiply(dev, op->w, &p, "head_matmul");
        return;
    }
    if (dev->error || op->n_rows == 0) return;
    if (!op->transposed) {
        multiply_plain(dev, &p, "head_matmul");
        return;
    }
    const int threads = 64;
    const unsigned pieces = lp_cuda_blocks(op->w->n_in, 8 * threads);
    const dim3 blocks(pieces * (unsigned)op->n_rows, (unsigned)op->w->n_mats);
    lp_cuda_start_early(dev, transposed_kernel, blocks, threads, 0, p, dev->tables, pieces);
    LP_CUDA_LAUNCHED(dev, "head_matmul");
}

void lp_cuda_head_matmul(struct lp_device *device, const struct lp_op_head_matmul *op) {
    head_product(lp_cuda_of(device), op, false);
}

void lp_cuda_head_matmul_plain(struct lp_device *device, const struct lp_op_head_matmul *op) {
    head_product(lp_cuda_of(device), op, true);
}
