// The 8-bit kernels compiled for NEON alone: strips of 8 rows in two registers, products widened to
// 16 bits. Integer sums are exact, so the results have the same bits as those of all other 8-bit
// kernels.
#if defined(__aarch64__)
#include "backend/cpu/cpu_q8_iq.h"
#include "backend/cpu/cpu_q8_k.h"
#include "backend/cpu/cpu_q8_q32.h"

#define KERNEL(stem, type) LP_Q8_KERNEL(neon, stem)
LP_CPU_Q8_LIST(KERNEL)

#endif
