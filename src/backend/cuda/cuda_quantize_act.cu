// Activations to 8 bits: the bytes and scales of cpu_quantize_act.h, in the layouts of cuda_q8.h.
#include "backend/cuda/cuda_ptx.cuh"
#include "backend/cuda/cuda_round.cuh"

#define LANES 8 // a group; four values each

static __device__ inline float lane_max_bits(uint32_t &bits) {
    for (int step = 1; step < LANES; step *= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, step);
        bits = other > bits ? other : bits;
    }
    return __uint_as_float(bits);
}

// Four values to int8, and d of the group.
static __device__ inline uint32_t round4(const float (&x)[4], float amax, float *d) {
    const struct lp_cuda_rounding r = lp_cuda_rounding_of(amax);
    int q[4];
#pragma unroll
    for (int i = 0; i < 4; i++) q[i] = lp_cuda_round(x[i], r);
    *d = r.d;
    return (q[0] & 255) | (q[1] & 255) << 8 | (q[2] & 255) << 16 | (uint32_t)(q[3] & 255) << 24;
}

// Blocks along x: groups of a row; along y: rows. Eight lanes a group. Groups past the end of a row are
// zeros.
static __global__ void quantize_kernel(const struct lp_cuda_quantize k, int n_groups,
                                       size_t row_bytes) {
    if (!k.hold_next) lp_cuda_let_next_start(); // the product fetches weights meanwhile
    lp_cuda_wait_for_input();
    if (k.hold_next) lp_cuda_let_next_start();
    const int at = (int)((blockIdx.x * blockDim.x + threadIdx.x) / LANES),
              lane = threadIdx.x % LANES;
    const int group = at < n_groups ? at : n_groups - 1;
    const int64_t row = blockIdx.y, t = row / k.n_heads, h = row % k.n_heads;
    const float *from = k.x + t * k.x_row + h * k.x_head;
    const int64_t first = (int64_t)group * 32 + 4 * lane;
    float x[4], d;
    uint32_t bits = 0;
    if (((uintptr_t)from & 15) == 0 && first + 4 <= k.n_in) {
        const float4 v = *(const float4 *)(from + first);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = first + i < k.n_in ? from[first + i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t magnitude = lp_cuda_magnitude(x[i]);
        bits = magnitude > bits ? magnitude : bits; // NaN is above infinity
    }
    const float amax = lane_max_bits(bits);
    const uint32_t q = round4(x, amax, &d);
    int sum = __dp4a((int)q, 0x01010101, 0);
    for (int step = 1; step < LANES; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (at >= n_groups) return;
    uint8_t *out = k.out + (size_t)row * row_bytes;
    const int b = group / 8, g = group % 8;
    *(uint32_t *)(out + lp_cuda_act_word(k.layout, b, g, lane)) = q;
    if (lane == 0)
        *(float2 *)(out + lp_cuda_act_scale(k.layout, b, g)) = make_float2(d, d * (float)sum);
}

void lp_cuda_quantize_act(struct lp_cuda_device *dev, const struct lp_cuda_quantize *q) {
    const int64_t n_rows = q->n_rows * q->n_heads;
    if (dev->error || n_rows == 0) return;
    const size_t row_bytes = lp_cuda_act_bytes(q->n_in, q->layout);
    const int n_groups = (int)(row_bytes / LP_CUDA_ACT_BYTES) * 8;
    for (int64_t first = 0; first < n_rows; first += 65535 / q->n_heads * q->n_heads) {
        const int64_t most = 65535 / q->n_heads * q->n_heads,
                      n = n_rows - first < most ? n_rows - first : most;
        struct lp_cuda_quantize part = *q;
        part.x = q->x + first / q->n_heads * q->x_row;
        part.out = q->out + (size_t)first * row_bytes;
        const dim3 blocks(lp_cuda_blocks((int64_t)n_groups * LANES, LP_CUDA_THREADS), (unsigned)n);
        lp_cuda_start_early(dev, quantize_kernel, blocks, LP_CUDA_THREADS, 0, part, n_groups,
                            row_bytes);
        LP_CUDA_LAUNCHED(dev, "rounding of activations");
    }
}
