// JSON keeps an entry of several lines on one line of the file.
#include "cli/history_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/file.h"

#define MAX_BYTES (64 << 20)
#define MAX_ENTRY_BYTES (16 << 10) // a longer text was hardly typed
#define GROWN 2                    // times `most`: then the file is written anew

// ---- place ----

// Makes each folder of the path's, but not the file itself.
static bool make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made) return false;
    }
    return true;
}

char *lp_history_path(void) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    struct lp_bytes path = {0};
    if (state && state[0] == '/')
        lp_bytes_printf(&path, "%s/limpid/history", state);
    else if (home && home[0] == '/')
        lp_bytes_printf(&path, "%s/.local/state/limpid/history", home);
    char *out = path.data && !path.failed && make_folders(path.data) ? lp_strdup(path.data) : NULL;
    lp_bytes_release(&path);
    return out;
}

// ---- lines ----

static bool write_line(int fd, const char *text) {
    json_t *string = json_string(text); // NULL unless UTF-8
    char *line = string ? json_dumps(string, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    size_t n = line ? strlen(line) : 0;
    if (line) line[n] = '\n'; // in place of the terminator: one write, so lines never mix
    bool written = line && write(fd, line, n + 1) == (ssize_t)(n + 1);
    free(line);
    json_decref(string);
    return written;
}

bool lp_history_append(const char *path, const char *text) {
    if (strlen(text) > MAX_ENTRY_BYTES) return false;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool written = write_line(fd, text);
    close(fd);
    return written;
}

// The beginning of the last `most` lines. *n_lines: of all.
static char *last_lines(char *text, int most, int *n_lines) {
    *n_lines = 0;
    for (char *c = text; (c = strchr(c, '\n')); c++) ++*n_lines;
    for (int skip = *n_lines - most; skip > 0; skip--) text = strchr(text, '\n') + 1;
    return text;
}

// A new file in the old one's place.
static void rewrite(const char *path, const char *lines) {
    struct lp_bytes name = {0};
    lp_bytes_printf(&name, "%s.XXXXXX", path);
    int fd = name.data ? mkstemp(name.data) : -1;
    if (fd >= 0) {
        size_t n = strlen(lines);
        bool written = write(fd, lines, n) == (ssize_t)n;
        written = close(fd) == 0 && written;
        if (!written || rename(name.data, path)) unlink(name.data);
    }
    lp_bytes_release(&name);
}

void lp_history_load(const char *path, int most, void (*add)(void *user, const char *text),
                     void *user) {
    struct lp_err err;
    char *file;
    size_t len;
    int n_lines;
    if (lp_file_read(path, MAX_BYTES, &file, &len, &err)) return;
    char *lines = last_lines(file, most, &n_lines);
    if (n_lines > GROWN * most) rewrite(path, lines);
    for (char *end; (end = strchr(lines, '\n')); lines = end + 1) {
        json_t *string = json_loadb(lines, (size_t)(end - lines), JSON_DECODE_ANY, NULL);
        if (json_is_string(string)) add(user, json_string_value(string));
        json_decref(string);
    }
    lp_free(file);
}
