#include "quant/widen.h"

#include <string.h>

#include "quant/blocks.h"
#include "quant/codebooks.h"

bool lp_widens_to_q8_0(lp_type type) {
    return type == LP_TYPE_Q4_0 || type == LP_TYPE_Q5_0 || type == LP_TYPE_IQ4_NL ||
           type == LP_TYPE_Q8_0;
}

void lp_widen_to_q8_0(lp_type type, const void *block, void *out) {
    if (type == LP_TYPE_Q8_0) {
        memcpy(out, block, sizeof(struct lp_block_q8_0));
        return;
    }
    struct lp_block_q8_0 to;
    struct lp_block_q5_0 five = {0};
    struct lp_block_q4_0 four = {0}; // IQ4_NL's lie alike
    if (type == LP_TYPE_Q5_0)
        memcpy(&five, block, sizeof five);
    else
        memcpy(&four, block, sizeof four);
    const uint8_t *qs = type == LP_TYPE_Q5_0 ? five.qs : four.qs;
    to.d = type == LP_TYPE_Q5_0 ? five.d : four.d;
    for (int j = 0; j < 32; j++) {
        const int q = j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
        to.qs[j] = (int8_t)(type == LP_TYPE_IQ4_NL ? lp_codebooks_iq4_nl[q]
                            : type == LP_TYPE_Q4_0 ? q - 8
                                                   : (q | (int)(five.qh >> j & 1) << 4) - 16);
    }
    memcpy(out, &to, sizeof to);
}
