#include "serve/json_out.h"

#include <math.h>

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

static int append(const char *data, size_t n, void *user) {
    return lp_bytes_append(user, data, n) ? 0 : -1;
}

bool lp_json_dump(struct lp_bytes *out, const json_t *value) {
    return json_dump_callback(value, append, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0;
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
