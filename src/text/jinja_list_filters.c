// Filters on sequences and dicts. Those that Jinja makes lazy give a value without length that is
// used up by reading, as there, but are computed at once.
#include <string.h>

#include "text/jinja_builtins.h"
#include "text/jinja_text.h"
#include "text/jinja_try.h"

typedef struct lp_jinja_run run_state;
typedef struct lp_jinja_call call_args;

// ---- attributes by path -----------------------------------------------------------------------

static bool all_digits(struct lp_str s) {
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] < '0' || s.data[i] > '9') return false;
    return s.len > 0 && s.len < 18;
}

// item.a.b.0 for the path "a.b.0"; an integer path is one subscript; NONE is the item itself.
// otherwise (unless ABSENT or NONE) stands in for what is undefined on the way.
static bool follow(run_state *run, lp_value item, lp_value path, lp_value otherwise,
                   lp_value *out) {
    *out = item;
    if (path.type == LP_JINJA_NONE || path.type == LP_JINJA_ABSENT) return true;
    bool steps = lp_jinja_is_str(path);
    struct lp_str rest = steps ? path.s : (struct lp_str){0};
    do {
        lp_value key = path;
        if (steps) {
            const char *dot = memchr(rest.data, '.', rest.len);
            struct lp_str part = {rest.data, dot ? (size_t)(dot - rest.data) : rest.len};
            rest.data += part.len + (dot != NULL);
            rest.len -= part.len + (dot != NULL);
            steps = dot != NULL;
            key = lp_jinja_str(part);
            if (all_digits(part)) {
                key = lp_jinja_int(0);
                for (size_t i = 0; i < part.len; i++) key.i = key.i * 10 + (part.data[i] - '0');
            }
        }
        TRY(lp_jinja_get_item(run, *out, key, out));
        if (lp_jinja_is_undefined(*out) && otherwise.type > LP_JINJA_NONE) *out = otherwise;
    } while (steps);
    return true;
}

static bool fold_case(run_state *run, lp_value v, bool case_sensitive, lp_value *out) {
    *out = v;
    if (case_sensitive || !lp_jinja_is_str(v)) return true;
    return lp_jinja_text_case(run, v, LP_JINJA_TEXT_LOWER, out);
}

// The keys of items under a path, folded unless case matters.
static bool keys_of(run_state *run, const lp_value *items, size_t n, lp_value path,
                    bool case_sensitive, lp_value otherwise, lp_value **out) {
    *out = lp_jinja_alloc(run, n, sizeof **out);
    TRY(*out);
    for (size_t i = 0; i < n; i++) {
        lp_value key;
        TRY(follow(run, items[i], path, otherwise, &key) &&
            fold_case(run, key, case_sensitive, &(*out)[i]));
    }
    return true;
}

// ---- sorting ----------------------------------------------------------------------------------

struct sort_state {
    lp_value *items, *keys, *spare_items, *spare_keys;
    bool reverse;
};

static bool comes_after(run_state *run, const struct sort_state *s, size_t a, size_t b, bool *out) {
    int order;
    // Asked as Python does, "is the later one less", so that equal ones keep their order.
    TRY(lp_jinja_order(run, s->keys[b], s->keys[a], 0, &order));
    *out = s->reverse ? order == 1 : order == -1;
    return true;
}

static bool merge(run_state *run, struct sort_state *s, size_t begin, size_t mid, size_t end) {
    size_t a = begin, b = mid;
    for (size_t i = begin; i < end; i++) {
        bool second = a == mid;
        if (a < mid && b < end) TRY(comes_after(run, s, a, b, &second));
        size_t from = second ? b++ : a++;
        s->spare_items[i] = s->items[from];
        s->spare_keys[i] = s->keys[from];
    }
    memcpy(s->items + begin, s->spare_items + begin, (end - begin) * sizeof *s->items);
    memcpy(s->keys + begin, s->spare_keys + begin, (end - begin) * sizeof *s->keys);
    return true;
}

bool lp_jinja_sort(run_state *run, lp_value *items, lp_value *keys, size_t n, bool reverse) {
    struct sort_state s = {items, keys, NULL, NULL, reverse};
    TRY(s.spare_items = lp_jinja_alloc(run, n, sizeof *items));
    TRY(s.spare_keys = lp_jinja_alloc(run, n, sizeof *keys));
    for (size_t width = 1; width < n; width *= 2)
        for (size_t begin = 0; begin + width < n; begin += 2 * width) {
            size_t end = n - begin > 2 * width ? begin + 2 * width : n;
            TRY(merge(run, &s, begin, begin + width, end));
        }
    return true;
}

bool lp_jinja_sorted_pairs(run_state *run, const struct lp_jinja_dict *dict,
                           const struct lp_jinja_pair **out) {
    size_t n = dict->n;
    lp_value *keys = lp_jinja_alloc(run, n, sizeof *keys);
    lp_value *places = lp_jinja_alloc(run, n, sizeof *places);
    struct lp_jinja_pair *pairs = lp_jinja_alloc(run, n, sizeof *pairs);
    TRY(keys && places && pairs);
    for (size_t i = 0; i < n; i++) {
        keys[i] = dict->pairs[i].key;
        places[i] = lp_jinja_int((int64_t)i);
    }
    TRY(lp_jinja_sort(run, places, keys, n, false));
    for (size_t i = 0; i < n; i++) pairs[i] = dict->pairs[places[i].i];
    *out = pairs;
    return true;
}

// A list with a copy of the items at the left.
static bool copy_list(run_state *run, lp_value of, lp_value *out) {
    lp_value *items;
    size_t n;
    TRY(lp_jinja_items(run, of, &items, &n) && lp_jinja_seq_new(run, LP_JINJA_LIST, n, out));
    if (n) memcpy(out->seq->items, items, n * sizeof *items);
    return true;
}

// Sort keys for the path "a" or several, "a,b": lists, which are compared for equality first, so
// that undefined values and None may stand beside their like.
static bool sort_keys(run_state *run, const lp_value *items, size_t n, lp_value path,
                      bool case_sensitive, lp_value **out) {
    lp_value none = {0};
    struct lp_str text = lp_jinja_is_str(path) ? path.s : lp_str_from("");
    *out = lp_jinja_alloc(run, n, sizeof **out);
    TRY(*out);
    size_t n_paths = 1;
    for (size_t i = 0; i < text.len; i++) n_paths += text.data[i] == ',';
    for (size_t i = 0; i < n; i++) {
        struct lp_str rest = text;
        TRY(lp_jinja_seq_new(run, LP_JINJA_LIST, n_paths, &(*out)[i]));
        for (size_t k = 0; k < n_paths; k++) {
            const char *comma = memchr(rest.data, ',', rest.len);
            struct lp_str part = {rest.data, comma ? (size_t)(comma - rest.data) : rest.len};
            lp_value key, step = lp_jinja_is_str(path) ? lp_jinja_str(part) : path;
            TRY(follow(run, items[i], step, none, &key) &&
                fold_case(run, key, case_sensitive, &(*out)[i].seq->items[k]));
            rest.data += part.len + (comma != NULL);
            rest.len -= part.len + (comma != NULL);
        }
    }
    return true;
}

static bool filter_sort(run_state *run, call_args *call, lp_value *out) {
    lp_value *keys;
    TRY(copy_list(run, call->self, out));
    TRY(sort_keys(run, out->seq->items, out->seq->n, lp_jinja_arg(call, 2),
                  lp_jinja_arg_truth(call, 1, false), &keys));
    return lp_jinja_sort(run, out->seq->items, keys, out->seq->n,
                         lp_jinja_arg_truth(call, 0, false));
}

static bool filter_dictsort(run_state *run, call_args *call, lp_value *out) {
    struct lp_str by;
    lp_value pairs, *keys;
    TRY(lp_jinja_arg_str(run, call, 1, lp_str_from("key"), &by));
    if (!lp_str_is(by, "key") && !lp_str_is(by, "value"))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "dictsort sorts by 'key' or 'value'");
    if (call->self.type != LP_JINJA_DICT)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "dictsort needs a dict, not %s",
                             lp_jinja_type_name(call->self));
    TRY(lp_jinja_method(call->self, lp_str_from("items"))->fn(run, call, &pairs));
    TRY(copy_list(run, pairs, out));
    TRY(keys_of(run, out->seq->items, out->seq->n, lp_jinja_int(lp_str_is(by, "value")),
                lp_jinja_arg_truth(call, 0, false), (lp_value){0}, &keys));
    return lp_jinja_sort(run, out->seq->items, keys, out->seq->n,
                         lp_jinja_arg_truth(call, 2, false));
}

static bool extreme(run_state *run, call_args *call, bool largest, lp_value *out) {
    lp_value *items, *keys;
    size_t n, best = 0;
    TRY(lp_jinja_items(run, call->self, &items, &n));
    *out = lp_jinja_undefined(LP_JINJA_NO_ITEM, lp_str_from("an empty sequence has no extreme"));
    if (!n) return true;
    TRY(keys_of(run, items, n, lp_jinja_arg(call, 1), lp_jinja_arg_truth(call, 0, false),
                (lp_value){0}, &keys));
    for (size_t i = 1; i < n; i++) {
        int order;
        TRY(lp_jinja_order(run, keys[i], keys[best], 0, &order));
        if (order == (largest ? 1 : -1)) best = i;
    }
    *out = items[best];
    return true;
}

static bool filter_min(run_state *run, call_args *call, lp_value *out) {
    return extreme(run, call, false, out);
}
static bool filter_max(run_state *run, call_args *call, lp_value *out) {
    return extreme(run, call, true, out);
}

static bool filter_groupby(run_state *run, call_args *call, lp_value *out) {
    lp_value list, *keys, groups;
    lp_value path = call->arg[0], otherwise = call->arg[1];
    bool sensitive = lp_jinja_arg_truth(call, 2, false);
    TRY(copy_list(run, call->self, &list));
    size_t n = list.seq->n, n_groups = 0;
    TRY(keys_of(run, list.seq->items, n, path, sensitive, otherwise, &keys));
    TRY(lp_jinja_sort(run, list.seq->items, keys, n, false));
    TRY(lp_jinja_seq_new(run, LP_JINJA_LIST, n, &groups));
    for (size_t i = 0, end; i < n; i = end) {
        bool same = true;
        for (end = i + 1; end < n; end++) {
            TRY(lp_jinja_equal(run, keys[i], keys[end], 0, &same));
            if (!same) break;
        }
        lp_value *group = &groups.seq->items[n_groups++], *pair;
        TRY(lp_jinja_seq_new(run, LP_JINJA_GROUP, 2, group));
        pair = group->seq->items;
        TRY(follow(run, list.seq->items[i], path, otherwise, &pair[0]));
        TRY(lp_jinja_seq_new(run, LP_JINJA_LIST, end - i, &pair[1]));
        memcpy(pair[1].seq->items, list.seq->items + i, (end - i) * sizeof(lp_value));
    }
    groups.seq->n = n_groups;
    *out = groups;
    return true;
}

// ---- choosing and changing items --------------------------------------------------------------

static bool call_by_name(run_state *run, bool filter, lp_value name, lp_value item,
                         const call_args *outer, size_t skip, lp_value *out) {
    if (!lp_jinja_is_str(name))
        return lp_jinja_fail(run, LP_STATUS_FORMAT,
                             "the name of a filter or test must be a string");
    const struct lp_jinja_builtin *builtin =
        filter ? lp_jinja_filter(name.s) : lp_jinja_test(name.s);
    if (!builtin)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "there is no %s named '%.*s'",
                             filter ? "filter" : "test", LP_STR_ARGS(name.s));
    call_args call = {.self = item,
                      .pos = outer->pos + skip,
                      .n_pos = outer->n_pos - skip,
                      .named = outer->named,
                      .n_named = outer->n_named};
    return lp_jinja_enter(run) && lp_jinja_call_builtin(run, builtin, &call, out) &&
           (run->depth--, true);
}

static lp_value named_or_absent(const call_args *call, const char *name) {
    for (size_t i = 0; i < call->n_named; i++)
        if (lp_str_is(call->named[i].name, name)) return call->named[i].value;
    return (lp_value){0};
}

static bool filter_map(run_state *run, call_args *call, lp_value *out) {
    lp_value *items, path = named_or_absent(call, "attribute");
    lp_value otherwise = named_or_absent(call, "default");
    size_t n;
    bool by_attribute = !call->n_pos && path.type != LP_JINJA_ABSENT;
    if (!lp_jinja_truth(call->self)) return lp_jinja_seq_new(run, LP_JINJA_ITER, 0, out);
    TRY(lp_jinja_items(run, call->self, &items, &n) &&
        lp_jinja_seq_new(run, LP_JINJA_ITER, n, out));
    if (!by_attribute && !call->n_pos)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "map needs the name of a filter or attribute=");
    if (by_attribute && call->n_named > 1u + (otherwise.type != LP_JINJA_ABSENT))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "map takes attribute= and default= only");
    for (size_t i = 0; i < n; i++)
        TRY(by_attribute
                ? follow(run, items[i], path, otherwise, &out->seq->items[i])
                : call_by_name(run, true, call->pos[0], items[i], call, 1, &out->seq->items[i]));
    return true;
}

// select, reject, selectattr, rejectattr.
static bool choose(run_state *run, call_args *call, bool by_attribute, bool wanted, lp_value *out) {
    lp_value *items;
    size_t n, n_kept = 0, skip = by_attribute;
    if (!lp_jinja_truth(call->self)) return lp_jinja_seq_new(run, LP_JINJA_ITER, 0, out);
    TRY(lp_jinja_items(run, call->self, &items, &n) &&
        lp_jinja_seq_new(run, LP_JINJA_ITER, n, out));
    if (call->n_pos < skip)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "selectattr and rejectattr need an attribute");
    for (size_t i = 0; i < n; i++) {
        lp_value v = items[i];
        if (by_attribute) TRY(follow(run, v, call->pos[0], (lp_value){0}, &v));
        if (call->n_pos > skip)
            TRY(call_by_name(run, false, call->pos[skip], v, call, skip + 1, &v));
        if (lp_jinja_truth(v) == wanted) out->seq->items[n_kept++] = items[i];
    }
    out->seq->n = n_kept;
    return true;
}

static bool filter_select(run_state *run, call_args *call, lp_value *out) {
    return choose(run, call, false, true, out);
}
static bool filter_reject(run_state *run, call_args *call, lp_value *out) {
    return choose(run, call, false, false, out);
}
static bool filter_selectattr(run_state *run, call_args *call, lp_value *out) {
    return choose(run, call, true, true, out);
}
static bool filter_rejectattr(run_state *run, call_args *call, lp_value *out) {
    return choose(run, call, true, false, out);
}

static bool filter_unique(run_state *run, call_args *call, lp_value *out) {
    lp_value *items, *keys;
    size_t n, n_kept = 0;
    TRY(lp_jinja_items(run, call->self, &items, &n) &&
        lp_jinja_seq_new(run, LP_JINJA_ITER, n, out));
    TRY(keys_of(run, items, n, lp_jinja_arg(call, 1), lp_jinja_arg_truth(call, 0, false),
                (lp_value){0}, &keys));
    for (size_t i = 0; i < n; i++) {
        bool seen = false, hashable;
        TRY(lp_jinja_hashable(run, keys[i], 0, &hashable));
        if (!hashable)
            return lp_jinja_fail(run, LP_STATUS_FORMAT,
                                 "unique cannot tell values of type %s apart",
                                 lp_jinja_type_name(keys[i]));
        for (size_t k = 0; k < n_kept && !seen; k++)
            TRY(lp_jinja_equal(run, keys[k], keys[i], 0, &seen));
        if (seen) continue;
        keys[n_kept] = keys[i];
        out->seq->items[n_kept++] = items[i];
    }
    out->seq->n = n_kept;
    return true;
}

static bool filter_list(run_state *run, call_args *call, lp_value *out) {
    return copy_list(run, call->self, out);
}

static bool filter_items(run_state *run, call_args *call, lp_value *out) {
    if (lp_jinja_is_undefined(call->self)) return lp_jinja_seq_new(run, LP_JINJA_ITER, 0, out);
    if (call->self.type != LP_JINJA_DICT)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "items needs a dict, not %s",
                             lp_jinja_type_name(call->self));
    TRY(lp_jinja_method(call->self, lp_str_from("items"))->fn(run, call, out));
    out->seq->kind = LP_JINJA_ITER;
    return true;
}

static bool filter_reverse(run_state *run, call_args *call, lp_value *out) {
    lp_value *items, v = call->self;
    size_t n;
    bool used = lp_jinja_is_seq(v, LP_JINJA_ITER);
    TRY(lp_jinja_items(run, v, &items, &n));
    if (lp_jinja_is_str(v)) {
        size_t begin = lp_jinja_build_begin(run);
        for (size_t i = n; i-- > 0;) TRY(lp_jinja_build_add(run, items[i].s));
        TRY(lp_jinja_build_end(run, begin, out));
        out->sub = v.sub;
        return true;
    }
    TRY(lp_jinja_seq_new(run, used ? LP_JINJA_LIST : LP_JINJA_ITER, n, out));
    for (size_t i = 0; i < n; i++) out->seq->items[i] = items[n - 1 - i];
    return true;
}

static bool filter_first(run_state *run, call_args *call, lp_value *out) {
    lp_value *items, v = call->self;
    size_t n;
    *out = lp_jinja_undefined(LP_JINJA_NO_ITEM, lp_str_from("an empty sequence has no first item"));
    if (lp_jinja_is_seq(v, LP_JINJA_ITER)) {
        if (v.seq->next < v.seq->n) *out = v.seq->items[v.seq->next++];
        return true;
    }
    TRY(lp_jinja_items(run, v, &items, &n));
    if (n) *out = items[0];
    return true;
}

static bool filter_last(run_state *run, call_args *call, lp_value *out) {
    lp_value *items;
    size_t n;
    if (lp_jinja_is_seq(call->self, LP_JINJA_ITER))
        return lp_jinja_fail(run, LP_STATUS_FORMAT,
                             "last does not work on a generator; put |list before it");
    TRY(lp_jinja_items(run, call->self, &items, &n));
    *out =
        n ? items[n - 1]
          : lp_jinja_undefined(LP_JINJA_NO_ITEM, lp_str_from("an empty sequence has no last item"));
    return true;
}

static bool filter_length(run_state *run, call_args *call, lp_value *out) {
    bool has_length = true;
    int64_t n = 0;
    if (call->self.type == LP_JINJA_LOOP)
        n = (int64_t)call->self.loop->n;
    else
        TRY(lp_jinja_length(run, call->self, &has_length, &n));
    if (!has_length)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a value of type %s has no length%s",
                             lp_jinja_type_name(call->self),
                             call->self.type == LP_JINJA_SEQ ? "; put |list before it" : "");
    *out = lp_jinja_int(n);
    return true;
}

static bool filter_join(run_state *run, call_args *call, lp_value *out) {
    lp_value *items, separator = lp_jinja_str(lp_str_from(""));
    size_t n;
    if (call->arg[0].type != LP_JINJA_ABSENT) TRY(lp_jinja_to_str(run, call->arg[0], &separator));
    TRY(lp_jinja_items(run, call->self, &items, &n));
    size_t begin = lp_jinja_build_begin(run);
    for (size_t i = 0; i < n; i++) {
        lp_value item;
        TRY(follow(run, items[i], lp_jinja_arg(call, 1), (lp_value){0}, &item));
        if (i) TRY(lp_jinja_build_add(run, separator.s));
        TRY(lp_jinja_spend(run, 1) && lp_jinja_add_str(run, item));
    }
    return lp_jinja_build_end(run, begin, out);
}

static bool filter_sum(run_state *run, call_args *call, lp_value *out) {
    lp_value *items;
    size_t n;
    *out = call->arg[1].type == LP_JINJA_ABSENT ? lp_jinja_int(0) : call->arg[1];
    if (lp_jinja_is_str(*out))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "sum does not add strings; use join");
    TRY(lp_jinja_items(run, call->self, &items, &n));
    for (size_t i = 0; i < n; i++) {
        lp_value item;
        TRY(follow(run, items[i], lp_jinja_arg(call, 0), (lp_value){0}, &item) &&
            lp_jinja_binary(run, '+', *out, item, out) && lp_jinja_spend(run, 1));
    }
    return true;
}

// ---- batches ----------------------------------------------------------------------------------

static bool filter_batch(run_state *run, call_args *call, lp_value *out) {
    lp_value *items, fill = lp_jinja_arg(call, 1);
    size_t n;
    int64_t count;
    TRY(lp_jinja_arg_int(run, call, 0, 1, &count) && lp_jinja_items(run, call->self, &items, &n));
    // Python never meets a batch of length 0 or below again, so it keeps all in one.
    size_t size = count < 1 ? (n ? n : 1) : (size_t)count;
    size_t n_batches = n / size + (n % size != 0);
    TRY(lp_jinja_seq_new(run, LP_JINJA_ITER, n_batches, out));
    for (size_t i = 0; i < n_batches; i++) {
        size_t have = n - i * size < size ? n - i * size : size;
        size_t len = fill.type == LP_JINJA_NONE ? have : size;
        lp_value *batch = &out->seq->items[i];
        TRY(lp_jinja_seq_new(run, LP_JINJA_LIST, len, batch));
        for (size_t k = 0; k < len; k++)
            batch->seq->items[k] = k < have ? items[i * size + k] : fill;
    }
    return true;
}

static bool filter_slice(run_state *run, call_args *call, lp_value *out) {
    lp_value *items, fill = lp_jinja_arg(call, 1);
    size_t n, at = 0;
    int64_t count;
    TRY(lp_jinja_arg_int(run, call, 0, 1, &count) && lp_jinja_items(run, call->self, &items, &n));
    if (count == 0) return lp_jinja_fail(run, LP_STATUS_FORMAT, "slice into 0 parts");
    size_t n_slices = count < 0 ? 0 : (size_t)count;
    TRY(lp_jinja_seq_new(run, LP_JINJA_ITER, n_slices, out));
    for (size_t i = 0; i < n_slices; i++) {
        bool longer = i < n % n_slices, filled = fill.type != LP_JINJA_NONE && !longer;
        size_t len = n / n_slices + longer;
        lp_value *slice = &out->seq->items[i];
        TRY(lp_jinja_seq_new(run, LP_JINJA_LIST, len + filled, slice));
        if (len) memcpy(slice->seq->items, items + at, len * sizeof *items);
        if (filled) slice->seq->items[len] = fill;
        at += len;
    }
    return true;
}

const struct lp_jinja_builtin lp_jinja_list_filter_table[] = {
    {"length", "", 0, filter_length},
    {"count", "", 0, filter_length},
    {"join", "d,attribute", 0, filter_join},
    {"list", "", 0, filter_list},
    {"first", "", 0, filter_first},
    {"last", "", 0, filter_last},
    {"map", NULL, 0, filter_map},
    {"select", NULL, 0, filter_select},
    {"reject", NULL, 0, filter_reject},
    {"selectattr", NULL, 0, filter_selectattr},
    {"rejectattr", NULL, 0, filter_rejectattr},
    {"items", "", 0, filter_items},
    {"reverse", "", 0, filter_reverse},
    {"unique", "case_sensitive,attribute", 0, filter_unique},
    {"sort", "reverse,case_sensitive,attribute", 0, filter_sort},
    {"dictsort", "case_sensitive,by,reverse", 0, filter_dictsort},
    {"groupby", "attribute,default,case_sensitive", 1, filter_groupby},
    {"min", "case_sensitive,attribute", 0, filter_min},
    {"max", "case_sensitive,attribute", 0, filter_max},
    {"sum", "attribute,start", 0, filter_sum},
    {"batch", "linecount,fill_with", 1, filter_batch},
    {"slice", "slices,fill_with", 1, filter_slice},
    {0},
};
