// A bounds-checked cursor over the bytes of a header. Every read either lies inside the file or
// fails and moves nothing; the fields of GGUF are unaligned and little-endian.
#ifndef LP_GGUF_GGUF_CURSOR_H
#define LP_GGUF_GGUF_CURSOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the readers of GGUF copy fields as they are");

struct lp_cursor {
    const uint8_t *at, *end;
};

static inline uint64_t lp_cursor_left(const struct lp_cursor *c) {
    return (uint64_t)(c->end - c->at);
}

// n bytes of the file in place.
static inline bool lp_cursor_take(struct lp_cursor *c, uint64_t n, const uint8_t **out) {
    if (n > lp_cursor_left(c)) return false;
    *out = c->at;
    c->at += n;
    return true;
}

static inline bool lp_cursor_u32(struct lp_cursor *c, uint32_t *out) {
    const uint8_t *p;
    if (!lp_cursor_take(c, 4, &p)) return false;
    memcpy(out, p, 4);
    return true;
}

static inline bool lp_cursor_u64(struct lp_cursor *c, uint64_t *out) {
    const uint8_t *p;
    if (!lp_cursor_take(c, 8, &p)) return false;
    memcpy(out, p, 8);
    return true;
}

// u64 length, then the bytes. *n_bytes gets the length that the file claims (0 when the length
// field itself is cut off), for the sentence of the caller.
static inline bool lp_cursor_string(struct lp_cursor *c, struct lp_str *out, uint64_t *n_bytes) {
    const uint8_t *start = c->at, *p;
    *n_bytes = 0;
    if (!lp_cursor_u64(c, n_bytes) || !lp_cursor_take(c, *n_bytes, &p)) {
        c->at = start;
        return false;
    }
    *out = (struct lp_str){(const char *)p, (size_t)*n_bytes};
    return true;
}

#endif
