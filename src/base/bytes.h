// A growable byte buffer with a maximum, and string views.
#ifndef LP_BASE_BYTES_H
#define LP_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

// A view of bytes that somebody else owns; not terminated.
struct lp_str {
    const char *data;
    size_t len;
};

static inline struct lp_str lp_str_from(const char *text) {
    return (struct lp_str){text, strlen(text)};
}
static inline bool lp_str_equal(struct lp_str a, struct lp_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}
static inline bool lp_str_is(struct lp_str a, const char *text) {
    return lp_str_equal(a, lp_str_from(text));
}
// For printf's %.*s
#define LP_STR_ARGS(s) (int)((s).len > 256 ? 256 : (s).len), (s).data ? (s).data : ""

// Zero-initialise to use; set max_bytes (0 = unlimited) before the first append. After a failed
// append `failed` stays true and further appends do nothing, so a caller may check once at the end.
// data is always terminated by a NUL that len does not count (NULL while nothing was appended).
struct lp_bytes {
    char *data;
    size_t len, capacity, max_bytes;
    bool failed;
};

bool lp_bytes_append(struct lp_bytes *b, const void *data, size_t n);
bool lp_bytes_puts(struct lp_bytes *b, const char *text);
bool lp_bytes_printf(struct lp_bytes *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void lp_bytes_clear(struct lp_bytes *b);   // len = 0, keeps the memory
void lp_bytes_release(struct lp_bytes *b); // frees, zeroes (max_bytes too)
static inline struct lp_str lp_bytes_view(const struct lp_bytes *b) {
    return (struct lp_str){b->data ? b->data : "", b->len};
}

#endif
