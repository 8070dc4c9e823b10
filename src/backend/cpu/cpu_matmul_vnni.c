// The 8-bit kernels compiled for AVX-512 VNNI: the same body, with one dpbusd in place of maddubs
// and madd (256-bit registers: there is no 512-bit sign instruction). dot32 is exact either way, so
// the results should have the same bits as those of the avx2 kernels.
//
// Unverified: no machine with this instruction set has run the file yet. The self-check at open
// (cpu_selfcheck.c) is what stands between it and a wrong result.
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#include "backend/cpu/cpu_q8_iq.h"
#include "backend/cpu/cpu_q8_k.h"
#include "backend/cpu/cpu_q8_q32.h"

LP_Q8_KERNEL(vnni, q8_0, signed)
LP_Q8_KERNEL(vnni, q4_0, signed)
LP_Q8_KERNEL(vnni, q4_1, unsigned)
LP_Q8_KERNEL(vnni, q5_0, signed)
LP_Q8_KERNEL(vnni, q5_1, unsigned)
LP_Q8_KERNEL(vnni, iq4_nl, signed)
LP_Q8_KERNEL(vnni, mxfp4, signed)
LP_Q8_KERNEL(vnni, nvfp4, signed)
LP_Q8_KERNEL(vnni, q2_k, unsigned)
LP_Q8_KERNEL(vnni, q3_k, signed)
LP_Q8_KERNEL(vnni, q4_k, unsigned)
LP_Q8_KERNEL(vnni, q5_k, unsigned)
LP_Q8_KERNEL(vnni, q6_k, signed)
LP_Q8_KERNEL(vnni, iq4_xs, signed)
LP_Q8_KERNEL(vnni, iq2_xxs, signed)
LP_Q8_KERNEL(vnni, iq2_xs, signed)
LP_Q8_KERNEL(vnni, iq2_s, signed)
LP_Q8_KERNEL(vnni, iq3_xxs, signed)
LP_Q8_KERNEL(vnni, iq3_s, signed)
LP_Q8_KERNEL(vnni, iq1_s, signed)
LP_Q8_KERNEL(vnni, iq1_m, signed)
LP_Q8_KERNEL(vnni, tq2_0, signed)

#endif
