// Products with weights of F32, F16 and BF16, in float32: routers and the indexer's head weights, and models
// that are not quantised.
//
// One definition for both kernels (rule B2): 64 neighbouring products are summed by FMAs from 0, such sums in
// double, from the first to the last; then factor and bias.
//
//   few   a block: one row of weights and up to 8 of activations; a thread a run of 64
//   many  a block: 64 rows of weights and 64 of activations; a thread 4 x 4 sums
#include "backend/cuda/cuda_dot.cuh"
#include "backend/cuda/cuda_float.cuh"
#include "backend/cuda/cuda_ptx.cuh"

#define RUN 64 // products of a float32 sum
#define FEW 8
#define THREADS 256
#define TILE 64
#define STEP 16 // values of a tile's row in shared memory

template <int TYPE>
static __device__ __forceinline__ float value_at(const uint8_t *row, int64_t i) {
    if (TYPE == LP_TYPE_F32) return ((const float *)row)[i];
    const uint16_t bits = ((const uint16_t *)row)[i];
    return TYPE == LP_TYPE_F16 ? lp_cuda_f16(bits) : lp_cuda_bf16(bits);
}

// Values i ... i + 3; `vectors`: they lie at a multiple of 16 or 8 bytes.
template <int TYPE>
static __device__ __forceinline__ void four_at(const uint8_t *row, int64_t i, bool vectors,
                                               float (&out)[4]) {
    if (TYPE == LP_TYPE_F32 && vectors) {
        const float4 v = *(const float4 *)(row + i * 4);
        out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    } else if (vectors) {
        const uint2 v = *(const uint2 *)(row + i * 2);
        out[0] = value_at<TYPE>((const uint8_t *)&v, 0),
        out[1] = value_at<TYPE>((const uint8_t *)&v, 1);
        out[2] = value_at<TYPE>((const uint8_t *)&v, 2),
        out[3] = value_at<TYPE>((const uint8_t *)&v, 3);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) out[j] = value_at<TYPE>(row, i + j);
    }
}

// Whether rows of weights and of activations lie so.
static __device__ __forceinline__ bool in_vectors(const struct lp_cuda_product &p) {
    return (((uintptr_t)p.w.data | p.w.row_bytes | p.w.mat_bytes) & 15) == 0 &&
           (((uintptr_t)p.x | (uintptr_t)(p.x_row * 4) | (uintptr_t)(p.x_head * 4)) & 15) == 0;
}

static __device__ __forceinline__ void store(const struct lp_cuda_product &p, int64_t head,
                                             int64_t row, int64_t out, double sum) {
    float *y = p.y + head * p.y_head + row * p.y_row + out;
    sum = sum * lp_cuda_weight_scale(p.w, head) + (p.bias ? p.bias[out] : 0.0);
    *y = (float)(p.accumulate ? *y + sum : sum);
}

// Grid: rows of weights along x, runs of N activation rows along y, heads along z. Shared: [N][runs].
template <int TYPE, int N, int FEW_THREADS>
static __global__ void __launch_bounds__(FEW_THREADS)
    few_kernel(const __grid_constant__ struct lp_cuda_product p, int n_runs, bool beside) {
    extern __shared__ float sums[];
    const int64_t out = blockIdx.x, first = (int64_t)blockIdx.y * N, h = blockIdx.z;
    const uint8_t *w = lp_cuda_weight_row(p.w, h, out);
    if (beside) lp_cuda_let_next_start(); // as lp_cuda_vec_kernel
    for (size_t at = threadIdx.x * 128; at < p.w.row_bytes; at += FEW_THREADS * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(w + at));
    if (!beside) {
        lp_cuda_wait_for_input();
        lp_cuda_let_next_start();
    }
    const int n = p.n_rows - first < N ? (int)(p.n_rows - first) : N;
    const bool vectors = in_vectors(p);
    const float *x[N];
#pragma unroll
    for (int t = 0; t < N; t++) x[t] = p.x + h * p.x_head + (first + (t < n ? t : 0)) * p.x_row;
    for (int run = threadIdx.x; run < n_runs; run += FEW_THREADS) {
        const int64_t begin = (int64_t)run * RUN,
                      end = begin + RUN < p.w.n_in ? begin + RUN : p.w.n_in;
        float sum[N] = {};
        int64_t i = begin;
#pragma unroll 4
        for (; vectors && i + 8 <= end; i += 8) {
            float v[8], a[8];
            lp_cuda_eight_floats<TYPE>(w, i, v);
#pragma unroll
            for (int t = 0; t < N; t++) {
                lp_cuda_eight_floats<LP_TYPE_F32>((const uint8_t *)x[t], i, a);
#pragma unroll
                for (int j = 0; j < 8; j++) sum[t] = fmaf(v[j], a[j], sum[t]);
            }
        }
        for (; i < end; i++)
#pragma unroll
            for (int t = 0; t < N; t++) sum[t] = fmaf(value_at<TYPE>(w, i), x[t][i], sum[t]);
#pragma unroll
        for (int t = 0; t < N; t++) sums[t * n_runs + run] = sum[t];
    }
    __syncthreads();
    if (beside) lp_cuda_wait_for_input();
    if (threadIdx.x % LP_CUDA_WARP != 0) return;
    for (int t = threadIdx.x / LP_CUDA_WARP; t < n; t += FEW_THREADS / LP_CUDA_WARP) {
        double total = 0;
        for (int run = 0; run < n_runs; run++) total += sums[t * n_runs + run];
        store(p, h, first + t, out, total);
    }
}

template <int TYPE, int N, int FEW_THREADS>
static void start_few(struct lp_cuda_device *dev, const struct lp_cuda_product *p, int n_runs,
                      bool beside) {
    const dim3 blocks((unsigned)p->w.n_out, lp_cuda_blocks(p->n_rows, N), (unsigned)p->w.n_mats);
    lp_cuda_start_early(dev, few_kernel<TYPE, N, FEW_THREADS>, blocks, FEW_THREADS,
                        (size_t)n_runs * N * sizeof(float), *p, n_runs, beside);
}

// Four values of a row of each; zeros behind the last.
template <int TYPE>
static __device__ __forceinline__ void fetch(const struct lp_cuda_product &p, const float *x,
                                             const uint8_t *w, int64_t at, bool vectors,
                                             float (&a)[4], float (&b)[4]) {
    if (at + 4 <= p.w.n_in) {
        four_at<LP_TYPE_F32>((const uint8_t *)x, at, vectors, a);
        four_at<TYPE>(w, at, vectors, b);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = at + i < p.w.n_in ? x[at + i] : 0.0f;
        b[i] = at + i < p.w.n_in ? value_at<TYPE>(w, at + i) : 0.0f;
    }
}

// Grid: tiles of activation rows along x, of weight rows along y, heads along z.
template <int TYPE>
static __global__ void __launch_bounds__(THREADS)
    many_kernel(const __grid_constant__ struct lp_cuda_product p) {
    __shared__ __align__(16) float xs[STEP][TILE + 4], ws[STEP][TILE + 4];
    lp_cuda_follow();
    const int64_t first_row = (int64_t)blockIdx.x * TILE, first_out = (int64_t)blockIdx.y * TILE,
                  h = blockIdx.z;
    const int mine = threadIdx.x / 4, part = threadIdx.x % 4 * 4; // that this thread fetches
    const int64_t row = first_row + mine < p.n_rows ? first_row + mine : p.n_rows - 1,
                  out = first_out + mine < p.w.n_out ? first_out + mine : p.w.n_out - 1;
    const float *x = p.x + h * p.x_head + row * p.x_row;
    const uint8_t *w = lp_cuda_weight_row(p.w, h, out);
    const int r = threadIdx.x / 16 * 4, c = threadIdx.x % 16 * 4; // its sums
    const bool vectors = in_vectors(p);
    double total[4][4] = {};
    float sum[4][4] = {}, next_x[4], next_w[4];
    fetch<TYPE>(p, x, w, part, vectors, next_x, next_w);
    for (int64_t at = 0; at < p.w.n_in; at += STEP) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            xs[part + i][mine] = next_x[i];
            ws[part + i][mine] = next_w[i];
        }
        __syncthreads();
        fetch<TYPE>(p, x, w, at + STEP + part, vectors, next_x,
                    next_w); // while these are multiplied
#pragma unroll
        for (int k = 0; k < STEP; k++) { // behind the last value: zeros
            const float4 a = *(const float4 *)&xs[k][r], b = *(const float4 *)&ws[k][c];
            const float rows[4] = {a.x, a.y, a.z, a.w}, outs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] = fmaf(outs[j], rows[i], sum[i][j]);
        }
        if ((at + STEP) % RUN != 0 && at + STEP < p.w.n_in) continue;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                total[i][j] += sum[i][j];
                sum[i][j] = 0;
            }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (first_row + r + i < p.n_rows && first_out + c + j < p.w.n_out)
                store(p, h, first_row + r + i, first_out + c + j, total[i][j]);
}

template <int TYPE>
static void start(struct lp_cuda_device *dev, const struct lp_cuda_product *p, bool beside) {
    const int n_runs = (int)((p->w.n_in + RUN - 1) / RUN);
    const unsigned outs = (unsigned)p->w.n_out, heads = (unsigned)p->w.n_mats;
    const bool small = n_runs <= THREADS / 2; // of a row: more of them at a time
    if (p->n_rows == 1)
        small ? start_few<TYPE, 1, THREADS / 2>(dev, p, n_runs, beside)
              : start_few<TYPE, 1, THREADS>(dev, p, n_runs, beside);
    else if (p->n_rows <= LP_CUDA_FLOAT_FEW)
        small ? start_few<TYPE, FEW, THREADS / 2>(dev, p, n_runs, beside)
              : start_few<TYPE, FEW, THREADS>(dev, p, n_runs, beside);
    else
        lp_cuda_start_early(
            dev, many_kernel<TYPE>,
            dim3(lp_cuda_blocks(p->n_rows, TILE), lp_cuda_blocks(outs, TILE), heads), THREADS, 0,
            *p);
}

bool lp_cuda_float_takes(const struct lp_cuda_weight *w) {
    // Few rows: sums of a row in 48 KiB of shared memory; grids of 65,535 at most along y and z.
    return (w->type == LP_TYPE_F32 || w->type == LP_TYPE_F16 || w->type == LP_TYPE_BF16) &&
           w->n_in <= 64 * 1024 && w->n_mats <= 65535 && w->n_out <= 64 * 65535 &&
           w->row_bytes % 4 == 0;
}

void lp_cuda_float_start(struct lp_cuda_device *dev, const struct lp_cuda_product *p, bool beside) {
    if (p->w.type == LP_TYPE_F32)
        start<LP_TYPE_F32>(dev, p, beside);
    else if (p->w.type == LP_TYPE_F16)
        start<LP_TYPE_F16>(dev, p, beside);
    else
        start<LP_TYPE_BF16>(dev, p, beside);
}
