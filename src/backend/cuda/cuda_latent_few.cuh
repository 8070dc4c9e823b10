// Attention over cached latents where there are few queries, by mma.sync: one segment of two tiles and 16 rows a
// block, so that one sequence has many blocks and none of them much to wait for. What blocks leave is what the
// other kernels leave, and the same second kernel folds it.
//
// A block of 8 warps: warp w scores keys 16 w ... + 15 of the segment and makes output values 64 w ... + 63.
#ifndef LP_BACKEND_CUDA_CUDA_LATENT_FEW_CUH
#define LP_BACKEND_CUDA_CUDA_LATENT_FEW_CUH

#include "backend/cuda/cuda_latent_f8.cuh"

#define LP_LATENT_FEW_WARPS (LP_LATENT_THREADS / LP_CUDA_WARP)

#define LP_LATENT_FEW_PANEL_BYTES (LP_CUDA_LATENT_FEW_ROWS * 128) // of weights

struct lp_latent_few_state { // behind the tiles
    uint8_t weights[2 * LP_LATENT_FEW_PANEL_BYTES];
    struct lp_latent_stats stats;
    float most[LP_LATENT_FEW_WARPS][LP_CUDA_LATENT_FEW_ROWS]; // largest score of a warp's keys
    float sums[LP_LATENT_FEW_WARPS][LP_CUDA_LATENT_FEW_ROWS]; // of their weights
};

static constexpr size_t lp_latent_few_shared_bytes(void) {
    return (size_t)3 * LP_LATENT_TILE_BYTES + sizeof(struct lp_latent_few_state) +
           LP_CUDA_SHARED_PAD;
}

static_assert(lp_latent_few_shared_bytes() <= 227 << 10, "what a block may have");

// Both tiles of the segment, at once or on their way. All positions are read before the first page is asked for.
template <int CACHE>
static __device__ __forceinline__ void lp_latent_few_fetch(const struct lp_cuda_latent_launch &a,
                                                           const struct lp_latent_block &b,
                                                           uint8_t *tiles) {
    struct lp_latent_loader<2> loader[2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int key = b.begin + i / 2 * LP_CUDA_LATENT_KEYS + lp_latent_row_of<2>(i % 2);
        loader[i / 2].position[i % 2] = -1;
        if (key < b.end)
            loader[i / 2].position[i % 2] =
                b.run->ids ? b.run->ids[(size_t)b.query * b.run->k + key] : key;
    }
#pragma unroll
    for (int t = 0; t < 2; t++) lp_latent_find_rows(&loader[t], a, b);
#pragma unroll
    for (int t = 0; t < 2; t++) {
        uint8_t *tile = tiles + t * LP_LATENT_TILE_BYTES;
        if (CACHE == LP_TYPE_F8_E4M3)
            lp_latent_widen(loader[t], a.whole_chunks, tile);
        else
            lp_latent_copy<0, LP_LATENT_PANELS>(&loader[t], a, lp_cuda_shared_at(tile));
    }
    lp_cuda_copy_commit();
}

// This block's share of the weights ahead.
static __device__ __forceinline__ void
lp_latent_few_fetch_ahead(const struct lp_cuda_latent_launch &a) {
    const size_t line = 128, step = (size_t)gridDim.x * LP_LATENT_THREADS * line;
#pragma unroll
    for (int i = 0; i < LP_CUDA_LATENT_AHEAD; i++)
        for (size_t at = ((size_t)blockIdx.x * LP_LATENT_THREADS + threadIdx.x) * line;
             at < a.ahead[i].n_bytes; at += step)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(a.ahead[i].data + at));
}

// 16 rows by this warp's 16 keys. Even and odd steps are summed apart, which halves the chain of products.
template <int TYPE>
static __device__ __forceinline__ void lp_latent_few_scores(float (&s)[8], uint32_t queries,
                                                            uint32_t tile, int key) {
    const int lane = threadIdx.x % LP_CUDA_WARP;
    float odd[8] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) s[i] = 0;
#pragma unroll 6
    for (int k = 0; k < LP_LATENT_PANELS * 4; k += 2) {
        const uint32_t panel = k / 4 * LP_LATENT_PANEL_BYTES;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float *sum = j ? odd : s;
            uint32_t q[4], w[4];
            lp_cuda_load_matrices(q, queries + panel +
                                         lp_cuda_tile_at(lane % 16, (k + j) % 4 * 2 + lane / 16));
            lp_cuda_load_matrices(w, tile + panel +
                                         lp_cuda_tile_at(key + lane % 8 + lane / 16 * 8,
                                                         (k + j) % 4 * 2 + lane / 8 % 2));
            lp_cuda_mma<TYPE>(sum, q, w[0], w[1]);
            lp_cuda_mma<TYPE>(sum + 4, q, w[2], w[3]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) s[i] += odd[i];
}

// The warp's 64 values of 16 rows, over n_tiles tiles.
template <int TYPE>
static __device__ __forceinline__ void lp_latent_few_values(float (&o)[32], uint32_t weights,
                                                            uint32_t tiles, int n_tiles) {
    const int lane = threadIdx.x % LP_CUDA_WARP,
              panel = (int)threadIdx.x / LP_CUDA_WARP * LP_LATENT_PANEL_BYTES;
#pragma unroll
    for (int i = 0; i < 32; i++) o[i] = 0;
    for (int t = 0; t < n_tiles; t++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint32_t p[4], v[4];
            lp_cuda_load_matrices(p, weights + t * LP_LATENT_FEW_PANEL_BYTES +
                                         lp_cuda_tile_at(lane % 16, 2 * k + lane / 16));
#pragma unroll
            for (int n = 0; n < 4; n++) {
                lp_cuda_load_transposed(v,
                                        tiles + t * LP_LATENT_TILE_BYTES + panel +
                                            lp_cuda_tile_at(16 * k + lane % 16, 2 * n + lane / 16));
                lp_cuda_mma<TYPE>(o + 8 * n, p, v[0], v[1]);
                lp_cuda_mma<TYPE>(o + 8 * n + 4, p, v[2], v[3]);
            }
        }
}

template <int CACHE>
static __device__ __forceinline__ void lp_latent_few_attend(const struct lp_cuda_latent_launch &a) {
    constexpr int TYPE = lp_latent_math<CACHE>::type, ROWS = LP_CUDA_LATENT_FEW_ROWS;
    LP_CUDA_SHARED(shared);
    const int parts = lp_cuda_latent_few_parts(a.n_heads);
    const struct lp_latent_block b = lp_latent_locate(a, (int)blockIdx.x / parts);
    const int first = (int)blockIdx.x % parts * ROWS, warp = (int)threadIdx.x / LP_CUDA_WARP,
              lane = (int)threadIdx.x % LP_CUDA_WARP;
    if (b.begin >= b.end || first >= b.n_heads) return; // segments, and heads, that there are not
    uint8_t *const tiles = shared + LP_LATENT_TILE_BYTES;
    struct lp_latent_few_state *state =
        (struct lp_latent_few_state *)(tiles + 2 * LP_LATENT_TILE_BYTES);
    lp_latent_few_fetch<CACHE>(a, b, tiles);
    lp_latent_load_queries<TYPE>(a, b, shared, state->stats.factors, LP_LATENT_THREADS, first,
                                 first + ROWS);
    lp_latent_few_fetch_ahead(a);
    lp_cuda_copy_wait<0>();
    __syncthreads(); // queries and keys are there

    struct lp_latent_rows rows;
    float s[8], o[32], scale[2], most[2];
    const int key = 16 * warp, tile = warp / 4;
    lp_latent_init_rows(&rows, b, state->stats.factors, first);
    lp_latent_begin_segment(&rows);
    lp_latent_few_scores<TYPE>(s, lp_cuda_shared_at(shared) + first * 128,
                               lp_cuda_shared_at(tiles) + tile * LP_LATENT_TILE_BYTES, key % 64);
    lp_latent_scale<2>(s, rows, &state->stats, b.begin, key,
                       b.end - b.begin < LP_CUDA_LATENT_FEW_KEYS, false, most);
    if (lane % 4 == 0)
#pragma unroll
        for (int i = 0; i < 2; i++) state->most[warp][lane / 4 + 8 * i] = most[i];
    __syncthreads(); // the largest of all keys is known
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int w = 0; w < LP_LATENT_FEW_WARPS; w++)
            most[i] = fmaxf(most[i], state->most[w][lane / 4 + 8 * i]);
    // Row `first` of the block is the first of the panel.
    lp_latent_weigh<TYPE, 2>(s, &rows, most,
                             state->weights + tile * LP_LATENT_FEW_PANEL_BYTES - first * 128,
                             key % 64, scale);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float sum = lp_latent_sum(rows, i);
        if (lane % 4 == 0) state->sums[warp][lane / 4 + 8 * i] = sum;
    }
    __syncthreads(); // weights and their sums are there
    lp_latent_few_values<TYPE>(o, lp_cuda_shared_at(state->weights), lp_cuda_shared_at(tiles),
                               b.end - b.begin > LP_CUDA_LATENT_KEYS ? 2 : 1);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        struct lp_latent_total total = {-INFINITY, 0};
        float sum = 0;
#pragma unroll
        for (int w = 0; w < LP_LATENT_FEW_WARPS; w++) sum += state->sums[w][lane / 4 + 8 * i];
        const struct lp_latent_fold f = lp_latent_end_segment(
            a, b, 0, rows.row[i], rows.most[i], sum, &total, warp == 0 && lane % 4 == 0);
        lp_latent_put_row<8>(a, b, 0, rows.row[i], f, 64 * warp, o, i);
    }
}

#endif
