// Reports of commands as JSON, put together value by value. A failed allocation makes the whole
// report fail, at its end: what puts and adds remembers it in *failed.
#ifndef LP_CLI_JSON_BUILD_H
#define LP_CLI_JSON_BUILD_H

#include <jansson.h>
#include <stdbool.h>

#include "gguf/gguf.h"

// Both take over the value; NULL is a failed allocation.
void lp_json_build_put(bool *failed, json_t *object, const char *key, json_t *value);
void lp_json_build_add(bool *failed, json_t *array, json_t *value);

// Values; NULL without memory.
json_t *lp_json_build_text(struct lp_str text);              // cleaned: it may come from a file
json_t *lp_json_build_count(uint64_t value);                 // INT64_MAX where it is more
json_t *lp_json_build_number(double value);                  // null where it is not finite
json_t *lp_json_build_type(lp_type type);                    // "Q4_K"
json_t *lp_json_build_shape(const struct lp_gguf_tensor *t); // fastest axis first

// The report on standard output, which is flushed. False where it cannot be written.
bool lp_json_build_print(const json_t *report);

#endif
