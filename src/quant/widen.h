#ifndef LP_QUANT_WIDEN_H
#define LP_QUANT_WIDEN_H

#include <stdbool.h>

#include "quant/quant.h"

// Types of blocks of 32 values that are a scale times small whole numbers (Q4_0, Q5_0, IQ4_NL, Q8_0 itself):
// the same values as a block of Q8_0, exactly.
bool lp_widens_to_q8_0(lp_type type);
// One block, at any address, into the 34 bytes of a block of Q8_0.
void lp_widen_to_q8_0(lp_type type, const void *block, void *out);

#endif
