// The arguments of a tool call, from the schema of the tool's parameters.
//
// Tools come from frameworks with schemas of every kind. With "strict" a schema that is not
// supported is refused; without it, a parameter whose schema is not supported may be any value of
// its type, and if that does not help, the arguments may be any object.
#ifndef LP_GRAMMAR_TOOL_ARGUMENTS_H
#define LP_GRAMMAR_TOOL_ARGUMENTS_H

#include "grammar/schema.h"

struct lp_tool {
    const char *name;
    json_t *parameters; // a schema, made ready by lp_tool_prepare
    json_t *owned;
    bool is_strict;
    bool as_doubles; // of lp_schema_load
    bool is_open;    // any object: the schema could not be used
    char what[120];  // begins the sentences of errors
};

// Chooses what of the schema (may be NULL: no parameters) can be used. False: the builder failed.
bool lp_tool_prepare(struct lp_tool *tool, struct lp_gb *b, json_t *parameters);
void lp_tool_release(struct lp_tool *tool);

lp_gb_node lp_tool_json(const struct lp_tool *tool, struct lp_jg *jg);

// How a model writes arguments as pairs. A value is bare text (a string) or JSON (the others).
struct lp_tool_pairs {
    lp_gb_rule text;       // any bare text
    const char *forbidden; // characters that no key may have
    bool text_is_any;      // any text is also any JSON: the two are told apart by the schema
    lp_gb_node (*pair)(void *user, lp_gb_node key, bool is_text, lp_gb_node value);
    void *user;
};
lp_gb_node lp_tool_pairs(const struct lp_tool *tool, struct lp_jg *jg,
                         const struct lp_tool_pairs *pairs);

#endif
