// AVX2 kernels for weights in blocks of 32 and 64 values with 8-bit activations.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "backend/cpu/cpu_q8_q32.h"

LP_Q8_KERNEL(avx2, q8_0)
LP_Q8_KERNEL(avx2, q4_0)
LP_Q8_KERNEL(avx2, q4_1)
LP_Q8_KERNEL(avx2, q5_0)
LP_Q8_KERNEL(avx2, q5_1)
LP_Q8_KERNEL(avx2, iq4_nl)
LP_Q8_KERNEL(avx2, mxfp4)
LP_Q8_KERNEL(avx2, nvfp4)

#endif
