// One step through text that should be UTF-8. Ill-formed bytes are grouped as the Unicode Standard
// recommends (section 3.9, "maximal subparts"): the longest beginning of a character is replaced as
// one, which is what Python's errors="replace", Rust's lossy conversion and browsers do.
#ifndef LP_BASE_UTF8_STEP_H
#define LP_BASE_UTF8_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LP_UTF8_REPLACEMENT "\xEF\xBF\xBD"

enum lp_utf8_kind {
    LP_UTF8_WHOLE, // a well-formed character
    LP_UTF8_BAD,   // bytes that can never become one: one U+FFFD
    LP_UTF8_CUT,   // the text ends inside what may still become one
};

// Looks at the first bytes of text (n >= 1) and gives how many belong to the step (1 to 4).
static inline enum lp_utf8_kind lp_utf8_step(const unsigned char *text, size_t n, size_t *n_bytes) {
    unsigned char first = text[0];
    *n_bytes = 1;
    if (first < 0x80) return LP_UTF8_WHOLE;
    if (first < 0xC2 || first > 0xF4) return LP_UTF8_BAD;
    size_t need = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    // The second byte's range excludes overlong forms, surrogates and what lies past U+10FFFF.
    unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < need; i++) {
        if (i == n) return LP_UTF8_CUT;
        if (text[i] < low || text[i] > high) return LP_UTF8_BAD;
        *n_bytes = i + 1;
        low = 0x80;
        high = 0xBF;
    }
    return LP_UTF8_WHOLE;
}

// The code point of a well-formed character of that many bytes.
static inline uint32_t lp_utf8_code_point(const unsigned char *text, size_t n_bytes) {
    uint32_t value = n_bytes == 1 ? text[0] : text[0] & (0xFFu >> (n_bytes + 1));
    for (size_t i = 1; i < n_bytes; i++) value = value << 6 | (text[i] & 0x3F);
    return value;
}

#endif
