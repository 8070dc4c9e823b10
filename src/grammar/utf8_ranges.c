// Cuts a range where characters get longer and where a continuation byte would wrap, until first
// and last differ only in whole trailing bytes: then each byte has a range of its own.
#include "grammar/utf8_ranges.h"

#include <stdbool.h>

struct sequences {
    struct lp_utf8_sequence *out;
    size_t n;
};

static uint8_t encode(uint32_t c, uint8_t out[4]) {
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    uint8_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (uint8_t)(0x80 | (c & 0x3F));
    static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[0] = (uint8_t)(lead[n] | c);
    return n;
}

static void split(struct sequences *s, uint32_t first, uint32_t last);

// Splits where the lengths differ; true if it did.
static bool split_lengths(struct sequences *s, uint32_t first, uint32_t last) {
    static const uint32_t ends[] = {0x7F, 0x7FF, 0xFFFF};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (first <= ends[i] && last > ends[i]) {
            split(s, first, ends[i]);
            split(s, ends[i] + 1, last);
            return true;
        }
    return false;
}

// Splits where trailing bytes are no whole range; true if it did.
static bool split_trailing(struct sequences *s, uint32_t first, uint32_t last) {
    for (int bits = 6; bits <= 18 && first > 0x7F; bits += 6) {
        uint32_t low = ((uint32_t)1 << bits) - 1;
        if ((first & ~low) == (last & ~low)) continue;
        if ((first & low) != 0) {
            split(s, first, first | low);
            split(s, (first | low) + 1, last);
            return true;
        }
        if ((last & low) != low) {
            split(s, first, (last & ~low) - 1);
            split(s, last & ~low, last);
            return true;
        }
    }
    return false;
}

static void split(struct sequences *s, uint32_t first, uint32_t last) {
    if (split_lengths(s, first, last) || split_trailing(s, first, last)) return;
    struct lp_utf8_sequence *out = &s->out[s->n++];
    out->n = encode(first, out->low);
    encode(last, out->high);
}

size_t lp_utf8_sequences(uint32_t first, uint32_t last,
                         struct lp_utf8_sequence out[LP_UTF8_MAX_SEQUENCES]) {
    struct sequences s = {.out = out};
    split(&s, first, last);
    return s.n;
}
