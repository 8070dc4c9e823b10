#include "cli/trace_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"
#include "trace/view_process.h"

#define MOST_INPUT (UINT64_C(1) << 30) // of a pipe, which is kept in memory

static int without_memory(void) {
    return lp_fail_text("no memory for the files of a trace");
}

// ---- one file ----

static int read_pipe(struct lp_bytes *bytes) {
    char piece[65536];
    size_t n;
    bytes->max_bytes = MOST_INPUT;
    while ((n = fread(piece, 1, sizeof piece, stdin)) > 0)
        if (!lp_bytes_append(bytes, piece, n))
            return lp_fail_text("standard input is larger than 1 GiB or than memory; give a file");
    return ferror(stdin) ? lp_fail_text("cannot read standard input: %s", strerror(errno))
                         : LP_EXIT_OK;
}

// "t.jsonl.rank3" is of rank 3, "t.jsonl" of rank 0.
static int64_t rank_in_name(const char *path) {
    const char *found = NULL;
    char *end;
    for (const char *at = path; (at = strstr(at, ".rank")); at++) found = at + 5;
    if (!found || *found < '0' || *found > '9') return 0;
    const long rank = strtol(found, &end, 10);
    return !*end && rank < LP_TRACE_MOST_FILES ? rank : 0;
}

static const char *keep_text(struct lp_trace_files *files, const char *text) {
    return lp_arena_strndup(&files->texts, text, strlen(text));
}

// The next row.
static struct lp_view_file *add(struct lp_trace_files *files, const char *path) {
    struct lp_view_file *file = &files->files[files->n];
    file->path = keep_text(files, path);
    file->rank = rank_in_name(path);
    files->n += file->path != NULL;
    return file->path ? file : NULL;
}

static lp_status map(struct lp_trace_files *files, struct lp_view_file *file, struct lp_err *err) {
    struct lp_mapped *map = &files->maps[file - files->files];
    lp_status status = lp_mapped_open(map, file->path, err);
    if (!status) file->lines = (struct lp_str){(const char *)map->data, map->n_bytes};
    return status;
}

static int add_file(struct lp_trace_files *files, const char *path) {
    struct lp_view_file *file = add(files, path);
    struct lp_err err;
    if (!file) return without_memory();
    if (strcmp(path, "-") != 0)
        return map(files, file, &err) ? lp_fail((limpid_error *)&err) : LP_EXIT_OK;
    int status = read_pipe(&files->piped);
    file->lines = lp_bytes_view(&files->piped);
    return status;
}

// ---- those beside it ----

// False without memory.
static bool add_beside(struct lp_trace_files *files, const char *path, int64_t rank,
                       int64_t n_ranks) {
    struct lp_view_file *file = add(files, path);
    struct lp_view_process process;
    struct lp_err err;
    if (!file) return false;
    if (!map(files, file, &err)) {
        lp_view_process_find(&process, file->lines);
        if (process.rank < 0 || (process.rank == rank && process.n_ranks == n_ranks)) return true;
        lp_err_set(&err, LP_STATUS_FORMAT, "%s is of another run, by rank %lld of %lld", path,
                   (long long)process.rank, (long long)process.n_ranks);
        file->lines = (struct lp_str){0};
    }
    return (file->why = keep_text(files, err.text)) != NULL;
}

static int add_others(struct lp_trace_files *files) {
    const struct lp_view_file *file = &files->files[0];
    const size_t size = strlen(file->path) + 16;
    struct lp_view_process process;
    lp_view_process_find(&process, file->lines);
    if (process.rank > 0 || file->rank > 0 || strcmp(file->path, "-") == 0) return LP_EXIT_OK;
    char *path = lp_arena_alloc(&files->texts, size, 1);
    bool ok = path != NULL;
    for (int64_t rank = 1; ok && rank < LP_TRACE_MOST_FILES; rank++) {
        snprintf(path, size, "%s.rank%d", file->path, (int)rank);
        if (process.n_ranks < 0 ? access(path, F_OK) != 0 : rank >= process.n_ranks) break;
        ok = add_beside(files, path, rank, process.n_ranks);
    }
    return ok ? LP_EXIT_OK : without_memory();
}

// ---- all ----

int lp_trace_files_open(struct lp_trace_files *files, const char *const *paths, size_t n) {
    *files = (struct lp_trace_files){0};
    files->files = lp_alloc(LP_TRACE_MOST_FILES, sizeof *files->files);
    files->maps = lp_alloc(LP_TRACE_MOST_FILES, sizeof *files->maps);
    if (!files->files || !files->maps) return without_memory();
    int status = LP_EXIT_OK;
    for (size_t i = 0; i < n && !status; i++) status = add_file(files, paths[i]);
    return status || n > 1 ? status : add_others(files);
}

static int64_t rank_of(const struct lp_view_file *file) {
    struct lp_view_process process;
    lp_view_process_find(&process, file->lines);
    return process.rank < 0 ? file->rank : process.rank;
}

int lp_trace_files_keep(struct lp_trace_files *files, int64_t rank) {
    size_t at = 0;
    while (at < files->n && rank_of(&files->files[at]) != rank) at++;
    if (at == files->n)
        return lp_fail_text("%s has no rank %lld", files->files[0].path, (long long)rank);
    if (files->files[at].why)
        return lp_fail_text("the trace of rank %lld: %s", (long long)rank, files->files[at].why);
    const struct lp_mapped unused = files->maps[0];
    files->files[0] = files->files[at];
    files->maps[0] = files->maps[at];
    files->maps[at] = unused;
    while (files->n > 1) lp_mapped_close(&files->maps[--files->n]);
    return LP_EXIT_OK;
}

void lp_trace_files_release(struct lp_trace_files *files) {
    for (size_t i = 0; i < files->n; i++) lp_mapped_close(&files->maps[i]);
    lp_free(files->files);
    lp_free(files->maps);
    lp_bytes_release(&files->piped);
    lp_arena_release(&files->texts);
}
