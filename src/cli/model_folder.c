// Every file of a set leads to the set's first part, so that each set is seen once.
#include "cli/model_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/grow.h"

#define SUFFIX_BYTES 20 // "-00001-of-00003.gguf"
#define MAX_PARTS 4096
#define CONFIG "config.json"

bool lp_name_ends(const char *name, const char *ending) {
    size_t n = strlen(name), m = strlen(ending);
    return n > m && strcasecmp(name + n - m, ending) == 0;
}

bool lp_is_checkpoint(const char *name) {
    static const char *const endings[] = {
        ".safetensors", ".safetensors.index.json", ".bin", ".pt", ".pth", ".onnx"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (lp_name_ends(name, endings[i])) return true;
    return false;
}

// ---- one set ----

static bool five_digits(const char *text, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *out = *out * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

// The number of parts that a name speaks of; 1 for a name that is not a part's.
static uint32_t parts_of_name(const char *name) {
    size_t n = strlen(name);
    uint32_t number, count;
    if (n <= SUFFIX_BYTES) return 1;
    const char *s = name + n - SUFFIX_BYTES;
    bool is_part = s[0] == '-' && five_digits(s + 1, &number) && memcmp(s + 6, "-of-", 4) == 0 &&
                   five_digits(s + 10, &count) && strcmp(s + 15, ".gguf") == 0;
    return is_part && number >= 1 && number <= count && count <= MAX_PARTS ? count : 1;
}

static void name_part(char *path, uint32_t number) {
    char digits[16];
    snprintf(digits, sizeof digits, "%05u", number);
    memcpy(path + strlen(path) - SUFFIX_BYTES + 1, digits, 5);
}

bool lp_model_part_rename(char *path, uint32_t number) {
    if (parts_of_name(path) == 1) return false;
    name_part(path, number);
    return true;
}

bool lp_model_set_look(struct lp_model_set *set, const char *file) {
    struct stat st;
    *set = (struct lp_model_set){.path = lp_strdup(file), .n_parts = parts_of_name(file)};
    if (!set->path) return false;
    if (set->n_parts > 1) name_part(set->path, 1);
    char *part = lp_strdup(set->path);
    if (!part) {
        lp_free(set->path);
        set->path = NULL;
        return false;
    }
    for (uint32_t i = 1; i <= set->n_parts; i++) {
        if (set->n_parts > 1) name_part(part, i);
        if (stat(part, &st) == 0 && S_ISREG(st.st_mode))
            set->bytes += (uint64_t)st.st_size;
        else {
            if (set->n_missing < LP_MISSING_NAMED) set->missing[set->n_missing] = i;
            set->n_missing++;
        }
    }
    lp_free(part);
    return true;
}

// ---- a folder ----

static bool is_known(const struct lp_model_folder *folder, const char *file) {
    size_t n = strlen(file);
    for (size_t i = folder->n_sets; i-- > 0;) {
        const struct lp_model_set *set = &folder->sets[i];
        if (set->n_parts > 1 && strlen(set->path) == n &&
            memcmp(set->path, file, n - SUFFIX_BYTES) == 0 &&
            strcmp(set->path + n - 11, file + n - 11) == 0) // "-00003.gguf"
            return true;
    }
    return false;
}

static bool make_room(struct lp_model_folder *folder) {
    return LP_GROW(folder->sets, folder->capacity, folder->n_sets + 1);
}

static bool add_file(struct lp_model_folder *folder, const char *file) {
    if (parts_of_name(file) > 1 && is_known(folder, file)) return true;
    if (!make_room(folder)) return false;
    if (!lp_model_set_look(&folder->sets[folder->n_sets], file)) return false;
    folder->n_sets++;
    return true;
}

static char *join(const char *folder, const char *name) {
    size_t n = strlen(folder), size = n + strlen(name) + 2;
    char *path = lp_alloc(size, 1);
    if (path) snprintf(path, size, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
    return path;
}

// What one folder holds of a checkpoint.
struct checkpoint {
    bool has_config, has_other;
    uint32_t n_parts;
    uint64_t bytes;
};

static void look_at(struct checkpoint *c, const char *name, const struct stat *st) {
    if (strcmp(name, CONFIG) == 0)
        c->has_config = true;
    else if (lp_name_ends(name, ".safetensors")) {
        c->n_parts++;
        c->bytes += (uint64_t)st->st_size;
    } else if (lp_is_checkpoint(name) && !lp_name_ends(name, ".json"))
        c->has_other = true;
}

static lp_status add_checkpoint(struct lp_model_folder *out, const char *path,
                                const struct checkpoint *c, struct lp_err *err) {
    if (!c->has_config || !c->n_parts) {
        out->has_checkpoint = out->has_checkpoint || c->has_other || c->n_parts;
        return LP_OK;
    }
    char *config = make_room(out) ? join(path, CONFIG) : NULL;
    if (!config) return lp_err_memory(err, 0, "the list of a folder");
    out->sets[out->n_sets++] = (struct lp_model_set){
        .path = config, .bytes = c->bytes, .is_checkpoint = true, .n_parts = c->n_parts};
    return LP_OK;
}

static lp_status read_folder(struct lp_model_folder *out, const char *path, int depth,
                             struct lp_err *err) {
    DIR *dir = opendir(path);
    if (!dir) return lp_err_set(err, LP_STATUS_IO, "%s", strerror(errno));
    struct checkpoint checkpoint = {0};
    lp_status status = LP_OK;
    for (struct dirent *entry; !status && (entry = readdir(dir));) {
        struct stat st;
        if (entry->d_name[0] == '.') continue;
        char *file = join(path, entry->d_name);
        if (!file)
            status = lp_err_memory(err, 0, "the list of a folder");
        else if (stat(file, &st) == 0 && S_ISDIR(st.st_mode)) {
            if (depth > 0) status = read_folder(out, file, depth - 1, err);
            if (status == LP_STATUS_IO) status = LP_OK;
        } else if (lp_name_ends(entry->d_name, ".gguf")) {
            if (!add_file(out, file)) status = lp_err_memory(err, 0, "the list of a folder");
        } else if (stat(file, &st) == 0)
            look_at(&checkpoint, entry->d_name, &st);
        lp_free(file);
    }
    closedir(dir);
    return status ? status : add_checkpoint(out, path, &checkpoint, err);
}

char *lp_model_checkpoint_of(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strcmp(name, CONFIG) != 0) return NULL;
    if (!slash) return lp_strdup(".");
    return lp_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct lp_model_set *)a)->path, ((const struct lp_model_set *)b)->path);
}

lp_status lp_model_folder_read(struct lp_model_folder *out, const char *path, struct lp_err *err) {
    *out = (struct lp_model_folder){0};
    lp_status status = read_folder(out, path, 1, err);
    if (out->n_sets > 1) qsort(out->sets, out->n_sets, sizeof *out->sets, by_path);
    return status;
}

void lp_model_folder_release(struct lp_model_folder *folder) {
    for (size_t i = 0; i < folder->n_sets; i++) lp_free(folder->sets[i].path);
    lp_free(folder->sets);
    *folder = (struct lp_model_folder){0};
}
