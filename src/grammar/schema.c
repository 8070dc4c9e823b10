// JSON Schema to grammar: the walk over a schema, and its rules.
#include "grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>

#include "grammar/node_list.h"

#define MAX_PATH_BYTES 400 // what a rule remembers of where it came from

// ---- where we are ----

void lp_schema_enter(struct lp_schema *s, const char *keyword, const char *name, size_t *mark) {
    *mark = s->path.len;
    lp_bytes_printf(&s->path, "/%s", keyword);
    if (!name) return;
    lp_bytes_puts(&s->path, "/");
    for (const char *c = name; *c; c++) {
        if (*c == '~')
            lp_bytes_puts(&s->path, "~0");
        else if (*c == '/')
            lp_bytes_puts(&s->path, "~1");
        else
            lp_bytes_append(&s->path, c, 1);
    }
}

void lp_schema_enter_item(struct lp_schema *s, const char *keyword, size_t i, size_t *mark) {
    *mark = s->path.len;
    lp_bytes_printf(&s->path, "/%s/%zu", keyword, i);
}

void lp_schema_leave(struct lp_schema *s, size_t mark) {
    s->path.len = mark;
    if (s->path.data) s->path.data[mark] = 0;
}

static const char *path_of(const struct lp_schema *s) {
    return s->path.data ? s->path.data : "";
}

lp_gb_node lp_schema_fail(struct lp_schema *s, lp_status status, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lp_gb_fail(s->b, status, "%s, #%.200s: %s", s->what, path_of(s), text);
}

lp_gb_node lp_schema_never(struct lp_schema *s, const char *format, ...) {
    if (lp_gb_failed(s->b)) return 0;
    if (!s->never[0]) {
        int n = snprintf(s->never, sizeof s->never, "#%.150s: ", path_of(s));
        va_list args;
        va_start(args, format);
        vsnprintf(s->never + n, sizeof s->never - (size_t)n, format, args);
        va_end(args);
    }
    return LP_SCHEMA_NEVER;
}

lp_gb_node lp_schema_fail_never(struct lp_schema *s) {
    return lp_gb_fail(s->b, LP_STATUS_INVALID, "%s: no value is valid (%s)", s->what, s->never);
}

bool lp_schema_spend(struct lp_schema *s, size_t work) {
    s->work += work;
    if (s->work > LP_SCHEMA_MAX_WORK)
        lp_schema_fail(s, LP_STATUS_LIMIT,
                       "the schema is too large once its references and combinations are worked "
                       "out (over %d keywords)",
                       LP_SCHEMA_MAX_WORK);
    return !lp_gb_failed(s->b);
}

json_t *lp_schema_keep(struct lp_schema *s, json_t *made) {
    if (made && !lp_gb_failed(s->b) && json_array_append_new(s->kept, made) == 0) return made;
    json_decref(made);
    lp_gb_fail(s->b, LP_STATUS_MEMORY, "out of memory: the schema");
    return NULL;
}

// ---- rules ----

static struct lp_str address_of(struct lp_schema_rule *rule) {
    return (struct lp_str){(const char *)&rule->schema, sizeof rule->schema};
}

static struct lp_schema_rule *new_rule(struct lp_schema *s, json_t *schema, const char *path) {
    struct lp_schema_rule *rule = lp_arena_alloc(&s->arena, 1, sizeof *rule);
    char *copy = lp_arena_strndup(&s->arena, path, strnlen(path, MAX_PATH_BYTES));
    if (!rule || !copy || !LP_GROW(s->rules, s->rules_capacity, s->n_rules + 1)) {
        lp_gb_fail(s->b, LP_STATUS_MEMORY, "out of memory: the schema");
        return NULL;
    }
    *rule = (struct lp_schema_rule){schema, 0, copy};
    if (!lp_map_add(&s->rule_of, address_of(rule), (uint32_t)s->n_rules, NULL)) {
        lp_gb_fail(s->b, LP_STATUS_MEMORY, "out of memory: the schema");
        return NULL;
    }
    char name[80];
    snprintf(name, sizeof name, "#%.70s", copy);
    rule->rule = lp_gb_declare(s->b, name);
    s->rules[s->n_rules++] = rule;
    return rule;
}

// The rule of a schema, which is made later.
static lp_gb_node use_rule(struct lp_schema *s, json_t *schema, const char *path) {
    uint32_t found = lp_map_get(&s->rule_of, (struct lp_str){(const char *)&schema, sizeof schema});
    if (found != LP_MAP_NONE) return lp_gb_use(s->b, s->rules[found]->rule);
    if (s->n_rules >= LP_SCHEMA_MAX_RULES)
        return lp_schema_fail(s, LP_STATUS_LIMIT, "more than %d references", LP_SCHEMA_MAX_RULES);
    struct lp_schema_rule *rule = new_rule(s, schema, path);
    return rule ? lp_gb_use(s->b, rule->rule) : 0;
}

static lp_gb_node emit_inline(struct lp_schema *s, json_t *schema);

void lp_schema_make_rules(struct lp_schema *s) {
    for (; s->n_made < s->n_rules && !lp_gb_failed(s->b); s->n_made++) {
        struct lp_schema_rule *rule = s->rules[s->n_made];
        lp_schema_leave(s, 0);
        lp_bytes_puts(&s->path, rule->path);
        s->depth = 0;
        lp_gb_node node = emit_inline(s, rule->schema);
        lp_gb_define(s->b, rule->rule, node == LP_SCHEMA_NEVER ? lp_gb_never(s->b) : node);
    }
}

// ---- the walk ----

static lp_gb_node emit_values(struct lp_schema *s, json_t *flat) {
    struct lp_gb_list list = {0};
    size_t i;
    json_t *value;
    json_array_foreach(json_object_get(flat, "enum"), i, value) {
        if (lp_gb_failed(s->b) || !lp_schema_fits_beside_enum(s, flat, value)) continue;
        if (json_is_real(value) && s->integers_as_doubles &&
            !(json_real_value(value) < 0x1p53 && json_real_value(value) > -0x1p53))
            lp_schema_fail(s, LP_STATUS_UNSUPPORTED,
                           "an integer of more than 64 bits as a value is not supported");
        lp_gb_list_add(s->b, &list, lp_jg_literal(s->jg, value));
    }
    if (list.n) return lp_gb_list_choice(s->b, &list);
    lp_free(list.items);
    return lp_schema_never(s, "no value of \"enum\" or \"const\" fits the other keywords");
}

static lp_gb_node emit_type(struct lp_schema *s, json_t *flat, unsigned type) {
    switch (type) {
    case LP_TYPE_NULL:
        return lp_gb_word(s->b, "null");
    case LP_TYPE_BOOLEAN:
        return lp_jg_use(s->jg, LP_JG_BOOLEAN);
    case LP_TYPE_INTEGER:
        return lp_schema_number(s, flat, true);
    case LP_TYPE_FRACTION:
        return lp_schema_number(s, flat, false);
    case LP_TYPE_STRING:
        return lp_schema_string(s, flat);
    case LP_TYPE_ARRAY:
        return lp_schema_array(s, flat);
    default:
        return lp_schema_object(s, flat);
    }
}

static lp_gb_node emit_plain(struct lp_schema *s, json_t *flat) {
    if (json_object_get(flat, "enum")) return emit_values(s, flat);
    struct lp_gb_list list = {0};
    unsigned types = lp_schema_types_meant(flat);
    if (types & LP_TYPE_FRACTION) types &= ~(unsigned)LP_TYPE_INTEGER; // a number may be whole
    for (unsigned type = 1; type < LP_TYPE_ALL; type <<= 1) {
        if (!(types & type) || lp_gb_failed(s->b)) continue;
        lp_gb_node node = emit_type(s, flat, type);
        if (node != LP_SCHEMA_NEVER) lp_gb_list_add(s->b, &list, node);
    }
    if (list.n) return lp_gb_list_choice(s->b, &list);
    lp_free(list.items);
    return lp_schema_never(s, "nothing is left of it");
}

static lp_gb_node emit_any_of(struct lp_schema *s, json_t *branches) {
    struct lp_gb_list list = {0};
    size_t i, mark;
    json_t *branch;
    json_array_foreach(branches, i, branch) {
        if (lp_gb_failed(s->b)) break;
        lp_schema_enter_item(s, "anyOf", i, &mark);
        lp_gb_node node = lp_schema_emit(s, branch);
        lp_schema_leave(s, mark);
        if (node != LP_SCHEMA_NEVER) lp_gb_list_add(s->b, &list, node);
    }
    if (list.n) return lp_gb_list_choice(s->b, &list);
    lp_free(list.items);
    return lp_schema_never(s, "no branch can be fulfilled");
}

static lp_gb_node emit_inline(struct lp_schema *s, json_t *schema) {
    json_t *flat = lp_schema_flatten(s, schema);
    if (!flat) return 0;
    if (json_is_false(flat)) return lp_schema_never(s, "it allows no value");
    if (json_is_true(flat) || json_object_size(flat) == 0) return lp_jg_use(s->jg, LP_JG_VALUE);
    json_t *branches = json_object_get(flat, "anyOf");
    return branches ? emit_any_of(s, branches) : emit_plain(s, flat);
}

// Is there nothing beside "$ref" that has an effect?
static bool is_only_reference(const json_t *schema) {
    const char *name;
    json_t *value;
    if (!json_object_get(schema, "$ref")) return false;
    json_object_foreach((json_t *)schema, name, value) {
        if (strcmp(name, "$ref") != 0 && !lp_schema_is_annotation(name)) return false;
    }
    return true;
}

lp_gb_node lp_schema_emit(struct lp_schema *s, json_t *schema) {
    if (lp_gb_failed(s->b)) return 0;
    if (s->depth >= LP_SCHEMA_MAX_DEPTH)
        return lp_schema_fail(s, LP_STATUS_LIMIT, "schemas nested deeper than %d",
                              LP_SCHEMA_MAX_DEPTH);
    const json_t *ref = json_object_get(schema, "$ref");
    if (is_only_reference(schema) && json_is_string(ref)) {
        if (!lp_schema_check(s, schema)) return 0;
        json_t *target = lp_schema_refer(s, json_string_value(ref));
        return target ? use_rule(s, target, json_string_value(ref) + 1) : 0;
    }
    // The same schema may come back inside what it refers to.
    if (ref || json_object_get(schema, "allOf")) return use_rule(s, schema, path_of(s));
    s->depth++;
    lp_gb_node node = emit_inline(s, schema);
    s->depth--;
    return node;
}

// ---- the whole ----

json_t *lp_schema_load(struct lp_gb *b, struct lp_str source, const char *what, bool *as_doubles) {
    const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY;
    json_error_t error;
    *as_doubles = false;
    if (source.len > LP_GRAMMAR_MAX_SOURCE) {
        lp_gb_fail(b, LP_STATUS_LIMIT, "%s: longer than %zu bytes", what, LP_GRAMMAR_MAX_SOURCE);
        return NULL;
    }
    const char *data = source.data ? source.data : "";
    json_t *root = json_loadb(data, source.len, flags, &error);
    if (!root && json_error_code(&error) == json_error_numeric_overflow) {
        *as_doubles = true;
        root = json_loadb(data, source.len, flags | JSON_DECODE_INT_AS_REAL, &error);
    }
    if (root) return root;
    if (json_error_code(&error) == json_error_out_of_memory)
        lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: %s", what);
    else
        lp_gb_fail(b, LP_STATUS_INVALID, "%s: it is no JSON (line %d, column %d: %s)", what,
                   error.line, error.column, error.text);
    return NULL;
}

bool lp_schema_init(struct lp_schema *s, struct lp_jg *jg, json_t *root, bool as_doubles,
                    const char *what) {
    *s = (struct lp_schema){
        .b = jg->b, .jg = jg, .root = root, .what = what, .integers_as_doubles = as_doubles};
    s->kept = json_array();
    if (!s->kept) lp_gb_fail(s->b, LP_STATUS_MEMORY, "out of memory: the schema");
    return s->kept != NULL;
}

void lp_schema_release(struct lp_schema *s) {
    lp_free(s->rules);
    lp_map_release(&s->rule_of);
    lp_arena_release(&s->arena);
    lp_bytes_release(&s->path);
    json_decref(s->kept);
    *s = (struct lp_schema){0};
}

lp_gb_node lp_grammar_from_schema(struct lp_gb *b, struct lp_str source) {
    static const char what[] = "JSON schema";
    struct lp_jg jg;
    lp_jg_init(&jg, b);
    struct lp_schema s;
    bool as_doubles;
    json_t *root = lp_schema_load(b, source, what, &as_doubles);
    if (!root) return 0;
    lp_gb_node node = 0;
    if (lp_schema_init(&s, &jg, root, as_doubles, what)) {
        node = emit_inline(&s, root); // no rule, so that it is known whether it can be fulfilled
        lp_schema_make_rules(&s);
        if (node == LP_SCHEMA_NEVER) node = lp_schema_fail_never(&s);
    }
    lp_schema_release(&s);
    json_decref(root);
    return node;
}
