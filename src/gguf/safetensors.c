#include "gguf/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/grow.h"
#include "gguf/json_members.h"
#include "gguf/safetensors_parts.h"

#define MAX_ENTRY 65536        // bytes of one array's entry
#define MAX_NAME 4096          // bytes of its name
#define MAX_METADATA (1 << 24) // bytes of "__metadata__", which is not used
#define MAX_ARRAYS 2000000

static const struct {
    const char *name;
    uint64_t bits;
} dtypes[] = {
#define DTYPE_ROW(name, text, bits) [LP_ST_##name] = {text, bits},
    LP_ST_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

// One file while its header is read.
struct source {
    struct lp_safetensors *st;
    const char *from;
    uint32_t file;
    const uint8_t *data; // behind the header
    uint64_t n_bytes;
    struct lp_err *err;
};

static lp_status broken(const struct source *s, const char *name, const char *what) {
    return lp_err_set(s->err, LP_STATUS_FORMAT, "%s: array %.100s %s", s->from, name, what);
}

lp_status lp_st_text(struct lp_arena *arena, struct lp_str json, char **out) {
    json_t *text = json_loadb(json.data, json.len, JSON_DECODE_ANY, NULL);
    lp_status status = json_is_string(text) ? LP_OK : LP_STATUS_FORMAT;
    if (!status) {
        *out = lp_arena_strndup(arena, json_string_value(text), json_string_length(text));
        if (!*out) status = LP_STATUS_MEMORY;
    }
    json_decref(text);
    return status;
}

// ---- one array

// The values of the shape, if they are as many as the bytes of this dtype hold.
static bool shape_fits(struct lp_st_array *a) {
    uint64_t n = 1, size;
    for (int32_t i = 0; i < a->n_dims; i++)
        if (!lp_mul_u64(n, (uint64_t)a->dims[i], &n)) return false;
    if (n > INT64_MAX) return false;
    a->n_values = (int64_t)n;
    if (a->dtype == LP_ST_OTHER) return true;
    return lp_mul_u64(n, dtypes[a->dtype].bits / 8, &size) && size == a->n_bytes;
}

static lp_status read_shape(const struct source *s, struct lp_st_array *a, const json_t *shape) {
    if (json_array_size(shape) > LP_ST_MAX_DIMS)
        return broken(s, a->name, "has more than 8 dimensions");
    a->n_dims = (int32_t)json_array_size(shape);
    for (int32_t i = 0; i < a->n_dims; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        a->dims[i] = json_integer_value(dim);
        if (!json_is_integer(dim) || a->dims[i] < 0)
            return broken(s, a->name, "has a dimension that is no whole number");
    }
    return LP_OK;
}

static lp_status read_entry(const struct source *s, struct lp_st_array *a, const json_t *entry) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"),
                 *offsets = json_object_get(entry, "data_offsets"),
                 *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (!dtype || !json_is_array(shape) || json_array_size(offsets) != 2 ||
        !json_is_integer(first) || !json_is_integer(last))
        return broken(s, a->name, "has no dtype, shape or data_offsets in the JSON header");
    json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || (uint64_t)end > s->n_bytes)
        return broken(s, a->name, "lies outside the file; it may have been cut short");
    a->data = s->data + begin;
    a->n_bytes = (uint64_t)(end - begin);
    snprintf(a->dtype_name, sizeof a->dtype_name, "%s", dtype);
    a->dtype = LP_ST_OTHER;
    for (int i = 0; i < LP_ST_OTHER; i++)
        if (strcmp(dtype, dtypes[i].name) == 0) a->dtype = (enum lp_st_dtype)i;
    lp_status status = read_shape(s, a, shape);
    if (!status && !shape_fits(a))
        status = broken(s, a->name, "has other bytes than its shape and dtype say");
    return status;
}

// `array` has been read whole: to the others, if none has its name.
static lp_status store(const struct source *s, const struct lp_st_array *array) {
    struct lp_safetensors *st = s->st;
    uint32_t old;
    if (st->n_arrays >= MAX_ARRAYS)
        return lp_err_set(s->err, LP_STATUS_LIMIT, "%s: more than %d arrays are not read", s->from,
                          MAX_ARRAYS);
    if (!LP_GROW(st->arrays, st->arrays_capacity, st->n_arrays + 1) ||
        !lp_map_add(&st->by_name, lp_str_from(array->name), (uint32_t)st->n_arrays, &old))
        return lp_err_memory(s->err, st->n_arrays * sizeof *st->arrays, "a list of arrays");
    if (old != LP_MAP_NONE) {
        const char *other = st->files[st->arrays[old].file].path;
        if (st->arrays[old].file == s->file) return broken(s, array->name, "is there twice");
        return lp_err_set(s->err, LP_STATUS_FORMAT, "array %.100s is in two files, %s and %s",
                          array->name, other, s->from);
    }
    st->arrays[st->n_arrays++] = *array;
    return LP_OK;
}

static lp_status no_json(const struct source *s, const char *name, const char *why) {
    return lp_err_set(s->err, LP_STATUS_FORMAT, "%s: its header is no JSON object: %.100s%s%s",
                      s->from, name, *name ? ": " : "", why);
}

static lp_status add_member(const struct source *s, const struct lp_json_member *m) {
    struct lp_st_array a = {.file = s->file};
    json_error_t why;
    if (m->key.len > MAX_NAME) return no_json(s, "", "a name is longer than 4096 bytes");
    lp_status status = lp_st_text(&s->st->texts, m->key, &a.name);
    if (status == LP_STATUS_MEMORY) return lp_err_memory(s->err, m->key.len, "a name");
    if (status) return no_json(s, "", "a name is no text");
    bool is_array = strcmp(a.name, "__metadata__") != 0;
    if (m->value.len > (is_array ? MAX_ENTRY : MAX_METADATA))
        return no_json(s, a.name, "this entry is too long");
    json_t *entry = json_loadb(m->value.data, m->value.len,
                               JSON_DECODE_ANY | (is_array ? JSON_REJECT_DUPLICATES : 0), &why);
    if (!entry) status = no_json(s, a.name, why.text);
    if (!status && is_array) {
        status = read_entry(s, &a, entry);
        if (!status) status = store(s, &a);
    }
    json_decref(entry);
    return status;
}

// ---- one file

static int by_place(const void *a, const void *b) {
    const struct lp_st_array *x = *(const struct lp_st_array *const *)a,
                             *y = *(const struct lp_st_array *const *)b;
    return x->data < y->data ? -1 : x->data > y->data;
}

// No byte may belong to two of the arrays first ... (those without bytes lie anywhere).
static lp_status check_overlap(const struct source *s, size_t first) {
    const struct lp_safetensors *st = s->st;
    size_t n = 0;
    const struct lp_st_array **sorted = lp_alloc(st->n_arrays - first, sizeof *sorted);
    if (!sorted) return lp_err_memory(s->err, 0, "a list of arrays");
    for (size_t i = first; i < st->n_arrays; i++)
        if (st->arrays[i].n_bytes > 0) sorted[n++] = &st->arrays[i];
    qsort(sorted, n, sizeof *sorted, by_place);
    lp_status status = LP_OK;
    for (size_t i = 1; i < n && !status; i++)
        if ((uint64_t)(sorted[i]->data - sorted[i - 1]->data) < sorted[i - 1]->n_bytes)
            status = lp_err_set(s->err, LP_STATUS_FORMAT,
                                "%s: arrays %.100s and %.100s lie in the same bytes", s->from,
                                sorted[i - 1]->name, sorted[i]->name);
    lp_free(sorted);
    return status;
}

static lp_status read_members(const struct source *s, struct lp_str header) {
    struct lp_json_members walk = lp_json_members(header);
    struct lp_json_member member;
    enum lp_json_step step;
    while ((step = lp_json_members_next(&walk, &member)) == LP_JSON_MEMBER) {
        lp_status status = add_member(s, &member);
        if (status) return status;
    }
    if (step == LP_JSON_END) return LP_OK;
    char where[64];
    snprintf(where, sizeof where, "it breaks off or goes wrong at byte %llu",
             (unsigned long long)(walk.at - header.data));
    return no_json(s, "", where);
}

static lp_status read_file(struct lp_safetensors *st, uint32_t file, const char *from,
                           struct lp_err *err) {
    const uint8_t *data = st->files[file].map.data;
    uint64_t n_bytes = st->files[file].map.n_bytes, n_header = 0;
    for (int i = 7; i >= 0 && n_bytes >= 8; i--) n_header = n_header << 8 | data[i];
    if (n_bytes < 8 || n_header > n_bytes - 8)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s is no safetensors file, or it has been cut short", from);
    if (n_header > LP_ST_MAX_JSON)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "%s has a header of %llu bytes, of which at most %llu are read; write "
                          "fewer arrays",
                          from, (unsigned long long)n_header, (unsigned long long)LP_ST_MAX_JSON);
    struct source s = {st, from, file, data + 8 + n_header, n_bytes - 8 - n_header, err};
    size_t first = st->n_arrays;
    lp_status status = read_members(&s, (struct lp_str){(const char *)data + 8, (size_t)n_header});
    return status ? status : check_overlap(&s, first);
}

static lp_status add_file(struct lp_safetensors *st, const char *from, const struct lp_mapped *map,
                          bool is_ours, struct lp_err *err) {
    char *path = lp_arena_strndup(&st->texts, from, strlen(from));
    if (!path || !LP_GROW(st->files, st->files_capacity, st->n_files + 1))
        return lp_err_memory(err, 0, "a list of files");
    st->files[st->n_files++] = (struct lp_st_file){path, *map, is_ours};
    return read_file(st, (uint32_t)st->n_files - 1, from, err);
}

lp_status lp_st_add_file(struct lp_safetensors *st, const char *path, struct lp_err *err) {
    struct lp_mapped map;
    lp_status status = lp_mapped_open(&map, path, err);
    size_t n_files = st->n_files;
    if (!status) status = add_file(st, path, &map, true, err);
    if (status && st->n_files == n_files) lp_mapped_close(&map);
    return status;
}

// ---- the whole

struct lp_safetensors *lp_st_new(struct lp_err *err) {
    struct lp_safetensors *st = lp_alloc(1, sizeof *st);
    if (!st) lp_err_memory(err, sizeof *st, "a list of arrays");
    return st;
}

static lp_status finish(struct lp_safetensors **out, struct lp_safetensors *st, lp_status status) {
    if (status)
        lp_safetensors_close(st);
    else
        *out = st;
    return status;
}

lp_status lp_safetensors_parse(struct lp_safetensors **out, const void *data, uint64_t n_bytes,
                               const char *from, struct lp_err *err) {
    *out = NULL;
    struct lp_safetensors *st = lp_st_new(err);
    if (!st) return LP_STATUS_MEMORY;
    return finish(out, st, add_file(st, from, &(struct lp_mapped){data, n_bytes}, false, err));
}

lp_status lp_safetensors_open(struct lp_safetensors **out, const char *path, struct lp_err *err) {
    *out = NULL;
    struct lp_safetensors *st = lp_st_new(err);
    if (!st) return LP_STATUS_MEMORY;
    return finish(out, st, lp_st_add_file(st, path, err));
}

void lp_safetensors_close(struct lp_safetensors *st) {
    if (!st) return;
    for (size_t i = 0; i < st->n_files; i++)
        if (st->files[i].is_ours) lp_mapped_close(&st->files[i].map);
    lp_free(st->files);
    lp_free(st->arrays);
    lp_map_release(&st->by_name);
    lp_arena_release(&st->texts);
    lp_free(st);
}

uint64_t lp_safetensors_count(const struct lp_safetensors *st) {
    return st->n_arrays;
}

const struct lp_st_array *lp_safetensors_at(const struct lp_safetensors *st, uint64_t i) {
    return &st->arrays[i];
}

const struct lp_st_array *lp_safetensors_find(const struct lp_safetensors *st, const char *name) {
    uint32_t i = lp_map_get(&st->by_name, lp_str_from(name));
    return i == LP_MAP_NONE ? NULL : &st->arrays[i];
}

uint64_t lp_safetensors_file_bytes(const struct lp_safetensors *st) {
    uint64_t n = 0;
    for (size_t i = 0; i < st->n_files; i++) n += st->files[i].map.n_bytes;
    return n;
}
