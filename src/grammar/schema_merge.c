// Two flat schemas at once ("allOf", and what stands beside "$ref" or "anyOf"). Inner schemas are
// merged only when they are used: they become {"allOf": [x, y]}.
#include "grammar/schema.h"

#include <string.h>

// ---- inner schemas ----

static bool allows_all(const json_t *schema) {
    return !schema || json_is_true(schema) ||
           (json_is_object(schema) && json_object_size(schema) == 0);
}

json_t *lp_schema_both(json_t *a, json_t *b) {
    if (allows_all(a) && allows_all(b)) return json_true();
    if (allows_all(a) || a == b) return json_incref(b);
    if (allows_all(b)) return json_incref(a);
    if (json_is_false(a) || json_is_false(b)) return json_false();
    return json_pack("{s:[O, O]}", "allOf", a, b);
}

// ---- keywords of one value ----

// What to do with a keyword that both have: a new reference; NULL: no memory, or refused.
typedef json_t *(*combine_fn)(struct lp_schema *s, const char *name, json_t *a, json_t *b);

static long double value_of(const json_t *number) {
    return json_is_integer(number) ? (long double)json_integer_value(number)
                                   : (long double)json_real_value(number);
}

static json_t *larger(struct lp_schema *s, const char *name, json_t *a, json_t *b) {
    (void)s, (void)name;
    return json_incref(value_of(a) >= value_of(b) ? a : b);
}

static json_t *smaller(struct lp_schema *s, const char *name, json_t *a, json_t *b) {
    (void)s, (void)name;
    return json_incref(value_of(a) <= value_of(b) ? a : b);
}

static json_t *only_same(struct lp_schema *s, const char *name, json_t *a, json_t *b) {
    if (json_equal(a, b)) return json_incref(a);
    lp_schema_fail(s, LP_STATUS_UNSUPPORTED, "two different \"%s\" for one value are not supported",
                   name);
    return NULL;
}

// The smallest number that both divide.
static json_t *common_multiple(struct lp_schema *s, const char *name, json_t *a, json_t *b) {
    json_int_t x = json_integer_value(a), y = json_integer_value(b), product;
    if (x < 1 || y < 1) return only_same(s, name, a, b);
    json_int_t gcd = x;
    for (json_int_t rest = y, next; rest; rest = next) {
        next = gcd % rest;
        gcd = rest;
    }
    if (__builtin_mul_overflow(x / gcd, y, &product)) return only_same(s, name, a, b);
    return json_integer(product);
}

static bool has_value(const json_t *list, const json_t *value) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        if (lp_schema_same_value(item, value)) return true;
    }
    return false;
}

static json_t *in_both(struct lp_schema *s, const char *name, json_t *a, json_t *b) {
    (void)name;
    json_t *out = json_array(), *item;
    size_t i;
    bool good = out != NULL;
    json_array_foreach(a, i, item) {
        if (!lp_schema_spend(s, 1 + json_array_size(b))) good = false;
        if (good && has_value(b, item)) good = json_array_append(out, item) == 0;
    }
    if (good) return out;
    json_decref(out);
    return NULL;
}

static json_t *in_either(struct lp_schema *s, const char *name, json_t *a, json_t *b) {
    (void)name;
    json_t *out = json_copy(a), *item;
    size_t i;
    bool good = out != NULL;
    json_array_foreach(b, i, item) {
        if (!lp_schema_spend(s, 1 + json_array_size(a))) good = false;
        if (good && !has_value(a, item)) good = json_array_append(out, item) == 0;
    }
    if (good) return out;
    json_decref(out);
    return NULL;
}

static const struct {
    const char *name;
    combine_fn combine;
} rows[] = {
    {"enum", in_both},
    {"required", in_either},
    {"minimum", larger},
    {"exclusiveMinimum", larger},
    {"maximum", smaller},
    {"exclusiveMaximum", smaller},
    {"multipleOf", common_multiple},
    {"minLength", larger},
    {"maxLength", smaller},
    {"minItems", larger},
    {"maxItems", smaller},
    {"minProperties", larger},
    {"maxProperties", smaller},
    {"pattern", only_same},
    {"format", only_same},
};

static bool merge_rows(struct lp_schema *s, json_t *out, json_t *a, json_t *b) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *x = json_object_get(a, rows[i].name), *y = json_object_get(b, rows[i].name);
        if (!x && !y) continue;
        json_t *both = x && y ? rows[i].combine(s, rows[i].name, x, y) : json_incref(x ? x : y);
        if (json_object_set_new(out, rows[i].name, both)) return false;
    }
    return true;
}

// ---- types ----

// *never: no type is left.
static bool merge_types(json_t *out, json_t *a, json_t *b, bool *never) {
    static const struct {
        unsigned bits;
        const char *name;
    } names[] = {{LP_TYPE_NULL, "null"},     {LP_TYPE_BOOLEAN, "boolean"},
                 {LP_TYPE_NUMBER, "number"}, {LP_TYPE_INTEGER, "integer"},
                 {LP_TYPE_STRING, "string"}, {LP_TYPE_ARRAY, "array"},
                 {LP_TYPE_OBJECT, "object"}};
    if (!json_object_get(a, "type") && !json_object_get(b, "type")) return true;
    unsigned types = lp_schema_types(a) & lp_schema_types(b);
    json_t *list = json_array();
    bool good = list != NULL;
    *never = types == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if ((types & names[i].bits) != names[i].bits) continue;
        good = good && json_array_append_new(list, json_string(names[i].name)) == 0;
        types &= ~names[i].bits;
    }
    return json_object_set_new(out, "type", list) == 0 && good;
}

// ---- objects and arrays ----

// The properties of a, with what b says about each of them; those that `out` has are left alone.
static bool merge_members(struct lp_schema *s, json_t *out, json_t *a, json_t *b) {
    json_t *theirs = json_object_get(b, "properties");
    json_t *others = json_object_get(b, "additionalProperties");
    const char *name;
    json_t *schema;
    json_object_foreach(json_object_get(a, "properties"), name, schema) {
        if (!lp_schema_spend(s, 1)) return false;
        if (json_object_get(out, name)) continue;
        json_t *also = json_object_get(theirs, name);
        if (json_object_set_new(out, name, lp_schema_both(schema, also ? also : others)))
            return false;
    }
    return true;
}

static bool merge_objects(struct lp_schema *s, json_t *out, json_t *a, json_t *b) {
    json_t *x = json_object_get(a, "additionalProperties");
    json_t *y = json_object_get(b, "additionalProperties");
    if ((x || y) && json_object_set_new(out, "additionalProperties", lp_schema_both(x, y)))
        return false;
    if (!json_object_get(a, "properties") && !json_object_get(b, "properties")) return true;
    json_t *members = json_object();
    if (json_object_set_new(out, "properties", members)) return false;
    return merge_members(s, members, a, b) && merge_members(s, members, b, a);
}

static json_t *item_at(const json_t *flat, size_t i) {
    json_t *prefix = json_array_get(json_object_get(flat, "prefixItems"), i);
    return prefix ? prefix : json_object_get(flat, "items");
}

static bool merge_arrays(struct lp_schema *s, json_t *out, json_t *a, json_t *b) {
    json_t *x = json_object_get(a, "items"), *y = json_object_get(b, "items");
    if ((x || y) && json_object_set_new(out, "items", lp_schema_both(x, y))) return false;
    size_t n = json_array_size(json_object_get(a, "prefixItems"));
    size_t n_b = json_array_size(json_object_get(b, "prefixItems"));
    if (n_b > n) n = n_b;
    if (!n) return true;
    json_t *prefix = json_array();
    bool good = prefix && lp_schema_spend(s, n);
    for (size_t i = 0; good && i < n; i++)
        good = json_array_append_new(prefix, lp_schema_both(item_at(a, i), item_at(b, i))) == 0;
    return json_object_set_new(out, "prefixItems", prefix) == 0 && good;
}

// ---- the whole ----

static json_t *merge_plain(struct lp_schema *s, json_t *a, json_t *b) {
    json_t *out = json_object();
    bool never = false;
    bool good = out && lp_schema_spend(s, json_object_size(a) + json_object_size(b)) &&
                merge_types(out, a, b, &never) && merge_rows(s, out, a, b) &&
                merge_objects(s, out, a, b) && merge_arrays(s, out, a, b);
    if (good && !never) return out;
    json_decref(out);
    if (good) {
        lp_schema_never(s, "the types of schemas that must hold at once exclude each other");
        return json_false();
    }
    lp_gb_fail(s->b, LP_STATUS_MEMORY, "out of memory: the schema");
    return NULL;
}

// {"anyOf": [...]} and another: each branch with the other.
static json_t *distribute(struct lp_schema *s, json_t *branches, json_t *other) {
    json_t *list = json_array(), *branch;
    size_t i;
    bool good = list && lp_schema_spend(s, json_array_size(branches));
    json_array_foreach(branches, i, branch) good =
        good && json_array_append_new(list, lp_schema_both(branch, other)) == 0;
    json_t *out = good ? json_pack("{s:O}", "anyOf", list) : NULL;
    json_decref(list);
    if (!out) lp_gb_fail(s->b, LP_STATUS_MEMORY, "out of memory: the schema");
    return out;
}

json_t *lp_schema_merge(struct lp_schema *s, json_t *a, json_t *b) {
    if (lp_gb_failed(s->b)) return NULL;
    if (json_is_false(a) || json_is_false(b)) return json_false();
    if (allows_all(a)) return json_incref(b);
    if (allows_all(b)) return json_incref(a);
    json_t *any = json_object_get(a, "anyOf");
    if (any) return distribute(s, any, b);
    any = json_object_get(b, "anyOf");
    return any ? distribute(s, any, a) : merge_plain(s, a, b);
}
