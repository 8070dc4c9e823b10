// Values are kept until the run has ended: at most MAX_BYTES of them, and of one request at a time.
#include "serve/debug_probe.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/fields.h"
#include "serve/json_out.h"

#define MAX_PROBES 64
#define MAX_TOKENS 4096                 // a run cannot be cancelled; limpid dump has no such limit
#define MAX_BYTES ((int64_t)16 << 20)   // of values, as base64
#define MAX_VALUES ((int64_t)256 << 10) // as JSON numbers

struct run {
    struct lp_service *service;
    bool as_values;
    int32_t *ids;
    size_t n_ids;
    const char *specs[MAX_PROBES];
    size_t n_specs;
    limpid_probes *probes;
    uint32_t **values; // [count]; NaN or -1 where a row did not come
    size_t count;
};

// ---- the request ----

static bool read_ids(struct run *r, const json_t *list, struct lp_api_error *err) {
    r->n_ids = json_array_size(list);
    if (!json_is_array(list) || r->n_ids == 0)
        return lp_api_invalid(err, "tokens", "tokens is %s, expected an array of token ids",
                              json_is_array(list) ? "empty" : lp_json_type_name(list));
    if (!(r->ids = lp_alloc(r->n_ids, sizeof *r->ids))) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < r->n_ids; i++) {
        const json_t *one = json_array_get(list, i);
        json_int_t id = json_integer_value(one);
        if (!json_is_integer(one) || id < 0 || id > INT32_MAX)
            return lp_api_invalid(err, "tokens", "tokens[%zu] is no token id", i);
        r->ids[i] = (int32_t)id;
    }
    return true;
}

static bool read_prompt(struct run *r, const json_t *text, struct lp_api_error *err) {
    limpid_error e;
    if (!json_is_string(text))
        return lp_api_invalid(err, "prompt", "prompt is %s, expected a string",
                              lp_json_type_name(text));
    if (limpid_tokenize(r->service->model, json_string_value(text), json_string_length(text),
                        LIMPID_SPECIAL | LIMPID_BOS, &r->ids, &r->n_ids, &e))
        return lp_api_from_limpid(err, &e);
    return r->n_ids > 0 || lp_api_invalid(err, "prompt", "prompt has no tokens");
}

static bool read_specs(struct run *r, const json_t *list, struct lp_api_error *err) {
    r->n_specs = json_array_size(list);
    if (r->n_specs == 0 || r->n_specs > MAX_PROBES)
        return lp_api_invalid(err, "probes",
                              "probes must be an array of 1 to %d texts such as "
                              "\"layer=3,op=attn.q\"",
                              MAX_PROBES);
    for (size_t i = 0; i < r->n_specs; i++)
        if (!(r->specs[i] = json_string_value(json_array_get(list, i))))
            return lp_api_invalid(err, "probes", "probes[%zu] is no string", i);
    return true;
}

static bool read_request(struct run *r, const json_t *root, struct lp_api_error *err) {
    const json_t *tokens = lp_json_field(root, "tokens"), *prompt = lp_json_field(root, "prompt"),
                 *format = lp_json_field(root, "format");
    const char *name = format ? json_string_value(format) : "npy";
    if (!name || (strcmp(name, "npy") != 0 && strcmp(name, "values") != 0))
        return lp_api_invalid(err, "format", "format must be \"npy\" or \"values\"");
    r->as_values = strcmp(name, "values") == 0;
    if (!tokens == !prompt)
        return lp_api_invalid(err, "tokens", "expected tokens or prompt, and not both");
    if (!(tokens ? read_ids(r, tokens, err) : read_prompt(r, prompt, err))) return false;
    if (r->n_ids > MAX_TOKENS)
        return lp_api_invalid(err, tokens ? "tokens" : "prompt",
                              "%zu tokens are too many, at most %d are run here; limpid dump takes "
                              "any number",
                              r->n_ids, MAX_TOKENS);
    return read_specs(r, lp_json_field(root, "probes"), err);
}

// ---- the run ----

static int64_t row_values(const limpid_probe *p) {
    return p->dims[0] * (p->n_dims == 2 ? p->dims[1] : 1);
}

static bool take_values(struct run *r, struct lp_api_error *err) {
    int64_t total = 0, most = r->as_values ? MAX_VALUES : MAX_BYTES / 4;
    r->count = limpid_probes_count(r->probes);
    for (size_t i = 0; i < r->count; i++) {
        limpid_probe p = limpid_probes_get(r->probes, i);
        int64_t row = row_values(&p);
        if (row > most || p.n_rows > (most - total) / (row ? row : 1))
            return lp_api_invalid(err, "probes",
                                  "the probes have more than %lld values, which is the most that "
                                  "is given at a time%s; ask for fewer rows (first=, last=, at=) "
                                  "or layers",
                                  (long long)most,
                                  r->as_values ? " as numbers (\"format\": \"npy\" gives more)"
                                               : "");
        total += p.n_rows * row;
    }
    if (!(r->values = lp_alloc(r->count, sizeof *r->values))) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < r->count; i++) {
        limpid_probe p = limpid_probes_get(r->probes, i);
        size_t n = (size_t)(p.n_rows * row_values(&p));
        float nan = NAN;
        if (!(r->values[i] = lp_alloc(n, sizeof **r->values))) return lp_api_out_of_memory(err);
        for (size_t k = 0; k < n; k++)
            if (p.is_int)
                r->values[i][k] = UINT32_MAX; // -1
            else
                memcpy(&r->values[i][k], &nan, sizeof nan);
    }
    return true;
}

static void on_probed(void *user, size_t i, int64_t first, int64_t n, const void *values) {
    const struct run *r = user;
    limpid_probe p = limpid_probes_get(r->probes, i);
    int64_t row = row_values(&p);
    memcpy(r->values[i] + first * row, values, (size_t)(n * row) * sizeof **r->values);
}

static bool run_tokens(struct run *r, struct lp_api_error *err) {
    limpid_error e;
    limpid_sequence *sequence = NULL;
    limpid_watch watch = {.user = r, .probes = NULL, .probed = on_probed};
    if (limpid_probes_new(&r->probes, r->service->model, r->specs, r->n_specs, (int64_t)r->n_ids,
                          &e))
        return e.status == LIMPID_INVALID ? lp_api_invalid(err, "probes", "%s", e.text)
                                          : lp_api_from_limpid(err, &e);
    if (!take_values(r, err)) return false;
    watch.probes = r->probes;
    bool failed = limpid_sequence_new(&sequence, r->service->engine, &e) ||
                  limpid_sequence_append(sequence, r->ids, r->n_ids, &watch, NULL, &e);
    limpid_sequence_free(sequence);
    return !failed || lp_api_from_limpid(err, &e);
}

// ---- the answer ----

static bool put_base64(struct lp_bytes *out, const uint8_t *data, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char block[1024];
    for (size_t i = 0, used = 0; i < n || used; i += 3) {
        if (used == sizeof block || i >= n) {
            if (!lp_bytes_append(out, block, used)) return false;
            used = 0;
            if (i >= n) break;
        }
        size_t left = n - i;
        uint32_t bits = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                        (left > 2 ? data[i + 2] : 0);
        block[used++] = digits[bits >> 18];
        block[used++] = digits[bits >> 12 & 63];
        block[used++] = left > 1 ? digits[bits >> 6 & 63] : '=';
        block[used++] = left > 2 ? digits[bits & 63] : '=';
    }
    return true;
}

static json_t *npy_json(const limpid_probe *p, const uint32_t *values) {
    struct lp_bytes file = {0}, text = {0};
    char head[256];
    int n = snprintf(head, sizeof head,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%lld, %lld, ",
                     p->is_int ? "<i4" : "<f4", (long long)p->n_rows, (long long)p->dims[0]);
    if (p->n_dims == 2)
        n += snprintf(head + n, sizeof head - (size_t)n, "%lld, ", (long long)p->dims[1]);
    n += snprintf(head + n, sizeof head - (size_t)n, "), }");
    while ((10 + n + 1) % 64) head[n++] = ' ';
    head[n++] = '\n';
    const unsigned char magic[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(n & 255), (unsigned char)(n >> 8)};
    lp_bytes_append(&file, magic, sizeof magic);
    lp_bytes_append(&file, head, (size_t)n);
    lp_bytes_append(&file, values, (size_t)(p->n_rows * row_values(p)) * sizeof *values);
    json_t *out = !file.failed && put_base64(&text, (const uint8_t *)file.data, file.len)
                      ? json_stringn_nocheck(text.data, text.len)
                      : NULL;
    lp_bytes_release(&file);
    lp_bytes_release(&text);
    return out;
}

static json_t *values_json(const limpid_probe *p, const uint32_t *values) {
    json_t *out = json_array();
    for (int64_t i = 0; out && i < p->n_rows * row_values(p); i++) {
        float f;
        memcpy(&f, &values[i], sizeof f);
        json_t *one = p->is_int     ? json_integer((int32_t)values[i])
                      : isfinite(f) ? json_real((double)f)
                                    : json_null();
        if (json_array_append_new(out, one) == 0) continue;
        json_decref(out);
        return NULL;
    }
    return out;
}

static json_t *probe_json(const struct run *r, size_t i) {
    limpid_probe p = limpid_probes_get(r->probes, i);
    json_t *ranges = json_array(),
           *shape = json_pack("[I, I]", (json_int_t)p.n_rows, (json_int_t)p.dims[0]);
    if (p.n_dims == 2) json_array_append_new(shape, json_integer(p.dims[1]));
    for (size_t k = 0; k < p.n_ranges; k++)
        json_array_append_new(ranges, json_pack("[I, I]", (json_int_t)p.ranges[2 * k],
                                                (json_int_t)p.ranges[2 * k + 1]));
    json_t *out = json_pack("{s:s, s:o, s:s, s:o, s:o, s:I}", "op", p.name, "layer",
                            p.layer < 0 ? json_null() : json_integer(p.layer), "type",
                            p.is_int ? "int32" : "float32", "shape", shape, "positions", ranges,
                            "missing", (json_int_t)(p.n_rows - p.n_found));
    if (out && p.n_found < p.n_rows && p.needs[0])
        json_object_set_new(out, "why_missing", json_sprintf("only %s", p.needs));
    json_t *data = r->as_values ? values_json(&p, r->values[i]) : npy_json(&p, r->values[i]);
    if (!out || !data || json_object_set_new(out, r->as_values ? "values" : "npy", data) != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static json_t *answer_json(const struct run *r) {
    json_t *probes = json_array(), *routes = json_array();
    bool ok = probes && routes;
    for (size_t i = 0; i < r->count && ok; i++)
        ok = json_array_append_new(probes, probe_json(r, i)) == 0;
    for (size_t i = 0; i < limpid_probes_count_routes(r->probes) && ok; i++) {
        limpid_probe_route route = limpid_probes_get_route(r->probes, i);
        ok = json_array_append_new(
                 routes, json_pack("{s:i, s:[I, I], s:s}", "layer", (int)route.layer, "positions",
                                   (json_int_t)route.first, (json_int_t)(route.first + route.n - 1),
                                   "route", route.name)) == 0;
    }
    json_t *out = json_pack("{s:o, s:s, s:o, s:o, s:o}", "model",
                            lp_json_text(lp_str_from(r->service->model_id)), "backend",
                            limpid_model_get_info(r->service->model).backend, "tokens",
                            lp_json_ids(r->ids, r->n_ids), "probes", probes, "routes", routes);
    if (ok) return out;
    json_decref(out);
    return NULL;
}

static void run_release(struct run *r) {
    for (size_t i = 0; i < r->count && r->values; i++) lp_free(r->values[i]);
    lp_free(r->values);
    limpid_probes_free(r->probes);
    lp_free(r->ids);
}

static json_t *answer(struct lp_service *service, const char *body, size_t n_bytes,
                      struct lp_api_error *err) {
    struct run r = {.service = service};
    json_t *out = NULL,
           *root = lp_body_parse(body, n_bytes, limpid_engine_context(service->engine), err);
    if (root && read_request(&r, root, err) && run_tokens(&r, err) && !(out = answer_json(&r)))
        lp_api_out_of_memory(err);
    run_release(&r);
    json_decref(root);
    return out;
}

void lp_debug_probe(struct lp_service *service, const char *body, size_t n_bytes,
                    struct lp_http_reply *reply) {
    struct lp_api_error err;
    json_t *out = NULL;
    if (!service->debug_probes)
        lp_api_fail(&err, 404, NULL,
                    "this server gives no intermediates; start it with --debug-probes and an API "
                    "key");
    else if (atomic_flag_test_and_set(&service->probing))
        lp_api_fail(&err, 429, NULL, "another request looks at intermediates; ask again later");
    else {
        out = answer(service, body, n_bytes, &err);
        atomic_flag_clear(&service->probing);
    }
    if (out)
        lp_http_reply_json(reply, 200, out);
    else
        lp_http_reply_error(reply, lp_api_error_json, &err);
}
