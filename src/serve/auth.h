// The API key of a request.
#ifndef LP_SERVE_AUTH_H
#define LP_SERVE_AUTH_H

#include <stdbool.h>

// Is `header`, the value of Authorization or NULL, "Bearer KEY"? The scheme in any case. The time
// depends on the header's length only, not on where the two keys differ.
bool lp_auth_ok(const char *key, const char *header);
// Is `given`, the value of x-api-key (Anthropic's clients) or NULL, the key? In the same way.
bool lp_auth_key_ok(const char *key, const char *given);

#endif
