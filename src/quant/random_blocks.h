// Random weights of any type, for files whose speed is to be measured.
#ifndef LP_QUANT_RANDOM_BLOCKS_H
#define LP_QUANT_RANDOM_BLOCKS_H

#include "base/rng.h"
#include "quant/quant.h"

// n values (whole blocks, at least 4 of them) whose root mean square is about std: normal for the
// float types, for the others random integers and scales of one size. Types whose scales have 8
// bits come within a factor of sqrt(2), NVFP4 no lower than a scale of 2^-7. What no quantiser
// writes does not occur (NaN, the integer -128). The bytes follow from the state of rng. False for
// a type that is no weight's; nothing is written then.
bool lp_random_blocks(lp_type type, float std, struct lp_rng *rng, void *blocks, size_t n);

#endif
