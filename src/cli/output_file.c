#include "cli/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum way {
    WAY_STDOUT,
    WAY_DIRECT, // no regular file: to rename over it would take its place
    WAY_RENAME,
};

struct target {
    enum way way;
    char path[PATH_MAX]; // behind all links
    mode_t mode;
};

static lp_status fail(const char *path, struct lp_err *err) {
    return lp_err_set(err, LP_STATUS_IO, "cannot write %s: %s", path, strerror(errno));
}

// The permissions that open() would give a new file.
static mode_t new_mode(void) {
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static lp_status look(struct target *t, const char *path, struct lp_err *err) {
    struct stat st;
    *t = (struct target){.way = WAY_RENAME, .mode = new_mode()};
    if (strcmp(path, "-") == 0) {
        t->way = WAY_STDOUT;
        return LP_OK;
    }
    if (realpath(path, t->path)) {
        if (stat(t->path, &st)) return fail(path, err);
        if (S_ISDIR(st.st_mode)) {
            errno = EISDIR;
            return fail(path, err);
        }
        if (access(t->path, W_OK)) return fail(path, err);
        if (!S_ISREG(st.st_mode)) t->way = WAY_DIRECT;
        t->mode = st.st_mode & 07777;
        return LP_OK;
    }
    if (errno != ENOENT || !*path) return fail(path, err);
    if (strlen(path) >= sizeof t->path) {
        errno = ENAMETOOLONG;
        return fail(path, err);
    }
    memcpy(t->path, path, strlen(path) + 1);
    return LP_OK;
}

// Opens a new file beside the target; its name goes to `name`, which the caller releases.
static int open_beside(const struct target *t, struct lp_bytes *name) {
    lp_bytes_printf(name, "%s.XXXXXX", t->path);
    if (name->failed) {
        errno = ENOMEM;
        return -1;
    }
    return mkostemp(name->data, O_CLOEXEC);
}

lp_status lp_output_check(const char *path, struct lp_err *err) {
    struct target t;
    lp_status status = look(&t, path, err);
    if (status || t.way != WAY_RENAME) return status;
    struct lp_bytes name = {0};
    int fd = open_beside(&t, &name);
    if (fd < 0)
        status = fail(path, err);
    else {
        close(fd);
        unlink(name.data);
    }
    lp_bytes_release(&name);
    return status;
}

static bool write_all(int fd, struct lp_str data) {
    while (data.len > 0) {
        ssize_t n = write(fd, data.data, data.len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        data.data += n;
        data.len -= (size_t)n;
    }
    return true;
}

static lp_status write_renamed(const struct target *t, struct lp_str data, const char *path,
                               struct lp_err *err) {
    struct lp_bytes name = {0};
    int fd = open_beside(t, &name);
    bool made = fd >= 0, ok = made && fchmod(fd, t->mode) == 0 && write_all(fd, data);
    int error = errno;
    if (made && close(fd) != 0 && ok) {
        error = errno;
        ok = false;
    }
    if (ok && rename(name.data, t->path) != 0) {
        error = errno;
        ok = false;
    }
    if (made && !ok) unlink(name.data);
    lp_bytes_release(&name);
    errno = error;
    return ok ? LP_OK : fail(path, err);
}

static lp_status write_direct(const struct target *t, struct lp_str data, const char *path,
                              struct lp_err *err) {
    int fd = open(t->path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return fail(path, err);
    bool ok = write_all(fd, data);
    int error = errno;
    if (close(fd) != 0 && ok) {
        error = errno;
        ok = false;
    }
    errno = error;
    return ok ? LP_OK : fail(path, err);
}

lp_status lp_output_write(const char *path, struct lp_str data, struct lp_err *err) {
    struct target t;
    lp_status status = look(&t, path, err);
    if (status) return status;
    if (t.way == WAY_RENAME) return write_renamed(&t, data, path, err);
    if (t.way == WAY_DIRECT) return write_direct(&t, data, path, err);
    if (fwrite(data.data, 1, data.len, stdout) != data.len || fflush(stdout) != 0)
        return fail("to standard output", err);
    return LP_OK;
}
