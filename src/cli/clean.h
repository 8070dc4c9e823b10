// Text from a file on its way to a terminal or into JSON: control bytes and invalid UTF-8 become '?'.
#ifndef LP_CLI_CLEAN_H
#define LP_CLI_CLEAN_H

#include <jansson.h>
#include <stddef.h>

#include "base/bytes.h"

#define LP_CLEAN_MAX_BYTES 4096 // longer texts are cut, with "..." behind

// Terminated; cut at a character to fit. Returns out.
char *lp_clean_text(char *out, size_t out_bytes, struct lp_str text);
json_t *lp_clean_json(struct lp_str text); // NULL when out of memory

#endif
