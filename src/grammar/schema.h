// Inside the JSON Schema compiler. A schema goes through three steps:
//
//     check (schema_keywords.c)   every keyword is known and has the right form
//     flatten (schema_flat.c)     $ref, allOf, anyOf and oneOf are worked in (schema_merge.c), till
//                                 a schema is true, false, {"anyOf": [...]}, or plain keywords only
//     emit (schema.c)             plain keywords to nodes, by type (schema_object.c, ...)
//
// What a "$ref" names is one rule, made later from a list, so that schemas may refer to themselves
// and are compiled once. Everything counts against a budget: merging may not explode.
//
// Sound before complete: what the grammar accepts is valid; where a keyword cannot be kept exactly,
// it is refused, or fewer texts are made.
#ifndef LP_GRAMMAR_SCHEMA_H
#define LP_GRAMMAR_SCHEMA_H

#include "base/alloc.h"
#include "base/map.h"
#include "grammar/json_grammar.h"

#define LP_SCHEMA_MAX_DEPTH 64
#define LP_SCHEMA_MAX_WORK 400000 // keywords looked at
#define LP_SCHEMA_MAX_RULES 20000

// Nothing matches the schema. Not a node: it must not be given to the builder.
#define LP_SCHEMA_NEVER ((lp_gb_node)-1)

enum { // types as bits; "number" is both of its bits
    LP_TYPE_NULL = 1,
    LP_TYPE_BOOLEAN = 2,
    LP_TYPE_INTEGER = 4,
    LP_TYPE_FRACTION = 8,
    LP_TYPE_NUMBER = LP_TYPE_INTEGER | LP_TYPE_FRACTION,
    LP_TYPE_STRING = 16,
    LP_TYPE_ARRAY = 32,
    LP_TYPE_OBJECT = 64,
    LP_TYPE_ALL = 127,
};

struct lp_schema_rule { // of a "$ref"
    json_t *schema;     // also the key of rule_of
    lp_gb_rule rule;
    char *path;
};

struct lp_schema {
    struct lp_gb *b;
    struct lp_jg *jg;
    const char *what; // begins the sentence of an error
    json_t *root;     // what "#" means
    json_t *kept;     // an array of the schemas that merging made
    struct lp_arena arena;
    struct lp_map rule_of;         // by the address of a schema
    struct lp_schema_rule **rules; // [n_rules]
    size_t n_rules, rules_capacity, n_made;
    struct lp_bytes path; // where the compiler is, as a JSON pointer behind '#'
    int depth;
    size_t work;
    bool integers_as_doubles; // the source has integers past 64 bits: large ones are not exact
    char never[300];          // why nothing matches, where it was first seen
};

// The source as JSON. NULL: the builder failed. *as_doubles: for lp_schema_init.
json_t *lp_schema_load(struct lp_gb *b, struct lp_str source, const char *what, bool *as_doubles);
// False: no memory; the builder failed. Release in any case.
bool lp_schema_init(struct lp_schema *s, struct lp_jg *jg, json_t *root, bool as_doubles,
                    const char *what);
void lp_schema_release(struct lp_schema *s);

// The node of a schema of root, or LP_SCHEMA_NEVER. The rules it uses come with
// lp_schema_make_rules.
lp_gb_node lp_schema_emit(struct lp_schema *s, json_t *schema);
void lp_schema_make_rules(struct lp_schema *s);
// Fails the builder with s->never.
lp_gb_node lp_schema_fail_never(struct lp_schema *s);

// ---- where we are, and what went wrong there ----

void lp_schema_enter(struct lp_schema *s, const char *keyword, const char *name, size_t *mark);
void lp_schema_enter_item(struct lp_schema *s, const char *keyword, size_t i, size_t *mark);
void lp_schema_leave(struct lp_schema *s, size_t mark);
lp_gb_node lp_schema_fail(struct lp_schema *s, lp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
lp_gb_node lp_schema_never(struct lp_schema *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Counts work; false: the budget or the time is used up, and the builder failed.
bool lp_schema_spend(struct lp_schema *s, size_t work);
// Keeps a new schema (may be NULL: no memory) until release and gives it back; NULL: failed.
json_t *lp_schema_keep(struct lp_schema *s, json_t *made);

// ---- schema_keywords.c ----

// Every keyword of this object, not of those inside it.
bool lp_schema_check(struct lp_schema *s, json_t *schema);
bool lp_schema_is_annotation(const char *keyword); // has no effect
unsigned lp_schema_types(const json_t *flat);      // by "type"; LP_TYPE_ALL without it
// Types that are written: without "type", those that its other keywords are about.
unsigned lp_schema_types_meant(const json_t *flat);
// A keyword that is a count, or `none`. Larger than LP_GRAMMAR_MAX_REPEAT fails, but an upper limit
// becomes that: what is written is then shorter than it might be.
int64_t lp_schema_count(struct lp_schema *s, const json_t *flat, const char *keyword, int64_t none);

// ---- schema_flat.c, schema_merge.c, schema_apart.c, schema_accepts.c ----

// Borrowed, lives as long as s; NULL: failed.
json_t *lp_schema_flatten(struct lp_schema *s, json_t *schema);
// What "$ref" names; NULL: failed.
json_t *lp_schema_refer(struct lp_schema *s, const char *ref);
// Both at once, each flat; a new reference that the caller keeps; NULL: failed.
json_t *lp_schema_merge(struct lp_schema *s, json_t *a, json_t *b);
// A schema that is both; not flat; a new reference or NULL.
json_t *lp_schema_both(json_t *a, json_t *b);
// No value that is written for one is valid for the other.
bool lp_schema_are_apart(struct lp_schema *s, json_t *flat_a, json_t *flat_b, int depth);
// Is this value of the schema's own source valid? Formats are not looked at.
bool lp_schema_accepts(struct lp_schema *s, json_t *schema, const json_t *value);
// The same of a plain schema without its "enum".
bool lp_schema_fits_beside_enum(struct lp_schema *s, const json_t *flat, const json_t *value);
bool lp_schema_same_value(const json_t *a, const json_t *b);

// ---- one file per type; flat is plain ----

lp_gb_node lp_schema_string(struct lp_schema *s, json_t *flat);
lp_gb_node lp_schema_number(struct lp_schema *s, json_t *flat, bool integers_only);
lp_gb_node lp_schema_array(struct lp_schema *s, json_t *flat);
lp_gb_node lp_schema_object(struct lp_schema *s, json_t *flat);
// The text of a string as it is, not as JSON, without '<' where it is not spelled out.
lp_gb_node lp_schema_string_text(struct lp_schema *s, json_t *flat, lp_gb_node any_text);
// A regular expression for a format; NULL: not known. "": nothing to keep.
const char *lp_schema_format(const char *name);

#endif
