// From the text of a value to JSON, by what the tool's schema allows there.
#include "text/reply_value.h"

#include "text/reply.h"
#include "text/reply_json.h"

#define MAX_SCHEMA_DEPTH 16

static unsigned types_of(const json_t *schema, int depth);

static unsigned type_named(const char *name) {
    static const struct {
        const char *name;
        unsigned types;
    } rows[] = {{"string", LP_VALUE_STRING},
                {"integer", LP_VALUE_INTEGER},
                {"number", LP_VALUE_INTEGER | LP_VALUE_NUMBER},
                {"boolean", LP_VALUE_BOOLEAN},
                {"null", LP_VALUE_NULL},
                {"object", LP_VALUE_OBJECT},
                {"array", LP_VALUE_ARRAY}};
    for (size_t i = 0; name && i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(name, rows[i].name)) return rows[i].types;
    return LP_VALUE_ANY;
}

static unsigned type_of_json(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_STRING:
        return LP_VALUE_STRING;
    case JSON_INTEGER:
        return LP_VALUE_INTEGER;
    case JSON_REAL:
        return LP_VALUE_INTEGER | LP_VALUE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return LP_VALUE_BOOLEAN;
    case JSON_NULL:
        return LP_VALUE_NULL;
    case JSON_OBJECT:
        return LP_VALUE_OBJECT;
    case JSON_ARRAY:
        return LP_VALUE_ARRAY;
    }
    return LP_VALUE_ANY;
}

static unsigned types_of_list(const json_t *list, int depth, bool all) {
    if (!json_array_size(list)) return LP_VALUE_ANY;
    unsigned types = all ? LP_VALUE_ANY : 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        unsigned one = types_of(json_array_get(list, i), depth + 1);
        types = all ? types & one : types | one;
    }
    return types;
}

static unsigned types_of_enum(const json_t *values) {
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(values); i++)
        types |= type_of_json(json_array_get(values, i));
    return types ? types : LP_VALUE_ANY;
}

static unsigned types_of_type(const json_t *type) {
    if (!json_is_array(type)) return type_named(json_string_value(type));
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_named(json_string_value(json_array_get(type, i)));
    return types ? types : LP_VALUE_ANY;
}

static unsigned types_of(const json_t *schema, int depth) {
    if (!json_is_object(schema) || depth > MAX_SCHEMA_DEPTH) return LP_VALUE_ANY;
    const json_t *constant = json_object_get(schema, "const");
    unsigned types = types_of_type(json_object_get(schema, "type"));
    if (types != LP_VALUE_ANY && json_is_true(json_object_get(schema, "nullable")))
        types |= LP_VALUE_NULL;
    types &= types_of_enum(json_object_get(schema, "enum"));
    if (constant) types &= type_of_json(constant);
    types &= types_of_list(json_object_get(schema, "anyOf"), depth, false);
    types &= types_of_list(json_object_get(schema, "oneOf"), depth, false);
    types &= types_of_list(json_object_get(schema, "allOf"), depth, true);
    return types ? types : LP_VALUE_ANY; // a schema that nothing meets says nothing
}

unsigned lp_reply_value_types(const json_t *schema) {
    return types_of(schema, 0);
}

// Of valid JSON.
static unsigned type_of_text(struct lp_str text) {
    switch (text.data[0]) {
    case '"':
        return LP_VALUE_STRING;
    case '{':
        return LP_VALUE_OBJECT;
    case '[':
        return LP_VALUE_ARRAY;
    case 't':
    case 'f':
        return LP_VALUE_BOOLEAN;
    case 'n':
        return LP_VALUE_NULL;
    default:
        for (size_t i = 0; i < text.len; i++)
            if (strchr(".eE", text.data[i])) return LP_VALUE_NUMBER;
        return LP_VALUE_INTEGER;
    }
}

// Is the text to be taken as the JSON that it is (n_repairs: -1 if it is none)?
static bool takes_json(struct lp_str json, int n_repairs, unsigned types) {
    if (n_repairs < 0) return false;
    if (!(types & LP_VALUE_STRING)) return true;
    if (n_repairs) return false;
    unsigned type = type_of_text(json);
    return types == LP_VALUE_ANY || (type != LP_VALUE_STRING && type & types);
}

bool lp_reply_value_write(struct lp_bytes *out, struct lp_str text, unsigned types,
                          bool *repaired) {
    struct lp_bytes json = {0};
    struct lp_str inner = text;
    while (inner.len && strchr(" \t\r\n", inner.data[0]) && inner.data[0])
        inner.data++, inner.len--;
    int n_repairs = -1;
    bool ok =
        types == LP_VALUE_STRING || !inner.len || lp_reply_json_whole(inner, &json, &n_repairs);
    *repaired = n_repairs != 0 && !(types & LP_VALUE_STRING);
    if (!ok) {
        lp_bytes_release(&json);
        return false;
    }
    if (takes_json(lp_bytes_view(&json), n_repairs, types)) {
        lp_bytes_append(out, json.data, json.len);
    } else {
        lp_bytes_puts(out, "\"");
        lp_reply_json_escape(out, text);
        lp_bytes_puts(out, "\"");
    }
    lp_bytes_release(&json);
    return !out->failed;
}

json_t *lp_reply_typed_value(struct lp_str text, const json_t *schema) {
    struct lp_bytes out = {0};
    bool repaired;
    json_t *value = NULL;
    if (lp_reply_value_write(&out, text, lp_reply_value_types(schema), &repaired)) {
        const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
        value = json_loadb(out.data, out.len, flags, NULL);
        if (!value) value = json_loadb(out.data, out.len, flags | JSON_DECODE_INT_AS_REAL, NULL);
        // What jansson cannot hold: a number past a double, a zero byte in a key.
        if (!value) value = json_stringn(text.data, text.len);
    }
    lp_bytes_release(&out);
    return value;
}
