// The 8-bit kernels compiled for NEON with the 8-bit matrix instructions (smmla).
#if defined(__ARM_FEATURE_MATMUL_INT8)
#include "backend/cpu/cpu_q8_iq.h"
#include "backend/cpu/cpu_q8_k.h"
#include "backend/cpu/cpu_q8_q32.h"

#define KERNEL(stem, type) LP_Q8_KERNEL(i8mm, stem)
LP_CPU_Q8_LIST(KERNEL)

#endif
