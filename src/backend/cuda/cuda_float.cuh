// Products with weights of F32, F16 and BF16 (cuda_float.cu), for cuda_matmul.cu.
#ifndef LP_BACKEND_CUDA_CUDA_FLOAT_CUH
#define LP_BACKEND_CUDA_CUDA_FLOAT_CUH

#include "backend/cuda/cuda_common.cuh"

#define LP_CUDA_FLOAT_FEW 128 // rows, up to which weights are read again for every eight of them

// Weights of 16 bits: from so many rows (or pairs) on by cuda_wide.cuh where results may vary, since the
// kernel for few rows reads more activations than weights.
#define LP_CUDA_HALF_WIDE 8
static inline bool lp_cuda_is_half(const struct lp_weight *w) {
    return w->type == LP_TYPE_F16 || w->type == LP_TYPE_BF16;
}

struct lp_cuda_product { // y[t][h] = W[h] x[t][h]
    struct lp_cuda_weight w;
    const float *x; // row t of head h at x + t * x_row + h * x_head
    int64_t x_row, x_head;
    const float *bias;
    float *y;
    int64_t y_row, y_head, n_rows;
    bool accumulate, same_x;
};

bool lp_cuda_float_takes(const struct lp_cuda_weight *w);
// beside: lp_cuda_may_go_beside
void lp_cuda_float_start(struct lp_cuda_device *dev, const struct lp_cuda_product *p, bool beside);

#endif
