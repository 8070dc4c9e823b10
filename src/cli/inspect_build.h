// Inside the report of limpid inspect: how its parts are put together.
#ifndef LP_CLI_INSPECT_BUILD_H
#define LP_CLI_INSPECT_BUILD_H

#include "cli/inspect.h"
#include "cli/json_build.h"

struct lp_inspect_builder {
    const struct lp_inspect *in;
    bool failed;
};

// As those of json_build.h.
static inline void lp_inspect_put(struct lp_inspect_builder *b, json_t *object, const char *key,
                                  json_t *value) {
    lp_json_build_put(&b->failed, object, key, value);
}
static inline void lp_inspect_add(struct lp_inspect_builder *b, json_t *array, json_t *value) {
    lp_json_build_add(&b->failed, array, value);
}
static inline uint64_t lp_inspect_values(const struct lp_gguf_tensor *t) {
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}

// inspect_tensors.c
// Counts one more in the row {reason, count} of a list, which is made where there is none yet. The
// row, or NULL without memory.
json_t *lp_inspect_count_reason(struct lp_inspect_builder *b, json_t *list, const char *reason);
json_t *lp_inspect_groups(struct lp_inspect_builder *b);  // by role, type and shape
json_t *lp_inspect_types(struct lp_inspect_builder *b);   // bytes and weights of each type
json_t *lp_inspect_tensors(struct lp_inspect_builder *b); // every tensor
json_t *lp_inspect_binding(struct lp_inspect_builder *b);
// inspect_memory.c
json_t *lp_inspect_memory(struct lp_inspect_builder *b);
// What a memory budget leaves in memory.
json_t *lp_inspect_budget(struct lp_inspect_builder *b, const struct lp_expert_layout *experts,
                          int32_t n_slots);
// inspect_ranks.c
json_t *lp_inspect_ranks(struct lp_inspect_builder *b);

#endif
