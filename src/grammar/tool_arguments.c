// Arguments of a tool call: as JSON, or as pairs of a key and a value whose strings are bare text.
#include "grammar/tool_arguments.h"

#include "grammar/node_list.h"

lp_gb_node lp_tool_json(const struct lp_tool *tool, struct lp_jg *jg) {
    if (tool->is_open) return lp_jg_use(jg, LP_JG_OBJECT);
    struct lp_schema s;
    lp_gb_node node = 0;
    if (lp_schema_init(&s, jg, tool->parameters, tool->as_doubles, tool->what)) {
        node = lp_schema_emit(&s, tool->parameters);
        lp_schema_make_rules(&s);
        if (node == LP_SCHEMA_NEVER) node = lp_schema_fail_never(&s);
    }
    lp_schema_release(&s);
    return node;
}

// ---- values ----

struct values {
    struct lp_schema *s;
    const struct lp_tool_pairs *pairs;
    struct lp_gb_list text, json; // the ways of writing one parameter's value
    bool is_free;                 // any text is among them
};

static void add_text(struct values *v, lp_gb_node node) {
    if (node != LP_SCHEMA_NEVER) lp_gb_list_add(v->s->b, &v->text, node);
}

static void add_any_text(struct values *v) {
    if (!v->is_free) add_text(v, lp_gb_use(v->s->b, v->pairs->text));
    v->is_free = true;
}

static void add_listed(struct values *v, json_t *flat) {
    size_t i;
    json_t *value;
    json_array_foreach(json_object_get(flat, "enum"), i, value) {
        if (!lp_schema_fits_beside_enum(v->s, flat, value)) continue;
        struct lp_str text = lp_jg_str(value);
        if (!json_is_string(value))
            lp_gb_list_add(v->s->b, &v->json, lp_jg_literal(v->s->jg, value));
        else if (!text.len || !memchr(text.data, '<', text.len))
            add_text(v, lp_gb_text(v->s->b, text));
    }
}

static void add_strings(struct values *v, json_t *flat) {
    lp_gb_node any = lp_gb_use(v->s->b, v->pairs->text);
    lp_gb_node node = lp_schema_string_text(v->s, flat, any);
    v->is_free |= node == any;
    add_text(v, node);
}

// The types of a schema other than string.
static void add_json(struct values *v, json_t *flat, unsigned types) {
    json_t *copy = json_copy(flat), *list = json_array();
    static const struct {
        unsigned bits;
        const char *name;
    } names[] = {{LP_TYPE_NULL, "null"},
                 {LP_TYPE_BOOLEAN, "boolean"},
                 {LP_TYPE_NUMBER, "number"},
                 {LP_TYPE_ARRAY, "array"},
                 {LP_TYPE_OBJECT, "object"}};
    bool good = copy && list;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((types & names[i].bits) == names[i].bits)
            good = good && json_array_append_new(list, json_string(names[i].name)) == 0;
    if ((types & LP_TYPE_NUMBER) == LP_TYPE_INTEGER)
        good = good && json_array_append_new(list, json_string("integer")) == 0;
    if (json_object_set_new(copy, "type", list)) good = false;
    if (!good) lp_gb_fail(v->s->b, LP_STATUS_MEMORY, "out of memory: the schema");
    json_t *kept = lp_schema_keep(v->s, copy);
    lp_gb_node node = kept ? lp_schema_emit(v->s, kept) : 0;
    if (node != LP_SCHEMA_NEVER) lp_gb_list_add(v->s->b, &v->json, node);
}

static void add_values(struct values *v, json_t *schema) {
    json_t *flat = lp_schema_flatten(v->s, schema), *branch;
    if (!flat || json_is_false(flat)) return;
    if (json_is_true(flat) || json_object_size(flat) == 0) {
        add_any_text(v);
        if (!v->pairs->text_is_any)
            lp_gb_list_add(v->s->b, &v->json, lp_jg_use(v->s->jg, LP_JG_VALUE));
        return;
    }
    size_t i;
    json_array_foreach(json_object_get(flat, "anyOf"), i, branch) {
        if (v->s->depth++ < LP_SCHEMA_MAX_DEPTH) add_values(v, branch);
        v->s->depth--;
    }
    if (json_object_get(flat, "anyOf")) return;
    if (json_object_get(flat, "enum")) {
        add_listed(v, flat);
        return;
    }
    unsigned types = lp_schema_types_meant(flat);
    if (types & LP_TYPE_STRING) add_strings(v, flat);
    if (types & ~(unsigned)LP_TYPE_STRING) add_json(v, flat, types & ~(unsigned)LP_TYPE_STRING);
}

// ---- pairs ----

// The pair of one parameter, or LP_SCHEMA_NEVER.
static lp_gb_node emit_pair(struct lp_schema *s, const struct lp_tool_pairs *pairs, const char *key,
                            json_t *schema) {
    struct values v = {.s = s, .pairs = pairs};
    size_t mark;
    lp_schema_enter(s, "properties", key, &mark);
    add_values(&v, schema);
    lp_schema_leave(s, mark);
    struct lp_gb_list ways = {0};
    // Where any text will do, JSON is text.
    bool with_json = v.json.n && !(v.is_free && pairs->text_is_any);
    if (v.text.n)
        lp_gb_list_add(s->b, &ways,
                       pairs->pair(pairs->user, lp_gb_word(s->b, key), true,
                                   lp_gb_list_choice(s->b, &v.text)));
    if (with_json)
        lp_gb_list_add(s->b, &ways,
                       pairs->pair(pairs->user, lp_gb_word(s->b, key), false,
                                   lp_gb_list_choice(s->b, &v.json)));
    lp_free(v.text.items);
    lp_free(v.json.items);
    if (ways.n) return lp_gb_list_choice(s->b, &ways);
    lp_free(ways.items);
    return LP_SCHEMA_NEVER;
}

static bool is_required(const json_t *flat, const char *name) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(flat, "required"), i, item) {
        if (lp_str_is(lp_jg_str(item), name)) return true;
    }
    return false;
}

static bool is_writable(const struct lp_tool_pairs *pairs, const char *key) {
    for (const char *c = key; *c; c++)
        if ((unsigned char)*c < ' ' || strchr(pairs->forbidden, *c)) return false;
    return *key && *key != ' ' && key[strlen(key) - 1] != ' ';
}

// The declared parameters in their order.
static lp_gb_node declared(struct lp_schema *s, const struct lp_tool_pairs *pairs, json_t *flat) {
    struct lp_gb_list list = {0};
    const char *name;
    json_t *schema;
    json_object_foreach(json_object_get(flat, "properties"), name, schema) {
        if (lp_gb_failed(s->b)) break;
        lp_gb_node node =
            is_writable(pairs, name) ? emit_pair(s, pairs, name, schema) : LP_SCHEMA_NEVER;
        bool required = is_required(flat, name);
        if (node == LP_SCHEMA_NEVER && required)
            lp_schema_fail(s, LP_STATUS_INVALID,
                           "the required parameter \"%.60s\" cannot be written in this syntax",
                           name);
        if (node != LP_SCHEMA_NEVER)
            lp_gb_list_add(s->b, &list, required ? node : lp_gb_optional(s->b, node));
    }
    return lp_gb_list_sequence(s->b, &list);
}

// Of a schema of the parameters as a whole, which may have branches.
static lp_gb_node declared_by(struct lp_schema *s, const struct lp_tool_pairs *pairs,
                              json_t *schema) {
    json_t *flat = lp_schema_flatten(s, schema), *branch;
    const json_t *branches = json_object_get(flat, "anyOf");
    if (!branches) return declared(s, pairs, flat);
    struct lp_gb_list list = {0};
    size_t i;
    s->depth++; // an endless nest of branches meets flatten's limit
    json_array_foreach(branches, i, branch) {
        if (!lp_gb_failed(s->b)) lp_gb_list_add(s->b, &list, declared_by(s, pairs, branch));
    }
    s->depth--;
    return lp_gb_list_choice(s->b, &list);
}

// Any keys with any text, where nothing is known of the parameters.
static lp_gb_node undeclared(struct lp_gb *b, const struct lp_tool_pairs *pairs) {
    static const struct lp_gb_range letters[] = {
        {'-', '.'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    lp_gb_node key = lp_gb_repeat(b, lp_gb_class(b, letters, 5, false), 1, 64);
    lp_gb_node pair = pairs->pair(pairs->user, key, true, lp_gb_use(b, pairs->text));
    return lp_gb_repeat(b, pair, 0, -1);
}

lp_gb_node lp_tool_pairs(const struct lp_tool *tool, struct lp_jg *jg,
                         const struct lp_tool_pairs *pairs) {
    struct lp_schema s;
    lp_gb_node node = 0;
    if (tool->is_open) return undeclared(jg->b, pairs);
    if (lp_schema_init(&s, jg, tool->parameters, tool->as_doubles, tool->what)) {
        node = declared_by(&s, pairs, tool->parameters);
        lp_schema_make_rules(&s);
    }
    lp_schema_release(&s);
    return node;
}
