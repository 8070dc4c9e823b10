// The tests of "is": each answers true or false about the value at its left.
#include <math.h>

#include "text/jinja_builtins.h"
#include "text/jinja_str.h"

typedef struct lp_jinja_run run_state;
typedef struct lp_jinja_call call_args;

static bool answer(lp_value *out, bool yes) {
    *out = lp_jinja_bool(yes);
    return true;
}

// One line for a test that only looks at the type.
#define TYPE_TEST(name, condition)                                                                 \
    static bool test_##name(run_state *run, call_args *call, lp_value *out) {                      \
        (void)run;                                                                                 \
        lp_value v = call->self;                                                                   \
        return answer(out, condition);                                                             \
    }

TYPE_TEST(defined, v.type != LP_JINJA_UNDEFINED)
TYPE_TEST(undefined, v.type == LP_JINJA_UNDEFINED)
TYPE_TEST(none, v.type == LP_JINJA_NONE)
TYPE_TEST(boolean, v.type == LP_JINJA_BOOL)
TYPE_TEST(true, v.type == LP_JINJA_BOOL && v.b)
TYPE_TEST(false, v.type == LP_JINJA_BOOL && !v.b)
TYPE_TEST(integer, v.type == LP_JINJA_INT)
TYPE_TEST(float, v.type == LP_JINJA_FLOAT)
TYPE_TEST(number, v.type == LP_JINJA_INT || v.type == LP_JINJA_FLOAT || v.type == LP_JINJA_BOOL)
TYPE_TEST(string, v.type == LP_JINJA_STRING)
TYPE_TEST(escaped, v.type == LP_JINJA_STRING && v.sub == LP_JINJA_SAFE)
TYPE_TEST(mapping, v.type == LP_JINJA_DICT)
TYPE_TEST(iterable, lp_jinja_is_iterable(v))
TYPE_TEST(callable, v.type == LP_JINJA_FUNCTION || v.type == LP_JINJA_MACRO ||
                        v.type == LP_JINJA_LOOP || v.type == LP_JINJA_UNDEFINED)
TYPE_TEST(sequence, v.type == LP_JINJA_STRING || v.type == LP_JINJA_DICT ||
                        v.type == LP_JINJA_UNDEFINED ||
                        (v.type == LP_JINJA_SEQ && (v.seq->kind <= LP_JINJA_RANGE)))

// "'upper' is filter": a look-up in a table, which unhashable values cannot ask for.
static bool is_builtin(run_state *run, call_args *call, bool filter, lp_value *out) {
    lp_value v = call->self;
    bool hashable;
    if (!lp_jinja_hashable(run, v, 0, &hashable)) return false;
    if (!hashable)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a %s cannot be the name of a filter or test",
                             lp_jinja_type_name(v));
    return answer(out, lp_jinja_is_str(v) && (filter ? lp_jinja_filter(v.s) : lp_jinja_test(v.s)));
}

static bool test_filter(run_state *run, call_args *call, lp_value *out) {
    return is_builtin(run, call, true, out);
}

static bool test_test(run_state *run, call_args *call, lp_value *out) {
    return is_builtin(run, call, false, out);
}

static bool test_divisible(run_state *run, call_args *call, lp_value *out) {
    lp_value rest;
    bool same;
    return lp_jinja_binary(run, '%', call->self, call->arg[0], &rest) &&
           lp_jinja_equal(run, rest, lp_jinja_int(0), 0, &same) && answer(out, same);
}

static bool has_parity(run_state *run, call_args *call, int64_t parity, lp_value *out) {
    lp_value rest;
    bool same;
    return lp_jinja_binary(run, '%', call->self, lp_jinja_int(2), &rest) &&
           lp_jinja_equal(run, rest, lp_jinja_int(parity), 0, &same) && answer(out, same);
}

static bool test_odd(run_state *run, call_args *call, lp_value *out) {
    return has_parity(run, call, 1, out);
}

static bool test_even(run_state *run, call_args *call, lp_value *out) {
    return has_parity(run, call, 0, out);
}

// Python's islower and isupper: some cased character, and none of the other case.
static bool has_case(run_state *run, call_args *call, enum lp_jinja_class wanted, lp_value *out) {
    lp_value text;
    if (!lp_jinja_to_str(run, call->self, &text) || !lp_jinja_spend_bytes(run, text.s.len))
        return false;
    enum lp_jinja_class other =
        wanted == LP_JINJA_CLASS_LOWER ? LP_JINJA_CLASS_UPPER : LP_JINJA_CLASS_LOWER;
    bool any = false;
    for (size_t at = 0; at < text.s.len;) {
        uint32_t cp;
        at += lp_jinja_utf8_next(text.s, at, &cp);
        if (lp_jinja_in_class(cp, other) || lp_jinja_in_class(cp, LP_JINJA_CLASS_TITLE))
            return answer(out, false);
        any = any || lp_jinja_in_class(cp, wanted);
    }
    return answer(out, any);
}

static bool test_lower(run_state *run, call_args *call, lp_value *out) {
    return has_case(run, call, LP_JINJA_CLASS_LOWER, out);
}

static bool test_upper(run_state *run, call_args *call, lp_value *out) {
    return has_case(run, call, LP_JINJA_CLASS_UPPER, out);
}

static bool test_sameas(run_state *run, call_args *call, lp_value *out) {
    (void)run;
    lp_value a = call->self, b = call->arg[0];
    if (a.type != b.type) return answer(out, false);
    switch (a.type) {
    case LP_JINJA_NONE:
        return answer(out, true);
    case LP_JINJA_BOOL:
        return answer(out, a.b == b.b);
    case LP_JINJA_INT:
        return answer(out, a.i == b.i);
    case LP_JINJA_FLOAT:
        return answer(out, a.f == b.f);
    case LP_JINJA_STRING:
        return answer(out, lp_str_equal(a.s, b.s));
    default:
        return answer(out, a.dict == b.dict);
    }
}

static bool test_in(run_state *run, call_args *call, lp_value *out) {
    bool yes;
    return lp_jinja_contains(run, call->arg[0], call->self, &yes) && answer(out, yes);
}

static bool compares(run_state *run, call_args *call, int op, lp_value *out) {
    bool yes;
    return lp_jinja_compare(run, op, call->self, call->arg[0], &yes) && answer(out, yes);
}

static bool test_eq(run_state *run, call_args *call, lp_value *out) {
    return compares(run, call, LP_JINJA_T_EQ, out);
}
static bool test_ne(run_state *run, call_args *call, lp_value *out) {
    return compares(run, call, LP_JINJA_T_NE, out);
}
static bool test_lt(run_state *run, call_args *call, lp_value *out) {
    return compares(run, call, '<', out);
}
static bool test_le(run_state *run, call_args *call, lp_value *out) {
    return compares(run, call, LP_JINJA_T_LE, out);
}
static bool test_gt(run_state *run, call_args *call, lp_value *out) {
    return compares(run, call, '>', out);
}
static bool test_ge(run_state *run, call_args *call, lp_value *out) {
    return compares(run, call, LP_JINJA_T_GE, out);
}

const struct lp_jinja_builtin lp_jinja_test_table[] = {
    {"defined", "", 0, test_defined},     {"undefined", "", 0, test_undefined},
    {"none", "", 0, test_none},           {"boolean", "", 0, test_boolean},
    {"true", "", 0, test_true},           {"false", "", 0, test_false},
    {"integer", "", 0, test_integer},     {"float", "", 0, test_float},
    {"number", "", 0, test_number},       {"string", "", 0, test_string},
    {"escaped", "", 0, test_escaped},     {"mapping", "", 0, test_mapping},
    {"iterable", "", 0, test_iterable},   {"sequence", "", 0, test_sequence},
    {"callable", "", 0, test_callable},   {"filter", "", 0, test_filter},
    {"test", "", 0, test_test},           {"odd", "", 0, test_odd},
    {"even", "", 0, test_even},           {"divisibleby", "num", 1, test_divisible},
    {"lower", "", 0, test_lower},         {"upper", "", 0, test_upper},
    {"sameas", "other", 1, test_sameas},  {"in", "seq", 1, test_in},
    {"==", "other", 1, test_eq},          {"eq", "other", 1, test_eq},
    {"equalto", "other", 1, test_eq},     {"!=", "other", 1, test_ne},
    {"ne", "other", 1, test_ne},          {"<", "other", 1, test_lt},
    {"lt", "other", 1, test_lt},          {"lessthan", "other", 1, test_lt},
    {"<=", "other", 1, test_le},          {"le", "other", 1, test_le},
    {">", "other", 1, test_gt},           {"gt", "other", 1, test_gt},
    {"greaterthan", "other", 1, test_gt}, {">=", "other", 1, test_ge},
    {"ge", "other", 1, test_ge},          {0},
};
