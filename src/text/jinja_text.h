// Work on strings that filters and methods share: replace, case, padding, trimming to lines.
#ifndef LP_TEXT_JINJA_TEXT_H
#define LP_TEXT_JINJA_TEXT_H

#include "text/jinja_str.h"
#include "text/jinja_value.h"

enum lp_jinja_text_case {
    LP_JINJA_TEXT_LOWER,
    LP_JINJA_TEXT_UPPER,
    LP_JINJA_TEXT_CAPITALIZE, // first character to title case, the rest to lower
    LP_JINJA_TEXT_TITLE,      // every run of letters so
    LP_JINJA_TEXT_SWAP,
};

// Keeps the mark of a SAFE string.
bool lp_jinja_text_case(struct lp_jinja_run *run, lp_value text, enum lp_jinja_text_case mode,
                        lp_value *out);
// At most `most` times, from the left; < 0: all. An empty `old` matches between all characters.
bool lp_jinja_text_replace(struct lp_jinja_run *run, struct lp_str s, struct lp_str old,
                           struct lp_str new, int64_t most, lp_value *out);
// sides says where the fill goes; BOTH centres as Python's str.center.
bool lp_jinja_text_pad(struct lp_jinja_run *run, struct lp_str s, int64_t width, struct lp_str fill,
                       enum lp_jinja_sides sides, lp_value *out);

#endif
