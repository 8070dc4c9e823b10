// The evaluator's parts as they see each other: scopes, macros, loops, calls.
//
// A scope is a block that has variables of its own: the template, one turn of a loop, a call of a
// macro, with, set and filter blocks. Names are looked up from the inner scope outwards, then among
// the variables of the rendering, then among the global functions.
#ifndef LP_TEXT_JINJA_EVAL_H
#define LP_TEXT_JINJA_EVAL_H

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

struct lp_jinja_var {
    struct lp_str name;
    lp_value value;
};

struct lp_jinja_scope {
    struct lp_jinja_scope *outer;
    struct lp_jinja_var *vars;
    size_t n, capacity;
};

struct lp_jinja_macro {
    struct lp_str name;
    const struct lp_jinja_params *params;
    const struct lp_jinja_block *body;
    struct lp_jinja_scope *scope; // where it was defined
};
static inline struct lp_str lp_jinja_macro_name(const struct lp_jinja_macro *macro) {
    return macro->name;
}

struct lp_jinja_loop {
    const struct lp_jinja_node *node; // for loop(items) of recursive loops
    struct lp_jinja_scope *scope;     // around the loop
    lp_value *items;
    size_t n, index0;
    int64_t depth0;
    lp_value changed; // a tuple: the last arguments of loop.changed, or ABSENT
};

struct lp_jinja_named {
    struct lp_str name;
    lp_value value;
};

// A call, with its arguments evaluated.
struct lp_jinja_call {
    lp_value self; // of a method; of a filter or test the value at the left
    lp_value *pos;
    size_t n_pos;
    struct lp_jinja_named *named;
    size_t n_named;
    lp_value arg[LP_JINJA_MAX_PARAMS]; // bound to the builtin's parameters; ABSENT where not given
};

// jinja_eval.c
bool lp_jinja_exec(struct lp_jinja_run *run, const struct lp_jinja_block *block,
                   struct lp_jinja_scope *scope);
bool lp_jinja_call_macro(struct lp_jinja_run *run, struct lp_jinja_macro *macro,
                         const struct lp_jinja_call *call, lp_value *out);
bool lp_jinja_call_loop(struct lp_jinja_run *run, struct lp_jinja_loop *loop, lp_value items,
                        lp_value *out);
bool lp_jinja_scope_set(struct lp_jinja_run *run, struct lp_jinja_scope *scope, struct lp_str name,
                        lp_value value);
bool lp_jinja_enter(struct lp_jinja_run *run); // one level of evaluation; LIMIT when too deep

// jinja_eval_expr.c
bool lp_jinja_eval(struct lp_jinja_run *run, const struct lp_jinja_node *node,
                   struct lp_jinja_scope *scope, lp_value *out);
bool lp_jinja_eval_args(struct lp_jinja_run *run, const struct lp_jinja_args *args,
                        struct lp_jinja_scope *scope, struct lp_jinja_call *call);
bool lp_jinja_apply_filters(struct lp_jinja_run *run, const struct lp_jinja_node *filter,
                            struct lp_jinja_scope *scope, lp_value input, lp_value *out);
bool lp_jinja_get_attr(struct lp_jinja_run *run, lp_value of, struct lp_str name, lp_value *out);
bool lp_jinja_get_item(struct lp_jinja_run *run, lp_value of, lp_value key, lp_value *out);
bool lp_jinja_call_value(struct lp_jinja_run *run, lp_value callee, struct lp_jinja_call *call,
                         lp_value *out);

// jinja_ops.c
bool lp_jinja_binary(struct lp_jinja_run *run, int op, lp_value a, lp_value b, lp_value *out);
bool lp_jinja_compare(struct lp_jinja_run *run, int op, lp_value a, lp_value b, bool *out);
bool lp_jinja_slice(struct lp_jinja_run *run, lp_value of, const lp_value part[3], lp_value *out);
bool lp_jinja_format(struct lp_jinja_run *run, lp_value format, lp_value args, lp_value *out);

// jinja_filters.c: stable; keys are compared, items moved along.
bool lp_jinja_sort(struct lp_jinja_run *run, lp_value *items, lp_value *keys, size_t n,
                   bool reverse);
bool lp_jinja_sorted_pairs(struct lp_jinja_run *run, const struct lp_jinja_dict *dict,
                           const struct lp_jinja_pair **out);

#endif
