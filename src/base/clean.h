// Text from a file on its way to a terminal or into JSON: control bytes (C1 too) and invalid UTF-8
// become '?'.
#ifndef LP_BASE_CLEAN_H
#define LP_BASE_CLEAN_H

#include <stddef.h>

#include "base/bytes.h"

#define LP_CLEAN_MAX_BYTES 4096 // a buffer for most texts

// Terminated; what does not fit is cut at a character, with "..." behind. Returns out.
char *lp_clean_text(char *out, size_t out_bytes, struct lp_str text);

#endif
