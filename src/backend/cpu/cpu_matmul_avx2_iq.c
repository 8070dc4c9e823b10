// AVX2 kernels for the IQ grid types and TQ2_0 with 8-bit activations.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "backend/cpu/cpu_q8_iq.h"

LP_Q8_KERNEL(avx2, iq2_xxs)
LP_Q8_KERNEL(avx2, iq2_xs)
LP_Q8_KERNEL(avx2, iq2_s)
LP_Q8_KERNEL(avx2, iq3_xxs)
LP_Q8_KERNEL(avx2, iq3_s)
LP_Q8_KERNEL(avx2, iq1_s)
LP_Q8_KERNEL(avx2, iq1_m)
LP_Q8_KERNEL(avx2, tq2_0)

#endif
