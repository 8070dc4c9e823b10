// The .safetensors files of a folder: which they are, and that they hold what the index says.
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/grow.h"
#include "gguf/json_members.h"
#include "gguf/safetensors_parts.h"

#define INDEX_NAME "model.safetensors.index.json"
#define MAX_FILES 100000
#define MAX_LISTED 600 // bytes of file names in a message

// ---- the index

static lp_status index_broken(struct lp_err *err, const char *from, const char *what) {
    return lp_err_set(err, LP_STATUS_FORMAT, "%s %s; download it again", from, what);
}

// A file beside the index, not one somewhere else.
static bool is_plain_name(const char *name) {
    return *name && strlen(name) <= NAME_MAX && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static lp_status add_entry(struct lp_st_index *x, struct lp_map *files,
                           const struct lp_json_member *m, const char *from, struct lp_err *err) {
    char *array, *file;
    uint32_t old;
    lp_status status = lp_st_text(&x->texts, m->key, &array);
    if (!status) status = lp_st_text(&x->texts, m->value, &file);
    if (status == LP_STATUS_MEMORY) return lp_err_memory(err, 0, "an index of arrays");
    if (status) return index_broken(err, from, "names an array without naming its file");
    if (!is_plain_name(file))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s says that %.100s is in \"%.100s\", which is no file of the folder",
                          from, array, file);
    if (!lp_map_add(files, lp_str_from(file), (uint32_t)x->n_files, &old) ||
        !LP_GROW(x->files, x->files_capacity, x->n_files + 1) ||
        !LP_GROW(x->entries, x->entries_capacity, x->n_entries + 1))
        return lp_err_memory(err, 0, "an index of arrays");
    if (old == LP_MAP_NONE) x->files[x->n_files++] = file;
    if (x->n_files > MAX_FILES)
        return lp_err_set(err, LP_STATUS_LIMIT, "%s names more than %d files", from, MAX_FILES);
    x->entries[x->n_entries++] =
        (struct lp_st_index_entry){array, old == LP_MAP_NONE ? file : x->files[old]};
    return LP_OK;
}

static lp_status read_weight_map(struct lp_st_index *x, struct lp_str text, const char *from,
                                 struct lp_err *err) {
    struct lp_json_members walk = lp_json_members(text);
    struct lp_json_member m;
    struct lp_map files = {0};
    enum lp_json_step step;
    lp_status status = LP_OK;
    while (!status && (step = lp_json_members_next(&walk, &m)) == LP_JSON_MEMBER)
        status = add_entry(x, &files, &m, from, err);
    if (!status && step == LP_JSON_BROKEN)
        status = index_broken(err, from, "has a weight_map that is no JSON object");
    lp_map_release(&files);
    return status;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

lp_status lp_st_index_read(struct lp_st_index *out, const void *text, uint64_t n_bytes,
                           const char *from, struct lp_err *err) {
    *out = (struct lp_st_index){0};
    if (n_bytes > LP_ST_MAX_JSON)
        return lp_err_set(err, LP_STATUS_LIMIT, "%s has %llu bytes, at most %llu are read", from,
                          (unsigned long long)n_bytes, (unsigned long long)LP_ST_MAX_JSON);
    struct lp_json_members walk = lp_json_members((struct lp_str){text, (size_t)n_bytes});
    struct lp_json_member m;
    struct lp_str weight_map = {0};
    enum lp_json_step step;
    while ((step = lp_json_members_next(&walk, &m)) == LP_JSON_MEMBER) {
        if (!lp_str_is(m.key, "\"weight_map\"")) continue;
        if (weight_map.data) return index_broken(err, from, "has two weight_maps");
        weight_map = m.value;
    }
    if (step == LP_JSON_BROKEN) return index_broken(err, from, "is no JSON object");
    if (!weight_map.data) return index_broken(err, from, "has no weight_map");
    lp_status status = read_weight_map(out, weight_map, from, err);
    if (!status && out->n_files == 0) status = index_broken(err, from, "names no files");
    if (!status) qsort(out->files, out->n_files, sizeof *out->files, by_text);
    return status;
}

void lp_st_index_release(struct lp_st_index *index) {
    lp_free(index->files);
    lp_free(index->entries);
    lp_arena_release(&index->texts);
    *index = (struct lp_st_index){0};
}

// ---- files

static bool exists(const char *folder, const char *name) {
    char path[PATH_MAX];
    struct stat is;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && stat(path, &is) == 0;
}

// All files are there, or one message names those that are not.
static lp_status check_there(const char *folder, char *const *files, size_t n, const char *who_says,
                             struct lp_err *err) {
    struct lp_bytes list = {0};
    size_t n_missing = 0, n_listed = 0;
    for (size_t i = 0; i < n; i++) {
        if (exists(folder, files[i])) continue;
        n_missing++;
        if (list.len + strlen(files[i]) > MAX_LISTED) continue;
        lp_bytes_printf(&list, "%s%s", n_listed++ ? ", " : "", files[i]);
    }
    if (n_missing > n_listed) lp_bytes_printf(&list, " and %zu more", n_missing - n_listed);
    lp_status status = LP_OK;
    if (n_missing > 0)
        status = lp_err_set(err, LP_STATUS_IO,
                            "%.200s lacks %zu of the %zu files that %s names: %s; download them "
                            "into the folder",
                            folder, n_missing, n, who_says, list.data ? list.data : "");
    lp_bytes_release(&list);
    return status;
}

static lp_status add_files(struct lp_safetensors *st, const char *folder, char *const *files,
                           size_t n, struct lp_err *err) {
    lp_status status = LP_OK;
    for (size_t i = 0; i < n && !status; i++) {
        struct lp_bytes path = {0};
        status = lp_bytes_printf(&path, "%s/%s", folder, files[i])
                     ? lp_st_add_file(st, path.data, err)
                     : lp_err_memory(err, 0, "a path");
        lp_bytes_release(&path);
    }
    return status;
}

// What the index says of an array is so.
static lp_status check_entry(const struct lp_safetensors *st, const struct lp_st_index_entry *e,
                             const char *folder, struct lp_err *err) {
    const struct lp_st_array *a = lp_safetensors_find(st, e->array);
    const char *path = a ? st->files[a->file].path : NULL;
    if (a && strcmp(strrchr(path, '/') + 1, e->file) == 0) return LP_OK;
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "%s/" INDEX_NAME " says that %.100s is in %.100s, but it is %s; index and "
                      "files are of different models or versions",
                      folder, e->array, e->file, a ? path : "in none of the files");
}

static lp_status open_indexed(struct lp_safetensors *st, const char *folder, const char *index_path,
                              struct lp_err *err) {
    struct lp_mapped map;
    struct lp_st_index index = {0};
    lp_status status = lp_mapped_open(&map, index_path, err);
    if (status) return status;
    status = lp_st_index_read(&index, map.data ? map.data : (const void *)"", map.n_bytes,
                              index_path, err);
    lp_mapped_close(&map);
    if (!status) status = check_there(folder, index.files, index.n_files, INDEX_NAME, err);
    if (!status) status = add_files(st, folder, index.files, index.n_files, err);
    for (size_t i = 0; i < index.n_entries && !status; i++)
        status = check_entry(st, &index.entries[i], folder, err);
    lp_st_index_release(&index);
    return status;
}

// ---- without an index

static int is_safetensors(const struct dirent *entry) {
    size_t n = strlen(entry->d_name), m = strlen(".safetensors");
    return n > m && strcmp(entry->d_name + n - m, ".safetensors") == 0;
}

// N of model-00001-of-0000N.safetensors, or 0.
static int count_in_name(const char *name) {
    int part, count, n = 0;
    char last;
    if (sscanf(name, "model-%5d-of-%5d.safetensor%c%n", &part, &count, &last, &n) != 3 ||
        last != 's' || name[n] || part < 1 || part > count)
        return 0;
    char made[64];
    snprintf(made, sizeof made, "model-%05d-of-%05d.safetensors", part, count);
    return strcmp(made, name) == 0 ? count : 0;
}

static lp_status open_numbered(struct lp_safetensors *st, const char *folder, int count,
                               struct lp_err *err) {
    struct lp_arena texts = {0};
    lp_status status = LP_OK;
    char **files = lp_arena_alloc(&texts, (size_t)count, sizeof *files);
    for (int i = 0; i < count && files; i++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i + 1, count);
        if (!(files[i] = lp_arena_strndup(&texts, name, strlen(name)))) files = NULL;
    }
    if (!files) status = lp_err_memory(err, 0, "a list of files");
    if (!status) status = check_there(folder, files, (size_t)count, "their own numbering", err);
    if (!status) status = add_files(st, folder, files, (size_t)count, err);
    lp_arena_release(&texts);
    return status;
}

static lp_status open_listed(struct lp_safetensors *st, const char *folder,
                             struct dirent *const *entries, int n, struct lp_err *err) {
    for (int i = 0; i < n; i++)
        if (strcmp(entries[i]->d_name, "model.safetensors") == 0)
            return add_files(st, folder, (char *[]){entries[i]->d_name}, 1, err);
    for (int i = 0; i < n; i++) {
        int count = count_in_name(entries[i]->d_name);
        if (count > 0) return open_numbered(st, folder, count, err);
    }
    if (n == 1) return add_files(st, folder, (char *[]){entries[0]->d_name}, 1, err);
    if (n == 0)
        return lp_err_set(err, LP_STATUS_IO,
                          "%s holds no .safetensors files; download the weights into it", folder);
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "%s holds %d .safetensors files and no " INDEX_NAME
                      " that says which belong together; download it too",
                      folder, n);
}

static lp_status open_unindexed(struct lp_safetensors *st, const char *folder, struct lp_err *err) {
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, is_safetensors, alphasort);
    if (n < 0)
        return lp_err_set(err, LP_STATUS_IO, "cannot read the folder %s: %s", folder,
                          strerror(errno));
    lp_status status = open_listed(st, folder, entries, n, err);
    for (int i = 0; i < n; i++) free(entries[i]); // NOLINT: scandir's
    free(entries);
    return status;
}

lp_status lp_safetensors_open_folder(struct lp_safetensors **out, const char *folder,
                                     struct lp_err *err) {
    *out = NULL;
    struct lp_safetensors *st = lp_st_new(err);
    struct lp_bytes index = {0};
    if (!st) return LP_STATUS_MEMORY;
    lp_status status = LP_OK;
    if (!lp_bytes_printf(&index, "%s/" INDEX_NAME, folder))
        status = lp_err_memory(err, 0, "a path");
    else if (exists(folder, INDEX_NAME))
        status = open_indexed(st, folder, index.data, err);
    else
        status = open_unindexed(st, folder, err);
    lp_bytes_release(&index);
    if (status)
        lp_safetensors_close(st);
    else
        *out = st;
    return status;
}
