// The names that an object's additional properties may have: any but the declared ones.
#ifndef LP_GRAMMAR_OTHER_NAMES_H
#define LP_GRAMMAR_OTHER_NAMES_H

#include "grammar/json_grammar.h"

// A JSON string with quotes that is none of these names (distinct UTF-8; sorted by this call). As
// long as it is the beginning of one of them it is written without \u escapes.
lp_gb_node lp_other_names(struct lp_jg *jg, struct lp_str *names, size_t n);

#endif
