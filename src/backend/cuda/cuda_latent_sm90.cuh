// Attention over cached latents for sm_90a: what cuda_latent.cuh computes, by warps of two kinds, so
// that the products of different tiles run at the same time.
//
//   warps 0 ... 7    output += weights x tile: 256 values by four warps each; copies of tiles
//   warps 8 ... 11   scores of a tile, softmax weights, which go where the tile's rotated part was
//
// A tile t goes round: copied -> scored -> READY (its weights are there) -> multiplied ->
// USED -> tile t + 2 is copied to its place. Tiles of an FP8 cache are brought by four warps more,
//
//   warps 12 ... 15  codes of a tile into registers, while its place is still used; widened into shared memory
//
// which take the registers that the others can spare. So while tile t is multiplied, tile t + 1 is scored or
// still on its way; and while a segment is folded, the first tiles of the next are.
#ifndef LP_BACKEND_CUDA_CUDA_LATENT_SM90_CUH
#define LP_BACKEND_CUDA_CUDA_LATENT_SM90_CUH

#include "backend/cuda/cuda_latent_f8.cuh"

#define LP_LATENT90_THREADS 384 // without those that widen
#define LP_LATENT90_GROUP 128   // threads of four warps
#define LP_LATENT90_WEIGHTS 8   // the panel that becomes the weights

template <int CACHE> struct lp_latent90_shape {
    static constexpr bool widens = CACHE == LP_TYPE_F8_E4M3;
    static constexpr int threads = LP_LATENT90_THREADS + (widens ? LP_LATENT90_GROUP : 0);
    // Panels whose scores begin before the others are there
    static constexpr int early = widens ? 4 : 5;
    static constexpr int copiers = (widens ? 1 : 2) * LP_LATENT90_GROUP;
};

enum {                     // barriers
    LP_LATENT90_READY = 1, // and 2: of each place
    LP_LATENT90_USED =
        3, // among the warps that multiply; and 4, of each place, with those that widen
    LP_LATENT90_SCORED = 5,  // among the warps that score
    LP_LATENT90_QUERIES = 6, // among all but those that widen
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
template <int CACHE>
static __device__ __forceinline__ void
lp_latent90_weigh(struct lp_latent_rows *rows, const struct lp_latent_block &b, uint32_t queries,
                  uint8_t *tile, struct lp_latent90_state *state, int t, int at, bool shared_keys) {
    constexpr int TYPE = lp_latent_math<CACHE>::type, early = lp_latent90_shape<CACHE>::early;
    const int place = t % 2, phase = t / 2 % 2;
    const uint32_t tile_at = lp_cuda_shared_at(tile);
    float s[32] = {}, most[2], scale[2];
    lp_latent90_scores<TYPE, 0, early>(s, queries, tile_at, &state->copied[place][0], phase);
    lp_latent90_scores<TYPE, early, LP_LATENT_PANELS>(s, queries, tile_at, &state->copied[place][1],
                                                      phase);
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

template <int CACHE>
static __device__ __forceinline__ void
lp_latent90_score(const struct lp_cuda_latent_launch &a, const struct lp_latent_block &b,
                  uint32_t queries, uint8_t *tiles, struct lp_latent90_state *state, int n_tiles) {
    struct lp_latent_rows rows;
    struct lp_latent_total totals[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    lp_latent_init_rows(&rows, b, state->stats.factors, (int)threadIdx.x / LP_CUDA_WARP % 4 * 16);
    lp_latent_begin_segment(&rows);
    for (int t = 0, s = 0, end = b.tiles; t < n_tiles; t++) {
        const int place = t % 2, at = b.begin + t * LP_CUDA_LATENT_KEYS;
        const bool shared_keys = at + LP_CUDA_LATENT_KEYS > b.n_least && b.n_queries > 1;
        lp_latent90_weigh<CACHE>(&rows, b, queries, tiles + place * LP_LATENT_TILE_BYTES, state, t,
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
lp_latent90_copy(struct lp_latent_loader<2> *loader, const struct lp_cuda_latent_launch &a,
                 const struct lp_latent_block &b, uint32_t tiles, struct lp_latent90_state *state,
                 int place) {
    const uint32_t tile = tiles + place * LP_LATENT_TILE_BYTES;
    constexpr int early = lp_latent90_shape<LP_TYPE_BF16>::early;
    lp_latent_copy<0, early>(loader, a, tile);
    lp_cuda_phase_arrive_copied(lp_cuda_shared_at(&state->copied[place][0]));
    lp_latent_copy<early, LP_LATENT_PANELS>(loader, a, tile);
    lp_cuda_phase_arrive_copied(lp_cuda_shared_at(&state->copied[place][1]));
    lp_latent_advance(loader, a, b);
}

// Brings all tiles of an FP8 cache. The first two blocks of the next one's rows are in registers when its place is
// free, the others in the L2 cache; each is fetched while the one before is widened.
static __device__ __forceinline__ void
lp_latent90_widen(const struct lp_cuda_latent_launch &a, const struct lp_latent_block &b,
                  uint8_t *tiles, struct lp_latent90_state *state, int n_tiles) {
    struct lp_latent_loader<4> loader;
    lp_latent_begin(&loader, a, b);
    for (int t = 0; t < n_tiles; t++) {
        const int place = t % 2;
        uint8_t *tile = tiles + place * LP_LATENT_TILE_BYTES;
        struct lp_latent_codes<4> first, second;
        struct lp_latent_ropes<4> ropes;
        lp_latent_load_codes<0>(&first, loader);
        lp_latent_load_codes<1>(&second, loader);
        lp_latent_prefetch(loader);
        if (t >= 2) lp_cuda_barrier_wait(LP_LATENT90_USED + place, 3 * LP_LATENT90_GROUP);
        lp_latent_store_codes<0>(first, loader.n_bytes, tile);
        lp_latent_load_codes<2>(&first, loader);
        lp_latent_store_codes<1>(second, loader.n_bytes, tile);
        lp_cuda_wgmma_publish();
        lp_cuda_phase_arrive(lp_cuda_shared_at(&state->copied[place][0]));
        lp_latent_load_codes<3>(&second, loader);
        lp_latent_load_ropes(&ropes, loader, a.whole_chunks);
        lp_latent_store_codes<2>(first, loader.n_bytes, tile);
        lp_latent_store_codes<3>(second, loader.n_bytes, tile);
        lp_latent_store_ropes(ropes, loader.n_bytes, tile);
        lp_cuda_wgmma_publish();
        lp_cuda_phase_arrive(lp_cuda_shared_at(&state->copied[place][1]));
        lp_latent_advance(&loader, a, b);
    }
}

// output += weights x tile, of this thread's four warps' 256 values.
template <int CACHE>
static __device__ __forceinline__ void lp_latent90_values(float (&o)[128], uint32_t tile) {
    constexpr int TYPE = lp_latent_math<CACHE>::type;
    const uint32_t weights = tile + LP_LATENT90_WEIGHTS * LP_LATENT_PANEL_BYTES,
                   values = tile + threadIdx.x / LP_LATENT90_GROUP * 4 * LP_LATENT_PANEL_BYTES;
    lp_cuda_wgmma_begin();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const uint64_t w = lp_cuda_wgmma_matrix(weights + k * 32, 16, 1024),
                       v = lp_cuda_wgmma_matrix(values + k * 16 * 128, LP_LATENT_PANEL_BYTES, 1024);
        if (!lp_latent90_shape<CACHE>::widens) {
            lp_cuda_wgmma_256<TYPE>(o, w, v);
            continue;
        }
        const uint32_t rest = values + 2 * LP_LATENT_PANEL_BYTES + k * 16 * 128;
        lp_cuda_wgmma_128<TYPE, 0>(o, w, v);
        lp_cuda_wgmma_128<TYPE, 64>(o, w, lp_cuda_wgmma_matrix(rest, LP_LATENT_PANEL_BYTES, 1024));
    }
    lp_cuda_wgmma_commit();
    lp_cuda_wgmma_wait<0>();
}

// loader: NULL where others bring the tiles.
template <int CACHE>
static __device__ __forceinline__ void
lp_latent90_multiply(const struct lp_cuda_latent_launch &a, const struct lp_latent_block &b,
                     struct lp_latent_loader<2> *loader, uint32_t tiles,
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
            lp_latent90_values<CACHE>(o, tiles + place * LP_LATENT_TILE_BYTES);
            if (t + 2 < n_tiles && lp_latent90_shape<CACHE>::widens)
                lp_cuda_barrier_arrive(LP_LATENT90_USED + place, 3 * LP_LATENT90_GROUP);
            else if (t + 2 < n_tiles) {
                lp_cuda_barrier_wait(LP_LATENT90_USED, 2 * LP_LATENT90_GROUP);
                lp_latent90_copy(loader, a, b, tiles, state, place);
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            lp_latent_put_row<32>(a, b, s, row + 8 * i, state->folds[s % 2][row + 8 * i],
                                  256 * half, o, i);
    }
}

template <int CACHE>
static __device__ __forceinline__ void lp_latent90_attend(const struct lp_cuda_latent_launch &a) {
    typedef struct lp_latent90_shape<CACHE> shape;
    constexpr int TYPE = lp_latent_math<CACHE>::type;
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
                           shape::copiers);
    if (threadIdx.x < LP_CUDA_LATENT_KEYS) state->stats.spoiled[threadIdx.x] = 0;
    __syncthreads();
    // Where there are sixteen warps, threads begin with 128 registers each. What a kind of warps gets must be
    // said in front of its code for the compiler to use it: 160 + 160 + 96 + 96 = 4 x 128, which is enough but for one word.
    if (shape::widens && group == 3) {
        lp_cuda_fewer_registers<96>();
        lp_latent90_widen(a, b, tiles, state, n_tiles);
        return;
    }
    struct lp_latent_loader<2> loader;
    if (!shape::widens && group < 2) {
        lp_latent_begin(&loader, a, b);
        for (int place = 0; place < 2 && place < n_tiles; place++)
            lp_latent90_copy(&loader, a, b, tiles_at, state, place);
    }
    lp_latent_load_queries<TYPE>(a, b, shared, state->stats.factors, LP_LATENT90_THREADS, 0,
                                 LP_CUDA_LATENT_ROWS);
    lp_cuda_wgmma_publish();
    lp_cuda_barrier_wait(LP_LATENT90_QUERIES, LP_LATENT90_THREADS);
    if (group == 2) {
        if (shape::widens) lp_cuda_fewer_registers<96>();
        lp_latent90_score<CACHE>(a, b, lp_cuda_shared_at(shared), tiles, state, n_tiles);
    } else {
        if (shape::widens) lp_cuda_more_registers<160>();
        lp_latent90_multiply<CACHE>(a, b, &loader, tiles_at, state, n_tiles);
    }
}

#endif
