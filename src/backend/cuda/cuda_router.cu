// The choice of experts, a warp a row: the rules of ref/ref_router.c, values in double.
#include "backend/cuda/cuda_common.cuh"

static __device__ bool better(double a, double b) {
    return (isnan(a) && !isnan(b)) || a > b;
}

struct best { // a candidate; index INT32_MAX: none
    double value;
    int index;
};
static __device__ struct best choose(struct best a, struct best b) {
    if (b.index == INT32_MAX) return a;
    if (a.index == INT32_MAX || better(b.value, a.value)) return b;
    return !better(a.value, b.value) && b.index < a.index ? b : a;
}
static __device__ struct best warp_best(struct best x) { // in every lane
    for (int step = 16; step > 0; step /= 2) {
        struct best other;
        other.value = __shfl_xor_sync(0xffffffffu, x.value, step);
        other.index = __shfl_xor_sync(0xffffffffu, x.index, step);
        x = choose(x, other);
    }
    return x;
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

// Shared: c [n_experts], what experts are chosen by; group scores [n_groups]; s [n_experts]; and a
// byte an expert: it may still be chosen.
static __global__ void router_kernel(struct lp_op_router op) {
    extern __shared__ double shared[];
    double *c = shared, *groups = c + op.n_experts;
    float *s = (float *)(groups + op.n_groups);
    uint8_t *open = (uint8_t *)(s + op.n_experts);
    const int lane = threadIdx.x;
    const float *z = op.logits + blockIdx.x * op.logits_stride;
    int32_t *ids = op.ids + (int64_t)blockIdx.x * op.n_used;
    float *weights = op.weights + (int64_t)blockIdx.x * op.n_used;

    struct best top = {-INFINITY, INT32_MAX};
    for (int e = lane; e < op.n_experts; e += LP_CUDA_WARP) {
        struct best here = {z[e], e};
        top = choose(top, here);
    }
    const double max = warp_best(top).value;
    double sum = 0;
    for (int e = lane; e < op.n_experts; e += LP_CUDA_WARP) sum += exp(z[e] - max);
    sum = lp_cuda_warp_sum(sum);
    for (int e = lane; e < op.n_experts; e += LP_CUDA_WARP) {
        double g = op.gating == LP_GATING_SOFTMAX   ? exp(z[e] - max) / sum
                   : op.gating == LP_GATING_SIGMOID ? 1.0 / (1.0 + exp(-(double)z[e]))
                                                    : (double)z[e];
        s[e] = (float)g;
        c[e] = (double)s[e] + (op.bias ? op.bias[e] : 0.0);
    }
    __syncwarp();
    for (int g = lane; op.n_groups > 1 && g < op.n_groups; g += LP_CUDA_WARP)
        groups[g] = group_score(c, op, g);
    __syncwarp();
    for (int e = lane; e < op.n_experts; e += LP_CUDA_WARP) {
        int mine = op.n_groups > 1 ? e / (op.n_experts / op.n_groups) : 0, before = 0;
        for (int g = 0; op.n_groups > 1 && g < op.n_groups; g++)
            before += g != mine && (better(groups[g], groups[mine]) ||
                                    (!better(groups[mine], groups[g]) && g < mine));
        open[e] = op.n_groups <= 1 || before < op.n_groups_used;
    }
    __syncwarp();

    double total = 0;
    for (int j = 0; j < op.n_used; j++) {
        struct best mine = {-INFINITY, INT32_MAX};
        for (int e = lane; e < op.n_experts; e += LP_CUDA_WARP) {
            struct best here = {c[e], e};
            if (open[e]) mine = choose(mine, here);
        }
        const int e = warp_best(mine).index;
        const bool is_there = e != INT32_MAX; // else: fewer experts than choices
        double g = is_there ? s[e] : nan("");
        if (op.gating == LP_GATING_SOFTMAX_SELECTED)
            g = exp(g - (double)z[j == 0 && is_there ? e : ids[0]]);
        total += (float)g;
        if (lane == 0) {
            ids[j] = is_there ? e : -1;
            weights[j] = (float)g;
            if (is_there) open[e] = 0;
        }
        __syncwarp();
    }
    const bool divide = op.normalise || op.gating == LP_GATING_SOFTMAX_SELECTED;
    for (int j = lane; j < op.n_used; j += LP_CUDA_WARP)
        weights[j] = (float)(weights[j] / (divide ? total + 1e-20 : 1.0) * op.scale);
}

void lp_cuda_router(struct lp_device *device, const struct lp_op_router *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (dev->error || op->n_rows == 0) return;
    struct lp_op_router copy = *op;
    if (copy.n_groups < 1) copy.n_groups = 1;
    const size_t shared = (size_t)op->n_experts * (sizeof(double) + sizeof(float) + 1) +
                          (size_t)copy.n_groups * sizeof(double);
    router_kernel<<<(unsigned)op->n_rows, LP_CUDA_WARP, shared, dev->stream>>>(copy);
    LP_CUDA_LAUNCHED(dev, "router");
}
