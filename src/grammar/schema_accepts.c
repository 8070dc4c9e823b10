// Is a value of the schema's own source valid under a schema? For "enum" and "const", whose values
// must also fulfil the keywords beside them.
#include "grammar/schema.h"

#include <math.h>

#include "grammar/build_parts.h"
#include "grammar/regex.h"

static bool is_number(const json_t *value, long double *out) {
    *out = json_is_integer(value) ? (long double)json_integer_value(value)
                                  : (long double)json_real_value(value);
    return json_is_number(value);
}

bool lp_schema_same_value(const json_t *a, const json_t *b) {
    long double x, y;
    if (is_number(a, &x) && is_number(b, &y)) return x == y;
    return json_equal(a, b);
}

static unsigned type_of(const json_t *value) {
    double real = json_real_value(value);
    switch (json_typeof(value)) {
    case JSON_NULL:
        return LP_TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return LP_TYPE_BOOLEAN;
    case JSON_INTEGER:
        return LP_TYPE_INTEGER;
    case JSON_REAL:
        return real == floor(real) ? LP_TYPE_INTEGER : LP_TYPE_FRACTION;
    case JSON_STRING:
        return LP_TYPE_STRING;
    case JSON_ARRAY:
        return LP_TYPE_ARRAY;
    case JSON_OBJECT:
        return LP_TYPE_OBJECT;
    }
    return 0;
}

// ---- numbers ----

static bool number_fits(const json_t *flat, long double x) {
    long double limit;
    if (is_number(json_object_get(flat, "minimum"), &limit) && x < limit) return false;
    if (is_number(json_object_get(flat, "maximum"), &limit) && x > limit) return false;
    if (is_number(json_object_get(flat, "exclusiveMinimum"), &limit) && x <= limit) return false;
    if (is_number(json_object_get(flat, "exclusiveMaximum"), &limit) && x >= limit) return false;
    return !is_number(json_object_get(flat, "multipleOf"), &limit) || fmodl(x, limit) == 0;
}

// ---- strings ----

static size_t n_characters(struct lp_str text) {
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) n += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return n;
}

// A value of its own grammar, so that a pattern means the same here as anywhere.
static bool matches(struct lp_schema *s, struct lp_str pattern, struct lp_str text) {
    struct lp_gb *b = lp_gb_new();
    struct lp_grammar *grammar = NULL;
    struct lp_regex regex = {0};
    struct lp_err err = {0};
    bool is_match = false;
    if (!b) return lp_gb_fail(s->b, LP_STATUS_MEMORY, "out of memory: a pattern"), false;
    b->deadline_ns = s->b->deadline_ns;
    lp_regex_parse(&regex, b, pattern, true, "\"pattern\"");
    lp_gb_rule start = lp_gb_declare(b, "pattern");
    lp_gb_define(b, start, lp_regex_emit(&regex, b, LP_REGEX_AS_TEXT));
    lp_status status = lp_gb_finish(b, start, NULL, &grammar, &err);
    if (status == LP_OK)
        is_match = lp_grammar_matches(grammar, text);
    else
        lp_schema_fail(s, status, "%s", err.text);
    lp_grammar_put(grammar);
    lp_regex_release(&regex);
    lp_gb_free(b);
    return is_match;
}

static bool string_fits(struct lp_schema *s, const json_t *flat, const json_t *value) {
    struct lp_str text = lp_jg_str(value);
    long double limit, n = n_characters(text);
    if (is_number(json_object_get(flat, "minLength"), &limit) && n < limit) return false;
    if (is_number(json_object_get(flat, "maxLength"), &limit) && n > limit) return false;
    const json_t *pattern = json_object_get(flat, "pattern");
    if (!pattern) return true;
    return lp_schema_spend(s, 100) && matches(s, lp_jg_str(pattern), text);
}

// ---- arrays and objects ----

static bool count_fits(const json_t *flat, const char *min, const char *max, size_t n) {
    long double limit;
    if (is_number(json_object_get(flat, min), &limit) && n < limit) return false;
    return !is_number(json_object_get(flat, max), &limit) || n <= limit;
}

static bool array_fits(struct lp_schema *s, const json_t *flat, const json_t *value) {
    const json_t *prefix = json_object_get(flat, "prefixItems");
    json_t *others = json_object_get(flat, "items"), *item;
    if (!count_fits(flat, "minItems", "maxItems", json_array_size(value))) return false;
    size_t i;
    json_array_foreach(value, i, item) {
        json_t *schema = json_array_get(prefix, i);
        if (!schema) schema = others;
        if (schema && !lp_schema_accepts(s, schema, item)) return false;
    }
    return true;
}

static bool object_fits(struct lp_schema *s, const json_t *flat, const json_t *value) {
    const json_t *properties = json_object_get(flat, "properties");
    json_t *others = json_object_get(flat, "additionalProperties"), *item;
    if (!count_fits(flat, "minProperties", "maxProperties", json_object_size(value))) return false;
    size_t i;
    json_array_foreach(json_object_get(flat, "required"), i, item) {
        if (!json_object_get(value, json_string_value(item))) return false;
    }
    const char *name;
    json_object_foreach((json_t *)value, name, item) {
        json_t *schema = json_object_get(properties, name);
        if (!schema) schema = others;
        if (schema && !lp_schema_accepts(s, schema, item)) return false;
    }
    return true;
}

// ---- the whole ----

bool lp_schema_fits_beside_enum(struct lp_schema *s, const json_t *flat, const json_t *value) {
    unsigned type = type_of(value);
    if (!lp_schema_spend(s, 1) || !(lp_schema_types(flat) & type)) return false;
    long double number;
    if (is_number(value, &number)) return number_fits(flat, number);
    if (type == LP_TYPE_STRING) return string_fits(s, flat, value);
    if (type == LP_TYPE_ARRAY) return array_fits(s, flat, value);
    return type != LP_TYPE_OBJECT || object_fits(s, flat, value);
}

static bool plain_accepts(struct lp_schema *s, const json_t *flat, const json_t *value) {
    const json_t *list = json_object_get(flat, "enum");
    bool is_listed = !list;
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) is_listed |= lp_schema_same_value(item, value);
    return is_listed && lp_schema_spend(s, json_array_size(list) / 64) &&
           lp_schema_fits_beside_enum(s, flat, value);
}

bool lp_schema_accepts(struct lp_schema *s, json_t *schema, const json_t *value) {
    json_t *flat = lp_schema_flatten(s, schema);
    if (!flat || json_is_false(flat)) return false;
    if (json_is_true(flat)) return true;
    const json_t *branches = json_object_get(flat, "anyOf");
    if (!branches) return plain_accepts(s, flat, value);
    size_t i;
    json_t *branch;
    json_array_foreach(branches, i, branch) if (lp_schema_accepts(s, branch, value)) return true;
    return false;
}
