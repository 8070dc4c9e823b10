// limpid diff: what two model files differ in, and from which layer on two models part. The report
// is one JSON object; the text is printed from it.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clean.h"
#include "cli/args.h"
#include "cli/diff_print.h"
#include "cli/find_model.h"
#include "engine/model_file.h"
#include "files/compare.h"
#include "files/compare_run.h"

#define MAX_VALUE_BYTES 80
#define LP_DIFF_DIFFERENT 1 // exit status, as of cmp and diff
#define LP_DIFF_FAILED 2

static json_t *clean(struct lp_str text) {
    char buffer[LP_CLEAN_MAX_BYTES];
    return json_string(lp_clean_text(buffer, sizeof buffer, text));
}

static json_t *number_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *value_text(const struct lp_gguf_kv *kv) {
    char text[MAX_VALUE_BYTES + 8];
    if (!kv) return json_null();
    if (kv->type == LP_GGUF_ARRAY)
        snprintf(text, sizeof text, "array of %llu %s", (unsigned long long)kv->count,
                 lp_gguf_value_type_name(kv->element_type));
    else if (kv->element_type == LP_GGUF_STRING) {
        char all[MAX_VALUE_BYTES];
        snprintf(text, sizeof text, "\"%s\"", lp_clean_text(all, sizeof all, kv->strings[0]));
    } else if (kv->element_type == LP_GGUF_BOOL)
        snprintf(text, sizeof text, "%s", lp_gguf_int_at(kv, 0) ? "true" : "false");
    else if (lp_gguf_is_integral(kv->element_type))
        snprintf(text, sizeof text, "%lld", (long long)lp_gguf_int_at(kv, 0));
    else
        snprintf(text, sizeof text, "%.9g", lp_gguf_float_at(kv, 0));
    return json_string(text);
}

static json_t *keys_json(const struct lp_compare *d) {
    json_t *list = json_array();
    for (size_t i = 0; i < d->n_keys; i++) {
        const struct lp_compare_key *k = &d->keys[i];
        json_t *row = json_object();
        json_object_set_new(row, "key", clean(k->key));
        json_object_set_new(row, "a", value_text(k->a));
        json_object_set_new(row, "b", value_text(k->b));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *shape_json(const struct lp_gguf_tensor *t) {
    json_t *shape = json_array();
    for (uint32_t i = 0; t && i < t->n_dims; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->ne[i]));
    return shape;
}

static json_t *tensor_json(const struct lp_compare_tensor *t, bool values) {
    static const char *const states[] = {"equal", "different", "shape", "only_a", "only_b"};
    json_t *row = json_object();
    bool compared = values && t->state <= LP_COMPARE_VALUES;
    json_object_set_new(row, "name", clean(t->name));
    json_object_set_new(
        row, "state",
        json_string(values || t->state > LP_COMPARE_VALUES ? states[t->state] : "not compared"));
    json_object_set_new(row, "type_a",
                        t->a ? json_string(lp_type_info((uint32_t)t->a->type)->name) : json_null());
    json_object_set_new(row, "type_b",
                        t->b ? json_string(lp_type_info((uint32_t)t->b->type)->name) : json_null());
    json_object_set_new(row, "shape_a", shape_json(t->a));
    json_object_set_new(row, "shape_b", shape_json(t->b));
    json_object_set_new(row, "rms", compared ? number_or_null(t->rms) : json_null());
    json_object_set_new(row, "cosine", compared ? number_or_null(t->cosine) : json_null());
    json_object_set_new(row, "largest", compared ? number_or_null(t->largest) : json_null());
    json_object_set_new(row, "not_finite", json_integer((json_int_t)t->n_nonfinite));
    return row;
}

static json_t *run_json(const struct lp_compare_run *run) {
    json_t *object = json_object(), *layers = json_array();
    json_object_set_new(object, "tokens", json_integer(run->n_tokens));
    for (int32_t i = 0; i < run->n_layers; i++) {
        const struct lp_compare_layer *l = &run->layers[i];
        json_t *row = json_object();
        json_object_set_new(row, "layer", json_integer(l->layer));
        json_object_set_new(row, "rms", number_or_null(l->rms));
        json_object_set_new(row, "cosine", number_or_null(l->cosine));
        json_object_set_new(row, "worst_cosine", number_or_null(l->worst_cosine));
        json_array_append_new(layers, row);
    }
    json_object_set_new(object, "layers", layers);
    json_object_set_new(object, "jump_layer", json_integer(run->jump_layer));
    json_object_set_new(object, "jump", number_or_null(run->jump));
    json_object_set_new(object, "kl", number_or_null(run->kl));
    json_object_set_new(object, "max_kl", number_or_null(run->max_kl));
    json_object_set_new(object, "same_top", number_or_null(run->same_top));
    return object;
}

struct settings {
    const char *paths[2], *prompt;
    bool json, list, no_values;
    int64_t threads;
};

static json_t *report_json(const struct settings *s, const struct lp_compare *d,
                           const struct lp_compare_run *run) {
    json_t *root = json_object(), *tensors = json_array();
    json_object_set_new(root, "a", json_string(s->paths[0]));
    json_object_set_new(root, "b", json_string(s->paths[1]));
    json_object_set_new(root, "same", json_boolean(lp_compare_is_empty(d)));
    json_object_set_new(root, "equal_keys", json_integer((json_int_t)d->n_equal_keys));
    json_object_set_new(root, "keys", keys_json(d));
    for (size_t i = 0; i < d->n_tensors; i++)
        json_array_append_new(tensors, tensor_json(&d->tensors[i], !s->no_values));
    json_object_set_new(root, "tensors", tensors);
    if (run) json_object_set_new(root, "prompt", run_json(run));
    return root;
}

static int run_prompt(const struct settings *s, char *const paths[2], struct lp_compare_run *out) {
    limpid_model *models[2] = {NULL, NULL};
    limpid_model_options options = limpid_model_default_options();
    limpid_error err;
    options.n_threads = (int)s->threads;
    limpid_status status = limpid_model_open(&models[0], paths[0], &options, &err);
    if (!status) status = limpid_model_open(&models[1], paths[1], &options, &err);
    if (!status) status = lp_compare_run(out, models[0], models[1], s->prompt, &err);
    limpid_model_close(models[0]);
    limpid_model_close(models[1]);
    if (!status) return LP_EXIT_OK;
    lp_fail(&err);
    return LP_DIFF_FAILED;
}

static int print_report(const struct settings *s, const struct lp_compare *d,
                        const struct lp_compare_run *run) {
    json_t *report = report_json(s, d, run);
    if (!report) {
        lp_fail_text("out of memory: the report");
        return LP_DIFF_FAILED;
    }
    if (s->json) {
        json_dumpf(report, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
        putchar('\n');
    } else
        lp_diff_print(report, s->list, stdout);
    json_decref(report);
    return lp_compare_is_empty(d) ? LP_EXIT_OK : LP_DIFF_DIFFERENT;
}

static int compare(const struct settings *s, char *const paths[2]) {
    struct lp_model_file files[2] = {{0}, {0}};
    struct lp_err err;
    struct lp_compare diff = {0};
    struct lp_compare_run run = {0};
    struct lp_compare_options options = {.n_threads = (int)s->threads, .no_values = s->no_values};
    int result = LP_EXIT_OK;
    lp_status status = lp_model_file_open(&files[0], paths[0], (int)s->threads, &err);
    if (!status) status = lp_model_file_open(&files[1], paths[1], (int)s->threads, &err);
    if (!status) status = lp_compare_make(&diff, files[0].gguf, files[1].gguf, &options, &err);
    if (status) {
        lp_fail((limpid_error *)&err);
        result = LP_DIFF_FAILED;
    }
    if (!result && s->prompt) result = run_prompt(s, paths, &run);
    if (!result) result = print_report(s, &diff, s->prompt ? &run : NULL);
    lp_compare_run_release(&run);
    lp_compare_release(&diff);
    lp_model_file_close(&files[0]);
    lp_model_file_close(&files[1]);
    return result;
}

static int run(int argc, char **argv) {
    struct settings s = {0};
    const struct lp_option options[] = {
        {"--tensors", LP_OPT_FLAG, &s.list, NULL, "list every tensor, not only the worst"},
        {"--no-values", LP_OPT_FLAG, &s.no_values, NULL,
         "compare names, shapes and types only, which reads no weights"},
        {"--prompt", LP_OPT_TEXT, &s.prompt, "TEXT",
         "also run both on a text and compare the streams after each layer"},
        {"--json", LP_OPT_FLAG, &s.json, NULL, "one JSON object on standard output"},
        {"--threads", LP_OPT_INT, &s.threads, "N", "default: all CPUs"},
    };
    int status = lp_args_parse(argc, argv, &lp_cmd_diff, options,
                               sizeof options / sizeof options[0], s.paths, 2);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (!s.paths[0] || !s.paths[1]) return lp_usage(&lp_cmd_diff, "two models are needed, A and B");
    if (s.threads > 1024)
        return lp_usage(&lp_cmd_diff, "--threads is %lld, expected 1 to 1024",
                        (long long)s.threads);
    char *paths[2] = {NULL, NULL};
    for (int i = 0; i < 2 && !status; i++)
        if (lp_find_model(&paths[i], s.paths[i], &lp_cmd_diff)) status = LP_DIFF_FAILED;
    if (!status) status = compare(&s, paths);
    lp_free(paths[0]);
    lp_free(paths[1]);
    return status;
}

const struct lp_command lp_cmd_diff = {
    "diff", "A B [--tensors] [--no-values] [--prompt TEXT] [--json]",
    "what two models differ in: metadata, shapes, types, values; exit 0 if in nothing", run};
