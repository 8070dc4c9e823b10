// Inside regex.c and regex_class.c: the reader, and what one character of a text may be.
#ifndef LP_GRAMMAR_REGEX_CLASS_H
#define LP_GRAMMAR_REGEX_CLASS_H

#include "grammar/char_ranges.h"

struct lp_regex_reader {
    struct lp_gb *b;
    struct lp_str source;
    size_t at;
    const char *what;
};

// Fails the builder with the sentence and where in the source it happened.
lp_gb_node lp_regex_fail(struct lp_regex_reader *in, lp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool lp_regex_at(const struct lp_regex_reader *in, const char *text);
bool lp_regex_take(struct lp_regex_reader *in, const char *text); // if it is there
uint32_t lp_regex_next(struct lp_regex_reader *in);               // the next character

// Reads a literal, an escape, '.' or a bracketed class; not normalised.
void lp_regex_read_class(struct lp_regex_reader *in, struct lp_char_ranges *set);

#endif
