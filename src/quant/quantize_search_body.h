// The quantisers that search, for the instruction set this is compiled for: a table named NAME.
#include "quant/quantize_blocks32.h"
#include "quant/quantize_k_affine.h"
#include "quant/quantize_k_scale.h"

lp_quantize_search_fn *const NAME[LP_TYPE_COUNT] = {
    [LP_TYPE_Q4_0] = quantize_q4_0,     [LP_TYPE_Q5_0] = quantize_q5_0,
    [LP_TYPE_Q4_K] = quantize_q4_k,     [LP_TYPE_Q5_K] = quantize_q5_k,
    [LP_TYPE_Q6_K] = quantize_q6_k,     [LP_TYPE_IQ4_NL] = quantize_iq4_nl,
    [LP_TYPE_IQ4_XS] = quantize_iq4_xs,
};
