// The quantisers behind lp_type_info.quantize: n float32 values (a multiple of the block) to
// blocks.
//
// Damage stays visible: a block with a NaN or an infinity among its values gets a NaN scale and
// zero integers, and a scale past the range of f16 becomes infinite; lp_type_find_nonfinite finds
// both. F32, F16 and BF16 keep the value itself. A block whose values are below half of the
// smallest f16 (3e-8; Q8_0 and Q8_1: 127 times that; Q8_K: 4e-37; F8_E4M3: 3e-43) becomes all zero.
#ifndef LP_QUANT_QUANTIZE_H
#define LP_QUANT_QUANTIZE_H

#include <stddef.h>

#define LP_QUANTIZE_DECLARE(name) void lp_quantize_##name(const float *in, void *blocks, size_t n)
// Rounding of the value or, for the Q8 types, of spec rules that leave no choice (quantize.c)
LP_QUANTIZE_DECLARE(f32);
LP_QUANTIZE_DECLARE(f16);
LP_QUANTIZE_DECLARE(bf16);
LP_QUANTIZE_DECLARE(q8_0);
LP_QUANTIZE_DECLARE(q8_1);
LP_QUANTIZE_DECLARE(q8_k);
LP_QUANTIZE_DECLARE(f8_e4m3);
// Search for the scales of least squared error (quantize_search.c)
LP_QUANTIZE_DECLARE(q4_0);
LP_QUANTIZE_DECLARE(q5_0);
LP_QUANTIZE_DECLARE(q4_k);
LP_QUANTIZE_DECLARE(q5_k);
LP_QUANTIZE_DECLARE(q6_k);
LP_QUANTIZE_DECLARE(iq4_nl);
LP_QUANTIZE_DECLARE(iq4_xs);
#undef LP_QUANTIZE_DECLARE

#endif
