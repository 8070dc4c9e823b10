// The laboratory's part of the indexer: the whole selection, and its scores alone.
#include "backend/cuda/cuda_index.cuh"
#include "cuda_lab.cuh"

static __global__ void index_check(struct lp_op_index_select op, struct lp_cuda_cache keys,
                                   int type, int n, double *scores, double *sizes) {
    const int pos = blockIdx.x * blockDim.x + threadIdx.x;
    if (pos >= n) return;
    const uint16_t *key = (const uint16_t *)lp_cuda_cache_row(keys, pos);
    double score = 0, size = 0;
    for (int h = 0; h < op.n_heads; h++) {
        double dot = 0, magnitude = 0;
        for (int i = 0; i < 128; i++) {
            float low, high;
            if (type == LP_TYPE_F16)
                lp_cuda_unpack2<LP_TYPE_F16>(key[i], &low, &high);
            else
                lp_cuda_unpack2<LP_TYPE_BF16>(key[i], &low, &high);
            dot += (double)op.q[h * 128 + i] * low;
            magnitude += fabs((double)op.q[h * 128 + i] * low);
        }
        score += op.w[h] * (dot > 0 ? dot : 0);
        size += fabs(op.w[h]) * magnitude;
    }
    scores[pos] = score * op.scale;
    sizes[pos] = size * op.scale;
}

// By how much a key that was left out beats one that was kept, relative to the largest sum of
// magnitudes; infinite if the list is not what it must be.
static double index_error(const struct lp_op_index_select *op, int n) {
    double *scores = (double *)take((size_t)n * 8), *sizes = (double *)take((size_t)n * 8);
    index_check<<<(n + 255) / 256, 256, 0, stream>>>(*op, lp_cuda_cache_of(op->keys),
                                                     (int)op->keys->type, n, scores, sizes);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    std::vector<double> score((size_t)n), size((size_t)n);
    std::vector<int32_t> ids((size_t)op->top_k);
    int32_t count = 0;
    CHECK(cudaMemcpy(score.data(), scores, (size_t)n * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(size.data(), sizes, (size_t)n * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(ids.data(), op->ids, ids.size() * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&count, op->counts, 4, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(scores));
    CHECK(cudaFree(sizes));
    if (count != op->top_k) return INFINITY;
    double worst_in = INFINITY, best_out = -INFINITY, largest = 0;
    int at = 0;
    for (int i = 0; i < n; i++) {
        const bool in = at < count && ids[(size_t)at] == i;
        at += in;
        largest = std::max(largest, size[(size_t)i]);
        if (in)
            worst_in = std::min(worst_in, score[(size_t)i]);
        else
            best_out = std::max(best_out, score[(size_t)i]);
    }
    return at == count ? std::max(0.0, best_out - worst_in) / largest : INFINITY;
}

template <int TYPE>
static __global__ void __launch_bounds__(LP_INDEX_THREADS, 2)
    score_alone(const __grid_constant__ struct lp_cuda_index s) {
    lp_index_score<TYPE>(s);
}

struct index_case {
    const char *name;
    int n_heads, n_queries, n_sets, context; // a set is a sequence; its queries are one call
    lp_type type;
};

static void index_case_run(const struct index_case *c, uint8_t *pool) {
    if (!strstr(c->name, only)) return;
    const int top_k = 2048;
    const int64_t rows = c->n_queries, n = c->context, pages_of_set = n / PAGE;
    std::vector<int32_t> pages((size_t)(pages_of_set * c->n_sets));
    for (size_t i = 0; i < pages.size(); i++) pages[i] = (int32_t)i;
    for (size_t i = pages.size() - 1; i > 0; i--)
        std::swap(pages[i], pages[mix(i * 2654435761ull) % (i + 1)]);
    int32_t *device_pages = upload(pages);
    struct lp_cuda_device dev = {};
    dev.stream = stream;
    CHECK(cudaDeviceGetAttribute(&dev.n_multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    dev.sizes.n_context = n;
    dev.scratch.score_rows = rows;
    dev.scratch.scores = (float *)take((size_t)(rows * n) * 4);
    dev.scratch.candidates = (int32_t *)take((size_t)(rows * n) * 4);
    dev.scratch.index_bins = (int32_t *)take((size_t)rows * LP_CUDA_INDEX_BINS * 4);
    dev.scratch.index_state = (int32_t *)take((size_t)rows * 16);
    dev.scratch.index_above = (int32_t *)take((size_t)(rows * (n / LP_CUDA_INDEX_CHUNK + 1)) * 4);
    CHECK(cudaMemset(dev.scratch.index_bins, 0, (size_t)rows * LP_CUDA_INDEX_BINS * 4));
    struct lp_cache_view view = {};
    view.base = pool;
    view.type = c->type;
    view.width = 128;
    view.page_tokens = PAGE;
    view.row_bytes = 256;
    view.page_bytes = 256 * PAGE;
    struct lp_op_index_select op = {};
    float *q = (float *)take((size_t)rows * c->n_heads * 129 * 4);
    fill_values(q, (size_t)rows * c->n_heads * 129 * 4, LP_TYPE_F32);
    op.q = q;
    op.q_stride = c->n_heads * 128;
    op.w = q + rows * c->n_heads * 128;
    op.w_stride = c->n_heads;
    op.keys = &view;
    op.n_queries = rows;
    op.first_pos = n - rows;
    op.n_heads = c->n_heads;
    op.width = 128;
    op.top_k = top_k;
    op.scale = 0.01f;
    op.ids = (int32_t *)take((size_t)rows * top_k * 4);
    op.ids_stride = top_k;
    op.counts = (int32_t *)take((size_t)rows * 4);
    const double bytes = 256.0 * n, flops = 2.0 * 128 * n * rows * c->n_heads;
    auto run = [&](int turn) {
        view.pages = device_pages + turn % c->n_sets * pages_of_set;
        lp_cuda_index_select_mma(&dev.base, &op);
        CHECK(dev.error);
    };
    run(0);
    CHECK(cudaStreamSynchronize(stream));
    const double error = index_error(&op, (int)(n - rows + 1));
    report(c->name, "all", "", median_in_graph(run), bytes, flops, error, 2e-6);
    for (int keys = 512; keys <= 4096; keys *= 2) {
        struct lp_cuda_index s = {};
        s.op = op;
        s.whole_chunks = true;
        s.n_context = n;
        s.run_keys = keys;
        s.scores = dev.scratch.scores;
        s.bins = dev.scratch.index_bins;
        s.state = dev.scratch.index_state;
        const int shared = (int)lp_index_shared_bytes(c->n_heads, c->type == LP_TYPE_F16 ? 2 : 3);
        const void *kernel = c->type == LP_TYPE_F16 ? (const void *)score_alone<LP_TYPE_F16>
                                                    : (const void *)score_alone<LP_TYPE_BF16>;
        CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
        char setting[32];
        snprintf(setting, sizeof setting, "%d", keys);
        const double seconds = median_in_graph([&](int turn) {
            view.pages = device_pages + turn % c->n_sets * pages_of_set;
            s.keys = lp_cuda_cache_of(&view);
            const dim3 blocks((unsigned)((n + keys - 1) / keys), (unsigned)rows);
            if (c->type == LP_TYPE_F16)
                score_alone<LP_TYPE_F16><<<blocks, LP_INDEX_THREADS, shared, stream>>>(s);
            else
                score_alone<LP_TYPE_BF16><<<blocks, LP_INDEX_THREADS, shared, stream>>>(s);
            CHECK(cudaGetLastError());
        });
        report(c->name, "scores only", setting, seconds, bytes, flops, 0, 0);
    }
    void *blocks[] = {device_pages,
                      dev.scratch.scores,
                      dev.scratch.candidates,
                      dev.scratch.index_bins,
                      dev.scratch.index_state,
                      dev.scratch.index_above,
                      q,
                      op.ids,
                      op.counts};
    for (void *block : blocks) CHECK(cudaFree(block));
}

static void index_cases(void) {
    static const struct index_case cases[] = {
        {"index 32h 128k f16", 32, 1, 32, 131072, LP_TYPE_F16},
        {"index 64h 128k f16", 64, 1, 32, 131072, LP_TYPE_F16},
        {"index 32h 128k bf16", 32, 1, 32, 131072, LP_TYPE_BF16},
        {"index 64h 128k bf16", 64, 1, 32, 131072, LP_TYPE_BF16},
        {"index 32h 8k f16", 32, 1, 128, 8192, LP_TYPE_F16},
        {"index 32h 64q 128k f16", 32, 64, 32, 131072, LP_TYPE_F16},
    };
    const size_t pool_bytes = (size_t)32 * 131072 * 256;
    uint8_t *pool = (uint8_t *)take(pool_bytes);
    lp_type type = LP_TYPE_COUNT;
    for (const struct index_case &c : cases) {
        if (c.type != type) fill_values(pool, pool_bytes, c.type);
        type = c.type;
        index_case_run(&c, pool);
    }
    CHECK(cudaFree(pool));
}
