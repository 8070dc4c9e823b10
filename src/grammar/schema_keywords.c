// The keywords of JSON Schema that are known: what form each must have, which types it is about.
#include "grammar/schema.h"

#include <math.h>
#include <string.h>

enum form {
    ANY,
    SCHEMA,
    SCHEMAS,    // a list, not empty
    SCHEMA_MAP, // by name
    COUNT,
    NUMBER,
    BOUND, // a number, or draft 4's true and false
    STRING,
    STRINGS,
    TYPES,
    VALUES, // a list, not empty
    BOOLEAN,
};

static const char *const form_names[] = {
    "anything",
    "a schema (an object, true or false)",
    "a list of schemas",
    "an object of schemas",
    "a whole number from 0",
    "a number",
    "a number",
    "a string",
    "a list of strings",
    "the name of a type or a list of such names",
    "a list of values",
    "true or false",
};

struct keyword {
    const char *name;
    enum form form;
    bool is_annotation;
    unsigned types; // that it is about; 0: not one in particular
};

static const struct keyword keywords[] = {
    {"type", TYPES, false, 0},
    {"enum", VALUES, false, 0},
    {"const", ANY, false, 0},
    {"nullable", BOOLEAN, false, 0},
    {"$ref", STRING, false, 0},
    {"allOf", SCHEMAS, false, 0},
    {"anyOf", SCHEMAS, false, 0},
    {"oneOf", SCHEMAS, false, 0},
    {"properties", SCHEMA_MAP, false, LP_TYPE_OBJECT},
    {"required", STRINGS, false, LP_TYPE_OBJECT},
    {"additionalProperties", SCHEMA, false, LP_TYPE_OBJECT},
    {"minProperties", COUNT, false, LP_TYPE_OBJECT},
    {"maxProperties", COUNT, false, LP_TYPE_OBJECT},
    {"items", SCHEMA, false, LP_TYPE_ARRAY},
    {"prefixItems", SCHEMAS, false, LP_TYPE_ARRAY},
    {"minItems", COUNT, false, LP_TYPE_ARRAY},
    {"maxItems", COUNT, false, LP_TYPE_ARRAY},
    {"minLength", COUNT, false, LP_TYPE_STRING},
    {"maxLength", COUNT, false, LP_TYPE_STRING},
    {"pattern", STRING, false, LP_TYPE_STRING},
    {"format", STRING, false, 0},
    {"minimum", NUMBER, false, LP_TYPE_NUMBER},
    {"maximum", NUMBER, false, LP_TYPE_NUMBER},
    {"exclusiveMinimum", BOUND, false, LP_TYPE_NUMBER},
    {"exclusiveMaximum", BOUND, false, LP_TYPE_NUMBER},
    {"multipleOf", NUMBER, false, LP_TYPE_NUMBER},
    {"title", ANY, true, 0},
    {"description", ANY, true, 0},
    {"default", ANY, true, 0},
    {"example", ANY, true, 0},
    {"examples", ANY, true, 0},
    {"deprecated", ANY, true, 0},
    {"readOnly", ANY, true, 0},
    {"writeOnly", ANY, true, 0},
    {"contentEncoding", ANY, true, 0},
    {"contentMediaType", ANY, true, 0},
    {"discriminator", ANY, true, 0},
    {"externalDocs", ANY, true, 0},
    {"xml", ANY, true, 0},
    {"$schema", ANY, true, 0},
    {"$id", ANY, true, 0},
    {"$comment", ANY, true, 0},
    {"$defs", ANY, true, 0},
    {"definitions", ANY, true, 0},
};

static const struct keyword *find(const char *name) {
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, name) == 0) return &keywords[i];
    return NULL;
}

// Not supported, but this value of it asks for nothing.
static bool is_harmless(const char *name, const json_t *value) {
    static const char *const if_false[] = {"uniqueItems"};
    static const char *const if_true[] = {"unevaluatedProperties", "unevaluatedItems",
                                          "propertyNames"};
    static const char *const if_empty[] = {"patternProperties", "dependentRequired",
                                           "dependentSchemas", "dependencies"};
    if (json_is_false(value)) return strcmp(name, if_false[0]) == 0;
    for (size_t i = 0; json_is_true(value) && i < 3; i++)
        if (strcmp(name, if_true[i]) == 0) return true;
    bool is_empty = json_is_object(value) && json_object_size(value) == 0;
    for (size_t i = 0; is_empty && i < 4; i++)
        if (strcmp(name, if_empty[i]) == 0) return true;
    return false;
}

bool lp_schema_is_annotation(const char *name) {
    const struct keyword *found = find(name);
    return !found || found->is_annotation;
}

// ---- forms ----

static unsigned type_bit(const json_t *name) {
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {{"null", LP_TYPE_NULL},       {"boolean", LP_TYPE_BOOLEAN},
                 {"integer", LP_TYPE_INTEGER}, {"number", LP_TYPE_NUMBER},
                 {"string", LP_TYPE_STRING},   {"array", LP_TYPE_ARRAY},
                 {"object", LP_TYPE_OBJECT}};
    for (size_t i = 0; json_is_string(name) && i < 7; i++)
        if (strcmp(json_string_value(name), types[i].name) == 0) return types[i].bits;
    return 0;
}

static bool is_schema(const json_t *value) {
    return json_is_object(value) || json_is_boolean(value);
}

static bool all_items(const json_t *list, bool (*good)(const json_t *), bool may_be_empty) {
    size_t i;
    json_t *item;
    if (!json_is_array(list) || (!may_be_empty && !json_array_size(list))) return false;
    json_array_foreach(list, i, item) {
        if (good && !good(item)) return false;
    }
    return true;
}

// Names of properties hold no NUL.
static bool is_name(const json_t *value) {
    return json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value);
}

static bool is_type(const json_t *value) {
    return type_bit(value) != 0;
}

static bool all_members_schemas(const json_t *value) {
    const char *name;
    json_t *member;
    if (!json_is_object(value)) return false;
    json_object_foreach((json_t *)value, name, member) if (!is_schema(member)) return false;
    return true;
}

static bool is_count(const json_t *value) {
    if (json_is_integer(value)) return json_integer_value(value) >= 0;
    double n = json_real_value(value);
    return json_is_real(value) && n >= 0 && n == floor(n);
}

static bool has_form(const json_t *value, enum form form) {
    switch (form) {
    case ANY:
        return true;
    case SCHEMA:
        return is_schema(value);
    case SCHEMAS:
        return all_items(value, is_schema, false);
    case SCHEMA_MAP:
        return all_members_schemas(value);
    case COUNT:
        return is_count(value);
    case NUMBER:
        return json_is_number(value);
    case BOUND:
        return json_is_number(value) || json_is_boolean(value);
    case STRING:
        return json_is_string(value);
    case STRINGS:
        return all_items(value, is_name, true);
    case TYPES:
        return is_type(value) || all_items(value, is_type, false);
    case VALUES:
        return all_items(value, NULL, false);
    case BOOLEAN:
        return json_is_boolean(value);
    }
    return false;
}

static bool check_one(struct lp_schema *s, const char *name, const json_t *value) {
    const struct keyword *found = find(name);
    if (!found) {
        if (strncmp(name, "x-", 2) == 0 || is_harmless(name, value)) return true;
        lp_schema_fail(s, LP_STATUS_UNSUPPORTED, "the keyword \"%.60s\" is not supported", name);
        return false;
    }
    if (strcmp(name, "items") == 0 && json_is_array(value)) {
        lp_schema_fail(s, LP_STATUS_UNSUPPORTED,
                       "a list as \"items\" is not supported; write it as \"prefixItems\"");
        return false;
    }
    if (has_form(value, found->form)) return true;
    lp_schema_fail(s, LP_STATUS_INVALID, "\"%s\" must be %s", name, form_names[found->form]);
    return false;
}

bool lp_schema_check(struct lp_schema *s, json_t *schema) {
    const char *name;
    json_t *value;
    json_object_foreach(schema, name, value) if (!check_one(s, name, value)) return false;
    return lp_schema_spend(s, 1 + json_object_size(schema));
}

// ---- what keywords say ----

unsigned lp_schema_types(const json_t *flat) {
    const json_t *type = json_object_get(flat, "type");
    if (!type) return LP_TYPE_ALL;
    unsigned bits = type_bit(type);
    size_t i;
    json_t *item;
    json_array_foreach(type, i, item) bits |= type_bit(item);
    return bits;
}

unsigned lp_schema_types_meant(const json_t *flat) {
    if (json_object_get(flat, "type")) return lp_schema_types(flat);
    unsigned meant = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)flat, name, value) {
        const struct keyword *found = find(name);
        if (found) meant |= found->types;
        if (found && strcmp(name, "format") == 0) meant |= LP_TYPE_STRING;
    }
    return meant ? meant : LP_TYPE_ALL;
}

int64_t lp_schema_count(struct lp_schema *s, const json_t *flat, const char *keyword,
                        int64_t none) {
    const json_t *value = json_object_get(flat, keyword);
    if (!value) return none;
    double n = json_number_value(value);
    if (n <= LP_GRAMMAR_MAX_REPEAT) return (int64_t)n;
    if (strncmp(keyword, "max", 3) == 0) return LP_GRAMMAR_MAX_REPEAT; // less than allowed is valid
    lp_schema_fail(s, LP_STATUS_LIMIT, "\"%s\" is %.0f, and at most %d can be held", keyword, n,
                   LP_GRAMMAR_MAX_REPEAT);
    return none;
}
