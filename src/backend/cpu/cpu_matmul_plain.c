// The kernel of machines without a faster one: any type, dequantised a chunk at a time, plain C
// with eight partial sums that a compiler may keep in vector registers of its baseline.
#include <string.h>

#include "backend/cpu/cpu_matmul.h"

static float dot_chunk(const float *restrict w, const float *restrict x, int64_t n) {
    float lanes[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++) lanes[l] += w[i + l] * x[i + l];
    for (int l = 0; i < n; i++, l++) lanes[l] += w[i] * x[i];
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

static void plain_unpack(const struct lp_type_info *type, const uint8_t *row, int64_t first,
                         int64_t n, void *panel_row) {
    type->dequant(row + (size_t)(first / type->block_values) * type->block_bytes, panel_row,
                  (size_t)n);
}

static void plain_dot(const struct lp_type_info *type, const uint8_t *w, size_t row_bytes,
                      int64_t n_rows, const void *x_, int64_t n_in, float *out) {
    const float *x = x_;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t first = 0; first < n_in; first += LP_MAT_CHUNK_F32) {
            int64_t n = n_in - first < LP_MAT_CHUNK_F32 ? n_in - first : LP_MAT_CHUNK_F32;
            float values[LP_MAT_CHUNK_F32];
            plain_unpack(type, w + (size_t)r * row_bytes, first, n, values);
            float sum = dot_chunk(values, x + first, n);
            out[r] = first == 0 ? sum : out[r] + sum;
        }
}

static void plain_tile(const void *panel, int n_rows, const void *const *x, int n_x, int64_t first,
                       int64_t n, float *out) {
    for (int r = 0; r < n_rows; r++)
        for (int t = 0; t < n_x; t++) {
            const float *w = (const float *)panel + r * LP_MAT_PANEL_F32;
            float sum = dot_chunk(w, (const float *)x[t] + first, n),
                  *y = out + t * LP_MAT_ROWS + r;
            *y = first == 0 ? sum : *y + sum;
        }
}

static void plain_axpy(const float *panel, int n_d, const float *x, float *y, int64_t n,
                       bool first) {
    for (int64_t j = 0; j < n; j++) {
        float sum = x[0] * panel[j];
        for (int d = 1; d < n_d; d++) sum += x[d] * panel[d * LP_MAT_PANEL_F32 + j];
        y[j] = first ? sum : y[j] + sum;
    }
}

const struct lp_cpu_mat_kernel lp_cpu_mat_plain = {
    .name = "plain_dequant",
    .act = LP_CPU_ACT_F32,
    .dot = plain_dot,
    .unpack = plain_unpack,
    .tile = plain_tile,
    .axpy = plain_axpy,
};
