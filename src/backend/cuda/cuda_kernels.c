// The registry of the cuda backend's matrix kernels. The order of the table is the preference.
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_q8.h"

#define Q8_ROW(stem, type)                                                                         \
    { "matmul", "cuda_q8_" #stem, LP_TYPE_##type, LP_CUDA_SM80, &lp_cuda_q8_##stem }

static const struct lp_kernel candidates[] = {
    Q8_ROW(q4_k, Q4_K),
    Q8_ROW(q5_k, Q5_K),
    Q8_ROW(q6_k, Q6_K),
    Q8_ROW(q8_0, Q8_0),
    {"matmul", "cuda_matmul_dequant", LP_KERNEL_ANY_TYPE, 0, NULL},
};

void lp_cuda_choose_kernels(struct lp_cuda_device *dev) {
    const size_t n = sizeof candidates / sizeof candidates[0];
    for (int type = 0; type < LP_TYPE_COUNT; type++) {
        struct lp_kernel_query query = {
            .op = "matmul", .type = (lp_type)type, .features = dev->major >= 8 ? LP_CUDA_SM80 : 0};
        int i = lp_kernel_choose(candidates, n, &query);
        dev->matmul[type] = &candidates[i < 0 ? (int)n - 1 : i];
    }
}
