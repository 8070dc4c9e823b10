// The syntax tree of a template, and the tokens it is made from. Everything lives in the arena of
// the parsed template and is not changed after parsing.
#ifndef LP_TEXT_JINJA_AST_H
#define LP_TEXT_JINJA_AST_H

#include "text/jinja_value.h"

#define LP_JINJA_MAX_NESTING 200 // of the source: parentheses, blocks, "not not ..."
#define LP_JINJA_MAX_SOURCE_BYTES (1 << 20)

// ---- tokens (jinja_lex.c) ---------------------------------------------------------------------

// Operators are their own characters; those of two characters are listed here.
enum lp_jinja_token_kind {
    LP_JINJA_T_EOF = 128,
    LP_JINJA_T_DATA,
    LP_JINJA_T_VAR_BEGIN, // {{
    LP_JINJA_T_VAR_END,
    LP_JINJA_T_BLOCK_BEGIN, // {%
    LP_JINJA_T_BLOCK_END,
    LP_JINJA_T_NAME,
    LP_JINJA_T_STRING,
    LP_JINJA_T_INT,
    LP_JINJA_T_FLOAT,
    LP_JINJA_T_EQ,       // ==
    LP_JINJA_T_NE,       // !=
    LP_JINJA_T_LE,       // <=
    LP_JINJA_T_GE,       // >=
    LP_JINJA_T_FLOORDIV, // //
    LP_JINJA_T_POW,      // **
    LP_JINJA_T_IN,       // only in trees: "in", "not in"
    LP_JINJA_T_NOT_IN,
};

struct lp_jinja_token {
    int kind;
    uint32_t line;
    struct lp_str text; // data; name; string with escapes resolved
    int64_t i;
    double f;
};

struct lp_jinja_tokens {
    struct lp_jinja_token *items; // ends in EOF; from lp_alloc
    size_t n, capacity;
};

// Texts are in the arena, or views of source, which must be there as long.
lp_status lp_jinja_lex(struct lp_arena *arena, struct lp_str source, struct lp_jinja_tokens *out,
                       struct lp_err *err);

// ---- tree -------------------------------------------------------------------------------------

enum lp_jinja_node_kind {
    // expressions
    LP_JINJA_N_CONST,   // value
    LP_JINJA_N_NAME,    // name
    LP_JINJA_N_LIST,    // items
    LP_JINJA_N_TUPLE,   // items
    LP_JINJA_N_PAIRS,   // items: key, value, key, value ... of a dict literal
    LP_JINJA_N_ATTR,    // a . name
    LP_JINJA_N_ITEM,    // a [ b ]
    LP_JINJA_N_SLICE,   // a [ items[0] : items[1] : items[2] ], items may be NULL
    LP_JINJA_N_CALL,    // a ( args )
    LP_JINJA_N_FILTER,  // a | name ( args ); a is NULL at the start of a block's chain
    LP_JINJA_N_TEST,    // a is name ( args )
    LP_JINJA_N_NOT,     // not a
    LP_JINJA_N_NEG,     // - a
    LP_JINJA_N_POS,     // + a
    LP_JINJA_N_AND,     // a and b
    LP_JINJA_N_OR,      // a or b
    LP_JINJA_N_BINARY,  // a op b
    LP_JINJA_N_CONCAT,  // items ~ ...
    LP_JINJA_N_COMPARE, // a ops[0] items[0] ops[1] items[1] ...
    LP_JINJA_N_COND,    // b if a else c; c may be NULL
    LP_JINJA_N_NSREF,   // name . attr, an assignment target
    // statements
    LP_JINJA_N_DATA,         // text
    LP_JINJA_N_PRINT,        // a
    LP_JINJA_N_IF,           // items[i] ? blocks[i] ... : last block if n_blocks > n_items
    LP_JINJA_N_FOR,          // a in b if c: blocks[0], else blocks[1]; flag = recursive
    LP_JINJA_N_SET,          // a = b
    LP_JINJA_N_SET_BLOCK,    // a = blocks[0] | b
    LP_JINJA_N_MACRO,        // name ( params ): blocks[0]
    LP_JINJA_N_CALL_BLOCK,   // call ( params ) a: blocks[0]
    LP_JINJA_N_FILTER_BLOCK, // filter b: blocks[0]
    LP_JINJA_N_WITH,         // items: target, value ...: blocks[0]
    LP_JINJA_N_SCOPE,        // blocks[0] in a scope of its own (generation)
    LP_JINJA_N_BREAK,
    LP_JINJA_N_CONTINUE,
};

struct lp_jinja_node;

struct lp_jinja_block {
    struct lp_jinja_node **items;
    size_t n;
};

struct lp_jinja_args {
    struct lp_jinja_node **pos;
    size_t n_pos;
    struct lp_str *names; // of the named ones
    struct lp_jinja_node **named;
    size_t n_named;
    struct lp_jinja_node *star, *star2; // *a, **b
};

struct lp_jinja_params {
    struct lp_str *names;
    struct lp_jinja_node **defaults; // NULL where there is none
    size_t n;
    bool uses_caller, uses_varargs, uses_kwargs; // the body mentions them
};

struct lp_jinja_node {
    enum lp_jinja_node_kind kind;
    uint32_t line;
    int op;
    bool flag;
    struct lp_str name, attr;
    lp_value value;
    const struct lp_jinja_builtin *builtin; // of FILTER and TEST; NULL if there is none of the name
    struct lp_jinja_node *a, *b, *c;
    struct lp_jinja_node **items;
    int *ops;
    size_t n_items;
    struct lp_jinja_args args;
    struct lp_jinja_params params;
    struct lp_jinja_block *blocks;
    size_t n_blocks;
};

struct lp_jinja {
    struct lp_arena arena;
    struct lp_jinja_block body;
    bool iterates_content; // some loop runs over message content: it takes lists of parts
};

// ---- the parser's own state, shared by jinja_parse.c (blocks) and jinja_parse_expr.c -----------

struct lp_jinja_parser {
    struct lp_jinja *jinja;
    const struct lp_jinja_token *tokens;
    size_t at;
    unsigned nesting, loops;
    unsigned conditions; // inside if blocks, where an unknown filter is an error only if reached
    struct lp_jinja_params *params; // of the macro around, or NULL
    struct lp_str content_names[8]; // variables that were set to a message's content
    size_t n_content_names;
    struct lp_err *err;
    lp_status status;
};

// All return NULL or false with the error filled.
bool lp_jinja_parse_fail(struct lp_jinja_parser *p, lp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *lp_jinja_parse_alloc(struct lp_jinja_parser *p, size_t n, size_t size);
bool lp_jinja_parse_enter(struct lp_jinja_parser *p); // one level deeper, or LIMIT
static inline void lp_jinja_parse_leave(struct lp_jinja_parser *p) {
    p->nesting--;
}
struct lp_jinja_node *lp_jinja_node_new(struct lp_jinja_parser *p, enum lp_jinja_node_kind kind);

static inline const struct lp_jinja_token *lp_jinja_peek(const struct lp_jinja_parser *p) {
    return &p->tokens[p->at];
}
bool lp_jinja_at_name(const struct lp_jinja_parser *p, const char *name);
bool lp_jinja_skip(struct lp_jinja_parser *p, int kind); // true if it was there
bool lp_jinja_skip_name(struct lp_jinja_parser *p, const char *name);
bool lp_jinja_expect(struct lp_jinja_parser *p, int kind, const char *what);

// A growing list of nodes under construction.
struct lp_jinja_nodes {
    struct lp_jinja_node **items;
    size_t n, capacity;
};
bool lp_jinja_nodes_add(struct lp_jinja_parser *p, struct lp_jinja_nodes *list,
                        struct lp_jinja_node *node);

struct lp_jinja_node *lp_jinja_parse_expression(struct lp_jinja_parser *p);
// An expression or a bare tuple; conditional: "a if b" allowed; stop: a name that ends it, or NULL.
struct lp_jinja_node *lp_jinja_parse_tuple(struct lp_jinja_parser *p, bool conditional,
                                           const char *stop);
struct lp_jinja_node *lp_jinja_parse_target(struct lp_jinja_parser *p, bool namespaces,
                                            const char *stop);
struct lp_jinja_node *lp_jinja_parse_filters(struct lp_jinja_parser *p, struct lp_jinja_node *node,
                                             bool first_is_here);

#endif
