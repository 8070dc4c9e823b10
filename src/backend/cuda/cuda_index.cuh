// The lightning indexer by the matrix units: kernels for keys of 128 F16 or BF16 values and up to 64
// heads (cuda_indexer_mma.cu starts them; the plain ones are in cuda_indexer.cu).
//
// Scores are float32: a key's values are exact in its type, a query is split into parts of that type
// whose sum is the query (to 2^-22 in two F16 parts, to 2^-24 in three BF16 parts), products are exact,
// and the sums over the width and over the heads run in float32 in one order for every key. A key of an FP8
// cache is its codes, exact as F16, and its sum is multiplied by its scale.
//
//   1. score    a block: one query, a run of keys; a warp: 32 keys, all heads. A key is read once, from
//               global memory into the registers of the matrix units: of every 32 values a lane takes
//               8 neighbours, and the query's values are permuted alike. Counts keys by the first 12
//               bits of their rank (rank_of).
//   2. narrow   a block: one query, a chunk of keys. The 12 bits of the last key to keep are known from the
//               counts; keys of these 12 bits are candidates, those above are in.
//   3. choose   a block: one query, a chunk of keys. Each block ranks the candidates (few, but for ties), so
//               it knows the last one to keep and how many of the keys before its own are kept, and
//               writes the positions of its own ones.
#ifndef LP_BACKEND_CUDA_CUDA_INDEX_CUH
#define LP_BACKEND_CUDA_CUDA_INDEX_CUH

#include "backend/backend.h"
#include "backend/cuda/cuda_f8.cuh"

#define LP_INDEX_WIDTH 128
#define LP_INDEX_HEADS 64
#define LP_INDEX_THREADS 256
#define LP_INDEX_WARPS (LP_INDEX_THREADS / LP_CUDA_WARP)
#define LP_INDEX_EACH 16 // most keys of a thread of narrow and choose
#define LP_INDEX_BINS LP_CUDA_INDEX_BINS
#define LP_INDEX_BIN_SHIFT 20

struct lp_cuda_index {
    struct lp_op_index_select op; // q, w, ids, counts: of the first query of the launch
    struct lp_cuda_cache keys;
    struct lp_cuda_batch batch;
    bool whole_chunks;   // rows lie at multiples of 16 bytes
    int64_t n_context;   // stride of scores and candidates
    int run_keys;        // of a block of score: a multiple of 256
    int n_chunks;        // of a query, at most; stride of above
    int each;            // keys of a thread of narrow and choose, at most LP_INDEX_EACH
    float *scores;       // [n_queries, n_context]
    int32_t *bins;       // [n_queries, LP_INDEX_BINS]: zero before and after the three kernels
    int32_t *state;      // [n_queries, 4]: candidates, their 12 bits, keys above
    int32_t *above;      // [n_queries, n_chunks]: keys above the candidates
    int32_t *candidates; // [n_queries, n_context]: positions, in any order
};

// Keys that query q sees, and whether it has to choose among them.
static __device__ __forceinline__ bool lp_index_visible(const struct lp_cuda_index &s, int64_t q,
                                                        int *n) {
    *n = (int)lp_cuda_position(s.batch, s.op.first_pos, q) + 1;
    return *n > s.op.top_k;
}

// Whole numbers in the order of scores: NaN above all, -0 = +0.
static __device__ __forceinline__ uint32_t lp_index_rank(float score) {
    if (isnan(score)) return 0xffffffffu;
    const uint32_t bits = __float_as_uint(score == 0 ? 0.0f : score);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// ---- scores

template <int CACHE> struct lp_index_parts {
    static constexpr int type = CACHE == LP_TYPE_BF16 ? LP_TYPE_BF16 : LP_TYPE_F16;
    static constexpr int n = type == LP_TYPE_F16 ? 2 : 3;
};

static inline size_t lp_index_shared_bytes(int n_heads, int n_parts) {
    return (size_t)n_parts * ((n_heads + 7) / 8) * 4 * 512 + LP_CUDA_SHARED_PAD;
}

// The query's parts in the order in which lanes read them: [part][head / 8][width / 32][lane][8]; and
// the factor of each head's products: its weight, over the power of two that a F16 query is
// multiplied by so that its parts are in range.
template <int TYPE>
static __device__ __forceinline__ void
lp_index_split_query(const struct lp_cuda_index &s, int64_t q, uint8_t *parts, float *factors) {
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP,
              blocks = (s.op.n_heads + 7) / 8;
    for (int h = warp; h < blocks * 8; h += LP_INDEX_WARPS) {
        const bool there = h < s.op.n_heads;
        const float *from = s.op.q + q * s.op.q_stride + h * LP_INDEX_WIDTH + 4 * lane;
        float x[4], largest = 0, power = 1.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[i] = there ? from[i] : 0.0f;
            largest = fmaxf(largest, fabsf(x[i]));
        }
        if (TYPE == LP_TYPE_F16) {
            for (int step = 16; step > 0; step /= 2)
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
            power = lp_cuda_power_to_range(largest);
        }
        // Values 4 lane ... + 3: group lane / 8, the half lane % 2 of the eight of lane / 2 % 4.
        const int group = lane / 8, reader = h % 8 * 4 + lane / 2 % 4;
        uint8_t *to = parts + ((h / 8 * 4 + group) * 32 + reader) * 16 + lane % 2 * 8;
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] *= power;
#pragma unroll
        for (int part = 0; part < lp_index_parts<TYPE>::n; part++) {
            const uint32_t first = lp_cuda_pack2<TYPE>(x[0], x[1]),
                           second = lp_cuda_pack2<TYPE>(x[2], x[3]);
            float y[4];
            lp_cuda_unpack2<TYPE>(first, &y[0], &y[1]);
            lp_cuda_unpack2<TYPE>(second, &y[2], &y[3]);
            ((uint32_t *)to)[0] = first;
            ((uint32_t *)to)[1] = second;
            to += blocks * 4 * 512;
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] = isfinite(x[i]) ? x[i] - y[i] : 0.0f;
        }
        if (lane == 0) factors[h] = there ? s.op.w[q * s.op.w_stride + h] / power : 0.0f;
    }
}

static __device__ __forceinline__ uint4 lp_index_load16(const uint8_t *from, bool whole) {
    if (whole) return *(const uint4 *)from;
    const uint32_t *f = (const uint32_t *)from;
    return make_uint4(f[0], f[1], f[2], f[3]);
}

// Eight codes as F16.
static __device__ __forceinline__ uint4 lp_index_load_f8(const uint8_t *row, int i) {
    const uint32_t *codes = lp_cuda_f8_codes(row, i);
    const uint32_t a = codes[0], b = codes[1];
    return make_uint4(lp_cuda_f8_halves(a, false), lp_cuda_f8_halves(a, true),
                      lp_cuda_f8_halves(b, false), lp_cuda_f8_halves(b, true));
}

// Keys pos + 16 tile + lane / 4 + {0, 8} of a warp, behind the last one that one again. scales: what their
// products are multiplied by.
template <int CACHE>
static __device__ __forceinline__ void
lp_index_load_keys(const struct lp_cuda_index &s, const int32_t *pages, int pos, int n,
                   uint4 (&keys)[2][2][4], float (&scales)[2][2]) {
    const int lane = threadIdx.x % LP_CUDA_WARP;
#pragma unroll
    for (int tile = 0; tile < 2; tile++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int slot = min(pos + 16 * tile + 8 * i + lane / 4, n - 1) + s.keys.slot_offset,
                      page = slot / s.keys.page_tokens;
            const uint8_t *row = s.keys.base + (size_t)pages[page] * s.keys.page_bytes +
                                 (size_t)(slot - page * s.keys.page_tokens) * s.keys.row_bytes;
            scales[tile][i] =
                CACHE == LP_TYPE_F8_E4M3 ? LP_CUDA_F8_UNIT * lp_cuda_f8_scale(row, 0) : 1.0f;
#pragma unroll
            for (int g = 0; g < 4; g++)
                keys[tile][i][g] =
                    CACHE == LP_TYPE_F8_E4M3
                        ? lp_index_load_f8(row, g * 32 + lane % 4 * 8)
                        : lp_index_load16(row + g * 64 + lane % 4 * 16, s.whole_chunks);
        }
}

// Sums over the heads of one warp's 32 keys: sums[tile][i] as in load_keys, in all four lanes of a key.
template <int TYPE>
static __device__ __forceinline__ void
lp_index_sum_heads(const uint8_t *parts, const float *factors, int blocks,
                   const uint4 (&keys)[2][2][4], float (&sums)[2][2]) {
    const int lane = threadIdx.x % LP_CUDA_WARP;
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i / 2][i % 2] = 0;
    for (int block = 0; block < blocks; block++) {
        float dots[2][4] = {};
#pragma unroll
        for (int part = lp_index_parts<TYPE>::n - 1; part >= 0; part--) // small ones first
#pragma unroll
            for (int g = 0; g < 4; g++) {
                const uint4 q =
                    ((const uint4 *)parts)[((part * blocks + block) * 4 + g) * 32 + lane];
#pragma unroll
                for (int tile = 0; tile < 2; tile++) {
                    const uint4 a = keys[tile][0][g], b = keys[tile][1][g];
                    const uint32_t low[4] = {a.x, b.x, a.y, b.y}, high[4] = {a.z, b.z, a.w, b.w};
                    lp_cuda_mma<TYPE>(dots[tile], low, q.x, q.y);
                    lp_cuda_mma<TYPE>(dots[tile], high, q.z, q.w);
                }
            }
        const float2 factor = ((const float2 *)factors)[block * 4 + lane % 4];
#pragma unroll
        for (int tile = 0; tile < 2; tile++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float a = dots[tile][2 * i], b = dots[tile][2 * i + 1];
                sums[tile][i] = fmaf(factor.x, a <= 0 ? 0.0f : a, sums[tile][i]);
                sums[tile][i] = fmaf(factor.y, b <= 0 ? 0.0f : b, sums[tile][i]);
            }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float &sum = sums[i / 2][i % 2];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    }
}

// The score of a key by the formula: parts of a query times infinity are NaN where the query's product
// is infinite, so what is not finite is done again.
template <int CACHE>
static __device__ float lp_index_score_plain(const struct lp_cuda_index &s, int64_t q, int pos) {
    const bool f8 = CACHE == LP_TYPE_F8_E4M3;
    const uint8_t *row = lp_cuda_cache_row(lp_cuda_cache_for(s.keys, s.batch, q), pos);
    const uint32_t *key = f8 ? lp_cuda_f8_codes(row, 0) : (const uint32_t *)row;
    float score = 0;
    for (int h = 0; h < s.op.n_heads; h++) {
        const float *query = s.op.q + q * s.op.q_stride + h * LP_INDEX_WIDTH;
        float dot = 0;
        for (int i = 0; i < LP_INDEX_WIDTH / 2; i++) {
            float low, high;
            if (f8)
                lp_cuda_unpack2<LP_TYPE_F16>(lp_cuda_f8_halves(key[i / 2], i % 2), &low, &high);
            else
                lp_cuda_unpack2<lp_index_parts<CACHE>::type>(key[i], &low, &high);
            dot = fmaf(query[2 * i], low, dot);
            dot = fmaf(query[2 * i + 1], high, dot);
        }
        score = fmaf(s.op.w[q * s.op.w_stride + h], dot <= 0 ? 0.0f : dot, score);
    }
    return f8 ? score * (LP_CUDA_F8_UNIT * lp_cuda_f8_scale(row, 0)) : score;
}

// Grid: runs of keys along x, queries along y. TYPE: of the products.
template <int CACHE>
static __device__ __forceinline__ void lp_index_score(const struct lp_cuda_index &s) {
    constexpr int TYPE = lp_index_parts<CACHE>::type;
    LP_CUDA_SHARED(parts);
    __shared__ float factors[LP_INDEX_HEADS];
    __shared__ int bins[LP_INDEX_BINS];
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    const int64_t q = blockIdx.y;
    const int begin = (int)blockIdx.x * s.run_keys;
    int n;
    if (!lp_index_visible(s, q, &n) || begin >= n) return;
    if (blockIdx.x == 0 && threadIdx.x == 0) s.state[4 * q] = 0; // candidates of narrow
    for (int i = threadIdx.x; i < LP_INDEX_BINS; i += LP_INDEX_THREADS) bins[i] = 0;
    lp_index_split_query<TYPE>(s, q, parts, factors);
    __syncthreads();
    const int32_t *pages = lp_cuda_cache_for(s.keys, s.batch, q).pages;
    const int end = min(n, begin + s.run_keys), blocks = (s.op.n_heads + 7) / 8;
    for (int pos = begin + 32 * warp; pos < end; pos += 32 * LP_INDEX_WARPS) {
        uint4 keys[2][2][4];
        float sums[2][2], scales[2][2];
        lp_index_load_keys<CACHE>(s, pages, pos, n, keys, scales);
        lp_index_sum_heads<TYPE>(parts, factors, blocks, keys, sums);
        if (CACHE == LP_TYPE_F8_E4M3)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[i / 2][i % 2] *= scales[i / 2][i % 2];
        const float first = lane % 2 ? sums[0][1] : sums[0][0],
                    second = lane % 2 ? sums[1][1] : sums[1][0];
        float score = lane % 4 / 2 ? second : first; // each of the four lanes takes one of its keys
        const int key = pos + lane % 4 / 2 * 16 + lane % 2 * 8 + lane / 4;
        if (key < end) {
            if (!isfinite(score)) score = lp_index_score_plain<CACHE>(s, q, key);
            score *= s.op.scale;
            s.scores[q * s.n_context + key] = score;
            atomicAdd(&bins[lp_index_rank(score) >> LP_INDEX_BIN_SHIFT], 1);
        }
        __syncwarp();
    }
    __syncthreads();
    for (int i = threadIdx.x; i < LP_INDEX_BINS; i += LP_INDEX_THREADS)
        if (bins[i]) atomicAdd(&s.bins[q * LP_INDEX_BINS + i], bins[i]);
}

// ---- counting in a block

// The sum of x over the threads of lower number; *total: over all. Every thread calls it.
static __device__ __forceinline__ int lp_index_sum_before(int x, int *total) {
    __shared__ int of_warp[LP_INDEX_WARPS];
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    int sum = x;
    for (int step = 1; step < LP_CUDA_WARP; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
    }
    __syncthreads(); // of_warp may still be read from the call before
    if (lane == LP_CUDA_WARP - 1) of_warp[warp] = sum;
    __syncthreads();
    int before = sum - x, all = 0;
    for (int i = 0; i < LP_INDEX_WARPS; i++) {
        if (i < warp) before += of_warp[i];
        all += of_warp[i];
    }
    *total = all;
    return before;
}

// Of N bins, counts[i] keys in bin i, from the last bin on: the bin that holds key number k (from 1);
// *above: how many are in later bins. Every thread calls it and gets both.
template <int N>
static __device__ __forceinline__ int lp_index_find_bin(const int *counts, int k, int *above) {
    __shared__ int found[2];
    constexpr int each = N / LP_INDEX_THREADS;
    const int last = N - 1 - (int)threadIdx.x * each;
    int sum = 0, total;
    for (int i = 0; i < each; i++) sum += counts[last - i];
    int before = lp_index_sum_before(sum, &total);
    if (before < k && k <= before + sum)
        for (int i = 0; i < each; i++) {
            if (before < k && k <= before + counts[last - i]) {
                found[0] = last - i;
                found[1] = before;
            }
            before += counts[last - i];
        }
    __syncthreads();
    const int bin = found[0];
    *above = found[1];
    __syncthreads(); // found may be written by the next call
    return bin;
}

// ---- candidates

// Grid as choose: chunks along x, queries along y.
static __device__ __forceinline__ void lp_index_narrow(const struct lp_cuda_index &s) {
    const int64_t q = blockIdx.y;
    const int begin = (int)blockIdx.x * LP_INDEX_THREADS * s.each,
              lane = threadIdx.x % LP_CUDA_WARP;
    int n, above, in = 0, total;
    if (!lp_index_visible(s, q, &n) || begin >= n) return;
    const uint32_t bin =
        (uint32_t)lp_index_find_bin<LP_INDEX_BINS>(s.bins + q * LP_INDEX_BINS, s.op.top_k, &above);
    const float *scores = s.scores + q * s.n_context;
    const int first = begin + (int)threadIdx.x * s.each;
    uint32_t mine = 0; // candidates
#pragma unroll 4
    for (int i = 0; i < s.each; i++) {
        if (first + i >= n) break;
        const uint32_t of_key = lp_index_rank(scores[first + i]) >> LP_INDEX_BIN_SHIFT;
        mine |= (uint32_t)(of_key == bin) << i;
        in += of_key > bin;
    }
    int up_to = __popc(mine);
    for (int step = 1; step < LP_CUDA_WARP; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, up_to, step);
        if (lane >= step) up_to += other;
    }
    int at = 0;
    if (lane == LP_CUDA_WARP - 1 && up_to) at = atomicAdd(&s.state[4 * q], up_to);
    at = __shfl_sync(0xffffffffu, at, LP_CUDA_WARP - 1) + up_to - __popc(mine);
    for (; mine; mine &= mine - 1) s.candidates[q * s.n_context + at++] = first + __ffs(mine) - 1;
    lp_index_sum_before(in, &total);
    if (threadIdx.x != 0) return;
    s.above[q * s.n_chunks + blockIdx.x] = total;
    if (blockIdx.x == 0) {
        s.state[4 * q + 1] = (int32_t)bin;
        s.state[4 * q + 2] = above;
    }
}

// ---- choice

struct
    lp_index_last { // what is kept: ranks above `rank`, and of that rank positions up to `position`
    uint32_t rank;
    int position;
};

static __device__ __forceinline__ bool lp_index_keeps(const struct lp_index_last &last,
                                                      uint32_t rank, int position) {
    return rank > last.rank || (rank == last.rank && position <= last.position);
}

// Key number k (from 1) among the candidates, by rank, then lower position.
static __device__ __forceinline__ struct lp_index_last
lp_index_find_last(const float *scores, const int32_t *candidates, int n, uint32_t bin, int k) {
    __shared__ int counts[1024];
    uint32_t known = bin << LP_INDEX_BIN_SHIFT, mask = 0xffffffffu << LP_INDEX_BIN_SHIFT;
    int above;
    for (int shift = 10; shift >= 0; shift -= 10) { // the low 20 bits of the rank
        for (int i = threadIdx.x; i < 1024; i += LP_INDEX_THREADS) counts[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += LP_INDEX_THREADS) {
            const uint32_t rank = lp_index_rank(scores[candidates[i]]);
            if ((rank & mask) == known) atomicAdd(&counts[rank >> shift & 1023], 1);
        }
        __syncthreads();
        known |= (uint32_t)lp_index_find_bin<1024>(counts, k, &above) << shift;
        mask |= 1023u << shift;
        k -= above;
    }
    struct lp_index_last last = {known, 0};
    uint32_t at = 0; // of ~position, whose k largest are the lowest positions
    mask = 0;
    if (counts[known & 1023] == k) { // all of this rank are kept
        last.position = INT32_MAX;
        return last;
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        for (int i = threadIdx.x; i < 256; i += LP_INDEX_THREADS) counts[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += LP_INDEX_THREADS) {
            const uint32_t turned = ~(uint32_t)candidates[i];
            if (lp_index_rank(scores[candidates[i]]) == known && (turned & mask) == at)
                atomicAdd(&counts[turned >> shift & 255], 1);
        }
        __syncthreads();
        at |= (uint32_t)lp_index_find_bin<256>(counts, k, &above) << shift;
        mask |= 255u << shift;
        k -= above;
    }
    last.position = (int)~at;
    return last;
}

// A query that sees no more than top_k keys keeps them all.
static __device__ __forceinline__ void lp_index_keep_all(const struct lp_cuda_index &s,
                                                         int32_t *ids, int n) {
    const int64_t end = s.op.ids_stride < s.op.top_k ? s.op.ids_stride : s.op.top_k;
    for (int64_t i = threadIdx.x; i < end; i += LP_INDEX_THREADS) ids[i] = i < n ? (int32_t)i : -1;
}

static __device__ __forceinline__ void lp_index_choose(const struct lp_cuda_index &s) {
    const int64_t q = blockIdx.y;
    const int begin = (int)blockIdx.x * LP_INDEX_THREADS * s.each;
    int32_t *ids = s.op.ids + q * s.op.ids_stride;
    int n, at, total;
    const bool chooses = lp_index_visible(s, q, &n);
    if (begin >= n) return;
    if (blockIdx.x == 0 && threadIdx.x == 0) s.op.counts[q] = chooses ? s.op.top_k : n;
    if (!chooses) {
        if (blockIdx.x == 0) lp_index_keep_all(s, ids, n);
        return;
    }
    const float *scores = s.scores + q * s.n_context;
    const int32_t *candidates = s.candidates + q * s.n_context;
    const int n_candidates = s.state[4 * q];
    const struct lp_index_last last =
        lp_index_find_last(scores, candidates, n_candidates, (uint32_t)s.state[4 * q + 1],
                           s.op.top_k - s.state[4 * q + 2]);
    int before = 0; // kept keys of the chunks before
    for (int i = threadIdx.x; i < (int)blockIdx.x; i += LP_INDEX_THREADS)
        before += s.above[q * s.n_chunks + i];
    for (int i = threadIdx.x; i < n_candidates; i += LP_INDEX_THREADS)
        before += candidates[i] < begin &&
                  lp_index_keeps(last, lp_index_rank(scores[candidates[i]]), candidates[i]);
    lp_index_sum_before(before, &at);
    const int first = begin + (int)threadIdx.x * s.each;
    uint32_t mine = 0; // kept keys
#pragma unroll 4
    for (int i = 0; i < s.each; i++)
        if (first + i < n && lp_index_keeps(last, lp_index_rank(scores[first + i]), first + i))
            mine |= 1u << i;
    at += lp_index_sum_before(__popc(mine), &total);
    for (; mine; mine &= mine - 1) ids[at++] = first + __ffs(mine) - 1;
    if (blockIdx.x == 0) // for the next call
        for (int i = threadIdx.x; i < LP_INDEX_BINS; i += LP_INDEX_THREADS)
            s.bins[q * LP_INDEX_BINS + i] = 0;
}

#endif
