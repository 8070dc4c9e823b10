// Products of quantised weights with many activation rows on the tensor cores of sm_90a: float16 times
// float16, summed in float32. Inside backend/cuda.
//
// Weights are dequantised to float16 in registers, activations are rounded to float16 (11 bits) after
// each row was brought, by a power of two, to a largest value in 2^13 ... 2^14; a value below 2^-28 of
// its row's largest loses digits. A weight has three roundings: of its scale, of its minimum, of itself.
// So a product is off by at most 2^-9.4 of |w x|, far less in a sum. Its bits are not those of the
// kernels for few rows: the device takes these only where results may depend on the number of rows
// (lp_backend.fix_results).
#ifndef LP_BACKEND_CUDA_CUDA_WIDE_H
#define LP_BACKEND_CUDA_CUDA_WIDE_H

#include "backend/cuda/cuda_q8.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LP_CUDA_WIDE_TILE 192 // most activation rows of a block

// n_rows * n_heads rows of n_in values (a multiple of 16) to float16: row t of head h, at x + t * x_row
// + h * x_head, becomes row t * n_heads + h of out, in the order of the kernels' fragments, times
// 1 / unscale[that row].
struct lp_cuda_halve {
    const float *x;
    int64_t x_row, x_head, n_rows, n_heads, n_in;
    uint16_t *out;
    float *unscale;
};
void lp_cuda_halve_act(struct lp_cuda_device *dev, const struct lp_cuda_halve *h);

// A call: as of the 8-bit kernels, but x are rows of float16.
struct lp_cuda_wide_job {
    struct lp_cuda_q8_job job;
    const float *unscale;
};

struct lp_cuda_wide_kernel {
    const char *name;
    void (*start)(struct lp_cuda_device *dev, const struct lp_cuda_wide_job *job);
    void (*prepare)(struct lp_cuda_device *dev); // as of struct lp_cuda_q8_kernel
};

// Whether the kernels take a weight of their type: whole superblocks; rows at multiples of 16 bytes
// unless the type is read at any address.
static inline bool lp_cuda_wide_fits(const struct lp_weight *w) {
    const struct lp_type_info *type = lp_type_info((uint32_t)w->type);
    const bool any = LP_CUDA_SUPERBLOCK / type->block_values * type->block_bytes % 16 != 0;
    return w->n_in % LP_CUDA_SUPERBLOCK == 0 && (any || lp_cuda_q8_aligned(w));
}

// The types that have such kernels: X(stem, TYPE)
#define LP_CUDA_WIDE_TYPES(X)                                                                      \
    LP_CUDA_Q8_TYPES(X)                                                                            \
    X(f16, F16)                                                                                    \
    X(bf16, BF16)

#define LP_CUDA_WIDE_DECLARE(stem, TYPE)                                                           \
    extern const struct lp_cuda_wide_kernel lp_cuda_wide_##stem;
LP_CUDA_WIDE_TYPES(LP_CUDA_WIDE_DECLARE)
#undef LP_CUDA_WIDE_DECLARE

#ifdef __cplusplus
}
#endif

#endif
