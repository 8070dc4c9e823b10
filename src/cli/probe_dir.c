#include "cli/probe_dir.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "cli/npy.h"
#include "serve/json_out.h"

struct file {
    struct lp_npy npy;
    char *path, *name; // name: in the folder; NULL until rows have come
    int64_t next;      // the first row that has not come
};

struct lp_probe_dir {
    struct lp_probe_dir_options options;
    limpid_model_info info;
    limpid_probes *probes;
    struct file *files; // [limpid_probes_count]
    bool failed;
    char *failed_path; // of the first file that could not be written
    int error;         // and its errno
};

static char *join(const char *folder, const char *name) {
    struct lp_bytes path = {0};
    if (lp_bytes_printf(&path, "%s/%s", folder, name)) return path.data;
    lp_bytes_release(&path);
    return NULL;
}

static void fail(struct lp_probe_dir *d, const char *path, int error) {
    if (d->failed) return;
    d->failed = true;
    d->error = error;
    d->failed_path = path ? lp_strdup(path) : NULL;
}

// ---- the folder ----

static int make_folder(const char *folder) {
    struct stat is;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return lp_fail_text("cannot make the folder %s: %s", folder, strerror(errno));
    if (stat(folder, &is) != 0 || !S_ISDIR(is.st_mode))
        return lp_fail_text("%s is no folder; --probe-dir names one", folder);
    char *index = join(folder, "index.json");
    bool ok = index && (remove(index) == 0 || errno == ENOENT);
    lp_free(index);
    return ok ? LP_EXIT_OK
              : lp_fail_text("cannot write over %s/index.json: %s", folder, strerror(errno));
}

static int write_tokens(const struct lp_probe_dir_options *o) {
    struct lp_npy npy;
    char *path = join(o->folder, "tokens.npy");
    if (!path) return lp_fail_text("out of memory: a path");
    bool ok = lp_npy_open(&npy, path, "<i4", &o->n_tokens, 1);
    if (ok) {
        lp_npy_put(&npy, 0, o->tokens, o->n_tokens);
        ok = lp_npy_close(&npy);
    }
    int status = ok ? LP_EXIT_OK : lp_fail_text("cannot write %s: %s", path, strerror(errno));
    lp_free(path);
    return status;
}

int lp_probe_dir_open(struct lp_probe_dir **out, const limpid_model *model,
                      const struct lp_probe_dir_options *options) {
    limpid_error err;
    struct lp_probe_dir *d = lp_alloc(1, sizeof *d);
    if (!d) return lp_fail_text("out of memory: the folder of probes");
    d->options = *options;
    d->info = limpid_model_get_info(model);
    int status = LP_EXIT_OK;
    if (limpid_probes_new(&d->probes, model, options->specs->items, options->specs->n,
                          options->n_tokens, &err))
        status = lp_fail_setting(&err);
    if (!status && !(d->files = lp_alloc(limpid_probes_count(d->probes), sizeof *d->files)))
        status = lp_fail_text("out of memory: the files of probes");
    if (!status) status = make_folder(options->folder);
    if (!status) status = write_tokens(options);
    if (status)
        lp_probe_dir_free(d);
    else
        *out = d;
    return status;
}

void lp_probe_dir_free(struct lp_probe_dir *d) {
    if (!d) return;
    for (size_t i = 0; d->probes && d->files && i < limpid_probes_count(d->probes); i++) {
        lp_npy_close(&d->files[i].npy);
        lp_free(d->files[i].path);
        lp_free(d->files[i].name);
    }
    limpid_probes_free(d->probes);
    lp_free(d->files);
    lp_free(d->failed_path);
    lp_free(d);
}

limpid_probes *lp_probe_dir_probes(struct lp_probe_dir *d) {
    return d->probes;
}

// ---- the files ----

static bool open_file(struct lp_probe_dir *d, struct file *f, const limpid_probe *p) {
    struct lp_bytes name = {0};
    int64_t shape[3] = {p->n_rows, p->dims[0], p->dims[1]};
    if (p->layer >= 0) lp_bytes_printf(&name, "layer%d.", p->layer);
    if (!lp_bytes_printf(&name, "%s.npy", p->name)) {
        lp_bytes_release(&name);
        return false;
    }
    f->name = name.data;
    f->path = join(d->options.folder, f->name);
    errno = ENOMEM;
    return f->path &&
           lp_npy_open(&f->npy, f->path, p->is_int ? "<i4" : "<f4", shape, p->n_dims + 1);
}

// Rows that did not come: NaN, or -1.
static void fill(struct file *f, const limpid_probe *p, int64_t end) {
    int64_t width = p->dims[0] * (p->n_dims == 2 ? p->dims[1] : 1), n = width < 4096 ? width : 4096;
    float nan[4096];
    int32_t none[4096];
    for (int64_t i = 0; i < n; i++) {
        nan[i] = NAN;
        none[i] = -1;
    }
    const void *values = p->is_int ? (const void *)none : (const void *)nan;
    for (; f->next < end; f->next++)
        for (int64_t done = 0, take; done < width; done += take) {
            take = width - done < n ? width - done : n;
            lp_npy_put(&f->npy, f->next * width + done, values, take);
        }
}

void lp_probe_dir_put(struct lp_probe_dir *d, size_t i, int64_t first, int64_t n,
                      const void *values) {
    limpid_probe p = limpid_probes_get(d->probes, i);
    struct file *f = &d->files[i];
    int64_t width = p.dims[0] * (p.n_dims == 2 ? p.dims[1] : 1);
    if (d->failed) return;
    if (!f->name && !open_file(d, f, &p)) {
        fail(d, f->path, errno);
        return;
    }
    lp_npy_wake(&f->npy, f->path);
    fill(f, &p, first);
    lp_npy_put(&f->npy, first * width, values, n * width);
    f->next = first + n;
    lp_npy_park(&f->npy); // there may be more of them than a process may have open
    if (f->npy.failed) fail(d, f->path, f->npy.error);
}

static void end_files(struct lp_probe_dir *d) {
    for (size_t i = 0; i < limpid_probes_count(d->probes); i++) {
        limpid_probe p = limpid_probes_get(d->probes, i);
        struct file *f = &d->files[i];
        if (!f->path || f->next == p.n_rows) continue;
        lp_npy_wake(&f->npy, f->path);
        fill(f, &p, p.n_rows);
        lp_npy_park(&f->npy);
        if (f->npy.failed) fail(d, f->path, f->npy.error);
    }
}

// ---- the index ----

static json_t *file_json(const struct file *f, const limpid_probe *p) {
    json_t *ranges = json_array(), *shape = json_array();
    for (size_t i = 0; i < p->n_ranges; i++)
        json_array_append_new(ranges, json_pack("[I, I]", (json_int_t)p->ranges[2 * i],
                                                (json_int_t)p->ranges[2 * i + 1]));
    json_array_append_new(shape, json_integer(p->n_rows));
    for (int32_t i = 0; i < p->n_dims; i++) json_array_append_new(shape, json_integer(p->dims[i]));
    json_t *out = json_pack("{s:s?, s:s, s:o?, s:s, s:o, s:o, s:I}", "file", f->name, "op", p->name,
                            "layer", p->layer < 0 ? json_null() : json_integer(p->layer), "type",
                            p->is_int ? "int32" : "float32", "shape", shape, "positions", ranges,
                            "missing", (json_int_t)(p->n_rows - p->n_found));
    if (out && p->n_found < p->n_rows && p->needs[0]) {
        struct lp_bytes why = {0};
        if (lp_bytes_printf(&why, "only %s", p->needs))
            json_object_set_new(out, "why_missing", json_string(why.data));
        lp_bytes_release(&why);
    }
    return out;
}

static json_t *routes_json(const limpid_probes *probes) {
    json_t *out = json_array();
    for (size_t i = 0; out && i < limpid_probes_count_routes(probes); i++) {
        limpid_probe_route r = limpid_probes_get_route(probes, i);
        json_array_append_new(out, json_pack("{s:i, s:[I, I], s:s}", "layer", (int)r.layer,
                                             "positions", (json_int_t)r.first,
                                             (json_int_t)(r.first + r.n - 1), "route", r.name));
    }
    return out;
}

static json_t *index_json(const struct lp_probe_dir *d, const char *error) {
    const struct lp_probe_dir_options *o = &d->options;
    json_t *files = json_array(), *tokens = json_array();
    for (size_t i = 0; i < limpid_probes_count(d->probes); i++) {
        limpid_probe p = limpid_probes_get(d->probes, i);
        json_array_append_new(files, file_json(&d->files[i], &p));
    }
    for (int64_t i = 0; i < o->n_tokens; i++)
        json_array_append_new(tokens, json_integer(o->tokens[i]));
    json_t *out =
        json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:b, s:o, s:o, s:o}", "limpid", limpid_version(),
                  "model", lp_json_text(lp_str_from(o->model_path)), "architecture",
                  d->info.architecture, "backend", d->info.backend, "kv", o->common->kv, "route",
                  o->common->route, "deterministic", o->common->deterministic, "probes", files,
                  "routes", routes_json(d->probes), "tokens", tokens);
    if (out && error) json_object_set_new(out, "error", json_string(error));
    return out;
}

static int write_index(const struct lp_probe_dir *d, const char *error) {
    char *path = join(d->options.folder, "index.json");
    json_t *index = index_json(d, error);
    int status = LP_EXIT_OK;
    if (!path || !index)
        status = lp_fail_text("out of memory: index.json");
    else if (json_dump_file(index, path, JSON_INDENT(1)) != 0)
        status = lp_fail_text("cannot write %s: %s", path, strerror(errno));
    json_decref(index);
    lp_free(path);
    return status;
}

int lp_probe_dir_close(struct lp_probe_dir *d, const char *error) {
    if (!d->failed) end_files(d);
    if (d->failed)
        return lp_fail_text("%s could not be written whole: %s",
                            d->failed_path ? d->failed_path : d->options.folder,
                            strerror(d->error));
    return write_index(d, error);
}
