// The kernel of expanded attention over many queries of one sequence, for cuda_mla_prefill.cu
// (mma.sync) and cuda_mla_prefill_sm90.cu (wgmma), which differ in the products alone (struct Math).
//
// A block of 8 warps takes one head and 128 queries at consecutive positions, a warp 16 of them, and
// walks the keys that the last one sees in tiles of 64 from the first key on:
//
//   queries [panels of a key][128 rows][64]   up to 64 KiB
//   keys    [panels of a key][64 keys][64]    up to 32 KiB, each of two stages: made from the latents,
//                                             the last panel is the cache's rotated part
//   values  [panels of a value][64 keys][64]  up to 32 KiB, each of two stages
//
// Queries, keys, values and softmax weights are rounded to the type of the cache; products are exact,
// sums float32, the sum of weights is of the rounded ones. Weights stay in registers. Keys that a row
// does not see weigh exactly 0 and leave its sums as they are, so its bits do not depend on which
// queries are in its block; of spoiled keys see cuda_latent.cuh.
#ifndef LP_BACKEND_CUDA_CUDA_PREFILL_CUH
#define LP_BACKEND_CUDA_CUDA_PREFILL_CUH

#include "backend/cuda/cuda_latent.cuh"
#include "backend/cuda/cuda_prefill.h"

#define LP_PREFILL_THREADS 256
#define LP_PREFILL_QUERIES 128
#define LP_PREFILL_KEYS 64

static inline dim3 lp_prefill_grid(const struct lp_cuda_prefill *p) {
    return dim3(lp_cuda_blocks(p->n_queries, LP_PREFILL_QUERIES), (unsigned)p->n_heads);
}

// KEY panels of a key, the rotated one included; VALUE panels of a value.
template <int KEY, int VALUE> struct lp_prefill_shape {
    static constexpr int q_dim = KEY * 64, nope = (KEY - 1) * 64, v_dim = VALUE * 64;
    static constexpr uint32_t query_bytes = KEY * LP_PREFILL_QUERIES * 128,
                              tile_bytes = (KEY + VALUE) * LP_LATENT_PANEL_BYTES;
    static constexpr size_t shared_bytes =
        query_bytes + 2 * tile_bytes + sizeof(struct lp_latent_stats) + LP_CUDA_SHARED_PAD;
};

static __device__ __forceinline__ const uint8_t *lp_prefill_row(const struct lp_cuda_prefill &a,
                                                                int key) {
    const int slot = key + a.slot_offset, page = slot / a.page_tokens;
    return a.base + (size_t)a.pages[page] * a.page_bytes +
           (size_t)(slot - page * a.page_tokens) * a.row_bytes;
}

// A warp 16 rows of queries; two panels of 64 rows each.
template <int TYPE, int KEY>
static __device__ __forceinline__ void lp_prefill_load_queries(const struct lp_cuda_prefill &a,
                                                               int first, uint8_t *queries,
                                                               float (&factor)[2]) {
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    for (int i = 0; i < 16; i++) {
        const int row = 16 * warp + i;
        const bool there = first + row < a.n_queries;
        const float *from =
            a.q + (int64_t)(first + row) * a.q_stride + (int64_t)blockIdx.y * KEY * 64;
        float x[KEY][2], power = 1.0f;
        bool finite = true;
#pragma unroll
        for (int p = 0; p < KEY; p++) {
            x[p][0] = there ? from[p * 64 + 2 * lane] : 0.0f;
            x[p][1] = there ? from[p * 64 + 2 * lane + 1] : 0.0f;
            finite &= isfinite(x[p][0]) && isfinite(x[p][1]);
        }
        finite = __all_sync(0xffffffffu, finite);
        if (TYPE == LP_TYPE_F16) {
            float largest = 0;
#pragma unroll
            for (int p = 0; p < KEY; p++)
                largest = fmaxf(largest, fmaxf(fabsf(x[p][0]), fabsf(x[p][1])));
            for (int step = 16; step > 0; step /= 2)
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
            power = lp_cuda_power_to_range(largest);
        }
#pragma unroll
        for (int p = 0; p < KEY; p++)
            *(uint32_t *)(queries + (row / 64 * KEY + p) * LP_LATENT_PANEL_BYTES +
                          lp_cuda_tile_at(row % 64, lane / 4) + lane % 4 * 4) =
                lp_cuda_pack2<TYPE>(x[p][0] * power, x[p][1] * power);
        // As in lp_latent_load_queries
        const float of_row = finite ? a.scale * 1.44269504f / power : NAN;
        if (i == lane / 4) factor[0] = of_row;
        if (i == lane / 4 + 8) factor[1] = of_row;
    }
}

// The tile of keys at ... at + 63, and their values; zeros behind the last key.
template <int KEY, int VALUE>
static __device__ __forceinline__ void lp_prefill_copy(const struct lp_cuda_prefill &a, int at,
                                                       uint32_t tile) {
    const int chunk = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = (int)threadIdx.x / 8 + 32 * i, key = min(at + row, a.n_keys - 1),
                  n_bytes = at + row < a.n_keys ? 16 : 0;
        const uint32_t to = tile + lp_cuda_tile_at(row, chunk);
        const uint16_t *k = a.keys + ((int64_t)blockIdx.y * a.n_keys + key) * (KEY - 1) * 64,
                       *v = a.values + ((int64_t)blockIdx.y * a.n_keys + key) * VALUE * 64;
#pragma unroll
        for (int p = 0; p < KEY - 1; p++)
            lp_cuda_copy16(to + p * LP_LATENT_PANEL_BYTES, k + p * 64 + chunk * 8, n_bytes);
        const uint8_t *rope = lp_prefill_row(a, key) + a.rope_offset + chunk * 16;
        if (a.whole_chunks)
            lp_cuda_copy16(to + (KEY - 1) * LP_LATENT_PANEL_BYTES, rope, n_bytes);
        else
            lp_cuda_copy16_of_4(to + (KEY - 1) * LP_LATENT_PANEL_BYTES, rope, n_bytes);
#pragma unroll
        for (int p = 0; p < VALUE; p++)
            lp_cuda_copy16(to + (KEY + p) * LP_LATENT_PANEL_BYTES, v + p * 64 + chunk * 8, n_bytes);
    }
}

// Softmax weights of a tile into the registers of the next product (p[4 k ...]: keys 16 k ... + 15).
template <int TYPE>
static __device__ __forceinline__ void
lp_prefill_weigh(const float (&s)[32], struct lp_latent_rows *rows, const float (&most)[2],
                 uint32_t (&p)[16], float (&scale)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float now = fmaxf(rows->most[i], most[i]), from = now == -INFINITY ? 0.0f : now;
        float sum = 0;
        scale[i] = exp2f(rows->most[i] - from);
        rows->most[i] = now;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const uint32_t pair = lp_cuda_pack2<TYPE>(lp_cuda_exp2(s[4 * n + 2 * i] - from),
                                                      lp_cuda_exp2(s[4 * n + 2 * i + 1] - from));
            float low, high;
            lp_cuda_unpack2<TYPE>(pair, &low, &high);
            sum += low + high;
            p[2 * n + i] = pair;
        }
        rows->sum[i] = rows->sum[i] * scale[i] + sum;
    }
}

template <int N>
static __device__ __forceinline__ void lp_prefill_rescale(float (&o)[N], const float (&scale)[2]) {
    if (__all_sync(0xffffffffu, scale[0] == 1.0f && scale[1] == 1.0f)) return;
#pragma unroll
    for (int j = 0; j < N; j++) o[j] *= scale[j / 2 % 2];
}

template <int VALUE>
static __device__ __forceinline__ void lp_prefill_clear(const struct lp_latent_stats *stats,
                                                        uint8_t *values) {
    const int row = threadIdx.x / 4;
    if (!stats->spoiled[row]) return;
    for (int i = threadIdx.x % 4; i < VALUE * 8; i += 4)
        *(uint4 *)(values + i / 8 * LP_LATENT_PANEL_BYTES + lp_cuda_tile_at(row, i % 8)) =
            make_uint4(0, 0, 0, 0);
}

// Grid: blocks of 128 queries along x, the last ones, which see most, first; heads along y.
template <class Math, int KEY, int VALUE>
static __device__ __forceinline__ void lp_prefill_attend(const struct lp_cuda_prefill &a) {
    typedef struct lp_prefill_shape<KEY, VALUE> shape;
    LP_CUDA_SHARED(shared);
    uint8_t *const tiles = shared + shape::query_bytes;
    struct lp_latent_stats *stats = (struct lp_latent_stats *)(tiles + 2 * shape::tile_bytes);
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP,
              first = (int)(gridDim.x - 1 - blockIdx.x) * LP_PREFILL_QUERIES,
              n_least = a.first_pos + first + 1,
              n_most = min(a.first_pos + first + LP_PREFILL_QUERIES, a.n_keys),
              n_tiles = (n_most + LP_PREFILL_KEYS - 1) / LP_PREFILL_KEYS;
    const uint32_t tiles_at = lp_cuda_shared_at(tiles),
                   queries = lp_cuda_shared_at(shared) + warp / 4 * KEY * LP_LATENT_PANEL_BYTES;
    struct lp_latent_rows rows;
    float o[VALUE * 32];

    for (int i = 0; i < 2; i++) {
        if (i < n_tiles)
            lp_prefill_copy<KEY, VALUE>(a, i * LP_PREFILL_KEYS, tiles_at + i * shape::tile_bytes);
        lp_cuda_copy_commit();
    }
    lp_prefill_load_queries<Math::type, KEY>(a, first, shared, rows.factor);
    if (threadIdx.x < LP_PREFILL_KEYS) stats->spoiled[threadIdx.x] = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        rows.row[i] = 16 * warp + lane / 4 + 8 * i;
        rows.seen[i] = n_least + rows.row[i];
        rows.most[i] = -INFINITY;
        rows.sum[i] = 0;
    }
#pragma unroll
    for (int i = 0; i < VALUE * 32; i++) o[i] = 0;

    for (int t = 0; t < n_tiles; t++) {
        const int at = t * LP_PREFILL_KEYS;
        const uint32_t tile = tiles_at + t % 2 * shape::tile_bytes;
        const bool partly_seen = at + LP_PREFILL_KEYS > n_least;
        float s[32], most[2], scale[2];
        uint32_t p[16];
        lp_cuda_copy_wait<1>();
        Math::publish();
        __syncthreads(); // the tile is there
        Math::template scores<KEY>(s, queries, tile);
        lp_latent_scale<8>(s, rows, stats, at, 0, partly_seen, partly_seen, most);
        if (partly_seen) {
            __syncthreads();
            lp_prefill_clear<VALUE>(stats, tiles + t % 2 * shape::tile_bytes +
                                               KEY * LP_LATENT_PANEL_BYTES);
            Math::publish();
            __syncthreads();
            if (threadIdx.x < LP_PREFILL_KEYS) stats->spoiled[threadIdx.x] = 0;
        }
        lp_prefill_weigh<Math::type>(s, &rows, most, p, scale);
        lp_prefill_rescale(o, scale);
        Math::template values<VALUE>(o, p, tile + KEY * LP_LATENT_PANEL_BYTES);
        __syncthreads(); // the tile is used up
        if (t + 2 < n_tiles) lp_prefill_copy<KEY, VALUE>(a, at + 2 * LP_PREFILL_KEYS, tile);
        lp_cuda_copy_commit();
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = rows.sum[i];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (first + rows.row[i] >= a.n_queries) continue;
        float *to = a.out + (int64_t)(first + rows.row[i]) * a.out_stride +
                    (int64_t)blockIdx.y * VALUE * 64 + 2 * (lane % 4);
#pragma unroll
        for (int n = 0; n < VALUE * 8; n++)
            lp_latent_put(to + 8 * n, o[4 * n + 2 * i] / sum, o[4 * n + 2 * i + 1] / sum);
    }
}

// ---- the products: of 16 rows of a warp, or 64 of four

template <int TYPE> struct lp_prefill_mma {
    static constexpr int type = TYPE;
    static __device__ __forceinline__ void publish() {}
    template <int KEY>
    static __device__ __forceinline__ void scores(float (&s)[32], uint32_t queries, uint32_t tile) {
        const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
        const uint32_t row = warp % 4 * 16 + lane % 16, key = lane % 8 + lane / 16 * 8;
#pragma unroll
        for (int i = 0; i < 32; i++) s[i] = 0;
#pragma unroll 2
        for (int k = 0; k < KEY * 4; k++) {
            const uint32_t panel = k / 4 * LP_LATENT_PANEL_BYTES;
            uint32_t q[4], b[4];
            lp_cuda_load_matrices(q, queries + panel + lp_cuda_tile_at(row, k % 4 * 2 + lane / 16));
#pragma unroll
            for (int n = 0; n < 4; n++) {
                lp_cuda_load_matrices(
                    b, tile + panel + lp_cuda_tile_at(key + 16 * n, k % 4 * 2 + lane / 8 % 2));
                lp_cuda_mma<TYPE>(s + 8 * n, q, b[0], b[1]);
                lp_cuda_mma<TYPE>(s + 8 * n + 4, q, b[2], b[3]);
            }
        }
    }
    template <int VALUE>
    static __device__ __forceinline__ void values(float (&o)[VALUE * 32], const uint32_t (&p)[16],
                                                  uint32_t tile) {
        const int lane = threadIdx.x % LP_CUDA_WARP;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t weights[4] = {p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3]};
            uint32_t b[4];
#pragma unroll
            for (int n = 0; n < VALUE * 4; n++) {
                lp_cuda_load_transposed(
                    b, tile + n / 4 * LP_LATENT_PANEL_BYTES +
                           lp_cuda_tile_at(lane % 16 + 16 * k, n % 4 * 2 + lane / 16));
                lp_cuda_mma<TYPE>(o + 8 * n, weights, b[0], b[1]);
                lp_cuda_mma<TYPE>(o + 8 * n + 4, weights, b[2], b[3]);
            }
        }
    }
};

template <int TYPE> struct lp_prefill_wgmma {
    static constexpr int type = TYPE;
    static __device__ __forceinline__ void publish() { lp_cuda_wgmma_publish(); }
    template <int KEY>
    static __device__ __forceinline__ void scores(float (&s)[32], uint32_t queries, uint32_t tile) {
#pragma unroll
        for (int i = 0; i < 32; i++) s[i] = 0;
        lp_cuda_wgmma_begin();
#pragma unroll
        for (int k = 0; k < KEY * 4; k++) {
            const uint32_t at = k / 4 * LP_LATENT_PANEL_BYTES + k % 4 * 32;
            lp_cuda_wgmma_64<TYPE>(s, lp_cuda_wgmma_matrix(queries + at, 16, 1024),
                                   lp_cuda_wgmma_matrix(tile + at, 16, 1024), k > 0);
        }
        lp_cuda_wgmma_commit();
        lp_cuda_wgmma_wait<0>();
    }
    template <int VALUE>
    static __device__ __forceinline__ void values(float (&o)[VALUE * 32], const uint32_t (&p)[16],
                                                  uint32_t tile) {
        lp_cuda_wgmma_begin();
#pragma unroll
        for (int k = 0; k < 4; k++)
            lp_cuda_wgmma_rows<TYPE>(
                o, p + 4 * k,
                lp_cuda_wgmma_matrix(tile + k * 16 * 128, LP_LATENT_PANEL_BYTES, 1024));
        lp_cuda_wgmma_commit();
        lp_cuda_wgmma_wait<0>();
    }
};

#endif
