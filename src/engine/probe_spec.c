// key=value, key=value: each key is a row of a table.
#include "engine/probe_spec.h"

#include <string.h>

#include "base/bytes.h"

#define MAX_NUMBER ((int64_t)1 << 40)

struct reader {
    struct lp_probe_spec *out;
    const char *text; // whole, for messages
    int32_t n_layers;
    int64_t n_tokens;
    bool has_op;
    struct lp_err *err;
};

static lp_status refuse(const struct reader *r, const char *key, struct lp_str value,
                        const char *expected) {
    return lp_err_set(r->err, LP_STATUS_INVALID, "probe '%.200s': %s is '%.*s', expected %s",
                      r->text, key, LP_STR_ARGS(value), expected);
}

// Digits alone, all of them; false for anything else.
static bool read_number(struct lp_str text, int64_t *out) {
    *out = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || *out > MAX_NUMBER) return false;
        *out = *out * 10 + (text.data[i] - '0');
    }
    return text.len > 0;
}

// "5" or "2-9".
static bool read_range(struct lp_str text, int64_t *first, int64_t *last) {
    const char *dash = memchr(text.data, '-', text.len);
    size_t n = dash ? (size_t)(dash - text.data) : text.len;
    if (!read_number((struct lp_str){text.data, n}, first)) return false;
    *last = *first;
    return !dash ||
           (read_number((struct lp_str){dash + 1, text.len - n - 1}, last) && *first <= *last);
}

static lp_status add_range(struct reader *r, int64_t first, int64_t last) {
    struct lp_probe_spec *out = r->out;
    if (out->n_ranges == LP_PROBE_SPEC_MAX_RANGES)
        return lp_err_set(r->err, LP_STATUS_INVALID,
                          "probe '%.200s' has more than %d of first=, last= and at=; use several "
                          "probes",
                          r->text, LP_PROBE_SPEC_MAX_RANGES);
    out->ranges[out->n_ranges++] = (struct lp_probe_range){first, last};
    return LP_OK;
}

static lp_status read_layer(struct reader *r, struct lp_str value) {
    int64_t first, last;
    r->out->every_layer = lp_str_is(value, "all");
    if (r->out->every_layer) return LP_OK;
    if (!read_range(value, &first, &last))
        return refuse(r, "layer", value, "a layer such as 3, a range such as 2-5, or all");
    if (last >= r->n_layers)
        return lp_err_set(r->err, LP_STATUS_INVALID,
                          "probe '%.200s': layer %lld is out of range; this model has layers 0 to "
                          "%d",
                          r->text, (long long)last, r->n_layers - 1);
    r->out->first_layer = (int32_t)first;
    r->out->last_layer = (int32_t)last;
    return LP_OK;
}

static size_t shared_prefix(const char *name, struct lp_str text) {
    size_t n = 0;
    while (n < text.len && name[n] && name[n] == text.data[n]) n++;
    return n;
}

static bool contains(const char *name, struct lp_str text) {
    for (const char *at = name; text.len && strlen(at) >= text.len; at++)
        if (memcmp(at, text.data, text.len) == 0) return true;
    return false;
}

// Names that contain what was written; if none does, those that begin most like it.
static lp_status no_such_op(const struct reader *r, struct lp_str value) {
    struct lp_bytes near = {.max_bytes = 600};
    size_t longest = 0;
    bool any = false;
    for (int i = 0; i < LP_N_PROBE_POINTS; i++) {
        size_t n = shared_prefix(lp_probe_name((enum lp_probe_point)i), value);
        if (n > longest) longest = n;
        any = any || contains(lp_probe_name((enum lp_probe_point)i), value);
    }
    for (int i = 0; i < LP_N_PROBE_POINTS; i++) {
        const char *name = lp_probe_name((enum lp_probe_point)i);
        if (any ? contains(name, value) : longest > 0 && shared_prefix(name, value) == longest)
            lp_bytes_printf(&near, "%s%s", near.len ? ", " : "", name);
    }
    lp_status status = lp_err_set(r->err, LP_STATUS_INVALID,
                                  "probe '%.200s': there is no op '%.*s'%s%s; limpid probe list "
                                  "names all",
                                  r->text, LP_STR_ARGS(value), near.len ? "; near: " : "",
                                  near.len ? near.data : "");
    lp_bytes_release(&near);
    return status;
}

static lp_status read_op(struct reader *r, struct lp_str value) {
    bool any = false, pattern = value.len > 0 && value.data[value.len - 1] == '*';
    struct lp_str prefix = {value.data, value.len - pattern};
    for (int i = 0; i < LP_N_PROBE_POINTS; i++) {
        struct lp_str name = lp_str_from(lp_probe_name((enum lp_probe_point)i));
        bool is = pattern
                      ? name.len >= prefix.len && memcmp(name.data, prefix.data, prefix.len) == 0
                      : lp_str_equal(name, value);
        r->out->points[i] = is;
        any = any || is;
    }
    r->has_op = true;
    r->out->by_name = !pattern;
    return any ? LP_OK : no_such_op(r, value);
}

static lp_status read_first(struct reader *r, struct lp_str value) {
    int64_t n;
    if (!read_number(value, &n) || n == 0)
        return refuse(r, "first", value, "a number of rows from the start");
    return add_range(r, 0, n < r->n_tokens ? n - 1 : r->n_tokens - 1);
}

static lp_status read_last(struct reader *r, struct lp_str value) {
    int64_t n;
    if (!read_number(value, &n) || n == 0)
        return refuse(r, "last", value, "a number of rows from the end");
    return add_range(r, n < r->n_tokens ? r->n_tokens - n : 0, r->n_tokens - 1);
}

static lp_status read_at(struct reader *r, struct lp_str value) {
    int64_t first, last;
    if (!read_range(value, &first, &last))
        return refuse(r, "at", value, "a position such as 7 or a range such as 7-12");
    if (last >= r->n_tokens)
        return lp_err_set(r->err, LP_STATUS_INVALID,
                          "probe '%.200s': position %lld is out of range; the tokens have "
                          "positions 0 to %lld",
                          r->text, (long long)last, (long long)r->n_tokens - 1);
    return add_range(r, first, last);
}

static lp_status read_pair(struct reader *r, struct lp_str pair) {
    static const struct {
        const char *key;
        lp_status (*read)(struct reader *r, struct lp_str value);
    } keys[] = {{"layer", read_layer},
                {"op", read_op},
                {"first", read_first},
                {"last", read_last},
                {"at", read_at}};
    const char *equals = memchr(pair.data, '=', pair.len);
    struct lp_str key = {pair.data, equals ? (size_t)(equals - pair.data) : pair.len};
    for (size_t i = 0; equals && i < sizeof keys / sizeof keys[0]; i++)
        if (lp_str_is(key, keys[i].key))
            return keys[i].read(r, (struct lp_str){equals + 1, pair.len - key.len - 1});
    return lp_err_set(r->err, LP_STATUS_INVALID,
                      "probe '%.200s': '%.*s' is no key; expected layer=, op=, first=, last= or "
                      "at=, with commas between",
                      r->text, LP_STR_ARGS(key));
}

lp_status lp_probe_spec_parse(struct lp_probe_spec *out, const char *text, int32_t n_layers,
                              int64_t n_tokens, struct lp_err *err) {
    struct reader r = {out, text, n_layers, n_tokens, false, err};
    *out = (struct lp_probe_spec){.every_layer = true};
    for (const char *at = text;;) {
        size_t len = strcspn(at, ",");
        lp_status status = read_pair(&r, (struct lp_str){at, len});
        if (status) return status;
        if (!at[len]) break;
        at += len + 1;
    }
    if (!r.has_op)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "probe '%.200s' names no op; for example op=attn.q, or op=attn.*", text);
    return out->n_ranges ? LP_OK : add_range(&r, 0, n_tokens - 1);
}
