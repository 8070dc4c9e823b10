// Attention over cached latents by the matrix units: what the two kernels (mma.sync, wgmma) are told,
// and the rule by which a context is cut.
//
// A launch takes runs: consecutive queries of one sequence, or queries of a batch. A block takes 64 rows, (query, head) pairs
// that see one list of keys, and walks some consecutive segments of that list. Each segment is a softmax
// of its own, and a row's result is the segments' results folded in their order (lp_latent_fold):
//
//   segments       0    1    2    3    4    5    6        walk = 3
//   blocks        [----------]  [-----------]  [--]
//   leave          total         3    4    5    6         the first block folds what it walks, into the
//                                                         output itself; the others leave each segment
//   second kernel  total   +     3  + 4  + 5  + 6
//
//   L1. Of one cut (lp_cuda_segments), segments depend on the number of keys that the row sees, on nothing
//       else, and a segment is cut into tiles of 64 keys from its first key on.
//   L2. Who folds does not change what is folded: the same numbers in the same order with the same
//       arithmetic.
//   So a row's bits do not depend on what else is in the launch (rule B2 of backend.h), and `walk` is
//   free: as many blocks as the chip has room for, and no partial results where the rows alone fill it.
//   That is where results are fixed, with one cut for all launches; where they may vary, it is chosen for
//   each (lp_cuda_latent_cut).
#ifndef LP_BACKEND_CUDA_CUDA_LATENT_H
#define LP_BACKEND_CUDA_CUDA_LATENT_H

#include "backend/cuda/cuda_device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LP_CUDA_LATENT 512
#define LP_CUDA_ROPE 64
#define LP_CUDA_LATENT_ROWS 64 // of a block
#define LP_CUDA_LATENT_KEYS 64 // of a tile
#define LP_CUDA_LATENT_RUNS 128

// How a context is cut: segments of `keys`, or of the smallest keys * 2^i that leaves at most `most`.
struct lp_cuda_segments {
    int32_t keys, most; // keys: a multiple of 2 * LP_CUDA_LATENT_KEYS
};

struct lp_cuda_latent_run {
    const int32_t *pages;
    const int32_t *positions;       // of queries of several sequences (lp_op_batch); or NULL
    const int32_t *const *pages_of; // the same
    const float *q_latent, *q_rope; // of the first query
    const int32_t *ids, *counts;    // as in lp_visible, or NULL
    float *out;
    int32_t first_pos, n_queries, k;
    int32_t together;   // queries whose heads share a block; 1 where each has its own list
    int32_t n_segments; // at least those of every query
    int32_t walk;       // segments of a block
    int32_t first_block, first_row, first_slot; // of the run, in the launch
};

// Weights that lp_cuda_latent_few brings into the L2 cache, as most of the memory is idle: as many as leave room for
// what attention reads itself.
#define LP_CUDA_LATENT_AHEAD_BYTES (16 << 20)
#define LP_CUDA_LATENT_AHEAD 4
struct lp_cuda_ahead {
    const uint8_t *data;
    size_t n_bytes;
};

struct lp_cuda_latent_launch { // what the runs have in common; a kernel's argument
    uint8_t *base;             // of the cache
    size_t row_bytes, page_bytes;
    int32_t page_tokens, slot_offset;
    int64_t q_latent_stride, q_rope_stride, q_rope_head_stride, out_stride;
    int32_t n_heads, head_blocks; // blocks for the heads of one query
    float scale;
    bool whole_chunks; // rows lie at multiples of 16 bytes
    bool early;        // the device can start a kernel before the one before has ended
    struct lp_cuda_segments segments;
    // A slot: 64 rows of one segment; of runs that are split alone.
    float *partial;      // [n_slots, 64 rows, 512], not divided by the sum of their weights
    float *partial_sums; // [n_slots, 64 rows, 2]: largest score, sum of weights
    struct lp_cuda_ahead ahead[LP_CUDA_LATENT_AHEAD]; // n_bytes 0: none
    int32_t n_runs, n_blocks, n_rows, n_slots;        // n_rows: (query, head) pairs
    struct lp_cuda_latent_run runs[LP_CUDA_LATENT_RUNS];
};

// The cut that is cheapest for an operation where its rows' bits may depend on what else is in the launch: one
// sequence wants many short segments, a large batch one for each row.
struct lp_cuda_segments lp_cuda_latent_cut(const struct lp_op_mla_absorbed *op,
                                           int n_multiprocessors);
#define LP_CUDA_LATENT_SHORTEST 128 // keys of a segment, and
#define LP_CUDA_LATENT_SEGMENTS 128 // the most of a row, of any cut

// Starts the launch on a stream. type: BF16, F16 or F8_E4M3. _mma: mma.sync; sm_80 and later. _wgmma: sm_90a.
cudaError_t lp_cuda_latent_mma(const struct lp_cuda_latent_launch *launch, lp_type type,
                               cudaStream_t stream);
cudaError_t lp_cuda_latent_wgmma(const struct lp_cuda_latent_launch *launch, lp_type type,
                                 cudaStream_t stream);
// The same for launches of lp_cuda_latent_few_fits, in segments of LP_CUDA_LATENT_FEW_KEYS that blocks walk one by one:
// each takes LP_CUDA_LATENT_FEW_ROWS of a block's 64 rows (cuda_latent_few.cuh). sm_80 and later.
#define LP_CUDA_LATENT_FEW_ROWS 16
#define LP_CUDA_LATENT_FEW_KEYS 128
cudaError_t lp_cuda_latent_few(const struct lp_cuda_latent_launch *launch, lp_type type,
                               cudaStream_t stream);
// Whether the chip has room for all blocks of an operation that is cut so at once, and no two queries share one.
bool lp_cuda_latent_few_fits(const struct lp_op_mla_absorbed *op, int n_multiprocessors);
// The second half of all: folds the segments that several blocks left.
cudaError_t lp_cuda_latent_finish(const struct lp_cuda_latent_launch *launch, cudaStream_t stream);

// The first n_keys rows of an FP8 cache as BF16 rows in scratch (until it is called again), and their view: what
// the kernels over BF16 caches take.
void lp_cuda_widen(struct lp_cuda_device *dev, const struct lp_cache_view *cache, int64_t n_keys,
                   struct lp_cache_view *out);

// Whether an operation has the shapes and alignment that the kernels take.
bool lp_cuda_latent_fits(const struct lp_op_mla_absorbed *op);
// The segments a block is to walk where n_like operations like this one share a launch on a chip of
// n_multiprocessors, each of which holds one block.
int32_t lp_cuda_latent_walk(const struct lp_op_mla_absorbed *op, struct lp_cuda_segments segments,
                            int n_like, int n_multiprocessors);
// Appends a run for queries first ... of op to a launch, as many as fit, and returns how many that
// were. Runs that are split, of more than `walk` segments, leave partial results and fit while the
// launch has at most most_slots of them. All operations of a launch have the cache, strides and heads of
// the first one; it begins with n_runs, n_blocks, n_rows and n_slots of 0.
int64_t lp_cuda_latent_add(struct lp_cuda_latent_launch *launch,
                           const struct lp_op_mla_absorbed *op, int64_t first,
                           struct lp_cuda_segments segments, int32_t walk, int32_t most_slots);

// Blocks of lp_cuda_latent_few for one of the other kernels
// The launch's ahead, from the operation's
void lp_cuda_latent_look_ahead(struct lp_cuda_latent_launch *launch,
                               const struct lp_op_mla_absorbed *op);

static inline
#ifdef __CUDACC__
    __host__ __device__
#endif
        int32_t
        lp_cuda_latent_few_parts(int32_t n_heads) {
    const int32_t of_block = n_heads < LP_CUDA_LATENT_ROWS ? n_heads : LP_CUDA_LATENT_ROWS;
    return (of_block + LP_CUDA_LATENT_FEW_ROWS - 1) / LP_CUDA_LATENT_FEW_ROWS;
}

static inline
#ifdef __CUDACC__
    __host__ __device__
#endif
        int32_t
        lp_cuda_segment_keys(struct lp_cuda_segments s, int32_t n) {
    int32_t keys = s.keys;
    while ((int64_t)keys * s.most < n) keys *= 2;
    return keys;
}

#ifdef __cplusplus
}
#endif

#endif
