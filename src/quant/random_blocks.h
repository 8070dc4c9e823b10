// Random weights of any type, for files whose speed is to be measured.
#ifndef LP_QUANT_RANDOM_BLOCKS_H
#define LP_QUANT_RANDOM_BLOCKS_H

#include "base/rng.h"
#include "quant/quant.h"

// n values (a multiple of the block, at least 4 of them) whose root mean square is about std: normal
// for the float types, for the others random integers and scales of one size. What no quantiser
// writes does not occur (NaN, the integer -128). False for a type that is no weight's.
bool lp_random_blocks(lp_type type, float std, struct lp_rng *rng, void *blocks, size_t n);

#endif
