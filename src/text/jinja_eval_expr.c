// Evaluating expressions: names, attributes and subscripts, calls, operators.
//
// Attributes and subscripts are Jinja's: a.b is the method or attribute b, else the key 'b'; a['b']
// is the key, else the attribute. What is not there is undefined, which prints as nothing; going
// further from there is an error.
#include <string.h>

#include "base/checked.h"
#include "text/jinja_builtins.h"
#include "text/jinja_eval.h"
#include "text/jinja_str.h"
#include "text/jinja_try.h"

typedef struct lp_jinja_run run_state;
typedef struct lp_jinja_node node;
typedef struct lp_jinja_scope scope;

// ---- names ------------------------------------------------------------------------------------

static bool function_new(run_state *run, const struct lp_jinja_builtin *builtin, lp_value self,
                         lp_value *out) {
    struct lp_jinja_function *function = lp_jinja_alloc(run, 1, sizeof *function);
    if (!function) return false;
    *function = (struct lp_jinja_function){builtin, self};
    *out = (lp_value){.type = LP_JINJA_FUNCTION, .function = function};
    return true;
}

static bool eval_name(run_state *run, const node *n, const scope *in, lp_value *out) {
    for (; in; in = in->outer) {
        if (in->n > 16) TRY(lp_jinja_spend(run, in->n / 16));
        for (size_t i = in->n; i-- > 0;)
            if (lp_str_equal(in->vars[i].name, n->name)) {
                *out = in->vars[i].value;
                return true;
            }
    }
    if (run->vars) TRY(lp_jinja_spend(run, run->vars->n / 16));
    lp_value *given = run->vars ? lp_jinja_dict_get(run->vars, n->name) : NULL;
    const struct lp_jinja_builtin *global = given ? NULL : lp_jinja_global(n->name);
    if (global) return function_new(run, global, lp_jinja_none(), out);
    *out = given ? *given : lp_jinja_undefined(LP_JINJA_NO_NAME, n->name);
    return true;
}

// ---- attributes and subscripts ----------------------------------------------------------------

static bool has_prefix(struct lp_str s, const char *prefix) {
    size_t n = strlen(prefix);
    return s.len >= n && !memcmp(s.data, prefix, n);
}

static lp_value loop_attr(struct lp_jinja_loop *loop, struct lp_str name) {
    int64_t i = (int64_t)loop->index0, n = (int64_t)loop->n;
    if (lp_str_is(name, "index")) return lp_jinja_int(i + 1);
    if (lp_str_is(name, "index0")) return lp_jinja_int(i);
    if (lp_str_is(name, "revindex")) return lp_jinja_int(n - i);
    if (lp_str_is(name, "revindex0")) return lp_jinja_int(n - i - 1);
    if (lp_str_is(name, "first")) return lp_jinja_bool(i == 0);
    if (lp_str_is(name, "last")) return lp_jinja_bool(i + 1 == n);
    if (lp_str_is(name, "length")) return lp_jinja_int(n);
    if (lp_str_is(name, "depth")) return lp_jinja_int(loop->depth0 + 1);
    if (lp_str_is(name, "depth0")) return lp_jinja_int(loop->depth0);
    if (lp_str_is(name, "previtem"))
        return i > 0
                   ? loop->items[i - 1]
                   : lp_jinja_undefined(LP_JINJA_NO_ITEM, lp_str_from("there is no previous item"));
    if (lp_str_is(name, "nextitem"))
        return i + 1 < n
                   ? loop->items[i + 1]
                   : lp_jinja_undefined(LP_JINJA_NO_ITEM, lp_str_from("there is no next item"));
    return (lp_value){0};
}

// Attributes that are neither keys nor methods; ABSENT when there is none.
static lp_value plain_attr(lp_value of, struct lp_str name) {
    if (of.type == LP_JINJA_LOOP) return loop_attr(of.loop, name);
    if (of.type == LP_JINJA_MACRO && lp_str_is(name, "name")) return lp_jinja_str(of.macro->name);
    if (of.type == LP_JINJA_NAMESPACE) {
        lp_value *value = lp_jinja_dict_get(of.dict, name);
        if (value) return *value;
    }
    if (lp_jinja_is_seq(of, LP_JINJA_GROUP)) {
        if (lp_str_is(name, "grouper")) return of.seq->items[0];
        if (lp_str_is(name, "list")) return of.seq->items[1];
    }
    if (lp_jinja_is_seq(of, LP_JINJA_RANGE)) {
        if (lp_str_is(name, "start")) return lp_jinja_int(of.seq->start);
        if (lp_str_is(name, "stop")) return lp_jinja_int(of.seq->stop);
        if (lp_str_is(name, "step")) return lp_jinja_int(of.seq->step);
    }
    return (lp_value){0};
}

// An attribute without a look at keys: *out is ABSENT when there is none.
static bool attribute(run_state *run, lp_value of, struct lp_str name, lp_value *out) {
    *out = (lp_value){0};
    if (has_prefix(name, "__") || lp_jinja_method_is_forbidden(of, name)) {
        *out = lp_jinja_undefined(LP_JINJA_FORBIDDEN, name);
        return true;
    }
    const struct lp_jinja_builtin *method = lp_jinja_method(of, name);
    if (method) return function_new(run, method, of, out);
    *out = plain_attr(of, name);
    return true;
}

bool lp_jinja_get_attr(run_state *run, lp_value of, struct lp_str name, lp_value *out) {
    if (lp_jinja_is_undefined(of)) return lp_jinja_fail_undefined(run, of);
    TRY(attribute(run, of, name, out));
    if (out->type != LP_JINJA_ABSENT) return true;
    lp_value *value = NULL;
    if (of.type == LP_JINJA_DICT) TRY(lp_jinja_dict_find(run, of.dict, lp_jinja_str(name), &value));
    *out = value ? *value : lp_jinja_undefined(LP_JINJA_NO_ATTR, name);
    return true;
}

// The item of a sequence or character of a string at an index; ABSENT when out of range.
static bool indexed(run_state *run, lp_value of, int64_t index, lp_value *out) {
    *out = (lp_value){0};
    if (of.type == LP_JINJA_SEQ) {
        int64_t n = (int64_t)of.seq->n;
        if (index < 0) index += n;
        if (index >= 0 && index < n) *out = of.seq->items[index];
        return true;
    }
    TRY(lp_jinja_spend_bytes(run, of.s.len));
    int64_t n = (int64_t)lp_jinja_str_count(of.s);
    if (index < 0) index += n;
    if (index < 0 || index >= n) return true;
    size_t begin = lp_jinja_str_offset(of.s, (size_t)index);
    uint32_t cp;
    *out = lp_jinja_str((struct lp_str){of.s.data + begin, lp_jinja_utf8_next(of.s, begin, &cp)});
    out->sub = of.sub;
    return true;
}

static bool is_indexed(lp_value v) {
    if (v.type != LP_JINJA_SEQ) return v.type == LP_JINJA_STRING;
    return v.seq->kind == LP_JINJA_LIST || v.seq->kind == LP_JINJA_RANGE || lp_jinja_is_tuple(v);
}

bool lp_jinja_get_item(run_state *run, lp_value of, lp_value key, lp_value *out) {
    int64_t index;
    if (lp_jinja_is_undefined(of)) return lp_jinja_fail_undefined(run, of);
    *out = (lp_value){0};
    if (of.type == LP_JINJA_DICT) {
        lp_value *value;
        TRY(lp_jinja_dict_find(run, of.dict, key, &value));
        if (value) *out = *value;
    } else if (is_indexed(of) && lp_jinja_as_int(key, &index)) {
        TRY(indexed(run, of, index, out));
    }
    if (out->type == LP_JINJA_ABSENT && lp_jinja_is_str(key)) TRY(attribute(run, of, key.s, out));
    if (out->type != LP_JINJA_ABSENT) return true;
    *out = lp_jinja_is_str(key)
               ? lp_jinja_undefined(LP_JINJA_NO_ATTR, key.s)
               : lp_jinja_undefined(LP_JINJA_NO_ITEM, lp_str_from("there is no such item"));
    return true;
}

// ---- calls ------------------------------------------------------------------------------------

static bool add_star(run_state *run, lp_value star, struct lp_jinja_call *call) {
    lp_value *items;
    size_t n;
    TRY(lp_jinja_items(run, star, &items, &n));
    lp_value *pos = lp_jinja_alloc(run, call->n_pos + n, sizeof *pos);
    TRY(pos);
    if (call->n_pos) memcpy(pos, call->pos, call->n_pos * sizeof *pos);
    if (n) memcpy(pos + call->n_pos, items, n * sizeof *pos);
    call->pos = pos;
    call->n_pos += n;
    return true;
}

static bool add_star2(run_state *run, lp_value star, struct lp_jinja_call *call) {
    if (star.type != LP_JINJA_DICT)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "** needs a dict, not %s",
                             lp_jinja_type_name(star));
    size_t n = star.dict->n;
    struct lp_jinja_named *named = lp_jinja_alloc(run, call->n_named + n, sizeof *named);
    TRY(named);
    if (call->n_named) memcpy(named, call->named, call->n_named * sizeof *named);
    for (size_t i = 0; i < n; i++) {
        lp_value key = star.dict->pairs[i].key;
        if (!lp_jinja_is_str(key))
            return lp_jinja_fail(run, LP_STATUS_FORMAT, "** needs a dict whose keys are strings");
        for (size_t k = 0; k < call->n_named; k++)
            if (lp_str_equal(named[k].name, key.s))
                return lp_jinja_fail(run, LP_STATUS_FORMAT, "the argument '%.*s' is given twice",
                                     LP_STR_ARGS(key.s));
        named[call->n_named + i] = (struct lp_jinja_named){key.s, star.dict->pairs[i].value};
    }
    call->named = named;
    call->n_named += n;
    return true;
}

bool lp_jinja_eval_args(run_state *run, const struct lp_jinja_args *args, scope *in,
                        struct lp_jinja_call *call) {
    call->n_pos = args->n_pos;
    call->n_named = args->n_named;
    if (args->n_pos) TRY(call->pos = lp_jinja_alloc(run, args->n_pos, sizeof *call->pos));
    if (args->n_named) TRY(call->named = lp_jinja_alloc(run, args->n_named, sizeof *call->named));
    for (size_t i = 0; i < args->n_pos; i++)
        TRY(lp_jinja_eval(run, args->pos[i], in, &call->pos[i]));
    for (size_t i = 0; i < args->n_named; i++) {
        call->named[i].name = args->names[i];
        TRY(lp_jinja_eval(run, args->named[i], in, &call->named[i].value));
    }
    lp_value star;
    if (args->star) TRY(lp_jinja_eval(run, args->star, in, &star) && add_star(run, star, call));
    if (args->star2) TRY(lp_jinja_eval(run, args->star2, in, &star) && add_star2(run, star, call));
    return true;
}

bool lp_jinja_call_value(run_state *run, lp_value callee, struct lp_jinja_call *call,
                         lp_value *out) {
    switch (callee.type) {
    case LP_JINJA_MACRO:
        return lp_jinja_call_macro(run, callee.macro, call, out);
    case LP_JINJA_FUNCTION:
        call->self = callee.function->self;
        return lp_jinja_call_builtin(run, callee.function->builtin, call, out);
    case LP_JINJA_LOOP:
        if (call->n_pos != 1 || call->n_named)
            return lp_jinja_fail(run, LP_STATUS_FORMAT, "loop(...) takes one argument");
        return lp_jinja_call_loop(run, callee.loop, call->pos[0], out);
    case LP_JINJA_UNDEFINED:
        return lp_jinja_fail_undefined(run, callee);
    default:
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a value of type %s cannot be called",
                             lp_jinja_type_name(callee));
    }
}

static bool eval_call(run_state *run, const node *n, scope *in, lp_value *out) {
    struct lp_jinja_call call = {0};
    lp_value callee;
    TRY(lp_jinja_eval(run, n->a, in, &callee));
    TRY(lp_jinja_eval_args(run, &n->args, in, &call));
    run->line = n->line;
    return lp_jinja_call_value(run, callee, &call, out);
}

static bool call_named(run_state *run, const node *n, scope *in, lp_value self, lp_value *out) {
    struct lp_jinja_call call = {.self = self};
    run->line = n->line;
    if (!n->builtin)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "there is no %s named '%.*s'",
                             n->kind == LP_JINJA_N_FILTER ? "filter" : "test",
                             LP_STR_ARGS(n->name));
    TRY(lp_jinja_eval_args(run, &n->args, in, &call));
    return lp_jinja_call_builtin(run, n->builtin, &call, out);
}

static bool eval_filter_or_test(run_state *run, const node *n, scope *in, lp_value *out) {
    lp_value self;
    return lp_jinja_eval(run, n->a, in, &self) && call_named(run, n, in, self, out);
}

bool lp_jinja_apply_filters(run_state *run, const node *filter, scope *in, lp_value input,
                            lp_value *out) {
    TRY(lp_jinja_enter(run));
    if (filter->a) TRY(lp_jinja_apply_filters(run, filter->a, in, input, &input));
    run->depth--;
    return call_named(run, filter, in, input, out);
}

// ---- literals and operators -------------------------------------------------------------------

static bool eval_items(run_state *run, const node *n, scope *in, lp_value *out) {
    TRY(lp_jinja_seq_new(run, n->kind == LP_JINJA_N_LIST ? LP_JINJA_LIST : LP_JINJA_TUPLE,
                         n->n_items, out));
    for (size_t i = 0; i < n->n_items; i++)
        TRY(lp_jinja_eval(run, n->items[i], in, &out->seq->items[i]));
    return true;
}

static bool eval_pairs(run_state *run, const node *n, scope *in, lp_value *out) {
    struct lp_jinja_dict *dict;
    TRY(lp_jinja_dict_new(run, n->n_items / 2, &dict));
    for (size_t i = 0; i < n->n_items; i += 2) {
        lp_value key, value;
        TRY(lp_jinja_eval(run, n->items[i], in, &key));
        TRY(lp_jinja_eval(run, n->items[i + 1], in, &value));
        TRY(lp_jinja_dict_set(run, dict, key, value));
    }
    *out = lp_jinja_dict_value(dict);
    return true;
}

static bool eval_attr(run_state *run, const node *n, scope *in, lp_value *out) {
    lp_value of;
    TRY(lp_jinja_eval(run, n->a, in, &of));
    run->line = n->line;
    return lp_jinja_get_attr(run, of, n->name, out);
}

static bool eval_item(run_state *run, const node *n, scope *in, lp_value *out) {
    lp_value of, key;
    TRY(lp_jinja_eval(run, n->a, in, &of) && lp_jinja_eval(run, n->b, in, &key));
    run->line = n->line;
    return lp_jinja_get_item(run, of, key, out);
}

static bool eval_slice(run_state *run, const node *n, scope *in, lp_value *out) {
    lp_value of, part[3];
    TRY(lp_jinja_eval(run, n->a, in, &of));
    for (int i = 0; i < 3; i++) {
        part[i] = lp_jinja_none();
        if (n->items[i]) TRY(lp_jinja_eval(run, n->items[i], in, &part[i]));
    }
    return lp_jinja_slice(run, of, part, out);
}

static bool eval_sign(run_state *run, const node *n, scope *in, lp_value *out) {
    lp_value a;
    TRY(lp_jinja_eval(run, n->a, in, &a));
    if (lp_jinja_is_undefined(a)) return lp_jinja_fail_undefined(run, a);
    bool minus = n->kind == LP_JINJA_N_NEG;
    int64_t i;
    if (a.type == LP_JINJA_FLOAT) {
        *out = lp_jinja_float(minus ? -a.f : a.f);
        return true;
    }
    if (!lp_jinja_as_int(a, &i))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a value of type %s has no sign",
                             lp_jinja_type_name(a));
    if (minus && i == INT64_MIN)
        return lp_jinja_fail(run, LP_STATUS_LIMIT, "an integer has more than 63 bits");
    *out = lp_jinja_int(minus ? -i : i);
    return true;
}

static bool eval_logic(run_state *run, const node *n, scope *in, lp_value *out) {
    TRY(lp_jinja_eval(run, n->a, in, out));
    if (lp_jinja_truth(*out) == (n->kind == LP_JINJA_N_OR)) return true;
    return lp_jinja_eval(run, n->b, in, out);
}

static bool eval_not(run_state *run, const node *n, scope *in, lp_value *out) {
    TRY(lp_jinja_eval(run, n->a, in, out));
    *out = lp_jinja_bool(!lp_jinja_truth(*out));
    return true;
}

static bool eval_binary(run_state *run, const node *n, scope *in, lp_value *out) {
    lp_value a, b;
    TRY(lp_jinja_eval(run, n->a, in, &a) && lp_jinja_eval(run, n->b, in, &b));
    run->line = n->line;
    return lp_jinja_binary(run, n->op, a, b, out);
}

static bool eval_concat(run_state *run, const node *n, scope *in, lp_value *out) {
    size_t begin = lp_jinja_build_begin(run);
    for (size_t i = 0; i < n->n_items; i++) {
        lp_value part;
        TRY(lp_jinja_eval(run, n->items[i], in, &part));
        TRY(lp_jinja_add_str(run, part));
    }
    return lp_jinja_build_end(run, begin, out);
}

static bool eval_compare(run_state *run, const node *n, scope *in, lp_value *out) {
    lp_value a, b;
    bool holds = true;
    TRY(lp_jinja_eval(run, n->a, in, &a));
    for (size_t i = 0; i < n->n_items && holds; i++) {
        TRY(lp_jinja_eval(run, n->items[i], in, &b));
        run->line = n->line;
        TRY(lp_jinja_compare(run, n->ops[i], a, b, &holds));
        a = b;
    }
    *out = lp_jinja_bool(holds);
    return true;
}

static bool eval_cond(run_state *run, const node *n, scope *in, lp_value *out) {
    lp_value test;
    TRY(lp_jinja_eval(run, n->a, in, &test));
    if (lp_jinja_truth(test)) return lp_jinja_eval(run, n->b, in, out);
    if (n->c) return lp_jinja_eval(run, n->c, in, out);
    *out = lp_jinja_undefined(
        LP_JINJA_NO_ITEM, lp_str_from("an inline 'if' without 'else' was false and has no value"));
    return true;
}

static bool eval_one(run_state *run, const node *n, scope *in, lp_value *out) {
    switch (n->kind) {
    case LP_JINJA_N_CONST:
        *out = n->value;
        return true;
    case LP_JINJA_N_NAME:
        return eval_name(run, n, in, out);
    case LP_JINJA_N_LIST:
    case LP_JINJA_N_TUPLE:
        return eval_items(run, n, in, out);
    case LP_JINJA_N_PAIRS:
        return eval_pairs(run, n, in, out);
    case LP_JINJA_N_ATTR:
        return eval_attr(run, n, in, out);
    case LP_JINJA_N_ITEM:
        return eval_item(run, n, in, out);
    case LP_JINJA_N_SLICE:
        return eval_slice(run, n, in, out);
    case LP_JINJA_N_CALL:
        return eval_call(run, n, in, out);
    case LP_JINJA_N_FILTER:
    case LP_JINJA_N_TEST:
        return eval_filter_or_test(run, n, in, out);
    case LP_JINJA_N_NOT:
        return eval_not(run, n, in, out);
    case LP_JINJA_N_NEG:
    case LP_JINJA_N_POS:
        return eval_sign(run, n, in, out);
    case LP_JINJA_N_AND:
    case LP_JINJA_N_OR:
        return eval_logic(run, n, in, out);
    case LP_JINJA_N_BINARY:
        return eval_binary(run, n, in, out);
    case LP_JINJA_N_CONCAT:
        return eval_concat(run, n, in, out);
    case LP_JINJA_N_COMPARE:
        return eval_compare(run, n, in, out);
    case LP_JINJA_N_COND:
        return eval_cond(run, n, in, out);
    default:
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a block stands as an expression");
    }
}

bool lp_jinja_eval(run_state *run, const node *n, scope *in, lp_value *out) {
    TRY(lp_jinja_enter(run));
    TRY(eval_one(run, n, in, out));
    run->depth--;
    return true;
}
