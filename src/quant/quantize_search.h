// The quantisers that look for scales (quantize_search.c): what they are given, and a table of them
// for each instruction set. All tables give the same bytes.
#ifndef LP_QUANT_QUANTIZE_SEARCH_H
#define LP_QUANT_QUANTIZE_SEARCH_H

#include <stddef.h>

#include "quant/quant.h"

// Rows of whole blocks, one after the other
struct lp_quantize_job {
    const float *in;         // [n]
    const float *importance; // [n_in] or NULL, as for lp_quantize_rows
    size_t n_in, n;          // values of a row, and in all
};

typedef void lp_quantize_search_fn(const struct lp_quantize_job *job, void *blocks);

// By lp_type; NULL for the types that are rounded or have no quantiser
extern lp_quantize_search_fn *const lp_quantize_search_plain[LP_TYPE_COUNT];
#if defined(__x86_64__)
extern lp_quantize_search_fn *const lp_quantize_search_avx2[LP_TYPE_COUNT]; // needs AVX2
#endif

// The one to use on this machine, or NULL
lp_quantize_search_fn *lp_quantize_search_of(lp_type type);

#endif
