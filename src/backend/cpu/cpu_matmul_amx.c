// The 8-bit kernels compiled for AVX-512 VNNI and AMX: as those of cpu_matmul_vnni.c, with the tile
// registers for every 16 activation rows (cpu_q8_amx.h). The same bits.
#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AMX_INT8__)
#include <immintrin.h>

#define LP_AMX_TILES
#define LP_Q8_WIDEN
#define DIRECT_X 2 // more rows are left to the strips: this file is long enough
#include "backend/cpu/cpu_q8_iq.h"
#include "backend/cpu/cpu_q8_k.h"
#include "backend/cpu/cpu_q8_q32.h"

_Thread_local const struct lp_cpu_amx_shapes *lp_cpu_amx_set;
const struct lp_cpu_amx_shapes lp_cpu_amx_whole = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

#define KERNEL(stem, type) LP_Q8_KERNEL(amx, stem)
LP_CPU_Q8_LIST(KERNEL)

#endif
