// The quantisers that search, for any machine.
#define NAME lp_quantize_search_plain
#include "quant/quantize_search_body.h"
