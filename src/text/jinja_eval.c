// Running a template: blocks, scopes, loops, macros. Output goes to one buffer; what a macro or a
// set block writes is taken off its tail again, so the buffer's limit holds for everything.
#include <string.h>

#include "base/checked.h"
#include "text/chat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_eval.h"
#include "text/jinja_try.h"

typedef struct lp_jinja_run run_state;
typedef struct lp_jinja_node node;
typedef struct lp_jinja_scope scope;

#define DEFAULT_STEPS UINT64_C(20000000)
#define DEFAULT_OUTPUT_BYTES ((uint64_t)64 << 20)
#define DEFAULT_MEMORY_BYTES ((uint64_t)256 << 20)

bool lp_jinja_enter(run_state *run) {
    if (run->depth >= LP_JINJA_MAX_DEPTH)
        return lp_jinja_fail(run, LP_STATUS_LIMIT,
                             "the evaluation is nested more than %d deep (endless recursion?)",
                             LP_JINJA_MAX_DEPTH);
    run->depth++;
    return lp_jinja_spend(run, 1);
}

static bool emit(run_state *run, struct lp_str text) {
    struct lp_bytes *out = &run->out;
    if (text.len > out->max_bytes - out->len)
        return lp_jinja_fail(run, LP_STATUS_LIMIT, "the output is longer than %zu bytes",
                             out->max_bytes);
    if (!lp_bytes_append(out, text.data, text.len))
        return lp_jinja_fail(run, LP_STATUS_MEMORY, "out of memory: %zu bytes of output",
                             out->len + text.len);
    return lp_jinja_spend_bytes(run, text.len);
}

// Takes what was written since `mark` off the output.
static bool take_output(run_state *run, size_t mark, lp_value *out) {
    size_t n = run->out.len - mark;
    char *copy = lp_jinja_alloc(run, n ? n : 1, 1);
    if (!copy) return false;
    if (n) memcpy(copy, run->out.data + mark, n);
    run->out.len = mark;
    *out = lp_jinja_str((struct lp_str){copy, n});
    return true;
}

// ---- scopes and assignment --------------------------------------------------------------------

bool lp_jinja_scope_set(run_state *run, scope *in, struct lp_str name, lp_value value) {
    TRY(lp_jinja_spend(run, in->n / 16));
    for (size_t i = 0; i < in->n; i++)
        if (lp_str_equal(in->vars[i].name, name)) {
            in->vars[i].value = value;
            return true;
        }
    if (in->n == in->capacity) {
        size_t capacity = in->capacity ? in->capacity * 2 : 4;
        struct lp_jinja_var *vars = lp_jinja_alloc(run, capacity, sizeof *vars);
        if (!vars) return false;
        if (in->n) memcpy(vars, in->vars, in->n * sizeof *vars);
        in->vars = vars;
        in->capacity = capacity;
    }
    in->vars[in->n++] = (struct lp_jinja_var){name, value};
    return true;
}

static scope *scope_new(run_state *run, scope *outer) {
    scope *inner = lp_jinja_alloc(run, 1, sizeof *inner);
    if (inner) inner->outer = outer;
    return inner;
}

static bool assign_attr(run_state *run, const node *target, scope *in, lp_value value) {
    lp_value of;
    node name = {.kind = LP_JINJA_N_NAME, .line = target->line, .name = target->name};
    TRY(lp_jinja_eval(run, &name, in, &of));
    if (of.type != LP_JINJA_NAMESPACE)
        return lp_jinja_fail(run, LP_STATUS_FORMAT,
                             "'%.*s' is not a namespace, so its attribute '%.*s' cannot be set",
                             LP_STR_ARGS(target->name), LP_STR_ARGS(target->attr));
    return lp_jinja_dict_set(run, of.dict, lp_jinja_str(target->attr), value);
}

static bool assign(run_state *run, const node *target, scope *in, lp_value value) {
    if (target->kind == LP_JINJA_N_NAME) return lp_jinja_scope_set(run, in, target->name, value);
    if (target->kind == LP_JINJA_N_NSREF) return assign_attr(run, target, in, value);
    lp_value *items;
    size_t n;
    TRY(lp_jinja_items(run, value, &items, &n));
    if (n != target->n_items)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "%zu values cannot be unpacked into %zu names",
                             n, target->n_items);
    for (size_t i = 0; i < n; i++) TRY(assign(run, target->items[i], in, items[i]));
    return true;
}

// ---- loops ------------------------------------------------------------------------------------

// Keeps the items for which the loop's condition holds.
static bool filter_items(run_state *run, const node *loop, scope *outer, lp_value **items,
                         size_t *n) {
    lp_value *kept = lp_jinja_alloc(run, *n, sizeof *kept);
    if (!kept) return false;
    size_t n_kept = 0;
    for (size_t i = 0; i < *n; i++) {
        scope *turn = scope_new(run, outer);
        lp_value holds;
        TRY(turn && assign(run, loop->a, turn, (*items)[i]));
        TRY(lp_jinja_eval(run, loop->c, turn, &holds));
        if (lp_jinja_truth(holds)) kept[n_kept++] = (*items)[i];
    }
    *items = kept;
    *n = n_kept;
    return true;
}

static bool run_turns(run_state *run, struct lp_jinja_loop *loop) {
    const node *n = loop->node;
    lp_value self = {.type = LP_JINJA_LOOP, .loop = loop};
    scope *turn = NULL;
    for (size_t i = 0; i < loop->n; i++) {
        // A scope is used again unless a macro made in it may look at it later.
        uint64_t macros = run->n_macros;
        if (!turn && !(turn = scope_new(run, loop->scope))) return false;
        turn->n = 0;
        loop->index0 = i;
        TRY(lp_jinja_spend(run, 1));
        TRY(lp_jinja_scope_set(run, turn, lp_str_from("loop"), self));
        TRY(assign(run, n->a, turn, loop->items[i]));
        TRY(lp_jinja_exec(run, &n->blocks[0], turn));
        if (run->n_macros != macros) turn = NULL;
        bool stop = run->jump == LP_JINJA_BREAK;
        run->jump = LP_JINJA_ONWARD;
        if (stop) break;
    }
    return true;
}

static bool run_loop(run_state *run, const node *n, scope *outer, lp_value over, int64_t depth0) {
    struct lp_jinja_loop *loop = lp_jinja_alloc(run, 1, sizeof *loop);
    if (!loop) return false;
    *loop = (struct lp_jinja_loop){.node = n, .scope = outer, .depth0 = depth0};
    TRY(lp_jinja_items(run, over, &loop->items, &loop->n));
    if (n->c) TRY(filter_items(run, n, outer, &loop->items, &loop->n));
    if (loop->n) return run_turns(run, loop);
    if (!n->blocks[1].n) return true;
    scope *inner = scope_new(run, outer);
    return inner && lp_jinja_exec(run, &n->blocks[1], inner);
}

bool lp_jinja_call_loop(run_state *run, struct lp_jinja_loop *loop, lp_value items, lp_value *out) {
    if (!loop->node->flag)
        return lp_jinja_fail(run, LP_STATUS_FORMAT,
                             "loop(...) needs a loop that is marked 'recursive'");
    size_t mark = run->out.len;
    TRY(lp_jinja_enter(run));
    TRY(run_loop(run, loop->node, loop->scope, items, loop->depth0 + 1));
    run->depth--;
    return take_output(run, mark, out);
}

static bool exec_for(run_state *run, const node *n, scope *in) {
    lp_value over;
    return lp_jinja_eval(run, n->b, in, &over) && run_loop(run, n, in, over, 0);
}

// ---- macros -----------------------------------------------------------------------------------

static bool named_arg(const struct lp_jinja_call *call, struct lp_str name, lp_value *out) {
    for (size_t i = 0; i < call->n_named; i++)
        if (lp_str_equal(call->named[i].name, name)) {
            *out = call->named[i].value;
            return true;
        }
    return false;
}

static bool is_param(const struct lp_jinja_params *params, size_t from, struct lp_str name) {
    for (size_t i = from; i < params->n; i++)
        if (lp_str_equal(params->names[i], name)) return true;
    return false;
}

// What the parameters left over: varargs, kwargs and caller, if the body mentions them.
static bool bind_rest(run_state *run, const struct lp_jinja_macro *macro,
                      const struct lp_jinja_call *call, scope *in) {
    const struct lp_jinja_params *params = macro->params;
    struct lp_jinja_dict *kwargs;
    TRY(lp_jinja_dict_new(run, 0, &kwargs));
    lp_value caller = lp_jinja_undefined(LP_JINJA_NO_ITEM, lp_str_from("no caller is defined"));
    for (size_t i = 0; i < call->n_named; i++) {
        struct lp_str name = call->named[i].name;
        if (call->n_pos < params->n && is_param(params, call->n_pos, name)) continue;
        if (params->uses_caller && lp_str_is(name, "caller"))
            caller = call->named[i].value;
        else if (params->uses_kwargs)
            TRY(lp_jinja_dict_set(run, kwargs, lp_jinja_str(name), call->named[i].value));
        else
            return lp_jinja_fail(run, LP_STATUS_FORMAT,
                                 "the macro '%.*s' takes no argument named '%.*s'",
                                 LP_STR_ARGS(macro->name), LP_STR_ARGS(name));
    }
    if (params->uses_caller && !is_param(params, 0, lp_str_from("caller")))
        TRY(lp_jinja_scope_set(run, in, lp_str_from("caller"), caller));
    if (params->uses_kwargs)
        TRY(lp_jinja_scope_set(run, in, lp_str_from("kwargs"), lp_jinja_dict_value(kwargs)));
    size_t extra = call->n_pos > params->n ? call->n_pos - params->n : 0;
    if (extra && !params->uses_varargs)
        return lp_jinja_fail(run, LP_STATUS_FORMAT,
                             "the macro '%.*s' takes at most %zu arguments, not %zu",
                             LP_STR_ARGS(macro->name), params->n, call->n_pos);
    if (!params->uses_varargs) return true;
    lp_value varargs;
    TRY(lp_jinja_seq_new(run, LP_JINJA_TUPLE, extra, &varargs));
    for (size_t i = 0; i < extra; i++) varargs.seq->items[i] = call->pos[params->n + i];
    return lp_jinja_scope_set(run, in, lp_str_from("varargs"), varargs);
}

static bool missing_param(run_state *run, struct lp_str name, lp_value *out) {
    size_t begin = lp_jinja_build_begin(run);
    TRY(lp_jinja_build_puts(run, "the parameter '") && lp_jinja_build_add(run, name) &&
        lp_jinja_build_puts(run, "' was not given"));
    TRY(lp_jinja_build_end(run, begin, out));
    *out = lp_jinja_undefined(LP_JINJA_NO_ITEM, out->s);
    return true;
}

static bool bind_params(run_state *run, const struct lp_jinja_macro *macro,
                        const struct lp_jinja_call *call, scope *in) {
    const struct lp_jinja_params *params = macro->params;
    TRY(bind_rest(run, macro, call, in));
    for (size_t i = 0; i < params->n; i++) {
        lp_value value;
        if (i < call->n_pos)
            value = call->pos[i];
        else if (named_arg(call, params->names[i], &value)) {
        } else if (params->defaults[i])
            TRY(lp_jinja_eval(run, params->defaults[i], in, &value));
        else
            TRY(missing_param(run, params->names[i], &value));
        TRY(lp_jinja_scope_set(run, in, params->names[i], value));
    }
    return true;
}

bool lp_jinja_call_macro(run_state *run, struct lp_jinja_macro *macro,
                         const struct lp_jinja_call *call, lp_value *out) {
    scope *in = scope_new(run, macro->scope);
    size_t mark = run->out.len;
    TRY(in && lp_jinja_enter(run));
    TRY(bind_params(run, macro, call, in));
    TRY(lp_jinja_exec(run, macro->body, in));
    run->depth--;
    return take_output(run, mark, out);
}

static bool macro_new(run_state *run, const node *n, scope *in, struct lp_str name, lp_value *out) {
    struct lp_jinja_macro *macro = lp_jinja_alloc(run, 1, sizeof *macro);
    if (!macro) return false;
    *macro = (struct lp_jinja_macro){name, &n->params, &n->blocks[0], in};
    *out = (lp_value){.type = LP_JINJA_MACRO, .macro = macro};
    run->n_macros++;
    return true;
}

static bool exec_macro(run_state *run, const node *n, scope *in) {
    lp_value macro;
    return macro_new(run, n, in, n->name, &macro) && lp_jinja_scope_set(run, in, n->name, macro);
}

// ---- the other blocks -------------------------------------------------------------------------

static bool print(run_state *run, lp_value value) {
    if (value.type == LP_JINJA_STRING) return emit(run, value.s);
    if (value.type == LP_JINJA_UNDEFINED) return true;
    size_t begin = lp_jinja_build_begin(run);
    TRY(lp_jinja_add_str(run, value));
    struct lp_str text = {run->scratch.data + begin, run->scratch.len - begin};
    run->scratch.len = begin;
    return emit(run, text);
}

static bool exec_print(run_state *run, const node *n, scope *in) {
    lp_value value;
    return lp_jinja_eval(run, n->a, in, &value) && print(run, value);
}

static bool exec_if(run_state *run, const node *n, scope *in) {
    for (size_t i = 0; i < n->n_items; i++) {
        lp_value holds;
        TRY(lp_jinja_eval(run, n->items[i], in, &holds));
        if (lp_jinja_truth(holds)) return lp_jinja_exec(run, &n->blocks[i], in);
    }
    return n->n_blocks == n->n_items || lp_jinja_exec(run, &n->blocks[n->n_items], in);
}

static bool exec_set(run_state *run, const node *n, scope *in) {
    lp_value value;
    return lp_jinja_eval(run, n->b, in, &value) && assign(run, n->a, in, value);
}

// Runs the body in a scope of its own and takes its output.
static bool capture(run_state *run, const node *n, scope *in, lp_value *out) {
    size_t mark = run->out.len;
    scope *inner = scope_new(run, in);
    return inner && lp_jinja_exec(run, &n->blocks[0], inner) && take_output(run, mark, out);
}

static bool exec_set_block(run_state *run, const node *n, scope *in) {
    lp_value text;
    TRY(capture(run, n, in, &text));
    if (n->b) TRY(lp_jinja_apply_filters(run, n->b, in, text, &text));
    return assign(run, n->a, in, text);
}

static bool exec_filter_block(run_state *run, const node *n, scope *in) {
    lp_value text;
    return capture(run, n, in, &text) && lp_jinja_apply_filters(run, n->b, in, text, &text) &&
           print(run, text);
}

static bool exec_with(run_state *run, const node *n, scope *in) {
    scope *inner = scope_new(run, in);
    TRY(inner);
    for (size_t i = 0; i < n->n_items; i += 2) {
        lp_value value;
        TRY(lp_jinja_eval(run, n->items[i + 1], in, &value));
        TRY(assign(run, n->items[i], inner, value));
    }
    return lp_jinja_exec(run, &n->blocks[0], inner);
}

static bool exec_call_block(run_state *run, const node *n, scope *in) {
    struct lp_jinja_call call = {0};
    lp_value callee, caller, out;
    TRY(lp_jinja_eval(run, n->a->a, in, &callee));
    TRY(lp_jinja_eval_args(run, &n->a->args, in, &call));
    TRY(macro_new(run, n, in, lp_str_from("caller"), &caller));
    struct lp_jinja_named *named = lp_jinja_alloc(run, call.n_named + 1, sizeof *named);
    TRY(named);
    if (call.n_named) memcpy(named, call.named, call.n_named * sizeof *named);
    named[call.n_named] = (struct lp_jinja_named){lp_str_from("caller"), caller};
    call.named = named;
    call.n_named++;
    return lp_jinja_call_value(run, callee, &call, &out) && print(run, out);
}

static bool exec_scope(run_state *run, const node *n, scope *in) {
    scope *inner = scope_new(run, in);
    return inner && lp_jinja_exec(run, &n->blocks[0], inner);
}

static bool exec_one(run_state *run, const node *n, scope *in) {
    run->line = n->line;
    switch (n->kind) {
    case LP_JINJA_N_DATA:
        return emit(run, n->name);
    case LP_JINJA_N_PRINT:
        return exec_print(run, n, in);
    case LP_JINJA_N_IF:
        return exec_if(run, n, in);
    case LP_JINJA_N_FOR:
        return exec_for(run, n, in);
    case LP_JINJA_N_SET:
        return exec_set(run, n, in);
    case LP_JINJA_N_SET_BLOCK:
        return exec_set_block(run, n, in);
    case LP_JINJA_N_MACRO:
        return exec_macro(run, n, in);
    case LP_JINJA_N_CALL_BLOCK:
        return exec_call_block(run, n, in);
    case LP_JINJA_N_FILTER_BLOCK:
        return exec_filter_block(run, n, in);
    case LP_JINJA_N_WITH:
        return exec_with(run, n, in);
    case LP_JINJA_N_SCOPE:
        return exec_scope(run, n, in);
    case LP_JINJA_N_BREAK:
        run->jump = LP_JINJA_BREAK;
        return true;
    case LP_JINJA_N_CONTINUE:
        run->jump = LP_JINJA_CONTINUE;
        return true;
    default:
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "an expression stands as a block");
    }
}

bool lp_jinja_exec(run_state *run, const struct lp_jinja_block *block, scope *in) {
    TRY(lp_jinja_enter(run));
    for (size_t i = 0; i < block->n && run->jump == LP_JINJA_ONWARD; i++) {
        TRY(lp_jinja_spend(run, 1));
        TRY(exec_one(run, block->items[i], in));
    }
    run->depth--;
    return true;
}

// ---- entry ------------------------------------------------------------------------------------

static size_t limit_or(uint64_t limit, uint64_t otherwise) {
    if (!limit) limit = otherwise;
    return limit > SIZE_MAX / 4 ? SIZE_MAX / 4 : (size_t)limit;
}

lp_status lp_jinja_render(const struct lp_jinja *jinja, const json_t *variables,
                          const struct lp_jinja_limits *limits, struct lp_bytes *out,
                          struct lp_err *err) {
    struct lp_jinja_limits none = {0};
    if (!limits) limits = &none;
    if (variables && !json_is_object(variables))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "chat template: the variables are no JSON object");
    run_state run = {.err = err,
                     .max_steps = limits->max_steps ? limits->max_steps : DEFAULT_STEPS};
    run.out.max_bytes = limit_or(limits->max_output_bytes, DEFAULT_OUTPUT_BYTES);
    run.arena.max_bytes = limit_or(limits->max_memory_bytes, DEFAULT_MEMORY_BYTES);
    run.scratch.max_bytes = run.arena.max_bytes;
    lp_value vars = {0};
    scope top = {0};
    bool ok = variables ? lp_jinja_from_json(&run, variables, 0, &vars) : true;
    run.vars = ok && variables ? vars.dict : NULL;
    ok = ok && lp_jinja_exec(&run, &jinja->body, &top);
    if (ok && run.out.len && !lp_bytes_append(out, run.out.data, run.out.len))
        ok = lp_jinja_fail(&run, out->max_bytes ? LP_STATUS_LIMIT : LP_STATUS_MEMORY,
                           "the output of %zu bytes does not fit its buffer", run.out.len);
    lp_arena_release(&run.arena);
    lp_bytes_release(&run.out);
    lp_bytes_release(&run.scratch);
    return ok ? LP_OK : run.status;
}
