// Attention in its forms. A block takes one query and head and walks its keys in tiles of 64: a warp
// a score, softmax weights against the largest score so far, then a thread an output value, whose sum
// (float32 within a tile, double over tiles) is scaled when the largest score grows. Tiles are cut in
// the list of visible keys, so a selection of all keys gives the bits of none.
#include "backend/cuda/cuda_dequant.cuh"
#include "backend/cuda/cuda_latent.h"
#include "backend/cuda/cuda_prefill.h"

#define TILE 64

template <int TYPE> static __device__ inline float element(const uint8_t *row, int i);
template <> __device__ inline float element<LP_TYPE_F32>(const uint8_t *row, int i) {
    return ((const float *)row)[i];
}
template <> __device__ inline float element<LP_TYPE_F16>(const uint8_t *row, int i) {
    return lp_cuda_f16(((const uint16_t *)row)[i]);
}
template <> __device__ inline float element<LP_TYPE_BF16>(const uint8_t *row, int i) {
    return lp_cuda_bf16(((const uint16_t *)row)[i]);
}
template <> __device__ inline float element<LP_TYPE_Q8_0>(const uint8_t *row, int i) {
    const struct lp_block_q8_0 *b = (const struct lp_block_q8_0 *)row + i / 32;
    return lp_cuda_f16(b->d) * (float)b->qs[i % 32];
}

template <> __device__ inline float element<LP_TYPE_F8_E4M3>(const uint8_t *row, int i) {
    const struct lp_block_f8_e4m3 *b = (const struct lp_block_f8_e4m3 *)row + i / 128;
    return b->d * lp_cuda_e4m3(b->q[i % 128]);
}
// Of a row that may have a tail
template <int TYPE>
static __device__ inline float element_of(const struct lp_cuda_cache &cache, const uint8_t *row,
                                          int i) {
    if (TYPE != LP_TYPE_F8_E4M3 || i < cache.n_blocked) return element<TYPE>(row, i);
    return lp_cuda_bf16(lp_cuda_load_u16(
        row + cache.n_blocked / 128 * sizeof(struct lp_block_f8_e4m3) + 2 * (i - cache.n_blocked)));
}

// ---- where a form has its keys and values

template <int TYPE> struct gqa_keys {
    struct lp_cuda_cache k, v;
    int head_dim, v_dim, shared; // heads that share a key
    struct place {
        const uint8_t *k, *v;
    };
    __device__ void take_pages(const struct lp_cuda_batch &b, int64_t row) {
        k = lp_cuda_cache_for(k, b, row);
        v = lp_cuda_cache_for(v, b, row);
    }
    __device__ place find(int head, int64_t pos) const {
        return {lp_cuda_cache_row(k, pos), lp_cuda_cache_row(v, pos)};
    }
    __device__ float key(const place &p, int head, int i) const {
        return element<TYPE>(p.k, head / shared * head_dim + i);
    }
    __device__ float value(const place &p, int head, int i) const {
        return element<TYPE>(p.v, head / shared * v_dim + i);
    }
};

template <int TYPE> struct latent_keys {
    struct lp_cuda_cache cache;
    struct place {
        const uint8_t *row;
    };
    __device__ void take_pages(const struct lp_cuda_batch &b, int64_t row) {
        cache = lp_cuda_cache_for(cache, b, row);
    }
    __device__ place find(int, int64_t pos) const { return {lp_cuda_cache_row(cache, pos)}; }
    __device__ float key(const place &p, int, int i) const {
        return element_of<TYPE>(cache, p.row, i);
    }
    __device__ float value(const place &p, int, int i) const {
        return element_of<TYPE>(cache, p.row, i);
    }
};

struct expanded_keys {
    const float *keys, *values, *latents; // of lp_cuda_scratch; heads count from the group's first
    int64_t n_keys;
    int nope, v_dim, latent, row; // row = latent + rope
    struct place {
        const float *key, *rope, *value;
    };
    __device__ void take_pages(const struct lp_cuda_batch &, int64_t) {} // of one sequence, always
    __device__ place find(int head, int64_t pos) const {
        int64_t at = head * n_keys + pos;
        return {keys + at * nope, latents + pos * row + latent, values + at * v_dim};
    }
    __device__ float key(const place &p, int, int i) const {
        return i < nope ? p.key[i] : p.rope[i - nope];
    }
    __device__ float value(const place &p, int, int i) const { return p.value[i]; }
};

struct queries { // two parts of a query: q[0 .. first), then rest[0 .. width - first)
    const float *q, *rest;
    int64_t q_stride, q_head, rest_stride, rest_head;
    int first, width, v_width, n_heads;
    float scale;
    struct lp_visible visible;
    struct lp_cuda_batch batch;
    float *out;
    int64_t out_stride, out_head;
};

static __device__ inline double larger(double a, double b) { // NaN if any is
    return isnan(a) || a > b ? a : b;
}
static __device__ inline double warp_largest(double x) {
    for (int step = 16; step > 0; step /= 2) x = larger(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

template <class Keys> static __global__ void attend_kernel(Keys keys, struct queries a) {
    extern __shared__ double shared[];
    double *sums = shared;                      // [v_width]
    float *query = (float *)(sums + a.v_width); // [width]
    __shared__ double scores[TILE], softmax[3]; // largest so far, factor of this tile, sum
    __shared__ float weights[TILE];
    __shared__ typename Keys::place places[TILE];
    const int h = blockIdx.x % a.n_heads, warp = threadIdx.x / LP_CUDA_WARP,
              lane = threadIdx.x % LP_CUDA_WARP;
    const int64_t q = blockIdx.x / a.n_heads;
    const int64_t n =
        a.visible.ids ? a.visible.counts[q] : lp_cuda_position(a.batch, a.visible.first_pos, q) + 1;
    keys.take_pages(a.batch, q);
    const float *from = a.q + q * a.q_stride + h * a.q_head,
                *rest = a.rest + q * a.rest_stride + h * a.rest_head;
    for (int i = threadIdx.x; i < a.width; i += LP_CUDA_THREADS)
        query[i] = i < a.first ? from[i] : rest[i - a.first];
    for (int i = threadIdx.x; i < a.v_width; i += LP_CUDA_THREADS) sums[i] = 0;
    if (threadIdx.x == 0) {
        softmax[0] = -INFINITY;
        softmax[2] = 0;
    }
    for (int64_t begin = 0; begin < n; begin += TILE) {
        const int count = n - begin < TILE ? (int)(n - begin) : TILE;
        __syncthreads();
        if (threadIdx.x < count) {
            int64_t i = begin + threadIdx.x;
            places[threadIdx.x] =
                keys.find(h, a.visible.ids ? a.visible.ids[q * a.visible.k + i] : i);
        }
        __syncthreads();
        for (int s = warp; s < count; s += LP_CUDA_WARPS) {
            const typename Keys::place place = places[s];
            float part = 0;
            for (int i = lane; i < a.width; i += LP_CUDA_WARP)
                part = fmaf(query[i], keys.key(place, h, i), part);
            const double dot = lp_cuda_warp_sum(part);
            if (lane == 0) scores[s] = a.scale * dot;
        }
        __syncthreads();
        if (warp == 0) {
            double most = -INFINITY, sum = 0;
            for (int s = lane; s < count; s += LP_CUDA_WARP) most = larger(most, scores[s]);
            const double before = softmax[0], now = larger(before, warp_largest(most));
            for (int s = lane; s < count; s += LP_CUDA_WARP) {
                // Keys of -infinity weigh nothing, also while there were no others.
                float w = scores[s] == -INFINITY ? 0.0f : (float)exp(scores[s] - now);
                weights[s] = w;
                sum += w;
            }
            sum = lp_cuda_warp_sum(sum);
            __syncwarp();
            if (lane == 0) {
                const double factor = before == -INFINITY ? 0.0 : exp(before - now);
                softmax[0] = now;
                softmax[1] = factor;
                softmax[2] = softmax[2] * factor + sum;
            }
        }
        __syncthreads();
        for (int d = threadIdx.x; d < a.v_width; d += LP_CUDA_THREADS) {
            float part = 0;
            for (int s = 0; s < count; s++)
                part = fmaf(weights[s], keys.value(places[s], h, d), part);
            sums[d] = sums[d] * softmax[1] + part;
        }
    }
    __syncthreads();
    float *out = a.out + q * a.out_stride + h * a.out_head;
    for (int d = threadIdx.x; d < a.v_width; d += LP_CUDA_THREADS)
        out[d] = (float)(sums[d] / softmax[2]);
}

template <class Keys>
static void attend(struct lp_cuda_device *dev, const Keys &keys, const struct queries &a,
                   const char *where) {
    const int64_t blocks = a.visible.n_queries * a.n_heads;
    if (dev->error || blocks == 0) return;
    const size_t shared = (size_t)a.v_width * sizeof(double) + (size_t)a.width * sizeof(float);
    if (shared > 40 << 10 &&
        !lp_cuda_note(dev,
                      cudaFuncSetAttribute((const void *)attend_kernel<Keys>,
                                           cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           (int)shared),
                      where))
        return;
    attend_kernel<Keys><<<(unsigned)blocks, LP_CUDA_THREADS, shared, dev->stream>>>(keys, a);
    LP_CUDA_LAUNCHED(dev, where);
}

// ---- grouped-query attention

template <int TYPE> static void gqa(struct lp_cuda_device *dev, const struct lp_op_gqa *op) {
    struct gqa_keys<TYPE> keys = {
        lp_cuda_cache_of(op->k),
            lp_cuda_cache_of(op->v), op->head_dim, op->v_dim, op->n_heads / op->n_kv_heads
    };
    struct queries a = {};
    a.q = a.rest = op->q;
    a.q_stride = op->q_stride;
    a.q_head = a.first = a.width = op->head_dim;
    a.out_head = a.v_width = op->v_dim;
    a.n_heads = op->n_heads;
    a.scale = op->scale;
    a.visible = op->visible;
    a.visible.ids = NULL;
    a.batch = lp_cuda_batch_of(op->visible.batch);
    a.out = op->out;
    a.out_stride = op->out_stride;
    attend(dev, keys, a, "gqa");
}

void lp_cuda_gqa(struct lp_device *device, const struct lp_op_gqa *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (op->k->type == LP_TYPE_F32)
        gqa<LP_TYPE_F32>(dev, op);
    else if (op->k->type == LP_TYPE_F16)
        gqa<LP_TYPE_F16>(dev, op);
    else if (op->k->type == LP_TYPE_BF16)
        gqa<LP_TYPE_BF16>(dev, op);
    else if (op->k->type == LP_TYPE_Q8_0)
        gqa<LP_TYPE_Q8_0>(dev, op);
    else
        gqa<LP_TYPE_F8_E4M3>(dev, op);
}

// ---- absorbed MLA

template <int TYPE>
static void absorbed(struct lp_cuda_device *dev, const struct lp_op_mla_absorbed *op) {
    struct latent_keys<TYPE> keys = {
        lp_cuda_cache_of(op->cache)
    };
    struct queries a = {};
    a.q = op->q_latent;
    a.q_stride = op->q_latent_stride;
    a.q_head = a.first = a.v_width = op->latent;
    a.rest = op->q_rope;
    a.rest_stride = op->q_rope_stride;
    a.rest_head = op->q_rope_head_stride;
    a.width = op->latent + op->rope;
    a.out_head = op->latent;
    a.n_heads = op->n_heads;
    a.scale = op->scale;
    a.visible = op->visible;
    a.batch = lp_cuda_batch_of(op->visible.batch);
    a.out = op->out;
    a.out_stride = op->out_stride;
    attend(dev, keys, a, "mla_absorbed");
}

void lp_cuda_mla_absorbed_plain(struct lp_device *device, const struct lp_op_mla_absorbed *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    if (op->cache->type == LP_TYPE_F32)
        absorbed<LP_TYPE_F32>(dev, op);
    else if (op->cache->type == LP_TYPE_F16)
        absorbed<LP_TYPE_F16>(dev, op);
    else if (op->cache->type == LP_TYPE_BF16)
        absorbed<LP_TYPE_BF16>(dev, op);
    else if (op->cache->type == LP_TYPE_Q8_0)
        absorbed<LP_TYPE_Q8_0>(dev, op);
    else
        absorbed<LP_TYPE_F8_E4M3>(dev, op);
}

// ---- expanded MLA: rows of the cache as float32, keys and values of a group of heads, attention

template <int TYPE>
static __global__ void unpack_kernel(struct lp_cuda_cache cache, int64_t n_keys, float *out) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_keys * cache.width) return;
    out[i] =
        element_of<TYPE>(cache, lp_cuda_cache_row(cache, i / cache.width), (int)(i % cache.width));
}

static void unpack(struct lp_cuda_device *dev, const struct lp_cache_view *view, int64_t n_keys) {
    const struct lp_cuda_cache cache = lp_cuda_cache_of(view);
    const unsigned blocks = lp_cuda_blocks(n_keys * view->width, LP_CUDA_THREADS);
    float *out = dev->scratch.latents;
    cudaStream_t stream = dev->stream;
    if (view->type == LP_TYPE_F32)
        unpack_kernel<LP_TYPE_F32><<<blocks, LP_CUDA_THREADS, 0, stream>>>(cache, n_keys, out);
    else if (view->type == LP_TYPE_F16)
        unpack_kernel<LP_TYPE_F16><<<blocks, LP_CUDA_THREADS, 0, stream>>>(cache, n_keys, out);
    else if (view->type == LP_TYPE_BF16)
        unpack_kernel<LP_TYPE_BF16><<<blocks, LP_CUDA_THREADS, 0, stream>>>(cache, n_keys, out);
    else if (view->type == LP_TYPE_Q8_0)
        unpack_kernel<LP_TYPE_Q8_0><<<blocks, LP_CUDA_THREADS, 0, stream>>>(cache, n_keys, out);
    else
        unpack_kernel<LP_TYPE_F8_E4M3><<<blocks, LP_CUDA_THREADS, 0, stream>>>(cache, n_keys, out);
    LP_CUDA_LAUNCHED(dev, "mla_expanded (rows)");
}

// y[h][s] = W[h] c[s] for the keys s of n_heads heads from `first` on.
static void expand(struct lp_device *device, const struct lp_weight *w, bool transposed,
                   int64_t first, int64_t n_heads, int row, int64_t n_keys, float *y, int width) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    struct lp_weight part = lp_weight_part(w, first, n_heads, 0, w->n_out);
    struct lp_op_head_matmul op = {};
    op.w = &part;
    op.transposed = transposed;
    op.x = dev->scratch.latents;
    op.x_row_stride = row;
    op.x_head_stride = 0; // all heads share the latents
    op.y = y;
    op.y_row_stride = width;
    op.y_head_stride = n_keys * width;
    op.n_rows = n_keys;
    lp_cuda_head_matmul_plain(device, &op); // 8 bits are too few for rows that the cache has in 16
}

static void attend_heads(struct lp_cuda_device *dev, const struct lp_op_mla_expanded *op,
                         lp_cuda_prefill_start start) {
    const int64_t most = dev->scratch.head_group_16;
    for (int64_t first = 0; first < op->n_heads && !dev->error; first += most) {
        const int64_t left = op->n_heads - first, n = left < most ? left : most;
        if (lp_cuda_note(dev, lp_cuda_expand_heads(dev, op, first, n), "mla_expanded (heads)"))
            lp_cuda_note(dev, lp_cuda_prefill_heads(dev, op, first, n, start), "mla_expanded");
    }
}

// Rows of an FP8 cache, which every group of heads reads, as BF16 ones first.
static void attend_widened(struct lp_cuda_device *dev, const struct lp_op_mla_expanded *op,
                           lp_cuda_prefill_start start) {
    struct lp_cache_view rows;
    struct lp_op_mla_expanded of_rows = *op;
    lp_cuda_widen(dev, op->cache, op->visible.first_pos + op->visible.n_queries, &rows);
    of_rows.cache = &rows;
    attend_heads(dev, &of_rows, start);
}

void lp_cuda_mla_expanded(struct lp_device *device, const struct lp_op_mla_expanded *op) {
    struct lp_cuda_device *dev = lp_cuda_of(device);
    const int64_t n_keys = op->visible.first_pos + op->visible.n_queries;
    const int row = op->latent + op->rope;
    const lp_cuda_prefill_start fast =
        lp_cuda_prefill_fits(op) ? lp_cuda_prefill_chosen(dev, op->cache->type) : NULL;
    if (dev->error || op->visible.n_queries == 0) return;
    if (fast && op->cache->type == LP_TYPE_F8_E4M3) {
        attend_widened(dev, op, fast);
        return;
    }
    if (fast) {
        attend_heads(dev, op, fast);
        return;
    }
    unpack(dev, op->cache, n_keys);
    for (int64_t first = 0; first < op->n_heads; first += dev->scratch.head_group) {
        const int64_t left = op->n_heads - first,
                      n = left < dev->scratch.head_group ? left : dev->scratch.head_group;
        expand(device, op->k_up, op->k_transposed, first, n, row, n_keys, dev->scratch.keys,
               op->nope);
        expand(device, op->v_up, false, first, n, row, n_keys, dev->scratch.values, op->v_dim);
        struct expanded_keys keys = {
            dev->scratch.keys, dev->scratch.values, dev->scratch.latents, n_keys,
            op->nope,          op->v_dim,           op->latent,           row};
        struct queries a = {};
        a.q = a.rest = op->q + first * (op->nope + op->rope);
        a.q_stride = op->q_stride;
        a.q_head = a.first = a.width = op->nope + op->rope;
        a.out_head = a.v_width = op->v_dim;
        a.n_heads = (int)n;
        a.scale = op->scale;
        a.visible = op->visible;
        a.out = op->out + first * op->v_dim;
        a.out_stride = op->out_stride;
        attend(dev, keys, a, "mla_expanded");
    }
}
