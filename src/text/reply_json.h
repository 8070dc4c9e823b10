// JSON as a model writes it, made valid on the way through, without waiting for its end.
//
// Passed on as it comes: white space, numbers, strings, escapes. Mended, each counted: control
// characters in strings are escaped; \d becomes \\d and half a surrogate pair U+FFFD; 'text'
// becomes "text", a bare key a string, Python's True, False and None their JSON names; a comma
// before a closing bracket is dropped; a closing bracket that was forgotten is put in front of the
// one that closes more. Anything else is broken from there on.
#ifndef LP_TEXT_REPLY_JSON_H
#define LP_TEXT_REPLY_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

#define LP_REPLY_JSON_DEPTH 512 // deeper is broken

enum lp_reply_json_state { LP_JSON_READING, LP_JSON_DONE, LP_JSON_BROKEN };

struct lp_reply_json { // zero-initialise
    enum lp_reply_json_state state;
    int n_repairs;
    uint8_t want, token; // what may come next; what is being read
    char quote;          // of the string
    bool is_key;         // the string or word is one
    bool mended;         // this string has been counted
    uint16_t high;       // the first half of a surrogate pair
    int depth;
    uint8_t is_array[LP_REPLY_JSON_DEPTH / 8];
    struct lp_bytes word; // a number, a name or an escape so far
    struct lp_bytes held; // comma, key and colon, until a value begins
    struct lp_bytes raw;  // what stands in the text for held and word
    bool failed;          // no memory
};

// Reads bytes until the value is whole (DONE) or broken, and appends to *out. Returns how many it
// took. What it took and is in raw was not written when it breaks: it belongs to the rest.
size_t lp_reply_json_feed(struct lp_reply_json *json, struct lp_str text, struct lp_bytes *out);
// Ends what is open, so that what was written is valid. A pair whose value has not begun and half a
// number or name are left out.
void lp_reply_json_close(struct lp_reply_json *json, struct lp_bytes *out);
bool lp_reply_json_in_string(const struct lp_reply_json *json);
void lp_reply_json_release(struct lp_reply_json *json);

// The three below: false without memory.
// A whole text (white space around it is allowed): appends its JSON. *n_repairs is -1 if it is
// none; *out may have been written to.
bool lp_reply_json_whole(struct lp_str text, struct lp_bytes *out, int *n_repairs);
// *length of the JSON value at the beginning of text; 0: it is broken, SIZE_MAX: it is not whole.
bool lp_reply_json_length(struct lp_str text, size_t *length);
// Appends what a JSON string (that length has seen) says.
bool lp_reply_json_unquote(struct lp_str text, struct lp_bytes *out);

// Appends text as the inside of a JSON string.
bool lp_reply_json_escape(struct lp_bytes *out, struct lp_str text);

#endif
