// The laboratory's part of absorbed attention: dense and with a selection, one sequence and many.
//
// bytes: each cached row once for all heads and queries of a sequence (of a selection, once a query);
// flops: 2 x (576 + 512) a head and key.
#include "backend/cuda/cuda_latent.h"
#include "backend/cuda/cuda_dequant.cuh"
#include "cuda_lab.cuh"

#define F8_ROW_BYTES (4 * 132 + 64 * 2)
static __host__ __device__ size_t row_bytes_of(lp_type type) {
    return type == LP_TYPE_F8_E4M3 ? F8_ROW_BYTES : 576 * 2;
}

// Rows of an FP8 cache, one behind the other: scales of 1/64, about.
static __global__ void fill_f8_rows(uint32_t *to, size_t n_words) {
    for (size_t i = (size_t)blockIdx.x * 256 + threadIdx.x; i < n_words;
         i += (size_t)gridDim.x * 256) {
        const int word = (int)(i % (F8_ROW_BYTES / 4));
        if (word >= 132)
            to[i] = lp_cuda_pack2<LP_TYPE_BF16>(value_at(2 * i), value_at(2 * i + 1));
        else if (word % 33 == 0)
            to[i] = __float_as_uint((1.0f + 0.25f * value_at(i)) / 64);
        else {
            to[i] = 0;
            for (int j = 0; j < 4; j++)
                to[i] |= (uint32_t)lp_cuda_to_e4m3(64 * value_at(4 * i + j)) << 8 * j;
        }
    }
}

struct latent_case {
    const char *name;
    int n_heads, n_sequences, n_queries, context, top_k; // context: keys of the last query
    lp_type type;
};

struct latent_data {
    struct latent_case c;
    uint8_t *pool; // pages of all sequences
    int n_sets;    // of sequences, that take turns
    float *q, *out;
    int32_t *pages, *ids, *counts;
    int64_t q_row, pages_of_sequence;
};

static void make_pages(struct latent_data *d, size_t pool_bytes) {
    const struct latent_case *c = &d->c;
    d->pages_of_sequence = (c->context + PAGE - 1) / PAGE;
    const int64_t n = d->pages_of_sequence * c->n_sequences,
                  fit = (int64_t)(pool_bytes / (row_bytes_of(c->type) * PAGE)) / n;
    d->n_sets = (int)std::min<int64_t>(fit, 40);
    std::vector<int32_t> pages((size_t)(n * d->n_sets));
    for (size_t i = 0; i < pages.size(); i++) pages[i] = (int32_t)i;
    for (size_t i = pages.size() - 1; i > 0; i--)
        std::swap(pages[i], pages[mix(i * 2654435761ull) % (i + 1)]);
    d->pages = upload(pages);
}

// One key of each of top_k equal parts of the context.
static void make_lists(struct latent_data *d) {
    const struct latent_case *c = &d->c;
    const int n = c->n_sequences * c->n_queries;
    std::vector<int32_t> ids((size_t)n * c->top_k), counts((size_t)n);
    for (int q = 0; q < n; q++) {
        const int seen = c->context - c->n_queries + q % c->n_queries + 1,
                  count = std::min(seen, c->top_k);
        counts[(size_t)q] = count;
        for (int i = 0; i < count; i++) {
            const int64_t a = (int64_t)i * seen / count, b = (int64_t)(i + 1) * seen / count;
            ids[(size_t)q * c->top_k + i] =
                (int32_t)(a + mix((uint64_t)q * 7919 + i) % (uint64_t)(b - a));
        }
    }
    d->ids = upload(ids);
    d->counts = upload(counts);
}

static struct lp_op_mla_absorbed latent_op(const struct latent_data *d, int sequence, int set,
                                           struct lp_cache_view *view) {
    const struct latent_case *c = &d->c;
    const int64_t first = (int64_t)sequence * c->n_queries;
    *view = (struct lp_cache_view){};
    view->base = d->pool;
    view->type = c->type;
    view->width = 576;
    view->page_tokens = PAGE;
    view->n_tail = c->type == LP_TYPE_F8_E4M3 ? 64 : 0;
    view->row_bytes = row_bytes_of(c->type);
    view->page_bytes = view->row_bytes * PAGE;
    view->pages = d->pages + ((int64_t)set * c->n_sequences + sequence) * d->pages_of_sequence;
    struct lp_op_mla_absorbed op = {};
    op.q_latent = d->q + first * d->q_row;
    op.q_latent_stride = op.q_rope_stride = d->q_row;
    op.q_rope = op.q_latent + c->n_heads * 512;
    op.q_rope_head_stride = 64;
    op.cache = view;
    op.visible.first_pos = c->context - c->n_queries;
    op.visible.n_queries = c->n_queries;
    op.visible.ids = c->top_k ? d->ids + first * c->top_k : NULL;
    op.visible.counts = c->top_k ? d->counts + first : NULL;
    op.visible.k = c->top_k;
    op.n_heads = c->n_heads;
    op.latent = 512;
    op.rope = 64;
    op.scale = 0.0625f;
    op.out = d->out + first * c->n_heads * 512;
    op.out_stride = (int64_t)c->n_heads * 512;
    return op;
}

// One (query, head) in double; the largest difference, and the largest value.
static __global__ void latent_check(struct latent_data d, int set, const int32_t *rows,
                                    double *scores, double *result) {
    const struct latent_case c = d.c;
    const int row = rows[blockIdx.x], h = row % c.n_heads, q = row / c.n_heads;
    const int n = c.top_k ? d.counts[q] : c.context - c.n_queries + q % c.n_queries + 1;
    const int32_t *pages =
        d.pages + ((int64_t)set * c.n_sequences + q / c.n_queries) * d.pages_of_sequence;
    const float *latent = d.q + q * d.q_row + h * 512,
                *rope = d.q + q * d.q_row + c.n_heads * 512 + h * 64;
    double *p = scores + (int64_t)blockIdx.x * c.context;
    auto key = [&](int i, int j) {
        const int pos = c.top_k ? d.ids[(int64_t)q * c.top_k + i] : i;
        const size_t row_bytes = row_bytes_of(c.type);
        const uint8_t *row = d.pool + (size_t)pages[pos / PAGE] * row_bytes * PAGE +
                             (size_t)(pos % PAGE) * row_bytes;
        const bool f8 = c.type == LP_TYPE_F8_E4M3;
        if (f8 && j < 512) {
            const uint8_t *block = row + j / 128 * 132;
            return (double)(*(const float *)block * lp_cuda_e4m3(block[4 + j % 128]));
        }
        const uint16_t bits = *(const uint16_t *)(f8 ? row + 528 + 2 * (j - 512) : row + 2 * j);
        float low, high;
        if (c.type == LP_TYPE_F16)
            lp_cuda_unpack2<LP_TYPE_F16>(bits, &low, &high);
        else
            lp_cuda_unpack2<LP_TYPE_BF16>(bits, &low, &high);
        return (double)low;
    };
    double most = -INFINITY, sum = 0, worst = 0, largest = 0;
    for (int i = threadIdx.x; i < n; i += 256) {
        double dot = 0;
        for (int j = 0; j < 576; j++)
            dot += (double)(j < 512 ? latent[j] : rope[j - 512]) * key(i, j);
        p[i] = dot * 0.0625;
    }
    __syncthreads();
    for (int i = 0; i < n; i++) most = p[i] > most ? p[i] : most;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 256) p[i] = exp(p[i] - most);
    __syncthreads();
    for (int i = 0; i < n; i++) sum += p[i];
    const float *out = d.out + ((int64_t)q * c.n_heads + h) * 512;
    for (int j = threadIdx.x; j < 512; j += 256) {
        double value = 0;
        for (int i = 0; i < n; i++) value += p[i] * key(i, j);
        value /= sum;
        const double off = fabs(value - out[j]);
        worst = off > worst || isnan(off) ? off : worst;
        largest = fmax(largest, fabs(value));
    }
    result[(blockIdx.x * 256 + threadIdx.x) * 2] = worst;
    result[(blockIdx.x * 256 + threadIdx.x) * 2 + 1] = largest;
}

static double latent_error(const struct latent_data *d, int set) {
    const int n = 24, n_rows = d->c.n_sequences * d->c.n_queries * d->c.n_heads;
    std::vector<int32_t> rows;
    for (int i = 0; i < n; i++) rows.push_back(i == 0 ? n_rows - 1 : (int)(mix(i) % n_rows));
    int32_t *device_rows = upload(rows);
    double *scores = (double *)take((size_t)n * d->c.context * 8),
           *result = (double *)take(n * 256 * 16);
    latent_check<<<n, 256, 0, stream>>>(*d, set, device_rows, scores, result);
    CHECK(cudaGetLastError());
    const double error = worst_of_rows(result, n);
    CHECK(cudaFree(device_rows));
    CHECK(cudaFree(scores));
    CHECK(cudaFree(result));
    return error;
}

// All sequences in one launch; in several where partial results have no room.
static int make_launches(const struct latent_data *d, int set, struct lp_cuda_segments segments,
                         int walk, float *partial, float *sums, int most_slots,
                         std::vector<struct lp_cuda_latent_launch> *out) {
    out->clear();
    struct lp_cuda_latent_launch empty = {};
    empty.partial = partial;
    empty.partial_sums = sums;
    out->push_back(empty);
    for (int s = 0; s < d->c.n_sequences; s++) {
        struct lp_cache_view view;
        const struct lp_op_mla_absorbed op = latent_op(d, s, set, &view);
        for (int64_t at = 0; at < d->c.n_queries;) {
            const int64_t n = lp_cuda_latent_add(&out->back(), &op, at, segments, walk, most_slots);
            if (n == 0) out->push_back(empty);
            at += n;
        }
    }
    return (int)out->size();
}

struct latent_setting {
    struct lp_cuda_segments segments;
    int walk; // 0: as lp_cuda_latent_walk chooses; -1: all
};

// A block of 256 threads: the sum of all bits, of an order that does not matter.
static __global__ void sum_bits(const uint32_t *from, size_t n, unsigned long long *sum) {
    unsigned long long part = 0;
    for (size_t i = (size_t)blockIdx.x * 256 + threadIdx.x; i < n; i += (size_t)gridDim.x * 256)
        part += (from[i] ^ (uint32_t)i) * (i * 2 + 1);
    atomicAdd(sum, part);
}
static unsigned long long bits_of(const float *from, size_t n) {
    unsigned long long *sum = (unsigned long long *)take(8), host = 0;
    CHECK(cudaMemsetAsync(sum, 0, 8, stream));
    sum_bits<<<512, 256, 0, stream>>>((const uint32_t *)from, n, sum);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&host, sum, 8, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(sum));
    return host;
}

static const struct {
    const char *name;
    cudaError_t (*start)(const struct lp_cuda_latent_launch *, lp_type, cudaStream_t);
} kernels[] = {{"mma", lp_cuda_latent_mma}, {"wgmma", lp_cuda_latent_wgmma}};
#define N_KERNELS 2

struct latent_room { // for partial results
    float *partial, *sums;
    int slots;
};

// One setting of one kernel: a line. bits: those of the setting before it with the same segments.
static void latent_setting_run(const struct latent_data *d, const struct latent_setting *setting,
                               int kernel, const struct latent_room *room,
                               unsigned long long *bits) {
    const struct latent_case *c = &d->c;
    const int n_queries = c->n_sequences * c->n_queries,
              seen = c->top_k ? std::min(c->top_k, c->context) : c->context,
              keys = lp_cuda_segment_keys(setting->segments, seen),
              n_segments = (seen + keys - 1) / keys;
    const double visits = (double)n_queries * seen,
                 bytes =
                     (c->top_k ? visits : visits / c->n_queries) * (double)row_bytes_of(c->type),
                 flops = visits * c->n_heads * 2 * (576 + 512);
    const size_t n_out = (size_t)n_queries * c->n_heads * 512;
    struct lp_cache_view view;
    const struct lp_op_mla_absorbed op = latent_op(d, 0, 0, &view);
    int walk = setting->walk;
    if (walk < 0) walk = setting->segments.most;
    if (walk == 0)
        walk = lp_cuda_latent_walk(&op, setting->segments, c->n_sequences, n_multiprocessors);
    char text[32];
    snprintf(text, sizeof text, "%dx%d/%d%s", keys, n_segments, std::min(walk, n_segments),
             setting->walk ? "" : "*");
    std::vector<std::vector<struct lp_cuda_latent_launch>> sets((size_t)d->n_sets);
    for (int s = 0; s < d->n_sets; s++)
        make_launches(d, s, setting->segments, walk, room->partial, room->sums, room->slots,
                      &sets[(size_t)s]);
    CHECK(cudaMemsetAsync(d->out, 0xff, n_out * 4, stream));
    auto run = [&](int turn) {
        for (const auto &launch : sets[(size_t)(turn % d->n_sets)])
            CHECK(kernels[kernel].start(&launch, c->type, stream));
    };
    run(0);
    double error = latent_error(d, 0);
    const unsigned long long now = bits_of(d->out, n_out);
    if (*bits && *bits != now) error = NAN; // rule B2
    *bits = now;
    report(c->name, kernels[kernel].name, text, median_in_graph(run), bytes, flops, error,
           c->type == LP_TYPE_F16    ? 2e-3
           : c->type == LP_TYPE_BF16 ? 1e-2
                                     : 2e-2);
}

// "*": the choice of lp_cuda_latent_walk; the last line of a case has segments without end.
static void latent_case_run(const struct latent_case *c, uint8_t *pool, size_t pool_bytes,
                            const struct latent_room *room) {
    static const struct latent_setting settings[] = {
        {{128, 128}, 0},  {{256, 128}, 0}, {{256, 128}, -1}, {{512, 128}, 0},
        {{512, 128}, -1}, {{512, 128}, 1}, {{1024, 128}, 0}, {{1 << 20, 128}, 0}};
    const int n_queries = c->n_sequences * c->n_queries;
    struct latent_data d = {};
    if (!strstr(c->name, only)) return;
    d.c = *c;
    d.pool = pool;
    d.q_row = (int64_t)c->n_heads * 576;
    d.q = (float *)take((size_t)n_queries * d.q_row * 4);
    d.out = (float *)take((size_t)n_queries * c->n_heads * 2048);
    fill_values(d.q, (size_t)n_queries * d.q_row * 4, LP_TYPE_F32);
    make_pages(&d, pool_bytes);
    if (c->top_k) make_lists(&d);
    for (int kernel = N_KERNELS - 1; kernel >= 0; kernel--) {
        unsigned long long bits = 0;
        int32_t keys = 0;
        if (only_kernel && strcmp(only_kernel, kernels[kernel].name) != 0) continue;
        for (const struct latent_setting &s : settings) {
            if (kernel == 0 && (s.segments.keys != 512 || s.walk != 0)) continue;
            if (s.segments.keys != keys) bits = 0;
            keys = s.segments.keys;
            latent_setting_run(&d, &s, kernel, room, &bits);
        }
    }
    CHECK(cudaFree(d.q));
    CHECK(cudaFree(d.out));
    CHECK(cudaFree(d.pages));
    CHECK(cudaFree(d.ids));
    CHECK(cudaFree(d.counts));
}

static void latent_cases(void) {
    static const struct latent_case cases[] = {
        {"dense 64h b128 4k", 64, 128, 1, 4096, 0, LP_TYPE_BF16},
        {"dense 128h b128 4k", 128, 128, 1, 4096, 0, LP_TYPE_BF16},
        {"dense 64h b128 32k", 64, 128, 1, 32768, 0, LP_TYPE_BF16},
        {"dense 128h b128 32k", 128, 128, 1, 32768, 0, LP_TYPE_BF16},
        {"dense 64h b1 4k", 64, 1, 1, 4096, 0, LP_TYPE_BF16},
        {"dense 64h b1 4k f16", 64, 1, 1, 4096, 0, LP_TYPE_F16},
        {"dense 128h b1 32k", 128, 1, 1, 32768, 0, LP_TYPE_BF16},
        {"dense 16h b64 4q 8k", 16, 64, 4, 8192, 0, LP_TYPE_BF16},
        {"dense 64h b1 64k", 64, 1, 1, 65536, 0, LP_TYPE_BF16},
        {"sparse 64h b1 2048 of 4k", 64, 1, 1, 4096, 2048, LP_TYPE_BF16},
        {"sparse 64h b128 2048 of 4k", 64, 128, 1, 4096, 2048, LP_TYPE_BF16},
        {"sparse 64h b128 2048 of 128k", 64, 128, 1, 131072, 2048, LP_TYPE_BF16},
        {"sparse 128h b64 2q 2048 of 128k", 128, 64, 2, 131072, 2048, LP_TYPE_BF16},
        {"prefill 64h 4096q 2048 of 32k", 64, 1, 4096, 32768, 2048, LP_TYPE_BF16},
        {"prefill 64h 4096q 2048 of 32k f16", 64, 1, 4096, 32768, 2048, LP_TYPE_F16},
        {"dense 64h b128 4k fp8", 64, 128, 1, 4096, 0, LP_TYPE_F8_E4M3},
        {"dense 64h b128 32k fp8", 64, 128, 1, 32768, 0, LP_TYPE_F8_E4M3},
        {"dense 64h b1 4k fp8", 64, 1, 1, 4096, 0, LP_TYPE_F8_E4M3},
        {"dense 64h b1 64k fp8", 64, 1, 1, 65536, 0, LP_TYPE_F8_E4M3},
        {"sparse 64h b128 2048 of 128k fp8", 64, 128, 1, 131072, 2048, LP_TYPE_F8_E4M3},
    };
    const size_t pool_bytes = (size_t)20 << 30;
    uint8_t *pool = (uint8_t *)take(pool_bytes);
    struct latent_room room = {};
    room.slots = 8192;
    room.partial = (float *)take((size_t)room.slots * 64 * 512 * 4);
    room.sums = (float *)take((size_t)room.slots * 64 * 2 * 4);
    lp_type type = LP_TYPE_COUNT;
    for (const struct latent_case &c : cases) {
        if (!strstr(c.name, only)) continue;
        if (c.type != type && c.type == LP_TYPE_F8_E4M3)
            fill_f8_rows<<<2048, 256, 0, stream>>>((uint32_t *)pool, pool_bytes / 4);
        else if (c.type != type)
            fill_values(pool, pool_bytes, c.type);
        type = c.type;
        latent_case_run(&c, pool, pool_bytes, &room);
    }
    CHECK(cudaFree(pool));
    CHECK(cudaFree(room.partial));
    CHECK(cudaFree(room.sums));
}
