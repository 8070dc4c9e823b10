// Attention over cached latents: what the kernels of cuda_latent_mma.cuh (mma.sync) and
// cuda_latent_sm90.cuh (wgmma) share, and the kernel that folds what several blocks left.
//
// A block keeps in shared memory its 64 rows of queries and tiles of 64 keys; a row of the cache is read
// once for all heads, as key and as value:
//
//   queries [9 panels][64 rows][64]   72 KiB     latent 512, rotated part 64
//   tile    [9 panels][64 keys][64]   72 KiB     two of them; the next ones arrive meanwhile
//
// Per tile:
//   1. scores: 64 x 64 x 576; their largest
//   2. weights exp2(score - largest so far), as 16-bit numbers into shared memory; the segment's output
//      so far is scaled when the largest grew
//   3. output += weights x tile: 64 x 512 x 64
// At the end of a segment its output is folded into the row's total, which waits in the operation's
// output: there is no room for it in registers, and it stays in the L2 cache.
//
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
    float factors[64];   // of raw scores: scale, log2(e), a query's power of two
    uint8_t spoiled[64]; // keys of the tile that some row must not see, and that are not finite
};

struct lp_latent_block { // where a block stands in the launch
    const struct lp_cuda_latent_run *run;
    const int32_t *pages; // of its queries' sequence
    int query, n_queries; // its queries
    int head, n_heads;    // its heads; row r: query + r / n_heads, head + r % n_heads
    int n_least, n_most;  // keys that its queries see
    int begin, end;       // those that it walks
    int n_segments;       // of them
    int tiles;            // of a segment; the last one may have fewer
    int slot;             // of its first segment
    bool first, whole;    // it begins with the list's first segment; it walks all
};

static __device__ __forceinline__ int lp_latent_seen(const struct lp_cuda_latent_run *run, int q) {
    if (run->ids) return run->counts[q];
    return (run->positions ? run->positions[q] : run->first_pos + q) + 1;
}

static __device__ __forceinline__ struct lp_latent_block
lp_latent_locate(const struct lp_cuda_latent_launch &a, int block) {
    struct lp_latent_block b;
    int i = 0;
    while (i + 1 < a.n_runs && block >= a.runs[i + 1].first_block) i++;
    b.run = &a.runs[i];
    block -= b.run->first_block;
    const int walks = (b.run->n_segments + b.run->walk - 1) / b.run->walk,
              heads = block % a.head_blocks, segment = block / a.head_blocks % walks * b.run->walk,
              group = block / a.head_blocks / walks;
    b.query = group * b.run->together;
    b.pages = b.run->positions ? b.run->pages_of[b.query] : b.run->pages;
    b.n_queries = min(b.run->together, b.run->n_queries - b.query);
    b.head = heads * LP_CUDA_LATENT_ROWS;
    b.n_heads = min(a.n_heads - b.head, LP_CUDA_LATENT_ROWS);
    b.n_least = lp_latent_seen(b.run, b.query);
    b.n_most = lp_latent_seen(b.run, b.query + b.n_queries - 1);
    const int keys = lp_cuda_segment_keys(a.segments, b.n_most);
    b.begin = min(b.n_most, segment * keys);
    b.end = min(b.n_most, b.begin + b.run->walk * keys);
    b.n_segments = (b.end - b.begin + keys - 1) / keys;
    b.tiles = keys / LP_CUDA_LATENT_KEYS;
    b.slot = b.run->first_slot + (group * b.run->n_segments + segment) * a.head_blocks + heads;
    b.first = segment == 0;
    b.whole = b.first && b.end == b.n_most;
    return b;
}

// ---- queries

// Rows first ... end - 1, a warp a row: to the type of the cache, into the panels; and the factor of its scores, NaN
// for a query that is not finite: its scores say nothing of the keys.
template <int TYPE>
static __device__ __forceinline__ void
lp_latent_load_queries(const struct lp_cuda_latent_launch &a, const struct lp_latent_block &b,
                       uint8_t *queries, float *factors, int n_threads, int first, int end) {
    const int warp = threadIdx.x / LP_CUDA_WARP, lane = threadIdx.x % LP_CUDA_WARP;
    for (int r = first + warp; r < end; r += n_threads / LP_CUDA_WARP) {
        const int q = b.query + r / b.n_heads, h = b.head + r % b.n_heads;
        const bool there = r < b.n_queries * b.n_heads;
        const float *latent = b.run->q_latent + q * a.q_latent_stride + h * LP_CUDA_LATENT,
                    *rope = b.run->q_rope + q * a.q_rope_stride + h * a.q_rope_head_stride;
        float x[LP_LATENT_PANELS][2], power = 1.0f;
        bool finite = true;
#pragma unroll
        for (int p = 0; p < LP_LATENT_PANELS; p++) {
            const float *from = p < 8 ? latent + p * 64 : rope;
            x[p][0] = there ? from[2 * lane] : 0.0f;
            x[p][1] = there ? from[2 * lane + 1] : 0.0f;
            finite &= isfinite(x[p][0]) && isfinite(x[p][1]);
        }
        finite = __all_sync(0xffffffffu, finite);
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
        if (lane == 0) factors[r] = finite ? a.scale * 1.44269504f / power : NAN;
    }
}

// ---- tiles: a thread copies chunk threadIdx % 8 of every panel of N rows, 512 / N threads together

template <int N> struct lp_latent_loader {
    const uint8_t *rows[N]; // of the tile that is copied next
    int n_bytes[N];         // 16, or 0 where there is no key
    int position[N];        // of the tile behind it; -1: no key
    int at;                 // index of that tile's first key in the list
};

// The row of a tile that is this thread's number i.
template <int N> static __device__ __forceinline__ int lp_latent_row_of(int i) {
    return (int)threadIdx.x % (8 * LP_CUDA_LATENT_KEYS / N) / 8 + LP_CUDA_LATENT_KEYS / N * i;
}

template <int N>
static __device__ __forceinline__ void lp_latent_find_rows(struct lp_latent_loader<N> *l,
                                                           const struct lp_cuda_latent_launch &a,
                                                           const struct lp_latent_block &b) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int slot = max(l->position[i], 0) + a.slot_offset, page = slot / a.page_tokens;
        l->rows[i] = a.base;
        l->n_bytes[i] = 0;
        if (l->position[i] >= 0) {
            l->rows[i] += (size_t)b.pages[page] * a.page_bytes +
                          (size_t)(slot - page * a.page_tokens) * a.row_bytes;
            l->n_bytes[i] = 16;
        }
    }
}

// The rows of the tile whose positions are known; the positions of the one behind.
template <int N>
static __device__ __forceinline__ void lp_latent_advance(struct lp_latent_loader<N> *l,
                                                         const struct lp_cuda_latent_launch &a,
                                                         const struct lp_latent_block &b) {
    lp_latent_find_rows(l, a, b);
    l->at += LP_CUDA_LATENT_KEYS;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int key = l->at + lp_latent_row_of<N>(i);
        l->position[i] = -1;
        if (key < b.end)
            l->position[i] = b.run->ids ? b.run->ids[(size_t)b.query * b.run->k + key] : key;
    }
}

template <int N>
static __device__ __forceinline__ void lp_latent_begin(struct lp_latent_loader<N> *l,
                                                       const struct lp_cuda_latent_launch &a,
                                                       const struct lp_latent_block &b) {
    l->at = b.begin - LP_CUDA_LATENT_KEYS;
#pragma unroll
    for (int i = 0; i < N; i++) l->position[i] = -1;
    lp_latent_advance(l, a, b);
    lp_latent_advance(l, a, b);
}

// Panels FIRST ... END - 1 of them.
template <int FIRST, int END>
static __device__ __forceinline__ void lp_latent_copy(const struct lp_latent_loader<2> *l,
                                                      const struct lp_cuda_latent_launch &a,
                                                      uint32_t tile) {
    const int chunk = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t to = tile + lp_cuda_tile_at(lp_latent_row_of<2>(i), chunk);
#pragma unroll
        for (int p = FIRST; p < END; p++) {
            const uint8_t *from = l->rows[i] + (l->n_bytes[i] ? p * 128 + chunk * 16 : 0);
            if (a.whole_chunks)
                lp_cuda_copy16(to + p * LP_LATENT_PANEL_BYTES, from, l->n_bytes[i]);
            else
                lp_cuda_copy16_of_4(to + p * LP_LATENT_PANEL_BYTES, from, l->n_bytes[i]);
        }
    }
}

// ---- softmax: a thread has rows r and r + 8 (r = its warp's first one + lane / 4), of each the keys
// first + 8 n + 2 (lane % 4) + {0, 1} at s[4 n + {0, 1}] and s[4 n + 2 + {0, 1}], n < N

struct lp_latent_rows {
    int row[2];    // in the block
    int seen[2];   // keys that they see
    float most[2]; // largest score of the segment so far
    float sum[2];  // of this thread's weights
    float factor[2];
};

static __device__ __forceinline__ void lp_latent_init_rows(struct lp_latent_rows *rows,
                                                           const struct lp_latent_block &b,
                                                           const float *factors, int first) {
    const int lane = threadIdx.x % LP_CUDA_WARP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = first + lane / 4 + 8 * i;
        rows->row[i] = r;
        rows->seen[i] = lp_latent_seen(b.run, b.query + min(r / b.n_heads, b.n_queries - 1));
        rows->factor[i] = factors[r];
    }
}

static __device__ __forceinline__ void lp_latent_begin_segment(struct lp_latent_rows *rows) {
    rows->most[0] = rows->most[1] = -INFINITY;
    rows->sum[0] = rows->sum[1] = 0;
}

// Row i's sum of weights, over the four lanes that have its keys.
static __device__ __forceinline__ float lp_latent_sum(const struct lp_latent_rows &rows, int i) {
    float sum = rows.sum[i];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

template <int N, bool PARTLY_SEEN>
static __device__ __forceinline__ void
lp_latent_scale_seen(float (&s)[4 * N], const struct lp_latent_rows &rows,
                     struct lp_latent_stats *stats, int at, int first, bool shared,
                     float (&most)[2]) {
    const int lane = threadIdx.x % LP_CUDA_WARP;
    most[0] = most[1] = -INFINITY;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = j / 2, key = first + 8 * n + 2 * (lane % 4) + j % 2;
            const float raw = s[4 * n + j];
            float x = raw * rows.factor[i];
            if (PARTLY_SEEN && at + key >= rows.seen[i]) {
                if (shared && !isfinite(raw) && !isnan(rows.factor[i])) stats->spoiled[key] = 1;
                x = -INFINITY;
            }
            s[4 * n + j] = x;
            most[i] = fmaxf(most[i], x); // a NaN makes its weight, and so the row, NaN
        }
}

// Scores in units of log2; -infinity where the row does not see the key. most: the largest of each row
// among these keys. at: index of the tile's first key.
template <int N>
static __device__ __forceinline__ void
lp_latent_scale(float (&s)[4 * N], const struct lp_latent_rows &rows, struct lp_latent_stats *stats,
                int at, int first, bool partly_seen, bool shared, float (&most)[2]) {
    float least = INFINITY;
#pragma unroll
    for (int n = 0; n < 4 * N; n++) least = fminf(least, s[n]);
    if (least == -INFINITY) // as any score that is not finite
#pragma unroll
        for (int n = 0; n < 4 * N; n++) s[n] = s[n] == -INFINITY ? NAN : s[n];
    if (partly_seen)
        lp_latent_scale_seen<N, true>(s, rows, stats, at, first, shared, most);
    else
        lp_latent_scale_seen<N, false>(s, rows, stats, at, first, false, most);
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
            const uint32_t pair = lp_cuda_pack2<TYPE>(lp_cuda_exp2(s[4 * n + 2 * i] - from),
                                                      lp_cuda_exp2(s[4 * n + 2 * i + 1] - from));
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

// ---- segments, folded in their order

struct lp_latent_total { // of a row, over the segments so far; begins with -infinity and 0
    float most, sum;
};
struct
    lp_latent_fold { // how a segment's output enters that of its row: keep * total + add * output
    float keep, add;
    float inverse; // of the sum of all weights, at the end
};

// The only place of this arithmetic (L2). A first segment enters as it is; one of which the row sees
// nothing (-infinity, 0) changes nothing.
static __device__ __forceinline__ struct lp_latent_fold
lp_latent_fold(struct lp_latent_total *total, float most, float sum) {
    const float now = fmaxf(total->most, most);
    const struct lp_latent_fold f = {exp2f(total->most - now), exp2f(most - now), 1.0f};
    total->sum = fmaf(f.add, sum, f.keep * total->sum);
    total->most = now;
    return f;
}

// Segment s of the block's is complete: what its output does to row r. `writes`: leaves what the second
// kernel must know.
static __device__ __forceinline__ struct lp_latent_fold
lp_latent_end_segment(const struct lp_cuda_latent_launch &a, const struct lp_latent_block &b, int s,
                      int r, float most, float sum, struct lp_latent_total *total, bool writes) {
    const bool last = s == b.n_segments - 1;
    struct lp_latent_fold f = {0.0f, 1.0f, 1.0f};
    if (b.first) f = lp_latent_fold(total, most, sum);
    if (b.whole && last) f.inverse = 1.0f / total->sum;
    if (writes && (b.first ? last && !b.whole : true)) {
        const size_t slot = (size_t)b.slot + (b.first ? 0 : (size_t)s * a.head_blocks);
        float *to = a.partial_sums + 2 * (slot * LP_CUDA_LATENT_ROWS + r);
        to[0] = b.first ? total->most : most;
        to[1] = b.first ? total->sum : sum;
    }
    return f;
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
static __device__ __forceinline__ float2 lp_latent_get(const float *from) {
    return ((uintptr_t)from & 7) == 0 ? *(const float2 *)from : make_float2(from[0], from[1]);
}

// Values first ... + 8 N - 1 of a row at the end of segment s (o: [4 n + 2 i + {0, 1}] is value first + 8 n
// + 2 (lane % 4) + {0, 1} of its row i). The same thread puts the same values of every segment, so it
// reads back what it wrote itself.
template <int N>
static __device__ __forceinline__ void
lp_latent_put_row(const struct lp_cuda_latent_launch &a, const struct lp_latent_block &b, int s,
                  int r, const struct lp_latent_fold f, int first, const float (&o)[4 * N], int i) {
    const int q = b.query + r / b.n_heads, h = b.head + r % b.n_heads;
    const size_t slot = (size_t)b.slot + (size_t)s * a.head_blocks;
    if (r >= b.n_queries * b.n_heads) return;
    float *to = b.first ? b.run->out + q * a.out_stride + h * LP_CUDA_LATENT
                        : a.partial + (slot * LP_CUDA_LATENT_ROWS + r) * LP_CUDA_LATENT;
    to += first + 2 * (threadIdx.x % 4);
    const bool folds = b.first && s > 0, ends = b.whole && s == b.n_segments - 1;
#pragma unroll
    for (int n = 0; n < N; n += 4) {
        float2 x[4], old[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[j] = make_float2(o[4 * (n + j) + 2 * i], o[4 * (n + j) + 2 * i + 1]);
            if (folds) old[j] = lp_latent_get(to + 8 * (n + j));
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (folds) {
                x[j].x = fmaf(f.add, x[j].x, f.keep * old[j].x);
                x[j].y = fmaf(f.add, x[j].y, f.keep * old[j].y);
            }
            if (ends) x[j] = make_float2(x[j].x * f.inverse, x[j].y * f.inverse);
            lp_latent_put(to + 8 * (n + j), x[j].x, x[j].y);
        }
    }
}

// ---- the second kernel, for runs that are split: a block a row, a thread four values

struct lp_latent_joined { // so far
    struct lp_latent_total total;
    float2 low, high;
};

// Folds the next N segments, fetched together. at: row of the first one's slot; step: to the next slot.
template <int N>
static __device__ __forceinline__ void lp_latent_join_some(const struct lp_cuda_latent_launch &a,
                                                           size_t at, size_t step,
                                                           struct lp_latent_joined *sum) {
    float4 x[N];
    float2 sums[N];
#pragma unroll
    for (int j = 0; j < N; j++) {
        x[j] = ((const float4 *)(a.partial + (at + j * step) * LP_CUDA_LATENT))[threadIdx.x];
        sums[j] = ((const float2 *)a.partial_sums)[at + j * step];
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        const struct lp_latent_fold f = lp_latent_fold(&sum->total, sums[j].x, sums[j].y);
        sum->low.x = fmaf(f.add, x[j].x, f.keep * sum->low.x);
        sum->low.y = fmaf(f.add, x[j].y, f.keep * sum->low.y);
        sum->high.x = fmaf(f.add, x[j].z, f.keep * sum->high.x);
        sum->high.y = fmaf(f.add, x[j].w, f.keep * sum->high.y);
    }
}

static __device__ __forceinline__ void lp_latent_join(const struct lp_cuda_latent_launch &a) {
    int row = blockIdx.x, i = 0;
    while (i + 1 < a.n_runs && row >= a.runs[i + 1].first_row) i++;
    const struct lp_cuda_latent_run *run = &a.runs[i];
    row -= run->first_row;
    const int q = row / a.n_heads, h = row % a.n_heads, group = q / run->together,
              last = min((group + 1) * run->together, run->n_queries) - 1,
              n = lp_latent_seen(run, last), keys = lp_cuda_segment_keys(a.segments, n),
              n_segments = (n + keys - 1) / keys;
    if (n_segments <= run->walk) return;
    const int in_block =
        run->together > 1 ? q % run->together * a.n_heads + h : h % LP_CUDA_LATENT_ROWS;
    const size_t slot = run->first_slot + (size_t)group * run->n_segments * a.head_blocks +
                        h / LP_CUDA_LATENT_ROWS,
                 step = (size_t)a.head_blocks * LP_CUDA_LATENT_ROWS;
    size_t at = slot * LP_CUDA_LATENT_ROWS + in_block;
    float *out = run->out + q * a.out_stride + h * LP_CUDA_LATENT + 4 * threadIdx.x;
    struct lp_latent_joined sum = {{a.partial_sums[2 * at], a.partial_sums[2 * at + 1]},
                                   lp_latent_get(out),
                                   lp_latent_get(out + 2)};
    at += run->walk * step;
    int left = n_segments - run->walk;
    for (; left >= 8; left -= 8, at += 8 * step) lp_latent_join_some<8>(a, at, step, &sum);
    if (left & 4) lp_latent_join_some<4>(a, at, step, &sum), at += 4 * step;
    if (left & 2) lp_latent_join_some<2>(a, at, step, &sum), at += 2 * step;
    if (left & 1) lp_latent_join_some<1>(a, at, step, &sum);
    const float inverse = 1.0f / sum.total.sum;
    lp_latent_put(out, sum.low.x * inverse, sum.low.y * inverse);
    lp_latent_put(out + 2, sum.high.x * inverse, sum.high.y * inverse);
}

#endif
