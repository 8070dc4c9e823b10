// The registry of the cuda backend's matrix kernels. The order of the table is the preference.
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_q8.h"
#include "backend/cuda/cuda_wide.h"

#define Q8_ROW(stem, type)                                                                         \
    {"matmul", "cuda_q8_" #stem, LP_TYPE_##type, LP_CUDA_SM80 | LP_CUDA_SHARED_227K,               \
     &lp_cuda_q8_##stem},
#define WIDE_ROW(stem, type)                                                                       \
    {"matmul_wide", "cuda_wide_" #stem "_sm90", LP_TYPE_##type, LP_CUDA_SM90A,                     \
     &lp_cuda_wide_##stem},

static const struct lp_kernel candidates[] = {
    LP_CUDA_Q8_TYPES(Q8_ROW) // of which each ends with a comma
    {"matmul", "cuda_matmul_float", LP_TYPE_F32, 0, NULL},
    {"matmul", "cuda_matmul_float", LP_TYPE_F16, 0, NULL},
    {"matmul", "cuda_matmul_float", LP_TYPE_BF16, 0, NULL},
    {"matmul", "cuda_matmul_dequant", LP_KERNEL_ANY_TYPE, 0, NULL},
    LP_CUDA_WIDE_TYPES(WIDE_ROW) // the same
};

static const struct lp_kernel *choose(const struct lp_cuda_device *dev, const char *op,
                                      lp_type type) {
    struct lp_kernel_query query = {.op = op, .type = type};
    if (dev->major >= 8) query.features |= LP_CUDA_SM80;
#if defined(LP_CUDA_BUILT_WGMMA)
    if (dev->major == 9 && dev->minor == 0 && dev->code == 90) query.features |= LP_CUDA_SM90A;
#endif
    // Code for other architectures has these kernels empty (LP_CUDA_ROOM), whatever the chip has.
    if (dev->shared_bytes >= (size_t)227 << 10 && dev->code >= 90 && dev->code < 120)
        query.features |= LP_CUDA_SHARED_227K;
    int i = lp_kernel_choose(candidates, sizeof candidates / sizeof candidates[0], &query);
    return i < 0 ? NULL : &candidates[i];
}

bool lp_cuda_act_is_there(struct lp_cuda_device *dev, const struct lp_cuda_act *a, bool same_x) {
    const struct lp_cuda_act *b = &dev->act;
    const bool there = same_x && a->x == b->x && a->x_row == b->x_row && a->x_head == b->x_head &&
                       a->n_rows == b->n_rows && a->n_heads == b->n_heads && a->n_in == b->n_in &&
                       a->layout == b->layout;
    dev->act = *a;
    return there;
}

static void prepare(struct lp_cuda_device *dev, const struct lp_kernel *few,
                    const struct lp_kernel *many) {
    const struct lp_cuda_q8_kernel *q8 = few->impl;
    const struct lp_cuda_wide_kernel *wide = many ? many->impl : NULL;
    if (q8 && q8->prepare) q8->prepare(dev);
    if (wide && wide->prepare) wide->prepare(dev);
}

void lp_cuda_choose_kernels(struct lp_cuda_device *dev) {
    for (int type = 0; type < LP_TYPE_COUNT; type++) {
        dev->matmul[type] = choose(dev, "matmul", (lp_type)type);
        dev->wide[type] = choose(dev, "matmul_wide", (lp_type)type);
        prepare(dev, dev->matmul[type], dev->wide[type]);
    }
    dev->wide_rows = 64;
    dev->wide_pairs = 32;
    dev->wide_blocks = dev->n_multiprocessors / 3;
}
