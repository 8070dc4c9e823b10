// The built-in filters, tests, methods and global functions: a row each.
#ifndef LP_TEXT_JINJA_BUILTINS_H
#define LP_TEXT_JINJA_BUILTINS_H

#include "text/jinja_eval.h"

typedef bool (*lp_jinja_fn)(struct lp_jinja_run *run, struct lp_jinja_call *call, lp_value *out);

struct lp_jinja_builtin {
    const char *name;
    const char *params; // "a,b": names in order, bound to call->arg; NULL: fn reads pos and named
    int n_required;
    lp_jinja_fn fn;
};

struct lp_jinja_function {
    const struct lp_jinja_builtin *builtin;
    lp_value self;
};

// NULL when there is none of that name.
const struct lp_jinja_builtin *lp_jinja_filter(struct lp_str name);
const struct lp_jinja_builtin *lp_jinja_test(struct lp_str name);
const struct lp_jinja_builtin *lp_jinja_global(struct lp_str name);
const struct lp_jinja_builtin *lp_jinja_method(lp_value of, struct lp_str name);
bool lp_jinja_filter_is_foreign(struct lp_str name); // one of Jinja's that we leave out
bool lp_jinja_method_is_forbidden(lp_value of, struct lp_str name);

// Binds the arguments and calls.
bool lp_jinja_call_builtin(struct lp_jinja_run *run, const struct lp_jinja_builtin *builtin,
                           struct lp_jinja_call *call, lp_value *out);

// The tables behind, each ending in a row without name.
extern const struct lp_jinja_builtin lp_jinja_filter_table[];      // jinja_filters.c
extern const struct lp_jinja_builtin lp_jinja_list_filter_table[]; // jinja_list_filters.c
extern const struct lp_jinja_builtin lp_jinja_test_table[];        // jinja_tests.c
extern const struct lp_jinja_builtin lp_jinja_str_method_table[];  // jinja_methods.c

// Arguments with defaults; each fails with the parameter's name when the type is wrong.
bool lp_jinja_arg_int(struct lp_jinja_run *run, const struct lp_jinja_call *call, int i,
                      int64_t otherwise, int64_t *out);
bool lp_jinja_arg_str(struct lp_jinja_run *run, const struct lp_jinja_call *call, int i,
                      struct lp_str otherwise, struct lp_str *out);
static inline bool lp_jinja_arg_truth(const struct lp_jinja_call *call, int i, bool otherwise) {
    return call->arg[i].type == LP_JINJA_ABSENT ? otherwise : lp_jinja_truth(call->arg[i]);
}
// As given or NONE where absent.
static inline lp_value lp_jinja_arg(const struct lp_jinja_call *call, int i) {
    return call->arg[i].type == LP_JINJA_ABSENT ? lp_jinja_none() : call->arg[i];
}

#endif
