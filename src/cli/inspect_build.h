// Inside the report of limpid inspect: how its parts are put together. A failed allocation makes the
// whole report fail, at its end: put and add remember it.
#ifndef LP_CLI_INSPECT_BUILD_H
#define LP_CLI_INSPECT_BUILD_H

#include "base/clean.h"
#include "cli/inspect.h"

struct lp_inspect_builder {
    const struct lp_inspect *in;
    bool failed;
};

static inline json_t *lp_inspect_clean(struct lp_str text) {
    char buffer[LP_CLEAN_MAX_BYTES];
    return json_string(lp_clean_text(buffer, sizeof buffer, text));
}

// Both take over the value.
static inline void lp_inspect_put(struct lp_inspect_builder *b, json_t *object, const char *key,
                                  json_t *value) {
    if (!value || json_object_set_new(object, key, value)) b->failed = true;
}
static inline void lp_inspect_add(struct lp_inspect_builder *b, json_t *array, json_t *value) {
    if (!value || json_array_append_new(array, value)) b->failed = true;
}
static inline json_t *lp_inspect_number(uint64_t value) {
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}
static inline uint64_t lp_inspect_values(const struct lp_gguf_tensor *t) {
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}

// inspect_tensors.c
json_t *lp_inspect_groups(struct lp_inspect_builder *b);  // by role, type and shape
json_t *lp_inspect_types(struct lp_inspect_builder *b);   // bytes and weights of each type
json_t *lp_inspect_tensors(struct lp_inspect_builder *b); // every tensor
json_t *lp_inspect_binding(struct lp_inspect_builder *b);
// inspect_memory.c
json_t *lp_inspect_memory(struct lp_inspect_builder *b);

#endif
