// The pieces of JSON text that grammars are made of. The text is compact, with bounded white space,
// so that a model cannot run away in blanks:
//
//     {"a": 1,"b":[        behind ':' and ',' and inside brackets: nothing, one space, or one line
//       2, 3]}             end and up to 16 spaces or tabs; nothing before or behind the value
//
// Numbers are bounded too: 18 digits, a fraction of 17, an exponent of 2.
#ifndef LP_GRAMMAR_JSON_GRAMMAR_H
#define LP_GRAMMAR_JSON_GRAMMAR_H

#include <jansson.h>

#include "grammar/build.h"

#define LP_JG_MAX_DIGITS 18 // of an integer

// What many places use is one rule, declared when it is first asked for.
enum lp_jg_piece {
    LP_JG_SPACE,
    LP_JG_CHAR,    // one character of a string, written in any way
    LP_JG_STRING,  // with its quotes
    LP_JG_INTEGER, // -?(0|[1-9][0-9]{0,17})
    LP_JG_NUMBER,
    LP_JG_BOOLEAN,
    LP_JG_ARRAY, // of any values
    LP_JG_OBJECT,
    LP_JG_VALUE,
    LP_JG_N_PIECES,
};

struct lp_jg {
    struct lp_gb *b;
    lp_gb_rule rules[LP_JG_N_PIECES];
    bool is_declared[LP_JG_N_PIECES];
};

void lp_jg_init(struct lp_jg *jg, struct lp_gb *b);
lp_gb_node lp_jg_use(struct lp_jg *jg, enum lp_jg_piece piece);

// open [space] [content space] close; what is inside may be left out if may_be_empty. content 0:
// nothing is ever inside.
lp_gb_node lp_jg_brackets(struct lp_jg *jg, char open, lp_gb_node content, bool may_be_empty);
// ',' space node
lp_gb_node lp_jg_after_comma(struct lp_jg *jg, lp_gb_node node);
// "name": space node; the name in its shortest form.
lp_gb_node lp_jg_member(struct lp_jg *jg, struct lp_str name, lp_gb_node value);
// Exactly this value; an object's members in its order.
lp_gb_node lp_jg_literal(struct lp_jg *jg, const json_t *value);

// One character of these (ascending, disjoint) as a string's text: as it is, or the short escape
// where JSON needs one.
lp_gb_node lp_jg_class(struct lp_gb *b, const struct lp_gb_range *ranges, size_t n);
// Appends a string's text in its shortest form, without quotes.
void lp_jg_escape(struct lp_bytes *out, struct lp_str text);
// A view of a JSON string's bytes.
struct lp_str lp_jg_str(const json_t *string);

#endif
