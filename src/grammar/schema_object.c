// Objects: which members there may be, with which values. Declared properties come in the order of
// the schema, those that are only required behind them, then any others.
#include "grammar/schema_object.h"

#include "grammar/node_list.h"
#include "grammar/other_names.h"

struct object {
    struct lp_schema *s;
    json_t *properties, *others; // of the schema; may be NULL
    struct lp_map required;      // names
    struct lp_members members;
    struct lp_str *names; // [n_names] that "others" must not have
    size_t n_names, names_capacity;
};

static bool fail_memory(struct object *o) {
    lp_gb_fail(o->s->b, LP_STATUS_MEMORY, "out of memory: the schema");
    return false;
}

static bool is_required(const struct object *o, const char *name) {
    return lp_map_get(&o->required, lp_str_from(name)) != LP_MAP_NONE;
}

// False: the object can never be valid, or the builder failed.
static bool add_member(struct object *o, const char *name, json_t *schema, const char *keyword) {
    struct lp_schema *s = o->s;
    size_t mark;
    if (!LP_GROW(o->names, o->names_capacity, o->n_names + 1)) return fail_memory(o);
    o->names[o->n_names++] = lp_str_from(name);
    lp_schema_enter(s, keyword, name, &mark);
    lp_gb_node value = schema ? lp_schema_emit(s, schema) : lp_jg_use(s->jg, LP_JG_VALUE);
    lp_schema_leave(s, mark);
    if (value == LP_SCHEMA_NEVER) return !is_required(o, name); // an optional one is left out
    struct lp_member member = {.is_required = is_required(o, name),
                               .node = lp_jg_member(s->jg, lp_str_from(name), value)};
    struct lp_members *all = &o->members;
    if (!LP_GROW(all->items, all->capacity, all->n + 1)) return fail_memory(o);
    all->items[all->n++] = member;
    return !lp_gb_failed(s->b);
}

static bool read_required(struct object *o, const json_t *list) {
    size_t i;
    json_t *name;
    json_array_foreach(list, i, name) {
        if (!lp_map_add(&o->required, lp_jg_str(name), (uint32_t)i, NULL)) return fail_memory(o);
    }
    return true;
}

// Required, but not declared: values as "additionalProperties" says.
static bool add_undeclared(struct object *o, const json_t *list) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        const char *name = json_string_value(item);
        bool is_first = lp_map_get(&o->required, lp_str_from(name)) == i;
        if (!is_first || json_object_get(o->properties, name)) continue;
        if (!add_member(o, name, o->others, "required")) return false;
    }
    return true;
}

static bool add_declared(struct object *o) {
    const char *name;
    json_t *schema;
    json_object_foreach(o->properties, name, schema) {
        if (!add_member(o, name, schema, "properties")) return false;
    }
    return true;
}

static void add_others(struct object *o) {
    struct lp_schema *s = o->s;
    size_t mark;
    if (json_is_false(o->others) || o->members.max == 0) return;
    lp_schema_enter(s, "additionalProperties", NULL, &mark);
    lp_gb_node value = o->others ? lp_schema_emit(s, o->others) : lp_jg_use(s->jg, LP_JG_VALUE);
    lp_schema_leave(s, mark);
    if (value == LP_SCHEMA_NEVER || lp_gb_failed(s->b)) return;
    lp_gb_node name = lp_other_names(s->jg, o->names, o->n_names);
    lp_gb_node node =
        LP_GB_SEQ(s->b, name, lp_gb_word(s->b, ":"), lp_jg_use(s->jg, LP_JG_SPACE), value);
    o->members.has_others = true;
    o->members.other = lp_gb_declare(s->b, "other member");
    lp_gb_define(s->b, o->members.other, node);
}

lp_gb_node lp_schema_object(struct lp_schema *s, json_t *flat) {
    struct object o = {.s = s,
                       .properties = json_object_get(flat, "properties"),
                       .others = json_object_get(flat, "additionalProperties"),
                       .members = {.min = lp_schema_count(s, flat, "minProperties", 0),
                                   .max = lp_schema_count(s, flat, "maxProperties", -1)}};
    const json_t *required = json_object_get(flat, "required");
    if (!o.properties && !required && !o.others && !o.members.min && o.members.max < 0)
        return lp_jg_use(s->jg, LP_JG_OBJECT);
    lp_gb_node node = LP_SCHEMA_NEVER;
    if (read_required(&o, required) && add_declared(&o) && add_undeclared(&o, required)) {
        add_others(&o);
        node = lp_schema_members(s, &o.members);
    } else if (!lp_gb_failed(s->b)) {
        lp_schema_never(s, "a required property can have no value");
    }
    lp_map_release(&o.required);
    lp_free(o.members.items);
    lp_free(o.names);
    return lp_gb_failed(s->b) ? 0 : node;
}
