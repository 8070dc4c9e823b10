// Expressions, by descent, one function per level of binding (loosest first):
//   a if b else c | or | and | not | comparisons, in | + - | ~ | * / // % | ** | unary, postfix, | is
#include <string.h>

#include "text/jinja_ast.h"
#include "text/jinja_builtins.h"

typedef struct lp_jinja_node node;
typedef struct lp_jinja_parser parser;

static node *parse_or(parser *p);
static node *parse_unary(parser *p, bool with_filters);
static node *parse_primary(parser *p);
static node *parse_postfix(parser *p, node *at);

static node *fail_token(parser *p, const char *wanted) {
    const struct lp_jinja_token *t = lp_jinja_peek(p);
    if (t->kind == LP_JINJA_T_NAME || t->kind == LP_JINJA_T_STRING)
        lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "'%.*s' stands where %s is expected",
                            LP_STR_ARGS(t->text), wanted);
    else if (t->kind < 128)
        lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "'%c' stands where %s is expected", t->kind,
                            wanted);
    else
        lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "%s is expected", wanted);
    return NULL;
}

static node *join(parser *p, enum lp_jinja_node_kind kind, int op, node *a, node *b) {
    node *n = a && b ? lp_jinja_node_new(p, kind) : NULL;
    if (!n) return NULL;
    n->line = a->line;
    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

static node *take_items(parser *p, enum lp_jinja_node_kind kind, struct lp_jinja_nodes list) {
    node *n = lp_jinja_node_new(p, kind);
    if (!n) return NULL;
    n->items = list.items;
    n->n_items = list.n;
    return n;
}

// ---- literals and names -----------------------------------------------------------------------

static node *constant(parser *p, lp_value value) {
    node *n = lp_jinja_node_new(p, LP_JINJA_N_CONST);
    if (n) n->value = value;
    return n;
}

static bool is_either(struct lp_str s, const char *a, const char *b) {
    return lp_str_is(s, a) || lp_str_is(s, b);
}

static void note_name(parser *p, struct lp_str name) {
    if (!p->params) return;
    if (lp_str_is(name, "caller")) p->params->uses_caller = true;
    if (lp_str_is(name, "varargs")) p->params->uses_varargs = true;
    if (lp_str_is(name, "kwargs")) p->params->uses_kwargs = true;
}

static node *parse_name(parser *p) {
    struct lp_str name = lp_jinja_peek(p)->text;
    node *n;
    if (is_either(name, "true", "True"))
        n = constant(p, lp_jinja_bool(true));
    else if (is_either(name, "false", "False"))
        n = constant(p, lp_jinja_bool(false));
    else if (is_either(name, "none", "None"))
        n = constant(p, lp_jinja_none());
    else if ((n = lp_jinja_node_new(p, LP_JINJA_N_NAME))) {
        n->name = name;
        note_name(p, name);
    }
    p->at++;
    return n;
}

static node *parse_string(parser *p) {
    size_t total = 0, first = p->at;
    while (lp_jinja_peek(p)->kind == LP_JINJA_T_STRING) total += p->tokens[p->at++].text.len;
    struct lp_str text = p->tokens[first].text;
    if (p->at - first > 1) {
        char *joined = lp_jinja_parse_alloc(p, total + 1, 1);
        if (!joined) return NULL;
        size_t n = 0;
        for (size_t i = first; i < p->at; i++) {
            memcpy(joined + n, p->tokens[i].text.data, p->tokens[i].text.len);
            n += p->tokens[i].text.len;
        }
        text = (struct lp_str){joined, total};
    }
    return constant(p, lp_jinja_str(text));
}

static node *parse_list(parser *p) {
    struct lp_jinja_nodes list = {0};
    p->at++;
    while (lp_jinja_peek(p)->kind != ']') {
        if (list.n && !lp_jinja_expect(p, ',', "','")) return NULL;
        if (lp_jinja_peek(p)->kind == ']') break;
        if (!lp_jinja_nodes_add(p, &list, lp_jinja_parse_expression(p))) return NULL;
    }
    p->at++;
    return take_items(p, LP_JINJA_N_LIST, list);
}

static node *parse_dict(parser *p) {
    struct lp_jinja_nodes list = {0};
    p->at++;
    while (lp_jinja_peek(p)->kind != '}') {
        if (list.n && !lp_jinja_expect(p, ',', "','")) return NULL;
        if (lp_jinja_peek(p)->kind == '}') break;
        if (!lp_jinja_nodes_add(p, &list, lp_jinja_parse_expression(p)) ||
            !lp_jinja_expect(p, ':', "':'") ||
            !lp_jinja_nodes_add(p, &list, lp_jinja_parse_expression(p)))
            return NULL;
    }
    p->at++;
    return take_items(p, LP_JINJA_N_PAIRS, list);
}

static node *parse_parentheses(parser *p) {
    p->at++;
    node *n = lp_jinja_peek(p)->kind == ')' ? lp_jinja_node_new(p, LP_JINJA_N_TUPLE)
                                            : lp_jinja_parse_tuple(p, true, NULL);
    return n && lp_jinja_expect(p, ')', "')'") ? n : NULL;
}

static node *parse_primary(parser *p) {
    const struct lp_jinja_token *t = lp_jinja_peek(p);
    switch (t->kind) {
    case LP_JINJA_T_NAME:
        return parse_name(p);
    case LP_JINJA_T_STRING:
        return parse_string(p);
    case LP_JINJA_T_INT:
        p->at++;
        return constant(p, lp_jinja_int(t->i));
    case LP_JINJA_T_FLOAT:
        p->at++;
        return constant(p, lp_jinja_float(t->f));
    case '(':
        return parse_parentheses(p);
    case '[':
        return parse_list(p);
    case '{':
        return parse_dict(p);
    default:
        return fail_token(p, "a value");
    }
}

// ---- postfix: attributes, subscripts, calls, filters, tests -----------------------------------

static node *parse_attribute(parser *p, node *of) {
    p->at++;
    const struct lp_jinja_token *t = lp_jinja_peek(p);
    if (t->kind == LP_JINJA_T_INT) {
        p->at++;
        return join(p, LP_JINJA_N_ITEM, 0, of, constant(p, lp_jinja_int(t->i)));
    }
    if (t->kind != LP_JINJA_T_NAME) return fail_token(p, "the name of an attribute");
    p->at++;
    node *n = lp_jinja_node_new(p, LP_JINJA_N_ATTR);
    if (!n) return NULL;
    n->a = of;
    n->name = t->text;
    return n;
}

static bool ends_subscript(int kind) {
    return kind == ']' || kind == ',';
}

// A slice that is still without its object (a subscript may also be a finished slice: a[b[1:]]).
static bool is_bare_slice(const node *n) {
    return n->kind == LP_JINJA_N_SLICE && !n->a;
}

// One subscript; a bare slice if there is a colon.
static node *parse_subscript(parser *p) {
    node *parts[3] = {NULL, NULL, NULL};
    if (lp_jinja_peek(p)->kind != ':') {
        parts[0] = lp_jinja_parse_expression(p);
        if (!parts[0] || lp_jinja_peek(p)->kind != ':') return parts[0];
    }
    for (int i = 1; i < 3 && lp_jinja_skip(p, ':'); i++) {
        if (lp_jinja_peek(p)->kind == ':' || ends_subscript(lp_jinja_peek(p)->kind)) continue;
        parts[i] = lp_jinja_parse_expression(p);
        if (!parts[i]) return NULL;
    }
    node *n = lp_jinja_node_new(p, LP_JINJA_N_SLICE);
    if (!n) return NULL;
    n->items = lp_jinja_parse_alloc(p, 3, sizeof *n->items);
    if (!n->items) return NULL;
    memcpy(n->items, parts, sizeof parts);
    n->n_items = 3;
    return n;
}

static node *parse_item(parser *p, node *of) {
    p->at++;
    struct lp_jinja_nodes list = {0};
    while (lp_jinja_peek(p)->kind != ']') {
        if (list.n && !lp_jinja_expect(p, ',', "',' or ']'")) return NULL;
        if (!lp_jinja_nodes_add(p, &list, parse_subscript(p))) return NULL;
        if (is_bare_slice(list.items[list.n - 1]) && (list.n > 1 || lp_jinja_peek(p)->kind != ']'))
            return fail_token(p, "']' after a slice");
    }
    p->at++;
    if (list.n == 1 && is_bare_slice(list.items[0])) {
        list.items[0]->a = of;
        return list.items[0];
    }
    node *key = list.n == 1 ? list.items[0] : take_items(p, LP_JINJA_N_TUPLE, list);
    return join(p, LP_JINJA_N_ITEM, 0, of, key);
}

static bool add_named(parser *p, struct lp_jinja_args *args, struct lp_jinja_nodes *named,
                      size_t *capacity) {
    struct lp_str name = lp_jinja_peek(p)->text;
    p->at += 2;
    for (size_t i = 0; i < named->n; i++)
        if (lp_str_equal(args->names[i], name))
            return lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "the argument '%.*s' is given twice",
                                       LP_STR_ARGS(name));
    if (named->n == *capacity) {
        size_t more = *capacity ? *capacity * 2 : 4;
        struct lp_str *names = lp_jinja_parse_alloc(p, more, sizeof *names);
        if (!names) return false;
        if (named->n) memcpy(names, args->names, named->n * sizeof *names);
        args->names = names;
        *capacity = more;
    }
    args->names[named->n] = name;
    return lp_jinja_nodes_add(p, named, lp_jinja_parse_expression(p));
}

// One argument of a call: *a, **b, name=value or value.
static bool parse_arg(parser *p, struct lp_jinja_args *args, struct lp_jinja_nodes *pos,
                      struct lp_jinja_nodes *named, size_t *capacity) {
    if (lp_jinja_skip(p, LP_JINJA_T_POW))
        return !args->star2 && (args->star2 = lp_jinja_parse_expression(p));
    if (lp_jinja_skip(p, '*'))
        return !args->star && !args->star2 && (args->star = lp_jinja_parse_expression(p));
    if (lp_jinja_peek(p)->kind == LP_JINJA_T_NAME && p->tokens[p->at + 1].kind == '=')
        return !args->star2 && add_named(p, args, named, capacity);
    if (args->star || args->star2 || named->n)
        return lp_jinja_parse_fail(p, LP_STATUS_FORMAT,
                                   "a plain argument follows a named or starred one");
    return lp_jinja_nodes_add(p, pos, lp_jinja_parse_expression(p));
}

static bool parse_args(parser *p, struct lp_jinja_args *args) {
    struct lp_jinja_nodes pos = {0}, named = {0};
    size_t capacity = 0;
    p->at++;
    for (bool first = true; lp_jinja_peek(p)->kind != ')'; first = false) {
        if (!first && !lp_jinja_expect(p, ',', "',' or ')'")) return false;
        if (lp_jinja_peek(p)->kind == ')') break;
        if (!parse_arg(p, args, &pos, &named, &capacity))
            return p->status ? false
                             : lp_jinja_parse_fail(p, LP_STATUS_FORMAT,
                                                   "the arguments of a call are out of order");
    }
    p->at++;
    args->pos = pos.items;
    args->n_pos = pos.n;
    args->named = named.items;
    args->n_named = named.n;
    return true;
}

static node *parse_call(parser *p, node *callee) {
    node *n = lp_jinja_node_new(p, LP_JINJA_N_CALL);
    if (!n) return NULL;
    n->a = callee;
    return parse_args(p, &n->args) ? n : NULL;
}

// Takes the name of a filter or test; unknown ones are an error here unless a condition may keep
// them from being reached.
static node *parse_builtin(parser *p, enum lp_jinja_node_kind kind, node *of) {
    const struct lp_jinja_token *t = lp_jinja_peek(p);
    bool filter = kind == LP_JINJA_N_FILTER;
    if (t->kind != LP_JINJA_T_NAME)
        return fail_token(p, filter ? "the name of a filter" : "the name of a test");
    node *n = lp_jinja_node_new(p, kind);
    if (!n) return NULL;
    p->at++;
    n->a = of;
    n->name = t->text;
    n->builtin = filter ? lp_jinja_filter(t->text) : lp_jinja_test(t->text);
    if (n->builtin || p->conditions) return n;
    if (filter && lp_jinja_filter_is_foreign(t->text))
        lp_jinja_parse_fail(p, LP_STATUS_UNSUPPORTED, "the filter '%.*s' is not supported",
                            LP_STR_ARGS(t->text));
    else
        lp_jinja_parse_fail(p, LP_STATUS_FORMAT, "there is no %s named '%.*s'",
                            filter ? "filter" : "test", LP_STR_ARGS(t->text));
    return NULL;
}

node *lp_jinja_parse_filters(parser *p, node *of, bool first_is_here) {
    while (first_is_here || lp_jinja_skip(p, '|')) {
        first_is_here = false;
        of = parse_builtin(p, LP_JINJA_N_FILTER, of);
        if (!of || (lp_jinja_peek(p)->kind == '(' && !parse_args(p, &of->args))) return NULL;
    }
    return of;
}

static bool starts_test_argument(const parser *p) {
    switch (lp_jinja_peek(p)->kind) {
    case LP_JINJA_T_NAME:
        return !lp_jinja_at_name(p, "else") && !lp_jinja_at_name(p, "or") &&
               !lp_jinja_at_name(p, "and");
    case LP_JINJA_T_STRING:
    case LP_JINJA_T_INT:
    case LP_JINJA_T_FLOAT:
    case '[':
    case '{':
        return true;
    default:
        return false;
    }
}

static node *parse_test(parser *p, node *of) {
    p->at++;
    bool negated = lp_jinja_skip_name(p, "not");
    node *n = parse_builtin(p, LP_JINJA_N_TEST, of);
    if (!n) return NULL;
    if (lp_jinja_peek(p)->kind == '(') {
        if (!parse_args(p, &n->args)) return NULL;
    } else if (starts_test_argument(p)) {
        if (lp_jinja_at_name(p, "is")) return fail_token(p, "the end of the test (one 'is' only)");
        struct lp_jinja_nodes pos = {0};
        node *arg = parse_primary(p);
        if (!arg || !lp_jinja_nodes_add(p, &pos, parse_postfix(p, arg))) return NULL;
        n->args.pos = pos.items;
        n->args.n_pos = pos.n;
    }
    if (!negated) return n;
    node *inverse = lp_jinja_node_new(p, LP_JINJA_N_NOT);
    if (inverse) inverse->a = n;
    return inverse;
}

static node *parse_postfix(parser *p, node *at) {
    while (at) {
        int kind = lp_jinja_peek(p)->kind;
        if (kind == '.')
            at = parse_attribute(p, at);
        else if (kind == '[')
            at = parse_item(p, at);
        else if (kind == '(')
            at = parse_call(p, at);
        else
            break;
    }
    return at;
}

static node *parse_filters_and_tests(parser *p, node *at) {
    while (at) {
        if (lp_jinja_peek(p)->kind == '|')
            at = lp_jinja_parse_filters(p, at, false);
        else if (lp_jinja_at_name(p, "is"))
            at = parse_test(p, at);
        else if (lp_jinja_peek(p)->kind == '(')
            at = parse_call(p, at);
        else
            break;
    }
    return at;
}

// ---- operators --------------------------------------------------------------------------------

static node *parse_signed(parser *p, enum lp_jinja_node_kind kind) {
    if (!lp_jinja_parse_enter(p)) return NULL;
    p->at++;
    node *a = parse_unary(p, false);
    lp_jinja_parse_leave(p);
    node *n = a ? lp_jinja_node_new(p, kind) : NULL;
    if (n) n->a = a;
    return n;
}

static node *parse_unary(parser *p, bool with_filters) {
    int kind = lp_jinja_peek(p)->kind;
    node *n = kind == '-'   ? parse_signed(p, LP_JINJA_N_NEG)
              : kind == '+' ? parse_signed(p, LP_JINJA_N_POS)
                            : parse_primary(p);
    n = parse_postfix(p, n);
    return with_filters ? parse_filters_and_tests(p, n) : n;
}

static node *parse_pow(parser *p) {
    node *n = parse_unary(p, true);
    while (n && lp_jinja_skip(p, LP_JINJA_T_POW))
        n = join(p, LP_JINJA_N_BINARY, LP_JINJA_T_POW, n, parse_unary(p, true));
    return n;
}

static node *parse_product(parser *p) {
    node *n = parse_pow(p);
    for (;;) {
        int op = n ? lp_jinja_peek(p)->kind : 0;
        if (op != '*' && op != '/' && op != '%' && op != LP_JINJA_T_FLOORDIV) return n;
        p->at++;
        n = join(p, LP_JINJA_N_BINARY, op, n, parse_pow(p));
    }
}

static node *parse_concat(parser *p) {
    node *first = parse_product(p);
    if (!first || lp_jinja_peek(p)->kind != '~') return first;
    struct lp_jinja_nodes list = {0};
    if (!lp_jinja_nodes_add(p, &list, first)) return NULL;
    while (lp_jinja_skip(p, '~'))
        if (!lp_jinja_nodes_add(p, &list, parse_product(p))) return NULL;
    return take_items(p, LP_JINJA_N_CONCAT, list);
}

static node *parse_sum(parser *p) {
    node *n = parse_concat(p);
    for (;;) {
        int op = n ? lp_jinja_peek(p)->kind : 0;
        if (op != '+' && op != '-') return n;
        p->at++;
        n = join(p, LP_JINJA_N_BINARY, op, n, parse_concat(p));
    }
}

// The comparison at hand, consumed; 0 if there is none.
static int take_comparison(parser *p) {
    int kind = lp_jinja_peek(p)->kind;
    if (kind == LP_JINJA_T_EQ || kind == LP_JINJA_T_NE || kind == LP_JINJA_T_LE ||
        kind == LP_JINJA_T_GE || kind == '<' || kind == '>') {
        p->at++;
        return kind;
    }
    if (lp_jinja_skip_name(p, "in")) return LP_JINJA_T_IN;
    const struct lp_jinja_token *next = &p->tokens[p->at + (kind != LP_JINJA_T_EOF)];
    if (lp_jinja_at_name(p, "not") && next->kind == LP_JINJA_T_NAME &&
        lp_str_is(next->text, "in")) {
        p->at += 2;
        return LP_JINJA_T_NOT_IN;
    }
    return 0;
}

static node *parse_compare(parser *p) {
    node *first = parse_sum(p);
    int op = first ? take_comparison(p) : 0;
    if (!op) return first;
    struct lp_jinja_nodes list = {0};
    size_t capacity = 0;
    int *ops = NULL;
    for (; op; op = take_comparison(p)) {
        if (list.n == capacity) {
            capacity = capacity ? capacity * 2 : 2;
            int *more = lp_jinja_parse_alloc(p, capacity, sizeof *more);
            if (!more) return NULL;
            if (list.n) memcpy(more, ops, list.n * sizeof *more);
            ops = more;
        }
        ops[list.n] = op;
        if (!lp_jinja_nodes_add(p, &list, parse_sum(p))) return NULL;
    }
    node *n = take_items(p, LP_JINJA_N_COMPARE, list);
    if (!n) return NULL;
    n->a = first;
    n->ops = ops;
    return n;
}

static node *parse_not(parser *p) {
    if (!lp_jinja_at_name(p, "not")) return parse_compare(p);
    if (!lp_jinja_parse_enter(p)) return NULL;
    p->at++;
    node *a = parse_not(p);
    lp_jinja_parse_leave(p);
    node *n = a ? lp_jinja_node_new(p, LP_JINJA_N_NOT) : NULL;
    if (n) n->a = a;
    return n;
}

static node *parse_and(parser *p) {
    node *n = parse_not(p);
    while (n && lp_jinja_skip_name(p, "and")) n = join(p, LP_JINJA_N_AND, 0, n, parse_not(p));
    return n;
}

static node *parse_or(parser *p) {
    node *n = parse_and(p);
    while (n && lp_jinja_skip_name(p, "or")) n = join(p, LP_JINJA_N_OR, 0, n, parse_and(p));
    return n;
}

static node *parse_conditional(parser *p) {
    node *n = parse_or(p);
    while (n && lp_jinja_skip_name(p, "if")) {
        n = join(p, LP_JINJA_N_COND, 0, parse_or(p), n);
        if (n && lp_jinja_skip_name(p, "else") && !(n->c = lp_jinja_parse_expression(p)))
            return NULL;
    }
    return n;
}

node *lp_jinja_parse_expression(parser *p) {
    if (!lp_jinja_parse_enter(p)) return NULL;
    node *n = parse_conditional(p);
    lp_jinja_parse_leave(p);
    return n;
}

// ---- tuples and targets -----------------------------------------------------------------------

static bool ends_tuple(const parser *p, const char *stop) {
    int kind = lp_jinja_peek(p)->kind;
    return kind == LP_JINJA_T_VAR_END || kind == LP_JINJA_T_BLOCK_END || kind == ')' ||
           (stop && lp_jinja_at_name(p, stop));
}

static node *parse_tuple_item(parser *p, bool conditional, bool target, bool namespaces) {
    if (!target) {
        if (conditional) return lp_jinja_parse_expression(p);
        if (!lp_jinja_parse_enter(p)) return NULL;
        node *n = parse_or(p);
        lp_jinja_parse_leave(p);
        return n;
    }
    if (!lp_jinja_parse_enter(p)) return NULL;
    node *n = parse_primary(p);
    lp_jinja_parse_leave(p);
    if (!n || n->kind != LP_JINJA_N_NAME || !namespaces || !lp_jinja_skip(p, '.')) return n;
    if (lp_jinja_peek(p)->kind != LP_JINJA_T_NAME) return fail_token(p, "an attribute's name");
    n->kind = LP_JINJA_N_NSREF;
    n->attr = lp_jinja_peek(p)->text;
    p->at++;
    return n;
}

static node *parse_items(parser *p, bool conditional, const char *stop, bool target,
                         bool namespaces) {
    struct lp_jinja_nodes list = {0};
    bool tuple = false;
    while (!ends_tuple(p, stop)) {
        if (!lp_jinja_nodes_add(p, &list, parse_tuple_item(p, conditional, target, namespaces)))
            return NULL;
        if (!lp_jinja_skip(p, ',')) break;
        tuple = true;
    }
    if (tuple) return take_items(p, LP_JINJA_N_TUPLE, list);
    return list.n ? list.items[0] : fail_token(p, "an expression");
}

node *lp_jinja_parse_tuple(parser *p, bool conditional, const char *stop) {
    return parse_items(p, conditional, stop, false, false);
}

static bool assignable(parser *p, const node *n) {
    if (n->kind == LP_JINJA_N_NAME || n->kind == LP_JINJA_N_NSREF) return true;
    if (n->kind != LP_JINJA_N_TUPLE)
        return lp_jinja_parse_fail(p, LP_STATUS_FORMAT,
                                   "only names, attributes of a namespace and tuples of them can "
                                   "be assigned to");
    for (size_t i = 0; i < n->n_items; i++)
        if (!assignable(p, n->items[i])) return false;
    return true;
}

node *lp_jinja_parse_target(parser *p, bool namespaces, const char *stop) {
    node *n = parse_items(p, false, stop, true, namespaces);
    return n && assignable(p, n) ? n : NULL;
}
