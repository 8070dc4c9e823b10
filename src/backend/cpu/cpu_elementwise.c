// Norms, rotary embedding, adds, SiLU and cache writes on the CPU. All are bound by memory; a row
// (or a piece of a row, where values are independent) is a task. Sums of the norms run in double in
// eight interleaved chains, added in a fixed order.
#include "backend/cpu/cpu_attn.h"

#include <math.h>

#define PIECE 4096 // values of a row that go to one worker at a time

struct row_job {
    const void *op;
    struct lp_cpu_device *dev;
    const struct lp_cpu_lanes *lanes;
    int64_t n_rows, n_pieces; // pieces of a row
};

static void run(struct lp_device *device, const void *op, int64_t n_rows, int64_t width,
                int64_t n_pieces, lp_worker_fn fn) {
    struct lp_cpu_device *dev = lp_cpu_device(device);
    struct row_job job = {
        .op = op, .dev = dev, .lanes = dev->lanes, .n_rows = n_rows, .n_pieces = n_pieces};
    lp_cpu_run(dev, n_rows * width, fn, &job);
}

static void range(const struct row_job *job, int worker, int n_workers, int64_t *begin,
                  int64_t *end) {
    size_t b, e;
    lp_worker_range((size_t)(job->n_rows * job->n_pieces), 1, worker, n_workers, &b, &e);
    *begin = (int64_t)b;
    *end = (int64_t)e;
}

// The values at..at + n - 1 of row *row that piece number i stands for.
static int64_t piece_of(const struct row_job *job, int64_t i, int32_t width, int64_t *row,
                        int64_t *at) {
    *row = i / job->n_pieces;
    *at = i % job->n_pieces * PIECE;
    return width - *at < PIECE ? width - *at : PIECE;
}

// sum of (x - mean)^2 (mean 0: of squares)
static double sum_squares(const float *x, int32_t n, double mean) {
    double sum[8] = {0};
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) {
            double d = x[i + j] - mean;
            sum[j] += d * d;
        }
    for (; i < n; i++) sum[i % 8] += (x[i] - mean) * (x[i] - mean);
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static double sum_values(const float *x, int32_t n) {
    double sum[8] = {0};
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) sum[j] += x[i + j];
    for (; i < n; i++) sum[i % 8] += x[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static void rms_norm_rows(void *job_, int worker, int n_workers) {
    const struct row_job *job = job_;
    const struct lp_op_rms_norm *op = job->op;
    int64_t t, end;
    for (range(job, worker, n_workers, &t, &end); t < end; t++) {
        const float *x = op->x + t * op->x_stride;
        float *y = op->y + t * op->y_stride;
        double inverse = 1.0 / sqrt(sum_squares(x, op->width, 0) / op->width + op->eps);
        if (op->w)
            for (int32_t i = 0; i < op->width; i++) y[i] = (float)(x[i] * inverse * op->w[i]);
        else
            for (int32_t i = 0; i < op->width; i++) y[i] = (float)(x[i] * inverse);
    }
}

void lp_cpu_rms_norm(struct lp_device *dev, const struct lp_op_rms_norm *op) {
    run(dev, op, op->n_rows, op->width, 1, rms_norm_rows);
}

static void layer_norm_rows(void *job_, int worker, int n_workers) {
    const struct row_job *job = job_;
    const struct lp_op_layer_norm *op = job->op;
    int64_t t, end;
    for (range(job, worker, n_workers, &t, &end); t < end; t++) {
        const float *x = op->x + t * op->x_stride;
        float *y = op->y + t * op->y_stride;
        double mean = sum_values(x, op->width) / op->width;
        double inverse = 1.0 / sqrt(sum_squares(x, op->width, mean) / op->width + op->eps);
        for (int32_t i = 0; i < op->width; i++)
            y[i] = (float)((x[i] - mean) * inverse * op->w[i] + op->b[i]);
    }
}

void lp_cpu_layer_norm(struct lp_device *dev, const struct lp_op_layer_norm *op) {
    run(dev, op, op->n_rows, op->width, 1, layer_norm_rows);
}

// n pairs of one head, whose members lie `apart` floats from each other and `step` from the next
// pair's.
static void rotate(float *x, int n, int64_t step, int64_t apart, const double *cosine,
                   const double *sine) {
    for (int i = 0; i < n; i++) {
        double a = x[i * step], b = x[i * step + apart];
        x[i * step] = (float)(a * cosine[i] - b * sine[i]);
        x[i * step + apart] = (float)(a * sine[i] + b * cosine[i]);
    }
}

#define PAIRS 64 // whose cos and sin are kept while all heads of a token turn

static void rope_rows(void *job_, int worker, int n_workers) {
    const struct row_job *job = job_;
    const struct lp_op_rope *op = job->op;
    int32_t half = op->width / 2;
    int64_t step = op->pairing == LP_ROPE_ADJACENT ? 2 : 1,
            apart = op->pairing == LP_ROPE_ADJACENT ? 1 : half;
    int64_t t, end;
    for (range(job, worker, n_workers, &t, &end); t < end; t++)
        for (int32_t first = 0; first < half; first += PAIRS) {
            double cosine[PAIRS], sine[PAIRS];
            int n = half - first < PAIRS ? half - first : PAIRS;
            for (int i = 0; i < n; i++) {
                float angle = (float)op->positions[t] * op->inv_freq[first + i];
                cosine[i] = cos((double)angle) * op->magnitude;
                sine[i] = sin((double)angle) * op->magnitude;
            }
            for (int32_t h = 0; h < op->n_heads; h++)
                rotate(op->x + t * op->token_stride + h * op->head_stride + first * step, n, step,
                       apart, cosine, sine);
        }
}

void lp_cpu_rope(struct lp_device *dev, const struct lp_op_rope *op) {
    // cos and sin of a pair cost about as much as turning 20 pairs
    run(dev, op, op->n_tokens, (int64_t)op->width * (op->n_heads + 20), 1, rope_rows);
}

static void add_pieces(void *job_, int worker, int n_workers) {
    const struct row_job *job = job_;
    const struct lp_op_add *op = job->op;
    int64_t i, end, row, at;
    for (range(job, worker, n_workers, &i, &end); i < end; i++) {
        int64_t n = piece_of(job, i, op->width, &row, &at);
        float *y = op->y + row * op->y_stride + at;
        const float *x = op->x + row * op->x_stride + at;
        for (int64_t j = 0; j < n; j++) y[j] += x[j];
    }
}

void lp_cpu_add(struct lp_device *dev, const struct lp_op_add *op) {
    run(dev, op, op->n_rows, op->width, (op->width + PIECE - 1) / PIECE, add_pieces);
}

static void silu_pieces(void *job_, int worker, int n_workers) {
    const struct row_job *job = job_;
    const struct lp_op_silu_mul *op = job->op;
    int64_t i, end, row, at;
    for (range(job, worker, n_workers, &i, &end); i < end; i++) {
        int64_t n = piece_of(job, i, op->width, &row, &at), first = row * op->stride + at;
        job->lanes->silu_mul(op->gate + first, op->up + first, op->y + first, (size_t)n);
    }
}

void lp_cpu_silu_mul(struct lp_device *dev, const struct lp_op_silu_mul *op) {
    run(dev, op, op->n_rows, op->width, (op->width + PIECE - 1) / PIECE, silu_pieces);
}

static void store_row(const struct lp_cpu_lanes *lanes, const struct lp_cache_view *cache,
                      const float *x, void *row) {
    const int32_t n = cache->width - cache->n_tail;
    lanes->store(cache->type, x, row, (size_t)n);
    if (cache->n_tail)
        lanes->store(LP_TYPE_BF16, x + n, (char *)row + lp_cache_offset(cache, n),
                     (size_t)cache->n_tail);
}

static void cache_rows(void *job_, int worker, int n_workers) {
    const struct row_job *job = job_;
    const struct lp_op_cache_write *op = job->op;
    int64_t t, end;
    for (range(job, worker, n_workers, &t, &end); t < end; t++) {
        store_row(job->lanes, op->cache, op->x + t * op->x_stride,
                  lp_cpu_cache_row(op->cache, op->first_pos + t));
        if (op->cache->extra_offset) lp_cpu_index_keep(job->dev, op->cache, op->first_pos + t);
    }
}

void lp_cpu_cache_write(struct lp_device *dev, const struct lp_op_cache_write *op) {
    run(dev, op, op->n_rows, op->cache->width, 1, cache_rows);
}
