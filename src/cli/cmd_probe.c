// limpid probe list: the points at which limpid dump --probe can look, and with a model how large
// their rows are there. The weights are not read.
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "cli/args.h"
#include "cli/find_model.h"
#include "engine/model_file.h"
#include "model/probe_shape.h"

struct listing {
    bool has_model, json;
    struct lp_hparams h;
};

// A layer that has the point, or -1.
static int32_t example_layer(const struct lp_hparams *h, enum lp_probe_point point) {
    for (int32_t layer = 0; layer < h->n_layers; layer++)
        if (lp_probe_layer_has(h, point, layer)) return layer;
    return -1;
}

// "64 x 256"; "keys" where there is one value per key.
static bool print_dims(struct lp_bytes *out, const int64_t *dims, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (i) lp_bytes_puts(out, " x ");
        if (dims[i] == LP_PROBE_N_KEYS)
            lp_bytes_puts(out, "keys");
        else
            lp_bytes_printf(out, "%lld", (long long)dims[i]);
    }
    return !out->failed;
}

static json_t *point_json(const struct listing *l, enum lp_probe_point point) {
    json_t *out = json_pack(
        "{s:s, s:s, s:s, s:s, s:s}", "op", lp_probe_name(point), "shape", lp_probe_shape(point),
        "type", lp_probe_is_int(point) ? "int32" : "float32", "only",
        lp_probe_need_text(lp_probe_need(point)), "meaning", lp_probe_meaning(point));
    if (!out || !l->has_model) return out;
    json_t *layers = json_array(), *shape = json_array();
    for (int32_t i = 0; i < l->h.n_layers && lp_probe_in_layer(point); i++)
        if (lp_probe_layer_has(&l->h, point, i)) json_array_append_new(layers, json_integer(i));
    int64_t dims[2];
    int32_t n = lp_probe_dims(&l->h, point, example_layer(&l->h, point), dims);
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(shape,
                              dims[i] == LP_PROBE_N_KEYS ? json_null() : json_integer(dims[i]));
    json_object_set_new(out, "layers", layers);
    json_object_set_new(out, "dims", shape);
    return out;
}

static int print_json(const struct listing *l) {
    json_t *list = json_array();
    for (int i = 0; list && i < LP_N_PROBE_POINTS; i++)
        json_array_append_new(list, point_json(l, (enum lp_probe_point)i));
    if (!list || json_array_size(list) != LP_N_PROBE_POINTS) {
        json_decref(list);
        return lp_fail_text("out of memory: the list");
    }
    json_dumpf(list, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(list);
    return LP_EXIT_OK;
}

static int print_point(const struct listing *l, enum lp_probe_point point) {
    struct lp_bytes dims = {0};
    const char *need = lp_probe_need_text(lp_probe_need(point));
    lp_bytes_printf(&dims, "[%s]", lp_probe_shape(point));
    if (l->has_model) {
        int64_t sizes[2];
        int32_t n_layers = lp_probe_count_layers(&l->h, point),
                n = lp_probe_dims(&l->h, point, example_layer(&l->h, point), sizes);
        if (n_layers == 0) {
            lp_bytes_release(&dims);
            return LP_EXIT_OK;
        }
        lp_bytes_puts(&dims, " = ");
        print_dims(&dims, sizes, n);
        if (lp_probe_in_layer(point) && n_layers < l->h.n_layers)
            lp_bytes_printf(&dims, ", %d of %d layers", n_layers, l->h.n_layers);
    }
    if (dims.failed) return lp_fail_text("out of memory: the list");
    printf("%-19s %s%s\n%-19s %s\n", lp_probe_name(point), dims.data,
           lp_probe_is_int(point) ? " int32" : "", "", lp_probe_meaning(point));
    if (need[0]) printf("%-19s only %s\n", "", need);
    lp_bytes_release(&dims);
    return LP_EXIT_OK;
}

static int read_model(struct listing *l, const char *given) {
    struct lp_err err;
    struct lp_model_file file;
    char *path = NULL;
    int status = lp_find_model(&path, given, &lp_cmd_probe);
    if (status) return status;
    if (lp_model_file_describe(&file, path, &err) || lp_hparams_read(&l->h, file.gguf, &err))
        status = lp_fail_text("%s", err.text);
    l->has_model = !status;
    lp_model_file_close(&file);
    lp_free(path);
    return status;
}

static int run(int argc, char **argv) {
    struct listing *l = lp_alloc(1, sizeof *l);
    if (!l) return lp_fail_text("out of memory: the list");
    const char *names[2] = {NULL, NULL};
    struct lp_option options[] = {
        {"--json", LP_OPT_FLAG, &l->json, NULL, "a JSON array, one object for each point"}};
    int status = lp_args_parse(argc, argv, &lp_cmd_probe, options, 1, names, 2);
    if (!status && (!names[0] || strcmp(names[0], "list") != 0))
        status = lp_usage(&lp_cmd_probe, "expected 'list'; limpid dump --probe looks");
    if (!status && names[1]) status = read_model(l, names[1]);
    if (!status && l->json)
        status = print_json(l);
    else
        for (int i = 0; i < LP_N_PROBE_POINTS && !status; i++)
            status = print_point(l, (enum lp_probe_point)i);
    lp_free(l);
    return status < 0 ? LP_EXIT_OK : status;
}

const struct lp_command lp_cmd_probe = {
    "probe", "list [MODEL] [--json]",
    "names the intermediates that dump --probe can write, their shapes and meaning", run};
