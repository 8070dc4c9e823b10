// Strings by code point: UTF-8 stepping, search, case, character classes, as Python's str has them.
// A byte that is not valid UTF-8 counts as one character (U+FFFD in the classes).
#ifndef LP_TEXT_JINJA_STR_H
#define LP_TEXT_JINJA_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

#define LP_JINJA_NOT_FOUND ((size_t)-1)

// The character at byte `at` (< s.len): its bytes, and *cp.
size_t lp_jinja_utf8_next(struct lp_str s, size_t at, uint32_t *cp);
size_t lp_jinja_utf8_put(uint32_t cp, char out[4]);          // bytes written; cp <= U+10FFFF
size_t lp_jinja_str_count(struct lp_str s);                  // characters
size_t lp_jinja_str_offset(struct lp_str s, size_t n_chars); // byte of character n, at most s.len
size_t lp_jinja_str_find(struct lp_str s, struct lp_str what, size_t from); // byte or NOT_FOUND
size_t lp_jinja_str_rfind(struct lp_str s, struct lp_str what);

enum lp_jinja_sides { LP_JINJA_LEFT = 1, LP_JINJA_RIGHT = 2, LP_JINJA_BOTH = 3 };
// chars.data NULL: white space.
struct lp_str lp_jinja_str_strip(struct lp_str s, struct lp_str chars, enum lp_jinja_sides sides);

bool lp_jinja_is_space(uint32_t cp);
size_t lp_jinja_line_break(struct lp_str s, size_t at); // bytes of the line boundary at `at`, or 0

// ---- from Unicode's tables (jinja_casemap.c, generated) ---------------------------------------

enum lp_jinja_class {
    LP_JINJA_CLASS_ALPHA,
    LP_JINJA_CLASS_DECIMAL,
    LP_JINJA_CLASS_DIGIT,
    LP_JINJA_CLASS_NUMERIC,
    LP_JINJA_CLASS_LOWER,
    LP_JINJA_CLASS_UPPER,
    LP_JINJA_CLASS_TITLE,
    LP_JINJA_CLASS_PRINTABLE,
    LP_JINJA_CLASS_COUNT,
};
enum lp_jinja_case { LP_JINJA_TO_LOWER, LP_JINJA_TO_UPPER, LP_JINJA_TO_TITLE, LP_JINJA_CASE_COUNT };

struct lp_jinja_span { // code points lo, lo + step, ... hi; mapped ones by adding delta
    uint32_t lo, hi;
    int32_t step, delta;
};
struct lp_jinja_special {
    uint32_t cp, to[3]; // unused = 0
};
struct lp_jinja_table {
    const struct lp_jinja_span *spans; // ascending
    size_t n_spans;
    const struct lp_jinja_special *specials; // ascending; they win over spans
    size_t n_specials;
};
extern const struct lp_jinja_table lp_jinja_classes[LP_JINJA_CLASS_COUNT];
extern const struct lp_jinja_table lp_jinja_cases[LP_JINJA_CASE_COUNT];

bool lp_jinja_in_class(uint32_t cp, enum lp_jinja_class which);
size_t lp_jinja_map_case(uint32_t cp, enum lp_jinja_case which, uint32_t out[3]);

#endif
