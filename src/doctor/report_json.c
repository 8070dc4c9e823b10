// The report as one JSON object (docs/cli.md has its keys). What JSON has no number for is null.
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/report_view.h"

// Adds and takes over the value; NULL (no memory) fails, too.
static bool put(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) == 0;
}

static bool put_text(json_t *object, const char *key, const char *text) {
    char *clean = lp_report_view_clean(text);
    bool ok = clean && put(object, key, json_string(clean));
    lp_free(clean);
    return ok;
}

static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static bool ends(const char *text, const char *ending) {
    size_t n = strlen(text), k = strlen(ending);
    return n >= k && strcmp(text + n - k, ending) == 0;
}

// What a fault's `what` names. Keys of the architecture begin with its name, which begins `model`.
static const char *kind_of(const struct lp_report *r, const struct lp_fault *f) {
    const char *what = f->what;
    size_t arch = strcspn(r->model, ", ");
    if (ends(what, ".weight") || ends(what, ".bias") || strncmp(what, "blk.", 4) == 0)
        return "tensor";
    if (strchr(what, '/') || ends(what, ".gguf")) return "file";
    bool of_arch = arch > 0 && strncmp(what, r->model, arch) == 0 && what[arch] == '.';
    static const char *const spaces[] = {"general.", "tokenizer.", "split."};
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++)
        if (strncmp(what, spaces[i], strlen(spaces[i])) == 0) return "key";
    if (of_arch || (f->stage == LP_STAGE_FILE && strchr(what, '.'))) return "key";
    return f->stage == LP_STAGE_TOKENS ? "token" : "operation";
}

static json_t *fault_json(const struct lp_report *r, const struct lp_fault *f) {
    json_t *object = json_object();
    if (object && put_text(object, "check", f->check) &&
        put_text(object, "stage", lp_stage_name(f->stage)) &&
        put(object, "layer", f->layer < 0 ? json_null() : json_integer(f->layer)) &&
        put_text(object, "op", f->what) && put_text(object, "kind", kind_of(r, f)) &&
        put_text(object, "advice", f->advice))
        return object;
    json_decref(object);
    return NULL;
}

static json_t *check_json(const struct lp_check *c) {
    bool ok = c->outcome != LP_CHECK_FAULT && c->outcome != LP_CHECK_FOLLOWS;
    json_t *object = json_object();
    if (object && put_text(object, "stage", lp_stage_name(c->stage)) &&
        put_text(object, "name", c->name) && put_text(object, "figure", c->figure) &&
        put_text(object, "bound", c->bound) && put(object, "value", number(c->value)) &&
        put(object, "limit", number(c->limit)) && put(object, "ok", json_boolean(ok)) &&
        put_text(object, "outcome", lp_outcome_name(c->outcome)) &&
        put_text(object, "text", c->text) && put(object, "seconds", number(c->seconds)))
        return object;
    json_decref(object);
    return NULL;
}

static json_t *series_json(const struct lp_series *s) {
    json_t *object = json_object(), *values = json_array();
    bool ok = object && values;
    for (size_t i = 0; i < s->n && ok; i++)
        ok = json_array_append_new(values, number(s->values[i])) == 0;
    if (ok && put_text(object, "name", s->name) && put_text(object, "x_label", s->x_label) &&
        put_text(object, "y_label", s->y_label) && put(object, "log_y", json_boolean(s->log_y)) &&
        put(object, "values", json_incref(values))) {
        json_decref(values);
        return object;
    }
    json_decref(object);
    json_decref(values);
    return NULL;
}

// The lists of the report, each appended to as it is walked.
struct lists {
    json_t *faults, *follows, *checks, *series;
};

static bool fill(const struct lists *to, const struct lp_report *r) {
    bool ok = true;
    for (size_t i = 0; i < r->n_faults && ok; i++) {
        json_t *list = r->faults[i].follows ? to->follows : to->faults;
        ok = json_array_append_new(list, fault_json(r, &r->faults[i])) == 0;
    }
    for (size_t i = 0; i < r->n_checks && ok; i++)
        ok = json_array_append_new(to->checks, check_json(&r->checks[i])) == 0;
    for (size_t i = 0; i < r->n_series && ok; i++)
        ok = json_array_append_new(to->series, series_json(&r->series[i])) == 0;
    return ok;
}

static bool build(json_t *root, const struct lp_report *r) {
    struct lists lists = {json_array(), json_array(), json_array(), json_array()};
    bool ok = put_text(root, "verdict", r->verdict);
    ok = put(root, "healthy", json_boolean(lp_report_healthy(r))) && ok;
    ok =
        put(root, "faults", lists.faults) && ok; // the root owns the lists from here, come what may
    ok = put(root, "follows", lists.follows) && ok;
    ok = put(root, "checks", lists.checks) && ok;
    ok = put(root, "series", lists.series) && ok;
    return ok && fill(&lists, r) && put_text(root, "model", r->model) &&
           put_text(root, "path", r->path) && put(root, "quick", json_boolean(r->quick)) &&
           put(root, "seconds", number(r->seconds)) && put_text(root, "version", LIMPID_VERSION);
}

static int append(const char *data, size_t n, void *out) {
    return lp_bytes_append(out, data, n) ? 0 : -1;
}

bool lp_report_json(const struct lp_report *report, struct lp_bytes *out) {
    json_t *root = json_object();
    bool ok = root && build(root, report) &&
              json_dump_callback(root, append, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 &&
              lp_bytes_puts(out, "\n");
    json_decref(root);
    return ok;
}
