// The part of regular expressions that describes whole texts: no look at the surroundings, no
// memory of what was matched. Where ECMA-262 and Python's re differ, what is generated matches
// under both: \d \w \s are the ASCII ones, and \D, \W and [^\d], [^\w] stay within ASCII.
#ifndef LP_GRAMMAR_REGEX_H
#define LP_GRAMMAR_REGEX_H

#include "base/alloc.h"
#include "grammar/build.h"

enum lp_regex_kind {
    LP_REGEX_CLASS,    // one character of ranges
    LP_REGEX_SEQUENCE, // of children; without any: the empty text
    LP_REGEX_CHOICE,   // of children
    LP_REGEX_REPEAT,   // of the only child; max -1: any number
};

struct lp_regex_node {
    enum lp_regex_kind kind;
    struct lp_gb_range *ranges; // [n_ranges], ascending, disjoint
    size_t n_ranges;
    int64_t min, max;
    struct lp_regex_node *children, *next; // a list
};

struct lp_regex {
    struct lp_arena arena;
    struct lp_regex_node *root;
};

// search: as JSON Schema's "pattern": the expression matches anywhere, so there is any text around
// what is not anchored; else the whole text must match. what: begins the sentence of an error.
// A failure is the builder's; false then. Release in any case.
bool lp_regex_parse(struct lp_regex *regex, struct lp_gb *b, struct lp_str source, bool search,
                    const char *what);
void lp_regex_release(struct lp_regex *regex);

// How the characters are written.
enum lp_regex_form {
    LP_REGEX_AS_TEXT,
    LP_REGEX_IN_JSON,    // inside a JSON string, escaped
    LP_REGEX_WITHOUT_LT, // as text; classes of several characters leave out '<'
};
lp_gb_node lp_regex_emit(const struct lp_regex *regex, struct lp_gb *b, enum lp_regex_form form);

// Narrows the expression to texts of min to max characters (max -1: no limit).
enum lp_regex_fit {
    LP_REGEX_FITS,
    LP_REGEX_NEVER,  // no text of it is so long
    LP_REGEX_CANNOT, // more than one part has no fixed length
};
enum lp_regex_fit lp_regex_fit(struct lp_regex *regex, int64_t min, int64_t max);

#endif
