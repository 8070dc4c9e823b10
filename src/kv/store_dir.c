#include "kv/store_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

#define READ_FLAGS (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) // no wait on a FIFO
#define TEMPORARY_NAME_BYTES 80
#define TEMPORARY_ATTEMPTS 100

static int64_t ns_of(struct timespec t) {
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t lp_store_dir_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ns_of(now);
}

// Bytes read, fewer only at the end of the file; or -1.
static ssize_t read_at(int fd, void *out, size_t n, off_t offset) {
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (char *)out + done, n - done, offset + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

static int write_all(int fd, const void *bytes, size_t n) {
    size_t done = 0;
    while (done < n) {
        ssize_t put = write(fd, (const char *)bytes + done, n - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        if (put == 0) return EIO;
        done += (size_t)put;
    }
    return 0;
}

// Temporary files. A writer holds a lock on its file from birth to rename, and the kernel drops the
// lock when the writer dies: a file that can be locked has no writer. (A process id in the name
// would not do: ids come again, and containers that share a directory do not share them.)

static void lock_file(int fd) {
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    } // a file system without locks keeps the temporary files of dead writers
}

static int open_temporary(int dir, struct lp_page_key id, char name[TEMPORARY_NAME_BYTES],
                          int *fd) {
    static _Atomic unsigned n_made;
    for (int attempt = 0; attempt < TEMPORARY_ATTEMPTS; attempt++) {
        struct stat st;
        snprintf(name, TEMPORARY_NAME_BYTES, "%016llx%016llx.tmp-%ld-%u", (unsigned long long)id.hi,
                 (unsigned long long)id.lo, (long)getpid(), atomic_fetch_add(&n_made, 1));
        *fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (*fd < 0 && errno == EEXIST) continue;
        if (*fd < 0) return errno;
        lock_file(*fd);
        if (fstat(*fd, &st) == 0 && st.st_nlink > 0) return 0;
        close(*fd); // another process took it for a dead writer's before it was locked
    }
    return EEXIST;
}

static void remove_if_dead(int dir, const char *name) {
    int fd = openat(dir, name, READ_FLAGS);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(dir, name, 0);
    close(fd);
}

int lp_store_dir_write(int dir, struct lp_page_key id, const void *bytes, size_t n_bytes) {
    char temporary[TEMPORARY_NAME_BYTES], name[LP_STORE_FILE_NAME_BYTES];
    int fd, rc = open_temporary(dir, id, temporary, &fd);
    if (rc != 0) return rc;
    lp_store_file_name(id, name);
    rc = write_all(fd, bytes, n_bytes);
    // The content is on the disk before the name is, so a power cut leaves a whole file or none.
    // The directory is not flushed: that could lose the name, of a page that is computed again.
    if (rc == 0 && fdatasync(fd) != 0) rc = errno;
    if (rc == 0 && renameat(dir, temporary, dir, name) != 0) rc = errno;
    if (rc != 0) unlinkat(dir, temporary, 0);
    close(fd);
    return rc;
}

int lp_store_dir_remove(int dir, struct lp_page_key id) {
    char name[LP_STORE_FILE_NAME_BYTES];
    lp_store_file_name(id, name);
    return unlinkat(dir, name, 0) == 0 || errno == ENOENT ? 0 : errno;
}

lp_status lp_store_dir_open(int *dir, const char *path, struct lp_err *err) {
    char name[TEMPORARY_NAME_BYTES];
    int fd;
    // For the owner alone: pages tell what was said.
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return lp_err_set(
            err, LP_STATUS_IO,
            "cannot make the page store's directory %s: %s; its parent must exist and "
            "be writable",
            path, strerror(errno));
    *dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*dir < 0)
        return lp_err_set(err, LP_STATUS_IO,
                          "cannot open the page store's directory %s: %s; name another directory",
                          path, strerror(errno));
    int rc = open_temporary(*dir, (struct lp_page_key){0, 0}, name, &fd);
    if (rc == 0) {
        unlinkat(*dir, name, 0);
        close(fd);
        return LP_OK;
    }
    close(*dir);
    return lp_err_set(
        err, LP_STATUS_IO,
        "cannot write into the page store's directory %s: %s; make it writable or name "
        "another",
        path, strerror(rc));
}

void lp_store_dir_close(int dir) {
    close(dir);
}

static bool add_id(struct lp_page_key **ids, size_t *n_ids, size_t *capacity,
                   struct lp_page_key id) {
    if (*n_ids == *capacity) {
        size_t more = *capacity ? *capacity * 2 : 256;
        struct lp_page_key *grown = lp_realloc(*ids, more, sizeof **ids);
        if (!grown) return false;
        *ids = grown;
        *capacity = more;
    }
    (*ids)[(*n_ids)++] = id;
    return true;
}

lp_status lp_store_dir_list(int dir, struct lp_page_key **ids, size_t *n_ids, struct lp_err *err) {
    *ids = NULL;
    *n_ids = 0;
    size_t capacity = 0;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        int error = errno;
        if (fd >= 0) close(fd);
        return lp_err_set(err, LP_STATUS_IO, "cannot list the directory: %s", strerror(error));
    }
    lp_status status = LP_OK;
    struct dirent *entry;
    while (!status && (errno = 0, entry = readdir(entries)) != NULL) {
        struct lp_page_key id;
        const char *rest;
        if (!lp_store_file_parse_name(entry->d_name, &id, &rest)) continue;
        if (strncmp(rest, ".tmp-", 5) == 0) remove_if_dead(dir, entry->d_name);
        if (strcmp(rest, ".page") == 0 && !add_id(ids, n_ids, &capacity, id))
            status = lp_err_memory(err, (*n_ids + 1) * sizeof **ids, "the page store's index");
    }
    if (!status && errno != 0)
        status = lp_err_set(err, LP_STATUS_IO, "cannot list the directory: %s", strerror(errno));
    closedir(entries);
    if (status) {
        lp_free(*ids);
        *ids = NULL;
        *n_ids = 0;
    }
    return status;
}

bool lp_store_dir_inspect(int dir, const struct lp_store_format *format, struct lp_page_key id,
                          struct lp_store_found *found) {
    char name[LP_STORE_FILE_NAME_BYTES];
    uint8_t head[LP_STORE_FILE_MAX_HEADER];
    struct stat st;
    lp_store_file_name(id, name);
    int fd = openat(dir, name, READ_FLAGS);
    if (fd < 0 && errno == ENOENT) return false;
    bool known = fd >= 0 ? fstat(fd, &st) == 0 : fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!known || !S_ISREG(st.st_mode)) {
        if (fd >= 0) close(fd);
        return false;
    }
    *found =
        (struct lp_store_found){id, (uint64_t)st.st_size, ns_of(st.st_mtim), LP_STORE_FILE_OTHERS};
    if (fd < 0) return true;
    ssize_t n = read_at(fd, head, lp_store_file_header_bytes(format), 0);
    close(fd);
    found->state = n < 0 ? LP_STORE_FILE_DAMAGED
                         : lp_store_file_recognise(format, id, head, (size_t)n, found->bytes);
    return true;
}

static enum lp_store_file_state read_and_check(int fd, const struct lp_store_format *format,
                                               const struct lp_store_page *page, void *payload) {
    uint8_t header[LP_STORE_FILE_MAX_HEADER];
    size_t n_header = lp_store_file_header_bytes(format), n_payload = format->page_bytes, n_file;
    uint64_t sum;
    struct stat st;
    if (!lp_store_file_bytes(format, &n_file) || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size != n_file || read_at(fd, header, n_header, 0) != (ssize_t)n_header ||
        read_at(fd, payload, n_payload, (off_t)n_header) != (ssize_t)n_payload ||
        read_at(fd, &sum, sizeof sum, (off_t)(n_header + n_payload)) != (ssize_t)sizeof sum)
        return LP_STORE_FILE_DAMAGED;
    return lp_store_file_check(format, page, header, payload, sum);
}

enum lp_store_read lp_store_dir_read(int dir, const struct lp_store_format *format,
                                     const struct lp_store_page *page, void *payload) {
    char name[LP_STORE_FILE_NAME_BYTES];
    struct lp_page_key id = lp_store_file_id(format, page->key);
    lp_store_file_name(id, name);
    int fd = openat(dir, name, READ_FLAGS);
    if (fd < 0) return errno == ENOENT ? LP_STORE_READ_NONE : LP_STORE_READ_OTHERS;
    enum lp_store_file_state state = read_and_check(fd, format, page, payload);
    // Another user's file may not be touched: then it only ages sooner.
    if (state == LP_STORE_FILE_OURS) (void)!futimens(fd, NULL);
    close(fd);
    if (state == LP_STORE_FILE_DAMAGED) lp_store_dir_remove(dir, id);
    return state == LP_STORE_FILE_OURS     ? LP_STORE_READ_OK
           : state == LP_STORE_FILE_OTHERS ? LP_STORE_READ_OTHERS
                                           : LP_STORE_READ_DAMAGED;
}
