// The kernel of attention over cached latents, for cuda_mla_decode.cu (mma.sync) and
// cuda_mla_decode_sm90.cu (wgmma), which differ in the products alone (struct Math).
//
// A block of 8 warps keeps in shared memory its 64 rows of queries, tiles of 64 keys (a row of the
// cache is read once for all heads, as key and as value) and the softmax weights of one tile:
//
//   queries [9 panels][64 rows][64]   72 KiB     latent 512, rotated part 64
//   tile    [9 panels][64 keys][64]   72 KiB     each of STAGES; the next ones arrive meanwhile
//   weights [64 rows][64 keys]         8 KiB
//
// Warp w takes rows 16 (w % 4) ... + 15. Of these the first four warps score keys 0 ... 31 and make
// output values 0 ... 255, the other four the rest. Per tile:
//   1. scores: 64 x 64 x 576; their largest, over both halves
//   2. weights exp2(score - largest so far), as 16-bit numbers into shared memory; the output so far
//      is scaled when the largest grew
//   3. output += weights x tile: 64 x 512 x 64
// Queries and weights are rounded to the type of the cache (F16 queries times a power of two, so that
// their range is no concern), products are exact, sums float32. The sum of weights is of the rounded
// ones.
//
// Keys behind a row's last one weigh exactly 0, and their values are finite: rows of no key are
// zeros, and where queries that see different keys share a block, a value that is not finite becomes 0
// once a row must not see it. (For a row that sees it, every output is NaN: a score that is not
// finite counts as NaN.)
#ifndef LP_BACKEND_CUDA_CUDA_LATENT_CUH
#define LP_BACKEND_CUDA_CUDA_LATENT_CUH

#include "backend/cuda/cuda_latent.h"
#include "backend/cuda/cuda_mma.cuh"

#define LP_LATENT_THREADS 256
#define LP_LATENT_PANELS 9
#define LP_LATENT_PANEL_BYTES (64 * 128)
#define LP_LATENT_TILE_BYTES (LP_LATENT_PANELS * LP_LATENT_PANEL_BYTES)

struct lp_latent_stats { // of a block's rows; behind the tiles
    float most[2][64];   // largest score of a tile, by halves of the keys
    float sums[2][64];
    float factors[64];   // of raw scores: scale, log2(e), a query's power of two
    uint8_t spoiled[64]; // keys of the tile that some row must not see, and that are not finite
};

static constexpr size_t lp_latent_shared_bytes(int stages) {
    return (size_t)(1 + stages) * LP_LATENT_TILE_BYTES + LP_LATENT_PANEL_BYTES +
           sizeof(struct lp_latent_stats) + LP_CUDA_SHARED_PAD;
}

struct lp_latent_block { // where a block stands in the launch
    const struct lp_cuda_latent_run *run;
    int query, n_queries; // its queries
    int head, n_heads;    // its heads; row r: query + r / n_heads, head + r % n_heads
    int n_least, n_most;  // keys that its queries see
    int begin, end;       // its segment of them
};

static __device__ __forceinline__ int lp_latent_seen(const struct lp_cuda_latent_run *run, int q) {
    return run->ids ? run->counts[q] : run->first_pos + q + 1;
}

static __device__ __forceinline__ struct lp_latent_block
lp_latent_locate(const struct lp_cuda_latent_launch &a, int block) {
    struct lp_latent_block b;
    int i = 0;
    while (i + 1 < a.n_runs && block >= a.runs[i + 1].first_block) i++;
    b.run = &a.runs[i];
    block -= b.run->first_block;
    const int heads = block % a.head_blocks, segment = block / a.head_blocks % b.run->n_segments;
    b.query = block / a.head_blocks / b.run->n_segments * b.run->together;
    b.n_queries = min(b.run->together, b.run->n_queries - b.query);
    b.head = heads * LP_CUDA_LATENT_ROWS;
    b.n_heads = min(a.n_heads - b.head, LP_CUDA_LATENT_ROWS);
    b.n_least = lp_latent_seen(b.run, b.query);
    b.n_most = lp_latent_seen(b.run, b.query + b.n_queries - 1);
    const int keys = lp_cuda_segment_keys(a.segments, b.n_most);
    b.begin = segment * keys;
    b.end = min(b.n_most, b.begin + keys);
    return b;
}

// ---- queries

// A warp a row: to the type of the cache, into the panels; and the factor of its scores.
template <int TYPE>
static __device__ __forceinline__ void
lp_latent_load_queries(const struct lp_cuda_latent_launch &a, const struct lp_latent_block &b,
                       uint8_t *queries, float *factors, int n_threads) {
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    for (int r = warp; r < LP_CUDA_LATENT_ROWS; r += n_threads / LP_CUDA_WARP) {
        const int q = b.query + r / b.n_heads, h = b.head + r % b.n_heads;
        const bool there = r < b.n_queries * b.n_heads;
        const float *latent = b.run->q_latent + q * a.q_latent_stride + h * LP_CUDA_LATENT,
                    *rope = b.run->q_rope + q * a.q_rope_stride + h * a.q_rope_head_stride;
        float x[LP_LATENT_PANELS][2], power = 1.0f;
#pragma unroll
        for (int p = 0; p < LP_LATENT_PANELS; p++) {
            const float *from = p < 8 ? latent + p * 64 : rope;
            x[p][0] = there ? from[2 * lane] : 0.0f;
            x[p][1] = there ? from[2 * lane + 1] : 0.0f;
        }
        if (TYPE == LP_TYPE_F16) {
            float largest = 0;
#pragma unroll
            for (int p = 0; p < LP_LATENT_PANELS; p++)
                largest = fmaxf(largest, fmaxf(fabsf(x[p][0]), fabsf(x[p][1])));
            for (int step = 16; step > 0; step /= 2)
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
            power = lp_cuda_power_to_range(largest);
        }
#pragma unroll
        for (int p = 0; p < LP_LATENT_PANELS; p++)
            *(uint32_t *)(queries + p * LP_LATENT_PANEL_BYTES + lp_cuda_tile_at(r, lane / 4) +
                          lane % 4 * 4) = lp_cuda_pack2<TYPE>(x[p][0] * power, x[p][1] * power);
        if (lane == 0) factors[r] = a.scale * 1.44269504f / power;
    }
}

// ---- tiles: a thread copies chunk threadIdx % 8 of every panel of two rows

struct lp_latent_loader {
    const uint8_t *rows[2]; // of the tile that is copied next
    int n_bytes[2];         // 16, or 0 where there is no key
    int position[2];        // of the tile behind it; -1: no key
    int at;                 // index of that tile's first key in the list
};

static __device__ __forceinline__ void lp_latent_find_rows(struct lp_latent_loader *l,
                                                           const struct lp_cuda_latent_launch &a,
                                                           const struct lp_latent_block &b) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int slot = max(l->position[i], 0) + a.slot_offset, page = slot / a.page_tokens;
        l->rows[i] = a.base;
        l->n_bytes[i] = 0;
        if (l->position[i] >= 0) {
            l->rows[i] += (size_t)b.run->pages[page] * a.page_bytes +
                          (size_t)(slot - page * a.page_tokens) * a.row_bytes;
            l->n_bytes[i] = 16;
        }
    }
}

// The rows of the tile whose positions are known; the positions of the one behind.
static __device__ __forceinline__ void lp_latent_advance(struct lp_latent_loader *l,
                                                         const struct lp_cuda_latent_launch &a,
                                                         const struct lp_latent_block &b) {
    lp_latent_find_rows(l, a, b);
    l->at += LP_CUDA_LATENT_KEYS;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int key = l->at + (int)(threadIdx.x % LP_LATENT_THREADS) / 8 + 32 * i;
        l->position[i] = -1;
        if (key < b.end)
            l->position[i] = b.run->ids ? b.run->ids[(size_t)b.query * b.run->k + key] : key;
    }
}

static __device__ __forceinline__ void lp_latent_begin(struct lp_latent_loader *l,
                                                       const struct lp_cuda_latent_launch &a,
                                                       const struct lp_latent_block &b) {
    l->at = b.begin - LP_CUDA_LATENT_KEYS;
    l->position[0] = l->position[1] = -1;
    lp_latent_advance(l, a, b);
    lp_latent_advance(l, a, b);
}

static __device__ __forceinline__ void lp_latent_copy(const struct lp_latent_loader *l,
                                                      const struct lp_cuda_latent_launch &a,
                                                      uint32_t tile) {
    const int chunk = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t to =
            tile + lp_cuda_tile_at(threadIdx.x % LP_LATENT_THREADS / 8 + 32 * i, chunk);
#pragma unroll
        for (int p = 0; p < LP_LATENT_PANELS; p++) {
            const uint8_t *from = l->rows[i] + (l->n_bytes[i] ? p * 128 + chunk * 16 : 0);
            if (a.whole_chunks)
                lp_cuda_copy16(to + p * LP_LATENT_PANEL_BYTES, from, l->n_bytes[i]);
            else
                lp_cuda_copy16_of_4(to + p * LP_LATENT_PANEL_BYTES, from, l->n_bytes[i]);
        }
    }
}

// ---- softmax: a thread has rows r and r + 8 (r = 16 (warp % 4) + lane / 4), of each the keys
// first + 8 n + 2 (lane % 4) + {0, 1} at s[4 n + {0, 1}] and s[4 n + 2 + {0, 1}], n < N

struct lp_latent_rows {
    int row[2];    // in the block
    int seen[2];   // keys that they see
    float most[2]; // largest score so far
    float sum[2];  // of this thread's weights
    float factor[2];
};

static __device__ __forceinline__ void lp_latent_init_rows(struct lp_latent_rows *rows,
                                                           const struct lp_latent_block &b,
                                                           const float *factors) {
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = warp % 4 * 16 + lane / 4 + 8 * i;
        rows->row[i] = r;
        rows->seen[i] = lp_latent_seen(b.run, b.query + min(r / b.n_heads, b.n_queries - 1));
        rows->most[i] = -INFINITY;
        rows->sum[i] = 0;
        rows->factor[i] = factors[r];
    }
}

// Scores in units of log2; -infinity where the row does not see the key. most: the largest of each row
// among these keys. at: index of the tile's first key.
template <int N>
static __device__ __forceinline__ void
lp_latent_scale(float (&s)[4 * N], const struct lp_latent_rows &rows, struct lp_latent_stats *stats,
                int at, int first, bool partly_seen, bool shared, float (&most)[2]) {
    const int lane = threadIdx.x % LP_CUDA_WARP;
    most[0] = most[1] = -INFINITY;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = j / 2, key = first + 8 * n + 2 * (lane % 4) + j % 2;
            const float raw = s[4 * n + j];
            float x = raw == -INFINITY ? NAN : raw * rows.factor[i];
            if (partly_seen && at + key >= rows.seen[i]) {
                if (shared && !isfinite(raw)) stats->spoiled[key] = 1;
                x = -INFINITY;
            }
            s[4 * n + j] = x;
            most[i] = fmaxf(most[i], x); // a NaN makes its weight, and so the row, NaN
        }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], 1));
        most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], 2));
    }
}

// Weights into shared memory. most: the largest score of the tile; scale[i]: the factor of row i's
// output and sum so far.
template <int TYPE, int N>
static __device__ __forceinline__ void
lp_latent_weigh(const float (&s)[4 * N], struct lp_latent_rows *rows, const float (&most)[2],
                uint8_t *weights, int first, float (&scale)[2]) {
    const int lane = threadIdx.x % LP_CUDA_WARP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float now = fmaxf(rows->most[i], most[i]), from = now == -INFINITY ? 0.0f : now;
        float sum = 0;
        scale[i] = exp2f(rows->most[i] - from);
        rows->most[i] = now;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const uint32_t pair = lp_cuda_pack2<TYPE>(exp2f(s[4 * n + 2 * i] - from),
                                                      exp2f(s[4 * n + 2 * i + 1] - from));
            float low, high;
            lp_cuda_unpack2<TYPE>(pair, &low, &high);
            sum += low + high;
            *(uint32_t *)(weights + lp_cuda_tile_at(rows->row[i], first / 8 + n) + lane % 4 * 4) =
                pair;
        }
        rows->sum[i] = rows->sum[i] * scale[i] + sum;
    }
}

static __device__ __forceinline__ void lp_latent_rescale(float (&o)[128], const float (&scale)[2]) {
    if (__all_sync(0xffffffffu, scale[0] == 1.0f && scale[1] == 1.0f)) return;
#pragma unroll
    for (int n = 0; n < 32; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) o[4 * n + j] *= scale[j / 2];
}

// Values of keys that are spoiled become zeros; n_threads / 64 threads a row.
static __device__ __forceinline__ void lp_latent_clear(const struct lp_latent_stats *stats,
                                                       uint8_t *tile, int n_threads) {
    const int each = n_threads / LP_CUDA_LATENT_KEYS, thread = (int)threadIdx.x % n_threads,
              row = thread / each;
    if (!stats->spoiled[row]) return;
    for (int i = thread % each; i < LP_CUDA_LATENT / 8; i += each)
        *(uint4 *)(tile + i / 8 * LP_LATENT_PANEL_BYTES + lp_cuda_tile_at(row, i % 8)) =
            make_uint4(0, 0, 0, 0);
}

// ---- results

static __device__ __forceinline__ void lp_latent_put(float *to, float a, float b) {
    if (((uintptr_t)to & 7) == 0)
        *(float2 *)to = make_float2(a, b);
    else {
        to[0] = a;
        to[1] = b;
    }
}

// This thread's sums of weights, over the four lanes of a row, to sums[row].
static __device__ __forceinline__ void lp_latent_put_sums(const struct lp_latent_rows &rows,
                                                          float *sums) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = rows.sum[i];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (threadIdx.x % 4 == 0) sums[rows.row[i]] = sum;
    }
}

// Values first ... + 255 of a row (o: [4 n + 2 i + {0, 1}] is value first + 8 n + 2 (lane % 4) + {0, 1}
// of its row i): divided by its sum, to the output; of one segment among several, as they are.
static __device__ __forceinline__ void lp_latent_put_row(const struct lp_cuda_latent_launch &a,
                                                         const struct lp_latent_block &b, int r,
                                                         float most, float sum, int first,
                                                         const float (&o)[128], int i) {
    const int lane = threadIdx.x % LP_CUDA_WARP, q = b.query + r / b.n_heads,
              h = b.head + r % b.n_heads;
    if (r >= b.n_queries * b.n_heads) return;
    const int seen = lp_latent_seen(b.run, q);
    const bool whole = seen <= lp_cuda_segment_keys(a.segments, seen);
    const size_t at = (size_t)blockIdx.x * LP_CUDA_LATENT_ROWS + r;
    float *to = whole ? b.run->out + q * a.out_stride + h * LP_CUDA_LATENT
                      : a.partial + at * LP_CUDA_LATENT;
    if (!whole && first == 0 && lane % 4 == 0) {
        a.partial_sums[2 * at] = most;
        a.partial_sums[2 * at + 1] = sum;
    }
    const float divisor = whole ? sum : 1.0f;
    to += first + 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < 32; n++)
        lp_latent_put(to + 8 * n, o[4 * n + 2 * i] / divisor, o[4 * n + 2 * i + 1] / divisor);
}

// ---- the kernel

template <class Math, int STAGES>
static __device__ __forceinline__ void lp_latent_attend(const struct lp_cuda_latent_launch &a) {
    LP_CUDA_SHARED(shared);
    const struct lp_latent_block b = lp_latent_locate(a, blockIdx.x);
    if (b.begin >= b.end) return; // a segment that this block's list has not
    uint8_t *const tiles = shared + LP_LATENT_TILE_BYTES, *const weights =
                                                              tiles + STAGES * LP_LATENT_TILE_BYTES;
    struct lp_latent_stats *stats = (struct lp_latent_stats *)(weights + LP_LATENT_PANEL_BYTES);
    const uint32_t queries_at = lp_cuda_shared_at(shared), tiles_at = lp_cuda_shared_at(tiles),
                   weights_at = lp_cuda_shared_at(weights);
    const int half = threadIdx.x / 128;
    const int n_tiles = (b.end - b.begin + LP_CUDA_LATENT_KEYS - 1) / LP_CUDA_LATENT_KEYS;
    struct lp_latent_loader loader;
    struct lp_latent_rows rows;
    float o[128];

    lp_latent_begin(&loader, a, b);
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
        lp_latent_copy(&loader, a, tiles_at + i * LP_LATENT_TILE_BYTES);
        lp_cuda_copy_commit();
        lp_latent_advance(&loader, a, b);
    }
    lp_latent_load_queries<Math::type>(a, b, shared, stats->factors, LP_LATENT_THREADS);
    if (threadIdx.x < LP_CUDA_LATENT_KEYS) stats->spoiled[threadIdx.x] = 0;
    __syncthreads();
    lp_latent_init_rows(&rows, b, stats->factors);
#pragma unroll
    for (int i = 0; i < 128; i++) o[i] = 0;

    for (int t = 0; t < n_tiles; t++) {
        const int stage = t % STAGES, at = b.begin + t * LP_CUDA_LATENT_KEYS;
        const uint32_t tile = tiles_at + stage * LP_LATENT_TILE_BYTES;
        const bool partly_seen = at + LP_CUDA_LATENT_KEYS > b.n_least,
                   shared_keys = partly_seen && b.n_queries > 1;
        float s[16], scale[2], most[2];
        lp_cuda_copy_wait<STAGES - 1>();
        Math::publish();
        __syncthreads(); // the tile is there
        Math::scores(s, queries_at, tile);
        lp_latent_scale<4>(s, rows, stats, at, 32 * half, partly_seen, shared_keys, most);
        if (threadIdx.x % 4 == 0)
            stats->most[half][rows.row[0]] = most[0], stats->most[half][rows.row[1]] = most[1];
        __syncthreads(); // the largest of both halves is known
        if (shared_keys)
            lp_latent_clear(stats, tiles + stage * LP_LATENT_TILE_BYTES, LP_LATENT_THREADS);
#pragma unroll
        for (int i = 0; i < 2; i++) most[i] = fmaxf(most[i], stats->most[1 - half][rows.row[i]]);
        lp_latent_weigh<Math::type, 4>(s, &rows, most, weights, 32 * half, scale);
        lp_latent_rescale(o, scale);
        Math::publish();
        __syncthreads(); // the weights are there
        Math::values(o, weights_at, tile);
        __syncthreads(); // tile and weights are used up
        if (shared_keys && threadIdx.x < LP_CUDA_LATENT_KEYS) stats->spoiled[threadIdx.x] = 0;
        if (t + STAGES < n_tiles) {
            lp_latent_copy(&loader, a, tile);
            lp_latent_advance(&loader, a, b);
        }
        lp_cuda_copy_commit();
    }
    lp_latent_put_sums(rows, stats->sums[half]);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = rows.row[i];
        lp_latent_put_row(a, b, r, rows.most[i], stats->sums[0][r] + stats->sums[1][r], 256 * half,
                          o, i);
    }
}

// ---- the products

template <int TYPE> struct lp_latent_mma {
    static constexpr int type = TYPE;
    static __device__ __forceinline__ void publish() {}
    static __device__ __forceinline__ void scores(float (&s)[16], uint32_t queries, uint32_t tile) {
        const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
        const uint32_t q_row = warp % 4 * 16 + lane % 16,
                       key = warp / 4 * 32 + lane % 8 + lane / 16 * 8;
#pragma unroll
        for (int i = 0; i < 16; i++) s[i] = 0;
#pragma unroll 4
        for (int k = 0; k < LP_LATENT_PANELS * 4; k++) {
            const uint32_t panel = k / 4 * LP_LATENT_PANEL_BYTES;
            uint32_t q[4], b[4];
            lp_cuda_load_matrices(q,
                                  queries + panel + lp_cuda_tile_at(q_row, k % 4 * 2 + lane / 16));
#pragma unroll
            for (int n = 0; n < 2; n++) {
                lp_cuda_load_matrices(
                    b, tile + panel + lp_cuda_tile_at(key + 16 * n, k % 4 * 2 + lane / 8 % 2));
                lp_cuda_mma<TYPE>(s + 8 * n, q, b[0], b[1]);
                lp_cuda_mma<TYPE>(s + 8 * n + 4, q, b[2], b[3]);
            }
        }
    }
    static __device__ __forceinline__ void values(float (&o)[128], uint32_t weights,
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
                lp_cuda_load_transposed(b,
                                        tile + n / 4 * LP_LATENT_PANEL_BYTES +
                                            lp_cuda_tile_at(key + 16 * k, n % 4 * 2 + lane / 16));
                lp_cuda_mma<TYPE>(o + 8 * n, p, b[0], b[1]);
                lp_cuda_mma<TYPE>(o + 8 * n + 4, p, b[2], b[3]);
            }
        }
    }
};

template <int TYPE> struct lp_latent_wgmma {
    static constexpr int type = TYPE;
    static __device__ __forceinline__ void publish() { lp_cuda_wgmma_publish(); }
    static __device__ __forceinline__ void scores(float (&s)[16], uint32_t queries, uint32_t tile) {
        tile += threadIdx.x / 128 * 32 * 128; // 32 keys further
#pragma unroll
        for (int i = 0; i < 16; i++) s[i] = 0;
        lp_cuda_wgmma_begin();
#pragma unroll
        for (int k = 0; k < LP_LATENT_PANELS * 4; k++) {
            const uint32_t at = k / 4 * LP_LATENT_PANEL_BYTES + k % 4 * 32;
            lp_cuda_wgmma_32<TYPE>(s, lp_cuda_wgmma_matrix(queries + at, 16, 1024),
                                   lp_cuda_wgmma_matrix(tile + at, 16, 1024), k > 0);
        }
        lp_cuda_wgmma_commit();
        lp_cuda_wgmma_wait<0>();
    }
    static __device__ __forceinline__ void values(float (&o)[128], uint32_t weights,
                                                  uint32_t tile) {
        tile += threadIdx.x / 128 * 4 * LP_LATENT_PANEL_BYTES; // 256 values further
        lp_cuda_wgmma_begin();
#pragma unroll
        for (int k = 0; k < 4; k++)
            lp_cuda_wgmma_256<TYPE>(
                o, lp_cuda_wgmma_matrix(weights + k * 32, 16, 1024),
                lp_cuda_wgmma_matrix(tile + k * 16 * 128, LP_LATENT_PANEL_BYTES, 1024));
        lp_cuda_wgmma_commit();
        lp_cuda_wgmma_wait<0>();
    }
};

// ---- rows of several segments: a block a row, a thread four values

static __device__ __forceinline__ void lp_latent_join(const struct lp_cuda_latent_launch &a) {
    int row = blockIdx.x, i = 0;
    while (i + 1 < a.n_runs && row >= a.runs[i + 1].first_row) i++;
    const struct lp_cuda_latent_run *run = &a.runs[i];
    row -= run->first_row;
    const int q = row / a.n_heads, h = row % a.n_heads, n = lp_latent_seen(run, q),
              keys = lp_cuda_segment_keys(a.segments, n);
    if (n <= keys) return;
    const int n_segments = (n + keys - 1) / keys;
    const int in_block =
        run->together > 1 ? q % run->together * a.n_heads + h : h % LP_CUDA_LATENT_ROWS;
    const size_t first = run->first_block +
                         (size_t)(q / run->together) * run->n_segments * a.head_blocks +
                         h / LP_CUDA_LATENT_ROWS;
    float most = -INFINITY, total = 0;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int s = 0; s < n_segments; s++) {
        const size_t at = (first + (size_t)s * a.head_blocks) * LP_CUDA_LATENT_ROWS + in_block;
        most = fmaxf(most, a.partial_sums[2 * at]);
    }
    for (int s = 0; s < n_segments; s++) {
        const size_t at = (first + (size_t)s * a.head_blocks) * LP_CUDA_LATENT_ROWS + in_block;
        const float w = exp2f(a.partial_sums[2 * at] - most);
        const float4 v = ((const float4 *)(a.partial + at * LP_CUDA_LATENT))[threadIdx.x];
        total = fmaf(w, a.partial_sums[2 * at + 1], total);
        sum.x = fmaf(w, v.x, sum.x);
        sum.y = fmaf(w, v.y, sum.y);
        sum.z = fmaf(w, v.z, sum.z);
        sum.w = fmaf(w, v.w, sum.w);
    }
    float *out = run->out + q * a.out_stride + h * LP_CUDA_LATENT + 4 * threadIdx.x;
    lp_latent_put(out, sum.x / total, sum.y / total);
    lp_latent_put(out + 2, sum.z / total, sum.w / total);
}

#endif
