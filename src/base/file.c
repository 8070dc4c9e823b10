#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

static lp_status open_regular(const char *path, int *fd, uint64_t *n_bytes, struct lp_err *err) {
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return lp_err_set(err, LP_STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        return lp_err_set(err, LP_STATUS_IO, "cannot read %s: it is not a regular file", path);
    }
    *n_bytes = (uint64_t)st.st_size;
    return LP_OK;
}

lp_status lp_mapped_open(struct lp_mapped *map, const char *path, struct lp_err *err) {
    int fd;
    *map = (struct lp_mapped){0};
    lp_status status = open_regular(path, &fd, &map->n_bytes, err);
    if (status) return status;
    if (map->n_bytes > 0) {
        void *data = mmap(NULL, map->n_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED)
            status = lp_err_set(err, LP_STATUS_IO, "cannot map %s (%llu bytes): %s", path,
                                (unsigned long long)map->n_bytes, strerror(errno));
        else
            map->data = data;
    }
    close(fd);
    return status;
}

void lp_mapped_close(struct lp_mapped *map) {
    if (map->data) munmap((void *)map->data, map->n_bytes);
    *map = (struct lp_mapped){0};
}

void lp_mapped_drop(const struct lp_mapped *map, uint64_t offset, uint64_t n_bytes) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t begin = (offset + page - 1) / page * page, end = (offset + n_bytes) / page * page;
    if (map->data && begin < end && end <= map->n_bytes)
        (void)madvise((void *)(map->data + begin), end - begin, MADV_DONTNEED);
}

void lp_mapped_will_need(const struct lp_mapped *map, uint64_t offset, uint64_t n_bytes) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), begin = offset / page * page;
    if (map->data && begin < map->n_bytes && n_bytes <= map->n_bytes - offset)
        (void)madvise((void *)(map->data + begin), offset - begin + n_bytes, MADV_WILLNEED);
}

lp_status lp_file_read(const char *path, uint64_t max_bytes, char **out, size_t *out_len,
                       struct lp_err *err) {
    int fd;
    uint64_t n_bytes;
    lp_status status = open_regular(path, &fd, &n_bytes, err);
    if (status) return status;
    char *data = NULL;
    size_t done = 0;
    if (n_bytes > max_bytes) {
        status = lp_err_set(err, LP_STATUS_LIMIT, "%s has %llu bytes, at most %llu are read", path,
                            (unsigned long long)n_bytes, (unsigned long long)max_bytes);
        goto out;
    }
    data = lp_alloc(n_bytes + 1, 1);
    if (!data) {
        status = lp_err_memory(err, n_bytes + 1, path);
        goto out;
    }
    while (done < n_bytes) {
        ssize_t n = read(fd, data + done, n_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            status = lp_err_set(err, LP_STATUS_IO, "cannot read %s: %s", path, strerror(errno));
            goto out;
        }
        if (n == 0) break;
        done += (size_t)n;
    }
out:
    close(fd);
    if (status) {
        lp_free(data);
        return status;
    }
    data[done] = 0;
    *out = data;
    *out_len = done;
    return LP_OK;
}

bool lp_file_is_same(const char *a, const char *b) {
    struct stat x, y;
    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}
