// Attention over cached latents for sm_90a: what cuda_latent.cuh computes, by warps of two kinds, so
// that the products of different tiles run at the same time.
//
//   warps 0 ... 7    output += weights x tile: 256 values by four warps each; copies of tiles
//   warps 8 ... 11   scores of a tile, softmax weights, which go where the tile's rotated part was
//
// A tile t goes round: copied -> COPIED -> scored -> READY (its weights are there) -> multiplied ->
// USED -> tile t + 2 is copied to its place. So while tile t is multiplied, tile t + 1 is scored or
// still on its way.
#ifndef LP_BACKEND_CUDA_CUDA_LATENT_SM90_CUH
#define LP_BACKEND_CUDA_CUDA_LATENT_SM90_CUH

#include "backend/cuda/cuda_latent.cuh"

#define LP_LATENT90_THREADS 384
#define LP_LATENT90_GROUP 128 // threads of four warps
#define LP_LATENT90_WEIGHTS 8 // the panel that becomes the weights

enum {                      // barriers
    LP_LATENT90_READY = 1,  // and 2: of each place
    LP_LATENT90_USED = 3,   // among the warps that multiply
    LP_LATENT90_SCORED = 4, // among the warps that score
};

struct lp_latent90_state {
    struct lp_latent_stats stats; // [0] of most and sums: of the whole segment, at the end
    float scale[2][64];           // of each place: what the output so far is multiplied by
    uint64_t copied[2];           // of each place: phases of lp_cuda_phase_wait
};

static constexpr size_t lp_latent90_shared_bytes(void) {
    return (size_t)3 * LP_LATENT_TILE_BYTES + sizeof(struct lp_latent90_state) + LP_CUDA_SHARED_PAD;
}

template <int TYPE>
static __device__ __forceinline__ void
lp_latent90_score(const struct lp_cuda_latent_launch &a, const struct lp_latent_block &b,
                  uint32_t queries, uint8_t *tiles, struct lp_latent90_state *state, int n_tiles) {
    struct lp_latent_stats *stats = &state->stats;
    struct lp_latent_rows rows;
    lp_latent_init_rows(&rows, b, stats->factors);
    for (int t = 0; t < n_tiles; t++) {
        const int place = t % 2, at = b.begin + t * LP_CUDA_LATENT_KEYS;
        uint8_t *const tile = tiles + place * LP_LATENT_TILE_BYTES;
        const uint32_t tile_at = lp_cuda_shared_at(tile);
        const bool partly_seen = at + LP_CUDA_LATENT_KEYS > b.n_least,
                   shared_keys = partly_seen && b.n_queries > 1;
        float s[32] = {}, most[2], scale[2];
        lp_cuda_phase_wait(lp_cuda_shared_at(&state->copied[place]), t / 2 % 2);
        lp_cuda_wgmma_publish();
        lp_cuda_wgmma_begin();
#pragma unroll
        for (int k = 0; k < LP_LATENT_PANELS * 4; k++) {
            const uint32_t step = k / 4 * LP_LATENT_PANEL_BYTES + k % 4 * 32;
            lp_cuda_wgmma_64<TYPE>(s, lp_cuda_wgmma_matrix(queries + step, 16, 1024),
                                   lp_cuda_wgmma_matrix(tile_at + step, 16, 1024), k > 0);
        }
        lp_cuda_wgmma_commit();
        lp_cuda_wgmma_wait<0>();
        lp_latent_scale<8>(s, rows, stats, at, 0, partly_seen, shared_keys, most);
        // All four warps have read the rotated part.
        lp_cuda_barrier_wait(LP_LATENT90_SCORED, LP_LATENT90_GROUP);
        if (shared_keys) lp_latent_clear(stats, tile, LP_LATENT90_GROUP);
        lp_latent_weigh<TYPE, 8>(s, &rows, most, tile + LP_LATENT90_WEIGHTS * LP_LATENT_PANEL_BYTES,
                                 0, scale);
        if (threadIdx.x % 4 == 0) {
            state->scale[place][rows.row[0]] = scale[0];
            state->scale[place][rows.row[1]] = scale[1];
        }
        lp_cuda_wgmma_publish();
        lp_cuda_barrier_arrive(LP_LATENT90_READY + place, LP_LATENT90_THREADS);
        if (shared_keys) {
            lp_cuda_barrier_wait(LP_LATENT90_SCORED, LP_LATENT90_GROUP);
            if (threadIdx.x % LP_LATENT90_GROUP < LP_CUDA_LATENT_KEYS)
                stats->spoiled[threadIdx.x % LP_LATENT90_GROUP] = 0;
        }
    }
    lp_latent_put_sums(rows, stats->sums[0]);
    if (threadIdx.x % 4 == 0) {
        stats->most[0][rows.row[0]] = rows.most[0];
        stats->most[0][rows.row[1]] = rows.most[1];
    }
}

// Copies a tile to its place; the arrival is counted when it is there.
static __device__ __forceinline__ void
lp_latent90_copy(struct lp_latent_loader *loader, const struct lp_cuda_latent_launch &a,
                 const struct lp_latent_block &b, uint32_t tiles, struct lp_latent90_state *state,
                 int place) {
    lp_latent_copy(loader, a, tiles + place * LP_LATENT_TILE_BYTES);
    lp_cuda_phase_arrive_copied(lp_cuda_shared_at(&state->copied[place]));
    lp_latent_advance(loader, a, b);
}

template <int TYPE>
static __device__ __forceinline__ void
lp_latent90_multiply(float (&o)[128], const struct lp_cuda_latent_launch &a,
                     const struct lp_latent_block &b, struct lp_latent_loader *loader,
                     uint32_t tiles, struct lp_latent90_state *state, int n_tiles) {
    const int row = threadIdx.x / LP_CUDA_WARP % 4 * 16 + threadIdx.x % LP_CUDA_WARP / 4,
              half = threadIdx.x / LP_LATENT90_GROUP;
#pragma unroll
    for (int i = 0; i < 128; i++) o[i] = 0;
    for (int t = 0; t < n_tiles; t++) {
        const int place = t % 2;
        const uint32_t tile = tiles + place * LP_LATENT_TILE_BYTES,
                       weights = tile + LP_LATENT90_WEIGHTS * LP_LATENT_PANEL_BYTES;
        lp_cuda_barrier_wait(LP_LATENT90_READY + place, LP_LATENT90_THREADS);
        const float scale[2] = {state->scale[place][row], state->scale[place][row + 8]};
        lp_latent_rescale(o, scale);
        lp_cuda_wgmma_begin();
#pragma unroll
        for (int k = 0; k < 4; k++)
            lp_cuda_wgmma_256<TYPE>(
                o, lp_cuda_wgmma_matrix(weights + k * 32, 16, 1024),
                lp_cuda_wgmma_matrix(tile + half * 4 * LP_LATENT_PANEL_BYTES + k * 16 * 128,
                                     LP_LATENT_PANEL_BYTES, 1024));
        lp_cuda_wgmma_commit();
        lp_cuda_wgmma_wait<0>();
        if (t + 2 < n_tiles) {
            lp_cuda_barrier_wait(LP_LATENT90_USED, 2 * LP_LATENT90_GROUP);
            lp_latent90_copy(loader, a, b, tiles, state, place);
        }
    }
}

template <int TYPE>
static __device__ __forceinline__ void lp_latent90_attend(const struct lp_cuda_latent_launch &a) {
    LP_CUDA_SHARED(shared);
    const struct lp_latent_block b = lp_latent_locate(a, blockIdx.x);
    if (b.begin >= b.end) return; // a segment that this block's list has not
    uint8_t *const tiles = shared + LP_LATENT_TILE_BYTES;
    struct lp_latent90_state *state =
        (struct lp_latent90_state *)(tiles + 2 * LP_LATENT_TILE_BYTES);
    const int n_tiles = (b.end - b.begin + LP_CUDA_LATENT_KEYS - 1) / LP_CUDA_LATENT_KEYS,
              group = __shfl_sync(0xffffffffu, threadIdx.x / LP_LATENT90_GROUP, 0);
    const uint32_t tiles_at = lp_cuda_shared_at(tiles);
    if (threadIdx.x < 2)
        lp_cuda_phase_init(lp_cuda_shared_at(&state->copied[threadIdx.x]), 2 * LP_LATENT90_GROUP);
    if (threadIdx.x < LP_CUDA_LATENT_KEYS) state->stats.spoiled[threadIdx.x] = 0;
    __syncthreads();
    struct lp_latent_loader loader;
    if (group < 2) {
        lp_latent_begin(&loader, a, b);
        for (int place = 0; place < 2; place++)
            lp_latent90_copy(&loader, a, b, tiles_at, state, place);
    }
    lp_latent_load_queries<TYPE>(a, b, shared, state->stats.factors, LP_LATENT90_THREADS);
    lp_cuda_wgmma_publish();
    __syncthreads();
    if (group == 2) {
        lp_latent90_score<TYPE>(a, b, lp_cuda_shared_at(shared), tiles, state, n_tiles);
        __syncthreads();
    } else {
        float o[128];
        lp_latent90_multiply<TYPE>(o, a, b, &loader, tiles_at, state, n_tiles);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r =
                threadIdx.x / LP_CUDA_WARP % 4 * 16 + threadIdx.x % LP_CUDA_WARP / 4 + 8 * i;
            lp_latent_put_row(a, b, r, state->stats.most[0][r], state->stats.sums[0][r],
                              256 * group, o, i);
        }
    }
}

#endif
