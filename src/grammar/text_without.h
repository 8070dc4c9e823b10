// Any text that has none of some tags in it.
#ifndef LP_GRAMMAR_TEXT_WITHOUT_H
#define LP_GRAMMAR_TEXT_WITHOUT_H

#include "grammar/build.h"

// Each tag begins with '<' and has no other '<'; at least two bytes. Sorted by this call.
lp_gb_node lp_text_without(struct lp_gb *b, struct lp_str *tags, size_t n);

#endif
