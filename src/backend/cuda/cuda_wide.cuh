// The kernel for many activation rows (cuda_wide.h).
//
// A block: 192 rows of weights, 64 a warpgroup, times N activation rows, 192 at most: as near to square as
// the registers let it be, for unpacking costs less the larger N is, and reading the activations less the
// more rows there are. Activations come in steps of 64 values (BUFFERS tiles in shared memory), weights as
// the bytes of a superblock, four steps, at a time (two buffers); each warp unpacks its own 16 rows into
// the fragments of A, one group of 32 values while the products of the group before run. One barrier a
// step.
//
// In GATE_UP a warp's rows 0 .. 7 are of gate, 8 .. 15 the same of up, so that one lane has both sums.
//
// Weights of 16-bit floats (FLOATS of a format) are no superblocks: they come a step at a time, as the
// activations do, and in as many buffers.
#ifndef LP_BACKEND_CUDA_CUDA_WIDE_CUH
#define LP_BACKEND_CUDA_CUDA_WIDE_CUH

#include "backend/cuda/cuda_common.cuh"
#include "backend/cuda/cuda_q8_formats.cuh"
#include "backend/cuda/cuda_wide.h"

#define LP_CUDA_WIDE_THREADS 384
#define LP_CUDA_WIDE_ROWS 192
#define LP_CUDA_WIDE_BUFFERS 4
#define LP_CUDA_WIDE_STEP 64

struct lp_cuda_wide_work {
    struct lp_cuda_weight w, up;
    const uint16_t *x;
    const float *unscale;
    int64_t x_row, x_head;
    const float *bias;
    float *y;
    int64_t y_row, y_head;
    int n_rows, n_used, accumulate, token_tiles, steps;
    const int32_t *pairs, *pair_begin, *tiles, *n_tiles;
};

struct lp_cuda_wide_place { // of a block
    int64_t mat;
    int row0, first, n; // weights from row0; n activation rows (pairs) from first
};

template <class F> struct lp_cuda_wide_sizes {
    static constexpr bool ALIGNED = F::BYTES % 16 == 0;
    static constexpr int COPIES = ALIGNED ? F::BYTES / 16 : (F::BYTES + 15 + 15) / 16;
    static constexpr int ROW = 16 * ((ALIGNED ? F::BYTES / 16 : (F::BYTES + 15 + 8 + 15) / 16) | 1);
    static constexpr int WEIGHTS = LP_CUDA_WIDE_ROWS * ROW; // a buffer of them
    // 1024 to begin at a multiple of it, 16 that the reader may touch
    static constexpr int shared_bytes =
        LP_CUDA_WIDE_BUFFERS * LP_CUDA_WIDE_TILE * 128 + 2 * WEIGHTS + 1024 + 16;
};

// Of 16-bit floats: bytes from row to row of a step's weights. 8 words past a multiple of 32, so that the
// 16 lanes that read 8 bytes at a time meet all banks.
#define LP_CUDA_WIDE_FLOAT_ROW 160
#define LP_CUDA_WIDE_FLOATS (LP_CUDA_WIDE_ROWS * LP_CUDA_WIDE_FLOAT_ROW) // a buffer of them

template <class F> static constexpr int lp_cuda_wide_shared(void) {
    if constexpr (F::FLOATS)
        return LP_CUDA_WIDE_BUFFERS * (LP_CUDA_WIDE_TILE * 128 + LP_CUDA_WIDE_FLOATS) + 1024;
    else
        return lp_cuda_wide_sizes<F>::shared_bytes;
}

template <int MODE>
static __device__ inline bool lp_cuda_wide_tile_of(const struct lp_cuda_wide_work &k,
                                                   struct lp_cuda_wide_place *p) {
    constexpr int OUT = MODE == LP_CUDA_Q8_GATE_UP ? LP_CUDA_WIDE_ROWS / 2 : LP_CUDA_WIDE_ROWS;
    int end = k.n_rows;
    if (MODE == LP_CUDA_Q8_MATMUL) {
        p->mat = blockIdx.y;
        p->first = (int)(blockIdx.x % k.token_tiles) * LP_CUDA_WIDE_TILE;
        p->row0 = (int)(blockIdx.x / k.token_tiles) * OUT;
    } else {
        if ((int)blockIdx.y >= *k.n_tiles) return false;
        p->mat = k.tiles[2 * blockIdx.y];
        p->first = k.tiles[2 * blockIdx.y + 1];
        p->row0 = (int)blockIdx.x * OUT;
        end = k.pair_begin[p->mat + 1];
    }
    p->n = end - p->first < LP_CUDA_WIDE_TILE ? end - p->first : LP_CUDA_WIDE_TILE;
    return true;
}

// The row of x and of unscale for activation row i of the tile.
template <int MODE>
static __device__ inline int64_t lp_cuda_wide_x(const struct lp_cuda_wide_work &k,
                                                const struct lp_cuda_wide_place &p, int i) {
    if (i >= p.n) i = p.n - 1; // multiplied, not stored
    if (MODE == LP_CUDA_Q8_MATMUL) return (p.first + i) * k.x_row + p.mat * k.x_head;
    const int pair = k.pairs[p.first + i];
    return MODE == LP_CUDA_Q8_GATE_UP ? pair / k.n_used : pair;
}

// Row r (0 .. 15) of the warp's weights.
template <int MODE>
static __device__ inline const uint8_t *
lp_cuda_wide_row(const struct lp_cuda_wide_work &k, const struct lp_cuda_wide_place &p, int r) {
    const int warp = threadIdx.x / LP_CUDA_WARP;
    const bool is_up = MODE == LP_CUDA_Q8_GATE_UP && r >= 8;
    int64_t row = p.row0 + (MODE == LP_CUDA_Q8_GATE_UP ? 8 * warp + r % 8 : 16 * warp + r);
    if (row >= k.w.n_out) row = k.w.n_out - 1; // multiplied, not stored
    return lp_cuda_weight_row(is_up ? k.up : k.w, p.mat, row);
}

// Superblock b of the warp's 16 rows: two lanes a row. row: of lane / 2.
template <class F>
static __device__ inline void lp_cuda_wide_weights(const uint8_t *row, size_t row_bytes, int b,
                                                   uint8_t *to) {
    typedef struct lp_cuda_wide_sizes<F> S;
    const int lane = threadIdx.x % LP_CUDA_WARP;
    const uint8_t *from = row + (size_t)b * F::BYTES;
    const int before = S::ALIGNED ? 0 : (int)((uintptr_t)from & 15);
    const int left = (int)(row_bytes - (size_t)b * F::BYTES) + before - lane % 2 * 16;
    from += lane % 2 * 16 - before;
    to += lane / 2 * S::ROW + lane % 2 * 16;
#pragma unroll
    for (int i = 0; i < (S::COPIES + 1) / 2; i++) {
        if (S::COPIES % 2 && i == S::COPIES / 2 && lane % 2) continue;
        if (S::ALIGNED) {
            lp_cuda_copy16(to + 32 * i, from + 32 * i, 16);
        } else {
            const int n = left - 32 * i;
            lp_cuda_copy16(to + 32 * i, n > 0 ? from + 32 * i : row - ((uintptr_t)row & 15),
                           n >= 16 ? 16
                           : n > 0 ? n
                                   : 0);
        }
    }
}

// Values 0 and 2, and 1 and 3, of a word of four int8 or uint8 as float16, times scale, plus low.
template <bool SIGNED>
static __device__ inline void lp_cuda_wide_unpack(uint32_t bytes, uint32_t scale, uint32_t low,
                                                  uint32_t *even, uint32_t *odd) {
    const uint32_t raised = SIGNED ? bytes ^ 0x80808080u : bytes,
                   offset = SIGNED ? 0xe480e480u : 0xe400e400u; // -1024 - 128, -1024
    *even = __byte_perm(raised, 0x64646464u, 0x4240);           // 1024 + byte
    *odd = __byte_perm(raised, 0x64646464u, 0x4341);
    *even = lp_cuda_half2_fma(lp_cuda_half2_add(*even, offset), scale, low);
    *odd = lp_cuda_half2_fma(lp_cuda_half2_add(*odd, offset), scale, low);
}

// Scale and minus the minimum of a group (or half of it) as float16 pairs
template <class F>
static __device__ inline void lp_cuda_wide_scales(const typename F::head_type &h, int g, int half,
                                                  uint32_t *scale, uint32_t *low) {
    const float s = F::scale(h, g, half) * (F::SUPER ? F::d(h) * F::RAISE : F::RAISE);
    *scale = lp_cuda_half2(s, s);
    const float m = F::HAS_MIN ? F::low(h, g, half) * (-F::RAISE * F::dmin(h)) : 0.0f;
    *low = F::HAS_MIN ? lp_cuda_half2(m, m) : 0x80008000u; // -0
}

template <int N, int MODE>
static __device__ inline void lp_cuda_wide_store(const struct lp_cuda_wide_work &k,
                                                 const struct lp_cuda_wide_place &p, float lower,
                                                 const float (&acc)[N / 2]) {
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    const float scale = lp_cuda_weight_scale(k.w, p.mat) * lower,
                up_scale =
                    MODE == LP_CUDA_Q8_GATE_UP ? lp_cuda_weight_scale(k.up, p.mat) * lower : 0;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const int t = 8 * j + lane % 4 * 2 + odd;
            if (t >= p.n) continue;
            const float unscale = k.unscale[lp_cuda_wide_x<MODE>(k, p, t)];
            if (MODE == LP_CUDA_Q8_GATE_UP) {
                const int64_t row = p.row0 + 8 * warp + lane / 4;
                if (row < k.w.n_out)
                    k.y[k.pairs[p.first + t] * k.w.n_out + row] =
                        lp_cuda_silu_mul(acc[4 * j + odd] * unscale * scale,
                                         acc[4 * j + odd + 2] * unscale * up_scale);
            }
#pragma unroll
            for (int i = 0; MODE != LP_CUDA_Q8_GATE_UP && i < 2; i++) {
                const int64_t row = p.row0 + 16 * warp + 8 * i + lane / 4;
                if (row >= k.w.n_out) continue;
                const float value = acc[4 * j + 2 * i + odd] * unscale * scale;
                if (MODE == LP_CUDA_Q8_DOWN) {
                    k.y[k.pairs[p.first + t] * k.w.n_out + row] = value;
                } else {
                    float *y = k.y + (p.first + t) * k.y_row + p.mat * k.y_head + row;
                    const float sum = k.bias ? value + k.bias[row] : value;
                    *y = k.accumulate ? *y + sum : sum;
                }
            }
        }
}

template <class F, int N, int MODE>
static __device__ inline void lp_cuda_wide_block(const struct lp_cuda_wide_work &k,
                                                 const struct lp_cuda_wide_place &p,
                                                 uint8_t *shared) {
    typedef struct lp_cuda_wide_sizes<F> S;
    constexpr int TILE = LP_CUDA_WIDE_TILE * 128, AHEAD = LP_CUDA_WIDE_BUFFERS - 2,
                  PASSES = (N * 8 + LP_CUDA_WIDE_THREADS - 1) / LP_CUDA_WIDE_THREADS;
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    const int g8 = lane / 4, q = lane % 4;
    uint8_t *tiles = shared, *weights = shared + LP_CUDA_WIDE_BUFFERS * TILE + warp * 16 * S::ROW;

    // Activations: a thread copies piece `piece` of rows mine, mine + 48, ...
    constexpr int EACH = LP_CUDA_WIDE_THREADS / 8;
    const int mine = threadIdx.x / 8, piece = threadIdx.x % 8;
    const uint16_t *from[PASSES];
#pragma unroll
    for (int i = 0; i < PASSES; i++)
        from[i] = k.x + lp_cuda_wide_x<MODE>(k, p, mine + EACH * i) * k.w.n_in + 8 * piece;
    auto fetch = [&](int step, int buffer) {
        if (step < k.steps)
#pragma unroll
            for (int i = 0; i < PASSES; i++)
                if (mine + EACH * i < N)
                    lp_cuda_copy16(tiles + buffer * TILE + (mine + EACH * i) * 128 +
                                       16 * (piece ^ (mine & 7)),
                                   from[i] + step * LP_CUDA_WIDE_STEP, 16);
    };

    const uint8_t *row = lp_cuda_wide_row<MODE>(k, p, lane / 2); // that this lane copies
    lp_cuda_wide_weights<F>(row, k.w.row_bytes, 0, weights);
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        fetch(i, i);
        lp_cuda_copy_commit();
    }
    int off0 = 0, off1 = 0; // where the two rows' superblocks begin in their places
    const uint8_t *row0 = lp_cuda_wide_row<MODE>(k, p, g8),
                  *row1 = lp_cuda_wide_row<MODE>(k, p, g8 + 8);
    float acc[N / 2] = {};
    typename F::head_type h0, h1;
    uint32_t a[2][2][4]; // [group of the step][half]
    int use = 0, fill = AHEAD;
    for (int b = 0; b < k.steps / 4; b++) {
        const uint8_t *raw = weights + (b & 1) * S::WEIGHTS;
        if (!S::ALIGNED) {
            off0 = (int)((uintptr_t)(row0 + (size_t)b * F::BYTES) & 15);
            off1 = (int)((uintptr_t)(row1 + (size_t)b * F::BYTES) & 15);
        }
        const lp_cuda_words<S::ALIGNED> r0(raw + g8 * S::ROW + off0),
            r1(raw + (g8 + 8) * S::ROW + off1);
#pragma unroll
        for (int s = 0; s < 4; s++) {
            lp_cuda_copy_wait<AHEAD - 1>();
            lp_cuda_wgmma_publish();
            __syncthreads();
            fetch(4 * b + s + AHEAD, fill);
            if (s == 0 && b + 1 < k.steps / 4)
                lp_cuda_wide_weights<F>(row, k.w.row_bytes, b + 1,
                                        weights + ((b + 1) & 1) * S::WEIGHTS);
            lp_cuda_copy_commit();
            fill = fill + 1 == LP_CUDA_WIDE_BUFFERS ? 0 : fill + 1;
            if (s == 0) {
                h0 = F::head(r0);
                h1 = F::head(r1);
            }
            const uint64_t tile = lp_cuda_wgmma_tile(tiles + use * TILE);
            use = use + 1 == LP_CUDA_WIDE_BUFFERS ? 0 : use + 1;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int g = 2 * s + i;
                lp_cuda_wgmma_wait<1>(); // the products that read a[i]
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    uint32_t s0, m0, s1, m1;
                    lp_cuda_wide_scales<F>(h0, g, half, &s0, &m0);
                    lp_cuda_wide_scales<F>(h1, g, half, &s1, &m1);
                    lp_cuda_wide_unpack<!F::HAS_MIN>(F::word(r0, g, half, q), s0, m0,
                                                     &a[i][half][0], &a[i][half][2]);
                    lp_cuda_wide_unpack<!F::HAS_MIN>(F::word(r1, g, half, q), s1, m1,
                                                     &a[i][half][1], &a[i][half][3]);
                }
                lp_cuda_wgmma_fence();
                lp_cuda_wgmma(acc, a[i][0], tile + 4 * i);
                lp_cuda_wgmma(acc, a[i][1], tile + 4 * i + 2);
                lp_cuda_wgmma_commit();
            }
        }
    }
    lp_cuda_wgmma_wait<0>();
    lp_cuda_wide_store<N, MODE>(k, p, 1.0f / F::RAISE, acc);
}

// ---- weights of 16-bit floats

struct lp_cuda_wide_float16 {
    static constexpr bool FLOATS = true;
    static constexpr float RAISE = 1.0f;
    // Values 0 and 2, and 1 and 3, of four as float16, raised
    static __device__ void pairs(uint2 four, uint32_t *even, uint32_t *odd) {
        *even = __byte_perm(four.x, four.y, 0x5410);
        *odd = __byte_perm(four.x, four.y, 0x7632);
    }
};

struct lp_cuda_wide_bfloat16 {
    static constexpr bool FLOATS = true;
    static constexpr float RAISE = 1.0f; // exact from 2^-14 to 65,504, below to 2^-25
    static __device__ void pairs(uint2 four, uint32_t *even, uint32_t *odd) {
        *even = lp_cuda_half2(__uint_as_float(four.x << 16), __uint_as_float(four.y << 16));
        *odd = lp_cuda_half2(__uint_as_float(four.x & 0xffff0000u),
                             __uint_as_float(four.y & 0xffff0000u));
    }
};

template <class F, int N, int MODE>
static __device__ inline void lp_cuda_wide_float_block(const struct lp_cuda_wide_work &k,
                                                       const struct lp_cuda_wide_place &p,
                                                       uint8_t *shared) {
    constexpr int TILE = LP_CUDA_WIDE_TILE * 128, AHEAD = LP_CUDA_WIDE_BUFFERS - 2,
                  PASSES = (N * 8 + LP_CUDA_WIDE_THREADS - 1) / LP_CUDA_WIDE_THREADS,
                  EACH = LP_CUDA_WIDE_THREADS / 8, ROW = LP_CUDA_WIDE_FLOAT_ROW;
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    const int g8 = lane / 4, q = lane % 4, mine = threadIdx.x / 8, piece = threadIdx.x % 8;
    uint8_t *tiles = shared, *weights = shared + LP_CUDA_WIDE_BUFFERS * TILE + warp * 16 * ROW;
    const uint16_t *from[PASSES];
#pragma unroll
    for (int i = 0; i < PASSES; i++)
        from[i] = k.x + lp_cuda_wide_x<MODE>(k, p, mine + EACH * i) * k.w.n_in + 8 * piece;
    const uint8_t *row = lp_cuda_wide_row<MODE>(k, p, lane / 2) + 64 * (lane % 2);
    uint8_t *to = weights + lane / 2 * ROW + 64 * (lane % 2);
    auto fetch = [&](int step, int buffer) { // activations of the block, weights of the warp
        if (step >= k.steps) return;
#pragma unroll
        for (int i = 0; i < PASSES; i++)
            if (mine + EACH * i < N)
                lp_cuda_copy16(tiles + buffer * TILE + (mine + EACH * i) * 128 +
                                   16 * (piece ^ (mine & 7)),
                               from[i] + step * LP_CUDA_WIDE_STEP, 16);
#pragma unroll
        for (int i = 0; i < 4; i++)
            lp_cuda_copy16(to + buffer * LP_CUDA_WIDE_FLOATS + 16 * i,
                           row + step * 2 * LP_CUDA_WIDE_STEP + 16 * i, 16);
    };
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        fetch(i, i);
        lp_cuda_copy_commit();
    }
    float acc[N / 2] = {};
    uint32_t a[2][2][4]; // [group of the step][half]
    int use = 0, fill = AHEAD;
    for (int step = 0; step < k.steps; step++) {
        lp_cuda_copy_wait<AHEAD - 1>();
        lp_cuda_wgmma_publish();
        __syncthreads();
        fetch(step + AHEAD, fill);
        lp_cuda_copy_commit();
        fill = fill + 1 == LP_CUDA_WIDE_BUFFERS ? 0 : fill + 1;
        const uint64_t tile = lp_cuda_wgmma_tile(tiles + use * TILE);
        const uint8_t *raw = weights + use * LP_CUDA_WIDE_FLOATS + g8 * ROW + 8 * q;
        use = use + 1 == LP_CUDA_WIDE_BUFFERS ? 0 : use + 1;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            lp_cuda_wgmma_wait<1>(); // the products that read a[i]
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint8_t *at = raw + 64 * i + 32 * half;
                F::pairs(*(const uint2 *)at, &a[i][half][0], &a[i][half][2]);
                F::pairs(*(const uint2 *)(at + 8 * ROW), &a[i][half][1], &a[i][half][3]);
            }
            lp_cuda_wgmma_fence();
            lp_cuda_wgmma(acc, a[i][0], tile + 4 * i);
            lp_cuda_wgmma(acc, a[i][1], tile + 4 * i + 2);
            lp_cuda_wgmma_commit();
        }
    }
    lp_cuda_wgmma_wait<0>();
    lp_cuda_wide_store<N, MODE>(k, p, 1.0f / F::RAISE, acc);
}

// ---- either

template <class F, int N, int MODE>
static __device__ inline void lp_cuda_wide_run(const struct lp_cuda_wide_work &k,
                                               const struct lp_cuda_wide_place &p,
                                               uint8_t *shared) {
    if constexpr (F::FLOATS)
        lp_cuda_wide_float_block<F, N, MODE>(k, p, shared);
    else
        lp_cuda_wide_block<F, N, MODE>(k, p, shared);
}

// Blocks along x: row tiles, and activation tiles (fastest); along y: matrices, or the experts' tiles.
template <class F, int MODE>
static __global__ void __launch_bounds__(LP_CUDA_WIDE_THREADS, 1)
    lp_cuda_wide_kernel(const struct lp_cuda_wide_work k) {
#if LP_CUDA_HAS_WGMMA
    extern __shared__ uint4 lp_cuda_shared[];
    uint8_t *shared = (uint8_t *)lp_cuda_shared;
    shared += (1024 - (__cvta_generic_to_shared(shared) & 1023)) & 1023;
    struct lp_cuda_wide_place p;
    if (!lp_cuda_wide_tile_of<MODE>(k, &p)) return;
    if (p.n <= 32)
        lp_cuda_wide_run<F, 32, MODE>(k, p, shared);
    else if (p.n <= 64)
        lp_cuda_wide_run<F, 64, MODE>(k, p, shared);
    else if (p.n <= 128)
        lp_cuda_wide_run<F, 128, MODE>(k, p, shared);
    else if (p.n <= 160)
        lp_cuda_wide_run<F, 160, MODE>(k, p, shared);
    else
        lp_cuda_wide_run<F, 192, MODE>(k, p, shared);
#endif
}

template <class F, int MODE>
static void lp_cuda_wide_start(struct lp_cuda_device *dev, const struct lp_cuda_wide_job *wide) {
    static bool allowed;
    constexpr int SHARED = lp_cuda_wide_shared<F>();
    constexpr int OUT = MODE == LP_CUDA_Q8_GATE_UP ? LP_CUDA_WIDE_ROWS / 2 : LP_CUDA_WIDE_ROWS;
    const struct lp_cuda_q8_job *job = &wide->job;
    struct lp_cuda_wide_work k = {};
    k.w = lp_cuda_weight_of(job->w);
    if (job->up) k.up = lp_cuda_weight_of(job->up);
    k.x = (const uint16_t *)job->x;
    k.unscale = wide->unscale;
    k.x_row = job->x_row;
    k.x_head = job->x_head;
    k.bias = job->bias;
    k.y = job->y;
    k.y_row = job->y_row;
    k.y_head = job->y_head;
    k.n_rows = (int)job->n_rows;
    k.n_used = job->n_used;
    k.accumulate = job->accumulate;
    k.token_tiles = (int)lp_cuda_blocks(job->n_rows, LP_CUDA_WIDE_TILE);
    k.steps = (int)(job->w->n_in / LP_CUDA_WIDE_STEP);
    k.pairs = job->pairs;
    k.pair_begin = job->pair_begin;
    k.tiles = job->tiles;
    k.n_tiles = job->n_tiles;
    dim3 blocks(lp_cuda_blocks(job->w->n_out, OUT), (unsigned)job->max_tiles);
    if (MODE == LP_CUDA_Q8_MATMUL)
        blocks = dim3(blocks.x * (unsigned)k.token_tiles, (unsigned)job->w->n_mats);
    if (!allowed)
        lp_cuda_note(dev,
                     cudaFuncSetAttribute((const void *)lp_cuda_wide_kernel<F, MODE>,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED),
                     "a kernel's shared memory");
    allowed = true;
    lp_cuda_wide_kernel<F, MODE><<<blocks, LP_CUDA_WIDE_THREADS, SHARED, dev->stream>>>(k);
    LP_CUDA_LAUNCHED(dev, "a product of many rows");
}

template <class F>
static void lp_cuda_wide_any(struct lp_cuda_device *dev, const struct lp_cuda_wide_job *job) {
    if (dev->error) return;
    if (job->job.mode == LP_CUDA_Q8_GATE_UP)
        lp_cuda_wide_start<F, LP_CUDA_Q8_GATE_UP>(dev, job);
    else if (job->job.mode == LP_CUDA_Q8_DOWN)
        lp_cuda_wide_start<F, LP_CUDA_Q8_DOWN>(dev, job);
    else
        lp_cuda_wide_start<F, LP_CUDA_Q8_MATMUL>(dev, job);
}

#define LP_CUDA_WIDE_KERNEL(stem, format, prepare)                                                 \
    const struct lp_cuda_wide_kernel lp_cuda_wide_##stem = {"cuda_wide_" #stem "_sm90",            \
                                                            lp_cuda_wide_any<format>, prepare}

#endif
