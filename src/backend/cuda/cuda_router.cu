// The choice of experts: the rules of ref/ref_router.c, values in double.
#include "backend/cuda/cuda_common.cuh"

static __device__ bool better(double a, double b) {
    return (isnan(a) && !isnan(b)) || a > b;
}

static __device__ double group_score(const double *c, const struct lp_op_router &op, int group) {
    int size = op.n_experts / op.n_groups;
    double first = -INFINITY, second = -INFINITY;
    for (int e = group * size; e < (group + 1) * size; e++) {
        if (better(c[e], first)) {
            second = first;
            first = c[e];
        } else if (better(c[e], second))
            second = c[e];
    }
    return op.group_score == LP_GROUP_MAX || size == 1 ? first : first + second;
}

#define THREADS 1024
#define COUNTERS 4 // threads that count what goes before an expert

// Max and sum of exp over a row's logits, for softmax; of a NaN everything is NaN.
static __device__ void softmax_of(const float *z, int n, double *most, double *sum) {
    __shared__ double of_warp[THREADS / LP_CUDA_WARP];
    double mine = -INFINITY, part = 0;
    for (int e = threadIdx.x; e < n; e += THREADS)
        if (better(z[e], mine)) mine = z[e];
    for (int step = 16; step > 0; step /= 2) {
        const double other = __shfl_xor_sync(0xffffffffu, mine, step);
        if (better(other, mine)) mine = other;
    }
    if (threadIdx.x % LP_CUDA_WARP == 0) of_warp[threadIdx.x / LP_CUDA_WARP] = mine;
    __syncthreads();
    for (int i = 0; i < THREADS / LP_CUDA_WARP; i++)
        if (better(of_warp[i], mine)) mine = of_warp[i];
    for (int e = threadIdx.x; e < n; e += THREADS) part += exp(z[e] - mine);
    *most = mine;
    *sum = lp_cuda_block_sum<THREADS / LP_CUDA_WARP>(part);
}

// Whole numbers in the order of choice: NaN above all, -0 = +0; 0 is left for what may not be chosen.
static __device__ inline uint64_t rank_of(double c) {
    if (isnan(c)) return ~(uint64_t)0;
    const uint64_t bits = (uint64_t)__double_as_longlong(c == 0 ? 0.0 : c);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

// How many of numbers `from`, from + step, ... of n are chosen before number `at`: larger ranks, and equal ones that
// stand before it.
static __device__ inline int count_before(const uint64_t *ranks, int n, int at, int from,
                                          int step) {
    const uint64_t mine = ranks[at];
    int before = 0;
#pragma unroll 8
    for (int i = from; i < n; i += step) before += ranks[i] > mine || (ranks[i] == mine && i < at);
    return before;
}

// The same where `high` has the upper halves of the ranks, which nearly always tell.
static __device__ inline int count_before_by_halves(const uint32_t *high, const uint64_t *ranks,
                                                    int n, int at, int from, int step) {
    const uint32_t mine = high[at];
    int before = 0, alike = 0;
#pragma unroll 8
    for (int i = from; i < n; i += step) {
        before += high[i] > mine;
        alike += high[i] == mine;
    }
    if (alike == (at % step == from)) return before; // itself
    for (int i = from; i < n; i += step)
        before += high[i] == mine && (ranks[i] > ranks[at] || (ranks[i] == ranks[at] && i < at));
    return before;
}

// A block a row. Shared: c [n_experts], what experts are chosen by, and then their ranks; those of the
// groups [n_groups]; s [n_experts]; what is chosen; upper halves of the ranks. An expert's place is the number of
// those that are chosen before it, so that no choice waits for another.
static __global__ void __launch_bounds__(THREADS) router_kernel(struct lp_op_router op) {
    extern __shared__ double shared[];
    lp_cuda_follow();
    double *c = shared, most = 0, sum = 0;
    uint64_t *ranks = (uint64_t *)c, *groups = ranks + op.n_experts;
    float *s = (float *)(groups + op.n_groups), *weights = s + op.n_experts;
    int32_t *ids = (int32_t *)(weights + op.n_used);
    uint32_t *high = (uint32_t *)(ids + op.n_used);
    const float *z = op.logits + blockIdx.x * op.logits_stride;
    if (op.gating == LP_GATING_SOFTMAX) softmax_of(z, op.n_experts, &most, &sum);
    for (int e = threadIdx.x; e < op.n_experts; e += THREADS) {
        double g = op.gating == LP_GATING_SOFTMAX   ? exp(z[e] - most) / sum
                   : op.gating == LP_GATING_SIGMOID ? 1.0 / (1.0 + exp(-(double)z[e]))
                                                    : (double)z[e];
        s[e] = (float)g;
        c[e] = (double)s[e] + (op.bias ? op.bias[e] : 0.0);
    }
    for (int j = threadIdx.x; j < op.n_used; j += THREADS) { // fewer experts than choices
        ids[j] = -1;
        weights[j] = nanf("");
    }
    __syncthreads();
    const int size = op.n_experts / op.n_groups;
    for (int g = threadIdx.x; op.n_groups > 1 && g < op.n_groups; g += THREADS)
        groups[g] = rank_of(group_score(c, op, g));
    __syncthreads();
    for (int e = threadIdx.x; e < op.n_experts; e += THREADS) {
        const bool open = op.n_groups <= 1 ||
                          count_before(groups, op.n_groups, e / size, 0, 1) < op.n_groups_used;
        ranks[e] = open ? rank_of(c[e]) : 0; // its own place alone
        high[e] = (uint32_t)(ranks[e] >> 32);
    }
    __syncthreads();
    const int each = threadIdx.x % COUNTERS;
    for (int first = 0; first < op.n_experts; first += THREADS / COUNTERS) { // the whole warp
        const int at = first + threadIdx.x / COUNTERS, e = at < op.n_experts ? at : 0;
        int before = count_before_by_halves(high, ranks, op.n_experts, e, each, COUNTERS);
        for (int step = 1; step < COUNTERS; step *= 2)
            before += __shfl_xor_sync(0xffffffffu, before, step);
        if (each != 0 || at >= op.n_experts || ranks[e] == 0 || before >= op.n_used) continue;
        ids[before] = e;
        weights[before] = s[e];
    }
    __syncthreads();
    const bool selected = op.gating == LP_GATING_SOFTMAX_SELECTED;
    const double best = selected && ids[0] >= 0 ? s[ids[0]] : NAN;
    double total = 0; // every thread sums alike
    for (int j = 0; j < op.n_used; j++)
        total += selected ? (float)exp((double)weights[j] - best) : weights[j];
    const double divisor = op.normalise || selected ? total + 1e-20 : 1.0;
    for (int j = threadIdx.x; j < op.n_used; j += THREADS) {
        const float w = selected ? (float)exp((double)weights[j] - best) : weights[j];
        op.ids[(int64_t)blockIdx.x * op.n_used + j] = ids[j];
        op.weights[(int64_t)blockIdx.x * op.n_used + j] = (float)(w / divisor * op.scale);
    }
}

void lp_cuda_router(struct lp_device *device, const struct lp_op_router *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->error || op->n_rows == 0) return;
    struct lp_op_router copy = *op;
    if (copy.n_groups < 1) copy.n_groups = 1;
    const size_t shared = (size_t)op->n_experts * (sizeof(double) + 2 * sizeof(float)) +
                          (size_t)copy.n_groups * sizeof(double) + (size_t)op->n_used * 8;
    lp_cuda_start_early(dev, router_kernel, (unsigned)op->n_rows, THREADS, shared, copy);
    LP_CUDA_LAUNCHED(dev, "router");
}
