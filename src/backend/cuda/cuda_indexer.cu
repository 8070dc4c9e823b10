// The lightning indexer. Scores: a warp a key, sums in double, rounded to float32 as ref does. The
// choice: a block a query; the rank of a score is a whole number (NaN above all, -0 = +0), the rank
// of the last key to keep is found a byte at a time with counts (a radix select), and the kept
// positions are written in their order, of equal ranks the first ones.
#include "backend/cuda/cuda_dequant.cuh"

#define SELECT_THREADS 1024
#define KEYS_PER_WARP 4

struct selection {
    struct lp_op_index_select op; // q, w, ids, counts: of the first query of the launch
    struct lp_cuda_cache keys;
    struct lp_cuda_batch batch;
    int type;
    float *scores; // [n_queries, n_context]
    int64_t n_context;
};

// Keys that query q sees, and whether it has to choose among them.
static __device__ inline bool visible(const struct selection &s, int64_t q, int64_t *n) {
    *n = lp_cuda_position(s.batch, s.op.first_pos, q) + 1;
    return *n > s.op.top_k;
}

static __global__ void score_kernel(struct selection s, unsigned pieces,
                                    const struct lp_cuda_tables *tables) {
    extern __shared__ float keys[]; // [LP_CUDA_WARPS, width]
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP,
              width = s.op.width;
    const int64_t q = blockIdx.x / pieces;
    int64_t n;
    if (!visible(s, q, &n)) return;
    const float *query = s.op.q + q * s.op.q_stride, *w = s.op.w + q * s.op.w_stride;
    const struct lp_cuda_cache cache = lp_cuda_cache_for(s.keys, s.batch, q);
    float *key = keys + warp * width;
    for (int i = 0; i < KEYS_PER_WARP; i++) {
        const int64_t pos =
            ((int64_t)(blockIdx.x % pieces) * LP_CUDA_WARPS + warp) * KEYS_PER_WARP + i;
        if (pos >= n) return; // the whole warp
        const uint8_t *row = lp_cuda_cache_row(cache, pos);
        for (int at = lane * 8; at < width; at += 8 * LP_CUDA_WARP) {
            const int left = width - at < 8 ? width - at : 8;
            float values[8];
            lp_cuda_dequant8(s.type, row, at, left, tables, values);
            for (int j = 0; j < left; j++) key[at + j] = values[j];
        }
        __syncwarp();
        double score = 0;
        for (int h = 0; h < s.op.n_heads; h++) {
            double dot = 0;
            for (int d = lane; d < width; d += LP_CUDA_WARP)
                dot += (double)query[h * width + d] * key[d];
            dot = lp_cuda_warp_sum(dot);
            score += (double)w[h] * (dot > 0 || isnan(dot) ? dot : 0);
        }
        if (lane == 0) s.scores[q * s.n_context + pos] = (float)(score * s.op.scale);
        __syncwarp();
    }
}

static __device__ inline uint32_t rank_of(float score) {
    if (isnan(score)) return 0xffffffffu;
    uint32_t bits = __float_as_uint(score == 0 ? 0.0f : score);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// How many threads of lower number have `flag`; *total: how many of all. Every thread calls it.
static __device__ int count_before(bool flag, int *total) {
    __shared__ int of_warp[SELECT_THREADS / LP_CUDA_WARP];
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    const unsigned ballot = __ballot_sync(0xffffffffu, flag);
    __syncthreads(); // of_warp may still be read from the call before
    if (lane == 0) of_warp[warp] = __popc(ballot);
    __syncthreads();
    int before = __popc(ballot & ((1u << lane) - 1)), all = 0;
    for (int i = 0; i < SELECT_THREADS / LP_CUDA_WARP; i++) {
        if (i < warp) before += of_warp[i];
        all += of_warp[i];
    }
    *total = all;
    return before;
}

// The rank of number k (from 1) in descending order; *above: how many rank higher.
static __device__ uint32_t find_rank(const float *scores, int64_t n, int k, int *above) {
    __shared__ int counts[256];
    __shared__ uint32_t prefix;
    __shared__ int left;
    if (threadIdx.x == 0) {
        prefix = 0;
        left = k;
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += SELECT_THREADS) counts[i] = 0;
        __syncthreads();
        const uint32_t high = shift == 24 ? 0 : 0xffffffffu << (shift + 8), want = prefix;
        for (int64_t i = threadIdx.x; i < n; i += SELECT_THREADS) {
            const uint32_t rank = rank_of(scores[i]);
            if ((rank & high) == want) atomicAdd(&counts[rank >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255;
            while (digit > 0 && counts[digit] < left) left -= counts[digit--];
            prefix |= (uint32_t)digit << shift;
        }
        __syncthreads();
    }
    *above = k - left;
    return prefix;
}

static __global__ void select_kernel(struct selection s) {
    const int64_t q = blockIdx.x;
    int32_t *ids = s.op.ids + q * s.op.ids_stride;
    int64_t n;
    const bool chooses = visible(s, q, &n);
    const int k = chooses ? s.op.top_k : (int)n;
    const int64_t end = s.op.ids_stride < s.op.top_k ? s.op.ids_stride : s.op.top_k;
    if (threadIdx.x == 0) s.op.counts[q] = k;
    for (int64_t i = k + threadIdx.x; i < end; i += SELECT_THREADS) ids[i] = -1;
    if (!chooses) {
        for (int64_t i = threadIdx.x; i < n; i += SELECT_THREADS) ids[i] = (int32_t)i;
        return;
    }
    const float *scores = s.scores + q * s.n_context;
    int above;
    const uint32_t last = find_rank(scores, n, k, &above);
    int taken = 0, equal = 0; // before this tile
    for (int64_t begin = 0; begin < n && taken < k; begin += SELECT_THREADS) {
        const int64_t i = begin + threadIdx.x;
        const uint32_t rank = i < n ? rank_of(scores[i]) : 0;
        const bool is_equal = i < n && rank == last;
        int n_equal, n_taken;
        const int equals_before = equal + count_before(is_equal, &n_equal);
        const bool takes = (i < n && rank > last) || (is_equal && equals_before < k - above);
        const int at = taken + count_before(takes, &n_taken);
        if (takes) ids[at] = (int32_t)i;
        taken += n_taken;
        equal += n_equal;
    }
}

void lp_cuda_index_select_plain(struct lp_device *device, const struct lp_op_index_select *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    const int64_t most = dev->scratch.score_rows;
    for (int64_t first = 0; first < op->n_queries && !dev->error; first += most) {
        const int64_t left = op->n_queries - first, n = left < most ? left : most,
                      n_keys = op->batch ? op->batch->most_keys : op->first_pos + first + n;
        struct selection s = {};
        s.op = *op;
        s.op.q += first * op->q_stride;
        s.op.w += first * op->w_stride;
        s.op.ids += first * op->ids_stride;
        s.op.counts += first;
        s.op.first_pos += first;
        s.keys = lp_cuda_cache_of(op->keys);
        s.batch = lp_cuda_batch_from(lp_cuda_batch_of(op->batch), first);
        s.type = (int)(op->keys->n_tail ? LP_TYPE_BF16 : op->keys->type); // of no whole blocks
        s.scores = dev->scratch.scores;
        s.n_context = dev->sizes.n_context;
        if (n_keys > op->top_k) {
            const unsigned pieces = lp_cuda_blocks(n_keys, LP_CUDA_WARPS * KEYS_PER_WARP);
            score_kernel<<<pieces *(unsigned)n, LP_CUDA_THREADS,
                           LP_CUDA_WARPS *(size_t)op->width * sizeof(float), dev->stream>>>(
                s, pieces, dev->tables);
            LP_CUDA_LAUNCHED(dev, "index_select (scores)");
        }
        select_kernel<<<(unsigned)n, SELECT_THREADS, 0, dev->stream>>>(s);
        LP_CUDA_LAUNCHED(dev, "index_select");
    }
}
