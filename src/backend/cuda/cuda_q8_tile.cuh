// The 8-bit kernel for more activation rows: integer products on the tensor cores, with the sums, and
// so the bits, of the kernel for few (cuda_q8.h).
//
// A block takes 16 M rows of weights (GATE_UP: half of them of gate, half of up) and 8 NT activation
// rows; warp j of its eight takes the superblocks b with b % 8 = j. A warp's stage holds one superblock
// of each of the rows, copied asynchronously; weights are unpacked to the fragments of m16n8k32 in
// registers. The int32 sums start at the bits of 1.5 * 2^23, so that as a float they are that plus the
// dot product, and one fma with the scale, minus 1.5 * 2^23 times the scale (exact), gives
// round(dot * scale) without a conversion.
#ifndef LP_BACKEND_CUDA_CUDA_Q8_TILE_CUH
#define LP_BACKEND_CUDA_CUDA_Q8_TILE_CUH

#include "backend/cuda/cuda_common.cuh"
#include "backend/cuda/cuda_q8.h"
#include "backend/cuda/cuda_q8_formats.cuh"

#define LP_CUDA_TILE_WARPS LP_CUDA_ROUND
#define LP_CUDA_MAGIC 12582912.0f // 1.5 * 2^23: its neighbours are whole numbers
#define LP_CUDA_MAGIC_BITS 0x4b400000

struct lp_cuda_tile_work {
    struct lp_cuda_weight w, up;
    const uint8_t *x, *zero;
    size_t x_bytes;
    int64_t x_row, x_head;
    const float *bias;
    float *y;
    int64_t y_row, y_head;
    int n_rows, n_used, accumulate, token_tiles;
    int rounds, parts, superblocks;
    const int32_t *pairs, *pair_begin, *tiles, *n_tiles;
};

struct lp_cuda_tile_place { // of a block
    int64_t mat;
    const uint8_t *w, *up; // row row0 of the matrix
    int row0, last;        // rows row0 ... row0 + last are in it
    int first, n;          // n activation rows (pairs) from first
    bool any;
};

template <int ROWS, int NT, int MODE>
static __device__ inline lp_cuda_tile_place lp_cuda_tile_of(const struct lp_cuda_tile_work &k) {
    lp_cuda_tile_place p;
    p.any = true;
    int end = k.n_rows;
    if (MODE == LP_CUDA_Q8_MATMUL) {
        p.mat = blockIdx.y;
        p.first = (int)(blockIdx.x % k.token_tiles) * 8 * NT;
        p.row0 = (int)(blockIdx.x / k.token_tiles) * ROWS;
    } else {
        p.row0 = (int)blockIdx.x * ROWS;
        p.any = (int)blockIdx.y < __ldcg(k.n_tiles);
        if (!p.any) return p;
        p.mat = __ldcg(k.tiles + 2 * blockIdx.y);
        p.first = __ldcg(k.tiles + 2 * blockIdx.y + 1);
        end = __ldcg(k.pair_begin + p.mat + 1);
    }
    p.n = end - p.first < 8 * NT ? end - p.first : 8 * NT;
    p.last = (int)k.w.n_out - 1 - p.row0;
    p.w = lp_cuda_weight_row(k.w, p.mat, p.row0);
    p.up = MODE == LP_CUDA_Q8_GATE_UP ? lp_cuda_weight_row(k.up, p.mat, p.row0) : NULL;
    return p;
}

// The rounded row of activation row i of the tile.
template <int MODE>
static __device__ inline const uint8_t *lp_cuda_tile_x(const struct lp_cuda_tile_work &k,
                                                       const lp_cuda_tile_place &p, int i) {
    if (i >= p.n) return k.zero;
    int64_t row;
    if (MODE == LP_CUDA_Q8_MATMUL)
        row = (p.first + i) * k.x_row + p.mat * k.x_head;
    else
        row = MODE == LP_CUDA_Q8_GATE_UP ? __ldcg(k.pairs + p.first + i) / k.n_used
                                         : __ldcg(k.pairs + p.first + i);
    return k.x + (size_t)row * k.x_bytes;
}

// ROW: bytes from row to row in a stage, an odd number of 16, so that word q of eight rows lies in
// different banks. COPIES: of 16 bytes a superblock.
template <class F, bool ALIGNED> struct lp_cuda_tile_sizes {
    static constexpr int COPIES = ALIGNED ? F::BYTES / 16 : (F::BYTES + 15 + 15) / 16;
    static constexpr int ROW = 16 * ((ALIGNED ? F::BYTES / 16 : (F::BYTES + 15 + 8 + 15) / 16) | 1);
};

// Row r of the tile's weights; past the matrix its last one (computed, not stored).
template <int M, int MODE>
static __device__ inline const uint8_t *lp_cuda_tile_row(const struct lp_cuda_tile_work &k,
                                                         const lp_cuda_tile_place &p, int r) {
    const bool is_up = MODE == LP_CUDA_Q8_GATE_UP && r >= 8 * M;
    const int mine = is_up ? r - 8 * M : r;
    return (is_up ? p.up : p.w) +
           (size_t)((unsigned)(mine < p.last ? mine : p.last) * (unsigned)k.w.row_bytes);
}

// Superblock b of rows of weights into a warp's stage. Blocks of 32 may end before it does.
template <class F, int M, bool ALIGNED, int MODE>
static __device__ inline void lp_cuda_tile_fetch(const struct lp_cuda_tile_work &k,
                                                 const lp_cuda_tile_place &p, int b,
                                                 uint8_t *stage) {
    typedef struct lp_cuda_tile_sizes<F, ALIGNED> S;
    constexpr int EACH = S::COPIES, N = 16 * M * EACH;
    const int lane = threadIdx.x % LP_CUDA_WARP, begin = b * F::BYTES,
              left = (int)k.w.row_bytes - begin;
    const bool whole = ALIGNED && (F::SUPER || left >= F::BYTES);
#pragma unroll
    for (int i = 0; i < (N + LP_CUDA_WARP - 1) / LP_CUDA_WARP; i++) {
        const int at = i * LP_CUDA_WARP + lane, r = at / EACH, piece = 16 * (at % EACH);
        if (N % LP_CUDA_WARP != 0 && at >= N) continue;
        const uint8_t *from = lp_cuda_tile_row<M, MODE>(k, p, r) + begin;
        const int before = ALIGNED ? 0 : (int)((uintptr_t)from & 15); // of a piece, before `begin`
        const int n = whole ? 16 : left + before - piece;
        lp_cuda_copy16(stage + r * S::ROW + piece, from - before + (n > 0 ? piece : 0),
                       n >= 16 ? 16
                       : n > 0 ? n
                               : 0);
    }
}

// sum += round(dot * scale) * d for the four outputs of a fragment
static __device__ inline void lp_cuda_tile_scale(const int (&dot)[4], const float (&scale)[2],
                                                 float d0, float d1, float (&sum)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float s = scale[i / 2];
        const float product = fmaf(__int_as_float(dot[i]), s, -LP_CUDA_MAGIC * s);
        sum[i] = fmaf(product, i & 1 ? d1 : d0, sum[i]);
    }
}

// low += min * (sum of the activations) * d, a minimum a half group: their sums are a product with ones.
template <class F>
static __device__ inline void
lp_cuda_tile_half_low(const typename F::head_type &h0, const typename F::head_type &h1, int g,
                      uint32_t b0, uint32_t b1, float d0, float d1, float (&low)[4]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int sums[4] = {LP_CUDA_MAGIC_BITS, LP_CUDA_MAGIC_BITS, LP_CUDA_MAGIC_BITS,
                       LP_CUDA_MAGIC_BITS};
        lp_cuda_mma_s8_k16(sums, 0x01010101u, 0x01010101u, half ? b1 : b0);
#pragma unroll
        for (int i = 0; i < 4; i++)
            low[i] =
                fmaf(F::low(i / 2 ? h1 : h0, g, half) * (__int_as_float(sums[i]) - LP_CUDA_MAGIC),
                     i & 1 ? d1 : d0, low[i]);
    }
}

// One superblock of 16 M rows times 8 NT activation rows. stage: of the first row; off[i]: where row
// g + 8i's superblock begins in its place (0 if ALIGNED). xb: this lane's column of B; xc: its columns
// of the sums.
template <class F, int M, int NT, bool ALIGNED>
static __device__ inline void lp_cuda_tile_superblock(const uint8_t *stage, const int (&off)[2 * M],
                                                      const uint8_t *const (&xb)[NT],
                                                      const uint8_t *const (&xc)[NT][2],
                                                      float (&acc)[M][NT][4]) {
    typedef struct lp_cuda_tile_sizes<F, ALIGNED> S;
    typedef lp_cuda_words<ALIGNED> reader;
    const int lane = threadIdx.x % LP_CUDA_WARP, g8 = lane / 4, q = lane % 4;
    typename F::head_type head[2 * M];
    float sum[M][NT][4] = {}, low[M][NT][4] = {};
#pragma unroll
    for (int i = 0; i < 2 * M; i++)
        head[i] = F::head(reader(stage + (g8 + 8 * i) * S::ROW + off[i]));
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        uint4 x[NT];
        float4 ds[NT][2];
#pragma unroll
        for (int t = 0; t < NT; t++) {
            x[t] = __ldg((const uint4 *)(xb[t] + 64 * pair + 16 * q));
            ds[t][0] = __ldg((const float4 *)(xc[t][0] + LP_CUDA_SUPERBLOCK + 16 * pair));
            ds[t][1] = __ldg((const float4 *)(xc[t][1] + LP_CUDA_SUPERBLOCK + 16 * pair));
        }
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const int g = 2 * pair + odd;
#pragma unroll
            for (int m = 0; m < M; m++) {
                const reader r0(stage + (g8 + 16 * m) * S::ROW + off[2 * m]),
                    r1(stage + (g8 + 16 * m + 8) * S::ROW + off[2 * m + 1]);
                const uint32_t a[4] = {F::word(r0, g, 0, q), F::word(r1, g, 0, q),
                                       F::word(r0, g, 1, q), F::word(r1, g, 1, q)};
                const float scale[2] = {F::scale(head[2 * m], g, 0),
                                        F::scale(head[2 * m + 1], g, 0)};
#pragma unroll
                for (int t = 0; t < NT; t++) {
                    const uint32_t b0 = odd ? x[t].z : x[t].x, b1 = odd ? x[t].w : x[t].y;
                    const float d0 = odd ? ds[t][0].z : ds[t][0].x,
                                d1 = odd ? ds[t][1].z : ds[t][1].x;
                    int dot[4] = {LP_CUDA_MAGIC_BITS, LP_CUDA_MAGIC_BITS, LP_CUDA_MAGIC_BITS,
                                  LP_CUDA_MAGIC_BITS};
                    if (F::HALVES) {
                        const float scale1[2] = {F::scale(head[2 * m], g, 1),
                                                 F::scale(head[2 * m + 1], g, 1)};
                        int second[4] = {LP_CUDA_MAGIC_BITS, LP_CUDA_MAGIC_BITS, LP_CUDA_MAGIC_BITS,
                                         LP_CUDA_MAGIC_BITS};
                        lp_cuda_mma_s8_k16(dot, a[0], a[1], b0);
                        lp_cuda_mma_s8_k16(second, a[2], a[3], b1);
                        lp_cuda_tile_scale(dot, scale, d0, d1, sum[m][t]);
                        lp_cuda_tile_scale(second, scale1, d0, d1, sum[m][t]);
                    } else {
                        lp_cuda_mma_s8_k32(dot, a, b0, b1);
                        lp_cuda_tile_scale(dot, scale, d0, d1, sum[m][t]);
                    }
                    if (F::HALF_MIN) {
                        lp_cuda_tile_half_low<F>(head[2 * m], head[2 * m + 1], g, b0, b1, d0, d1,
                                                 low[m][t]);
                    } else if (F::HAS_MIN) {
                        const float s0 = odd ? ds[t][0].w : ds[t][0].y,
                                    s1 = odd ? ds[t][1].w : ds[t][1].y;
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            low[m][t][i] = fmaf(F::low(head[2 * m + i / 2], g, 0), i & 1 ? s1 : s0,
                                                low[m][t][i]);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const typename F::head_type &h = head[2 * m + i / 2];
                float &a = acc[m][t][i];
                a = F::SUPER ? fmaf(F::d(h), sum[m][t][i], a) : a + sum[m][t][i];
                if (F::HAS_MIN) a = fmaf(-F::dmin(h), low[m][t][i], a);
            }
}

// The eight warps' sums of one output, in the order of lp_cuda_vec_kernel's halving.
static __device__ inline float lp_cuda_tile_sum(const float *v, int step) {
    return ((v[0] + v[4 * step]) + (v[2 * step] + v[6 * step])) +
           ((v[step] + v[5 * step]) + (v[3 * step] + v[7 * step]));
}

template <int M, int NT, int MODE>
static __device__ inline void lp_cuda_tile_store(const struct lp_cuda_tile_work &k,
                                                 const lp_cuda_tile_place &p, const float *sums) {
    constexpr int ROWS = 16 * M, COLUMNS = 8 * NT, ALL = ROWS * COLUMNS;
    constexpr int OUT = MODE == LP_CUDA_Q8_GATE_UP ? ROWS / 2 : ROWS;
    for (int i = threadIdx.x; i < OUT * COLUMNS; i += LP_CUDA_TILE_WARPS * LP_CUDA_WARP) {
        const int r = i % OUT, t = i / OUT;
        const int64_t row = p.row0 + r;
        if (t >= p.n || row >= k.w.n_out) continue;
        const float value =
            lp_cuda_tile_sum(sums + t * ROWS + r, ALL) * lp_cuda_weight_scale(k.w, p.mat);
        if (MODE == LP_CUDA_Q8_GATE_UP) {
            const float up = lp_cuda_tile_sum(sums + t * ROWS + OUT + r, ALL) *
                             lp_cuda_weight_scale(k.up, p.mat);
            k.y[__ldcg(k.pairs + p.first + t) * k.w.n_out + row] = lp_cuda_silu_mul(value, up);
        } else if (MODE == LP_CUDA_Q8_DOWN) {
            k.y[__ldcg(k.pairs + p.first + t) * k.w.n_out + row] = value;
        } else {
            float *y = k.y + (p.first + t) * k.y_row + p.mat * k.y_head + row;
            const float sum = k.bias ? value + k.bias[row] : value;
            *y = k.accumulate ? *y + sum : sum;
        }
    }
}

template <class F, int M, int NT, int STAGES, bool ALIGNED, int MODE, int BLOCKS>
static __global__ void __launch_bounds__(LP_CUDA_TILE_WARPS *LP_CUDA_WARP, BLOCKS)
    lp_cuda_tile_kernel(const struct lp_cuda_tile_work k) {
#if LP_CUDA_ROOM
    typedef struct lp_cuda_tile_sizes<F, ALIGNED> S;
    lp_cuda_let_next_start();
    extern __shared__ uint4 lp_cuda_shared[];
    constexpr int ROWS = 16 * M, STAGE = ROWS * S::ROW;
    constexpr int OUT = MODE == LP_CUDA_Q8_GATE_UP ? ROWS / 2 : ROWS;
    const lp_cuda_tile_place p = lp_cuda_tile_of<OUT, NT, MODE>(k);
    if (!p.any) return; // the whole block
    const int j = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    const int g8 = lane / 4, q = lane % 4;
    uint8_t *ring = (uint8_t *)lp_cuda_shared + j * STAGES * STAGE;
    float *sums = (float *)((uint8_t *)lp_cuda_shared +
                            (LP_CUDA_TILE_WARPS * STAGES * STAGE + 16)); // read past: 8 bytes

    const uint8_t *xb[NT], *xc[NT][2];
#pragma unroll
    for (int t = 0; t < NT; t++) {
        xb[t] = lp_cuda_tile_x<MODE>(k, p, 8 * t + g8);
        xc[t][0] = lp_cuda_tile_x<MODE>(k, p, 8 * t + 2 * q);
        xc[t][1] = lp_cuda_tile_x<MODE>(k, p, 8 * t + 2 * q + 1);
    }

    int f_part = 0, f_round = 0, f_slot = 0; // what is fetched next
    auto fetch = [&]() {
        // Rounds past this warp's last superblock are only at the end of a part.
        if (f_part < k.parts) {
            const int b = LP_CUDA_ROUND * f_round + j;
            if (b < k.superblocks)
                lp_cuda_tile_fetch<F, M, ALIGNED, MODE>(k, p, b, ring + f_slot * STAGE);
            f_round += k.parts;
            if (f_round >= k.rounds) f_round = ++f_part;
        }
        lp_cuda_copy_commit();
        f_slot = f_slot + 1 == STAGES ? 0 : f_slot + 1;
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) fetch();
    lp_cuda_wait_for_input();

    float value[M][NT][4] = {};
    int slot = 0;
    for (int part = 0; part < k.parts; part++) {
        float acc[M][NT][4] = {};
        for (int round = part; round < k.rounds; round += k.parts) {
            lp_cuda_copy_wait<STAGES - 2>();
            __syncwarp();
            fetch();
            const uint8_t *stage = ring + slot * STAGE;
            slot = slot + 1 == STAGES ? 0 : slot + 1;
            const int b = LP_CUDA_ROUND * round + j;
            if (b >= k.superblocks) continue; // the whole warp
            int off[2 * M];
#pragma unroll
            for (int i = 0; i < 2 * M; i++) {
                const uint8_t *from = lp_cuda_tile_row<M, MODE>(k, p, g8 + 8 * i);
                off[i] = ALIGNED ? 0 : (int)((uintptr_t)(from + (size_t)b * F::BYTES) & 15);
            }
            const uint8_t *xb_at[NT], *xc_at[NT][2];
#pragma unroll
            for (int t = 0; t < NT; t++) {
                xb_at[t] = xb[t] + (size_t)b * LP_CUDA_ACT_BYTES;
                xc_at[t][0] = xc[t][0] + (size_t)b * LP_CUDA_ACT_BYTES;
                xc_at[t][1] = xc[t][1] + (size_t)b * LP_CUDA_ACT_BYTES;
            }
            lp_cuda_tile_superblock<F, M, NT, ALIGNED>(stage, off, xb_at, xc_at, acc);
        }
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int t = 0; t < NT; t++)
#pragma unroll
                for (int i = 0; i < 4; i++) value[m][t][i] += acc[m][t][i];
    }

    // sums[warp][activation row][row]
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sums[(j * 8 * NT + 8 * t + 2 * q + (i & 1)) * ROWS + 16 * m + g8 + 8 * (i / 2)] =
                    value[m][t][i];
    __syncthreads();
    lp_cuda_tile_store<M, NT, MODE>(k, p, sums);
#endif
}

#endif
