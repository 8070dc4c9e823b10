// The float kernels and that of F8_E4M3 compiled for NEON.
#if defined(__aarch64__)
#include "backend/cpu/cpu_float_f8.h"

void lp_cpu_tile_neon(const void *panel, int n_rows, const void *const *x, int n_x, int64_t first,
                      int64_t n, float *out) {
    tile_256(panel, n_rows, x, n_x, first, n, out);
}

void lp_cpu_axpy_neon(const float *panel, int n_d, const float *x, float *y, int64_t n,
                      bool first) {
    axpy_256(panel, n_d, x, y, n, first);
}

LP_FLOAT_KERNEL(neon, f32, SOURCE_F32)
LP_FLOAT_KERNEL(neon, f16, SOURCE_F16)
LP_FLOAT_KERNEL(neon, bf16, SOURCE_BF16)
LP_DEQUANT_KERNEL(neon)
LP_F8_KERNEL(neon)

#endif
