#include "cli/json_build.h"

#include <math.h>
#include <stdio.h>

#include "base/clean.h"

void lp_json_build_put(bool *failed, json_t *object, const char *key, json_t *value) {
    if (!value || json_object_set_new(object, key, value)) *failed = true;
}

void lp_json_build_add(bool *failed, json_t *array, json_t *value) {
    if (!value || json_array_append_new(array, value)) *failed = true;
}

json_t *lp_json_build_text(struct lp_str text) {
    char buffer[LP_CLEAN_MAX_BYTES];
    return json_string(lp_clean_text(buffer, sizeof buffer, text));
}

json_t *lp_json_build_count(uint64_t value) {
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

json_t *lp_json_build_number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *lp_json_build_type(lp_type type) {
    return json_string(lp_type_info((uint32_t)type)->name);
}

json_t *lp_json_build_shape(const struct lp_gguf_tensor *t) {
    bool failed = false;
    json_t *shape = json_array();
    for (uint32_t i = 0; i < t->n_dims; i++)
        lp_json_build_add(&failed, shape, lp_json_build_count(t->ne[i]));
    if (!failed) return shape;
    json_decref(shape);
    return NULL;
}

bool lp_json_build_print(const json_t *report) {
    bool written = json_dumpf(report, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(8)) == 0;
    return putchar('\n') != EOF && fflush(stdout) == 0 && written;
}
