// The 8-bit kernels compiled for NEON with the dot product instructions (sdot).
#if defined(__ARM_FEATURE_DOTPROD)
#include "backend/cpu/cpu_q8_iq.h"
#include "backend/cpu/cpu_q8_k.h"
#include "backend/cpu/cpu_q8_q32.h"

#define KERNEL(stem, type) LP_Q8_KERNEL(dotprod, stem)
LP_CPU_Q8_LIST(KERNEL)

#endif
