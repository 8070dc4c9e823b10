// Starts the kernels of cuda_index.cuh, for as many queries at a time as scratch has rows.
#include "backend/cuda/cuda_index.cuh"

#define MANY_BLOCKS 2048 // that fill any chip several times

template <int TYPE>
static __global__ void __launch_bounds__(LP_INDEX_THREADS, 2)
    score_kernel(const __grid_constant__ struct lp_cuda_index s) {
    lp_cuda_follow();
    lp_index_score<TYPE>(s);
}
static __global__ void __launch_bounds__(LP_INDEX_THREADS)
    narrow_kernel(const __grid_constant__ struct lp_cuda_index s) {
    lp_cuda_follow();
    lp_index_narrow(s);
}
static __global__ void __launch_bounds__(LP_INDEX_THREADS)
    choose_kernel(const __grid_constant__ struct lp_cuda_index s) {
    lp_cuda_follow();
    lp_index_choose(s);
}

template <int TYPE>
static cudaError_t start_scores(struct lp_cuda_device *dev, const struct lp_cuda_index *s,
                                int n_queries, int n_keys) {
    const size_t shared = lp_index_shared_bytes(s->op.n_heads, lp_index_parts<TYPE>::n);
    const cudaError_t error = cudaFuncSetAttribute(
        score_kernel<TYPE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error) return error;
    const dim3 blocks(lp_cuda_blocks(n_keys, s->run_keys), (unsigned)n_queries);
    lp_cuda_start_early(dev, score_kernel<TYPE>, blocks, LP_INDEX_THREADS, shared, *s);
    return cudaGetLastError();
}

// s: all but run_keys; op: of the first query. Keys of each of the n_queries are counted from 0.
// n_keys: that no query sees more of.
static cudaError_t start(struct lp_cuda_device *dev, struct lp_cuda_index *s, lp_type type,
                         int n_queries, int n_keys) {
    cudaError_t error = cudaSuccess;
    if (n_keys > s->op.top_k) {
        // Long runs where there are blocks enough: each block splits the query anew.
        s->run_keys = 4096;
        while (s->run_keys > LP_INDEX_THREADS &&
               (int64_t)n_keys * n_queries / s->run_keys < MANY_BLOCKS)
            s->run_keys /= 2;
        error = type == LP_TYPE_F16    ? start_scores<LP_TYPE_F16>(dev, s, n_queries, n_keys)
                : type == LP_TYPE_BF16 ? start_scores<LP_TYPE_BF16>(dev, s, n_queries, n_keys)
                                       : start_scores<LP_TYPE_F8_E4M3>(dev, s, n_queries, n_keys);
    }
    // Large chunks where they fill the chip: each block ranks the candidates anew.
    const int64_t large = (int64_t)LP_INDEX_EACH * LP_INDEX_THREADS;
    const bool many = n_queries * ((n_keys + large - 1) / large) >= dev->n_multiprocessors;
    s->each = many ? LP_INDEX_EACH : LP_CUDA_INDEX_CHUNK / LP_INDEX_THREADS;
    const dim3 blocks(lp_cuda_blocks(n_keys, s->each * LP_INDEX_THREADS), (unsigned)n_queries);
    if (!error && n_keys > s->op.top_k) {
        lp_cuda_start_early(dev, narrow_kernel, blocks, LP_INDEX_THREADS, 0, *s);
        error = cudaGetLastError();
    }
    if (error) return error;
    lp_cuda_start_early(dev, choose_kernel, blocks, LP_INDEX_THREADS, 0, *s);
    return cudaGetLastError();
}

bool lp_cuda_index_fits(const struct lp_op_index_select *op) {
    const struct lp_cache_view *keys = op->keys;
    return (keys->type == LP_TYPE_F16 || keys->type == LP_TYPE_BF16 ||
            keys->type == LP_TYPE_F8_E4M3) &&
           op->width == LP_INDEX_WIDTH && op->n_heads <= LP_INDEX_HEADS &&
           ((uintptr_t)keys->base | keys->row_bytes | keys->page_bytes) % 4 == 0;
}

void lp_cuda_index_select_mma(struct lp_device *device, const struct lp_op_index_select *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    struct lp_cuda_index s = {};
    s.keys = lp_cuda_cache_of(op->keys);
    s.whole_chunks =
        ((uintptr_t)op->keys->base | op->keys->row_bytes | op->keys->page_bytes) % 16 == 0;
    s.n_context = dev->sizes.n_context;
    s.n_chunks = (int)lp_cuda_blocks(s.n_context, LP_CUDA_INDEX_CHUNK);
    s.scores = dev->scratch.scores;
    s.candidates = dev->scratch.candidates;
    s.bins = dev->scratch.index_bins;
    s.state = dev->scratch.index_state;
    s.above = dev->scratch.index_above;
    const int64_t most = dev->scratch.score_rows;
    for (int64_t first = 0; first < op->n_queries && !dev->error; first += most) {
        const int64_t left = op->n_queries - first;
        s.op = *op;
        s.op.q += first * op->q_stride;
        s.op.w += first * op->w_stride;
        s.op.ids += first * op->ids_stride;
        s.op.counts += first;
        s.op.first_pos += first;
        s.batch = lp_cuda_batch_from(lp_cuda_batch_of(op->batch), first);
        const int64_t n = left < most ? left : most,
                      n_keys = op->batch ? op->batch->most_keys : s.op.first_pos + n;
        lp_cuda_note(dev, start(dev, &s, op->keys->type, (int)n, (int)n_keys), "index_select");
    }
}
