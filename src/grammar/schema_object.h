// Inside schema_object.c and schema_members.c: an object's properties, compiled.
#ifndef LP_GRAMMAR_SCHEMA_OBJECT_H
#define LP_GRAMMAR_SCHEMA_OBJECT_H

#include "grammar/schema.h"

struct lp_member { // "name": value
    bool is_required;
    bool has_rule; // it is used several times
    lp_gb_node node;
    lp_gb_rule rule;
};

struct lp_members {
    struct lp_member *items; // in the order in which they are written
    size_t n, capacity;
    int64_t min, max; // of all properties; max -1: any number
    bool has_others;  // properties that are not declared may follow
    lp_gb_rule other; // one of them
};

// The object. LP_SCHEMA_NEVER if no number of properties is right.
lp_gb_node lp_schema_members(struct lp_schema *s, struct lp_members *members);

#endif
