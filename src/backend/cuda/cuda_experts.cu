// The routed experts: (row, choice) pairs sorted by expert on the device, then for each expert its
// gate and up products, its down product, and last the weighted sum of a row's experts in the order
// of its choices. A pair's numbers are those that matmul and silu_mul would give it.
#include "backend/cuda/cuda_dot.cuh"

// pair_begin[e] ... pair_begin[e + 1] - 1: the places in `pairs` of the pairs that chose expert e,
// in their order. One block; a thread an expert.
static __global__ void sort_kernel(const int32_t *ids, int n_pairs, int n_experts, int32_t *pairs,
                                   int32_t *pair_begin) {
    for (int e = threadIdx.x; e < n_experts; e += blockDim.x) {
        int count = 0;
        for (int p = 0; p < n_pairs; p++) count += ids[p] == e;
        pair_begin[e + 1] = count;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        pair_begin[0] = 0;
        for (int e = 0; e < n_experts; e++) pair_begin[e + 1] += pair_begin[e];
    }
    __syncthreads();
    for (int e = threadIdx.x; e < n_experts; e += blockDim.x) {
        int at = pair_begin[e];
        for (int p = 0; p < n_pairs; p++)
            if (ids[p] == e) pairs[at++] = p;
    }
}

struct work {
    struct lp_cuda_weight gate, up, down;
    const float *x;
    int64_t x_stride;
    int n_used;
    const int32_t *pairs, *pair_begin;
    float *hidden, *out;
};

// hidden[pair][r] = silu(gate[e] x) * (up[e] x), n pairs of one expert
template <int N>
static __device__ inline void gate_up(const struct work &k, const struct lp_cuda_tables *tables,
                                      int e, int64_t r, const int32_t *pairs, int n) {
    const float *x[N];
    double gate[N], up[N];
#pragma unroll
    for (int t = 0; t < N; t++) x[t] = t < n ? k.x + pairs[t] / k.n_used * k.x_stride : k.x;
    lp_cuda_dot<N>(k.gate.type, lp_cuda_weight_row(k.gate, e, r), k.gate.n_in, tables, x, n, gate);
    lp_cuda_dot<N>(k.up.type, lp_cuda_weight_row(k.up, e, r), k.up.n_in, tables, x, n, up);
    const double gate_scale = lp_cuda_weight_scale(k.gate, e),
                 up_scale = lp_cuda_weight_scale(k.up, e);
#pragma unroll
    for (int t = 0; t < N; t++)
        if (t < n && threadIdx.x % LP_CUDA_WARP == t)
            k.hidden[pairs[t] * k.gate.n_out + r] =
                lp_cuda_silu_mul((float)(gate[t] * gate_scale), (float)(up[t] * up_scale));
}

// out[pair][r] = down[e] hidden[pair]
template <int N>
static __device__ inline void down(const struct work &k, const struct lp_cuda_tables *tables, int e,
                                   int64_t r, const int32_t *pairs, int n) {
    const float *x[N];
    double sum[N];
#pragma unroll
    for (int t = 0; t < N; t++) x[t] = t < n ? k.hidden + pairs[t] * k.down.n_in : k.hidden;
    lp_cuda_dot<N>(k.down.type, lp_cuda_weight_row(k.down, e, r), k.down.n_in, tables, x, n, sum);
    const double scale = lp_cuda_weight_scale(k.down, e);
#pragma unroll
    for (int t = 0; t < N; t++)
        if (t < n && threadIdx.x % LP_CUDA_WARP == t)
            k.out[pairs[t] * k.down.n_out + r] = (float)(sum[t] * scale);
}

// Blocks along x: pieces of the outputs; along y: experts.
template <bool IS_DOWN>
static __global__ void expert_kernel(struct work k, const struct lp_cuda_tables *tables) {
    const int e = blockIdx.y, end = k.pair_begin[e + 1];
    const int64_t r = (int64_t)blockIdx.x * LP_CUDA_WARPS + threadIdx.x / LP_CUDA_WARP;
    if (r >= (IS_DOWN ? k.down.n_out : k.gate.n_out)) return;
    for (int at = k.pair_begin[e]; at < end; at += LP_CUDA_DOT_ROWS) {
        const int n = end - at < LP_CUDA_DOT_ROWS ? end - at : LP_CUDA_DOT_ROWS;
        if (IS_DOWN && n == 1)
            down<1>(k, tables, e, r, k.pairs + at, n);
        else if (IS_DOWN)
            down<LP_CUDA_DOT_ROWS>(k, tables, e, r, k.pairs + at, n);
        else if (n == 1)
            gate_up<1>(k, tables, e, r, k.pairs + at, n);
        else
            gate_up<LP_CUDA_DOT_ROWS>(k, tables, e, r, k.pairs + at, n);
    }
}

static __global__ void combine_kernel(const float *out, const float *weights, int n_used,
                                      int64_t n_embd, float *y, int64_t y_stride, int64_t n_rows) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_rows * n_embd) return;
    int64_t t = i / n_embd, r = i % n_embd;
    float sum = 0;
    for (int j = 0; j < n_used; j++)
        sum += weights[t * n_used + j] * out[(t * n_used + j) * n_embd + r];
    y[t * y_stride + r] += sum;
}

static void run_rows(struct lp_cuda_device *dev, const struct lp_op_experts *op, int64_t first,
                     int64_t n_rows) {
    const int n_experts = (int)op->gate->n_mats;
    struct work k = {};
    k.gate = lp_cuda_weight_of(op->gate);
    k.up = lp_cuda_weight_of(op->up);
    k.down = lp_cuda_weight_of(op->down);
    k.x = op->x + first * op->x_stride;
    k.x_stride = op->x_stride;
    k.n_used = op->n_used;
    k.pairs = dev->scratch.pairs;
    k.pair_begin = dev->scratch.pair_begin;
    k.hidden = dev->scratch.hidden;
    k.out = dev->scratch.expert_out;
    sort_kernel<<<1, 1024, 0, dev->stream>>>(op->ids + first * op->n_used,
                                             (int)(n_rows * op->n_used), n_experts,
                                             dev->scratch.pairs, dev->scratch.pair_begin);
    LP_CUDA_LAUNCHED(dev, "experts (sort)");
    const dim3 up_blocks(lp_cuda_blocks(op->gate->n_out, LP_CUDA_WARPS), n_experts),
        down_blocks(lp_cuda_blocks(op->down->n_out, LP_CUDA_WARPS), n_experts);
    expert_kernel<false><<<up_blocks, LP_CUDA_THREADS, 0, dev->stream>>>(k, dev->tables);
    LP_CUDA_LAUNCHED(dev, "experts (gate and up)");
    expert_kernel<true><<<down_blocks, LP_CUDA_THREADS, 0, dev->stream>>>(k, dev->tables);
    LP_CUDA_LAUNCHED(dev, "experts (down)");
    combine_kernel<<<lp_cuda_blocks(n_rows * op->down->n_out, LP_CUDA_THREADS), LP_CUDA_THREADS, 0,
                     dev->stream>>>(k.out, op->weights + first * op->n_used, op->n_used,
                                    op->down->n_out, op->y + first * op->y_stride, op->y_stride,
                                    n_rows);
    LP_CUDA_LAUNCHED(dev, "experts (sum)");
}

void lp_cuda_experts(struct lp_device *device, const struct lp_op_experts *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    int64_t most = dev->sizes.n_rows;
    for (int64_t first = 0; first < op->n_rows && !dev->error; first += most)
        run_rows(dev, op, first, op->n_rows - first < most ? op->n_rows - first : most);
}
