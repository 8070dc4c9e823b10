// The routed experts: (row, choice) pairs sorted by expert on the device, then for each expert its
// gate and up products, its down product, and last the weighted sum of a row's experts in the order
// of its choices. A pair's numbers are those that matmul and silu_mul would give it. Two ways, as with
// matmul: with activations rounded to 8 bits where the registry has kernels for the types, else plain.
// Of a range of experts (lp_op_experts.first_expert) the pairs of the others are left out: no kernel reads
// or writes their rows of scratch, which hold what calls before have left there, NaN too.
#include "backend/cuda/cuda_dot.cuh"
#include "backend/cuda/cuda_float.cuh"
#include "backend/cuda/cuda_ptx.cuh"
#include "backend/cuda/cuda_q8.h"
#include "backend/cuda/cuda_wide.h"

#define SORT_THREADS 1024

struct range { // the experts whose matrices are here
    int first, n;
};

// The matrix of an expert; -1: there is none.
static __device__ inline int matrix_of(struct range here, int id) {
    const int e = id - here.first;
    return e >= 0 && e < here.n ? e : -1;
}

// pair_begin[e] ... pair_begin[e + 1] - 1: the places in `pairs` of the pairs that chose matrix e; their
// order there is any. tiles: their number, then (matrix, first place) of runs of at most tile_rows
// pairs. One block.
static __global__ void sort_kernel(const int32_t *ids, int n_pairs, struct range here,
                                   int tile_rows, int32_t *pairs, int32_t *pair_begin,
                                   int32_t *tiles) {
    const int n_experts = here.n;
    // Does not let the next kernel start: that reads who chose whom before it waits for its input.
    lp_cuda_wait_for_input();
    extern __shared__ int32_t lp_cuda_sort_shared[];
    int32_t *begin = lp_cuda_sort_shared, *tile_begin = begin + n_experts + 1,
            *taken = tile_begin + n_experts + 1; // begin[e + 1] counts at first
    for (int e = threadIdx.x; e <= n_experts; e += blockDim.x) {
        begin[e] = 0;
        if (e < n_experts) taken[e] = 0;
    }
    __syncthreads();
    for (int p = threadIdx.x; p < n_pairs; p += blockDim.x) {
        const int e = matrix_of(here, ids[p]);
        if (e >= 0) atomicAdd(&begin[e + 1], 1);
    }
    __syncthreads();
    if (threadIdx.x < LP_CUDA_WARP) { // running sums, 32 experts at a time
        const int lane = threadIdx.x;
        int pairs_before = 0, tiles_before = 0;
        if (lane == 0) tile_begin[0] = 0;
        for (int first = 0; first < n_experts; first += LP_CUDA_WARP) {
            const int e = first + lane;
            int count = e < n_experts ? begin[e + 1] : 0, n = (count + tile_rows - 1) / tile_rows;
            for (int step = 1; step < LP_CUDA_WARP; step *= 2) {
                const int c = __shfl_up_sync(0xffffffffu, count, step),
                          t = __shfl_up_sync(0xffffffffu, n, step);
                count += lane >= step ? c : 0;
                n += lane >= step ? t : 0;
            }
            if (e < n_experts) {
                begin[e + 1] = pairs_before + count;
                tile_begin[e + 1] = tiles_before + n;
            }
            pairs_before += __shfl_sync(0xffffffffu, count, LP_CUDA_WARP - 1);
            tiles_before += __shfl_sync(0xffffffffu, n, LP_CUDA_WARP - 1);
        }
        if (lane == 0) tiles[0] = tiles_before;
    }
    __syncthreads();
    for (int e = threadIdx.x; e <= n_experts; e += blockDim.x) {
        pair_begin[e] = begin[e];
        if (e == n_experts) continue;
        for (int i = tile_begin[e]; i < tile_begin[e + 1]; i++) {
            tiles[1 + 2 * i] = e;
            tiles[2 + 2 * i] = begin[e] + (i - tile_begin[e]) * tile_rows;
        }
    }
    for (int p = threadIdx.x; p < n_pairs; p += blockDim.x) {
        const int e = matrix_of(here, ids[p]);
        if (e >= 0) pairs[begin[e] + atomicAdd(&taken[e], 1)] = p;
    }
    __threadfence();
}

struct work {
    struct lp_cuda_weight gate, up, down;
    const float *x;
    int64_t x_stride;
    int n_used;
    const int32_t *pairs, *pair_begin;
    const int32_t *ids; // of few pairs, which are not sorted: the expert of each; or NULL
    struct range here;
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

// Blocks along x: pieces of the outputs; along y: experts, or with ids pairs.
template <bool IS_DOWN>
static __global__ void expert_kernel(struct work k, const struct lp_cuda_tables *tables) {
    lp_cuda_follow();
    const int64_t r = (int64_t)blockIdx.x * LP_CUDA_WARPS + threadIdx.x / LP_CUDA_WARP;
    if (r >= (IS_DOWN ? k.down.n_out : k.gate.n_out)) return;
    if (k.ids) {
        const int32_t pair = (int32_t)blockIdx.y;
        const int e = matrix_of(k.here, k.ids[pair]);
        if (e < 0) return;
        if (IS_DOWN)
            down<1>(k, tables, e, r, &pair, 1);
        else
            gate_up<1>(k, tables, e, r, &pair, 1);
        return;
    }
    const int e = blockIdx.y, end = k.pair_begin[e + 1];
    for (int at = k.pair_begin[e]; at < end; at += LP_CUDA_DOT_ROWS) {
        const int n = end - at < LP_CUDA_DOT_ROWS ? end - at : LP_CUDA_DOT_ROWS;
        const int32_t *pairs = k.pairs + at;
        if (n == 1)
            IS_DOWN ? down<1>(k, tables, e, r, pairs, n) : gate_up<1>(k, tables, e, r, pairs, n);
        else if (n == 2)
            IS_DOWN ? down<2>(k, tables, e, r, pairs, n) : gate_up<2>(k, tables, e, r, pairs, n);
        else if (n <= 4)
            IS_DOWN ? down<4>(k, tables, e, r, pairs, n) : gate_up<4>(k, tables, e, r, pairs, n);
        else
            IS_DOWN ? down<LP_CUDA_DOT_ROWS>(k, tables, e, r, pairs, n)
                    : gate_up<LP_CUDA_DOT_ROWS>(k, tables, e, r, pairs, n);
    }
}

// more: rows behind those of the pairs are added last, one to each row.
static __global__ void combine_kernel(const float *out, const float *weights, const int32_t *ids,
                                      struct range here, int n_used, int64_t n_embd, float *y,
                                      int64_t y_stride, int64_t n_rows, bool more) {
    lp_cuda_follow();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_rows * n_embd) return;
    int64_t t = i / n_embd, r = i % n_embd;
    float sum = 0;
    for (int64_t pair = t * n_used; pair < (t + 1) * n_used; pair++)
        if (matrix_of(here, ids[pair]) >= 0) sum += weights[pair] * out[pair * n_embd + r];
    sum = y[t * y_stride + r] + sum;
    y[t * y_stride + r] = more ? sum + out[(n_rows * n_used + t) * n_embd + r] : sum;
}

// What the two halves of a call share.
struct call {
    const struct lp_op_experts *op;
    int64_t first, n_rows, n_pairs; // rows of op, and their pairs, of all experts
    int64_t n_experts;
    struct range here;
    bool vec;     // the kernels for few rows; no sorting
    bool by_pair; // the plain ones for few rows; no sorting
    bool wide;    // the kernels for many rows
    int tile_rows;
    const struct lp_shared_expert *shared; // vec: done with the others; or NULL
};

// Sorts a call's pairs by expert, and cuts each expert's into tiles.
static void sort(struct lp_cuda_device *dev, const struct call *c) {
    const struct lp_op_experts *op = c->op;
    lp_cuda_start_early(dev, sort_kernel, 1, SORT_THREADS,
                        (size_t)(3 * c->here.n + 2) * sizeof(int32_t),
                        op->ids + c->first * op->n_used, (int)c->n_pairs, c->here, c->tile_rows,
                        dev->scratch.pairs, dev->scratch.pair_begin, dev->scratch.tiles);
    LP_CUDA_LAUNCHED(dev, "experts (sort)");
}

static void combine(struct lp_cuda_device *dev, const struct call *c) {
    const struct lp_op_experts *op = c->op;
    const int64_t first = c->first * op->n_used;
    lp_cuda_start_early(
        dev, combine_kernel, lp_cuda_blocks(c->n_rows * op->down->n_out, LP_CUDA_THREADS),
        LP_CUDA_THREADS, 0, dev->scratch.expert_out, op->weights + first, op->ids + first, c->here,
        op->n_used, op->down->n_out, op->y + c->first * op->y_stride, op->y_stride, c->n_rows,
        c->shared != NULL);
    LP_CUDA_LAUNCHED(dev, "experts (sum)");
}

// ---- plain: any type

static void run_plain(struct lp_cuda_device *dev, const struct call *c, bool is_down) {
    const struct lp_op_experts *op = c->op;
    struct work k = {};
    k.gate = lp_cuda_weight_of(op->gate);
    k.up = lp_cuda_weight_of(op->up);
    k.down = lp_cuda_weight_of(op->down);
    k.x = op->x + c->first * op->x_stride;
    k.x_stride = op->x_stride;
    k.n_used = op->n_used;
    k.pairs = dev->scratch.pairs;
    k.pair_begin = dev->scratch.pair_begin;
    k.hidden = dev->scratch.hidden;
    k.out = dev->scratch.expert_out;
    const int64_t n_out = is_down ? op->down->n_out : op->gate->n_out;
    if (c->by_pair) k.ids = op->ids + c->first * op->n_used;
    k.here = c->here;
    const dim3 blocks(lp_cuda_blocks(n_out, LP_CUDA_WARPS),
                      c->by_pair ? (unsigned)c->n_pairs : (unsigned)c->here.n);
    if (is_down)
        lp_cuda_start_early(dev, expert_kernel<true>, blocks, LP_CUDA_THREADS, 0, k, dev->tables);
    else
        lp_cuda_start_early(dev, expert_kernel<false>, blocks, LP_CUDA_THREADS, 0, k, dev->tables);
    LP_CUDA_LAUNCHED(dev, is_down ? "experts (down)" : "experts (gate and up)");
}

// ---- with rounded activations (cuda_q8.h)

static const struct lp_cuda_q8_kernel *kernel_of(const struct lp_cuda_device *dev,
                                                 const struct lp_weight *w) {
    return (const struct lp_cuda_q8_kernel *)dev->matmul[w->type]->impl;
}

// x: n_rows rows of n_in values, into the form that the call's kernels take.
static void round_rows(struct lp_cuda_device *dev, const struct call *c, const float *x,
                       int64_t stride, int64_t n_rows, int64_t n_in, uint8_t *out) {
    if (out == dev->scratch.act) { // for the shared expert's products
        struct lp_cuda_act act = {};
        act.x = x;
        act.x_row = stride;
        act.n_rows = n_rows;
        act.n_heads = 1;
        act.n_in = n_in;
        act.layout = c->wide  ? (int)LP_CUDA_ACT_HALF
                     : c->vec ? (int)LP_CUDA_ACT_ROUNDS
                              : (int)LP_CUDA_ACT_SUPERBLOCKS;
        if (lp_cuda_act_is_there(dev, &act, c->op->same_x)) return;
    } else if (c->wide) {
        dev->act.x = NULL; // unscale is not its own any more
    }
    if (c->wide) {
        struct lp_cuda_halve h = {};
        h.x = x;
        h.x_row = stride;
        h.n_rows = n_rows;
        h.n_heads = 1;
        h.n_in = n_in;
        h.out = (uint16_t *)out;
        h.unscale = dev->scratch.unscale;
        lp_cuda_halve_act(dev, &h);
        return;
    }
    struct lp_cuda_quantize q = {};
    q.x = x;
    q.x_row = stride;
    q.n_rows = n_rows;
    q.n_heads = 1;
    q.n_in = n_in;
    q.layout = c->vec ? LP_CUDA_ACT_ROUNDS : LP_CUDA_ACT_SUPERBLOCKS;
    q.out = out;
    q.hold_next = true;
    lp_cuda_quantize_act(dev, &q);
}

static struct lp_cuda_q8_job job_of(const struct lp_cuda_device *dev, const struct call *c,
                                    bool is_down) {
    const struct lp_op_experts *op = c->op;
    const struct lp_cuda_scratch *s = &dev->scratch;
    const int64_t n_here = c->here.n;
    struct lp_cuda_q8_job job = {};
    job.w = is_down ? op->down : op->gate;
    job.up = is_down ? NULL : op->up;
    job.mode = is_down ? LP_CUDA_Q8_DOWN : LP_CUDA_Q8_GATE_UP;
    job.x = is_down ? s->hidden_act : s->act;
    job.zero = s->zero;
    job.y = is_down ? s->expert_out : s->hidden;
    job.n_rows = c->n_pairs;
    job.n_used = op->n_used;
    job.ids = op->ids + c->first * op->n_used;
    job.ids_are_new = !is_down;
    if (c->shared) {
        job.more = is_down ? c->shared->down : c->shared->gate;
        job.more_up = is_down ? NULL : c->shared->up;
    }
    job.first_expert = c->here.first;
    job.pairs = s->pairs;
    job.pair_begin = s->pair_begin;
    job.n_tiles = s->tiles;
    job.tiles = s->tiles + 1;
    job.max_tiles = c->n_pairs / c->tile_rows + (c->n_pairs < n_here ? c->n_pairs : n_here);
    return job;
}

static void run_rounded(struct lp_cuda_device *dev, const struct call *c, bool is_down) {
    const struct lp_op_experts *op = c->op;
    const struct lp_weight *w = is_down ? op->down : op->gate;
    if (is_down)
        round_rows(dev, c, dev->scratch.hidden, w->n_in, c->n_pairs + (c->shared ? c->n_rows : 0),
                   w->n_in, dev->scratch.hidden_act);
    else
        round_rows(dev, c, op->x + c->first * op->x_stride, op->x_stride, c->n_rows, w->n_in,
                   dev->scratch.act);
    const struct lp_cuda_q8_job job = job_of(dev, c, is_down);
    if (c->wide) {
        struct lp_cuda_wide_job wide = {};
        wide.job = job;
        wide.unscale = dev->scratch.unscale;
        ((const struct lp_cuda_wide_kernel *)dev->wide[w->type]->impl)->start(dev, &wide);
    } else if (c->vec)
        kernel_of(dev, w)->vec(dev, &job);
    else
        kernel_of(dev, w)->tile(dev, &job, c->tile_rows);
}

// ---- both

static bool vec_fits(const struct lp_cuda_q8_kernel *kernel, const struct lp_weight *w) {
    return kernel && (kernel->vec_any_alignment || lp_cuda_q8_aligned(w));
}

static bool wide_fits(const struct lp_cuda_device *dev, const struct lp_weight *w) {
    return dev->wide[w->type] && lp_cuda_wide_fits(w);
}

// Pairs so few that each expert is met once, or nearly so. Of a range n_experts are all the same, as everywhere
// here: it is met by a part of the pairs that is as large as its part of the experts.
static bool is_few(int64_t n_rows, int32_t n_used, int64_t n_experts) {
    return n_rows == 1 || 4 * n_rows * n_used <= n_experts;
}

static struct call call_of(const struct lp_cuda_device *dev, const struct lp_op_experts *op,
                           int64_t first, int64_t n_rows) {
    const int64_t n_experts = op->n_experts ? op->n_experts : op->gate->n_mats;
    struct call c = {};
    c.op = op;
    c.n_experts = n_experts;
    c.here.first = op->first_expert;
    c.here.n = (int)op->gate->n_mats;
    c.first = first;
    c.n_rows = n_rows;
    c.n_pairs = n_rows * op->n_used;
    const bool floats = lp_cuda_is_half(op->gate) && lp_cuda_is_half(op->down);
    c.wide = dev->may_vary &&
             c.n_pairs >= (floats ? LP_CUDA_HALF_WIDE : dev->wide_pairs * n_experts) &&
             op->gate->type == op->up->type && wide_fits(dev, op->gate) && wide_fits(dev, op->up) &&
             wide_fits(dev, op->down);
    const struct lp_cuda_q8_kernel *up = kernel_of(dev, op->gate), *down = kernel_of(dev, op->down);
    const bool few = is_few(n_rows, op->n_used, n_experts) && !c.wide;
    c.by_pair = few && !up && !down && !kernel_of(dev, op->up);
    c.vec = few && op->gate->type == op->up->type && vec_fits(up, op->gate) &&
            vec_fits(up, op->up) && vec_fits(down, op->down);
    c.tile_rows = c.wide                        ? LP_CUDA_WIDE_TILE
                  : c.n_pairs <= 8 * n_experts  ? 8
                  : c.n_pairs <= 16 * n_experts ? 16
                                                : 32;
    return c;
}

// Each half by the registry's kernel for its type, as matmul would. Gate and up of different types:
// plain. Few rows need no sorting: each of their experts is met once, or nearly so.
static void run_call(struct lp_cuda_device *dev, const struct call *c) {
    const struct lp_op_experts *op = c->op;
    if (!c->vec && !c->by_pair) sort(dev, c);
    if (c->wide || (op->gate->type == op->up->type && kernel_of(dev, op->gate)))
        run_rounded(dev, c, false);
    else
        run_plain(dev, c, false);
    if (c->wide || kernel_of(dev, op->down))
        run_rounded(dev, c, true);
    else
        run_plain(dev, c, true);
    combine(dev, c);
}

bool lp_cuda_experts_round(const struct lp_cuda_device *dev, const struct lp_weight *w,
                           int32_t n_used, int64_t n_rows, int *layout) {
    const struct lp_cuda_q8_kernel *kernel = kernel_of(dev, w);
    // Wide calls take float16; down may decide against the kernels for few, and rows are rounded again then.
    if (!kernel || n_rows > dev->sizes.n_rows ||
        (dev->may_vary && n_rows * n_used >= dev->wide_pairs * w->n_mats))
        return false;
    *layout = is_few(n_rows, n_used, w->n_mats) && vec_fits(kernel, w) ? LP_CUDA_ACT_ROUNDS
                                                                       : LP_CUDA_ACT_SUPERBLOCKS;
    return true;
}

void lp_cuda_experts(struct lp_device *device, const struct lp_op_experts *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    int64_t most = dev->sizes.n_rows;
    if (!op->same_x) dev->act.x = NULL;
    if (op->gate->n_mats == 0 || op->gate->n_out == 0) return; // every pair is of experts elsewhere
    for (int64_t first = 0; first < op->n_rows && !dev->error; first += most) {
        const struct call c =
            call_of(dev, op, first, op->n_rows - first < most ? op->n_rows - first : most);
        run_call(dev, &c);
    }
}

// Whether a matrix can stand beside those of the routed experts.
static bool is_like(const struct lp_weight *w, const struct lp_weight *expert) {
    return w->type == expert->type && w->n_in == expert->n_in && w->n_out == expert->n_out &&
           w->row_bytes == expert->row_bytes;
}

// One row alone: with more, the shared expert's weights would be read again for each.
bool lp_cuda_experts_and_shared(struct lp_device *device, const struct lp_op_experts *op,
                                const struct lp_shared_expert *shared) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (op->n_rows != 1 || (op->n_experts && op->n_experts != op->gate->n_mats)) return false;
    struct call c = call_of(dev, op, 0, 1);
    if (!c.vec || !is_like(shared->gate, op->gate) || !is_like(shared->up, op->up) ||
        !is_like(shared->down, op->down) || !vec_fits(kernel_of(dev, op->gate), shared->gate) ||
        !vec_fits(kernel_of(dev, op->up), shared->up) ||
        !vec_fits(kernel_of(dev, op->down), shared->down))
        return false;
    if (dev->error) return true;
    c.shared = shared;
    if (!op->same_x) dev->act.x = NULL;
    run_call(dev, &c);
    return true;
}
