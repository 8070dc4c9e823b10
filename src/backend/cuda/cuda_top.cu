// top_rows: the largest values of each row and the sum of all weights, a block a row.
//
// A value's rank is its bits as a number that grows with it. The rank of the last value to keep is found
// by counting: its first 12 bits, the next 12, the last 8, each in one pass over the row, of which only the
// values that share what is known are counted. Then each warp counts what its share of the row has of larger
// and of equal ranks, and writes what is kept from there on, so that places ascend.
#include "backend/cuda/cuda_common.cuh"

#define WARPS 32
#define THREADS (WARPS * LP_CUDA_WARP)
#define BINS 4096

static __device__ inline uint32_t rank_of(float x) {
    const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
static __device__ inline float of_rank(uint32_t rank) {
    return __uint_as_float(rank & 0x80000000u ? rank & 0x7fffffffu : ~rank);
}

struct shared {
    uint32_t bins[BINS], of_warp[WARPS], equal_of_warp[WARPS];
    uint32_t bin, before, in_all;
};

// The bin from which on, counted from the last, there are `wanted`; what the bins behind it have; and what
// all have. All three end in s; barriers on both sides.
static __device__ inline void find_bin(struct shared *s, uint32_t wanted) {
    constexpr int EACH = BINS / THREADS;
    const int lane = threadIdx.x % LP_CUDA_WARP, warp = threadIdx.x / LP_CUDA_WARP;
    const int first = BINS - 1 - EACH * (int)threadIdx.x; // this thread's, downwards
    uint32_t mine = 0;
    __syncthreads();
    if (threadIdx.x == 0) s->bin = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) mine += s->bins[first - i];
    uint32_t up_to = mine; // with those of the threads before
    for (int step = 1; step < LP_CUDA_WARP; step *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, up_to, step);
        if (lane >= step) up_to += other;
    }
    if (lane == LP_CUDA_WARP - 1) s->of_warp[warp] = up_to;
    __syncthreads();
    for (int i = 0; i < warp; i++) up_to += s->of_warp[i];
    if (threadIdx.x == THREADS - 1) s->in_all = up_to;
    uint32_t before = up_to - mine;
    if (before < wanted && up_to >= wanted)
        for (int i = 0; i < EACH; i++) {
            const uint32_t n = s->bins[first - i];
            if (before + n >= wanted) {
                s->bin = first - i;
                s->before = before;
                break;
            }
            before += n;
        }
    __syncthreads();
}

static __device__ inline void clear(struct shared *s) {
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += THREADS) s->bins[i] = 0;
    __syncthreads();
}

static __device__ inline bool is_skipped(const struct lp_op_top_rows &op, int64_t i) {
    return op.skip && op.skip[i];
}

// The largest of the threads' ranks, in every thread
static __device__ inline uint32_t largest_rank(struct shared *s, uint32_t mine) {
    mine = __reduce_max_sync(0xffffffffu, mine);
    __syncthreads();
    if (threadIdx.x % LP_CUDA_WARP == 0) s->of_warp[threadIdx.x / LP_CUDA_WARP] = mine;
    __syncthreads();
    return __reduce_max_sync(0xffffffffu, s->of_warp[threadIdx.x % LP_CUDA_WARP]);
}

// Places [begin, end) of the row that are this warp's
static __device__ inline void warp_places(int64_t width, int64_t *begin, int64_t *end) {
    const int64_t each = (width + THREADS - 1) / THREADS * LP_CUDA_WARP;
    *begin = threadIdx.x / LP_CUDA_WARP * each;
    *end = *begin + each < width ? *begin + each : width;
}

// What is kept: ranks above `last`, and the first `n_equal` of that rank.
static __device__ inline void write_kept(const struct lp_op_top_rows &op, struct shared *s,
                                         const float *x, uint32_t last, uint32_t n_equal,
                                         struct lp_top_row *out) {
    const int lane = threadIdx.x % LP_CUDA_WARP, warp = threadIdx.x / LP_CUDA_WARP;
    const uint32_t below = (1u << lane) - 1;
    int64_t begin, end;
    uint32_t above = 0, equal = 0;
    warp_places(op.width, &begin, &end);
    for (int64_t i = begin + lane; i < end; i += LP_CUDA_WARP) {
        const uint32_t rank = is_skipped(op, i) ? 0 : rank_of(x[i]);
        above += rank > last;
        equal += rank == last;
    }
    above = __reduce_add_sync(0xffffffffu, above);
    equal = __reduce_add_sync(0xffffffffu, equal);
    __syncthreads();
    if (lane == 0) {
        s->of_warp[warp] = above;
        s->equal_of_warp[warp] = equal;
    }
    __syncthreads();
    uint32_t n_above = 0, n_same = 0; // of the warps before
    for (int i = 0; i < warp; i++) {
        n_above += s->of_warp[i];
        n_same += s->equal_of_warp[i];
    }
    for (int64_t at = begin; at < end; at += LP_CUDA_WARP) {
        const int64_t i = at + lane;
        const uint32_t rank = i >= end || is_skipped(op, i) ? 0 : rank_of(x[i]);
        const uint32_t of_above = __ballot_sync(0xffffffffu, rank > last),
                       of_same = __ballot_sync(0xffffffffu, rank == last && rank != 0);
        const uint32_t same = n_same + __popc(of_same & below),
                       place =
                           n_above + __popc(of_above & below) + (same < n_equal ? same : n_equal);
        if (rank > last || (rank == last && rank != 0 && same < n_equal)) {
            out->ids[place] = (int32_t)i;
            out->values[place] = x[i];
        }
        n_above += __popc(of_above);
        n_same += __popc(of_same);
    }
}

static __global__ void __launch_bounds__(THREADS) top_kernel(const struct lp_op_top_rows op) {
    __shared__ struct shared s;
    lp_cuda_follow();
    const float *x = op.x + blockIdx.x * op.x_stride;
    struct lp_top_row *out = op.rows + blockIdx.x;
    const double scale = op.scales[blockIdx.x];
    if (!(scale > 0)) return;
    clear(&s);
    uint32_t most = 0;
    for (int64_t i = threadIdx.x; i < op.width; i += THREADS) {
        if (is_skipped(op, i)) continue;
        const uint32_t rank = rank_of(x[i]);
        most = rank > most ? rank : most;
        atomicAdd(&s.bins[rank >> 20], 1u);
    }
    const double largest = of_rank(largest_rank(&s, most));
    find_bin(&s, LP_TOP_VALUES);
    const uint32_t n_all = s.in_all;
    const bool all = n_all <= LP_TOP_VALUES;
    uint32_t prefix = s.bin, wanted = LP_TOP_VALUES - s.before, low = 20;
    double sum = 0;
    for (int pass = 0; pass < 2; pass++) {
        const uint32_t bits = pass ? 8 : 12, next = low - bits;
        clear(&s);
        for (int64_t i = threadIdx.x; i < op.width; i += THREADS) {
            if (is_skipped(op, i)) continue;
            const uint32_t rank = rank_of(x[i]);
            if (pass == 0) sum += exp((x[i] - largest) * scale);
            if (rank >> low == prefix) atomicAdd(&s.bins[rank >> next & ((1u << bits) - 1)], 1u);
        }
        if (all) break;
        find_bin(&s, wanted);
        prefix = prefix << bits | s.bin;
        wanted -= s.before;
        low = next;
        __syncthreads(); // s.before has been read
    }
    sum = lp_cuda_block_sum<WARPS>(sum);
    write_kept(op, &s, x, all ? 0 : prefix, all ? 0 : wanted, out);
    if (threadIdx.x != 0) return;
    out->sum = sum;
    out->n = (int32_t)(all ? n_all : LP_TOP_VALUES);
}

void lp_cuda_top_rows(struct lp_device *device, const struct lp_op_top_rows *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->error || op->n_rows == 0) return;
    lp_cuda_start_early(dev, top_kernel, (unsigned)op->n_rows, THREADS, 0, *op);
    LP_CUDA_LAUNCHED(dev, "top_rows");
}
