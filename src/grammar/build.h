// Building a grammar: nodes of rules, made bottom up. A node is a number; each may be used once,
// what is used more often is a rule. After a failure (memory, limits, time) every call gives node 0
// and does nothing, and lp_gb_finish reports it, so that compilers of a source need not check each
// call.
#ifndef LP_GRAMMAR_BUILD_H
#define LP_GRAMMAR_BUILD_H

#include "grammar/grammar.h"

struct lp_gb; // a builder
typedef int32_t lp_gb_node;
typedef int32_t lp_gb_rule;

struct lp_gb_range {
    uint32_t first, last; // Unicode code points
};

struct lp_gb *lp_gb_new(void);    // NULL without memory
void lp_gb_free(struct lp_gb *b); // NULL is allowed
bool lp_gb_failed(const struct lp_gb *b);
// The compiler's own failure, with its sentence; the first one stands. Returns node 0.
lp_gb_node lp_gb_fail(struct lp_gb *b, lp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Why it failed; LP_OK if it did not.
lp_status lp_gb_error(const struct lp_gb *b, struct lp_err *err);

lp_gb_node lp_gb_empty(struct lp_gb *b);                    // matches ""
lp_gb_node lp_gb_never(struct lp_gb *b);                    // matches nothing
lp_gb_node lp_gb_text(struct lp_gb *b, struct lp_str text); // these bytes, whole UTF-8
// One character in one of the ranges (any order, may overlap), or in none of them. INVALID: a range
// that runs backwards or past U+10FFFF. Surrogates are no characters and are left out.
lp_gb_node lp_gb_class(struct lp_gb *b, const struct lp_gb_range *ranges, size_t n, bool negated);
lp_gb_node lp_gb_token(struct lp_gb *b, int32_t id); // this control token
lp_gb_node lp_gb_sequence(struct lp_gb *b, const lp_gb_node *nodes, size_t n);
lp_gb_node lp_gb_choice(struct lp_gb *b, const lp_gb_node *nodes, size_t n);
// min to max times; max < 0: any number. A short one becomes copies; of a long one there is one
// copy, and a count on the stack while matching.
lp_gb_node lp_gb_repeat(struct lp_gb *b, lp_gb_node node, int64_t min, int64_t max);
lp_gb_node lp_gb_optional(struct lp_gb *b, lp_gb_node node);

// Rules may refer to each other in any order, also to themselves; left recursion is refused by
// lp_gb_finish (INVALID names the rule).
lp_gb_rule lp_gb_declare(struct lp_gb *b, const char *name); // name: for messages; copied
void lp_gb_define(struct lp_gb *b, lp_gb_rule rule, lp_gb_node node);
lp_gb_node lp_gb_use(struct lp_gb *b, lp_gb_rule rule);

// The grammar whose start is this rule. Rules that are used but not defined are INVALID. trie may
// be NULL (then only lp_grammar_matches may be used). Frees nothing of b.
lp_status lp_gb_finish(struct lp_gb *b, lp_gb_rule start, const struct lp_token_trie *trie,
                       struct lp_grammar **out, struct lp_err *err);

// ---- sources ----

// Each gives the node that matches it; node 0 and a failed builder if it is wrong.

lp_gb_node lp_grammar_from_json(struct lp_gb *b); // any object: json_grammar.c
lp_gb_node lp_grammar_from_schema(struct lp_gb *b, struct lp_str schema); // schema.c
lp_gb_node lp_grammar_from_regex(struct lp_gb *b, struct lp_str regex);   // regex.c
lp_gb_node lp_grammar_from_choice(struct lp_gb *b, struct lp_str choices);
lp_gb_node lp_grammar_from_gbnf(struct lp_gb *b, struct lp_str text); // gbnf.c
// Tool calls as a model writes them, by a JSON object:
//   {"syntax": "glm",            a name of text/reply.h
//    "tools": [...],             OpenAI's form; those that may be called
//    "required": true,           at least one call; false: "content" instead is allowed
//    "parallel": true,           more than one
//    "content": {"kind": "json_schema", "source": "..."}}    what else may be written (optional;
//                                without it and not required: any text)
lp_gb_node lp_grammar_from_tools(struct lp_gb *b, struct lp_str source, lp_find_token_fn find_token,
                                 void *user); // tools.c

#endif
