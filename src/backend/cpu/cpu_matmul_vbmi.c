// The 8-bit kernels of the IQ grid types compiled for AVX-512 VNNI and VBMI: the products are those of
// cpu_matmul_vnni.c, the decoding is cpu_q8_grid.h's.
#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AVX512VBMI__)
#define LP_Q8_WIDEN
#define DIRECT_X 2 // the decoding is long and would be there again for every number of rows
#include "backend/cpu/cpu_q8_iq.h"

#define KERNEL(stem, type) LP_Q8_KERNEL(vbmi, stem)
LP_CPU_VBMI_LIST(KERNEL)

#endif
