// Writing JSON: text that may not be UTF-8, numbers that may not be finite.
#ifndef LP_SERVE_JSON_OUT_H
#define LP_SERVE_JSON_OUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

// Appends text as UTF-8; each ill-formed sequence becomes U+FFFD. False without memory.
bool lp_json_clean(struct lp_bytes *out, struct lp_str text);
// A JSON string of that. NULL without memory.
json_t *lp_json_text(struct lp_str text);
// A JSON number; minus infinity and NaN, which JSON lacks, become -9999.0 as in vLLM.
json_t *lp_json_logprob(double value);
// A JSON array of token ids. NULL without memory.
json_t *lp_json_ids(const int32_t *ids, size_t n);
// Appends the value in one line. Numbers that a float32 holds have its 9 digits, others as many as
// they need. False without memory.
bool lp_json_dump(struct lp_bytes *out, const json_t *value);

#endif
