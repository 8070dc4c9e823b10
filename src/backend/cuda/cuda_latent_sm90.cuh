// Attention over cached latents for sm_90a: what cuda_latent.cuh computes, by warps of two kinds, so
// that the products of different tiles run at the same time.
//
//   warps 0 ... 7    output += weights x tile: 256 values by four warps each; copies of tiles
//   warps 8 ... 11   scores of a tile, softmax weights, which go where the tile's rotated part was
//
// A tile t goes round: copied -> scored -> READY (its weights are there) -> multiplied ->
// USED -> tile t + 2 is copied to its place. So while tile t is multiplied, tile t + 1 is scored or
// still on its way; and while a segment is folded, the first tiles of the next are.
#ifndef LP_BACKEND_CUDA_CUDA_LATENT_SM90_CUH
#define LP_BACKEND_CUDA_CUDA_LATENT_SM90_CUH

#include "backend/cuda/cuda_latent.cuh"

#define LP_LATENT90_THREADS 384
#define LP_LATENT90_GROUP 128 // threads of four warps
#define LP_LATENT90_WEIGHTS 8 // the panel that becomes the weights
#define LP_LATENT90_EARLY 5   // panels whose scores begin before the others are there

enum {                      // barriers
    LP_LATENT90_READY = 1,  // and 2: of each place
    LP_LATENT90_USED = 3,   // among the warps that multiply
    LP_LATENT90_SCORED = 4, // among the warps that score
};

struct lp_latent90_state {
    struct lp_latent_stats stats;
    float scale[2][64]; // of each place: what the output so far is multiplied by
    // Of each row at the end of a segment; with the weights of its last tile. Segments take turns:
    // one of two tiles or more ends when the one before the last is folded.
    struct lp_latent_fold folds[2][64];
    // Phases of lp_cuda_phase_wait, of each place: early panels, late ones.
    uint64_t copied[2][2];
};

static constexpr size_t lp_latent90_shared_bytes(void) {
    return (size_t)3 * LP_LATENT_TILE_BYTES + sizeof(struct lp_latent90_state) + LP_CUDA_SHARED_PAD;
}

// The products of panels FIRST ... END - 1, once they have been copied.
template <int TYPE, int FIRST, int END>
static __device__ __forceinline__ void lp_latent90_scores(float (&s)[32], uint32_t queries,
                                                          uint32_t tile, const uint64_t *copied,
                                                          int phase) {
    lp_cuda_phase_wait(lp_cuda_shared_at(copied), phase);
    lp_cuda_wgmma_publish();
    lp_cuda_wgmma_begin();
#pragma unroll
    for (int k = FIRST * 4; k < END * 4; k++) {
        const uint32_t step = k / 4 * LP_LATENT_PANEL_BYTES + k % 4 * 32;
        lp_cuda_wgmma_64<TYPE>(s, lp_cuda_wgmma_matrix(queries + step, 16, 1024),
                               lp_cuda_wgmma_matrix(tile + step, 16, 1024), k > 0);
    }
    lp_cuda_wgmma_commit();
}

// One tile, whose first key has number `at`: scores, weights, and how the output so far is scaled.
template <int TYPE>
static __device__ __forceinline__ void
lp_latent90_weigh(struct lp_latent_rows *rows, const struct lp_latent_block &b, uint32_t queries,
                  uint8_t *tile, struct lp_latent90_state *state, int t, int at, bool shared_keys) {
    const int place = t % 2, phase = t / 2 % 2;
    const uint32_t tile_at = lp_cuda_shared_at(tile);
    float s[32] = {}, most[2], scale[2];
    lp_latent90_scores<TYPE, 0, LP_LATENT90_EARLY>(s, queries, tile_at, &state->copied[place][0],
                                                   phase);
    lp_latent90_scores<TYPE, LP_LATENT90_EARLY, LP_LATENT_PANELS>(s, queries, tile_at,
                                                                  &state->copied[place][1], phase);
    lp_cuda_wgmma_wait<0>();
    lp_latent_scale<8>(s, *rows, &state->stats, at, 0, at + LP_CUDA_LATENT_KEYS > b.n_least,
                       shared_keys, most);
    // All four warps have read the rotated part.
    lp_cuda_barrier_wait(LP_LATENT90_SCORED, LP_LATENT90_GROUP);
    if (shared_keys) lp_latent_clear(&state->stats, tile, LP_LATENT90_GROUP);
    lp_latent_weigh<TYPE, 8>(s, rows, most, tile + LP_LATENT90_WEIGHTS * LP_LATENT_PANEL_BYTES, 0,
                             scale);
    if (threadIdx.x % 4 == 0) {
        state->scale[place][rows->row[0]] = scale[0];
        state->scale[place][rows->row[1]] = scale[1];
    }
}

static __device__ __forceinline__ void
lp_latent90_end_segment(const struct lp_latent_rows &rows, const struct lp_cuda_latent_launch &a,
                        const struct lp_latent_block &b, struct lp_latent90_state *state,
                        struct lp_latent_total (&totals)[2], int s) {
    const bool writes = threadIdx.x % 4 == 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float sum = lp_latent_sum(rows, i);
        const struct lp_latent_fold f =
            lp_latent_end_segment(a, b, s, rows.row[i], rows.most[i], sum, &totals[i], writes);
        if (writes) state->folds[s % 2][rows.row[i]] = f;
    }
}

template <int TYPE>
static __device__ __forceinline__ void
lp_latent90_score(const struct lp_cuda_latent_launch &a, const struct lp_latent_block &b,
                  uint32_t queries, uint8_t *tiles, struct lp_latent90_state *state, int n_tiles) {
    struct lp_latent_rows rows;
    struct lp_latent_total totals[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    lp_latent_init_rows(&rows, b, state->stats.factors);
    lp_latent_begin_segment(&rows);
    for (int t = 0, s = 0, end = b.tiles; t < n_tiles; t++) {
        const int place = t % 2, at = b.begin + t * LP_CUDA_LATENT_KEYS;
        const bool shared_keys = at + LP_CUDA_LATENT_KEYS > b.n_least && b.n_queries > 1;
        lp_latent90_weigh<TYPE>(&rows, b, queries, tiles + place * LP_LATENT_TILE_BYTES, state, t,
                                at, shared_keys);
        if (t == end - 1 || t == n_tiles - 1) {
            lp_latent90_end_segment(rows, a, b, state, totals, s++);
            lp_latent_begin_segment(&rows);
            end += b.tiles;
        }
        lp_cuda_wgmma_publish();
        lp_cuda_barrier_arrive(LP_LATENT90_READY + place, LP_LATENT90_THREADS);
        if (shared_keys) { // a row's two threads have read its mark (lp_latent_clear); next tile's come behind
            __syncwarp();
            if (threadIdx.x % 2 == 0) state->stats.spoiled[threadIdx.x % LP_LATENT90_GROUP / 2] = 0;
            lp_cuda_barrier_wait(LP_LATENT90_SCORED, LP_LATENT90_GROUP);
        }
    }
}

// Copies a tile to its place; the arrivals are counted when its panels are there.
static __device__ __forceinline__ void
lp_latent90_copy(struct lp_latent_loader *loader, const struct lp_cuda_latent_launch &a,
                 const struct lp_latent_block &b, uint32_t tiles, struct lp_latent90_state *state,
                 int place) {
    const uint32_t tile = tiles + place * LP_LATENT_TILE_BYTES;
    lp_latent_copy<0, LP_LATENT90_EARLY>(loader, a, tile);
    lp_cuda_phase_arrive_copied(lp_cuda_shared_at(&state->copied[place][0]));
    lp_latent_copy<LP_LATENT90_EARLY, LP_LATENT_PANELS>(loader, a, tile);
    lp_cuda_phase_arrive_copied(lp_cuda_shared_at(&state->copied[place][1]));
    lp_latent_advance(loader, a, b);
}

// output += weights x tile, of this thread's four warps' 256 values.
template <int TYPE>
static __device__ __forceinline__ void lp_latent90_values(float (&o)[128], uint32_t tile) {
    const uint32_t weights = tile + LP_LATENT90_WEIGHTS * LP_LATENT_PANEL_BYTES,
                   values = tile + threadIdx.x / LP_LATENT90_GROUP * 4 * LP_LATENT_PANEL_BYTES;
    lp_cuda_wgmma_begin();
#pragma unroll
    for (int k = 0; k < 4; k++)
        lp_cuda_wgmma_256<TYPE>(
            o, lp_cuda_wgmma_matrix(weights + k * 32, 16, 1024),
            lp_cuda_wgmma_matrix(values + k * 16 * 128, LP_LATENT_PANEL_BYTES, 1024));
    lp_cuda_wgmma_commit();
    lp_cuda_wgmma_wait<0>();
}

template <int TYPE>
static __device__ __forceinline__ void
lp_latent90_multiply(const struct lp_cuda_latent_launch &a, const struct lp_latent_block &b,
                     struct lp_latent_loader *loader, uint32_t tiles,
                     struct lp_latent90_state *state, int n_tiles) {
    const int row = threadIdx.x / LP_CUDA_WARP % 4 * 16 + threadIdx.x % LP_CUDA_WARP / 4,
              half = threadIdx.x / LP_LATENT90_GROUP;
    float o[128];
    for (int s = 0, t = 0; s < b.n_segments; s++) {
#pragma unroll
        for (int i = 0; i < 128; i++) o[i] = 0;
        for (const int end = min(n_tiles, t + b.tiles); t < end; t++) {
            const int place = t % 2;
            lp_cuda_barrier_wait(LP_LATENT90_READY + place, LP_LATENT90_THREADS);
            const float scale[2] = {state->scale[place][row], state->scale[place][row + 8]};
            lp_latent_rescale(o, scale);
            lp_latent90_values<TYPE>(o, tiles + place * LP_LATENT_TILE_BYTES);
            if (t + 2 < n_tiles) {
                lp_cuda_barrier_wait(LP_LATENT90_USED, 2 * LP_LATENT90_GROUP);
                lp_latent90_copy(loader, a, b, tiles, state, place);
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            lp_latent_put_row(a, b, s, row + 8 * i, state->folds[s % 2][row + 8 * i], 256 * half, o,
                              i);
    }
}

template <int TYPE>
static __device__ __forceinline__ void lp_latent90_attend(const struct lp_cuda_latent_launch &a) {
    LP_CUDA_SHARED(shared);
    const struct lp_latent_block b = lp_latent_locate(a, blockIdx.x);
    if (b.begin >= b.end) return; // segments that this block's list has not
    uint8_t *const tiles = shared + LP_LATENT_TILE_BYTES;
    struct lp_latent90_state *state =
        (struct lp_latent90_state *)(tiles + 2 * LP_LATENT_TILE_BYTES);
    const int n_tiles = (b.end - b.begin + LP_CUDA_LATENT_KEYS - 1) / LP_CUDA_LATENT_KEYS,
              group = __shfl_sync(0xffffffffu, threadIdx.x / LP_LATENT90_GROUP, 0);
    const uint32_t tiles_at = lp_cuda_shared_at(tiles);
    if (threadIdx.x < 4)
        lp_cuda_phase_init(lp_cuda_shared_at(&state->copied[threadIdx.x / 2][threadIdx.x % 2]),
                           2 * LP_LATENT90_GROUP);
    if (threadIdx.x < LP_CUDA_LATENT_KEYS) state->stats.spoiled[threadIdx.x] = 0;
    __syncthreads();
    struct lp_latent_loader loader;
    if (group < 2) {
        lp_latent_begin(&loader, a, b);
        for (int place = 0; place < 2 && place < n_tiles; place++)
            lp_latent90_copy(&loader, a, b, tiles_at, state, place);
    }
    lp_latent_load_queries<TYPE>(a, b, shared, state->stats.factors, LP_LATENT90_THREADS);
    lp_cuda_wgmma_publish();
    __syncthreads();
    if (group == 2)
        lp_latent90_score<TYPE>(a, b, lp_cuda_shared_at(shared), tiles, state, n_tiles);
    else
        lp_latent90_multiply<TYPE>(a, b, &loader, tiles_at, state, n_tiles);
}

#endif
