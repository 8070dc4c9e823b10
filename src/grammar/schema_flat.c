// Flattening: $ref, allOf, anyOf and oneOf are worked in, until a schema is true, false,
// {"anyOf": [...]} alone, or plain keywords without annotations.
#include "grammar/schema.h"

#include <stdlib.h>
#include <string.h>

// ---- references ----

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// One step of a JSON pointer, unescaped (~0, ~1, %XX), into `out`; *at: behind it.
static void read_step(const char **at, struct lp_bytes *out) {
    lp_bytes_clear(out);
    for (; **at && **at != '/'; (*at)++) {
        const char *c = *at;
        if (c[0] == '~' && (c[1] == '0' || c[1] == '1')) {
            lp_bytes_append(out, c[1] == '0' ? "~" : "/", 1);
            (*at)++;
        } else if (c[0] == '%' && hex_digit(c[1]) >= 0 && hex_digit(c[2]) >= 0) {
            lp_bytes_append(out, (char[]){(char)(hex_digit(c[1]) * 16 + hex_digit(c[2]))}, 1);
            *at += 2;
        } else {
            lp_bytes_append(out, c, 1);
        }
    }
}

static json_t *step_into(json_t *value, const struct lp_bytes *step) {
    const char *name = step->data ? step->data : "";
    if (json_is_object(value)) return json_object_get(value, name);
    if (!json_is_array(value) || !step->len || step->len > 9) return NULL;
    if (strspn(name, "0123456789") != step->len) return NULL;
    return json_array_get(value, strtoul(name, NULL, 10));
}

json_t *lp_schema_refer(struct lp_schema *s, const char *ref) {
    if (ref[0] != '#' || (ref[1] && ref[1] != '/')) {
        lp_schema_fail(s, LP_STATUS_UNSUPPORTED,
                       "\"$ref\" to \"%.100s\" is not supported: only \"#\" and \"#/...\" are",
                       ref);
        return NULL;
    }
    json_t *found = s->root;
    struct lp_bytes step = {0};
    for (const char *at = ref + 1; found && *at == '/';) {
        at++;
        read_step(&at, &step);
        found = step.failed ? NULL : step_into(found, &step);
    }
    if (step.failed)
        lp_gb_fail(s->b, LP_STATUS_MEMORY, "out of memory: the schema");
    else if (!found || !(json_is_object(found) || json_is_boolean(found)))
        lp_schema_fail(s, LP_STATUS_INVALID, "\"$ref\" to \"%.100s\": there is no schema", ref);
    lp_bytes_release(&step);
    return lp_gb_failed(s->b) ? NULL : found;
}

// ---- plain keywords ----

static bool set(json_t *object, const char *name, json_t *value) {
    return json_object_set(object, name, value) == 0;
}

// OpenAPI's "nullable" next to "type": one type more.
static bool add_null_type(json_t *plain) {
    json_t *type = json_object_get(plain, "type");
    json_t *list = json_is_array(type) ? json_copy(type) : json_pack("[O]", type);
    bool good = list && json_array_append_new(list, json_string("null")) == 0;
    return json_object_set_new(plain, "type", list) == 0 && good;
}

// Draft 4: true makes the bound an exclusive one.
static bool mend_bound(json_t *plain, const char *exclusive, const char *bound) {
    json_t *flag = json_object_get(plain, exclusive), *value = json_object_get(plain, bound);
    if (!json_is_boolean(flag)) return true;
    bool is_true = json_is_true(flag);
    json_object_del(plain, exclusive);
    if (!is_true || !value) return true;
    return set(plain, exclusive, value) && json_object_del(plain, bound) == 0;
}

// "const" becomes an "enum" of one, or of none where an "enum" beside it does not have the value.
static bool mend_const(json_t *plain) {
    json_t *value = json_object_get(plain, "const");
    if (!value) return true;
    const json_t *list = json_object_get(plain, "enum");
    json_t *one = json_array();
    bool is_listed = !list;
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) is_listed |= lp_schema_same_value(item, value);
    bool good = one && (!is_listed || json_array_append(one, value) == 0);
    json_object_del(plain, "const");
    return json_object_set_new(plain, "enum", one) == 0 && good;
}

static bool is_combining(const char *name) {
    static const char *const names[] = {"$ref", "allOf", "anyOf", "oneOf", "nullable"};
    for (size_t i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

// What stands beside the combining keywords; a new reference.
static json_t *plain_part(struct lp_schema *s, json_t *schema) {
    json_t *plain = json_object();
    const char *name;
    json_t *value;
    bool good = plain != NULL;
    json_object_foreach(schema, name, value) {
        if (good && !is_combining(name) && !lp_schema_is_annotation(name))
            good = set(plain, name, value);
    }
    if (json_is_true(json_object_get(schema, "nullable")) && json_object_get(plain, "type"))
        good = good && add_null_type(plain);
    good = good && mend_bound(plain, "exclusiveMinimum", "minimum") &&
           mend_bound(plain, "exclusiveMaximum", "maximum") && mend_const(plain);
    if (good) return plain;
    json_decref(plain);
    lp_gb_fail(s->b, LP_STATUS_MEMORY, "out of memory: the schema");
    return NULL;
}

// ---- working in ----

// Replaces *flat (kept elsewhere) by itself and `other` together.
static bool work_in(struct lp_schema *s, json_t **flat, json_t *other) {
    if (!other) return false;
    json_t *merged = lp_schema_merge(s, *flat, other);
    *flat = merged ? lp_schema_keep(s, merged) : NULL;
    return *flat != NULL;
}

static json_t *any_of(struct lp_schema *s, json_t *branches) {
    return lp_schema_keep(s, json_pack("{s:O}", "anyOf", branches));
}

// oneOf is anyOf where no two branches can be valid at once.
static bool check_one_of(struct lp_schema *s, json_t *branches) {
    size_t n = json_array_size(branches);
    json_t **flat = lp_alloc(n, sizeof *flat);
    bool good = flat != NULL;
    if (!flat) lp_gb_fail(s->b, LP_STATUS_MEMORY, "out of memory: the schema");
    for (size_t i = 0; good && i < n; i++)
        good = (flat[i] = lp_schema_flatten(s, json_array_get(branches, i))) != NULL;
    for (size_t i = 0; good && i < n; i++)
        for (size_t k = 0; good && k < i; k++) {
            good = lp_schema_are_apart(s, flat[k], flat[i], 0);
            if (!good)
                lp_schema_fail(s, LP_STATUS_UNSUPPORTED,
                               "\"oneOf\" is supported only where its branches cannot be valid at "
                               "once, which branches %zu and %zu may be; if it does not matter, "
                               "write \"anyOf\"",
                               k, i);
        }
    lp_free(flat);
    return good && !lp_gb_failed(s->b);
}

static bool work_in_all_of(struct lp_schema *s, json_t **flat, json_t *list) {
    size_t i, mark;
    json_t *item;
    json_array_foreach(list, i, item) {
        lp_schema_enter_item(s, "allOf", i, &mark);
        bool good = work_in(s, flat, lp_schema_flatten(s, item));
        lp_schema_leave(s, mark);
        if (!good) return false;
    }
    return true;
}

static json_t *combine(struct lp_schema *s, json_t *schema, json_t *plain) {
    json_t *flat = plain;
    const json_t *ref = json_object_get(schema, "$ref");
    json_t *any = json_object_get(schema, "anyOf"), *one = json_object_get(schema, "oneOf");
    if (ref) {
        size_t mark;
        json_t *target = lp_schema_refer(s, json_string_value(ref));
        lp_schema_enter(s, "$ref", NULL, &mark);
        bool good = target && work_in(s, &flat, lp_schema_flatten(s, target));
        lp_schema_leave(s, mark);
        if (!good) return NULL;
    }
    if (!work_in_all_of(s, &flat, json_object_get(schema, "allOf"))) return NULL;
    if (any && !work_in(s, &flat, any_of(s, any))) return NULL;
    if (one && (!check_one_of(s, one) || !work_in(s, &flat, any_of(s, one)))) return NULL;
    if (json_is_true(json_object_get(schema, "nullable")) && !json_object_get(schema, "type")) {
        json_t *with_null = json_pack("{s:[{s:s}O]}", "anyOf", "type", "null", flat);
        flat = lp_schema_keep(s, with_null);
    }
    return flat;
}

json_t *lp_schema_flatten(struct lp_schema *s, json_t *schema) {
    if (lp_gb_failed(s->b)) return NULL;
    if (json_is_boolean(schema)) return schema;
    if (!json_is_object(schema)) {
        lp_schema_fail(s, LP_STATUS_INVALID, "a schema must be an object, true or false");
        return NULL;
    }
    if (s->depth >= LP_SCHEMA_MAX_DEPTH) {
        lp_schema_fail(s, LP_STATUS_LIMIT, "schemas nested deeper than %d, or a circle of \"$ref\"",
                       LP_SCHEMA_MAX_DEPTH);
        return NULL;
    }
    if (!lp_schema_check(s, schema)) return NULL;
    json_t *plain = plain_part(s, schema);
    if (!plain || !(plain = lp_schema_keep(s, plain))) return NULL;
    s->depth++;
    json_t *flat = combine(s, schema, plain);
    s->depth--;
    return flat;
}
