// Values: building, truth, length, iteration, equality and order, as Python defines them for the
// types that templates can reach. Walks over nested values are bounded in depth, and pay for their
// length in steps.
#include "text/jinja_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "text/jinja_str.h"

bool lp_jinja_fail(struct lp_jinja_run *run, lp_status status, const char *format, ...) {
    char text[LP_ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    run->status = status;
    lp_err_set(run->err, status, "chat template, line %u: %s", run->line, text);
    return false;
}

bool lp_jinja_spend(struct lp_jinja_run *run, uint64_t steps) {
    if (steps > run->max_steps - run->steps) {
        run->steps = run->max_steps;
        return lp_jinja_fail(run, LP_STATUS_LIMIT, "the template takes more than %llu steps",
                             (unsigned long long)run->max_steps);
    }
    run->steps += steps;
    return true;
}

bool lp_jinja_spend_bytes(struct lp_jinja_run *run, size_t n) {
    return lp_jinja_spend(run, n / 32 + 1);
}

void *lp_jinja_alloc(struct lp_jinja_run *run, size_t n, size_t size) {
    size_t bytes, limit = run->arena.max_bytes;
    if (!lp_mul_size(n, size, &bytes) || bytes > limit || bytes > limit - run->arena.used_bytes) {
        lp_jinja_fail(run, LP_STATUS_LIMIT, "the template needs more than %zu bytes of memory",
                      limit);
        return NULL;
    }
    void *block = lp_arena_alloc(&run->arena, n, size);
    if (block) return block;
    // Rounding up may pass the limit where the bytes alone did not.
    if (bytes + 16 > limit - run->arena.used_bytes)
        lp_jinja_fail(run, LP_STATUS_LIMIT, "the template needs more than %zu bytes of memory",
                      limit);
    else
        lp_jinja_fail(run, LP_STATUS_MEMORY, "out of memory: %zu bytes for a value", bytes);
    return NULL;
}

size_t lp_jinja_build_begin(struct lp_jinja_run *run) {
    return run->scratch.len;
}

bool lp_jinja_build_add(struct lp_jinja_run *run, struct lp_str text) {
    struct lp_bytes *scratch = &run->scratch;
    if (text.len > scratch->max_bytes - scratch->len)
        return lp_jinja_fail(run, LP_STATUS_LIMIT, "the template builds a string of over %zu bytes",
                             scratch->max_bytes);
    if (!lp_bytes_append(scratch, text.data, text.len))
        return lp_jinja_fail(run, LP_STATUS_MEMORY, "out of memory: %zu bytes for a string",
                             scratch->len + text.len);
    return true;
}

bool lp_jinja_build_puts(struct lp_jinja_run *run, const char *text) {
    return lp_jinja_build_add(run, lp_str_from(text));
}

bool lp_jinja_build_end(struct lp_jinja_run *run, size_t begin, lp_value *out) {
    size_t n = run->scratch.len - begin;
    char *copy = lp_jinja_alloc(run, n ? n : 1, 1);
    if (!copy) return false;
    if (n) memcpy(copy, run->scratch.data + begin, n);
    run->scratch.len = begin;
    *out = lp_jinja_str((struct lp_str){copy, n});
    return lp_jinja_spend_bytes(run, n);
}

bool lp_jinja_seq_new(struct lp_jinja_run *run, enum lp_jinja_seq_kind kind, size_t n,
                      lp_value *out) {
    struct lp_jinja_seq *seq = lp_jinja_alloc(run, 1, sizeof *seq);
    if (!seq) return false;
    seq->kind = kind;
    seq->n = n;
    seq->items = lp_jinja_alloc(run, n, sizeof *seq->items);
    if (!seq->items) return false;
    *out = (lp_value){.type = LP_JINJA_SEQ, .seq = seq};
    return lp_jinja_spend(run, n / 8 + 1);
}

bool lp_jinja_dict_new(struct lp_jinja_run *run, size_t capacity, struct lp_jinja_dict **out) {
    struct lp_jinja_dict *dict = lp_jinja_alloc(run, 1, sizeof *dict);
    if (!dict) return false;
    dict->capacity = capacity;
    dict->pairs = lp_jinja_alloc(run, capacity, sizeof *dict->pairs);
    *out = dict;
    return dict->pairs != NULL;
}

static bool deep(struct lp_jinja_run *run, unsigned depth) {
    if (depth > LP_JINJA_MAX_VALUE_DEPTH)
        return lp_jinja_fail(run, LP_STATUS_LIMIT, "a value is nested more than %d deep",
                             LP_JINJA_MAX_VALUE_DEPTH);
    return lp_jinja_spend(run, 1);
}

lp_value *lp_jinja_dict_get(const struct lp_jinja_dict *dict, struct lp_str name) {
    for (size_t i = 0; i < dict->n; i++) {
        lp_value key = dict->pairs[i].key;
        if (key.type == LP_JINJA_STRING && lp_str_equal(key.s, name)) return &dict->pairs[i].value;
    }
    return NULL;
}

bool lp_jinja_dict_find(struct lp_jinja_run *run, const struct lp_jinja_dict *dict, lp_value key,
                        lp_value **out) {
    *out = NULL;
    if (!lp_jinja_spend(run, dict->n / 16 + 1)) return false;
    if (key.type == LP_JINJA_STRING) {
        *out = lp_jinja_dict_get(dict, key.s);
        return true;
    }
    bool same;
    if (!lp_jinja_hashable(run, key, 0, &same)) return false;
    if (!same) return true;
    for (size_t i = 0; i < dict->n && !*out; i++) {
        if (!lp_jinja_equal(run, dict->pairs[i].key, key, 0, &same)) return false;
        if (same) *out = &dict->pairs[i].value;
    }
    return true;
}

bool lp_jinja_dict_set(struct lp_jinja_run *run, struct lp_jinja_dict *dict, lp_value key,
                       lp_value value) {
    lp_value *old;
    bool hashable;
    if (!lp_jinja_hashable(run, key, 0, &hashable)) return false;
    if (!hashable)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a %s cannot be the key of a dict",
                             lp_jinja_type_name(key));
    if (!lp_jinja_dict_find(run, dict, key, &old)) return false;
    if (old) {
        *old = value;
        return true;
    }
    if (dict->n == dict->capacity) {
        size_t capacity = dict->capacity ? dict->capacity * 2 : 4;
        struct lp_jinja_pair *pairs = lp_jinja_alloc(run, capacity, sizeof *pairs);
        if (!pairs) return false;
        if (dict->n) memcpy(pairs, dict->pairs, dict->n * sizeof *pairs);
        dict->pairs = pairs;
        dict->capacity = capacity;
    }
    dict->pairs[dict->n++] = (struct lp_jinja_pair){key, value};
    return true;
}

static bool array_from_json(struct lp_jinja_run *run, const json_t *json, unsigned depth,
                            lp_value *out) {
    size_t n = json_array_size(json);
    if (!lp_jinja_seq_new(run, LP_JINJA_LIST, n, out)) return false;
    for (size_t i = 0; i < n; i++)
        if (!lp_jinja_from_json(run, json_array_get(json, i), depth + 1, &out->seq->items[i]))
            return false;
    return true;
}

static bool object_from_json(struct lp_jinja_run *run, const json_t *json, unsigned depth,
                             lp_value *out) {
    struct lp_jinja_dict *dict;
    if (!lp_jinja_dict_new(run, json_object_size(json), &dict)) return false;
    json_t *object = (json_t *)json; // jansson's iterators take no const; nothing is changed
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        struct lp_jinja_pair *pair = &dict->pairs[dict->n];
        pair->key =
            lp_jinja_str((struct lp_str){json_object_iter_key(it), json_object_iter_key_len(it)});
        if (!lp_jinja_from_json(run, json_object_iter_value(it), depth + 1, &pair->value))
            return false;
        dict->n++;
    }
    *out = lp_jinja_dict_value(dict);
    return true;
}

bool lp_jinja_from_json(struct lp_jinja_run *run, const json_t *json, unsigned depth,
                        lp_value *out) {
    if (depth > LP_JINJA_MAX_VALUE_DEPTH)
        return lp_jinja_fail(run, LP_STATUS_LIMIT, "the variables are nested more than %d deep",
                             LP_JINJA_MAX_VALUE_DEPTH);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return object_from_json(run, json, depth, out);
    case JSON_ARRAY:
        return array_from_json(run, json, depth, out);
    case JSON_STRING:
        *out = lp_jinja_str((struct lp_str){json_string_value(json), json_string_length(json)});
        return true;
    case JSON_INTEGER:
        *out = lp_jinja_int(json_integer_value(json));
        return true;
    case JSON_REAL:
        *out = lp_jinja_float(json_real_value(json));
        return true;
    case JSON_TRUE:
        *out = lp_jinja_bool(true);
        return true;
    case JSON_FALSE:
        *out = lp_jinja_bool(false);
        return true;
    case JSON_NULL:
        break;
    }
    *out = lp_jinja_none();
    return true;
}

const char *lp_jinja_type_name(lp_value v) {
    static const char *const seqs[] = {"list",      "tuple",     "tuple",       "range",
                                       "generator", "dict_keys", "dict_values", "dict_items"};
    static const char *const types[] = {"nothing", "Undefined",   "NoneType", "bool", "int",
                                        "float",   "str",         "list",     "dict", "Namespace",
                                        "Macro",   "LoopContext", "function"};
    return v.type == LP_JINJA_SEQ ? seqs[v.seq->kind] : types[v.type];
}

bool lp_jinja_is_tuple(lp_value v) {
    return v.type == LP_JINJA_SEQ &&
           (v.seq->kind == LP_JINJA_TUPLE || v.seq->kind == LP_JINJA_GROUP);
}

bool lp_jinja_as_int(lp_value v, int64_t *out) {
    if (v.type == LP_JINJA_BOOL)
        *out = v.b;
    else if (v.type == LP_JINJA_INT)
        *out = v.i;
    else
        return false;
    return true;
}

bool lp_jinja_as_double(lp_value v, double *out) {
    int64_t i;
    if (v.type == LP_JINJA_FLOAT)
        *out = v.f;
    else if (lp_jinja_as_int(v, &i))
        *out = (double)i;
    else
        return false;
    return true;
}

bool lp_jinja_truth(lp_value v) {
    switch (v.type) {
    case LP_JINJA_ABSENT:
    case LP_JINJA_UNDEFINED:
    case LP_JINJA_NONE:
        return false;
    case LP_JINJA_BOOL:
        return v.b;
    case LP_JINJA_INT:
        return v.i != 0;
    case LP_JINJA_FLOAT:
        return v.f != 0;
    case LP_JINJA_STRING:
        return v.s.len != 0;
    case LP_JINJA_SEQ:
        return v.seq->kind == LP_JINJA_ITER || v.seq->n != 0;
    case LP_JINJA_DICT:
        return v.dict->n != 0;
    default:
        return true;
    }
}

bool lp_jinja_hashable(struct lp_jinja_run *run, lp_value v, unsigned depth, bool *out) {
    *out = v.type != LP_JINJA_DICT;
    if (!deep(run, depth)) return false;
    if (v.type != LP_JINJA_SEQ) return true;
    *out = v.seq->kind == LP_JINJA_RANGE || v.seq->kind == LP_JINJA_ITER || lp_jinja_is_tuple(v);
    if (!lp_jinja_is_tuple(v)) return true;
    for (size_t i = 0; i < v.seq->n && *out; i++)
        if (!lp_jinja_hashable(run, v.seq->items[i], depth + 1, out)) return false;
    return true;
}

bool lp_jinja_length(struct lp_jinja_run *run, lp_value v, bool *has_length, int64_t *out) {
    *has_length = true;
    switch (v.type) {
    case LP_JINJA_UNDEFINED:
        *out = 0;
        return true;
    case LP_JINJA_STRING:
        *out = (int64_t)lp_jinja_str_count(v.s);
        return lp_jinja_spend_bytes(run, v.s.len);
    case LP_JINJA_DICT:
        *out = (int64_t)v.dict->n;
        return true;
    case LP_JINJA_SEQ:
        *out = (int64_t)v.seq->n;
        *has_length = v.seq->kind != LP_JINJA_ITER;
        return true;
    default:
        *has_length = false;
        return true;
    }
}

bool lp_jinja_is_iterable(lp_value v) {
    return v.type == LP_JINJA_SEQ || v.type == LP_JINJA_DICT || v.type == LP_JINJA_STRING ||
           v.type == LP_JINJA_UNDEFINED || v.type == LP_JINJA_LOOP;
}

static bool characters(struct lp_jinja_run *run, struct lp_str s, lp_value **items, size_t *n) {
    *n = lp_jinja_str_count(s);
    *items = lp_jinja_alloc(run, *n, sizeof **items);
    if (!*items) return false;
    size_t at = 0;
    for (size_t i = 0; i < *n; i++) {
        uint32_t cp;
        size_t bytes = lp_jinja_utf8_next(s, at, &cp);
        (*items)[i] = lp_jinja_str((struct lp_str){s.data + at, bytes});
        at += bytes;
    }
    return lp_jinja_spend(run, *n / 8 + 1);
}

bool lp_jinja_items(struct lp_jinja_run *run, lp_value v, lp_value **items, size_t *n) {
    *items = NULL;
    *n = 0;
    switch (v.type) {
    case LP_JINJA_UNDEFINED:
        return true;
    case LP_JINJA_STRING:
        return characters(run, v.s, items, n);
    case LP_JINJA_DICT:
        *n = v.dict->n;
        *items = lp_jinja_alloc(run, *n, sizeof **items);
        if (!*items) return false;
        for (size_t i = 0; i < *n; i++) (*items)[i] = v.dict->pairs[i].key;
        return lp_jinja_spend(run, *n / 8 + 1);
    case LP_JINJA_SEQ:
        *items = v.seq->items + v.seq->next;
        *n = v.seq->n - v.seq->next;
        if (v.seq->kind == LP_JINJA_ITER) v.seq->next = v.seq->n;
        return true;
    default:
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a value of type %s cannot be iterated over",
                             lp_jinja_type_name(v));
    }
}

static bool seq_equal(struct lp_jinja_run *run, const struct lp_jinja_seq *a,
                      const struct lp_jinja_seq *b, unsigned depth, bool *out) {
    bool tuples = (a->kind == LP_JINJA_TUPLE || a->kind == LP_JINJA_GROUP) &&
                  (b->kind == LP_JINJA_TUPLE || b->kind == LP_JINJA_GROUP);
    *out = a == b;
    if (*out || (a->kind != b->kind && !tuples) || a->kind == LP_JINJA_ITER ||
        a->kind == LP_JINJA_VALUES || a->n != b->n)
        return true;
    for (size_t i = 0; i < a->n; i++) {
        if (!lp_jinja_equal(run, a->items[i], b->items[i], depth + 1, out)) return false;
        if (!*out) return true;
    }
    *out = true;
    return true;
}

static bool dict_equal(struct lp_jinja_run *run, const struct lp_jinja_dict *a,
                       const struct lp_jinja_dict *b, unsigned depth, bool *out) {
    *out = a == b;
    if (*out || a->n != b->n) return true;
    for (size_t i = 0; i < a->n; i++) {
        lp_value *other;
        if (!lp_jinja_dict_find(run, b, a->pairs[i].key, &other)) return false;
        if (!other) return true;
        if (!lp_jinja_equal(run, a->pairs[i].value, *other, depth + 1, out)) return false;
        if (!*out) return true;
    }
    *out = true;
    return true;
}

// Exact for any int64 and double: long double is compared where both fit, else by size.
static int number_order(lp_value a, lp_value b, bool *unordered) {
    int64_t i, j;
    *unordered = false;
    if (lp_jinja_as_int(a, &i) && lp_jinja_as_int(b, &j)) return (i > j) - (i < j);
    double x = 0, y = 0;
    lp_jinja_as_double(a, &x);
    lp_jinja_as_double(b, &y);
    *unordered = isnan(x) || isnan(y);
    long double lx = lp_jinja_as_int(a, &i) ? (long double)i : (long double)x;
    long double ly = lp_jinja_as_int(b, &j) ? (long double)j : (long double)y;
    return (lx > ly) - (lx < ly);
}

static bool is_number(lp_value v) {
    return v.type == LP_JINJA_BOOL || v.type == LP_JINJA_INT || v.type == LP_JINJA_FLOAT;
}

bool lp_jinja_equal(struct lp_jinja_run *run, lp_value a, lp_value b, unsigned depth, bool *out) {
    *out = false;
    if (!deep(run, depth)) return false;
    if (is_number(a) && is_number(b)) {
        bool unordered;
        int order = number_order(a, b, &unordered);
        *out = order == 0 && !unordered;
        return true;
    }
    if (a.type != b.type) return true;
    switch (a.type) {
    case LP_JINJA_UNDEFINED:
    case LP_JINJA_NONE:
        *out = true;
        return true;
    case LP_JINJA_STRING:
        *out = lp_str_equal(a.s, b.s);
        return a.s.len != b.s.len || lp_jinja_spend_bytes(run, a.s.len);
    case LP_JINJA_SEQ:
        return seq_equal(run, a.seq, b.seq, depth, out);
    case LP_JINJA_DICT:
        return dict_equal(run, a.dict, b.dict, depth, out);
    default:
        *out = a.dict == b.dict;
        return true; // identity
    }
}

static int str_order(struct lp_str a, struct lp_str b) {
    // Byte order of UTF-8 is code point order.
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.data, b.data, n) : 0;
    if (!order) return (a.len > b.len) - (a.len < b.len);
    return order < 0 ? -1 : 1;
}

static bool seq_order(struct lp_jinja_run *run, const struct lp_jinja_seq *a,
                      const struct lp_jinja_seq *b, unsigned depth, int *out) {
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        if (!lp_jinja_equal(run, a->items[i], b->items[i], depth + 1, &same)) return false;
        if (!same) return lp_jinja_order(run, a->items[i], b->items[i], depth + 1, out);
    }
    *out = (a->n > b->n) - (a->n < b->n);
    return true;
}

bool lp_jinja_order(struct lp_jinja_run *run, lp_value a, lp_value b, unsigned depth, int *out) {
    *out = 0;
    if (!deep(run, depth)) return false;
    if (lp_jinja_is_undefined(a)) return lp_jinja_fail_undefined(run, a);
    if (lp_jinja_is_undefined(b)) return lp_jinja_fail_undefined(run, b);
    if (is_number(a) && is_number(b)) {
        bool unordered;
        *out = number_order(a, b, &unordered);
        if (unordered) *out = 2; // neither less nor greater nor equal
        return true;
    }
    if (lp_jinja_is_str(a) && lp_jinja_is_str(b)) {
        *out = str_order(a.s, b.s);
        return lp_jinja_spend_bytes(run, a.s.len);
    }
    if ((lp_jinja_is_seq(a, LP_JINJA_LIST) && lp_jinja_is_seq(b, LP_JINJA_LIST)) ||
        (lp_jinja_is_tuple(a) && lp_jinja_is_tuple(b)))
        return seq_order(run, a.seq, b.seq, depth, out);
    return lp_jinja_fail(run, LP_STATUS_FORMAT, "%s and %s cannot be ordered",
                         lp_jinja_type_name(a), lp_jinja_type_name(b));
}

bool lp_jinja_contains(struct lp_jinja_run *run, lp_value container, lp_value item, bool *out) {
    *out = false;
    lp_value *found;
    switch (container.type) {
    case LP_JINJA_UNDEFINED:
        return true;
    case LP_JINJA_STRING:
        if (!lp_jinja_is_str(item))
            return lp_jinja_fail(run, LP_STATUS_FORMAT, "'in' on a string needs a string, not %s",
                                 lp_jinja_type_name(item));
        *out = lp_jinja_str_find(container.s, item.s, 0) != LP_JINJA_NOT_FOUND;
        return lp_jinja_spend_bytes(run, container.s.len);
    case LP_JINJA_DICT:
        if (!lp_jinja_hashable(run, item, 0, out)) return false;
        if (!*out)
            return lp_jinja_fail(run, LP_STATUS_FORMAT, "a %s cannot be the key of a dict",
                                 lp_jinja_type_name(item));
        if (!lp_jinja_dict_find(run, container.dict, item, &found)) return false;
        *out = found != NULL;
        return true;
    case LP_JINJA_SEQ: {
        struct lp_jinja_seq *seq = container.seq;
        for (size_t i = seq->next; i < seq->n && !*out; i++) {
            if (!lp_jinja_equal(run, seq->items[i], item, 0, out)) return false;
            if (seq->kind == LP_JINJA_ITER) seq->next = i + 1;
        }
        return true;
    }
    default:
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "'in' does not work on a value of type %s",
                             lp_jinja_type_name(container));
    }
}

bool lp_jinja_fail_undefined(struct lp_jinja_run *run, lp_value v) {
    switch (v.sub) {
    case LP_JINJA_NO_NAME:
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "'%.*s' is undefined", LP_STR_ARGS(v.s));
    case LP_JINJA_NO_ATTR:
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "there is no attribute or key '%.*s'",
                             LP_STR_ARGS(v.s));
    case LP_JINJA_FORBIDDEN:
        return lp_jinja_fail(run, LP_STATUS_FORMAT,
                             "'%.*s' is forbidden: templates may not change lists and dicts or "
                             "reach the inside of objects (use a namespace, or '+' to extend)",
                             LP_STR_ARGS(v.s));
    default:
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "%.*s", LP_STR_ARGS(v.s));
    }
}
