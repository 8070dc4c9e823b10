// The laboratory's part of expanded attention over many queries, from keys and values that are there.
//
// flops: 2 x (nope + 64 + v_dim) a head and key that a query sees; bytes: queries, keys, values, output.
#include "backend/cuda/cuda_prefill.h"
#include "cuda_lab.cuh"

struct prefill_case {
    const char *name;
    int n_heads, nope, v_dim, first_pos, n_queries;
    lp_type type;
};

static __device__ double prefill_value(const uint16_t *at, int type) {
    float low, high;
    if (type == LP_TYPE_F16)
        lp_cuda_unpack2<LP_TYPE_F16>(*at, &low, &high);
    else
        lp_cuda_unpack2<LP_TYPE_BF16>(*at, &low, &high);
    return low;
}

// One (query, head) in double: rows[block]; its largest difference and value of each thread.
static __global__ void prefill_check(struct lp_cuda_prefill p, int type, const int32_t *rows,
                                     double *scores, double *result) {
    const int h = rows[blockIdx.x] % p.n_heads, q = rows[blockIdx.x] / p.n_heads,
              n = p.first_pos + q + 1;
    const uint16_t *keys = p.keys + (size_t)h * p.n_keys * p.nope,
                   *values = p.values + (size_t)h * p.n_keys * p.v_dim;
    const float *query = p.q + q * p.q_stride + h * (p.nope + 64),
                *out = p.out + q * p.out_stride + h * p.v_dim;
    double *s = scores + (size_t)blockIdx.x * p.n_keys, most = -INFINITY, sum = 0, worst = 0,
           largest = 0;
    for (int i = threadIdx.x; i < n; i += 256) {
        const uint16_t *rope =
            (const uint16_t *)(p.base + (size_t)p.pages[i / PAGE] * p.page_bytes +
                               (size_t)(i % PAGE) * p.row_bytes + p.rope_offset);
        double dot = 0;
        for (int j = 0; j < p.nope; j++)
            dot += (double)query[j] * prefill_value(keys + (size_t)i * p.nope + j, type);
        for (int j = 0; j < 64; j++)
            dot += (double)query[p.nope + j] * prefill_value(rope + j, type);
        s[i] = dot * p.scale;
    }
    __syncthreads();
    for (int i = 0; i < n; i++) most = s[i] > most ? s[i] : most;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 256) s[i] = exp(s[i] - most);
    __syncthreads();
    for (int i = 0; i < n; i++) sum += s[i];
    for (int j = threadIdx.x; j < p.v_dim; j += 256) {
        double value = 0;
        for (int i = 0; i < n; i++)
            value += s[i] * prefill_value(values + (size_t)i * p.v_dim + j, type);
        value /= sum;
        const double off = fabs(value - out[j]);
        worst = off > worst || isnan(off) ? off : worst;
        largest = fmax(largest, fabs(value));
    }
    result[(blockIdx.x * 256 + threadIdx.x) * 2] = worst;
    result[(blockIdx.x * 256 + threadIdx.x) * 2 + 1] = largest;
}

static double prefill_error(const struct lp_cuda_prefill *p, lp_type type) {
    const int n = 24, n_rows = p->n_queries * p->n_heads;
    std::vector<int32_t> rows;
    for (int i = 0; i < n; i++) rows.push_back(i == 0 ? n_rows - 1 : (int)(mix(i) % n_rows));
    int32_t *device_rows = upload(rows);
    double *scores = (double *)take((size_t)n * p->n_keys * 8),
           *result = (double *)take(n * 256 * 16);
    prefill_check<<<n, 256, 0, stream>>>(*p, (int)type, device_rows, scores, result);
    CHECK(cudaGetLastError());
    const double error = worst_of_rows(result, n);
    CHECK(cudaFree(device_rows));
    CHECK(cudaFree(scores));
    CHECK(cudaFree(result));
    return error;
}

static const struct {
    const char *name;
    lp_cuda_prefill_start start;
} prefill_kernels[] = {{"mma", lp_cuda_prefill_mma}, {"wgmma", lp_cuda_prefill_wgmma}};

static void prefill_case_run(const struct prefill_case *c) {
    if (!strstr(c->name, only)) return;
    const int n_keys = c->first_pos + c->n_queries, n_pages = (n_keys + PAGE - 1) / PAGE;
    const size_t rows = (size_t)n_keys * c->n_heads, queries = (size_t)c->n_queries * c->n_heads;
    std::vector<int32_t> pages((size_t)n_pages);
    for (int i = 0; i < n_pages; i++) pages[(size_t)i] = n_pages - 1 - i;
    struct lp_cuda_prefill p = {};
    void *q = take(queries * (c->nope + 64) * 4), *keys = take(rows * c->nope * 2),
         *values = take(rows * c->v_dim * 2), *cache = take((size_t)n_pages * PAGE * 1152),
         *out = take(queries * c->v_dim * 4);
    int32_t *device_pages = upload(pages);
    fill_values(q, queries * (c->nope + 64) * 4, LP_TYPE_F32);
    fill_values(keys, rows * c->nope * 2, c->type);
    fill_values(values, rows * c->v_dim * 2, c->type);
    fill_values(cache, (size_t)n_pages * PAGE * 1152, c->type);
    p.q = (const float *)q;
    p.q_stride = (int64_t)c->n_heads * (c->nope + 64);
    p.keys = (const uint16_t *)keys;
    p.values = (const uint16_t *)values;
    p.base = (const uint8_t *)cache;
    p.pages = device_pages;
    p.row_bytes = 1152;
    p.page_bytes = 1152 * PAGE;
    p.rope_offset = 1024;
    p.page_tokens = PAGE;
    p.whole_chunks = true;
    p.first_pos = c->first_pos;
    p.n_queries = c->n_queries;
    p.n_keys = n_keys;
    p.n_heads = c->n_heads;
    p.nope = c->nope;
    p.v_dim = c->v_dim;
    p.scale = 0.0625f;
    p.out = (float *)out;
    p.out_stride = (int64_t)c->n_heads * c->v_dim;
    const double seen = c->first_pos + 0.5 * (c->n_queries + 1),
                 flops = 2.0 * queries * seen * (c->nope + 64 + c->v_dim),
                 bytes =
                     rows * 2.0 * (c->nope + c->v_dim) + queries * 4.0 * (c->nope + 64 + c->v_dim);
    for (const auto &kernel : prefill_kernels) {
        if (only_kernel && strcmp(only_kernel, kernel.name) != 0) continue;
        CHECK(cudaMemsetAsync(out, 0xff, queries * c->v_dim * 4, stream));
        auto run = [&](int) { CHECK(kernel.start(&p, c->type, stream)); };
        run(0);
        const double error = prefill_error(&p, c->type), seconds = median_seconds(20, run);
        report(c->name, kernel.name, "", seconds, bytes, flops, error,
               c->type == LP_TYPE_F16 ? 2e-3 : 1e-2);
    }
    void *blocks[] = {q, keys, values, cache, out, device_pages};
    for (void *block : blocks) CHECK(cudaFree(block));
}

static void prefill_cases(void) {
    static const struct prefill_case cases[] = {
        {"expanded 64h 256/256 8k", 64, 192, 256, 0, 8192, LP_TYPE_BF16},
        {"expanded 64h 256/256 2k f16", 64, 192, 256, 0, 2048, LP_TYPE_F16},
        {"expanded 128h 192/128 8k", 128, 128, 128, 0, 8192, LP_TYPE_BF16},
        {"expanded 64h 256/256 512 at 8k", 64, 192, 256, 7680, 512, LP_TYPE_BF16},
    };
    for (const struct prefill_case &c : cases) prefill_case_run(&c);
}
