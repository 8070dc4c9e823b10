// From the order of nibbles in checkpoints (value 2i low, 2i + 1 high in byte i) to that of GGUF's
// blocks (value j low, value j + half high in byte j).
#ifndef LP_HF_HF_NIBBLES_H
#define LP_HF_HF_NIBBLES_H

#include <stdint.h>
#include <string.h>

// Eight nibbles to the low nibbles of eight bytes: nibble i to byte i.
static inline uint64_t lp_hf_spread_nibbles(uint32_t nibbles) {
    uint64_t x = nibbles;
    x = (x | x << 16) & 0x0000ffff0000ffffu;
    x = (x | x << 8) & 0x00ff00ff00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}

// 8 values at `low` and 8 at `high` (4 bytes each) to 8 bytes of | high | low |.
static inline void lp_hf_pair_nibbles(const uint8_t *low, const uint8_t *high, uint8_t *out) {
    uint32_t a, b;
    memcpy(&a, low, sizeof a);
    memcpy(&b, high, sizeof b);
    uint64_t pairs = lp_hf_spread_nibbles(a) | lp_hf_spread_nibbles(b) << 4;
    memcpy(out, &pairs, sizeof pairs);
}

#endif
