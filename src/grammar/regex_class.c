// One character of a regular expression: literals, escapes, '.', bracketed classes.
#include "grammar/regex_class.h"

#include <ctype.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

// ---- \d \w \s ----

// Each in the reading that all dialects share, and in the widest reading of any dialect (what a
// negation must leave out).
static const struct lp_gb_range narrow_digit[] = {{'0', '9'}};
static const struct lp_gb_range wide_digit[] = {{'0', '9'}, {0x80, LP_CHAR_MAX}};
static const struct lp_gb_range narrow_word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct lp_gb_range wide_word[] = {
    {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}, {0x80, LP_CHAR_MAX}};
static const struct lp_gb_range narrow_space[] = {{'\t', '\r'}, {' ', ' '}};
static const struct lp_gb_range wide_space[] = {
    {'\t', '\r'},     {0x1C, ' '},      {0x85, 0x85},     {0xA0, 0xA0},
    {0x1680, 0x1680}, {0x180E, 0x180E}, {0x2000, 0x200A}, {0x2028, 0x2029},
    {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

// Adds \d \w \s or their opposites. in_negation: what is added will be left out.
static void add_shorthand(struct lp_char_ranges *set, char letter, bool in_negation) {
    bool opposite = isupper((unsigned char)letter);
    bool wide = opposite != in_negation;
    struct lp_char_ranges own = {0};
    switch (tolower((unsigned char)letter)) {
    case 'd':
        lp_char_ranges_add_all(&own, wide ? wide_digit : narrow_digit,
                               wide ? COUNT(wide_digit) : COUNT(narrow_digit));
        break;
    case 'w':
        lp_char_ranges_add_all(&own, wide ? wide_word : narrow_word,
                               wide ? COUNT(wide_word) : COUNT(narrow_word));
        break;
    default:
        lp_char_ranges_add_all(&own, wide ? wide_space : narrow_space,
                               wide ? COUNT(wide_space) : COUNT(narrow_space));
    }
    if (opposite) lp_char_ranges_complement(&own);
    lp_char_ranges_add_all(set, own.items, own.n);
    set->failed |= own.failed;
    lp_char_ranges_release(&own);
}

// ---- escapes ----

static bool read_hex(struct lp_regex_reader *in, size_t n, uint32_t *out) {
    *out = 0;
    if (n > in->source.len - in->at) return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)in->source.data[in->at + i];
        if (!isxdigit(c)) return false;
        *out = *out << 4 | (uint32_t)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
    }
    in->at += n;
    return true;
}

// Behind \u: XXXX, a pair of surrogates as \uXXXX\uXXXX, or {X...}.
static uint32_t unicode_escape(struct lp_regex_reader *in) {
    uint32_t c = 0, low;
    bool good;
    if (lp_regex_take(in, "{")) {
        size_t n = 0;
        while (n < 7 && n < in->source.len - in->at && in->source.data[in->at + n] != '}') n++;
        good = n && n < 7 && read_hex(in, n, &c) && lp_regex_take(in, "}");
    } else {
        good = read_hex(in, 4, &c);
        if (good && c >= 0xD800 && c <= 0xDBFF && lp_regex_take(in, "\\u") &&
            read_hex(in, 4, &low) && low >= 0xDC00 && low <= 0xDFFF)
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    if (!good || c > LP_CHAR_MAX || (c >= 0xD800 && c <= 0xDFFF))
        lp_regex_fail(in, LP_STATUS_INVALID,
                      "\"\\u\" needs four hexadecimal digits, or {...}, that "
                      "name a character");
    return c;
}

// Why an escape that others know is refused; NULL: it is none.
static const char *refused_escape(uint32_t c) {
    switch (c) {
    case 'b':
    case 'B':
    case 'A':
    case 'Z':
    case 'z':
    case 'G':
        return "assertions";
    case 'p':
    case 'P':
    case 'X':
        return "Unicode properties";
    case 'k':
        return "backreferences";
    case 'c':
    case 'R':
    case 'K':
    case 'Q':
    case 'h':
    case 'H':
    case 'N':
        return "such escapes";
    default:
        return c >= '1' && c <= '9' ? "backreferences" : NULL;
    }
}

static uint32_t escaped_char(struct lp_regex_reader *in, bool in_brackets) {
    uint32_t c = lp_regex_next(in), value;
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    case 'u':
        return unicode_escape(in);
    case 'x':
        if (!read_hex(in, 2, &value))
            lp_regex_fail(in, LP_STATUS_INVALID, "\"\\x\" needs two hexadecimal digits");
        return value;
    case '0':
        if (in->at < in->source.len && isdigit((unsigned char)in->source.data[in->at]))
            lp_regex_fail(in, LP_STATUS_UNSUPPORTED, "octal escapes are not supported");
        return 0;
    default:
        break;
    }
    if (c == 'b' && in_brackets) return '\b';
    const char *refused = refused_escape(c);
    if (refused)
        lp_regex_fail(in, LP_STATUS_UNSUPPORTED, "\"\\%c\": %s are not supported", (char)c,
                      refused);
    else if (c < 0x80 && isalnum((int)c))
        lp_regex_fail(in, LP_STATUS_INVALID, "\"\\%c\" is no escape", (char)c);
    return c;
}

// Behind a backslash. True: *c is one character; false: a shorthand was added to the set.
static bool read_escape(struct lp_regex_reader *in, struct lp_char_ranges *set, bool in_brackets,
                        bool in_negation, uint32_t *c) {
    if (in->at >= in->source.len) {
        lp_regex_fail(in, LP_STATUS_INVALID, "nothing follows \"\\\"");
        return false;
    }
    char letter = in->source.data[in->at];
    if (letter && strchr("dDwWsS", letter)) {
        in->at++;
        add_shorthand(set, letter, in_negation);
        return false;
    }
    *c = escaped_char(in, in_brackets);
    return true;
}

// ---- bracketed classes ----

// One character or shorthand of a class. As read_escape.
static bool read_member(struct lp_regex_reader *in, struct lp_char_ranges *set, bool negated,
                        uint32_t *c) {
    if (lp_regex_take(in, "\\")) return read_escape(in, set, true, negated, c);
    *c = lp_regex_next(in);
    return true;
}

static void read_brackets(struct lp_regex_reader *in, struct lp_char_ranges *set) {
    bool negated = lp_regex_take(in, "^");
    if (lp_regex_at(in, "]"))
        lp_regex_fail(in, LP_STATUS_INVALID, "an empty class; write \\] for a bracket");
    while (!lp_gb_failed(in->b) && in->at < in->source.len && !lp_regex_at(in, "]")) {
        uint32_t first, last;
        bool is_char = read_member(in, set, negated, &first);
        bool is_range = lp_regex_at(in, "-") && !lp_regex_at(in, "-]");
        if (is_range) {
            in->at++;
            bool is_end = in->at < in->source.len && read_member(in, set, negated, &last);
            if (!is_char || !is_end || last < first)
                lp_regex_fail(in, LP_STATUS_INVALID,
                              "a range needs two characters in ascending order");
            else
                lp_char_ranges_add(set, first, last);
        } else if (is_char) {
            lp_char_ranges_add(set, first, first);
        }
    }
    if (!lp_regex_take(in, "]"))
        lp_regex_fail(in, LP_STATUS_INVALID, "a class is not closed: \"]\" is missing");
    if (negated) lp_char_ranges_complement(set);
}

void lp_regex_read_class(struct lp_regex_reader *in, struct lp_char_ranges *set) {
    uint32_t c;
    if (lp_regex_take(in, "[")) {
        read_brackets(in, set);
    } else if (lp_regex_take(in, ".")) {
        lp_char_ranges_add(set, '\n', '\n');
        lp_char_ranges_add(set, '\r', '\r');
        lp_char_ranges_add(set, 0x2028, 0x2029);
        lp_char_ranges_complement(set);
    } else if (lp_regex_take(in, "\\")) {
        if (read_escape(in, set, false, false, &c)) lp_char_ranges_add(set, c, c);
    } else {
        c = lp_regex_next(in);
        lp_char_ranges_add(set, c, c);
    }
}
