// AVX2 kernels for weights in blocks of 256 values with 8-bit activations.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "backend/cpu/cpu_q8_k.h"

LP_Q8_KERNEL(avx2, q2_k)
LP_Q8_KERNEL(avx2, q3_k)
LP_Q8_KERNEL(avx2, q4_k)
LP_Q8_KERNEL(avx2, q5_k)
LP_Q8_KERNEL(avx2, q6_k)
LP_Q8_KERNEL(avx2, iq4_xs)

#endif
