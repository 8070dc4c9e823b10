// A range of code points as sequences of byte ranges: the characters of a range, and nothing else,
// are the byte strings of these sequences (well-formed UTF-8 only).
//
//     U+0080 to U+FFFF -->  [C2-DF][80-BF]  [E0][A0-BF][80-BF]  [E1-EF][80-BF][80-BF]
#ifndef LP_GRAMMAR_UTF8_RANGES_H
#define LP_GRAMMAR_UTF8_RANGES_H

#include <stddef.h>
#include <stdint.h>

#define LP_UTF8_MAX_SEQUENCES 32 // of one range

struct lp_utf8_sequence {
    uint8_t n; // 1 to 4 bytes
    uint8_t low[4], high[4];
};

// first <= last <= U+10FFFF, no surrogate between them. Returns how many were written; ascending.
size_t lp_utf8_sequences(uint32_t first, uint32_t last,
                         struct lp_utf8_sequence out[LP_UTF8_MAX_SEQUENCES]);

#endif
