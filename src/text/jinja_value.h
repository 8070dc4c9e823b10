// Values of the template language, and the run that owns them.
//
// A value is small and copied freely; what it points to lives in the run's arena until the end of
// the rendering, so nothing is freed one by one and strings can share bytes: strip, split and
// slices give views. Lists and dicts are never changed after they were built (templates may not
// mutate them); a namespace is the one thing that changes.
//
// Every function that can fail returns false with the run's error filled. One thread per run.
#ifndef LP_TEXT_JINJA_VALUE_H
#define LP_TEXT_JINJA_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/status.h"

#define LP_JINJA_MAX_DEPTH 1000      // nested evaluation: blocks, operators, macro calls
#define LP_JINJA_MAX_VALUE_DEPTH 200 // nested lists and dicts, where they are walked
#define LP_JINJA_MAX_RANGE 100000    // as Jinja's sandbox
#define LP_JINJA_MAX_PARAMS 8        // of a builtin

enum lp_jinja_type {
    LP_JINJA_ABSENT, // an argument that was not given; templates never see it
    LP_JINJA_UNDEFINED,
    LP_JINJA_NONE,
    LP_JINJA_BOOL,
    LP_JINJA_INT,
    LP_JINJA_FLOAT,
    LP_JINJA_STRING,
    LP_JINJA_SEQ,
    LP_JINJA_DICT,
    LP_JINJA_NAMESPACE,
    LP_JINJA_MACRO,
    LP_JINJA_LOOP,
    LP_JINJA_FUNCTION,
};

// Value's sub-kind for strings and undefined.
enum lp_jinja_sub {
    LP_JINJA_PLAIN,
    LP_JINJA_SAFE,         // string: marked by |safe or |escape; "+" then escapes the other side
    LP_JINJA_NO_NAME = 10, // undefined: s is the name of a variable
    LP_JINJA_NO_ATTR,      // undefined: s is the attribute or key
    LP_JINJA_NO_ITEM,      // undefined: s says what, as a clause
    LP_JINJA_FORBIDDEN,    // undefined: s is an attribute that the sandbox refuses
};

typedef struct lp_value {
    uint8_t type, sub;
    union {
        bool b;
        int64_t i;
        double f;
        struct lp_str s;
        struct lp_jinja_seq *seq;
        struct lp_jinja_dict *dict; // also of a namespace
        struct lp_jinja_macro *macro;
        struct lp_jinja_loop *loop;
        struct lp_jinja_function *function;
    };
} lp_value;

enum lp_jinja_seq_kind {
    LP_JINJA_LIST,
    LP_JINJA_TUPLE,
    LP_JINJA_GROUP, // a tuple (grouper, list) of the groupby filter
    LP_JINJA_RANGE,
    LP_JINJA_ITER, // a generator: no length, used up by reading
    LP_JINJA_KEYS,
    LP_JINJA_VALUES,
    LP_JINJA_ITEMS,
};

struct lp_jinja_seq {
    enum lp_jinja_seq_kind kind;
    size_t n, next; // next: first unread item of an ITER
    lp_value *items;
    int64_t start, stop, step; // of a RANGE, for printing
};

struct lp_jinja_pair {
    lp_value key, value;
};

struct lp_jinja_dict {
    size_t n, capacity;
    struct lp_jinja_pair *pairs; // in order of insertion
};

struct lp_jinja_run {
    struct lp_arena arena;
    struct lp_bytes out;     // the output; captures are its tail
    struct lp_bytes scratch; // strings under construction, nested like a stack
    uint64_t max_steps, steps;
    unsigned depth;
    uint32_t line;                                                    // of the node at work
    const struct lp_jinja_dict *vars;                                 // given by the caller
    enum { LP_JINJA_ONWARD, LP_JINJA_BREAK, LP_JINJA_CONTINUE } jump; // on the way out of a body
    uint64_t n_macros; // made so far: each may hold on to a scope
    struct lp_err *err;
    lp_status status;
};

// ---- the run ----------------------------------------------------------------------------------

// Fills the error with "chat template, line N: ..."; returns false.
bool lp_jinja_fail(struct lp_jinja_run *run, lp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool lp_jinja_spend(struct lp_jinja_run *run, uint64_t steps);         // LIMIT when used up
bool lp_jinja_spend_bytes(struct lp_jinja_run *run, size_t n);         // work on n bytes
void *lp_jinja_alloc(struct lp_jinja_run *run, size_t n, size_t size); // NULL: error is filled

// Strings under construction: begin, append, end (gives the text, copied to the arena).
size_t lp_jinja_build_begin(struct lp_jinja_run *run);
bool lp_jinja_build_add(struct lp_jinja_run *run, struct lp_str text);
bool lp_jinja_build_puts(struct lp_jinja_run *run, const char *text);
bool lp_jinja_build_end(struct lp_jinja_run *run, size_t begin, lp_value *out);

// ---- constructors -----------------------------------------------------------------------------

static inline lp_value lp_jinja_none(void) {
    return (lp_value){.type = LP_JINJA_NONE};
}
static inline lp_value lp_jinja_bool(bool b) {
    return (lp_value){.type = LP_JINJA_BOOL, .b = b};
}
static inline lp_value lp_jinja_int(int64_t i) {
    return (lp_value){.type = LP_JINJA_INT, .i = i};
}
static inline lp_value lp_jinja_float(double f) {
    return (lp_value){.type = LP_JINJA_FLOAT, .f = f};
}
static inline lp_value lp_jinja_str(struct lp_str s) {
    return (lp_value){.type = LP_JINJA_STRING, .s = s};
}
static inline lp_value lp_jinja_undefined(enum lp_jinja_sub why, struct lp_str s) {
    return (lp_value){.type = LP_JINJA_UNDEFINED, .sub = (uint8_t)why, .s = s};
}
static inline lp_value lp_jinja_dict_value(struct lp_jinja_dict *dict) {
    return (lp_value){.type = LP_JINJA_DICT, .dict = dict};
}

// A sequence with room for n items (zeroed, i.e. ABSENT: fill them).
bool lp_jinja_seq_new(struct lp_jinja_run *run, enum lp_jinja_seq_kind kind, size_t n,
                      lp_value *out);
bool lp_jinja_dict_new(struct lp_jinja_run *run, size_t capacity, struct lp_jinja_dict **out);
// Sets a key, keeping the place of an old one. Fails on an unhashable key.
bool lp_jinja_dict_set(struct lp_jinja_run *run, struct lp_jinja_dict *dict, lp_value key,
                       lp_value value);
// *out is NULL when the key is not there. Unhashable keys are never there.
bool lp_jinja_dict_find(struct lp_jinja_run *run, const struct lp_jinja_dict *dict, lp_value key,
                        lp_value **out);
lp_value *lp_jinja_dict_get(const struct lp_jinja_dict *dict, struct lp_str name); // string keys

// Borrows the strings of json.
bool lp_jinja_from_json(struct lp_jinja_run *run, const json_t *json, unsigned depth,
                        lp_value *out);

// ---- questions --------------------------------------------------------------------------------

const char *lp_jinja_type_name(lp_value v); // as Python calls it: "str", "dict", ...
static inline bool lp_jinja_is_str(lp_value v) {
    return v.type == LP_JINJA_STRING;
}
static inline bool lp_jinja_is_undefined(lp_value v) {
    return v.type == LP_JINJA_UNDEFINED;
}
static inline bool lp_jinja_is_seq(lp_value v, enum lp_jinja_seq_kind kind) {
    return v.type == LP_JINJA_SEQ && v.seq->kind == kind;
}
bool lp_jinja_is_tuple(lp_value v);
bool lp_jinja_as_int(lp_value v, int64_t *out);   // int or bool
bool lp_jinja_as_double(lp_value v, double *out); // int, bool or float
bool lp_jinja_truth(lp_value v);
bool lp_jinja_hashable(struct lp_jinja_run *run, lp_value v, unsigned depth, bool *out);
// The length as Python's len(); *has_length false where there is none.
bool lp_jinja_length(struct lp_jinja_run *run, lp_value v, bool *has_length, int64_t *out);

// The items of anything iterable (an ITER is used up); fails with "... is not iterable".
bool lp_jinja_items(struct lp_jinja_run *run, lp_value v, lp_value **items, size_t *n);
bool lp_jinja_is_iterable(lp_value v);

bool lp_jinja_equal(struct lp_jinja_run *run, lp_value a, lp_value b, unsigned depth, bool *out);
// -1, 0, 1; fails on types that have no order.
bool lp_jinja_order(struct lp_jinja_run *run, lp_value a, lp_value b, unsigned depth, int *out);
bool lp_jinja_contains(struct lp_jinja_run *run, lp_value container, lp_value item, bool *out);

// Fails with what is undefined about v.
bool lp_jinja_fail_undefined(struct lp_jinja_run *run, lp_value v);

// ---- printing (jinja_print.c) -----------------------------------------------------------------

// v as {{ v }} prints it. A string is passed through with its mark.
bool lp_jinja_to_str(struct lp_jinja_run *run, lp_value v, lp_value *out);
bool lp_jinja_add_str(struct lp_jinja_run *run, lp_value v); // appends it to the scratch
bool lp_jinja_add_repr(struct lp_jinja_run *run, lp_value v, unsigned depth);
void lp_jinja_float_repr(double x, char out[40]);
double lp_jinja_strtod(const char *text, char **end); // strtod with "." in every locale
bool lp_jinja_add_escaped(struct lp_jinja_run *run, struct lp_str text); // & < > ' "

struct lp_jinja_json_style {
    bool ascii, sort_keys, pretty;
    struct lp_str indent, item_separator, key_separator;
};
bool lp_jinja_add_json(struct lp_jinja_run *run, lp_value v,
                       const struct lp_jinja_json_style *style, unsigned depth);

#endif
