#include "base/bytes.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/checked.h"

static bool reserve(struct lp_bytes *b, size_t extra) {
    size_t need;
    if (b->failed) return false;
    if (!lp_add_size(b->len, extra, &need) || (b->max_bytes && need > b->max_bytes)) {
        b->failed = true;
        return false;
    }
    if (b->data && need < b->capacity) return true;
    size_t capacity = b->capacity ? b->capacity : 64;
    while (capacity <= need) {
        if (!lp_mul_size(capacity, 2, &capacity)) {
            b->failed = true;
            return false;
        }
    }
    char *data = lp_realloc(b->data, capacity, 1);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

bool lp_bytes_append(struct lp_bytes *b, const void *data, size_t n) {
    if (!reserve(b, n)) return false;
    if (n) memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = 0;
    return true;
}

bool lp_bytes_puts(struct lp_bytes *b, const char *text) {
    return lp_bytes_append(b, text, strlen(text));
}

bool lp_bytes_printf(struct lp_bytes *b, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool ok = n >= 0 && reserve(b, (size_t)n);
    if (ok) {
        vsnprintf(b->data + b->len, (size_t)n + 1, format, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return ok;
}

void lp_bytes_clear(struct lp_bytes *b) {
    b->len = 0;
    b->failed = false;
    if (b->data) b->data[0] = 0;
}

void lp_bytes_release(struct lp_bytes *b) {
    lp_free(b->data);
    *b = (struct lp_bytes){0};
}
