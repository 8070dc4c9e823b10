// Fields of config.json with their types and ranges, and keys of the GGUF.
#include "hf/hf_config_parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void lp_hf_config_fail(struct lp_hf_config_reader *r, lp_status status, const char *format, ...) {
    if (r->status) return;
    char text[LP_ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = lp_err_set(r->err, status, "%s: %s", r->file, text);
}

const json_t *lp_hf_config_get(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return value && !json_is_null(value) ? value : NULL;
}

const char *lp_hf_config_value(const json_t *value, char out[LP_HF_VALUE_BYTES]) {
    if (json_is_string(value))
        snprintf(out, LP_HF_VALUE_BYTES, "%.60s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(out, LP_HF_VALUE_BYTES, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(out, LP_HF_VALUE_BYTES, "%.9g", json_real_value(value));
    else
        snprintf(out, LP_HF_VALUE_BYTES, "%s",
                 json_is_true(value)     ? "true"
                 : json_is_false(value)  ? "false"
                 : json_is_array(value)  ? "a list"
                 : json_is_object(value) ? "an object"
                                         : "null");
    return out;
}

static void wrong(struct lp_hf_config_reader *r, const char *where, const char *name,
                  const json_t *value, const char *expected) {
    char text[LP_HF_VALUE_BYTES];
    lp_hf_config_fail(r, LP_STATUS_FORMAT, "%s%s is %s%s%s, expected %s", where, name,
                      json_is_string(value) ? "'" : "", lp_hf_config_value(value, text),
                      json_is_string(value) ? "'" : "", expected);
}

double lp_hf_config_number(struct lp_hf_config_reader *r, const json_t *object, const char *where,
                           const char *name, double min, double max, double otherwise) {
    const json_t *value = lp_hf_config_get(object, name);
    if (r->status || !value) return otherwise;
    double number = json_number_value(value);
    if (json_is_number(value) && number >= min && number <= max) return number;
    char expected[80];
    snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
    wrong(r, where, name, value, expected);
    return otherwise;
}

int64_t lp_hf_config_whole(struct lp_hf_config_reader *r, const json_t *object, const char *where,
                           const char *name, int64_t min, int64_t max, int64_t otherwise) {
    const json_t *value = lp_hf_config_get(object, name);
    if (r->status || !value) return otherwise;
    // 4096.0 is a whole number too; all limits are far below 2^53
    double number = json_number_value(value);
    if (json_is_number(value) && number >= (double)min && number <= (double)max &&
        floor(number) == number)
        return (int64_t)number;
    char expected[80];
    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)min,
             (long long)max);
    wrong(r, where, name, value, expected);
    return otherwise;
}

bool lp_hf_config_bool(struct lp_hf_config_reader *r, const json_t *object, const char *where,
                       const char *name, bool otherwise) {
    const json_t *value = lp_hf_config_get(object, name);
    if (r->status || !value) return otherwise;
    if (!json_is_boolean(value)) wrong(r, where, name, value, "true or false");
    return json_is_true(value);
}

const char *lp_hf_config_text(struct lp_hf_config_reader *r, const json_t *object,
                              const char *where, const char *name, const char *otherwise) {
    const json_t *value = lp_hf_config_get(object, name);
    if (r->status || !value) return otherwise;
    if (json_is_string(value)) return json_string_value(value);
    wrong(r, where, name, value, "a string");
    return otherwise;
}

bool lp_hf_config_per_layer(struct lp_hf_config_reader *r, const char *name, const json_t *list) {
    const struct lp_hf_model *m = r->model;
    size_t n = json_array_size(list);
    if (json_is_array(list) && n >= (size_t)m->n_layers && n <= (size_t)(m->n_layers + m->n_nextn))
        return true;
    lp_hf_config_fail(r, LP_STATUS_FORMAT,
                      "%s has %zu elements, expected a list of one per layer (%lld)", name, n,
                      (long long)m->n_layers);
    return false;
}

const char *lp_hf_config_key(const struct lp_hf_config_reader *r, const char *suffix,
                             char out[LP_HF_KEY_BYTES]) {
    snprintf(out, LP_HF_KEY_BYTES, "%s.%s", r->family->arch, suffix);
    return out;
}

void lp_hf_config_put_int(struct lp_hf_config_reader *r, const char *suffix, int64_t value) {
    char key[LP_HF_KEY_BYTES];
    if (!r->status) lp_gguf_writer_u32(r->w, lp_hf_config_key(r, suffix, key), (uint32_t)value);
}

void lp_hf_config_put_float(struct lp_hf_config_reader *r, const char *suffix, double value) {
    char key[LP_HF_KEY_BYTES];
    if (!r->status) lp_gguf_writer_f32(r->w, lp_hf_config_key(r, suffix, key), (float)value);
}
