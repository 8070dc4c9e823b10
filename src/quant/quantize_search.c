// Quantisers that look for good scales: Q4_0, Q5_0, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS. All minimise
//
//     E = sum_i w_i (x_i - y_i)^2
//
// where y is what the block will dequantise to and w_i the importance of column i, or 1. An output
// is off by the sum of (x_i - y_i) a_i over a row; for activations a that are not correlated, the
// mean square of that is this E, with their mean squares as w.
//
// The searches work on sixteen groups of values at once, a group a lane (quantize_lanes.h):
//
//     quantize_tile.h                         the values and weights of sixteen groups
//     quantize_scale.h, quantize_affine.h     the best scale, or scale and minimum, of each
//     quantize_blocks32.h                     Q4_0, Q5_0, IQ4_NL: an f16 scale for each
//     quantize_k_scale.h, quantize_k_affine.h Q6_K, IQ4_XS; Q4_K, Q5_K: scales of a block of 256
//     quantize_search_body.h                  compiled once for each instruction set
#include "quant/quantize_search.h"

#include "quant/quantize.h"

lp_quantize_search_fn *lp_quantize_search_of(lp_type type) {
    if ((uint32_t)type >= LP_TYPE_COUNT) return NULL;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return lp_quantize_search_avx2[type];
#endif
    return lp_quantize_search_plain[type];
}

#define DEFINE_QUANTIZE(name, type)                                                                \
    void lp_quantize_##name(const float *in, void *blocks, size_t n) {                             \
        if (n) lp_quantize_search_of(type)(&(struct lp_quantize_job){in, NULL, n, n}, blocks);     \
    }
DEFINE_QUANTIZE(q4_0, LP_TYPE_Q4_0)
DEFINE_QUANTIZE(q5_0, LP_TYPE_Q5_0)
DEFINE_QUANTIZE(q4_k, LP_TYPE_Q4_K)
DEFINE_QUANTIZE(q5_k, LP_TYPE_Q5_K)
DEFINE_QUANTIZE(q6_k, LP_TYPE_Q6_K)
DEFINE_QUANTIZE(iq4_nl, LP_TYPE_IQ4_NL)
DEFINE_QUANTIZE(iq4_xs, LP_TYPE_IQ4_XS)
