#include "base/clean.h"

#include <stdbool.h>
#include <string.h>

#include "base/utf8_step.h"

// Bytes of the UTF-8 character at text, or 0 when there is none.
static size_t utf8_length(const unsigned char *text, size_t n) {
    size_t length;
    return lp_utf8_step(text, n, &length) == LP_UTF8_WHOLE ? length : 0;
}

char *lp_clean_text(char *out, size_t out_bytes, struct lp_str text) {
    const unsigned char *p = (const unsigned char *)text.data;
    size_t used = 0;
    for (size_t i = 0, n; i < text.len; i += n) {
        size_t length = utf8_length(p + i, text.len - i);
        bool control =
            p[i] < 0x20 || p[i] == 0x7f || (p[i] == 0xc2 && length == 2 && p[i + 1] < 0xa0);
        n = length ? length : 1;
        if (used + n + 4 > out_bytes) { // room for "..." stays
            if (used + 4 <= out_bytes) memcpy(out + used, "...", 3), used += 3;
            break;
        }
        if (!length || control)
            out[used++] = '?';
        else
            memcpy(out + used, p + i, n), used += n;
    }
    out[used] = 0;
    return out;
}
