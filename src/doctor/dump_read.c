#include "doctor/dump_read.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/grow.h"
#include "gguf/safetensors.h"
#include "quant/quant.h"

#define MAX_NPY_HEADER ((uint64_t)1 << 16)
#define MAX_FILES 100000

struct lp_dump {
    struct lp_dump_array *arrays;
    size_t n, capacity;
    struct lp_mapped *maps;
    size_t n_maps, maps_capacity;
    struct lp_safetensors *safetensors; // or NULL
};

// The types as both formats call them.
static const struct {
    enum lp_dump_type type;
    enum lp_st_dtype safetensors;
    const char *npy;
    uint64_t bytes;
} types[] = {
    {LP_DUMP_F32, LP_ST_F32, "<f4", 4},    {LP_DUMP_F16, LP_ST_F16, "<f2", 2},
    {LP_DUMP_BF16, LP_ST_BF16, "bf16", 2}, {LP_DUMP_F64, LP_ST_F64, "<f8", 8},
    {LP_DUMP_I32, LP_ST_I32, "<i4", 4},    {LP_DUMP_I64, LP_ST_I64, "<i8", 8},
};
#define N_TYPES (sizeof types / sizeof types[0])

static lp_status add(struct lp_dump *d, const struct lp_dump_array *array, struct lp_str name,
                     struct lp_err *err) {
    if (!LP_GROW(d->arrays, d->capacity, d->n + 1))
        return lp_err_memory(err, 2 * d->n * sizeof *d->arrays, "the arrays of a dump");
    struct lp_dump_array *to = &d->arrays[d->n];
    *to = *array;
    if (!(to->name = lp_strndup(name.data, name.len)))
        return lp_err_memory(err, name.len, "the arrays of a dump");
    d->n++;
    return LP_OK;
}

// ---- safetensors ----

static lp_status add_safetensors(struct lp_dump *d, struct lp_err *err) {
    lp_status status = LP_OK;
    for (uint64_t i = 0; i < lp_safetensors_count(d->safetensors) && !status; i++) {
        const struct lp_st_array *from = lp_safetensors_at(d->safetensors, i);
        struct lp_dump_array a = {.type = LP_DUMP_OTHER,
                                  .n_dims = from->n_dims,
                                  .n_values = from->n_values,
                                  .data = from->data};
        memcpy(a.dims, from->dims, sizeof a.dims);
        memcpy(a.type_name, from->dtype_name, sizeof a.type_name);
        for (size_t k = 0; k < N_TYPES; k++)
            if (types[k].safetensors == from->dtype) a.type = types[k].type;
        status = add(d, &a, lp_str_from(from->name), err);
    }
    return status;
}

// ---- npy ----

struct source {
    const char *from;
    struct lp_err *err;
};

static lp_status broken(const struct source *s, const char *name, const char *what) {
    return lp_err_set(s->err, LP_STATUS_FORMAT, "%s: array %.100s %s", s->from, name, what);
}

// The values of the shape, if they are as many as `bytes` of this type hold.
static bool shape_fits(struct lp_dump_array *a, uint64_t bytes) {
    uint64_t n = 1, size;
    for (int32_t i = 0; i < a->n_dims; i++)
        if (!lp_mul_u64(n, (uint64_t)a->dims[i], &n)) return false;
    if (n > INT64_MAX) return false;
    a->n_values = (int64_t)n;
    if (a->type == LP_DUMP_OTHER) return true;
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].type == a->type) return lp_mul_u64(n, types[i].bytes, &size) && size == bytes;
    return false;
}

// What stands behind 'key': in the dictionary; NULL if nothing does.
static const char *value_of(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(header, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    at += strspn(at, " ");
    return *at == ':' ? at + 1 + strspn(at + 1, " ") : NULL;
}

static bool read_shape(struct lp_dump_array *a, const char *at) {
    if (!at || *at++ != '(') return false;
    for (;;) {
        at += strspn(at, " ,");
        if (*at == ')') return true;
        size_t n = strspn(at, "0123456789");
        if (n == 0 || n > 18 || a->n_dims == LP_DUMP_MAX_DIMS) return false;
        a->dims[a->n_dims++] = strtoll(at, NULL, 10);
        at += n;
        if (*at != ',' && *at != ')' && *at != ' ') return false;
    }
}

static lp_status read_header(struct lp_dump_array *a, const char *header, const struct source *s,
                             const char *name) {
    const char *descr = value_of(header, "descr"), *order = value_of(header, "fortran_order");
    const char *end = descr && *descr == '\'' ? strchr(descr + 1, '\'') : NULL;
    if (!end || end - descr - 1 >= (long)sizeof a->type_name || !order)
        return broken(s, name, "has a header without descr or fortran_order");
    memcpy(a->type_name, descr + 1, (size_t)(end - descr - 1));
    if (strncmp(order, "False", 5) != 0)
        return broken(s, name, "is in Fortran's order; save np.ascontiguousarray of it");
    a->type = LP_DUMP_OTHER;
    for (size_t i = 0; i < N_TYPES; i++)
        if (strcmp(a->type_name, types[i].npy) == 0) a->type = types[i].type;
    return read_shape(a, value_of(header, "shape")) ? LP_OK
                                                    : broken(s, name, "has no usable shape");
}

static lp_status read_npy(struct lp_dump *d, const char *name, const uint8_t *data,
                          uint64_t n_bytes, const char *from, struct lp_err *err) {
    struct source s = {from, err};
    bool known = n_bytes >= 12 && memcmp(data, "\x93NUMPY", 6) == 0 && data[6] >= 1 && data[6] <= 3;
    uint64_t begins = known && data[6] > 1 ? 12 : 10, n_header = 0;
    if (!known) return broken(&s, name, "is no .npy file");
    for (uint64_t i = begins; i-- > 8;) n_header = n_header << 8 | data[i];
    if (n_header > MAX_NPY_HEADER || n_header > n_bytes - begins)
        return broken(&s, name, "has a header that does not end in the file");
    char *header = lp_strndup((const char *)data + begins, (size_t)n_header);
    if (!header) return lp_err_memory(err, (size_t)n_header, "a header");
    struct lp_dump_array a = {.data = data + begins + n_header};
    lp_status status = read_header(&a, header, &s, name);
    lp_free(header);
    if (!status && !shape_fits(&a, n_bytes - begins - n_header))
        status =
            broken(&s, name, "has other bytes than its header says; it may have been cut short");
    return status ? status : add(d, &a, lp_str_from(name), err);
}

// ---- files ----

static lp_status map_file(struct lp_dump *d, const char *path, struct lp_mapped *map,
                          struct lp_err *err) {
    if (!LP_GROW(d->maps, d->maps_capacity, d->n_maps + 1))
        return lp_err_memory(err, 2 * d->n_maps * sizeof *d->maps, "the files of a dump");
    lp_status status = lp_mapped_open(map, path, err);
    if (!status) d->maps[d->n_maps++] = *map;
    return status;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static lp_status read_npy_file(struct lp_dump *d, const char *path, const char *file,
                               struct lp_err *err) {
    struct lp_mapped map;
    char *name = lp_strndup(file, strlen(file) - strlen(".npy"));
    if (!name) return lp_err_memory(err, strlen(file), "a name");
    lp_status status = map_file(d, path, &map, err);
    if (!status) status = read_npy(d, name, map.data, map.n_bytes, path, err);
    lp_free(name);
    return status;
}

static int is_npy(const struct dirent *entry) {
    return ends_with(entry->d_name, ".npy");
}

static lp_status read_folder(struct lp_dump *d, const char *path, struct lp_err *err) {
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, is_npy, alphasort);
    lp_status status = LP_OK;
    if (n < 0)
        return lp_err_set(err, LP_STATUS_IO, "cannot read the folder %s: %s", path,
                          strerror(errno));
    if (n > MAX_FILES)
        status = lp_err_set(err, LP_STATUS_LIMIT, "%s holds %d .npy files, at most %d are read",
                            path, n, MAX_FILES);
    if (n == 0)
        status = lp_err_set(err, LP_STATUS_FORMAT,
                            "%s holds no .npy files; a dump is such a folder or a .safetensors "
                            "file",
                            path);
    for (int i = 0; i < n; i++) {
        struct lp_bytes file = {0};
        if (!status && !lp_bytes_printf(&file, "%s/%s", path, entries[i]->d_name))
            status = lp_err_memory(err, 0, "a path");
        if (!status) status = read_npy_file(d, file.data, entries[i]->d_name, err);
        lp_bytes_release(&file);
        free(entries[i]); // NOLINT: scandir's
    }
    free(entries);
    return status;
}

static lp_status read_path(struct lp_dump *d, const char *path, struct lp_err *err) {
    struct stat is;
    if (stat(path, &is) != 0)
        return lp_err_set(err, LP_STATUS_IO, "cannot open the dump %s: %s", path, strerror(errno));
    if (S_ISDIR(is.st_mode)) return read_folder(d, path, err);
    const char *slash = strrchr(path, '/');
    if (ends_with(path, ".npy")) return read_npy_file(d, path, slash ? slash + 1 : path, err);
    lp_status status = lp_safetensors_open(&d->safetensors, path, err);
    return status ? status : add_safetensors(d, err);
}

static lp_status finish(struct lp_dump **out, struct lp_dump *d, lp_status status) {
    if (status)
        lp_dump_free(d);
    else
        *out = d;
    return status;
}

lp_status lp_dump_open(struct lp_dump **out, const char *path, struct lp_err *err) {
    struct lp_dump *d = lp_alloc(1, sizeof *d);
    if (!d) return lp_err_memory(err, sizeof *d, "a dump");
    return finish(out, d, read_path(d, path, err));
}

lp_status lp_dump_read_safetensors(struct lp_dump **out, const void *data, uint64_t n_bytes,
                                   const char *from, struct lp_err *err) {
    struct lp_dump *d = lp_alloc(1, sizeof *d);
    if (!d) return lp_err_memory(err, sizeof *d, "a dump");
    lp_status status = lp_safetensors_parse(&d->safetensors, data, n_bytes, from, err);
    return finish(out, d, status ? status : add_safetensors(d, err));
}

lp_status lp_dump_read_npy(struct lp_dump **out, const char *name, const void *data,
                           uint64_t n_bytes, const char *from, struct lp_err *err) {
    struct lp_dump *d = lp_alloc(1, sizeof *d);
    if (!d) return lp_err_memory(err, sizeof *d, "a dump");
    return finish(out, d, read_npy(d, name, data, n_bytes, from, err));
}

void lp_dump_free(struct lp_dump *d) {
    if (!d) return;
    for (size_t i = 0; i < d->n; i++) lp_free(d->arrays[i].name);
    for (size_t i = 0; i < d->n_maps; i++) lp_mapped_close(&d->maps[i]);
    lp_free(d->arrays);
    lp_free(d->maps);
    lp_safetensors_close(d->safetensors);
    lp_free(d);
}

// ---- values ----

size_t lp_dump_count(const struct lp_dump *d) {
    return d->n;
}
const struct lp_dump_array *lp_dump_at(const struct lp_dump *d, size_t i) {
    return &d->arrays[i];
}

const struct lp_dump_array *lp_dump_find(const struct lp_dump *d, const char *name) {
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->arrays[i].name, name) == 0) return &d->arrays[i];
    return NULL;
}

static float float_at(const struct lp_dump_array *a, int64_t i) {
    float f;
    double wide;
    uint16_t half;
    switch (a->type) {
    case LP_DUMP_F32:
        memcpy(&f, a->data + i * 4, sizeof f);
        return f;
    case LP_DUMP_F64:
        memcpy(&wide, a->data + i * 8, sizeof wide);
        return (float)wide;
    case LP_DUMP_F16:
    case LP_DUMP_BF16:
        memcpy(&half, a->data + i * 2, sizeof half);
        return a->type == LP_DUMP_F16 ? lp_f16_to_f32(half) : lp_bf16_to_f32(half);
    default:
        return 0;
    }
}

void lp_dump_floats(const struct lp_dump_array *a, int64_t first, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = float_at(a, first + i);
}

int64_t lp_dump_int(const struct lp_dump_array *a, int64_t i) {
    int32_t narrow;
    int64_t wide;
    if (a->type == LP_DUMP_I32) {
        memcpy(&narrow, a->data + i * 4, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, a->data + i * 8, sizeof wide);
    return wide;
}
