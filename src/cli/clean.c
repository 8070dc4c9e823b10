#include "cli/clean.h"

#include <stdbool.h>
#include <string.h>

// Bytes of the UTF-8 character at text, or 0 when there is none (cut, overlong, surrogate, out of range).
static size_t utf8_length(const unsigned char *text, size_t n) {
    static const struct { unsigned char mask, lead; unsigned min; } forms[] = {
        {0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t extra = 0; extra < 4; extra++) {
        if ((text[0] & forms[extra].mask) != forms[extra].lead) continue;
        if (extra >= n) return 0;
        unsigned code = text[0] & (unsigned char)~forms[extra].mask;
        for (size_t i = 1; i <= extra; i++) {
            if ((text[i] & 0xc0) != 0x80) return 0;
            code = code << 6 | (text[i] & 0x3f);
        }
        bool legal = code >= forms[extra].min && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
        return legal ? extra + 1 : 0;
    }
    return 0;
}

char *lp_clean_text(char *out, size_t out_bytes, struct lp_str text) {
    const unsigned char *p = (const unsigned char *)text.data;
    size_t used = 0;
    for (size_t i = 0, n; i < text.len; i += n) {
        size_t length = utf8_length(p + i, text.len - i);
        bool control = p[i] < 0x20 || p[i] == 0x7f || (p[i] == 0xc2 && length == 2 && p[i + 1] < 0xa0);
        n = length ? length : 1;
        if (used + n + 4 > out_bytes) { // room for "..." stays
            if (used + 4 <= out_bytes) memcpy(out + used, "...", 3), used += 3;
            break;
        }
        if (!length || control) out[used++] = '?';
        else memcpy(out + used, p + i, n), used += n;
    }
    out[used] = 0;
    return out;
}

json_t *lp_clean_json(struct lp_str text) {
    char buffer[LP_CLEAN_MAX_BYTES];
    return json_string(lp_clean_text(buffer, sizeof buffer, text));
}
