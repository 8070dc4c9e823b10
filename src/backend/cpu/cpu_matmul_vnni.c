// The 8-bit kernels compiled for AVX-512 VNNI: strips of 16 rows, with one dpbusd in place of
// maddubs, madd and add. Integer sums are exact either way, so the results have the same bits as
// those of the avx2 kernels.
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#include "backend/cpu/cpu_q8_iq.h"
#include "backend/cpu/cpu_q8_k.h"
#include "backend/cpu/cpu_q8_q32.h"

LP_Q8_KERNEL(vnni, q8_0)
LP_Q8_KERNEL(vnni, q4_0)
LP_Q8_KERNEL(vnni, q4_1)
LP_Q8_KERNEL(vnni, q5_0)
LP_Q8_KERNEL(vnni, q5_1)
LP_Q8_KERNEL(vnni, iq4_nl)
LP_Q8_KERNEL(vnni, mxfp4)
LP_Q8_KERNEL(vnni, nvfp4)
LP_Q8_KERNEL(vnni, q2_k)
LP_Q8_KERNEL(vnni, q3_k)
LP_Q8_KERNEL(vnni, q4_k)
LP_Q8_KERNEL(vnni, q5_k)
LP_Q8_KERNEL(vnni, q6_k)
LP_Q8_KERNEL(vnni, iq4_xs)
LP_Q8_KERNEL(vnni, iq2_xxs)
LP_Q8_KERNEL(vnni, iq2_xs)
LP_Q8_KERNEL(vnni, iq2_s)
LP_Q8_KERNEL(vnni, iq3_xxs)
LP_Q8_KERNEL(vnni, iq3_s)
LP_Q8_KERNEL(vnni, iq1_s)
LP_Q8_KERNEL(vnni, iq1_m)
LP_Q8_KERNEL(vnni, tq2_0)

#endif
