// Attention over cached latents by mma.sync, for chips with room for two tiles.
//
// A block of 8 warps; warp w takes rows 16 (w % 4) ... + 15. Of these the first four warps score keys
// 0 ... 31 and make output values 0 ... 255, the other four the rest.
#ifndef LP_BACKEND_CUDA_CUDA_LATENT_MMA_CUH
#define LP_BACKEND_CUDA_CUDA_LATENT_MMA_CUH

#include "backend/cuda/cuda_latent_f8.cuh"

struct lp_latent_mma_state { // behind the tiles
    uint8_t weights[LP_LATENT_PANEL_BYTES];
    struct lp_latent_stats stats;
    float most[2][64]; // largest score of a tile, by halves of the keys
    float sums[2][64]; // of a segment's weights
};

static constexpr size_t lp_latent_mma_shared_bytes(void) {
    return (size_t)3 * LP_LATENT_TILE_BYTES + sizeof(struct lp_latent_mma_state) +
           LP_CUDA_SHARED_PAD;
}

template <int TYPE>
static __device__ __forceinline__ void lp_latent_mma_scores(float (&s)[16], uint32_t queries,
                                                            uint32_t tile) {
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    const uint32_t q_row = warp % 4 * 16 + lane % 16,
                   key = warp / 4 * 32 + lane % 8 + lane / 16 * 8;
#pragma unroll
    for (int i = 0; i < 16; i++) s[i] = 0;
#pragma unroll 4
    for (int k = 0; k < LP_LATENT_PANELS * 4; k++) {
        const uint32_t panel = k / 4 * LP_LATENT_PANEL_BYTES;
        uint32_t q[4], b[4];
        lp_cuda_load_matrices(q, queries + panel + lp_cuda_tile_at(q_row, k % 4 * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < 2; n++) {
            lp_cuda_load_matrices(b, tile + panel +
                                         lp_cuda_tile_at(key + 16 * n, k % 4 * 2 + lane / 8 % 2));
            lp_cuda_mma<TYPE>(s + 8 * n, q, b[0], b[1]);
            lp_cuda_mma<TYPE>(s + 8 * n + 4, q, b[2], b[3]);
        }
    }
}

template <int TYPE>
static __device__ __forceinline__ void lp_latent_mma_values(float (&o)[128], uint32_t weights,
                                                            uint32_t tile) {
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    const uint32_t row = warp % 4 * 16 + lane % 16, key = lane % 16;
    tile += warp / 4 * 4 * LP_LATENT_PANEL_BYTES;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t p[4], b[4];
        lp_cuda_load_matrices(p, weights + lp_cuda_tile_at(row, 2 * k + lane / 16));
#pragma unroll
        for (int n = 0; n < 16; n++) {
            lp_cuda_load_transposed(b, tile + n / 4 * LP_LATENT_PANEL_BYTES +
                                           lp_cuda_tile_at(key + 16 * k, n % 4 * 2 + lane / 16));
            lp_cuda_mma<TYPE>(o + 8 * n, p, b[0], b[1]);
            lp_cuda_mma<TYPE>(o + 8 * n + 4, p, b[2], b[3]);
        }
    }
}

// One tile: its scores, their weights, the segment's output so far. at: number of its first key.
template <int TYPE>
static __device__ __forceinline__ void
lp_latent_mma_tile(float (&o)[128], struct lp_latent_rows *rows, const struct lp_latent_block &b,
                   struct lp_latent_mma_state *state, uint32_t queries, uint8_t *tile, int at) {
    const int half = threadIdx.x / 128;
    const uint32_t tile_at = lp_cuda_shared_at(tile);
    const bool partly_seen = at + LP_CUDA_LATENT_KEYS > b.n_least,
               shared_keys = partly_seen && b.n_queries > 1;
    float s[16], scale[2], most[2];
    lp_latent_mma_scores<TYPE>(s, queries, tile_at);
    lp_latent_scale<4>(s, *rows, &state->stats, at, 32 * half, partly_seen, shared_keys, most);
    if (threadIdx.x % 4 == 0) {
        state->most[half][rows->row[0]] = most[0];
        state->most[half][rows->row[1]] = most[1];
    }
    __syncthreads(); // the largest of both halves is known
    if (shared_keys) lp_latent_clear(&state->stats, tile, LP_LATENT_THREADS);
#pragma unroll
    for (int i = 0; i < 2; i++) most[i] = fmaxf(most[i], state->most[1 - half][rows->row[i]]);
    lp_latent_weigh<TYPE, 4>(s, rows, most, state->weights, 32 * half, scale);
    lp_latent_rescale(o, scale);
    __syncthreads(); // the weights are there
    lp_latent_mma_values<TYPE>(o, lp_cuda_shared_at(state->weights), tile_at);
    __syncthreads(); // tile and weights are used up
    if (shared_keys && threadIdx.x < LP_CUDA_LATENT_KEYS) state->stats.spoiled[threadIdx.x] = 0;
}

static __device__ __forceinline__ void
lp_latent_mma_end_segment(const float (&o)[128], const struct lp_latent_rows &rows,
                          const struct lp_cuda_latent_launch &a, const struct lp_latent_block &b,
                          struct lp_latent_mma_state *state, struct lp_latent_total (&totals)[2],
                          int s) {
    const int half = threadIdx.x / 128;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float sum = lp_latent_sum(rows, i);
        if (threadIdx.x % 4 == 0) state->sums[half][rows.row[i]] = sum;
    }
    __syncthreads(); // they are written anew behind the barriers of the next tile
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = rows.row[i];
        const struct lp_latent_fold f =
            lp_latent_end_segment(a, b, s, r, rows.most[i], state->sums[0][r] + state->sums[1][r],
                                  &totals[i], threadIdx.x % 4 == 0 && half == 0);
        lp_latent_put_row<32>(a, b, s, r, f, 256 * half, o, i);
    }
}

// The tile of the loader's rows, at once or on its way; then the next one's rows.
template <int CACHE>
static __device__ __forceinline__ void
lp_latent_mma_fetch(struct lp_latent_loader<2> *loader, const struct lp_cuda_latent_launch &a,
                    const struct lp_latent_block &b, uint8_t *tile) {
    if (CACHE == LP_TYPE_F8_E4M3)
        lp_latent_widen(*loader, a.whole_chunks, tile);
    else
        lp_latent_copy<0, LP_LATENT_PANELS>(loader, a, lp_cuda_shared_at(tile));
    lp_latent_advance(loader, a, b);
}

template <int CACHE>
static __device__ __forceinline__ void lp_latent_mma_attend(const struct lp_cuda_latent_launch &a) {
    constexpr int TYPE = lp_latent_math<CACHE>::type;
    LP_CUDA_SHARED(shared);
    const struct lp_latent_block b = lp_latent_locate(a, blockIdx.x);
    if (b.begin >= b.end) return; // segments that this block's list has not
    uint8_t *const tiles = shared + LP_LATENT_TILE_BYTES;
    struct lp_latent_mma_state *state =
        (struct lp_latent_mma_state *)(tiles + 2 * LP_LATENT_TILE_BYTES);
    const int n_tiles = (b.end - b.begin + LP_CUDA_LATENT_KEYS - 1) / LP_CUDA_LATENT_KEYS;
    struct lp_latent_loader<2> loader;
    struct lp_latent_rows rows;
    struct lp_latent_total totals[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    float o[128];

    lp_latent_begin(&loader, a, b);
    for (int i = 0; i < 2; i++) {
        lp_latent_mma_fetch<CACHE>(&loader, a, b, tiles + i * LP_LATENT_TILE_BYTES);
        lp_cuda_copy_commit();
    }
    lp_latent_load_queries<TYPE>(a, b, shared, state->stats.factors, LP_LATENT_THREADS, 0,
                                 LP_CUDA_LATENT_ROWS);
    if (threadIdx.x < LP_CUDA_LATENT_KEYS) state->stats.spoiled[threadIdx.x] = 0;
    __syncthreads();
    lp_latent_init_rows(&rows, b, state->stats.factors, (int)threadIdx.x / LP_CUDA_WARP % 4 * 16);
    for (int s = 0, t = 0; s < b.n_segments; s++) {
        lp_latent_begin_segment(&rows);
#pragma unroll
        for (int i = 0; i < 128; i++) o[i] = 0;
        for (const int end = min(n_tiles, t + b.tiles); t < end; t++) {
            uint8_t *const tile = tiles + t % 2 * LP_LATENT_TILE_BYTES;
            lp_cuda_copy_wait<1>();
            __syncthreads(); // the tile is there
            lp_latent_mma_tile<TYPE>(o, &rows, b, state, lp_cuda_shared_at(shared), tile,
                                     b.begin + t * LP_CUDA_LATENT_KEYS);
            if (t + 2 < n_tiles) lp_latent_mma_fetch<CACHE>(&loader, a, b, tile);
            lp_cuda_copy_commit();
        }
        lp_latent_mma_end_segment(o, rows, a, b, state, totals, s);
    }
}

#endif
