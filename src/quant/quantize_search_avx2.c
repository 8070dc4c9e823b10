// The quantisers that search, for AVX2.
#define NAME lp_quantize_search_avx2
#include "quant/quantize_search_body.h"
