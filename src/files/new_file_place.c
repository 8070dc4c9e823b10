// Before anything is touched: where the file goes, what must not be written over, what an earlier
// run has left, and whether there is room.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "files/new_file_parts.h"

#define FAT_MAGIC 0x4d44
#define GB 1e-9

// ---- the path ----

static bool suffixed(char **out, const char *path, const char *suffix) {
    struct lp_bytes text = {0};
    lp_bytes_printf(&text, "%s%s", path, suffix);
    *out = text.failed ? NULL : lp_strdup(text.data);
    lp_bytes_release(&text);
    return *out != NULL;
}

static mode_t new_mode(void) {
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

// A file that is there: its own path behind all links, its permissions.
static lp_status take_existing(struct lp_new_file_place *place, const char *path,
                               const char *resolved, struct lp_err *err) {
    struct stat st;
    if (stat(resolved, &st))
        return lp_err_set(err, LP_STATUS_IO, "cannot write %s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "%s is a folder; name the file to write, as in %s%sNAME.gguf", path, path,
                          path[strlen(path) - 1] == '/' ? "" : "/");
    if (!S_ISREG(st.st_mode))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "%s is no regular file, which a file of this size needs; name another",
                          path);
    place->exists = true;
    place->mode = st.st_mode & 07777;
    place->path = lp_strdup(resolved);
    return place->path ? LP_OK : lp_err_memory(err, strlen(resolved), "a path");
}

// A file that is not there: its folder must be.
static lp_status take_new(struct lp_new_file_place *place, const char *path, struct lp_err *err) {
    struct stat st;
    char folder[PATH_MAX], resolved[PATH_MAX];
    size_t n = strlen(path);
    if (lstat(path, &st) == 0)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "%s is a link to a file that is not there; remove it or name another",
                          path);
    if (n == 0 || n >= sizeof folder)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "the path to write has %zu bytes, expected 1 to %d", n, PATH_MAX - 1);
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(name - path) : 1, slash ? path : ".");
    if (!realpath(folder, resolved))
        return lp_err_set(err, LP_STATUS_IO, "cannot write %s: the folder %s cannot be reached: %s",
                          path, folder, strerror(errno));
    if (!*name)
        return lp_err_set(err, LP_STATUS_INVALID, "%s names no file; put a name behind the /",
                          path);
    struct lp_bytes text = {0};
    lp_bytes_printf(&text, "%s%s%s", resolved, strcmp(resolved, "/") ? "/" : "", name);
    place->path = text.failed ? NULL : lp_strdup(text.data);
    lp_bytes_release(&text);
    return place->path ? LP_OK : lp_err_memory(err, n, "a path");
}

static lp_status find_path(struct lp_new_file_place *place, const char *path, struct lp_err *err) {
    char resolved[PATH_MAX];
    lp_status status;
    if (realpath(path, resolved))
        status = take_existing(place, path, resolved, err);
    else if (errno == ENOENT)
        status = take_new(place, path, err);
    else
        status = lp_err_set(err, LP_STATUS_IO, "cannot write %s: %s", path, strerror(errno));
    if (status) return status;
    if (!suffixed(&place->partial, place->path, ".partial") ||
        !suffixed(&place->state_path, place->path, ".partial.state"))
        return lp_err_memory(err, strlen(place->path), "a path");
    return LP_OK;
}

// ---- what must stay ----

static lp_status check_inputs(const struct lp_new_file_place *place,
                              const struct lp_new_file_options *o, struct lp_err *err) {
    const char *const touched[] = {place->path, place->partial, place->state_path};
    for (uint32_t i = 0; i < o->n_inputs; i++)
        for (size_t j = 0; j < sizeof touched / sizeof touched[0]; j++)
            if (lp_file_is_same(touched[j], o->inputs[i]))
                return lp_err_set(err, LP_STATUS_INVALID,
                                  "%s would be written over, and it is read (%s); write to another "
                                  "place",
                                  touched[j], o->inputs[i]);
    return LP_OK;
}

// ---- what an earlier run has left ----

static lp_status check_partial(struct lp_new_file_place *place, enum lp_state_found found,
                               const struct lp_new_file_state *state, struct lp_err *err) {
    struct stat st;
    if (lstat(place->partial, &st)) {
        if (errno == ENOENT) return LP_OK;
        return lp_err_set(err, LP_STATUS_IO, "cannot look at %s: %s", place->partial,
                          strerror(errno));
    }
    if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || (found == LP_STATE_NONE && st.st_size > 0))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "%s is in the way, and limpid did not write it; remove or rename it",
                          place->partial);
    place->there = (uint64_t)st.st_blocks * 512;
    if (found != LP_STATE_SAME || state->inode != (uint64_t)st.st_ino) return LP_OK;
    char boot[LP_BOOT_BYTES];
    lp_new_file_boot(boot);
    bool same_boot = boot[0] && strcmp(boot, state->boot) == 0;
    uint64_t done = same_boot ? state->written : state->synced;
    place->done = (uint64_t)st.st_size >= done ? done : 0;
    place->synced = place->done ? state->synced : 0;
    return LP_OK;
}

static bool is_whole(const struct lp_new_file_place *place, uint64_t n_bytes,
                     const struct lp_new_file_state *state) {
    struct stat st;
    return place->exists && state->synced == n_bytes && access(place->partial, F_OK) &&
           stat(place->path, &st) == 0 && (uint64_t)st.st_ino == state->inode &&
           (uint64_t)st.st_size == n_bytes;
}

lp_status lp_new_file_place_find(struct lp_new_file_place *place,
                                 const struct lp_new_file_options *o, struct lp_err *err) {
    struct lp_new_file_state state;
    *place = (struct lp_new_file_place){.mode = new_mode()};
    lp_status status = find_path(place, o->path, err);
    if (!status) status = check_inputs(place, o, err);
    if (status) return status;
    enum lp_state_found found = lp_new_file_state_read(&state, place->state_path, o->job);
    place->same_job = found == LP_STATE_SAME;
    if (found == LP_STATE_SAME && is_whole(place, o->n_bytes, &state)) {
        place->whole = true;
        place->done = o->n_bytes;
        return LP_OK;
    }
    if (place->exists && !o->overwrite)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "%s exists already; name another file, or give --force to replace it",
                          o->path);
    status = check_partial(place, found, &state, err);
    if (place->done > o->n_bytes) place->done = place->synced = 0;
    return status;
}

void lp_new_file_place_release(struct lp_new_file_place *place) {
    lp_free(place->path);
    lp_free(place->partial);
    lp_free(place->state_path);
    *place = (struct lp_new_file_place){0};
}

lp_status lp_new_file_check(const struct lp_new_file_options *options, uint64_t *done,
                            struct lp_err *err) {
    struct lp_new_file_place place;
    lp_status status = lp_new_file_place_find(&place, options, err);
    *done = status ? 0 : place.done;
    lp_new_file_place_release(&place);
    return status;
}

// ---- room ----

static void folder_of(char out[PATH_MAX], const char *path) {
    const char *slash = strrchr(path, '/');
    snprintf(out, PATH_MAX, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
}

lp_status lp_new_file_check_size(const char *path, uint64_t n_bytes, struct lp_err *err) {
    struct statfs fs;
    struct rlimit most;
    char folder[PATH_MAX];
    folder_of(folder, path);
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
        n_bytes > most.rlim_cur)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "%s would have %llu bytes, and this process may write files of %llu at "
                          "most (ulimit -f); raise that",
                          path, (unsigned long long)n_bytes, (unsigned long long)most.rlim_cur);
    if (statfs(folder, &fs) == 0 && fs.f_type == FAT_MAGIC && n_bytes > UINT32_MAX)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "%s would have %.1f GB, and a FAT file system holds files of 4.2 GB at "
                          "most; write to another disk, or in parts (limpid split)",
                          path, (double)n_bytes * GB);
    return LP_OK;
}

lp_status lp_new_file_room(const char *path, const char *what, uint64_t n_bytes,
                           struct lp_err *err) {
    struct statvfs fs;
    char folder[PATH_MAX];
    folder_of(folder, path);
    if (statvfs(folder, &fs) || fs.f_blocks == 0) return LP_OK; // not every file system tells
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (n_bytes <= free_bytes) return LP_OK;
    return lp_err_set(err, LP_STATUS_LIMIT,
                      "no room for %s: %.3f GB more are needed, and %.3f GB are free on that disk; "
                      "free %.3f GB or write to another disk",
                      what, (double)n_bytes * GB, (double)free_bytes * GB,
                      (double)(n_bytes - free_bytes) * GB);
}
