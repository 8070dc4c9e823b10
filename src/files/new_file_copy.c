// What goes into a new file. Bringing it to the disk is new_file_sync.c's.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "files/new_file_parts.h"

static lp_status fail_write(const struct lp_new_file *f, uint64_t offset, struct lp_err *err) {
    bool full = errno == ENOSPC || errno == EDQUOT;
    bool keeps = f->resumable && f->state.written > 0;
    return lp_err_set(err, LP_STATUS_IO, "cannot write %s at byte %llu: %s%s%s", f->place.partial,
                      (unsigned long long)offset, strerror(errno),
                      full ? "; free some, or write to another disk" : "",
                      keeps ? "; it is kept, and the same command goes on from there" : "");
}

static lp_status write_all(struct lp_new_file *f, uint64_t offset, const char *data, uint64_t n,
                           struct lp_err *err) {
    while (n > 0) {
        ssize_t written = pwrite(f->fd, data, (size_t)n, (off_t)offset);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_write(f, offset, err);
        data += written;
        offset += (uint64_t)written;
        n -= (uint64_t)written;
    }
    return LP_OK;
}

lp_status lp_new_file_write(struct lp_new_file *f, uint64_t offset, const void *data, uint64_t n,
                            struct lp_err *err) {
    lp_status status = write_all(f, offset, data, n, err);
    return status ? status : lp_new_file_advance(f, offset, n, err);
}

static lp_status read_all(int fd, uint64_t offset, char *data, uint64_t n, const char *from,
                          struct lp_err *err) {
    while (n > 0) {
        ssize_t got = pread(fd, data, (size_t)n, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return lp_err_set(err, LP_STATUS_IO, "cannot read %s at byte %llu: %s", from,
                              (unsigned long long)offset, strerror(errno));
        if (got == 0)
            return lp_err_set(err, LP_STATUS_IO,
                              "%s ends at byte %llu, but was longer before; it was changed while "
                              "it was read, run the command again",
                              from, (unsigned long long)offset);
        data += got;
        offset += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return LP_OK;
}

// As much as the kernel copies; the rest, and the reason, are read and written's.
static uint64_t copy_in_kernel(struct lp_new_file *f, uint64_t offset, int fd, uint64_t fd_offset,
                               uint64_t n) {
    uint64_t done = 0;
    while (f->in_kernel && done < n) {
        off_t in = (off_t)(fd_offset + done), out = (off_t)(offset + done);
        ssize_t copied = copy_file_range(fd, &in, f->fd, &out, (size_t)(n - done), 0);
        if (copied < 0 && errno == EINTR) continue;
        if (copied <= 0) f->in_kernel = false;
        if (copied > 0) done += (uint64_t)copied;
    }
    return done;
}

static lp_status copy_piece(struct lp_new_file *f, uint64_t offset, int fd, uint64_t fd_offset,
                            uint64_t n, const char *from, struct lp_err *err) {
    uint64_t done = copy_in_kernel(f, offset, fd, fd_offset, n);
    if (done == n) return LP_OK;
    if (!f->buffer) f->buffer = lp_alloc_aligned(LP_NEW_FILE_BUFFER_BYTES, 1);
    if (!f->buffer) return lp_err_memory(err, LP_NEW_FILE_BUFFER_BYTES, "a copy's buffer");
    lp_status status = read_all(fd, fd_offset + done, f->buffer, n - done, from, err);
    return status ? status : write_all(f, offset + done, f->buffer, n - done, err);
}

lp_status lp_new_file_copy(struct lp_new_file *f, uint64_t offset, int fd, uint64_t fd_offset,
                           uint64_t n, const char *from, struct lp_err *err) {
    while (n > 0) {
        uint64_t piece = n < LP_NEW_FILE_BUFFER_BYTES ? n : LP_NEW_FILE_BUFFER_BYTES;
        lp_status status = copy_piece(f, offset, fd, fd_offset, piece, from, err);
        if (!status) status = lp_new_file_advance(f, offset, piece, err);
        if (status) return status;
        if (f->drop_behind) posix_fadvise(fd, (off_t)fd_offset, (off_t)piece, POSIX_FADV_DONTNEED);
        offset += piece;
        fd_offset += piece;
        n -= piece;
    }
    return LP_OK;
}
