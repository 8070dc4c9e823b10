// Starting the 8-bit kernels of one format: sizes of blocks and of the grid.
#ifndef LP_BACKEND_CUDA_CUDA_Q8_LAUNCH_CUH
#define LP_BACKEND_CUDA_CUDA_Q8_LAUNCH_CUH

#include "backend/cuda/cuda_q8_short.cuh"
#include "backend/cuda/cuda_q8_tile.cuh"
#include "backend/cuda/cuda_q8_vec.cuh"

// Shared memory of a multiprocessor of sm_90 for all its blocks; what each of two may have
#define LP_CUDA_SHARED_ALL (224 << 10)
#define LP_CUDA_SHARED_HALF (112 << 10)

static inline int lp_cuda_parts(int rounds) {
    return rounds < LP_CUDA_MAX_PARTS ? rounds : LP_CUDA_MAX_PARTS;
}

static inline void lp_cuda_allow_shared(struct lp_cuda_device *dev, const void *kernel, int n_bytes,
                                        bool *done) {
    if (*done) return;
    lp_cuda_note(dev,
                 cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes),
                 "a kernel's shared memory");
    *done = true;
}

static inline struct lp_cuda_vec_work lp_cuda_vec_work_of(const struct lp_cuda_q8_job *job) {
    struct lp_cuda_vec_work k = {};
    k.w = lp_cuda_weight_of(job->w);
    if (job->up) k.up = lp_cuda_weight_of(job->up);
    k.x = job->x;
    k.x_bytes = lp_cuda_act_bytes(job->w->n_in, LP_CUDA_ACT_ROUNDS);
    k.x_row = job->x_row;
    k.x_head = job->x_head;
    k.bias = job->bias;
    k.y = job->y;
    k.y_row = job->y_row;
    k.y_head = job->y_head;
    k.ids = job->ids;
    k.ids_are_new = job->ids_are_new;
    k.beside = job->beside;
    k.first_expert = job->first_expert;
    k.n_used = job->n_used;
    k.accumulate = job->accumulate;
    k.superblocks = (int)lp_cuda_superblocks(job->w->n_in);
    k.rounds = (k.superblocks + LP_CUDA_ROUND - 1) / LP_CUDA_ROUND;
    k.parts = lp_cuda_parts(k.rounds);
    const int each = job->mode == LP_CUDA_Q8_GATE_UP ? LP_CUDA_STRIP / 2 : LP_CUDA_STRIP;
    k.strips = (int)((job->w->n_out + each - 1) / each);
    if (job->more) k.more = lp_cuda_weight_of(job->more);
    if (job->more_up) k.more_up = lp_cuda_weight_of(job->more_up);
    k.n_routed = (int)(job->mode == LP_CUDA_Q8_MATMUL ? job->w->n_mats : job->n_rows);
    k.n_items = k.n_routed + (job->more ? (int)(job->n_rows / job->n_used) : 0);
    k.n_units = k.n_items * k.strips;
    return k;
}

// most_blocks: of the grid; 0: one unit a warp (or group of warps).
template <class F, int N, int WARPS, int STAGES, bool SPLIT, int MODE, int BLOCKS>
static void lp_cuda_vec_start(struct lp_cuda_device *dev, const struct lp_cuda_vec_work *k,
                              unsigned most_blocks) {
    static bool allowed;
    constexpr int SHARED = WARPS * STAGES * lp_cuda_vec_sizes<F>::STAGE;
    const int groups = SPLIT ? WARPS / k->parts : WARPS;
    unsigned blocks = lp_cuda_blocks(k->n_units, groups);
    if (most_blocks && blocks > most_blocks) blocks = most_blocks;
    lp_cuda_allow_shared(dev,
                         (const void *)lp_cuda_vec_kernel<F, N, WARPS, STAGES, SPLIT, MODE, BLOCKS>,
                         SHARED, &allowed);
    lp_cuda_start_early(dev, lp_cuda_vec_kernel<F, N, WARPS, STAGES, SPLIT, MODE, BLOCKS>,
                        dim3(blocks), WARPS * LP_CUDA_WARP, SHARED, *k);
    LP_CUDA_LAUNCHED(dev, "a product of 8-bit rows");
    if (MODE == LP_CUDA_Q8_MATMUL) dev->open_at = dev->n_noted;
}

// Warps of a block, and stages: what is in flight must cover the memory's latency, what is left of
// shared memory the rounded activations in the L1 cache. Measured on an H200
// (bench/kernels/bench_cuda_matmul.cu): blocks that stay until the work is done are a tenth faster while
// it is a few units a warp, the same above.
template <class F, int N, int MODE>
static void lp_cuda_vec_mode(struct lp_cuda_device *dev, const struct lp_cuda_q8_job *job) {
    constexpr bool ALIGNED = lp_cuda_vec_sizes<F>::ALIGNED;
    constexpr int WARPS = ALIGNED ? 4 : 3, STAGES = ALIGNED ? 3 : 2, MOST = ALIGNED ? 4 : 5,
                  FIT = LP_CUDA_SHARED_ALL / (WARPS * STAGES * lp_cuda_vec_sizes<F>::STAGE),
                  BLOCKS = FIT < MOST ? FIT : MOST;
    const struct lp_cuda_vec_work k = lp_cuda_vec_work_of(job);
    if (MODE == LP_CUDA_Q8_MATMUL && k.superblocks <= LP_CUDA_SHORT_MOST) {
        k.superblocks == 1 ? lp_cuda_short_start<F, N, 1>(dev, k)
                           : lp_cuda_short_start<F, N, 2>(dev, k);
        return;
    }
    const int64_t resident = (int64_t)BLOCKS * dev->n_multiprocessors;
    if (k.parts > 1 && k.n_units < 2 * WARPS * resident / 3)
        lp_cuda_vec_start<F, N, 12, 2, true, MODE, 1>(dev, &k, 0);
    else
        lp_cuda_vec_start<F, N, WARPS, STAGES, false, MODE, MOST>(
            dev, &k, k.n_units < 4 * WARPS * resident ? (unsigned)resident : 0);
}

template <class F>
static void lp_cuda_vec_any(struct lp_cuda_device *dev, const struct lp_cuda_q8_job *job) {
    if (dev->error) return;
    if (job->mode == LP_CUDA_Q8_GATE_UP)
        lp_cuda_vec_mode<F, 1, LP_CUDA_Q8_GATE_UP>(dev, job);
    else if (job->mode == LP_CUDA_Q8_DOWN)
        lp_cuda_vec_mode<F, 1, LP_CUDA_Q8_DOWN>(dev, job);
    else if (job->n_rows == 1)
        lp_cuda_vec_mode<F, 1, LP_CUDA_Q8_MATMUL>(dev, job);
    else
        lp_cuda_vec_mode<F, LP_CUDA_VEC_ROWS, LP_CUDA_Q8_MATMUL>(dev, job);
}

template <class F, int M, int NT, int STAGES, bool ALIGNED, int MODE, int BLOCKS>
static void lp_cuda_tile_start(struct lp_cuda_device *dev, const struct lp_cuda_q8_job *job) {
    static bool allowed;
    constexpr int OUT = MODE == LP_CUDA_Q8_GATE_UP ? 8 * M : 16 * M;
    constexpr int SHARED =
        LP_CUDA_TILE_WARPS * STAGES * 16 * M * lp_cuda_tile_sizes<F, ALIGNED>::ROW + 16 +
        LP_CUDA_TILE_WARPS * 16 * M * 8 * NT * (int)sizeof(float);
    struct lp_cuda_tile_work k = {};
    k.w = lp_cuda_weight_of(job->w);
    if (job->up) k.up = lp_cuda_weight_of(job->up);
    k.x = job->x;
    k.zero = job->zero;
    k.x_bytes = lp_cuda_act_bytes(job->w->n_in, LP_CUDA_ACT_SUPERBLOCKS);
    k.x_row = job->x_row;
    k.x_head = job->x_head;
    k.bias = job->bias;
    k.y = job->y;
    k.y_row = job->y_row;
    k.y_head = job->y_head;
    k.n_rows = (int)job->n_rows;
    k.n_used = job->n_used;
    k.accumulate = job->accumulate;
    k.token_tiles = (int)lp_cuda_blocks(job->n_rows, 8 * NT);
    k.superblocks = (int)lp_cuda_superblocks(job->w->n_in);
    k.rounds = (k.superblocks + LP_CUDA_ROUND - 1) / LP_CUDA_ROUND;
    k.parts = lp_cuda_parts(k.rounds);
    k.pairs = job->pairs;
    k.pair_begin = job->pair_begin;
    k.tiles = job->tiles;
    k.n_tiles = job->n_tiles;
    dim3 blocks(lp_cuda_blocks(job->w->n_out, OUT), (unsigned)job->max_tiles);
    if (MODE == LP_CUDA_Q8_MATMUL)
        blocks = dim3(blocks.x * (unsigned)k.token_tiles, (unsigned)job->w->n_mats);
    lp_cuda_allow_shared(dev,
                         (const void *)lp_cuda_tile_kernel<F, M, NT, STAGES, ALIGNED, MODE, BLOCKS>,
                         SHARED, &allowed);
    lp_cuda_start_early(dev, lp_cuda_tile_kernel<F, M, NT, STAGES, ALIGNED, MODE, BLOCKS>, blocks,
                        LP_CUDA_TILE_WARPS * LP_CUDA_WARP, SHARED, k);
    LP_CUDA_LAUNCHED(dev, "a product of 8-bit tiles");
}

// Rows of weights and stages so that two blocks fit on a multiprocessor.
template <class F, int NT, bool ALIGNED> struct lp_cuda_tile_shape {
    static constexpr int M = F::BYTES <= 176 || NT == 4 ? 2 : 1;
    static constexpr int BLOCK_STAGE =
        LP_CUDA_TILE_WARPS * 16 * M * lp_cuda_tile_sizes<F, ALIGNED>::ROW;
    static constexpr int LEFT = LP_CUDA_SHARED_HALF - LP_CUDA_TILE_WARPS * 16 * M * 8 * NT * 4;
    static constexpr int STAGES = LEFT / BLOCK_STAGE >= 3 ? 3 : 2;
    static constexpr int BLOCKS = NT == 1 ? 2 : 1; // on a multiprocessor, by registers
};

template <class F, int NT, bool ALIGNED>
static void lp_cuda_tile_mode(struct lp_cuda_device *dev, const struct lp_cuda_q8_job *job) {
    typedef struct lp_cuda_tile_shape<F, NT, ALIGNED> S;
    if (job->mode == LP_CUDA_Q8_GATE_UP)
        lp_cuda_tile_start<F, S::M, NT, S::STAGES, ALIGNED, LP_CUDA_Q8_GATE_UP, S::BLOCKS>(dev,
                                                                                           job);
    else if (job->mode == LP_CUDA_Q8_DOWN)
        lp_cuda_tile_start<F, S::M, NT, S::STAGES, ALIGNED, LP_CUDA_Q8_DOWN, S::BLOCKS>(dev, job);
    else
        lp_cuda_tile_start<F, S::M, NT, S::STAGES, ALIGNED, LP_CUDA_Q8_MATMUL, S::BLOCKS>(dev, job);
}

// Rows that are not aligned are read word by word; for types that never are, in small tiles only.
template <class F>
static void lp_cuda_tile_any(struct lp_cuda_device *dev, const struct lp_cuda_q8_job *job,
                             int tile_rows) {
    constexpr bool CAN_ALIGN = F::BYTES % 16 == 0;
    if (dev->error) return;
    if (CAN_ALIGN && lp_cuda_q8_aligned(job->w) && (!job->up || lp_cuda_q8_aligned(job->up))) {
        if (tile_rows == 8) lp_cuda_tile_mode<F, 1, CAN_ALIGN>(dev, job);
        if (tile_rows == 16) lp_cuda_tile_mode<F, 2, CAN_ALIGN>(dev, job);
        if (tile_rows == 32) lp_cuda_tile_mode<F, 4, CAN_ALIGN>(dev, job);
    } else {
        if (tile_rows == 8) lp_cuda_tile_mode<F, 1, false>(dev, job);
        if (tile_rows == 16) lp_cuda_tile_mode<F, 2, false>(dev, job);
        if (tile_rows == 32) lp_cuda_tile_mode<F, 4, false>(dev, job);
    }
}

#define LP_CUDA_Q8_KERNEL(stem, prepare)                                                           \
    const struct lp_cuda_q8_kernel lp_cuda_q8_##stem = {                                           \
        "cuda_q8_" #stem, lp_cuda_vec_any<lp_cuda_##stem>, lp_cuda_tile_any<lp_cuda_##stem>,       \
        lp_cuda_##stem::BYTES % 16 != 0, prepare}

#endif
