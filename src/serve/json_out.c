#include "serve/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8_step.h"

#define LOGPROB_FLOOR (-9999.0)

bool lp_json_clean(struct lp_bytes *out, struct lp_str text) {
    lp_bytes_append(out, "", 0); // an empty text is no failure
    for (size_t at = 0, len; at < text.len; at += len) {
        if (lp_utf8_step((const unsigned char *)text.data + at, text.len - at, &len) ==
            LP_UTF8_WHOLE)
            lp_bytes_append(out, text.data + at, len);
        else
            lp_bytes_puts(out, LP_UTF8_REPLACEMENT);
    }
    return !out->failed;
}

json_t *lp_json_text(struct lp_str text) {
    struct lp_bytes clean = {0};
    json_t *out = json_stringn(text.data, text.len); // checks the encoding
    if (out) return out;
    if (lp_json_clean(&clean, text)) out = json_stringn_nocheck(clean.data, clean.len);
    lp_bytes_release(&clean);
    return out;
}

json_t *lp_json_logprob(double value) {
    return json_real(value >= LOGPROB_FLOOR && isfinite(value) ? value : LOGPROB_FLOOR);
}

// ---- dumping ----

static bool put(struct lp_bytes *out, const json_t *value);

// Strings and constants are jansson's.
static int append(const char *data, size_t n, void *user) {
    return lp_bytes_append(user, data, n) ? 0 : -1;
}

// A value that a float32 holds gets that one's 9 digits, another the fewest that read back the
// same.
static bool put_real(struct lp_bytes *out, double value) {
    char text[40];
    int digits = value == (double)(float)value ? 9 : 15;
    do {
        snprintf(text, sizeof text, "%.*g", digits, value);
    } while (digits != 9 && ++digits <= 17 && strtod(text, NULL) != value);
    if (!strpbrk(text, ".e")) strcat(text, ".0");
    return lp_bytes_puts(out, text);
}

static bool put_key(struct lp_bytes *out, const char *key, size_t n) {
    json_t *text = json_stringn_nocheck(key, n);
    bool ok = text && json_dump_callback(text, append, out, JSON_ENCODE_ANY) == 0;
    json_decref(text);
    return ok && lp_bytes_puts(out, ":");
}

static bool put_object(struct lp_bytes *out, json_t *object) {
    bool first = true, ok = lp_bytes_puts(out, "{");
    for (void *at = json_object_iter(object); at && ok; at = json_object_iter_next(object, at)) {
        ok = (first || lp_bytes_puts(out, ",")) &&
             put_key(out, json_object_iter_key(at), json_object_iter_key_len(at)) &&
             put(out, json_object_iter_value(at));
        first = false;
    }
    return ok && lp_bytes_puts(out, "}");
}

static bool put_array(struct lp_bytes *out, const json_t *array) {
    bool ok = lp_bytes_puts(out, "[");
    for (size_t i = 0; i < json_array_size(array) && ok; i++)
        ok = (i == 0 || lp_bytes_puts(out, ",")) && put(out, json_array_get(array, i));
    return ok && lp_bytes_puts(out, "]");
}

static bool put(struct lp_bytes *out, const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return put_object(out, (json_t *)value);
    case JSON_ARRAY:
        return put_array(out, value);
    case JSON_REAL:
        return put_real(out, json_real_value(value));
    default:
        return json_dump_callback(value, append, out, JSON_ENCODE_ANY) == 0;
    }
}

bool lp_json_dump(struct lp_bytes *out, const json_t *value) {
    return put(out, value);
}

json_t *lp_json_ids(const int32_t *ids, size_t n) {
    json_t *out = json_array();
    for (size_t i = 0; i < n && out; i++) {
        if (json_array_append_new(out, json_integer(ids[i])) == 0) continue;
        json_decref(out);
        out = NULL;
    }
    return out;
}
