// exp of a block of numbers, for sums over a vocabulary. Plain double arithmetic in a fixed order:
// the same bits on every machine (the exp of a C library differs between libraries and between
// CPUs), and simple enough for a compiler to make vector code of it.
#ifndef LP_ENGINE_EXP_BLOCK_H
#define LP_ENGINE_EXP_BLOCK_H

#include <stdint.h>

#define LP_EXP_BLOCK 256 // a good block: its numbers stay in the first cache

// Replaces each of x[n], all <= 0, -infinity allowed, by exp(x) within 2 ulp; below -700 by
// exp(-700), 1e-304. Returns their sum.
double lp_exp_block(double *x, int32_t n);

#endif
