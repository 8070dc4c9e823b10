// Server-sent events: "data: JSON" and a blank line, in some APIs behind "event: NAME"; in others
// "data: [DONE]" is last.
#ifndef LP_SERVE_SSE_H
#define LP_SERVE_SSE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/bytes.h"

bool lp_sse_event(struct lp_bytes *out, const json_t *value); // false without memory
bool lp_sse_named_event(struct lp_bytes *out, const char *name, const json_t *value);
bool lp_sse_comment(struct lp_bytes *out, const char *line); // clients ignore it
bool lp_sse_done(struct lp_bytes *out);

#endif
