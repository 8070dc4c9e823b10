// The type of an argument that a model wrote as text. The rule is at lp_reply_typed_value.
#ifndef LP_TEXT_REPLY_VALUE_H
#define LP_TEXT_REPLY_VALUE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/bytes.h"

enum { // bits: what a schema allows
    LP_VALUE_STRING = 1,
    LP_VALUE_INTEGER = 2,
    LP_VALUE_NUMBER = 4, // with INTEGER: any number
    LP_VALUE_BOOLEAN = 8,
    LP_VALUE_NULL = 16,
    LP_VALUE_OBJECT = 32,
    LP_VALUE_ARRAY = 64,
    LP_VALUE_ANY = 127,
};

unsigned lp_reply_value_types(const json_t *schema); // never 0; NULL: ANY
// Appends the value's JSON. *repaired: it was not written as these types are. False without memory.
bool lp_reply_value_write(struct lp_bytes *out, struct lp_str text, unsigned types, bool *repaired);

#endif
