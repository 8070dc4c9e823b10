// The dequantisers behind lp_type_info.dequant: n values (a multiple of the block) to float32.
//
// Each value is the format's formula rounded once to float32. In every format but those with a
// minimum (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K) that is one exact product of small integers and d; there
// it is the difference or sum of two exact products. So any order of the factors gives the same
// bits.
#ifndef LP_QUANT_DEQUANT_H
#define LP_QUANT_DEQUANT_H

#include <stddef.h>

#define LP_DEQUANT_DECLARE(name) void lp_dequant_##name(const void *blocks, float *out, size_t n)
LP_DEQUANT_DECLARE(f32);
LP_DEQUANT_DECLARE(f16);
LP_DEQUANT_DECLARE(bf16);
LP_DEQUANT_DECLARE(q4_0);
LP_DEQUANT_DECLARE(q4_1);
LP_DEQUANT_DECLARE(q5_0);
LP_DEQUANT_DECLARE(q5_1);
LP_DEQUANT_DECLARE(q8_0);
LP_DEQUANT_DECLARE(q8_1);
LP_DEQUANT_DECLARE(q2_k);
LP_DEQUANT_DECLARE(q3_k);
LP_DEQUANT_DECLARE(q4_k);
LP_DEQUANT_DECLARE(q5_k);
LP_DEQUANT_DECLARE(q6_k);
LP_DEQUANT_DECLARE(q8_k);
LP_DEQUANT_DECLARE(iq2_xxs);
LP_DEQUANT_DECLARE(iq2_xs);
LP_DEQUANT_DECLARE(iq2_s);
LP_DEQUANT_DECLARE(iq3_xxs);
LP_DEQUANT_DECLARE(iq3_s);
LP_DEQUANT_DECLARE(iq1_s);
LP_DEQUANT_DECLARE(iq1_m);
LP_DEQUANT_DECLARE(iq4_nl);
LP_DEQUANT_DECLARE(iq4_xs);
LP_DEQUANT_DECLARE(tq1_0);
LP_DEQUANT_DECLARE(tq2_0);
LP_DEQUANT_DECLARE(mxfp4);
LP_DEQUANT_DECLARE(nvfp4);
LP_DEQUANT_DECLARE(q1_0);
LP_DEQUANT_DECLARE(q2_0);
LP_DEQUANT_DECLARE(f8_e4m3);
#undef LP_DEQUANT_DECLARE

#endif
