// What of a tool's schema can be used: all of it, or with the parameters that are not supported
// loosened, or nothing.
#include <stdio.h>

#include "grammar/build_parts.h"
#include "grammar/tool_arguments.h"

// Compiles a schema of this root apart. The status; its sentence is in err.
static lp_status try_schema(struct lp_tool *tool, struct lp_gb *b, json_t *root, json_t *schema,
                            struct lp_err *err) {
    struct lp_gb *apart = lp_gb_new();
    if (!apart) return lp_err_memory(err, 0, "the grammar");
    apart->deadline_ns = b->deadline_ns;
    struct lp_jg jg;
    struct lp_schema s;
    struct lp_grammar *grammar = NULL;
    lp_jg_init(&jg, apart);
    if (lp_schema_init(&s, &jg, root, tool->as_doubles, tool->what)) {
        lp_gb_rule start = lp_gb_declare(apart, tool->what);
        lp_gb_node node = lp_schema_emit(&s, schema);
        lp_schema_make_rules(&s);
        if (node == LP_SCHEMA_NEVER) node = lp_schema_fail_never(&s);
        lp_gb_define(apart, start, node);
        lp_gb_finish(apart, start, NULL, &grammar, err);
    }
    lp_status status = lp_gb_error(apart, err);
    if (status == LP_OK && !grammar) status = err->status;
    lp_grammar_put(grammar);
    lp_schema_release(&s);
    lp_gb_free(apart);
    return status;
}

// Fails the builder where trying the next best makes no sense.
static bool is_hopeless(struct lp_tool *tool, struct lp_gb *b, lp_status status,
                        const struct lp_err *err) {
    if (status == LP_STATUS_MEMORY || tool->is_strict) lp_gb_fail(b, status, "%s", err->text);
    return lp_gb_is_late(b);
}

static json_t *type_alone(const json_t *schema) {
    json_t *type = json_object_get(schema, "type");
    json_t *alone = type ? json_pack("{s:O}", "type", type) : NULL;
    return alone ? alone : json_object();
}

// As the parameters, with each property that is not supported as its type alone. NULL: failed.
static json_t *loosened(struct lp_tool *tool, struct lp_gb *b, json_t *parameters) {
    static const char *const kept[] = {"required", "$defs", "definitions"};
    json_t *properties = json_object();
    json_t *out = json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties,
                            "additionalProperties", 0);
    bool good = out != NULL;
    const char *name;
    json_t *schema;
    json_object_foreach(json_object_get(parameters, "properties"), name, schema) {
        if (!good) break;
        struct lp_err err;
        lp_status status = try_schema(tool, b, parameters, schema, &err);
        if (status && is_hopeless(tool, b, status, &err)) good = false;
        json_t *use = status ? type_alone(schema) : json_incref(schema);
        // A type that is none leaves any value.
        if (good && status && try_schema(tool, b, parameters, use, &err)) json_object_clear(use);
        good = json_object_set_new(properties, name, use) == 0 && good;
    }
    for (size_t i = 0; good && i < sizeof kept / sizeof *kept; i++) {
        json_t *value = json_object_get(parameters, kept[i]);
        if (value) good = json_object_set(out, kept[i], value) == 0;
    }
    if (good) return out;
    json_decref(out);
    if (!lp_gb_failed(b)) lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the tools");
    return NULL;
}

// Parameters take no others than the declared ones unless they say so: a model should not make
// arguments up. NULL without memory.
static json_t *closed(json_t *parameters) {
    json_t *out = json_is_object(parameters) ? json_copy(parameters) : json_object();
    static const char *const open[] = {"additionalProperties", "$ref", "allOf", "anyOf", "oneOf"};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        if (json_object_get(out, open[i])) return out;
    bool good = json_object_set_new(out, "additionalProperties", json_false()) == 0;
    if (good && !json_object_get(out, "type"))
        good = json_object_set_new(out, "type", json_string("object")) == 0;
    if (good) return out;
    json_decref(out);
    return NULL;
}

bool lp_tool_prepare(struct lp_tool *tool, struct lp_gb *b, json_t *parameters) {
    struct lp_err err;
    snprintf(tool->what, sizeof tool->what, "parameters of the tool \"%.64s\"", tool->name);
    tool->owned = tool->parameters = closed(parameters);
    if (!tool->owned) return lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the tools"), false;
    lp_status status = try_schema(tool, b, tool->parameters, tool->parameters, &err);
    if (status == LP_OK) return true;
    if (is_hopeless(tool, b, status, &err)) return false;
    json_t *loose = loosened(tool, b, tool->parameters);
    if (!loose) return false;
    json_decref(tool->owned);
    tool->owned = tool->parameters = loose;
    status = try_schema(tool, b, loose, loose, &err);
    tool->is_open = status != LP_OK || json_object_size(json_object_get(loose, "properties")) == 0;
    return status == LP_OK || !is_hopeless(tool, b, status, &err);
}

void lp_tool_release(struct lp_tool *tool) {
    json_decref(tool->owned);
    tool->owned = tool->parameters = NULL;
}
