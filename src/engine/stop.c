#include "engine/stop.h"

#include "base/alloc.h"

lp_status lp_stop_init(struct lp_stop *stop, const char *const *texts, size_t n,
                       struct lp_err *err) {
    *stop = (struct lp_stop){0};
    if (n == 0) return LP_OK;
    stop->texts = lp_alloc(n, sizeof *stop->texts);
    stop->lens = lp_alloc(n, sizeof *stop->lens);
    for (size_t i = 0; stop->texts && stop->lens && i < n; i++) {
        stop->lens[i] = strlen(texts[i]);
        if (stop->lens[i] == 0) {
            lp_stop_release(stop);
            return lp_err_set(err, LP_STATUS_INVALID, "stop text %zu is empty", i);
        }
        if (!(stop->texts[i] = lp_strdup(texts[i]))) break;
        stop->n = i + 1;
    }
    if (stop->n == n) return LP_OK;
    lp_stop_release(stop);
    return lp_err_memory(err, n * sizeof *stop->texts, "stop texts");
}

void lp_stop_release(struct lp_stop *stop) {
    for (size_t i = 0; i < stop->n; i++) lp_free(stop->texts[i]);
    lp_free(stop->texts);
    lp_free(stop->lens);
    lp_bytes_release(&stop->held);
    *stop = (struct lp_stop){0};
}

static int match_at(const struct lp_stop *stop, size_t at) {
    int best = -1;
    for (size_t i = 0; i < stop->n; i++)
        if (stop->lens[i] <= stop->held.len - at &&
            memcmp(stop->held.data + at, stop->texts[i], stop->lens[i]) == 0 &&
            (best < 0 || stop->lens[i] > stop->lens[best]))
            best = (int)i;
    return best;
}

// Can the text from `at` to the end grow into a stop text?
static bool may_match(const struct lp_stop *stop, size_t at) {
    size_t n = stop->held.len - at;
    for (size_t i = 0; i < stop->n; i++)
        if (n < stop->lens[i] && memcmp(stop->held.data + at, stop->texts[i], n) == 0) return true;
    return false;
}

int lp_stop_push(struct lp_stop *stop, struct lp_str text, struct lp_bytes *out, bool *ok) {
    *ok = true;
    if (stop->n == 0) {
        *ok = lp_bytes_append(out, text.data, text.len);
        return -1;
    }
    *ok = lp_bytes_append(&stop->held, text.data, text.len);
    if (!*ok) return -1;
    size_t at = 0;
    int met = -1;
    for (; at < stop->held.len; at++) {
        met = match_at(stop, at);
        if (met >= 0 || may_match(stop, at)) break;
    }
    *ok = lp_bytes_append(out, stop->held.data, at);
    size_t rest = met >= 0 ? 0 : stop->held.len - at;
    memmove(stop->held.data, stop->held.data + at, rest);
    stop->held.len = rest;
    return met;
}

bool lp_stop_flush(struct lp_stop *stop, struct lp_bytes *out) {
    bool ok = lp_bytes_append(out, stop->held.data, stop->held.len);
    lp_bytes_clear(&stop->held);
    return ok;
}
