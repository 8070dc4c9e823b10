// The F8_E4M3 kernel compiled for AVX2 with FMA and F16C.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "backend/cpu/cpu_float_f8.h"

LP_F8_KERNEL(avx2)

#endif
