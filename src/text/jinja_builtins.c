// Finding builtins by name, binding their arguments, and the global functions. The other tables are
// in jinja_filters.c, jinja_list_filters.c, jinja_tests.c and jinja_methods.c.
#include "text/jinja_builtins.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "text/jinja_str.h"
#include "text/jinja_try.h"

typedef struct lp_jinja_run run_state;
typedef struct lp_jinja_call call_args;

// ---- arguments --------------------------------------------------------------------------------

// The index of a name in "a,b,c", or -1; *n gets the count.
static int param_index(const char *params, struct lp_str name, int *n) {
    int found = -1;
    *n = 0;
    for (const char *p = params; *p; (*n)++) {
        size_t len = strcspn(p, ",");
        if (lp_str_equal(name, (struct lp_str){p, len})) found = *n;
        p += len + (p[len] == ',');
    }
    return found;
}

bool lp_jinja_call_builtin(run_state *run, const struct lp_jinja_builtin *builtin, call_args *call,
                           lp_value *out) {
    TRY(lp_jinja_spend(run, 1));
    memset(call->arg, 0, sizeof call->arg);
    if (!builtin->params) return builtin->fn(run, call, out);
    int n;
    param_index(builtin->params, (struct lp_str){0}, &n);
    if (call->n_pos > (size_t)n)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "'%s' takes at most %d arguments, not %zu",
                             builtin->name, n, call->n_pos);
    for (size_t i = 0; i < call->n_pos; i++) call->arg[i] = call->pos[i];
    for (size_t i = 0; i < call->n_named; i++) {
        int at = param_index(builtin->params, call->named[i].name, &n);
        if (at < 0)
            return lp_jinja_fail(run, LP_STATUS_FORMAT, "'%s' has no argument named '%.*s'",
                                 builtin->name, LP_STR_ARGS(call->named[i].name));
        if (call->arg[at].type != LP_JINJA_ABSENT)
            return lp_jinja_fail(run, LP_STATUS_FORMAT, "'%s' gets its argument '%.*s' twice",
                                 builtin->name, LP_STR_ARGS(call->named[i].name));
        call->arg[at] = call->named[i].value;
    }
    for (int i = 0; i < builtin->n_required; i++)
        if (call->arg[i].type == LP_JINJA_ABSENT)
            return lp_jinja_fail(run, LP_STATUS_FORMAT, "'%s' needs %d arguments", builtin->name,
                                 builtin->n_required);
    return builtin->fn(run, call, out);
}

bool lp_jinja_arg_int(run_state *run, const call_args *call, int i, int64_t otherwise,
                      int64_t *out) {
    *out = otherwise;
    lp_value v = call->arg[i];
    if (v.type == LP_JINJA_ABSENT || lp_jinja_as_int(v, out)) return true;
    if (lp_jinja_is_undefined(v)) return lp_jinja_fail_undefined(run, v);
    return lp_jinja_fail(run, LP_STATUS_FORMAT, "argument %d must be an integer, not %s", i + 1,
                         lp_jinja_type_name(v));
}

bool lp_jinja_arg_str(run_state *run, const call_args *call, int i, struct lp_str otherwise,
                      struct lp_str *out) {
    *out = otherwise;
    lp_value v = call->arg[i];
    if (v.type == LP_JINJA_ABSENT) return true;
    if (lp_jinja_is_undefined(v)) return lp_jinja_fail_undefined(run, v);
    if (!lp_jinja_is_str(v))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "argument %d must be a string, not %s", i + 1,
                             lp_jinja_type_name(v));
    *out = v.s;
    return true;
}

// ---- global functions -------------------------------------------------------------------------

static int64_t range_count(int64_t start, int64_t stop, int64_t step) {
    __int128 span = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 by = step > 0 ? step : -(__int128)step;
    __int128 n = span > 0 ? (span + by - 1) / by : 0;
    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

static bool global_range(run_state *run, call_args *call, lp_value *out) {
    int64_t a[3] = {0, 0, 1};
    if (call->n_named || call->n_pos < 1 || call->n_pos > 3)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "range takes one to three integers");
    for (size_t i = 0; i < call->n_pos; i++) {
        call->arg[i] = call->pos[i];
        TRY(lp_jinja_arg_int(run, call, (int)i, 0, &a[i]));
    }
    if (call->n_pos == 1) {
        a[1] = a[0];
        a[0] = 0;
    }
    if (a[2] == 0) return lp_jinja_fail(run, LP_STATUS_FORMAT, "the step of range is 0");
    int64_t n = range_count(a[0], a[1], a[2]);
    if (n > LP_JINJA_MAX_RANGE)
        return lp_jinja_fail(run, LP_STATUS_LIMIT,
                             "range gives %lld items, more than the %d allowed", (long long)n,
                             LP_JINJA_MAX_RANGE);
    TRY(lp_jinja_seq_new(run, LP_JINJA_RANGE, (size_t)n, out));
    // Modulo 2^64: an item lies between start and stop, its distance from start may have 64 bits.
    for (int64_t i = 0; i < n; i++)
        out->seq->items[i] = lp_jinja_int((int64_t)((uint64_t)a[0] + (uint64_t)i * (uint64_t)a[2]));
    out->seq->start = a[0];
    out->seq->stop = a[1];
    out->seq->step = a[2];
    return true;
}

// Pairs or a dict as the first argument, then the named ones.
static bool make_dict(run_state *run, const call_args *call, struct lp_jinja_dict **out) {
    TRY(lp_jinja_dict_new(run, call->n_named, out));
    if (call->n_pos > 1)
        return lp_jinja_fail(run, LP_STATUS_FORMAT,
                             "dict and namespace take at most one dict or "
                             "list of pairs besides named arguments");
    if (call->n_pos && call->pos[0].type == LP_JINJA_DICT) {
        const struct lp_jinja_dict *from = call->pos[0].dict;
        for (size_t i = 0; i < from->n; i++)
            TRY(lp_jinja_dict_set(run, *out, from->pairs[i].key, from->pairs[i].value));
    } else if (call->n_pos) {
        lp_value *items, *pair;
        size_t n, two;
        TRY(lp_jinja_items(run, call->pos[0], &items, &n));
        for (size_t i = 0; i < n; i++) {
            TRY(lp_jinja_items(run, items[i], &pair, &two));
            if (two != 2)
                return lp_jinja_fail(run, LP_STATUS_FORMAT,
                                     "a dict is made from pairs, not from "
                                     "sequences of %zu",
                                     two);
            TRY(lp_jinja_dict_set(run, *out, pair[0], pair[1]));
        }
    }
    for (size_t i = 0; i < call->n_named; i++)
        TRY(lp_jinja_dict_set(run, *out, lp_jinja_str(call->named[i].name), call->named[i].value));
    return true;
}

static bool global_dict(run_state *run, call_args *call, lp_value *out) {
    struct lp_jinja_dict *dict;
    TRY(make_dict(run, call, &dict));
    *out = lp_jinja_dict_value(dict);
    return true;
}

static bool global_namespace(run_state *run, call_args *call, lp_value *out) {
    struct lp_jinja_dict *dict;
    TRY(make_dict(run, call, &dict));
    *out = (lp_value){.type = LP_JINJA_NAMESPACE, .dict = dict};
    return true;
}

static bool global_raise_exception(run_state *run, call_args *call, lp_value *out) {
    lp_value text;
    (void)out;
    TRY(lp_jinja_to_str(run, call->arg[0], &text));
    run->status = LP_STATUS_INVALID;
    lp_err_set(run->err, LP_STATUS_INVALID, "chat template: %.*s",
               (int)(text.s.len > 900 ? 900 : text.s.len), text.s.data);
    return false;
}

static bool global_strftime_now(run_state *run, call_args *call, lp_value *out) {
    struct lp_str wanted;
    char format[256], text[1024];
    time_t now = time(NULL);
    struct tm local;
    TRY(lp_jinja_arg_str(run, call, 0, (struct lp_str){0}, &wanted));
    if (wanted.len >= sizeof format - 1)
        return lp_jinja_fail(run, LP_STATUS_LIMIT, "the format of strftime_now is too long");
    // The dot tells an empty result from one that does not fit.
    snprintf(format, sizeof format, "%.*s.", (int)wanted.len, wanted.len ? wanted.data : "");
    if (!localtime_r(&now, &local))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "the local time is unknown");
    size_t n = strftime(text, sizeof text, format, &local);
    if (!n) return lp_jinja_fail(run, LP_STATUS_LIMIT, "the result of strftime_now is too long");
    size_t begin = lp_jinja_build_begin(run);
    return lp_jinja_build_add(run, (struct lp_str){text, n - 1}) &&
           lp_jinja_build_end(run, begin, out);
}

static const struct lp_jinja_builtin globals[] = {
    {"range", NULL, 0, global_range},
    {"dict", NULL, 0, global_dict},
    {"namespace", NULL, 0, global_namespace},
    {"raise_exception", "message", 1, global_raise_exception},
    {"strftime_now", "format", 1, global_strftime_now},
    {0},
};

// ---- methods of loops, lists and dicts --------------------------------------------------------

static bool loop_cycle(run_state *run, call_args *call, lp_value *out) {
    if (!call->n_pos || call->n_named)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "loop.cycle needs plain arguments");
    *out = call->pos[call->self.loop->index0 % call->n_pos];
    return true;
}

static bool loop_changed(run_state *run, call_args *call, lp_value *out) {
    struct lp_jinja_loop *loop = call->self.loop;
    lp_value now;
    bool same = false;
    TRY(lp_jinja_seq_new(run, LP_JINJA_TUPLE, call->n_pos, &now));
    for (size_t i = 0; i < call->n_pos; i++) now.seq->items[i] = call->pos[i];
    if (loop->changed.type != LP_JINJA_ABSENT)
        TRY(lp_jinja_equal(run, loop->changed, now, 0, &same));
    loop->changed = now;
    *out = lp_jinja_bool(!same);
    return true;
}

static bool dict_get(run_state *run, call_args *call, lp_value *out) {
    lp_value *found;
    bool hashable;
    TRY(lp_jinja_hashable(run, call->arg[0], 0, &hashable));
    if (!hashable)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a %s cannot be the key of a dict",
                             lp_jinja_type_name(call->arg[0]));
    TRY(lp_jinja_dict_find(run, call->self.dict, call->arg[0], &found));
    *out = found ? *found : lp_jinja_arg(call, 1);
    return true;
}

static bool dict_keys(run_state *run, call_args *call, lp_value *out) {
    const struct lp_jinja_dict *dict = call->self.dict;
    TRY(lp_jinja_seq_new(run, LP_JINJA_KEYS, dict->n, out));
    for (size_t i = 0; i < dict->n; i++) out->seq->items[i] = dict->pairs[i].key;
    return true;
}

static bool dict_values(run_state *run, call_args *call, lp_value *out) {
    const struct lp_jinja_dict *dict = call->self.dict;
    TRY(lp_jinja_seq_new(run, LP_JINJA_VALUES, dict->n, out));
    for (size_t i = 0; i < dict->n; i++) out->seq->items[i] = dict->pairs[i].value;
    return true;
}

static bool dict_items(run_state *run, call_args *call, lp_value *out) {
    const struct lp_jinja_dict *dict = call->self.dict;
    TRY(lp_jinja_seq_new(run, LP_JINJA_ITEMS, dict->n, out));
    for (size_t i = 0; i < dict->n; i++) {
        lp_value *pair = &out->seq->items[i];
        TRY(lp_jinja_seq_new(run, LP_JINJA_TUPLE, 2, pair));
        pair->seq->items[0] = dict->pairs[i].key;
        pair->seq->items[1] = dict->pairs[i].value;
    }
    return true;
}

static bool copy_self(run_state *run, call_args *call, lp_value *out) {
    (void)run;
    *out = call->self; // lists and dicts never change, so a copy is not told from the original
    return true;
}

static bool seq_index(run_state *run, call_args *call, lp_value *out) {
    for (size_t i = 0; i < call->self.seq->n; i++) {
        bool same;
        TRY(lp_jinja_equal(run, call->self.seq->items[i], call->arg[0], 0, &same));
        *out = lp_jinja_int((int64_t)i);
        if (same) return true;
    }
    return lp_jinja_fail(run, LP_STATUS_FORMAT, "index: the value is not in the list");
}

static bool seq_count(run_state *run, call_args *call, lp_value *out) {
    int64_t n = 0;
    for (size_t i = 0; i < call->self.seq->n; i++) {
        bool same;
        TRY(lp_jinja_equal(run, call->self.seq->items[i], call->arg[0], 0, &same));
        n += same;
    }
    *out = lp_jinja_int(n);
    return true;
}

static const struct lp_jinja_builtin loop_methods[] = {
    {"cycle", NULL, 0, loop_cycle},
    {"changed", NULL, 0, loop_changed},
    {0},
};
static const struct lp_jinja_builtin dict_methods[] = {
    {"get", "key,default", 1, dict_get}, {"items", "", 0, dict_items}, {"keys", "", 0, dict_keys},
    {"values", "", 0, dict_values},      {"copy", "", 0, copy_self},   {0},
};
static const struct lp_jinja_builtin seq_methods[] = {
    {"index", "value", 1, seq_index},
    {"count", "value", 1, seq_count},
    {0},
};
static const struct lp_jinja_builtin list_methods[] = {{"copy", "", 0, copy_self}, {0}};

// ---- look-up ----------------------------------------------------------------------------------

static const struct lp_jinja_builtin *find(const struct lp_jinja_builtin *table,
                                           struct lp_str name) {
    for (; table->name; table++)
        if (lp_str_is(name, table->name)) return table;
    return NULL;
}

const struct lp_jinja_builtin *lp_jinja_filter(struct lp_str name) {
    const struct lp_jinja_builtin *row = find(lp_jinja_filter_table, name);
    return row ? row : find(lp_jinja_list_filter_table, name);
}

const struct lp_jinja_builtin *lp_jinja_test(struct lp_str name) {
    return find(lp_jinja_test_table, name);
}

const struct lp_jinja_builtin *lp_jinja_global(struct lp_str name) {
    return find(globals, name);
}

const struct lp_jinja_builtin *lp_jinja_method(lp_value of, struct lp_str name) {
    switch (of.type) {
    case LP_JINJA_STRING:
        return find(lp_jinja_str_method_table, name);
    case LP_JINJA_DICT:
        return find(dict_methods, name);
    case LP_JINJA_LOOP:
        return find(loop_methods, name);
    case LP_JINJA_SEQ: {
        bool list = of.seq->kind == LP_JINJA_LIST;
        if (!list && of.seq->kind != LP_JINJA_RANGE && !lp_jinja_is_tuple(of)) return NULL;
        const struct lp_jinja_builtin *row = find(seq_methods, name);
        return row || !list ? row : find(list_methods, name);
    }
    default:
        return NULL;
    }
}

static bool listed(const char *const *names, struct lp_str name) {
    for (; *names; names++)
        if (lp_str_is(name, *names)) return true;
    return false;
}

bool lp_jinja_filter_is_foreign(struct lp_str name) {
    static const char *const names[] = {"filesizeformat", "pprint",   "random",  "striptags",
                                        "urlize",         "wordwrap", "xmlattr", NULL};
    return listed(names, name);
}

bool lp_jinja_method_is_forbidden(lp_value of, struct lp_str name) {
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    static const char *const list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                       "sort",   "extend", "remove", NULL};
    if (of.type == LP_JINJA_DICT) return listed(dict, name);
    return lp_jinja_is_seq(of, LP_JINJA_LIST) && listed(list, name);
}
