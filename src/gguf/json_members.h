// Walks the members of one JSON object in the text itself, so that an object with a hundred
// thousand members needs no tree: the header of a .safetensors file, the index of its shards.
//
// The walk knows only enough of JSON to find where a key and a value end. Whoever uses a value
// reads it with a JSON parser, which then sees all that is wrong in it.
#ifndef LP_GGUF_JSON_MEMBERS_H
#define LP_GGUF_JSON_MEMBERS_H

#include "base/bytes.h"

struct lp_json_members {
    const char *at, *end;
    bool began;
};

struct lp_json_member {
    struct lp_str key;   // with its quotes, as it stands in the text
    struct lp_str value; // from its first to its last byte
};

enum lp_json_step {
    LP_JSON_MEMBER, // *out is the next one
    LP_JSON_END,    // the object ended, with nothing but white space behind it
    LP_JSON_BROKEN, // this is no JSON object; `at` stands where that shows
};

static inline struct lp_json_members lp_json_members(struct lp_str text) {
    return (struct lp_json_members){text.data, text.data + text.len, false};
}
// After LP_JSON_END or LP_JSON_BROKEN do not call again.
enum lp_json_step lp_json_members_next(struct lp_json_members *walk, struct lp_json_member *out);

#endif
