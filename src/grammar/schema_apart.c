// Can two schemas be valid at once? "oneOf" may be treated as "anyOf" where no two can.
//
// Looked at: the types that are written, the values of "enum", and for objects a property that one
// of them requires and for which their schemas are apart (or that the other does not allow).
#include "grammar/schema.h"

#define MAX_DEPTH 6 // of properties in properties

static bool schemas_apart(struct lp_schema *s, json_t *a, json_t *b, int depth) {
    json_t *flat_a = lp_schema_flatten(s, a), *flat_b = lp_schema_flatten(s, b);
    return flat_a && flat_b && lp_schema_are_apart(s, flat_a, flat_b, depth);
}

// No value that one lists is accepted by the other.
static bool values_apart(struct lp_schema *s, const json_t *values, json_t *flat) {
    size_t i;
    json_t *value;
    json_array_foreach(values, i, value) if (lp_schema_accepts(s, flat, value)) return false;
    return !lp_gb_failed(s->b);
}

// A required property of a by which the two are told apart.
static bool told_by_property(struct lp_schema *s, const json_t *a, const json_t *b, int depth) {
    const json_t *mine = json_object_get(a, "properties"),
                 *theirs = json_object_get(b, "properties");
    json_t *others = json_object_get(b, "additionalProperties"), *item;
    size_t i;
    json_array_foreach(json_object_get(a, "required"), i, item) {
        const char *name = json_string_value(item);
        json_t *x = json_object_get(mine, name), *y = json_object_get(theirs, name);
        if (!y) y = others;
        if (json_is_false(y)) return true;
        if (x && y && schemas_apart(s, x, y, depth + 1)) return true;
        if (lp_gb_failed(s->b)) return false;
    }
    return false;
}

// Objects that neither lists by value.
static bool objects_apart(struct lp_schema *s, const json_t *a, const json_t *b, int depth) {
    if (depth >= MAX_DEPTH) return false;
    return told_by_property(s, a, b, depth) || told_by_property(s, b, a, depth);
}

static bool any_of_apart(struct lp_schema *s, json_t *branches, json_t *other, int depth) {
    size_t i;
    json_t *branch;
    json_array_foreach(branches, i, branch) {
        json_t *flat = lp_schema_flatten(s, branch);
        if (!flat || !lp_schema_are_apart(s, flat, other, depth)) return false;
    }
    return true;
}

bool lp_schema_are_apart(struct lp_schema *s, json_t *a, json_t *b, int depth) {
    if (!lp_schema_spend(s, 4)) return false;
    if (json_is_false(a) || json_is_false(b)) return true;
    if (json_is_true(a) || json_is_true(b)) return false;
    json_t *any = json_object_get(a, "anyOf");
    if (any) return any_of_apart(s, any, b, depth);
    any = json_object_get(b, "anyOf");
    if (any) return any_of_apart(s, any, a, depth);
    const json_t *values = json_object_get(a, "enum");
    if (values) return values_apart(s, values, b);
    values = json_object_get(b, "enum");
    if (values) return values_apart(s, values, a);
    // What is written for one must not be valid for the other, whatever it is said to be about.
    unsigned common = (lp_schema_types_meant(a) & lp_schema_types(b)) |
                      (lp_schema_types(a) & lp_schema_types_meant(b));
    return !common || (common == LP_TYPE_OBJECT && objects_apart(s, a, b, depth));
}
