// The web page at "/": page.html, as it is but for the nonce that lets its own script and style
// run.
#ifndef LP_SERVE_PAGE_H
#define LP_SERVE_PAGE_H

#include <stdbool.h>

#include "base/bytes.h"

#define LP_PAGE_POLICY_BYTES 512

// Appends the page with a fresh nonce, and writes the Content-Security-Policy that goes with it.
// False without memory.
bool lp_page_write(struct lp_bytes *out, char policy[LP_PAGE_POLICY_BYTES]);

#endif
