// The 8-bit kernel for few activation rows: dp4a.
//
// A warp takes four rows of weights, a round (8 superblocks) of them at a time: lane 8 r + j computes
// with superblock j of row r, so that no sum crosses lanes before the end of a row. The round's bytes
// are 8 superblocks in one piece of each row; they come by asynchronous copies into the warp's own
// ring of STAGES such pieces, also across the end of a row, so no barrier is needed but the warp's.
// Where a matrix has few rows (SPLIT) the parts of a row go to several warps of the block.
#ifndef LP_BACKEND_CUDA_CUDA_Q8_VEC_CUH
#define LP_BACKEND_CUDA_CUDA_Q8_VEC_CUH

#include "backend/cuda/cuda_common.cuh"
#include "backend/cuda/cuda_q8.h"
#include "backend/cuda/cuda_q8_formats.cuh"

#define LP_CUDA_STRIP 4 // rows of weights a warp

struct lp_cuda_vec_work {
    struct lp_cuda_weight w, up, more, more_up; // more: of the items behind n_routed
    const uint8_t *x;
    size_t x_bytes; // of a rounded row
    int64_t x_row, x_head;
    const float *bias;
    float *y;
    int64_t y_row, y_head;
    const int32_t *ids;
    int n_used, first_expert, accumulate;
    int strips, rounds, parts, superblocks;
    int n_items, n_units; // heads or pairs; (item, strip)
    int n_routed;         // items that `ids` names the matrix of
    bool ids_are_new, beside;
};

// A unit, without dividing: from one to that `by` strips behind.
struct lp_cuda_vec_at {
    int item, strip, mat; // mat: of the item, or
};
#define LP_CUDA_VEC_MORE (-1)      // that of `more`
#define LP_CUDA_VEC_ELSEWHERE (-2) // its expert has none here

// 16 values of a superblock: the products of four words with each activation row's
template <int N>
static __device__ inline void lp_cuda_dot16(const uint32_t (&w)[4], const uint4 (&x)[N],
                                            int (&dot)[N]) {
#pragma unroll
    for (int t = 0; t < N; t++) {
        dot[t] = __dp4a((int)w[0], (int)x[t].x, dot[t]);
        dot[t] = __dp4a((int)w[1], (int)x[t].y, dot[t]);
        dot[t] = __dp4a((int)w[2], (int)x[t].z, dot[t]);
        dot[t] = __dp4a((int)w[3], (int)x[t].w, dot[t]);
    }
}

// acc[t] over one superblock. x: of this lane's superblock, rounds layout; row t at + t * x_bytes.
template <class F, int N, class R>
static __device__ inline void lp_cuda_vec_superblock(const R &r, const uint8_t *x, size_t x_bytes,
                                                     float (&acc)[N]) {
    const typename F::head_type head = F::head(r);
    const uint32_t ones[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
    float sum[N] = {}, low[N] = {};
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        float4 ds[N]; // d and s of both groups
#pragma unroll
        for (int t = 0; t < N; t++)
            ds[t] = __ldg((const float4 *)(x + t * x_bytes + 2048 + 128 * pair));
#pragma unroll
        for (int g = 2 * pair; g < 2 * pair + 2; g++) {
            int dot[2][N] = {}, of_x[2][N] = {}; // of_x: sums of activations
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint4 q[N];
                uint32_t w[4];
#pragma unroll
                for (int t = 0; t < N; t++)
                    q[t] = __ldg((const uint4 *)(x + t * x_bytes + 128 * (2 * g + half)));
#pragma unroll
                for (int k = 0; k < 4; k++) w[k] = F::word(r, g, half, k);
                lp_cuda_dot16<N>(w, q, dot[F::HALVES ? half : 0]);
                if (F::HALF_MIN) lp_cuda_dot16<N>(ones, q, of_x[half]);
            }
#pragma unroll
            for (int t = 0; t < N; t++) {
                const float d = g & 1 ? ds[t].z : ds[t].x, s = g & 1 ? ds[t].w : ds[t].y;
                sum[t] = fmaf((float)dot[0][t] * F::scale(head, g, 0), d, sum[t]);
                if (F::HALVES) sum[t] = fmaf((float)dot[1][t] * F::scale(head, g, 1), d, sum[t]);
                if (F::HAS_MIN && !F::HALF_MIN) low[t] = fmaf(F::low(head, g, 0), s, low[t]);
#pragma unroll
                for (int half = 0; F::HALF_MIN && half < 2; half++)
                    low[t] = fmaf(F::low(head, g, half) * (float)of_x[half][t], d, low[t]);
            }
        }
    }
#pragma unroll
    for (int t = 0; t < N; t++) {
        acc[t] = F::SUPER ? fmaf(F::d(head), sum[t], acc[t]) : acc[t] + sum[t];
        if (F::HAS_MIN) acc[t] = fmaf(-F::dmin(head), low[t], acc[t]);
    }
}

template <int MODE>
static __device__ inline void lp_cuda_vec_find_mat(const struct lp_cuda_vec_work &k,
                                                   struct lp_cuda_vec_at *at) {
    at->mat = MODE == LP_CUDA_Q8_MATMUL ? at->item : LP_CUDA_VEC_MORE;
    if (MODE == LP_CUDA_Q8_MATMUL || at->item >= k.n_routed) return;
    const int expert = __ldcg(k.ids + at->item) - k.first_expert;
    at->mat = expert >= 0 && expert < (int)k.w.n_mats ? expert : LP_CUDA_VEC_ELSEWHERE;
}

template <int MODE>
static __device__ inline struct lp_cuda_vec_at lp_cuda_vec_begin(const struct lp_cuda_vec_work &k,
                                                                 int unit) {
    struct lp_cuda_vec_at at = {unit / k.strips, unit % k.strips, 0};
    lp_cuda_vec_find_mat<MODE>(k, &at);
    return at;
}

template <int MODE>
static __device__ inline void lp_cuda_vec_move(const struct lp_cuda_vec_work &k,
                                               const struct lp_cuda_vec_at &by,
                                               struct lp_cuda_vec_at *at) {
    const int before = at->item;
    at->item += by.item;
    at->strip += by.strip;
    if (at->strip >= k.strips) {
        at->strip -= k.strips;
        at->item++;
    }
    if (at->item != before) lp_cuda_vec_find_mat<MODE>(k, at);
}

// From a unit to the first one from there on that has something to do.
template <int MODE>
static __device__ inline void lp_cuda_vec_skip(const struct lp_cuda_vec_work &k,
                                               const struct lp_cuda_vec_at &by, int step,
                                               struct lp_cuda_vec_at *at, int *unit) {
    while (MODE != LP_CUDA_Q8_MATMUL && *unit < k.n_units && at->mat == LP_CUDA_VEC_ELSEWHERE) {
        *unit += step;
        lp_cuda_vec_move<MODE>(k, by, at);
    }
}

// A lane's row of weights in a unit.
template <int MODE>
static __device__ inline const uint8_t *lp_cuda_vec_row(const struct lp_cuda_vec_work &k,
                                                        const struct lp_cuda_vec_at &at, int r) {
    const bool is_up = MODE == LP_CUDA_Q8_GATE_UP && r >= LP_CUDA_STRIP / 2;
    int64_t row = MODE == LP_CUDA_Q8_GATE_UP
                      ? (int64_t)at.strip * (LP_CUDA_STRIP / 2) + r % (LP_CUDA_STRIP / 2)
                      : (int64_t)at.strip * LP_CUDA_STRIP + r;
    if (row >= k.w.n_out) row = k.w.n_out - 1; // computed, not stored
    if (MODE != LP_CUDA_Q8_MATMUL && at.mat == LP_CUDA_VEC_MORE)
        return lp_cuda_weight_row(is_up ? k.more_up : k.more, 0, row);
    return lp_cuda_weight_row(is_up ? k.up : k.w, at.mat, row);
}

// Stores the sums of four rows: total[t] is in all lanes of a row; lane j < N stores row t = j.
template <int N, int MODE>
static __device__ inline void lp_cuda_vec_store(const struct lp_cuda_vec_work &k,
                                                const struct lp_cuda_vec_at &at,
                                                const float (&total)[N]) {
    const int lane = threadIdx.x % LP_CUDA_WARP, r = lane / 8, j = lane % 8;
    const int64_t item = at.item, strip = at.strip;
    const bool is_up = MODE == LP_CUDA_Q8_GATE_UP && r >= LP_CUDA_STRIP / 2;
    const float scale = MODE == LP_CUDA_Q8_MATMUL || at.mat >= 0
                            ? lp_cuda_weight_scale(is_up ? k.up : k.w, at.mat)
                            : lp_cuda_weight_scale(is_up ? k.more_up : k.more, 0);
    if (MODE == LP_CUDA_Q8_GATE_UP) {
        const float value = total[0] * scale;
        const float up = __shfl_down_sync(0xffffffffu, value, 8 * (LP_CUDA_STRIP / 2));
        const int64_t row = strip * (LP_CUDA_STRIP / 2) + r;
        if (!is_up && j == 0 && row < k.w.n_out)
            k.y[item * k.w.n_out + row] = lp_cuda_silu_mul(value, up);
        return;
    }
    const int64_t row = strip * LP_CUDA_STRIP + r;
    if (j >= N || row >= k.w.n_out) return;
    float mine = total[0];
#pragma unroll
    for (int t = 1; t < N; t++) mine = j == t ? total[t] : mine;
    const float value = mine * scale;
    if (MODE == LP_CUDA_Q8_DOWN) {
        k.y[item * k.w.n_out + row] = value;
        return;
    }
    float *y = k.y + j * k.y_row + item * k.y_head + row;
    const float sum = k.bias ? value + k.bias[row] : value;
    *y = k.accumulate ? *y + sum : sum;
}

template <class F> struct lp_cuda_vec_sizes {
    static constexpr bool ALIGNED = F::BYTES % 16 == 0;
    static constexpr int ROUND_BYTES = LP_CUDA_ROUND * F::BYTES;
    // Of a row in a stage. Not aligned: the pieces of 16 that the round touches, and 8 bytes that the
    // reader may touch behind; 8 words past a multiple of 32, for four rows whose superblocks lie
    // 52.5 words apart then meet 32 banks.
    static constexpr int ROW =
        ALIGNED ? ROUND_BYTES : (ROUND_BYTES + 15 + 8 - 32 + 127) / 128 * 128 + 32;
    static constexpr int COPIES = ALIGNED ? ROUND_BYTES / 16 : (ROUND_BYTES + 15 + 15) / 16;
    static constexpr int STAGE = LP_CUDA_STRIP * ROW;
};

// The round's bytes of a lane's row: its eight lanes copy 128 bytes at a time.
template <class F>
static __device__ inline void lp_cuda_vec_fetch(uint8_t *stage, const uint8_t *row,
                                                size_t row_bytes, int round) {
    typedef struct lp_cuda_vec_sizes<F> S;
    const int lane = threadIdx.x % LP_CUDA_WARP, r = lane / 8, j = lane % 8;
    const uint8_t *begin = row + (size_t)round * S::ROUND_BYTES, *end = row + row_bytes;
    if (!S::ALIGNED) begin -= (uintptr_t)begin & 15;
    uint8_t *to = stage + r * S::ROW;
    const int64_t left = end - begin;
    if (S::ALIGNED && left >= S::ROUND_BYTES) {
#pragma unroll
        for (int i = 0; i < (S::COPIES + 7) / 8; i++)
            if (S::COPIES % 8 == 0 || 8 * i + j < S::COPIES)
                lp_cuda_copy16(to + 16 * (8 * i + j), begin + 16 * (8 * i + j), 16);
        return;
    }
#pragma unroll
    for (int i = 0; i < (S::COPIES + 7) / 8; i++) {
        const int at = 16 * (8 * i + j);
        if (8 * i + j >= S::COPIES) continue;
        const int64_t n = left - at;
        lp_cuda_copy16(to + at, n > 0 ? begin + at : begin, n >= 16 ? 16 : n > 0 ? (int)n : 0);
    }
}

template <class F, int N, int WARPS, int STAGES, bool SPLIT, int MODE, int BLOCKS>
static __global__ void __launch_bounds__(WARPS *LP_CUDA_WARP, BLOCKS)
    lp_cuda_vec_kernel(const struct lp_cuda_vec_work k) {
#if LP_CUDA_ROOM
    typedef struct lp_cuda_vec_sizes<F> S;
    // A product lets the next kernel start once its own input is there, so that one of the same rows need not wait.
    const bool open = MODE != LP_CUDA_Q8_MATMUL || k.beside;
    if (open) lp_cuda_let_next_start();
    extern __shared__ uint4 lp_cuda_shared[];
    __shared__ float of_part[SPLIT ? 2 : 1][SPLIT ? WARPS : 1][N][LP_CUDA_WARP];
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    const int r = lane / 8, j = lane % 8;
    const int groups = SPLIT ? WARPS / k.parts : WARPS; // of the block; each has a unit
    const int group = SPLIT ? warp / k.parts : warp, part0 = SPLIT ? warp % k.parts : 0;
    const int part_end = SPLIT ? part0 + 1 : k.parts;
    const int step = (int)gridDim.x * groups, first = (int)blockIdx.x * groups + group;
    const struct lp_cuda_vec_at by = {step / k.strips, step % k.strips, 0};
    uint8_t *ring = (uint8_t *)lp_cuda_shared + warp * STAGES * S::STAGE;

    // What is fetched next
    if (MODE == LP_CUDA_Q8_GATE_UP && k.ids_are_new) lp_cuda_wait_for_input();
    struct lp_cuda_vec_at f_at = lp_cuda_vec_begin<MODE>(k, first), at = f_at;
    int f_unit = group < groups ? first : k.n_units, f_part = part0, f_round = part0, f_slot = 0;
    lp_cuda_vec_skip<MODE>(k, by, step, &f_at, &f_unit);
    const uint8_t *f_row = f_unit < k.n_units ? lp_cuda_vec_row<MODE>(k, f_at, r) : NULL;
    auto fetch = [&]() {
        if (f_unit < k.n_units) {
            lp_cuda_vec_fetch<F>(ring + f_slot * S::STAGE, f_row, k.w.row_bytes, f_round);
            f_round += k.parts;
            if (f_round >= k.rounds) {
                if (++f_part >= part_end) {
                    f_part = part0;
                    f_unit += step;
                    lp_cuda_vec_move<MODE>(k, by, &f_at);
                    lp_cuda_vec_skip<MODE>(k, by, step, &f_at, &f_unit);
                    if (f_unit < k.n_units) f_row = lp_cuda_vec_row<MODE>(k, f_at, r);
                }
                f_round = f_part;
            }
        }
        lp_cuda_copy_commit();
        f_slot = f_slot + 1 == STAGES ? 0 : f_slot + 1;
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) fetch();
    if (MODE != LP_CUDA_Q8_MATMUL || !k.beside) lp_cuda_wait_for_input();
    if (!open) lp_cuda_let_next_start();

    int slot = 0, turn = 0;
    for (int unit0 = (int)blockIdx.x * groups; unit0 < k.n_units;
         unit0 += step, turn ^= 1, lp_cuda_vec_move<MODE>(k, by, &at)) {
        const bool active =
            group < groups && unit0 + group < k.n_units && at.mat != LP_CUDA_VEC_ELSEWHERE;
        float value[N] = {};
        const int64_t x_at = MODE == LP_CUDA_Q8_MATMUL ? at.item * k.x_head
                             : MODE == LP_CUDA_Q8_DOWN ? at.item
                             : at.item < k.n_routed    ? at.item / k.n_used
                                                       : at.item - k.n_routed;
        const uint8_t *x = k.x + (size_t)x_at * k.x_bytes + 16 * j;
        const uint8_t *row = active && !S::ALIGNED ? lp_cuda_vec_row<MODE>(k, at, r) : NULL;
        for (int part = part0; active && part < part_end; part++) {
            float acc[N] = {};
            for (int round = part; round < k.rounds; round += k.parts) {
                lp_cuda_copy_wait<STAGES - 2>();
                __syncwarp(); // everyone's copies are there, and the slot before has been read
                fetch();
                const uint8_t *stage = ring + slot * S::STAGE + r * S::ROW + j * F::BYTES;
                const uint8_t *x_round = x + (size_t)round * (LP_CUDA_ROUND * LP_CUDA_ACT_BYTES);
                slot = slot + 1 == STAGES ? 0 : slot + 1;
                if (round * LP_CUDA_ROUND + j >= k.superblocks) continue;
                const size_t x_step = (size_t)k.x_row * k.x_bytes;
                if (S::ALIGNED) {
                    lp_cuda_vec_superblock<F, N>(lp_cuda_quads(stage), x_round, x_step, acc);
                } else {
                    const size_t off = (uintptr_t)(row + (size_t)round * S::ROUND_BYTES) & 15;
                    lp_cuda_vec_superblock<F, N>(lp_cuda_words<false>(stage + off), x_round, x_step,
                                                 acc);
                }
            }
#pragma unroll
            for (int t = 0; t < N; t++) value[t] += acc[t];
        }
        if (SPLIT) { // two turns have different places: one barrier a turn is enough
#pragma unroll
            for (int t = 0; t < N; t++) of_part[turn][warp][t][lane] = value[t];
            __syncthreads();
            for (int part = 1; part0 == 0 && active && part < k.parts; part++)
#pragma unroll
                for (int t = 0; t < N; t++) value[t] += of_part[turn][warp + part][t][lane];
        }
        if (!active || part0 != 0) continue;
#pragma unroll
        for (int t = 0; t < N; t++)
            for (int mask = 4; mask > 0; mask /= 2)
                value[t] += __shfl_xor_sync(0xffffffffu, value[t], mask);
        lp_cuda_vec_store<N, MODE>(k, at, value);
    }
    // What waits for this kernel waits for the one in front of it too.
    if (MODE == LP_CUDA_Q8_MATMUL && k.beside) lp_cuda_wait_for_input();
#endif
}

#endif
