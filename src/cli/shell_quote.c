// Three forms: plain, 'single-quoted', $'escaped'.
#include "cli/shell_quote.h"

static bool is_plain(unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_-./:,+@", c));
}

static bool is_control(unsigned char c) {
    return c < 0x20 || c == 0x7f;
}

// C1 control characters: two bytes in UTF-8, and terminals that act on them exist.
static bool is_c1(const unsigned char *c) {
    return c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;
}

static void quote_escaped(struct lp_bytes *out, const unsigned char *c) {
    bool second = false; // of a C1 character
    lp_bytes_puts(out, "$'");
    for (; *c; c++) {
        if (second || is_control(*c) || is_c1(c))
            lp_bytes_printf(out, "\\%03o", *c);
        else {
            if (*c == '\'' || *c == '\\') lp_bytes_puts(out, "\\");
            lp_bytes_append(out, c, 1);
        }
        second = !second && is_c1(c);
    }
    lp_bytes_puts(out, "'");
}

void lp_shell_quote(struct lp_bytes *out, const char *word) {
    bool plain = *word, control = false;
    for (const unsigned char *c = (const unsigned char *)word; *c; c++) {
        if (!is_plain(*c)) plain = false;
        if (is_control(*c) || is_c1(c)) control = true;
    }
    if (plain) {
        lp_bytes_puts(out, word);
        return;
    }
    if (control) {
        quote_escaped(out, (const unsigned char *)word);
        return;
    }
    lp_bytes_puts(out, "'");
    for (; *word; word++) {
        if (*word == '\'')
            lp_bytes_puts(out, "'\\''");
        else
            lp_bytes_append(out, word, 1);
    }
    lp_bytes_puts(out, "'");
}

void lp_shell_quote_path(struct lp_bytes *out, const char *path) {
    if (path[0] == '-') lp_bytes_puts(out, "./");
    lp_shell_quote(out, path);
}
