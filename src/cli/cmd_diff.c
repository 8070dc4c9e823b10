// limpid diff: what two model files differ in, and from which layer on two models part. The report
// is one JSON object; the text is printed from it.
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clean.h"
#include "cli/args.h"
#include "cli/diff_print.h"
#include "cli/find_model.h"
#include "cli/json_build.h"
#include "cli/program_ranks.h"
#include "dist/comm.h"
#include "engine/model_file.h"
#include "files/compare.h"
#include "files/compare_run.h"

#define MAX_VALUE_BYTES 80
enum { EXIT_DIFFERENT = 1, EXIT_FAILED = 2 }; // as of cmp and diff

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

static json_t *key_json(bool *failed, const struct lp_compare_key *k) {
    json_t *row = json_object();
    lp_json_build_put(failed, row, "key", lp_json_build_text(k->key));
    lp_json_build_put(failed, row, "a", value_text(k->a));
    lp_json_build_put(failed, row, "b", value_text(k->b));
    return row;
}

static void put_side(bool *failed, json_t *row, const char *type, const char *shape,
                     const struct lp_gguf_tensor *t) {
    lp_json_build_put(failed, row, type, t ? lp_json_build_type(t->type) : json_null());
    lp_json_build_put(failed, row, shape, t ? lp_json_build_shape(t) : json_array());
}

static json_t *tensor_json(bool *failed, const struct lp_compare_tensor *t, bool values) {
    static const char *const states[] = {"equal", "different", "shape", "only_a", "only_b"};
    json_t *row = json_object();
    bool has_pair = t->state <= LP_COMPARE_VALUES, compared = values && has_pair;
    const char *state = has_pair && !values ? "not compared" : states[t->state];
    lp_json_build_put(failed, row, "name", lp_json_build_text(t->name));
    lp_json_build_put(failed, row, "state", json_string(state));
    put_side(failed, row, "type_a", "shape_a", t->a);
    put_side(failed, row, "type_b", "shape_b", t->b);
    lp_json_build_put(failed, row, "rms", lp_json_build_number(compared ? t->rms : NAN));
    lp_json_build_put(failed, row, "cosine", lp_json_build_number(compared ? t->cosine : NAN));
    lp_json_build_put(failed, row, "largest", lp_json_build_number(compared ? t->largest : NAN));
    lp_json_build_put(failed, row, "not_finite", lp_json_build_count(t->n_nonfinite));
    return row;
}

static json_t *layer_json(bool *failed, const struct lp_compare_layer *l) {
    json_t *row = json_object();
    lp_json_build_put(failed, row, "layer", json_integer(l->layer));
    lp_json_build_put(failed, row, "rms", lp_json_build_number(l->rms));
    lp_json_build_put(failed, row, "cosine", lp_json_build_number(l->cosine));
    lp_json_build_put(failed, row, "worst_cosine", lp_json_build_number(l->worst_cosine));
    return row;
}

static json_t *run_json(bool *failed, const struct lp_compare_run *run) {
    json_t *object = json_object(), *layers = json_array();
    for (int32_t i = 0; i < run->n_layers; i++)
        lp_json_build_add(failed, layers, layer_json(failed, &run->layers[i]));
    lp_json_build_put(failed, object, "tokens", json_integer(run->n_tokens));
    lp_json_build_put(failed, object, "layers", layers);
    lp_json_build_put(failed, object, "jump_layer", json_integer(run->jump_layer));
    lp_json_build_put(failed, object, "jump", lp_json_build_number(run->jump));
    lp_json_build_put(failed, object, "kl", lp_json_build_number(run->kl));
    lp_json_build_put(failed, object, "max_kl", lp_json_build_number(run->max_kl));
    lp_json_build_put(failed, object, "same_top", lp_json_build_number(run->same_top));
    return object;
}

struct settings {
    const char *paths[2], *prompt;
    bool json, list, no_values;
    int64_t threads, ranks, pipeline;
};

// NULL without memory.
static json_t *report_json(const struct settings *s, const struct lp_compare *c,
                           const struct lp_compare_run *run) {
    bool failed = false;
    json_t *root = json_object(), *keys = json_array(), *tensors = json_array();
    for (size_t i = 0; i < c->n_keys; i++)
        lp_json_build_add(&failed, keys, key_json(&failed, &c->keys[i]));
    for (size_t i = 0; i < c->n_tensors; i++)
        lp_json_build_add(&failed, tensors, tensor_json(&failed, &c->tensors[i], !s->no_values));
    lp_json_build_put(&failed, root, "a", lp_json_build_text(lp_str_from(s->paths[0])));
    lp_json_build_put(&failed, root, "b", lp_json_build_text(lp_str_from(s->paths[1])));
    lp_json_build_put(&failed, root, "same", json_boolean(lp_compare_is_empty(c)));
    lp_json_build_put(&failed, root, "equal_keys", lp_json_build_count(c->n_equal_keys));
    lp_json_build_put(&failed, root, "keys", keys);
    lp_json_build_put(&failed, root, "tensors", tensors);
    if (run) lp_json_build_put(&failed, root, "prompt", run_json(&failed, run));
    if (!failed) return root;
    json_decref(root);
    return NULL;
}

static int run_prompt(const struct settings *s, char *const paths[2], struct lp_compare_run *out) {
    limpid_model *models[2] = {NULL, NULL};
    limpid_model_options options = limpid_model_default_options();
    limpid_error err;
    options.n_threads = (int)s->threads;
    options.repack = "off"; // it does not pay for one prompt
    options.ranks = lp_program_ranks;
    options.pipeline = (int32_t)s->pipeline;
    limpid_status status = limpid_model_open(&models[0], paths[0], &options, &err);
    if (!status) status = limpid_model_open(&models[1], paths[1], &options, &err);
    if (!status) status = lp_compare_run(out, models[0], models[1], s->prompt, &err);
    limpid_model_close(models[0]);
    limpid_model_close(models[1]);
    if (!status) return LP_EXIT_OK;
    lp_fail(&err);
    return EXIT_FAILED;
}

static int print_report(const struct settings *s, const struct lp_compare *c,
                        const struct lp_compare_run *run) {
    json_t *report = report_json(s, c, run);
    if (!report) {
        lp_fail_text("out of memory: the report");
        return EXIT_FAILED;
    }
    if (!s->json) lp_diff_print(report, s->list, stdout);
    bool written = s->json ? lp_json_build_print(report) : fflush(stdout) == 0;
    json_decref(report);
    if (written) return lp_compare_is_empty(c) ? LP_EXIT_OK : EXIT_DIFFERENT;
    lp_fail_text("cannot write the report");
    return EXIT_FAILED;
}

static int compare(const struct settings *s, char *const paths[2]) {
    struct lp_model_file files[2] = {{0}, {0}};
    struct lp_err err;
    struct lp_compare found = {0};
    struct lp_compare_run run = {0};
    struct lp_compare_options options = {.n_threads = (int)s->threads, .no_values = s->no_values};
    int result = LP_EXIT_OK;
    lp_status status = lp_model_file_open(&files[0], paths[0], (int)s->threads, &err);
    if (!status) status = lp_model_file_open(&files[1], paths[1], (int)s->threads, &err);
    if (!status) status = lp_compare_make(&found, files[0].gguf, files[1].gguf, &options, &err);
    if (status) {
        lp_fail((limpid_error *)&err);
        result = EXIT_FAILED;
    }
    if (!result && s->prompt) result = run_prompt(s, paths, &run);
    if (!result) result = print_report(s, &found, s->prompt ? &run : NULL);
    lp_compare_run_release(&run);
    lp_compare_release(&found);
    lp_model_file_close(&files[0]);
    lp_model_file_close(&files[1]);
    return result;
}

static int check_ranks(const struct settings *s) {
    if (lp_program_ranks && !s->prompt)
        return lp_usage(&lp_cmd_diff, "several ranks run both models on a text; give --prompt too");
    if (s->pipeline > 1 && !lp_program_ranks)
        return lp_usage(&lp_cmd_diff, "--pipeline needs several ranks; give --ranks too");
    if (s->pipeline <= LP_COMM_MAX_SIZE) return LP_EXIT_OK;
    return lp_usage(&lp_cmd_diff, "--pipeline is %lld, expected 1 to %d", (long long)s->pipeline,
                    LP_COMM_MAX_SIZE);
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
        {"--threads", LP_OPT_INT, &s.threads, "N", "default: a physical core each"},
        {"--ranks", LP_OPT_INT, &s.ranks, "N",
         "with --prompt: run both in N processes of this machine (docs/ranks.md)"},
        {"--pipeline", LP_OPT_INT, &s.pipeline, "P",
         "with ranks: stages that they form (default 1)"},
    };
    int status = lp_args_parse(argc, argv, &lp_cmd_diff, options,
                               sizeof options / sizeof options[0], s.paths, 2);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (!s.paths[0] || !s.paths[1]) return lp_usage(&lp_cmd_diff, "two models are needed, A and B");
    if (lp_check_threads(&lp_cmd_diff, s.threads) || check_ranks(&s)) return LP_EXIT_USAGE;
    char *paths[2] = {NULL, NULL};
    for (int i = 0; i < 2 && !status; i++) {
        const struct lp_model_wish wish = {&lp_cmd_diff, s.paths[i], argc, argv, LP_MODEL_ANY};
        if (lp_find_model_for(&paths[i], &wish)) status = EXIT_FAILED;
    }
    if (!status) status = compare(&s, paths);
    lp_free(paths[0]);
    lp_free(paths[1]);
    return status;
}

const struct lp_command lp_cmd_diff = {
    "diff", "A B [--tensors] [--no-values] [--prompt TEXT] [--json] [--ranks N]",
    "what two models differ in: metadata, shapes, types, values; exit 0 if in nothing", run};
