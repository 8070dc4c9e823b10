// The float kernels compiled for AVX2 with FMA and F16C.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "backend/cpu/cpu_float_256.h"

void lp_cpu_tile_avx2(const void *panel, int n_rows, const void *const *x, int n_x, int64_t first,
                      int64_t n, float *out) {
    tile_256(panel, n_rows, x, n_x, first, n, out);
}

void lp_cpu_axpy_avx2(const float *panel, int n_d, const float *x, float *y, int64_t n,
                      bool first) {
    axpy_256(panel, n_d, x, y, n, first);
}

LP_FLOAT_KERNEL(avx2, f32, SOURCE_F32)
LP_FLOAT_KERNEL(avx2, f16, SOURCE_F16)
LP_FLOAT_KERNEL(avx2, bf16, SOURCE_BF16)
LP_DEQUANT_KERNEL(avx2)

#endif
